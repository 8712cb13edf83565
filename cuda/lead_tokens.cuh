// The tokens among which the lead looks for the end of a row: those that were listed, or all of the row in global memory. A token is a
// word: its key, and below it its id counted backwards; 0 is none.

#if __CUDA_ARCH__ >= 900

// Tokens of a part that are listed, and the mass above them, from its word.
__device__ __forceinline__ u32 listed_count(u64 word) { return (u32)(word >> LISTED_SHIFT); }
__device__ __forceinline__ u64 mass_above_listed(u64 word) { return word & ((1ull << LISTED_SHIFT) - 1); }

constexpr u32 LEAD_WARPS = LEAD_THREADS / 32;

// The tokens that were listed.
struct Listed {
    const Mail& mail;
    const Rows& rows;
    u32 which;
    // Parts a warp goes over side by side, with a load of each under way.
    static constexpr u32 AT_ONCE = 6;
    static constexpr bool NEIGHBOURS = false;

    __device__ __forceinline__ u32 count(u32 part) const { return listed_count(mail.listed[part]); }
    __device__ __forceinline__ u64 token(u32 part, u32 i) const { return __ldcg(rows.list(rows.rank, which, part) + i); }
    __device__ __forceinline__ u64 above(u32 part) const { return mass_above_listed(mail.listed[part]); }

    // Calls f(tokens) in step for all lanes, with AT_ONCE tokens, the k-th of them of the k-th of some parts, then done(part, k).
    template <class F, class Done>
    __device__ __forceinline__ void each(F f, Done done) const {
        u32 parts = rows.blocks * MASS_WARPS;
#pragma unroll 1
        for (u32 first = warp_id(); first < parts; first += LEAD_WARPS * AT_ONCE) {
            u32 part = first + lane_id() * LEAD_WARPS;
            u32 own = lane_id() < AT_ONCE && part < parts ? count(part) : 0, longest = __reduce_max_sync(ALL_LANES, own);
            const u64* list = rows.list(rows.rank, which, first);
#pragma unroll 1
            for (u32 i = lane_id(); i < (longest + 31) / 32 * 32; i += 32) {
                u64 x[AT_ONCE];
                for (u32 k = 0; k < AT_ONCE; k++)
                    x[k] = i < __shfl_sync(ALL_LANES, own, k) ? __ldcg(list + k * LEAD_WARPS * rows.list_length + i) : 0;
                f(x);
            }
            for (u32 k = 0; k < AT_ONCE; k++)
                if (first + k * LEAD_WARPS < parts) done(first + k * LEAD_WARPS, k);
        }
    }

    // Calls f(tokens) for all of them.
    template <class F>
    __device__ __forceinline__ void all(F f) const {
        each(f, [](u32, u32) {});
    }

    // Calls done(part, sum of f(token)) in step for all lanes.
    template <class F, class Done>
    __device__ __forceinline__ void sums(F f, Done done) const {
        u64 own[AT_ONCE] = {};
        each([&](const u64* x) { for (u32 k = 0; k < AT_ONCE; k++) own[k] += f(x[k]); },
             [&](u32 part, u32 k) { done(part, warp_sum(own[k])), own[k] = 0; });
    }
};

// All tokens above -inf that `within` has.
template <u32 DTYPE>
struct WholeRow {
    typedef Element<DTYPE> E;
    const Rows& rows;
    Copy<DTYPE> copy;
    InMemory<E> values;
    Cut within;
    // Neighbours, which are often alike, or near each other.
    static constexpr u32 AT_ONCE = 4;
    static constexpr bool NEIGHBOURS = true;

    __device__ __forceinline__ u32 count(u32 part) const {
        u32 from = min(part * copy.part, copy.lead + copy.len);
        return min(copy.part, copy.lead + copy.len - from);
    }
    __device__ __forceinline__ u64 word(float x, u32 index) const {
        u32 key = key_of(x);
        return x == MINUS_INF || !within.has(key, index) ? 0 : (u64)key << 32 | ~index;
    }
    __device__ __forceinline__ u64 token(u32 part, u32 i) const {
        u32 place = part * copy.part + i;
        if (place < copy.lead) return 0;
        return word(values.at(place - copy.lead), place - copy.lead);
    }
    __device__ __forceinline__ u64 above(u32) const { return 0; }

    // Four neighbours; none if they are not wanted.
    __device__ __forceinline__ void load4(u32 place, bool wanted, float* x) const {
        if (wanted) return values.load4((i32)(place - copy.lead), x);
        for (u32 e = 0; e < 4; e++) x[e] = MINUS_INF;
    }

    template <class F, class Done>
    __device__ __forceinline__ void each(F f, Done done) const {
#pragma unroll 1
        for (u32 part = warp_id(); part < rows.blocks * MASS_WARPS; part += LEAD_WARPS) {
            u32 from = part * copy.part, n = count(part), at = lane_id() * 4;
            float next[AT_ONCE];
            load4(from + at, at < n, next);
#pragma unroll 1
            for (u32 left = (n + 127) / 128; left > 0; left--) {
                u64 x[AT_ONCE];
                for (u32 k = 0; k < AT_ONCE; k++) x[k] = word(next[k], from + at + k - copy.lead);
                at += 128;
                // These are on their way while those are worked on.
                load4(from + at, at < n, next);
                f(x);
            }
            done(part);
        }
    }

    template <class F>
    __device__ __forceinline__ void all(F f) const {
        each(f, [](u32) {});
    }

    template <class F, class Done>
    __device__ __forceinline__ void sums(F f, Done done) const {
        u64 own = 0;
        each([&](const u64* x) { for (u32 k = 0; k < AT_ONCE; k++) own += f(x[k]); },
             [&](u32 part) { done(part, warp_sum(own)), own = 0; });
    }
};

#endif
