// Processes a row, verifies its draft; the last block of the launch to finish settles the requests: one block a row.
// Passes over the row as in sampling; a rejected draft costs two more, for the residual masses and the draw. The
// number of finished rows is counted in the first word of the scratch memory, which is 0 before and after.

extern "C" __global__ void __launch_bounds__(512, 1)
samedraw_verify(const __grid_constant__ RowBlock b, const __grid_constant__ VerifyBlock v) {
    __shared__ Shared shared;
    allow_next_launch();
    wait_for_inputs();
    Block team(shared);
    u64 row_index = team.team_index();
    Place place;
    Draft draft;
    Resolved found = resolve_verified(b, v, row_index, &place, &draft);
    if (found.state != ROW_LIVE && writes_scalars(team)) store<i32>(v.row_accepts, row_index, 0);
    if (found.state == ROW_BAD) store_bad(b, row_index, team);
    if (found.state == ROW_LIVE) {
        u64 length = found.ids == 0 ? b.vocab : b.columns;
        Global<Block> source(team, found.values, found.mask, found.ids, found.ids == 0 ? b.logits_dtype : 0, length);
        i32 status = found.known;
        float max = row_max(source, &status);
        verify_row(b, v, row_index, found, place, draft, source, max, status);
    }
    finish_row(b, v, team);
}
