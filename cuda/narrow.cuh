// The n-th of a set of tokens in their order, by one block, over whatever each thread holds of the set: a histogram of
// the range it must lie in, and again of the bin it falls into. A token is one integer that grows towards the front of
// the order, so that ties need no care: its key, and below it the id counted backwards.

// Bins of a histogram: a multiple of the threads of a block, which are a power of two.
constexpr u32 BINS = 2048;

// What a block keeps in shared memory while it selects.
struct Desk {
    // Completion of what the blocks of a cluster send each other, and that: the token from which each has listed
    // everything; how many it has listed, and its flags.
    u64 gathered;
    u64 bounds[16], facts[16];
    // One value a warp.
    u64 largest[32];
    u32 totals[2][32];
    // Tokens listed by this block.
    u32 listed;
    // Where a walk over the bins ended.
    u32 bin, before, inside, total;
};

// Tokens of a row as integers.
struct Order {
    u32 id_bits;
    __device__ __forceinline__ explicit Order(u64 vocab) : id_bits(32 - __clz((u32)vocab)) {}
    __device__ __forceinline__ u64 token(float x, u32 id) const {
        return (u64)key_of(x) << id_bits | (((1u << id_bits) - 1) - id);
    }
    __device__ __forceinline__ float value(u64 token) const { return value_of_key((u32)(token >> id_bits)); }
    __device__ __forceinline__ u32 id(u64 token) const { return ((1u << id_bits) - 1) & ~(u32)token; }
};

// Largest `x` of the block's threads; needs a barrier before the next.
__device__ __forceinline__ u64 desk_max(Desk& desk, u64 x) {
    x = warp_max(x);
    if (lane_id() == 0) desk.largest[warp_id()] = x;
    __syncthreads();
    return warp_max(lane_id() < warp_count() ? desk.largest[lane_id()] : 0);
}

// Sum of `x` over the threads before this one, and over all; one barrier. Neighbouring calls take turns.
__device__ __forceinline__ u32 desk_scan(Desk& desk, u32 turn, u32 x, u32* total) {
    u32 through = warp_scan(x);
    if (lane_id() == 31) desk.totals[turn][warp_id()] = through;
    __syncthreads();
    u32 warp = lane_id() < warp_count() ? desk.totals[turn][lane_id()] : 0;
    *total = __reduce_add_sync(ALL_LANES, warp);
    return __reduce_add_sync(ALL_LANES, lane_id() < warp_id() ? warp : 0) + through - x;
}

// Adds one to a bin for each lane that has one; lanes that share the first one's bin go together, for rows of ties.
__device__ __forceinline__ void count_in(u32* bins, u32 bin, bool has) {
    u32 lanes = __ballot_sync(ALL_LANES, has);
    if (lanes == 0) return;
    u32 first = __ffs((i32)lanes) - 1;
    u32 shared_bin = __shfl_sync(ALL_LANES, bin, first);
    u32 same = __ballot_sync(ALL_LANES, has && bin == shared_bin);
    if (__popc(same) < 8) same = 0;
    if (lane_id() == first && same != 0) atomicAdd(&bins[bin], (u32)__popc(same));
    if (has && !(same >> lane_id() & 1)) atomicAdd(&bins[bin], 1u);
}

// Every token from `low` on is one of the first `ahead + inside`, of which `inside` share its bin.
struct Border {
    u64 low;
    u32 ahead, inside;
    bool found;
};

// Finds a token such that at least `want` of [low, high] are not behind it, and no more than `slack` more, where the
// integers allow it. `each` calls its function in step for all lanes of a warp, with a token and whether it counts.
// `guess`, if it lies in the range, is where to look first. Not found: there are fewer than `want`. The bins are zero
// before and after.
template <class Each>
__device__ __forceinline__ Border narrow(Desk& desk, u32* bins, Each each, u64 low, u64 high, u64 guess, u32 want,
                                         u32 slack) {
    u32 ahead = 0, turn = 0, share = BINS / blockDim.x;
    u64 from = guess > low && guess < high ? guess : low;
    if (high < low) return Border{low, 0, 0, false};
#pragma unroll 1
    while (true) {
        u64 span = high - from;
        u32 shift = span < BINS ? 0 : 64 - 11 - __clzll((i64)span);
        each([&](u64 token, bool counts) {
            count_in(bins, (u32)((token - from) >> shift), counts && token >= from && token <= high);
        });
        if (threadIdx.x == 0) desk.bin = ~0u;
        __syncthreads();
        u32 top = BINS - 1 - threadIdx.x * share, own = 0;
        for (u32 i = 0; i < share; i++) own += bins[top - i];
        u32 total, before = ahead + desk_scan(desk, turn, own, &total);
        turn ^= 1;
        if (before < want && want <= before + own) {
            u32 bin = top;
            while (before + bins[bin] < want) before += bins[bin--];
            desk.bin = bin, desk.before = before, desk.inside = bins[bin];
        }
        for (u32 i = 0; i < share; i++) bins[top - i] = 0;
        __syncthreads();
        u32 bin = desk.bin;
        if (bin == ~0u) {
            if (from == low) return Border{low, 0, 0, false};
            ahead += total;
            high = from - 1;
            from = low;
            // The place of the bin is written again before the next barrier.
            __syncthreads();
            continue;
        }
        ahead = desk.before;
        u32 inside = desk.inside;
        low = from = from + ((u64)bin << shift);
        u64 last = low + ((1ull << shift) - 1);
        high = last < high ? last : high;
        if (ahead + inside <= want + slack || shift == 0) return Border{low, ahead, inside, true};
        __syncthreads();
    }
}
