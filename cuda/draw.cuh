// Draws a token for many rows: clusters that stay, each taking row after row through pipe.cuh. The logits are read once from
// global memory into shared memory; the maximum is taken when they have arrived, the masses from shared memory, while the copies
// of the next rows run. Bound: the bytes of the logits; with masses about 25 instructions an element (2 for the maximum,
// 22.5 for the mass) on four schedulers a multiprocessor, which at 132 of them is a little less than the time of the bytes.

template <u32 DTYPE>
__device__ __forceinline__ void draw_rows(const RowBlock& b, const VerifyBlock& v) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Pipe pipe;
    if (threadIdx.x == 0) pipe.rows = Rows::of<DTYPE>(b, v);
    if (threadIdx.x < sizeof(RowBlock) / 8) ((u64*)&pipe.block)[threadIdx.x] = ((const u64*)&b)[threadIdx.x];
    if (VERIFIES && threadIdx.x < sizeof(VerifyBlock) / 8) ((u64*)&pipe.verify)[threadIdx.x] = ((const u64*)&v)[threadIdx.x];
    start_pipe(pipe);
    allow_next_launch();
    wait_for_inputs();
    u32 warp = threadIdx.x / 32;
    if (warp < FIRST_TELL / 32) feed<DTYPE>(b, v, pipe, memory);
    if (warp >= FIRST_TELL / 32 && warp < FIRST_SEND / 32) tell(b, pipe);
    if (warp >= FIRST_SEND / 32 && warp < FIRST_MASS / 32) send_all(pipe);
    if (warp >= FIRST_MASS / 32 && warp < FIRST_LEAD / 32) sum_up<DTYPE>(pipe, memory);
    if (warp >= FIRST_LEAD / 32) lead<DTYPE>(pipe);
    // Peers may still be sending to this block, or reading it.
    cluster_barrier();
#endif
}
