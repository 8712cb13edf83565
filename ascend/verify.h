// Verification of drafts, SEMANTICS section 9: a row's decision, and settling the requests once every row has decided.

namespace samedraw {

struct Decision {
    i64 token;
    bool accepts;
    i32 status;
};

// Bits of the draft's logprob of its own token.
__aicore__ inline u32 draft_logprob(const Core& core, const Draft& draft, i64 place) {
    if (draft.kind == DRAFT_ONE_HOT) return 0;
    const u64 at = static_cast<u64>(draft.by_place ? place : draft.id);
    if (at >= draft.width) return MINUS_INF_BITS;
    core.ask();
    core.ask(IN_BITS, draft.logprobs + 4 * at, 1);
    core.answered();
    return core.word(IN_BITS);
}

__aicore__ inline Decision decide(const RowBlock& b, const VerifyBlock& v, const Resolved& r, Row& row, const Draft& draft) {
    const Core& core = row.core;
    const u64 offset = r.place.local_step * v.position_stride, request = r.place.request, seed = r.params.seed;
    if (draft.kind == DRAFT_LAST || draft.kind == DRAFT_TOKEN) {
        i64 token = r.golden;
        if (token == -1) token = row.draw(draw_bits(core, b, r.row, request, offset, seed, SD_CASE_FRESH));
        return Decision{token, draft.kind == DRAFT_TOKEN && token >= 0 && token == draft.id, 0};
    }
    const u64 bits = draw_bits(core, b, r.row, request, offset, seed, SD_CASE_RESIDUAL);
    if (draft.kind == DRAFT_ABSENT) return Decision{row.draw(bits), false, 0};
    if (row.total == 0) return Decision{-1, false, 0};
    const i64 place = row.row.find(draft.id, row.has_ids);
    if (place >= 0) {
        const u32 q = draft_logprob(core, draft, place);
        if (is_nan(q)) return Decision{row.draw(bits), false, SD_STATUS_NAN_DRAFT};
        const u64 scaled = multiply_shift(draft_mass(core, q), row.total, 40);
        const u64 accept = draw_bits(core, b, r.row, request, offset, seed, SD_CASE_ACCEPT);
        const Token token = row.token(draft.id);
        const u64 own = token.kept ? mass_of_exponent(core, token.exponent) : 0;
        if (multiply_shift(accept, scaled, SD_DRAW_BITS) < own) return Decision{draft.id, true, 0};
    }
    bool nan = false;
    const i64 token = draw_rest(row, draft, bits, &nan);
    return Decision{token, false, nan ? SD_STATUS_NAN_DRAFT : 0};
}

// Verify, a row's part.
__aicore__ inline void verify_row(Core& core, const RowBlock& b, const VerifyBlock& v, u64 row_index,
                                  const Split& split) {
    Resolved r;
    resolve(core, b, &v, row_index, r);
    Scalars accepts(core);
    const bool padding = r.place.state == PADDING || (r.place.state == LIVE && r.state == PADDING);
    const bool live = r.place.state == LIVE && r.state == LIVE;
    const Draft draft = live ? draft_of(b, v, r) : Draft{DRAFT_BAD, -1, 0, 0, false};
    if (draft.kind == DRAFT_BAD) {
        accepts.put(v.row_accepts, row_index, 0);
        accepts.flush();
        if (!padding) store_bad(core, b, row_index);
        return;
    }
    Row row(core, split);
    row.process(b, r, b.columns, r.params, wants_list(b, r.params));
    const Decision decision = decide(b, v, r, row, draft);
    accepts.put(v.row_accepts, row_index, decision.accepts ? 1 : 0);
    accepts.flush();
    store_row(b, r, row, decision.token, row.status | decision.status);
}

// Verify, a request's part: rows after the first rejection give no token.
__aicore__ inline void settle(Core& core, const RowBlock& b, const VerifyBlock& v, u64 request) {
    core.ask();
    core.ask(IN_ROWS, v.first_rows + 4 * request, 2);
    core.answered();
    i64 first = static_cast<i32>(core.word(IN_ROWS)), end = static_cast<i32>(core.word(IN_ROWS, 1));
    if (!(0 <= first && first <= end && end <= static_cast<i64>(b.rows))) first = end = 0;
    const u64 index = v.accept_index == 0 ? 0 : v.accept_index + 4 * request * v.accept_width;
    if (index != 0) write_fill(core, index, 0xffffffffu, v.accept_width);
    Scalars out(core);
    u32 accepted = 0;
    bool alive = true;
    for (i64 at = first; at < end; at++) {
        const u64 row = static_cast<u64>(at);
        core.ask();
        core.ask_index(IN_SLOT, b.row_to_slot, b.row_to_slot_width, row);
        core.ask_index(IN_REQUEST, v.row_to_request, v.row_to_request_width, row);
        core.ask_index(IN_GOLDEN, b.tokens, b.tokens_width, row);
        if (b.status != 0) core.ask(IN_STATUS, b.status + 4 * row, 1);
        core.ask(IN_BITS, v.row_accepts + 4 * row, 1);
        core.answered();
        if (core.index(IN_REQUEST, v.row_to_request_width) == -1 ||
            index_or_self(core, IN_SLOT, b.row_to_slot, b.row_to_slot_width, row) == -1) {
            alive = false;
            continue;
        }
        if (alive) {
            if (index != 0 && row - static_cast<u64>(first) < v.accept_width &&
                core.index(IN_GOLDEN, b.tokens_width) >= 0)
                out.put(index, row - static_cast<u64>(first), static_cast<u32>(row));
            alive = core.word(IN_BITS) != 0;
            accepted += alive ? 1 : 0;
        } else {
            out.put_token(b, row, -1);
            out.put(b.logprobs, row, MINUS_INF_BITS);
            out.put(b.ranks, row, 0);
            out.put(b.raw_logprobs, row, MINUS_INF_BITS);
            out.put(b.sum_smaller_probs, row, 0);
            if (b.status != 0) out.put(b.status, row, core.word(IN_STATUS) & ~static_cast<u32>(SD_STATUS_NAN_DRAFT));
        }
        out.flush();
    }
    out.put(v.accepted, request, accepted);
    out.flush();
}

} // namespace samedraw
