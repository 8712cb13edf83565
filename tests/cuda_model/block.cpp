// Barriers of a block and of a cluster.

#include "model.h"

#include <algorithm>

namespace model {
namespace {

const char* name_of(ModelBarrierOp op) {
    static const char* const names[] = {"__syncthreads", "__syncthreads_or", "__syncthreads_and", "__syncthreads_count",
                                        "a barrier's arrival"};
    return names[op];
}

u32 result_of(const Barrier& b) {
    switch (b.op) {
    case MODEL_BARRIER_OR: return b.any;
    case MODEL_BARRIER_AND: return b.all;
    case MODEL_BARRIER_COUNT: return b.count;
    default: return 0;
    }
}

void finish(Block& block, Barrier& b) {
    u32 result = result_of(b);
    ClockPtr known, heard;
    if (now->checked) {
        if (b.expected == 0) b.gathered.add_block(block.number, now->moment++);
        known = b.gathered.take();
        heard = b.heard.take();
    }
    for (Thread* thread : b.waiting) {
        thread->result = result;
        if (now->checked) {
            thread->known = known;
            thread->heard = heard;
        }
        if (thread != self) wake(thread);
    }
    b = Barrier();
}

// What the threads that arrived had done: all of a block's as one, where that is no more than they had done.
void gather_releases(Cluster& cluster) {
    for (Block& block : cluster.blocks) {
        bool all = cluster.releases == cluster.alive;
        for (const Thread& thread : block.threads) all = all && (thread.wait == EXITED || thread.touched <= thread.arrived);
        if (all) {
            cluster.gathered.add_block(block.number, now->moment++);
            continue;
        }
        for (const Thread& thread : block.threads)
            if (thread.arrived != 0 && thread.wait != EXITED) cluster.gathered.add_thread(thread.number, thread.arrived);
    }
}

void finish(Cluster& cluster) {
    cluster.phase++;
    cluster.arrived = 0;
    if (now->checked) {
        gather_releases(cluster);
        cluster.released = cluster.gathered.take();
        cluster.set_up = cluster.readied.take();
        cluster.releases = 0;
    }
    std::vector<Thread*> waiting;
    waiting.swap(cluster.waiting);
    for (Thread* thread : waiting) wake(thread);
}

} // namespace

void barrier_lost(Block* block) {
    // Threads that have ended do not count at the barrier of all threads.
    Barrier& b = block->barriers[0];
    if (b.arrived != 0 && b.expected == 0 && b.arrived == block->alive) finish(*block, b);
}

void cluster_lost(Cluster* cluster) {
    // The one that ends may have arrived before, and then counts as one of the arrived.
    if (self->cluster_arrived && self->cluster_phase == cluster->phase && cluster->arrived > 0) cluster->arrived--;
    if (cluster->alive != 0 && cluster->arrived == cluster->alive) finish(*cluster);
}

} // namespace model

using namespace model;

extern "C" unsigned model_barrier(ModelBarrierOp op, unsigned id, unsigned count, unsigned value) {
    Block& block = *self->in_block;
    if (id >= 16) fail("barrier %u; there are 16", id);
    if (count % WARP != 0 || count > block.threads.size())
        fail("barrier %u of %u threads, in a block of %zu", id, count, block.threads.size());
    Barrier& b = block.barriers[id];
    bool arrives = op == MODEL_BARRIER_ARRIVE;
    if (arrives && count == 0) fail("an arrival at barrier %u without a number of threads", id);
    ModelBarrierOp kind = arrives ? MODEL_BARRIER : op;
    if (b.arrived == 0) {
        b.op = kind;
        b.expected = count;
    } else {
        if (b.op != kind) fail("%s, while others of its block wait at barrier %u in %s", name_of(op), id, name_of(b.op));
        if (b.expected != count) fail("barrier %u of %u threads, while others wait there for %u", id, count, b.expected);
    }
    b.arrived++;
    b.any |= value;
    b.all &= value;
    b.count += value;
    if (now->checked) {
        // Where all come, what is known of the block in the end covers each of them.
        b.gathered.add(self->known);
        if (count != 0) tell(b.gathered, self);
        b.heard.add(self->heard);
    }
    if (!arrives) b.waiting.push_back(self);
    u32 wanted = count == 0 ? block.alive : count;
    if (b.arrived == wanted) {
        finish(block, b);
        return arrives ? 0 : (unsigned)self->result;
    }
    if (arrives) return 0;
    sleep(AT_BARRIER, id == 0 ? name_of(op) : "barrier", id, nullptr);
    return (unsigned)self->result;
}

extern "C" void model_cluster_arrive(bool release) {
    Cluster& cluster = *self->in_block->cluster;
    // The warp executes the instruction together.
    model_warp(MODEL_ALIGNED, 0xffffffffu, 0, 0, 32);
    if (self->cluster_arrived) fail("arrives at the cluster's barrier again without having waited");
    self->cluster_arrived = true;
    self->cluster_phase = cluster.phase;
    self->arrived = 0;
    if (release && now->checked) {
        self->arrived = now->moment++;
        cluster.gathered.add(self->known);
        cluster.releases++;
    }
    cluster.readied.add(self->readied);
    if (++cluster.arrived == cluster.alive) finish(cluster);
}

extern "C" void model_cluster_wait(bool acquire) {
    Cluster& cluster = *self->in_block->cluster;
    model_warp(MODEL_ALIGNED, 0xffffffffu, 0, 0, 32);
    if (!self->cluster_arrived) fail("waits at the cluster's barrier without having arrived");
    self->cluster_arrived = false;
    if (self->cluster_phase == cluster.phase) {
        cluster.waiting.push_back(self);
        sleep(AT_CLUSTER, "the cluster's barrier", 0, nullptr);
    }
    if (acquire && now->checked) {
        learn(self, cluster.released);
        self->set_up = joined(self->set_up, cluster.set_up);
    }
}
