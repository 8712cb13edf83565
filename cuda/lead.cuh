// A row's way through the lead: what begins it, and which road ends it.

#if __CUDA_ARCH__ >= 900

// A row without a token.
__device__ __forceinline__ void store_empty(const RowBlock& b, const Ending& row) {
    if (thread_id() != 0) return;
    store_token(b, row.row_index, -1);
    store<i32>(b.status, row.row_index, row.status | SD_STATUS_EMPTY_ROW);
    store<float>(b.logprobs, row.row_index, MINUS_INF);
}

// What is known of a row before its masses are, by one thread.
__device__ __noinline__ void look_up(Pipe& pipe, u32 row_index) {
    const RowBlock& b = pipe.block;
    const Rows& rows = pipe.rows;
    __builtin_assume(__isShared(&pipe));
    Ending& row = pipe.ending;
    Draft draft;
    Resolved found = resolve_row(b, pipe.verify, row_index, &row.place, &draft);
    row.row_index = row_index;
    row.found = found;
    row.road = road_of(found, pipe_asked(found.params, b.vocab, rows.blocks).need, rows.list_length);
    if (!VERIFIES && found.state == ROW_LIVE) row.bits = draw_bits(b, row_index, row_index, 0, found.params.seed, SD_CASE_FRESH);
}

// And of its draft.
template <u32 DTYPE>
__device__ __noinline__ void ask(Pipe& pipe) {
    const RowBlock& b = pipe.block;
    const VerifyBlock& v = pipe.verify;
    __builtin_assume(__isShared(&pipe));
    Ending& row = pipe.ending;
    if (row.found.state != ROW_LIVE) return;
    Draft draft = draft_of(b, v, row.row_index, row.place);
    InMemory<Element<DTYPE>> values = {row.found.values, (const u32*)row.found.mask, (u32)b.vocab};
    row.question = question_of(b, v, row.row_index, row.place, row.found.params.seed, draft, values);
    row.bits = row.question.draw;
    row.draft = draft.kind == DRAFT_ROW ? draft_row_of(b, v, row.row_index, draft) : DraftRow{0, 0};
}

// What the lead's threads share of a row, by its first warp, which waits for the row's mail. The others are put aside: a
// thread that asks takes time from those that compute.
template <u32 DTYPE>
__device__ __forceinline__ void begin_ending(Pipe& pipe, u32 j) {
    const Rows& rows = pipe.rows;
    __builtin_assume(__isShared(&pipe));
    u32 turn = j / rows.blocks, which = turn & 1;
    const Mail& mail = pipe.mails[which];
    Ending& row = pipe.ending;
    if (lane_id() == 0) {
        look_up(pipe, rows.row(j));
        if (VERIFIES) ask<DTYPE>(pipe);
        row.which = which;
        u32 words = rows.blocks * (MASS_WARPS + 1) + (row.road == ROAD_CUT ? rows.blocks * MASS_WARPS : 0) +
                    (row.road == ROAD_CUT || row.road == ROAD_LIST ? 1 : 0);
        completion_expect(&pipe.mailed[which], words * 8);
    }
    __syncwarp();
    Road road = row.road;
    completion_wait(&pipe.mailed[which], turn / MAILS & 1);
    u32 share = rows.candidates_each();
    u32 listed = road == ROAD_LIST && lane_id() < rows.blocks ? min(Fact{mail.facts[lane_id()]}.count(), share) : 0;
    listed = __reduce_add_sync(ALL_LANES, listed);
    bool idle = VERIFIES && __any_sync(ALL_LANES, lane_id() < rows.blocks && Fact{mail.facts[lane_id()]}.idle());
    if (lane_id() == 0) completion_expect(&pipe.listed[which], listed * 8);
    // Counted anew: kept over the wait before, it would take a register.
    completion_wait(&pipe.listed[which], j / rows.blocks / MAILS & 1);
    Fact fact = {mail.facts[lane_id() < rows.blocks ? lane_id() : 0]};
    // Blocks that pass a row over tell their own maximum.
    float max = value_of_key(__reduce_max_sync(ALL_LANES, key_of(fact.max())));
    bool nan = __any_sync(ALL_LANES, fact.nan());
    if (lane_id() != 0) return;
    row.status = (nan ? SD_STATUS_NAN_LOGITS : 0) | (max == PLUS_INF ? SD_STATUS_INF_LOGITS : 0);
    if (VERIFIES && max != MINUS_INF) row.status |= draft_status(row.question);
    row.idle = idle;
    // -0, so that a token of either zero is +0 away from it, as the first of the largest tokens is from itself.
    row.weight = Weight{max == 0.0f ? -0.0f : max, row.found.params.scale, row.found.params.min_exponent};
}

// Ends the row by its road, or from the whole of it.
template <u32 DTYPE>
__device__ __forceinline__ void end_row(Pipe& pipe) {
    const Ending& row = pipe.ending;
    if (VERIFIES) begin_verified(pipe);
    if (row.found.state == ROW_BAD) store_bad(pipe.block, row.row_index, Block(pipe.shared));
    if (row.found.state != ROW_LIVE) return;
    if (row.weight.max == MINUS_INF) return store_empty(pipe.block, row);
    if (VERIFIES && row.idle) return store_idle(pipe.block, row);
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
        if (warp_id() == 0) begin_ending<DTYPE>(pipe, j);
        team_barrier();
        end_row<DTYPE>(pipe);
        // The row's mail and this block's shared memory are free again.
        team_barrier();
        if (thread_id() < rows.blocks) completion_arrive_at(thread_id(), &pipe.credit[rows.rank][j / rows.blocks & 1]);
    }
}

#endif
