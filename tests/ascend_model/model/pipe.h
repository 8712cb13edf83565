// TPipe, TQue, TBuf, flags and barriers (pages of these names).
#pragma once

#include "tensor.h"

#include <deque>

namespace AscendC {

class TPipe;

namespace model {
inline thread_local uintptr_t the_pipe = 0; // its address
inline uint32_t rounded(uint64_t bytes) { return uint32_t((bytes + 31) / 32 * 32); }
} // namespace model

template <TPosition pos, int32_t depth> class TQue;

// Page "TBuf": memory that is never queued; its tensors are not freed.
template <TPosition pos> class TBuf {
    static_assert(
        pos == TPosition::VECIN || pos == TPosition::VECOUT || pos == TPosition::VECCALC,
        "a position of the unified buffer");

  public:
    TBuf() = default;
    TBuf(const TBuf &) = delete;
    TBuf &operator=(const TBuf &) = delete;

    template <typename T> LocalTensor<T> Get(ASCEND_MODEL_AT) { return get<T>(length / uint32_t(sizeof(T)), 0, at); }
    template <typename T> LocalTensor<T> Get(uint32_t len, ASCEND_MODEL_AT) { return get<T>(len, 0, at); }
    template <typename T> LocalTensor<T> GetWithOffset(uint32_t size, uint32_t bufOffset, ASCEND_MODEL_AT) {
        return get<T>(size, bufOffset, at);
    }

  private:
    friend class TPipe;
    template <typename T> LocalTensor<T> get(uint32_t len, uint32_t offset, ascend_model::Where at) {
        ascend_model::enter("TBuf Get", at);
        ascend_model::require(buffer != LocalTensor<T>::NONE, "a TBuf without InitBuffer");
        ascend_model::require(offset % 32 == 0, "offset ", offset, " is not a multiple of 32 bytes");
        uint64_t end = offset + uint64_t(len) * sizeof(T);
        ascend_model::require(end <= length, end, " bytes of a TBuf of ", length);
        const auto &held = ascend_model::core().buffers.at(buffer);
        LocalTensor<T> tensor;
        tensor.address = held.address + offset;
        tensor.bytes = len * uint32_t(sizeof(T));
        tensor.buffer = buffer;
        tensor.generation = held.generation;
        return tensor;
    }
    uint32_t buffer = 0xFFFFFFFF, length = 0;
};

// Page "TQue": buffers that go from the pipe that fills them to the one that empties them.
template <TPosition pos, int32_t depth> class TQue {
    static_assert(pos == TPosition::VECIN || pos == TPosition::VECOUT, "queues of the vector core are VECIN and VECOUT");
    static_assert(depth >= 1, "of the model: queues whose tensors are returned, of depth 1 and up");
    using Use = ascend_model::Core::Use;
    // VECIN: MTE2 fills and V empties; VECOUT: V fills and MTE3 empties (page "Synchronisation in a core", table 1).
    static constexpr int FILLS = pos == TPosition::VECIN ? PIPE_MTE2 : PIPE_V;
    static constexpr int EMPTIES = pos == TPosition::VECIN ? PIPE_V : PIPE_MTE3;

  public:
    TQue() = default;
    TQue(const TQue &) = delete;
    TQue &operator=(const TQue &) = delete;

    template <typename T> LocalTensor<T> AllocTensor(ASCEND_MODEL_AT) {
        ascend_model::enter("AllocTensor", at);
        ascend_model::Core &core = ascend_model::core();
        ascend_model::require(count != 0, "a queue without InitBuffer");
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t number = first + (next + i) % count;
            auto &buffer = core.buffers[number];
            if (buffer.use != Use::FREE) continue;
            next = (next + i + 1) % count;
            buffer.use = Use::HELD;
            ++buffer.generation;
            core.order.join(FILLS, buffer.freed);
            // The page: the content may be random.
            core.ub.forget(buffer.address, buffer.bytes);
            return tensor<T>(number);
        }
        ascend_model::broken(ascend_model::text("all ", count, " buffers of the queue are out: the core hangs"));
    }

    template <typename T> bool EnQue(const LocalTensor<T> &tensor, ASCEND_MODEL_AT) {
        ascend_model::enter("EnQue", at);
        auto &buffer = owned(tensor, "the tensor given to EnQue");
        ascend_model::require(queue.size() < size_t(depth), "more than ", depth, " tensors in the queue, its depth");
        buffer.use = Use::QUEUED;
        buffer.queued = ascend_model::core().order.snapshot(FILLS);
        queue.push_back(tensor.buffer);
        return true;
    }

