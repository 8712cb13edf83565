// The end of a prefix of the order, found without sorting: the key of its last token by bisection over 32-bit keys, each
// step one pass that counts or weighs what lies above; then the place of its last token among those with that key.

namespace samedraw {

// A prefix: tokens above `key`, and those at it whose place in the row is below `places`.
struct Cut {
    u32 key, places;
};

constexpr u32 LOWEST_KEY = 0x007fffffu; // of -inf

// A cut at the key of a value: the one below that of 0 stands for it too, as that of -0 would.
__aicore__ inline Cut cut_at(u32 key, u32 places) { return Cut{key == 0x7fffffffu ? 0x80000000u : key, places}; }

__aicore__ inline Cut everything(const Source& row) { return Cut{LOWEST_KEY, row.length}; }

__aicore__ inline Cut shorter(const Cut& a, const Cut& b) {
    return a.key > b.key || (a.key == b.key && a.places < b.places) ? a : b;
}

// Bits of the elements beyond `edge` (above it, or below it where `below`), and of those at it whose place in the row is
// below `places`.
__aicore__ inline void beyond(const Core& core, const Bits& out, const Source& row, const Floats& x, u32 edge,
                              u32 places, bool below) {
    const AscendC::CMPMODE strictly = below ? AscendC::CMPMODE::LT : AscendC::CMPMODE::GT;
    const AscendC::CMPMODE or_equal = below ? AscendC::CMPMODE::LE : AscendC::CMPMODE::GE;
    const float value = float_of(edge);
    if (places <= row.base) {
        compare(out, x, value, strictly, row.size);
    } else if (places - row.base >= row.size) {
        compare(out, x, value, or_equal, row.size);
    } else {
        compare(out, x, value, strictly, row.size);
        compare(core.also, x, value, AscendC::CMPMODE::EQ, row.size);
        compare(core.among, core.places, static_cast<float>(places - row.base), AscendC::CMPMODE::LT, row.size);
        both(core.also, core.also, core.among, row.size);
        either(out, out, core.also, row.size);
    }
}

// Bits of the elements within a prefix.
__aicore__ inline void within(const Core& core, const Bits& out, const Source& row, const Cut& cut) {
    beyond(core, out, row, row.x, bits_of_key(cut.key), cut.places, false);
}

// Tokens within a prefix.
__aicore__ inline u32 count_within(const Core& core, Source& row, const Cut& cut) {
    u32 count = 0;
    row.start();
    while (row.next()) {
        within(core, core.kept, row, cut);
        count += core.count(core.kept, row.size);
    }
    return count;
}

// Place of the n-th token (from 1) with this key; there are as many.
__aicore__ inline u32 nth_tie(const Core& core, Source& row, u32 key, u32 n) {
    row.start();
    while (row.next()) {
        compare(core.kept, row.x, float_of(bits_of_key(key)), AscendC::CMPMODE::EQ, row.size);
        const u32 here = core.count(core.kept, row.size);
        if (here >= n) {
            vector_to_scalar();
            const u32 place = row.base + static_cast<u32>(core.temporary[TEMPORARIES - 1].GetValue(n - 1));
            scalar_to_vector();
            row.stop();
            return place;
        }
        n -= here;
    }
    return row.length;
}

// The first n tokens of a row whose largest value is `max`; n is at least 1.
__aicore__ inline Cut cut_by_count(const Core& core, Source& row, u32 max, u64 n) {
    if (n >= row.length) return everything(row);
    // `low` has n tokens at or above it, what is past `high` has not; `above` counts those past `high`.
    u32 low = LOWEST_KEY, high = key_of(max), above = 0;
    while (low < high) {
        const u32 middle = low + (high - low + 1) / 2;
        const u32 count = count_within(core, row, Cut{middle, row.length});
        if (count == n) return cut_at(middle, row.length);
        if (count > n) {
            low = middle;
        } else {
            high = middle - 1;
            above = count;
        }
    }
    return cut_at(low, nth_tie(core, row, low, static_cast<u32>(n) - above) + 1);
}

// The mass of the current tile's elements whose bit is set, `t` being their exponents; its halves are left in the
// temporaries 1 and 2. Temporaries 3 and 4 are work areas.
__aicore__ inline u64 weigh(const Core& core, const Bits& bits, const Floats& t, u32 size) {
    const Floats& p = core.temporary[3];
    const Ints high = core.temporary[1].ReinterpretCast<i32>(), low = core.temporary[2].ReinterpretCast<i32>();
    powers(p, t, core.temporary[1], core.temporary[2], size);
    select(p, bits, p, 0.0f, size);
    halve(high, low, p, core.temporary[4], size);
    return core.sum(high, low, 0, size);
}

// Mass and number of the tokens within a prefix.
struct Amount {
    u64 mass;
    u32 count;
};

__aicore__ inline Amount amount_within(const Core& core, Source& row, const Weight& weight, const Cut& cut) {
    Amount amount{0, 0};
    row.start();
    while (row.next()) {
        exponents(core.temporary[0], row.x, weight, core.also, row.size);
        within(core, core.kept, row, cut);
        amount.count += core.count(core.kept, row.size);
        amount.mass += weigh(core, core.kept, core.temporary[0], row.size);
    }
    return amount;
}

__aicore__ inline u64 mass_within(const Core& core, Source& row, const Weight& weight, const Cut& cut) {
    return amount_within(core, row, weight, cut).mass;
}

// The largest key of a row's tokens that is no larger than `key`.
__aicore__ inline u32 largest_key_to(const Core& core, Source& row, u32 key) {
    u32 found = LOWEST_KEY;
    const Floats& x = core.temporary[0];
    row.start();
    while (row.next()) {
        compare(core.kept, row.x, float_of(bits_of_key(key)), AscendC::CMPMODE::LE, row.size);
        select(x, core.kept, row.x, float_of(MINUS_INF_BITS), row.size);
        const u32 largest = key_of(core.largest(x, row.size));
        if (largest > found) found = largest;
    }
    return found;
}

// The tokens whose preceding mass is at most `limit`, which is less than the mass of the row.
__aicore__ inline Cut cut_by_mass(const Core& core, Source& row, const Weight& weight, u64 limit) {
    // The mass above `low` is more than the limit, that above `high` is not: it is `before`. `above_low` and `above` count
    // those tokens.
    u32 low = LOWEST_KEY, high = key_of(weight.max), above_low = row.length, above = 0;
    u64 before = 0;
    while (high - low > 1 && above_low - above > 1) {
        const u32 middle = low + (high - low) / 2;
        const Amount amount = amount_within(core, row, weight, Cut{middle, 0});
        if (amount.mass > limit) {
            low = middle;
            above_low = amount.count;
        } else {
            high = middle;
            before = amount.mass;
            above = amount.count;
        }
    }
    // Between the two there is one token left, or one key.
    if (above_low - above == 1) return cut_at(largest_key_to(core, row, high), row.length);
    // All that have the last key have one mass.
    const u32 ties = count_within(core, row, Cut{high, row.length}) - above;
    const u64 each = mass_of(core, bits_of_key(high), weight), more = each == 0 ? ~0ull : (limit - before) / each;
    if (more >= ties - 1) return cut_at(high, row.length);
    return cut_at(high, nth_tie(core, row, high, static_cast<u32>(more) + 1) + 1);
}

} // namespace samedraw
