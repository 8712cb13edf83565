// Processes a row and draws its token: one block a row, from the logits or from selected columns.
// Passes over the row, from global memory and mostly L2: maximum; per cut in use three histograms and the ties;
// the smallest kept key; masses; the part of the row the draw falls into. What an output needs beyond that costs its own
// pass and only where it is wanted. On chip: the histograms and a few words a warp.

template <class Source>
__device__ void sample_row(const RowBlock& b, u64 row_index, const Resolved& found, const Source& source) {
    Row<Source> row(source);
    row.process(b.columns, found.params, found.known);
    i64 token = forced_token(b, row_index);
    if (token == -1 && b.positions != 0)
        token = row.draw(draw_bits(b, row_index, row_index, 0, found.params.seed, SD_CASE_FRESH));
    store_row(b, row_index, row, token, row.status);
}

extern "C" __global__ void __launch_bounds__(512) samedraw_sample(const __grid_constant__ RowBlock b) {
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
    sample_row(b, row_index, found, source);
}
