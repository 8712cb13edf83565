// Test double for the toolkit's header of that name: kernels of the tests, compiled by g++. Only what these need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#define __global__
#define __aicore__
#define __gm__
#define __vector__
typedef uint8_t *GM_ADDR;

namespace ascend_sim {

inline thread_local uint32_t block = 0, blocks = 0;

// How the simulated runtime reaches a kernel: `slots` arguments of 8 bytes, laid out as the runtime documents.
struct Entry {
    uint32_t slots;
    void (*run)(const uint64_t *arguments, uint32_t block, uint32_t blocks);
};

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

    static void run(const uint64_t *arguments, uint32_t at, uint32_t of) {
        block = at;
        blocks = of;
        struct Call {
            Call(void (*f)(Arguments...), Arguments... values) { f(values...); }
        };
        // Braces take the arguments from left to right.
        Call{kernel, take<Arguments>(arguments)...};
    }
};

template <auto kernel> constexpr Entry entry() { return {Kernel<kernel>::slots, Kernel<kernel>::run}; }

} // namespace ascend_sim

namespace AscendC {
inline uint32_t GetBlockIdx() { return ascend_sim::block; }
inline uint32_t GetBlockNum() { return ascend_sim::blocks; }
} // namespace AscendC
