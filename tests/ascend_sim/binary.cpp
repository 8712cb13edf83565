// Test double: kernel binaries and launches of the simulated runtime. A binary is a shared library that the simulated
// aclrtc made; a kernel runs on its stream's thread, block after block.
#include "sim.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <unistd.h>

namespace {

struct Entry {
    uint32_t slots;
    void (*run)(const uint64_t *, uint32_t, uint32_t);
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
        bool ran = guarded([&] {
            for (uint32_t block = 0; block < numBlocks; ++block) entry->run(arguments.data(), block, numBlocks);
        });
        return ran ? 0 : int{ACL_ERROR_RT_VECTOR_CORE_EXCEPTION};
    });
    return ACL_ERROR_NONE;
}
