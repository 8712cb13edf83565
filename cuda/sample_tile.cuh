// Processes a row and draws its token: a cluster of blocks a row, the row in its shared memory.
// The logits are read once from global memory, the maximum taken as they arrive; every later pass runs over shared
// memory. Blocks of several rows share a multiprocessor, so that the copies of one row overlap the arithmetic of another.
//
// Four roads lead on from the maximum.
// * No top-k, no top-p, the token alone wanted: one pass of masses; the block that owns the draw finds the token.
// * A small top-k: the warps' maxima bound the k-th largest value from below, so the few tokens above the bound are
//   handed to the first block, which puts them in order; with a top-p over the whole row one pass of masses besides.
// * Top-p without top-k: the pass of masses also adds them up in rough bins, which say above which value more than top-p
//   lies; the tokens above it are listed, and cut.cuh finds the end of the kept prefix among them.
// * Everything else: the passes of row.cuh.

#if __CUDA_ARCH__ >= 900

// The last road; `known` is what top-k and top-p keep, where a shorter way has found that.
template <u32 DTYPE>
__device__ __noinline__ void sample_any(const RowBlock& b, Shared& sh, u64 row_index, const Params params,
                                        const Copy<DTYPE> copy, u64 mask, float max, i32 status, const Cut* known) {
    Cluster team(sh);
    Tile<DTYPE> source(team, copy, mask);
    sample_row(b, row_index, params, source, max, status, known);
    // A peer may still be reading this block's memory.
    team.sync();
}

// A drawn token, by the thread that found it; `total` is the mass of all kept tokens.
template <class C>
__device__ __forceinline__ void store_drawn(const RowBlock& b, u64 row_index, const C& copy, const Weight& weight, u64 total,
                                            i32 status, u32 place, float x) {
    store_token(b, row_index, (i64)(place - copy.lead));
    store<i32>(b.status, row_index, status);
    if (b.logprobs != 0) store<float>(b.logprobs, row_index, logprob_of_exponent(weight.exponent(x), log2_total(total)));
}

template <u32 DTYPE>
__device__ __forceinline__ void sample_tile(const RowBlock& b) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Shared sh;
    start_block(sh);
    allow_next_launch();
    wait_for_inputs();
    u64 row_index = cluster_number();
    // The copy starts before the rest of the row's indices is known: nothing is read outside the logits for it.
    i64 logits_row = load_index_or_self(b.gather, b.gather_width, row_index);
    bool readable = in_range(logits_row, b.logits_rows);
    Copy<DTYPE> copy(memory, logits_at(b, readable ? (u64)logits_row : 0), b.vocab);
    if (readable && thread_id() == 0) copy.start(sh.arrivals);
    Resolved found = resolve(b, row_index);
    const Params& params = found.params;
    // The draw's bits need the position alone; asked for now, they are there in time.
    bool fresh = false;
    u64 bits = 0;
    if (found.state == ROW_LIVE && b.positions != 0 && forced_token(b, row_index) == -1) {
        fresh = true;
        bits = draw_bits(b, row_index, row_index, 0, params.seed, SD_CASE_FRESH);
    }
    bool all_columns = found.state == ROW_LIVE && b.columns == b.vocab;
    Asked asked = all_columns ? small_asked(params, b.vocab) : Asked{0, 0};
    bool small_k = asked.need != 0 && fresh && (b.raw_logprobs | b.dense | b.kept_ids) == 0;
    if (readable) copy.fill_ends(all_hands());
    team_barrier();
    bool nan = false;
    float max = MINUS_INF;
    const u32* mask = found.state == ROW_LIVE ? (const u32*)found.mask : 0;
    if (readable) max = copy.arrive(sh.arrivals, mask, &nan);
    Agreed agreed = push_max(sh, max, nan, asked);
    if (found.state != ROW_LIVE) {
        if (found.state == ROW_BAD) store_bad(b, row_index, Cluster(sh));
        return;
    }
    i32 status = (agreed.nan ? SD_STATUS_NAN_LOGITS : 0) | (agreed.max == PLUS_INF ? SD_STATUS_INF_LOGITS : 0);
    Weight weight = {agreed.max, params.scale, params.min_exponent};
    bool nothing_else =
        (b.ranks | b.kept_counts | b.raw_logprobs | b.sum_smaller_probs | b.top_width | b.dense | b.kept_ids) == 0;
    bool whole_row = fresh && all_columns && nothing_else && params.top_k == SD_TOP_K_OFF && params.top_p == SD_TOP_P_OFF;
    bool joint = small_k && params.top_p != SD_TOP_P_OFF && !params.top_k_first;
    if (agreed.max != MINUS_INF && (whole_row || small_k)) {
        Sums sums = first_sums(sh, copy, weight, whole_row, joint, small_k, agreed.bound);
        if (whole_row) {
            u64 target = scale_bits(bits, sums.mass);
            if (!owns(sums, target)) return;
            return find_in_part(sh, copy, weight, sums, target, AllOfIt(), [&](u32 place, float x) {
                store_drawn(b, row_index, copy, weight, sums.mass, status, place, x);
            });
        }
        if (gather_candidates(sh, sums)) {
            if (cluster_rank() != 0) return;
            return draw_from_list(b, sh, row_index, weight, params, sums.count, joint ? sums.mass : 0, status,
                                  bits);
        }
    }
    Cut cut;
    bool known = false;
    if (all_columns && !small_k && agreed.max != MINUS_INF) {
        if (fresh && nothing_else && params.top_k == SD_TOP_K_OFF && params.top_p != SD_TOP_P_OFF &&
            agreed.max != PLUS_INF) {
            WarpList list;
            if (cut_top_p(sh, copy, weight, params.top_p, &list, &cut)) {
                Sums sums = push_sums(sh, mass_of_list(copy, weight, cut, list), &sh.exchanges[3]);
                u64 target = scale_bits(bits, sums.mass);
                if (!owns(sums, target)) return;
                return find_in_lists(sh, copy, weight, cut, sums, target, AllOfIt(), [&](u32 place, float x) {
                    store_drawn(b, row_index, copy, weight, sums.mass, status, place, x);
                });
            }
        } else {
            known = cut_filters(sh, copy, weight, params, agreed.bound, asked.need != 0, &cut);
        }
    }
    sample_any<DTYPE>(b, sh, row_index, params, copy, found.mask, agreed.max, status, known ? &cut : 0);
}

#else

template <u32 DTYPE>
__device__ void sample_tile(const RowBlock&) {}

#endif
