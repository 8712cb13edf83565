// What top-k and top-p keep of a row in the shared memory of a cluster, without passes of descent.cuh: a small top-k from
// the few tokens above a bound, top-p from lists of what lies above a rough threshold.

#if __CUDA_ARCH__ >= 900

// The least value that a token can be kept with. Where fewer than top_k have it, they are all there is to collect.
#define LOWEST_FINITE __uint_as_float(0xff7fffffu)

// Largest top-k taken this way.
constexpr u32 SMALL_TOP_K = 128;

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

// What a thread finds in its share of a warp's part: the mass, and a bit for each of its groups of four, in their order, that has a
// value it looks for.
struct PartMass {
    u64 whole;
    u32 hits;
};

// Mass of this thread's share of a warp's part over all tokens, of a row whose largest value is finite. Of HITS, what has at least
// the value `least`; a thread has no more than 32 groups then.
template <bool HITS, class C>
__device__ __forceinline__ PartMass mass_and_hits(const C& copy, const Weight& weight, float least, u32 warp) {
    u32 place, end, bit = 1;
    copy.part_of(warp, &place, &end);
    place += lane_id() * 4;
    PartMass own = {0, 0};
    // The next values are on their way while these are worked on.
    float x[4], t[4];
    if (place < end) copy.load4(place, x);
#pragma unroll 1
    for (; place < end; bit <<= 1) {
        if (HITS && fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])) >= least) own.hits |= bit;
        for (u32 e = 0; e < 4; e++) t[e] = __fmul_rn(__fsub_rn(x[e], weight.max), weight.scale);
        place += 128;
        if (place < end) copy.load4(place, x);
        Powers<4> powers(t);
        for (u32 e = 0; e < 4; e++) own.whole += whole_mass(powers.scaled(e));
    }
    return own;
}

// The same of what min-p leaves, or of a row with +inf.
template <class C>
__device__ __forceinline__ u64 kept_mass_of_part(const C& copy, const Weight& weight, u32 warp) {
    u32 place, end;
    copy.part_of(warp, &place, &end);
    u64 own = 0;
#pragma unroll 1
    for (place += lane_id() * 4; place < end; place += 128) {
        float x[4];
        copy.load4(place, x);
        for (u32 e = 0; e < 4; e++) own += weight.kept_mass(x[e]);
    }
    return own;
}

// The one or the other, of this warp's part.
template <class C>
__device__ __forceinline__ u64 mass_of_part(const C& copy, const Weight& weight) {
    if (weight.max == PLUS_INF || weight.lowest != MINUS_INF) return kept_mass_of_part(copy, weight, warp_id());
    return mass_and_hits<false>(copy, weight, 0.0f, warp_id()).whole;
}

// Mass of a listed token, if `cut` keeps it.
template <class C>
__device__ __forceinline__ u64 listed_mass(const C& copy, const Weight& weight, const Cut& cut, u32 place) {
    float x = copy.value(place);
    return cut.has(key_of(x), place - copy.lead) ? weight.kept_mass(x) : 0;
}

// Kept mass of this lane's share of its warp's list.
template <class C>
__device__ __forceinline__ u64 mass_of_list(const C& copy, const Weight& weight, const Cut& cut, const WarpList& list) {
    u64 own = 0;
#pragma unroll 1
    for (u32 i = lane_id(); i < list.count; i += 32) own += listed_mass(copy, weight, cut, list.from + list.places[i]);
    return own;
}

// Collects this block's tokens at or above `bound` into its list, in no particular order.
template <class C>
__device__ __forceinline__ void collect(Shared& sh, const C& copy, u32 bound) {
    float lowest = fmaxf(value_of_key(bound), LOWEST_FINITE);
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
            if (at < MAX_ORDERED) sh.list.masses[at] = (u64)key_of(y) << 32 | ~index;
        }
    }
}

// Up to the first sums of the cluster: the masses of a row that is drawn from whole, or its candidates above `bound`, with the
// mass of all tokens where top-p looks at those, `joint`.
template <class C>
__device__ __forceinline__ Sums first_sums(Shared& sh, const C& copy, const Weight& weight, bool whole_row, bool joint, bool small_k,
                                           u32 bound) {
    u64 own = 0;
    // Top-p beside top-k looks at every token, min-p or not.
    if (joint) own = mass_of_part(copy, Weight{weight.max, weight.scale, MINUS_INF});
    if (whole_row) own = mass_of_part(copy, weight);
    if (small_k) collect(sh, copy, bound);
    team_barrier();
    return push_sums(sh, own, &sh.exchanges[1]);
}

// What top-k and top-p keep of the `n` ordered candidates: their number and mass. `sh.list.masses` holds the masses of the
// first top_k; top-p looks at a total of `whole`, 0 meaning that of those.
struct Kept {
    u32 count;
    u64 mass;
};

__device__ __forceinline__ Kept keep_candidates(Shared& sh, const Weight& weight, const Params& params, u32 n, u64 whole) {
    u64* order = sh.list.order;
    u64* masses = sh.list.masses;
    auto value = [&](u32 i) { return value_of_key((u32)(order[i] >> 32)); };
    u32 k = min((u32)params.top_k, n);
    u32 each = (k + thread_count() - 1) / thread_count(), from = min(thread_id() * each, k), to = min(from + each, k);
    u64 own = 0;
#pragma unroll 1
    for (u32 i = from; i < to; i++) own += masses[i] = mass_of_exponent(weight.exponent(value(i)));
    u64 before = block_scan_before(sh, own);
    if (thread_id() == thread_count() - 1) sh.owner_before = before + own;
    team_barrier();
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
    return Kept{kept, mass};
}

