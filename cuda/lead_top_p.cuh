// The end of a row with top-p alone, by the lead: the last token kept, and the draw. It looks among the listed tokens; where the
// end is not there, or a list ran over, over the whole row in global memory, by the same steps.

#if __CUDA_ARCH__ >= 900

// Tokens of a part that are listed, and the mass above them, from its word.
__device__ __forceinline__ u32 listed_count(u64 word) { return (u32)(word >> LISTED_SHIFT); }
__device__ __forceinline__ u64 mass_above_listed(u64 word) { return word & ((1ull << LISTED_SHIFT) - 1); }

constexpr u32 LEAD_WARPS = LEAD_THREADS / 32;

// The tokens that were listed. A token is a word: its key, and below it its id counted backwards; 0 is none.
struct Listed {
    const Mail& mail;
    const Rows& rows;
    u32 which;
    // Parts a warp goes over side by side, with a load of each under way.
    static constexpr u32 AT_ONCE = 6;

    __device__ __forceinline__ u32 count(u32 part) const { return listed_count(mail.listed[part]); }
    __device__ __forceinline__ u64 token(u32 part, u32 i) const { return __ldcg(rows.list(rows.rank, which, part) + i); }
    __device__ __forceinline__ u64 above(u32 part) const { return mass_above_listed(mail.listed[part]); }

    // Calls f(token, k) in step for all lanes, for the tokens of the k-th of the parts given to this warp, then done(part, k).
    template <class F, class Done>
    __device__ __forceinline__ void each(F f, Done done) const {
        u32 parts = rows.blocks * MASS_WARPS;
#pragma unroll 1
        for (u32 first = warp_id(); first < parts; first += LEAD_WARPS * AT_ONCE) {
            u32 part = first + lane_id() * LEAD_WARPS;
            u32 own = lane_id() < AT_ONCE && part < parts ? count(part) : 0, longest = __reduce_max_sync(ALL_LANES, own);
            const u64* list = rows.list(rows.rank, which, first);
#pragma unroll 1
            for (u32 i = lane_id(); i < (longest + 31) / 32 * 32; i += 32) {
                u64 x[AT_ONCE];
                for (u32 k = 0; k < AT_ONCE; k++)
                    x[k] = i < __shfl_sync(ALL_LANES, own, k) ? __ldcg(list + k * LEAD_WARPS * rows.list_length + i) : 0;
                for (u32 k = 0; k < AT_ONCE; k++) f(x[k], k);
            }
            for (u32 k = 0; k < AT_ONCE; k++)
                if (first + k * LEAD_WARPS < parts) done(first + k * LEAD_WARPS, k);
        }
    }
};

// All tokens above -inf.
template <u32 DTYPE>
struct WholeRow {
    const Resolved& found;
    const Rows& rows;
    Copy<DTYPE> copy;
    static constexpr u32 AT_ONCE = 1;

    __device__ __forceinline__ u32 count(u32 part) const {
        u32 from = min(part * copy.part, copy.lead + copy.len);
        return min(copy.part, copy.lead + copy.len - from);
    }
    __device__ __forceinline__ u64 token(u32 part, u32 i) const {
        u32 place = part * copy.part + i;
        if (place < copy.lead) return 0;
        float x = value_at<Element<DTYPE>>(found, place - copy.lead);
        return x == MINUS_INF ? 0 : (u64)key_of(x) << 32 | ~(place - copy.lead);
    }
    __device__ __forceinline__ u64 above(u32) const { return 0; }

    template <class F, class Done>
    __device__ __forceinline__ void each(F f, Done done) const {
#pragma unroll 1
        for (u32 part = warp_id(); part < rows.blocks * MASS_WARPS; part += LEAD_WARPS) {
            u32 n = count(part);
#pragma unroll 4
            for (u32 i = lane_id(); i < (n + 31) / 32 * 32; i += 32) f(i < n ? token(part, i) : 0, 0);
            done(part, 0);
        }
    }
};

// Adds tokens to the bins of their keys, in step for all lanes: `here` says whether this lane has one, of mass `m`.
__device__ __forceinline__ void add_to_bins(Shared& sh, bool here, u32 bin, u64 m) {
    auto add = [&](u32 at, u32 tokens, u64 mass) {
        atomicAdd(&sh.cut.tokens[at], tokens);
        atomicAdd(&sh.cut.pieces[0][at], (u32)mass & 0x3fffu);
        atomicAdd(&sh.cut.pieces[1][at], (u32)(mass >> 14) & 0x3fffu);
        atomicAdd(&sh.cut.pieces[2][at], (u32)(mass >> 28));
    };
    u32 who = __ballot_sync(ALL_LANES, here);
    if (who == 0) return;
    u32 first = __shfl_sync(ALL_LANES, bin, __ffs((i32)who) - 1);
    // Many equal tokens would stand in line for one word.
    if (__popc(who) > 1 && __all_sync(ALL_LANES, !here || bin == first)) {
        u64 sum = warp_sum(here ? m : 0);
        if (lane_id() == 0) add(first, __popc(who), sum);
    } else if (here) {
        add(bin, 1, m);
    }
}

