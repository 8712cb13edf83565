// The first token of each row's order for a batch in which every row has top_k = 1, straight from the logits: a cluster
// of blocks (or one block) a row. One pass, nothing kept: each thread holds, for every place within 16 bytes, its first
// largest value and where it was. A key and an inverted index make one integer whose maximum is the answer; blocks hand
// theirs to the first of the cluster, which writes it.

// Loads of 16 bytes a thread has in flight: for few rows of f32 so many that a block of eight that share a row of 131072 has asked
// for all of its part at once; more than these are slower where there are many rows.
constexpr u32 IN_FLIGHT = 6, IN_FLIGHT_FEW = 8;

template <u32 DTYPE>
struct Stream {
    typedef Element<DTYPE> E;
    typedef typename E::Bits Bits;
    static constexpr u32 GRAIN = 16 / sizeof(Bits);

    u64 values;
    const u32* mask;
    float max[GRAIN];
    u32 at[GRAIN];
    // NaN once a NaN was seen.
    float seen;

    __device__ __forceinline__ void see(u32 e, u32 index, float x) {
        seen = max_or_nan(seen, x);
        // Indices ascend within a thread, so that the first of equal values stays.
        bool better = x > max[e];
        max[e] = better ? x : max[e];
        at[e] = better ? index : at[e];
    }

    // An element at the ends of the row.
    __device__ __forceinline__ void see_alone(u32 index) {
        if (mask == 0 || (__ldg(mask + index / 32) >> (index % 32) & 1)) see(0, index, E::widen(__ldg((const Bits*)values + index)));
    }

    // This thread's key and inverted index, as one integer; `*nan` where it saw one.
    template <u32 FLIGHT, bool MASKED>
    __device__ __forceinline__ u64 scan(u32 len, u32 part, u32 parts, bool* nan) {
        for (u32 e = 0; e < GRAIN; e++) max[e] = MINUS_INF, at[e] = 0;
        seen = MINUS_INF;
        u32 lead = (u32)(values / sizeof(Bits)) % GRAIN;
        // Whole grains lie from index `head` on; the elements before and after them are taken one a thread.
        u32 head = min(lead == 0 ? 0 : GRAIN - lead, len);
        u32 grains = (len - head) / GRAIN, tail = head + grains * GRAIN;
        if (part == 0 && threadIdx.x < head) see_alone(threadIdx.x);
        const uint4* vectors = (const uint4*)((const Bits*)values + head);
        u32 each = (grains + parts - 1) / parts;
        u32 end = min((part + 1) * each, grains);
        for (u32 base = part * each + threadIdx.x; base < end; base += blockDim.x * FLIGHT) {
            uint4 v[FLIGHT];
            u32 allowed[FLIGHT];
            for (u32 i = 0; i < FLIGHT; i++) {
                u32 grain = min(base + i * blockDim.x, end - 1);
                v[i] = __ldg(vectors + grain);
                if (MASKED) allowed[i] = mask_bits(mask, head + grain * GRAIN, GRAIN);
            }
            for (u32 i = 0; i < FLIGHT; i++) {
                // A grain past the end is the last one again: it changes nothing.
                u32 index = head + min(base + i * blockDim.x, end - 1) * GRAIN;
                const Bits* bits = (const Bits*)&v[i];
                for (u32 e = 0; e < GRAIN; e++) {
                    float x = E::widen(bits[e]);
                    // -inf is no better than what there is.
                    see(e, index + e, !MASKED || (allowed[i] >> e & 1) ? x : MINUS_INF);
                }
            }
        }
        if (part == parts - 1 && threadIdx.x < len - tail) see_alone(tail + threadIdx.x);
        *nan = seen != seen;
        u64 best = 0;
        for (u32 e = 0; e < GRAIN; e++) {
            u64 x = (u64)key_of(max[e]) << 32 | (u32)~at[e];
            best = x > best ? x : best;
        }
        return best;
    }
};

