// What becomes of a draft, on the roads of sample_tile.cuh: judged by its own mass and the total, in every block alike; a
// rejected one costs a pass over the residual masses only where the draft is a whole distribution, for otherwise it cedes
// all of its own mass and nothing else.

#if __CUDA_ARCH__ >= 900

// The draft's distribution in global memory, by the place of its tokens in the row.
struct DraftRow {
    const float* logprobs;
    u32 width;

    __device__ __forceinline__ float at(u32 index) const { return index < width ? __ldg(logprobs + index) : MINUS_INF; }
};

__device__ __forceinline__ DraftRow draft_row_of(const RowBlock& b, const VerifyBlock& v, u64 row_index, const Draft& draft) {
    // A row of all columns has them by id.
    if (v.remapped != 0) return DraftRow{(const float*)v.remapped + row_index * b.columns, (u32)b.columns};
    return DraftRow{(const float*)v.draft_logprobs + draft.pool_row * v.draft_stride, (u32)v.draft_width};
}

// What a draft is judged by besides the row's masses, all of it asked for before they are known.
struct Question {
    DraftKind kind;
    i64 id;
    // The logit and the draft's logprob of the draft's token, where it has one.
    float x, q;
    // The bits of the judgement, and of the draw that follows.
    u64 accept, draw;
};

template <class S>
__device__ __forceinline__ Question question_of(const RowBlock& b, const VerifyBlock& v, u64 row_index, const Place& place,
                                                u64 seed, const Draft& draft, const S& source) {
    u64 offset = place.local_step * v.position_stride;
    bool fresh = draft.kind == DRAFT_LAST || draft.kind == DRAFT_TOKEN;
    Question question = {draft.kind, draft.id, MINUS_INF, MINUS_INF, 0, 0};
    question.draw =
        draw_bits(b, row_index, place.request, offset, seed, fresh ? (u64)SD_CASE_FRESH : (u64)SD_CASE_RESIDUAL);
    if (draft.kind == DRAFT_ONE_HOT || draft.kind == DRAFT_ROW) {
        question.accept = draw_bits(b, row_index, place.request, offset, seed, SD_CASE_ACCEPT);
        question.x = source.at((u32)draft.id);
        question.q = draft_logprob(b, v, row_index, draft, (u32)draft.id, (u32)draft.id);
    }
    return question;
}

enum Verdict {
    // The draft's token is the row's.
    ACCEPTED,
    // The token is drawn from the kept masses, for there is nothing to subtract, or it is not known.
    DRAW_ALL,
    // The token is drawn from what the draft leaves of them.
    DRAW_REST,
};

// `mass` is that of the draft's token, 0 if it is not kept; `total` that of all kept tokens.
__device__ __forceinline__ Verdict judge(const Question& question, u64 mass, u64 total) {
    if (question.kind != DRAFT_ONE_HOT && question.kind != DRAFT_ROW) return DRAW_ALL;
    if (question.q != question.q) return DRAW_ALL;
    u64 ceded = scale_draft(draft_mass(question.q), total);
    return scale_bits(question.accept, ceded) < mass ? ACCEPTED : DRAW_REST;
}

__device__ __forceinline__ i32 draft_status(const Question& question) {
    return question.q != question.q ? SD_STATUS_NAN_DRAFT : 0;
}

// What a draft leaves of a token's kept mass.
__device__ __forceinline__ u64 left_of(u64 mass, float q, u64 total) {
    u64 ceded = scale_draft(draft_mass(q), total);
    return mass > ceded ? mass - ceded : 0;
}

// Rows after a request's first rejection give no token, so their residuals need not be formed. Which rows those are is told
// where the scratch memory has a place for it, a hint that several requests share: the largest wins. All 0 before and after
// a launch, as the number of finished rows is.
constexpr u32 HINTS = 31;

__device__ __forceinline__ u64* hint_of(const RowBlock& b, const Place& place) {
    return (u64*)b.scratch + 1 + place.request % HINTS;
}

// Of two rows of one request the earlier counts as larger.
__device__ __forceinline__ u64 as_hint(const Place& place) {
    return (place.request + 1) << 32 | (0xffffffffu - (u32)place.local_step);
}

__device__ __forceinline__ void tell_rejection(const RowBlock& b, const Place& place) {
    atomicMax(hint_of(b, place), as_hint(place));
}

