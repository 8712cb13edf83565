// Test double: what tests ask of the simulated runtime (failures, counts, traces, leaks), and what its calls begin with.
#include "sim.h"

#include <cstdlib>
#include <cstring>
#include <map>

namespace {

struct Fault {
    long from; // the call of that name, counted from 1, at which it begins
    long until;
    int code;
};

struct State {
    std::mutex lock;
    std::map<std::string, long> counts;
    std::map<std::string, Fault> faults;
    std::map<std::string, std::string> settings;
    std::map<std::string, std::set<const void *>> live;
    std::string trace, broken;
    ascend_model::Counters counters;
    long calls = 0, lost_from = -1; // the device is lost from the call of that number on
};

// Never destroyed: threads of streams may outlive the end of main.
State &state() {
    static State *one = new State;
    return *one;
}

thread_local std::string message, given_message;

int due(State &s, const std::string &call, long count) {
    auto fault = s.faults.find(call);
    if (fault == s.faults.end() || count < fault->second.from || count >= fault->second.until) return 0;
    return fault->second.code;
}

} // namespace

namespace sim {

int enter(const char *call) {
    State &s = state();
    int code = 0;
    bool lost = false;
    {
        std::lock_guard<std::mutex> guard(s.lock);
        long count = ++s.counts[call];
        (s.trace += call) += '\n';
        code = due(s, call, count);
        // What the host answers by itself it answers still.
        bool asks_device = std::strcmp(call, "aclGetRecentErrMsg") && std::strcmp(call, "aclrtGetSocName");
        lost = asks_device && s.lost_from >= 0 && s.calls++ >= s.lost_from;
    }
    if (!code && setting("STUB", "0") == "1") code = ACL_ERROR_COMPILING_STUB_MODE;
    if (!code && lost) code = ACL_ERROR_RT_LOST_HEARTBEAT;
    if (code) return refuse(call, code, lost ? "the simulated device is lost" : "a failure the test asked for");
    return 0;
}

int refuse(const char *call, int code, const std::string &why) {
    message = std::string("EZ") + std::to_string(code) + ": simulated " + call + ": " + why;
    return code;
}

int task_fault(const char *kind) {
    State &s = state();
    std::lock_guard<std::mutex> guard(s.lock);
    return due(s, kind, ++s.counts[kind]);
}

std::string setting(const char *key, const char *otherwise) {
    State &s = state();
    std::lock_guard<std::mutex> guard(s.lock);
    auto set = s.settings.find(key);
    if (set != s.settings.end()) return set->second;
    const char *value = std::getenv((std::string("ASCEND_SIM_") + key).c_str());
    return value ? value : otherwise;
}

const char *take_message() {
    if (message.empty()) return nullptr;
    given_message.swap(message);
    message.clear();
    return given_message.c_str();
}

void launched(const ascend_model::Counters &counters, const std::string &broken) {
    State &s = state();
    std::lock_guard<std::mutex> guard(s.lock);
    s.counters.add(counters);
    if (s.broken.empty()) s.broken = broken;
}

std::string broken_rule() {
    State &s = state();
    std::lock_guard<std::mutex> guard(s.lock);
    return s.broken;
}

void born(const char *kind, const void *object) {
    State &s = state();
    std::lock_guard<std::mutex> guard(s.lock);
    s.live[kind].insert(object);
}

bool lives(const char *kind, const void *object) {
    State &s = state();
    std::lock_guard<std::mutex> guard(s.lock);
    return s.live[kind].count(object) != 0;
}

void died(const char *kind, const void *object) {
    State &s = state();
    std::lock_guard<std::mutex> guard(s.lock);
    s.live[kind].erase(object);
}

} // namespace sim

// The `nth` call of that name from now on (1 is the next) fails with `code`, and `times` - 1 more after it. Kernels and
// copies that fail when they run are called "kernel" and "copy".
SIM_EXPORT void ascend_sim_fail(const char *call, long nth, long times, int code) {
    State &s = state();
    std::lock_guard<std::mutex> guard(s.lock);
    long from = s.counts[call] + nth;
    s.faults[call] = Fault{from, from + times, code};
}

// `calls` more calls work, then every one fails, as when the device is gone.
SIM_EXPORT void ascend_sim_lose_device(long calls) {
    State &s = state();
    std::lock_guard<std::mutex> guard(s.lock);
    s.calls = 0;
    s.lost_from = calls;
}

// Forgets failures, settings, counts and the trace; what lives stays known.
SIM_EXPORT void ascend_sim_reset() {
    State &s = state();
    std::lock_guard<std::mutex> guard(s.lock);
    s.faults.clear();
    s.settings.clear();
    s.counts.clear();
    s.trace.clear();
    s.broken.clear();
    s.counters = {};
    s.lost_from = -1;
}

SIM_EXPORT void ascend_sim_set(const char *key, const char *value) {
    State &s = state();
    std::lock_guard<std::mutex> guard(s.lock);
    s.settings[key] = value;
}

// Calls of that name since the last reset.
SIM_EXPORT long ascend_sim_count(const char *call) {
    State &s = state();
    std::lock_guard<std::mutex> guard(s.lock);
    auto found = s.counts.find(call);
    return found == s.counts.end() ? 0 : found->second;
}

// Live objects of a kind: device (references), device memory ("memory"), "host", "stream", "event", "graph", "binary",
// "program".
SIM_EXPORT long ascend_sim_live(const char *kind) {
    State &s = state();
    std::lock_guard<std::mutex> guard(s.lock);
    auto found = s.live.find(kind);
    return found == s.live.end() ? 0 : static_cast<long>(found->second.size());
}

// The names of all calls since the last reset, one a line, cut to what fits; its length.
SIM_EXPORT size_t ascend_sim_trace(char *out, size_t room) {
    State &s = state();
    std::lock_guard<std::mutex> guard(s.lock);
    size_t size = s.trace.size() < room ? s.trace.size() : room;
    std::memcpy(out, s.trace.data(), size);
    return s.trace.size();
}

// What kernels did since the last reset, summed over their launches and cores: bytes of global memory "gm_read" and
// "gm_written" by moves, "scalar_read" and "scalar_written" by the scalar unit; "vector_calls", "vector_repeats" of 256
// bytes, "moves", "scalar_ub" accesses of the scalar unit to the unified buffer, "waits".
SIM_EXPORT long ascend_sim_counter(const char *name) {
    State &s = state();
    std::lock_guard<std::mutex> guard(s.lock);
    const std::pair<const char *, uint64_t> all[] = {
        {"gm_read", s.counters.gm_read}, {"gm_written", s.counters.gm_written}, {"scalar_read", s.counters.scalar_read},
        {"scalar_written", s.counters.scalar_written}, {"vector_calls", s.counters.vector_calls},
        {"vector_repeats", s.counters.vector_repeats}, {"moves", s.counters.moves}, {"scalar_ub", s.counters.scalar_ub},
        {"waits", s.counters.waits}};
    for (auto [known, value] : all) {
        if (!std::strcmp(known, name)) return static_cast<long>(value);
    }
    return -1;
}
