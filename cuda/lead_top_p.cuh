// The end of a row with top-p alone, by the lead: the last token kept, and the draw, from the listed tokens. Its steps serve the whole
// row as well.

#if __CUDA_ARCH__ >= 900

// Adds tokens to the bins of their keys, in step for all lanes: `n` of this lane in one bin, of mass `m` together.
__device__ __forceinline__ void add_to_bin(Shared& sh, u32 n, u32 bin, u64 m) {
    auto add = [&](u32 at, u32 tokens, u64 mass) {
        atomicAdd(&sh.cut.tokens[at], tokens);
        atomicAdd(&sh.cut.pieces[0][at], (u32)mass & 0x3fffu);
        atomicAdd(&sh.cut.pieces[1][at], (u32)(mass >> 14) & 0x3fffu);
        atomicAdd(&sh.cut.pieces[2][at], (u32)(mass >> 28));
    };
    u32 who = __ballot_sync(ALL_LANES, n != 0);
    if (who == 0) return;
    u32 first = __shfl_sync(ALL_LANES, bin, __ffs((i32)who) - 1);
    // Many equal tokens would stand in line for one word.
    if (__popc(who) > 1 && __all_sync(ALL_LANES, n == 0 || bin == first)) {
        u64 sum = warp_sum(n != 0 ? m : 0);
        n = __reduce_add_sync(ALL_LANES, n);
        if (lane_id() == 0) add(first, n, sum);
    } else if (n != 0) {
        add(bin, n, m);
    }
}

// The sum of f(token) over this thread's part, 0 where there is none.
template <class Tokens, class F>
__device__ __forceinline__ u64 sum_of_part(Shared& sh, const Tokens& tokens, F f) {
    team_barrier();
    tokens.sums(f, [&](u32 part, u64 sum) {
        if (lane_id() == 0) sh.list.masses[part] = sum;
    });
    team_barrier();
    return thread_id() < tokens.rows.blocks * MASS_WARPS ? sh.list.masses[thread_id()] : 0;
}

// The id of the n-th token, from 1 and by id, that has the key; there are as many.
template <class Tokens>
__device__ __forceinline__ u32 nth_equal(Shared& sh, const Tokens& tokens, u32 key, u32 n) {
    u64 own = sum_of_part(sh, tokens, [&](u64 x) -> u64 { return (u32)(x >> 32) == key ? 1 : 0; });
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

// Puts the tokens with keys from `low` to `high`, of which `list.order` has room for all, there.
template <class Tokens>
__device__ __forceinline__ void gather(Shared& sh, const Tokens& tokens, u32 low, u32 high) {
    if (thread_id() == 0) sh.candidates = 0;
    team_barrier();
    tokens.all([&](const u64* x) {
        for (u32 k = 0; k < Tokens::AT_ONCE; k++) {
            u32 key = (u32)(x[k] >> 32);
            if (x[k] != 0 && key >= low && key <= high) sh.list.order[atomicAdd(&sh.candidates, 1u)] = x[k];
        }
    });
    team_barrier();
}

// What counts of a token with a key: its mass, or the token.
struct ByMass {
    Weight weight;
    __device__ __forceinline__ u64 operator()(u32 key) const { return weight.amount(value_of_key(key)); }
};
struct ByCount {
    __device__ __forceinline__ u64 operator()(u32) const { return 1; }
};

// The last token of which no more than `limit` is ahead, by bins over the keys from `low` to `high`; `ahead` is ahead of all these.
// False where it is not one of them.
template <class Tokens, class Amount>
__device__ __forceinline__ bool end_of_prefix(Shared& sh, const Tokens& tokens, const Amount& amount, u32 low, u32 high, u64 ahead,
                                              u64 limit, Cut* cut) {
    if (ahead > limit) return false;
    u32 inside = 0;
#pragma unroll 1
    for (bool first = true;; first = false) {
        u32 span = high - low, shift = span < MASS_BINS ? 0 : 24 - __clz(span);
        team_barrier();
        for (u32 p = 0; p < 3; p++) sh.cut.pieces[p][thread_id()] = 0;
        sh.cut.tokens[thread_id()] = 0;
        team_barrier();
        tokens.all([&](const u64* x) {
            auto here = [&](u64 token) { return token != 0 && (u32)(token >> 32) >= low && (u32)(token >> 32) <= high; };
            auto bin = [&](u64 token) { return ((u32)(token >> 32) - low) >> shift; };
            if constexpr (Tokens::NEIGHBOURS) {
                u32 n = 0, own = 0;
                u64 sum = 0;
                bool alike = true;
                for (u32 k = 0; k < Tokens::AT_ONCE; k++) {
                    if (!here(x[k])) continue;
                    alike = alike && (n == 0 || own == bin(x[k]));
                    own = bin(x[k]), n++, sum += amount((u32)(x[k] >> 32));
                }
                if (__all_sync(ALL_LANES, alike)) return add_to_bin(sh, n, own, sum);
            }
            for (u32 k = 0; k < Tokens::AT_ONCE; k++)
                add_to_bin(sh, here(x[k]) ? 1 : 0, bin(x[k]), here(x[k]) ? amount((u32)(x[k] >> 32)) : 0);
        });
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
            u64 one = amount(low), more = one != 0 ? (limit - ahead) / one : inside;
            u32 kept = more < inside ? (u32)more + 1 : inside;
            *cut = Cut{low, nth_equal(sh, tokens, low, kept)};
            return true;
        }
    }
    gather(sh, tokens, low, high);
    order_candidates(sh, inside);
    u64 x = sh.list.order[thread_id() < inside ? thread_id() : 0];
    u64 own = thread_id() < inside ? amount((u32)(x >> 32)) : 0;
    u64 before = ahead + block_scan_before(sh, own);
    u32 kept = (u32)block_max(sh, thread_id() < inside && before <= limit ? thread_id() + 1 : 0);
    x = sh.list.order[kept - 1];
    *cut = Cut{(u32)(x >> 32), ~(u32)x};
    return true;
}

