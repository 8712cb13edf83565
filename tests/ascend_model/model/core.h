// One core and one launch: what a kernel's calls act on.
#pragma once

#include "memory.h"
#include "ub.h"

#include <atomic>
#include <unordered_map>

namespace ascend_model {

struct Counters {
    uint64_t gm_read = 0, gm_written = 0;          // bytes, by MTE2 and MTE3
    uint64_t scalar_read = 0, scalar_written = 0;  // bytes of GM, by the scalar unit
    uint64_t vector_calls = 0, vector_repeats = 0; // repeats: 256 bytes of the widest operand each
    uint64_t moves = 0, scalar_ub = 0, waits = 0;
    void add(const Counters &other) {
        gm_read += other.gm_read, gm_written += other.gm_written, scalar_read += other.scalar_read;
        scalar_written += other.scalar_written, vector_calls += other.vector_calls, vector_repeats += other.vector_repeats;
        moves += other.moves, scalar_ub += other.scalar_ub, waits += other.waits;
    }
};

// What the arithmetic of the vector unit is made to do beside rounding to nearest.
struct Inexact {
    bool truncate = false; // a rounded sum or product is rounded to zero
    bool flush = false;    // subnormal operands and results count as zero
};

// Whether any launch so far was to be inexact: what most launches ask alone.
inline std::atomic<bool> inexact_somewhere{false};

struct Launch {
    GlobalMemory *memory = nullptr;
    UbStorage *storage = nullptr;
    uint32_t number = 0, blocks = 1;
    Inexact inexact;
    Counters counters;
    std::unordered_map<uint64_t, uint32_t> scalar_lines; // lines of 64 bytes that a core's scalar unit stored to
};

enum class Atomic { NONE, ADD, MAX, MIN };

class Core {
  public:
    Core(Launch &launch, uint32_t index) : launch(launch), index(index), ub(order, *launch.storage) {}

    Launch &launch;
    const uint32_t index;
    Order order;
    UnifiedBuffer ub;
    Counters counters;
    bool pipe_alive = false, pipe_made = false;
    Atomic atomic = Atomic::NONE;
    std::string atomic_type;
    bool pad_set = false;
    uint64_t pad_bits = 0;
    uint16_t merged[4] = {};    // what the last MrgSort took of each queue
    bool merge_stopped = false; // and whether that may be asked for

    // ---- buffers of TPipe

    enum class Use : uint8_t { FREE, HELD, QUEUED, PLAIN };
    struct Buffer {
        uint32_t address, bytes;
        AscendC::TPosition position;
        Use use;
        uint32_t generation = 0;
        Clock freed, queued;
    };
    std::vector<Buffer> buffers;

    // ---- global memory

    // Checks an access of the instruction at work and gives where the bytes are.
    uint8_t *gm_read(uint64_t address, uint64_t bytes) {
        Region &region = region_of(address, bytes, "reads");
        const uint8_t *defined = region.defined + (address - region.base);
        if (__builtin_expect(std::memchr(defined, 0, bytes) != nullptr, 0)) {
            const uint64_t at = uint64_t(static_cast<const uint8_t *>(std::memchr(defined, 0, bytes)) - region.defined);
            broken(text("reads byte ", at, " of an allocation, which was never written"));
        }
        const int pipe = order.pipe();
        if (pipe != PIPE_S) check_clean(address, bytes, "reads");
        const Tag mine = tag(pipe);
        for (uint64_t at = address & ~uint64_t(3); at < address + bytes; at += 4) {
            GmWord &word = region.word(at);
            if (launch_of(word.write) == (launch.number & 0xFFFFF) && word.write) {
                require(
                    core_of(word.write) == index, "core ", index, " reads what core ", core_of(word.write),
                    " writes in the same launch: nothing orders cores");
                check_order(word.write, "reads", "writes");
            }
            Tag &read = pipe == PIPE_S ? word.scalar : word.moved;
            bool others = launch_of(read) == (launch.number & 0xFFFFF) && read && core_of(read) != index;
            read = others ? tag_of(launch.number, MANY, uint32_t(pipe), 0) : mine;
        }
        return region.at(address);
    }

