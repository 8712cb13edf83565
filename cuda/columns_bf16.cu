extern "C" __global__ void __launch_bounds__(256, 3) samedraw_sample_columns_bf16(const __grid_constant__ RowBlock b) {
    sample_columns<(u32)SD_DTYPE_BF16>(b);
}

extern "C" __global__ void __launch_bounds__(256, 3)
samedraw_verify_columns_bf16(const __grid_constant__ RowBlock b, const __grid_constant__ VerifyBlock v) {
    verify_columns<(u32)SD_DTYPE_BF16>(b, v);
}
