// The end of a row by the lead's eight warps, from what the blocks of the cluster have sent. No road needs the others again:
// what the lead wants to know of the row beyond the mail it reads from global memory.

#if __CUDA_ARCH__ >= 900

// The value at index i of a row in global memory, masked, NaN removed.
template <class E>
__device__ __forceinline__ float value_at(const Resolved& found, u32 i) {
    const u32* mask = (const u32*)found.mask;
    if (mask != 0 && !(__ldg(mask + i / 32) >> (i % 32) & 1)) return MINUS_INF;
    return clean(E::widen(__ldg((const typename E::Bits*)found.values + i)));
}

// Draws from all tokens that min-p keeps: the warps' sums say in which part of the row the draw falls, and that part is
// gone over once more. False for a row without mass.
template <u32 DTYPE>
__device__ __noinline__ bool lead_draw(const RowBlock& b, Shared& sh, const Mail& mail, const Rows& rows, u64 row_index,
                                          const Resolved& found, const Weight& weight, i32 status, u64 bits) {
    typedef Copy<DTYPE> C;
    typedef Element<DTYPE> E;
    // A function that is called has lost sight of where its references lead.
    __builtin_assume(__isShared(&sh));
    __builtin_assume(__isShared(&mail));
    u32 parts = rows.blocks * MASS_WARPS;
    u64 own = thread_id() < parts ? mail.sums[thread_id()] : 0;
    u64 before = block_scan_before(sh, own);
    if (thread_id() == LEAD_THREADS - 1) sh.found = before + own;
    team_barrier();
    u64 total = sh.found;
    if (total == 0) return false;
    u64 target = scale_bits(bits, total);
    if (before <= target && target - before < own) sh.owner = thread_id(), sh.owner_before = before;
    team_barrier();
    C copy(0, found.values, b.vocab);
    u32 from = (u32)sh.owner * copy.part, to = min(from + copy.part, copy.lead + copy.len);
    u32 each = ((to - from) + LEAD_THREADS - 1) / LEAD_THREADS;
    from = min(from + thread_id() * each, to), to = min(from + each, to);
    // Places ahead of the row hold nothing.
    from = max(from, copy.lead);
    own = 0;
#pragma unroll 4
    for (u32 place = from; place < to; place++) own += weight.kept_mass(value_at<E>(found, place - copy.lead));
    u64 running = sh.owner_before + block_scan_before(sh, own);
    if (target < running || target - running >= own) return true;
#pragma unroll 1
    for (u32 place = from; place < to; place++) {
        float x = value_at<E>(found, place - copy.lead);
        running += weight.kept_mass(x);
        if (running <= target) continue;
        store_token(b, row_index, (i64)(place - copy.lead));
        store<i32>(b.status, row_index, status);
        if (b.logprobs != 0)
            store<float>(b.logprobs, row_index, logprob_of_exponent(weight.exponent(x), log2_total(total)));
        break;
    }
    return true;
}

// Draws from the candidates of a small top-k; false where they are too few or too many.
__device__ __noinline__ bool lead_list(const RowBlock& b, Shared& sh, const Mail& mail, const Rows& rows, u64 row_index,
                                          const Params& params, const Weight& weight, i32 status, u64 bits) {
    __builtin_assume(__isShared(&sh));
    __builtin_assume(__isShared(&mail));
    u32 share = min(MAIL_CANDIDATES / rows.blocks, BLOCK_CANDIDATES);
    u32 count = lane_id() < rows.blocks ? Fact{mail.facts[lane_id()]}.count() : 0;
    bool over = __any_sync(ALL_LANES, count > share);
    u32 through = warp_scan(count), n = __shfl_sync(ALL_LANES, through, 31);
    if (over || n < params.top_k || n > min(MAX_CANDIDATES, LEAD_THREADS)) return false;
    for (u32 r = warp_id(); r < rows.blocks; r += LEAD_THREADS / 32) {
        u32 own = __shfl_sync(ALL_LANES, count, r), at = __shfl_sync(ALL_LANES, through, r) - own;
        for (u32 i = lane_id(); i < own; i += 32) sh.list.order[at + i] = mail.candidates[r * share + i];
    }
    bool joint = params.top_p != SD_TOP_P_OFF && !params.top_k_first;
    u64 whole = 0;
    if (joint) {
        for (u32 i = lane_id(); i < rows.blocks * MASS_WARPS; i += 32) whole += mail.sums[i];
        whole = warp_sum(whole);
    }
    team_barrier();
    order_candidates(sh, n);
    draw_from_list(b, sh, row_index, weight, params, whole, status, bits);
    return true;
}

