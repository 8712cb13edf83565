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

// Largest top-k of the second road, and the most candidates it can order.
constexpr u32 SMALL_TOP_K = 128;
constexpr u32 MAX_CANDIDATES = COUNT_BINS / 4;

// The weight of a value in a row whose largest is finite, or at +inf.
struct Weight {
    static constexpr bool COUNTS = false;
    float max, scale, lowest;

    __device__ __forceinline__ float exponent(float x) const {
        if (max == PLUS_INF) return x == PLUS_INF ? 0.0f : MINUS_INF;
        return __fmul_rn(__fsub_rn(x, max), scale);
    }
    __device__ __forceinline__ u64 amount(float x) const { return mass_of_exponent(exponent(x)); }
    // Whether a token may be kept at all.
    __device__ __forceinline__ bool may_keep(float t) const { return t > MINUS_INF && t >= lowest; }
    __device__ __forceinline__ u64 kept_mass(float x) const {
        float t = exponent(x);
        return t >= lowest ? mass_of_exponent(t) : 0;
    }
};

// Mass of this thread's share of its warp's part, over all tokens.
template <class C>
__device__ __forceinline__ u64 mass_of_part(const C& copy, const Weight& weight) {
    u32 place, end;
    copy.part_of(warp_id(), &place, &end);
    place += lane_id() * 4;
    u64 own = 0;
    if (weight.max != PLUS_INF && weight.lowest == MINUS_INF) {
        float max = weight.max, scale = weight.scale;
#pragma unroll 1
        for (; place < end; place += 128) {
            float x[4];
            copy.load4(place, x);
            for (u32 e = 0; e < 4; e++) own += mass_of_exponent(__fmul_rn(__fsub_rn(x[e], max), scale));
        }
    } else {
#pragma unroll 1
        for (; place < end; place += 128) {
            float x[4];
            copy.load4(place, x);
#pragma unroll 1
            for (u32 e = 0; e < 4; e++) own += weight.kept_mass(copy.value(place + e));
        }
    }
    return own;
}

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
    u32 each = ((to - from) / 4 + blockDim.x - 1) / blockDim.x * 4;
    from = min(from + threadIdx.x * each, to);
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

// Collects this block's tokens at or above `bound` into its list, in no particular order.
template <class C>
__device__ __forceinline__ void collect(Shared& sh, const C& copy, u32 bound) {
    float lowest = value_of_key(bound);
    u32 place, end;
    copy.part_of(warp_id(), &place, &end);
    place += lane_id() * 4;
#pragma unroll 2
    for (; place < end; place += 128) {
        float x[4];
        copy.load4(place, x);
        if (fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])) < lowest) continue;
#pragma unroll 1
        for (u32 e = 0; e < 4; e++) {
            float y = copy.value(place + e);
            u32 index = place + e - copy.lead;
            if (!(y >= lowest) || index >= copy.len) continue;
            u32 at = atomicAdd(&sh.candidates, 1u);
            if (at < MAX_CANDIDATES) sh.list.masses[at] = (u64)key_of(y) << 32 | ~index;
        }
    }
}

