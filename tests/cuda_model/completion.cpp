// Completions (mbarriers), and the work that arrives at them some time later: pushes between blocks and bulk copies.

#include "model.h"

#include <algorithm>
#include <cstring>

namespace model {
namespace {

// A phase's bytes are counted in 20 bits and a sign.
constexpr int64_t MOST_BYTES = (1 << 20) - 1;
constexpr u32 MOST_ARRIVALS = (1 << 20) - 1;

void end_phase(Completion& c) {
    if (c.pending != 0 || c.bytes != 0) return;
    if (!c.let_go.empty()) {
        Thread* late = c.let_go[0];
        fail(
            "the completion at byte %ld of block %u ends phase %llu before thread %u, let go by the phase before, has "
            "looked: with one bit of parity it could miss both",
            (long)((unsigned char*)c.at - late->in_block->window), late->in_block->number, (unsigned long long)c.phase,
            late->index);
    }
    c.phase++;
    c.pending = c.arrivals;
    if (now->checked) c.released = c.gathered.take();
    std::swap(c.waiting, c.let_go);
    for (Thread* thread : c.let_go) wake(thread);
}

void count_bytes(Completion& c, int64_t more) {
    c.bytes += more;
    if (c.bytes > MOST_BYTES || c.bytes < -MOST_BYTES)
        fail("a completion of %lld bytes, more than it can count", (long long)c.bytes);
    end_phase(c);
}

// Where a thing under way may no longer arrive.
void check_there(const Async& a, const Block& block, const char* what) {
    if (block.alive == 0)
        fail("%s by thread %u of block %u arrives at block %u (rank %u of its cluster), which has ended", what, a.by->index,
             a.from->number, block.number, block.rank);
}

// Work that will arrive at a completion: one that everybody concerned knows of.
void check_ready(Block& block, const u64* at, const char* what, u32 place) {
    if (!completion_of(block, at, what).ready)
        fail("%s: the completion at byte %ld of block %u was not made known to the cluster and the copy engine", what,
             (long)((const unsigned char*)at - block.window), block.number);
    used(block, at, place);
}

// The moment at which the running thread begins something.
u32 began() { return now->checked ? now->moment++ : 0; }

} // namespace

Completion& completion_of(Block& block, const u64* at, const char* what) {
    auto found = block.completions.find(at);
    if (found == block.completions.end())
        fail("%s: no completion was set up at byte %ld of block %u", what, (long)((const unsigned char*)at - block.window),
             block.number);
    if (*at != found->second.tag)
        fail("%s: the completion at byte %ld of block %u was written over", what,
             (long)((const unsigned char*)at - block.window), block.number);
    return found->second;
}

void check_completions(Block& block) {
    for (auto& [at, c] : block.completions) {
        long place = (long)((const unsigned char*)at - block.window);
        if (c.bytes < 0) fail("ends with %lld bytes too many at the completion at byte %ld", -(long long)c.bytes, place);
    }
    if (block.in_flight != 0) fail("ends while %u copies into or out of its shared memory are under way", block.in_flight);
}

void deliver(Run& run, size_t which) {
    Async a = run.flying[which];
    // A large copy comes in parts.
    if (a.kind != Async::PUSH && a.bytes >= 64 && run.random.one_in(2)) {
        u32 part = (run.random.below(a.bytes / 16 - 1) + 1) * 16;
        Async& rest = run.flying[which];
        rest.at += part;
        rest.source += part;
        rest.bytes -= part;
        a.bytes = part;
    } else {
        run.flying[which] = run.flying.back();
        run.flying.pop_back();
        if (a.kind != Async::PUSH) a.to->in_flight--;
        if (a.kind == Async::COPY_TO_PEER) a.from->in_flight--;
    }
    check_there(a, *a.to, a.kind == Async::PUSH ? "a push" : "a bulk copy");
    if (a.kind == Async::PUSH) {
        if (a.bytes == 4) {
            u32 x = (u32)a.value, old;
            memcpy(&old, a.at, 4);
            if (a.how == MODEL_ADD) x += old;
            memcpy(a.at, &x, 4);
        } else {
            u64 x = a.value, old;
            memcpy(&old, a.at, 8);
            if (a.how == MODEL_ADD) x += old;
            memcpy(a.at, &x, 8);
        }
    } else {
        memcpy(a.at, a.source, a.bytes);
    }
    Completion& c = completion_of(*a.to, a.completion, "bytes that arrive");
    if (now->checked) {
        arrived(a, c.number, (u32)c.phase + 1);
        // What its thread had done and knew when it began comes with it.
        c.gathered.add(a.known);
        c.gathered.add_thread(a.by->number, a.moment);
        c.gathered.add_completion(c.number, (u32)c.phase + 1);
    }
    count_bytes(c, -(int64_t)a.bytes);
}

} // namespace model

using namespace model;

