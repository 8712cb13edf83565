// Rows split over cores, for steps with fewer rows than the NPU has cores: one launch looks at the slices of every row, a
// second one weighs them once the rows' largest values are known, and the row's own launch puts them together. What they
// hand on lies in the scratch area of the step.

namespace samedraw {

// How rows are split. One slice: not at all.
struct Split {
    u64 slices;
    // Tiles of a slice; the last one may have fewer.
    u64 tiles;
    // Tokens of a slice's list.
    u64 keep;
};

// 16 words for each slice: its largest value, whether it has a NaN, tokens in its list, whether that is all of it, the
// key that bounds what is not listed, and the place of the first of its largest values.
constexpr u32 SLICE_WORDS = 16;
// 8 words for each tile: mass (2), mass of what is not too unlikely (2), number of that.
constexpr u32 TILE_WORDS = 8;

// Where a row's parts of the scratch area lie.
struct Scratch {
    u64 slices, tiles, values, ids;
};

__aicore__ inline Scratch scratch_of(const RowBlock& b, u64 row, const Split& split) {
    const u64 tiles = (b.vocab + TILE - 1) / TILE, lists = 4 * split.slices * split.keep;
    const u64 of_slices = 4 * SLICE_WORDS * split.slices, of_tiles = 4 * TILE_WORDS * tiles;
    Scratch at;
    at.slices = b.scratch + row * (of_slices + of_tiles + 2 * lists);
    at.tiles = at.slices + of_slices;
    at.values = at.tiles + of_tiles;
    at.ids = at.values + lists;
    return at;
}

// Reads n words into `out`, for the scalar unit.
__aicore__ inline void read_words(const Words& out, u64 address, u32 n) {
    fence<AscendC::HardEvent::V_MTE2>();
    fence<AscendC::HardEvent::S_MTE2>();
    load(out, address, n, 0u);
    fence<AscendC::HardEvent::MTE2_S>();
}

// Writes n words that the scalar unit put into `words`.
__aicore__ inline void write_words(u64 address, const Words& words, u32 n) {
    fence<AscendC::HardEvent::S_MTE3>();
    store(address, words, n);
    fence<AscendC::HardEvent::MTE3_S>();
    fence<AscendC::HardEvent::MTE3_V>();
}

// Looks at one slice of a row of logits and hands on what it found.
__aicore__ inline void scan_slice(Core& core, const RowBlock& b, u64 row_index, u64 slice, const Split& split) {
    Resolved r;
    resolve(core, b, nullptr, row_index, r);
    if (r.state != LIVE) return;
    Source row;
    row.open(&core, r.logits, r.mask, b.logits_dtype, static_cast<u32>(b.vocab));
    row.narrow(static_cast<u32>(slice * split.tiles), static_cast<u32>((slice + 1) * split.tiles));
    const u32 keep = static_cast<u32>(split.keep);
    Scan found = scan_row(core, row, keep);
    if (found.listed > keep) {
        found.bound = prune(core, found.listed, keep, found.max);
        found.listed = keep;
        found.whole = false;
    }
    const Scratch at = scratch_of(b, row_index, split);
    write_out();
    store(at.values + 4 * slice * split.keep, core.values, found.listed);
    store(at.ids + 4 * slice * split.keep, core.ids, found.listed);
    written();
    const u32 record[5] = {found.max, found.nan ? 1u : 0u, found.listed, found.whole ? 1u : 0u, found.bound};
    for (u32 i = 0; i < 5; i++) core.outputs.SetValue(i, record[i]);
    write_words(at.slices + 4 * SLICE_WORDS * slice, core.outputs, 5);
}

// Puts the slices' results together: what a scan of the row would have found, and where `lists` the list of at least its
// first `keep` tokens, or all that the slices list.
__aicore__ inline Scan merge_slices(Core& core, const RowBlock& b, u64 row_index, const Split& split, bool lists) {
    const Scratch at = scratch_of(b, row_index, split);
    // Past the list's values, which the merge fills from the start.
    const Words records = core.rest_masses;
    Scan found{MINUS_INF_BITS, false, 0, true, 0};
    u32 bound = 0, max = MINUS_INF_BITS;
    const u32 keep = split.keep < MOST_SELECTED && b.columns < b.vocab ? static_cast<u32>(split.keep) : MOST_SELECTED;
    for (u32 slice = 0; slice < split.slices; slice++) {
        read_words(records, at.slices + 4ull * SLICE_WORDS * slice, 5);
        const u32 listed = records.GetValue(2);
        if (key_of(records.GetValue(0)) > key_of(max)) max = records.GetValue(0);
        if (records.GetValue(1) != 0) found.nan = true;
        if (records.GetValue(3) == 0 && records.GetValue(4) > bound) bound = records.GetValue(4);
        if (!lists) continue;
        for (u32 done_before = 0; done_before < listed; done_before += TILE) {
            const u32 n = smaller(listed - done_before, TILE), size = padded(n);
            const u64 from = 4 * (slice * split.keep + done_before);
            fill(core.tile[PREFIX], float_of(MINUS_INF_BITS), size);
            fill(core.tile_ids[PREFIX], -1, size + REPEAT - PREFIX);
            fence<AscendC::HardEvent::V_MTE2>();
            load(core.tile[PREFIX], at.values + from, n, float_of(MINUS_INF_BITS));
            load(core.tile_ids[PREFIX], at.ids + from, n, -1);
            fence<AscendC::HardEvent::MTE2_V>();
            add_tile(core, found, n, size, 0, true, keep);
        }
    }
    found.max = max;
    // What a slice did not list is at or below its bound; the list proper ends above all of them.
    if (b.columns == b.vocab && bound > found.bound) found.bound = bound;
    return found;
}

// Leaves of a merged list what is surely the first of the row's order.
__aicore__ inline void prefix_of_slices(Core& core, Scan& found) {
    if (found.listed == 0) return;
    if (found.listed > MOST_SELECTED) {
        const u32 key = prune(core, found.listed, MOST_SELECTED, found.max);
        found.listed = MOST_SELECTED;
        // Everything at or above this key is in the list, or behind what is.
        if (key > found.bound) {
            found.bound = key;
            return;
        }
    }
    if (found.bound == 0) return;
    Source list;
    list.open_list(&core, found.listed);
    seal(core, found.listed);
    found.listed = keep_within(core, list, Cut{found.bound, 0});
}

// Weighs one slice, tile by tile.
__aicore__ inline void weigh_slice(Core& core, const RowBlock& b, u64 row_index, u64 slice, const Split& split) {
    Resolved r;
    resolve(core, b, nullptr, row_index, r);
    if (r.state != LIVE) return;
    const Scratch at = scratch_of(b, row_index, split);
    Weight weight{MINUS_INF_BITS, r.params.scale};
    for (u32 i = 0; i < split.slices; i++) {
        read_words(core.rest_masses, at.slices + 4ull * SLICE_WORDS * i, 1);
        const u32 max = core.rest_masses.GetValue(0);
        if (key_of(max) > key_of(weight.max)) weight.max = max;
    }
    if (weight.max == MINUS_INF_BITS) return;
    const u32 lowest = lowest_of(r.params), first = static_cast<u32>(slice * split.tiles);
    const Words out = core.temporary[5].ReinterpretCast<u32>();
    Source row;
    row.open(&core, r.logits, r.mask, b.logits_dtype, static_cast<u32>(b.vocab));
    row.narrow(first, first + static_cast<u32>(split.tiles));
    u32 used = 0;
    row.start();
    while (row.next()) {
        const Floats& t = core.temporary[0];
        exponents(t, row.x, weight, core.also, row.size);
        compare(core.kept, t, float_of(LOWEST_BITS), AscendC::CMPMODE::GE, row.size);
        u64 all = weigh(core, core.kept, t, row.size), kept = all;
        if (lowest != LOWEST_BITS) {
            compare(core.kept, t, float_of(lowest), AscendC::CMPMODE::GE, row.size);
            kept = weigh(core, core.kept, t, row.size);
        }
        const u32 count = core.count(core.kept, row.size);
        const u32 record[5] = {static_cast<u32>(all), static_cast<u32>(all >> 32), static_cast<u32>(kept),
                               static_cast<u32>(kept >> 32), count};
        for (u32 i = 0; i < TILE_WORDS; i++) out.SetValue(used + i, i < 5 ? record[i] : 0u);
        used += TILE_WORDS;
    }
    write_words(at.tiles + 4ull * TILE_WORDS * first, out, used);
}

// Reads what the slices of a row weigh: all of it, what is not too unlikely, tile by tile too, and how many that is.
__aicore__ inline void read_weights(Core& core, const RowBlock& b, u64 row_index, const Split& split, u64* all, u64* kept,
                                    u32* count) {
    const u32 tiles = static_cast<u32>((b.vocab + TILE - 1) / TILE);
    const Words words = core.temporary[5].ReinterpretCast<u32>();
    read_words(words, scratch_of(b, row_index, split).tiles, TILE_WORDS * tiles);
    *all = *kept = 0;
    *count = 0;
    for (u32 tile = 0; tile < tiles; tile++) {
        const u32 at = TILE_WORDS * tile;
        *all += static_cast<u64>(words.GetValue(at + 1)) << 32 | words.GetValue(at);
        *kept += static_cast<u64>(words.GetValue(at + 3)) << 32 | words.GetValue(at + 2);
        *count += words.GetValue(at + 4);
        core.tile_masses.SetValue(2 * tile, words.GetValue(at + 2));
        core.tile_masses.SetValue(2 * tile + 1, words.GetValue(at + 3));
    }
    scalar_to_vector();
}

} // namespace samedraw
