// A team: the threads that process one row together. It is one block, or the blocks of one cluster; rank r of it
// holds the r-th part of the row and warp w of a block the w-th part of that, so (rank, warp, lane) is the order of
// the ids. Everything here folds integers, so the way the work is split never shows in a result.

constexpr u32 ALL_LANES = 0xffffffffu;
// Bins of a descent by count, and of one by mass.
constexpr u32 COUNT_BINS = 1024;
constexpr u32 MASS_BINS = 256;
// Exchanges between the blocks of a cluster, besides those of a cut.
constexpr u32 EXCHANGES = 5;
// Levels and bins of a cut over the lists of a cluster.
constexpr u32 CUT_LEVELS = 2;
constexpr u32 CUT_BINS = 64;

// What a block keeps in shared memory besides its part of the row.
struct Shared {
    // One value a warp, handed to the whole team; two generations, so that one barrier an exchange is enough.
    u64 slots[2][16];
    // Warp totals of a scan within the block.
    u64 scan[16];
    // Where a walk over bins ended: bin, what came before it, what is in it.
    u64 walk_bin, walk_before, walk_inside;
    // What the warp that owns a located token says: its number plus one and what precedes it; the index found plus one.
    u64 owner, owner_before, found;
    // Completions of the copies of a tile, and of what the blocks of a cluster push to each other.
    u64 arrivals[4], exchanges[EXCHANGES], levels[CUT_LEVELS], listed;
    // What they push: largest key with a lower bound, masses, number of candidates, number of listed tokens. An array
    // serves again only with another exchange in between, as a fast peer may be one ahead of a slow warp here.
    u64 pushed_max[16], pushed_mass[16], pushed_count[16], pushed_listed[16];
    // What they add up: the bins of a first, rough look at the masses, and of each level of a cut.
    u64 rough_mass[CUT_BINS];
    u64 level_mass[CUT_LEVELS][CUT_BINS];
    u32 level_tokens[CUT_LEVELS][CUT_BINS];
    // Places handed out in every block's list.
    u32 gathered;
    // The warps' largest keys.
    u32 offers[64];
    // Candidates this block has found.
    u32 candidates;
    // Whether this block is the last one of the launch.
    u32 is_last;
    union {
        u32 counts[COUNT_BINS];
        struct {
            u64 masses[MASS_BINS];
            u32 tokens[MASS_BINS];
        } by_mass;
        // What a block has found before it hands it over, later the masses of the first block's candidates; and those in
        // order. Peers write the second while slow warps here still read a block's bins, which lie where the first does.
        struct {
            u64 masses[COUNT_BINS / 4], order[COUNT_BINS / 4];
        } list;
        // A block's bins of a level before it adds them to everyone's.
        struct {
            // 14 bits of each mass a piece: additions of 32 bits are what shared memory does by itself.
            u32 pieces[3][CUT_BINS];
            u32 tokens[CUT_BINS];
        } level;
        // Bins of a cut by one block: 14 bits of each mass a piece, and the number of tokens.
        struct {
            u32 pieces[3][MASS_BINS], tokens[MASS_BINS];
        } cut;
        // A block's rough bins, four of each so that neighbouring lanes seldom meet.
        u32 rough[4 * CUT_BINS];
        // A top list while it is put in order.
        struct {
            i32 ids[COUNT_BINS / 2];
            float values[COUNT_BINS / 2];
        } top;
    };
};

#ifndef SD_ROLES
// The threads of a block that make up the team's part in it: all, unless the kernel gives its warps roles.
__device__ __forceinline__ u32 thread_id() { return threadIdx.x; }
__device__ __forceinline__ u32 thread_count() { return blockDim.x; }
__device__ __forceinline__ void team_barrier() { __syncthreads(); }
// Whether any of them says so; a barrier too.
__device__ __forceinline__ bool team_any(bool x) { return __syncthreads_or(x) != 0; }
#endif

__device__ __forceinline__ u32 lane_id() { return threadIdx.x & 31u; }
__device__ __forceinline__ u32 warp_id() { return thread_id() >> 5; }
__device__ __forceinline__ u32 warp_count() { return thread_count() >> 5; }

