// The warp of pipe.cuh that feeds the others: it resolves the rows and starts their copies into the slots that are free.

#if __CUDA_ARCH__ >= 900

template <u32 DTYPE>
__device__ __forceinline__ void feed(const RowBlock& b, const VerifyBlock& v, Pipe& pipe, unsigned char* memory) {
    const Rows& rows = pipe.rows;
    for (u32 j = 0, slot = 0, parity = 1; j < rows.count; j++) {
        Place place;
        Draft draft;
        Resolved found = resolve_row(b, v, rows.row(j), &place, &draft);
        u32 need = pipe_need(found.params, b.vocab, rows.blocks);
        Road road = road_of(found, need, rows.list_length);
        bool live = found.state == ROW_LIVE;
        Copy<DTYPE> copy(memory + slot * rows.slot_bytes, found.values, live ? b.vocab : 0);
        // Asked for before the wait.
        bool end = live && lane_id() < copy.ends();
        auto value = end ? copy.end_value(lane_id()) : Copy<DTYPE>::E::LOWEST;
        if (j >= rows.slots) completion_wait_own(&pipe.left[slot], parity);
        if (lane_id() == 0) {
            bool joint = found.params.top_p != SD_TOP_P_OFF && !found.params.top_k_first;
            bool masses = road == ROAD_DRAW || (road == ROAD_LIST && joint);
            // Top-p beside top-k looks at every token, min-p or not.
            float lowest = road == ROAD_DRAW || road == ROAD_CUT ? found.params.min_exponent : MINUS_INF;
            pipe.lines[slot] = Line{found.mask,
                                    found.params.scale,
                                    lowest,
                                    found.params.top_p,
                                    live,
                                    masses,
                                    road == ROAD_LIST ? need : 0,
                                    road,
                                    VERIFIES && live ? as_hint(place) : 0,
                                    copy.lead - copy.first_place,
                                    copy.end_place - copy.first_place,
                                    copy.part};
            yield_to_copies();
            // Every completion ends a phase a row, with nothing to wait for where nothing is copied.
            if (live && copy.copied_to > copy.copied_from) copy.start_chunk(copy.copied_from, copy.copied_to, &pipe.arrived[slot]);
            else completion_expect(&pipe.arrived[slot], 0);
        }
        if (end) copy.tile[copy.end_at(lane_id())] = value;
        completion_arrive(&pipe.arrived[slot]);
        if (++slot == rows.slots) slot = 0, parity ^= 1;
    }
    cluster_wait_started();
}

#endif
