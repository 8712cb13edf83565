// Processes a row and verifies its draft, the row in the shared memory of a cluster of blocks; the last block of the launch
// to finish settles the requests. The logits are read once. The roads are those of sample_tile.cuh, from the masses on as
// verdict.cuh has them: a rejected draft that is a whole distribution costs one more pass, over shared memory and the
// draft's row. Finished rows, and hints to rows that need not go on, are counted in the first words of the scratch memory,
// which are 0 before and after.

#if __CUDA_ARCH__ >= 900

// The last road; `known` is what top-k and top-p keep, where a shorter way has found that.
template <u32 DTYPE>
__device__ __noinline__ void verify_any(const RowBlock& b, const VerifyBlock& v, Shared& sh, u64 row_index,
                                        const Resolved found, const Place place, const Draft draft, const Copy<DTYPE> copy,
                                        float max, i32 status, const Cut* known) {
    Cluster team(sh);
    if (found.state != ROW_LIVE && writes_scalars(team)) store<i32>(v.row_accepts, row_index, 0);
    if (found.state == ROW_BAD) store_bad(b, row_index, team);
    if (found.state == ROW_LIVE) {
        Tile<DTYPE> source(team, copy, found.mask);
        verify_row(b, v, row_index, found, place, draft, source, max, status, known);
    }
    finish_row(b, v, team);
}

template <u32 DTYPE>
__device__ __forceinline__ void verify_tile(const RowBlock& b, const VerifyBlock& v) {
    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ Shared sh;
    start_block(sh);
    allow_next_launch();
    wait_for_inputs();
    u64 row_index = cluster_number();
    i64 logits_row = load_index_or_self(b.gather, b.gather_width, row_index);
    bool readable = in_range(logits_row, b.logits_rows);
    Copy<DTYPE> copy(memory, logits_at(b, readable ? (u64)logits_row : 0), b.vocab);
    if (readable && thread_id() == 0) copy.start(sh.arrivals);
    Place place;
    Draft draft;
    Resolved found = resolve_verified(b, v, row_index, &place, &draft);
    const Params& params = found.params;
    bool live = found.state == ROW_LIVE, all_columns = live && b.columns == b.vocab;
    bool quick = all_columns && forced_token(b, row_index) == -1 && (b.raw_logprobs | b.dense | b.kept_ids) == 0;
    Question question = {};
    DraftRow draft_row = {0, 0};
    if (quick) {
        Cluster team(sh);
        question = question_of(b, v, row_index, place, params.seed, draft, Tile<DTYPE>(team, copy, found.mask));
        if (draft.kind == DRAFT_ROW) draft_row = draft_row_of(b, v, row_index, draft);
    }
    Asked asked = all_columns ? small_asked(params, b.vocab) : Asked{0, 0};
    if (readable) copy.fill_ends(all_hands());
    team_barrier();
    bool nan = false;
    float max = MINUS_INF;
    if (readable) max = copy.arrive(sh.arrivals, live ? (const u32*)found.mask : 0, &nan);
    Agreed agreed = push_max(sh, max, nan, asked);
    i32 status = (agreed.nan ? SD_STATUS_NAN_LOGITS : 0) | (agreed.max == PLUS_INF ? SD_STATUS_INF_LOGITS : 0);
    Weight weight = {agreed.max, params.scale, params.min_exponent};
    bool token_alone = quick && (b.ranks | b.kept_counts | b.sum_smaller_probs | b.top_width) == 0;
    bool top_k = params.top_k != SD_TOP_K_OFF, top_p = params.top_p != SD_TOP_P_OFF;
    bool whole_row = token_alone && !top_k && !top_p, small_k = quick && asked.need != 0;
    Cut cut;
    bool known = false;
    if (agreed.max != MINUS_INF && (whole_row || small_k)) {
        bool joint = small_k && top_p && !params.top_k_first;
        Sums sums = first_sums(sh, copy, weight, whole_row, joint, small_k, agreed.bound);
        if (whole_row) {
            u32 shares = conclude(
                b, v, sh, row_index, place, copy, weight, question, draft_row, weight.kept_mass(question.x), sums, status,
                [&](bool* nan_draft) { return residual_of_part(b, place, copy, weight, draft_row, sums.mass, nan_draft); },
                [&](const Sums& from, u64 target, const Left& left, auto store) {
                    find_in_part(sh, copy, weight, from, target, left, store);
                });
            return finish_shares(b, v, sh, shares);
        }
        if (gather_candidates(sh, sums)) {
            if (cluster_rank() != 0) return;
            Kept kept = keep_candidates(sh, weight, params, sums.count, joint ? sums.mass : 0);
            conclude_list(b, v, sh, row_index, place, weight, kept, question, draft_row, sh.list.masses + SMALL_TOP_K, status);
            return finish_shares(b, v, sh, FINISHED);
        }
    } else if (all_columns && agreed.max != MINUS_INF) {
        if (token_alone && !top_k && top_p && agreed.max != PLUS_INF) {
            WarpList list;
            if (cut_top_p(sh, copy, weight, params.top_p, &list, &cut)) {
                Sums sums = push_sums(sh, mass_of_list(copy, weight, cut, list), &sh.exchanges[3]);
                bool kept = cut.has(key_of(question.x), (u32)question.id);
                u32 shares = conclude(
                    b, v, sh, row_index, place, copy, weight, question, draft_row, kept ? weight.kept_mass(question.x) : 0,
                    sums, status,
                    [&](bool* nan_draft) {
                        return residual_of_list(copy, weight, cut, list, draft_row, sums.mass, nan_draft);
                    },
                    [&](const Sums& from, u64 target, const Left& left, auto store) {
                        find_in_lists(sh, copy, weight, cut, from, target, left, store);
                    });
                return finish_shares(b, v, sh, shares);
            }
        } else {
            known = cut_filters(sh, copy, weight, params, agreed.bound, asked.need != 0, &cut);
        }
    }
    verify_any<DTYPE>(b, v, sh, row_index, found, place, draft, copy, agreed.max, status, known ? &cut : 0);
}

#else

template <u32 DTYPE>
__device__ void verify_tile(const RowBlock&, const VerifyBlock&) {}

#endif
