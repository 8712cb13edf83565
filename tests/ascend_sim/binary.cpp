// Test double: kernel binaries and launches of the simulated runtime. A binary is a shared library that the simulated
// aclrtc made; a kernel runs on its stream's thread, on the model of
// tests/ascend_model.
#include "sim.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <unistd.h>

namespace {

// As the model's headers lay it out, where kernels are compiled (tests/ascend_model/model/launch.h).
struct Entry {
    uint32_t slots;
    void (*run)(const uint64_t *arguments, ascend_model::Launch &launch, uint32_t block);
    // Runs all cores; gives the rule that was broken, or nothing.
    const char *(*launch)(const Entry &entry, const uint64_t *arguments, ascend_model::Launch &launch, uint64_t seed);
};

struct Binary {
    sim::Context *context;
    void *library;
    std::atomic<long> in_flight{0};
};

struct Function {
    Binary *binary;
    const Entry *entry;
};

std::mutex lock;
std::set<Function *> functions;

// The file is gone once it is open; its name differs from that of every other, or the linker would reuse one.
void *open_library(const void *data, size_t length, std::string &why) {
    char path[] = "/tmp/ascend_sim_XXXXXX";
    int file = mkstemp(path);
    if (file < 0) {
        why = "no temporary file";
        return nullptr;
    }
    bool written = write(file, data, length) == static_cast<ssize_t>(length);
    close(file);
    void *library = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!library) why = dlerror();
    unlink(path);
    return library;
}

// Settings of the model: SEED shuffles the order of cores; INEXACT names what is wrong with the arithmetic ("truncate",
// "flush", or both).
int run_kernel(const Entry &entry, const std::vector<uint64_t> &arguments, uint32_t blocks) {
    // One for each stream, whose thread this is.
    thread_local ascend_model::UbStorage storage;
    // A kernel that followed a pointer has left it as it was.
    storage.reset();
    ascend_model::Launch launch;
    launch.memory = &sim::global_memory();
    launch.storage = &storage;
    launch.blocks = blocks;
    const std::string inexact = sim::setting("INEXACT", "");
    launch.inexact.truncate = inexact.find("truncate") != std::string::npos;
    launch.inexact.flush = inexact.find("flush") != std::string::npos;
    const uint64_t seed = std::strtoull(sim::setting("SEED", "1").c_str(), nullptr, 10);
    std::string broken = "a pointer into global memory is followed: kernels reach it by moves and GetValue alone";
    sim::guarded([&] { broken = entry.launch(entry, arguments.data(), launch, seed); });
    sim::launched(launch.counters, broken);
    if (broken.empty()) return 0;
    std::fprintf(stderr, "simulated NPU: %s\n", broken.c_str());
    return ACL_ERROR_RT_VECTOR_CORE_EXCEPTION;
}

} // namespace

using namespace sim;