// Draws from what top-p keeps of the listed tokens; false where the lists do not hold all of that, or where too many of
// them share a key.
__device__ __noinline__ bool lead_cut(const RowBlock& b, Shared& sh, const Mail& mail, const Rows& rows, u64 row_index,
                                         u32 which, const Params& params, const Weight& weight, i32 status, u64 bits) {
    __builtin_assume(__isShared(&sh));
    __builtin_assume(__isShared(&mail));
    u32 parts = rows.blocks * MASS_WARPS;
    u64 most = 0;
    for (u32 i = lane_id(); i < parts; i += 32) most = max(most, mail.sums[i]);
    if (warp_max(most) > rows.list_length) return false;
    u64 limit = multiply_shift(mail.whole, params.top_p, 32);
    // Calls f(key, id, k) for the tokens of eight parts, the k-th of them given to this warp each, then `done(part, k)`; eight
    // loads a lane are under way at a time.
    constexpr u32 AT_ONCE = 8, WARPS = LEAD_THREADS / 32;
    auto each = [&](auto f, auto done) {
#pragma unroll 1
        for (u32 first = warp_id(); first < parts; first += WARPS * AT_ONCE) {
            u32 part = first + (lane_id() & (AT_ONCE - 1)) * WARPS;
            u32 count = part < parts ? (u32)mail.sums[part] : 0, longest = __reduce_max_sync(ALL_LANES, count);
            const u64* list = rows.list(rows.rank, which, first);
#pragma unroll 1
            for (u32 i = lane_id(); i < (longest + 31) / 32 * 32; i += 32) {
                u64 x[AT_ONCE];
                for (u32 k = 0; k < AT_ONCE; k++)
                    x[k] = i < __shfl_sync(ALL_LANES, count, k) ? __ldcg(list + k * WARPS * rows.list_length + i) : 0;
                for (u32 k = 0; k < AT_ONCE; k++)
                    if (x[k] != 0) f((u32)(x[k] >> 32), ~(u32)x[k], k);
            }
            for (u32 k = 0; k < AT_ONCE; k++)
                if (first + k * WARPS < parts) done(first + k * WARPS, k);
        }
    };
    auto nothing = [](u32, u32) {};
    // Bins over the keys that are left, by mass; twice at most.
    u64 ahead = 0;
    u32 low = (u32)mail.lowest, high = key_of(weight.max), inside = 0;
#pragma unroll 1
    for (u32 level = 0;; level++) {
        if (level == 2) return false;
        u32 span = high - low, shift = span < MASS_BINS ? 0 : 24 - __clz(span);
        team_barrier();
        for (u32 p = 0; p < 3; p++) sh.cut.pieces[p][thread_id()] = 0;
        sh.cut.tokens[thread_id()] = 0;
        team_barrier();
        each([&](u32 key, u32, u32) {
            if (key < low || key > high) return;
            u32 bin = (key - low) >> shift;
            u64 m = weight.amount(value_of_key(key));
            atomicAdd(&sh.cut.tokens[bin], 1u);
            atomicAdd(&sh.cut.pieces[0][bin], (u32)m & 0x3fffu);
            atomicAdd(&sh.cut.pieces[1][bin], (u32)(m >> 14) & 0x3fffu);
            atomicAdd(&sh.cut.pieces[2][bin], (u32)(m >> 28));
        }, nothing);
        team_barrier();
        // A thread a bin, the highest first.
        u32 bin = MASS_BINS - 1 - thread_id(), tokens = sh.cut.tokens[bin];
        u64 mass = sh.cut.pieces[0][bin] + ((u64)sh.cut.pieces[1][bin] << 14) + ((u64)sh.cut.pieces[2][bin] << 28);
        u64 before = ahead + block_scan_before(sh, mass);
        u32 last = (u32)block_max(sh, before <= limit && tokens != 0 ? thread_id() + 1 : 0);
        if (last == 0) return false;
        if (thread_id() == last - 1) sh.walk_before = before, sh.walk_inside = tokens;
        team_barrier();
        ahead = sh.walk_before;
        inside = (u32)sh.walk_inside;
        low += (MASS_BINS - last) << shift;
        u32 end = low + ((1u << shift) - 1);
        if (end >= low && end < high) high = end;
        if (inside <= MAX_ORDERED) break;
    }
    if (thread_id() == 0) sh.candidates = 0;
    team_barrier();
    each([&](u32 key, u32 id, u32) {
        if (key >= low && key <= high) sh.list.order[atomicAdd(&sh.candidates, 1u)] = (u64)key << 32 | ~id;
    }, nothing);
    team_barrier();
    order_candidates(sh, inside);
    u64 x = sh.list.order[thread_id() < inside ? thread_id() : 0];
    u64 own = thread_id() < inside ? weight.amount(value_of_key((u32)(x >> 32))) : 0;
    u64 before = ahead + block_scan_before(sh, own);
    u32 kept = (u32)block_max(sh, thread_id() < inside && before <= limit ? thread_id() + 1 : 0);
    x = sh.list.order[kept - 1];
    Cut cut = {(u32)(x >> 32), ~(u32)x};
    // The kept masses of the parts, and the part the draw falls into; a part's list is no longer than the lead has threads.
    auto kept_mass = [&](u32 key, u32 id) -> u64 { return cut.has(key, id) ? weight.kept_mass(value_of_key(key)) : 0; };
    team_barrier();
    u64 sums[AT_ONCE] = {};
    each([&](u32 key, u32 id, u32 k) { sums[k] += kept_mass(key, id); },
         [&](u32 part, u32 k) {
             u64 sum = warp_sum(sums[k]);
             if (lane_id() == 0) sh.list.masses[part] = sum;
             sums[k] = 0;
         });
    team_barrier();
    own = thread_id() < parts ? sh.list.masses[thread_id()] : 0;
    before = block_scan_before(sh, own);
    if (thread_id() == LEAD_THREADS - 1) sh.found = before + own;
    team_barrier();
    u64 total = sh.found, target = scale_bits(bits, total);
    if (before <= target && target - before < own) sh.owner = thread_id(), sh.owner_before = before;
    team_barrier();
    // That part's kept tokens, each by a thread, which adds up those before it.
    const u64* list = rows.list(rows.rank, which, (u32)sh.owner);
    u32 count = (u32)mail.sums[sh.owner];
    u64 y = thread_id() < count ? __ldcg(list + thread_id()) : 0;
    u32 id = ~(u32)y;
    own = thread_id() < count ? kept_mass((u32)(y >> 32), id) : 0;
    sh.list.order[thread_id()] = id;
    sh.list.masses[thread_id()] = own;
    team_barrier();
    u64 running = sh.owner_before;
    if (own == 0) return true;
#pragma unroll 4
    for (u32 i = 0; i < count; i++) running += (u32)sh.list.order[i] < id ? sh.list.masses[i] : 0;
    if (target < running || target - running >= own) return true;
    store_token(b, row_index, (i64)id);
    store<i32>(b.status, row_index, status);
    if (b.logprobs != 0) {
        float t = weight.exponent(value_of_key((u32)(y >> 32)));
        store<float>(b.logprobs, row_index, logprob_of_exponent(t, log2_total(total)));
    }
    return true;
}

