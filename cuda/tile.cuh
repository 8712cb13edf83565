// A row of logits in the shared memory of a cluster: block r holds its r-th part, copied once from global memory by the
// bulk copy engine while the maximum of what has arrived is taken. The same pass writes the mask and the NaN rule into
// the copy, so that every later pass reads finished values. The copy keeps the type of the logits.
//
// Places count from the last 16-byte boundary at or before the row, `lead` elements ahead of token 0.

// Parts of a block's copy that arrive on their own, so that work starts on the first.
constexpr u32 CHUNKS = 4;

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

__device__ __forceinline__ void arrival_init(u64* arrival) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrival)) : "memory");
}

// Starts copying `bytes` (a multiple of 16, from and to 16-byte boundaries); `arrival` completes with them.
__device__ __forceinline__ void bulk_copy(void* to, u64 from, u32 bytes, u64* arrival) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(arrival)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(arrival))
                 : "memory");
}

__device__ __forceinline__ void arrival_wait(u64* arrival) {
    u32 done;
    do {
        asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(done)
                     : "r"(shared_address(arrival))
                     : "memory");
    } while (!done);
}

template <u32 DTYPE>
struct Tile {
    typedef Cluster Team;
    typedef Element<DTYPE> E;
    typedef typename E::Bits Bits;
    // Elements a lane handles at a time.
    static constexpr u32 WIDTH = 4;
    // Elements of 16 bytes.
    static constexpr u32 GRAIN = 16 / sizeof(Bits);

    Team& team;
    u64 values;
    const u32* mask;
    u32 len, lead;
    // This block's elements; places first_place to end_place, of which copied_from to copied_to come in bulk.
    Bits* tile;
    u32 first_place, end_place, copied_from, copied_to;
    // This warp's places.
    u32 begin, end;

    // Elements of a block's part of a row of `length`, for `parts` blocks of `warps` warps.
    __device__ static u32 warp_part(u32 length, u32 lead, u32 parts, u32 warps) {
        u32 grains = (lead + length + GRAIN - 1) / GRAIN;
        return (grains + parts * warps - 1) / (parts * warps) * GRAIN;
    }

    __device__ Tile(Team& t, void* memory, u64 row_values, u64 length) : team(t), values(row_values), mask(0), len((u32)length) {
        tile = (Bits*)memory;
        lead = (u32)(values / sizeof(Bits)) % GRAIN;
        u32 warps = warp_count();
        u32 part = warp_part(len, lead, team.size(), warps);
        u32 last = (lead + len + GRAIN - 1) / GRAIN * GRAIN;
        first_place = min(team.rank() * warps * part, last);
        end_place = min(first_place + warps * part, last);
        part_of(warp_id(), &begin, &end);
        copied_from = max(first_place, (lead + GRAIN - 1) / GRAIN * GRAIN);
        copied_to = max(copied_from, min(end_place, (lead + len) / GRAIN * GRAIN));
    }

    // Places of a warp of this block.
    __device__ void part_of(u32 warp, u32* from, u32* to) const {
        u32 part = warp_part(len, lead, team.size(), warp_count());
        *from = min(first_place + warp * part, end_place);
        *to = min(*from + part, end_place);
    }

    __device__ __forceinline__ u32 chunk_end(u32 chunk) const {
        u32 grains = (copied_to - copied_from) / GRAIN;
        return copied_from + grains * (chunk + 1) / CHUNKS * GRAIN;
    }

    // Starts the copies, by one thread; the arrivals are set up here too.
    __device__ void start(u64* arrivals) {
#pragma unroll 1
        for (u32 c = 0; c < CHUNKS; c++) arrival_init(arrivals + c);
        asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
        u32 from = copied_from;
#pragma unroll 1
        for (u32 c = 0; c < CHUNKS; c++) {
            u32 to = chunk_end(c);
            if (to > from)
                bulk_copy(tile + (from - first_place), values + (u64)(from - lead) * sizeof(Bits),
                          (to - from) * (u32)sizeof(Bits), arrivals + c);
            from = to;
        }
    }

    // Copies the ends that are not whole grains; places outside the row become -inf. By all threads of the block.
    __device__ void fill_ends() {
        u32 before = copied_from - first_place, after = end_place - copied_to;
        for (u32 i = threadIdx.x; i < before + after; i += blockDim.x) {
            u32 place = i < before ? first_place + i : copied_to + (i - before);
            u32 index = place - lead;
            tile[place - first_place] = index < len ? __ldg((const Bits*)values + index) : E::LOWEST;
        }
    }

    __device__ __forceinline__ void load4(u32 place, float* x) const {
        if constexpr (sizeof(Bits) == 4) {
            float4 v = *(const float4*)(tile + (place - first_place));
            x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
        } else {
            ushort4 v = *(const ushort4*)(tile + (place - first_place));
            x[0] = E::widen(v.x), x[1] = E::widen(v.y), x[2] = E::widen(v.z), x[3] = E::widen(v.w);
        }
    }

