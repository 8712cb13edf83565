// The warp of pipe.cuh that tells the mass warps what to do with a row: it tells all blocks the maximum of this block's part, with a
// bound for a small top-k or the look at its masses for top-p, and when all blocks have said theirs it decides which tokens are
// collected or listed. It does whatever the mass warps need not do themselves, for it is their time that counts.

#if __CUDA_ARCH__ >= 900

// Tokens so few that all of them may be listed, or put in order: as the look counts, which may miss some that are side by side.
constexpr u32 FEW_TOKENS = 1024, FEW_IN_ORDER = 96;

// By the blocks' look at a row, whose largest value `max` is finite. Where it is wrong, the row is ended another way, where it is
// wide, lists are longer: no result depends on it.
__device__ __forceinline__ Window window_of(Look& look, u64 tops, u32 blocks, float max, const Line& line, u32 vocab) {
    float top = octave_of(max, line.scale);
    u32 sampling = umax(vocab / blocks / (2 * MASS_THREADS), 1);
    u32 octave = ((u32)__float2int_rn(top) - lane_id()) % OCTAVES;
    u32 largest = look.largest[octave], sample = look.sample[octave];
    // A warp whose largest token is further down has added to octaves that are not its own.
    float peer = lane_id() < blocks ? value_of_key((u32)tops & ~1u) : max;
    if (peer == MINUS_INF) peer = max;
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
    // Octaves that hold no more than some tokens, of those that are seen.
    auto octaves_of = [&](u32 tokens) {
        u32 octaves = __popc(__ballot_sync(ALL_LANES, warp_scan(units) <= tokens * OCTAVE_UNITS));
        return (float)min(octaves, OCTAVES_TAKEN - 1);
    };
    float few = apart ? -16.0f : offset - octaves_of(FEW_TOKENS), in_order = offset - octaves_of(FEW_IN_ORDER);
    // An octave to spare, for a row that is not ended here is long in coming.
    if (!apart && in_order <= low - 1.0f) return Window{__fadd_rn(max, __fdiv_rn(in_order, line.scale)), PLUS_INF, true};
    // Min-p says of each token anew whether it is kept.
    if (apart || line.lowest != MINUS_INF || few <= low) low = fminf(low, few), high = 1.0f;
    Window window = {__fadd_rn(max, __fdiv_rn(low, line.scale)), PLUS_INF, false};
    if (high < 0.0f) window.high = __fadd_rn(max, __fdiv_rn(high, line.scale));
    return window;
}

// Waits until the lead is done with the mail, and the lists, of its turn two before this one. One lane waits: once this row is
// sent, the lead may go on and end the next phase, before slower lanes have seen this one.
__device__ __forceinline__ void await_credit(Pipe& pipe, u32 lead, u32 turn) {
    if (lane_id() == 0 && turn >= MAILS) completion_wait(&pipe.credit[lead][turn & 1], (turn / MAILS - 1) & 1);
    __syncwarp();
}

// One row after the other.
struct Teller {
    u32 row = 0, slot = 0, entry = 0, slot_parity = 0, entry_parity = 0;

    // Tells all blocks what the mass warps of this one have seen of the row: its word of `tops`.
    __device__ __forceinline__ u64 exchange(Pipe& pipe, const Line& line) {
        const Rows& rows = pipe.rows;
        u32 turn = row & 1, n = rows.offers_each(line.asked.need) * MASS_WARPS;
        bool cuts = line.road == ROAD_CUT;
        u32 upper = lane_id() < n ? pipe.offers[turn][lane_id()] : 0;
        u32 lower = lane_id() + 32 < n ? pipe.offers[turn][lane_id() + 32] : 0;
        u32 top = __reduce_max_sync(ALL_LANES, umax(upper, lower)), bound = top;
        if (cuts) bound = __reduce_min_sync(ALL_LANES, upper > key_of(MINUS_INF) ? upper : top);
#pragma unroll 1
        for (u32 i = 0; line.asked.need > 1 && i < line.asked.need; i++) {
            // A lane's larger value goes first.
            u32 larger = umax(upper, lower);
            lower = upper + lower - larger;
            upper = larger;
            bound = take_max(upper);
        }
        bool any = __any_sync(ALL_LANES, lane_id() < MASS_WARPS && pipe.nan[turn][lane_id()] != 0);
        if (lane_id() == 0) completion_expect(&pipe.maxima[entry], rows.blocks * (8 + (cuts ? (u32)sizeof(Look) : 0)));
        // The lowest bit of the bound gives way to the NaN flag; a bound may be lower than it need be.
        u64 word = (u64)top << 32 | (bound & ~1u) | (any ? 1 : 0);
        if (lane_id() < rows.blocks) push(lane_id(), &pipe.tops[entry][rows.rank], word, &pipe.maxima[entry]);
        if (!cuts) return word;
#pragma unroll 1
        for (u32 i = lane_id(); i < LOOK_WORDS; i += 32) {
            u64* own = (u64*)&pipe.own_look[turn] + i;
            // Two octaves a word: their sums do not reach 2^32.
            for (u32 to = 0; to < rows.blocks; to++) push_add(to, (u64*)&pipe.looks[entry] + i, *own, &pipe.maxima[entry]);
            *own = 0;
        }
        return word;
    }

