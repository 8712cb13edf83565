// Test double: initialisation, devices and contexts of the simulated runtime.
#include "sim.h"

#include <cstring>

namespace {

constexpr int DEVICES = 8;

std::mutex lock;
std::atomic<bool> initialised{false};
// Default contexts, made when a device is first set, alive while it has references.
sim::Context *defaults[DEVICES];

thread_local sim::Context *mine = nullptr;

int device_count() { return std::stoi(sim::setting("DEVICES", "2")); }

void reference(int device, bool take) {
    // One object a reference, for the count of what lives.
    static char marks[DEVICES][1024];
    int &count = defaults[device]->references;
    if (take) {
        sim::born("device", &marks[device][count++ % 1024]);
    } else {
        sim::died("device", &marks[device][--count % 1024]);
    }
}

} // namespace

namespace sim {
Context *current() { return mine && lives("context", mine) ? mine : nullptr; }
} // namespace sim

using namespace sim;

SIM_EXPORT aclError aclInit(const char *configPath) {
    SIM_ENTER("aclInit");
    if (configPath) return refuse("aclInit", ACL_ERROR_INVALID_PARAM, "no configuration is known here");
    if (initialised.exchange(true)) return refuse("aclInit", ACL_ERROR_REPEAT_INITIALIZE, "initialised before");
    return ACL_ERROR_NONE;
}

SIM_EXPORT const char *aclGetRecentErrMsg() {
    if (enter("aclGetRecentErrMsg")) {
        take_message();
        return nullptr;
    }
    return take_message();
}

SIM_EXPORT aclError aclsysGetVersionNum(char *pkgName, int32_t *versionNum) {
    SIM_ENTER("aclsysGetVersionNum");
    if (std::strcmp(pkgName, "runtime")) {
        return refuse("aclsysGetVersionNum", ACL_ERROR_INVALID_PARAM, "the package is not installed");
    }
    *versionNum = std::stoi(setting("VERSION", "80500000"));
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclsysGetVersionStr(char *pkgName, char *versionStr) {
    SIM_ENTER("aclsysGetVersionStr");
    if (std::strcmp(pkgName, "runtime")) {
        return refuse("aclsysGetVersionStr", ACL_ERROR_INVALID_PARAM, "the package is not installed");
    }
    std::strncpy(versionStr, setting("VERSION_TEXT", "8.5.0").c_str(), ACL_PKG_VERSION_MAX_SIZE);
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtGetDeviceCount(uint32_t *count) {
    SIM_ENTER("aclrtGetDeviceCount");
    if (!initialised) return refuse("aclrtGetDeviceCount", ACL_ERROR_UNINITIALIZE, "aclInit was not called");
    *count = static_cast<uint32_t>(device_count());
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtSetDevice(int32_t deviceId) {
    SIM_ENTER("aclrtSetDevice");
    if (deviceId < 0 || deviceId >= device_count()) {
        return refuse("aclrtSetDevice", ACL_ERROR_RT_INVALID_DEVICEID, "there is no such device");
    }
    std::lock_guard<std::mutex> guard(lock);
    Context *&context = defaults[deviceId];
    if (!context) {
        context = new Context;
        context->device = deviceId;
        born("context", context);
        context->default_stream = new Stream(context);
    }
    reference(deviceId, true);
    mine = context;
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtResetDevice(int32_t deviceId) {
    SIM_ENTER("aclrtResetDevice");
    std::lock_guard<std::mutex> guard(lock);
    if (deviceId < 0 || deviceId >= DEVICES || !defaults[deviceId]) {
        return refuse("aclrtResetDevice", ACL_ERROR_RT_INVALID_DEVICEID, "the device is not set");
    }
    reference(deviceId, false);
    if (defaults[deviceId]->references == 0) {
        Context *context = defaults[deviceId];
        defaults[deviceId] = nullptr;
        delete context->default_stream;
        died("context", context);
        // The context itself stays: a thread may still have its address as the current one.
        context->default_stream = nullptr;
    }
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtGetCurrentContext(aclrtContext *context) {
    SIM_ENTER("aclrtGetCurrentContext");
    // Nothing says that a thread forgets a context which has ended: a setting makes it remember.
    if (mine && !current() && setting("REMEMBERS", "0") == "1") {
        *context = mine;
        return ACL_ERROR_NONE;
    }
    if (!current()) return refuse("aclrtGetCurrentContext", ACL_ERROR_RT_CONTEXT_NULL, "no device is set on this thread");
    *context = current();
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtSetCurrentContext(aclrtContext context) {
    SIM_ENTER("aclrtSetCurrentContext");
    if (!lives("context", context)) {
        return refuse("aclrtSetCurrentContext", ACL_ERROR_RT_CONTEXT_NULL, "there is no such context");
    }
    mine = static_cast<Context *>(context);
    return ACL_ERROR_NONE;
}

// A context beside the default one, as a stack may make; current afterwards.
SIM_EXPORT void *ascend_sim_foreign_context(int device) {
    Context *context = new Context;
    context->device = device;
    born("context", context);
    context->default_stream = new Stream(context);
    return mine = context;
}

SIM_EXPORT void ascend_sim_destroy_foreign_context(void *raw) {
    Context *context = static_cast<Context *>(raw);
    died("context", context);
    delete context->default_stream;
    delete context;
}

// The context of this thread, null for none.
SIM_EXPORT void *ascend_sim_current_context() { return current(); }

SIM_EXPORT const char *aclrtGetSocName() {
    if (enter("aclrtGetSocName")) return nullptr;
    thread_local std::string name;
    name = setting("SOC", "Ascend910B3");
    return name.c_str();
}

SIM_EXPORT aclError aclrtGetDeviceInfo(uint32_t deviceId, aclrtDevAttr attr, int64_t *value) {
    SIM_ENTER("aclrtGetDeviceInfo");
    if (deviceId >= static_cast<uint32_t>(device_count()) || attr != ACL_DEV_ATTR_VECTOR_CORE_NUM) {
        return refuse("aclrtGetDeviceInfo", ACL_ERROR_RT_PARAM_INVALID, "no such device or attribute");
    }
    *value = std::stoll(setting("VECTOR_CORES", "48"));
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t *value) {
    SIM_ENTER("aclGetDeviceCapability");
    if (deviceId >= static_cast<uint32_t>(device_count()) || deviceInfo != ACL_DEVICE_INFO_VECTOR_CORE_NUM) {
        return refuse("aclGetDeviceCapability", ACL_ERROR_RT_PARAM_INVALID, "no such device or attribute");
    }
    *value = std::stoll(setting("VECTOR_CORES", "48"));
    return ACL_ERROR_NONE;
}

SIM_EXPORT aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total) {
    SIM_ENTER_CONTEXT("aclrtGetMemInfo");
    if (attr != ACL_HBM_MEM) return refuse("aclrtGetMemInfo", ACL_ERROR_RT_PARAM_INVALID, "no such memory");
    *total = size_t{64} << 30;
    *free = *total / 2;
    return ACL_ERROR_NONE;
}