SIM_EXPORT aclError aclrtBinaryLoadFromData(
    const void *data, size_t length, const aclrtBinaryLoadOptions *options, aclrtBinHandle *out) {
    const char *call = "aclrtBinaryLoadFromData";
    SIM_ENTER_CONTEXT(call);
    bool magic = options && options->numOpt == 1 && options->options[0].type == ACL_RT_BINARY_LOAD_OPT_MAGIC &&
                 options->options[0].value.magic == ACL_RT_BINARY_MAGIC_ELF_AICORE;
    if (!magic) return refuse(call, ACL_ERROR_RT_PARAM_INVALID, "the magic of an AI core binary is missing");
    if (!data || length < 4 || std::memcmp(data, "\x7f"
                                                 "ELF",
                                           4)) {
        return refuse(call, ACL_ERROR_RT_PARAM_INVALID, "not an ELF file");
    }
    std::string why;
    void *library = open_library(data, length, why);
    if (!library) return refuse(call, ACL_ERROR_RT_PARAM_INVALID, why);
    auto *binary = new Binary;
    binary->context = current();
    binary->library = library;
    born("binary", binary);
    *out = binary;
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtBinaryGetFunction(aclrtBinHandle handle, const char *kernelName, aclrtFuncHandle *out) {
    const char *call = "aclrtBinaryGetFunction";
    SIM_ENTER_CONTEXT(call);
    auto *binary = static_cast<Binary *>(handle);
    if (!lives("binary", binary) || binary->context != current()) {
        return refuse(call, ACL_ERROR_RT_INVALID_HANDLE, "not a live binary of this context");
    }
    auto *entry = static_cast<const Entry *>(dlsym(binary->library, (std::string("ascend_sim_entry_") + kernelName).c_str()));
    if (!entry) return refuse(call, ACL_ERROR_RT_KERNEL_LOOKUP, std::string("no kernel ") + kernelName);
    auto *function = new Function{binary, entry};
    std::lock_guard<std::mutex> guard(lock);
    functions.insert(function);
    *out = function;
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtBinaryUnLoad(aclrtBinHandle handle) {
    const char *call = "aclrtBinaryUnLoad";
    SIM_ENTER_CONTEXT(call);
    auto *binary = static_cast<Binary *>(handle);
    if (!lives("binary", binary) || binary->context != current()) {
        return refuse(call, ACL_ERROR_RT_INVALID_HANDLE, "not a live binary of this context");
    }
    if (binary->in_flight) return refuse(call, ACL_ERROR_RT_PARAM_INVALID, "a kernel of the binary is in flight");
    {
        std::lock_guard<std::mutex> guard(lock);
        for (auto it = functions.begin(); it != functions.end();) {
            Function *function = *it;
            if (function->binary != binary) {
                ++it;
                continue;
            }
            it = functions.erase(it);
            delete function;
        }
    }
    died("binary", binary);
    dlclose(binary->library);
    delete binary;
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtLaunchKernelWithHostArgs(
    aclrtFuncHandle handle, uint32_t numBlocks, aclrtStream on, aclrtLaunchKernelCfg *cfg, void *hostArgs,
    size_t argsSize, aclrtPlaceHolderInfo *placeHolderArray, size_t placeHolderNum) {
    const char *call = "aclrtLaunchKernelWithHostArgs";
    SIM_ENTER_CONTEXT(call);
    Function *function;
    {
        std::lock_guard<std::mutex> guard(lock);
        auto found = functions.find(static_cast<Function *>(handle));
        if (found == functions.end()) return refuse(call, ACL_ERROR_RT_INVALID_HANDLE, "not a function of a live binary");
        function = *found;
    }
    if (function->binary->context != current()) {
        return refuse(call, ACL_ERROR_RT_INVALID_HANDLE, "a function of another context");
    }
    int code = 0;
    Stream *stream = stream_of(call, on, code);
    if (!stream) return code;
    if (numBlocks < 1 || numBlocks > 65535) return refuse(call, ACL_ERROR_RT_PARAM_INVALID, "number of blocks");
    if (cfg || placeHolderArray || placeHolderNum) {
        return refuse(call, ACL_ERROR_RT_PARAM_INVALID, "a configuration or placeholders no caller here should pass");
    }
    if (!hostArgs || reinterpret_cast<uintptr_t>(hostArgs) % 8) {
        return refuse(call, ACL_ERROR_RT_PARAM_INVALID, "arguments at no address, or not aligned to 8 bytes");
    }
    // The vendor's runtime takes any number of bytes; a kernel that reads others than it was given is a fault found late.
    if (argsSize != 8 * size_t{function->entry->slots}) {
        return refuse(call, ACL_ERROR_RT_PARAM_INVALID,
                      "the kernel takes " + std::to_string(8 * function->entry->slots) + " bytes of arguments, not " +
                          std::to_string(argsSize));
    }
    if (within_allocation("device", hostArgs, argsSize)) {
        return refuse(call, ACL_ERROR_RT_PARAM_INVALID, "arguments in device memory");
    }
    auto *words = static_cast<const uint64_t *>(hostArgs);
    std::vector<uint64_t> arguments(words, words + function->entry->slots);
    // Keeps the binary until the task is destroyed, also one that a graph holds.
    auto keep = std::shared_ptr<Binary>(function->binary, [](Binary *binary) { --binary->in_flight; });
    ++function->binary->in_flight;
    submit(*stream, [arguments, entry = function->entry, numBlocks, keep] {
        if (int fault = task_fault("kernel")) return fault;
        return run_kernel(*entry, arguments, numBlocks);
    });
    return ACL_ERROR_NONE;
}
