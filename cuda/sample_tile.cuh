// Processes a row and draws its token: a cluster of blocks a row, the row in its shared memory.
// The logits are read once from global memory, the maximum taken as they arrive; every later pass runs over shared
// memory. Blocks of several rows share a multiprocessor, so that the copies of one row overlap the arithmetic of another.
// A row without top-k and top-p whose token (and its logprob) alone is wanted takes the short road: one pass of masses,
// one exchange, and the block that owns the draw finds and writes the token. Every other row takes the road of row.cuh.

// The largest key of the cluster and whether it holds a NaN; one exchange.
__device__ __forceinline__ u64 push_max(Cluster& team, float max, bool nan) {
    Shared& sh = team.sh;
    u32 key = __reduce_max_sync(ALL_LANES, key_of(max));
    u32 any = __any_sync(ALL_LANES, nan);
    if (lane_id() == 0) sh.scan[warp_id()] = (u64)key << 1 | (any ? 1 : 0);
    __syncthreads();
    team.wait_started();
    if (threadIdx.x < team.size()) {
        u64 best = 0;
        for (u32 w = 0; w < warp_count(); w++) best = sh.scan[w] > best ? sh.scan[w] | (best & 1) : best | (sh.scan[w] & 1);
        team.push(threadIdx.x, &sh.pushed_max[team.rank()], best);
    }
    team.sync();
    u64 best = 0;
    for (u32 r = 0; r < team.size(); r++) {
        u64 x = sh.pushed_max[r];
        best = x > best ? x | (best & 1) : best | (x & 1);
    }
    return best;
}

// Where a block's mass stands among those of the cluster.
__device__ __forceinline__ Span push_mass(Cluster& team, u64 own) {
    Shared& sh = team.sh;
    own = warp_sum(own);
    if (lane_id() == 0) sh.scan[warp_id()] = own;
    __syncthreads();
    if (threadIdx.x < team.size()) {
        u64 sum = 0;
        for (u32 w = 0; w < warp_count(); w++) sum += sh.scan[w];
        team.push(threadIdx.x, &sh.pushed_mass[team.rank()], sum);
    }
    team.sync();
    Span span = {0, 0, 0};
    for (u32 r = 0; r < team.size(); r++) {
        u64 x = sh.pushed_mass[r];
        span.before += r < team.rank() ? x : 0;
        span.own = r == team.rank() ? x : span.own;
        span.total += x;
    }
    return span;
}

// Whether only results of the drawn token that cost no pass of their own are wanted.
__device__ __forceinline__ bool token_alone(const RowBlock& b) {
    return (b.ranks | b.kept_counts | b.raw_logprobs | b.sum_smaller_probs | b.top_width | b.dense | b.kept_ids) == 0;
}

