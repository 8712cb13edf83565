// The n-th of a set of tokens in their order, by one block, over whatever each thread holds of the set: a histogram of
// the range it must lie in, and again of the bin it falls into. A token is one integer that grows towards the front of
// the order, so that ties need no care: its key, and below it the id counted backwards.

// Bins of a histogram: at least two a thread; the threads of a block are a power of two.
constexpr u32 BINS = 2048;
// Bytes of a place in the queue of a warp.
constexpr u32 QUEUE_BYTES = 20;

// What a block keeps in shared memory while it selects.
struct Desk {
    // Completion of what the blocks of a cluster send each other, and that: the token from which each has listed
    // everything; the largest value it has, as the first token that could have it; how many it has listed, and its flags.
    u64 gathered;
    u64 bounds[16], tops[16], facts[16];
    // The tokens among which the N-th is, and how many.
    u64 members[32];
    u32 joined;
    // Elements of the sample that survive.
    u32 sampled;
    // One value a warp: a key.
    u32 largest[32];
    u32 totals[2][32];
    // Tokens listed by this block.
    u32 listed;
    // Where a walk over the bins ended.
    u32 bin, before, inside, total;
};

// Tokens of a row as integers. The lowest bit tells -0 from +0, which the order does not.
struct Order {
    // Bits below the key.
    u32 low_bits;
    __device__ __forceinline__ explicit Order(u64 vocab) : low_bits(33 - __clz((u32)vocab)) {}
    __device__ __forceinline__ u32 mask() const { return (1u << low_bits) - 1; }
    __device__ __forceinline__ u64 token(float x, u32 id) const {
        return (u64)key_of(x) << low_bits | ((mask() ^ id * 2 ^ 1) + (__float_as_uint(x) == 0x80000000u ? 1 : 0));
    }
    // The first place a token with this value could have, and the last.
    __device__ __forceinline__ u64 first(float x) const { return (u64)key_of(x) << low_bits | mask(); }
    __device__ __forceinline__ u64 last(float x) const { return (u64)key_of(x) << low_bits; }
    // The value, +0 for both zeros, and as it was.
    __device__ __forceinline__ float ordered(u64 token) const { return value_of_key((u32)(token >> low_bits)); }
    __device__ __forceinline__ float value(u64 token) const {
        return __uint_as_float(__float_as_uint(ordered(token)) | ((u32)token & 1) << 31);
    }
    __device__ __forceinline__ u32 id(u64 token) const { return (mask() & ~(u32)token) >> 1; }
};

// Sum of `x` over the threads before this one, and over all; one barrier. Neighbouring calls take turns.
__device__ __forceinline__ u32 desk_scan(Desk& desk, u32 turn, u32 x, u32* total) {
    u32 through = warp_scan(x);
    if (lane_id() == 31) desk.totals[turn][warp_id()] = through;
    __syncthreads();
    u32 warp = lane_id() < warp_count() ? desk.totals[turn][lane_id()] : 0;
    *total = __reduce_add_sync(ALL_LANES, warp);
    return __reduce_add_sync(ALL_LANES, lane_id() < warp_id() ? warp : 0) + through - x;
}

// Tokens from `low` to `high` share a bin and are `inside`; `ahead` are ahead of them.
struct Border {
    u64 low, high;
    u32 ahead, inside;
    bool found;
};

// Finds the bin that holds the `want`-th of the tokens in [low, high], so narrow that it holds at most `few`, or where
// `few` is 0 ends at most `slack` after that one. `each` calls its function with every token of the thread. `guess`, if it lies in the range,
// is where to look first. Not found: there are fewer than `want`. The bins are zero before and after.
template <class Each>
__device__ __forceinline__ Border narrow(Desk& desk, u32* bins, Each each, u64 low, u64 high, u64 guess, u32 want,
                                         u32 slack, u32 few) {
    u32 ahead = 0, turn = 0, share = BINS / blockDim.x;
    u64 from = guess > low && guess < high ? guess : low;
    if (high < low) return Border{low, high, 0, 0, false};
#pragma unroll 1
    while (true) {
        u64 span = high - from;
        u32 shift = span < BINS ? 0 : 64 - 11 - __clzll((i64)span);
        each([&](u64 token) {
            if (token >= from && token <= high) atomicAdd(&bins[(u32)((token - from) >> shift)], 1u);
        });
        __syncthreads();
        // Here and not before the barrier: slower threads may have been reading what the last search found.
        if (threadIdx.x == 0) desk.bin = ~0u;
        // A thread has `share` neighbouring bins, the first thread the highest.
        u32 lowest = BINS - (threadIdx.x + 1) * share, own = 0;
        for (u32 i = 0; i < share; i += 2) {
            uint2 two = *(const uint2*)(bins + lowest + i);
            own += two.x + two.y;
        }
        u32 total, before = ahead + desk_scan(desk, turn, own, &total);
        turn ^= 1;
        if (before < want && want <= before + own) {
            u32 bin = lowest + share - 1;
            while (before + bins[bin] < want) before += bins[bin--];
            desk.bin = bin, desk.before = before, desk.inside = bins[bin];
        }
        for (u32 i = 0; i < share; i += 2) *(uint2*)(bins + lowest + i) = make_uint2(0, 0);
        __syncthreads();
        u32 bin = desk.bin;
        if (bin == ~0u) {
            if (from == low) return Border{low, high, 0, 0, false};
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
        bool enough = few != 0 ? inside <= few : ahead + inside <= want + slack;
        if (enough || shift == 0) return Border{low, high, ahead, inside, true};
        __syncthreads();
    }
}
