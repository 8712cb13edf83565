// Processes a row and draws its token: one block a row, from the logits or from selected columns, in global memory.
// Passes over the row, mostly from the L2: maximum; per cut in use its histograms and the ties; masses; the part of the
// row the draw falls into. What an output needs beyond that costs its own pass, only where it is wanted. On chip: the
// histograms and a few words a warp. Any row, any card; rows that fit a cluster take sample_tile.cu.

extern "C" __global__ void __launch_bounds__(512, 1) samedraw_sample(const __grid_constant__ RowBlock b) {
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
    i32 status = found.known;
    float max = row_max(source, &status);
    sample_row(b, row_index, found.params, source, max, status);
}
