// A CUDA driver whose card is the model: device memory is host memory, a launch is run to its end within the call, a
// captured launch each time its graph is launched. A call that needs the primary context fails unless it is current.

#include "model.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <unistd.h>

using namespace model;

namespace {

typedef int Result;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NOT_FOUND = 500, LAUNCH_FAILED = 719, CAPTURING = 900 };
void* const PRIMARY = (void*)0x9900;
constexpr size_t MEMORY = (size_t)1 << 30;

thread_local std::vector<void*> contexts;
void* current() { return contexts.empty() ? nullptr : contexts.back(); }
#define NEED_CONTEXT \
    if (current() != PRIMARY) return INVALID_CONTEXT

// What the last thing that went wrong on this thread was; its text goes out with the code.
thread_local std::string last_wrong;

Result wrong(Result code, const std::string& text) {
    last_wrong = text;
    std::string line = text + "\n";
    // Past the harness of a test, which keeps what a passing test says to itself.
    if (write(2, line.data(), line.size()) < 0) return code;
    return code;
}

u64 setting(const char* name, u64 otherwise) {
    const char* text = getenv(name);
    return text && *text ? strtoull(text, nullptr, 0) : otherwise;
}

// The work of a capture, in order.
typedef std::vector<std::function<Result()>> Work;

struct Stream {
    bool capturing = false;
    Work work;
};
Stream default_stream;
Stream& of(void* stream) { return stream ? *(Stream*)stream : default_stream; }

Result on(void* stream, std::function<Result()> work) {
    Stream& s = of(stream);
    if (!s.capturing) return work();
    s.work.push_back(std::move(work));
    return OK;
}

struct Function {
    Module* module;
    Kernel* kernel;
};

struct Attribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        unsigned cluster[3];
        int allowed;
    } value;
};
enum { CLUSTER_DIMENSION = 4, PROGRAMMATIC_SERIALIZATION = 6 };

struct Config {
    unsigned grid[3], block[3], smem;
    void* stream;
    Attribute* attributes;
    unsigned attribute_count;
};

// Another number of threads than the crate chose, to reach code that it would not; for kernels that take any.
void force(Launch& launch) {
    u32 threads = (u32)setting("SAMEDRAW_MODEL_THREADS", 0), old = launch.block.x;
    if (threads == 0 || launch.block.y != 1) return;
    launch.block.x = threads;
    // Parts end at whole grains of a warp, so a little more than before.
    if (launch.smem != 0 && threads != old) launch.smem += threads / 32 * 64;
}

std::string refusal(const Kernel& kernel, const Launch& l) {
    char text[256] = "";
    u32 threads = l.block.x * l.block.y * l.block.z;
    if (threads == 0 || threads > 1024 || l.grid.x == 0 || l.grid.y == 0 || l.grid.z == 0)
        snprintf(text, sizeof text, "a block of %u threads, a grid of %ux%ux%u", threads, l.grid.x, l.grid.y, l.grid.z);
    else if (threads > kernel.most_threads)
        snprintf(text, sizeof text, "%u threads a block; the kernel's launch bound is %u", threads, kernel.most_threads);
    else if (l.smem > kernel.dynamic_allowed)
        snprintf(text, sizeof text, "%u bytes of dynamic shared memory; the function allows %u", l.smem, kernel.dynamic_allowed);
    else if (l.cluster == 0 || (l.cluster & (l.cluster - 1)) != 0 || l.cluster > 16 || l.grid.x % l.cluster != 0)
        snprintf(text, sizeof text, "clusters of %u in a grid of %u", l.cluster, l.grid.x);
    else if (l.cluster > 8 && !kernel.large_clusters)
        snprintf(text, sizeof text, "clusters of %u; the function allows no more than 8", l.cluster);
    else if (l.cluster > 1 && setting("SAMEDRAW_MODEL_SM", 90) < 90)
        snprintf(text, sizeof text, "clusters of %u on a card that has none", l.cluster);
    return text[0] ? std::string("cuda model: kernel ") + kernel.name + " cannot be launched: " + text : "";
}

