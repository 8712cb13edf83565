// The mass warps of pipe.cuh: they go over a row in shared memory once its maximum is known, sum up its masses or pick out its
// candidates, and send what they found to the row's lead. For top-p alone they add the masses up by octaves on the way, and
// go over the row once more when all blocks have done so: what lies above the value that the octaves show is listed.

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

// A row whose maximum is known, as the mass warps keep it from one of its passes to the next.
struct Turn {
    u32 j, slot, lead, number;
    float max;
    u32 nan;
    Road road;
};

// Waits until the lead is done with the mail, and the lists, of the row two turns before. One lane waits: once it has sent,
// the lead may go on and end the next phase, before slower lanes have seen this one.
__device__ __forceinline__ void await_credit(Pipe& pipe, const Turn& turn) {
    if (lane_id() == 0 && turn.number >= MAILS)
        completion_wait(&pipe.credit[turn.lead][turn.number & 1], (turn.number / MAILS - 1) & 1);
    __syncwarp();
}

// Sends what a mass warp knows of a row to its lead: a number, and from the first warp of each block the block's: its
// candidates, or for a row whose tokens are listed its mass.
__device__ __forceinline__ void send(Pipe& pipe, const Rows& rows, const Turn& turn, u32 warp, u64 number, bool lists,
                                     u64 whole, u32 lowest) {
    u32 mail = turn.number & 1;
    await_credit(pipe, turn);
    Mail& to = pipe.mails[mail];
    if (lane_id() == 0) push(turn.lead, &to.sums[rows.rank * MASS_WARPS + warp], number, &pipe.mailed[mail]);
    if (warp != 0) return;
    u32 half = turn.j & 1, share = min(MAIL_CANDIDATES / rows.blocks, BLOCK_CANDIDATES);
    u32 count = lists ? 0 : pipe.found_count[half];
    if (lane_id() == 0) {
        Fact fact = Fact::of(turn.max, turn.nan, turn.road, count);
        push(turn.lead, &to.facts[rows.rank], fact.word, &pipe.mailed[mail]);
        if (rows.rank == turn.lead) {
            push(turn.lead, &to.whole, whole, &pipe.mailed[mail]);
            push(turn.lead, &to.lowest, lowest, &pipe.mailed[mail]);
        }
    }
    if (count == 0) return;
    for (u32 i = lane_id(); i < min(count, share); i += 32)
        push(turn.lead, &to.candidates[rows.rank * share + i], pipe.found[half][i], &pipe.listed[mail]);
    __syncwarp();
    if (lane_id() == 0) pipe.found_count[half] = 0;
}

// Mass of this thread's share of a warp's part, which is also added up by octaves, truncated.
template <class C>
__device__ __forceinline__ u64 mass_by_octaves(const C copy, float max, float scale, u32 warp, u32* octaves) {
    u32 place, end, bins = shared_address(octaves) + (lane_id() & (SPREAD - 1)) * 4;
    copy.part_of(warp, &place, &end);
    u64 own = 0;
    float last[4] = {0, 0, 0, 0}, next[4];
    place += lane_id() * 4;
    if (place < end) copy.load4(place, next);
#pragma unroll 1
    while (place < end) {
        float x[4];
        for (u32 e = 0; e < 4; e++) x[e] = __fmul_rn(__fsub_rn(next[e], max), scale);
        place += 128;
        if (place < end) copy.load4(place, next);
        for (u32 e = 0; e < 4; e++) own += whole_mass(last[e]);
        Powers<4> powers(x);
        for (u32 e = 0; e < 4; e++) {
            last[e] = powers.scaled(e);
            // 3072 has its last bit at 2^-12.
            u32 units = __float_as_uint(__fadd_rz(powers.p[e], 3072.0f)) - 0x45400000u;
            // Lower octaves share one more, which nobody reads: a branch would cost more.
            shared_add(bins + min(powers.octave(e), OCTAVES) * (SPREAD * 4), units);
        }
    }
    for (u32 e = 0; e < 4; e++) own += whole_mass(last[e]);
    return own;
}

