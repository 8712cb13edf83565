// What becomes of a draft, on the roads of sample_tile.cuh: judged by its own mass and the total, in every block alike; a
// rejected one costs a pass over the residual masses only where the draft is a whole distribution, for otherwise it cedes
// all of its own mass and nothing else.

#if __CUDA_ARCH__ >= 900

// The draft's distribution in global memory, by the place of its tokens in the row.
struct DraftRow {
    const float* logprobs;
    u32 width;

    __device__ __forceinline__ float at(u32 index) const { return index < width ? __ldg(logprobs + index) : MINUS_INF; }

    // Four neighbours from an index on that may be ahead of the row; at once if they lie on their boundary in memory.
    __device__ __forceinline__ void load4(u32 index, bool whole_vector, float* q) const {
        if (whole_vector && index < width && width - index >= 4) {
            float4 four = __ldg((const float4*)(logprobs + index));
            q[0] = four.x, q[1] = four.y, q[2] = four.z, q[3] = four.w;
        } else {
            for (u32 e = 0; e < 4; e++) q[e] = at(index + e);
        }
    }
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

// Whether the draft is rejected whatever is drawn.
__device__ __forceinline__ bool is_rejected(const Question& question, Verdict verdict) {
    return verdict != ACCEPTED && question.kind != DRAFT_LAST && question.kind != DRAFT_TOKEN;
}

__device__ __forceinline__ i32 draft_status(const Question& question) {
    return question.q != question.q ? SD_STATUS_NAN_DRAFT : 0;
}

// What a draft leaves of a token's kept mass, by its own mass of the token.
__device__ __forceinline__ u64 left_of(u64 mass, u64 drafted, u64 total) {
    u64 ceded = scale_draft(drafted, total);
    return mass > ceded ? mass - ceded : 0;
}

// A row whose largest value is +inf keeps the tokens there alone: these as ones at 0.
__device__ __forceinline__ Weight with_finite_max(const Weight& weight) {
    return Weight{weight.max == PLUS_INF ? -0.0f : weight.max, weight.scale, weight.lowest};
}
__device__ __forceinline__ float below_finite_max(const Weight& weight, float x) {
    if (weight.max != PLUS_INF) return x;
    return x == PLUS_INF ? 0.0f : MINUS_INF;
}

// The same of four tokens of a row whose largest value is finite, by their values and the draft's logprobs; NaN is told of a token
// that is kept.
__device__ __forceinline__ void left_of_four(const Weight& weight, const float* x, const float* q, u64 total, u64* left,
                                             bool* nan) {
    float t[4], d[4];
    for (u32 e = 0; e < 4; e++) {
        t[e] = __fmul_rn(__fsub_rn(x[e], weight.max), weight.scale);
        t[e] = t[e] >= weight.lowest ? t[e] : MINUS_INF;
        d[e] = draft_exponent(q[e]);
    }
    // NaN where one of them is, or where infinities of either sign meet.
    float any = __fadd_rn(__fadd_rn(q[0], q[1]), __fadd_rn(q[2], q[3]));
    if (any != any)
        for (u32 e = 0; e < 4; e++) *nan |= q[e] != q[e] && t[e] != MINUS_INF;
    Powers<4> kept(t), ceded(d);
    for (u32 e = 0; e < 4; e++) left[e] = left_of(whole_mass(kept.scaled(e)), whole_mass(ceded.scaled(e)), total);
}

// Rows after a request's first rejection give no token, so nothing need be drawn for them. Which rows those are is told in the
// head of the scratch memory, by a hint that several requests may share: the largest wins.
constexpr u32 HINTS = SCRATCH_HEAD / 8 - 1;

// Of two rows of one request the earlier counts as larger.
__device__ __forceinline__ u64 as_hint(const Place& place) {
    return (place.request + 1) << 32 | (0xffffffffu - (u32)place.local_step);
}

__device__ __forceinline__ u64* hint_at(const RowBlock& b, u64 hint) { return (u64*)b.scratch + 1 + (hint >> 32) % HINTS; }

// Whether a hint says that a row before this one is rejected.
__device__ __forceinline__ bool is_ahead(u64 hint, u64 own) { return hint >> 32 == own >> 32 && hint > own; }

__device__ __forceinline__ void tell_rejection(const RowBlock& b, const Place& place) {
    atomicMax(hint_at(b, as_hint(place)), as_hint(place));
}

// Whether an earlier row of the request is known to be rejected; not knowing costs time alone.
__device__ __forceinline__ bool is_idle(const RowBlock& b, const Place& place) {
    return is_ahead(load_relaxed(hint_at(b, as_hint(place))), as_hint(place));
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
        return kind == DRAFT_ROW ? left_of(mass, draft_mass(draft.at(at - lead)), total) : mass;
    }
};

// A rejected row as clusters that stay leave it to the launch behind them: what forms the residual masses of its kept tokens, and
// draws from them. No total: nothing is left to do.
struct Pending {
    u64 total;
    Cut cut;
    float max;
    i32 status;
};
static_assert(sizeof(Pending) == 24, "as the scratch memory is sized");

__device__ __forceinline__ Pending* pending_of(const RowBlock& b, u64 row) {
    return (Pending*)(b.scratch + SCRATCH_HEAD) + row;
}

// The verdict and the draw from the ordered candidates of a small top-k, of which `kept` are kept, by one block. `rest` has room
// for the masses that the draft leaves of these.
__device__ __forceinline__ void conclude_list(const RowBlock& b, const VerifyBlock& v, Shared& sh, u64 row_index,
                                              const Place& place, const Weight& weight, const Kept& kept,
                                              const Question& question, const DraftRow& draft, u64* rest, i32 status) {
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
    if (thread_id() == 0 && is_rejected(question, verdict)) tell_rejection(b, place);
    if (verdict == DRAW_REST) {
        from = rest;
        u64 own = 0;
        bool nan = false;
#pragma unroll 1
        for (u32 i = thread_id(); i < kept.count; i += thread_count()) {
            u32 id = candidate_id(sh, i);
            float q = draft.at(id);
            if (question.kind == DRAFT_ONE_HOT) q = (i64)id == question.id ? 0.0f : MINUS_INF;
            nan |= q != q;
            own += from[i] = left_of(masses[i], draft_mass(q), total);
        }
        if (team_any(nan)) status |= SD_STATUS_NAN_DRAFT;
        u64 before = block_scan_before(sh, own);
        if (thread_id() == thread_count() - 1) sh.owner_before = before + own;
        team_barrier();
        total = sh.owner_before;
        if (total == 0) {
            // `rest` may be where the masses were.
            for (u32 i = thread_id(); i < kept.count; i += thread_count())
                masses[i] = mass_of_exponent(candidate_exponent(sh, weight, i));
            team_barrier();
            from = masses, total = kept.mass;
        }
    }
    auto store_as = [&](u32 i, bool accepts) {
        store_candidate(b, sh, row_index, weight, kept, i, status);
        store<i32>(v.row_accepts, row_index, accepts ? 1 : 0);
        if (question.kind == DRAFT_TOKEN && !accepts) tell_rejection(b, place);
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
