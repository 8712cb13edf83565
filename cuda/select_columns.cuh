// Keeps the first N tokens of a row's order, ids ascending: a cluster of blocks (or one) a row, columns.cuh finds them.

template <u32 DTYPE>
__device__ __forceinline__ void select_columns(const RowBlock& b) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Desk desk;
    Crew crew(desk);
    allow_next_launch();
    wait_for_inputs();
    Lists lists(memory, b.vocab, b.columns, crew.blocks);
    u64 start = crew.row_index * b.columns;
    float* values = (float*)b.column_values + start;
    i32* ids = (i32*)b.column_ids + start;
    // Each block writes its part of the N.
    u32 columns = (u32)b.columns, each = (columns + crew.blocks - 1) / crew.blocks;
    u32 from = min(crew.rank * each, columns), to = min(from + each, columns);
    bool scalars = crew.rank == 0 && threadIdx.x == 0;
    RowState state = list_columns<DTYPE>(b, desk, lists, crew, [&]() { return resolve(b, crew.row_index); });
    if (state != ROW_LIVE) {
        if (state == ROW_PADDING) return;
        for (u32 i = from + threadIdx.x; i < to; i += blockDim.x) values[i] = MINUS_INF, ids[i] = -1;
        if (scalars) store<i32>(b.column_status, crew.row_index, SD_STATUS_BAD_INDEX);
        return;
    }
    Chosen chosen(desk, lists, b.vocab, b.columns, crew.blocks);
    if (chosen.choose<DTYPE>(b, crew, memory)) {
        // The first block alone has found them.
        if (chosen.blocks != crew.blocks) from = 0, to = columns;
        for (u32 i = from + threadIdx.x; i < to; i += blockDim.x) {
            u64 token = chosen.entry(i);
            values[i] = chosen.order.value(token);
            ids[i] = (i32)chosen.order.id(token);
        }
        if (scalars)
            store<i32>(b.column_status, crew.row_index,
                       chosen.status() | (chosen.largest == MINUS_INF ? SD_STATUS_EMPTY_ROW : 0));
    }
    // Peers may still be sending this block's lists.
    crew.wait();
}
