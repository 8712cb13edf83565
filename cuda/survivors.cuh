// What may be among the first N tokens of a row, listed by each block of its share of the row: the tokens not behind a
// bound that the block's sample suggests, the k-th of the sample, where k is a little more than the sample's part of N.
// All of a row's lists together hold its first N tokens as long as N of theirs are not behind the hindmost bound, which
// the choice of k makes all but certain; the lists say whether it is so, and columns.cuh what happens otherwise.
//
// What a row costs: every byte read once, in one launch; for each 16 bytes of a lane one maximum, one comparison and a vote,
// some 45 instructions with the load; for the 16 bytes that hold a survivor, 2 to 15 in a hundred, a place in a queue, and
// for 32 of those some 100 instructions in which every lane has work; 1.3 to 1.9 N survivors of 8 bytes. 128 lanes a clock
// have 116 instructions for the 16 bytes that a multiprocessor's share of the memory takes to deliver them.

// The dynamic shared memory of a launch.
struct Lists {
    // Survivors as integers of `Order`, `capacity` a block.
    u64* entries;
    u32 capacity;
    // For each of the first N tokens in ascending id, where its entry is; in the same memory, before, the warps' queues.
    u16* places;
    uint4* queues;
    // A bit for each token, set for the first N; and in the memory of the bins how many are set before each word.
    u32* chosen;
    u16* before;
    u32* bins;
    // Words of `chosen`.
    u32 words;

    __device__ __forceinline__ Lists(void* memory, u64 vocab, u64 columns, u32 blocks) {
        words = ((u32)vocab + 255) / 256 * 8;
        u32 bins_bytes = max(BINS * 4, words * 2), places_bytes = max(((u32)columns + 7) / 8 * 16, blockDim.x * QUEUE_BYTES);
        bins = (u32*)memory;
        before = (u16*)memory;
        chosen = (u32*)((char*)memory + bins_bytes);
        places = (u16*)(chosen + words);
        queues = (uint4*)places;
        entries = (u64*)((char*)places + places_bytes);
        capacity = (dynamic_shared_bytes() - bins_bytes - words * 4 - places_bytes) / 8 / blocks & ~1u;
    }

    __device__ __forceinline__ void clear() const {
        uint4* bits = (uint4*)chosen;
        uint4* counts = (uint4*)bins;
        for (u32 i = threadIdx.x; i < words / 4; i += blockDim.x) bits[i] = make_uint4(0, 0, 0, 0);
        for (u32 i = threadIdx.x; i < BINS / 4; i += blockDim.x) counts[i] = make_uint4(0, 0, 0, 0);
    }
};

// How many of a block's sample to list, about; `strip` times as many survive. Five standard deviations more than its
// part of N, and at least a line more: in a sorted row the tokens come by lines.
__device__ __forceinline__ u32 sample_rank(u32 columns, u32 parts, u32 line) {
    u32 part = (columns + parts - 1) / parts;
    return part + max((u32)(5.0f * __fsqrt_rn((float)part)) + 8, line + 1);
}

template <u32 DTYPE>
struct Sieve {
    typedef Strips<DTYPE> S;
    typedef typename S::V V;
    typedef typename S::Bits Bits;
    static constexpr u32 GRAIN = S::GRAIN;

    Desk& desk;
    const Lists& lists;
    const S& strips;
    const u32* mask;
    Order order;
    // Survivors have a larger value than the bound, or the same and an id that is not larger.
    float value;
    u32 id;
    // The largest value this thread has listed.
    float largest;
    // Places taken in this warp's queue.
    u32 queued;
    u32 nan;

    __device__ __forceinline__ Sieve(Desk& d, const Lists& l, const S& s, u64 row_mask, u64 vocab)
        : desk(d), lists(l), strips(s), mask((const u32*)row_mask), order(vocab), largest(MINUS_INF), queued(0), nan(0) {}

    __device__ __forceinline__ void set_bound(u64 token) {
        // Below the key of -inf lies NaN: a bound there lets everything through.
        u64 lowest = order.last(MINUS_INF), bound = token < lowest ? lowest : token;
        value = order.ordered(bound), id = order.id(bound);
    }

    __device__ __forceinline__ u64 bound() const { return order.token(value, id); }

    __device__ __forceinline__ bool survives(float x, u32 index) const {
        return (x > value) | ((x == value) & (index <= id));
    }

