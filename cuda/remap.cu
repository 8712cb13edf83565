// Moves a draft row's logprobs from the draft's columns to the target row's columns, -inf for those the draft lacks: one
// block a row. Two passes over the columns: fill, then one binary search a draft column.

extern "C" __global__ void __launch_bounds__(512)
samedraw_remap(const __grid_constant__ RowBlock b, const __grid_constant__ VerifyBlock v) {
    __shared__ Shared shared;
    allow_next_launch();
    wait_for_inputs();
    Block team(shared);
    u64 row_index = team.team_index();
    Place place = place_of(b, v, row_index);
    if (v.remapped == 0 || place.state != ROW_LIVE || place.is_last) return;
    Resolved found = resolve(b, row_index);
    i64 pool_row = draft_row(v, row_index);
    if (found.state != ROW_LIVE || pool_row < 0) return;
    u64 length = found.ids == 0 ? b.vocab : b.columns;
    Global<Block> source(team, found.values, found.mask, found.ids, found.ids == 0 ? b.logits_dtype : 0, length);
    float* out = (float*)v.remapped + row_index * b.columns;
    team_fill(team, out, 0, b.columns, MINUS_INF);
    __syncthreads();
    u64 start = (u64)pool_row * v.draft_stride;
    for (u64 column = threadIdx.x; column < v.draft_width; column += blockDim.x) {
        i64 index = source.find(((const i32*)v.draft_columns)[start + column]);
        if (index >= 0) out[index] = ((const float*)v.draft_logprobs)[start + column];
    }
}
