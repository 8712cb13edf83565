// The model's own state: a launch, its clusters, blocks, warps and threads.
#ifndef CUDA_MODEL
#define CUDA_MODEL

#include "clock.h"
#include "runtime.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace model {

typedef uint32_t u32;
typedef uint64_t u64;

struct Block;
struct Cluster;
struct Warp;

constexpr u32 WARP = 32;
// Largest dynamic shared memory of a block of sm_90, and what all of a block's may add up to.
constexpr size_t MAX_DYNAMIC = 227 << 10;

enum Wait { RUNNING, IN_WARP, AT_BARRIER, AT_CLUSTER, AT_COMPLETION, EXITED };

struct Thread : ModelThread {
    // Where a thread that does not run left off.
    void* stack_pointer = nullptr;
    Block* in_block = nullptr;
    Warp* warp = nullptr;
    u32 lane = 0, index = 0;
    Wait wait = RUNNING;
    // What it waits for, in words and for the scheduler.
    const char* what = "";
    u32 what_number = 0;
    const void* what_at = nullptr;
    // What the operation it waited for gave it.
    u64 result = 0;
    // Arrivals at the cluster's barrier that were not waited for.
    bool cluster_arrived = false;
    u64 cluster_phase = 0;
    bool inputs_awaited = false;
    // Number over the launch, and where its stack begins.
    u32 number = 0;
    unsigned char* stack = nullptr;
    // When it last touched memory, and when it arrived at the cluster's barrier.
    u32 touched = 0, arrived = 0;
    // What it knows of the others; what its last fence will tell them by an atomic operation, and what its next fence
    // makes known of what such operations said.
    ClockPtr known, fenced, heard;
    // What its fence for completions it set up lets the cluster know at the next barrier; what it knows of others' so.
    ClockPtr readied, set_up;
};

// A collective some of whose lanes have arrived.
struct Rendezvous {
    bool open = false;
    ModelWarpOp op;
    u32 mask = 0, arrived = 0;
    u64 value[WARP];
    u32 argument[WARP], width[WARP];
    Gathered gathered;
};

struct Warp {
    Block* block = nullptr;
    Thread* lane[WARP] = {};
    u32 index = 0, number = 0, alive = 0, ready = 0;
    bool queued = false;
    u32 priority = 0;
    Rendezvous meeting[WARP];
};

struct Barrier {
    ModelBarrierOp op = MODEL_BARRIER;
    u32 expected = 0, arrived = 0, any = 0, all = 1, count = 0;
    std::vector<Thread*> waiting;
    Gathered gathered, heard;
};

// An mbarrier. Its 8 bytes in shared memory hold `tag`, so that a kernel that overwrites them is found out.
struct Completion {
    u64* at;
    u64 tag;
    Thread* by;
    bool ready;
    u32 arrivals, pending;
    int64_t bytes = 0;
    u64 phase = 0;
    std::vector<Thread*> waiting;
    // Threads let go by the last phase that have not run since.
    std::vector<Thread*> let_go;
    // Number over the launch; what the arrivals of this phase know, and knew of the last one.
    u32 number = 0;
    Gathered gathered;
    ClockPtr released;
};

// One side of what was done to a word: by whom, when, to which of its bytes, where in the kernel.
struct Access {
    u32 author = 0, moment = 0, place = 0;
    unsigned char bytes = 0, atomic = 0;
};

struct Cell {
    Access write[3], read[4];
    unsigned char written = 0;
};

struct Block {
    Cluster* cluster = nullptr;
    u32 rank = 0, number = 0, alive = 0;
    unsigned char* window = nullptr;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    Barrier barriers[16];
    std::map<const u64*, Completion> completions;
    // Who wrote and read each word of the window.
    std::vector<Cell> cells, dynamic_cells;
    // Asynchronous work into or out of this block's memory that has not been done.
    u32 in_flight = 0;
};

// Work of the copy engine, or of a push, that is under way.
struct Async {
    enum Kind { PUSH, COPY_IN, COPY_TO_PEER } kind;
    Block *from, *to;
    Thread* by;
    unsigned char* at;
    const unsigned char* source;
    u64 value;
    u32 bytes;
    ModelStore how;
    const u64* completion;
    // What its thread knew when it began, when that was, and where.
    ClockPtr known;
    u32 moment, place;
};

struct Cluster {
    u32 number = 0, alive = 0;
    std::vector<Block> blocks;
    // The cluster's barrier.
    u64 phase = 0;
    u32 arrived = 0;
    std::vector<Thread*> waiting;
    Gathered gathered, readied;
    u32 releases = 0;
    ClockPtr released, set_up;
};

struct Site {
    size_t offset, bytes;
    const char* name;
};

