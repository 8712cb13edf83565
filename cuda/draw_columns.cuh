// The draw from the first N tokens where nothing but top-p and min-p filters them, by one block, with the outputs that cost
// little: token, logprob, status, number of kept tokens, top list. One histogram of the tokens' masses and counts finds
// where top-p ends and where the top list does; the few tokens of the border's bin are put in order; one scan of the kept
// masses in ascending id finds the token. Some six passes over N / threads tokens a thread.

// Bins of masses and counts: four words each in the memory of the bins.
constexpr u32 MASS_CELLS = BINS / 4;
// Longest top list, and most tokens that are put in order for it.
constexpr u32 SHORT_LIST = 64;

// What a block keeps in shared memory for this.
struct DrawDesk {
    // What the row is processed with, and the bits of its draw.
    Params params;
    u64 bits;
    u64 masses[16];
    u32 counts[16];
    // Where top-p ends: the lowest token of its bin, the highest, what is ahead of it, how many share it.
    u64 low, high, ahead;
    u32 inside, joined;
    // The same of the top list: every token from `listed_from` on is wanted.
    u64 listed_from;
    u32 listed, above;
    u64 members[32];
    u64 list[4 * SHORT_LIST];
};

// Sums over the threads before this one of a mass and a count; one barrier, and one before the next call.
__device__ __forceinline__ void scan_masses(DrawDesk& desk, u64 mass, u32 count, u64* mass_before, u32* count_before,
                                            u64* all) {
    u64 through = warp_scan(mass);
    u32 counted = warp_scan(count);
    if (lane_id() == 31) desk.masses[warp_id()] = through, desk.counts[warp_id()] = counted;
    __syncthreads();
    u64 x = lane_id() < warp_count() ? desk.masses[lane_id()] : 0;
    u32 n = lane_id() < warp_count() ? desk.counts[lane_id()] : 0;
    *all = warp_sum(x);
    *mass_before = warp_sum(lane_id() < warp_id() ? x : 0) + through - mass;
    *count_before = __reduce_add_sync(ALL_LANES, lane_id() < warp_id() ? n : 0) + counted - count;
}

// Whether this is a way to what a row wants.
__device__ __forceinline__ bool draws_shortly(const RowBlock& b, const Params& params, u64 row_index, const Chosen& chosen) {
    bool others = (b.ranks | b.raw_logprobs | b.sum_smaller_probs | b.dense | b.kept_ids) != 0;
    return !others && params.top_k >= b.columns && b.top_width <= SHORT_LIST && b.positions != 0 &&
           forced_token(b, row_index) == -1 && chosen.largest != MINUS_INF && chosen.largest != PLUS_INF &&
           blockDim.x == MASS_CELLS;
}

