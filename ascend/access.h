// Reading what a block points at, and what a row's indices say.

namespace samedraw {

// Slots of a row's scalars.
constexpr u32 IN_SLOT = 0, IN_GATHER = 1, IN_MASK = 2, IN_GOLDEN = 3, IN_STATUS = 4, IN_REQUEST = 5, IN_DRAFT = 6,
              IN_DRAFT_ROW = 7, IN_TABLE = 8, IN_ROWS = 10, IN_POSITION = 11, IN_OFFSET = 12, IN_BITS = 13;

__aicore__ inline bool in_range(i64 index, u64 count) { return index >= 0 && static_cast<u64>(index) < count; }

// What a row is processed with.
struct Params {
    u32 scale, min_exponent;
    u64 top_p, top_k, seed;
    bool top_k_first;
};

enum State { PADDING, BAD, LIVE };

// Where a row stands in its request.
struct Place {
    State state;
    u64 request, local_step;
    bool is_last;
};

// A row's indices, read and checked.
struct Resolved {
    u64 row;
    State state;
    Params params;
    // Start of the row's logits, and its mask or 0; unused where the row is read from columns.
    u64 logits, mask;
    // The token it must output, -1 if none.
    i64 golden;
    // Status bits Select found.
    i32 known;
    // For a step that verifies.
    Place place;
    i64 draft_id, draft_row;
};

// Parameters that filter nothing, at temperature 1.
__aicore__ inline Params keep_all() {
    return Params{bits_of(SD_LOG2_E), MINUS_INF_BITS, SD_TOP_P_OFF, SD_TOP_K_OFF, 0, false};
}

// The smallest exponent that parameters keep, as bits; -inf is never kept.
__aicore__ inline u32 lowest_of(const Params& params) {
    return params.min_exponent == MINUS_INF_BITS ? LOWEST_BITS : params.min_exponent;
}

// Address of the first of the logits of a row.
__aicore__ inline u64 logits_at(const RowBlock& b, u64 row) {
    return b.logits + row * b.logits_stride * (b.logits_dtype == SD_DTYPE_F32 ? 4 : 2);
}

__aicore__ inline i64 index_or_self(const Core& core, u32 slot, u64 array, u64 width, u64 i) {
    return array == 0 ? static_cast<i64>(i) : core.index(slot, width);
}

// The slots' parameters; BAD where the slot is not to be used.
__aicore__ inline State params_of(const Core& core, const RowBlock& b, Params* params) {
    const u64 live = core.wide(IN_TABLE), top_p = core.wide(IN_TABLE, 4), top_k = core.wide(IN_TABLE, 6);
    const u32 min_exponent = core.word(IN_TABLE, 8);
    *params = Params{core.word(IN_TABLE, 2), min_exponent, top_p, top_k, core.wide(IN_TABLE, 10),
                     core.wide(IN_TABLE, 12) != 0};
    const bool excluded = (top_k != SD_TOP_K_OFF && !(b.filters & SD_FILTER_TOP_K)) ||
                          (top_p != SD_TOP_P_OFF && !(b.filters & SD_FILTER_TOP_P)) ||
                          (min_exponent != MINUS_INF_BITS && !(b.filters & SD_FILTER_MIN_P)) ||
                          (top_k != 1 && (b.filters & SD_FILTER_ALL_GREEDY));
    return live == 0 || excluded ? BAD : LIVE;
}

// Reads a row's indices; `v` is 0 for a step that does not verify. Two trips to global memory.
__aicore__ inline void resolve(const Core& core, const RowBlock& b, const VerifyBlock* v, u64 row, Resolved& r) {
    r = Resolved{};
    r.row = row;
    core.ask();
    core.ask_index(IN_SLOT, b.row_to_slot, b.row_to_slot_width, row);
    core.ask_index(IN_GATHER, b.gather, b.gather_width, row);
    if (b.mask != 0) core.ask_index(IN_MASK, b.mask_index, b.mask_index_width, row);
    core.ask_index(IN_GOLDEN, b.golden, b.golden_width, row);
    if (b.from_columns != 0) core.ask(IN_STATUS, b.column_status + 4 * row, 1);
    if (v != nullptr) {
        core.ask_index(IN_REQUEST, v->row_to_request, v->row_to_request_width, row);
        core.ask_index(IN_DRAFT, v->draft_ids, v->draft_ids_width, row);
        core.ask_index(IN_DRAFT_ROW, v->draft_rows, v->draft_rows_width, row);
    }
    core.answered();
    const i64 slot = index_or_self(core, IN_SLOT, b.row_to_slot, b.row_to_slot_width, row);
    const i64 request = v != nullptr ? core.index(IN_REQUEST, v->row_to_request_width) : 0;
    const bool has_slot = in_range(slot, b.slot_count), has_request = v != nullptr && in_range(request, v->requests);
    core.ask();
    if (has_slot) {
        core.ask(IN_TABLE, b.slots + 64 * static_cast<u64>(slot), 16);
    }
    if (has_request) core.ask(IN_ROWS, v->first_rows + 4 * static_cast<u64>(request), 2);
    core.answered();

    r.state = BAD;
    r.golden = b.golden == 0 ? -1 : core.index(IN_GOLDEN, b.golden_width);
    if (v != nullptr) {
        r.draft_id = core.index(IN_DRAFT, v->draft_ids_width);
        r.draft_row = index_or_self(core, IN_DRAFT_ROW, v->draft_rows, v->draft_rows_width, row);
        if (!in_range(r.draft_row, v->pool_rows)) r.draft_row = -1;
        r.place.state = request == -1 ? PADDING : BAD;
        if (has_request) {
            const i64 first = static_cast<i32>(core.word(IN_ROWS)), end = static_cast<i32>(core.word(IN_ROWS, 1));
            const i64 own = static_cast<i64>(row);
            if (0 <= first && first <= own && own < end && end <= static_cast<i64>(b.rows))
                r.place = Place{LIVE, static_cast<u64>(request), row - static_cast<u64>(first), own + 1 == end};
        }
    }
    if (slot == -1) {
        r.state = PADDING;
        return;
    }
    if (!has_slot || params_of(core, b, &r.params) == BAD) return;
    if (r.golden < -1 || r.golden >= static_cast<i64>(b.vocab)) return;
    if (b.from_columns != 0) {
        r.known = static_cast<i32>(core.word(IN_STATUS));
        r.state = r.known & SD_STATUS_BAD_INDEX ? BAD : LIVE;
        // Select held the row to its range.
        const i64 of_logits = index_or_self(core, IN_GATHER, b.gather, b.gather_width, row);
        if (r.state == LIVE) r.logits = logits_at(b, static_cast<u64>(of_logits));
        return;
    }
    const i64 of_logits = index_or_self(core, IN_GATHER, b.gather, b.gather_width, row);
    if (!in_range(of_logits, b.logits_rows)) return;
    if (b.mask != 0) {
        const i64 of_mask = index_or_self(core, IN_MASK, b.mask_index, b.mask_index_width, row);
        if (of_mask != -1) {
            if (!in_range(of_mask, b.mask_rows)) return;
            r.mask = b.mask + static_cast<u64>(of_mask) * b.mask_stride * 4;
        }
    }
    r.logits = logits_at(b, static_cast<u64>(of_logits));
    r.state = LIVE;
}

// The draw bits of `row`: `base` is its entry in the positions, `offset` its distance from there.
__aicore__ inline u64 draw_bits(const Core& core, const RowBlock& b, u64 row, u64 base, u64 offset, u64 seed, u64 which) {
    core.ask();
    if (b.bits != 0) core.ask(IN_BITS, b.bits + 8 * (3 * row + which), 2);
    else {
        core.ask(IN_POSITION, b.positions + 8 * base, 2);
        if (b.position_offsets != 0) core.ask(IN_OFFSET, b.position_offsets + 4 * base, 1);
    }
    core.answered();
    if (b.bits != 0) return core.wide(IN_BITS);
    u64 position = core.wide(IN_POSITION);
    if (b.position_offsets != 0) position += static_cast<u64>(static_cast<i64>(static_cast<i32>(core.word(IN_OFFSET))));
    position += b.position_add + offset;
    return splitmix64(seed + b.seed_add, position * 3 + which) >> (64 - SD_DRAW_BITS);
}

} // namespace samedraw
