// Drives the simulated runtime with the calls of the Ascend device in its order, in C++, where sanitizers see every part:
// test double and driver alike. Rust code cannot be instrumented by the stable compiler; the Rust tests compare this
// driver's calls with the device's, so that both take the same way.
//
// driver ROOT SOURCE threads N   N threads, one copy-and-add each on a stream of its own, twice, then a graph
// driver ROOT SOURCE trace       one thread, then the names of all calls
#include "../../ffi/acl_abi.h"
#include "../../ffi/aclrtc_abi.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace {

#define CALLS(X)                                                                                                     \
    X(aclInit) X(aclGetRecentErrMsg) X(aclsysGetVersionNum) X(aclsysGetVersionStr) X(aclrtGetDeviceCount)              \
    X(aclrtSetDevice) X(aclrtResetDevice) X(aclrtGetCurrentContext) X(aclrtSetCurrentContext) X(aclrtGetSocName)       \
    X(aclrtGetDeviceInfo) X(aclrtGetMemInfo) X(aclrtMalloc) X(aclrtFree) X(aclrtMallocHost) X(aclrtFreeHost)           \
    X(aclrtMemcpyAsync) X(aclrtMemsetAsync) X(aclrtCreateStream) X(aclrtDestroyStream) X(aclrtSynchronizeStream)       \
    X(aclrtCreateEventExWithFlag) X(aclrtDestroyEvent) X(aclrtRecordEvent) X(aclrtQueryEventStatus)                    \
    X(aclrtSynchronizeEvent) X(aclrtEventElapsedTime) X(aclmdlRICaptureBegin) X(aclmdlRICaptureEnd)                    \
    X(aclmdlRICaptureGetInfo) X(aclmdlRIExecuteAsync) X(aclmdlRIDestroy) X(aclrtBinaryLoadFromData)                    \
    X(aclrtBinaryGetFunction) X(aclrtBinaryUnLoad) X(aclrtLaunchKernelWithHostArgs)
#define COMPILER_CALLS(X)                                                                                            \
    X(aclrtcCreateProg) X(aclrtcCompileProg) X(aclrtcGetBinDataSize) X(aclrtcGetBinData) X(aclrtcDestroyProg)

// Every call is reached as the device reaches it: by looking it up in the opened library.
struct Api {
#define X(name) decltype(&::name) name;
    CALLS(X)
    COMPILER_CALLS(X)
#undef X
    void *runtime, *compiler;
} api;

void *open(const std::string &path) {
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!library) std::fprintf(stderr, "%s\n", dlerror()), std::exit(2);
    return library;
}

template <typename F> F find(void *library, const char *name) {
    void *symbol = dlsym(library, name);
    if (!symbol) std::fprintf(stderr, "%s is missing\n", name), std::exit(2);
    return reinterpret_cast<F>(symbol);
}

void must(int code, const char *call) {
    if (code == 0) return;
    const char *message = api.aclGetRecentErrMsg();
    std::fprintf(stderr, "%s gave %d: %s\n", call, code, message ? message : "");
    std::exit(1);
}
#define MUST(name, ...) must(api.name(__VA_ARGS__), #name)

aclrtContext ours;

// What the device does before every call: it asks for the current context and sets its own where another is current.
void enter() {
    aclrtContext now = nullptr;
    int code = api.aclrtGetCurrentContext(&now);
    if (code == ACL_ERROR_RT_CONTEXT_NULL) {
        api.aclGetRecentErrMsg();
    } else {
        must(code, "aclrtGetCurrentContext");
    }
    if (now != ours) MUST(aclrtSetCurrentContext, ours);
}
#define DEVICE(name, ...) (enter(), MUST(name, __VA_ARGS__))

bool capturing(aclrtStream stream) {
    aclmdlRICaptureStatus status;
    aclmdlRI model;
    MUST(aclmdlRICaptureGetInfo, stream, &status, &model);
    return status != ACL_MODEL_RI_CAPTURE_STATUS_NONE;
}

void synchronize(aclrtStream stream) {
    enter();
    if (capturing(stream)) must(1, "a stream that captures");
    MUST(aclrtSynchronizeStream, stream);
}

template <typename T> T *alloc(size_t count) {
    void *pointer;
    DEVICE(aclrtMalloc, &pointer, count * sizeof(T), ACL_MEM_MALLOC_HUGE_FIRST);
    return static_cast<T *>(pointer);
}

