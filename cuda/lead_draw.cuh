// A draw by the lead's eight warps from the masses of a row's parts: from the part it falls into once more, in global memory.

#if __CUDA_ARCH__ >= 900

// A drawn token, by the thread that found it; `total` is the mass of all kept tokens.
__device__ __forceinline__ void store_drawn_by_lead(Pipe& pipe, u32 id, float x, u64 total) {
    const RowBlock& b = pipe.block;
    const Ending& row = pipe.ending;
    if (VERIFIES && row.question.kind == DRAFT_TOKEN) {
        bool accepts = (i64)id == row.question.id;
        store<i32>(pipe.verify.row_accepts, row.row_index, accepts ? 1 : 0);
        if (!accepts) tell_rejection(b, row.place);
    }
    store_token(b, row.row_index, (i64)id);
    store<i32>(b.status, row.row_index, row.status);
    if (b.logprobs != 0)
        store<float>(b.logprobs, row.row_index, logprob_of_exponent(row.weight.exponent(x), log2_total(total)));
}

// Sum over the lead's threads before this one, and over all.
__device__ __forceinline__ u64 lead_scan(Shared& sh, u64 own, u64* total) {
    u64 before = block_scan_before(sh, own);
    if (thread_id() == LEAD_THREADS - 1) sh.found = before + own;
    team_barrier();
    *total = sh.found;
    return before;
}

// The masses of the kept tokens of a row, of a thread's part and of those before it, and what is drawn from: not from the token
// `without`.
struct Parts {
    u64 own, before, total, drawn;
    u32 without;
};

__device__ __forceinline__ Parts parts_of(Shared& sh, u64 own) {
    u64 total, before = lead_scan(sh, own, &total);
    return Parts{own, before, total, total, 0xffffffffu};
}

// Finds the part of the row in which the draw falls, by the mass of each thread's part, and goes over it once more: `kept(x, id)` is
// the mass of a token that is kept.
template <u32 DTYPE, class Kept>
__device__ __forceinline__ void lead_find(Pipe& pipe, const Parts& parts, Kept kept_mass) {
    typedef Copy<DTYPE> C;
    typedef Element<DTYPE> E;
    const RowBlock& b = pipe.block;
    Shared& sh = pipe.shared;
    const Ending& row = pipe.ending;
    u64 own = parts.own;
    auto kept = [&](float x, u32 id) { return VERIFIES && id == parts.without ? 0 : kept_mass(x, id); };
    u64 target = scale_bits(row.bits, parts.drawn);
    if (parts.before <= target && target - parts.before < own) sh.owner = thread_id(), sh.owner_before = parts.before;
    team_barrier();
    C copy(0, row.found.values, b.vocab);
    InMemory<E> row_values = {row.found.values, (const u32*)row.found.mask, copy.len};
    u32 from = (u32)sh.owner * copy.part, to = min(from + copy.part, copy.lead + copy.len);
    u32 each = ((to - from) + LEAD_THREADS - 1) / LEAD_THREADS;
    from = min(from + thread_id() * each, to), to = min(from + each, to);
    // Places ahead of the row hold nothing.
    from = max(from, copy.lead);
    own = 0;
#pragma unroll 4
    for (u32 place = from; place < to; place++) own += kept(row_values.at(place - copy.lead), place - copy.lead);
    u64 running = sh.owner_before + block_scan_before(sh, own);
    if (target < running || target - running >= own) return;
#pragma unroll 1
    for (u32 place = from; place < to; place++) {
        float x = row_values.at(place - copy.lead);
        running += kept(x, place - copy.lead);
        if (running <= target) continue;
        store_drawn_by_lead(pipe, place - copy.lead, x, parts.total);
        return;
    }
}

#endif
