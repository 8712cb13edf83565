// The exact end of a prefix of the order, over lists that the warps of a cluster have collected: every token above some
// value, a few percent of the row. One or two levels of 64 bins over the range of keys that is left, added up in
// every block by asynchronous reductions; once the bin in which the prefix ends is small, its tokens go to every block,
// and each puts them in order. No barrier, and the same integers in every block.

#if __CUDA_ARCH__ >= 900

// Most tokens of the last bin, ordered in shared memory.
constexpr u32 MAX_ORDERED = COUNT_BINS / 4;

// Puts the `n` tokens of `list.order`, no more than the block has threads, into their order: each finds its place by
// counting those ahead of it, several lanes a token where there are lanes to spare.
__device__ __forceinline__ void order_candidates(Shared& sh, u32 n) {
    u64* order = sh.list.order;
    u32 lanes = 1u << min(31 - __clz(thread_count() / n), 5);
    u32 token = thread_id() / lanes, lane = thread_id() % lanes;
    u64 own = token < n ? order[token] : 0;
    u32 ahead = 0;
#pragma unroll 4
    for (u32 i = lane; i < n; i += lanes) ahead += order[i] > own ? 1 : 0;
    for (u32 d = lanes >> 1; d > 0; d >>= 1) ahead += __shfl_xor_sync(ALL_LANES, ahead, d);
    team_barrier();
    if (token < n && lane == 0) order[ahead] = own;
    team_barrier();
}

// The end of the prefix of tokens whose preceding amount (`weight` says of what) is at most `limit`. Every token with a
// key of at least `low` is in a list, none has a key above `high`, and the prefix ends among them. False where that
// cannot be told in the levels there are: too many tokens share a key, or nearly.
template <class C, class W>
__device__ __noinline__ bool cut_lists(Shared& sh, const C copy, const WarpList list, const W weight, u32 low, u32 high,
                                       u64 limit, Cut* cut) {
    u64 ahead = 0;
    u32 inside = 0;
#pragma unroll 1
    for (u32 level = 0;; level++) {
        if (level == CUT_LEVELS) return false;
        u32 span = high - low, shift = span < CUT_BINS ? 0 : 26 - __clz(span);
        team_barrier();
        if (thread_id() < CUT_BINS) {
            for (u32 p = 0; p < 3; p++) sh.level.pieces[p][thread_id()] = 0;
            sh.level.tokens[thread_id()] = 0;
        }
        if (thread_id() == 0) completion_expect(&sh.levels[level], cluster_size() * CUT_BINS * 12);
        team_barrier();
#pragma unroll 1
        for (u32 i = lane_id(); i < list.count; i += 32) {
            float x = copy.value(list.from + list.places[i]);
            u32 k = key_of(x);
            if (k < low || k > high) continue;
            u32 bin = (k - low) >> shift;
            atomicAdd(&sh.level.tokens[bin], 1u);
            if constexpr (!W::COUNTS) {
                u64 m = weight.amount(x);
                atomicAdd(&sh.level.pieces[0][bin], (u32)m & 0x3fffu);
                atomicAdd(&sh.level.pieces[1][bin], (u32)(m >> 14) & 0x3fffu);
                atomicAdd(&sh.level.pieces[2][bin], (u32)(m >> 28));
            }
        }
        team_barrier();
        for (u32 i = thread_id(); i < CUT_BINS * cluster_size(); i += thread_count()) {
            u32 bin = i % CUT_BINS, to = i / CUT_BINS;
            u64 mass = sh.level.tokens[bin];
            if constexpr (!W::COUNTS)
                mass = sh.level.pieces[0][bin] + ((u64)sh.level.pieces[1][bin] << 14) + ((u64)sh.level.pieces[2][bin] << 28);
            push_add(to, &sh.level_mass[level][bin], mass, &sh.levels[level]);
            push_add(to, &sh.level_tokens[level][bin], sh.level.tokens[bin], &sh.levels[level]);
        }
        completion_wait(&sh.levels[level]);
        // Each warp walks on its own, a lane two bins, the highest first.
        u32 bin = CUT_BINS - 1 - 2 * lane_id();
        u64 mass[2] = {sh.level_mass[level][bin], sh.level_mass[level][bin - 1]};
        u32 tokens[2] = {sh.level_tokens[level][bin], sh.level_tokens[level][bin - 1]};
        u64 before = ahead + warp_scan(mass[0] + mass[1]) - mass[0] - mass[1];
        u32 hit = before <= limit && tokens[0] != 0 ? 1 : 0;
        if (before + mass[0] <= limit && tokens[1] != 0) hit = 2;
        u32 lane = 31 - __clz(__ballot_sync(ALL_LANES, hit != 0));
        if (lane > 31) return false;
        hit = __shfl_sync(ALL_LANES, hit, lane);
        ahead = __shfl_sync(ALL_LANES, before + (hit == 2 ? mass[0] : 0), lane);
        inside = __shfl_sync(ALL_LANES, hit == 2 ? tokens[1] : tokens[0], lane);
        low += (CUT_BINS - 2 * lane - hit) << shift;
        // The range ends with the largest key there is: near +inf the bin's own end may lie past the last key.
        u32 last = low + ((1u << shift) - 1);
        if (last >= low && last < high) high = last;
        if (inside <= min(MAX_ORDERED, thread_count())) {
            team_barrier();
            if (thread_id() == 0) {
                completion_expect(&sh.exchanges[2], inside * 8);
                sh.candidates = 0;
            }
            team_barrier();
            u64* found = sh.list.masses;
#pragma unroll 1
            for (u32 i = lane_id(); i < list.count; i += 32) {
                u32 place = list.from + list.places[i], k = key_of(copy.value(place));
                if (k >= low && k <= high) found[atomicAdd(&sh.candidates, 1u)] = (u64)k << 32 | ~(place - copy.lead);
            }
            team_barrier();
            u32 own = sh.candidates;
            if (thread_id() == 0) sh.owner = own != 0 ? reserve(0, &sh.gathered, own) : 0;
            team_barrier();
            u32 first = (u32)sh.owner;
            for (u32 i = thread_id(); i < own * cluster_size(); i += thread_count())
                push(i / own, &sh.list.order[first + i % own], found[i % own], &sh.exchanges[2]);
            completion_wait(&sh.exchanges[2]);
            team_barrier();
            order_candidates(sh, inside);
            break;
        }
    }
    // The last token in the order whose preceding amount is within the limit; there is a thread for each.
    u64 x = sh.list.order[thread_id() < inside ? thread_id() : 0];
    bool here = thread_id() < inside;
    u64 own = here ? weight.amount(value_of_key((u32)(x >> 32))) : 0;
    u64 before = ahead + block_scan_before(sh, own);
    u32 kept = (u32)block_max(sh, here && before <= limit ? thread_id() + 1 : 0);
    x = sh.list.order[kept - 1];
    *cut = Cut{(u32)(x >> 32), ~(u32)x};
    return true;
}

#endif
