// Global memory as kernels see it: regions of device addresses that no pointer can follow, the bytes behind them, and what is
// known of every word: whether it was ever written, and who wrote and read it last in the running launch.
#pragma once

#include "report.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include <sys/mman.h>
#include <unistd.h>

namespace ascend_model {

// Who touched a word last: launch (20 bits), core + 1 (16), pipe (2), and the pipe's count of instructions (26); 0 nobody.
// Launches and counts wrap; a launch of 2^26 instructions of one pipe would confuse the check of waits alone.
using Tag = uint64_t;
inline Tag tag_of(uint32_t launch, uint32_t core, uint32_t pipe, uint32_t time) {
    return (Tag(launch & 0xFFFFF) << 44) | (Tag((core + 1) & 0xFFFF) << 28) | (Tag(pipe & 3) << 26) | (time & 0x3FFFFFF);
}
inline uint32_t launch_of(Tag tag) { return uint32_t(tag >> 44); }
inline uint32_t core_of(Tag tag) { return uint32_t((tag >> 28) & 0xFFFF) - 1; }
inline uint32_t pipe_of(Tag tag) { return uint32_t((tag >> 26) & 3); }
inline uint32_t time_of(Tag tag) { return uint32_t(tag & 0x3FFFFFF); }

struct GmWord {
    Tag write;
    Tag moved;  // last read by MTE2 or MTE3
    Tag scalar; // last read by the scalar unit
    Tag atomic; // equal to `write` where that was an atomic one
};

struct Region {
    uint64_t base = 0, size = 0;
    uint8_t *data = nullptr;
    uint8_t *defined = nullptr; // one byte for each: 0 never written
    GmWord *words = nullptr;    // one for each 4 bytes, from base rounded down to 4
    bool live = false;

    bool holds(uint64_t address, uint64_t bytes) const {
        return address >= base && address - base <= size && bytes <= size - (address - base);
    }
    uint8_t *at(uint64_t address) const { return data + (address - base); }
    GmWord &word(uint64_t address) const { return words[(address >> 2) - (base >> 2)]; }
};

// All device memory of a process. Regions are kept when freed, so that late users find a dead one.
class GlobalMemory {
  public:
    // `shift`: bytes from the start of a page at which the region begins.
    Region *add(uint64_t size, uint64_t shift) {
        uint64_t page = uint64_t(sysconf(_SC_PAGESIZE)), mapped = (size + shift + page - 1) / page * page;
        auto map = [](uint64_t bytes, int access) {
            void *at = mmap(nullptr, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            return at == MAP_FAILED ? nullptr : static_cast<uint8_t *>(at);
        };
        auto region = std::make_unique<Region>();
        uint8_t *address = map(mapped, PROT_NONE), *data = map(mapped, PROT_READ | PROT_WRITE);
        region->defined = map(mapped, PROT_READ | PROT_WRITE);
        uint8_t *words = map((mapped / 4 + 2) * sizeof(GmWord), PROT_READ | PROT_WRITE);
        if (!address || !data || !region->defined || !words) return nullptr;
        region->base = reinterpret_cast<uint64_t>(address) + shift;
        region->size = size;
        region->data = data + shift;
        region->words = reinterpret_cast<GmWord *>(words);
        region->live = true;
        std::lock_guard<std::mutex> guard(lock);
        Region *made = region.get();
        regions[made->base] = std::move(region);
        return made;
    }

    void remove(Region *region) {
        std::lock_guard<std::mutex> guard(lock);
        region->live = false;
        uint64_t page = uint64_t(sysconf(_SC_PAGESIZE)), shift = region->base % page;
        uint64_t mapped = (region->size + shift + page - 1) / page * page;
        close(region->data - shift, mapped);
        close(region->defined, mapped);
        close(region->words, (mapped / 4 + 2) * sizeof(GmWord));
    }

    // Gives the pages back and keeps their addresses taken. Mapped anew, as neighbours then become one: a system
    // allows a process about 65,000 separate mappings, and pages that were written and then protected stay apart.
    static void close(void *at, uint64_t bytes) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
        if (mmap(at, bytes, PROT_NONE, flags, -1, 0) == MAP_FAILED) std::abort();
    }

    // The region that `address` lies in or begins past the end of; null where there is none.
    Region *find(uint64_t address) {
        std::lock_guard<std::mutex> guard(lock);
        auto next = regions.upper_bound(address);
        return next == regions.begin() ? nullptr : std::prev(next)->second.get();
    }

    // What the host does: copies and fills define bytes.
    static void define(Region &region, uint64_t address, uint64_t bytes) {
        std::memset(region.defined + (address - region.base), 1, bytes);
    }

    uint32_t next_launch() {
        std::lock_guard<std::mutex> guard(lock);
        return ++launches;
    }

  private:
    std::mutex lock;
    std::map<uint64_t, std::unique_ptr<Region>> regions;
    uint32_t launches = 0;
};

} // namespace ascend_model