// The second road from the ordered candidates on, by the first block. The first `k` of the order are what top-k keeps;
// top-p looks at a total of `whole`, 0 meaning that of those k.
__device__ __forceinline__ void draw_from_list(const RowBlock& b, Shared& sh, u64 row_index, const Weight& weight,
                                               const Params& params, u32 n, u32 k, u64 whole, i32 status, u64 bits) {
    u64* order = sh.list.order;
    u64* masses = sh.list.masses;
    auto value = [&](u32 i) { return value_of_key((u32)(order[i] >> 32)); };
    u32 each = (k + blockDim.x - 1) / blockDim.x, from = min(threadIdx.x * each, k), to = min(from + each, k);
    u64 own = 0;
#pragma unroll 1
    for (u32 i = from; i < to; i++) own += masses[i] = mass_of_exponent(weight.exponent(value(i)));
    u64 before = block_scan_before(sh, own);
    if (threadIdx.x == blockDim.x - 1) sh.owner_before = before + own;
    if (threadIdx.x == 0) sh.owner = 0, sh.found = 0;
    __syncthreads();
    u64 limit = ~0ull;
    if (params.top_p != SD_TOP_P_OFF) limit = multiply_shift(whole != 0 ? whole : sh.owner_before, params.top_p, 32);
    // What is kept is a prefix; the last thread that keeps anything knows its length and its mass.
    u32 kept = 0;
    u64 mass = 0;
#pragma unroll 1
    for (u32 i = from; i < to; i++) {
        if (before > limit || !weight.may_keep(weight.exponent(value(i)))) break;
        before += masses[i];
        kept = i + 1;
        mass = before;
    }
    kept = (u32)block_max(sh, kept);
    mass = block_max(sh, mass);
    float l = log2_total(mass);
    u64 target = scale_bits(bits, mass);
#pragma unroll 1
    for (u32 i = threadIdx.x; i < kept; i += blockDim.x) {
        u32 id = ~(u32)order[i];
        u64 through = 0;
#pragma unroll 4
        for (u32 j = 0; j < kept; j++) through += ~(u32)order[j] <= id ? masses[j] : 0;
        if (through <= target || through - masses[i] > target) continue;
        float t = weight.exponent(value(i));
        store_token(b, row_index, (i64)id);
        store<i32>(b.status, row_index, status);
        store<i32>(b.ranks, row_index, (i32)i + 1);
        store<i32>(b.kept_counts, row_index, (i32)kept);
        store<float>(b.logprobs, row_index, logprob_of_exponent(t, l));
        if (b.sum_smaller_probs != 0) {
            u64 sum = 0;
#pragma unroll 1
            for (u32 j = 0; j < kept; j++) {
                float other = weight.exponent(value(j));
                if (other < t || (other == t && ~(u32)order[j] <= id)) sum += masses[j];
            }
            store<float>(b.sum_smaller_probs, row_index, ratio(sum, mass));
        }
    }
    if (b.top_width != 0) {
        i32* ids = (i32*)b.top_ids + row_index * b.top_width;
        float* logprobs = (float*)b.top_logprobs + row_index * b.top_width;
#pragma unroll 1
        for (u64 i = threadIdx.x; i < b.top_width; i += blockDim.x) {
            bool used = i < kept;
            ids[i] = used ? (i32)~(u32)order[i] : -1;
            logprobs[i] = used ? logprob_of_exponent(weight.exponent(value((u32)i)), l) : MINUS_INF;
        }
        if (threadIdx.x == 0) store<i32>(b.top_counts, row_index, (i32)min((u64)kept, b.top_width));
    }
}

// The last road; `known` is what top-p keeps, where that is all the row asks for and it is known.
template <u32 DTYPE>
__device__ __noinline__ void sample_any(const RowBlock& b, Shared& sh, u64 row_index, const Params params,
                                        const Copy<DTYPE> copy, u64 mask, float max, i32 status, const Cut* known) {
    Cluster team(sh);
    Tile<DTYPE> source(team, copy, mask);
    sample_row(b, row_index, params, source, max, status, known);
    // A peer may still be reading this block's memory.
    team.sync();
}

// Mass of the cluster's tokens, and an exponent above which more than `top_p` of it lies; +inf where none was found. The
// masses are also added up in bins of a quarter of an octave, cut off at 2^-16 of the largest: what the bins hold is
// never more than the truth, so the bin in which they pass the limit is low enough.
struct Above {
    u64 whole, limit;
    float threshold;
};

// Units of a rough mass: 2^24 of a mass.
constexpr u32 ROUGH_SHIFT = 24;

