// The first N tokens of a row's order, in the shared memory of every block that needs them.
//
// Each block lists what may be among them of its share of the row: the tokens not behind a bound that its sample
// suggests, k-th of the sample, k a little more than its part of N. The blocks then send each other their lists, and
// each finds the N-th token in all of them: exact as long as N of them are not behind the hindmost bound, which
// k makes all but certain. Otherwise, or where a list runs over, the row takes the passes of descent.cuh.
//
// What a row costs, V values in all: every byte read once; for each 16 bytes one maximum and one comparison, and some 25
// instructions more in a warp that has found a survivor; 1.3 to 2 N survivors of 8 bytes; a histogram or two of the sample
// and of the survivors; one launch.

// The dynamic shared memory of a launch.
struct Lists {
    // Survivors, `capacity` a block: the bits of the value, the id above.
    u64* entries;
    u32 capacity;
    // For each of the first N tokens in ascending id, where its entry is.
    u16* places;
    // A bit for each token, set for the first N, and how many are set before each word: in the memory of the bins.
    u32* chosen;
    u16* before;
    u32* bins;
    // Words of `chosen`.
    u32 words;

    __device__ __forceinline__ Lists(void* memory, u64 vocab, u64 columns, u32 blocks) {
        words = ((u32)vocab + 127) / 128 * 4;
        u32 bins_bytes = max(BINS * 4, words * 2), places_bytes = ((u32)columns + 7) / 8 * 16;
        bins = (u32*)memory;
        before = (u16*)memory;
        chosen = (u32*)((char*)memory + bins_bytes);
        places = (u16*)(chosen + words);
        entries = (u64*)((char*)places + places_bytes);
        capacity = (dynamic_shared_bytes() - bins_bytes - words * 4 - places_bytes) / 8 / blocks & ~1u;
    }

    __device__ __forceinline__ void clear() const {
        uint4* bits = (uint4*)chosen;
        for (u32 i = threadIdx.x; i < words / 4; i += blockDim.x) bits[i] = make_uint4(0, 0, 0, 0);
        for (u32 i = threadIdx.x; i < BINS; i += blockDim.x) bins[i] = 0;
    }

    static __device__ __forceinline__ float value(u64 entry) { return __uint_as_float((u32)entry); }
    static __device__ __forceinline__ u32 id(u64 entry) { return (u32)(entry >> 32); }
};

// How many of a block's sample to list, about; `strip` times as many survive. Five standard deviations more than its
// part of N, and at least a line more: in a sorted row the tokens come by lines.
__device__ __forceinline__ u32 sample_rank(u32 columns, u32 parts, u32 line) {
    u32 part = (columns + parts - 1) / parts;
    return part + max((u32)(5.0f * __fsqrt_rn((float)part)) + 8, line + 1);
}

// Lists a block's survivors.
template <u32 DTYPE>
struct Sieve {
    typedef Strips<DTYPE> S;
    typedef typename S::V V;
    static constexpr u32 GRAIN = S::GRAIN;

    Desk& desk;
    const Lists& lists;
    const S& strips;
    const u32* mask;
    Order order;
    // Bound: survivors have a larger value, or the same and an id that is not larger.
    u64 bound;
    float value;
    u32 id;
    bool nan;

    __device__ __forceinline__ Sieve(Desk& d, const Lists& l, const S& s, u64 row_mask, u64 vocab)
        : desk(d), lists(l), strips(s), mask((const u32*)row_mask), order(vocab), nan(false) {}

    __device__ __forceinline__ void set_bound(u64 token) {
        bound = token;
        // Below every key lies NaN: a bound there must let everything through.
        u64 lowest = order.token(MINUS_INF, order.id(0));
        bound = bound < lowest ? lowest : bound;
        value = order.value(bound), id = order.id(bound);
    }

    __device__ __forceinline__ bool survives(float x, u32 index) const {
        return x > value || (x == value && index <= id);
    }

    __device__ __forceinline__ void list(u32 at, float x, u32 index) {
        if (at < lists.capacity)
            lists.entries[strips.rank * lists.capacity + at] = (u64)index << 32 | __float_as_uint(x);
    }

    // Lists the survivors of 16 bytes that begin at `index`.
    __device__ __forceinline__ void sift(const uint4& v, u32 index, bool here) {
        float max = V::max(v);
        if (!here || max < value) return;
        nan |= max != max;
        u32 hits = 0;
        for (u32 e = 0; e < GRAIN; e++) hits |= survives(fmaxf(V::at(v, e), MINUS_INF), index + e) ? 1u << e : 0;
        if (hits == 0) return;
        u32 at = atomicAdd(&desk.listed, (u32)__popc(hits));
        for (u32 e = 0; e < GRAIN; e++) {
            if (hits >> e & 1) list(at++, fmaxf(V::at(v, e), MINUS_INF), index + e);
        }
    }

