extern "C" __global__ void __launch_bounds__(256, 3)
samedraw_verify_f16(const __grid_constant__ RowBlock b, const __grid_constant__ VerifyBlock v) {
    verify_tile<(u32)SD_DTYPE_F16>(b, v);
}

extern "C" __global__ void __launch_bounds__(256, 3)
samedraw_residual_f16(const __grid_constant__ RowBlock b, const __grid_constant__ VerifyBlock v) {
    residual_tile<(u32)SD_DTYPE_F16>(b, v);
}
