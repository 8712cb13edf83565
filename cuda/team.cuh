// A team: the threads that process one row together. It is one block, or the blocks of one cluster; rank r of it
// holds the r-th part of the row and warp w of a block the w-th part of that, so (rank, warp, lane) is the order of
// the ids. Everything here folds integers, so the way the work is split never shows in a result.

typedef unsigned char u8;
typedef unsigned short u16;

constexpr u32 ALL_LANES = 0xffffffffu;
constexpr u32 BINS = 2048;

// What a block keeps in shared memory besides its part of the row.
struct Shared {
    // One value a warp, handed to the whole team; two generations, so that one barrier an exchange is enough.
    u64 slots[2][32];
    // Warp totals of a scan within the block.
    u64 scan[32];
    // Where a walk over bins ended: bin, what came before it, what is in it.
    u64 walk_bin, walk_before, walk_inside;
    // Whether this block is the last one of the launch.
    u32 is_last;
    u32 counts[BINS];
    u64 masses[BINS];
};

__device__ __forceinline__ u32 lane_id() { return threadIdx.x & 31u; }
__device__ __forceinline__ u32 warp_id() { return threadIdx.x >> 5; }
__device__ __forceinline__ u32 warp_count() { return blockDim.x >> 5; }

__device__ __forceinline__ u64 warp_sum(u64 x) {
    for (u32 d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(ALL_LANES, x, d);
    return x;
}

__device__ __forceinline__ u64 warp_max(u64 x) {
    for (u32 d = 16; d > 0; d >>= 1) {
        u64 y = __shfl_xor_sync(ALL_LANES, x, d);
        x = y > x ? y : x;
    }
    return x;
}

// Sum over this lane and those before it.
__device__ __forceinline__ u64 warp_scan(u64 x) {
    for (u32 d = 1; d < 32; d <<= 1) {
        u64 y = __shfl_up_sync(ALL_LANES, x, d);
        if (lane_id() >= d) x += y;
    }
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

// Sum of `x` over the threads of the block before this one.
__device__ __noinline__ u64 block_scan_before(Shared& sh, u64 x) {
    u64 inclusive = warp_scan(x);
    __syncthreads();
    if (lane_id() == 31) sh.scan[warp_id()] = inclusive;
    __syncthreads();
    u64 warp = lane_id() < warp_id() ? sh.scan[lane_id()] : 0;
    return warp_sum(warp) + inclusive - x;
}

// Largest `x` of the block's threads.
__device__ __noinline__ u64 block_max(Shared& sh, u64 x) {
    u64 own = warp_max(x);
    __syncthreads();
    if (lane_id() == 0) sh.scan[warp_id()] = own;
    __syncthreads();
    return warp_max(lane_id() < warp_count() ? sh.scan[lane_id()] : 0);
}

// One block a row.
struct Block {
    Shared& sh;
    u32 generation = 0;

    __device__ explicit Block(Shared& shared) : sh(shared) {}
    __device__ u32 rank() const { return 0; }
    __device__ u32 size() const { return 1; }
    __device__ u32 team_index() const { return blockIdx.x; }
    __device__ void sync() const { __syncthreads(); }
    __device__ u64 peer(u32, const u64* at) const { return *at; }
    __device__ u32 peer(u32, const u32* at) const { return *at; }
};

// A cluster a row.
struct Cluster {
    Shared& sh;
    u32 generation = 0;

    __device__ explicit Cluster(Shared& shared) : sh(shared) {}
#if __CUDA_ARCH__ >= 900
    __device__ u32 rank() const {
        u32 r;
        asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
        return r;
    }
    __device__ u32 size() const {
        u32 n;
        asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
        return n;
    }
    __device__ u32 team_index() const { return blockIdx.x / size(); }
    __device__ void sync() const {
        asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    }
    __device__ static u32 map(u32 rank, const void* at) {
        u32 remote;
        u32 local = (u32)__cvta_generic_to_shared(at);
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
        return remote;
    }
    __device__ u64 peer(u32 rank, const u64* at) const {
        u64 x;
        asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(x) : "r"(map(rank, at)) : "memory");
        return x;
    }
    __device__ u32 peer(u32 rank, const u32* at) const {
        u32 x;
        asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x) : "r"(map(rank, at)) : "memory");
        return x;
    }
#endif
};

// A warp's place among the team's warps.
struct Span {
    u64 before, own, total;
};

// Where this warp's value stands among the values of all warps of the team. `own` is the same in every lane.
template <class Team>
__device__ __noinline__ Span team_span(Team& team, u64 own) {
    u64(&slots)[32] = team.sh.slots[team.generation & 1];
    team.generation += 1;
    u32 warps = warp_count();
    u32 mine = team.rank() * warps + warp_id();
    if (lane_id() == 0) slots[warp_id()] = own;
    team.sync();
    u64 before = 0, total = 0;
#pragma unroll 1
    for (u32 i = lane_id(); i < warps * team.size(); i += 32) {
        u64 x = team.peer(i / warps, &slots[i % warps]);
        total += x;
        before += i < mine ? x : 0;
    }
    return Span{warp_sum(before), own, warp_sum(total)};
}

// Largest value of all threads of the team.
template <class Team>
__device__ __noinline__ u64 team_max(Team& team, u64 x) {
    u64 own = warp_max(x);
    u64(&slots)[32] = team.sh.slots[team.generation & 1];
    team.generation += 1;
    u32 warps = warp_count();
    if (lane_id() == 0) slots[warp_id()] = own;
    team.sync();
    u64 max = 0;
#pragma unroll 1
    for (u32 i = lane_id(); i < warps * team.size(); i += 32) {
        u64 y = team.peer(i / warps, &slots[i % warps]);
        max = y > max ? y : max;
    }
    return warp_max(max);
}

// Sum over all threads of the team.
template <class Team>
__device__ u64 team_sum(Team& team, u64 x) {
    return team_span(team, warp_sum(x)).total;
}
