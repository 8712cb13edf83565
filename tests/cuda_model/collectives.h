// What the threads of a warp and of a block do together, atomics and fences: the part of kernel.h that meets other
// threads.

static inline void __syncthreads() { model_barrier(MODEL_BARRIER, 0, 0, 0); }
static inline int __syncthreads_or(int x) { return (int)model_barrier(MODEL_BARRIER_OR, 0, 0, x != 0); }
static inline int __syncthreads_and(int x) { return (int)model_barrier(MODEL_BARRIER_AND, 0, 0, x != 0); }
static inline int __syncthreads_count(int x) { return (int)model_barrier(MODEL_BARRIER_COUNT, 0, 0, x != 0); }

static inline void __syncwarp(unsigned mask = 0xffffffffu) { model_warp(MODEL_SYNCWARP, mask, 0, 0, 32); }
static inline unsigned __activemask() { return model_active_lanes(); }

template <class T>
static inline T __shfl_sync(unsigned mask, T x, int lane, int width = 32) {
    return model_value<T>(model_warp(MODEL_SHFL, mask, model_bits<uint64_t>(x), (unsigned)lane, (unsigned)width));
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T x, unsigned delta, int width = 32) {
    return model_value<T>(model_warp(MODEL_SHFL_UP, mask, model_bits<uint64_t>(x), delta, (unsigned)width));
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T x, unsigned delta, int width = 32) {
    return model_value<T>(model_warp(MODEL_SHFL_DOWN, mask, model_bits<uint64_t>(x), delta, (unsigned)width));
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T x, int lanes, int width = 32) {
    return model_value<T>(model_warp(MODEL_SHFL_XOR, mask, model_bits<uint64_t>(x), (unsigned)lanes, (unsigned)width));
}

static inline unsigned __ballot_sync(unsigned mask, int x) {
    return (unsigned)model_warp(MODEL_BALLOT, mask, x != 0, 0, 32);
}
static inline int __any_sync(unsigned mask, int x) { return (int)model_warp(MODEL_ANY, mask, x != 0, 0, 32); }
static inline int __all_sync(unsigned mask, int x) { return (int)model_warp(MODEL_ALL, mask, x != 0, 0, 32); }

static inline unsigned __reduce_add_sync(unsigned mask, unsigned x) {
    return (unsigned)model_warp(MODEL_REDUCE_ADD, mask, x, 0, 32);
}
static inline unsigned __reduce_min_sync(unsigned mask, unsigned x) {
    return (unsigned)model_warp(MODEL_REDUCE_MIN, mask, x, 0, 32);
}
static inline unsigned __reduce_max_sync(unsigned mask, unsigned x) {
    return (unsigned)model_warp(MODEL_REDUCE_MAX, mask, x, 0, 32);
}
static inline int __reduce_add_sync(unsigned mask, int x) {
    return (int)model_warp(MODEL_REDUCE_ADD, mask, (unsigned)x, 0, 32);
}
static inline int __reduce_min_sync(unsigned mask, int x) {
    return (int)model_warp(MODEL_REDUCE_MIN_SIGNED, mask, (unsigned)x, 0, 32);
}
static inline int __reduce_max_sync(unsigned mask, int x) {
    return (int)model_warp(MODEL_REDUCE_MAX_SIGNED, mask, (unsigned)x, 0, 32);
}
static inline unsigned __reduce_and_sync(unsigned mask, unsigned x) {
    return (unsigned)model_warp(MODEL_REDUCE_AND, mask, x, 0, 32);
}
static inline unsigned __reduce_or_sync(unsigned mask, unsigned x) {
    return (unsigned)model_warp(MODEL_REDUCE_OR, mask, x, 0, 32);
}
static inline unsigned __reduce_xor_sync(unsigned mask, unsigned x) {
    return (unsigned)model_warp(MODEL_REDUCE_XOR, mask, x, 0, 32);
}

template <class T>
static inline unsigned __match_any_sync(unsigned mask, T x) {
    return (unsigned)model_warp(MODEL_MATCH_ANY, mask, model_bits<uint64_t>(x), 0, 32);
}
template <class T>
static inline unsigned __match_all_sync(unsigned mask, T x, int* all) {
    unsigned same = (unsigned)model_warp(MODEL_MATCH_ALL, mask, model_bits<uint64_t>(x), 0, 32);
    *all = same != 0;
    return same;
}

static inline void __threadfence_block() { model_fence(MODEL_FENCE_BLOCK); }
static inline void __threadfence() { model_fence(MODEL_FENCE_DEVICE); }
static inline void __threadfence_system() { model_fence(MODEL_FENCE_DEVICE); }
static inline void __nanosleep(unsigned) { model_pause(); }
static inline void __trap() { model_trap("__trap"); }

// Threads are switched in the model's functions alone, so a plain read and write is one step.
template <class T, class F>
MODEL_UNREPORTED __attribute__((noinline)) static T model_update(T* at, F f) {
    model_atomic(at, sizeof(T));
    T old = *at;
    *at = f(old);
    return old;
}

#define MODEL_ATOMIC(name, type, result) \
    static inline type name(type* at, type x) { \
        return model_update(at, [&](type old) -> type { return result; }); \
    } \
    static inline type name##_block(type* at, type x) { return name(at, x); } \
    static inline type name##_system(type* at, type x) { return name(at, x); }
#define MODEL_ATOMICS(type) \
    MODEL_ATOMIC(atomicMin, type, x < old ? x : old) \
    MODEL_ATOMIC(atomicMax, type, x > old ? x : old) \
    MODEL_ATOMIC(atomicAnd, type, old& x) \
    MODEL_ATOMIC(atomicOr, type, old | x) \
    MODEL_ATOMIC(atomicXor, type, old ^ x) \
    MODEL_ATOMIC(atomicExch, type, x)
MODEL_ATOMICS(int)
MODEL_ATOMICS(unsigned)
MODEL_ATOMICS(long long)
MODEL_ATOMICS(unsigned long long)
MODEL_ATOMIC(atomicAdd, int, (int)((unsigned)old + (unsigned)x))
MODEL_ATOMIC(atomicAdd, unsigned, old + x)
MODEL_ATOMIC(atomicAdd, unsigned long long, old + x)
MODEL_ATOMIC(atomicSub, int, (int)((unsigned)old - (unsigned)x))
MODEL_ATOMIC(atomicSub, unsigned, old - x)
MODEL_ATOMIC(atomicInc, unsigned, old >= x ? 0 : old + 1)
MODEL_ATOMIC(atomicDec, unsigned, old == 0 || old > x ? x : old - 1)

template <class T>
static inline T atomicCAS(T* at, T expected, T x) {
    return model_update(at, [&](T old) -> T { return old == expected ? x : old; });
}

// Cache operators change nothing that a model without caches shows.
template <class T>
static inline T __ldg(const T* at) {
    return *at;
}
template <class T>
static inline T __ldca(const T* at) {
    return *at;
}
template <class T>
static inline T __ldcg(const T* at) {
    return *at;
}
template <class T>
static inline T __ldcs(const T* at) {
    return *at;
}
template <class T>
static inline T __ldcv(const T* at) {
    model_pause();
    return *at;
}
template <class T>
static inline void __stcg(T* at, T x) {
    *at = x;
}
template <class T>
static inline void __stcs(T* at, T x) {
    *at = x;
}
template <class T>
static inline void __stwb(T* at, T x) {
    *at = x;
}
template <class T>
static inline void __stwt(T* at, T x) {
    *at = x;
}
