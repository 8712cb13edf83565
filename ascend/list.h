// The list: tokens that stay in the unified buffer, ascending ids. Of a row that is longer than the list it is a prefix of
// the order, collected in one pass against a threshold that rises whenever the list is full.

namespace samedraw {

// What one pass over a row shows.
struct Scan {
    u32 max;
    bool nan;
    // Tokens in the list, and whether they are the whole row.
    u32 listed;
    bool whole;
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

// Cuts a list of `count` tokens, the largest of them `max`, down to the first `keep`; returns the key that the tokens
// left are at or above. All others with that key come after those kept.
__aicore__ inline u32 prune(Core& core, u32 count, u32 keep, u32 max) {
    Source list;
    list.open_list(&core, count);
    seal(core, count);
    const Cut cut = cut_by_count(core, list, max, keep);
    u32 bits = 0;
    list.start();
    while (list.next()) {
        within(core, core.list_bits[list.base / 8], list, cut);
        bits = list.base + list.size;
    }
    const Ints ids = core.area.ReinterpretCast<i32>()[MOST_SELECTED];
    gather(core.area, core.values, core.list_bits, bits);
    gather(ids, core.ids, core.list_bits, bits);
    move(core.values, core.area, keep);
    move(core.ids, ids, keep);
    return cut.key;
}

// Adds the current tile's elements above `threshold` to a list of `count` tokens; returns their number now.
__aicore__ inline u32 append(Core& core, const Source& row, u32 count, u32 threshold) {
    // What a vector instruction writes starts at a multiple of 32 bytes: the few tokens after the last one go in front of
    // the tile and are written again.
    const u32 again = count % PREFIX, from = count - again, n = row.size + REPEAT;
    fill(core.tile[PREFIX + row.size], float_of(MINUS_INF_BITS), REPEAT - PREFIX);
    count_up(core.tile_ids[PREFIX], static_cast<i32>(row.base), row.size);
    compare(core.kept, core.tile, float_of(bits_of_key(threshold)), AscendC::CMPMODE::GT, n);
    vector_to_scalar();
    for (u32 i = 0; i < again; i++) {
        core.tile.SetValue(i, core.values.GetValue(from + i));
        core.tile_ids.SetValue(i, core.ids.GetValue(from + i));
    }
    core.kept.SetValue(0, static_cast<u8>((1u << again) - 1));
    scalar_to_vector();
    gather(core.ids[from], core.tile_ids, core.kept, n);
    return from + gather(core.values[from], core.tile, core.kept, n);
}

// One pass over a row of logits: its largest value, whether it has a NaN, and, where `lists`, the list of at least its
// first `keep` tokens.
__aicore__ inline Scan scan_row(Core& core, Source& row, bool lists, u32 keep) {
    Scan found{MINUS_INF_BITS, false, 0, true};
    u32 threshold = 0;
    row.start();
    while (row.next()) {
        found.nan = row.had_nan() || found.nan;
        const u32 largest = core.largest(row.x, row.size);
        if (key_of(largest) > key_of(found.max)) found.max = largest;
        if (!lists || (!found.whole && key_of(largest) <= threshold)) continue;
        if (found.listed + row.n > LIST) {
            // The tile is not in the list yet; its largest is no less than any listed one's bound.
            threshold = prune(core, found.listed, keep, found.max);
            found.listed = keep;
            found.whole = false;
            if (key_of(largest) <= threshold) continue;
        }
        if (found.whole) {
            move(core.values[found.listed], row.x, row.n);
            count_up(core.ids[found.listed], static_cast<i32>(row.base), row.n);
            found.listed += row.n;
        } else {
            found.listed = append(core, row, found.listed, threshold);
        }
    }
    return found;
}

} // namespace samedraw