    // The bound from the sample: the k-th of the largest of the lanes' 16 bytes, where k is few of them, else the k-th
    // element, as it is where ties let too many through. Lists the sample's survivors. `sample` is masked.
    __device__ __forceinline__ void sift_sample(uint4* sample, u32 k, u32 slack) {
        float tops[IN_FLIGHT] = {};
        u64 most = 0;
        auto here = [&](u32 i) { return strips.sampled_grain(i) < strips.grains; };
        auto index = [&](u32 i) { return strips.index_of(strips.sampled_grain(i)); };
        // The last id is not ahead of the one that has the value.
        auto token = [&](u32 i) { return here(i) ? order.token(tops[i], index(i) + GRAIN - 1) : 0ull; };
        for (u32 i = 0; i < IN_FLIGHT; i++) {
            tops[i] = V::max(sample[i]);
            if (tops[i] != tops[i]) {
                tops[i] = MINUS_INF;
                for (u32 e = 0; e < GRAIN; e++) tops[i] = fmaxf(tops[i], V::at(sample[i], e));
            }
            most = token(i) > most ? token(i) : most;
        }
        most = desk_max(desk, most);
        float top = order.value(most);
        u64 guess = order.token(top > 0.0f ? top * 0.0625f : top * 16.0f, order.id(0));
        bool by_tops = k * 4 <= blockDim.x * IN_FLIGHT;
        set_bound(0);
        if (by_tops) {
            auto each = [&](auto count) {
                for (u32 i = 0; i < IN_FLIGHT; i++) count(token(i), here(i));
            };
            Border border = narrow(desk, lists.bins, each, 1, most, guess, k, k / 16 + 2);
            if (border.found) {
                set_bound(border.low);
                for (u32 i = 0; i < IN_FLIGHT; i++) sift(sample[i], index(i), here(i));
                __syncthreads();
                bool enough = desk.listed <= k + slack;
                // Nobody may count on before everybody has looked.
                __syncthreads();
                if (enough) return;
            }
            if (threadIdx.x == 0) desk.listed = 0;
            __syncthreads();
        }
        auto again = [&](u32 i) {
            uint4 v = strips.load(strips.sampled_grain(i));
            masked(v, strips.sampled_grain(i));
            return v;
        };
        auto each = [&](auto count) {
#pragma unroll 1
            for (u32 i = 0; i < IN_FLIGHT; i++) {
                uint4 v = again(i);
                if (!__any_sync(ALL_LANES, here(i) && !(V::max(v) < value))) continue;
#pragma unroll 4
                for (u32 e = 0; e < GRAIN; e++)
                    count(order.token(fmaxf(V::at(v, e), MINUS_INF), index(i) + e), here(i));
            }
        };
        // The largest element may be ahead of the largest by its 16 bytes' last id.
        u64 high = order.token(top, 0);
        Border border = narrow(desk, lists.bins, each, bound, high, by_tops ? 0 : guess, k, k / 32 + 2);
        if (border.found) set_bound(border.low);
#pragma unroll 1
        for (u32 i = 0; i < IN_FLIGHT; i++) sift(again(i), index(i), here(i));
    }

    __device__ __forceinline__ void masked(uint4& v, u32 grain) const {
        if (mask != 0 && grain < strips.grains) V::forbid(v, strips.allowed(mask, grain));
    }

    // Lists the survivors of what the sample has not shown: `next` holds this lane's first loads.
    __device__ __forceinline__ void load_rest(uint4* next, u32 base) const {
        for (u32 i = 0; i < IN_FLIGHT; i++) next[i] = strips.load(rest_grain(base + i * warp_count()));
    }

    // This lane's grain of the warp's `group`-th four lines; none where the sample has it.
    __device__ __forceinline__ u32 rest_grain(u32 group) const {
        u32 line = group * WARP_LINES + lane_id() / LINE_LANES;
        return line % strips.strip == 0 ? 0xffffffffu : strips.grain_of(line);
    }

    __device__ __forceinline__ void sift_rest(uint4* next) {
        if (strips.strip == 1) return;
        u32 step = warp_count() * IN_FLIGHT, groups = (strips.lines + WARP_LINES - 1) / WARP_LINES;
#pragma unroll 1
        for (u32 base = warp_id(); base < groups; base += step) {
            uint4 now[IN_FLIGHT];
            for (u32 i = 0; i < IN_FLIGHT; i++) now[i] = next[i];
            if (base + step < groups) load_rest(next, base + step);
            for (u32 i = 0; i < IN_FLIGHT; i++) {
                u32 grain = rest_grain(base + i * warp_count());
                masked(now[i], grain);
                sift(now[i], strips.index_of(grain), grain < strips.grains);
            }
        }
    }