// The short road. `max` is finite or +inf.
template <class Source>
__device__ __forceinline__ void draw_alone(const RowBlock& b, u64 row_index, const Params& params, const Source& source,
                                           float max, i32 status, u64 bits) {
    Cluster& team = source.team;
    Shared& sh = team.sh;
    float scale = params.scale, lowest = params.min_exponent;
    // With a token at +inf all others weigh nothing, as they do against the largest finite number at a huge scale.
    bool infinite = max == PLUS_INF;
    auto mass = [&](float x) -> u64 {
        float t = infinite ? (x == PLUS_INF ? 0.0f : MINUS_INF) : __fmul_rn(__fsub_rn(x, max), scale);
        return t >= lowest ? mass_of_exponent(t) : 0;
    };
    u64 own = 0;
    if (!infinite && lowest == MINUS_INF) {
#pragma unroll 1
        for (u32 place = source.begin + lane_id() * 4; place < source.end; place += 128) {
            float x[4];
            source.load4(place, x);
            for (u32 e = 0; e < 4; e++) own += mass_of_exponent(__fmul_rn(__fsub_rn(x[e], max), scale));
        }
    } else {
#pragma unroll 1
        for (u32 place = source.begin + lane_id() * 4; place < source.end; place += 128) {
            float x[4];
            source.load4(place, x);
            for (u32 e = 0; e < 4; e++) own += mass(x[e]);
        }
    }
    Span span = push_mass(team, own);
    u64 target = scale_bits(bits, span.total);
    if (target < span.before || target - span.before >= span.own) return;
    // This block owns the draw; all of its threads look for it in the warp's part that holds it.
    u64 running = span.before;
    u32 warp = 0;
    for (; warp + 1 < warp_count() && target - running >= sh.scan[warp]; warp++) running += sh.scan[warp];
    u32 from, to;
    source.part_of(warp, &from, &to);
    u32 each = ((to - from) / 4 + blockDim.x - 1) / blockDim.x * 4;
    from = min(from + threadIdx.x * each, to);
    to = min(from + each, to);
    own = 0;
#pragma unroll 1
    for (u32 place = from; place < to; place += 4) {
        float x[4];
        source.load4(place, x);
        for (u32 e = 0; e < 4; e++) own += mass(x[e]);
    }
    running += block_scan_before(sh, own);
    if (target < running || target - running >= own) return;
#pragma unroll 1
    for (u32 place = from; place < to; place++) {
        float x = source.value(place);
        running += mass(x);
        if (running <= target) continue;
        float t = infinite ? 0.0f : __fmul_rn(__fsub_rn(x, max), scale);
        store_token(b, row_index, (i64)(place - source.lead));
        store<i32>(b.status, row_index, status);
        if (b.logprobs != 0)
            store<float>(b.logprobs, row_index, logprob_of_exponent(t, log2_total(span.total)));
        return;
    }
}

template <u32 DTYPE>
__device__ __forceinline__ void sample_tile(const RowBlock& b) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Shared shared;
    allow_next_launch();
    wait_for_inputs();
    Cluster team(shared);
    team.started();
    u64 row_index = team.team_index();
    // The copy starts before the rest of the row's indices is known: nothing is read outside the logits for it.
    i64 logits_row = load_index_or_self(b.gather, b.gather_width, row_index);
    bool readable = in_range(logits_row, b.logits_rows);
    Tile<DTYPE> source(team, memory, logits_at(b, readable ? (u64)logits_row : 0), b.vocab);
    if (readable && threadIdx.x == 0) source.start(shared.arrivals);
    Resolved found = resolve(b, row_index);
    // The draw's bits need the position alone; asked for now, they are there in time.
    i64 forced = -1;
    u64 bits = 0;
    if (found.state == ROW_LIVE) {
        forced = forced_token(b, row_index);
        if (forced == -1 && b.positions != 0)
            bits = draw_bits(b, row_index, row_index, 0, found.params.seed, SD_CASE_FRESH);
    }
    if (readable) source.fill_ends();
    __syncthreads();
    float max[4] = {MINUS_INF, MINUS_INF, MINUS_INF, MINUS_INF};
    bool nan = false;
    if (readable) source.arrive(shared.arrivals, found.state == ROW_LIVE ? found.mask : 0, max, &nan);
    u64 agreed = push_max(team, fmaxf(fmaxf(max[0], max[1]), fmaxf(max[2], max[3])), nan);
    if (found.state == ROW_BAD) return store_bad(b, row_index, team);
    if (found.state == ROW_PADDING) return;
    float top = value_of_key((u32)(agreed >> 1));
    i32 status = (agreed & 1 ? SD_STATUS_NAN_LOGITS : 0) | (top == PLUS_INF ? SD_STATUS_INF_LOGITS : 0);
    // -0, so that a token of either zero is +0 away from it, as the first of the largest tokens is from itself.
    top = top == 0.0f ? -0.0f : top;
    const Params& params = found.params;
    if (token_alone(b) && forced == -1 && b.positions != 0 && top != MINUS_INF && params.top_k == SD_TOP_K_OFF &&
        params.top_p == SD_TOP_P_OFF && b.columns == b.vocab)
        return draw_alone(b, row_index, params, source, top, status, bits);
    sample_row(b, row_index, params, source, top, status);
    // A peer may still be reading this block's memory.
    team.sync();
#endif
}
