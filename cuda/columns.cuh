// The first N tokens of a row's order, in the shared memory of every block of a cluster: each block lists what may be
// among them of its share of the row, all blocks get all lists, and each finds the N-th token in them for itself. Where
// the lists cannot say, the row takes the passes of descent.cuh.

// The blocks of a cluster that work on a row, or one.
struct Crew {
    u32 rank, blocks;
    u64 row_index;

    __device__ __forceinline__ explicit Crew(Desk& desk) : rank(0), blocks(1), row_index(blockIdx.x) {
#if __CUDA_ARCH__ >= 900
        rank = cluster_rank(), blocks = cluster_size(), row_index = cluster_number();
        if (threadIdx.x == 0 && blocks > 1) {
            completion_init(&desk.gathered, blocks);
            completions_ready();
        }
#endif
        if (threadIdx.x == 0) desk.listed = desk.sampled = desk.joined = 0;
        __syncthreads();
        arrive();
    }

    // The halves of a barrier of the cluster: the first says that every block has started, the second that every block
    // has all the lists.
    __device__ __forceinline__ void arrive() const {
#if __CUDA_ARCH__ >= 900
        if (blocks > 1) cluster_started();
#endif
    }
    __device__ __forceinline__ void wait() const {
#if __CUDA_ARCH__ >= 900
        if (blocks > 1) cluster_wait_started();
#endif
    }
};

// Every block of the cluster gets every block's list. By all threads; `desk.largest` holds the warps' largest keys.
__device__ __forceinline__ void gather_lists(Desk& desk, const Lists& lists, const Crew& crew, u64 vocab, u64 bound,
                                             bool nan) {
    if (warp_id() == 0) {
        u64 facts = desk.listed | (nan ? 1ull << 32 : 0);
        u32 key = __reduce_max_sync(ALL_LANES, lane_id() < warp_count() ? desk.largest[lane_id()] : 0);
        u64 top = Order(vocab).first(value_of_key(key));
        u32 to = lane_id(), count = min(desk.listed, lists.capacity);
        // Copies are of two entries at a time, and the capacity is even.
        if (to == 0 && count % 2 != 0) {
            lists.entries[crew.rank * lists.capacity + count] = 0;
#if __CUDA_ARCH__ >= 900
            yield_to_copies();
#endif
        }
        __syncwarp();
        if (crew.blocks == 1) {
            if (to == 0) desk.bounds[0] = bound, desk.tops[0] = top, desk.facts[0] = facts;
        }
#if __CUDA_ARCH__ >= 900
        else if (to < crew.blocks) {
            u32 bytes = to == crew.rank ? 0 : (count + 1) / 2 * 16;
            completion_expect_at(to, &desk.gathered, bytes + 24);
            if (bytes != 0) push_copy(to, lists.entries + crew.rank * lists.capacity, bytes, &desk.gathered);
            push(to, &desk.bounds[crew.rank], bound, &desk.gathered);
            push(to, &desk.tops[crew.rank], top, &desk.gathered);
            push(to, &desk.facts[crew.rank], facts, &desk.gathered);
        }
#endif
    }
#if __CUDA_ARCH__ >= 900
    if (crew.blocks > 1) return completion_wait(&desk.gathered);
#endif
    __syncthreads();
}

// A row whose sample has been asked for, which happens before the rest of its indices is known: nothing is read outside
// the logits for it.
template <u32 DTYPE>
struct Reading {
    Strips<DTYPE> strips;
    uint4 sample[SAMPLED];

    __device__ __forceinline__ Reading(const RowBlock& b, const Crew& crew, i64 logits_row)
        : strips(logits_at(b, in_range(logits_row, b.logits_rows) ? (u64)logits_row : 0),
                 in_range(logits_row, b.logits_rows) ? b.vocab : 0, crew.rank, crew.blocks) {
        for (u32 i = 0; i < SAMPLED; i++) sample[i] = strips.load(strips.sampled_grain(i));
    }

