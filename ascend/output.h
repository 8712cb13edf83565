// Writing a row's results, all of them out of the unified buffer: every slot that a row owns is written, for a bad row
// too.

namespace samedraw {

// Scalars on their way to global memory, a slot of 32 bytes each.
class Scalars {
  public:
    __aicore__ inline explicit Scalars(const Core& core_) : core(core_) {}

    // `value` for element i of an array of 4-byte elements, unless it is not wanted.
    __aicore__ inline void put(u64 array, u64 i, u32 value) {
        if (array == 0) return;
        core.outputs.SetValue(used * 8, value);
        addresses[used] = array + 4 * i;
        words[used++] = 1;
    }

    __aicore__ inline void put_token(const RowBlock& b, u64 row, i64 token) {
        if (b.tokens == 0) return;
        const u64 bits = static_cast<u64>(token);
        core.outputs.SetValue(used * 8, static_cast<u32>(bits));
        core.outputs.SetValue(used * 8 + 1, static_cast<u32>(bits >> 32));
        addresses[used] = b.tokens + b.tokens_width * row;
        words[used++] = static_cast<u32>(b.tokens_width / 4);
    }

    // Writes all that was put; the slots are free again.
    __aicore__ inline void flush() {
        if (used == 0) return;
        fence<AscendC::HardEvent::S_MTE3>();
        for (u32 i = 0; i < used; i++) store(addresses[i], core.outputs[i * 8], words[i]);
        fence<AscendC::HardEvent::MTE3_S>();
        used = 0;
    }

