// The draw from the first N tokens where nothing but top-p and min-p filters them, by one block of 512 threads, with the
// outputs that cost little: token, logprob, status, number of kept tokens, a short top list. One histogram of the tokens' masses and counts finds
// where top-p ends and where the top list does; the few tokens of the border's bin are put in order; one scan of the kept
// masses in ascending id finds the token. Some six passes over N / threads tokens a thread.

// Bins of masses and counts: four words each in the memory of the bins.
constexpr u32 MASS_CELLS = BINS / 4;
// Blocks a multiprocessor is to hold; with two the compiler runs out of registers for compute capability 10.0.
#if __CUDA_ARCH__ >= 1000
constexpr u32 DRAW_BLOCKS = 1;
#else
constexpr u32 DRAW_BLOCKS = 2;
#endif
// Longest top list, and most tokens that are put in order for it.
constexpr u32 SHORT_LIST = 64;

// What a block keeps in shared memory for this.
struct DrawDesk {
    // What the row is processed with, and the bits of its draw.
    Params params;
    u64 bits;
    u64 masses[16];
    u32 counts[16], lasts[16];
    // Where top-p ends: the lowest token of its bin, what is ahead of it, how many share it.
    u64 low, ahead;
    u32 inside, joined;
    // Every token from here on may be wanted for the top list; how many.
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

// A row in which nothing is above -inf.
__device__ __forceinline__ void store_empty(const RowBlock& b, u64 row_index, i32 status) {
    if (threadIdx.x == 0) {
        store_token(b, row_index, -1);
        store<i32>(b.status, row_index, status);
        store<float>(b.logprobs, row_index, MINUS_INF);
        store<i32>(b.kept_counts, row_index, 0);
        store<i32>(b.top_counts, row_index, 0);
    }
    for (u32 i = threadIdx.x; i < b.top_width; i += blockDim.x) {
        store<i32>(b.top_ids, row_index * b.top_width + i, -1);
        store<float>(b.top_logprobs, row_index * b.top_width + i, MINUS_INF);
    }
}

// What the tokens weigh.
struct Scale {
    float max, scale, lowest;
    __device__ __forceinline__ float exponent(float x) const {
        if (max == PLUS_INF) return x == PLUS_INF ? 0.0f : MINUS_INF;
        return __fmul_rn(__fsub_rn(x, max), scale);
    }
    __device__ __forceinline__ u64 mass(float x) const { return mass_of_exponent(exponent(x)); }
    __device__ __forceinline__ bool may_keep(float t) const { return t > MINUS_INF && t >= lowest; }
};

// The last token that top-p keeps, and where the top list begins, in `desk.listed_from`: no more than 4 * SHORT_LIST tokens
// from there on, and at least `wanted`.
__device__ __noinline__ u64 end_of_top_p(DrawDesk& desk, const Chosen& chosen, const Scale scale, u64 top_p, u32 wanted) {
    const Order& order = chosen.order;
    u32* cells = chosen.lists.bins;
    u32 columns = chosen.columns, inside;
    u64 low = chosen.cut & ~1ull, high = order.first(scale.max), limit = ~0ull, passed = 0;
    if (threadIdx.x == 0) desk.listed_from = low, desk.above = columns;
#pragma unroll 1
    for (u32 level = 0;; level++) {
        for (u32 i = threadIdx.x; i < 4 * MASS_CELLS; i += blockDim.x) cells[i] = 0;
        u64 span = high - low;
        u32 shift = span < MASS_CELLS ? 0 : 64 - 9 - __clzll((i64)span);
        __syncthreads();
#pragma unroll 2
        for (u32 i = threadIdx.x; i < columns; i += blockDim.x) {
            u64 token = chosen.entry(i);
            if (token < low || token > high) continue;
            u64 m = scale.mass(order.value(token));
            u32 cell = (u32)((token - low) >> shift);
            // Pieces whose sums 16384 tokens cannot overflow; additions of 32 bits are what shared memory does by itself.
            atomicAdd(&cells[cell], (u32)m & 0x3fffu);
            atomicAdd(&cells[MASS_CELLS + cell], (u32)(m >> 14) & 0x3fffu);
            atomicAdd(&cells[2 * MASS_CELLS + cell], (u32)(m >> 28));
            atomicAdd(&cells[3 * MASS_CELLS + cell], 1u);
        }
        __syncthreads();
        // A cell a thread, the highest first.
        u32 cell = MASS_CELLS - 1 - threadIdx.x, count = cells[3 * MASS_CELLS + cell], above;
        u64 mass = cells[cell] + ((u64)cells[MASS_CELLS + cell] << 14) + ((u64)cells[2 * MASS_CELLS + cell] << 28), ahead;
        u64 whole, cell_low = low + ((u64)cell << shift);
        scan_masses(desk, mass, count, &ahead, &above, &whole);
        ahead += passed;
        if (level == 0) {
            if (top_p != SD_TOP_P_OFF) limit = multiply_shift(whole, top_p, 32);
            if (above < wanted && wanted <= above + count) desk.listed_from = cell_low, desk.above = above + count;
        }
        // The last cell that has a token and no more than the limit ahead of it.
        bool border = count != 0 && ahead <= limit;
        u32 last = __reduce_max_sync(ALL_LANES, border ? threadIdx.x + 1 : 0);
        if (lane_id() == 0) desk.lasts[warp_id()] = last;
        __syncthreads();
        last = __reduce_max_sync(ALL_LANES, lane_id() < warp_count() ? desk.lasts[lane_id()] : 0);
        if (threadIdx.x + 1 == last) desk.low = cell_low, desk.ahead = ahead, desk.inside = count;
        __syncthreads();
        if (limit == ~0ull) return low;
        low = desk.low, passed = desk.ahead, inside = desk.inside;
        u64 end = low + ((1ull << shift) - 1);
        high = end < high ? end : high;
        if (inside <= 32) break;
    }
    if (threadIdx.x == 0) desk.joined = 0;
    __syncthreads();
#pragma unroll 2
    for (u32 i = threadIdx.x; i < columns; i += blockDim.x) {
        u64 token = chosen.entry(i);
        if (token >= low && token <= high) desk.members[atomicAdd(&desk.joined, 1u)] = token;
    }
    __syncthreads();
    // Every warp by itself: a member a lane, and what is ahead of it.
    u64 own = lane_id() < inside ? desk.members[lane_id()] : 0;
#pragma unroll 1
    for (u32 i = 0; i < inside; i++) {
        u64 other = desk.members[i];
        if (other > own) passed += scale.mass(order.value(other));
    }
    return ~warp_max(own != 0 && passed <= limit ? ~own : 0);
}

// The first tokens of the order with their logprobs, those behind `cut` as not kept.
__device__ __noinline__ void store_short_list(const RowBlock& b, DrawDesk& desk, u64 row_index, const Chosen& chosen,
                                              const Scale scale, u64 cut, u32 wanted, float l) {
    const Order& order = chosen.order;
    u64 from = desk.listed_from;
    if (desk.above > 4 * SHORT_LIST) {
        // Many tokens in one cell: the list's end to the token.
        for (u32 i = threadIdx.x; i < BINS; i += blockDim.x) chosen.lists.bins[i] = 0;
        __syncthreads();
        auto tokens = [&](auto count) {
#pragma unroll 1
            for (u32 i = threadIdx.x; i < chosen.columns; i += blockDim.x) count(chosen.entry(i));
        };
        from = narrow(chosen.desk, chosen.lists.bins, tokens, from, order.first(scale.max), 0, wanted, 2 * SHORT_LIST, 0).low;
    }
    if (threadIdx.x == 0) desk.listed = 0;
    __syncthreads();
#pragma unroll 2
    for (u32 i = threadIdx.x; i < chosen.columns; i += blockDim.x) {
        u64 token = chosen.entry(i);
        if (token >= from) desk.list[atomicAdd(&desk.listed, 1u)] = token;
    }
    __syncthreads();
    i32* ids = (i32*)b.top_ids + row_index * b.top_width;
    float* logprobs = (float*)b.top_logprobs + row_index * b.top_width;
    u32 listed = desk.listed, rank = 0;
    u64 token = threadIdx.x < listed ? desk.list[threadIdx.x] : 0;
#pragma unroll 4
    for (u32 i = 0; i < listed; i++) rank += desk.list[i] > token ? 1 : 0;
    if (token != 0 && rank < wanted) {
        float t = scale.exponent(order.value(token));
        bool kept = token >= cut && scale.may_keep(t);
        ids[rank] = kept ? (i32)order.id(token) : -1;
        logprobs[rank] = kept ? logprob_of_exponent(t, l) : MINUS_INF;
    }
    for (u32 i = wanted + threadIdx.x; i < b.top_width; i += blockDim.x) ids[i] = -1, logprobs[i] = MINUS_INF;
}

__device__ __noinline__ void draw_chosen(const RowBlock& b, DrawDesk& desk, u64 row_index, const Chosen& chosen) {
    if (chosen.largest == MINUS_INF) return store_empty(b, row_index, chosen.status() | SD_STATUS_EMPTY_ROW);
    const Order& order = chosen.order;
    Scale scale = {chosen.largest, desk.params.scale, desk.params.min_exponent};
    u32 columns = chosen.columns, wanted = min((u32)b.top_width, columns);
    u64 cut = end_of_top_p(desk, chosen, scale, desk.params.top_p, wanted);
    // The draw: each thread has neighbouring places.
    u32 share = (columns + blockDim.x - 1) / blockDim.x, begin = min(threadIdx.x * share, columns);
    u32 end = min(begin + share, columns), kept = 0, kept_before;
    u64 own = 0, before, total;
    auto kept_mass = [&](u64 token, float* t) -> u64 {
        *t = scale.exponent(order.value(token));
        return token >= cut && scale.may_keep(*t) ? mass_of_exponent(*t) : 0;
    };
#pragma unroll 1
    for (u32 i = begin; i < end; i++) {
        float t;
        own += kept_mass(chosen.entry(i), &t);
        kept += chosen.entry(i) >= cut && scale.may_keep(t) ? 1 : 0;
    }
    scan_masses(desk, own, kept, &before, &kept_before, &total);
    float l = log2_total(total);
    u64 target = scale_bits(desk.bits, total);
    if (before <= target && target - before < own) {
#pragma unroll 1
        for (u32 i = begin; i < end; i++) {
            float t;
            u64 token = chosen.entry(i), through = before + kept_mass(token, &t);
            if (before <= target && target < through) {
                store_token(b, row_index, (i64)order.id(token));
                store<i32>(b.status, row_index, chosen.status());
                store<float>(b.logprobs, row_index, logprob_of_exponent(t, l));
            }
            before = through;
        }
    }
    if (threadIdx.x == blockDim.x - 1) {
        store<i32>(b.kept_counts, row_index, (i32)(kept_before + kept));
        store<i32>(b.top_counts, row_index, (i32)min((u64)(kept_before + kept), b.top_width));
    }
    if (b.top_width != 0) store_short_list(b, desk, row_index, chosen, scale, cut, wanted, l);
}

template <u32 DTYPE>
__device__ __forceinline__ void draw_columns(const RowBlock& b) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Desk desk;
    __shared__ DrawDesk draw;
    Crew crew(desk);
    allow_next_launch();
    wait_for_inputs();
    u64 row_index = crew.row_index;
    Reading<DTYPE> reading(b, crew, load_index_or_self(b.gather, b.gather_width, row_index));
    Resolved found = resolve(b, row_index);
    Lists lists(memory, b.vocab, b.columns, crew.blocks);
    lists.clear();
    if (found.state != ROW_LIVE) {
        crew.wait();
        if (found.state == ROW_BAD && crew.rank == 0) store_empty(b, row_index, SD_STATUS_BAD_INDEX);
        return;
    }
    // The draw's bits need the position alone; asked for now, they are there in time.
    if (crew.rank == 0 && threadIdx.x == 0) {
        draw.params = found.params;
        draw.bits = draw_bits(b, row_index, row_index, 0, found.params.seed, SD_CASE_FRESH);
    }
    reading.list(b, desk, lists, crew, found.mask);
    // Peers may still be sending this block's lists.
    if (crew.rank != 0) return crew.wait();
    Chosen chosen(desk, lists, b.vocab, b.columns, crew.blocks);
    chosen.choose<DTYPE>(b, crew, memory);
    crew.wait();
    // A copy: what others look at lies in memory, and finding the tokens had better not.
    const Chosen copy = chosen;
    draw_chosen(b, draw, row_index, copy);
}
