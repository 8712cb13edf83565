// A row whose small top-k has left a few candidates, in order in shared memory: what the filters keep of them, the draw, and
// everything that is read off a list.

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ u32 candidate_id(const Shared& sh, u32 i) { return ~(u32)sh.list.order[i]; }

__device__ __forceinline__ float candidate_exponent(const Shared& sh, const Weight& weight, u32 i) {
    return weight.exponent(value_of_key((u32)(sh.list.order[i] >> 32)));
}

// Finds the candidate on which `target` falls among `masses`, one for each of the `kept` first, which count by id; calls
// `found(i)` in one thread.
template <class Found>
__device__ __forceinline__ void find_candidate(const Shared& sh, const u64* masses, u32 kept, u64 target, Found found) {
#pragma unroll 1
    for (u32 i = thread_id(); i < kept; i += thread_count()) {
        u32 id = candidate_id(sh, i);
        u64 through = 0;
#pragma unroll 4
        for (u32 j = 0; j < kept; j++) through += candidate_id(sh, j) <= id ? masses[j] : 0;
        if (target < through && through - masses[i] <= target) found(i);
    }
}

// What belongs to the candidate `i` as the row's token, by one thread.
__device__ __forceinline__ void store_candidate(const RowBlock& b, const Shared& sh, u64 row_index, const Weight& weight,
                                                const Kept& kept, u32 i, i32 status) {
    u32 id = candidate_id(sh, i);
    float t = candidate_exponent(sh, weight, i);
    store_token(b, row_index, (i64)id);
    store<i32>(b.status, row_index, status);
    store<i32>(b.ranks, row_index, (i32)i + 1);
    store<i32>(b.kept_counts, row_index, (i32)kept.count);
    if (b.logprobs != 0) store<float>(b.logprobs, row_index, logprob_of_exponent(t, log2_total(kept.mass)));
    if (b.sum_smaller_probs != 0) {
        u64 sum = 0;
#pragma unroll 1
        for (u32 j = 0; j < kept.count; j++) {
            float other = candidate_exponent(sh, weight, j);
            if (other < t || (other == t && candidate_id(sh, j) <= id)) sum += sh.list.masses[j];
        }
        store<float>(b.sum_smaller_probs, row_index, ratio(sum, kept.mass));
    }
}

// The row's top list.
__device__ __forceinline__ void store_top_candidates(const RowBlock& b, const Shared& sh, u64 row_index, const Weight& weight,
                                                     const Kept& kept) {
    i32* ids = (i32*)b.top_ids + row_index * b.top_width;
    float* logprobs = (float*)b.top_logprobs + row_index * b.top_width;
    float l = log2_total(kept.mass);
#pragma unroll 1
    for (u64 i = thread_id(); i < b.top_width; i += thread_count()) {
        bool used = i < kept.count;
        ids[i] = used ? (i32)candidate_id(sh, (u32)i) : -1;
        logprobs[i] = used ? logprob_of_exponent(candidate_exponent(sh, weight, (u32)i), l) : MINUS_INF;
    }
    if (thread_id() == 0) store<i32>(b.top_counts, row_index, (i32)min((u64)kept.count, b.top_width));
}

// Draws from the `n` ordered candidates of a small top-k, by one block.
__device__ __forceinline__ void draw_from_list(const RowBlock& b, Shared& sh, u64 row_index, const Weight& weight,
                                               const Params& params, u32 n, u64 whole, i32 status, u64 bits) {
    Kept kept = keep_candidates(sh, weight, params, n, whole);
    find_candidate(sh, sh.list.masses, kept.count, scale_bits(bits, kept.mass),
                   [&](u32 i) { store_candidate(b, sh, row_index, weight, kept, i, status); });
    if (b.top_width != 0) store_top_candidates(b, sh, row_index, weight, kept);
}

#endif
