/* A CUDA driver without a GPU: device memory is host memory, kernels do nothing, every call is counted, and a call
 * that needs the primary context fails unless it is current. Shaped by the environment of the process. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
enum { INVALID_VALUE = 1, INVALID_CONTEXT = 201, NOT_READY = 600, CAPTURING = 900 };
#define PRIMARY ((void *)0x9900)

static struct { const char *name; long count; } calls[128];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void count(const char *name) {
    pthread_mutex_lock(&lock);
    int i = 0;
    while (calls[i].name && strcmp(calls[i].name, name)) i++;
    calls[i].name = name;
    calls[i].count++;
    pthread_mutex_unlock(&lock);
}

/* For the test: how often `name` was called. */
long fake_count(const char *name) {
    long n = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; calls[i].name; i++)
        if (!strcmp(calls[i].name, name)) n = calls[i].count;
    pthread_mutex_unlock(&lock);
    return n;
}

static int setting(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static __thread void *stack[8];
static __thread int depth;
static void *current(void) { return depth ? stack[depth - 1] : NULL; }

#define COUNT count(__func__)
#define NEED_CONTEXT do { COUNT; if (current() != PRIMARY) return INVALID_CONTEXT; } while (0)

Result cuDriverGetVersion(int *version) { COUNT; *version = setting("FAKE_VERSION", 13000); return 0; }
Result cuGetErrorName(Result code, const char **text) {
    *text = code == 100 ? "CUDA_ERROR_NO_DEVICE" : code == 222 ? "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" : "FAKE_ERROR";
    return 0;
}
Result cuGetErrorString(Result code, const char **text) { (void)code; *text = "as told by the fake"; return 0; }
Result cuInit(unsigned flags) { COUNT; return flags ? INVALID_VALUE : setting("FAKE_INIT", 0); }
Result cuDeviceGetCount(int *n) { COUNT; *n = 1; return 0; }
Result cuDeviceGet(int *device, int ordinal) { COUNT; *device = ordinal; return 0; }
Result cuDeviceGetName(char *name, int len, int device) { (void)device; COUNT; snprintf(name, len, "Fake GPU"); return 0; }
Result cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; COUNT; *bytes = (size_t)1 << 30; return 0; }
Result cuDeviceGetAttribute(int *value, int which, int device) {
    (void)device;
    COUNT;
    switch (which) {
    case 75: *value = setting("FAKE_MAJOR", 9); return 0;
    case 76: *value = setting("FAKE_MINOR", 0); return 0;
    case 16: *value = 132; return 0;
    case 97: *value = 232448; return 0;
    case 38: *value = 50 << 20; return 0;
    default: *value = 0; return 0;
    }
}

static long retained;
long fake_retained(void) { return retained; }
Result cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; COUNT; retained++; *context = PRIMARY; return 0; }
Result cuDevicePrimaryCtxRelease_v2(int device) { (void)device; COUNT; return --retained < 0 ? INVALID_CONTEXT : 0; }
Result cuCtxGetCurrent(void **context) { COUNT; *context = current(); return 0; }
Result cuCtxPushCurrent_v2(void *context) { COUNT; stack[depth++] = context; return 0; }
Result cuCtxPopCurrent_v2(void **context) { COUNT; if (!depth) return INVALID_CONTEXT; *context = stack[--depth]; return 0; }

Result cuMemAlloc_v2(uint64_t *ptr, size_t bytes) {
    NEED_CONTEXT;
    if (bytes > (size_t)1 << 30) return 2;
    *ptr = (uint64_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
    return 0;
}
Result cuMemFree_v2(uint64_t ptr) { NEED_CONTEXT; free((void *)ptr); return 0; }
Result cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags) {
    NEED_CONTEXT;
    (void)flags;
    *ptr = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return 0;
}
Result cuMemFreeHost(void *ptr) { NEED_CONTEXT; free(ptr); return 0; }
Result cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t n, void *s) { (void)s; NEED_CONTEXT; memcpy((void *)dst, src, n); return 0; }
Result cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t n, void *s) { (void)s; NEED_CONTEXT; memcpy(dst, (void *)src, n); return 0; }
Result cuMemsetD8Async(uint64_t dst, unsigned char v, size_t n, void *s) { (void)s; NEED_CONTEXT; memset((void *)dst, v, n); return 0; }

