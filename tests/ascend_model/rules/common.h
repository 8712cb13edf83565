// What the kernels of this folder share. Above each stands what it must be: "// right", or "// breaks: TEXT", TEXT being in
// the report (an asterisk for anything), or "// gives KIND: VALUES", the first in `out`; "// cores: N" where one does not do.
#pragma once

#include "kernel_operator.h"

using namespace AscendC;

// `in` holds 16384 floats 0, 1, 2, ...; `out` has as many bytes, never written.
#define RULE(name) \
    extern "C" __global__ __vector__ __aicore__ void name([[maybe_unused]] GM_ADDR in, [[maybe_unused]] GM_ADDR out)

using In = TQue<TPosition::VECIN, 1>;
using Out = TQue<TPosition::VECOUT, 1>;
using Calc = TBuf<TPosition::VECCALC>;

// A queue in, a queue out, both of two buffers of 1 KB, and 8 KB to calculate in.
struct Bench {
    TPipe pipe;
    In queue_in;
    Out queue_out;
    Calc calc;
    GlobalTensor<float> from, to;

    __aicore__ Bench(GM_ADDR in, GM_ADDR out) {
        pipe.InitBuffer(queue_in, 2, 1024);
        pipe.InitBuffer(queue_out, 2, 1024);
        pipe.InitBuffer(calc, 8192);
        from.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(in), 16384);
        to.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(out), 16384);
    }

    // 256 floats of `in` from `start` on, out of their queue.
    __aicore__ LocalTensor<float> fill(uint64_t start = 0) {
        auto tensor = queue_in.AllocTensor<float>();
        DataCopyPad(tensor, from[start], {1, 1024, 0, 0, 0}, {false, 0, 0, 0.0f});
        queue_in.EnQue(tensor);
        return queue_in.DeQue<float>();
    }

    // `tensor`, of the queue out, to `out` from `start` on.
    __aicore__ void empty(LocalTensor<float> tensor, uint64_t start = 0) {
        queue_out.EnQue(tensor);
        tensor = queue_out.DeQue<float>();
        DataCopyPad(to[start], tensor, {1, 1024, 0, 0, 0});
        queue_out.FreeTensor(tensor);
    }

    // 256 elements of the area to calculate in, the `part`th, filled and waited for.
    template <typename T> __aicore__ LocalTensor<T> area(uint32_t part, T value) {
        auto tensor = calc.GetWithOffset<T>(256, part * 1024);
        Duplicate(tensor, value, 256);
        PipeBarrier<PIPE_V>();
        return tensor;
    }
    template <typename T> __aicore__ LocalTensor<T> raw(uint32_t part) {
        return calc.GetWithOffset<T>(1024 / sizeof(T), part * 1024);
    }

    template <HardEvent event> __aicore__ void wait() {
        auto id = pipe.FetchEventID<event>();
        SetFlag<event>(id);
        WaitFlag<event>(id);
    }
};
