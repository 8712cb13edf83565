// Device memory: host memory between pages that cannot be touched, so that an access past either end, or to memory that
// was freed, is a fault at once.

#include "model.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sys/mman.h>

namespace model {
namespace {

constexpr size_t PAGE = 4096;
// As the driver aligns.
constexpr size_t ALIGN = 256;
constexpr unsigned char UNSET = 0xcb, GUARD = 0xa7;

struct Allocation {
    unsigned char* mapped;
    size_t mapped_bytes, bytes;
};

std::mutex lock;
std::map<u64, Allocation> allocations;

} // namespace

void* device_alloc(size_t bytes) {
    size_t room = (bytes + ALIGN - 1) / ALIGN * ALIGN, pages = (room + PAGE - 1) / PAGE * PAGE;
    void* mapped = mmap(nullptr, pages + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    auto usable = (unsigned char*)mapped + PAGE;
    mprotect(usable, pages, PROT_READ | PROT_WRITE);
    // As far back as the alignment allows.
    unsigned char* at = usable + pages - room;
    memset(at, UNSET, bytes);
    memset(at + bytes, GUARD, room - bytes);
    memset(usable, GUARD, (size_t)(at - usable));
    std::lock_guard<std::mutex> guard(lock);
    allocations[(u64)at] = {(unsigned char*)mapped, pages + 2 * PAGE, bytes};
    return at;
}

std::string device_free(u64 at) {
    std::lock_guard<std::mutex> guard(lock);
    auto found = allocations.find(at);
    if (found == allocations.end()) return "memory that was not allocated is freed";
    Allocation a = found->second;
    auto start = (unsigned char*)at, usable = a.mapped + PAGE, end = a.mapped + a.mapped_bytes - PAGE;
    std::string wrong;
    for (unsigned char* p = usable; p < end; p++) {
        if (p == start) p += a.bytes;
        if (p < end && *p != GUARD) {
            wrong = "device memory of " + std::to_string(a.bytes) + " bytes was written at " + std::to_string(p - start) +
                    ", outside it";
            break;
        }
    }
    munmap(a.mapped, a.mapped_bytes);
    allocations.erase(found);
    return wrong;
}

bool in_device_memory(u64 at, u64 bytes) {
    std::lock_guard<std::mutex> guard(lock);
    auto after = allocations.upper_bound(at);
    if (after == allocations.begin()) return false;
    --after;
    return at + bytes <= after->first + after->second.bytes;
}

void device_range(u64 at, u64* from, u64* to) {
    std::lock_guard<std::mutex> guard(lock);
    *from = 1, *to = 0;
    auto after = allocations.upper_bound(at);
    if (after == allocations.begin()) return;
    --after;
    if (at >= after->first + after->second.bytes) return;
    *from = after->first;
    *to = after->first + after->second.bytes;
}

std::string describe_device(u64 at) {
    std::lock_guard<std::mutex> guard(lock);
    auto after = allocations.upper_bound(at);
    if (after == allocations.begin()) return "no device memory lies before it";
    --after;
    return "the device memory before it has " + std::to_string(after->second.bytes) + " bytes and begins " +
           std::to_string(at - after->first) + " before";
}

} // namespace model
