// Processes a row and verifies its draft, the row in the shared memory of a cluster of blocks; the last cluster of the
// launch to finish settles the requests. The logits are read once; what the filters keep is found as in prefix.cuh where
// that is a way to it, the rest takes the passes of row.cuh, over shared memory. The number of finished rows is counted in
// the first word of the scratch memory, which is 0 before and after.

#if __CUDA_ARCH__ >= 900

template <u32 DTYPE>
__device__ __forceinline__ void verify_tile(const RowBlock& b, const VerifyBlock& v) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Shared sh;
    start_block(sh);
    allow_next_launch();
    wait_for_inputs();
    u64 row_index = cluster_number();
    i64 logits_row = load_index_or_self(b.gather, b.gather_width, row_index);
    bool readable = in_range(logits_row, b.logits_rows);
    Copy<DTYPE> copy(memory, logits_at(b, readable ? (u64)logits_row : 0), b.vocab);
    if (readable && threadIdx.x == 0) copy.start(sh.arrivals);
    Place place = place_of(b, v, row_index);
    Resolved found = {};
    found.state = place.state;
    if (place.state == ROW_LIVE) found = resolve(b, row_index);
    Draft draft = {};
    if (found.state == ROW_LIVE) {
        draft = draft_of(b, v, row_index, place);
        if (draft.kind == DRAFT_BAD) found.state = ROW_BAD;
    }
    if (readable) copy.fill_ends(all_hands());
    __syncthreads();
    bool nan = false;
    float max = MINUS_INF;
    if (readable) max = copy.arrive(sh.arrivals, found.state == ROW_LIVE ? (const u32*)found.mask : 0, &nan);
    bool all_columns = found.state == ROW_LIVE && b.columns == b.vocab;
    u32 need = all_columns ? small_need(found.params, b.vocab) : 0;
    Agreed agreed = push_max(sh, max, nan, need != 0 ? need : 1);
    Cluster team(sh);
    if (found.state != ROW_LIVE && writes_scalars(team)) store<i32>(v.row_accepts, row_index, 0);
    if (found.state == ROW_BAD) store_bad(b, row_index, team);
    if (found.state == ROW_LIVE) {
        i32 status = (agreed.nan ? SD_STATUS_NAN_LOGITS : 0) | (agreed.max == PLUS_INF ? SD_STATUS_INF_LOGITS : 0);
        Cut cut;
        Weight weight = {agreed.max, found.params.scale, found.params.min_exponent};
        bool known = all_columns && agreed.max != MINUS_INF &&
                     cut_filters(sh, copy, weight, found.params, agreed.bound, need != 0, &cut);
        Tile<DTYPE> source(team, copy, found.mask);
        verify_row(b, v, row_index, found, place, draft, source, agreed.max, status, known ? &cut : 0);
    }
    finish_row(b, v, team);
}

#else

template <u32 DTYPE>
__device__ void verify_tile(const RowBlock&, const VerifyBlock&) {}

#endif
