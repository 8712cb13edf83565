// Selection for every row, passes over global memory by one block.

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

__device__ __noinline__ void select_any(const RowBlock& b, Shared& sh, u64 row_index) {
    Resolved found = resolve(b, row_index);
    Block team(sh);
    Global<Block> source(team, found.values, found.mask, 0, b.logits_dtype, b.vocab);
    select_row(b, row_index, found, source);
}
