// Processes a row and draws its token: a cluster of blocks a row, the row in its shared memory.
// The logits are read once from global memory, the maximum taken as they arrive; every later pass runs over shared
// memory. Blocks of several rows share a multiprocessor, so that the copies of one row overlap the arithmetic of another.
//
// Four roads lead on from the maximum.
// * No top-k, no top-p, the token alone wanted: one pass of masses; the block that owns the draw finds the token.
// * A small top-k: the warps' maxima bound the k-th largest value from below, so the few tokens above the bound are
//   handed to the first block, which puts them in order; with a top-p over the whole row one pass of masses besides.
// * Top-p without top-k: the pass of masses also adds them up in rough bins, which say above which value more than top-p
//   lies; the tokens above it are listed, and cut.cuh finds the end of the kept prefix among them.
// * Everything else: the passes of row.cuh.

#if __CUDA_ARCH__ >= 900

// The first road from the masses on.
template <class C>
__device__ __forceinline__ void draw_alone(const RowBlock& b, Shared& sh, u64 row_index, const C& copy,
                                           const Weight& weight, const Sums& sums, i32 status, u64 bits) {
    u64 target = scale_bits(bits, sums.mass);
    if (target < sums.mass_before || target - sums.mass_before >= sums.mass_own) return;
    // This block owns the draw; all of its threads look for it in the warp's part that holds it.
    u64 running = sums.mass_before;
    u32 warp = 0;
#pragma unroll 1
    for (; warp + 1 < warp_count() && target - running >= sh.scan[warp]; warp++) running += sh.scan[warp];
    u32 from, to;
    copy.part_of(warp, &from, &to);
    u32 each = ((to - from) / 4 + thread_count() - 1) / thread_count() * 4;
    from = min(from + thread_id() * each, to);
    to = min(from + each, to);
    u64 own = 0;
#pragma unroll 1
    for (u32 place = from; place < to; place += 4) {
        float x[4];
        copy.load4(place, x);
        for (u32 e = 0; e < 4; e++) own += weight.kept_mass(x[e]);
    }
    running += block_scan_before(sh, own);
    if (target < running || target - running >= own) return;
#pragma unroll 1
    for (u32 place = from; place < to; place += 4) {
        float x[4];
        copy.load4(place, x);
        for (u32 e = 0; e < 4; e++) {
            u64 through = running + weight.kept_mass(x[e]);
            if (running <= target && target < through) {
                store_token(b, row_index, (i64)(place + e - copy.lead));
                store<i32>(b.status, row_index, status);
                if (b.logprobs != 0)
                    store<float>(b.logprobs, row_index, logprob_of_exponent(weight.exponent(x[e]), log2_total(sums.mass)));
            }
            running = through;
        }
    }
}

// The last road; `known` is what top-k and top-p keep, where a shorter way has found that.
template <u32 DTYPE>
__device__ __noinline__ void sample_any(const RowBlock& b, Shared& sh, u64 row_index, const Params params,
                                        const Copy<DTYPE> copy, u64 mask, float max, i32 status, const Cut* known) {
    Cluster team(sh);
    Tile<DTYPE> source(team, copy, mask);
    sample_row(b, row_index, params, source, max, status, known);
    // A peer may still be reading this block's memory.
    team.sync();
}

// The third road from the cut on: masses of the kept tokens, the draw.
template <class C>
__device__ __forceinline__ void draw_from_lists(const RowBlock& b, Shared& sh, u64 row_index, const C& copy,
                                                const WarpList& list, const Weight& weight, Cut cut, i32 status, u64 bits) {
    auto kept_mass = [&](u32 place) -> u64 {
        float x = copy.value(place);
        return cut.has(key_of(x), place - copy.lead) ? weight.kept_mass(x) : 0;
    };
    u64 own = 0;
#pragma unroll 1
    for (u32 i = lane_id(); i < list.count; i += 32) own += kept_mass(list.from + list.places[i]);
    // The lists' counts are in `sh.offers`.
    Sums sums = push_sums(sh, own, &sh.exchanges[3]);
    u64 target = scale_bits(bits, sums.mass);
    if (target < sums.mass_before || target - sums.mass_before >= sums.mass_own) return;
    u64 running = sums.mass_before;
    u32 warp = 0, from, end;
#pragma unroll 1
    for (; warp + 1 < warp_count() && target - running >= sh.scan[warp]; warp++) running += sh.scan[warp];
    copy.part_of(warp, &from, &end);
    const u16* places = copy.lists() + warp * copy.list_capacity();
    u32 count = sh.offers[warp];
    // A warp's list is no longer than a few times the threads.
    u32 each = (count + thread_count() - 1) / thread_count(), first = min(thread_id() * each, count);
    u32 last = min(first + each, count);
    own = 0;
#pragma unroll 1
    for (u32 i = first; i < last; i++) own += kept_mass(from + places[i]);
    running += block_scan_before(sh, own);
    if (target < running || target - running >= own) return;
#pragma unroll 1
    for (u32 i = first; i < last; i++) {
        u32 place = from + places[i];
        u64 through = running + kept_mass(place);
        if (running <= target && target < through) {
            store_token(b, row_index, (i64)(place - copy.lead));
            store<i32>(b.status, row_index, status);
            float t = weight.exponent(copy.value(place));
            if (b.logprobs != 0) store<float>(b.logprobs, row_index, logprob_of_exponent(t, log2_total(sums.mass)));
        }
        running = through;
    }
}

