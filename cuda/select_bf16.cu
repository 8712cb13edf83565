extern "C" __global__ void __launch_bounds__(1024, 1) samedraw_select_bf16(const __grid_constant__ RowBlock b) {
    select_columns<(u32)SD_DTYPE_BF16>(b);
}

extern "C" __global__ void __launch_bounds__(512, DRAW_BLOCKS)
samedraw_draw_columns_bf16(const __grid_constant__ RowBlock b) {
    draw_columns<(u32)SD_DTYPE_BF16>(b);
}