    // The elements before and after the whole grains, by the first block.
    __device__ __forceinline__ void sift_ends() {
        u32 tail = strips.head + strips.grains * GRAIN, ends = strips.head + strips.len - tail;
        if (strips.rank != 0 || threadIdx.x >= ends) return;
        u32 index = threadIdx.x < strips.head ? threadIdx.x : tail + threadIdx.x - strips.head;
        float x = strips.value(mask, index, &nan);
        if (survives(x, index)) list(atomicAdd(&desk.listed, 1u), x, index);
    }
};

// The first N tokens, found.
struct Chosen {
    Desk& desk;
    const Lists& lists;
    Order order;
    u32 blocks, columns;
    float largest;
    bool nan;

    __device__ __forceinline__ Chosen(Desk& d, const Lists& l, u64 vocab, u64 n, u32 count)
        : desk(d), lists(l), order(vocab), blocks(count), columns((u32)n) {}

    __device__ __forceinline__ u32 listed(u32 block) const { return (u32)desk.facts[block]; }

    // Calls f(place, entry, here) in step for all lanes of a warp, for the survivors.
    template <class F>
    __device__ __forceinline__ void each(F f) const {
        u32 warps = warp_count(), shared = max(warps / blocks, 1u);
#pragma unroll 1
        for (u32 block = warp_id() / shared; block < blocks; block += max(warps / shared, 1u)) {
            u32 count = listed(block), first = block * lists.capacity;
#pragma unroll 2
            for (u32 base = warp_id() % shared * 32; base < count; base += shared * 32) {
                u32 i = base + lane_id();
                bool here = i < count;
                f(first + i, here ? lists.entries[first + i] : 0, here);
            }
        }
    }

    __device__ __forceinline__ u64 token(u64 entry) const { return order.token(Lists::value(entry), Lists::id(entry)); }

    // Finds the first N tokens among all survivors; false, in every block, where they cannot be told from these.
    __device__ __forceinline__ bool choose() {
        u64 low = 0, most = 0;
        bool over = false;
        nan = false;
        for (u32 i = 0; i < blocks; i++) {
            low = desk.bounds[i] > low ? desk.bounds[i] : low;
            over |= listed(i) > lists.capacity;
            nan |= desk.facts[i] >> 32 != 0;
        }
        if (over) return false;
        each([&](u32, u64 entry, bool here) {
            u64 x = here ? token(entry) : 0;
            most = x > most ? x : most;
        });
        most = desk_max(desk, most);
        largest = order.value(most);
        // -0, so that a token of either zero is +0 away from it, as the first of the largest tokens is from itself.
        largest = largest == 0.0f ? -0.0f : largest;
        Border border = narrow(
            desk, lists.bins, [&](auto count) { each([&](u32, u64 entry, bool here) { count(token(entry), here); }); }, low,
            most, 0, columns, 0);
        if (!border.found) return false;
        each([&](u32, u64 entry, bool here) {
            u32 id = Lists::id(entry);
            if (here && token(entry) >= border.low) atomicOr(&lists.chosen[id / 32], 1u << (id % 32));
        });
        __syncthreads();
        u32 share = (lists.words + blockDim.x - 1) / blockDim.x, from = min(threadIdx.x * share, lists.words);
        u32 to = min(from + share, lists.words), own = 0, total;
        for (u32 i = from; i < to; i++) own += __popc(lists.chosen[i]);
        u32 through = desk_scan(desk, 0, own, &total);
        for (u32 i = from; i < to; i++) {
            lists.before[i] = (u16)through;
            through += __popc(lists.chosen[i]);
        }
        __syncthreads();
        each([&](u32 place, u64 entry, bool here) {
            u32 id = Lists::id(entry);
            if (here && token(entry) >= border.low) lists.places[place_of(id)] = (u16)place;
        });
        __syncthreads();
        return true;
    }

    // Place among the N in ascending id of a token that is one of them.
    __device__ __forceinline__ u32 place_of(u32 id) const {
        return lists.before[id / 32] + __popc(lists.chosen[id / 32] & ((1u << (id % 32)) - 1));
    }

    __device__ __forceinline__ u64 entry(u32 place) const { return lists.entries[lists.places[place]]; }

    __device__ __forceinline__ i32 status() const {
        return (nan ? SD_STATUS_NAN_LOGITS : 0) | (largest == PLUS_INF ? SD_STATUS_INF_LOGITS : 0);
    }
};
