// The list: tokens that stay in the unified buffer, ascending ids. Of a row that is longer than the list it is a prefix of
// the order, collected in one pass against a threshold that rises whenever the list is full.

namespace samedraw {

// What one pass over a row shows.
struct Scan {
    u32 max;
    bool nan;
    // Tokens in the list; whether they are all there were, and if not, the key that those left out are at or below, and
    // behind all listed ones where they are at it.
    u32 listed;
    bool whole;
    u32 bound;
};

// Fills the last tile of a list of `count` tokens up with -inf and no token, and lets the scalar unit read the list.
__aicore__ inline void seal(const Core& core, u32 count) {
    const u32 last = (count - 1) / TILE * TILE, end = last + padded(count - last);
    u32 at = count;
    vector_to_scalar();
    for (; at < end && at % 8 != 0; at++) {
        core.values.SetValue(at, float_of(MINUS_INF_BITS));
        core.ids.SetValue(at, -1);
    }
    scalar_to_vector();
    if (at < end) {
        fill(core.values[at], float_of(MINUS_INF_BITS), end - at);
        fill(core.ids[at], -1, end - at);
    }
    vector_to_scalar();
}

// Leaves the tokens within `cut` of a sealed list, at most `MOST_SELECTED`; returns how many they are.
__aicore__ inline u32 keep_within(Core& core, Source& list, const Cut& cut) {
    u32 bits = 0;
    list.start();
    while (list.next()) {
        within(core, core.list_bits[list.base / 8], list, cut);
        bits = list.base + list.size;
    }
    const Ints ids = core.area.ReinterpretCast<i32>()[MOST_SELECTED];
    const u32 left = gather(core.area, core.values, core.list_bits, bits);
    gather(ids, core.ids, core.list_bits, bits);
    scalar_to_vector();
    if (left != 0) {
        move(core.values, core.area, left);
        move(core.ids, ids, left);
    }
    return left;
}

// Cuts a list of `count` tokens, the largest of them `max`, down to the first `keep`; returns the key that bounds those
// left out.
__aicore__ inline u32 prune(Core& core, u32 count, u32 keep, u32 max) {
    Source list;
    list.open_list(&core, count);
    seal(core, count);
    const Cut cut = cut_by_count(core, list, max, keep);
    keep_within(core, list, cut);
    return cut.key;
}

// Adds the first n elements of the tile, which has `size`, to a list of `count` tokens: those above `threshold`, or all.
// Their ids are in `tile_ids`. Returns the number of tokens now.
__aicore__ inline u32 append(Core& core, u32 n, u32 size, u32 count, bool all, u32 threshold) {
    // What a vector instruction writes starts at a multiple of 32 bytes: the few tokens after the last one go in front of
    // the tile and are written again.
    const u32 again = count % PREFIX, from = count - again, whole = size + REPEAT;
    if (all) {
        compare(core.kept, core.places, static_cast<float>(PREFIX + n), AscendC::CMPMODE::LT, whole);
    } else {
        fill(core.tile[PREFIX + size], float_of(MINUS_INF_BITS), REPEAT - PREFIX);
        compare(core.kept, core.tile, float_of(bits_of_key(threshold)), AscendC::CMPMODE::GT, whole);
    }
    vector_to_scalar();
    for (u32 i = 0; i < again; i++) {
        core.tile.SetValue(i, core.values.GetValue(from + i));
        core.tile_ids.SetValue(i, core.ids.GetValue(from + i));
    }
    core.kept.SetValue(0, static_cast<u8>((1u << again) - 1));
    scalar_to_vector();
    gather(core.ids[from], core.tile_ids, core.kept, whole);
    return from + gather(core.values[from], core.tile, core.kept, whole);
}

// Adds the tile to what was found: its largest value, and its elements to the list of at least the first `keep` tokens.
// The ids of its elements are `base` and up, or in `tile_ids` already.
__aicore__ inline void add_tile(Core& core, Scan& found, u32 n, u32 size, u32 base, bool has_ids, u32 keep) {
    const Floats x = core.tile[PREFIX];
    const u32 largest = core.largest(x, size);
    if (key_of(largest) > key_of(found.max)) found.max = largest;
    if (keep == 0 || (!found.whole && key_of(largest) <= found.bound)) return;
    if (found.listed + n > LIST) {
        found.bound = prune(core, found.listed, keep, found.max);
        found.listed = keep;
        found.whole = false;
        if (key_of(largest) <= found.bound) return;
    }
    if (found.whole && !has_ids) {
        // Whole tiles so far.
        move(core.values[found.listed], x, n);
        count_up(core.ids[found.listed], static_cast<i32>(base), n);
        found.listed += n;
        return;
    }
    if (!has_ids) count_up(core.tile_ids[PREFIX], static_cast<i32>(base), size);
    found.listed = append(core, n, size, found.listed, found.whole, found.bound);
}

// One pass over a row of logits, or a part of it: its largest value, whether it has a NaN, and, where `keep` is not 0, the
// list of at least its first `keep` tokens.
__aicore__ inline Scan scan_row(Core& core, Source& row, u32 keep) {
    Scan found{MINUS_INF_BITS, false, 0, true, 0};
    row.start();
    while (row.next()) {
        found.nan = row.had_nan() || found.nan;
        add_tile(core, found, row.n, row.size, row.base, false, keep);
    }
    return found;
}

// As `scan_row` for the tokens whose key is at most `edge`: the others count as -inf.
__aicore__ inline Scan scan_below(Core& core, Source& row, u32 edge, u32 keep) {
    Scan found{MINUS_INF_BITS, false, 0, true, 0};
    row.start();
    while (row.next()) {
        compare(core.kept, row.x, float_of(bits_of_key(edge)), AscendC::CMPMODE::LE, row.size);
        select(row.x, core.kept, row.x, float_of(MINUS_INF_BITS), row.size);
        add_tile(core, found, row.n, row.size, row.base, false, keep);
    }
    return found;
}

} // namespace samedraw
