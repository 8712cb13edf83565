// The warps of pipe.cuh in front: they take the maximum of a row as it arrives and tell it to all blocks, with a bound for a small
// top-k or a look at the row's masses for top-p.

#if __CUDA_ARCH__ >= 900

// Adds this front thread's share of a block's look at its part of a row, whose largest value is `top`; `largest` are the largest
// values of this thread's parts.
template <class C>
__device__ __forceinline__ void look_at(const C& copy, float scale, float top, const float* largest, Look& look) {
    auto add = [&](u32* octaves, float x) {
        if (!(__fmul_rn(__fsub_rn(x, top), scale) > -(float)OCTAVES_TAKEN)) return;
        float octave = octave_of(x, scale);
        // 2^f by its tangent.
        float f = __fsub_rn(__fmul_rn(x, scale), octave);
        atomicAdd(&octaves[(u32)__float2int_rn(octave) % OCTAVES], OCTAVE_UNITS + __float2int_rn(f * 177.0f));
    };
    for (u32 c = 0; c < CHUNKS; c++) add(look.largest, largest[c]);
    u32 groups = (copy.end_place - copy.first_place) / 4;
    if (groups == 0) return;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < SAMPLED; i += FRONT_THREADS) {
        float x[4];
        copy.load4(copy.first_place + i * groups / SAMPLED * 4, x);
        for (u32 e = 0; e < 4; e++) add(look.sample, x[e]);
    }
}

// Four warps: the maximum of a row as it arrives, and a bound that `need` tokens of the block reach.
template <u32 DTYPE>
__device__ __forceinline__ void front(const RowBlock& b, Pipe& pipe, unsigned char* memory) {
    const Rows& rows = pipe.rows;
    u32 warp = threadIdx.x / 32;
    Hands hands = {threadIdx.x, FRONT_THREADS};
    cluster_wait_started();
    for (u32 j = 0, slot = 0, parity = 0, entry = 0; j < rows.count; j++) {
        completion_wait_own(&pipe.ready[slot], parity);
        const Line line = pipe.lines[slot];
        bool nan = false;
        float max = MINUS_INF, parts[CHUNKS];
        if (line.live) {
            Copy<DTYPE> copy(memory + slot * rows.slot_bytes, line.values, b.vocab, line.bounds);
            copy.arrive_in_chunks(pipe.arrivals[slot], (const u32*)line.mask, parts, &nan, hands, parity);
            max = fmaxf(fmaxf(parts[0], parts[1]), fmaxf(parts[2], parts[3]));
            if (line.mask != 0 || nan) yield_to_copies();
        }
        u32 need = umax(line.need, 1), each = need == 1 ? 1 : min((need + FRONT_WARPS - 1) / FRONT_WARPS * 2, 64 / FRONT_WARPS);
        u32 key = key_of(max), turn = j & 1;
        bool any = __any_sync(ALL_LANES, nan);
#pragma unroll 1
        for (u32 i = 0; i < each; i++) {
            u32 top = take_max(key);
            if (lane_id() == 0) pipe.offers[turn][warp * each + i] = top;
        }
        if (lane_id() == 0) pipe.nan[turn][warp] = any;
        named_barrier(FRONT_BARRIER, FRONT_THREADS);
        bool cuts = line.road == ROAD_CUT;
        if (warp == 0) {
            u32 n = each * FRONT_WARPS;
            u32 upper = lane_id() < n ? pipe.offers[turn][lane_id()] : 0;
            u32 lower = lane_id() + 32 < n ? pipe.offers[turn][lane_id() + 32] : 0;
            u32 top = __reduce_max_sync(ALL_LANES, umax(upper, lower)), bound = top;
#pragma unroll 1
            for (u32 i = 0; need > 1 && i < need; i++) {
                // A lane's larger value goes first.
                u32 larger = umax(upper, lower);
                lower = upper + lower - larger;
                upper = larger;
                bound = take_max(upper);
            }
            any = __any_sync(ALL_LANES, lane_id() < FRONT_WARPS && pipe.nan[turn][lane_id()] != 0);
            if (lane_id() == 0) completion_expect(&pipe.maxima[entry], rows.blocks * (8 + (cuts ? (u32)sizeof(Look) : 0)));
            // The lowest bit of the bound gives way to the NaN flag; a bound may be lower than it need be.
            if (lane_id() < rows.blocks)
                push(lane_id(), &pipe.tops[entry][rows.rank], (u64)top << 32 | (bound & ~1u) | (any ? 1 : 0),
                     &pipe.maxima[entry]);
        }
        if (cuts) {
            // With `each` = 1, an offer is a warp's largest.
            u32 top = __reduce_max_sync(ALL_LANES, lane_id() < FRONT_WARPS ? pipe.offers[turn][lane_id()] : 0);
            // Both are what they are said to be for a live row alone, which a row that is cut is.
            look_at(Copy<DTYPE>(memory + slot * rows.slot_bytes, line.values, b.vocab, line.bounds), line.scale, value_of_key(top),
                    parts, pipe.own_look[turn]);
            named_barrier(FRONT_BARRIER, FRONT_THREADS);
            if (warp >= 1 && threadIdx.x < 32 + LOOK_WORDS) {
                u64* own = (u64*)&pipe.own_look[turn] + (threadIdx.x - 32);
                // Two octaves a word: their sums do not reach 2^32.
                for (u32 to = 0; to < rows.blocks; to++)
                    push_add(to, (u64*)&pipe.looks[entry] + (threadIdx.x - 32), *own, &pipe.maxima[entry]);
                *own = 0;
            }
        }
        // Only now may the mass warps leave the slot.
        __syncwarp();
        if (lane_id() == 0) completion_arrive(&pipe.seen[slot]);
        if (++slot == rows.slots) slot = 0, parity ^= 1;
        if (++entry == 2 * rows.slots) entry = 0;
    }
}

#endif
