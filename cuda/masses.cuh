// The mass warps of pipe.cuh go over a row in shared memory once its maximum is known, sum up its masses or pick out its
// candidates. For top-p alone they list on the way what lies near its end, as far as a look at some of the row can tell where
// that is. One pass; what is found in it by the way are a few bits a thread, which say where to look again.

#if __CUDA_ARCH__ >= 900

// This block's candidates: the tokens at or above a value, in no particular order; the count may pass what the list holds.
struct Collector {
    u64* found;
    u32* count;
    u32 room;
    float least;

    // Takes those of four neighbouring values.
    template <class C>
    __device__ __forceinline__ void see(const C& copy, u32 place, const float* x) const {
        for (u32 e = 0; e < 4; e++) {
            u32 index = place + e - copy.lead;
            if (!(x[e] >= least) || index >= copy.len) continue;
            u32 at = atomicAdd(count, 1u);
            if (at < room) found[at] = (u64)key_of(x[e]) << 32 | ~index;
        }
    }
};

// Collects from the groups of a warp's part that have a bit.
template <class C>
__device__ __forceinline__ void collect(const Collector& collector, const C& copy, u32 warp, u32 hits) {
    u32 from, end;
    copy.part_of(warp, &from, &end);
#pragma unroll 1
    for (; hits != 0; hits &= hits - 1) {
        u32 place = from + (__ffs((i32)hits) - 1) * 128 + lane_id() * 4;
        float x[4];
        copy.load4(place, x);
        collector.see(copy, place, x);
    }
}

// A bit for each of this thread's groups that has at least the value `least`.
template <class C>
__device__ __forceinline__ u32 hits_of_part(const C& copy, float least, u32 warp) {
    u32 place, end, hits = 0, bit = 1;
    copy.part_of(warp, &place, &end);
#pragma unroll 4
    for (place += lane_id() * 4; place < end; place += 128, bit <<= 1) {
        float x[4];
        copy.load4(place, x);
        if (fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])) >= least) hits |= bit;
    }
    return hits;
}

// The same of what lies between a task's least and high, and maybe of some beside it, with the mass, also that from `high` on.
template <class C>
__device__ __forceinline__ PartMass mass_around(const C& copy, const Task& task, u32 warp, u64* above) {
    u32 place, end, bit = 1;
    copy.part_of(warp, &place, &end);
    place += lane_id() * 4;
    PartMass own = {0, 0};
    // The middle of what is listed, and a little more than half its width.
    float upper = fminf(task.high, task.max), middle = task.least * 0.5f + upper * 0.5f;
    float reach = fmaxf(upper - middle, middle - task.least) * 1.001f + fabsf(middle) * 1e-6f;
    float x[4], t[4];
    if (place < end) copy.load4(place, x);
#pragma unroll 1
    for (; place < end; bit <<= 1) {
        float near = fminf(fminf(fabsf(x[0] - middle), fabsf(x[1] - middle)), fminf(fabsf(x[2] - middle), fabsf(x[3] - middle)));
        if (near <= reach) own.hits |= bit;
        bool high[4];
        for (u32 e = 0; e < 4; e++) t[e] = __fmul_rn(__fsub_rn(x[e], task.max), task.scale), high[e] = x[e] >= task.high;
        place += 128;
        if (place < end) copy.load4(place, x);
        Powers<4> powers(t);
        for (u32 e = 0; e < 4; e++) {
            u64 mass = whole_mass(powers.scaled(e));
            own.whole += mass;
            *above += high[e] ? mass : 0;
        }
    }
    return own;
}

// Notes the groups of a warp's part that have a bit, ascending; their number, which may pass what the notes hold.
__device__ __forceinline__ u32 mark(u32 hits, u16* marks) {
    u32 marked = 0, before = (1u << lane_id()) - 1, notes = shared_address(marks);
    // Eight side by side, as each is a chain.
#pragma unroll 1
    for (u32 group = lane_id(), last = __reduce_or_sync(ALL_LANES, hits); last != 0; last >>= 8, hits >>= 8) {
#pragma unroll
        for (u32 k = 0; k < 8; k++, group += 32) {
            u32 who = __ballot_sync(ALL_LANES, hits >> k & 1), at = marked + __popc(who & before);
            if ((hits >> k & 1) && at < MARKS) shared_store(notes + at * 2, (u16)group);
            marked += __popc(who);
        }
    }
    return marked;
}

