// Modules, functions and launches of the driver.

#include "driver.h"

#include <cstdio>
#include <cstring>
#include <mutex>

using namespace model;

namespace {

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
        snprintf(text, sizeof text, "%u bytes of dynamic shared memory; the function allows %u", l.smem,
                 kernel.dynamic_allowed);
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

} // namespace

#pragma GCC visibility push(default)
extern "C" {

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
            if (a.value.cluster[1] != 1 || a.value.cluster[2] != 1)
                return wrong(INVALID_VALUE, "cuda model: clusters of more than one dimension");
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
    for (u32 i = 0; which->kernel->sizes[i] != 0; i++)
        copies.emplace_back((char*)params[i], (char*)params[i] + which->kernel->sizes[i]);
    return on(config->stream, [=] { return launch_now(which, launch, copies); });
}
}
#pragma GCC visibility pop
