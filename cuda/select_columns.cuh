// Keeps the first N tokens of a row's order, ids ascending: a cluster of blocks (or one) a row, columns.cuh finds them.

// Each block writes its part of the N.
template <class Value, class Id>
__device__ __forceinline__ void write_columns(const RowBlock& b, const Crew& crew, u32 blocks, i32 status, Value value, Id id) {
    u32 columns = (u32)b.columns, each = (columns + blocks - 1) / blocks;
    u32 from = min(crew.rank * each, columns), to = min(from + each, columns);
    float* values = (float*)b.column_values + crew.row_index * b.columns;
    i32* ids = (i32*)b.column_ids + crew.row_index * b.columns;
    for (u32 i = from + threadIdx.x; i < to; i += blockDim.x) values[i] = value(i), ids[i] = id(i);
    if (crew.rank == 0 && threadIdx.x == 0) store<i32>(b.column_status, crew.row_index, status);
}

template <u32 DTYPE>
__device__ __forceinline__ void select_columns(const RowBlock& b) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Desk desk;
    Crew crew(desk);
    allow_next_launch();
    wait_for_inputs();
    Reading<DTYPE> reading(b, crew, load_index_or_self(b.gather, b.gather_width, crew.row_index));
    Resolved found = resolve(b, crew.row_index);
    Lists lists(memory, b.vocab, b.columns, crew.blocks);
    lists.clear();
    if (found.state != ROW_LIVE) {
        crew.wait();
        if (found.state == ROW_BAD)
            write_columns(b, crew, crew.blocks, SD_STATUS_BAD_INDEX, [](u32) { return MINUS_INF; }, [](u32) { return -1; });
        return;
    }
    reading.list(b, desk, lists, crew, found.mask);
    Chosen chosen(desk, lists, b.vocab, b.columns, crew.blocks);
    if (chosen.choose<DTYPE>(b, crew, memory)) {
        i32 status = chosen.status() | (chosen.largest == MINUS_INF ? SD_STATUS_EMPTY_ROW : 0);
        write_columns(
            b, crew, chosen.blocks, status, [&](u32 i) { return chosen.order.value(chosen.entry(i)); },
            [&](u32 i) { return (i32)chosen.order.id(chosen.entry(i)); });
    }
    // Peers may still be sending this block's lists.
    crew.wait();
}