    // Reads the rest of the row and hands every block all of its lists.
    __device__ __forceinline__ void list(const RowBlock& b, Desk& desk, const Lists& lists, const Crew& crew, u64 mask) {
        Sieve<DTYPE> sieve(desk, lists, strips, mask, b.vocab);
        for (u32 i = 0; i < SAMPLED; i++) sieve.masked(sample[i], strips.sampled_grain(i));
        u32 k = sample_rank((u32)b.columns, crew.blocks * strips.strip, LINE_LANES * Strips<DTYPE>::GRAIN);
        __syncthreads();
        sieve.find_bound(sample, k, k / 8 + 16);
        sieve.sift_all(sample);
#if __CUDA_ARCH__ >= 900
        if (crew.blocks > 1) yield_to_copies();
#endif
        u32 top = __reduce_max_sync(ALL_LANES, key_of(sieve.largest));
        if (lane_id() == 0) desk.largest[warp_id()] = top;
        bool nan = __syncthreads_or(sieve.nan) != 0;
        crew.wait();
        gather_lists(desk, lists, crew, b.vocab, sieve.bound(), nan);
        crew.arrive();
    }
};

// A list of the first N tokens for a row whose survivors do not tell: passes over global memory by one block, and nobody
// else uses its memory.
template <u32 DTYPE>
__device__ __noinline__ void list_slowly(const RowBlock& b, Desk& desk, void* memory, u64 row_index) {
    Lists lists(memory, b.vocab, b.columns, 1);
    Order order(b.vocab);
    Resolved found = resolve(b, row_index);
    bool nan = false;
    auto each = [&](auto f) {
        Strips<DTYPE>(found.values, b.vocab, 0, 1).each((const u32*)found.mask, [&](float x, u32 id) {
            nan |= x != x;
            f(order.token(clean(x), id));
        });
    };
    u32 key = 0;
    each([&](u64 token) { key = umax(key, key_of(order.ordered(token))); });
    key = __reduce_max_sync(ALL_LANES, key);
    // Every thread has seen what the lists say before it is written over.
    __syncthreads();
    if (threadIdx.x == 0) desk.listed = 0;
    if (lane_id() == 0) desk.largest[warp_id()] = key;
    __syncthreads();
    key = __reduce_max_sync(ALL_LANES, lane_id() < warp_count() ? desk.largest[lane_id()] : 0);
    u64 top = order.first(value_of_key(key));
    Border border = narrow(desk, lists.bins, each, order.last(MINUS_INF), top, 0, (u32)b.columns, 0, 0);
    each([&](u64 token) {
        if (token >= border.low) lists.entries[atomicAdd(&desk.listed, 1u)] = token;
    });
    bool any = __syncthreads_or(nan) != 0;
    if (threadIdx.x == 0) desk.bounds[0] = border.low, desk.tops[0] = top, desk.facts[0] = b.columns | (any ? 1ull << 32 : 0);
    __syncthreads();
}

// The first N tokens, found.
struct Chosen {
    Desk& desk;
    Lists lists;
    Order order;
    u32 blocks, columns;
    float largest;
    bool nan;
    // The last of them in the order.
    u64 cut;

    __device__ __forceinline__ Chosen(Desk& d, const Lists& l, u64 vocab, u64 n, u32 count)
        : desk(d), lists(l), order(vocab), blocks(count), columns((u32)n) {}

    // Calls f(place, entry) for this thread's part of the survivors.
    template <class F>
    __device__ __forceinline__ void each(F f) const {
        u32 warps = warp_count(), shared = max(warps / blocks, 1u);
#pragma unroll 1
        for (u32 block = warp_id() / shared; block < blocks; block += max(warps / shared, 1u)) {
            u32 first = block * lists.capacity, end = first + (u32)desk.facts[block];
#pragma unroll 4
            for (u32 i = first + warp_id() % shared * 32 + lane_id(); i < end; i += shared * 32) f(i, lists.entries[i]);
        }
    }

    // Finds the first N tokens. Where the survivors do not tell them, the first block does, and only there this is true.
    template <u32 DTYPE>
    __device__ __forceinline__ bool choose(const RowBlock& b, const Crew& crew, void* memory) {
#pragma unroll 1
        while (!choose_listed()) {
            if (crew.rank != 0) return false;
            list_slowly<DTYPE>(b, desk, memory, crew.row_index);
            lists.capacity *= blocks;
            blocks = 1;
        }
        return true;
    }