template <typename T> T *pinned(size_t count) {
    void *pointer;
    DEVICE(aclrtMallocHost, &pointer, count * sizeof(T));
    return static_cast<T *>(pointer);
}

void check(const uint64_t *input, const uint64_t *output, size_t words, uint64_t addend) {
    for (size_t i = 0; i < words; ++i) {
        if (output[i] != input[i] + addend) must(static_cast<int>(i) + 1, "a word that is wrong");
    }
}

constexpr size_t WORDS = 1000;

// Copies and adds; SLOTS are the fields of both argument blocks, FIELD_* the places of those the kernel uses.
void copy_add(aclrtFuncHandle kernel, uint32_t blocks, uint64_t addend) {
    uint64_t *input = pinned<uint64_t>(WORDS), *output = pinned<uint64_t>(WORDS), *shown = pinned<uint64_t>(SLOTS);
    for (size_t i = 0; i < WORDS; ++i) input[i] = i * 0x9E3779B97F4A7C15ull ^ addend;
    uint64_t *from = alloc<uint64_t>(WORDS), *to = alloc<uint64_t>(WORDS), *at = alloc<uint64_t>(SLOTS);
    aclrtStream stream;
    aclrtEvent start, end;
    DEVICE(aclrtCreateStream, &stream);
    DEVICE(aclrtCreateEventExWithFlag, &start, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE);
    DEVICE(aclrtCreateEventExWithFlag, &end, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE);
    DEVICE(aclrtRecordEvent, start, stream);
    DEVICE(aclrtMemcpyAsync, from, 8 * WORDS, input, 8 * WORDS, ACL_MEMCPY_HOST_TO_DEVICE, stream);
    DEVICE(aclrtMemsetAsync, to, 8 * WORDS, 0xEE, 8 * WORDS, stream);
    auto launch = [&] {
        uint64_t arguments[SLOTS];
        for (size_t i = 0; i < SLOTS; ++i) arguments[i] = i;
        arguments[FIELD_LOGITS] = reinterpret_cast<uint64_t>(from);
        arguments[FIELD_TOKENS] = reinterpret_cast<uint64_t>(to);
        arguments[FIELD_SCRATCH] = reinterpret_cast<uint64_t>(at);
        arguments[FIELD_VOCAB] = WORDS;
        arguments[FIELD_POSITION_ADD] = addend;
        DEVICE(aclrtLaunchKernelWithHostArgs, kernel, blocks, stream, nullptr, arguments, sizeof arguments, nullptr, 0);
    };
    launch();
    DEVICE(aclrtMemcpyAsync, output, 8 * WORDS, to, 8 * WORDS, ACL_MEMCPY_DEVICE_TO_HOST, stream);
    DEVICE(aclrtMemcpyAsync, shown, 8 * SLOTS, at, 8 * SLOTS, ACL_MEMCPY_DEVICE_TO_HOST, stream);
    DEVICE(aclrtRecordEvent, end, stream);
    for (aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY; !status; std::this_thread::yield()) {
        DEVICE(aclrtQueryEventStatus, end, &status);
    }
    float ms;
    DEVICE(aclrtSynchronizeEvent, start);
    MUST(aclrtSynchronizeEvent, end);
    MUST(aclrtEventElapsedTime, &ms, start, end);
    check(input, output, WORDS, addend);
    if (shown[SLOTS - 1] != SLOTS - 1) must(1, "the last argument");

    enter();
    if (capturing(stream)) must(1, "a stream that captures");
    MUST(aclmdlRICaptureBegin, stream, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL);
    launch();
    DEVICE(aclrtMemcpyAsync, output, 8 * WORDS, to, 8 * WORDS, ACL_MEMCPY_DEVICE_TO_HOST, stream);
    enter();
    if (!capturing(stream)) must(1, "a stream that does not capture");
    aclmdlRI graph;
    MUST(aclmdlRICaptureEnd, stream, &graph);
    for (uint64_t round = 0; round < 3; ++round) {
        synchronize(stream);
        for (size_t i = 0; i < WORDS; ++i) input[i] ^= round;
        DEVICE(aclrtMemcpyAsync, from, 8 * WORDS, input, 8 * WORDS, ACL_MEMCPY_HOST_TO_DEVICE, stream);
        DEVICE(aclmdlRIExecuteAsync, graph, stream);
        synchronize(stream);
        check(input, output, WORDS, addend);
    }

    synchronize(stream);
    DEVICE(aclmdlRIDestroy, graph);
    for (aclrtEvent event : {start, end}) DEVICE(aclrtDestroyEvent, event);
    DEVICE(aclrtDestroyStream, stream);
    for (void *pointer : {from, to, at}) DEVICE(aclrtFree, pointer);
    for (void *pointer : {input, output, shown}) DEVICE(aclrtFreeHost, pointer);
}

