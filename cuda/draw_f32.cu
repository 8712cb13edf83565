extern "C" __global__ void __launch_bounds__(864, 1) samedraw_draw_f32(const __grid_constant__ RowBlock b) {
    draw_rows<(u32)SD_DTYPE_F32>(b, VerifyBlock{});
}
