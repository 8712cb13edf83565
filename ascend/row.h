// One row, processed: the N columns, the kept prefix, its mass, and what is read off them. SEMANTICS sections 4 to 8.

namespace samedraw {

// What is known of one token of a processed row.
struct Token {
    bool kept;
    u32 place, value, exponent;
};

class Row {
  public:
    Core& core;
    // The N columns, and where a row is too long to stay, the first of its order.
    Source row, near;
    // Whether a token's place in the row is not its id; whether there is a list beside the row.
    bool has_ids, has_near;
    Weight weight;
    // What top-k and top-p keep, by places in `kept`; the smallest exponent that is kept.
    Cut cut;
    u32 lowest;
    // Mass and number of the kept tokens; 0 for an empty row.
    u64 total;
    u32 count, log2_mass;
    i32 status;

    __aicore__ inline Row(Core& core_, const Split& split_) : core(core_), split(split_) {}

    // Reads and processes a row. `lists` asks for its first tokens where they may help.
    __aicore__ inline void process(const RowBlock& b, const Resolved& r, u64 columns, const Params& params, bool lists) {
        read(b, r, static_cast<u32>(columns), lists);
        narrowed = false;
        cut = everything(row);
        weight.scale = params.scale;
        lowest = lowest_of(params);
        log2_mass = 0;
        if (status & SD_STATUS_EMPTY_ROW) return;
        filter(params);
        // What the launch before this one weighed is what no top-k and no top-p shortens.
        const bool shortened = params.top_k < row.length || params.top_p != SD_TOP_P_OFF;
        if (narrowed || shortened || !weighed) measure();
        log2_mass = log2_total(total);
    }

    // Reads the N columns and what one look at them shows.
    __aicore__ inline void read(const RowBlock& b, const Resolved& r, u32 columns, bool lists) {
        has_near = weighed = false;
        total = 0;
        count = 0;
        status = r.known;
        if (b.from_columns != 0) {
            read_columns(b.column_values + 4 * r.row * b.columns, b.column_ids + 4 * r.row * b.columns, columns);
        } else {
            read_logits(b, r, columns, lists);
        }
        if (weight.max == PLUS_INF_BITS) status |= SD_STATUS_INF_LOGITS;
        if (weight.max == MINUS_INF_BITS) status |= SD_STATUS_EMPTY_ROW;
    }

    // The source that holds every kept token.
    __aicore__ inline Source& kept() { return narrowed ? near : row; }

    __aicore__ inline i64 find(i64 id) { return narrowed ? near.find(id, true) : row.find(id, has_ids); }

    __aicore__ inline u32 id_at(u32 place) {
        return kept().resident ? static_cast<u32>(core.ids.GetValue(place)) : place;
    }

    // Whether `id` is among the N columns.
    __aicore__ inline bool has_column(i64 id) const { return row.find(id, has_ids) >= 0; }

    __aicore__ inline Token token(i64 id) {
        if (total == 0) return Token{false, 0, 0, 0};
        const i64 place = find(id);
        if (place < 0) return Token{false, 0, 0, 0};
        const u32 value = kept().at(static_cast<u32>(place)), key = key_of(value);
        const bool has = key > cut.key || (key == cut.key && place < static_cast<i64>(cut.places));
        const u32 exponent = exponent_of(core, value, weight);
        return Token{has && key_of(exponent) >= key_of(lowest), static_cast<u32>(place), value, exponent};
    }

    // Bits of the current tile's kept elements, by a cut in places of `source`; `t` are their exponents.
    __aicore__ inline void kept_bits(const Bits& out, const Source& source, const Cut& prefix, const Floats& t) const {
        within(core, out, source, prefix);
        compare(core.also, t, float_of(lowest), AscendC::CMPMODE::GE, source.size);
        both(out, out, core.also, source.size);
    }

    // Exponents of a tile in the first temporary, and which of its elements are kept.
    __aicore__ inline void look(const Source& source, const Cut& prefix) const {
        exponents(core.temporary[0], source.x, weight, core.also, source.size);
        kept_bits(core.kept, source, prefix, core.temporary[0]);
    }

    // The kept token that `bits` draws, -1 for an empty row.
    __aicore__ inline i64 draw(u64 bits) {
        if (total == 0) return -1;
        Source& source = kept();
        u64 target = multiply_shift(bits, total, SD_DRAW_BITS);
        u32 tile = 0;
        const u32 remembered = smaller(source.tiles(), REMEMBERED);
        for (; tile < remembered; tile++) {
            const u64 here = mass_of_tile(tile);
            if (here > target) break;
            target -= here;
        }
        if (tile < remembered) {
            source.only(tile);
            look(source, cut);
            weigh(core, core.kept, core.temporary[0], source.size);
            return pick(source, target);
        }
        source.start(tile);
        while (source.next()) {
            look(source, cut);
            const u64 here = weigh(core, core.kept, core.temporary[0], source.size);
            if (here > target) {
                source.stop();
                return pick(source, target);
            }
            target -= here;
        }
        return -1;
    }

