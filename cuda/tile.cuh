// A row of logits in the shared memory of a cluster: block r holds its r-th part, copied once from global memory by the
// bulk copy engine while the maximum of what has arrived is taken. The same pass writes the mask and the NaN rule into
// the copy, so that every later pass reads finished values. The copy keeps the type of the logits.
//
// Places count from the last 16-byte boundary at or before the row, `lead` elements ahead of token 0. The blocks of a
// cluster are a power of two.

#if __CUDA_ARCH__ >= 900

// Parts of a block's copy that arrive on their own, so that work starts on the first.
constexpr u32 CHUNKS = 4;

// Some of a block's threads, and which of them this one is; they share a range by fours.
struct Hands {
    u32 own, all;
};

__device__ __forceinline__ Hands all_hands() { return Hands{thread_id(), thread_count()}; }

// Writes -inf over the NaN among a thread's elements of [from, to).
template <class E>
__device__ __noinline__ void mend_nan(typename E::Bits* tile, u32 from, u32 to, Hands hands) {
    for (u32 i = from + hands.own * 4; i < to; i += hands.all * 4) {
        for (u32 e = 0; e < 4; e++) {
            float x = E::widen(tile[i + e]);
            if (x != x) tile[i + e] = E::LOWEST;
        }
    }
}

// The maxima of four parts of what a thread has gone over.
struct Maxima {
    float of[4];

    // NaN if one of them is.
    __device__ __forceinline__ float all() const { return max_or_nan(max_or_nan(of[0], of[1]), max_or_nan(of[2], of[3])); }
};

// Four neighbouring elements, moved at once.
template <class Bits>
struct __align__(4 * sizeof(Bits)) Four {
    Bits e[4];
};

// Bits of the mask for the 32 indices from `first` on, which may be ahead of the row; nothing is allowed outside it.
__device__ __forceinline__ u32 mask_window(const u32* mask, i32 first, u32 len) {
    u32 word = (u32)(first >> 5), next = word + 1, words = (len + 31) / 32;
    u32 low = word < words ? __ldg(mask + word) : 0;
    u32 high = next < words ? __ldg(mask + next) : 0;
    return __funnelshift_r(low, high, (u32)first % 32);
}

// A warp goes over a range in steps of all hands. Of eight steps from that at `place` on, lane 4 * s + q has the mask's window of the
// q-th quarter of step s.
__device__ __forceinline__ u32 windows_of_steps(const u32* mask, u32 place, u32 to, i32 index, u32 len, Hands hands) {
    u32 at = place + lane_id() / 4 * hands.all * 4 + lane_id() % 4 * 32;
    return at < to ? mask_window(mask, index + (i32)at, len) : 0;
}

// Writes -inf over the elements among a thread's of [from, to) that the mask forbids, and takes the maxima of what is left, NaN
// where it sees one. `tile[0]` has index `index`, which may lie before the row; `windows` are those of the first steps.
template <class E>
__device__ __noinline__ Maxima mask_and_max(typename E::Bits* tile, u32 from, u32 to, i32 index, u32 len, const u32* mask,
                                            u32 windows, Hands hands) {
    __builtin_assume(__isShared(tile));
    typedef Four<typename E::Bits> Group;
    Maxima max = {{MINUS_INF, MINUS_INF, MINUS_INF, MINUS_INF}};
    u32 stride = hands.all * 4, place = from + (hands.own - lane_id()) * 4;
#pragma unroll 1
    while (place < to) {
        u32 next = windows_of_steps(mask, place + 8 * stride, to, index, len, hands);
#pragma unroll 4
        for (u32 step = 0; step < 8; step++, place += stride) {
            u32 allowed = __shfl_sync(ALL_LANES, windows, step * 4 + lane_id() / 8) >> (lane_id() % 8 * 4);
            u32 own = place + lane_id() * 4;
            if (own >= to) continue;
            Group group = *(const Group*)(tile + own);
            for (u32 e = 0; e < 4; e++) group.e[e] = allowed >> e & 1 ? group.e[e] : (typename E::Bits)E::LOWEST;
            *(Group*)(tile + own) = group;
            for (u32 e = 0; e < 4; e++) max.of[e] = max_or_nan(max.of[e], E::widen(group.e[e]));
        }
        windows = next;
    }
    return max;
}

