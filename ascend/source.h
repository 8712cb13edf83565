// A row as the later stages see it: masked, NaN removed, f32, a tile at a time. A row that lies in the unified buffer is
// used there; another is read from global memory in each pass, one tile ahead of the work.

namespace samedraw {

class Source {
  public:
    // The current tile: its elements, how many they are, how many with the -inf that fill up a power of two, and the
    // place of the first in the row.
    Floats x;
    u32 n, size, base;
    u32 length;
    bool resident;

    // `length` logits at `address`; `mask` is 0 or the address of the row's allowed-token bits.
    __aicore__ inline void open(Core* core_, u64 address, u64 mask_, u64 dtype_, u32 length_) {
        core = core_;
        values = address;
        mask = mask_;
        dtype = dtype_;
        length = length_;
        resident = false;
        next_tile = asked = first_tile = 0;
        end_tile = tiles();
    }

    // Narrows passes down to the tiles from `first` to before `end`.
    __aicore__ inline void narrow(u32 first, u32 end) {
        first_tile = first;
        end_tile = smaller(end, tiles());
    }

    // The first `length` tokens of the core's list, whose last tile is filled up.
    __aicore__ inline void open_list(Core* core_, u32 length_) {
        core = core_;
        length = length_;
        resident = true;
        next_tile = asked = first_tile = 0;
        end_tile = tiles();
    }

    __aicore__ inline u32 tiles() const { return (length + TILE - 1) / TILE; }

    // Begins a pass. Every pass that `next` did not end is ended by `stop`.
    __aicore__ inline void start() { start(first_tile); }
    __aicore__ inline void start(u32 tile) {
        next_tile = asked = tile;
        if (!resident && asked < end_tile) ask();
    }

    // Takes the next tile; false, and the pass ended, where there is none.
    __aicore__ inline bool next() {
        if (next_tile >= end_tile) return false;
        base = next_tile * TILE;
        n = smaller(length - base, TILE);
        size = padded(n);
        if (resident) {
            x = core->values[base];
        } else {
            if (asked < end_tile) ask();
            read();
        }
        next_tile++;
        return true;
    }

    // Takes one tile alone.
    __aicore__ inline void only(u32 tile) {
        next_tile = asked = tile;
        base = tile * TILE;
        n = smaller(length - base, TILE);
        size = padded(n);
        if (resident) {
            x = core->values[base];
            return;
        }
        ask();
        read();
    }

    // Ends a pass before its last tile.
    __aicore__ inline void stop() {
        if (resident) return;
        while (next_tile < asked) {
            if (dtype == SD_DTYPE_F32) drop<float>();
            else drop<u16>();
            next_tile++;
        }
    }

    // Whether the current tile had a NaN that the mask allows.
    __aicore__ inline bool had_nan() const { return core->count(core->kept, size) != size; }

    // Place of token `id` in the row, -1 where the row does not have it.
    __aicore__ inline i64 find(i64 id, bool has_ids) const {
        if (!has_ids) return id >= 0 && id < static_cast<i64>(length) ? id : -1;
        u32 low = 0, high = length;
        while (low < high) {
            const u32 middle = low + (high - low) / 2;
            const i64 here = core->ids.GetValue(middle);
            if (here == id) return middle;
            if (here < id) low = middle + 1;
            else high = middle;
        }
        return -1;
    }

    // Bits of the value at a place.
    __aicore__ inline u32 at(u32 place) const {
        if (resident) return bits_of(core->values.GetValue(place));
        core->ask();
        if (dtype == SD_DTYPE_F32) core->ask(IN_VALUE, values + 4ull * place, 1);
        else load(core->inputs[IN_VALUE * 8].ReinterpretCast<u16>(), values + 2ull * place, 1, static_cast<u16>(0));
        if (mask != 0) core->ask(IN_MASK_WORD, mask + 4ull * (place / 32), 1);
        core->answered();
        u32 bits = core->word(IN_VALUE);
        if (dtype == SD_DTYPE_F16) bits = widen_half(bits & 0xffff);
        else if (dtype == SD_DTYPE_BF16) bits <<= 16;
        const bool hidden = mask != 0 && !(core->word(IN_MASK_WORD) >> (place % 32) & 1);
        return hidden || is_nan(bits) ? MINUS_INF_BITS : bits;
    }

  private:
    static constexpr u32 IN_VALUE = 62, IN_MASK_WORD = 63;

    Core* core;
    u64 values, mask, dtype;
    u32 next_tile, asked, first_tile, end_tile;

    __aicore__ inline void ask() {
        const u32 first = asked * TILE, count = smaller(length - first, TILE);
        if (dtype == SD_DTYPE_F32) ask_for<float>(first, count);
        else ask_for<u16>(first, count);
        asked++;
    }

    template <class T>
    __aicore__ inline void ask_for(u32 first, u32 count) {
        AscendC::LocalTensor<T> raw = core->queue.template AllocTensor<T>();
        load(raw, values + static_cast<u64>(first) * sizeof(T), count, static_cast<T>(0));
        if (mask != 0)
            load(raw.template ReinterpretCast<u32>()[TILE], mask + first / 8, (count + 31) / 32, static_cast<u32>(0));
        core->queue.EnQue(raw);
    }

    template <class T>
    __aicore__ inline void drop() {
        AscendC::LocalTensor<T> raw = core->queue.template DeQue<T>();
        core->queue.FreeTensor(raw);
    }

    // Cleans the oldest tile that was asked for. What is a NaN is left clear in `kept`.
    __aicore__ inline void read() {
        x = core->tile[PREFIX];
        if (size != n) fill(x, float_of(MINUS_INF_BITS), size);
        if (dtype == SD_DTYPE_F32) {
            AscendC::LocalTensor<float> raw = core->queue.template DeQue<float>();
            move(x, raw, n);
            hide(raw.ReinterpretCast<u32>()[TILE]);
            core->queue.FreeTensor(raw);
        } else {
            AscendC::LocalTensor<u16> raw = core->queue.template DeQue<u16>();
            if (dtype == SD_DTYPE_F16) widen(x, raw.ReinterpretCast<half>(), n);
            else widen(x, raw.ReinterpretCast<bfloat16_t>(), n);
            hide(raw.ReinterpretCast<u32>()[TILE]);
            core->queue.FreeTensor(raw);
        }
        compare_with_itself(core->kept, x, size);
        select(x, core->kept, x, float_of(MINUS_INF_BITS), size);
    }

    // The words were filled up to 32 bytes, which is enough for whole repeats.
    __aicore__ inline void hide(const Words& allowed) {
        if (mask == 0) return;
        const u32 whole = (n + REPEAT - 1) / REPEAT * REPEAT;
        select(x, allowed.ReinterpretCast<u8>(), x, float_of(MINUS_INF_BITS), whole);
    }
};

} // namespace samedraw
