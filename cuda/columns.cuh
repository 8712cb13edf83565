// One row up to its first N tokens, by a cluster of blocks or by one.

// Every block of the cluster gets every block's list.
__device__ __forceinline__ void gather_lists(Desk& desk, const Lists& lists, u32 rank, u32 blocks, u64 bound, bool nan) {
    u64 facts = desk.listed | (nan ? 1ull << 32 : 0);
#if __CUDA_ARCH__ >= 900
    if (blocks > 1) {
        if (threadIdx.x < blocks) {
            u32 to = threadIdx.x, count = min(desk.listed, lists.capacity);
            u32 bytes = to == rank ? 0 : (count + 1) / 2 * 16;
            completion_expect_at(to, &desk.gathered, bytes + 16);
            push(to, &desk.bounds[rank], bound, &desk.gathered);
            push(to, &desk.facts[rank], facts, &desk.gathered);
            if (bytes != 0) push_copy(to, lists.entries + rank * lists.capacity, bytes, &desk.gathered);
        }
        completion_wait(&desk.gathered);
        return;
    }
#endif
    if (threadIdx.x == 0) desk.bounds[0] = bound, desk.facts[0] = facts;
    __syncthreads();
}

// The blocks of a cluster that work on a row.
struct Crew {
    u32 rank, blocks;
    u64 row_index;

    __device__ __forceinline__ explicit Crew(Desk& desk) : rank(0), blocks(1), row_index(blockIdx.x) {
#if __CUDA_ARCH__ >= 900
        rank = cluster_rank(), blocks = cluster_size(), row_index = cluster_number();
        if (threadIdx.x == 0 && blocks > 1) {
            completion_init(&desk.gathered, blocks);
            completions_ready();
        }
#endif
        if (threadIdx.x == 0) desk.listed = 0;
        __syncthreads();
        arrive();
    }

    // The halves of a barrier of the cluster: the first says that every block has started, the second that every block
    // has all the lists.
    __device__ __forceinline__ void arrive() const {
#if __CUDA_ARCH__ >= 900
        if (blocks > 1) cluster_started();
#endif
    }
    __device__ __forceinline__ void wait() const {
#if __CUDA_ARCH__ >= 900
        if (blocks > 1) cluster_wait_started();
#endif
    }
};

// Reads a row and hands every block all of its lists, unless the row is not to be processed.
// `resolve_row` says what the row's indices say; it is asked again later rather than kept, for its registers.
template <u32 DTYPE, class Resolve>
__device__ __forceinline__ RowState list_columns(const RowBlock& b, Desk& desk, const Lists& lists, const Crew& crew,
                                                 Resolve resolve_row) {
    // The loads start before the rest of the row's indices is known: nothing is read outside the logits for it.
    i64 logits_row = load_index_or_self(b.gather, b.gather_width, crew.row_index);
    bool readable = in_range(logits_row, b.logits_rows);
    Strips<DTYPE> strips(logits_at(b, readable ? (u64)logits_row : 0), readable ? b.vocab : 0, crew.rank, crew.blocks);
    uint4 sample[IN_FLIGHT], next[IN_FLIGHT];
    for (u32 i = 0; i < IN_FLIGHT; i++) sample[i] = strips.load(strips.sampled_grain(i));
    Resolved found = resolve_row();
    lists.clear();
    if (found.state != ROW_LIVE) {
        crew.wait();
        return found.state;
    }
    Sieve<DTYPE> sieve(desk, lists, strips, found.mask, b.vocab);
    for (u32 i = 0; i < IN_FLIGHT; i++) sieve.masked(sample[i], strips.sampled_grain(i));
    u32 k = sample_rank((u32)b.columns, crew.blocks * strips.strip, LINE_LANES * Strips<DTYPE>::GRAIN);
    __syncthreads();
    sieve.sift_sample(sample, k, k / 8 + 16);
    if (strips.strip > 1) sieve.load_rest(next, warp_id());
    sieve.sift_ends();
    sieve.sift_rest(next);
#if __CUDA_ARCH__ >= 900
    if (crew.blocks > 1) yield_to_copies();
#endif
    bool nan = __syncthreads_or(sieve.nan) != 0;
    crew.wait();
    gather_lists(desk, lists, crew.rank, crew.blocks, sieve.bound, nan);
    crew.arrive();
    return ROW_LIVE;
}