template <class C>
__device__ __forceinline__ Above mass_above(Shared& sh, const C& copy, const Weight& weight, u64 top_p) {
    u32 place, end;
    copy.part_of(warp_id(), &place, &end);
    place += lane_id() * 4;
    float max = weight.max, scale = weight.scale;
    for (u32 i = threadIdx.x; i < 4 * CUT_BINS; i += blockDim.x) sh.rough[i] = 0;
    __syncthreads();
    u64 own = 0;
#pragma unroll 1
    for (; place < end; place += 128) {
        float x[4];
        copy.load4(place, x);
        for (u32 e = 0; e < 4; e++) {
            float t = __fmul_rn(__fsub_rn(x[e], max), scale);
            u64 m = mass_of_exponent(t);
            own += m;
            // Adding 1.5 * 2^21 leaves -4t, rounded, as the distance to its own bits.
            u32 bin = 0x4a400000u - __float_as_uint(__fadd_rn(fmaxf(t, -64.0f), 3145728.0f));
            if (bin < CUT_BINS) atomicAdd(&sh.rough[bin * 4 + (lane_id() & 3)], (u32)(m >> ROUGH_SHIFT));
        }
    }
    own = warp_sum(own);
    if (lane_id() == 0) sh.scan[warp_id()] = own;
    if (threadIdx.x == 0) completion_expect(&sh.exchanges[1], cluster_size() * 8 * (1 + CUT_BINS));
    __syncthreads();
    if (warp_id() == 0) {
        own = warp_sum(lane_id() < warp_count() ? sh.scan[lane_id()] : 0);
        if (lane_id() < cluster_size()) push(lane_id(), &sh.pushed_mass[cluster_rank()], own, &sh.exchanges[1]);
    }
    for (u32 i = threadIdx.x; i < CUT_BINS * cluster_size(); i += blockDim.x) {
        const u32* of_bin = &sh.rough[i % CUT_BINS * 4];
        u64 sum = (u64)of_bin[0] + of_bin[1] + of_bin[2] + of_bin[3];
        push_add(i / CUT_BINS, &sh.rough_mass[i % CUT_BINS], sum, &sh.exchanges[1]);
    }
    completion_wait(&sh.exchanges[1]);
    u64 whole = warp_sum(lane_id() < cluster_size() ? sh.pushed_mass[lane_id()] : 0);
    u64 limit = multiply_shift(whole, top_p, 32);
    u64 first = sh.rough_mass[2 * lane_id()], second = sh.rough_mass[2 * lane_id() + 1];
    u64 through = warp_scan(first + second);
    u32 past = __ballot_sync(ALL_LANES, through << ROUGH_SHIFT > limit);
    float threshold = PLUS_INF;
    if (past != 0) {
        u32 lane = __ffs((i32)past) - 1;
        bool already = __shfl_sync(ALL_LANES, (through - second) << ROUGH_SHIFT > limit ? 1 : 0, lane) != 0;
        threshold = -((float)(2 * lane + (already ? 0 : 1)) + 0.5f) * 0.25f;
    }
    return Above{whole, limit, threshold};
}