template <u32 DTYPE, u32 FLIGHT>
__device__ __forceinline__ void argmax_stream(const RowBlock& b) {
    __shared__ Shared sh;
    u32 rank = 0, blocks = 1;
    u64 row_index = blockIdx.x;
#if __CUDA_ARCH__ >= 900
    rank = cluster_rank(), blocks = cluster_size();
    row_index = cluster_number();
    if (rank == 0 && threadIdx.x == 0) {
        completion_init(&sh.exchanges[0]);
        completions_ready();
        completion_expect(&sh.exchanges[0], blocks * 8);
    }
    if (blocks > 1) cluster_started();
#endif
    allow_next_launch();
    wait_for_inputs();
    // Without a mask and a gather the values are asked for before the row's parameters are known; a row that cannot be
    // processed has been read in vain, within the logits.
    bool direct = b.mask == 0 && b.gather == 0 && row_index < b.logits_rows;
    Resolved found;
    if (!direct) found = resolve(b, row_index);
    Stream<DTYPE> stream;
    bool nan = false;
    u64 best = 0;
    if (direct || found.state == ROW_LIVE) {
        stream.values = direct ? logits_at(b, row_index) : found.values;
        stream.mask = direct ? 0 : (const u32*)found.mask;
        // One warp looks the row up first, while the others read.
        if (direct && warp_id() == warp_count() - 1) {
            found = resolve(b, row_index);
            if (lane_id() == 0) sh.owner = found.state;
        }
        best = stream.mask == 0 ? stream.template scan<FLIGHT, false>((u32)b.vocab, rank, blocks, &nan)
                                : stream.template scan<FLIGHT, true>((u32)b.vocab, rank, blocks, &nan);
    }
    best = warp_max(best);
    u32 any = __any_sync(ALL_LANES, nan);
    // The NaN flag takes the lowest bit of the inverted index, one place up; indices have 23 bits.
    if (lane_id() == 0) sh.scan[warp_id()] = (best & ~0xffffffffull) | (u32)best << 1 | any;
    if (!direct && threadIdx.x == 0) sh.owner = found.state;
    __syncthreads();
    u32 state = (u32)sh.owner;
#if __CUDA_ARCH__ >= 900
    if (blocks > 1) cluster_wait_started();
#endif
    if (state != ROW_LIVE) {
        if (state == ROW_BAD && rank == 0) store_bad(b, row_index, Block(sh));
        return;
    }
    if (warp_id() != 0) return;
    best = warp_max(lane_id() < warp_count() ? sh.scan[lane_id()] & ~1ull : 0);
    any = __any_sync(ALL_LANES, lane_id() < warp_count() && (sh.scan[lane_id()] & 1) != 0);
#if __CUDA_ARCH__ >= 900
    if (blocks > 1) {
        if (lane_id() == 0) push(0, &sh.pushed_max[rank], best | any, &sh.exchanges[0]);
        if (rank != 0) return;
        completion_wait(&sh.exchanges[0]);
        u64 x = lane_id() < blocks ? sh.pushed_max[lane_id()] : 0;
        best = warp_max(x & ~1ull);
        any = __any_sync(ALL_LANES, (x & 1) != 0);
    }
#endif
    u32 index = ~((u32)best >> 1 | 0x80000000u);
    if (lane_id() == 0) store_argmax(b, row_index, value_of_key((u32)(best >> 32)), index, any != 0, 0);
}

extern "C" __global__ void __launch_bounds__(512, 2) samedraw_argmax_f32(const __grid_constant__ RowBlock b) {
    argmax_stream<(u32)SD_DTYPE_F32, IN_FLIGHT>(b);
}

extern "C" __global__ void __launch_bounds__(512, 2) samedraw_argmax_few_f32(const __grid_constant__ RowBlock b) {
    argmax_stream<(u32)SD_DTYPE_F32, IN_FLIGHT_FEW>(b);
}

extern "C" __global__ void __launch_bounds__(512) samedraw_argmax_f16(const __grid_constant__ RowBlock b) {
    argmax_stream<(u32)SD_DTYPE_F16, IN_FLIGHT>(b);
}

extern "C" __global__ void __launch_bounds__(512) samedraw_argmax_bf16(const __grid_constant__ RowBlock b) {
    argmax_stream<(u32)SD_DTYPE_BF16, IN_FLIGHT>(b);
}
