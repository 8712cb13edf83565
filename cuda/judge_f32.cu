extern "C" __global__ void __launch_bounds__(864, 1)
samedraw_judge_f32(const __grid_constant__ RowBlock b, const __grid_constant__ VerifyBlock v) {
    draw_rows<(u32)SD_DTYPE_F32>(b, v);
}
