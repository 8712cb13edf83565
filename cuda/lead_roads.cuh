// The end of a row by the lead's eight warps, from what the blocks of the cluster have sent. No road needs the others again:
// what the lead wants to know of the row beyond the mail it reads from global memory.

#if __CUDA_ARCH__ >= 900

// Draws from all tokens that min-p keeps. False for a row without mass.
template <u32 DTYPE>
__device__ __noinline__ bool lead_draw(Pipe& pipe) {
    const Rows& rows = pipe.rows;
    Shared& sh = pipe.shared;
    // A function that is called has lost sight of where its references lead.
    __builtin_assume(__isShared(&pipe));
    const Ending& row = pipe.ending;
    const Weight weight = row.weight;
    Parts parts = parts_of(sh, thread_id() < rows.blocks * MASS_WARPS ? pipe.mails[row.which].sums[thread_id()] : 0);
    if (parts.total == 0) return false;
    if (VERIFIES && !judge_by_lead<DTYPE>(pipe, CUT_ALL, parts)) return true;
    lead_find<DTYPE>(pipe, parts, [&](float x, u32) { return weight.kept_mass(x); });
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
    if (over || n > min(MAX_ORDERED, LEAD_THREADS)) return 0;
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
    if (!VERIFIES) return draw_from_list(pipe.block, pipe.shared, row.row_index, row.weight, params, n, whole, row.status, row.bits);
    Kept kept = keep_candidates(pipe.shared, row.weight, params, n, whole);
    conclude_few(pipe, kept, pipe.shared.list.masses + SMALL_TOP_K);
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