    __aicore__ inline u32 logprob(const Token& token) const {
        return token.kept ? logprob_of(core, token.value, weight, log2_mass) : MINUS_INF_BITS;
    }

    __aicore__ inline u32 rank(const Token& token) {
        return token.kept ? count_within(core, kept(), Cut{key_of(token.value), token.place + 1}) : 0;
    }

    // Bits of the probability of the tokens up to this one, least likely first.
    __aicore__ inline u32 sum_smaller(const Token& token) {
        if (!token.kept) return 0;
        Source& source = kept();
        u64 sum = 0;
        source.start();
        while (source.next()) {
            const Floats& t = core.temporary[0];
            look(source, cut);
            beyond(core, core.list_bits, source, t, token.exponent, token.place + 1, true);
            both(core.kept, core.kept, core.list_bits, source.size);
            sum += weigh(core, core.kept, t, source.size);
        }
        return ratio(sum, total);
    }

    // The cut by places in the row, which is not the list beside it.
    __aicore__ inline Cut cut_of_row() {
        if (!narrowed) return cut;
        return by_ids(near, cut);
    }

    // Reads the row once more for the list beside it, which a search went on past.
    __aicore__ inline void list_again() {
        const Scan found = scan_row(core, row, MOST_SELECTED);
        seal(core, found.listed);
        near.open_list(&core, found.listed);
        has_near = true;
    }

    // The cut by places in the list beside the row.
    __aicore__ inline Cut cut_of_near() const {
        if (narrowed) return cut;
        u32 low = 0, high = near.length;
        while (low < high) {
            const u32 middle = low + (high - low) / 2;
            if (static_cast<u32>(core.ids.GetValue(middle)) < cut.places) low = middle + 1;
            else high = middle;
        }
        return Cut{cut.key, low};
    }

    // Id of the element of a weighed tile whose running mass passes `target`.
    __aicore__ inline i64 pick(Source& source, u64 target) {
        const Ints high = core.temporary[1].ReinterpretCast<i32>(), low = core.temporary[2].ReinterpretCast<i32>();
        const u32 place = source.base + core.locate(high, low, source.size, target);
        return source.resident ? core.ids.GetValue(place) : static_cast<i64>(place);
    }

  private:
    const Split& split;
    // Whether every kept token is in the list beside the row.
    bool narrowed;
    // Whether the row was weighed by a launch before this one, and what all of it weighs.
    bool weighed;
    u64 whole;
    // The key that bounds what the list beside the row does not hold.
    u32 bound;

    // A cut by places in a list as one by places in the row, which are ids.
    __aicore__ inline Cut by_ids(Source& list, const Cut& listed) {
        const u32 above = count_within(core, list, Cut{listed.key, 0});
        const u32 ties = count_within(core, list, listed) - above;
        const u32 last = ties == 0 ? 0 : static_cast<u32>(core.ids.GetValue(nth_tie(core, list, listed.key, ties))) + 1;
        return Cut{listed.key, last};
    }

    // The tokens of a row that does not stay whose preceding mass is at most `limit`. Where that is more than its list
    // weighs, the next few thousand tokens of the order are listed in one pass, and the next, before every step of a
    // bisection reads the row.
    __aicore__ inline Cut cut_past_list(u64 limit) {
        if (mass_within(core, near, weight, everything(near)) > limit)
            return by_ids(near, cut_by_mass(core, near, weight, limit));
        u32 edge = bound;
        u64 above = mass_within(core, near, weight, Cut{edge, 0});
        has_near = false;
        for (u32 round = 0; round < PASSES; round++) {
            const Scan found = scan_below(core, row, edge, MOST_SELECTED);
            seal(core, found.listed);
            Source list;
            list.open_list(&core, found.listed);
            if (above + mass_within(core, list, weight, everything(list)) > limit)
                return by_ids(list, cut_by_mass(core, list, weight, limit - above));
            if (found.whole) break;
            above += mass_within(core, list, weight, Cut{found.bound, 0});
            edge = found.bound;
        }
        return cut_by_mass(core, row, weight, limit);
    }

    // Most passes that list more tokens.
    static constexpr u32 PASSES = 4;

