// The end of a row by the lead from the whole of it in global memory: where lists ran over or the end was not in them, and for a top-k
// that is not small. A pass for each sum or level of bins.

#if __CUDA_ARCH__ >= 900

// Mass of all tokens.
template <class Tokens>
__device__ __forceinline__ u64 mass_of_all(Shared& sh, const Tokens& tokens, const Weight& weight) {
    u64 own = sum_of_part(sh, tokens, [&](u64 x) { return x != 0 ? weight.amount(value_of_key((u32)(x >> 32))) : 0; }), total;
    lead_scan(sh, own, &total);
    return total;
}

// The vocabulary is less than 2^18, so that a bin holds its masses.
template <u32 DTYPE>
__device__ __noinline__ void lead_whole(Pipe& pipe) {
    const RowBlock& b = pipe.block;
    Shared& sh = pipe.shared;
    __builtin_assume(__isShared(&pipe));
    const Ending& row = pipe.ending;
    const Params& params = row.found.params;
    WholeRow<DTYPE> tokens = {pipe.rows, Copy<DTYPE>(0, row.found.values, b.vocab),
                              InMemory<Element<DTYPE>>{row.found.values, (const u32*)row.found.mask, (u32)b.vocab}, CUT_ALL};
    u32 high = key_of(row.weight.max), low = key_of(LOWEST_FINITE);
    Cut top_k = CUT_ALL, top_p = CUT_ALL;
    if (params.top_k < b.vocab) {
        // A small top-k ends among the candidates. Fewer tokens than k have no such end.
        u32 least = row.road == ROAD_LIST ? (u32)pipe.mails[row.which].window : low;
        if (!end_of_prefix(sh, tokens, ByCount{}, least, high, 0, params.top_k - 1, &top_k)) top_k = CUT_ALL;
    }
    if (row.road == ROAD_LIST) {
        // No more than top_k.
        tokens.within = top_k;
        gather(sh, tokens, low, high);
        return draw_from_few(pipe, sh.candidates);
    }
    if (params.top_p != SD_TOP_P_OFF) {
        if (params.top_k_first) tokens.within = top_k;
        ByMass mass = {row.weight};
        u64 limit = multiply_shift(mass_of_all(sh, tokens, row.weight), params.top_p, 32);
        if (!end_of_prefix(sh, tokens, mass, low, high, 0, limit, &top_p)) top_p = CUT_ALL;
    }
    tokens.within = CUT_ALL;
    draw_within<DTYPE>(pipe, tokens, shorter(top_k, top_p));
}

#endif
