// Every access of a kernel that was compiled to report them: within what the thread may touch, not of shared memory that
// nobody has written, and ordered against what others did to the same bytes. The compiler's own reports for its thread
// sanitizer are what is listened to; the sanitizer's library is not used.

#include "model.h"

#include <cstring>
#include <unordered_map>

namespace model {
namespace {

// Words of device memory that were touched, by the page; the page that was touched last.
constexpr u64 PAGE_WORDS = 1024;
std::unordered_map<u64, std::unique_ptr<Cell[]>> device_cells;
u64 last_page = ~0ull;
Cell* last_cells = nullptr;

Cell& device_cell(u64 word) {
    u64 page = word / PAGE_WORDS;
    if (page != last_page) {
        auto& cells = device_cells[page];
        if (!cells) cells.reset(new Cell[PAGE_WORDS]());
        last_page = page;
        last_cells = cells.get();
    }
    return last_cells[word % PAGE_WORDS];
}

// The device memory that was touched last.
u64 device_from = 1, device_to = 0;

bool ordered(const Thread& thread, const Access& a) {
    return (a.author == thread.number && a.moment != 0) || knows(thread.known.get(), a.author, a.moment);
}

std::string author(const Access& a) {
    if (a.author & OF_COMPLETION) return "a copy or a push";
    u32 threads = now->launch.block.x * now->launch.block.y * now->launch.block.z;
    char text[96];
    snprintf(text, sizeof text, "thread %u of block %u", a.author % threads, a.author / threads);
    return text;
}

std::string name_of(const Block* block, const void* at, u64 word) {
    char text[160];
    if (!block) {
        snprintf(text, sizeof text, "device memory at %#llx", (unsigned long long)word * 4);
        return text;
    }
    size_t offset = (size_t)((const unsigned char*)at - block->window) / 4 * 4;
    for (const Site& site : now->sites)
        if (site.offset != 0 && offset >= site.offset && offset < site.offset + site.bytes) {
            snprintf(text, sizeof text, "byte %zu of the shared variable `%s` of block %u", offset - site.offset, site.name,
                     block->number);
            return text;
        }
    snprintf(text, sizeof text, "byte %ld of the dynamic shared memory of block %u", (long)offset - (long)dynamic_at(),
             block->number);
    return text;
}

[[noreturn]] void race(const char* what, const char* before, const Access& a, u32 place, const Block* block, const void* at,
                       u64 word) {
    std::string first = lines({a.place}), second = lines({place});
    fail("%s %s, not ordered after its %s by %s\n  %s\n  after\n  %s", what, name_of(block, at, word).c_str(), before,
         author(a).c_str(), second.c_str(), first.c_str());
}

// One word of an access by `who`, which `sees` says what lies before.
template <class Sees>
void meet(Cell& cell, Access who, bool writes, Sees sees, const Block* block, const void* at, u64 word) {
    for (const Access& w : cell.write)
        if ((w.bytes & who.bytes) && !(w.atomic && who.atomic) && !sees(w))
            race(writes ? "writes" : "reads", "write", w, who.place, block, at, word);
    if (!writes) {
        // In the place of an earlier one of its own warp: whoever knows of one lane nearly always knows of the others, so
        // the places are better spent on different warps.
        Access* slot = nullptr;
        for (Access& r : cell.read) {
            if (r.bytes == 0 || (r.author / WARP == who.author / WARP && (r.bytes & ~who.bytes) == 0)) {
                slot = &r;
                break;
            }
            if (!slot && (r.bytes & ~who.bytes) == 0 && sees(r)) slot = &r;
        }
        if (!slot) slot = &cell.read[now->random.below(4)];
        *slot = who;
        return;
    }
    for (Access& r : cell.read) {
        if (!(r.bytes & who.bytes)) continue;
        if (!(r.atomic && who.atomic) && !sees(r)) race("writes", "read", r, who.place, block, at, word);
        r.bytes &= (unsigned char)~who.bytes;
    }
    Access* slot = nullptr;
    for (Access& w : cell.write) {
        // The last atomic access stands for those before it, but not for the ordinary write ahead of them all.
        if (w.atomic || !who.atomic) w.bytes &= (unsigned char)~who.bytes;
        if (w.bytes == 0 && !slot) slot = &w;
    }
    if (!slot) slot = &cell.write[now->random.below(3)];
    *slot = who;
    cell.written |= who.bytes;
}

// Calls f(word, bytes of it) for the words an access touches.
template <class F>
void each_word(u64 at, size_t bytes, F f) {
    u64 end = at + bytes;
    while (at < end) {
        u64 word = at / 4, next = (word + 1) * 4 < end ? (word + 1) * 4 : end;
        unsigned mask = ((1u << (next - at)) - 1) << (at & 3);
        f(word, (unsigned char)mask);
        at = next;
    }
}

Cell& shared_cell(Block& block, u64 word) {
    u64 first = dynamic_at() / 4;
    auto& cells = word < first ? block.cells : block.dynamic_cells;
    if (word >= first) word -= first;
    if (word >= cells.size())
        cells.resize(word < first && &cells == &block.cells ? now->static_bytes / 4 + 1 : now->launch.smem / 4 + 1);
    return cells[word];
}

// By the running thread, or by what one began earlier.
void in_window(Block& block, const void* at, size_t bytes, bool writes, const Access& who, const Thread* thread,
               const Async* async) {
    u64 offset = (u64)((const unsigned char*)at - block.window);
    each_word(offset, bytes, [&](u64 word, unsigned char mask) {
        Cell& cell = shared_cell(block, word);
        Access one = who;
        one.bytes = mask;
        if (thread) {
            if ((!writes || who.atomic) && (mask & ~cell.written)) {
                std::string line = lines({who.place});
                fail("reads %s, which nobody has written\n  %s", name_of(&block, block.window + word * 4, word).c_str(),
                     line.c_str());
            }
            meet(
                cell, one, writes, [&](const Access& a) { return ordered(*thread, a); }, &block, block.window + word * 4,
                word);
        } else {
            if (who.atomic && (mask & ~cell.written)) {
                std::string line = lines({who.place});
                fail("adds to %s, which nobody has written\n  %s", name_of(&block, block.window + word * 4, word).c_str(),
                     line.c_str());
            }
            // After everything that its thread knew, or had done, when it began.
            auto sees = [&](const Access& a) {
                return (a.author == async->by->number && a.moment <= async->moment) ||
                       knows(async->known.get(), a.author, a.moment);
            };
            meet(cell, one, writes, sees, &block, block.window + word * 4, word);
        }
    });
}

} // namespace

void tell(Gathered& to, Thread* thread) {
    if (!now->checked) return;
    to.add(thread->known);
    to.add_thread(thread->number, now->moment++);
}

void learn(Thread* thread, const ClockPtr& clock) {
    if (now->checked) thread->known = joined(thread->known, clock);
}

void touched(const void* at, size_t bytes, bool writes, bool atomic, u32 place) {
    Thread& thread = *self;
    auto p = (unsigned char*)at;
    if (p >= thread.stack && p < thread.stack + STACK_BYTES) return;
    Block& block = *thread.in_block;
    thread.touched = now->moment;
    Access who{thread.number, now->moment, place, 0, (unsigned char)atomic};
    if (p >= block.window && p < block.window + WINDOW) {
        if (!in_shared(block, at, bytes)) {
            std::string line = lines({place});
            fail("%s %zu bytes outside its shared variables, byte %ld of the block's window\n  %s",
                 writes ? "writes" : "reads", bytes, (long)(p - block.window), line.c_str());
        }
        if (now->random.one_in(512)) yield();
        in_window(block, at, bytes, writes, who, &thread, nullptr);
        return;
    }
    const Library& library = *now->launch.library;
    if (p >= library.begin && p < library.end) {
        if (!writes) return;
    } else {
        u64 address = (u64)at;
        if (address < device_from || address + bytes > device_to) device_range(address, &device_from, &device_to);
        if (address >= device_from && address + bytes <= device_to) {
            if (address % (bytes > 16 ? 1 : bytes) != 0) {
                std::string line = lines({place});
                fail("%s %zu bytes at %p, which is not aligned\n  %s", writes ? "writes" : "reads", bytes, at, line.c_str());
            }
            if (now->launch.overlaps && !thread.inputs_awaited) {
                std::string line = lines({place});
                fail("touches device memory before it has waited for the launch ahead\n  %s", line.c_str());
            }
            if (now->random.one_in(1024)) yield();
            each_word(address, bytes, [&](u64 word, unsigned char mask) {
                Access one = who;
                one.bytes = mask;
                meet(device_cell(word), one, writes, [&](const Access& a) { return ordered(thread, a); }, nullptr, at, word);
            });
            return;
        }
    }
    std::string line = lines({place});
    fail("%s %zu bytes at %p, which is neither its block's shared memory nor device memory (%s)\n  %s",
         writes ? "writes" : "reads", bytes, at, describe_device((u64)at).c_str(), line.c_str());
}

void used(Block& block, const u64* at, u32 place) {
    if (!now->checked) return;
    const Thread& thread = *self;
    each_word((u64)((const unsigned char*)at - block.window), 8, [&](u64 word, unsigned char mask) {
        Access who{thread.number, now->moment, place, mask, 1};
        auto sees = [&](const Access& a) { return ordered(thread, a) || knows(thread.set_up.get(), a.author, a.moment); };
        meet(shared_cell(block, word), who, false, sees, &block, at, word);
    });
}

void touched_peer(Block& peer, const void* at, size_t bytes, bool writes, bool atomic, u32 place) {
    self->touched = now->moment;
    Access who{self->number, now->moment, place, 0, (unsigned char)atomic};
    in_window(peer, at, bytes, writes, who, self, nullptr);
}

void arrived(const Async& a, u32 completion, u32 phases) {
    if (!now->checked) return;
    Access who{OF_COMPLETION | completion, phases, a.place, 0, a.kind == Async::PUSH && a.how == MODEL_ADD};
    if (a.kind == Async::COPY_TO_PEER) in_window(*a.from, a.source, a.bytes, false, who, nullptr, &a);
    in_window(*a.to, a.at, a.bytes, true, who, nullptr, &a);
    if (a.kind != Async::COPY_TO_PEER) return;
    // What nobody had written there, for a copy is of whole grains, is not written here either.
    u64 from = (u64)(a.source - a.from->window) / 4, to = (u64)(a.at - a.to->window) / 4;
    for (u32 i = 0; i < a.bytes / 4; i++) shared_cell(*a.to, to + i).written = shared_cell(*a.from, from + i).written;
}

void accesses_reset() {
    device_cells.clear();
    last_page = ~0ull;
    device_from = 1;
    device_to = 0;
}

} // namespace model

