// A row of logits in global memory as the later passes see it: masked, NaN removed, ids ascending.

// Neighbouring values that one lane handles at a time.
template <u32 WIDTH>
struct Group {
    float x[WIDTH];
    // Index of the first; wraps below 0 at the start of a row.
    u32 first;
    // Bit e: element e belongs to the row.
    u32 valid;
};

// Position in the order of tokens: everything up to and including the token with this key and id.
struct Cut {
    u32 key, id;
    __device__ __forceinline__ bool has(u32 k, u32 i) const { return k > key || (k == key && i <= id); }
};

constexpr Cut CUT_ALL = {0, 0xffffffffu};

// The shorter of two prefixes.
__device__ __forceinline__ Cut shorter(Cut a, Cut b) {
    return a.key > b.key || (a.key == b.key && a.id < b.id) ? a : b;
}

// Order-preserving integer of a logit; -0 and +0 are one value.
__device__ __forceinline__ u32 key_of(float x) {
    u32 bits = __float_as_uint(__fadd_rn(x, 0.0f));
    return bits ^ ((u32)((i32)bits >> 31) | 0x80000000u);
}

// The logit of a key; +0 for both zeros.
__device__ __forceinline__ float value_of_key(u32 key) {
    return __uint_as_float(key >> 31 ? key ^ 0x80000000u : ~key);
}

__device__ __forceinline__ float widen_bf16(u16 bits) { return __uint_as_float((u32)bits << 16); }

template <u32 DTYPE>
struct Element {
    typedef u16 Bits;
    static constexpr u16 LOWEST = DTYPE == SD_DTYPE_F16 ? 0xfc00 : 0xff80;
    static __device__ __forceinline__ float widen(u16 bits) {
        return DTYPE == SD_DTYPE_F16 ? widen_f16(bits) : widen_bf16(bits);
    }
};

template <>
struct Element<(u32)SD_DTYPE_F32> {
    typedef u32 Bits;
    static constexpr u32 LOWEST = 0xff800000u;
    static __device__ __forceinline__ float widen(u32 bits) { return __uint_as_float(bits); }
};

__device__ __forceinline__ float clean(float x) { return x != x ? MINUS_INF : x; }

// One element at a time: this is the road every card and every row can take, kept small rather than fast.
template <class TeamType>
struct Global {
    typedef TeamType Team;
    // Elements a lane handles at a time.
    static constexpr u32 WIDTH = 1;
    Team& team;
    u64 values;
    const u32* mask;
    const i32* ids;
    u32 dtype, len;
    // Elements of this warp.
    u32 begin, end;

    __device__ Global(Team& t, u64 row_values, u64 row_mask, u64 row_ids, u64 type, u64 length)
        : team(t), values(row_values), mask((const u32*)row_mask), ids((const i32*)row_ids), dtype((u32)type),
          len((u32)length) {
        part_of(warp_id(), &begin, &end);
    }

    // The value at index i after the mask, NaN left alone.
    __device__ __forceinline__ float masked_at(u32 i) const {
        if (mask != 0 && !(__ldg(mask + i / 32) >> (i % 32) & 1)) return MINUS_INF;
        if (dtype == SD_DTYPE_F32) return __ldg((const float*)values + i);
        u16 bits = __ldg((const u16*)values + i);
        return dtype == SD_DTYPE_F16 ? widen_f16(bits) : widen_bf16(bits);
    }

    // The same with NaN as -inf.
    __device__ __forceinline__ float at(u32 i) const { return clean(masked_at(i)); }

    __device__ __forceinline__ u32 id_at(u32 i) const { return ids == 0 ? i : (u32)__ldg(ids + i); }

    // Calls f(index, value) for the values of this warp, NaN left alone.
    template <class F>
    __device__ __forceinline__ void each_raw(F f) const {
#pragma unroll 4
        for (u32 i = begin + lane_id(); i < end; i += 32) f(i, masked_at(i));
    }

    // Calls f(index, id, value) for the values of this warp.
    template <class F>
    __device__ __forceinline__ void each(F f) const {
#pragma unroll 1
        for (u32 i = begin + lane_id(); i < end; i += 32) f(i, id_at(i), at(i));
    }

    // Calls f(value) for the values of this warp; a value of -inf may come more often than it occurs.
    template <class F>
    __device__ __forceinline__ void each_value(F f) const {
        each_raw([&](u32, float x) { f(clean(x)); });
    }

    __device__ __forceinline__ Group<1> group(u32 i) const { return Group<1>{{at(i)}, i, 1}; }

    // Calls f(group) in step for all lanes of this warp, ascending.
    template <class F>
    __device__ __forceinline__ void steps(F f) const {
#pragma unroll 1
        for (u32 base = begin; base < end; base += 32) {
            u32 i = base + lane_id();
            f(i < end ? group(i) : Group<1>{{MINUS_INF}, i, 0});
        }
    }

    // Number of the warp, counted over the team, that has index i.
    __device__ u32 warp_of(u32 i) const {
        u32 parts = team.size() * warp_count();
        return i / (((len + 31) / 32 + parts - 1) / parts * 32);
    }

    // Elements of a warp of this block.
    __device__ void part_of(u32 warp, u32* from, u32* to) const {
        u32 steps = (len + 31) / 32;
        u32 parts = team.size() * warp_count();
        u32 each_part = (steps + parts - 1) / parts * 32;
        u32 part = team.rank() * warp_count() + warp;
        *from = min(part * each_part, len);
        *to = min((part + 1) * each_part, len);
    }

