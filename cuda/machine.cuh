// Everything the kernels say in PTX: conversions, launches that overlap, and what the blocks of a cluster and the copy
// engine tell each other. The other files are plain C++ on top of these and of CUDA's built-in functions.

typedef unsigned char u8;
typedef unsigned short u16;

__device__ __forceinline__ float widen_f16(u16 bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

// The larger of two, NaN if either is.
__device__ __forceinline__ float max_or_nan(float a, float b) {
    float x;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
}

// Waits until the launch before this one has finished, where it may still be running.
__device__ __forceinline__ void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the launch after this one start its own set-up; it waits for this one's results.
__device__ __forceinline__ void allow_next_launch() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// A barrier of `threads` threads of the block, whole warps; `id` from 1 to 15.
__device__ __forceinline__ void named_barrier(u32 id, u32 threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// The same, and whether any of them says so.
__device__ __forceinline__ bool named_any(u32 id, u32 threads, bool x) {
    u32 any;
    asm volatile("{\n\t.reg .pred p, q;\n\tsetp.ne.u32 p, %1, 0;\n\tbarrier.red.or.pred q, %2, %3, p;\n\tselp.u32 %0, 1, 0, q;\n\t}"
                 : "=r"(any)
                 : "r"(x ? 1u : 0u), "r"(id), "r"(threads)
                 : "memory");
    return any != 0;
}

__device__ __forceinline__ u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

// Writes to shared memory, given by its address.
__device__ __forceinline__ void shared_store(u32 address, u16 x) {
    asm volatile("st.shared::cta.u16 [%0], %1;" ::"r"(address), "h"(x) : "memory");
}

// Reads what others may be changing.
__device__ __forceinline__ u64 load_relaxed(const u64* at) {
    u64 x;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(at) : "memory");
    return x;
}

// Bytes of shared memory the launch asked for.
__device__ __forceinline__ u32 dynamic_shared_bytes() {
    u32 n;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(n));
    return n;
}

#if __CUDA_ARCH__ >= 900

// A completion: a phase of it ends with `count` arrivals and the bytes it was told to expect.
__device__ __forceinline__ void completion_init(u64* at, u32 count = 1) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(at)), "r"(count) : "memory");
}

// What this thread wrote before it arrives is seen by those that wait for the phase; `to` names another block's completion.
__device__ __forceinline__ void completion_arrive(u64* at) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(at)) : "memory");
}

__device__ __forceinline__ void completion_arrive_at(u32 to, const u64* at) {
    u32 remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(at)), "r"(to));
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}

__device__ __forceinline__ void completion_expect(u64* at, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(at)), "r"(bytes) : "memory");
}

// Waits for the end of a phase, counted from 0; `parity` is its lowest bit. What peers pushed is seen afterwards. A thread is
// put aside until then, or for as long as the hint says: without one it would ask again and again, in other warps' time.
#define SD_WAIT(scope)                                                                                                  \
    constexpr u32 HINT_NS = 20000;                                                                                     \
    u32 done;                                                                                                          \
    do {                                                                                                               \
        asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.acquire." scope ".shared::cta.b64 p, [%1], %2, %3;\n\t" \
                     "selp.u32 %0, 1, 0, p;\n\t}"                                                                      \
                     : "=r"(done)                                                                                      \
                     : "r"(shared_address(at)), "r"(parity), "r"(HINT_NS)                                              \
                     : "memory");                                                                                      \
    } while (!done)

__device__ __forceinline__ void completion_wait(u64* at, u32 parity = 0) { SD_WAIT("cluster"); }

// The same, where all that arrives or is copied is this block's own: what the multiprocessor has in its cache stays good.
__device__ __forceinline__ void completion_wait_own(u64* at, u32 parity = 0) { SD_WAIT("cta"); }
#undef SD_WAIT

__device__ __forceinline__ u32 cluster_rank() {
    u32 r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

__device__ __forceinline__ u32 cluster_size() {
    u32 n;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
    return n;
}

__device__ __forceinline__ u32 cluster_number() {
    u32 n;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(n));
    return n;
}

__device__ __forceinline__ u32 cluster_count() {
    u32 n;
    asm("mov.u32 %0, %%nclusterid.x;" : "=r"(n));
    return n;
}

