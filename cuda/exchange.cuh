// What the blocks of a cluster tell each other while they process a row: pushed into every peer's shared memory and
// counted there, so that nobody waits for more than the bytes it needs. No barrier after the first.

#if __CUDA_ARCH__ >= 900

// Sets the completions and counters up and tells the cluster; by all threads, before anything else.
__device__ __forceinline__ void start_block(Shared& sh) {
    if (thread_id() == 0) {
        for (u32 c = 0; c < CHUNKS; c++) completion_init(&sh.arrivals[c]);
        for (u32 i = 0; i < EXCHANGES; i++) completion_init(&sh.exchanges[i]);
        for (u32 i = 0; i < CUT_LEVELS; i++) completion_init(&sh.levels[i]);
        completion_init(&sh.listed);
        completions_ready();
        completion_expect(&sh.exchanges[0], cluster_size() * 8);
        sh.candidates = sh.gathered = 0;
    }
    if (thread_id() < CUT_BINS) {
        sh.rough_mass[thread_id()] = 0;
        for (u32 level = 0; level < CUT_LEVELS; level++)
            sh.level_mass[level][thread_id()] = 0, sh.level_tokens[level][thread_id()] = 0;
    }
    // Peers add to the bins only after this block's first push.
    team_barrier();
    cluster_started();
}

// What is asked of the blocks for a bound that at least `top_k` tokens reach: each tells the largest key that `need` of its tokens
// reach, and the bound is the least of these but for some blocks that can be left out. The more are asked for, the more can be left
// out and the fewer tokens reach the bound: without any to spare, 128 of 16 blocks are passed by more than twice as many in four of
// ten rows of random order.
struct Asked {
    u32 need, spare;
};

// What is asked of `blocks`, which tell no more than `most`; nothing where that is not enough.
__device__ __forceinline__ Asked ask_blocks(u64 top_k, u32 blocks, u32 most) {
    u32 k = (u32)top_k, least = (k + blocks - 1) / blocks;
    // A row that is not live asks for none.
    if (least == 0 || least > most) return Asked{0, 0};
    u32 need = blocks > 8 || k > 64 ? min((k * 4 / 3 + blocks - 1) / blocks, most) : least;
    return Asked{need, (need * blocks - k) / need};
}

// The least of the lanes' keys but for some.
__device__ __forceinline__ u32 least_but(u32 key, u32 spare) {
#pragma unroll 1
    for (; spare > 0; spare--) {
        u32 least = __reduce_min_sync(ALL_LANES, key);
        if (lane_id() == __ffs((i32)__ballot_sync(ALL_LANES, key == least)) - 1) key = 0xffffffffu;
    }
    return __reduce_min_sync(ALL_LANES, key);
}

// What the cluster agrees on with the maximum; `bound` is a key, for which see Asked.
struct Agreed {
    float max;
    u32 bound;
    bool nan;
};

// Takes one of the lanes' largest values out and returns it.
__device__ __forceinline__ u32 take_max(u32& key) {
    u32 top = __reduce_max_sync(ALL_LANES, key);
    if (lane_id() == __ffs((i32)__ballot_sync(ALL_LANES, key == top)) - 1) key = 0;
    return top;
}

// One exchange of what the first warp of each block knows of its block.
__device__ __forceinline__ Agreed agree(Shared& sh, u32 top, u32 bound, bool nan, u32 spare) {
    cluster_wait_started();
    // The lowest bit of the bound gives way to the NaN flag; a bound may be lower than it need be.
    if (thread_id() < cluster_size())
        push(thread_id(), &sh.pushed_max[cluster_rank()], (u64)top << 32 | (bound & ~1u) | (nan ? 1 : 0), &sh.exchanges[0]);
    completion_wait(&sh.exchanges[0]);
    u64 x = (lane_id() & 15) < cluster_size() ? sh.pushed_max[lane_id() & 15] : 0xfffffffeull;
    float found = value_of_key(__reduce_max_sync(ALL_LANES, (u32)(x >> 32)));
    // -0, so that a token of either zero is +0 away from it, as the first of the largest tokens is from itself.
    found = found == 0.0f ? -0.0f : found;
    u32 told = lane_id() < cluster_size() ? (u32)x & ~1u : 0xffffffffu;
    return Agreed{found, least_but(told, spare), __reduce_or_sync(ALL_LANES, (u32)x & 1) != 0};
}

// Largest values each warp offers for the bound of `need` tokens of its block.
__device__ __forceinline__ u32 offers(u32 need) { return min((need + warp_count() - 1) / warp_count() * 2, 32u); }

// Most tokens of a block that a bound can be asked of: a warp's lanes.
constexpr u32 MOST_ASKED = 32;

