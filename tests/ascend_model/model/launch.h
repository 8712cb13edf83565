// How a kernel is reached and run: its arguments in slots of 8 bytes, its cores one after another in an order that a seed
// shuffles, each on a machine of its own.
#pragma once

#include "sort.h"

#include <cstdio>
#include <numeric>
#include <random>
#include <utility>

#define __global__
#define __aicore__
#define __gm__
#define __ubuf__
#define __vector__
typedef uint8_t *GM_ADDR;

namespace ascend_model {

// How the simulated runtime reaches a kernel.
struct Entry {
    uint32_t slots;
    void (*run)(const uint64_t *arguments, Launch &launch, uint32_t block);
    const char *(*launch)(const Entry &entry, const uint64_t *arguments, Launch &launch, uint64_t seed);
};

// Runs all cores; gives the first broken rule, or nothing. The text stays until the next launch of the thread.
inline const char *run_launch(const Entry &entry, const uint64_t *arguments, Launch &launch, uint64_t seed) {
    thread_local char told[1024];
    launch.number = launch.memory->next_launch();
    if (launch.inexact.truncate || launch.inexact.flush) inexact_somewhere = true;
    std::vector<uint32_t> order(launch.blocks);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed + launch.number));
    uint32_t block = 0;
    try {
        for (uint32_t next : order) entry.run(arguments, launch, block = next);
        check_scalar_lines(launch);
        return "";
    } catch (const Broken &rule) {
        std::snprintf(told, sizeof told, "core %u of %u: %s", block, launch.blocks, rule.text.c_str());
        return told;
    }
}

template <auto kernel> struct Kernel;

template <typename... Arguments, void (*kernel)(Arguments...)> struct Kernel<kernel> {
    static_assert(((sizeof(Arguments) % 8 == 0) && ...), "every kernel argument takes whole slots of 8 bytes");
    static constexpr uint32_t slots = (0 + ... + static_cast<uint32_t>(sizeof(Arguments) / 8));

    template <typename Argument> static Argument take(const uint64_t *&next) {
        Argument argument;
        std::memcpy(&argument, next, sizeof argument);
        next += sizeof argument / 8;
        return argument;
    }

    static void run(const uint64_t *arguments, Launch &launch, uint32_t block) {
        Core machine(launch, block);
        the_core = &machine;
        current_call = Call{};
        struct Leave {
            ~Leave() { the_core = nullptr; }
        } leave;
        struct Invoke {
            Invoke(void (*f)(Arguments...), Arguments... values) { f(values...); }
        };
        // Braces take the arguments from left to right.
        Invoke{kernel, take<Arguments>(arguments)...};
        enter("the end of the kernel", Where{"", 0});
        machine.finish();
        launch.counters.add(machine.counters);
    }
};

template <auto kernel> constexpr Entry entry() { return {Kernel<kernel>::slots, Kernel<kernel>::run, run_launch}; }

} // namespace ascend_model