// Sum over the warp, by pieces of 26 bits that 32 lanes cannot overflow.
__device__ __forceinline__ u64 warp_sum(u64 x) {
    u64 low = __reduce_add_sync(ALL_LANES, (u32)x & 0x3ffffffu);
    u64 middle = __reduce_add_sync(ALL_LANES, (u32)(x >> 26) & 0x3ffffffu);
    u64 high = __reduce_add_sync(ALL_LANES, (u32)(x >> 52));
    return low + (middle << 26) + (high << 52);
}

__device__ __forceinline__ u64 warp_max(u64 x) {
    u32 high = __reduce_max_sync(ALL_LANES, (u32)(x >> 32));
    u32 low = __reduce_max_sync(ALL_LANES, (u32)(x >> 32) == high ? (u32)x : 0);
    return (u64)high << 32 | low;
}

// Sum over this lane and those before it.
template <class T>
__device__ __forceinline__ T warp_scan(T x) {
    for (u32 d = 1; d < 32; d <<= 1) {
        T y = __shfl_up_sync(ALL_LANES, x, d);
        if (lane_id() >= d) x += y;
    }
    return x;
}

// How many of the warp's bits, four a lane, are set, and how many of those before this lane's.
struct Hits {
    u32 before, all;

    __device__ __forceinline__ explicit Hits(u32 own) : before(0), all(0) {
        for (u32 e = 0; e < 4; e++) {
            u32 who = __ballot_sync(ALL_LANES, own >> e & 1);
            before += __popc(who & ((1u << lane_id()) - 1));
            all += __popc(who);
        }
    }
};

// Sum of `x` over the threads of the block before this one.
__device__ __noinline__ u64 block_scan_before(Shared& sh, u64 x) {
    u64 inclusive = warp_scan(x);
    team_barrier();
    if (lane_id() == 31) sh.scan[warp_id()] = inclusive;
    team_barrier();
    u64 warp = lane_id() < warp_id() ? sh.scan[lane_id()] : 0;
    return warp_sum(warp) + inclusive - x;
}

// Largest `x` of the block's threads.
__device__ __noinline__ u64 block_max(Shared& sh, u64 x) {
    u64 own = warp_max(x);
    team_barrier();
    if (lane_id() == 0) sh.scan[warp_id()] = own;
    team_barrier();
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
    __device__ void sync() const { team_barrier(); }
    __device__ u64 peer(u32, const u64* at) const { return *at; }
    __device__ u32 peer(u32, const u32* at) const { return *at; }
};

// A cluster a row.
struct Cluster {
    Shared& sh;
    u32 generation = 0;

    __device__ explicit Cluster(Shared& shared) : sh(shared) {}
#if __CUDA_ARCH__ >= 900
    __device__ u32 rank() const { return cluster_rank(); }
    __device__ u32 size() const { return cluster_size(); }
    __device__ u32 team_index() const { return cluster_number(); }
    __device__ void sync() const { cluster_barrier(); }
    template <class T>
    __device__ T peer(u32 rank, const T* at) const {
        return peer_load(rank, at);
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
    u64(&slots)[16] = team.sh.slots[team.generation & 1];
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
    u64(&slots)[16] = team.sh.slots[team.generation & 1];
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

// Largest key of all threads of the team, and whether any of them saw a NaN.
template <class Team>
__device__ __noinline__ u64 team_max_and_flag(Team& team, u32 key, bool flag) {
    u32 any = __any_sync(ALL_LANES, flag);
    u64 own = (u64)__reduce_max_sync(ALL_LANES, key) << 1 | (any ? 1 : 0);
    u64(&slots)[16] = team.sh.slots[team.generation & 1];
    team.generation += 1;
    u32 warps = warp_count();
    if (lane_id() == 0) slots[warp_id()] = own;
    team.sync();
    u32 max = 0, nan = 0;
#pragma unroll 1
    for (u32 i = lane_id(); i < warps * team.size(); i += 32) {
        u64 y = team.peer(i / warps, &slots[i % warps]);
        max = umax(max, (u32)(y >> 1));
        nan |= (u32)y & 1;
    }
    return (u64)__reduce_max_sync(ALL_LANES, max) << 1 | __reduce_or_sync(ALL_LANES, nan);
}

// Sum over all threads of the team.
template <class Team>
__device__ u64 team_sum(Team& team, u64 x) {
    return team_span(team, warp_sum(x)).total;
}