Result launch_now(Function* function, Launch launch, std::vector<std::vector<char>> params) {
    static std::mutex one_at_a_time;
    std::lock_guard<std::mutex> guard(one_at_a_time);
    std::vector<void*> pointers;
    for (auto& param : params) pointers.push_back(param.data());
    launch.kernel = function->kernel->name.c_str();
    launch.entry = function->kernel->entry;
    launch.self = function->kernel->self;
    launch.library = function->kernel->library;
    launch.params = pointers.data();
    std::string report = run(launch);
    return report.empty() ? OK : wrong(LAUNCH_FAILED, report);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

Result cuDriverGetVersion(int* version) {
    *version = 13000;
    return OK;
}
Result cuGetErrorName(Result code, const char** text) {
    *text = code == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
    return OK;
}
Result cuGetErrorString(Result code, const char** text) {
    *text = code == OUT_OF_MEMORY ? "out of memory" : last_wrong.c_str();
    return OK;
}
Result cuInit(unsigned flags) { return flags ? INVALID_VALUE : OK; }
Result cuDeviceGetCount(int* n) {
    *n = 1;
    return OK;
}
Result cuDeviceGet(int* device, int ordinal) {
    *device = ordinal;
    return OK;
}
Result cuDeviceGetName(char* name, int len, int) {
    snprintf(name, (size_t)len, "CPU model of a GPU");
    return OK;
}
Result cuDeviceTotalMem_v2(size_t* bytes, int) {
    *bytes = MEMORY;
    return OK;
}
Result cuDeviceGetAttribute(int* value, int which, int) {
    u64 sm = setting("SAMEDRAW_MODEL_SM", 90);
    switch (which) {
    case 75: *value = (int)(sm / 10); return OK;
    case 76: *value = (int)(sm % 10); return OK;
    case 16: *value = (int)setting("SAMEDRAW_MODEL_SMS", 132); return OK;
    case 97: *value = (int)setting("SAMEDRAW_MODEL_SHARED", MAX_DYNAMIC); return OK;
    case 38: *value = 50 << 20; return OK;
    default: *value = 0; return OK;
    }
}
Result cuDevicePrimaryCtxRetain(void** context, int) {
    *context = PRIMARY;
    return OK;
}
Result cuDevicePrimaryCtxRelease_v2(int) { return OK; }
Result cuCtxGetCurrent(void** context) {
    *context = current();
    return OK;
}
Result cuCtxPushCurrent_v2(void* context) {
    contexts.push_back(context);
    return OK;
}
Result cuCtxPopCurrent_v2(void** context) {
    if (contexts.empty()) return INVALID_CONTEXT;
    *context = contexts.back();
    contexts.pop_back();
    return OK;
}

Result cuMemAlloc_v2(u64* ptr, size_t bytes) {
    NEED_CONTEXT;
    void* at = bytes > MEMORY ? nullptr : device_alloc(bytes);
    *ptr = (u64)at;
    return at ? OK : OUT_OF_MEMORY;
}
Result cuMemFree_v2(u64 ptr) {
    NEED_CONTEXT;
    std::string text = device_free(ptr);
    return text.empty() ? OK : wrong(INVALID_VALUE, "cuda model: " + text);
}
Result cuMemHostAlloc(void** ptr, size_t bytes, unsigned) {
    NEED_CONTEXT;
    *ptr = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *ptr ? OK : OUT_OF_MEMORY;
}
Result cuMemFreeHost(void* ptr) {
    NEED_CONTEXT;
    free(ptr);
    return OK;
}
static Result copy(void* stream, void* dst, const void* src, size_t n, u64 device) {
    if (!in_device_memory(device, n)) return wrong(INVALID_VALUE, "cuda model: a copy of " + std::to_string(n) + " bytes: " + describe_device(device));
    return on(stream, [=] {
        memcpy(dst, src, n);
        return OK;
    });
}
Result cuMemcpyHtoDAsync_v2(u64 dst, const void* src, size_t n, void* stream) {
    NEED_CONTEXT;
    return copy(stream, (void*)dst, src, n, dst);
}
Result cuMemcpyDtoHAsync_v2(void* dst, u64 src, size_t n, void* stream) {
    NEED_CONTEXT;
    return copy(stream, dst, (const void*)src, n, src);
}
Result cuMemsetD8Async(u64 dst, unsigned char value, size_t n, void* stream) {
    NEED_CONTEXT;
    if (!in_device_memory(dst, n)) return wrong(INVALID_VALUE, "cuda model: a fill of " + std::to_string(n) + " bytes: " + describe_device(dst));
    return on(stream, [=] {
        memset((void*)dst, value, n);
        return OK;
    });
}

Result cuStreamCreate(void** stream, unsigned) {
    NEED_CONTEXT;
    *stream = new Stream;
    return OK;
}
Result cuStreamDestroy_v2(void* stream) {
    NEED_CONTEXT;
    delete (Stream*)stream;
    return OK;
}
Result cuStreamSynchronize(void* stream) {
    NEED_CONTEXT;
    return of(stream).capturing ? CAPTURING : OK;
}
Result cuStreamIsCapturing(void* stream, int* status) {
    NEED_CONTEXT;
    *status = of(stream).capturing;
    return OK;
}
Result cuStreamBeginCapture_v2(void* stream, int) {
    NEED_CONTEXT;
    if (!stream || of(stream).capturing) return CAPTURING;
    of(stream).capturing = true;
    of(stream).work.clear();
    return OK;
}
Result cuStreamEndCapture(void* stream, void** graph) {
    NEED_CONTEXT;
    if (!of(stream).capturing) return CAPTURING;
    of(stream).capturing = false;
    *graph = new Work(std::move(of(stream).work));
    return OK;
}
Result cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long flags) {
    NEED_CONTEXT;
    *exec = new Work(*(Work*)graph);
    return flags ? INVALID_VALUE : OK;
}
Result cuGraphLaunch(void* exec, void* stream) {
    NEED_CONTEXT;
    for (auto& one : *(Work*)exec)
        if (Result result = on(stream, one)) return result;
    return OK;
}
Result cuGraphExecDestroy(void* exec) {
    NEED_CONTEXT;
    delete (Work*)exec;
    return OK;
}
Result cuGraphDestroy(void* graph) {
    NEED_CONTEXT;
    delete (Work*)graph;
    return OK;
}

