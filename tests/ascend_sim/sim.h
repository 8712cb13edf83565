// The simulated CANN runtime: a test double, for machines without an NPU. It exports the ACL calls that the Ascend device
// makes, with the types of ffi/acl_abi.h, and holds their callers to the documented rules more strictly than the
// vendor's runtime may. What it cannot tell is how an NPU behaves.
//
// Internal declarations; what tests call is in faults.cpp (ascend_sim_*).
#pragma once

extern "C" {
#include "../../ffi/acl_abi.h"
}

#include "../ascend_model/model/core.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#define SIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace sim {

// ---- calls: counting, tracing, injected failures (faults.cpp)

// Counts the call and says which code it is to fail with, 0 for none.
int enter(const char *call);
// Sets this thread's message and returns the code.
int refuse(const char *call, int code, const std::string &why);
// The code an injected failure gives the next run of a task of this kind, 0 for none.
int task_fault(const char *kind);
// A setting: ascend_sim_set, else the environment variable ASCEND_SIM_<KEY>, else the default.
std::string setting(const char *key, const char *otherwise);
const char *take_message();
// What a kernel's launch counted, added up until the reset; and the first rule that one broke since then.
void launched(const ascend_model::Counters &counters, const std::string &broken);
std::string broken_rule();

// ---- objects: every live one is known, so that a stale handle is refused and a leak is counted (faults.cpp)

void born(const char *kind, const void *object);
bool lives(const char *kind, const void *object);
void died(const char *kind, const void *object);

// ---- contexts (runtime.cpp)

struct Stream;

struct Context {
    int device = 0;
    int references = 0; // of the device, for a default context
    Stream *default_stream = nullptr;
};

Context *current();

// ---- streams (streams.cpp)

// What a stream runs: returns 0 or the code the next synchronisation reports.
using Task = std::function<int()>;

struct Event {
    Context *context;
    uint32_t flags;
    std::mutex lock;
    std::condition_variable changed;
    uint64_t recorded = 0, completed = 0; // counted recordings
    std::chrono::steady_clock::time_point when;
};

struct Graph {
    std::vector<Task> tasks;
};

struct Stream {
    explicit Stream(Context *context);
    ~Stream();
    void push(Task task);
    int drain(); // waits, then gives and clears the error

    Context *context;
    bool capturing = false, invalidated = false;
    std::thread::id capturer;
    std::vector<Task> captured;

  private:
    void work();
    std::mutex lock;
    std::condition_variable changed;
    std::deque<Task> queue;
    bool busy = false, ending = false;
    int error = 0;
    std::thread worker;
};

// The stream behind a handle, null handles being the default one; nullptr where the rules refuse it, `code` and the
// message being set.
Stream *stream_of(const char *call, aclrtStream handle, int &code);
// Runs `task` on the stream in order, or records it where the stream captures.
void submit(Stream &stream, Task task);
// Whether this thread has a capture going on.
bool thread_captures();

// ---- memory (memory.cpp)

// Whether [address, address + size) lies in one live allocation of that kind ("device" or "host").
bool within_allocation(const char *kind, const void *address, size_t size);
// What kernels see of device memory, whose addresses no pointer of the host can follow.
ascend_model::GlobalMemory &global_memory();
// Runs `body`, turning an access to memory that is not there into a return of false.
bool guarded(const std::function<void()> &body);

} // namespace sim

// Begins an exported call: counts it and returns what an injected failure asks for.
#define SIM_ENTER(call)                                                                                              \
    do {                                                                                                             \
        if (int injected = sim::enter(call)) return injected;                                                        \
    } while (0)

// Begins a call that needs a device set on this thread.
#define SIM_ENTER_CONTEXT(call)                                                                                      \
    SIM_ENTER(call);                                                                                                 \
    if (!sim::current()) return sim::refuse(call, ACL_ERROR_RT_CONTEXT_NULL, "no device is set on this thread")
