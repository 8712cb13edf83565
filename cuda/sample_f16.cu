extern "C" __global__ void __launch_bounds__(256, 3) samedraw_sample_f16(const __grid_constant__ RowBlock b) {
    sample_tile<(u32)SD_DTYPE_F16>(b);
}