// One exchange. The warps' offers are at most 64 together.
__device__ __forceinline__ Agreed push_max(Shared& sh, float max, bool nan, const Asked& asked) {
    u32 need = umax(asked.need, 1), each = offers(need), key = key_of(max);
#pragma unroll 1
    for (u32 i = 0; i < each; i++) {
        u32 top = take_max(key);
        if (lane_id() == 0) sh.offers[warp_id() * each + i] = top;
    }
    bool any = team_any(nan) != 0;
    u32 top = 0, bound = 0;
    if (warp_id() == 0) {
        u32 n = each * warp_count();
        u32 upper = lane_id() < n ? sh.offers[lane_id()] : 0, lower = lane_id() + 32 < n ? sh.offers[lane_id() + 32] : 0;
        top = bound = __reduce_max_sync(ALL_LANES, umax(upper, lower));
#pragma unroll 1
        for (u32 i = 0; i < need; i++) {
            // A lane's larger value goes first.
            if (lower > upper) {
                u32 swap = lower;
                lower = upper;
                upper = swap;
            }
            bound = take_max(upper);
        }
    }
    return agree(sh, top, bound, any, asked.spare);
}

// Sums over the cluster: a mass, and `sh.candidates` of every block. One exchange, of one array each; `sh.scan` holds the
// warps' masses afterwards.
struct Sums {
    u64 mass_before, mass_own, mass;
    u32 count_before, count;
};

__device__ __forceinline__ Sums push_sums(Shared& sh, u64 mass, u64* exchange, u64* masses, u64* counts) {
    mass = warp_sum(mass);
    // Slower warps may still be reading what the scan before this one left.
    team_barrier();
    if (lane_id() == 0) sh.scan[warp_id()] = mass;
    if (thread_id() == 0) completion_expect(exchange, cluster_size() * 16);
    team_barrier();
    if (warp_id() == 0) {
        u64 sum = warp_sum(lane_id() < warp_count() ? sh.scan[lane_id()] : 0);
        if (lane_id() < cluster_size()) {
            push(lane_id(), &masses[cluster_rank()], sum, exchange);
            push(lane_id(), &counts[cluster_rank()], sh.candidates, exchange);
        }
    }
    completion_wait(exchange);
    bool here = lane_id() < cluster_size();
    u64 x = here ? masses[lane_id()] : 0;
    u32 n = here ? (u32)counts[lane_id()] : 0, rank = cluster_rank();
    return Sums{warp_sum(lane_id() < rank ? x : 0),
                __shfl_sync(ALL_LANES, x, rank),
                warp_sum(x),
                __reduce_add_sync(ALL_LANES, lane_id() < rank ? n : 0),
                __reduce_add_sync(ALL_LANES, n)};
}

__device__ __forceinline__ Sums push_sums(Shared& sh, u64 mass, u64* exchange) {
    return push_sums(sh, mass, exchange, sh.pushed_mass, sh.pushed_count);
}

// A warp's tokens: their places in the warp's part, ascending.
struct WarpList {
    u16* places;
    u32 count;
    // First place of the warp's part.
    u32 from;
};

// Lists this warp's tokens whose value `wanted` holds for, ids ascending. The count may pass the capacity.
template <class C, class Wanted>
__device__ __forceinline__ WarpList list_tokens(const C& copy, Wanted wanted) {
    WarpList list;
    u32 end;
    copy.part_of(warp_id(), &list.from, &end);
    list.places = copy.lists() + warp_id() * copy.list_capacity();
    list.count = 0;
#pragma unroll 1
    for (u32 base = list.from; base < end; base += 128) {
        u32 place = base + lane_id() * 4, hits = 0;
        if (place < end) {
            float x[4];
            copy.load4(place, x);
            for (u32 e = 0; e < 4; e++) hits |= (wanted(x[e]) && place + e - copy.lead < copy.len ? 1u : 0u) << e;
        }
        if (!__any_sync(ALL_LANES, hits != 0)) continue;
        Hits found(hits);
        u32 at = list.count + found.before;
        for (u32 e = 0; e < 4; e++) {
            if ((hits >> e & 1) && at < copy.list_capacity()) list.places[at] = (u16)(place + e - list.from);
            at += hits >> e & 1;
        }
        list.count += found.all;
    }
    return list;
}

// What the lists of the cluster hold together; all of a block's threads. Lists that ran over make it 2^32.
template <class C>
__device__ __forceinline__ u64 push_listed(Shared& sh, const C& copy, const WarpList& list) {
    bool over = team_any(list.count > copy.list_capacity());
    if (lane_id() == 0) sh.offers[warp_id()] = list.count;
    if (thread_id() == 0) completion_expect(&sh.listed, cluster_size() * 8);
    team_barrier();
    if (warp_id() == 0) {
        u32 count = __reduce_add_sync(ALL_LANES, lane_id() < warp_count() ? sh.offers[lane_id()] : 0);
        if (lane_id() < cluster_size())
            push(lane_id(), &sh.pushed_listed[cluster_rank()], over ? 1ull << 32 : count, &sh.listed);
    }
    completion_wait(&sh.listed);
    u64 sum = warp_sum(lane_id() < cluster_size() ? sh.pushed_listed[lane_id()] : 0);
    return sum >> 32 != 0 ? 1ull << 32 : sum;
}

#endif