    template <typename T> LocalTensor<T> DeQue(ASCEND_MODEL_AT) {
        ascend_model::enter("DeQue", at);
        ascend_model::require(!queue.empty(), "the queue is empty");
        uint32_t number = queue.front();
        queue.pop_front();
        auto &buffer = ascend_model::core().buffers[number];
        buffer.use = Use::HELD;
        ascend_model::core().order.join(EMPTIES, buffer.queued);
        return tensor<T>(number);
    }

    template <typename T> void FreeTensor(LocalTensor<T> &tensor, ASCEND_MODEL_AT) {
        ascend_model::enter("FreeTensor", at);
        auto &buffer = owned(tensor, "the tensor given to FreeTensor");
        buffer.use = Use::FREE;
        buffer.freed = ascend_model::core().order.snapshot(EMPTIES);
    }

    bool HasTensorInQue() const { return !queue.empty(); }
    bool VacantInQue() const { return queue.size() < size_t(depth); }
    int32_t GetTensorCountInQue() const { return int32_t(queue.size()); }
    bool HasIdleBuffer() const {
        for (uint32_t i = 0; i < count; ++i) {
            if (ascend_model::core().buffers[first + i].use == Use::FREE) return true;
        }
        return false;
    }

  private:
    friend class TPipe;
    template <typename T> LocalTensor<T> tensor(uint32_t number) const {
        const auto &buffer = ascend_model::core().buffers[number];
        LocalTensor<T> made;
        made.address = buffer.address;
        made.bytes = buffer.bytes;
        made.buffer = number;
        made.generation = buffer.generation;
        return made;
    }
    template <typename T> ascend_model::Core::Buffer &owned(const LocalTensor<T> &tensor, const char *what) const {
        tensor.holder(what);
        ascend_model::require(
            count && tensor.buffer >= first && tensor.buffer < first + count, what, " is of another queue");
        return ascend_model::core().buffers[tensor.buffer];
    }
    uint32_t first = 0, count = 0, next = 0;
    std::deque<uint32_t> queue;
};

// Page "TPipe": one at a time; hands out the unified buffer and event ids.
class TPipe {
    using Use = ascend_model::Core::Use;

  public:
    TPipe(ASCEND_MODEL_AT) : core(ascend_model::core()) {
        ascend_model::enter("TPipe", at);
        ascend_model::require(!core.pipe_alive, "a second TPipe while one is alive");
        core.pipe_alive = true;
        model::the_pipe = reinterpret_cast<uintptr_t>(this);
    }
    TPipe(const TPipe &) = delete;
    TPipe &operator=(const TPipe &) = delete;
    ~TPipe() noexcept(false) {
        if (!alive) return;
        bool unwinding = std::uncaught_exceptions() != 0;
        leave(!unwinding);
    }

    // Page "Destroy": gives everything back, after all that runs.
    void Destroy(ASCEND_MODEL_AT) {
        ascend_model::enter("Destroy", at);
        ascend_model::require(alive, "Destroy twice");
        leave(true);
    }

    template <TPosition pos, int32_t depth>
    bool InitBuffer(TQue<pos, depth> &que, ascend_model::Field<uint8_t> num, uint32_t len, ASCEND_MODEL_AT) {
        ascend_model::enter("InitBuffer", at);
        ascend_model::require(que.count == 0, "InitBuffer of a queue that has buffers");
        ascend_model::require(num > 0 && len > 0, "InitBuffer of nothing");
        // Page "AllocTensor": at most 8 buffers of one position, each of which takes an event id both ways.
        uint32_t &used = pos == TPosition::VECIN ? in_queues : out_queues;
        used += num;
        ascend_model::require(used <= 8, used, " buffers of one position are in queues, of at most 8");
        que.first = uint32_t(core.buffers.size());
        que.count = num;
        for (uint32_t i = 0; i < num; ++i) {
            take(len, pos, Use::FREE);
            core.order.take_id(static_cast<int>(pos == TPosition::VECIN ? HardEvent::MTE2_V : HardEvent::V_MTE3));
            core.order.take_id(static_cast<int>(pos == TPosition::VECIN ? HardEvent::V_MTE2 : HardEvent::MTE3_V));
        }
        return true;
    }