#ifdef SD_ROLES
// Warps that go over a block's part of a row.
__device__ __forceinline__ u32 copy_warps() { return MASS_THREADS / 32; }
#else
__device__ __forceinline__ u32 copy_warps() { return warp_count(); }
#endif

// Where a block's part of a row lies: places first_place to end_place, of which copied_from to copied_to come in bulk.
struct Bounds {
    u32 lead, first_place, end_place, copied_from, copied_to;
    // Places a warp has.
    u32 part;

    // Places of a warp of this block.
    __device__ __forceinline__ void part_of(u32 warp, u32* from, u32* to) const {
        *from = min(first_place + warp * part, end_place);
        *to = min(*from + part, end_place);
    }
};

template <u32 DTYPE>
struct Copy : Bounds {
    typedef Element<DTYPE> E;
    typedef typename E::Bits Bits;
    // Elements of 16 bytes.
    static constexpr u32 GRAIN = 16 / sizeof(Bits);

    u64 values;
    u32 len;
    // This block's elements.
    Bits* tile;

    // As another copy of the row has found.
    __device__ __forceinline__ Copy(void* memory, u64 row_values, u64 length, const Bounds& bounds)
        : Bounds(bounds), values(row_values), len((u32)length), tile((Bits*)memory) {}

    __device__ __forceinline__ Copy(void* memory, u64 row_values, u64 length)
        : values(row_values), len((u32)length), tile((Bits*)memory) {
        lead = (u32)(values / sizeof(Bits)) % GRAIN;
        u32 grains = (lead + len + GRAIN - 1) / GRAIN, blocks = cluster_size();
        part = (((grains + blocks - 1) >> (31 - __clz(blocks))) + copy_warps() - 1) / copy_warps() * GRAIN;
        first_place = min(cluster_rank() * copy_warps() * part, grains * GRAIN);
        end_place = min(first_place + copy_warps() * part, grains * GRAIN);
        copied_from = max(first_place, (lead + GRAIN - 1) / GRAIN * GRAIN);
        copied_to = max(copied_from, min(end_place, (lead + len) / GRAIN * GRAIN));
    }

    // Room for the places of a warp's listed tokens, behind the elements: one in ten.
    __device__ __forceinline__ u32 list_capacity() const { return part / 10; }
    __device__ __forceinline__ u16* lists() const { return (u16*)(tile + part * warp_count()); }

    // End of a chunk of the bulk copy.
    __device__ __forceinline__ u32 chunk_end(u32 chunk) const {
        return copied_from + (copied_to - copied_from) / GRAIN * (chunk + 1) / CHUNKS * GRAIN;
    }

    // Starts the copy of the places from `from` to `to`, within those that come in bulk.
    __device__ __forceinline__ void start_chunk(u32 from, u32 to, u64* arrival) const {
        bulk_copy(tile + (from - first_place), values + (u64)(from - lead) * sizeof(Bits), (to - from) * (u32)sizeof(Bits),
                  arrival);
    }

    // Starts the copies, by one thread; the arrivals are set up.
    __device__ __forceinline__ void start(u64* arrivals) const {
        u32 from = copied_from;
#pragma unroll 1
        for (u32 c = 0; c < CHUNKS; c++) {
            u32 to = chunk_end(c);
            if (to > from) start_chunk(from, to, arrivals + c);
            from = to;
        }
    }

    // The places at the ends, less than two grains, that are not copied in bulk.
    __device__ __forceinline__ u32 ends() const { return copied_from - first_place + (end_place - copied_to); }
    __device__ __forceinline__ u32 end_at(u32 i) const {
        u32 before = copied_from - first_place;
        return i < before ? i : copied_to - first_place + (i - before);
    }
    // Its value; a place outside the row holds -inf.
    __device__ __forceinline__ Bits end_value(u32 i) const {
        u32 index = end_at(i) + first_place - lead;
        return index < len ? __ldg((const Bits*)values + index) : E::LOWEST;
    }

