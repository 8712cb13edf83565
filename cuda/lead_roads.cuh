// The end of a row by the lead's eight warps, from what the blocks of the cluster have sent. No road needs the others again:
// what the lead wants to know of the row beyond the mail it reads from global memory.

#if __CUDA_ARCH__ >= 900

// The value at index i of a row in global memory, masked, NaN removed.
template <class E>
__device__ __forceinline__ float value_at(const Resolved& found, u32 i) {
    const u32* mask = (const u32*)found.mask;
    if (mask != 0 && !(__ldg(mask + i / 32) >> (i % 32) & 1)) return MINUS_INF;
    return clean(E::widen(__ldg((const typename E::Bits*)found.values + i)));
}

// A drawn token, by the thread that found it; `total` is the mass of all kept tokens.
__device__ __forceinline__ void store_drawn_by_lead(const RowBlock& b, const Ending& row, u32 id, float x, u64 total) {
    store_token(b, row.row_index, (i64)id);
    store<i32>(b.status, row.row_index, row.status);
    if (b.logprobs != 0)
        store<float>(b.logprobs, row.row_index, logprob_of_exponent(row.weight.exponent(x), log2_total(total)));
}

// Finds the part of the row in which the draw falls, by the thread's part's mass `own`, and goes over it once more: `kept(x, id)`
// is the mass that a token is drawn with. `total` is the sum of the parts'.
template <u32 DTYPE, class Kept>
__device__ __forceinline__ void lead_find(const RowBlock& b, Shared& sh, const Ending& row, u64 before, u64 own, u64 total,
                                          Kept kept) {
    typedef Copy<DTYPE> C;
    typedef Element<DTYPE> E;
    u64 target = scale_bits(row.bits, total);
    if (before <= target && target - before < own) sh.owner = thread_id(), sh.owner_before = before;
    team_barrier();
    C copy(0, row.found.values, b.vocab);
    u32 from = (u32)sh.owner * copy.part, to = min(from + copy.part, copy.lead + copy.len);
    u32 each = ((to - from) + LEAD_THREADS - 1) / LEAD_THREADS;
    from = min(from + thread_id() * each, to), to = min(from + each, to);
    // Places ahead of the row hold nothing.
    from = max(from, copy.lead);
    own = 0;
#pragma unroll 4
    for (u32 place = from; place < to; place++) own += kept(value_at<E>(row.found, place - copy.lead), place - copy.lead);
    u64 running = sh.owner_before + block_scan_before(sh, own);
    if (target < running || target - running >= own) return;
#pragma unroll 1
    for (u32 place = from; place < to; place++) {
        float x = value_at<E>(row.found, place - copy.lead);
        running += kept(x, place - copy.lead);
        if (running <= target) continue;
        store_drawn_by_lead(b, row, place - copy.lead, x, total);
        return;
    }
}

// Sum over the lead's threads before this one, and over all.
__device__ __forceinline__ u64 lead_scan(Shared& sh, u64 own, u64* total) {
    u64 before = block_scan_before(sh, own);
    if (thread_id() == LEAD_THREADS - 1) sh.found = before + own;
    team_barrier();
    *total = sh.found;
    return before;
}

// Draws from all tokens that min-p keeps. False for a row without mass.
template <u32 DTYPE>
__device__ __noinline__ bool lead_draw(Pipe& pipe) {
    const RowBlock& b = pipe.block;
    const Rows& rows = pipe.rows;
    Shared& sh = pipe.shared;
    // A function that is called has lost sight of where its references lead.
    __builtin_assume(__isShared(&pipe));
    const Ending& row = pipe.ending;
    const Weight weight = row.weight;
    u64 own = thread_id() < rows.blocks * MASS_WARPS ? pipe.mails[row.which].sums[thread_id()] : 0, total;
    u64 before = lead_scan(sh, own, &total);
    if (total == 0) return false;
    lead_find<DTYPE>(b, sh, row, before, own, total, [&](float x, u32) { return weight.kept_mass(x); });
    return true;
}

// Puts what the blocks have found into `list.order`, `token(r, i)` being the i-th of block r; their number, 0 where a block has found
// more than `room` or all of them more than can be put in order.
template <class Token>
__device__ __forceinline__ u32 gather_found(Pipe& pipe, u32 room, Token token) {
    u32 blocks = pipe.rows.blocks;
    const Mail& mail = pipe.mails[pipe.ending.which];
    u32 count = lane_id() < blocks ? Fact{mail.facts[lane_id()]}.count() : 0;
    bool over = __any_sync(ALL_LANES, count > room);
    u32 through = warp_scan(count), n = __shfl_sync(ALL_LANES, through, 31);
    if (over || n > min(MAX_CANDIDATES, LEAD_THREADS)) return 0;
    for (u32 r = warp_id(); r < blocks; r += LEAD_THREADS / 32) {
        u32 own = __shfl_sync(ALL_LANES, count, r), at = __shfl_sync(ALL_LANES, through, r) - own;
        for (u32 i = lane_id(); i < own; i += 32) pipe.shared.list.order[at + i] = token(r, i);
    }
    team_barrier();
    return n;
}

// Mass of the whole row, by every warp.
__device__ __forceinline__ u64 mass_of_row(const Pipe& pipe) {
    u64 whole = 0;
    for (u32 i = lane_id(); i < pipe.rows.blocks * MASS_WARPS; i += 32) whole += pipe.mails[pipe.ending.which].sums[i];
    return warp_sum(whole);
}

// Draws from the `n` tokens of `list.order`, among which are all that a small top-k keeps; after a barrier.
__device__ __noinline__ void draw_from_few(Pipe& pipe, u32 n) {
    __builtin_assume(__isShared(&pipe));
    const Ending& row = pipe.ending;
    const Params& params = row.found.params;
    bool joint = params.top_p != SD_TOP_P_OFF && !params.top_k_first;
    u64 whole = joint ? mass_of_row(pipe) : 0;
    order_candidates(pipe.shared, n);
    draw_from_list(pipe.block, pipe.shared, row.row_index, row.weight, params, n, whole, row.status, row.bits);
}

// Draws from the candidates of a small top-k; false where there are none or too many.
__device__ __noinline__ bool lead_list(Pipe& pipe) {
    __builtin_assume(__isShared(&pipe));
    const Mail& mail = pipe.mails[pipe.ending.which];
    u32 share = pipe.rows.candidates_each();
    u32 n = gather_found(pipe, share, [&](u32 r, u32 i) { return mail.candidates[r * share + i]; });
    if (n != 0) draw_from_few(pipe, n);
    return n != 0;
}

#endif
