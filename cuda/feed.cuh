// The warp of pipe.cuh that feeds the others: it starts the copies of rows into the slots that are free, and before the mass warps
// come to a row with top-p alone it decides which of the row's tokens are listed.

#if __CUDA_ARCH__ >= 900

// Tokens so few that all of them may be listed.
constexpr u32 FEW_TOKENS = 1024;

// By the blocks' look at a row, whose largest value `max` is finite. Where it is wrong, the row is ended another way, where it is
// wide, lists are longer: no result depends on it.
__device__ __forceinline__ Window window_of(Look& look, u64 tops, u32 blocks, float max, const Line& line, u32 sampling) {
    float top = octave_of(max, line.scale);
    u32 octave = ((u32)__float2int_rn(top) - lane_id()) % OCTAVES;
    u32 largest = look.largest[octave], sample = look.sample[octave];
    // A peer whose largest token is further down has added to octaves that are not its own.
    float peer = lane_id() < blocks ? value_of_key((u32)(tops >> 32)) : max;
    bool apart = __any_sync(ALL_LANES, __fmul_rn(__fsub_rn(max, peer), line.scale) > (float)OCTAVES_SEEN);
    // What the sample has seen little of is among the parts' largest; much of it stands for `sampling` times as much.
    u32 units = umax(largest, sample < 16 * OCTAVE_UNITS ? sample : sample * sampling);
    u64 mass = (u64)units << (OCTAVES_SEEN - 1 - lane_id()), through = warp_scan(mass);
    u64 whole = __shfl_sync(ALL_LANES, through, 31), limit = multiply_shift(whole, line.top_p, 32);
    // From the largest's octave to its number, in octaves.
    float offset = __fsub_rn(top, __fmul_rn(max, line.scale)) + 0.5f;
    // The exponent at which the mass reaches `target`, if an octave's mass is spread evenly over it.
    auto exponent_at = [&](u64 target) {
        u32 past = __ballot_sync(ALL_LANES, through > target), lane = past != 0 ? __ffs((i32)past) - 1 : 31;
        float within = past != 0 ? (float)(target - (through - mass)) / (float)mass : 1.0f;
        return offset - (float)lane - __shfl_sync(ALL_LANES, within, lane);
    };
    float high = exponent_at(limit - limit / 32) + 0.05f, low = exponent_at(limit + (whole - limit) / 8) - 0.05f;
    u32 octaves = __popc(__ballot_sync(ALL_LANES, warp_scan(units) <= FEW_TOKENS * OCTAVE_UNITS));
    float few = apart ? -16.0f : offset - (float)octaves;
    // Min-p says of each token anew whether it is kept.
    if (apart || line.lowest != MINUS_INF || few <= low) low = fminf(low, few), high = 1.0f;
    Window window = {__fadd_rn(max, __fdiv_rn(low, line.scale)), PLUS_INF};
    if (high < 0.0f) window.high = __fadd_rn(max, __fdiv_rn(high, line.scale));
    return window;
}

// Decides for one row after the other which of its tokens are listed.
struct Weigher {
    u32 row = 0, slot = 0, entry = 0, parity = 0;

    __device__ __forceinline__ void weigh(const RowBlock& b, Pipe& pipe) {
        const Rows& rows = pipe.rows;
        __syncwarp();
        const Line line = pipe.lines[slot];
        if (line.road == ROAD_CUT) {
            completion_wait(&pipe.maxima[entry], parity);
            u64 tops = lane_id() < rows.blocks ? pipe.tops[entry][lane_id()] : 0;
            float max = value_of_key(__reduce_max_sync(ALL_LANES, (u32)(tops >> 32)));
            Look& look = pipe.looks[entry];
            u32 sampling = umax((u32)b.vocab / rows.blocks / (4 * SAMPLED), 1);
            Window window = {PLUS_INF, PLUS_INF};
            if (max != MINUS_INF && max != PLUS_INF) window = window_of(look, tops, rows.blocks, max, line, sampling);
            if (lane_id() == 0) pipe.windows[slot] = window;
            __syncwarp();
            for (u32 i = lane_id(); i < LOOK_WORDS; i += 32) ((u64*)&look)[i] = 0;
            __syncwarp();
        }
        if (lane_id() == 0) completion_arrive(&pipe.weighed[slot]);
        row++;
        if (++slot == rows.slots) slot = 0;
        if (++entry == 2 * rows.slots) entry = 0, parity ^= 1;
    }
};

// One warp: resolves the rows, starts their copies, and decides which tokens are listed.
template <u32 DTYPE>
__device__ __forceinline__ void feed(const RowBlock& b, Pipe& pipe, unsigned char* memory) {
    const Rows& rows = pipe.rows;
    Weigher weigher;
    for (u32 j = 0, slot = 0, parity = 1;; j++) {
        // Up to the row that the mass warps come to when they leave the slot of this one.
        u32 due = j >= rows.count ? rows.count : j >= rows.slots ? j - rows.slots + 2 : 0;
        while (weigher.row < due) weigher.weigh(b, pipe);
        if (j == rows.count) break;
        u64 row_index = rows.first + (u64)j * rows.step;
        Resolved found = resolve(b, row_index);
        u32 need = pipe_need(found.params, b.vocab, rows.blocks);
        Road road = road_of(b, row_index, found, need, rows.list_length);
        if (j >= rows.slots) completion_wait_own(&pipe.left[slot], parity);
        bool live = found.state == ROW_LIVE;
        Copy<DTYPE> copy(memory + slot * rows.slot_bytes, found.values, live ? b.vocab : 0);
        if (lane_id() == 0) {
            bool joint = found.params.top_p != SD_TOP_P_OFF && !found.params.top_k_first;
            bool masses = road == ROAD_DRAW || (road == ROAD_LIST && joint);
            // Top-p beside top-k looks at every token, min-p or not.
            float lowest = road == ROAD_DRAW || road == ROAD_CUT ? found.params.min_exponent : MINUS_INF;
            pipe.lines[slot] = Line{found.values, found.mask,           found.params.scale, lowest,
                                    found.params.top_p, live, masses, road == ROAD_LIST ? need : 0, road, copy};
            yield_to_copies();
            u32 from = copy.copied_from;
            for (u32 c = 0; c < CHUNKS; c++) {
                u32 to = copy.chunk_end(c);
                // Every completion ends a phase a row, with nothing to wait for where nothing is copied.
                if (live && to > from) copy.start_chunk(from, to, &pipe.arrivals[slot][c]);
                else completion_expect(&pipe.arrivals[slot][c], 0);
                from = to;
            }
        }
        if (live) copy.fill_ends(Hands{lane_id(), 32});
        completion_arrive(&pipe.ready[slot]);
        if (++slot == rows.slots) slot = 0, parity ^= 1;
    }
    cluster_wait_started();
}

#endif