  private:
    static constexpr u32 MOST = 16;
    const Core& core;
    u32 used = 0;
    u64 addresses[MOST];
    u32 words[MOST];
};

// n words at `address` become `value`.
__aicore__ inline void write_fill(const Core& core, u64 address, u32 value, u64 n) {
    if (n == 0) return;
    const Ints out = core.temporary[0].ReinterpretCast<i32>();
    fill(out, static_cast<i32>(value), n < TILE ? static_cast<u32>(n) : TILE);
    write_out();
    for (u64 at = 0; at < n; at += TILE) store(address + 4 * at, out, static_cast<u32>(n - at < TILE ? n - at : TILE));
    written();
}

// Ids of the current tile's elements.
__aicore__ inline Ints ids_of_tile(const Core& core, const Source& source) {
    if (source.resident) return core.ids[source.base];
    count_up(core.tile_ids, static_cast<i32>(source.base), source.size);
    return core.tile_ids;
}

// Processed logprobs of the N columns, ascending ids.
__aicore__ inline void write_dense(const RowBlock& b, u64 row_index, Row& r) {
    const Core& core = r.core;
    const u64 start = row_index * b.dense_stride;
    const Cut cut = r.cut_of_row();
    const Floats& t = core.temporary[0];
    r.row.start();
    while (r.row.next()) {
        if (r.total == 0) {
            fill(t, float_of(MINUS_INF_BITS), r.row.size);
        } else {
            r.look(r.row, cut);
            logprobs(t, r.log2_mass, r.row.size);
            select(t, core.kept, t, float_of(MINUS_INF_BITS), r.row.size);
        }
        const Ints ids = ids_of_tile(core, r.row);
        write_out();
        store(b.dense + 4 * (start + r.row.base), t, r.row.n);
        if (b.dense_ids != 0) store(b.dense_ids + 4 * (start + r.row.base), ids, r.row.n);
        written();
    }
}

// Ids of the kept tokens, ascending, then -1.
__aicore__ inline void write_kept(const RowBlock& b, u64 row_index, Row& r) {
    const Core& core = r.core;
    const u64 start = b.kept_ids + 4 * row_index * b.kept_width;
    u64 used = 0;
    if (r.total != 0) {
        Source& source = r.kept();
        const Ints out = core.temporary[5].ReinterpretCast<i32>();
        source.start();
        while (source.next()) {
            r.look(source, r.cut);
            const u32 here = gather(out, ids_of_tile(core, source), core.kept, source.size);
            const u64 room = b.kept_width - used;
            const u32 n = here < room ? here : static_cast<u32>(room);
            if (n != 0) {
                write_out();
                store(start + 4 * used, out, n);
                written();
                used += n;
            }
            if (used == b.kept_width) {
                source.stop();
                break;
            }
        }
    }
    write_fill(core, start + 4 * used, 0xffffffffu, b.kept_width - used);
}

// Most entries of a top list that are put in order at once.
constexpr u32 ORDERED = TILE / 2;

// Puts n tokens into their order, on the scalar unit: `from` holds the bits of their values and, `ORDERED` elements on,
// their ids. Returns where they are then: `from` or `to`.
__aicore__ inline Words order_tokens(Words from, Words to, u32 n) {
    for (u32 run = 1; run < n; run *= 2) {
        for (u32 start = 0; start < n; start += 2 * run) {
            u32 a = start, b = smaller(start + run, n);
            const u32 a_end = b, b_end = smaller(start + 2 * run, n);
            for (u32 out = start; out < b_end; out++) {
                bool second = a == a_end;
                if (!second && b < b_end) {
                    const u32 ka = key_of(from.GetValue(a)), kb = key_of(from.GetValue(b));
                    second = kb > ka || (kb == ka && from.GetValue(ORDERED + b) < from.GetValue(ORDERED + a));
                }
                const u32 at = second ? b++ : a++;
                to.SetValue(out, from.GetValue(at));
                to.SetValue(ORDERED + out, from.GetValue(ORDERED + at));
            }
        }
        const Words other = from;
        from = to;
        to = other;
    }
    return from;
}

// Collects the kept tokens of `source` within `cut`, without those within `before`, in the order of their places: values
// in temporary 5, ids behind them. There are at most `ORDERED`.
__aicore__ inline u32 collect(Row& r, Source& source, const Cut& cut, const Cut& before, bool later) {
    const Core& core = r.core;
    const Words out = core.temporary[5].ReinterpretCast<u32>();
    const Words values = core.temporary[3].ReinterpretCast<u32>(), ids = core.temporary[4].ReinterpretCast<u32>();
    u32 n = 0;
    source.start();
    while (source.next()) {
        r.look(source, cut);
        if (later) {
            within(core, core.list_bits, source, before);
            neither(core.list_bits, core.list_bits, source.size);
            both(core.kept, core.kept, core.list_bits, source.size);
        }
        const u32 here = gather(values, source.x.ReinterpretCast<u32>(), core.kept, source.size);
        gather(ids, ids_of_tile(core, source).ReinterpretCast<u32>(), core.kept, source.size);
        vector_to_scalar();
        for (u32 i = 0; i < here && n < ORDERED; i++, n++) {
            out.SetValue(n, values.GetValue(i));
            out.SetValue(ORDERED + n, ids.GetValue(i));
        }
        scalar_to_vector();
    }
    return n;
}

// The first kept tokens of the order with their logprobs; unused entries are -1 and -inf. Returns how many are used.
__aicore__ inline u32 write_top(const RowBlock& b, u64 row_index, Row& r) {
    const Core& core = r.core;
    const u64 width = b.top_width, start = 4 * row_index * width;
    u64 used = 0;
    if (r.total != 0) {
        // The list beside a row holds its first tokens.
        if (!r.row.resident && !r.has_near && width <= MOST_SELECTED) r.list_again();
        const bool from_list = r.has_near && width <= r.near.length;
        Source& source = from_list ? r.near : r.kept();
        const Cut whole = from_list ? r.cut_of_near() : r.cut;
        const u64 wanted = width < r.count ? width : r.count;
        Cut before{0, 0};
        while (used < wanted) {
            const u64 end = wanted - used < ORDERED ? wanted : used + ORDERED;
            const Cut cut = shorter(whole, cut_by_count(core, source, r.weight.max, end));
            const u32 n = collect(r, source, cut, before, used != 0);
            if (n == 0) break;
            const Words ordered = order_tokens(core.temporary[5].ReinterpretCast<u32>(),
                                               core.temporary[6].ReinterpretCast<u32>(), n);
            const Floats values = ordered.ReinterpretCast<float>(), &t = core.temporary[0];
            const u32 size = (n + REPEAT - 1) / REPEAT * REPEAT;
            for (u32 i = n; i < size; i++) values.SetValue(i, float_of(MINUS_INF_BITS));
            scalar_to_vector();
            exponents(t, values, r.weight, core.also, size);
            logprobs(t, r.log2_mass, size);
            write_out();
            fence<AscendC::HardEvent::S_MTE3>();
            store(b.top_logprobs + start + 4 * used, t, n);
            store(b.top_ids + start + 4 * used, ordered[ORDERED], n);
            written();
            used += n;
            before = cut;
        }
    }
    write_fill(core, b.top_ids + start + 4 * used, 0xffffffffu, width - used);
    write_fill(core, b.top_logprobs + start + 4 * used, MINUS_INF_BITS, width - used);
    return static_cast<u32>(used);
}

// Bits of the logprob of `token` under the logits as handed in: temperature 1, no mask, no filter. Reads the row again:
// once for the masses, and before that for its largest value where a mask or a selection hid some of it.
__aicore__ inline u32 raw_logprob(const RowBlock& b, const Resolved& r, Row& row, i64 token) {
    if (token < 0) return MINUS_INF_BITS;
    Core& core = row.core;
    Source raw;
    raw.open(&core, r.logits, 0, b.logits_dtype, static_cast<u32>(b.vocab));
    Weight weight{row.weight.max, bits_of(SD_LOG2_E)};
    if (r.mask != 0 || b.from_columns != 0) weight.max = scan_row(core, raw, 0).max;
    if (weight.max == MINUS_INF_BITS) return MINUS_INF_BITS;
    const u32 value = raw.at(static_cast<u32>(token));
    if (exponent_of(core, value, weight) == MINUS_INF_BITS) return MINUS_INF_BITS;
    const u64 total = mass_within(core, raw, weight, everything(raw));
    return logprob_of(core, value, weight, log2_total(total));
}

// A row that could not be processed.
__aicore__ inline void store_bad(const Core& core, const RowBlock& b, u64 row) {
    Scalars out(core);
    out.put_token(b, row, -1);
    out.put(b.status, row, SD_STATUS_BAD_INDEX);
    out.put(b.logprobs, row, MINUS_INF_BITS);
    out.put(b.ranks, row, 0);
    out.put(b.kept_counts, row, 0);
    out.put(b.raw_logprobs, row, MINUS_INF_BITS);
    out.put(b.sum_smaller_probs, row, 0);
    out.put(b.top_counts, row, 0);
    out.flush();
    if (b.kept_ids != 0) write_fill(core, b.kept_ids + 4 * row * b.kept_width, 0xffffffffu, b.kept_width);
    if (b.top_ids != 0) write_fill(core, b.top_ids + 4 * row * b.top_width, 0xffffffffu, b.top_width);
    if (b.top_logprobs != 0) write_fill(core, b.top_logprobs + 4 * row * b.top_width, MINUS_INF_BITS, b.top_width);
    if (b.dense != 0) {
        write_fill(core, b.dense + 4 * row * b.dense_stride, MINUS_INF_BITS, b.columns);
        if (b.dense_ids != 0) write_fill(core, b.dense_ids + 4 * row * b.dense_stride, 0xffffffffu, b.columns);
    }
}

// A processed row and its token.
__aicore__ inline void store_row(const RowBlock& b, const Resolved& r, Row& row, i64 token_id, i32 status) {
    const u64 i = r.row;
    Scalars out(row.core);
    out.put_token(b, i, token_id);
    out.put(b.status, i, static_cast<u32>(status));
    out.put(b.kept_counts, i, row.count);
    if (b.logprobs != 0 || b.ranks != 0 || b.sum_smaller_probs != 0) {
        const Token token = row.token(token_id);
        if (b.logprobs != 0) out.put(b.logprobs, i, row.logprob(token));
        if (b.ranks != 0) out.put(b.ranks, i, row.rank(token));
        if (b.sum_smaller_probs != 0) out.put(b.sum_smaller_probs, i, row.sum_smaller(token));
    }
    if (b.top_width != 0) out.put(b.top_counts, i, write_top(b, i, row));
    if (b.dense != 0) write_dense(b, i, row);
    if (b.kept_ids != 0) write_kept(b, i, row);
    if (b.raw_logprobs != 0) out.put(b.raw_logprobs, i, raw_logprob(b, r, row, token_id));
    out.flush();
}

// Whether results of a row may come from the list of its first tokens.
__aicore__ inline bool wants_list(const RowBlock& b, const Params& params) {
    return params.top_k != SD_TOP_K_OFF || params.top_p != SD_TOP_P_OFF || params.min_exponent != MINUS_INF_BITS ||
           b.top_width != 0;
}

} // namespace samedraw