std::vector<char> compile(const std::string &source) {
    aclrtcProg program = nullptr;
    const char *options[] = {"--npu-arch=dav-2201", "-O3"};
    MUST(aclrtcCreateProg, &program, source.c_str(), "copy_add.asc", 0, nullptr, nullptr);
    MUST(aclrtcCompileProg, program, 2, options);
    size_t size = 0;
    MUST(aclrtcGetBinDataSize, program, &size);
    std::vector<char> binary(size);
    MUST(aclrtcGetBinData, program, binary.data());
    MUST(aclrtcDestroyProg, &program);
    return binary;
}

void print_trace(void *library) {
    auto trace = find<size_t (*)(char *, size_t)>(library, "ascend_sim_trace");
    std::vector<char> text(1 << 20);
    std::fwrite(text.data(), 1, trace(text.data(), text.size()), stdout);
}

} // namespace

int main(int count, char **words) {
    if (count < 4) return 2;
    const std::string root = words[1], mode = words[3];
    std::ifstream file(words[2]);
    const std::string source{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const int threads = mode == "threads" && count > 4 ? std::atoi(words[4]) : 1;

    api.runtime = open(root + "/lib64/libacl_rt.so");
    api.compiler = open(root + "/lib64/libacl_rtc.so");
#define X(name) api.name = find<decltype(&::name)>(api.runtime, #name);
    CALLS(X)
#undef X
#define X(name) api.name = find<decltype(&::name)>(api.compiler, #name);
    COMPILER_CALLS(X)
#undef X

    // Opening.
    char package[] = "runtime", text[ACL_PKG_VERSION_MAX_SIZE + 1] = {};
    int32_t version;
    MUST(aclsysGetVersionNum, package, &version);
    MUST(aclsysGetVersionStr, package, text);
    MUST(aclInit, nullptr);
    uint32_t devices;
    MUST(aclrtGetDeviceCount, &devices);
    aclrtContext none = nullptr;
    if (api.aclrtGetCurrentContext(&none) != ACL_ERROR_RT_CONTEXT_NULL) return 1;
    api.aclGetRecentErrMsg();
    MUST(aclrtSetDevice, 0);
    MUST(aclrtGetCurrentContext, &ours);
    int64_t cores;
    size_t free_bytes, bytes;
    enter();
    if (!api.aclrtGetSocName()) return 1;
    MUST(aclrtGetDeviceInfo, 0, ACL_DEV_ATTR_VECTOR_CORE_NUM, &cores);
    MUST(aclrtGetMemInfo, ACL_HBM_MEM, &free_bytes, &bytes);

    // Loading.
    const std::vector<char> binary = compile(source);
    aclrtBinaryLoadOption option = {ACL_RT_BINARY_LOAD_OPT_MAGIC, {ACL_RT_BINARY_MAGIC_ELF_AICORE}};
    aclrtBinaryLoadOptions options = {&option, 1};
    aclrtBinHandle handle;
    aclrtFuncHandle kernel;
    DEVICE(aclrtBinaryLoadFromData, binary.data(), binary.size(), &options, &handle);
    MUST(aclrtBinaryGetFunction, handle, "copy_add", &kernel);

    // Working.
    if (threads == 1) {
        copy_add(kernel, 7, 77);
    } else {
        std::vector<std::thread> all;
        for (int i = 0; i < threads; ++i) {
            all.emplace_back([=] {
                for (uint64_t round = 1; round <= 2; ++round) copy_add(kernel, 1 + 16 * i, 1000 * i + round);
            });
        }
        for (std::thread &thread : all) thread.join();
    }

    // Closing.
    DEVICE(aclrtBinaryUnLoad, handle);
    MUST(aclrtResetDevice, 0);
    auto live = find<long (*)(const char *)>(api.runtime, "ascend_sim_live");
    for (const char *kind : {"device", "memory", "host", "stream", "event", "graph", "binary"}) {
        if (live(kind)) must(static_cast<int>(live(kind)), kind);
    }
    if (mode == "trace") {
        print_trace(api.runtime);
        print_trace(api.compiler);
    }
    std::puts("done");
    return 0;
}