using namespace model;

#define PLACE place_of(__builtin_return_address(0))
#define ACCESS(n) \
    void __tsan_read##n(void* at) { touched(at, n, false, false, PLACE); } \
    void __tsan_write##n(void* at) { touched(at, n, true, false, PLACE); } \
    void __tsan_unaligned_read##n(void* at) { touched(at, n, false, false, PLACE); } \
    void __tsan_unaligned_write##n(void* at) { touched(at, n, true, false, PLACE); } \
    void __tsan_volatile_read##n(void* at) { touched(at, n, false, true, PLACE); } \
    void __tsan_volatile_write##n(void* at) { touched(at, n, true, true, PLACE); } \
    void __tsan_unaligned_volatile_read##n(void* at) { touched(at, n, false, true, PLACE); } \
    void __tsan_unaligned_volatile_write##n(void* at) { touched(at, n, true, true, PLACE); }

#pragma GCC visibility push(default)
extern "C" {
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void* at, size_t bytes) { touched(at, bytes, false, false, PLACE); }
void __tsan_write_range(void* at, size_t bytes) { touched(at, bytes, true, false, PLACE); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}

// An atomic operation says what the thread's last fence let it say, and hears what others said there.
void model_atomic(const void* at, unsigned bytes) {
    static std::unordered_map<u64, Gathered> said;
    static const Run* of = nullptr;
    if (now->random.one_in(16)) yield();
    if (!now->checked) return;
    touched(at, bytes, true, true, PLACE);
    // In shared memory such operations order nothing that barriers and completions do not.
    if ((unsigned char*)at >= self->in_block->window && (unsigned char*)at < self->in_block->window + WINDOW) return;
    if (of != now) said.clear(), of = now;
    Thread& thread = *self;
    Gathered& here = said[(u64)at];
    thread.heard = joined(thread.heard, here.copy());
    here.add(thread.fenced);
    // Whoever reads the sum has seen this addition, too.
    here.add_thread(thread.number, now->moment++);
}

void model_fence(ModelFence) {
    if (!now->checked) return;
    learn(self, self->heard);
    Gathered all;
    tell(all, self);
    self->fenced = all.take();
}
}
#pragma GCC visibility pop