    __device__ __forceinline__ void list(u32 at, float x, u32 index) {
        largest = fmaxf(largest, x);
        if (at < lists.capacity) lists.entries[strips.rank * lists.capacity + at] = order.token(x, index);
    }

    // The largest element, NaN counting as -inf.
    static __device__ __forceinline__ float clean_max(const uint4& v) {
        float max = MINUS_INF;
        for (u32 e = 0; e < GRAIN; e++) max = fmaxf(max, V::at(v, e));
        return max;
    }

    // This warp's queue: 16 bytes of elements a place, behind them the grains.
    __device__ __forceinline__ uint4* queue() const { return lists.queues + warp_id() * (32 * QUEUE_BYTES / 16); }

    // Lists the survivors among what this warp has queued.
    __device__ __forceinline__ void drain() {
        uint4* vectors = queue();
        __syncwarp();
        if (lane_id() < queued) {
            uint4 v = vectors[lane_id()];
            u32 index = strips.index_of(((u32*)(vectors + 32))[lane_id()]), hits = 0;
            for (u32 e = 0; e < GRAIN; e++) hits |= survives(fmaxf(V::at(v, e), MINUS_INF), index + e) ? 1u << e : 0;
            if (hits != 0) {
                u32 at = atomicAdd(&desk.listed, (u32)__popc(hits));
#pragma unroll 1
                for (; hits != 0; hits &= hits - 1) {
                    u32 e = __ffs((i32)hits) - 1;
                    list(at++, fmaxf(S::E::widen(((const Bits*)(vectors + lane_id()))[e]), MINUS_INF), index + e);
                }
            }
        }
        __syncwarp();
        queued = 0;
    }

    // Queues 16 bytes that hold a survivor; all lanes of a warp together.
    __device__ __forceinline__ void sift(const uint4& v, u32 grain, bool here) {
        float max = V::max(v);
        bool hit = here && max > value;
        if (here && !hit && !(max < value)) {
            // A tie with the bound, or NaN.
            nan |= max != max ? 1 : 0;
            hit = survives(clean_max(v), strips.index_of(grain));
        }
        u32 hits = __ballot_sync(ALL_LANES, hit), count = __popc(hits);
        if (hits == 0) return;
        if (queued + count > 32) drain();
        if (hit) {
            uint4* vectors = queue();
            u32 at = queued + __popc(hits & ((1u << lane_id()) - 1));
            vectors[at] = v;
            ((u32*)(vectors + 32))[at] = grain;
        }
        queued += count;
    }

    __device__ __forceinline__ void masked(uint4& v, u32 grain) const {
        if (mask != 0 && grain < strips.grains) V::forbid(v, mask_bits(mask, strips.index_of(grain), GRAIN));
    }

    // A part of the sample once more, from the L1 or L2.
    __device__ __forceinline__ uint4 sampled(u32 i) const {
        uint4 v = strips.load(strips.sampled_grain(i));
        masked(v, strips.sampled_grain(i));
        return v;
    }

    // Whether more than `most` elements of the sample survive.
    __device__ __forceinline__ bool too_many(const uint4* sample, u32 most) {
        u32 count = 0;
        for (u32 i = 0; i < SAMPLED; i++) {
            u32 grain = strips.sampled_grain(i);
            if (grain >= strips.grains || V::max(sample[i]) < value) continue;
            for (u32 e = 0; e < GRAIN; e++)
                count += survives(fmaxf(V::at(sample[i], e), MINUS_INF), strips.index_of(grain) + e) ? 1 : 0;
        }
        count = __reduce_add_sync(ALL_LANES, count);
        if (lane_id() == 0 && count != 0) atomicAdd(&desk.sampled, count);
        __syncthreads();
        return desk.sampled > most;
    }

