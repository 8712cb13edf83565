// The mass warps of pipe.cuh: they go over a row in shared memory once its maximum is known, sum up its masses or pick out its
// candidates, and send what they found to the row's lead. For top-p alone they list on the way what lies near its end, as far
// as a look at some of the row can tell where that is.

#if __CUDA_ARCH__ >= 900

// This block's candidates: the tokens at or above a value, in no particular order; the count may pass what the list holds.
struct Collector {
    u64* found;
    u32* count;
    float lowest;

    // Takes those of four neighbouring values.
    template <class C>
    __device__ __forceinline__ void see(const C& copy, u32 place, const float* x) const {
        if (fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])) < lowest) return;
        for (u32 e = 0; e < 4; e++) {
            u32 index = place + e - copy.lead;
            if (!(x[e] >= lowest) || index >= copy.len) continue;
            u32 at = atomicAdd(count, 1u);
            if (at < BLOCK_CANDIDATES) found[at] = (u64)key_of(x[e]) << 32 | ~index;
        }
    }
};

// Collects among a warp's part.
template <class C>
__device__ __forceinline__ void collect(const Collector& collector, const C& copy, u32 warp) {
    u32 place, end;
    copy.part_of(warp, &place, &end);
    place += lane_id() * 4;
#pragma unroll 4
    for (; place < end; place += 128) {
        float x[4];
        copy.load4(place, x);
        collector.see(copy, place, x);
    }
}

// Waits until the lead is done with the mail, and the lists, of the row two turns before. One lane waits: once it has sent,
// the lead may go on and end the next phase, before slower lanes have seen this one.
__device__ __forceinline__ void await_credit(Pipe& pipe, const Turn& turn) {
    if (lane_id() == 0 && turn.number >= MAILS)
        completion_wait(&pipe.credit[turn.lead][turn.number & 1], (turn.number / MAILS - 1) & 1);
    __syncwarp();
}

// Sends a mass warp's report to the row's lead, and from the first warp of each block the block's candidates.
__device__ __forceinline__ void send(Pipe& pipe, const Report& report, u32 warp) {
    const Rows& rows = pipe.rows;
    const Turn& turn = report.turn;
    u32 mail = turn.number & 1;
    await_credit(pipe, turn);
    Mail& to = pipe.mails[mail];
    if (lane_id() == 0) {
        push(turn.lead, &to.sums[rows.rank * MASS_WARPS + warp], report.mass, &pipe.mailed[mail]);
        if (turn.road == ROAD_CUT) push(turn.lead, &to.listed[rows.rank * MASS_WARPS + warp], report.listed, &pipe.mailed[mail]);
    }
    if (warp != 0) return;
    u32 half = turn.j & 1, share = rows.candidates_each();
    u32 count = turn.road == ROAD_LIST ? pipe.found_count[half] : 0;
    if (lane_id() == 0) {
        Fact fact = Fact::of(turn.max, turn.nan, count);
        push(turn.lead, &to.facts[rows.rank], fact.word, &pipe.mailed[mail]);
        if (turn.road == ROAD_CUT && rows.rank == turn.lead) push(turn.lead, &to.window, report.window, &pipe.mailed[mail]);
    }
    if (count == 0) return;
    for (u32 i = lane_id(); i < min(count, share); i += 32)
        push(turn.lead, &to.candidates[rows.rank * share + i], pipe.found[half][i], &pipe.listed[mail]);
    __syncwarp();
    if (lane_id() == 0) pipe.found_count[half] = 0;
}

// Sums of a thread over its share of a warp's part.
struct PartMass {
    // All of it, and what is at or above the window.
    u64 whole, above;
    // Groups noted by the warp; it may pass what the notes hold.
    u32 marked;
};

