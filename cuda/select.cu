// Keeps the first N tokens of a row's order, ids ascending: one block a row.
// Passes over the row, from global memory and mostly L2: maximum; three histograms and the ties; a count of what each
// warp keeps; the copy. On chip: the histogram and a few words a warp.

template <class Source>
__device__ void select_row(const RowBlock& b, u64 row_index, const Resolved& found, const Source& source) {
    i32 status = found.known;
    float max = row_max(source, &status);
    if (max == MINUS_INF) status |= SD_STATUS_EMPTY_ROW;
    float* values = (float*)b.column_values + row_index * b.columns;
    i32* ids = (i32*)b.column_ids + row_index * b.columns;
    auto write = [&](u64 place, u32, u32 id, float x) {
        values[place] = x;
        ids[place] = (i32)id;
    };
    if (b.columns == source.len) {
        source.each([&](u32 i, u32 id, float x) { write(i, i, id, x); });
    } else {
        Cut cut = cut_by_count(source, CUT_ALL, b.columns);
        compact(source, [&](u32, u32 id, float x) { return cut.has(key_of(x), id); }, write);
    }
    if (writes_scalars(source.team)) store<i32>(b.column_status, row_index, status);
}

extern "C" __global__ void __launch_bounds__(512, 1) samedraw_select(const __grid_constant__ RowBlock b) {
    __shared__ Shared shared;
    allow_next_launch();
    wait_for_inputs();
    Block team(shared);
    u64 row_index = team.team_index();
    Resolved found = resolve(b, row_index);
    if (found.state == ROW_PADDING) return;
    if (found.state == ROW_BAD) {
        team_fill(team, (float*)b.column_values + row_index * b.columns, 0, b.columns, MINUS_INF);
        team_fill(team, (i32*)b.column_ids + row_index * b.columns, 0, b.columns, -1);
        if (writes_scalars(team)) store<i32>(b.column_status, row_index, SD_STATUS_BAD_INDEX);
        return;
    }
    Global<Block> source(team, found.values, found.mask, 0, b.logits_dtype, b.vocab);
    select_row(b, row_index, found, source);
}
