// The token a draw falls on, in a row that lies in the shared memory of a cluster: found by the block that owns it, with
// all of its threads, in the part of the warp that owns it. Which masses are drawn from is the caller's to say: those of
// the kept tokens, or what a draft leaves of them.

#if __CUDA_ARCH__ >= 900

// The kept masses as they are.
struct AllOfIt {
    __device__ __forceinline__ u64 operator()(u32, u64 mass) const { return mass; }
};

// Whether this block owns the draw of `target`.
__device__ __forceinline__ bool owns(const Sums& sums, u64 target) {
    return target >= sums.mass_before && target - sums.mass_before < sums.mass_own;
}

// The warp of this block that owns `target`, which this block does, and what lies before it; `sh.scan` holds the warps'
// masses.
__device__ __forceinline__ u32 owner_of(const Shared& sh, u64 target, u64* running) {
    u32 warp = 0;
#pragma unroll 1
    for (; warp + 1 < warp_count() && target - *running >= sh.scan[warp]; warp++) *running += sh.scan[warp];
    return warp;
}

// Among all tokens of this block, which owns `target`; `left(place, kept mass)` says what is drawn from. Calls
// `found(place, value)` in one thread.
template <class C, class Left, class Found>
__device__ __forceinline__ void find_in_part(Shared& sh, const C& copy, const Weight& weight, const Sums& sums, u64 target,
                                             Left left, Found found) {
    u64 running = sums.mass_before;
    u32 from, to;
    copy.part_of(owner_of(sh, target, &running), &from, &to);
    u32 each = ((to - from) / 4 + thread_count() - 1) / thread_count() * 4;
    from = min(from + thread_id() * each, to);
    to = min(from + each, to);
    u64 own = 0;
#pragma unroll 1
    for (u32 place = from; place < to; place += 4) {
        float x[4];
        copy.load4(place, x);
        for (u32 e = 0; e < 4; e++) own += left(place + e, weight.kept_mass(x[e]));
    }
    running += block_scan_before(sh, own);
    if (target < running || target - running >= own) return;
#pragma unroll 1
    for (u32 place = from; place < to; place += 4) {
        float x[4];
        copy.load4(place, x);
        for (u32 e = 0; e < 4; e++) {
            u64 through = running + left(place + e, weight.kept_mass(x[e]));
            if (running <= target && target < through) found(place + e, x[e]);
            running = through;
        }
    }
}

// The same among the tokens its warps have listed, of which `cut` keeps a prefix; their counts are in `sh.offers`.
template <class C, class Left, class Found>
__device__ __forceinline__ void find_in_lists(Shared& sh, const C& copy, const Weight& weight, const Cut& cut,
                                              const Sums& sums, u64 target, Left left, Found found) {
    u64 running = sums.mass_before;
    u32 warp = owner_of(sh, target, &running), from, end;
    copy.part_of(warp, &from, &end);
    const u16* places = copy.lists() + warp * copy.list_capacity();
    u32 count = sh.offers[warp];
    // A warp's list is no longer than a few times the threads.
    u32 each = (count + thread_count() - 1) / thread_count(), first = min(thread_id() * each, count);
    u32 last = min(first + each, count);
    auto mass = [&](u32 i) {
        u32 place = from + places[i];
        return left(place, listed_mass(copy, weight, cut, place));
    };
    u64 own = 0;
#pragma unroll 1
    for (u32 i = first; i < last; i++) own += mass(i);
    running += block_scan_before(sh, own);
    if (target < running || target - running >= own) return;
#pragma unroll 1
    for (u32 i = first; i < last; i++) {
        u64 through = running + mass(i);
        if (running <= target && target < through) found(from + places[i], copy.value(from + places[i]));
        running = through;
    }
}

#endif
