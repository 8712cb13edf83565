// Radix descent: finds the last token of a prefix of the order, by count or by mass, without sorting. Four levels of
// 8 key bits; at each the bins hold the count (and the mass) of the tokens whose higher bits match the path
// so far, and the walk from the highest bin down finds the bin the prefix ends in.

template <class Team>
__device__ __noinline__ void clear_bins(Team& team) {
    // Peers may still be reading the bins of the level before.
    team.sync();
    for (u32 i = thread_id(); i < COUNT_BINS; i += thread_count()) team.sh.counts[i] = 0;
    team_barrier();
}

template <class Team>
__device__ u64 team_bin(const Team& team, const u32* bin) {
    u64 sum = 0;
    for (u32 r = 0; r < team.size(); r++) sum += team.peer(r, bin);
    return sum;
}

template <class Team>
__device__ u64 team_bin(const Team& team, const u64* bin) {
    u64 sum = 0;
    for (u32 r = 0; r < team.size(); r++) sum += team.peer(r, bin);
    return sum;
}

// What a walk found; `bin` is -1 if nothing.
struct Walk {
    i64 bin;
    u64 before, inside;
};

__device__ __forceinline__ Walk read_walk(Shared& sh) {
    team_barrier();
    return Walk{(i64)sh.walk_bin, sh.walk_before, sh.walk_inside};
}

// The bin, from the highest down, in which the running count reaches `wanted` (at least 1).
template <class Team>
__device__ __noinline__ Walk walk_counts(Team& team, u32 bins, u64 wanted) {
    Shared& sh = team.sh;
    u32 each = (bins + thread_count() - 1) / thread_count();
    u32 from = thread_id() * each;
    u64 own = 0;
#pragma unroll 1
    for (u32 i = from; i < from + each && i < bins; i++) own += team_bin(team, &sh.counts[bins - 1 - i]);
    u64 before = block_scan_before(sh, own);
    if (thread_id() == 0) sh.walk_bin = ~0ull, sh.walk_before = sh.walk_inside = 0;
    team_barrier();
    if (before < wanted && wanted <= before + own) {
#pragma unroll 1
        for (u32 i = from; i < from + each && i < bins; i++) {
            u64 here = team_bin(team, &sh.counts[bins - 1 - i]);
            if (before + here >= wanted) {
                sh.walk_bin = bins - 1 - i;
                sh.walk_before = before;
                sh.walk_inside = here;
                break;
            }
            before += here;
        }
    }
    return read_walk(sh);
}

// The last occupied bin, from the highest down, whose first token has at most `limit` before it, `ahead` counting
// what lies above all bins. `inside` is the bin's mass.
template <class Team>
__device__ __noinline__ Walk walk_masses(Team& team, u32 bins, u64 ahead, u64 limit) {
    Shared& sh = team.sh;
    u32 each = (bins + thread_count() - 1) / thread_count();
    u32 from = thread_id() * each;
    u64 own = 0;
#pragma unroll 1
    for (u32 i = from; i < from + each && i < bins; i++) own += team_bin(team, &sh.by_mass.masses[bins - 1 - i]);
    u64 before = ahead + block_scan_before(sh, own);
    u64 best = 0, best_before = 0, best_mass = 0;
#pragma unroll 1
    for (u32 i = from; i < from + each && i < bins; i++) {
        u64 here = team_bin(team, &sh.by_mass.masses[bins - 1 - i]);
        if (before <= limit && team_bin(team, &sh.by_mass.tokens[bins - 1 - i]) != 0) {
            best = i + 1;
            best_before = before;
            best_mass = here;
        }
        before += here;
    }
    u64 last = block_max(sh, best);
    if (thread_id() == 0) sh.walk_bin = ~0ull, sh.walk_before = sh.walk_inside = 0;
    team_barrier();
    if (last != 0 && best == last) {
        sh.walk_bin = bins - last;
        sh.walk_before = best_before;
        sh.walk_inside = best_mass;
    }
    return read_walk(sh);
}

