// A CUDA driver whose card is the model: device memory is host memory, a launch is run to its end within the call, a
// captured launch each time its graph is launched. A call that needs the primary context fails unless it is current.

#include "driver.h"

#include <cstdio>
#include <cstring>
#include <unistd.h>

using namespace model;

namespace {

void* const PRIMARY = (void*)0x9900;
constexpr size_t MEMORY = (size_t)1 << 30;

thread_local std::vector<void*> contexts;
void* current() { return contexts.empty() ? nullptr : contexts.back(); }

// What the last thing that went wrong on this thread was.
thread_local std::string last_wrong;

// The work of a capture, in order.
typedef std::vector<std::function<Result()>> Work;

struct Stream {
    bool capturing = false;
    Work work;
};
Stream default_stream;
Stream& of(void* stream) { return stream ? *(Stream*)stream : default_stream; }

} // namespace

namespace model {

bool context_is_current() { return current() == PRIMARY; }

Result wrong(Result code, const std::string& text) {
    last_wrong = text;
    std::string line = text + "\n";
    // Past the harness of a test, which keeps what a passing test says to itself.
    if (write(2, line.data(), line.size()) < 0) return code;
    return code;
}

Result on(void* stream, std::function<Result()> work) {
    Stream& s = of(stream);
    if (!s.capturing) return work();
    s.work.push_back(std::move(work));
    return OK;
}

} // namespace model

#pragma GCC visibility push(default)
extern "C" {

Result cuDriverGetVersion(int* version) {
    *version = 13000;
    return OK;
}
Result cuGetErrorName(Result code, const char** text) {
    *text = code == LAUNCH_FAILED   ? "CUDA_ERROR_LAUNCH_FAILED"
            : code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                    : "CUDA_ERROR";
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
    if (!in_device_memory(device, n))
        return wrong(INVALID_VALUE, "cuda model: a copy of " + std::to_string(n) + " bytes: " + describe_device(device));
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
    if (!in_device_memory(dst, n))
        return wrong(INVALID_VALUE, "cuda model: a fill of " + std::to_string(n) + " bytes: " + describe_device(dst));
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
}
#pragma GCC visibility pop