    // Puts them into the copy.
    __device__ __forceinline__ void fill_ends(Hands hands) const {
#pragma unroll 1
        for (u32 i = hands.own; i < ends(); i += hands.all) tile[end_at(i)] = end_value(i);
    }

    __device__ __forceinline__ void load4(u32 place, float* x) const {
        // A function that is called has lost sight of where its pointers point.
        __builtin_assume(__isShared(tile));
        if constexpr (sizeof(Bits) == 4) {
            float4 v = *(const float4*)(tile + (place - first_place));
            x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
        } else {
            ushort4 v = *(const ushort4*)(tile + (place - first_place));
            x[0] = E::widen(v.x), x[1] = E::widen(v.y), x[2] = E::widen(v.z), x[3] = E::widen(v.w);
        }
    }

    __device__ __forceinline__ float value(u32 place) const {
        __builtin_assume(__isShared(tile));
        return E::widen(tile[place - first_place]);
    }

    // This thread's maxima over [from, to), NaN where it sees one.
    __device__ __forceinline__ Maxima max_over(u32 from, u32 to, Hands hands) const {
        Maxima max = {{MINUS_INF, MINUS_INF, MINUS_INF, MINUS_INF}};
        u32 stride = hands.all * 4;
        u32 place = from + hands.own * 4;
        // Four loads under way at a time; past the end its first one again, which changes no maximum.
#pragma unroll 1
        for (; place < to; place += 4 * stride) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                float x[4];
                load4(place + i * stride < to ? place + i * stride : place, x);
                for (u32 e = 0; e < 4; e++) max.of[e] = max_or_nan(max.of[e], x[e]);
            }
        }
        return max;
    }

    // The mask's windows that settling the places from `from` to `to` begins with.
    __device__ __forceinline__ u32 first_windows(u32 from, u32 to, const u32* mask, Hands hands) const {
        if (mask == 0) return 0;
        return windows_of_steps(mask, from - first_place + (hands.own - lane_id()) * 4, to - first_place,
                                (i32)(first_place - lead), len, hands);
    }

    // The maxima of this thread's share of what has arrived; mask and NaN rule are written into the copy.
    __device__ __forceinline__ Maxima settle(u32 from, u32 to, const u32* mask, u32 windows, bool* nan, Hands hands) const {
        Maxima max = mask == 0 ? max_over(from, to, hands)
                               : mask_and_max<E>(tile, from - first_place, to - first_place, (i32)(first_place - lead), len, mask,
                                                 windows, hands);
        float all = max.all();
        *nan = all != all;
        if (*nan) {
            mend_nan<E>(tile, from - first_place, to - first_place, hands);
            max = max_over(from, to, hands);
        }
        return max;
    }

    // Takes this thread's maximum as the copy arrives. The caller synchronises before anyone reads another thread's part.
    __device__ __forceinline__ float arrive(u64* arrivals, const u32* mask, bool* nan) const {
        u32 from = first_place, copied = copied_from;
        float max = MINUS_INF;
        *nan = false;
#pragma unroll 1
        for (u32 c = 0; c < CHUNKS; c++) {
            u32 to = chunk_end(c), end = c + 1 < CHUNKS ? to : end_place;
            u32 windows = first_windows(from, end, mask, all_hands());
            if (to > copied) completion_wait_own(arrivals + c);
            copied = to;
            bool here;
            max = fmaxf(max, settle(from, end, mask, windows, &here, all_hands()).all());
            *nan |= here;
            from = end;
        }
        return max;
    }
};

// A row in global memory, for who asks for few of its logits, or only now and then for all.
template <class E>
struct InMemory {
    u64 values;
    const u32* mask;
    u32 len;

