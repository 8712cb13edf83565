// Which thread runs next. A seed decides: at random, by priorities that change now and then, or with one block or warp
// far behind the others, so that an order nobody thought of comes up.

#include "fiber.h"
#include "model.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace model {

Run* now = nullptr;
Thread* self = nullptr;

namespace {

void* scheduler = nullptr;

u64 setting(const char* name, u64 otherwise) {
    const char* text = getenv(name);
    return text && *text ? strtoull(text, nullptr, 0) : otherwise;
}

enum Policy { AT_RANDOM, BY_PRIORITY, ONE_BEHIND, BLOCKS_APART, POLICIES };

// Turns after which everybody gets a chance, and after which nobody is thought to come to an end.
constexpr u64 FAIR = 1 << 14, ENDLESS = 1 << 27;

// Most threads that are alive at a time, where a cluster does not have more.
constexpr u32 MOST_THREADS = 4096;

void body() {
    now->launch.entry(now->launch.params);
    Thread* thread = self;
    thread->wait = EXITED;
    now->idle_turns = 0;
    Block* block = thread->in_block;
    block->alive--;
    block->cluster->alive--;
    thread->warp->alive &= ~(1u << thread->lane);
    warp_lost(thread->warp, thread);
    barrier_lost(block);
    cluster_lost(block->cluster);
    if (block->alive == 0) check_completions(*block);
    switch_to(&thread->stack_pointer, scheduler);
    abort();
}

// Runs a thread until it waits, yields or ends.
void go_on(Thread* thread) {
    self = thread;
    *now->launch.self = thread;
    switch_to(&scheduler, thread->stack_pointer);
    self = nullptr;
}

u32 priority_of(Run& run, const Warp& warp) {
    u32 own = run.random.below(1u << 16);
    if (run.policy == BLOCKS_APART)
        own += warp.block->cluster->blocks.size() > 1 ? (warp.block->rank * 7919u + (u32)run.seed) % 64 << 16 : 0;
    return own + 1;
}

size_t admit(Run& run, size_t first_stack) {
    const Launch& launch = run.launch;
    u32 threads = launch.block.x * launch.block.y * launch.block.z;
    u32 number = run.to_come.back();
    run.to_come.pop_back();
    auto cluster = std::make_unique<Cluster>();
    cluster->number = number;
    cluster->alive = threads * launch.cluster;
    cluster->blocks = std::vector<Block>(launch.cluster);
    for (u32 rank = 0; rank < launch.cluster; rank++) {
        Block& block = cluster->blocks[rank];
        block.cluster = cluster.get();
        block.rank = rank;
        block.number = number * launch.cluster + rank;
        block.alive = threads;
        block.window = window_take(launch.smem);
        block.threads = std::vector<Thread>(threads);
        block.warps = std::vector<Warp>((threads + WARP - 1) / WARP);
        for (u32 i = 0; i < threads; i++) {
            Thread& thread = block.threads[i];
            Warp& warp = block.warps[i / WARP];
            thread.thread = {i % launch.block.x, i / launch.block.x % launch.block.y, i / (launch.block.x * launch.block.y)};
            thread.block = {block.number % launch.grid.x, block.number / launch.grid.x % launch.grid.y,
                            block.number / (launch.grid.x * launch.grid.y)};
            thread.block_dim = launch.block;
            thread.grid_dim = launch.grid;
            thread.cluster_rank = rank;
            thread.cluster_size = launch.cluster;
            thread.cluster_number = number;
            thread.in_block = &block;
            thread.warp = &warp;
            thread.lane = i % WARP;
            thread.index = i;
            thread.number = block.number * threads + i;
            thread.stack = stack_of(first_stack++);
            thread.stack_pointer = prepare_stack(thread.stack, body);
            warp.block = &block;
            warp.index = i / WARP;
            warp.number = block.number * (u32)block.warps.size() + i / WARP;
            warp.lane[thread.lane] = &thread;
            warp.alive |= 1u << thread.lane;
            warp.ready |= 1u << thread.lane;
        }
        for (Warp& warp : block.warps) {
            warp.priority = priority_of(run, warp);
            warp.queued = true;
            run.ready.push_back(&warp);
        }
        if (run.policy == ONE_BEHIND && run.random.one_in(launch.cluster))
            block.warps[run.random.below((u32)block.warps.size())].priority = 0;
    }
    run.resident.push_back(std::move(cluster));
    return first_stack;
}

size_t pick(Run& run) {
    if (run.policy == AT_RANDOM) return run.random.below((u32)run.ready.size());
    size_t best = 0;
    for (size_t i = 1; i < run.ready.size(); i++)
        if (run.ready[i]->priority > run.ready[best]->priority) best = i;
    Warp* warp = run.ready[best];
    if (warp->priority != 0 && run.random.one_in(64)) warp->priority = priority_of(run, *warp);
    return best;
}

void run_warp(Run& run, Warp* warp) {
    u32 lanes = warp->ready;
    // Now and then only some of the lanes that could.
    if (run.random.one_in(4)) lanes &= (u32)run.random.next();
    if (lanes == 0) lanes = warp->ready;
    u32 first = run.random.below(WARP);
    for (u32 i = 0; i < WARP && run.report.empty(); i++) {
        u32 lane = (first + i) % WARP;
        if (!(lanes >> lane & 1)) continue;
        warp->ready &= ~(1u << lane);
        go_on(warp->lane[lane]);
    }
    if (warp->ready != 0 && !warp->queued) {
        warp->queued = true;
        run.ready.push_back(warp);
    }
}

std::string header() {
    const Launch& l = now->launch;
    char text[512];
    static const char* const policies[POLICIES] = {"at random", "by priority", "one warp behind", "blocks apart"};
    snprintf(text, sizeof text,
             "cuda model: kernel %s, grid %ux%ux%u, block %ux%ux%u, cluster %u, %u bytes dynamic shared memory, schedule "
             "%llu (%s): ",
             l.kernel, l.grid.x, l.grid.y, l.grid.z, l.block.x, l.block.y, l.block.z, l.cluster, l.smem,
             (unsigned long long)now->seed, policies[now->policy]);
    return text;
}

// Everybody waits for something that cannot happen.
std::string deadlock() {
    std::map<std::string, std::pair<u32, const Thread*>> groups;
    u32 exited = 0;
    for (auto& cluster : now->resident)
        for (Block& block : cluster->blocks)
            for (Thread& thread : block.threads) {
                if (thread.wait == EXITED) {
                    exited++;
                    continue;
                }
                char number[200] = "";
                if (thread.wait == IN_WARP) snprintf(number, sizeof number, " with mask %08x", thread.what_number);
                if (thread.wait == AT_BARRIER) snprintf(number, sizeof number, " %u", thread.what_number);
                if (thread.wait == AT_COMPLETION) {
                    auto found = block.completions.find((const u64*)thread.what_at);
                    long long phase = -1, bytes = 0, pending = 0;
                    if (found != block.completions.end()) {
                        phase = (long long)found->second.phase;
                        bytes = found->second.bytes;
                        pending = found->second.pending;
                    }
                    snprintf(number, sizeof number,
                             " %p of block %u, parity %u (now in phase %lld, %lld arrivals and %lld bytes short)",
                             (void*)((const unsigned char*)thread.what_at - block.window), block.number, thread.what_number,
                             phase, pending, bytes);
                }
                auto& group = groups[std::string(thread.what) + number];
                if (group.first++ == 0) group.second = &thread;
            }
    std::string text = "deadlock: nobody can go on;";
    u32 shown = 0;
    for (auto& [key, group] : groups) {
        if (shown++ == 12) {
            text += " ...";
            break;
        }
        text +=
            "\n  " + std::to_string(group.first) + " thread(s) in " + key + ", the first of them " + where(*group.second);
        text += "\n" + lines(calls_of(*group.second));
    }
    text += "\n  " + std::to_string(exited) + " thread(s) of resident clusters have exited";
    return text;
}

void retire(Run& run, size_t which) {
    Cluster& cluster = *run.resident[which];
    for (Block& block : cluster.blocks) {
        window_check(block);
        window_give(block.window);
    }
    run.resident.erase(run.resident.begin() + (long)which);
}

void loop(Run& run) {
    const Launch& launch = run.launch;
    u32 threads = launch.block.x * launch.block.y * launch.block.z * launch.cluster;
    u32 most = run.random.below(4) + 1;
    most = std::max(1u, std::min(most, MOST_THREADS / threads));
    // Stacks in lots of a cluster each.
    std::vector<size_t> lots;
    for (u32 i = most; i > 0; i--) lots.push_back(i - 1);
    std::map<Cluster*, size_t> lot_of;
    while (run.report.empty()) {
        while (run.resident.size() < most && !run.to_come.empty()) {
            size_t lot = lots.back();
            lots.pop_back();
            admit(run, lot * threads);
            lot_of[run.resident.back().get()] = lot;
        }
        if (run.resident.empty()) return;
        // Whoever looks again and again for what others must do first does not keep them from it for ever.
        if (++run.turns % FAIR == 0)
            for (Warp* warp : run.ready) warp->priority = priority_of(run, *warp);
        if (++run.idle_turns == ENDLESS) {
            run.report = header() + "no thread has come to its end for a long time";
            return;
        }
        bool late = run.turns % FAIR == 0 ? true
                    : run.eagerness == 0  ? run.ready.empty()
                                          : run.ready.empty() || run.random.one_in(run.eagerness);
        if (late && !run.flying.empty()) {
            deliver(run, run.random.below((u32)run.flying.size()));
            if (!run.report.empty()) return;
        }
        if (!run.ready.empty()) {
            size_t at = pick(run);
            Warp* warp = run.ready[at];
            run.ready[at] = run.ready.back();
            run.ready.pop_back();
            warp->queued = false;
            Cluster* cluster = warp->block->cluster;
            run_warp(run, warp);
            if (cluster->alive == 0 && run.report.empty()) {
                bool busy = std::any_of(run.flying.begin(), run.flying.end(),
                                        [&](const Async& a) { return a.from->cluster == cluster; });
                // What is still under way finds out, when it arrives, that nobody is there.
                while (busy && run.report.empty()) {
                    size_t i = 0;
                    while (i < run.flying.size() && run.flying[i].from->cluster != cluster) i++;
                    if (i == run.flying.size()) break;
                    deliver(run, i);
                }
                if (!run.report.empty()) return;
                for (size_t i = 0; i < run.resident.size(); i++)
                    if (run.resident[i].get() == cluster) {
                        lots.push_back(lot_of[cluster]);
                        lot_of.erase(cluster);
                        retire(run, i);
                        break;
                    }
            }
        } else if (run.flying.empty()) {
            run.report = header() + deadlock();
        }
    }
}

} // namespace

