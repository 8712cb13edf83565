// The unified buffer of a core: its bytes, whether each was written, and by which instruction of which pipe every part was
// read and written last. Parts are blocks of 32 bytes, split into words of 4 where an access takes less than a block.
#pragma once

#include "order.h"

#include <algorithm>
#include <vector>

namespace ascend_model {

// Page "NPU architecture 2201": 192 KB, of which 256 bytes and, unless an option gives them back, 8 KB are kept by the
// framework and by calls such as Select.
inline constexpr uint32_t UB_SIZE = 192 * 1024, UB_USABLE = UB_SIZE - 256 - 8 * 1024;
inline constexpr uint32_t BLOCK = 32, REPEAT = 256;

struct UbCell {
    uint32_t written = 0, pipe = 0; // time 0: never
    uint32_t read[PIPES] = {};
};

// The memory behind a unified buffer, which one core after another uses.
struct UbStorage {
    std::vector<uint8_t> data = std::vector<uint8_t>(UB_SIZE), states = data, split = std::vector<uint8_t>(UB_SIZE / BLOCK);
    std::vector<UbCell> blocks = std::vector<UbCell>(UB_SIZE / BLOCK), words = std::vector<UbCell>(UB_SIZE / 4);
    uint32_t used = 0; // bytes that were given out since the last reset

    void reset() {
        std::memset(states.data(), 0, used);
        std::memset(split.data(), 0, used / BLOCK);
        std::fill(blocks.begin(), blocks.begin() + used / BLOCK, UbCell{});
        used = 0;
    }
};

class UnifiedBuffer {
  public:
    enum State : uint8_t { UNWRITTEN = 0, WRITTEN = 1, DUMMY = 2 };

    UnifiedBuffer(Order &order, UbStorage &storage)
        : order(order), data(storage.data.data()), states(storage.states.data()), split(storage.split.data()),
          blocks(storage.blocks.data()), words(storage.words.data()), storage(storage) {}
    UnifiedBuffer(const UnifiedBuffer &) = delete;
    UnifiedBuffer &operator=(const UnifiedBuffer &) = delete;
    ~UnifiedBuffer() { storage.reset(); }

    // A buffer is given out: its bytes are whatever was there.
    void forget(uint32_t address, uint32_t bytes) {
        std::memset(&states[address], UNWRITTEN, bytes);
        storage.used = std::max(storage.used, address + bytes);
    }

    const uint8_t *read(uint32_t address, uint32_t bytes) {
        check_written(address, bytes);
        touch(address, bytes, [this](Cell &cell) { check_read(cell); });
        return &data[address];
    }

    uint8_t *write(uint32_t address, uint32_t bytes, State state = WRITTEN) {
        std::memset(&states[address], state, bytes);
        touch(address, bytes, [this](Cell &cell) { check_write(cell); });
        return &data[address];
    }

    // Allows the instruction at work to read what it wrote in an earlier iteration.
    bool iterations_may_chain = false;

  private:
    using Cell = UbCell;

    void check_written(uint32_t address, uint32_t bytes) {
        const uint8_t *state = &states[address];
        constexpr uint64_t ALL = 0x0101010101010101ull * WRITTEN;
        uint32_t i = 0;
        for (uint64_t eight; i + 8 <= bytes; i += 8) {
            std::memcpy(&eight, state + i, 8);
            if (__builtin_expect(eight != ALL, 0)) break;
        }
        for (; i < bytes; ++i) {
            if (__builtin_expect(state[i] == WRITTEN, 1)) continue;
            require(
                state[i] != DUMMY, "reads byte ", address + i,
                " of the unified buffer, padding that DataCopyPad left undefined");
            broken(text("reads byte ", address + i, " of the unified buffer, which was never written"));
        }
    }

    void check_read(Cell &cell) {
        if (cell.written) {
            bool own = int(cell.pipe) == order.pipe() && cell.written == order.now();
            require(!own || iterations_may_chain, "one iteration reads what an earlier one of the same call wrote");
            require(
                order.after(int(cell.pipe), cell.written), "reads what ", pipe_name(int(cell.pipe)), " writes, with ",
                [&] { return order.missing(int(cell.pipe)); });
        }
        cell.read[order.pipe()] = order.now();
    }

    void check_write(Cell &cell) {
        for (int pipe = 0; pipe < PIPES; ++pipe) {
            require(order.after(pipe, cell.read[pipe]), "writes where ", pipe_name(pipe), " reads, with ", [&] {
                return order.missing(pipe);
            });
        }
        if (cell.written) {
            require(
                order.after(int(cell.pipe), cell.written), "writes where ", pipe_name(int(cell.pipe)), " writes, with ",
                [&] { return order.missing(int(cell.pipe)); });
        }
        cell.written = order.now();
        cell.pipe = uint32_t(order.pipe());
    }

    template <typename Check> void touch(uint32_t address, uint32_t bytes, const Check &check) {
        for (uint32_t at = address, end = address + bytes; at < end;) {
            uint32_t block = at / BLOCK, stop = std::min(end, (block + 1) * BLOCK);
            if (stop - at == BLOCK && !split[block]) {
                check(blocks[block]);
            } else {
                if (!split[block]) {
                    split[block] = 1;
                    for (uint32_t i = 0; i < BLOCK / 4; ++i) words[block * (BLOCK / 4) + i] = blocks[block];
                }
                for (uint32_t word = at / 4; word <= (stop - 1) / 4; ++word) check(words[word]);
            }
            at = stop;
        }
    }

    Order &order;
    uint8_t *const data, *const states, *const split;
    Cell *const blocks, *const words;
    UbStorage &storage;
};

} // namespace ascend_model
