// Test double: memory of the simulated runtime. Every allocation has pages of its own, and freed ones stay inaccessible for
// good, so that work that comes too late faults instead of finding old bytes.
#include "sim.h"

#include <csetjmp>
#include <csignal>
#include <cstring>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

namespace {

struct Allocation {
    size_t size;
    char *pages;
    size_t mapped;
    sim::Context *context;
    ascend_model::Region *region; // of device memory
};

std::mutex lock;
std::map<const char *, Allocation> &allocations(const std::string &kind) {
    static auto *all = new std::map<std::string, std::map<const char *, Allocation>>;
    return (*all)[kind];
}

thread_local sigjmp_buf way_out;
thread_local volatile sig_atomic_t in_guard = 0;
struct sigaction before;

void on_fault(int signal, siginfo_t *info, void *context) {
    if (in_guard) siglongjmp(way_out, 1);
    // Not ours: whoever was there first, else the default.
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(signal, info, context);
    } else {
        sigaction(signal, &before, nullptr);
    }
}

int allocate(const char *call, const char *kind, const char *live, void **out, size_t size, size_t shift) {
    if (size == 0) return sim::refuse(call, ACL_ERROR_INVALID_PARAM, "0 bytes are asked for");
    if (sim::thread_captures()) {
        return sim::refuse(call, ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, "an allocation in a capture");
    }
    if (size > size_t{64} << 30) return sim::refuse(call, ACL_ERROR_RT_MEMORY_ALLOCATION, "more than the device has");
    Allocation made{size, nullptr, 0, sim::current(), nullptr};
    char *address, *bytes;
    if (!std::strcmp(kind, "device")) {
        made.region = sim::global_memory().add(size, shift);
        if (!made.region) return sim::refuse(call, ACL_ERROR_RT_MEMORY_ALLOCATION, "mmap refused");
        address = reinterpret_cast<char *>(made.region->base);
        bytes = reinterpret_cast<char *>(made.region->data);
    } else {
        size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        made.mapped = (size + shift + page - 1) / page * page;
        void *pages = mmap(nullptr, made.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (pages == MAP_FAILED) return sim::refuse(call, ACL_ERROR_RT_MEMORY_ALLOCATION, "mmap refused");
        made.pages = static_cast<char *>(pages);
        address = bytes = made.pages + shift;
    }
    // Not zeroed, and not by chance zero.
    std::memset(bytes, 0xA5, size < 65536 ? size : 65536);
    {
        std::lock_guard<std::mutex> guard(lock);
        allocations(kind)[address] = made;
    }
    sim::born(live, address);
    *out = address;
    return ACL_ERROR_NONE;
}

int release(const char *call, const char *kind, const char *live, void *address) {
    std::lock_guard<std::mutex> guard(lock);
    auto &all = allocations(kind);
    auto found = all.find(static_cast<const char *>(address));
    if (found == all.end()) {
        return sim::refuse(call, ACL_ERROR_RT_PARAM_INVALID, "not the address of an allocation, or freed before");
    }
    if (found->second.context != sim::current()) {
        return sim::refuse(call, ACL_ERROR_RT_INVALID_HANDLE, "memory of another context");
    }
    if (found->second.region) {
        sim::global_memory().remove(found->second.region);
    } else {
        ascend_model::GlobalMemory::close(found->second.pages, found->second.mapped);
    }
    all.erase(found);
    sim::died(live, address);
    return ACL_ERROR_NONE;
}

} // namespace

namespace sim {

ascend_model::GlobalMemory &global_memory() {
    static auto *one = new ascend_model::GlobalMemory;
    return *one;
}

bool within_allocation(const char *kind, const void *address, size_t size) {
    std::lock_guard<std::mutex> guard(lock);
    auto &all = allocations(kind);
    const char *start = static_cast<const char *>(address);
    auto next = all.upper_bound(start);
    if (next == all.begin()) return false;
    const auto &[base, allocation] = *std::prev(next);
    size_t offset = static_cast<size_t>(start - base);
    return offset <= allocation.size && size <= allocation.size - offset;
}

bool guarded(const std::function<void()> &body) {
    static std::once_flag once;
    std::call_once(once, [] {
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
        sigaction(SIGSEGV, &action, &before);
    });
    if (sigsetjmp(way_out, 1)) {
        in_guard = 0;
        return false;
    }
    in_guard = 1;
    body();
    in_guard = 0;
    return true;
}

} // namespace sim