// Tells every block of the cluster this block's masses by octaves; by all mass warps, which have come to a barrier.
__device__ __forceinline__ void weigh_octaves(Pipe& pipe, const Rows& rows, u32 half, u32 weighing) {
    u32 thread = threadIdx.x - FIRST_MASS;
    u64* done = &pipe.weighed[weighing];
    if (thread == 0) completion_expect(done, rows.blocks * (OCTAVES + 1) * 8);
    if (thread < OCTAVES) {
        u64 units = 0;
        for (u32 i = 0; i < SPREAD; i += 4) {
            uint4* own = (uint4*)&pipe.own_octaves[half][thread * SPREAD + i];
            units += (u64)own->x + own->y + own->z + own->w;
            *own = make_uint4(0, 0, 0, 0);
        }
        // Octave i is 2^-i of the largest mass, 2^40.
        units = thread <= 28 ? units << (28 - thread) : units >> (thread - 28);
        for (u32 r = 0; r < rows.blocks; r++) push_add(r, &pipe.octaves[weighing][thread], units, done);
    } else if (thread < 64) {
        u64 mass = warp_sum(lane_id() < MASS_WARPS ? pipe.own_masses[half][lane_id()] : 0);
        if (lane_id() < rows.blocks) push(lane_id(), &pipe.masses[weighing][rows.rank], mass, done);
    }
}

// Lists this warp's tokens of a row that may lie within top-p, in no particular order, and sends their number to the lead.
template <u32 DTYPE>
__device__ __forceinline__ void list_above(const RowBlock& b, Pipe& pipe, unsigned char* memory, const Rows& rows,
                                           const Turn& turn, u32 warp, u32 weighing) {
    // A function that is called has lost sight of where its references lead.
    __builtin_assume(__isShared(&pipe));
    const Line line = pipe.lines[turn.slot];
    u64 whole = warp_sum(lane_id() < rows.blocks ? pipe.masses[weighing][lane_id()] : 0);
    u64 limit = multiply_shift(whole, line.top_p, 32);
    u64 through = warp_scan(pipe.octaves[weighing][lane_id()]);
    u32 past = __ballot_sync(ALL_LANES, through > limit);
    // Every warp has read the octaves before they are cleared for the row that has them next.
    named_barrier(MASS_BARRIER, MASS_THREADS);
    if (warp == 0) pipe.octaves[weighing][lane_id()] = 0;
    u32 part = rows.rank * MASS_WARPS + warp, count = 0;
    u64* list = rows.list(turn.lead, turn.number & 1, part);
    float lowest = MINUS_INF;
    if (past == 0) {
        // More lies below the last octave than top-p leaves out: too much for a list.
        count = rows.list_length + 1;
    } else {
        Copy<DTYPE> copy(memory + turn.slot * rows.slot_bytes, line.values, b.vocab);
        // Half an octave further, for the octave is one of rounded exponents; rounded away from the maximum, and a little
        // further still: what is not wanted in the list does no harm there.
        float exponent = -(float)(__ffs((i32)past) - 1) - 0.5f;
        lowest = __fadd_rd(turn.max, __fmul_rn(__fdiv_rn(exponent, line.scale), 1.001f));
        u32 place, end, own = 0;
        copy.part_of(warp, &place, &end);
        u16* places = pipe.places[warp] + lane_id();
        // A lane's places, from the start of the warp's part, in a list of its own; one that is full says so by its length.
        u32 start = place;
#pragma unroll 2
        for (place += lane_id() * 4; place < end; place += 128) {
            float x[4];
            copy.load4(place, x);
            for (u32 e = 0; e < 4; e++) {
                if (x[e] >= lowest) {
                    places[min(own, LANE_LIST - 1) * 32] = (u16)(place + e - start);
                    own++;
                }
            }
        }
        u32 through = warp_scan(own);
        count = __shfl_sync(ALL_LANES, through, 31);
        if (__any_sync(ALL_LANES, own > LANE_LIST)) count = rows.list_length + 1;
        if (count <= rows.list_length) {
            await_credit(pipe, turn);
            list += through - own;
#pragma unroll 1
            for (u32 i = 0; i < own; i++) {
                place = start + places[i * 32];
                list[i] = (u64)key_of(copy.value(place)) << 32 | ~(place - copy.lead);
            }
        }
    }
    __syncwarp();
    if (lane_id() == 0) {
        completion_arrive(&pipe.left[turn.slot]);
        // The list is in memory before its length is known to the lead.
        __threadfence();
    }
    __syncwarp();
    send(pipe, rows, turn, warp, count, true, whole, key_of(lowest));
}

