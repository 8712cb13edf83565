// A row of logits in global memory as the later passes see it: masked, NaN removed, ids ascending.

// Neighbouring values that one lane handles at a time.
template <u32 WIDTH>
struct Group {
    float x[WIDTH];
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

__device__ __forceinline__ float widen_f16(u16 bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

__device__ __forceinline__ float widen_bf16(u16 bits) { return __uint_as_float((u32)bits << 16); }

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
        // Whole steps of a warp, so that its loads stay together.
        u32 steps = (len + 31) / 32;
        u32 parts = team.size() * warp_count();
        u32 each_part = (steps + parts - 1) / parts;
        u32 part = team.rank() * warp_count() + warp_id();
        begin = min(part * each_part * 32, len);
        end = min((part + 1) * each_part * 32, len);
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

    // Calls f(first index, group) in step for all lanes of this warp, ascending; until it returns false.
    template <class F>
    __device__ __forceinline__ void steps(F f) const {
#pragma unroll 1
        for (u32 base = begin; base < end; base += 32) {
            u32 i = base + lane_id();
            bool here = i < end;
            Group<1> v = {{here ? at(i) : MINUS_INF}, here};
            if (!f(i, v)) return;
        }
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

// Largest value after the mask, and the status bits its scan shows.
template <class Source>
__device__ float row_max(const Source& source, i32* status) {
    float max = MINUS_INF;
    bool nan = false;
    source.each_raw([&](u32, float x) {
        nan |= x != x;
        max = fmaxf(max, x);
    });
    // The key in the upper half, the NaN flag folded in separately: two exchanges, both short.
    u64 top = team_max(source.team, (u64)key_of(max));
    bool any_nan = team_max(source.team, nan ? 1 : 0) != 0;
    float found = value_of_key((u32)top);
    // -0, so that a token of either zero is +0 away from it, as the first of the largest tokens is from itself.
    if (found == 0.0f) found = -0.0f;
    *status |= (any_nan ? SD_STATUS_NAN_LOGITS : 0) | (found == PLUS_INF ? SD_STATUS_INF_LOGITS : 0);
    return found;
}

// Ids of the tokens are the order; each token weighs `weight(index, id, value)`. Finds the first token whose inclusive
// running weight passes `target`; -1 if none does. `span` holds the weights of the team's warps.
template <class Source, class Weight>
__device__ i64 locate(const Source& source, Span span, u64 target, Weight weight) {
    u64 answer = 0;
    if (span.before <= target && target - span.before < span.own) {
        u64 running = span.before;
        source.steps([&](u32 first, const Group<Source::WIDTH>& v) {
            u64 w[Source::WIDTH], lane_total = 0;
            for (u32 e = 0; e < Source::WIDTH; e++) {
                w[e] = v.valid >> e & 1 ? weight(first + e, source.id_at(first + e), v.x[e]) : 0;
                lane_total += w[e];
            }
            u64 through = running + warp_scan(lane_total);
            u32 past = __ballot_sync(ALL_LANES, through > target);
            if (past == 0) {
                running = __shfl_sync(ALL_LANES, through, 31);
                return true;
            }
            u32 owner = __ffs((i32)past) - 1;
            u64 at = through - lane_total;
            u64 found = 0;
            for (u32 e = 0; e < Source::WIDTH; e++) {
                at += w[e];
                if (found == 0 && at > target) found = (u64)first + e + 1;
            }
            answer = __shfl_sync(ALL_LANES, found, owner);
            return false;
        });
    }
    return (i64)team_max(source.team, answer) - 1;
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
    source.steps([&](u32 first, const Group<Source::WIDTH>& v) {
        u32 hits = 0;
        for (u32 e = 0; e < Source::WIDTH; e++) {
            if ((v.valid >> e & 1) && wanted(first + e, source.id_at(first + e), v.x[e])) hits |= 1u << e;
        }
        u64 count = __popc(hits);
        u64 through = warp_scan(count);
        u64 at = place + through - count;
        for (u32 e = 0; e < Source::WIDTH; e++) {
            if (hits >> e & 1) write(at++, first + e, source.id_at(first + e), v.x[e]);
        }
        place += __shfl_sync(ALL_LANES, through, 31);
        return true;
    });
    return span.total;
}