// Draws from the tokens within the cut, of which those above `tokens` are known by their mass.
template <u32 DTYPE, class Tokens>
__device__ __forceinline__ void draw_within(Pipe& pipe, const Tokens& tokens, const Cut& cut) {
    Shared& sh = pipe.shared;
    const Weight weight = pipe.ending.weight;
    auto kept = [&](float x, u32 id) -> u64 { return cut.has(key_of(x), id) ? weight.kept_mass(x) : 0; };
    u64 own = sum_of_part(sh, tokens, [&](u64 x) { return x != 0 ? kept(value_of_key((u32)(x >> 32)), ~(u32)x) : 0; });
    if (thread_id() < tokens.rows.blocks * MASS_WARPS) own += tokens.above(thread_id());
    Parts parts = parts_of(sh, own);
    if (VERIFIES && !judge_by_lead<DTYPE>(pipe, cut, parts)) return;
    lead_find<DTYPE>(pipe, parts, kept);
}

// Draws from what top-p keeps of a row whose likely tokens are few and collected by the blocks; false where they are too many, or more
// than these are kept.
__device__ __noinline__ bool lead_few(Pipe& pipe) {
    const Rows& rows = pipe.rows;
    Shared& sh = pipe.shared;
    __builtin_assume(__isShared(&pipe));
    const Ending& row = pipe.ending;
    u32 n = gather_found(pipe, rows.block_list(), [&](u32 r, u32 i) { return __ldcg(rows.list(rows.rank, row.which, r * MASS_WARPS) + i); });
    if (n == 0) return false;
    u64 whole = mass_of_row(pipe);
    order_candidates(sh, n);
    Params params = row.found.params;
    params.top_k = n;
    Kept kept = keep_candidates(sh, row.weight, params, n, whole);
    // The mass of all n.
    if (kept.count == n && sh.owner_before <= multiply_shift(whole, params.top_p, 32)) return false;
    if (VERIFIES) {
        conclude_few(pipe, kept, sh.list.masses);
        return true;
    }
    find_candidate(sh, sh.list.masses, kept.count, scale_bits(row.bits, kept.mass),
                   [&](u32 i) { store_candidate(pipe.block, sh, row.row_index, row.weight, kept, i, row.status); });
    return true;
}

// Draws from what top-p keeps of a row; false where its end is not among the listed tokens.
template <u32 DTYPE>
__device__ __noinline__ bool lead_top_p(Pipe& pipe) {
    const Rows& rows = pipe.rows;
    Shared& sh = pipe.shared;
    __builtin_assume(__isShared(&pipe));
    const Ending& row = pipe.ending;
    const Mail& mail = pipe.mails[row.which];
    if (row.weight.max == PLUS_INF) return false;
    if (mail.window >> 32 == 0) return lead_few(pipe);
    u32 parts = rows.blocks * MASS_WARPS, most = 0;
    u64 above = 0;
    for (u32 i = lane_id(); i < parts; i += 32) {
        most = umax(most, listed_count(mail.listed[i]));
        above += mass_above_listed(mail.listed[i]);
    }
    u64 limit = multiply_shift(mass_of_row(pipe), row.found.params.top_p, 32);
    Listed tokens = {mail, rows, row.which};
    Cut cut;
    if (__reduce_max_sync(ALL_LANES, most) > rows.list_length ||
        !end_of_prefix(sh, tokens, ByMass{row.weight}, (u32)mail.window, (u32)(mail.window >> 32), warp_sum(above), limit, &cut))
        return false;
    draw_within<DTYPE>(pipe, tokens, cut);
    return true;
}

#endif