// Mass of a warp's part. Groups of four with a value in the window are noted, ascending, and maybe some without.
template <bool HIGH, class C>
__device__ __forceinline__ PartMass mass_and_marks(const C& copy, float max, float scale, const Window& window, u32 warp,
                                                   u16* marks) {
    u32 from, end, before = (1u << lane_id()) - 1, notes = shared_address(marks);
    copy.part_of(warp, &from, &end);
    PartMass own = {0, 0, 0};
    // The middle of the window, and a little more than half its width.
    float upper = fminf(window.high, max), middle = window.low * 0.5f + upper * 0.5f;
    float reach = fmaxf(upper - middle, middle - window.low) * 1.001f + fabsf(middle) * 1e-6f;
    float x[4];
    u32 place = from + lane_id() * 4;
    if (place < end) copy.load4(place, x);
#pragma unroll 1
    for (u32 group = lane_id(), last = (end - from + 127) / 128 * 32; group < last; group += 32) {
        // Past the end of the part there is nothing.
        if (place >= end)
            for (u32 e = 0; e < 4; e++) x[e] = MINUS_INF;
        float near = fminf(fminf(fabsf(x[0] - middle), fabsf(x[1] - middle)), fminf(fabsf(x[2] - middle), fabsf(x[3] - middle)));
        u32 hits = __ballot_sync(ALL_LANES, near <= reach), at = own.marked + __popc(hits & before);
        if (near <= reach && at < MARKS) shared_store(notes + at * 2, (u16)group);
        own.marked += __popc(hits);
        float t[4];
        bool high[4];
        for (u32 e = 0; e < 4; e++) t[e] = __fmul_rn(__fsub_rn(x[e], max), scale), high[e] = x[e] >= window.high;
        place += 128;
        if (place < end) copy.load4(place, x);
        Powers<4> powers(t);
        for (u32 e = 0; e < 4; e++) {
            u64 mass = whole_mass(powers.scaled(e));
            own.whole += mass;
            if (HIGH) own.above += high[e] ? mass : 0;
        }
    }
    return own;
}

// Writes a warp's tokens of the window to `list`, ids ascending; their number, more than the list holds if they are not all
// there.
template <class C>
__device__ __forceinline__ u32 list_marked(const C& copy, const Window& window, u32 warp, const u16* marks, u32 marked, u64* list,
                                           u32 length) {
    if (marked > MARKS) return LIST + 1;
    u32 from, end, count = 0;
    copy.part_of(warp, &from, &end);
    __syncwarp();
#pragma unroll 1
    for (u32 first = 0; first < marked; first += 32) {
        float x[4];
        u32 index = 0, hits = 0;
        if (first + lane_id() < marked) {
            u32 place = from + marks[first + lane_id()] * 4;
            copy.load4(place, x);
            index = place - copy.lead;
            for (u32 e = 0; e < 4; e++) hits |= (x[e] >= window.low && x[e] < window.high && index + e < copy.len ? 1u : 0u) << e;
        }
        u32 through = warp_scan((u32)__popc(hits)), at = count + through - __popc(hits);
        for (u32 e = 0; e < 4; e++) {
            if (!(hits >> e & 1)) continue;
            if (at < length) list[at] = (u64)key_of(x[e]) << 32 | ~(index + e);
            at++;
        }
        count += __shfl_sync(ALL_LANES, through, 31);
    }
    return count > length ? LIST + 1 : count;
}

// Sends a report that was kept back: the list it tells the length of was written long ago.
__device__ __noinline__ void flush(Pipe& pipe, u32 warp) {
    __builtin_assume(__isShared(&pipe));
    const Report& report = pipe.reports[warp];
    __syncwarp();
    // A list is in memory before its length is known to the lead.
    if (lane_id() == 0) __threadfence();
    __syncwarp();
    send(pipe, report, warp);
    __syncwarp();
}