// The last road, from global memory.
__device__ __noinline__ void lead_any(const RowBlock& b, Shared& sh, u64 row_index, const Resolved found) {
    Block team(sh);
    Global<Block> source(team, found.values, found.mask, 0, b.logits_dtype, b.vocab);
    i32 status = 0;
    float max = row_max(source, &status);
    sample_row(b, row_index, found.params, source, max, status);
}

template <u32 DTYPE>
__device__ __noinline__ void lead(const RowBlock& b, Pipe& pipe, Shared& sh, const Rows& rows) {
    __builtin_assume(__isShared(&pipe));
    __builtin_assume(__isShared(&sh));
    __builtin_assume(__isShared(&rows));
    cluster_wait_started();
    u32 turn = 0;
    for (u32 j = rows.rank; j < rows.count; j += rows.blocks, turn++) {
        u64 row_index = rows.first + (u64)j * rows.step;
        u32 which = turn & 1, parity = turn / MAILS & 1;
        const Mail& mail = pipe.mails[which];
        if (thread_id() == 0) completion_expect(&pipe.mailed[which], (rows.blocks * (MASS_WARPS + 1) + 2) * 8);
        Resolved found = resolve(b, row_index);
        u64 bits = 0;
        if (found.state == ROW_LIVE && b.positions != 0)
            bits = draw_bits(b, row_index, row_index, 0, found.params.seed, SD_CASE_FRESH);
        completion_wait(&pipe.mailed[which], parity);
        u32 share = min(MAIL_CANDIDATES / rows.blocks, BLOCK_CANDIDATES);
        u32 listed = lane_id() < rows.blocks ? min(Fact{mail.facts[lane_id()]}.count(), share) : 0;
        listed = __reduce_add_sync(ALL_LANES, listed);
        if (thread_id() == 0) completion_expect(&pipe.listed[which], listed * 8);
        completion_wait(&pipe.listed[which], parity);
        Fact fact = {mail.facts[0]};
        float max = fact.max();
        bool nan = fact.nan();
        Road road = fact.road();
        i32 status = (nan ? SD_STATUS_NAN_LOGITS : 0) | (max == PLUS_INF ? SD_STATUS_INF_LOGITS : 0);
        // -0, so that a token of either zero is +0 away from it, as the first of the largest tokens is from itself.
        max = max == 0.0f ? -0.0f : max;
        Weight weight = {max, found.params.scale, found.params.min_exponent};
        bool done = false;
        if (max != MINUS_INF) {
            if (road == ROAD_DRAW) done = lead_draw<DTYPE>(b, sh, mail, rows, row_index, found, weight, status, bits);
            if (road == ROAD_LIST) done = lead_list(b, sh, mail, rows, row_index, found.params, weight, status, bits);
            if (road == ROAD_CUT) done = lead_cut(b, sh, mail, rows, row_index, which, found.params, weight, status, bits);
        }
        if (!done && found.state == ROW_LIVE) lead_any(b, sh, row_index, found);
        if (found.state == ROW_BAD) store_bad(b, row_index, Block(sh));
        // The row's mail and this block's shared memory are free again.
        team_barrier();
        if (thread_id() < rows.blocks) completion_arrive_at(thread_id(), &pipe.credit[rows.rank][which]);
    }
}

#endif