    // Index of token `id`, -1 if the row has none.
    __device__ __forceinline__ i64 find(i64 id) const {
        if (ids == 0) return in_range(id, len) ? id : -1;
        u32 low = 0, high = len;
        while (low < high) {
            u32 mid = low + (high - low) / 2;
            i64 here = (i64)__ldg(ids + mid);
            if (here == id) return mid;
            if (here < id) low = mid + 1;
            else high = mid;
        }
        return -1;
    }
};

// Largest value of the team's threads, and the status bits their scan shows.
template <class Team>
__device__ __forceinline__ float agree_on_max(Team& team, float max, bool nan, i32* status) {
    u64 agreed = team_max_and_flag(team, key_of(max), nan);
    float found = value_of_key((u32)(agreed >> 1));
    *status |= (agreed & 1 ? SD_STATUS_NAN_LOGITS : 0) | (found == PLUS_INF ? SD_STATUS_INF_LOGITS : 0);
    // -0, so that a token of either zero is +0 away from it, as the first of the largest tokens is from itself.
    return found == 0.0f ? -0.0f : found;
}

// Bits of the mask for `count` tokens from `index` on, at most 32 of them and all within the row.
__device__ __forceinline__ u32 mask_bits(const u32* mask, u32 index, u32 count) {
    u32 low = __ldg(mask + index / 32), high = index % 32 + count > 32 ? __ldg(mask + index / 32 + 1) : 0;
    return __funnelshift_r(low, high, index % 32);
}

// Largest value after the mask.
template <class Source>
__device__ float row_max(const Source& source, i32* status) {
    float max = MINUS_INF;
    bool nan = false;
    source.each_raw([&](u32, float x) {
        nan |= x != x;
        max = fmaxf(max, x);
    });
    return agree_on_max(source.team, max, nan, status);
}

// Ids of the tokens are the order; each token weighs `weight(index, id, value)`. Finds the first token whose inclusive
// running weight passes `target`; -1 if none does. `span` holds the weights of the team's warps. The block whose warp
// holds the token spreads that warp's part over all of its threads.
template <class Source, class Weight>
__device__ __noinline__ i64 locate(const Source& source, Span span, u64 target, Weight weight) {
    auto& team = source.team;
    Shared& sh = team.sh;
    if (thread_id() == 0) sh.owner = sh.found = 0;
    team_barrier();
    if (lane_id() == 0 && span.before <= target && target - span.before < span.own) {
        sh.owner = warp_id() + 1;
        sh.owner_before = span.before;
    }
    team_barrier();
    if (sh.owner != 0) {
        u32 from, to;
        source.part_of((u32)sh.owner - 1, &from, &to);
        constexpr u32 WIDTH = Source::WIDTH;
        u32 each = ((to - from) / WIDTH + thread_count() - 1) / thread_count() * WIDTH;
        from = min(from + thread_id() * each, to);
        to = min(from + each, to);
        u64 own = 0;
#pragma unroll 1
        for (u32 place = from; place < to; place += WIDTH) {
            Group<WIDTH> v = source.group(place);
            for (u32 e = 0; e < WIDTH; e++)
                if (v.valid >> e & 1) own += weight(v.first + e, source.id_at(v.first + e), v.x[e]);
        }
        u64 running = sh.owner_before + block_scan_before(sh, own);
        if (running <= target && target - running < own) {
#pragma unroll 1
            for (u32 place = from; place < to; place += WIDTH) {
                Group<WIDTH> v = source.group(place);
                for (u32 e = 0; e < WIDTH; e++) {
                    if (!(v.valid >> e & 1)) continue;
                    running += weight(v.first + e, source.id_at(v.first + e), v.x[e]);
                    if (running > target && sh.found == 0) sh.found = (u64)v.first + e + 1;
                }
            }
        }
        team_barrier();
    }
    return (i64)team_max(team, sh.found) - 1;
}

// The weights of the team's warps, for `locate`.
template <class Source, class Weight>
__device__ Span weigh(const Source& source, Weight weight) {
    u64 own = 0;
    source.each([&](u32 i, u32 id, float x) { own += weight(i, id, x); });
    return team_span(source.team, warp_sum(own));
}

// Calls write(place, index, id, value) for every token `wanted(index, id, value)` holds for, place counting from 0 in
// ascending id over the whole team. Returns their number.
template <class Source, class Wanted, class Write>
__device__ u64 compact(const Source& source, Wanted wanted, Write write) {
    Span span = weigh(source, [&](u32 i, u32 id, float x) { return wanted(i, id, x) ? 1ull : 0ull; });
    u64 place = span.before;
    source.steps([&](const Group<Source::WIDTH>& v) {
        u32 hits = 0;
        for (u32 e = 0; e < Source::WIDTH; e++) {
            if ((v.valid >> e & 1) && wanted(v.first + e, source.id_at(v.first + e), v.x[e])) hits |= 1u << e;
        }
        if (!__any_sync(ALL_LANES, hits != 0)) return;
        u32 count = __popc(hits);
        u32 through = warp_scan(count);
        u64 at = place + through - count;
        for (u32 e = 0; e < Source::WIDTH; e++) {
            if (hits >> e & 1) write(at++, v.first + e, source.id_at(v.first + e), v.x[e]);
        }
        place += __shfl_sync(ALL_LANES, through, 31);
    });
    return span.total;
}
