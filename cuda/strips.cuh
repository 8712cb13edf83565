// A block's share of a row, read once, straight from the logits, 16 bytes a lane: the lines of 128 bytes whose number is
// the block's rank modulo the blocks of the cluster, so that every block sees the same mix of ids. The first line of each
// strip of lines is read ahead of the others, into registers: an even sample of the share.

// Lanes that read a line together, and lines that a warp reads at once.
constexpr u32 LINE_LANES = 8, WARP_LINES = 4;
// Loads of the sample a thread has, and of the rest that it has in flight.
constexpr u32 SAMPLED = 4, IN_FLIGHT = 4;

// The 16 bytes of a lane as elements.
template <u32 DTYPE>
struct Vector {
    typedef Element<DTYPE> E;
    static constexpr u32 GRAIN = 16 / sizeof(typename E::Bits);

    static __device__ __forceinline__ u32 word(const uint4& v, u32 i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

    static __device__ __forceinline__ float at(const uint4& v, u32 e) {
        if constexpr (GRAIN == 4) return __uint_as_float(word(v, e));
        else return E::widen((u16)(word(v, e / 2) >> (e % 2 * 16)));
    }

    // The largest, NaN if there is one.
    static __device__ __forceinline__ float max(const uint4& v) {
        if constexpr (GRAIN == 4) {
            return max_or_nan(max_or_nan(at(v, 0), at(v, 1)), max_or_nan(at(v, 2), at(v, 3)));
        } else if constexpr (DTYPE == SD_DTYPE_BF16) {
            u32 m = max_or_nan_bf16x2(max_or_nan_bf16x2(v.x, v.y), max_or_nan_bf16x2(v.z, v.w));
            return max_or_nan(E::widen((u16)m), E::widen((u16)(m >> 16)));
        } else {
            u32 m = max_or_nan_f16x2(max_or_nan_f16x2(v.x, v.y), max_or_nan_f16x2(v.z, v.w));
            return max_or_nan(E::widen((u16)m), E::widen((u16)(m >> 16)));
        }
    }

    // Puts -inf where a bit of `allowed` is 0.
    static __device__ __forceinline__ void forbid(uint4& v, u32 allowed) {
        u32 words[4] = {v.x, v.y, v.z, v.w};
        for (u32 i = 0; i < 4; i++) {
            if constexpr (GRAIN == 4) {
                if (!(allowed >> i & 1)) words[i] = E::LOWEST;
            } else {
                if (!(allowed >> 2 * i & 1)) words[i] = (words[i] & 0xffff0000u) | E::LOWEST;
                if (!(allowed >> (2 * i + 1) & 1)) words[i] = (words[i] & 0xffffu) | (u32)E::LOWEST << 16;
            }
        }
        v = make_uint4(words[0], words[1], words[2], words[3]);
    }
};

template <u32 DTYPE>
struct Strips {
    typedef Element<DTYPE> E;
    typedef typename E::Bits Bits;
    typedef Vector<DTYPE> V;
    static constexpr u32 GRAIN = V::GRAIN;

    u64 values;
    u32 len;
    // Whole grains lie from index `head` on.
    u32 head, grains;
    u32 rank, blocks;
    // Lines of a strip: a power of two.
    u32 strip;

    __device__ __forceinline__ Strips(u64 row_values, u64 length, u32 block, u32 count)
        : values(row_values), len((u32)length), rank(block), blocks(count) {
        u32 lead = (u32)(values / sizeof(Bits)) % GRAIN;
        head = min(lead == 0 ? 0 : GRAIN - lead, len);
        grains = (len - head) / GRAIN;
        u32 all = (grains + LINE_LANES - 1) / LINE_LANES;
        u32 sampled = warp_count() * WARP_LINES * SAMPLED * blocks;
        strip = all <= sampled ? 1 : 1u << (32 - __clz((all - 1) / sampled));
    }

    // This lane's grain of the `line`-th line of the block and of those after it.
    __device__ __forceinline__ u32 grain_of(u32 line) const {
        return ((line + lane_id() / LINE_LANES) * blocks + rank) * LINE_LANES + lane_id() % LINE_LANES;
    }

    __device__ __forceinline__ u32 sampled_grain(u32 i) const {
        u32 line = (afresh(i) * warp_count() + warp_id()) * WARP_LINES + lane_id() / LINE_LANES;
        return (line * strip * blocks + rank) * LINE_LANES + lane_id() % LINE_LANES;
    }

    __device__ __forceinline__ u32 index_of(u32 grain) const { return head + grain * GRAIN; }

    __device__ __forceinline__ uint4 load_there(u32 grain) const {
        return __ldg((const uint4*)((const Bits*)values + head) + grain);
    }

    __device__ __forceinline__ uint4 load(u32 grain) const {
        return grain < grains ? load_there(grain) : make_uint4(0, 0, 0, 0);
    }

    // Elements before and after the whole grains, and the index of one of them.
    __device__ __forceinline__ u32 ends() const { return len - grains * GRAIN; }
    __device__ __forceinline__ u32 end_index(u32 i) const { return i < head ? i : i + grains * GRAIN; }

    // The value of a token after the mask.
    __device__ __forceinline__ float value(const u32* mask, u32 index) const {
        if (mask != 0 && !(__ldg(mask + index / 32) >> (index % 32) & 1)) return MINUS_INF;
        return E::widen(__ldg((const Bits*)values + index));
    }

    // Calls f(value after the mask, id) for this thread's part of the whole row, whatever the cluster.
    template <class F>
    __device__ __forceinline__ void each(const u32* mask, F f) const {
#pragma unroll 1
        for (u32 grain = threadIdx.x; grain < grains; grain += blockDim.x) {
#pragma unroll 1
            for (u32 e = 0; e < GRAIN; e++) f(value(mask, index_of(grain) + e), index_of(grain) + e);
        }
        if (threadIdx.x < ends()) f(value(mask, end_index(threadIdx.x)), end_index(threadIdx.x));
    }
};
