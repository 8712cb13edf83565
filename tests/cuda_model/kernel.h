// CUDA's language and built-in functions for a kernel that a C++ compiler reads. Included ahead of the kernel's text.
#ifndef CUDA_MODEL_KERNEL
#define CUDA_MODEL_KERNEL

#include "runtime.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __cluster_dims__(...)

// Code whose accesses are not the kernel's.
#define MODEL_UNREPORTED __attribute__((no_sanitize("thread")))

// The running thread; the model sets it before a thread goes on.
static const ModelThread* model_self;
extern "C" __attribute__((visibility("default"))) const ModelThread** const model_self_place;
const ModelThread** const model_self_place = &model_self;

// A thread's own numbers never change, so the compiler may ask once.
#define MODEL_OWN(type, name, field) \
    MODEL_UNREPORTED __attribute__((noinline, const, unused)) static type name() { return model_self->field; }
MODEL_OWN(ModelDim, model_thread_index, thread)
MODEL_OWN(ModelDim, model_block_index, block)
MODEL_OWN(ModelDim, model_block_dim, block_dim)
MODEL_OWN(ModelDim, model_grid_dim, grid_dim)
MODEL_OWN(unsigned, model_cluster_rank, cluster_rank)
MODEL_OWN(unsigned, model_cluster_size, cluster_size)
MODEL_OWN(unsigned, model_cluster_number, cluster_number)
#define threadIdx (model_thread_index())
#define blockIdx (model_block_index())
#define blockDim (model_block_dim())
#define gridDim (model_grid_dim())
constexpr int warpSize = 32;

// What a compiler for a GPU is told to believe.
#define __builtin_assume(x) ((void)0)
#define __isShared(x) true
#define __isGlobal(x) true

template <class T>
struct model_kernel;

// How a kernel is called with the parameters of a launch, and how large they are.
template <class... P>
struct model_kernel<void (*)(P...)> {
    template <class T>
    MODEL_UNREPORTED static T& from(void* at) {
        return *(T*)at;
    }
    static constexpr unsigned sizes[] = {(unsigned)sizeof(P)..., 0};
    template <size_t... I>
    struct Indices {};
    template <size_t N, size_t... I>
    struct Up : Up<N - 1, N - 1, I...> {};
    template <size_t... I>
    struct Up<0, I...> {
        typedef Indices<I...> Type;
    };
    template <size_t... I>
    MODEL_UNREPORTED static void call(void (*kernel)(P...), void** params, Indices<I...>) {
        kernel(from<P>(params[I])...);
    }
    MODEL_UNREPORTED static void call(void (*kernel)(P...), void** params) {
        call(kernel, params, typename Up<sizeof...(P)>::Type());
    }
};

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(4) ushort2 {
    unsigned short x, y;
};
struct alignas(8) ushort4 {
    unsigned short x, y, z, w;
};
struct alignas(4) uchar4 {
    unsigned char x, y, z, w;
};
struct alignas(16) ulonglong2 {
    unsigned long long x, y;
};
struct alignas(16) longlong2 {
    long long x, y;
};
struct alignas(16) double2 {
    double x, y;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }

template <class To, class From>
static inline __attribute__((always_inline)) To model_bits(From x) {
    static_assert(sizeof(To) >= sizeof(From), "no bit is lost");
    To y{};
    __builtin_memcpy(&y, &x, sizeof x);
    return y;
}

template <class T>
static inline __attribute__((always_inline)) T model_value(uint64_t bits) {
    T x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

#include "collectives.h"
#include "numbers.h"

#endif
