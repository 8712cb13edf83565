// What a rejected draft leaves: max(0, mass - Q) of every kept token, Q = floor(draft mass * M / 2^40) in limbs of 14 bits
// on the vector unit, where products of two limbs and sums of three of them are exact in 32 bits.

namespace samedraw {

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
    // Address of its logprobs and how many there are; whether they go by the row's places and not by id.
    u64 logprobs;
    u64 width;
    bool by_place;
};

__aicore__ inline Draft draft_of(const RowBlock& b, const VerifyBlock& v, const Resolved& r) {
    Draft draft{DRAFT_LAST, -1, 0, 0, false};
    if (r.place.is_last) return draft;
    draft.id = r.draft_id;
    if (r.golden != -1 || v.mode == SD_VERIFY_CHAIN) draft.kind = DRAFT_TOKEN;
    else if (!in_range(draft.id, b.vocab)) draft.kind = DRAFT_ABSENT;
    else if (v.mode == SD_VERIFY_ONE_HOT) draft.kind = DRAFT_ONE_HOT;
    else draft.kind = r.draft_row < 0 ? DRAFT_BAD : DRAFT_ROW;
    if (draft.kind == DRAFT_ROW) {
        draft.by_place = v.remapped != 0;
        draft.width = draft.by_place ? b.columns : v.draft_width;
        draft.logprobs = draft.by_place ? v.remapped + 4 * r.row * b.columns
                                        : v.draft_logprobs + 4 * static_cast<u64>(r.draft_row) * v.draft_stride;
    }
    return draft;
}

// Digits of a number below 2^70 in limbs of 14 bits.
constexpr u32 LIMB = 14, LIMBS = 5;
struct Limbs {
    i32 at[LIMBS];
};

__aicore__ inline Limbs limbs_of(u64 a) {
    Limbs limbs;
    for (u32 i = 0; i < LIMBS; i++) limbs.at[i] = static_cast<i32>(a >> LIMB * i & ((1u << LIMB) - 1));
    return limbs;
}

// Adds column k of the product to `sum`: the draft's limbs `d` times those of M.
__aicore__ inline void add_column(const Ints& sum, const Ints& work, const Ints* d, const Limbs& m, u32 k, u32 n) {
    for (u32 i = 0; i < 3; i++) {
        if (k < i || k - i >= LIMBS || m.at[k - i] == 0) continue;
        multiply_scalar(work, d[i], m.at[k - i], n);
        add(sum, sum, work, n);
    }
}

// Moves the lowest limb of `sum` to `digit` and leaves the rest. `work` is a work area.
__aicore__ inline void take_digit(const Ints& digit, const Ints& sum, const Ints& work, u32 n) {
    shift_right(work, sum, LIMB, n);
    shift_left(digit, work, LIMB, n);
    subtract(digit, sum, digit, n);
    move(sum, work, n);
}

// max(0, own - floor(draft * M / 2^40)) of the current tile. The halves of the tokens' own masses in temporaries 1 and 2
// are replaced; the draft's masses are in 0 (upper) and 3 (lower 20 bits). Every temporary is used, and the tile itself.
__aicore__ inline void cede(const Core& core, u64 total, u32 n) {
    const Ints own_high = core.temporary[1].ReinterpretCast<i32>(), own_low = core.temporary[2].ReinterpretCast<i32>();
    const Ints sum = core.temporary[0].ReinterpretCast<i32>(), work = core.temporary[3].ReinterpretCast<i32>();
    const Ints d[3] = {core.temporary[4].ReinterpretCast<i32>(), core.temporary[5].ReinterpretCast<i32>(),
                       core.temporary[6].ReinterpretCast<i32>()};
    const Ints low = core.tile[PREFIX].ReinterpretCast<i32>(), high = core.tile_ids[PREFIX];
    const Limbs m = limbs_of(total);
    // The draft's limbs, from upper bits in `sum` and lower 20 in `work`: 14 of the lower, the other 6 and 8 of the
    // upper, the rest.
    shift_right(d[1], work, LIMB, n);
    shift_left(d[0], d[1], LIMB, n);
    subtract(d[0], work, d[0], n);
    shift_right(d[2], sum, 8, n);
    shift_left(work, d[2], 8, n);
    subtract(work, sum, work, n);
    shift_left(work, work, 6, n);
    add(d[1], d[1], work, n);
    // Of the product, bits 40 and up: two of digit 2, digits 3, 4, 5 and what is above.
    multiply_scalar(sum, d[0], m.at[0], n);
    shift_right(sum, sum, LIMB, n);
    add_column(sum, work, d, m, 1, n);
    shift_right(sum, sum, LIMB, n);
    add_column(sum, work, d, m, 2, n);
    take_digit(low, sum, work, n);
    shift_right(low, low, 12, n);
    add_column(sum, work, d, m, 3, n);
    take_digit(high, sum, work, n);
    shift_left(high, high, 2, n);
    add(low, low, high, n);
    add_column(sum, work, d, m, 4, n);
    take_digit(high, sum, work, n);
    shift_left(high, high, 16, n);
    add(low, low, high, n);
    shift_right(high, low, 20, n);
    shift_left(work, high, 20, n);
    subtract(low, low, work, n);
    // The draft's lowest limb is not needed any more.
    add_column(sum, work, d, m, 5, n);
    take_digit(d[0], sum, work, n);
    shift_left(d[0], d[0], 10, n);
    add(high, high, d[0], n);
    add_column(sum, work, d, m, 6, n);
    // No own mass comes near what this is cut off at.
    at_most(sum, sum, 2, n);
    shift_left(sum, sum, 24, n);
    add(high, high, sum, n);

    subtract(own_high, own_high, high, n);
    subtract(own_low, own_low, low, n);
    // Where the lower part is below 0, one is borrowed; where the upper one is then, nothing is left.
    at_most(work, own_low, 0, n);
    at_least(work, work, -1, n);
    add(own_high, own_high, work, n);
    multiply_scalar(work, work, -(1 << 20), n);
    add(own_low, own_low, work, n);
    at_least(work, own_high, -1, n);
    at_most(work, work, 0, n);
    add_scalar(work, work, 1, n);
    multiply(own_high, own_high, work, n);
    multiply(own_low, own_low, work, n);
}

