// The mass warps of pipe.cuh, two rows ahead of their masses: each takes the maximum of its part of a row that has arrived, writes
// the mask and the NaN rule into it, and offers its largest values for a bound of a small top-k or takes a look at its
// masses for top-p.

#if __CUDA_ARCH__ >= 900

// Adds this thread's share of a warp's look at its part of a row, from `from` to `end`: its own largest value, and one of its groups.
// `top` is the warp's largest.
template <class C>
__device__ __forceinline__ void look_at(const C& copy, float scale, float top, float largest, u32 from, u32 end, Look& look) {
    auto add = [&](u32* octaves, float x) {
        if (!(__fmul_rn(__fsub_rn(x, top), scale) > -(float)OCTAVES_TAKEN)) return;
        float octave = octave_of(x, scale);
        // 2^f by its tangent.
        float f = __fsub_rn(__fmul_rn(x, scale), octave);
        atomicAdd(&octaves[(u32)__float2int_rn(octave) % OCTAVES], OCTAVE_UNITS + __float2int_rn(f * 177.0f));
    };
    add(look.largest, largest);
    u32 groups = (end - from) / 4;
    if (groups == 0) return;
    float x[4];
    copy.load4(from + lane_id() * groups / 32 * 4, x);
    // Neighbours may be alike, for which two tell as much as four.
    add(look.sample, x[0]), add(look.sample, x[2]);
}

// The maximum of a warp's part of row `j`, which has arrived in `copy`.
template <class C>
__device__ __forceinline__ void take_maximum(Pipe& pipe, const C& copy, const Line& line, u32 j, u32 warp) {
    u32 from, end, turn = j & 1, each = pipe.rows.offers_each(line.asked.need);
    copy.part_of(warp, &from, &end);
    bool nan = false;
    Maxima parts = {{MINUS_INF, MINUS_INF, MINUS_INF, MINUS_INF}};
    if (line.live) {
        const u32* mask = (const u32*)line.mask;
        Hands hands = {lane_id(), 32};
        parts = copy.settle(from, end, mask, copy.first_windows(from, end, mask, hands), &nan, hands);
        if (mask != 0 || nan) yield_to_copies();
        __syncwarp();
    }
    float largest = parts.all();
    u32 key = key_of(largest), top = __reduce_max_sync(ALL_LANES, key);
    bool any = __any_sync(ALL_LANES, nan);
    if (lane_id() == 0) pipe.offers[turn][warp * each] = top, pipe.nan[turn][warp] = any;
    if (each > 1) take_max(key);
#pragma unroll 1
    for (u32 i = 1; i < each; i++) {
        u32 offer = take_max(key);
        if (lane_id() == 0) pipe.offers[turn][warp * each + i] = offer;
    }
    if (line.road == ROAD_CUT && (!VERIFIES || line.live)) look_at(copy, line.scale, value_of_key(top), largest, from, end, pipe.own_look[turn]);
}

#endif