    // What is to be done with the row, from what all blocks have told.
    __device__ __forceinline__ Task weigh(const RowBlock& b, Pipe& pipe, const Line& line) {
        const Rows& rows = pipe.rows;
        u64 tops = lane_id() < rows.blocks ? pipe.tops[entry][lane_id()] : 0xfffffffeull;
        Task task = {value_of_key(__reduce_max_sync(ALL_LANES, (u32)(tops >> 32))), line.scale, line.lowest, MINUS_INF, PLUS_INF,
                     WORK_NONE, line.road, __reduce_or_sync(ALL_LANES, (u32)tops & 1)};
        u32 bound = least_but(lane_id() < rows.blocks ? (u32)tops & ~1u : 0xffffffffu, line.asked.spare);
        bool finite = task.max != PLUS_INF;
        if (line.road == ROAD_CUT) {
            if (finite && task.max != MINUS_INF) {
                Window window = window_of(pipe.looks[entry], tops, rows.blocks, task.max, line, (u32)b.vocab);
                task.least = window.low, task.high = window.high;
                task.work = window.few ? WORK_MASS_AND_COLLECT : window.high != PLUS_INF ? WORK_LIST_AROUND : WORK_LIST;
                // Their lists are this row's soon.
                await_credit(pipe, row % rows.blocks, row / rows.blocks);
            }
        } else if (line.live && task.max != MINUS_INF) {
            task.least = fmaxf(value_of_key(bound), LOWEST_FINITE);
            if (line.asked.need == 0 && line.masses) task.work = finite && line.lowest == MINUS_INF ? WORK_MASS : WORK_KEPT_MASS;
            else if (line.asked.need == 0) task.work = WORK_NONE;
            else if (!line.masses) task.work = WORK_COLLECT;
            else task.work = finite ? WORK_MASS_AND_COLLECT : WORK_MASS_THEN_COLLECT;
        }
        return task;
    }

    // Leaves it to the mass warps.
    __device__ __forceinline__ void post(Pipe& pipe, const Task& task) {
        // What the mass warps found of the row before the last, they may write again.
        if (row >= 2) completion_wait_own(&pipe.sent[row & 1], (row / 2 - 1) & 1);
        if (lane_id() == 0) pipe.tasks[slot] = task;
        completion_arrive(&pipe.weighed[slot]);
    }

    __device__ __forceinline__ void tell(const RowBlock& b, Pipe& pipe) {
        completion_wait_own(&pipe.maxed[slot], slot_parity);
        const Line line = pipe.lines[slot];
        // Asked for before it is needed. The first lane's word counts.
        u64 hint = VERIFIES && line.live ? load_relaxed(hint_at(b, line.hint)) : 0;
        u64 own = exchange(pipe, line);
        bool idle = VERIFIES && (line.idle || __any_sync(ALL_LANES, lane_id() == 0 && is_ahead(hint, line.hint)));
        // What this block has seen of an idle row is enough.
        if (idle) post(pipe, Task{value_of_key((u32)(own >> 32)), 0.0f, 0.0f, MINUS_INF, PLUS_INF, WORK_IDLE, line.road, (u32)own & 1});
        completion_wait(&pipe.maxima[entry], entry_parity);
        if (!idle) post(pipe, weigh(b, pipe, line));
        if (line.road == ROAD_CUT) {
            __syncwarp();
            for (u32 i = lane_id(); i < LOOK_WORDS; i += 32) ((u64*)&pipe.looks[entry])[i] = 0;
        }
        row++;
        if (++slot == pipe.rows.slots) slot = 0, slot_parity ^= 1;
        if (++entry == 2 * pipe.rows.slots) entry = 0, entry_parity ^= 1;
    }
};

// One warp: tells the mass warps what to do with one row after the other.
__device__ __forceinline__ void tell(const RowBlock& b, Pipe& pipe) {
    cluster_wait_started();
    Teller teller;
    while (teller.row < pipe.rows.count) teller.tell(b, pipe);
}

#endif