    uint8_t *gm_write(uint64_t address, uint64_t bytes) {
        Region &region = region_of(address, bytes, "writes");
        const int pipe = order.pipe();
        if (pipe != PIPE_S) check_clean(address, bytes, "writes");
        const Tag mine = tag(pipe);
        const bool adds = pipe == PIPE_MTE3 && atomic != Atomic::NONE;
        for (uint64_t at = address & ~uint64_t(3); at < address + bytes; at += 4) {
            GmWord &word = region.word(at);
            if (ours(word.write)) {
                bool both_atomic = adds && word.atomic == word.write;
                if (core_of(word.write) != index) {
                    require(
                        both_atomic, "core ", index, " writes what core ", core_of(word.write),
                        " writes in the same launch: nothing orders cores");
                } else if (!both_atomic) {
                    check_order(word.write, "writes", "writes");
                }
            }
            for (Tag read : {word.moved, word.scalar}) {
                if (!ours(read)) continue;
                require(
                    core_of(read) == index, "core ", index, " writes what ",
                    [&] {
                        return core_of(read) == MANY ? std::string("other cores read")
                                                     : text("core ", core_of(read), " reads");
                    },
                    " in the same launch: nothing orders cores");
                check_order(read, "writes", "reads");
            }
            word.write = mine;
            word.atomic = adds ? mine : 0;
        }
        std::memset(region.defined + (address - region.base), 1, bytes);
        return region.at(address);
    }

    // ---- the scalar unit's data cache: lines of 64 bytes, written back, not coherent (page "DataCacheCleanAndInvalid")

    void scalar_read(uint64_t address, uint32_t bytes, void *out) {
        gm_read(address, bytes);
        counters.scalar_read += bytes;
        Line &line = line_of(address);
        uint64_t offset = address % LINE;
        const Tag write = last->word(address).write;
        require(
            !ours(write) || pipe_of(write) != PIPE_MTE3 || time_of(write) <= line.loaded,
            "reads a stale line of the scalar unit's data cache: MTE3 wrote it since, with no DataCacheCleanAndInvalid");
        std::memcpy(out, line.bytes + offset, bytes);
    }

    void scalar_write(uint64_t address, uint32_t bytes, const void *in) {
        gm_write(address, bytes);
        counters.scalar_written += bytes;
        uint64_t start = address / LINE * LINE;
        auto [other, fresh] = launch.scalar_lines.emplace(start, index);
        require(
            fresh || other->second == index, "cores ", other->second, " and ", index,
            " store to one line of 64 bytes with their scalar units: one of the stores is lost");
        Line &line = line_of(address);
        uint64_t offset = address % LINE;
        std::memcpy(line.bytes + offset, in, bytes);
        for (uint32_t i = 0; i < bytes; ++i) line.dirty |= uint64_t(1) << (offset + i);
    }

    void clean(uint64_t address) {
        auto found = lines.find(address / LINE * LINE);
        if (found == lines.end()) return;
        uint64_t before = (uint64_t(1) << (address % LINE)) - 1;
        require(
            (found->second.dirty & before) == 0,
            "the address is not that of a line, and bytes before it are dirty: they are "
            "not written back");
        write_back(found->first, found->second);
        lines.erase(found);
    }
    void clean_all() {
        for (auto &[start, line] : lines) write_back(start, line);
        lines.clear();
    }

    void check_clean(uint64_t address, uint64_t bytes, const char *does) {
        if (lines.empty()) return;
        for (uint64_t start = address / LINE * LINE; start < address + bytes; start += LINE) {
            auto found = lines.find(start);
            require(
                found == lines.end() || found->second.dirty == 0, does,
                " a line of global memory that the scalar unit's data cache holds dirty, with no DataCacheCleanAndInvalid");
        }
    }