// The id of the n-th token, from 1 and by id, that has the key; there are as many.
template <class Tokens>
__device__ __forceinline__ u32 nth_equal(Shared& sh, const Tokens& tokens, u32 key, u32 n) {
    team_barrier();
    u32 equal[Tokens::AT_ONCE] = {};
    tokens.each([&](u64 x, u32 k) { equal[k] += (u32)(x >> 32) == key ? 1 : 0; },
                [&](u32 part, u32 k) {
                    u32 sum = __reduce_add_sync(ALL_LANES, equal[k]);
                    if (lane_id() == 0) sh.list.masses[part] = sum;
                    equal[k] = 0;
                });
    team_barrier();
    u64 own = thread_id() < tokens.rows.blocks * MASS_WARPS ? sh.list.masses[thread_id()] : 0;
    u64 before = block_scan_before(sh, own);
    if (before < n && n <= before + own) sh.owner = thread_id(), sh.owner_before = before;
    team_barrier();
    if (warp_id() == 0) {
        u32 part = (u32)sh.owner, left = n - (u32)sh.owner_before, count = tokens.count(part);
#pragma unroll 1
        for (u32 i = lane_id();; i += 32) {
            u64 x = i < count ? tokens.token(part, i) : 0;
            bool hit = x != 0 && (u32)(x >> 32) == key;
            u32 hits = __ballot_sync(ALL_LANES, hit);
            if (hit && __popc(hits & ((2u << lane_id()) - 1)) == left) sh.found = ~(u32)x;
            if ((u32)__popc(hits) >= left || i - lane_id() >= count) break;
            left -= __popc(hits);
        }
    }
    team_barrier();
    return (u32)sh.found;
}

// The last token of which no more than `limit` is ahead, by bins over the keys from `low` to `high`; `ahead` is ahead of all these.
// False where it is not one of them.
template <class Tokens>
__device__ __forceinline__ bool end_of_top_p(Shared& sh, const Weight& weight, const Tokens& tokens, u32 low, u32 high, u64 ahead,
                                             u64 limit, Cut* cut) {
    auto nothing = [](u32, u32) {};
    if (ahead > limit) return false;
    u32 inside = 0;
#pragma unroll 1
    for (bool first = true;; first = false) {
        u32 span = high - low, shift = span < MASS_BINS ? 0 : 24 - __clz(span);
        team_barrier();
        for (u32 p = 0; p < 3; p++) sh.cut.pieces[p][thread_id()] = 0;
        sh.cut.tokens[thread_id()] = 0;
        team_barrier();
        tokens.each([&](u64 x, u32) {
            u32 key = (u32)(x >> 32);
            bool here = x != 0 && key >= low && key <= high;
            add_to_bins(sh, here, (key - low) >> shift, here ? weight.amount(value_of_key(key)) : 0);
        }, nothing);
        team_barrier();
        // A thread a bin, the highest first.
        u32 bin = MASS_BINS - 1 - thread_id(), own = sh.cut.tokens[bin];
        u64 mass = sh.cut.pieces[0][bin] + ((u64)sh.cut.pieces[1][bin] << 14) + ((u64)sh.cut.pieces[2][bin] << 28);
        u64 before = ahead + block_scan_before(sh, mass);
        if (thread_id() == LEAD_THREADS - 1) sh.found = before + mass;
        u32 last = (u32)block_max(sh, before <= limit && own != 0 ? thread_id() + 1 : 0);
        // What is below comes after all of it: it is out only if more than the limit is ahead of it.
        if (last == 0 || (first && sh.found <= limit)) return false;
        if (thread_id() == last - 1) sh.walk_before = before, sh.walk_inside = own;
        team_barrier();
        ahead = sh.walk_before;
        inside = (u32)sh.walk_inside;
        low += (MASS_BINS - last) << shift;
        u32 end = low + ((1u << shift) - 1);
        if (end >= low && end < high) high = end;
        if (inside <= MAX_ORDERED) break;
        if (shift == 0) {
            // Equal tokens go by id.
            u64 one = weight.amount(value_of_key(low)), more = one != 0 ? (limit - ahead) / one : inside;
            u32 kept = more < inside ? (u32)more + 1 : inside;
            *cut = Cut{low, nth_equal(sh, tokens, low, kept)};
            return true;
        }
    }
    if (thread_id() == 0) sh.candidates = 0;
    team_barrier();
    tokens.each([&](u64 x, u32) {
        u32 key = (u32)(x >> 32);
        if (x != 0 && key >= low && key <= high) sh.list.order[atomicAdd(&sh.candidates, 1u)] = x;
    }, nothing);
    team_barrier();
    order_candidates(sh, inside);
    u64 x = sh.list.order[thread_id() < inside ? thread_id() : 0];
    u64 own = thread_id() < inside ? weight.amount(value_of_key((u32)(x >> 32))) : 0;
    u64 before = ahead + block_scan_before(sh, own);
    u32 kept = (u32)block_max(sh, thread_id() < inside && before <= limit ? thread_id() + 1 : 0);
    x = sh.list.order[kept - 1];
    *cut = Cut{(u32)(x >> 32), ~(u32)x};
    return true;
}