using namespace sim;

SIM_EXPORT aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy) {
    SIM_ENTER_CONTEXT("aclrtMalloc");
    if (policy != ACL_MEM_MALLOC_HUGE_FIRST) return refuse("aclrtMalloc", ACL_ERROR_INVALID_PARAM, "no such policy");
    // 64 bytes are all that is documented; a setting makes the address no better than that.
    size_t shift = setting("ALIGN_64", "0") == "1" ? 64 : 0;
    return allocate("aclrtMalloc", "device", "memory", devPtr, size, shift);
}

SIM_EXPORT aclError aclrtFree(void *devPtr) {
    SIM_ENTER_CONTEXT("aclrtFree");
    return release("aclrtFree", "device", "memory", devPtr);
}

SIM_EXPORT aclError aclrtMallocHost(void **hostPtr, size_t size) {
    SIM_ENTER_CONTEXT("aclrtMallocHost");
    return allocate("aclrtMallocHost", "host", "host", hostPtr, size, 64);
}

SIM_EXPORT aclError aclrtFreeHost(void *hostPtr) {
    SIM_ENTER_CONTEXT("aclrtFreeHost");
    return release("aclrtFreeHost", "host", "host", hostPtr);
}

SIM_EXPORT aclError aclrtMemcpyAsync(
    void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind, aclrtStream handle) {
    SIM_ENTER_CONTEXT("aclrtMemcpyAsync");
    int code = 0;
    Stream *stream = stream_of("aclrtMemcpyAsync", handle, code);
    if (!stream) return code;
    bool up = kind == ACL_MEMCPY_HOST_TO_DEVICE;
    if (!up && kind != ACL_MEMCPY_DEVICE_TO_HOST) {
        return refuse("aclrtMemcpyAsync", ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "no copy of that kind");
    }
    const void *on_device = up ? dst : src, *on_host = up ? src : dst;
    if (count == 0 || count > destMax || !within_allocation("device", on_device, count)) {
        return refuse("aclrtMemcpyAsync", ACL_ERROR_RT_PARAM_INVALID, "a range outside of device memory");
    }
    const uint64_t address = reinterpret_cast<uint64_t>(on_device);
    ascend_model::Region *region = global_memory().find(address);
    Task task = [=] {
        if (int fault = task_fault("copy")) return fault;
        bool done = guarded([=] {
            if (up) {
                std::memcpy(region->at(address), src, count);
                ascend_model::GlobalMemory::define(*region, address, count);
            } else {
                std::memcpy(dst, region->at(address), count);
            }
        });
        return done ? 0 : int{ACL_ERROR_RT_AICORE_EXCEPTION};
    };
    if (within_allocation("host", on_host, count)) {
        submit(*stream, task);
        return ACL_ERROR_NONE;
    }
    // From and to memory that is not pinned the call is synchronous, which a capture cannot be.
    if (stream->capturing) {
        stream->invalidated = true;
        return refuse("aclrtMemcpyAsync", ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, "memory that is not pinned, in a capture");
    }
    submit(*stream, task);
    code = stream->drain();
    return code ? refuse("aclrtMemcpyAsync", code, "work before the copy, or the copy, failed") : ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream handle) {
    SIM_ENTER_CONTEXT("aclrtMemsetAsync");
    int code = 0;
    Stream *stream = stream_of("aclrtMemsetAsync", handle, code);
    if (!stream) return code;
    if (count == 0 || count > maxCount || !within_allocation("device", devPtr, count)) {
        return refuse("aclrtMemsetAsync", ACL_ERROR_RT_PARAM_INVALID, "a range outside of device memory");
    }
    const uint64_t address = reinterpret_cast<uint64_t>(devPtr);
    ascend_model::Region *region = global_memory().find(address);
    submit(*stream, [=] {
        bool done = guarded([=] {
            std::memset(region->at(address), value, count);
            ascend_model::GlobalMemory::define(*region, address, count);
        });
        return done ? 0 : int{ACL_ERROR_RT_AICORE_EXCEPTION};
    });
    return ACL_ERROR_NONE;
}