// Id of the n-th token (from 1) within `cut` whose key is `key`; there are `ties` of them.
template <class Source>
__device__ u32 nth_tie(const Source& source, Cut cut, u32 key, u64 n, u64 ties) {
    // All of them: no need to look which is the last.
    if (n >= ties) return cut.key == key ? cut.id : 0xffffffffu;
    auto tie = [&](u32, u32 id, float x) { return key_of(x) == key && cut.has(key, id) ? 1ull : 0ull; };
    Span span = weigh(source, tie);
    return source.id_at((u32)locate(source, span, n - 1, tie));
}

// Adds a token to its bin for each lane that has one. Tokens of a warp often share a few bins: one addition serves all
// of a bin; what is left after three bins is spread widely enough.
__device__ __forceinline__ void count_together(u32* counts, u32 bin, bool has) {
    u32 left = __ballot_sync(ALL_LANES, has);
#pragma unroll 1
    for (u32 i = 0; i < 3 && left != 0; i++) {
        u32 first = __ffs((i32)left) - 1;
        u32 shared_bin = __shfl_sync(ALL_LANES, bin, first);
        u32 same = __ballot_sync(ALL_LANES, has && bin == shared_bin);
        if (lane_id() == first) atomicAdd(&counts[bin], (u32)__popc(same));
        left &= ~same;
    }
    if (left >> lane_id() & 1) atomicAdd(&counts[bin], 1u);
}

// The prefix of the first n tokens within `cut`; `cut` itself when it has no more than n.
template <class Source>
__device__ __noinline__ Cut cut_by_count(const Source& source, Cut cut, u64 n) {
    Shared& sh = source.team.sh;
    if (n >= source.len) return cut;
    u32 prefix = 0;
    u64 left = n, ties = 0;
#pragma unroll 1
    for (u32 level = 0; level < 4; level++) {
        u32 shift = 24 - 8 * level;
        clear_bins(source.team);
        source.steps([&](const Group<Source::WIDTH>& v) {
#pragma unroll 1
            for (u32 e = 0; e < Source::WIDTH; e++) {
                bool has = v.valid >> e & 1;
                u32 k = key_of(v.x[e]);
                if (has) has = cut.has(k, source.id_at(v.first + e)) && (level == 0 || k >> shift >> 8 == prefix);
                count_together(sh.counts, k >> shift & 255, has);
            }
        });
        source.team.sync();
        Walk walk = walk_counts(source.team, 256, left);
        if (walk.bin < 0) return cut;
        left -= walk.before;
        ties = walk.inside;
        prefix = prefix << 8 | (u32)walk.bin;
    }
    return Cut{prefix, nth_tie(source, cut, prefix, left, ties)};
}

// The prefix within `cut` of the tokens whose preceding mass is at most `limit`. The first token is always one.
template <class Source, class Mass>
__device__ __noinline__ Cut cut_by_mass(const Source& source, Cut cut, u64 limit, Mass mass) {
    Shared& sh = source.team.sh;
    u32 prefix = 0;
    u64 ahead = 0, inside = 0, ties = 0;
#pragma unroll 1
    for (u32 level = 0; level < 4; level++) {
        u32 shift = 24 - 8 * level;
        clear_bins(source.team);
        source.each([&](u32, u32 id, float x) {
            u32 k = key_of(x);
            if (cut.has(k, id) && (level == 0 || k >> shift >> 8 == prefix)) {
                u32 bin = k >> shift & 255;
                atomicAdd(&sh.by_mass.tokens[bin], 1u);
                u64 m = mass(x);
                if (m != 0) atomicAdd(&sh.by_mass.masses[bin], m);
            }
        });
        source.team.sync();
        Walk walk = walk_masses(source.team, MASS_BINS, ahead, limit);
        if (walk.bin < 0) return cut;
        ahead = walk.before;
        inside = walk.inside;
        ties = team_bin(source.team, &sh.by_mass.tokens[walk.bin]);
        prefix = prefix << 8 | (u32)walk.bin;
    }
    // All tokens of the last bin share one key, hence one mass.
    u64 one = inside / ties;
    u64 kept = ties;
    if (one != 0) {
        u64 more = (limit - ahead) / one;
        kept = more < ties ? more + 1 : ties;
    }
    return Cut{prefix, nth_tie(source, cut, prefix, kept, ties)};
}
