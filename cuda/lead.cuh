// A row's way through the lead: what begins it, and which road ends it.

#if __CUDA_ARCH__ >= 900

// The last road, from global memory.
__device__ __noinline__ void lead_any(Pipe& pipe) {
    __builtin_assume(__isShared(&pipe));
    const Ending& row = pipe.ending;
    Block team(pipe.shared);
    Global<Block> source(team, row.found.values, row.found.mask, 0, pipe.block.logits_dtype, pipe.block.vocab);
    Row<Global<Block>> all(source);
    all.process(source.len, row.found.params, row.weight.max, row.status);
    i64 token = all.draw(row.bits);
    if (thread_id() != 0) return;
    store_token(pipe.block, row.row_index, token);
    store<i32>(pipe.block.status, row.row_index, all.status);
    if (pipe.block.logprobs != 0) store<float>(pipe.block.logprobs, row.row_index, all.logprob(token));
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
    Road road = road_of(b, row_index, found, pipe_need(found.params, b.vocab, rows.blocks), rows.list_length);
    if (lane_id() == 0) {
        row.row_index = row_index, row.which = which, row.road = road;
        row.found = found;
        row.bits = 0;
        if (found.state == ROW_LIVE && b.positions != 0)
            row.bits = draw_bits(b, row_index, row_index, 0, found.params.seed, SD_CASE_FRESH);
        u32 words = rows.blocks * (MASS_WARPS + 1) + (road == ROAD_CUT ? rows.blocks * MASS_WARPS + 1 : 0);
        completion_expect(&pipe.mailed[which], words * 8);
    }
    completion_wait(&pipe.mailed[which], turn / MAILS & 1);
    u32 share = rows.candidates_each();
    u32 listed = lane_id() < rows.blocks ? min(Fact{mail.facts[lane_id()]}.count(), share) : 0;
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

// Ends the row by its road, or the last one.
template <u32 DTYPE>
__device__ __forceinline__ void end_row(Pipe& pipe) {
    const Ending& row = pipe.ending;
    bool done = false;
    if (row.weight.max != MINUS_INF) {
        if (row.road == ROAD_DRAW) done = lead_draw<DTYPE>(pipe);
        if (row.road == ROAD_LIST) done = lead_list(pipe);
        if (row.road == ROAD_CUT) done = lead_top_p<DTYPE>(pipe);
    }
    if (!done && row.found.state == ROW_LIVE) lead_any(pipe);
    if (row.found.state == ROW_BAD) store_bad(pipe.block, row.row_index, Block(pipe.shared));
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
