// The warp of pipe.cuh that feeds the others: it resolves the rows and starts their copies into the slots that are free.

#if __CUDA_ARCH__ >= 900

// Rows that are resolved at a time, a lane each. With a draft it takes a chain of loads that would be longer than the row is under way.
constexpr u32 RESOLVED_AT_ONCE = VERIFIES ? 8 : 1;

// What is found of a row.
struct Plan {
    u64 values, mask, top_p, hint;
    float scale, lowest;
    bool live, masses;
    Asked asked;
    Road road;

    // That of another lane.
    __device__ __forceinline__ Plan of(u32 lane) const {
        auto from = [&](auto x) { return __shfl_sync(ALL_LANES, x, lane); };
        u32 word = from((u32)road << 16 | asked.spare << 10 | asked.need << 2 | (masses ? 2 : 0) | (live ? 1 : 0));
        return Plan{from(values),    from(mask),        from(top_p),          VERIFIES ? from(hint) : 0, from(scale), from(lowest),
                    (word & 1) != 0, (word & 2) != 0, Asked{word >> 2 & 0xff, word >> 10 & 0x3f}, (Road)(word >> 16)};
    }
};

__device__ __forceinline__ Plan plan_of(const RowBlock& b, const VerifyBlock& v, const Rows& rows, u32 row) {
    Place place;
    Draft draft;
    Resolved found = resolve_row(b, v, row, &place, &draft);
    const Params& params = found.params;
    Plan plan;
    plan.asked = pipe_asked(params, b.vocab, rows.blocks);
    plan.road = road_of(found, plan.asked.need, rows.list_length);
    if (plan.road != ROAD_LIST) plan.asked = Asked{0, 0};
    plan.live = found.state == ROW_LIVE;
    plan.values = found.values, plan.mask = found.mask;
    plan.scale = params.scale, plan.top_p = params.top_p;
    bool joint = params.top_p != SD_TOP_P_OFF && !params.top_k_first;
    plan.masses = plan.road == ROAD_DRAW || (plan.road == ROAD_LIST && joint);
    // Top-p beside top-k looks at every token, min-p or not.
    plan.lowest = plan.road == ROAD_DRAW || plan.road == ROAD_CUT ? params.min_exponent : MINUS_INF;
    plan.hint = VERIFIES && plan.live ? as_hint(place) : 0;
    return plan;
}

template <u32 DTYPE>
__device__ __forceinline__ void feed(const RowBlock& b, const VerifyBlock& v, Pipe& pipe, unsigned char* memory) {
    const Rows& rows = pipe.rows;
    Plan plans = {};
#pragma unroll 1
    for (u32 j = 0, slot = 0, parity = 1; j < rows.count; j++) {
        u32 ahead = lane_id() % RESOLVED_AT_ONCE;
        if (j % RESOLVED_AT_ONCE == 0 && j + ahead < rows.count) plans = plan_of(b, v, rows, rows.row(j + ahead));
        Plan plan = RESOLVED_AT_ONCE == 1 ? plans : plans.of(j % RESOLVED_AT_ONCE);
        Copy<DTYPE> copy(memory + slot * rows.slot_bytes, plan.values, plan.live ? b.vocab : 0);
        // Asked for before the wait.
        bool end = plan.live && lane_id() < copy.ends();
        auto value = end ? copy.end_value(lane_id()) : Copy<DTYPE>::E::LOWEST;
        u64 hint = VERIFIES && plan.live && b.status == 0 ? load_relaxed(hint_at(b, plan.hint)) : 0;
        if (j >= rows.slots) completion_wait_own(&pipe.left[slot], parity);
        // Nothing is told of an idle row but its status: where that is not wanted, it need not be read.
        bool idle = VERIFIES && __any_sync(ALL_LANES, lane_id() == 0 && is_ahead(hint, plan.hint)), live = plan.live && !idle;
        if (lane_id() == 0) {
            pipe.lines[slot] = Line{plan.mask,
                                    plan.scale,
                                    plan.lowest,
                                    plan.top_p,
                                    live,
                                    idle,
                                    plan.masses,
                                    plan.asked,
                                    plan.road,
                                    plan.hint,
                                    copy.lead - copy.first_place,
                                    copy.end_place - copy.first_place,
                                    copy.part};
            yield_to_copies();
            // Every completion ends a phase a row, with nothing to wait for where nothing is copied.
            if (live && copy.copied_to > copy.copied_from) copy.start_chunk(copy.copied_from, copy.copied_to, &pipe.arrived[slot]);
            else completion_expect(&pipe.arrived[slot], 0);
        }
        if (end && live) copy.tile[copy.end_at(lane_id())] = value;
        completion_arrive(&pipe.arrived[slot]);
        if (++slot == rows.slots) slot = 0, parity ^= 1;
    }
    cluster_wait_started();
}

#endif