    // False, in every block, where the lists do not tell.
    __device__ __forceinline__ bool choose_listed() {
        u32 block = lane_id() % blocks;
        u64 low = warp_max(desk.bounds[block]), high = warp_max(desk.tops[block]), facts = desk.facts[block];
        nan = __any_sync(ALL_LANES, facts >> 32 != 0);
        largest = order.ordered(high);
        // -0, so that a token of either zero is +0 away from it, as the first of the largest tokens is from itself.
        largest = largest == 0.0f ? -0.0f : largest;
        if (__any_sync(ALL_LANES, (u32)facts > lists.capacity)) return false;
        auto tokens = [&](auto count) { each([&](u32, u64 token) { count(token); }); };
        Border border = narrow(desk, lists.bins, tokens, low, high, 0, columns, 0, 32);
        if (!border.found) return false;
        // Those of the border's bin are few and put in order.
        each([&](u32, u64 token) {
            if (token > border.high) choose_id(order.id(token));
            else if (token >= border.low) desk.members[atomicAdd(&desk.joined, 1u)] = token;
        });
        __syncthreads();
        u64 own = lane_id() < border.inside ? desk.members[lane_id()] : 0;
        u32 rank = border.ahead;
#pragma unroll 1
        for (u32 i = 0; i < border.inside; i++) rank += desk.members[i] > own ? 1 : 0;
        u32 last = __ffs((i32)__ballot_sync(ALL_LANES, own != 0 && rank + 1 == columns)) - 1;
        cut = __shfl_sync(ALL_LANES, own, last);
        if (warp_id() == 0 && own != 0 && own >= cut) choose_id(order.id(own));
        __syncthreads();
        count_chosen();
        each([&](u32 place, u64 token) {
            if (token >= cut) lists.places[place_of(order.id(token))] = (u16)place;
        });
        __syncthreads();
        return true;
    }

    __device__ __forceinline__ void choose_id(u32 id) const { atomicOr(&lists.chosen[id / 32], 1u << (id % 32)); }

    // How many are chosen before each word: four words a thread at a time, in as many rounds as it takes.
    __device__ __forceinline__ void count_chosen() const {
        u32 done = 0, turn = 0;
#pragma unroll 1
        for (u32 base = 0; base < lists.words; base += blockDim.x * 8, turn ^= 1) {
            u32 word = base + threadIdx.x * 8;
            uint4 v[2] = {};
            if (word < lists.words) v[0] = *(const uint4*)(lists.chosen + word), v[1] = *(const uint4*)(lists.chosen + word + 4);
            u32 counts[8], own = 0, total;
            for (u32 i = 0; i < 8; i++) counts[i] = __popc(Vector<0>::word(v[i / 4], i % 4)), own += counts[i];
            u32 through = done + desk_scan(desk, turn, own, &total);
            done += total;
            u32 packed[4];
            for (u32 i = 0; i < 8; i += 2) {
                u32 next = through + counts[i];
                packed[i / 2] = through | next << 16;
                through = next + counts[i + 1];
            }
            if (word < lists.words) *(uint4*)(lists.before + word) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
        }
        __syncthreads();
    }

    // Place among the N in ascending id of a token that is one of them.
    __device__ __forceinline__ u32 place_of(u32 id) const {
        return lists.before[id / 32] + __popc(lists.chosen[id / 32] & ((1u << (id % 32)) - 1));
    }

    __device__ __forceinline__ bool has(u32 id) const { return lists.chosen[id / 32] >> (id % 32) & 1; }

    __device__ __forceinline__ u64 entry(u32 place) const { return lists.entries[lists.places[place]]; }

    __device__ __forceinline__ i32 status() const {
        return (nan ? SD_STATUS_NAN_LOGITS : 0) | (largest == PLUS_INF ? SD_STATUS_INF_LOGITS : 0);
    }
};