// Whether an earlier row of the request is known to be rejected; not knowing costs time alone.
__device__ __forceinline__ bool is_idle(const RowBlock& b, const Place& place) {
    u64 hint = atomicMax(hint_of(b, place), 0ull);
    return hint >> 32 == place.request + 1 && hint > as_hint(place);
}

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
    auto load = [&](u32 at, float* q) {
        u32 index = at - copy.lead;
        if (whole_vectors && index < draft.width && draft.width - index >= 4) {
            float4 four = __ldg((const float4*)(draft.logprobs + index));
            q[0] = four.x, q[1] = four.y, q[2] = four.z, q[3] = four.w;
        } else {
            for (u32 e = 0; e < 4; e++) q[e] = draft.at(index + e);
        }
    };
    u64 own = 0;
    float next[4] = {};
    if (from + lane_id() * 4 < end) load(from + lane_id() * 4, next);
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
        for (u32 e = 0; e < 4; e++) q[e] = next[e];
        if (at + 128 < end) load(at + 128, next);
        for (u32 e = 0; e < 4; e++) {
            *nan |= q[e] != q[e] && weight.may_keep(weight.exponent(x[e]));
            own += left_of(weight.kept_mass(x[e]), q[e], total);
        }
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
        own += left_of(weight.kept_mass(x), q, total);
    }
    return own;
}

// What a draw is made from, as its search needs it.
struct Left {
    DraftKind kind;
    // Place of the draft's token.
    u32 place;
    u32 lead;
    DraftRow draft;
    u64 total;

    __device__ __forceinline__ u64 operator()(u32 at, u64 mass) const {
        if (kind == DRAFT_ONE_HOT) return at == place ? 0 : mass;
        return kind == DRAFT_ROW ? left_of(mass, draft.at(at - lead), total) : mass;
    }
};

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

// The same from the `n` ordered candidates of a small top-k on, by one block.
__device__ __forceinline__ void conclude_list(const RowBlock& b, const VerifyBlock& v, Shared& sh, u64 row_index,
                                              const Weight& weight, const Params& params, const Question& question,
                                              const DraftRow& draft, u32 n, u64 whole, i32 status) {
    Kept kept = keep_candidates(sh, weight, params, n, whole);
    u64 *masses = sh.list.masses, *from = masses, total = kept.mass;
    if (thread_id() == 0) sh.found = 0;
    team_barrier();
#pragma unroll 1
    for (u32 i = thread_id(); i < kept.count; i += thread_count())
        if ((i64)candidate_id(sh, i) == question.id) sh.found = i + 1;
    team_barrier();
    u32 at = (u32)sh.found;
    Verdict verdict = judge(question, at != 0 ? masses[at - 1] : 0, total);
    status |= draft_status(question);
    if (verdict == DRAW_REST) {
        from = masses + SMALL_TOP_K;
        u64 own = 0;
        bool nan = false;
#pragma unroll 1
        for (u32 i = thread_id(); i < kept.count; i += thread_count()) {
            u32 id = candidate_id(sh, i);
            float q = draft.at(id);
            if (question.kind == DRAFT_ONE_HOT) q = (i64)id == question.id ? 0.0f : MINUS_INF;
            nan |= q != q;
            own += from[i] = left_of(masses[i], q, total);
        }
        if (team_any(nan)) status |= SD_STATUS_NAN_DRAFT;
        u64 before = block_scan_before(sh, own);
        if (thread_id() == thread_count() - 1) sh.owner_before = before + own;
        team_barrier();
        total = sh.owner_before;
        if (total == 0) from = masses, total = kept.mass;
    }
    auto store_as = [&](u32 i, bool accepts) {
        store_candidate(b, sh, row_index, weight, kept, i, status);
        store<i32>(v.row_accepts, row_index, accepts ? 1 : 0);
    };
    if (verdict == ACCEPTED) {
        if (thread_id() == 0) store_as(at - 1, true);
    } else {
        find_candidate(sh, from, kept.count, scale_bits(question.draw, total), [&](u32 i) {
            store_as(i, question.kind == DRAFT_TOKEN && (i64)candidate_id(sh, i) == question.id);
        });
    }
    if (b.top_width != 0) store_top_candidates(b, sh, row_index, weight, kept);
}

#endif