struct stream { int capturing, mode; long launches; };
static struct stream default_stream;
static struct stream *of(void *s) { return s ? s : &default_stream; }
Result cuStreamCreate(void **s, unsigned flags) {
    NEED_CONTEXT;
    if (flags != 1) return INVALID_VALUE;
    *s = calloc(1, sizeof(struct stream));
    return 0;
}
Result cuStreamDestroy_v2(void *s) { NEED_CONTEXT; free(s); return 0; }
Result cuStreamSynchronize(void *s) { NEED_CONTEXT; return of(s)->capturing ? CAPTURING : 0; }
Result cuStreamIsCapturing(void *s, int *status) { NEED_CONTEXT; *status = of(s)->capturing; return 0; }
Result cuStreamBeginCapture_v2(void *s, int mode) {
    NEED_CONTEXT;
    if (!s || of(s)->capturing) return CAPTURING;
    of(s)->capturing = 1;
    of(s)->mode = mode;
    return 0;
}
Result cuStreamEndCapture(void *s, void **graph) {
    NEED_CONTEXT;
    if (!of(s)->capturing) return CAPTURING;
    of(s)->capturing = 0;
    *graph = malloc(1);
    return 0;
}
/* For the test: the mode of the stream's last capture. */
int fake_capture_mode(void *s) { return of(s)->mode; }
long fake_stream_launches(void *s) { return of(s)->launches; }

Result cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) { (void)graph; NEED_CONTEXT; *exec = malloc(1); return (Result)flags; }
Result cuGraphLaunch(void *exec, void *s) { (void)exec; (void)s; NEED_CONTEXT; return 0; }
Result cuGraphExecDestroy(void *exec) { NEED_CONTEXT; free(exec); return 0; }
Result cuGraphDestroy(void *graph) { NEED_CONTEXT; free(graph); return 0; }

Result cuEventCreate(void **event, unsigned flags) { (void)flags; NEED_CONTEXT; *event = malloc(1); return 0; }
Result cuEventDestroy_v2(void *event) { NEED_CONTEXT; free(event); return 0; }
Result cuEventRecord(void *event, void *s) { (void)event; (void)s; NEED_CONTEXT; return 0; }
Result cuEventQuery(void *event) { (void)event; NEED_CONTEXT; return setting("FAKE_EVENTS_PENDING", 0) ? NOT_READY : 0; }
Result cuEventSynchronize(void *event) { (void)event; NEED_CONTEXT; return 0; }
Result cuEventElapsedTime(float *ms, void *a, void *b) { (void)a; (void)b; NEED_CONTEXT; *ms = 1.5f; return 0; }

Result cuModuleLoadData(void **module, const void *image) { NEED_CONTEXT; (void)image; *module = malloc(1); return setting("FAKE_LOAD", 0); }
Result cuModuleUnload(void *module) { NEED_CONTEXT; free(module); return 0; }
Result cuModuleGetFunction(void **function, void *module, const char *name) { (void)module; NEED_CONTEXT; *function = (void *)name; return 0; }
Result cuFuncGetAttribute(int *value, int which, void *function) { (void)which; (void)function; NEED_CONTEXT; *value = 0; return 0; }
Result cuFuncSetAttribute(void *function, int which, int value) { (void)which; (void)function; NEED_CONTEXT; return value < 0 ? INVALID_VALUE : 0; }

struct config { unsigned grid[3], block[3], smem; struct stream *stream; void *attrs; unsigned attr_count; };
struct attribute { int id, pad; unsigned value[16]; };
/* Blocks of a cluster, from the launch attribute with number 4; 1 without it. */
static unsigned cluster_of(const struct config *config) {
    const struct attribute *attributes = config->attrs;
    for (unsigned i = 0; i < config->attr_count; i++)
        if (attributes[i].id == 4) return attributes[i].value[0];
    return 1;
}
Result cuOccupancyMaxActiveClusters(int *clusters, void *function, const struct config *config) {
    NEED_CONTEXT;
    if (!function || config->grid[0] != cluster_of(config)) return INVALID_VALUE;
    *clusters = cluster_of(config) <= (unsigned)setting("FAKE_LARGEST_CLUSTER", 16);
    return 0;
}

static unsigned largest_cluster, overlapped;
/* For the test: the largest cluster launched, and the launches that may overlap the one before. */
long fake_largest_cluster(void) { return largest_cluster; }
long fake_overlapped(void) { return overlapped; }

#ifndef LACK_LAUNCH
Result cuLaunchKernelEx(const struct config *config, void *function, void **params, void **extra) {
    NEED_CONTEXT;
    if (!function || extra || !params[0] || !params[1] || config->attr_count > 2) return INVALID_VALUE;
    for (int i = 0; i < 3; i++)
        if (!config->grid[i] || !config->block[i]) return INVALID_VALUE;
    if (cluster_of(config) > (unsigned)setting("FAKE_LARGEST_CLUSTER", 16)) return 912;
    if (cluster_of(config) > largest_cluster) largest_cluster = cluster_of(config);
    const struct attribute *attributes = config->attrs;
    for (unsigned i = 0; i < config->attr_count; i++) overlapped += attributes[i].id == 6;
    of(config->stream)->launches++;
    return 0;
}
#endif