// Writes a warp's tokens from `least` to below `high` to `list`, ids ascending; their number, more than the list holds if they are
// not all there.
template <class C>
__device__ __forceinline__ u32 list_marked(const C& copy, const Task& task, u32 warp, const u16* marks, u32 marked, u64* list,
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
            for (u32 e = 0; e < 4; e++) hits |= (x[e] >= task.least && x[e] < task.high && index + e < copy.len ? 1u : 0u) << e;
        }
        Hits found(hits);
        u32 at = count + found.before;
        for (u32 e = 0; e < 4; e++) {
            if ((hits >> e & 1) && at < length) list[at] = (u64)key_of(x[e]) << 32 | ~(index + e);
            at += hits >> e & 1;
        }
        count += found.all;
    }
    return count > length ? LIST + 1 : count;
}

// The masses of a row whose maximum is known, in a warp's part, and its candidates, or the list of its tokens that top-p may keep.
template <class C>
__device__ __forceinline__ Report go_over(Pipe& pipe, const C& copy, const Task& task, u32 j, u32 warp) {
    const Rows& rows = pipe.rows;
    Weight weight = {task.max, task.scale, task.lowest};
    Collector collector = {pipe.found[j & 1], &pipe.found_count[j & 1], BLOCK_CANDIDATES, task.least};
    if (task.road == ROAD_CUT)
        collector.found = rows.list(j % rows.blocks, j / rows.blocks & 1, rows.rank * MASS_WARPS), collector.room = rows.block_list();
    Report report = {0, 0};
    if (task.work == WORK_MASS) report.mass = mass_and_hits<false>(copy, weight, 0.0f, warp).whole;
    if (task.work == WORK_KEPT_MASS || task.work == WORK_MASS_THEN_COLLECT) report.mass = kept_mass_of_part(copy, weight, warp);
    if (task.work == WORK_COLLECT || task.work == WORK_MASS_THEN_COLLECT)
        collect(collector, copy, warp, hits_of_part(copy, task.least, warp));
    if (task.work >= WORK_MASS_AND_COLLECT) {
        u64 above = 0;
        PartMass own;
        if (task.work == WORK_LIST_AROUND) own = mass_around(copy, task, warp, &above);
        else own = mass_and_hits<true>(copy, weight, task.least, warp);
        report.mass = own.whole;
        if (task.work == WORK_MASS_AND_COLLECT) {
            collect(collector, copy, warp, own.hits);
        } else {
            u16* marks = pipe.marks[warp];
            u32 marked = mark(own.hits, marks);
            u64* list = rows.list(j % rows.blocks, j / rows.blocks & 1, rows.rank * MASS_WARPS + warp);
            u32 count = list_marked(copy, task, warp, marks, marked, list, rows.list_length);
            report.listed = (u64)count << LISTED_SHIFT | warp_sum(above);
        }
    }
    report.mass = warp_sum(report.mass);
    return report;
}

// Sixteen warps, each by itself: the maxima of the rows, and their masses once the blocks have told each other the maxima.
template <u32 DTYPE>
__device__ __forceinline__ void sum_up(Pipe& pipe, unsigned char* memory) {
    const Rows& rows = pipe.rows;
    u32 warp = (threadIdx.x - FIRST_MASS) / 32, ahead = rows.ahead();
    cluster_wait_started();
    // The row whose maximum is next.
    u32 next = 0, next_slot = 0, next_parity = 0;
#pragma unroll 1
    for (u32 j = 0, slot = 0, parity = 0; j < rows.count; j++) {
#pragma unroll 1
        for (; next < min(j + ahead, rows.count); next++) {
            completion_wait_own(&pipe.arrived[next_slot], next_parity);
            take_maximum(pipe, copy_in_slot<DTYPE>(pipe, memory, next_slot), pipe.lines[next_slot], next, warp);
            __syncwarp();
            if (lane_id() == 0) completion_arrive(&pipe.maxed[next_slot]);
            if (++next_slot == rows.slots) next_slot = 0, next_parity ^= 1;
        }
        completion_wait_own(&pipe.weighed[slot], parity);
        const Task task = pipe.tasks[slot];
        Report report = go_over(pipe, copy_in_slot<DTYPE>(pipe, memory, slot), task, j, warp);
        if (lane_id() == 0) pipe.reports[j & 1][warp] = report;
        __syncwarp();
        if (lane_id() == 0) completion_arrive(&pipe.left[slot]);
        if (++slot == rows.slots) slot = 0, parity ^= 1;
    }
}

#endif
