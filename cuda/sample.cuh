// The sampling stage of one row, wherever the row lies.

template <class Source>
__device__ void sample_row(const RowBlock& b, u64 row_index, const Params& params, const Source& source, float max,
                           i32 status, const Cut* known = 0) {
    Row<Source> row(source);
    row.process(b.columns, params, max, status, known);
    i64 token = forced_token(b, row_index);
    if (token == -1 && b.positions != 0)
        token = row.draw(draw_bits(b, row_index, row_index, 0, params.seed, SD_CASE_FRESH));
    store_row(b, row_index, row, token, row.status);
}