// Hands every block's candidates to the first block, which puts them in order. False, in every block, where there are none or
// too many.
__device__ __forceinline__ bool gather_candidates(Shared& sh, const Sums& sums) {
    if (sums.count == 0 || sums.count > min(MAX_ORDERED, thread_count())) return false;
    bool first = cluster_rank() == 0;
    if (first && thread_id() == 0) completion_expect(&sh.exchanges[2], sums.count * 8);
    for (u32 i = thread_id(); i < sh.candidates; i += thread_count())
        push(0, &sh.list.order[sums.count_before + i], sh.list.masses[i], &sh.exchanges[2]);
    if (!first) return true;
    completion_wait(&sh.exchanges[2]);
    order_candidates(sh, sums.count);
    return true;
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
    for (u32 i = thread_id(); i < 4 * CUT_BINS; i += thread_count()) sh.rough[i] = 0;
    team_barrier();
    u64 own = 0;
    // The next values are on their way while these are worked on.
    float x[4], t[4];
    if (place < end) copy.load4(place, x);
#pragma unroll 1
    while (place < end) {
        u32 bin[4];
        for (u32 e = 0; e < 4; e++) {
            t[e] = __fmul_rn(__fsub_rn(x[e], max), scale);
            // Adding 1.5 * 2^21 leaves -4t, rounded, as the distance to its own bits.
            bin[e] = 0x4a400000u - __float_as_uint(__fadd_rn(fmaxf(t[e], -64.0f), 3145728.0f));
        }
        place += 128;
        if (place < end) copy.load4(place, x);
        Powers<4> powers(t);
        u64 m[4];
        for (u32 e = 0; e < 4; e++) m[e] = whole_mass(powers.scaled(e));
        own += (m[0] + m[1]) + (m[2] + m[3]);
        for (u32 e = 0; e < 4; e++)
            if (bin[e] < CUT_BINS) atomicAdd(&sh.rough[bin[e] * 4 + (lane_id() & 3)], (u32)(m[e] >> ROUGH_SHIFT));
    }
    own = warp_sum(own);
    if (lane_id() == 0) sh.scan[warp_id()] = own;
    if (thread_id() == 0) completion_expect(&sh.exchanges[1], cluster_size() * 8 * (1 + CUT_BINS));
    team_barrier();
    if (warp_id() == 0) {
        own = warp_sum(lane_id() < warp_count() ? sh.scan[lane_id()] : 0);
        if (lane_id() < cluster_size()) push(lane_id(), &sh.pushed_mass[cluster_rank()], own, &sh.exchanges[1]);
    }
    for (u32 i = thread_id(); i < CUT_BINS * cluster_size(); i += thread_count()) {
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

// The end of what top-p keeps of the whole row, whose largest value is finite; `list` then holds all of it. False, in
// every block, where the rough look or the lists do not reach far enough.
template <class C>
__device__ __forceinline__ bool cut_top_p(Shared& sh, const C& copy, const Weight& weight, u64 top_p, WarpList* list,
                                          Cut* cut) {
    // A block's rough bins hold 32 bits.
    if (copy.part * warp_count() > 0xffff) return false;
    team_barrier();
    Above above = mass_above(sh, copy, weight, top_p);
    float threshold = above.threshold;
    if (!(threshold <= 0.0f)) return false;
    *list = list_tokens(copy, [&](float x) { return __fmul_rn(__fsub_rn(x, weight.max), weight.scale) >= threshold; });
    if (push_listed(sh, copy, *list) >> 32 != 0) return false;
    // Rounded away from the maximum, and a little further: every listed token is at or above it.
    float lowest = __fadd_rd(weight.max, __fmul_rn(__fdiv_rn(threshold, weight.scale), 1.001f));
    return cut_lists(sh, copy, *list, weight, key_of(lowest), key_of(weight.max), above.limit, cut);
}

// What the bound of a small top-k asks of the blocks; nothing where top-k is off or not small.
__device__ __forceinline__ Asked small_asked(const Params& params, u64 vocab) {
    if (params.top_k > SMALL_TOP_K || params.top_k >= vocab) return Asked{0, 0};
    Asked asked = ask_blocks(params.top_k, cluster_size(), MOST_ASKED);
    return offers(asked.need) * warp_count() <= 64 ? asked : Asked{0, 0};
}

// The end of what top-k and top-p keep, told to every block. False, in every block, where this is not the way to it.
template <class C>
__device__ __noinline__ bool cut_filters(Shared& sh, const C copy, const Weight weight, const Params params, u32 bound,
                                         bool small, Cut* cut) {
    if (!small) {
        WarpList list;
        return params.top_k == SD_TOP_K_OFF && params.top_p != SD_TOP_P_OFF && weight.max != PLUS_INF &&
               cut_top_p(sh, copy, weight, params.top_p, &list, cut);
    }
    bool joint = params.top_p != SD_TOP_P_OFF && !params.top_k_first;
    Sums sums = first_sums(sh, copy, weight, false, joint, true, bound);
    if (!gather_candidates(sh, sums)) return false;
    if (thread_id() == 0) completion_expect(&sh.exchanges[3], 8);
    if (cluster_rank() == 0) {
        Kept kept = keep_candidates(sh, weight, params, sums.count, joint ? sums.mass : 0);
        if (thread_id() < cluster_size())
            push(thread_id(), &sh.pushed_listed[0], sh.list.order[kept.count - 1], &sh.exchanges[3]);
    }
    completion_wait(&sh.exchanges[3]);
    u64 last = sh.pushed_listed[0];
    *cut = Cut{(u32)(last >> 32), ~(u32)last};
    return true;
}

#endif