    void finish() {
        for (auto &[start, line] : lines) {
            require(
                line.dirty == 0, "the kernel ends with stores of the scalar unit still in its data cache: they are lost "
                                 "without DataCacheCleanAndInvalid");
        }
        order.check_flags_down();
        require(atomic == Atomic::NONE, "the kernel ends with an atomic set: what follows would add, too");
        require(!pipe_alive, "the kernel ends with a TPipe alive");
    }

  private:
    static constexpr uint64_t LINE = 64;
    static constexpr uint32_t MANY = 0xFFFE;
    struct Line {
        uint8_t bytes[LINE] = {};
        uint64_t dirty = 0;  // a bit for each byte
        uint32_t loaded = 0; // how many moves out the core had begun
    };
    std::unordered_map<uint64_t, Line> lines;
    Region *last = nullptr;

    bool ours(Tag tag) const { return tag && launch_of(tag) == (launch.number & 0xFFFFF); }
    Tag tag(int pipe) const { return tag_of(launch.number, index, uint32_t(pipe), order.now()); }

    void check_order(Tag before, const char *does, const char *did) const {
        int pipe = int(pipe_of(before));
        // A tag of the instruction at work is its own.
        if (pipe == order.pipe() && (time_of(before) == (order.now() & 0x3FFFFFF))) return;
        bool transfer = pipe == order.pipe() && std::strcmp(did, "reads") == 0;
        require(
            transfer || order.after(pipe, time_of(before)), does, " global memory that ", pipe_name(pipe), " ", did,
            ", with ", [&] { return order.missing(pipe); });
    }

    Region &region_of(uint64_t address, uint64_t bytes, const char *does) {
        if (!last || !last->holds(address, bytes)) last = launch.memory->find(address);
        require(last && last->holds(address, bytes), does, " ", bytes, " bytes of global memory at ", [&] {
            return last ? text("byte ", address - last->base, " of an allocation of ", last->size)
                        : std::string("an address below all allocations");
        });
        require(last->live, does, " global memory that was freed");
        return *last;
    }

    Line &line_of(uint64_t address) {
        uint64_t start = address / LINE * LINE;
        auto [found, fresh] = lines.try_emplace(start);
        if (fresh) {
            found->second.loaded = order.begun(PIPE_MTE3) & 0x3FFFFFF;
            for (uint64_t i = 0; i < LINE; ++i) {
                if (last->holds(start + i, 1)) found->second.bytes[i] = *last->at(start + i);
            }
        }
        return found->second;
    }

    void write_back(uint64_t start, Line &line) {
        if (!line.dirty) return;
        Region *region = launch.memory->find(start + uint64_t(__builtin_ctzll(line.dirty)));
        for (uint64_t i = 0; i < LINE; ++i) {
            if (line.dirty >> i & 1) *region->at(start + i) = line.bytes[i];
        }
    }
};

inline thread_local Core *the_core = nullptr;
inline Core &core() { return *the_core; }

// After all cores: a line that one core's scalar unit stored to and another core wrote by MTE3.
inline void check_scalar_lines(Launch &launch) {
    enter("scalar stores", Where{"", 0});
    for (auto [start, owner] : launch.scalar_lines) {
        Region *region = launch.memory->find(start + 63);
        for (uint64_t at = start; at < start + 64; at += 4) {
            if (!region || !region->holds(at, 1)) continue;
            Tag write = region->word(at).write;
            bool now = write && launch_of(write) == (launch.number & 0xFFFFF);
            require(
                !now || core_of(write) == owner, "core ", owner,
                " stores with its scalar unit to a line of 64 bytes that core ", core_of(write),
                " writes: writing the line back undoes that");
        }
    }
}

} // namespace ascend_model