std::string where(const Thread& thread) {
    char text[256];
    const Block& block = *thread.in_block;
    int n = snprintf(text, sizeof text, "block %u", block.number);
    if (now->launch.cluster > 1)
        n += snprintf(text + n, sizeof text - n, " (rank %u of cluster %u)", block.rank, block.cluster->number);
    snprintf(text + n, sizeof text - n, ", thread %u (warp %u, lane %u)", thread.index, thread.warp->index, thread.lane);
    return text;
}

void fail(const char* format, ...) {
    char text[4096];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (now->report.empty()) now->report = header() + (self ? where(*self) + ": " : std::string()) + text;
    // What has not said where, says it by its calls.
    if (self && !strchr(text, '\n')) now->report += "\n" + lines(calls_of(__builtin_frame_address(0), *self));
    if (self) {
        switch_to(&self->stack_pointer, scheduler);
        abort();
    }
    throw Failed{};
}

void wake(Thread* thread) {
    thread->wait = RUNNING;
    thread->what = "";
    thread->warp->ready |= 1u << thread->lane;
    if (!thread->warp->queued) {
        thread->warp->queued = true;
        now->ready.push_back(thread->warp);
    }
}

void sleep(Wait why, const char* what, u32 number, const void* at) {
    Thread* thread = self;
    thread->wait = why;
    thread->what = what;
    thread->what_number = number;
    thread->what_at = at;
    switch_to(&thread->stack_pointer, scheduler);
}