// The halves of a barrier that says that every block of the cluster has started and set its completions up.
__device__ __forceinline__ void cluster_started() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// The same, after writing what peers add to.
__device__ __forceinline__ void cluster_prepared() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait_started() {
    __syncwarp();
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

// Writes 8 bytes into block `to`'s shared memory and counts them there as completed.
__device__ __forceinline__ void push(u32 to, const u64* at, u64 x, const u64* completion) {
    u32 remote, remote_completion;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(at)), "r"(to));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_completion) : "r"(shared_address(completion)), "r"(to));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];" ::"r"(remote), "l"(x),
                 "r"(remote_completion)
                 : "memory");
}

// Adds to 8 (or 4) bytes of block `to`'s shared memory and counts them there as completed.
__device__ __forceinline__ void push_add(u32 to, const u64* at, u64 x, const u64* completion) {
    u32 remote, remote_completion;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(at)), "r"(to));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_completion) : "r"(shared_address(completion)), "r"(to));
    asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64 [%0], %1, [%2];" ::"r"(
                     remote),
                 "l"(x), "r"(remote_completion)
                 : "memory");
}

__device__ __forceinline__ void push_add(u32 to, const u32* at, u32 x, const u64* completion) {
    u32 remote, remote_completion;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(at)), "r"(to));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_completion) : "r"(shared_address(completion)), "r"(to));
    asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];" ::"r"(
                     remote),
                 "r"(x), "r"(remote_completion)
                 : "memory");
}

// Takes `n` places of a counter of block `of`; they are this caller's alone.
__device__ __forceinline__ u32 reserve(u32 of, const u32* counter, u32 n) {
    u32 remote, first;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(counter)), "r"(of));
    asm volatile("atom.relaxed.cluster.shared::cluster.add.u32 %0, [%1], %2;" : "=r"(first) : "r"(remote), "r"(n) : "memory");
    return first;
}

// A barrier of all threads of the cluster; what they wrote before it is seen after it.
__device__ __forceinline__ void cluster_barrier() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Makes completions that were just set up known to the cluster and to the copy engine.
__device__ __forceinline__ void completions_ready() {
    asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}

// Reads block `rank`'s shared memory.
__device__ __forceinline__ u64 peer_load(u32 rank, const u64* at) {
    u64 x;
    u32 remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(at)), "r"(rank));
    asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(x) : "r"(remote) : "memory");
    return x;
}

__device__ __forceinline__ u32 peer_load(u32 rank, const u32* at) {
    u32 x, remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(at)), "r"(rank));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x) : "r"(remote) : "memory");
    return x;
}

// Orders this thread's reads and writes of shared memory before copies that are started later.
__device__ __forceinline__ void yield_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Starts copying `bytes` (a multiple of 16, from and to 16-byte boundaries); `arrival` completes with them.
__device__ __forceinline__ void bulk_copy(void* to, u64 from, u32 bytes, u64* arrival) {
    completion_expect(arrival, bytes);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(arrival))
                 : "memory");
}

#endif

// The same value; the compiler cannot tell, so that it computes again what follows from it instead of keeping it.
__device__ __forceinline__ u32 afresh(u32 x) {
    asm volatile("" : "+r"(x));
    return x;
}

// The larger of each of two halves, NaN where either is.
__device__ __forceinline__ u32 max_or_nan_bf16x2(u32 a, u32 b) {
    u32 x;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(b));
    return x;
}

__device__ __forceinline__ u32 max_or_nan_f16x2(u32 a, u32 b) {
    u32 x;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(b));
    return x;
}

#if __CUDA_ARCH__ >= 900

// Arrives at block `to`'s completion and makes it expect `bytes` more.
__device__ __forceinline__ void completion_expect_at(u32 to, const u64* completion, u32 bytes) {
    u32 remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(completion)), "r"(to));
    asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(remote), "r"(bytes)
                 : "memory");
}

// Starts copying `bytes` (a multiple of 16, on a 16-byte boundary) of this block's shared memory to the same place in
// block `to`'s, counted there as completed. This block must not end before.
__device__ __forceinline__ void push_copy(u32 to, const void* at, u32 bytes, const u64* completion) {
    u32 remote, remote_completion;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(at)), "r"(to));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_completion) : "r"(shared_address(completion)), "r"(to));
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(remote),
                 "r"(shared_address(at)), "r"(bytes), "r"(remote_completion)
                 : "memory");
}

#endif
