// A row's way through the lead: what begins it, and which road ends it.

#if __CUDA_ARCH__ >= 900

// A row without a token.
__device__ __forceinline__ void store_empty(const RowBlock& b, const Ending& row) {
    if (thread_id() != 0) return;
    store_token(b, row.row_index, -1);
    store<i32>(b.status, row.row_index, row.status | SD_STATUS_EMPTY_ROW);
    store<float>(b.logprobs, row.row_index, MINUS_INF);
}

// What the lead's threads share of a row, by its first warp, which waits for the row's mail. The others are put aside: a
// thread that asks takes time from those that compute.
__device__ __forceinline__ void begin_ending(Pipe& pipe, u32 j) {
    const RowBlock& b = pipe.block;
    const Rows& rows = pipe.rows;
    __builtin_assume(__isShared(&pipe));
    u32 row_index = rows.first + j * rows.step, turn = j / rows.blocks, which = turn & 1;
    const Mail& mail = pipe.mails[which];
    Ending& row = pipe.ending;
    Resolved found = resolve(b, row_index);
    Road road = road_of(found, pipe_need(found.params, b.vocab, rows.blocks), rows.list_length);
    if (lane_id() == 0) {
        row.row_index = row_index, row.which = which, row.road = road;
        row.found = found;
        row.bits = found.state == ROW_LIVE ? draw_bits(b, row_index, row_index, 0, found.params.seed, SD_CASE_FRESH) : 0;
        u32 words = rows.blocks * (MASS_WARPS + 1) + (road == ROAD_CUT ? rows.blocks * MASS_WARPS : 0) +
                    (road == ROAD_CUT || road == ROAD_LIST ? 1 : 0);
        completion_expect(&pipe.mailed[which], words * 8);
    }
    completion_wait(&pipe.mailed[which], turn / MAILS & 1);
    u32 share = rows.candidates_each();
    u32 listed = road == ROAD_LIST && lane_id() < rows.blocks ? min(Fact{mail.facts[lane_id()]}.count(), share) : 0;
    listed = __reduce_add_sync(ALL_LANES, listed);
    if (lane_id() == 0) completion_expect(&pipe.listed[which], listed * 8);
    // Counted anew: kept over the wait before, it would take a register.
    completion_wait(&pipe.listed[which], j / rows.blocks / MAILS & 1);
    if (lane_id() != 0) return;
    Fact fact = {mail.facts[0]};
    float max = fact.max();
    row.status = (fact.nan() ? SD_STATUS_NAN_LOGITS : 0) | (max == PLUS_INF ? SD_STATUS_INF_LOGITS : 0);
    // -0, so that a token of either zero is +0 away from it, as the first of the largest tokens is from itself.
    row.weight = Weight{max == 0.0f ? -0.0f : max, row.found.params.scale, row.found.params.min_exponent};
}

// Ends the row by its road, or from the whole of it.
template <u32 DTYPE>
__device__ __forceinline__ void end_row(Pipe& pipe) {
    const Ending& row = pipe.ending;
    if (row.found.state == ROW_BAD) store_bad(pipe.block, row.row_index, Block(pipe.shared));
    if (row.found.state != ROW_LIVE) return;
    if (row.weight.max == MINUS_INF) return store_empty(pipe.block, row);
    bool done = false;
    if (row.road == ROAD_DRAW) done = lead_draw<DTYPE>(pipe);
    if (row.road == ROAD_LIST) done = lead_list(pipe);
    if (row.road == ROAD_CUT) done = lead_top_p<DTYPE>(pipe);
    if (!done) lead_whole<DTYPE>(pipe);
}

template <u32 DTYPE>
__device__ __noinline__ void lead(Pipe& pipe) {
    const Rows& rows = pipe.rows;
    __builtin_assume(__isShared(&pipe));
    cluster_wait_started();
#pragma unroll 1
    for (u32 j = rows.rank; j < rows.count; j += rows.blocks) {
        if (warp_id() == 0) begin_ending(pipe, j);
        team_barrier();
        end_row<DTYPE>(pipe);
        // The row's mail and this block's shared memory are free again.
        team_barrier();
        if (thread_id() < rows.blocks) completion_arrive_at(thread_id(), &pipe.credit[rows.rank][j / rows.blocks & 1]);
    }
}

#endif
