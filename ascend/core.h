// What a core has: its unified buffer, cut into areas once, and the steps that work on one tile of it.

namespace samedraw {

// Elements of a tile, the unit in which rows are read and processed.
constexpr u32 TILE = 2048;
// Tokens that are kept in the unified buffer: rows up to this long are read once and stay.
constexpr u32 LIST = 8192;
// The largest force-top-k, and what a longer list is cut down to.
constexpr u32 MOST_SELECTED = 4096;
// Elements in front of a tile that take what an unaligned list ends with.
constexpr u32 PREFIX = 8;
// Elements of a tile with its prefix, in whole repeats.
constexpr u32 PREFIXED = TILE + 64;
constexpr u32 REPEAT = 64;
constexpr u32 TEMPORARIES = 7;
// Tiles whose masses are remembered between passes.
constexpr u32 REMEMBERED = 256;
// 32-byte slots of scalars read and written.
constexpr u32 SLOTS = 64;

__aicore__ inline u32 smaller(u32 a, u32 b) { return a < b ? a : b; }

// The power of two, at least a repeat, that holds n.
__aicore__ inline u32 padded(u32 n) {
    u32 size = REPEAT;
    while (size < n) size <<= 1;
    return size;
}

class Core {
  public:
    AscendC::TQue<AscendC::TPosition::VECIN, 2> queue;
    // A tile as f32, `PREFIX` elements into it; ids of its elements, where they are wanted.
    Floats tile;
    Ints tile_ids;
    // Tokens that stay, ascending ids.
    Floats values;
    Ints ids;
    // A tile each; `area` is all of them, one after the other.
    Floats temporary[TEMPORARIES];
    Floats area;
    // 0, 1, 2, ...
    Floats places;
    // A bit for each of `PREFIXED` elements; one for each of the list.
    Bits kept, also, among, list_bits;
    // Partial sums.
    Ints sums[2];
    // Result and work area of a reduction.
    Floats reduced;
    // Scalars that were read, scalars to write.
    Words inputs, outputs;
    // Mass of each tile, two words: of what is kept, and of what a draft leaves.
    Words tile_masses, rest_masses;

    __aicore__ inline explicit Core(AscendC::TPipe* pipe) {
        pipe->InitBuffer(queue, 2, TILE * 4 + 512);
        pipe->InitBuffer(memory, BYTES);
        u32 at = 0;
        values = take<float>(at, LIST);
        ids = take<i32>(at, LIST);
        area = take<float>(at, TEMPORARIES * TILE);
        for (u32 i = 0; i < TEMPORARIES; i++) temporary[i] = area[i * TILE];
        tile = take<float>(at, PREFIXED);
        tile_ids = take<i32>(at, PREFIXED);
        places = take<float>(at, PREFIXED);
        sums[0] = take<i32>(at, TILE / 2);
        sums[1] = take<i32>(at, TILE / 2);
        tile_masses = take<u32>(at, 2 * REMEMBERED);
        rest_masses = take<u32>(at, 2 * REMEMBERED);
        kept = take<u8>(at, 320);
        also = take<u8>(at, 320);
        among = take<u8>(at, 320);
        list_bits = take<u8>(at, LIST / 8);
        reduced = take<float>(at, 128);
        inputs = take<u32>(at, SLOTS * 8);
        outputs = take<u32>(at, SLOTS * 8);
        count_up(places, 0.0f, PREFIXED);
        fill(tile, float_of(MINUS_INF_BITS), PREFIXED);
        fill(tile_ids, 0, PREFIXED);
    }

    // ---- scalars from global memory, in slots of up to 8 words

    // The slots may be filled: whatever was read from them has been.
    __aicore__ inline void ask() const { fence<AscendC::HardEvent::S_MTE2>(); }
    __aicore__ inline void ask(u32 slot, u64 address, u32 words) const { load(inputs[slot * 8], address, words, 0u); }
    __aicore__ inline void ask_index(u32 slot, u64 array, u64 width, u64 i) const {
        if (array != 0) ask(slot, array + i * width, static_cast<u32>(width / 4));
    }
    // What was asked for is there.
    __aicore__ inline void answered() const { fence<AscendC::HardEvent::MTE2_S>(); }
    __aicore__ inline u32 word(u32 slot, u32 i = 0) const { return inputs.GetValue(slot * 8 + i); }
    __aicore__ inline u64 wide(u32 slot, u32 i = 0) const {
        return static_cast<u64>(word(slot, i + 1)) << 32 | word(slot, i);
    }
    __aicore__ inline i64 index(u32 slot, u64 width) const {
        return width == SD_WIDTH_I32 ? static_cast<i64>(static_cast<i32>(word(slot))) : static_cast<i64>(wide(slot));
    }

