// Keeps the first N tokens of a row's order, ids ascending: a cluster of blocks a row, the row in its shared memory.
// Read once: the maxima of groups of tokens, taken as they arrive, bound the N-th largest value from below; the few tokens
// above the bound are listed, cut.cuh finds where the first N of them end, and each warp writes its own at an offset from
// the counts of those before it. Rows that the lists cannot hold (ties, few values) take the passes of descent.cuh.

#if __CUDA_ARCH__ >= 900

// Every token counts one.
struct Unit {
    static constexpr bool COUNTS = true;
    __device__ __forceinline__ u64 amount(float) const { return 1; }
};

// A key that at least `need` of the block's groups reach, near the highest such; all threads, CHUNKS groups each. `top`
// is the block's largest key. 0 where there are fewer groups.
__device__ __forceinline__ u32 bound_of_groups(Shared& sh, const u32* keys, u32 need, u32* top) {
    u32 high = 0, low = ~0u;
    // Groups of nothing but -inf would stretch the range the bins have to cover; they bound nothing.
    u32 nothing = key_of(MINUS_INF);
    for (u32 c = 0; c < CHUNKS; c++) {
        high = umax(high, keys[c]);
        if (keys[c] > nothing) low = umin(low, keys[c]);
    }
    high = (u32)block_max(sh, high);
    low = ~(u32)block_max(sh, ~low);
    *top = high;
    if (low > high) return 0;
    u32 ahead = 0;
#pragma unroll 1
    for (u32 pass = 0;; pass++) {
        u32 span = high - low, shift = span < COUNT_BINS ? 0 : 22 - __clz(span);
        __syncthreads();
        for (u32 i = threadIdx.x; i < COUNT_BINS; i += blockDim.x) sh.counts[i] = 0;
        if (threadIdx.x == 0) sh.owner = 0;
        __syncthreads();
        for (u32 c = 0; c < CHUNKS; c++) {
            if (keys[c] >= low && keys[c] <= high) atomicAdd(&sh.counts[(keys[c] - low) >> shift], 1u);
        }
        __syncthreads();
        u32 each = COUNT_BINS / blockDim.x, last = COUNT_BINS - 1 - threadIdx.x * each, own = 0;
        for (u32 i = 0; i < each; i++) own += sh.counts[last - i];
        u32 before = ahead + (u32)block_scan_before(sh, own);
        if (before < need && need <= before + own) {
            u32 bin = last;
            while (before + sh.counts[bin] < need) before += sh.counts[bin--];
            sh.owner = low + (bin << shift);
            sh.owner_before = before;
        }
        __syncthreads();
        u32 bound = (u32)sh.owner;
        // Values of both signs leave wide bins: a second look inside the one found.
        if (bound == 0 || shift <= 10 || pass == 1) return bound;
        ahead = (u32)sh.owner_before;
        low = bound;
        u32 end = low + ((1u << shift) - 1);
        if (end >= low && end < high) high = end;
    }
}

// The road for every row.
template <u32 DTYPE>
__device__ __noinline__ void select_any(const RowBlock& b, Shared& sh, u64 row_index, const Copy<DTYPE> copy, u64 mask) {
    Cluster team(sh);
    Tile<DTYPE> source(team, copy, mask);
    float* values = (float*)b.column_values + row_index * b.columns;
    i32* ids = (i32*)b.column_ids + row_index * b.columns;
    Cut cut = cut_by_count(source, CUT_ALL, b.columns);
    compact(
        source, [&](u32, u32 id, float x) { return cut.has(key_of(x), id); },
        [&](u64 place, u32, u32 id, float x) {
            values[place] = x;
            ids[place] = (i32)id;
        });
    // A peer may still be reading this block's memory.
    team.sync();
}

template <u32 DTYPE>
__device__ __forceinline__ void select_tile(const RowBlock& b) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Shared sh;
    start_block(sh);
    allow_next_launch();
    wait_for_inputs();
    u64 row_index = cluster_number();
    i64 logits_row = load_index_or_self(b.gather, b.gather_width, row_index);
    bool readable = in_range(logits_row, b.logits_rows);
    Copy<DTYPE> copy(memory, logits_at(b, readable ? (u64)logits_row : 0), b.vocab);
    if (readable && threadIdx.x == 0) copy.start(sh.arrivals);
    Resolved found = resolve(b, row_index);
    if (readable) copy.fill_ends(all_hands());
    __syncthreads();
    u32 keys[CHUNKS], top = 0, bound = 0;
    bool nan = false;
    for (u32 c = 0; c < CHUNKS; c++) keys[c] = key_of(MINUS_INF);
    if (readable) copy.arrive_in_groups(sh.arrivals, found.state == ROW_LIVE ? (const u32*)found.mask : 0, keys, &nan);
    u32 need = (u32)((b.columns + cluster_size() - 1) / cluster_size());
    bound = bound_of_groups(sh, keys, need, &top);
    bool any = __syncthreads_or(nan) != 0;
    Agreed agreed = agree(sh, top, bound, any);
    float* values = (float*)b.column_values + row_index * b.columns;
    i32* ids = (i32*)b.column_ids + row_index * b.columns;
    bool scalars = cluster_rank() == 0 && threadIdx.x == 0;
    if (found.state != ROW_LIVE) {
        if (found.state == ROW_PADDING) return;
        Cluster team(sh);
        team_fill(team, values, 0, b.columns, MINUS_INF);
        team_fill(team, ids, 0, b.columns, -1);
        if (scalars) store<i32>(b.column_status, row_index, SD_STATUS_BAD_INDEX);
        return;
    }
    if (scalars)
        store<i32>(b.column_status, row_index,
                   (agreed.nan ? SD_STATUS_NAN_LOGITS : 0) | (agreed.max == PLUS_INF ? SD_STATUS_INF_LOGITS : 0) |
                       (agreed.max == MINUS_INF ? SD_STATUS_EMPTY_ROW : 0));
    float lowest = value_of_key(agreed.bound);
    WarpList list = list_tokens(copy, [&](float x) { return x >= lowest; });
    u64 listed = push_listed(sh, copy, list);
    Cut cut = CUT_ALL;
    // 0 bounds nothing: a block had too few groups.
    if (agreed.bound == 0 || listed < b.columns || listed >> 32 != 0 ||
        (listed > b.columns &&
         !cut_lists(sh, copy, list, Unit(), agreed.bound, key_of(agreed.max), b.columns - 1, &cut)))
        return select_any<DTYPE>(b, sh, row_index, copy, found.mask);
    auto within = [&](u32 i) {
        u32 place = list.from + list.places[i];
        return cut.has(key_of(copy.value(place)), place - copy.lead);
    };
    u32 own = 0;
#pragma unroll 1
    for (u32 i = lane_id(); i < list.count; i += 32) own += within(i) ? 1 : 0;
    Sums sums = push_sums(sh, own, &sh.exchanges[3]);
    u64 at = sums.mass_before;
    for (u32 w = 0; w < warp_id(); w++) at += sh.scan[w];
#pragma unroll 1
    for (u32 base = 0; base < list.count; base += 32) {
        u32 i = base + lane_id();
        bool hit = i < list.count && within(i);
        u32 hits = __ballot_sync(ALL_LANES, hit);
        if (hit) {
            u32 place = list.from + list.places[i];
            u64 to = at + __popc(hits & ((1u << lane_id()) - 1));
            values[to] = copy.value(place);
            ids[to] = (i32)(place - copy.lead);
        }
        at += __popc(hits);
    }
}

#else

template <u32 DTYPE>
__device__ void select_tile(const RowBlock&) {}

#endif
