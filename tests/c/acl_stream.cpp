// A stack on NPUs that has initialised the runtime, made a stream and memory of its own, and lends them. The argument is the
// path of the runtime, which the environment names to samedraw, too: a simulated one, whose counters show what was done with
// the stream.
#include "check.h"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <vector>

namespace {

using Error = int;
void *runtime;

template <class... Arguments> long call(const char *name, Arguments... arguments) {
    auto found = reinterpret_cast<long (*)(Arguments...)>(dlsym(runtime, name));
    CHECK(found != nullptr);
    return found(arguments...);
}

template <class... Arguments> void acl(const char *name, Arguments... arguments) {
    auto found = reinterpret_cast<Error (*)(Arguments...)>(dlsym(runtime, name));
    CHECK(found != nullptr);
    CHECK(found(arguments...) == 0);
}

long calls(const char *name) { return call("ascend_sim_count", name); }
long live(const char *kind) { return call("ascend_sim_live", kind); }

// One row of logits through a table and a sampler; whether this release has the kernels for it.
bool sample(samedraw_device *device, void *stream, const void *logits, const void *position, void *token) {
    samedraw_table *table = nullptr;
    OK(samedraw_table_create(device, 4, &table));
    STRUCT(samedraw_params, params);
    OK(samedraw_params_init(&params));
    params.has_seed = 1;
    params.seed = 7;
    long waits = calls("aclrtSynchronizeStream");
    uint64_t seed = 0;
    OK(samedraw_table_set(table, stream, 0, &params, &seed));
    OK(samedraw_table_clear(table, stream, 1));
    CHECK(seed == 7);
    // The writes were enqueued on the stream and nobody waited for it.
    CHECK(calls("aclrtSynchronizeStream") == waits);
    STRUCT(samedraw_limits, limits);
    limits.rows = 1;
    limits.vocab = 500;
    samedraw_sampler *sampler = nullptr;
    auto status = samedraw_sampler_create(device, &limits, table, &sampler);
    const bool built = status == SAMEDRAW_OK;
    if (!built) {
        // A release without kernels says so, by the platform's name.
        REFUSED(status, SAMEDRAW_UNSUPPORTED, "on ascend");
    } else {
        STRUCT(samedraw_logits, view);
        view.data = logits;
        view.rows = 1;
        view.vocab = view.stride = 500;
        STRUCT(samedraw_outputs, out);
        out.tokens = token;
        out.tokens_width = 8;
        STRUCT(samedraw_step, step);
        step.logits = &view;
        step.rows = 1;
        step.outputs = &out;
        step.positions = static_cast<const int64_t *>(position);
        OK(samedraw_sampler_step(sampler, stream, &step));
    }
    OK(samedraw_device_synchronize(device, stream));
    OK(samedraw_sampler_free(sampler));
    OK(samedraw_table_free(table));
    return built;
}

} // namespace

int main(int count, char **arguments) {
    CHECK(count == 2);
    runtime = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
    CHECK(runtime != nullptr);
    void *stream = nullptr, *logits = nullptr, *position = nullptr, *token = nullptr;
    acl("aclInit", static_cast<const char *>(nullptr));
    acl("aclrtSetDevice", 0);
    acl("aclrtCreateStream", &stream);
    acl("aclrtMalloc", &logits, size_t{2000}, 0);
    acl("aclrtMalloc", &position, size_t{8}, 0);
    acl("aclrtMalloc", &token, size_t{8}, 0);
    const std::vector<float> flat(500);
    int64_t at = 33, drawn = 77;
    constexpr int kToDevice = 1, kToHost = 2;
    acl("aclrtMemcpyAsync", logits, size_t{2000}, static_cast<const void *>(flat.data()), size_t{2000}, kToDevice, stream);
    acl("aclrtMemcpyAsync", position, size_t{8}, static_cast<const void *>(&at), size_t{8}, kToDevice, stream);

    const long streams = live("stream"), memory = live("memory"), devices = live("device");
    samedraw_device *device = nullptr;
    OK(samedraw_device_open("ascend", &device));
    STRUCT(samedraw_device_info, info);
    OK(samedraw_device_describe(device, &info));
    CHECK(info.platform == SAMEDRAW_ASCEND && info.max_force_topk == 4096 && std::strlen(info.name) > 0);
    const bool built = sample(device, stream, logits, position, token);
    OK(samedraw_device_free(device));
    // All that was made is gone, the stack's own is as it was, and its stream still works.
    CHECK(live("stream") == streams && live("memory") == memory && live("device") == devices && live("event") == 0);
    acl("aclrtMemcpyAsync", static_cast<void *>(&drawn), size_t{8}, static_cast<const void *>(token), size_t{8}, kToHost, stream);
    acl("aclrtSynchronizeStream", stream);
    if (built) CHECK(drawn == flat_token(7, at, 500));
    std::printf("%s\n", built ? "the step ran on the stack's stream" : "this release has no Ascend kernels: refused by name");
    acl("aclrtFree", logits);
    acl("aclrtFree", position);
    acl("aclrtFree", token);
    acl("aclrtDestroyStream", stream);
    acl("aclrtResetDevice", 0);
    std::puts("done");
}