    // ---- one tile

    // How many of the first n bits are set; their places are left in the last temporary. n is at most a tile.
    __aicore__ inline u32 count(const Bits& bits, u32 n) const {
        return gather(temporary[TEMPORARIES - 1], places, bits, n);
    }

    // The largest of n elements, as bits.
    __aicore__ inline u32 largest(const Floats& x, u32 n) const {
        AscendC::ReduceMax(reduced, x, reduced[64], static_cast<i32>(n), false);
        done();
        vector_to_scalar();
        const u32 bits = bits_of(reduced.GetValue(0));
        scalar_to_vector();
        return bits;
    }

    // Sums of n elements each, n a power of two of at least 16, as 8 partial sums that the scalar unit may read; where
    // in `sums` they are.
    __aicore__ inline u32 fold(const Ints& high, const Ints& low, u32 from, u32 n) const {
        u32 half = n / 2, at = 0;
        add(sums[0], high[from], high[from + half], half);
        add(sums[1], low[from], low[from + half], half);
        while (half > 8) {
            half /= 2;
            // A repeat's operands are the same or apart: what is shorter than a repeat moves on.
            const u32 to = half >= REPEAT ? at : (at + 128) % 384;
            add(sums[0][to], sums[0][at], sums[0][at + half], half);
            add(sums[1][to], sums[1][at], sums[1][at + half], half);
            at = to;
        }
        vector_to_scalar();
        return at;
    }

    // The mass that n elements have in their two halves of 20 bits. A lane adds up no more than 2^8 times 2^20.
    __aicore__ inline u64 sum(const Ints& high, const Ints& low, u32 from, u32 n) const {
        const u32 at = fold(high, low, from, n);
        u64 upper = 0, lower = 0;
        for (u32 i = 0; i < 8; i++) {
            upper += static_cast<u32>(sums[0].GetValue(at + i));
            lower += static_cast<u32>(sums[1].GetValue(at + i));
        }
        scalar_to_vector();
        return (upper << 20) + lower;
    }

    // The first of n elements whose running mass is larger than `target`, which is less than the mass of all.
    __aicore__ inline u32 locate(const Ints& high, const Ints& low, u32 n, u64 target) const {
        u32 from = 0;
        while (n > 8) {
            n /= 2;
            const u64 first = n > 8 ? sum(high, low, from, n) : eight(high, low, from, n);
            if (first <= target) {
                target -= first;
                from += n;
            }
        }
        for (u32 i = 0; i < 8; i++) {
            const u64 mass = one(high, low, from + i);
            if (mass > target) return from + i;
            target -= mass;
        }
        return from + 7;
    }

  private:
    AscendC::TBuf<AscendC::TPosition::VECOUT> memory;

    static constexpr u32 BYTES = 4 * (2 * LIST + TEMPORARIES * TILE + 3 * PREFIXED + TILE + 4 * REMEMBERED) +
                                 3 * 320 + LIST / 8 + 4 * (128 + 2 * SLOTS * 8);
    static_assert(BYTES + 2 * (TILE * 4 + 512) <= 184 * 1024 - 256, "the unified buffer that a kernel may use");

    template <class T>
    __aicore__ inline AscendC::LocalTensor<T> take(u32& at, u32 n) {
        AscendC::LocalTensor<T> tensor = memory.GetWithOffset<T>(n, at);
        at += n * sizeof(T);
        return tensor;
    }

    __aicore__ inline u64 one(const Ints& high, const Ints& low, u32 i) const {
        return (static_cast<u64>(static_cast<u32>(high.GetValue(i))) << 20) + static_cast<u32>(low.GetValue(i));
    }

    // As `sum`, of elements that are read one by one.
    __aicore__ inline u64 eight(const Ints& high, const Ints& low, u32 from, u32 n) const {
        vector_to_scalar();
        u64 mass = 0;
        for (u32 i = 0; i < n; i++) mass += one(high, low, from + i);
        return mass;
    }
};

} // namespace samedraw