    // The bound from the sample, which is masked: where k is small, the k-th of the threads' largest, or of the largest
    // of each 16 bytes; else, or where ties let too many through, the k-th of all.
    __device__ __forceinline__ void find_bound(const uint4* sample, u32 k, u32 slack) {
        float tops[SAMPLED] = {};
        u32 most = 0;
        auto here = [&](u32 i) { return strips.sampled_grain(i) < strips.grains; };
        for (u32 i = 0; i < SAMPLED; i++) {
            tops[i] = V::max(sample[i]);
            if (tops[i] != tops[i]) tops[i] = clean_max(sample[i]);
            most = umax(most, here(i) ? key_of(tops[i]) : 0);
        }
        set_bound(0);
        most = __reduce_max_sync(ALL_LANES, most);
        if (lane_id() == 0) desk.largest[warp_id()] = most;
        __syncthreads();
        most = __reduce_max_sync(ALL_LANES, lane_id() < warp_count() ? desk.largest[lane_id()] : 0);
        if (most == 0) {
            // Nobody may write over what others are still looking at.
            __syncthreads();
            return;
        }
        // No token is ahead of `high`.
        float top = value_of_key(most);
        u64 high = order.first(top), guess = order.last(top > 0.0f ? top * 0.0625f : top * 16.0f);
        bool by_tops = k * 4 <= blockDim.x * SAMPLED;
        if (by_tops) {
            bool by_threads = k * 4 <= blockDim.x;
            // The last id that belongs to a largest value: no later than where it is.
            u32 last = 0;
            if (by_threads) {
                for (u32 i = 1; i < SAMPLED; i++) {
                    if (here(i)) tops[0] = fmaxf(tops[0], tops[i]), last = i;
                }
            }
            auto each = [&](auto count) {
                for (u32 i = 0; i < SAMPLED; i++) {
                    if (by_threads && i > 0) break;
                    u32 index = strips.index_of(strips.sampled_grain(by_threads ? last : i)) + GRAIN - 1;
                    if (here(i)) count(order.token(tops[i], index));
                }
            };
            Border border = narrow(desk, lists.bins, each, 1, high, guess, k, k / 16 + 2, 0);
            if (border.found) {
                set_bound(border.low);
                if (!too_many(sample, k + slack)) return;
            }
        }
        auto each = [&](auto count) {
#pragma unroll 1
            for (u32 i = 0; i < SAMPLED; i++) {
                uint4 v = sampled(i);
                if (!here(i) || V::max(v) < value) continue;
                u32 index = strips.index_of(strips.sampled_grain(i));
#pragma unroll 4
                for (u32 e = 0; e < GRAIN; e++) count(order.token(fmaxf(V::at(v, e), MINUS_INF), index + e));
            }
        };
        Border border = narrow(desk, lists.bins, each, bound(), high, by_tops ? 0 : guess, k, k / 32 + 2, 0);
        if (border.found) set_bound(border.low);
    }

    // Lists the block's survivors. The sample is the first part; after it every line but the sampled ones, in the order
    // of their numbers.
    __device__ __forceinline__ void sift_all(const uint4* sample) {
        // Lines a warp's next load is ahead of this one: a multiple of a strip, so that a lane meets sampled lines always or
        // never. Longer strips are of rows that no launch brings here.
        u32 line = warp_id() * WARP_LINES, step = warp_count() * WARP_LINES;
        if (strips.strip > step) {
            if (threadIdx.x == 0) atomicMax(&desk.listed, ~0u >> 1);
            return;
        }
        u32 stride = step * strips.blocks * LINE_LANES, at = (line * strips.blocks + strips.rank) * LINE_LANES;
        u32 grain = strips.grain_of(line), end = (line + lane_id() / LINE_LANES) % strips.strip != 0 ? strips.grains : 0;
        uint4 next[IN_FLIGHT] = {};
        for (u32 i = 0; i < IN_FLIGHT; i++) {
            if (grain + i * stride < end) next[i] = strips.load_there(grain + i * stride);
        }
        for (u32 i = 0; i < SAMPLED; i++) sift(sample[i], strips.sampled_grain(i), strips.sampled_grain(i) < strips.grains);
        if (strips.strip > 1) {
#pragma unroll 1
            for (; at < strips.grains; at += IN_FLIGHT * stride, grain += IN_FLIGHT * stride) {
                for (u32 i = 0; i < IN_FLIGHT; i++) {
                    uint4 now = next[i];
                    u32 here = grain + i * stride, later = here + IN_FLIGHT * stride;
                    if (later < end) next[i] = strips.load_there(later);
                    masked(now, here);
                    sift(now, here, here < end);
                }
            }
        }
        // The elements before and after the whole grains, by the first block.
        if (strips.rank == 0 && threadIdx.x < strips.ends()) {
            u32 index = strips.end_index(threadIdx.x);
            float x = strips.value(mask, index);
            nan |= x != x ? 1 : 0;
            x = clean(x);
            if (survives(x, index)) list(atomicAdd(&desk.listed, 1u), x, index);
        }
        if (queued != 0) drain();
    }
};
