extern "C" __global__ void __launch_bounds__(864, 1) samedraw_draw_bf16(const __grid_constant__ RowBlock b) {
    draw_rows<(u32)SD_DTYPE_BF16>(b, VerifyBlock{});
}