void yield() {
    Thread* thread = self;
    wake(thread);
    switch_to(&thread->stack_pointer, scheduler);
}

std::string run(const Launch& launch) {
    static u64 launches = 0;
    Run run(launch);
    now = &run;
    u64 base = setting("SAMEDRAW_MODEL_SEED", 1);
    run.seed = setting("SAMEDRAW_MODEL_SCHEDULE", base * 1000003 + ++launches);
    run.random.state = run.seed * 0x9E3779B97F4A7C15ull ^ 0xD1B54A32D192ED03ull;
    if (run.random.state == 0) run.random.state = 1;
    for (int i = 0; i < 4; i++) run.random.next();
    run.policy = run.random.below(POLICIES);
    run.checked = launch.library->checked;
    if (run.checked) {
        clocks_reset(launch.block.x * launch.block.y * launch.block.z);
        accesses_reset();
    }
    catch_faults();
    // How often something asynchronous is done while threads could run: never, seldom, often.
    run.eagerness = (const u32[]){0, 64, 8, 2}[run.random.below(4)];
    u32 clusters = launch.grid.x * launch.grid.y * launch.grid.z / launch.cluster;
    for (u32 i = clusters; i > 0; i--) run.to_come.push_back(i - 1);
    // Blocks mostly start in their order, but nobody says so.
    if (run.random.one_in(2))
        for (u32 i = clusters; i > 1; i--) std::swap(run.to_come[i - 1], run.to_come[run.random.below(i)]);
    if (setting("SAMEDRAW_MODEL_LOG", 0) != 0) fprintf(stderr, "%s\n", header().c_str());
    try {
        loop(run);
    } catch (const Failed&) {}
    for (auto& cluster : run.resident)
        for (Block& block : cluster->blocks) window_give(block.window);
    now = nullptr;
    self = nullptr;
    return run.report;
}

} // namespace model

using namespace model;

extern "C" {
void model_pause() { yield(); }
void model_inputs_awaited() { self->inputs_awaited = true; }
void model_trap(const char* why) { fail("the kernel stopped itself: %s", why); }
}