// Eleven warps: the masses of a row whose maximum is known, and its candidates, or the list of its tokens that top-p may keep.
template <u32 DTYPE>
__device__ __noinline__ void sum_up(Pipe& pipe, unsigned char* memory) {
    const RowBlock& b = pipe.block;
    const Rows& rows = pipe.rows;
    // A function that is called has lost sight of where its references lead.
    __builtin_assume(__isShared(&pipe));
    // Whether a row of the launch may have candidates, which a block's warps collect together.
    bool together = (b.filters & SD_FILTER_TOP_K) != 0;
    u32 warp = (threadIdx.x - FIRST_MASS) / 32;
    cluster_wait_started();
    Turn turn = {0, 0, 0, 0, MINUS_INF, 0, ROAD_ANY};
    u32 parity = 0, entry = 0, entry_parity = 0;
    bool pending = false;
    for (u32 j = 0; j < rows.count; j++) {
        turn.j = j;
        completion_wait_own(&pipe.seen[turn.slot], parity);
        const Line line = pipe.lines[turn.slot];
        completion_wait(&pipe.maxima[entry], entry_parity);
        u64 x = lane_id() < rows.blocks ? pipe.tops[entry][lane_id()] : 0xfffffffeull;
        turn.max = value_of_key(__reduce_max_sync(ALL_LANES, (u32)(x >> 32)));
        turn.nan = __reduce_or_sync(ALL_LANES, (u32)x & 1);
        u32 bound = __reduce_min_sync(ALL_LANES, (u32)x & ~1u);
        turn.road = line.road;
        Report report = {turn, 0, 0, 0};
        if (line.live && turn.max != MINUS_INF) {
            Copy<DTYPE> copy(memory + turn.slot * rows.slot_bytes, line.values, b.vocab, line.bounds);
            if (line.road == ROAD_CUT) {
                completion_wait_own(&pipe.weighed[turn.slot], parity);
                Window w = pipe.windows[turn.slot];
                u16* marks = pipe.marks[warp];
                PartMass mass = {0, 0, 0};
                if (turn.max != PLUS_INF)
                    mass = w.high == PLUS_INF ? mass_and_marks<false>(copy, turn.max, line.scale, w, warp, marks)
                                              : mass_and_marks<true>(copy, turn.max, line.scale, w, warp, marks);
                // By now the list of the row before is in memory, as good as.
                if (pending) flush(pipe, warp);
                pending = false;
                await_credit(pipe, turn);
                u64* list = rows.list(turn.lead, turn.number & 1, rows.rank * MASS_WARPS + warp);
                u32 count = turn.max == PLUS_INF ? 0 : list_marked(copy, w, warp, marks, mass.marked, list, rows.list_length);
                report.mass = mass.whole;
                report.listed = (u64)count << LISTED_SHIFT | warp_sum(mass.above);
                // The largest key below the window's end.
                report.window = (u64)(w.high == PLUS_INF ? key_of(turn.max) : key_of(w.high) - 1) << 32 | key_of(w.low);
            } else {
                Collector collector = {pipe.found[j & 1], &pipe.found_count[j & 1],
                                       fmaxf(value_of_key(bound), LOWEST_FINITE)};
                auto see = [&](u32 place, const float* x) { collector.see(copy, place, x); };
                Weight weight = {turn.max, line.scale, line.lowest};
                if (line.masses && line.need != 0) report.mass = mass_of_part(copy, weight, warp, see);
                else if (line.masses) report.mass = mass_of_part(copy, weight, warp);
                else if (line.need != 0) collect(collector, copy, warp);
            }
        }
        report.mass = warp_sum(report.mass);
        __syncwarp();
        if (lane_id() == 0) completion_arrive(&pipe.left[turn.slot]);
        // Candidates are complete; and those of two rows ago are sent, as their senders have been here since.
        if (together) named_barrier(MASS_BARRIER, MASS_THREADS);
        if (pending) flush(pipe, warp);
        pending = turn.road == ROAD_CUT;
        if (pending && lane_id() == 0) pipe.reports[warp] = report;
        if (!pending) send(pipe, report, warp);
        if (++turn.slot == rows.slots) turn.slot = 0, parity ^= 1;
        if (++entry == 2 * rows.slots) entry = 0, entry_parity ^= 1;
        if (++turn.lead == rows.blocks) turn.lead = 0, turn.number++;
    }
    if (pending) flush(pipe, warp);
}

#endif
