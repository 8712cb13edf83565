// Keeps the first N tokens of a row's order, ids ascending: a cluster of blocks (or one) a row, columns.cuh finds them.

template <u32 DTYPE>
__device__ __forceinline__ void select_columns(const RowBlock& b) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Desk desk;
    __shared__ Shared sh;
    Crew crew(desk);
    allow_next_launch();
    wait_for_inputs();
    Lists lists(memory, b.vocab, b.columns, crew.blocks);
    u64 start = crew.row_index * b.columns;
    float* values = (float*)b.column_values + start;
    i32* ids = (i32*)b.column_ids + start;
    bool scalars = crew.rank == 0 && threadIdx.x == 0;
    RowState state = list_columns<DTYPE>(b, desk, lists, crew, [&]() { return resolve(b, crew.row_index); });
    if (state != ROW_LIVE) {
        if (state == ROW_PADDING || crew.rank != 0) return;
        Block team(sh);
        team_fill(team, values, 0, b.columns, MINUS_INF);
        team_fill(team, ids, 0, b.columns, -1);
        if (scalars) store<i32>(b.column_status, crew.row_index, SD_STATUS_BAD_INDEX);
        return;
    }
    Chosen chosen(desk, lists, b.vocab, b.columns, crew.blocks);
    if (chosen.choose()) {
        // Each block writes its part of the N.
        u32 each = (chosen.columns + crew.blocks - 1) / crew.blocks, from = min(crew.rank * each, chosen.columns);
        u32 to = min(from + each, chosen.columns);
        for (u32 i = from + threadIdx.x; i < to; i += blockDim.x) {
            u64 entry = chosen.entry(i);
            values[i] = chosen.order.value(entry);
            ids[i] = (i32)chosen.order.id(entry);
        }
        if (scalars)
            store<i32>(b.column_status, crew.row_index,
                       chosen.status() | (chosen.largest == MINUS_INF ? SD_STATUS_EMPTY_ROW : 0));
    } else if (crew.rank == 0) {
        select_any(b, sh, crew.row_index);
    }
    // Peers may still be sending this block's lists.
    crew.wait();
}
