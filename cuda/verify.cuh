// Verification of drafts: a row's decision, and settling the requests once every row has decided.

// What is known of the draft a row verifies.
enum DraftKind {
    // The row is its request's last: it draws fresh.
    DRAFT_LAST,
    // The draft's token alone matters (chain, golden rows).
    DRAFT_TOKEN,
    // There is no draft: reject, draw from the kept masses.
    DRAFT_ABSENT,
    // The draft's distribution is its token.
    DRAFT_ONE_HOT,
    // The draft's token and the row of its distribution.
    DRAFT_ROW,
    // The row of its distribution is out of range.
    DRAFT_BAD,
};

struct Draft {
    DraftKind kind;
    i64 id;
    u64 pool_row;
};

__device__ __forceinline__ Draft draft_of(const RowBlock& b, const VerifyBlock& v, u64 row, const Place& place) {
    if (place.is_last) return Draft{DRAFT_LAST, -1, 0};
    i64 id = load_index(v.draft_ids, v.draft_ids_width, row);
    if (forced_token(b, row) != -1 || v.mode == SD_VERIFY_CHAIN) return Draft{DRAFT_TOKEN, id, 0};
    if (!in_range(id, b.vocab)) return Draft{DRAFT_ABSENT, id, 0};
    if (v.mode == SD_VERIFY_ONE_HOT) return Draft{DRAFT_ONE_HOT, id, 0};
    i64 pool_row = draft_row(v, row);
    return Draft{pool_row < 0 ? DRAFT_BAD : DRAFT_ROW, id, (u64)pool_row};
}

// A row, where it stands in its request, and its draft.
__device__ __forceinline__ Resolved resolve_verified(const RowBlock& b, const VerifyBlock& v, u64 row, Place* place, Draft* draft) {
    *place = place_of(b, v, row);
    *draft = {};
    Resolved found = {};
    found.state = place->state;
    if (place->state == ROW_LIVE) found = resolve(b, row);
    if (found.state == ROW_LIVE) {
        *draft = draft_of(b, v, row, *place);
        if (draft->kind == DRAFT_BAD) found.state = ROW_BAD;
    }
    return found;
}

// The draft's logprob of the token `id` at `index` among the row's columns; -inf where it has none.
__device__ __forceinline__ float draft_logprob(const RowBlock& b, const VerifyBlock& v, u64 row, const Draft& draft,
                                               u32 index, u32 id) {
    if (draft.kind == DRAFT_ONE_HOT) return (i64)id == draft.id ? 0.0f : MINUS_INF;
    if (v.remapped != 0) return ((const float*)v.remapped)[row * b.columns + index];
    if (id < v.draft_width) return ((const float*)v.draft_logprobs)[draft.pool_row * v.draft_stride + id];
    return MINUS_INF;
}

struct Decision {
    i64 token;
    bool accepts;
    i32 status;
};

template <class R>
__device__ Decision decide(const RowBlock& b, const VerifyBlock& v, u64 row_index, const Place& place, u64 seed,
                           const R& row, const Draft& draft) {
    u64 offset = place.local_step * v.position_stride;
    auto bits = [&](u64 which) { return draw_bits(b, row_index, place.request, offset, seed, which); };
    if (draft.kind == DRAFT_LAST || draft.kind == DRAFT_TOKEN) {
        i64 token = forced_token(b, row_index);
        if (token == -1) token = row.draw(bits(SD_CASE_FRESH));
        return Decision{token, draft.kind == DRAFT_TOKEN && token >= 0 && token == draft.id, 0};
    }
    if (draft.kind == DRAFT_ABSENT) return Decision{row.draw(bits(SD_CASE_RESIDUAL)), false, 0};
    if (row.total == 0) return Decision{-1, false, 0};
    const auto& source = row.source;
    if (row.has_column(draft.id)) {
        float q = draft_logprob(b, v, row_index, draft, (u32)source.find(draft.id), (u32)draft.id);
        if (q != q) return Decision{row.draw(bits(SD_CASE_RESIDUAL)), false, SD_STATUS_NAN_DRAFT};
        u64 scaled = scale_draft(draft_mass(q), row.total);
        if (scale_bits(bits(SD_CASE_ACCEPT), scaled) < row.mass_of(draft.id)) return Decision{draft.id, true, 0};
    }
    u32 nan = 0;
    auto residual = [&](u32 index, u32 id, float x) -> u64 {
        if (!row.keeps(id, x)) return 0;
        float q = draft_logprob(b, v, row_index, draft, index, id);
        if (q != q) nan = 1;
        u64 own = row.mass(x), ceded = scale_draft(draft_mass(q), row.total);
        return own > ceded ? own - ceded : 0;
    };
    Span left;
    i32 status = 0;
    if (draft.kind == DRAFT_ONE_HOT) {
        // The draft cedes all of its mass and no other token any.
        left = row.span;
        u64 ceded = row.mass_of(draft.id);
        if (ceded != 0) {
            u32 owner = source.warp_of((u32)source.find(draft.id));
            u32 mine = source.team.rank() * warp_count() + warp_id();
            left.own -= owner == mine ? ceded : 0;
            left.before -= owner < mine ? ceded : 0;
            left.total -= ceded;
        }
    } else {
        left = weigh(source, residual);
        status = team_max(source.team, nan) != 0 ? SD_STATUS_NAN_DRAFT : 0;
    }
    u64 residual_bits = bits(SD_CASE_RESIDUAL);
    if (left.total == 0) return Decision{row.draw(residual_bits), false, status};
    i64 index = locate(source, left, scale_bits(residual_bits, left.total), residual);
    return Decision{index < 0 ? -1 : (i64)source.id_at((u32)index), false, status};
}