// The draft's logprobs of the tokens of the current tile in temporary 5, -inf where it has none.
__aicore__ inline void read_draft(const Core& core, const Source& source, const Draft& draft, bool has_ids) {
    const Floats& q = core.temporary[5];
    fill(q, float_of(MINUS_INF_BITS), source.size);
    fence<AscendC::HardEvent::V_MTE2>();
    if (draft.by_place || !has_ids) {
        const u64 room = draft.width > source.base ? draft.width - source.base : 0;
        const u32 n = room < source.n ? static_cast<u32>(room) : source.n;
        if (n != 0) load(q, draft.logprobs + 4ull * source.base, n, float_of(MINUS_INF_BITS));
        fence<AscendC::HardEvent::MTE2_V>();
        return;
    }
    // By id, for tokens whose ids ascend: a stretch of the draft's row at a time.
    const Floats& stretch = core.temporary[6];
    vector_to_scalar();
    u32 i = 0;
    while (i < source.n) {
        const u64 first = static_cast<u32>(core.ids.GetValue(source.base + i));
        if (first >= draft.width) break;
        const u64 room = draft.width - first;
        const u32 n = room < TILE ? static_cast<u32>(room) : TILE;
        fence<AscendC::HardEvent::S_MTE2>();
        load(stretch, draft.logprobs + 4 * first, n, 0.0f);
        fence<AscendC::HardEvent::MTE2_S>();
        for (; i < source.n; i++) {
            const u64 id = static_cast<u32>(core.ids.GetValue(source.base + i));
            if (id - first >= n) break;
            q.SetValue(i, stretch.GetValue(static_cast<u32>(id - first)));
        }
    }
    scalar_to_vector();
}

// What is left of the current tile of the row, whose kept prefix is `cut`: its mass; the halves in temporaries 1 and 2.
__aicore__ inline u64 rest_of_tile(Row& row, const Cut& cut, const Draft& draft, i64 draft_place, bool* nan) {
    const Core& core = row.core;
    const Source& source = row.row;
    const Ints high = core.temporary[1].ReinterpretCast<i32>(), low = core.temporary[2].ReinterpretCast<i32>();
    row.look(source, cut);
    weigh(core, core.kept, core.temporary[0], source.size);
    if (draft.kind == DRAFT_ONE_HOT) {
        // The draft cedes all of its mass and no other token any.
        const i64 at = draft_place - static_cast<i64>(source.base);
        if (at >= 0 && at < static_cast<i64>(source.n)) {
            vector_to_scalar();
            high.SetValue(static_cast<u32>(at), 0);
            low.SetValue(static_cast<u32>(at), 0);
            scalar_to_vector();
        }
        return core.sum(high, low, 0, source.size);
    }
    const Floats& q = core.temporary[5];
    read_draft(core, source, draft, row.has_ids);
    compare_with_itself(core.also, q, source.size);
    neither(core.among, core.also, source.size);
    both(core.among, core.among, core.kept, source.size);
    if (core.count(core.among, source.size) != 0) *nan = true;
    select(q, core.also, q, float_of(MINUS_INF_BITS), source.size);
    multiply_scalar(q, q, SD_LOG2_E, source.size);
    at_most(q, q, 0.0f, source.size);
    powers(core.temporary[4], q, core.temporary[0], core.temporary[3], source.size);
    halve(core.temporary[0].ReinterpretCast<i32>(), core.temporary[3].ReinterpretCast<i32>(), core.temporary[4], q,
          source.size);
    cede(core, row.total, source.size);
    return core.sum(high, low, 0, source.size);
}

// Draws from what the draft leaves; from the kept masses where that is nothing.
__aicore__ inline i64 draw_rest(Row& row, const Draft& draft, u64 bits, bool* nan) {
    const Core& core = row.core;
    const Cut cut = row.cut_of_row();
    const i64 draft_place = row.row.find(draft.id, row.has_ids);
    u64 left = 0;
    row.row.start();
    while (row.row.next()) {
        const u64 here = rest_of_tile(row, cut, draft, draft_place, nan);
        const u32 tile = row.row.base / TILE;
        if (tile < REMEMBERED) {
            core.rest_masses.SetValue(2 * tile, static_cast<u32>(here));
            core.rest_masses.SetValue(2 * tile + 1, static_cast<u32>(here >> 32));
        }
        left += here;
    }
    if (left == 0) return row.draw(bits);
    u64 target = multiply_shift(bits, left, SD_DRAW_BITS);
    u32 tile = 0;
    const u32 remembered = smaller(row.row.tiles(), REMEMBERED);
    for (; tile < remembered; tile++) {
        const u64 here =
            static_cast<u64>(core.rest_masses.GetValue(2 * tile + 1)) << 32 | core.rest_masses.GetValue(2 * tile);
        if (here > target) break;
        target -= here;
    }
    bool again = false;
    row.row.start(tile);
    while (row.row.next()) {
        const u64 here = rest_of_tile(row, cut, draft, draft_place, &again);
        if (here > target) {
            row.row.stop();
            return row.pick(row.row, target);
        }
        target -= here;
    }
    return -1;
}

} // namespace samedraw