    __device__ __forceinline__ float value(u32 place) const { return E::widen(tile[place - first_place]); }

    // Applies the mask to four elements of the copy.
    __device__ __forceinline__ void apply_mask(u32 place, float* x) {
        u32 index = place - lead, bits = 15;
        if (index + 4 <= len && index < len) {
            u32 low = __ldg(mask + index / 32);
            u32 high = index % 32 > 28 ? __ldg(mask + index / 32 + 1) : 0;
            bits = __funnelshift_r(low, high, index % 32) & 15;
        } else {
            for (u32 e = 0; e < 4; e++) {
                u32 i = index + e;
                if (i < len && !(__ldg(mask + i / 32) >> (i % 32) & 1)) bits &= ~(1u << e);
            }
        }
        for (u32 e = 0; e < 4; e++) {
            if (!(bits >> e & 1)) {
                x[e] = MINUS_INF;
                tile[place + e - first_place] = E::LOWEST;
            }
        }
    }

    // Takes the maxima of this block's part as it arrives: four a thread, each over every fourth element the thread
    // sees. Mask and NaN rule are written into the copy. The caller synchronises before anyone reads another thread's
    // part.
    __device__ __forceinline__ void arrive(u64* arrivals, u64 row_mask, float* max, bool* nan) {
        mask = (const u32*)row_mask;
        for (u32 e = 0; e < 4; e++) max[e] = MINUS_INF;
        u32 from = first_place;
#pragma unroll 1
        for (u32 c = 0; c < CHUNKS; c++) {
            u32 to = c + 1 < CHUNKS ? chunk_end(c) : end_place;
            if (chunk_end(c) > (c == 0 ? copied_from : chunk_end(c - 1))) arrival_wait(arrivals + c);
#pragma unroll 2
            for (u32 place = from + threadIdx.x * 4; place < to; place += blockDim.x * 4) {
                float x[4];
                load4(place, x);
                if (mask != 0) apply_mask(place, x);
                for (u32 e = 0; e < 4; e++) max[e] = max_or_nan(max[e], x[e]);
            }
            from = to;
        }
        *nan = false;
        for (u32 e = 0; e < 4; e++) *nan |= max[e] != max[e];
        if (*nan) mend(max);
    }

    // Writes -inf over the NaN this thread saw and takes its maxima again.
    __device__ __noinline__ void mend(float* max) {
        for (u32 e = 0; e < 4; e++) max[e] = MINUS_INF;
        u32 from = first_place;
        for (u32 c = 0; c < CHUNKS; c++) {
            u32 to = c + 1 < CHUNKS ? chunk_end(c) : end_place;
            for (u32 place = from + threadIdx.x * 4; place < to; place += blockDim.x * 4) {
                for (u32 e = 0; e < 4; e++) {
                    Bits& bits = tile[place + e - first_place];
                    float x = E::widen(bits);
                    if (x != x) bits = E::LOWEST;
                    max[e] = fmaxf(max[e], x);
                }
            }
            from = to;
        }
    }

    // The value at index i, from global memory: any block may ask for any token.
    __device__ __forceinline__ float at(u32 i) const {
        if (mask != 0 && !(__ldg(mask + i / 32) >> (i % 32) & 1)) return MINUS_INF;
        return clean(E::widen(__ldg((const Bits*)values + i)));
    }

    __device__ __forceinline__ u32 id_at(u32 i) const { return i; }

    __device__ __forceinline__ i64 find(i64 id) const { return in_range(id, len) ? id : -1; }

    // Calls f(value) for the values of this warp; a value of -inf may come more often than it occurs.
    template <class F>
    __device__ __forceinline__ void each_value(F f) const {
#pragma unroll 2
        for (u32 place = begin + lane_id() * 4; place < end; place += 128) {
            float x[4];
            load4(place, x);
            for (u32 e = 0; e < 4; e++) f(x[e]);
        }
    }

    // Calls f(index, id, value) for the values of this warp.
    template <class F>
    __device__ __forceinline__ void each(F f) const {
#pragma unroll 1
        for (u32 place = begin + lane_id() * 4; place < end; place += 128) {
            float x[4];
            load4(place, x);
            u32 index = place - lead;
            for (u32 e = 0; e < 4; e++) {
                if (index + e < len) f(index + e, index + e, x[e]);
            }
        }
    }

    __device__ __forceinline__ Group<4> group(u32 place) const {
        Group<4> v;
        load4(place, v.x);
        v.first = place - lead;
        v.valid = 0;
        for (u32 e = 0; e < 4; e++) v.valid |= (v.first + e < len ? 1u : 0u) << e;
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