// Rows of a request after its first rejection give no token; a warp a request.
__device__ void settle(const RowBlock& b, const VerifyBlock& v, u64 request) {
    u64 first, end;
    if (!request_rows(b, v, request, &first, &end)) first = end = 0;
    i32* index = v.accept_index == 0 ? 0 : (i32*)v.accept_index + request * v.accept_width;
    if (index != 0) {
        for (u64 i = lane_id(); i < v.accept_width; i += 32) index[i] = -1;
        __syncwarp();
    }
    u32 accepted = 0;
    bool alive = true;
    for (u64 base = first; base < end; base += 32) {
        u64 row = base + lane_id();
        bool here = row < end;
        bool padding = here && (load_index(v.row_to_request, v.row_to_request_width, row) == -1 ||
                                resolve(b, row).state == ROW_PADDING);
        bool goes_on = here && !padding && __ldcg((const i32*)v.row_accepts + row) != 0;
        u32 chain = __ballot_sync(ALL_LANES, goes_on);
        // Rows up to and including the first that does not go on are reached.
        u32 run = __ffs((i32)~chain) == 0 ? 32 : (u32)__ffs((i32)~chain) - 1;
        bool reached = alive && lane_id() <= run;
        if (here && !padding) {
            if (reached) {
                bool has_token = (b.tokens_width == SD_WIDTH_I32 ? (i64)__ldcg((const i32*)b.tokens + row)
                                                      : (i64)__ldcg((const i64*)b.tokens + row)) >= 0;
                if (has_token && index != 0 && row - first < v.accept_width) index[row - first] = (i32)row;
            } else {
                store_token(b, row, -1);
                store<float>(b.logprobs, row, MINUS_INF);
                store<i32>(b.ranks, row, 0);
                store<float>(b.raw_logprobs, row, MINUS_INF);
                store<float>(b.sum_smaller_probs, row, 0.0f);
                if (b.status != 0) {
                    i32 found = __ldcg((const i32*)b.status + row);
                    store<i32>(b.status, row, found & ~SD_STATUS_NAN_DRAFT);
                }
            }
        }
        if (alive) accepted += run;
        alive = alive && run == 32;
    }
    if (lane_id() == 0) store<i32>(v.accepted, request, (i32)accepted);
}

// A row's part.
template <class Source>
__device__ void verify_row(const RowBlock& b, const VerifyBlock& v, u64 row_index, const Resolved& found,
                           const Place& place, const Draft& draft, const Source& source, float max, i32 status,
                           const Cut* known = 0) {
    Row<Source> row(source);
    row.process(b.columns, found.params, max, status, known);
    Decision decision = decide(b, v, row_index, place, found.params.seed, row, draft);
    if (writes_scalars(source.team)) store<i32>(v.row_accepts, row_index, decision.accepts ? 1 : 0);
    store_row(b, row_index, row, decision.token, row.status | decision.status);
}

// Shares of a finished row: blocks that write different results of it count apart.
constexpr u32 FINISHED = 2;
// Bytes of the scratch memory that are 0 before and after a stage: the count of shares comes first.
constexpr u32 SCRATCH_HEAD = 8192;

// Counts shares of finished rows, by a block; the one that brings the last settles every request.
__device__ void finish_shares(const RowBlock& b, const VerifyBlock& v, Shared& sh, u32 shares) {
    if (shares == 0) return;
    // What the block's threads wrote is ordered before the count by the fences and the barrier.
    __threadfence();
    team_barrier();
    if (thread_id() == 0) {
        __threadfence();
        sh.is_last = atomicAdd((u32*)b.scratch, shares) + shares == FINISHED * (u32)b.rows;
    }
    team_barrier();
    if (!sh.is_last) return;
    __threadfence();
    for (u64 request = warp_id(); request < v.requests; request += warp_count()) settle(b, v, request);
#pragma unroll 1
    for (u32 i = thread_id(); i < SCRATCH_HEAD / 4; i += thread_count()) ((u32*)b.scratch)[i] = 0;
}

// Counts a whole row.
template <class Team>
__device__ void finish_row(const RowBlock& b, const VerifyBlock& v, Team& team) {
    // What the team's threads wrote is ordered before the count by the barrier and the fence.
    __threadfence();
    team.sync();
    finish_shares(b, v, team.sh, team.rank() == 0 ? FINISHED : 0);
}