Result cuEventCreate(void** event, unsigned) {
    NEED_CONTEXT;
    *event = malloc(1);
    return OK;
}
Result cuEventDestroy_v2(void* event) {
    NEED_CONTEXT;
    free(event);
    return OK;
}
Result cuEventRecord(void*, void*) {
    NEED_CONTEXT;
    return OK;
}
Result cuEventQuery(void*) {
    NEED_CONTEXT;
    return OK;
}
Result cuEventSynchronize(void*) {
    NEED_CONTEXT;
    return OK;
}
Result cuEventElapsedTime(float* ms, void*, void*) {
    NEED_CONTEXT;
    *ms = 1.0f;
    return OK;
}

Result cuModuleLoadData(void** module, const void* image) {
    NEED_CONTEXT;
    *module = module_load((const char*)image);
    return OK;
}
Result cuModuleUnload(void* module) {
    NEED_CONTEXT;
    module_unload((Module*)module);
    return OK;
}
Result cuModuleGetFunction(void** function, void* module, const char* name) {
    NEED_CONTEXT;
    Kernel* kernel = module_kernel((Module*)module, name);
    if (!kernel) return wrong(NOT_FOUND, std::string("cuda model: no kernel ") + name);
    *function = new Function{(Module*)module, kernel};
    return OK;
}
Result cuFuncGetAttribute(int* value, int, void*) {
    NEED_CONTEXT;
    *value = 0;
    return OK;
}
Result cuFuncSetAttribute(void* function, int which, int value) {
    NEED_CONTEXT;
    Kernel* kernel = ((Function*)function)->kernel;
    if (value < 0 || (which == 8 && (size_t)value > MAX_DYNAMIC)) return INVALID_VALUE;
    if (which == 8) kernel->dynamic_allowed = (u32)value;
    if (which == 14) kernel->large_clusters = value != 0;
    return OK;
}

// The model has room for any cluster that the function allows.
Result cuOccupancyMaxActiveClusters(int* clusters, void* function, const Config* config) {
    NEED_CONTEXT;
    if (!function || config->attribute_count != 1 || config->attributes[0].id != CLUSTER_DIMENSION) return INVALID_VALUE;
    const Kernel& kernel = *((Function*)function)->kernel;
    unsigned blocks = config->attributes[0].value.cluster[0];
    unsigned most = setting("SAMEDRAW_MODEL_SM", 90) < 90 ? 1 : kernel.large_clusters ? 16 : 8;
    *clusters = blocks <= most && config->smem <= kernel.dynamic_allowed ? 1 : 0;
    return OK;
}

Result cuLaunchKernelEx(const Config* config, void* function, void** params, void** extra) {
    NEED_CONTEXT;
    if (!function || extra || config->attribute_count > 4) return INVALID_VALUE;
    auto which = (Function*)function;
    std::string why;
    if (!kernel_ready(which->module, which->kernel, &why)) return wrong(LAUNCH_FAILED, "cuda model: " + why);
    Launch launch{};
    launch.grid = {config->grid[0], config->grid[1], config->grid[2]};
    launch.block = {config->block[0], config->block[1], config->block[2]};
    launch.smem = config->smem;
    launch.cluster = 1;
    for (unsigned i = 0; i < config->attribute_count; i++) {
        const Attribute& a = config->attributes[i];
        if (a.id == CLUSTER_DIMENSION) {
            if (a.value.cluster[1] != 1 || a.value.cluster[2] != 1) return wrong(INVALID_VALUE, "cuda model: clusters of more than one dimension");
            launch.cluster = a.value.cluster[0];
        } else if (a.id == PROGRAMMATIC_SERIALIZATION) {
            launch.overlaps = a.value.allowed != 0;
        } else {
            return wrong(INVALID_VALUE, "cuda model: a launch attribute it does not know: " + std::to_string(a.id));
        }
    }
    force(launch);
    why = refusal(*which->kernel, launch);
    if (!why.empty()) return wrong(INVALID_VALUE, why);
    std::vector<std::vector<char>> copies;
    for (u32 i = 0; which->kernel->sizes[i] != 0; i++) copies.emplace_back((char*)params[i], (char*)params[i] + which->kernel->sizes[i]);
    return on(config->stream, [=] { return launch_now(which, launch, copies); });
}
}
#pragma GCC visibility pop