// The third road from the cut on: masses of the kept tokens, the draw. `sh.candidates` counts them.
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
    u32 each = (count + blockDim.x - 1) / blockDim.x, first = min(threadIdx.x * each, count);
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
    if (readable && threadIdx.x == 0) copy.start(sh.arrivals);
    Resolved found = resolve(b, row_index);
    const Params& params = found.params;
    // The draw's bits need the position alone; asked for now, they are there in time.
    bool fresh = false;
    u64 bits = 0;
    if (found.state == ROW_LIVE && b.positions != 0 && forced_token(b, row_index) == -1) {
        fresh = b.columns == b.vocab;
        bits = draw_bits(b, row_index, row_index, 0, params.seed, SD_CASE_FRESH);
    }
    bool small_k = fresh && params.top_k <= SMALL_TOP_K && params.top_k < b.vocab &&
                   (b.raw_logprobs | b.dense | b.kept_ids) == 0;
    u32 need = small_k ? ((u32)params.top_k + cluster_size() - 1) / cluster_size() : 1;
    small_k = small_k && need <= 32 && offers(need) * warp_count() <= 64;
    if (readable) copy.fill_ends();
    __syncthreads();
    bool nan = false;
    float max = MINUS_INF;
    const u32* mask = found.state == ROW_LIVE ? (const u32*)found.mask : 0;
    if (readable) max = copy.arrive(sh.arrivals, mask, &nan);
    Agreed agreed = push_max(sh, max, nan, small_k ? need : 1);
    if (found.state != ROW_LIVE) {
        if (found.state == ROW_BAD) store_bad(b, row_index, Cluster(sh));
        return;
    }
    i32 status = (agreed.nan ? SD_STATUS_NAN_LOGITS : 0) | (agreed.max == PLUS_INF ? SD_STATUS_INF_LOGITS : 0);
    Weight weight = {agreed.max, params.scale, params.min_exponent};
    bool nothing_else =
        (b.ranks | b.kept_counts | b.raw_logprobs | b.sum_smaller_probs | b.top_width | b.dense | b.kept_ids) == 0;
    bool whole_row = fresh && nothing_else && params.top_k == SD_TOP_K_OFF && params.top_p == SD_TOP_P_OFF;
    bool joint = small_k && params.top_p != SD_TOP_P_OFF && !params.top_k_first;
    if (agreed.max != MINUS_INF && (whole_row || small_k)) {
        u64 own = 0;
        // Top-p beside top-k looks at every token, min-p or not.
        if (joint) own = mass_of_part(copy, Weight{weight.max, weight.scale, MINUS_INF});
        if (whole_row) own = mass_of_part(copy, weight);
        if (small_k) collect(sh, copy, agreed.bound);
        __syncthreads();
        Sums sums = push_sums(sh, own, &sh.exchanges[1]);
        if (whole_row) return draw_alone(b, sh, row_index, copy, weight, sums, status, bits);
        if (sums.count >= params.top_k && sums.count <= min(MAX_CANDIDATES, blockDim.x)) {
            bool first = cluster_rank() == 0;
            if (first && threadIdx.x == 0) completion_expect(&sh.exchanges[2], sums.count * 8);
            for (u32 i = threadIdx.x; i < sh.candidates; i += blockDim.x)
                push(0, &sh.list.order[sums.count_before + i], sh.list.masses[i], &sh.exchanges[2]);
            if (!first) return;
            completion_wait(&sh.exchanges[2]);
            order_candidates(sh, sums.count);
            return draw_from_list(b, sh, row_index, weight, params, sums.count, (u32)params.top_k,
                                  joint ? sums.mass : 0, status, bits);
        }
    }
    Cut cut;
    bool known = false;
    if (fresh && params.top_k == SD_TOP_K_OFF && params.top_p != SD_TOP_P_OFF && agreed.max != MINUS_INF &&
        agreed.max != PLUS_INF && copy.end_place - copy.first_place <= 0xffff) {
        __syncthreads();
        Above above = mass_above(sh, copy, weight, params.top_p);
        if (above.threshold <= 0.0f) {
            float threshold = above.threshold;
            WarpList list = list_tokens(
                copy, [&](float x) { return __fmul_rn(__fsub_rn(x, weight.max), weight.scale) >= threshold; });
            bool over = push_listed(sh, copy, list) >> 32 != 0;
            // Rounded away from the maximum, and a little further: every listed token is at or above it.
            float lowest = __fadd_rd(weight.max, __fmul_rn(__fdiv_rn(threshold, weight.scale), 1.001f));
            if (!over) known = cut_lists(sh, copy, list, weight, key_of(lowest), key_of(weight.max), above.limit, &cut);
            if (known && nothing_else) return draw_from_lists(b, sh, row_index, copy, list, weight, cut, status, bits);
        }
    }
    sample_any<DTYPE>(b, sh, row_index, params, copy, found.mask, agreed.max, status, known ? &cut : 0);
}

#else

template <u32 DTYPE>
__device__ void sample_tile(const RowBlock&) {}

#endif
