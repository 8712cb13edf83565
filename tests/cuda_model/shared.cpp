// Shared memory of the blocks: a window each, in which the same variable has the same place. Filled with a pattern before
// a block starts; what lies between and around the variables is looked at when it ends.

#include "model.h"

#include <cstring>
#include <sys/mman.h>

namespace model {
namespace {

constexpr unsigned char UNSET = 0xcd, GUARD = 0xa5;
constexpr size_t GAP = 256, STATIC_AT = GAP, STATIC_ROOM = 64 << 10;
constexpr size_t DYNAMIC_AT = STATIC_AT + STATIC_ROOM + GAP;
// As the card keeps for itself.
constexpr size_t RESERVED = 1 << 10, ALL_OF_A_BLOCK = 228 << 10;

std::vector<unsigned char*> unused;

size_t placed(size_t offset, size_t align) { return (offset + align - 1) / align * align; }

// What lies between the variables, as far as it was not given away.
void check_gap(const Block& block, size_t from, size_t to, const char* what) {
    for (size_t i = from; i < to; i++)
        if (block.window[i] != GUARD)
            fail("block %u wrote past its shared memory: byte %zu of the window, %zu past %s", block.number, i, i - from,
                 what);
}

} // namespace

size_t dynamic_at() { return DYNAMIC_AT; }

unsigned char* window_take(u32 smem) {
    unsigned char* window;
    if (unused.empty()) {
        void* at = mmap(nullptr, WINDOW, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) fail("no room for a block's shared memory");
        window = (unsigned char*)at;
    } else {
        window = unused.back();
        unused.pop_back();
    }
    memset(window, GUARD, DYNAMIC_AT);
    for (const Site& site : now->sites)
        if (site.offset != 0) memset(window + site.offset, UNSET, site.bytes);
    memset(window + DYNAMIC_AT, UNSET, smem);
    memset(window + DYNAMIC_AT + smem, GUARD, GAP);
    return window;
}

void window_give(unsigned char* window) { unused.push_back(window); }

void window_check(const Block& block) {
    check_gap(block, 0, STATIC_AT, "the start of the window");
    size_t end = STATIC_AT;
    const char* last = "the start of the window";
    for (size_t round = 0; round < now->sites.size(); round++) {
        // The variable that begins next.
        const Site* next = nullptr;
        for (const Site& site : now->sites)
            if (site.offset >= end && (!next || site.offset < next->offset)) next = &site;
        if (!next) break;
        check_gap(block, end, next->offset, last);
        end = next->offset + next->bytes;
        last = next->name;
    }
    check_gap(block, end, DYNAMIC_AT, last);
    check_gap(block, DYNAMIC_AT + now->launch.smem, DYNAMIC_AT + now->launch.smem + GAP, "the dynamic shared memory");
}

bool in_shared(const Block& block, const void* at, size_t bytes) {
    size_t offset = (size_t)((const unsigned char*)at - block.window);
    if (offset >= WINDOW) return false;
    if (offset >= DYNAMIC_AT) return offset + bytes <= DYNAMIC_AT + now->launch.smem;
    for (const Site& site : now->sites)
        if (site.offset != 0 && offset >= site.offset && offset + bytes <= site.offset + site.bytes) return true;
    return false;
}

unsigned char* at_peer(u32 rank, const void* at, size_t bytes, const char* what, Block** peer) {
    Block& own = *self->in_block;
    if (!in_shared(own, at, bytes)) fail("%s: %zu bytes at %p, which is not this block's shared memory", what, bytes, at);
    if ((uintptr_t)at % bytes != 0) fail("%s: %p is not a multiple of %zu", what, at, bytes);
    if (rank >= own.cluster->blocks.size()) fail("%s: block %u of a cluster of %zu", what, rank, own.cluster->blocks.size());
    *peer = &own.cluster->blocks[rank];
    return (*peer)->window + ((const unsigned char*)at - own.window);
}

namespace {

// Memory of another block, which must not have ended.
unsigned char* living_peer(u32 rank, const void* at, u32 bytes, const char* what, bool writes, bool atomic, u32 place) {
    Block* peer;
    unsigned char* there = at_peer(rank, at, bytes, what, &peer);
    if (peer->alive == 0) fail("%s in block %u of the cluster, which has ended", what, rank);
    if (now->checked) touched_peer(*peer, there, bytes, writes, atomic, place);
    return there;
}

u64 get(const unsigned char* at, u32 bytes) {
    u64 x = 0;
    memcpy(&x, at, bytes);
    return x;
}

} // namespace
} // namespace model

using namespace model;

extern "C" {

void* model_static_shared(unsigned site, size_t bytes, size_t align, const char* name) {
    Run& run = *now;
    if (run.sites.size() <= site) run.sites.resize(site + 1, Site{0, 0, ""});
    Site& s = run.sites[site];
    if (s.offset == 0) {
        size_t offset = placed((run.static_bytes == 0 ? STATIC_AT : run.static_bytes + GAP), align < 16 ? 16 : align);
        if (offset + bytes > STATIC_AT + STATIC_ROOM)
            fail("%s: more static shared memory than the model has room for", name);
        s = Site{offset, bytes, name};
        run.static_bytes = offset + bytes;
        size_t all = run.launch.smem + RESERVED;
        for (const Site& other : run.sites) all += other.bytes;
        if (all > ALL_OF_A_BLOCK) fail("%zu bytes of shared memory; a block has %zu", all, ALL_OF_A_BLOCK);
        for (auto& cluster : run.resident)
            for (Block& block : cluster->blocks) memset(block.window + offset, UNSET, bytes);
    }
    return self->in_block->window + s.offset;
}

void* model_dynamic_shared(size_t align) {
    if (align > 1024) fail("dynamic shared memory aligned to %zu; the hardware aligns to 1024", align);
    return self->in_block->window + DYNAMIC_AT;
}

unsigned model_dynamic_shared_bytes() { return now->launch.smem; }

unsigned model_shared_address(const void* at) {
    if (!in_shared(*self->in_block, at, 1)) fail("a shared address of %p, which is not this block's shared memory", at);
    return (unsigned)((const unsigned char*)at - self->in_block->window);
}

void* model_shared_at(unsigned address) {
    unsigned char* at = self->in_block->window + address;
    if (!in_shared(*self->in_block, at, 1)) fail("a shared address of %u, which is none of this block's", address);
    return at;
}

uint64_t model_peer_load(unsigned rank, const void* at, unsigned bytes) {
    return get(living_peer(rank, at, bytes, "a load", false, false, place_of(__builtin_return_address(0))), bytes);
}

void model_peer_store(unsigned rank, const void* at, unsigned bytes, uint64_t value) {
    memcpy(living_peer(rank, at, bytes, "a store", true, false, place_of(__builtin_return_address(0))), &value, bytes);
}

uint64_t model_peer_add(unsigned rank, const void* at, unsigned bytes, uint64_t value) {
    if (now->random.one_in(8)) yield();
    unsigned char* there = living_peer(rank, at, bytes, "an addition", true, true, place_of(__builtin_return_address(0)));
    u64 old = get(there, bytes), sum = old + value;
    memcpy(there, &sum, bytes);
    return old;
}
}