// A compiled kernel's file, and where it lies in memory; whether its accesses are reported.
struct Library {
    std::string path;
    unsigned char *begin = nullptr, *end = nullptr;
    bool checked = false;
};

struct Launch {
    const char* kernel;
    void (*entry)(void**);
    void** params;
    const ModelThread** self;
    const Library* library;
    ModelDim grid, block;
    u32 smem, cluster;
    // Whether the launch may have begun before the one ahead of it ended.
    bool overlaps = false;
};

// Runs a launch to its end. An empty text, or what went wrong.
std::string run(const Launch& launch);

// The launch that runs, and the thread of it that does.
struct Run;
extern Run* now;
extern Thread* self;

struct Failed {};

// Ends the launch with this report; called by a kernel's thread.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Numbers that decide what runs next.
struct Random {
    u64 state;
    u64 next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state * 0x2545F4914F6CDD1Dull;
    }
    u32 below(u32 n) { return (u32)((next() >> 32) * n >> 32); }
    bool one_in(u32 n) { return below(n) == 0; }
};

struct Run {
    const Launch& launch;
    Random random;
    u64 seed;
    u32 policy, eagerness;
    std::vector<std::unique_ptr<Cluster>> resident;
    std::vector<u32> to_come;
    std::vector<Warp*> ready;
    std::vector<Async> flying;
    // Shared variables of the kernel, in the order of their numbers; offset 0 = not met yet.
    std::vector<Site> sites;
    size_t static_bytes = 0;
    std::string report;
    // Turns given, and given since a thread last ended.
    u64 turns = 0, idle_turns = 0;
    // Whether accesses are reported; the moment, and how many completions there were.
    bool checked = false;
    u32 moment = 1, completions = 0;
    explicit Run(const Launch& l) : launch(l) {}
};

// Says that `thread` may go on.
void wake(Thread* thread);
// Lets others run until this thread is woken.
void sleep(Wait why, const char* what, u32 number, const void* at);
// Lets others run for a while.
void yield();
// A thread has come to its end.
void warp_lost(Warp* warp, Thread* thread);
void barrier_lost(Block* block);
void cluster_lost(Cluster* cluster);

// Shared memory.
unsigned char* window_take(u32 smem);
void window_give(unsigned char* window);
void window_check(const Block& block);
// Whether these bytes lie in the block's shared memory.
bool in_shared(const Block& block, const void* at, size_t bytes);
// The same place in another block of the cluster.
unsigned char* at_peer(u32 rank, const void* at, size_t bytes, const char* what, Block** peer);
Completion& completion_of(Block& block, const u64* at, const char* what);
void deliver(Run& run, size_t which);
void check_completions(Block& block);

// Where the window of a block is in use.
constexpr size_t WINDOW = 512 << 10;
size_t dynamic_at();
constexpr size_t STACK_BYTES = 64 << 10;
void accesses_reset();

// Knowledge handed on, where accesses are checked; see clock.h.
void tell(Gathered& to, Thread* thread);
void learn(Thread* thread, const ClockPtr& clock);
// The running thread uses a completion: after it was set up.
void used(Block& block, const u64* at, u32 place);
// An access by the running thread, or by what it began earlier.
void touched(const void* at, size_t bytes, bool writes, bool atomic, u32 place);
void touched_peer(Block& peer, const void* at, size_t bytes, bool writes, bool atomic, u32 place);
void arrived(const Async& a, u32 completion, u32 phases);
// A place in the kernel's code, and what the compiler knows of it.
u32 place_of(const void* code);
std::string lines(const std::vector<u32>& places);
// The calls in the kernel that led to where a thread is.
std::vector<u32> calls_of(const Thread& thread);
std::vector<u32> calls_of(const void* frame, const Thread& thread);
std::string where(const Thread& thread);
void catch_faults();

// Device memory. Whether these bytes lie in one allocation, and what is nearest otherwise.
void* device_alloc(size_t bytes);
// Empty, or what is wrong.
std::string device_free(u64 at);
bool in_device_memory(u64 at, u64 bytes);
std::string describe_device(u64 at);
// The allocation that holds `at`, or an empty range.
void device_range(u64 at, u64* from, u64* to);

// A kernel of a compiled library.
struct Kernel {
    std::string name;
    void (*entry)(void**);
    const ModelThread** self;
    const u32* sizes;
    const Library* library;
    u32 most_threads;
    u32 dynamic_allowed = 48 << 10;
    bool large_clusters = false;
};

// The text of one translation unit, compiled when a kernel of it is first launched.
struct Module;
Module* module_load(const char* image);
void module_unload(Module* module);
// Null where there is no such kernel; `why` says what the compiler had to say.
Kernel* module_kernel(Module* module, const char* name);
bool kernel_ready(Module* module, Kernel* kernel, std::string* why);

} // namespace model

#endif
