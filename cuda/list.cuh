// A row whose small top-k has left a few candidates, in order in shared memory: what the filters keep of them, the draw, and
// everything that is read off a list.

#if __CUDA_ARCH__ >= 900

// Draws from the ordered candidates of a small top-k, by one block.
__device__ __forceinline__ void draw_from_list(const RowBlock& b, Shared& sh, u64 row_index, const Weight& weight,
                                               const Params& params, u64 whole, i32 status, u64 bits) {
    u64* order = sh.list.order;
    u64* masses = sh.list.masses;
    auto value = [&](u32 i) { return value_of_key((u32)(order[i] >> 32)); };
    Kept all = keep_candidates(sh, weight, params, whole);
    u32 kept = all.count;
    u64 mass = all.mass;
    float l = log2_total(mass);
    u64 target = scale_bits(bits, mass);
#pragma unroll 1
    for (u32 i = thread_id(); i < kept; i += thread_count()) {
        u32 id = ~(u32)order[i];
        u64 through = 0;
#pragma unroll 4
        for (u32 j = 0; j < kept; j++) through += ~(u32)order[j] <= id ? masses[j] : 0;
        if (through <= target || through - masses[i] > target) continue;
        float t = weight.exponent(value(i));
        store_token(b, row_index, (i64)id);
        store<i32>(b.status, row_index, status);
        store<i32>(b.ranks, row_index, (i32)i + 1);
        store<i32>(b.kept_counts, row_index, (i32)kept);
        store<float>(b.logprobs, row_index, logprob_of_exponent(t, l));
        if (b.sum_smaller_probs != 0) {
            u64 sum = 0;
#pragma unroll 1
            for (u32 j = 0; j < kept; j++) {
                float other = weight.exponent(value(j));
                if (other < t || (other == t && ~(u32)order[j] <= id)) sum += masses[j];
            }
            store<float>(b.sum_smaller_probs, row_index, ratio(sum, mass));
        }
    }
    if (b.top_width != 0) {
        i32* ids = (i32*)b.top_ids + row_index * b.top_width;
        float* logprobs = (float*)b.top_logprobs + row_index * b.top_width;
#pragma unroll 1
        for (u64 i = thread_id(); i < b.top_width; i += thread_count()) {
            bool used = i < kept;
            ids[i] = used ? (i32)~(u32)order[i] : -1;
            logprobs[i] = used ? logprob_of_exponent(weight.exponent(value((u32)i)), l) : MINUS_INF;
        }
        if (thread_id() == 0) store<i32>(b.top_counts, row_index, (i32)min((u64)kept, b.top_width));
    }
}

#endif