// Eight warps: the masses of a row whose maximum is known, and its candidates; then, for the row before it, the list of what
// lies above the value that its masses have shown.
template <u32 DTYPE>
__device__ __noinline__ void sum_up(const RowBlock& b, Pipe& pipe, unsigned char* memory, const Rows& rows) {
    // A function that is called has lost sight of where its references lead.
    __builtin_assume(__isShared(&pipe));
    __builtin_assume(__isShared(&rows));
    u32 warp = (threadIdx.x - FIRST_MASS) / 32;
    cluster_wait_started();
    Turn turn = {0, 0, 0, 0, MINUS_INF, 0, ROAD_ANY};
    u32 parity = 0, entry = 0, entry_parity = 0;
    // Of the row before.
    float weighed_max = MINUS_INF;
    u32 weighed_nan = 0;
    bool waiting = false;
    u32 weighing = 0, listing = 0, listing_parity = 0;
    for (u32 j = 0; j < rows.count || waiting; j++) {
        bool more = j < rows.count, cuts = false;
        turn.j = j;
        if (more) {
            completion_wait(&pipe.seen[turn.slot], parity);
            const Line line = pipe.lines[turn.slot];
            completion_wait(&pipe.maxima[entry], entry_parity);
            u64 x = lane_id() < rows.blocks ? pipe.tops[entry][lane_id()] : 0xfffffffeull;
            turn.max = value_of_key(__reduce_max_sync(ALL_LANES, (u32)(x >> 32)));
            turn.nan = __reduce_or_sync(ALL_LANES, (u32)x & 1);
            u32 bound = __reduce_min_sync(ALL_LANES, (u32)x & ~1u);
            turn.road = line.road;
            cuts = line.road == ROAD_CUT;
            u64 own = 0;
            if (line.live && turn.max != MINUS_INF) {
                Copy<DTYPE> copy(memory + turn.slot * rows.slot_bytes, line.values, b.vocab);
                if (cuts && turn.max != PLUS_INF)
                    own = mass_by_octaves(copy, turn.max, line.scale, warp, pipe.own_octaves[j & 1]);
                Collector collector = {pipe.found[j & 1], &pipe.found_count[j & 1], value_of_key(bound)};
                auto see = [&](u32 place, const float* x) { collector.see(copy, place, x); };
                Weight weight = {turn.max, line.scale, line.lowest};
                if (line.masses && line.need != 0) own = mass_of_part(copy, weight, warp, see);
                else if (line.masses) own = mass_of_part(copy, weight, warp);
                else if (line.need != 0) collect(collector, copy, warp);
            }
            own = warp_sum(own);
            __syncwarp();
            if (lane_id() == 0) {
                pipe.own_masses[j & 1][warp] = own;
                if (!cuts) completion_arrive(&pipe.left[turn.slot]);
            }
            // Candidates and octaves are complete; and those of two rows ago are sent, as their senders have been here since.
            named_barrier(MASS_BARRIER, MASS_THREADS);
            if (cuts) weigh_octaves(pipe, rows, j & 1, weighing);
            else send(pipe, rows, turn, warp, own, false, 0, 0);
        }
        if (waiting) {
            completion_wait(&pipe.weighed[listing], listing_parity);
            Turn weighed = {j - 1, (turn.slot == 0 ? rows.slots : turn.slot) - 1, (turn.lead == 0 ? rows.blocks : turn.lead) - 1,
                            turn.number - (turn.lead == 0 ? 1 : 0), weighed_max, weighed_nan, ROAD_CUT};
            list_above<DTYPE>(b, pipe, memory, rows, weighed, warp, listing);
            if (++listing == WEIGHINGS) listing = 0, listing_parity ^= 1;
        }
        waiting = cuts;
        weighed_max = turn.max, weighed_nan = turn.nan;
        if (cuts && ++weighing == WEIGHINGS) weighing = 0;
        if (++turn.slot == rows.slots) turn.slot = 0, parity ^= 1;
        if (++entry == 2 * rows.slots) entry = 0, entry_parity ^= 1;
        if (++turn.lead == rows.blocks) turn.lead = 0, turn.number++;
    }
}

#endif
