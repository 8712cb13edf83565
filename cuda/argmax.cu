// The first token of each row's order, for a batch in which every row has top_k = 1: one block a row.
// One pass over the row: each thread keeps its first largest value and whether it saw a NaN; a value's key and its index,
// inverted, make one integer whose maximum over the team is the answer.

__device__ __forceinline__ void store_argmax(const RowBlock& b, u64 row_index, float max, u32 id, bool nan, i32 status) {
    status |= (nan ? SD_STATUS_NAN_LOGITS : 0) | (max == PLUS_INF ? SD_STATUS_INF_LOGITS : 0);
    bool empty = max == MINUS_INF;
    store_token(b, row_index, empty ? -1 : (i64)id);
    store<float>(b.logprobs, row_index, empty ? MINUS_INF : 0.0f);
    store<i32>(b.ranks, row_index, empty ? 0 : 1);
    store<i32>(b.kept_counts, row_index, empty ? 0 : 1);
    store<i32>(b.status, row_index, status | (empty ? SD_STATUS_EMPTY_ROW : 0));
}

template <class Source>
__device__ void argmax_row(const RowBlock& b, u64 row_index, const Resolved& found, const Source& source) {
    float max = MINUS_INF;
    u32 at = 0;
    bool nan = false;
    source.each_raw([&](u32 i, float x) {
        nan |= x != x;
        // Indices ascend within a thread, so that the first of equal values stays.
        if (x > max) {
            max = x;
            at = i;
        }
    });
    u64 best = team_max(source.team, (u64)key_of(max) << 32 | (u32)~at);
    bool any_nan = team_max(source.team, nan ? 1 : 0) != 0;
    if (writes_scalars(source.team))
        store_argmax(b, row_index, value_of_key((u32)(best >> 32)), source.id_at(~(u32)best), any_nan, found.known);
}

extern "C" __global__ void __launch_bounds__(512) samedraw_argmax(const __grid_constant__ RowBlock b) {
    __shared__ Shared shared;
    allow_next_launch();
    wait_for_inputs();
    Block team(shared);
    u64 row_index = team.team_index();
    Resolved found = resolve(b, row_index);
    if (found.state == ROW_PADDING) return;
    if (found.state == ROW_BAD) return store_bad(b, row_index, team);
    u64 length = found.ids == 0 ? b.vocab : b.columns;
    Global<Block> source(team, found.values, found.mask, found.ids, found.ids == 0 ? b.logits_dtype : 0, length);
    argmax_row(b, row_index, found, source);
}
