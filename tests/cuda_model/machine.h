// Stands in for cuda/machine.cuh: the same functions, said to the model instead of in PTX.

typedef unsigned char u8;
typedef unsigned short u16;

__device__ __forceinline__ float widen_f16(u16 bits) {
    u32 sign = (u32)(bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 0x3ffu;
    if (exponent == 31) return __uint_as_float(fraction ? 0x7fffffffu : sign | 0x7f800000u);
    if (exponent == 0) {
        // A multiple of 2^-24, exact in f32.
        float x = (float)fraction * 0x1p-24f;
        return __uint_as_float(__float_as_uint(x) | sign);
    }
    return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
}

__device__ __forceinline__ float max_or_nan(float a, float b) {
    return a != a || b != b ? __uint_as_float(0x7fffffffu) : fmaxf(a, b);
}

// The larger of two of 16 bits, `infinity` saying which type they are; a NaN as the hardware writes it.
__device__ __forceinline__ u32 model_max_or_nan_16(u32 a, u32 b, u32 infinity) {
    if ((a & 0x7fff) > infinity || (b & 0x7fff) > infinity) return 0x7fff;
    // Ascending as integers: the sign turned round, the bits of the negative ones too.
    auto order = [](u32 x) { return x & 0x8000 ? 0x8000 - (x & 0x7fff) - 1 : x + 0x8000; };
    return order(a) >= order(b) ? a : b;
}

__device__ __forceinline__ u32 max_or_nan_bf16x2(u32 a, u32 b) {
    return model_max_or_nan_16(a & 0xffff, b & 0xffff, 0x7f80) | model_max_or_nan_16(a >> 16, b >> 16, 0x7f80) << 16;
}

__device__ __forceinline__ u32 max_or_nan_f16x2(u32 a, u32 b) {
    return model_max_or_nan_16(a & 0xffff, b & 0xffff, 0x7c00) | model_max_or_nan_16(a >> 16, b >> 16, 0x7c00) << 16;
}

__device__ __forceinline__ u64 load_relaxed(const u64* at) { return atomicOr((u64*)at, 0ull); }

__device__ __forceinline__ u32 dynamic_shared_bytes() { return model_dynamic_shared_bytes(); }

__device__ __forceinline__ u32 afresh(u32 x) { return x; }

__device__ __forceinline__ void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
    model_inputs_awaited();
#endif
}

__device__ __forceinline__ void allow_next_launch() {}

__device__ __forceinline__ void named_barrier(u32 id, u32 threads) { model_barrier(MODEL_BARRIER, id, threads, 0); }
__device__ __forceinline__ bool named_any(u32 id, u32 threads, bool x) {
    return model_barrier(MODEL_BARRIER_OR, id, threads, x ? 1 : 0) != 0;
}

__device__ __forceinline__ u32 shared_address(const void* at) { return model_shared_address(at); }
__device__ __forceinline__ void shared_store(u32 address, u16 x) { *(u16*)model_shared_at(address) = x; }

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ void completion_init(u64* at, u32 arrivals = 1) {
    model_completion_init((uint64_t*)at, arrivals);
}
__device__ __forceinline__ void completion_invalidate(u64* at) { model_completion_invalidate((uint64_t*)at); }
__device__ __forceinline__ void completion_expect(u64* at, u32 bytes) {
    model_completion_arrive(-1, (uint64_t*)at, bytes, 1);
}
__device__ __forceinline__ void completion_arrive(u64* at, u32 times = 1) {
    model_completion_arrive(-1, (uint64_t*)at, 0, times);
}
__device__ __forceinline__ void completion_arrive_at(u32 of, const u64* at, u32 times = 1) {
    model_completion_arrive((int)of, (const uint64_t*)at, 0, times);
}
__device__ __forceinline__ void completion_expect_at(u32 of, const u64* at, u32 bytes) {
    model_completion_arrive((int)of, (const uint64_t*)at, bytes, 1);
}
__device__ __forceinline__ bool completion_test(u64* at, u32 parity = 0) {
    return model_completion_test((uint64_t*)at, parity);
}
__device__ __forceinline__ void completion_wait(u64* at, u32 parity = 0) { model_completion_wait((uint64_t*)at, parity); }
__device__ __forceinline__ void completion_wait_own(u64* at, u32 parity = 0) { model_completion_wait((uint64_t*)at, parity); }

__device__ __forceinline__ u32 cluster_rank() { return model_cluster_rank(); }
__device__ __forceinline__ u32 cluster_size() { return model_cluster_size(); }
__device__ __forceinline__ u32 cluster_number() { return model_cluster_number(); }
__device__ __forceinline__ u32 cluster_count() { return gridDim.x / model_cluster_size(); }

__device__ __forceinline__ void cluster_started() {
    __syncwarp();
    model_cluster_arrive(false);
}

__device__ __forceinline__ void cluster_prepared() {
    __syncwarp();
    model_cluster_arrive(true);
}

__device__ __forceinline__ void cluster_wait_started() {
    __syncwarp();
    model_cluster_wait(true);
}

__device__ __forceinline__ void cluster_barrier() {
    __syncwarp();
    model_cluster_arrive(true);
    model_cluster_wait(true);
}

__device__ __forceinline__ void push(u32 to, const u64* at, u64 x, const u64* completion) {
    model_push(to, at, x, 8, MODEL_STORE, (const uint64_t*)completion);
}
__device__ __forceinline__ void push(u32 to, const u32* at, u32 x, const u64* completion) {
    model_push(to, at, x, 4, MODEL_STORE, (const uint64_t*)completion);
}
__device__ __forceinline__ void push_add(u32 to, const u64* at, u64 x, const u64* completion) {
    model_push(to, at, x, 8, MODEL_ADD, (const uint64_t*)completion);
}
__device__ __forceinline__ void push_add(u32 to, const u32* at, u32 x, const u64* completion) {
    model_push(to, at, x, 4, MODEL_ADD, (const uint64_t*)completion);
}

__device__ __forceinline__ u32 reserve(u32 of, const u32* counter, u32 n) { return (u32)model_peer_add(of, counter, 4, n); }

__device__ __forceinline__ void completions_ready() { model_completions_ready(); }
__device__ __forceinline__ void yield_to_copies() {}

template <class T>
__device__ __forceinline__ T peer_load(u32 rank, const T* at) {
    return model_value<T>(model_peer_load(rank, at, sizeof(T)));
}
template <class T>
__device__ __forceinline__ void peer_store(u32 rank, const T* at, T x) {
    model_peer_store(rank, at, sizeof(T), model_bits<uint64_t>(x));
}

__device__ __forceinline__ void bulk_copy(void* to, u64 from, u32 bytes, u64* arrival) {
    completion_expect(arrival, bytes);
    model_bulk_copy(to, from, bytes, (uint64_t*)arrival);
}

__device__ __forceinline__ void push_copy(u32 to, const void* at, u32 bytes, const u64* completion) {
    model_bulk_to_peer(to, at, at, bytes, (const uint64_t*)completion);
}

// An arrival at a named barrier that does not wait.
__device__ __forceinline__ void named_arrive(u32 id, u32 threads) { model_barrier(MODEL_BARRIER_ARRIVE, id, threads, 0); }

#endif