extern "C" {

void model_completion_init(const uint64_t* at, unsigned arrivals) {
    u32 here = place_of(__builtin_return_address(0));
    static u64 tags = 0;
    Block& block = *self->in_block;
    if (!in_shared(block, at, 8)) fail("a completion at %p, which is not this block's shared memory", (const void*)at);
    if ((uintptr_t)at % 8 != 0) fail("a completion at %p, which is not a multiple of 8", (const void*)at);
    if (arrivals == 0 || arrivals > MOST_ARRIVALS) fail("a completion of %u arrivals", arrivals);
    auto found = block.completions.find(at);
    if (found != block.completions.end() && *at == found->second.tag) fail("a completion is set up where there is one");
    Completion c{};
    c.at = (u64*)at;
    c.tag = 0x6d62617200000000ull | ++tags;
    c.arrivals = c.pending = arrivals;
    c.number = ++now->completions;
    c.by = self;
    *c.at = c.tag;
    if (now->checked) touched(at, 8, true, false, here);
    block.completions[at] = c;
}

void model_completions_ready() {
    for (auto& [at, c] : self->in_block->completions)
        if (c.by == self) c.ready = true;
    if (!now->checked) return;
    Gathered all;
    all.add(self->readied);
    all.add_thread(self->number, now->moment++);
    self->readied = all.take();
}

void model_completion_invalidate(const uint64_t* at) {
    Block& block = *self->in_block;
    completion_of(block, at, "an invalidation");
    block.completions.erase(at);
}

void model_completion_arrive(int rank, const uint64_t* at, unsigned bytes, unsigned arrivals) {
    Block* block = self->in_block;
    const u64* there = at;
    if (rank >= 0) {
        there = (const u64*)at_peer((u32)rank, at, 8, "an arrival", &block);
        if (block->alive == 0) fail("an arrival at block %d of the cluster, which has ended", rank);
    }
    Completion& c = completion_of(*block, there, "an arrival");
    used(*block, there, place_of(__builtin_return_address(0)));
    if (arrivals > c.pending)
        fail("%u arrivals at a completion that waits for %u in phase %llu", arrivals, c.pending,
             (unsigned long long)c.phase);
    c.bytes += bytes;
    c.pending -= arrivals;
    tell(c.gathered, self);
    count_bytes(c, 0);
    if (now->random.one_in(4)) yield();
}

bool model_completion_test(const uint64_t* at, unsigned parity) {
    yield();
    Completion& c = completion_of(*self->in_block, at, "a test");
    used(*self->in_block, at, place_of(__builtin_return_address(0)));
    if ((c.phase & 1) == (parity & 1)) return false;
    learn(self, c.released);
    return true;
}

void model_completion_wait(const uint64_t* at, unsigned parity) {
    if (parity > 1) fail("a wait for parity %u", parity);
    Completion& c = completion_of(*self->in_block, at, "a wait");
    used(*self->in_block, at, place_of(__builtin_return_address(0)));
    if ((c.phase & 1) != parity) return learn(self, c.released);
    c.waiting.push_back(self);
    sleep(AT_COMPLETION, "a wait for the completion at byte", parity, at);
    Completion& after = completion_of(*self->in_block, at, "a wait");
    auto mine = std::find(after.let_go.begin(), after.let_go.end(), self);
    if (mine != after.let_go.end()) after.let_go.erase(mine);
    learn(self, after.released);
}

void model_push(unsigned rank, const void* at, uint64_t value, unsigned bytes, ModelStore how, const uint64_t* completion) {
    u32 here = place_of(__builtin_return_address(0));
    Block *peer, *same;
    unsigned char* there = at_peer(rank, at, bytes, "a push", &peer);
    const u64* remote = (const u64*)at_peer(rank, completion, 8, "a push's completion", &same);
    if (peer->alive == 0) fail("a push to block %u of the cluster, which has ended", rank);
    check_ready(*peer, remote, "a push", here);
    now->flying.push_back(Async{Async::PUSH, self->in_block, peer, self, there, nullptr, value, bytes, how, remote,
                                self->known, began(), here});
}

void model_bulk_copy(void* to, uint64_t from, unsigned bytes, const uint64_t* completion) {
    u32 here = place_of(__builtin_return_address(0));
    Block& block = *self->in_block;
    if (bytes == 0 || bytes % 16 != 0 || from % 16 != 0 || (uintptr_t)to % 16 != 0)
        fail("a bulk copy of %u bytes from %#llx to %p: all three must be multiples of 16", bytes, (unsigned long long)from,
             to);
    if (!in_shared(block, to, bytes))
        fail("a bulk copy of %u bytes to %p, which is not this block's shared memory", bytes, to);
    if (!in_device_memory(from, bytes))
        fail("a bulk copy of %u bytes from %#llx: %s", bytes, (unsigned long long)from, describe_device(from).c_str());
    check_ready(block, completion, "a bulk copy", here);
    memset(to, 0xce, bytes);
    block.in_flight++;
    now->flying.push_back(Async{Async::COPY_IN, &block, &block, self, (unsigned char*)to, (const unsigned char*)from, 0,
                                bytes, MODEL_STORE, completion, self->known, began(), here});
}

void model_bulk_to_peer(unsigned rank, const void* to, const void* from, unsigned bytes, const uint64_t* completion) {
    u32 here = place_of(__builtin_return_address(0));
    Block &block = *self->in_block, *peer, *same;
    if (bytes == 0 || bytes % 16 != 0 || (uintptr_t)from % 16 != 0 || (uintptr_t)to % 16 != 0)
        fail("a bulk copy of %u bytes from %p to %p: all three must be multiples of 16", bytes, from, to);
    if (!in_shared(block, from, bytes) || !in_shared(block, to, bytes))
        fail("a bulk copy of %u bytes that leaves shared memory", bytes);
    unsigned char* there = at_peer(rank, to, 16, "a bulk copy", &peer);
    const u64* remote = (const u64*)at_peer(rank, completion, 8, "a bulk copy's completion", &same);
    if (peer->alive == 0) fail("a bulk copy to block %u of the cluster, which has ended", rank);
    check_ready(*peer, remote, "a bulk copy", here);
    memset(there, 0xce, bytes);
    block.in_flight++;
    peer->in_flight++;
    now->flying.push_back(Async{Async::COPY_TO_PEER, &block, peer, self, there, (const unsigned char*)from, 0, bytes,
                                MODEL_STORE, remote, self->known, began(), here});
}
}
