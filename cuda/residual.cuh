// What a rejected draft that is a whole distribution leaves of a row in the shared memory of a cluster, over all of it or over the
// lists of its warps; and a row's way from its masses on.

#if __CUDA_ARCH__ >= 900

// This lane's share of the residual mass over all tokens of its warp's part; stops where the row turns out to be idle.
// `nan` is set where a kept token's draft is NaN.
template <class C>
__device__ __noinline__ u64 residual_of_part(const RowBlock& b, const Place place, const C copy, const Weight weight,
                                             const DraftRow draft, u64 total, bool* nan) {
    // Steps between two looks at the hint, each some hundred instructions a lane.
    constexpr u32 LOOK = 8;
    u32 from, end;
    copy.part_of(warp_id(), &from, &end);
    bool whole_vectors = ((u64)draft.logprobs / 4 - copy.lead) % 4 == 0;
    Weight finite = with_finite_max(weight);
    u64 own = 0;
    float next[4] = {};
    if (from + lane_id() * 4 < end) draft.load4(from + lane_id() * 4 - copy.lead, whole_vectors, next);
#pragma unroll 1
    for (u32 step = 0; from < end; step++, from += 128) {
        if (step % LOOK == 0) {
            bool idle = lane_id() == 0 && is_idle(b, place);
            if (__any_sync(ALL_LANES, idle)) break;
        }
        u32 at = from + lane_id() * 4;
        if (at >= end) continue;
        float x[4], q[4];
        copy.load4(at, x);
        for (u32 e = 0; e < 4; e++) x[e] = below_finite_max(weight, x[e]), q[e] = next[e];
        if (at + 128 < end) draft.load4(at + 128 - copy.lead, whole_vectors, next);
        u64 left[4];
        left_of_four(finite, x, q, total, left, nan);
        own += (left[0] + left[1]) + (left[2] + left[3]);
    }
    return own;
}

// The same over its warp's list.
template <class C>
__device__ __forceinline__ u64 residual_of_list(const C& copy, const Weight& weight, const Cut& cut, const WarpList& list,
                                                const DraftRow& draft, u64 total, bool* nan) {
    u64 own = 0;
#pragma unroll 1
    for (u32 i = lane_id(); i < list.count; i += 32) {
        u32 place = list.from + list.places[i];
        float x = copy.value(place), q = draft.at(place - copy.lead);
        if (!cut.has(key_of(x), place - copy.lead) || !weight.may_keep(weight.exponent(x))) continue;
        *nan |= q != q;
        own += left_of(weight.kept_mass(x), draft_mass(q), total);
    }
    return own;
}

// Takes the draft's own mass out of the sums.
template <class C>
__device__ __forceinline__ void take_out(Shared& sh, const C& copy, u32 place, u64 mass, Sums& sums) {
    u32 owner = place / (copy.part * warp_count());
    if (owner < cluster_rank()) sums.mass_before -= mass;
    if (owner == cluster_rank()) {
        sums.mass_own -= mass;
        // The first warp has read the warps' sums, and no other does before the barrier.
        if (thread_id() == 0) sh.scan[(place - copy.first_place) / copy.part] -= mass;
        team_barrier();
    }
    sums.mass -= mass;
}

// A row from the masses of its kept tokens on, which `sums` are: the verdict, the draw, the row's results. `mass` is the
// draft's, `residual(&nan)` a lane's share of the residual mass, `find(sums, target, left, found)` the search. Returns this
// block's shares of the finished row.
template <class C, class Residual, class Find>
__device__ __forceinline__ u32 conclude(const RowBlock& b, const VerifyBlock& v, Shared& sh, u64 row_index, const Place& place,
                                        const C& copy, const Weight& weight, const Question& question, const DraftRow& draft,
                                        u64 mass, Sums sums, i32 status, Residual residual, Find find) {
    bool writes = cluster_rank() == 0 && thread_id() == 0;
    u64 total = sums.mass;
    Verdict verdict = judge(question, mass, total);
    status |= draft_status(question);
    auto found = [&](u32 at, float x) {
        i64 token = (i64)(at - copy.lead);
        store_token(b, row_index, token);
        if (question.kind == DRAFT_TOKEN) store<i32>(v.row_accepts, row_index, token == question.id ? 1 : 0);
        if (b.logprobs != 0)
            store<float>(b.logprobs, row_index, logprob_of_exponent(weight.exponent(x), log2_total(total)));
    };
    if (verdict == ACCEPTED) {
        if (writes) {
            found((u32)question.id + copy.lead, question.x);
            store<i32>(v.row_accepts, row_index, 1);
            store<i32>(b.status, row_index, status);
        }
        return cluster_rank() == 0 ? FINISHED : 0;
    }
    Left left = {DRAFT_ABSENT, (u32)question.id + copy.lead, copy.lead, draft, total};
    if (verdict == DRAW_REST && question.kind == DRAFT_ONE_HOT && mass != total) {
        left.kind = DRAFT_ONE_HOT;
        take_out(sh, copy, left.place, mass, sums);
    }
    if (verdict == DRAW_REST && question.kind == DRAFT_ROW) {
        if (writes) tell_rejection(b, place);
        u64 warp_mass = sh.scan[warp_id()];
        bool nan = false;
        u64 own = residual(&nan);
        bool any = team_any(nan);
        if (thread_id() == 0) sh.candidates = any ? 1 : 0;
        // What the first exchange brought has been read: the last one came after it.
        Sums rest = push_sums(sh, own, &sh.exchanges[4], sh.pushed_max, sh.pushed_listed);
        if (rest.count != 0) status |= SD_STATUS_NAN_DRAFT;
        if (rest.mass != 0) {
            left.kind = DRAFT_ROW;
            sums = rest;
        } else {
            team_barrier();
            if (lane_id() == 0) sh.scan[warp_id()] = warp_mass;
            team_barrier();
        }
    }
    if (writes) {
        store<i32>(b.status, row_index, status);
        if (question.kind != DRAFT_TOKEN) store<i32>(v.row_accepts, row_index, 0);
    }
    u64 target = scale_bits(question.draw, sums.mass);
    bool mine = owns(sums, target);
    if (mine) find(sums, target, left, found);
    return (mine ? FINISHED / 2 : 0) + (cluster_rank() == 0 ? FINISHED / 2 : 0);
}

#endif