    // The value at index i, masked, NaN removed.
    __device__ __forceinline__ float at(u32 i) const {
        if (mask != 0 && !(__ldg(mask + i / 32) >> (i % 32) & 1)) return MINUS_INF;
        return clean(E::widen(__ldg((const typename E::Bits*)values + i)));
    }

    // Four neighbours within the row from index i on, which lie on their boundary in memory, without a mask.
    __device__ __forceinline__ void load_plain(u32 i, float* x) const {
        Four<typename E::Bits> group = *(const Four<typename E::Bits>*)((const typename E::Bits*)values + i);
        for (u32 e = 0; e < 4; e++) x[e] = clean(E::widen(group.e[e]));
    }

    // The same; -inf where they are not allowed or not within the row.
    __device__ __forceinline__ void load4(i32 i, float* x) const {
        if (i < 0 || i + 4 > (i32)len) {
            for (u32 e = 0; e < 4; e++) x[e] = (u32)i + e < len ? at((u32)i + e) : MINUS_INF;
            return;
        }
        u32 allowed = mask == 0 ? 15 : mask_window(mask, i, len);
        load_plain((u32)i, x);
        for (u32 e = 0; e < 4; e++) x[e] = allowed >> e & 1 ? x[e] : MINUS_INF;
    }
};

// The copy as a source of rows.
template <u32 DTYPE>
struct Tile : Copy<DTYPE> {
    typedef Cluster Team;
    typedef Copy<DTYPE> Base;
    // Elements a lane handles at a time.
    static constexpr u32 WIDTH = 4;

    Team& team;
    const u32* mask;
    // This warp's places.
    u32 begin, end;

    __device__ Tile(Team& t, const Base& copy, u64 row_mask) : Base(copy), team(t), mask((const u32*)row_mask) {
        this->part_of(warp_id(), &begin, &end);
    }

    // The value at index i, from global memory: any block may ask for any token.
    __device__ __forceinline__ float at(u32 i) const {
        if (mask != 0 && !(__ldg(mask + i / 32) >> (i % 32) & 1)) return MINUS_INF;
        return clean(Base::E::widen(__ldg((const typename Base::Bits*)this->values + i)));
    }

    __device__ __forceinline__ u32 id_at(u32 i) const { return i; }

    // Number of the warp, counted over the team, that has index i.
    __device__ u32 warp_of(u32 i) const { return (i + this->lead) / this->part; }

    __device__ __forceinline__ i64 find(i64 id) const { return in_range(id, this->len) ? id : -1; }

    // Calls f(value) for the values of this warp; a value of -inf may come more often than it occurs.
    template <class F>
    __device__ __forceinline__ void each_value(F f) const {
#pragma unroll 1
        for (u32 place = begin + lane_id() * 4; place < end; place += 128) {
            float x[4];
            this->load4(place, x);
            for (u32 e = 0; e < 4; e++) f(x[e]);
        }
    }

    // Calls f(index, id, value) for the values of this warp.
    template <class F>
    __device__ __forceinline__ void each(F f) const {
#pragma unroll 1
        for (u32 place = begin + lane_id() * 4; place < end; place += 128) {
            float x[4];
            this->load4(place, x);
            u32 index = place - this->lead;
            for (u32 e = 0; e < 4; e++) {
                if (index + e < this->len) f(index + e, index + e, x[e]);
            }
        }
    }

    __device__ __forceinline__ Group<4> group(u32 place) const {
        Group<4> v;
        this->load4(place, v.x);
        v.first = place - this->lead;
        v.valid = 0;
        for (u32 e = 0; e < 4; e++) v.valid |= (v.first + e < this->len ? 1u : 0u) << e;
        return v;
    }

    // Calls f(group) in step for all lanes of this warp, ascending.
    template <class F>
    __device__ __forceinline__ void steps(F f) const {
#pragma unroll 1
        for (u32 base = begin; base < end; base += 128) {
            u32 place = base + lane_id() * 4;
            f(place < end ? group(place) : Group<4>{{MINUS_INF, MINUS_INF, MINUS_INF, MINUS_INF}, 0, 0});
        }
    }
};

#endif