    template <TPosition pos> bool InitBuffer(TBuf<pos> &buf, uint32_t len, ASCEND_MODEL_AT) {
        ascend_model::enter("InitBuffer", at);
        ascend_model::require(buf.length == 0, "InitBuffer of a TBuf that has memory");
        ascend_model::require(len > 0, "InitBuffer of nothing");
        buf.buffer = uint32_t(core.buffers.size());
        buf.length = len;
        take(len, pos, Use::PLAIN);
        return true;
    }

    template <HardEvent event> TEventID AllocEventID(ASCEND_MODEL_AT) {
        ascend_model::enter("AllocEventID", at);
        return TEventID(core.order.alloc_id(static_cast<int>(event)));
    }
    template <HardEvent event> void ReleaseEventID(TEventID id, ASCEND_MODEL_AT) {
        ascend_model::enter("ReleaseEventID", at);
        core.order.release_id(static_cast<int>(event), id);
    }
    template <HardEvent event> TEventID FetchEventID(ASCEND_MODEL_AT) {
        ascend_model::enter("FetchEventID", at);
        return TEventID(core.order.fetch_id(static_cast<int>(event)));
    }
    TEventID FetchEventID(HardEvent event, ASCEND_MODEL_AT) {
        ascend_model::enter("FetchEventID", at);
        return TEventID(core.order.fetch_id(static_cast<int>(event)));
    }

  private:
    void take(uint32_t len, TPosition position, Use use) {
        uint32_t bytes = model::rounded(len);
        // Page "InitBuffer": at most 64 buffers in a kernel.
        ascend_model::require(core.buffers.size() < 64, "more than 64 buffers in a kernel");
        ascend_model::require(
            uint64_t(end) + bytes <= ascend_model::UB_USABLE, "the unified buffer has ", ascend_model::UB_USABLE,
            " bytes, ", uint64_t(end) + bytes, " are asked for");
        ascend_model::Core::Buffer buffer{end, bytes, position, use, 0, {}, {}};
        core.buffers.push_back(buffer);
        core.ub.forget(end, bytes);
        end += bytes;
    }

    void leave(bool check) {
        alive = false;
        core.pipe_alive = false;
        model::the_pipe = 0;
        core.order.barrier_all();
        if (!check) return;
        core.order.check_flags_down();
        core.order.forget_ids();
        ascend_model::current_call.name = "the end of TPipe";
        for (auto &buffer : core.buffers) {
            ascend_model::require(buffer.use != Use::QUEUED, "a tensor is left in its queue");
            ascend_model::require(buffer.use != Use::HELD, "a tensor of a queue was not given back with FreeTensor");
            buffer.use = Use::FREE;
            ++buffer.generation;
        }
    }

    ascend_model::Core &core;
    bool alive = true;
    uint32_t end = 0, in_queues = 0, out_queues = 0;
};

// Page "InitSocState": TPipe does what it does; kernels may call it too.
inline void InitSocState() {}

template <HardEvent event> void SetFlag(int32_t eventID, ASCEND_MODEL_AT) {
    ascend_model::enter("SetFlag", at);
    ascend_model::core().order.set(static_cast<int>(event), eventID);
}
template <HardEvent event> void WaitFlag(int32_t eventID, ASCEND_MODEL_AT) {
    ascend_model::enter("WaitFlag", at);
    ++ascend_model::core().counters.waits;
    ascend_model::core().order.wait(static_cast<int>(event), eventID);
}

template <pipe_t pipe> void PipeBarrier(ASCEND_MODEL_AT) {
    static_assert(pipe != PIPE_S, "PipeBarrier does not take PIPE_S: the hardware orders the scalar unit");
    ascend_model::enter("PipeBarrier", at);
    if constexpr (pipe == PIPE_ALL) {
        ascend_model::core().order.barrier_all();
    } else {
        ascend_model::core().order.barrier(pipe);
    }
}

} // namespace AscendC

// Page "GetTPipePtr"; of no namespace.
inline AscendC::TPipe *GetTPipePtr() {
    ascend_model::require(AscendC::model::the_pipe != 0, "GetTPipePtr with no TPipe alive");
    return reinterpret_cast<AscendC::TPipe *>(AscendC::model::the_pipe);
}