template <u32 DTYPE>
__device__ __forceinline__ void sample_tile(const RowBlock& b) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Shared sh;
    start_block(sh);
    allow_next_launch();
    wait_for_inputs();
    u64 row_index = cluster_number();
    // The copy starts before the rest of the row's indices is known: nothing is read outside the logits for it.
    i64 logits_row = load_index_or_self(b.gather, b.gather_width, row_index);
    bool readable = in_range(logits_row, b.logits_rows);
    Copy<DTYPE> copy(memory, logits_at(b, readable ? (u64)logits_row : 0), b.vocab);
    if (readable && thread_id() == 0) copy.start(sh.arrivals);
    Resolved found = resolve(b, row_index);
    const Params& params = found.params;
    // The draw's bits need the position alone; asked for now, they are there in time.
    bool fresh = false;
    u64 bits = 0;
    if (found.state == ROW_LIVE && b.positions != 0 && forced_token(b, row_index) == -1) {
        fresh = true;
        bits = draw_bits(b, row_index, row_index, 0, params.seed, SD_CASE_FRESH);
    }
    bool all_columns = found.state == ROW_LIVE && b.columns == b.vocab;
    u32 need = all_columns ? small_need(params, b.vocab) : 0;
    bool small_k = need != 0 && fresh && (b.raw_logprobs | b.dense | b.kept_ids) == 0;
    if (readable) copy.fill_ends(all_hands());
    team_barrier();
    bool nan = false;
    float max = MINUS_INF;
    const u32* mask = found.state == ROW_LIVE ? (const u32*)found.mask : 0;
    if (readable) max = copy.arrive(sh.arrivals, mask, &nan);
    Agreed agreed = push_max(sh, max, nan, need != 0 ? need : 1);
    if (found.state != ROW_LIVE) {
        if (found.state == ROW_BAD) store_bad(b, row_index, Cluster(sh));
        return;
    }
    i32 status = (agreed.nan ? SD_STATUS_NAN_LOGITS : 0) | (agreed.max == PLUS_INF ? SD_STATUS_INF_LOGITS : 0);
    Weight weight = {agreed.max, params.scale, params.min_exponent};
    bool nothing_else =
        (b.ranks | b.kept_counts | b.raw_logprobs | b.sum_smaller_probs | b.top_width | b.dense | b.kept_ids) == 0;
    bool whole_row = fresh && all_columns && nothing_else && params.top_k == SD_TOP_K_OFF && params.top_p == SD_TOP_P_OFF;
    bool joint = small_k && params.top_p != SD_TOP_P_OFF && !params.top_k_first;
    if (agreed.max != MINUS_INF && (whole_row || small_k)) {
        u64 own = 0;
        // Top-p beside top-k looks at every token, min-p or not.
        if (joint) own = mass_of_part(copy, Weight{weight.max, weight.scale, MINUS_INF});
        if (whole_row) own = mass_of_part(copy, weight);
        if (small_k) collect(sh, copy, agreed.bound);
        team_barrier();
        Sums sums = push_sums(sh, own, &sh.exchanges[1]);
        if (whole_row) return draw_alone(b, sh, row_index, copy, weight, sums, status, bits);
        if (gather_candidates(sh, sums, params.top_k)) {
            if (cluster_rank() != 0) return;
            return draw_from_list(b, sh, row_index, weight, params, joint ? sums.mass : 0, status, bits);
        }
    }
    Cut cut;
    bool known = false;
    if (all_columns && !small_k && agreed.max != MINUS_INF) {
        if (fresh && nothing_else && params.top_k == SD_TOP_K_OFF && params.top_p != SD_TOP_P_OFF &&
            agreed.max != PLUS_INF) {
            WarpList list;
            if (cut_top_p(sh, copy, weight, params.top_p, &list, &cut))
                return draw_from_lists(b, sh, row_index, copy, list, weight, cut, status, bits);
        } else {
            known = cut_filters(sh, copy, weight, params, agreed.bound, need != 0, &cut);
        }
    }
    sample_any<DTYPE>(b, sh, row_index, params, copy, found.mask, agreed.max, status, known ? &cut : 0);
}

#else

template <u32 DTYPE>
__device__ void sample_tile(const RowBlock&) {}

#endif
