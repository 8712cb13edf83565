extern "C" __global__ void __launch_bounds__(256, 3)
samedraw_verify_bf16(const __grid_constant__ RowBlock b, const __grid_constant__ VerifyBlock v) {
    verify_tile<(u32)SD_DTYPE_BF16>(b, v);
}

extern "C" __global__ void __launch_bounds__(512, 1)
samedraw_settle_bf16(const __grid_constant__ RowBlock b, const __grid_constant__ VerifyBlock v) {
    settle_requests<(u32)SD_DTYPE_BF16>(b, v);
}
