// What modelled kernels ask of the model. Every name here has C linkage, so that a kernel's library and the model's may
// come from different runs of the compiler.
#ifndef CUDA_MODEL_RUNTIME
#define CUDA_MODEL_RUNTIME

#include <stddef.h>
#include <stdint.h>

struct ModelDim {
    unsigned x, y, z;
};

// The running thread as its kernel sees it.
struct ModelThread {
    ModelDim thread, block, block_dim, grid_dim;
    unsigned cluster_rank, cluster_size, cluster_number;
};

enum ModelWarpOp {
    MODEL_SYNCWARP,
    MODEL_SHFL,
    MODEL_SHFL_UP,
    MODEL_SHFL_DOWN,
    MODEL_SHFL_XOR,
    MODEL_BALLOT,
    MODEL_ANY,
    MODEL_ALL,
    MODEL_REDUCE_ADD,
    MODEL_REDUCE_MIN,
    MODEL_REDUCE_MAX,
    MODEL_REDUCE_MIN_SIGNED,
    MODEL_REDUCE_MAX_SIGNED,
    MODEL_REDUCE_AND,
    MODEL_REDUCE_OR,
    MODEL_REDUCE_XOR,
    MODEL_MATCH_ANY,
    MODEL_MATCH_ALL,
    // Instructions that a whole warp executes together.
    MODEL_ALIGNED,
};

enum ModelBarrierOp { MODEL_BARRIER, MODEL_BARRIER_OR, MODEL_BARRIER_AND, MODEL_BARRIER_COUNT, MODEL_BARRIER_ARRIVE };

enum ModelStore { MODEL_STORE, MODEL_ADD };

enum ModelFence { MODEL_FENCE_BLOCK, MODEL_FENCE_DEVICE };

#pragma GCC visibility push(default)
extern "C" {
// A collective of the lanes in `mask`; `value` is this lane's, the rest as the operation takes it.
uint64_t model_warp(ModelWarpOp op, unsigned mask, uint64_t value, unsigned argument, unsigned width);
unsigned model_active_lanes();

// Barrier `id` of the block; `count` threads take part, 0 = all of them.
unsigned model_barrier(ModelBarrierOp op, unsigned id, unsigned count, unsigned value);

void model_cluster_arrive(bool release);
void model_cluster_wait(bool acquire);

// Storage of the `site`-th shared variable of a kernel's library, and the launch's dynamic shared memory.
void* model_static_shared(unsigned site, size_t bytes, size_t align, const char* name);
void* model_dynamic_shared(size_t align);
unsigned model_dynamic_shared_bytes();

unsigned model_shared_address(const void* at);
void* model_shared_at(unsigned address);
// The same place in block `rank`'s shared memory, `bytes` (4 or 8) of it. The addition is atomic and gives what was there.
uint64_t model_peer_load(unsigned rank, const void* at, unsigned bytes);
void model_peer_store(unsigned rank, const void* at, unsigned bytes, uint64_t value);
uint64_t model_peer_add(unsigned rank, const void* at, unsigned bytes, uint64_t value);

void model_completion_init(const uint64_t* at, unsigned arrivals);
// Those that this thread has set up become known to the cluster and to the copy engine.
void model_completions_ready();
void model_completion_invalidate(const uint64_t* at);
// Adds `bytes` to what the phase waits for, then arrives `arrivals` times. `rank`: of this cluster's block, -1 = own.
void model_completion_arrive(int rank, const uint64_t* at, unsigned bytes, unsigned arrivals);
bool model_completion_test(const uint64_t* at, unsigned parity);
void model_completion_wait(const uint64_t* at, unsigned parity);

// Asynchronous: `bytes` (4 or 8) into block `rank`'s memory, counted by its completion.
void model_push(unsigned rank, const void* at, uint64_t value, unsigned bytes, ModelStore how, const uint64_t* completion);
// Asynchronous: from global memory into this block's memory.
void model_bulk_copy(void* to, uint64_t from, unsigned bytes, const uint64_t* completion);
// Asynchronous: from this block's memory into block `rank`'s.
void model_bulk_to_peer(unsigned rank, const void* to, const void* from, unsigned bytes, const uint64_t* completion);

void model_fence(ModelFence how);
// An atomic operation on `at` is about to happen: a place to go on with another thread.
void model_atomic(const void* at, unsigned bytes);
void model_inputs_awaited();
void model_pause();
[[noreturn]] void model_trap(const char* why);
float model_add_directed(float a, float b, int direction);
}
#pragma GCC visibility pop

#endif
