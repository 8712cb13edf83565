// Keeps the first N tokens of a row's order, ids ascending: one block a row.
// Passes over the row, from global memory and mostly L2: maximum; three histograms and the ties; a count of what each
// warp keeps; the copy. On chip: the histogram and a few words a warp.

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
    select_any(b, shared, row_index);
}