// False, in every thread, where too many tokens share a bin; nothing has been written then.
__device__ __noinline__ bool draw_shortly(const RowBlock& b, DrawDesk& desk, u64 row_index, const Chosen chosen) {
    const Params params = desk.params;
    const Order& order = chosen.order;
    float max = chosen.largest, scale = params.scale, lowest = params.min_exponent;
    auto exponent = [&](u64 token) { return __fmul_rn(__fsub_rn(order.value(token), max), scale); };
    u32* cells = chosen.lists.bins;
    u32 columns = chosen.columns;
    for (u32 i = threadIdx.x; i < 4 * MASS_CELLS; i += blockDim.x) cells[i] = 0;
    if (threadIdx.x == 0) desk.inside = desk.joined = desk.listed = 0, desk.listed_from = ~0ull;
    __syncthreads();
    u64 first = chosen.cut & ~1ull, span = order.first(max) - first;
    u32 shift = span < MASS_CELLS ? 0 : 64 - 9 - __clzll((i64)span);
#pragma unroll 2
    for (u32 i = threadIdx.x; i < columns; i += blockDim.x) {
        u64 token = chosen.entry(i), m = mass_of_exponent(exponent(token));
        u32 cell = (u32)((token - first) >> shift);
        // Pieces whose sums 16384 tokens cannot overflow; additions of 32 bits are what shared memory does by itself.
        atomicAdd(&cells[cell], (u32)m & 0x3fffu);
        atomicAdd(&cells[MASS_CELLS + cell], (u32)(m >> 14) & 0x3fffu);
        atomicAdd(&cells[2 * MASS_CELLS + cell], (u32)(m >> 28));
        atomicAdd(&cells[3 * MASS_CELLS + cell], 1u);
    }
    __syncthreads();
    // A cell a thread, the highest first.
    u32 cell = MASS_CELLS - 1 - threadIdx.x, count = cells[3 * MASS_CELLS + cell], above;
    u64 mass = cells[cell] + ((u64)cells[MASS_CELLS + cell] << 14) + ((u64)cells[2 * MASS_CELLS + cell] << 28), ahead, whole;
    scan_masses(desk, mass, count, &ahead, &above, &whole);
    u64 limit = params.top_p == SD_TOP_P_OFF ? ~0ull : multiply_shift(whole, params.top_p, 32);
    u64 cell_low = first + ((u64)cell << shift);
    // Top-p ends in the last cell that has a token and no more than the limit ahead of it.
    if (count != 0 && ahead <= limit && (ahead + mass > limit || above + count == columns))
        desk.low = cell_low, desk.high = cell_low + ((1ull << shift) - 1), desk.ahead = ahead, desk.inside = count;
    u32 wanted = min((u32)b.top_width, columns);
    if (wanted != 0 && above < wanted && wanted <= above + count) desk.listed_from = cell_low, desk.above = above + count;
    __syncthreads();
    u64 low = desk.low, high = desk.high, from = desk.listed_from;
    u32 inside = desk.inside;
    if (inside == 0 || (limit != ~0ull && inside > 32) || (wanted != 0 && desk.above > 4 * SHORT_LIST)) return false;
#pragma unroll 2
    for (u32 i = threadIdx.x; i < columns; i += blockDim.x) {
        u64 token = chosen.entry(i);
        if (limit != ~0ull && token >= low && token <= high) desk.members[atomicAdd(&desk.joined, 1u)] = token;
        if (token >= from) desk.list[atomicAdd(&desk.listed, 1u)] = token;
    }
    __syncthreads();
    u64 cut = first;
    if (limit != ~0ull) {
        // Every warp by itself: a member a lane, and what is ahead of it.
        u64 own = lane_id() < inside ? desk.members[lane_id()] : 0, before = desk.ahead;
#pragma unroll 1
        for (u32 i = 0; i < inside; i++) {
            u64 other = desk.members[i];
            if (other > own) before += mass_of_exponent(exponent(other));
        }
        u64 kept = own != 0 && before <= limit ? ~own : 0;
        cut = ~warp_max(kept);
    }
    auto kept_mass = [&](u64 token, u32* kept) -> u64 {
        float t = exponent(token);
        if (token < cut || t < lowest || t == MINUS_INF) return 0;
        *kept += 1;
        return mass_of_exponent(t);
    };
    // The draw: each thread has neighbouring places.
    u32 share = (columns + blockDim.x - 1) / blockDim.x, begin = min(threadIdx.x * share, columns), end = min(begin + share, columns);
    u64 own = 0, before, total;
    u32 kept = 0, kept_before;
    for (u32 i = begin; i < end; i++) own += kept_mass(chosen.entry(i), &kept);
    scan_masses(desk, own, kept, &before, &kept_before, &total);
    float l = log2_total(total);
    u64 target = scale_bits(desk.bits, total);
    if (before <= target && target - before < own) {
        u64 running = before;
        for (u32 i = begin; i < end; i++) {
            u32 none = 0;
            u64 token = chosen.entry(i), through = running + kept_mass(token, &none);
            if (running <= target && target < through) {
                store_token(b, row_index, (i64)order.id(token));
                store<i32>(b.status, row_index, chosen.status());
                store<float>(b.logprobs, row_index, logprob_of_exponent(exponent(token), l));
            }
            running = through;
        }
    }
    u32 all_kept = kept_before + kept;
    if (threadIdx.x == blockDim.x - 1) store<i32>(b.kept_counts, row_index, (i32)all_kept);
    if (wanted != 0 || b.top_width != 0) {
        i32* ids = (i32*)b.top_ids + row_index * b.top_width;
        float* logprobs = (float*)b.top_logprobs + row_index * b.top_width;
        u32 listed = desk.listed;
        u64 token = threadIdx.x < listed ? desk.list[threadIdx.x] : 0;
        u32 rank = 0, none = 0;
#pragma unroll 4
        for (u32 i = 0; i < listed; i++) rank += desk.list[i] > token ? 1 : 0;
        bool used = token != 0 && rank < wanted;
        if (used) {
            kept_mass(token, &none);
            ids[rank] = none != 0 ? (i32)order.id(token) : -1;
            logprobs[rank] = none != 0 ? logprob_of_exponent(exponent(token), l) : MINUS_INF;
        }
        for (u32 i = wanted + threadIdx.x; i < b.top_width; i += blockDim.x) ids[i] = -1, logprobs[i] = MINUS_INF;
        if (threadIdx.x == blockDim.x - 1) store<i32>(b.top_counts, row_index, (i32)min((u64)all_kept, b.top_width));
    }
    return true;
}

// What the shared memory of a block holds after its row's tokens are found: one or the other.
union Rest {
    DrawDesk draw;
    Shared sh;
};