    __aicore__ inline void read_columns(u64 values, u64 ids, u32 n) {
        fence<AscendC::HardEvent::V_MTE2>();
        fence<AscendC::HardEvent::S_MTE2>();
        load(core.values, values, n, float_of(MINUS_INF_BITS));
        load(core.ids, ids, n, -1);
        fence<AscendC::HardEvent::MTE2_V>();
        fence<AscendC::HardEvent::MTE2_S>();
        seal(core, n);
        row.open_list(&core, n);
        has_ids = true;
        weight.max = MINUS_INF_BITS;
        row.start();
        while (row.next()) {
            const u32 largest = core.largest(row.x, row.size);
            if (key_of(largest) > key_of(weight.max)) weight.max = largest;
        }
    }

    __aicore__ inline void read_logits(const RowBlock& b, const Resolved& r, u32 columns, bool lists) {
        const u32 vocab = static_cast<u32>(b.vocab);
        const bool selects = columns < vocab, stays = selects || vocab <= LIST;
        row.open(&core, r.logits, r.mask, b.logits_dtype, vocab);
        Scan found = split.slices > 1 ? merge_slices(core, b, r.row, split, selects || lists)
                                      : scan_row(core, row, !stays && !lists ? 0 : selects ? columns : MOST_SELECTED);
        if (selects && found.listed > columns) {
            prune(core, found.listed, columns, found.max);
            found.listed = columns;
        }
        if (!selects && split.slices > 1) prefix_of_slices(core, found);
        bound = found.bound;
        if (found.listed > 0) seal(core, found.listed);
        has_ids = selects;
        has_near = !stays && lists && found.listed > 0;
        weighed = split.slices > 1 && !selects && found.max != MINUS_INF_BITS;
        if (weighed) read_weights(core, b, r.row, split, &whole, &total, &count);
        if (stays) row.open_list(&core, found.listed);
        if (has_near) near.open_list(&core, found.listed);
        weight.max = found.max;
        if (found.nan) status |= SD_STATUS_NAN_LOGITS;
    }

    // What every filter keeps is a prefix of the order, so all of them together keep the shortest.
    __aicore__ inline void filter(const Params& params) {
        const bool top_k = params.top_k < row.length, top_p = params.top_p != SD_TOP_P_OFF;
        const bool first_alone = top_k && params.top_k_first;
        if (top_p && !first_alone && !weighed) whole = mass_within(core, row, weight, everything(row));
        if (has_near) {
            if (top_k && params.top_k <= near.length) {
                narrowed = true;
            } else if (!top_p || !first_alone) {
                if (top_p) {
                    const u64 limit = multiply_shift(whole, params.top_p, 32);
                    narrowed = mass_within(core, near, weight, everything(near)) > limit;
                }
                if (!narrowed && params.min_exponent != MINUS_INF_BITS) narrowed = count_kept(near) < near.length;
            }
        }
        Source& source = kept();
        const Cut all = everything(source);
        cut = top_k ? cut_by_count(core, source, weight.max, params.top_k) : all;
        if (top_p) {
            const u64 looked_at = first_alone ? mass_within(core, source, weight, cut) : whole;
            const u64 limit = multiply_shift(looked_at, params.top_p, 32);
            // In a list the prefix may go on past its end.
            if (!narrowed && has_near) cut = shorter(cut, cut_past_list(limit));
            else if (!narrowed || mass_within(core, source, weight, all) > limit)
                cut = shorter(cut, cut_by_mass(core, source, weight, limit));
        }
    }

    // Elements of a source whose exponents are kept.
    __aicore__ inline u32 count_kept(Source& source) {
        u32 found = 0;
        source.start();
        while (source.next()) {
            look(source, everything(source));
            found += core.count(core.kept, source.size);
        }
        return found;
    }

    // Number and mass of the kept tokens, the mass of each tile remembered.
    __aicore__ inline void measure() {
        Source& source = kept();
        total = 0;
        count = 0;
        source.start();
        while (source.next()) {
            look(source, cut);
            count += core.count(core.kept, source.size);
            const u64 here = weigh(core, core.kept, core.temporary[0], source.size);
            total += here;
            const u32 tile = source.base / TILE;
            if (tile < REMEMBERED) {
                core.tile_masses.SetValue(2 * tile, static_cast<u32>(here));
                core.tile_masses.SetValue(2 * tile + 1, static_cast<u32>(here >> 32));
            }
        }
    }

    __aicore__ inline u64 mass_of_tile(u32 tile) const {
        return static_cast<u64>(core.tile_masses.GetValue(2 * tile + 1)) << 32 | core.tile_masses.GetValue(2 * tile);
    }
};

} // namespace samedraw