// Draws from the tokens within the cut, of which those above `tokens` are known by their mass.
template <u32 DTYPE, class Tokens>
__device__ __forceinline__ void draw_within(const RowBlock& b, Shared& sh, const Ending& row, const Tokens& tokens, const Cut& cut) {
    const Weight weight = row.weight;
    auto kept = [&](float x, u32 id) -> u64 { return cut.has(key_of(x), id) ? weight.kept_mass(x) : 0; };
    team_barrier();
    u64 sums[Tokens::AT_ONCE] = {};
    tokens.each([&](u64 x, u32 k) { sums[k] += x != 0 ? kept(value_of_key((u32)(x >> 32)), ~(u32)x) : 0; },
                [&](u32 part, u32 k) {
                    u64 sum = warp_sum(sums[k]);
                    if (lane_id() == 0) sh.list.masses[part] = sum + tokens.above(part);
                    sums[k] = 0;
                });
    team_barrier();
    u64 own = thread_id() < tokens.rows.blocks * MASS_WARPS ? sh.list.masses[thread_id()] : 0, total;
    u64 before = lead_scan(sh, own, &total);
    lead_find<DTYPE>(b, sh, row, before, own, total, kept);
}

// By the whole row; apart, for it is seldom needed. False for a vocabulary whose masses a bin might not hold.
template <u32 DTYPE>
__device__ __noinline__ bool lead_top_p_of_row(Pipe& pipe, u64 limit) {
    const RowBlock& b = pipe.block;
    const Rows& rows = pipe.rows;
    Shared& sh = pipe.shared;
    __builtin_assume(__isShared(&pipe));
    const Ending& row = pipe.ending;
    if (b.vocab >= 1u << 18) return false;
    WholeRow<DTYPE> tokens = {row.found, rows, Copy<DTYPE>(0, row.found.values, b.vocab)};
    Cut cut;
    if (!end_of_top_p(sh, row.weight, tokens, 1, key_of(row.weight.max), 0, limit, &cut)) return false;
    draw_within<DTYPE>(b, sh, row, tokens, cut);
    return true;
}

// Draws from what top-p keeps of a row; false where it is none of its business.
template <u32 DTYPE>
__device__ __noinline__ bool lead_top_p(Pipe& pipe) {
    const RowBlock& b = pipe.block;
    const Rows& rows = pipe.rows;
    Shared& sh = pipe.shared;
    __builtin_assume(__isShared(&pipe));
    const Ending& row = pipe.ending;
    const Mail& mail = pipe.mails[row.which];
    if (row.weight.max == PLUS_INF) return false;
    u32 parts = rows.blocks * MASS_WARPS, most = 0;
    u64 whole = 0, above = 0;
    for (u32 i = lane_id(); i < parts; i += 32) {
        most = umax(most, listed_count(mail.listed[i]));
        above += mass_above_listed(mail.listed[i]);
        whole += mail.sums[i];
    }
    u64 limit = multiply_shift(warp_sum(whole), row.found.params.top_p, 32);
    Listed tokens = {mail, rows, row.which};
    Cut cut;
    if (__reduce_max_sync(ALL_LANES, most) > rows.list_length ||
        !end_of_top_p(sh, row.weight, tokens, (u32)mail.window, (u32)(mail.window >> 32), warp_sum(above), limit, &cut))
        return lead_top_p_of_row<DTYPE>(pipe, limit);
    draw_within<DTYPE>(b, sh, row, tokens, cut);
    return true;
}

#endif
