// What ordering a core has established between its pipes, as clocks: an instruction of a pipe may touch what another one
// touched before only where a flag, a queue or a barrier lies between (pages "SetFlag/WaitFlag (ISASI)", "PipeBarrier
// (ISASI)", "NPU architecture 2201: synchronisation"). Instructions of one pipe are ordered by PipeBarrier alone, but for the
// scalar unit, whose own order the hardware keeps.
#pragma once

#include "types.h"

namespace ascend_model {

inline constexpr int PIPES = 4;
inline const char *pipe_name(int pipe) {
    static const char *const names[] = {"PIPE_S", "PIPE_V", "PIPE_MTE2", "PIPE_MTE3"};
    return names[pipe];
}
inline const char *pipe_short(int pipe) { return pipe_name(pipe) + 5; }

struct Clock {
    uint32_t done[PIPES] = {};
    void join(const Clock &other) {
        for (int i = 0; i < PIPES; ++i) {
            if (other.done[i] > done[i]) done[i] = other.done[i];
        }
    }
};

struct Ends {
    int from, to;
};
inline Ends ends_of(AscendC::HardEvent event) {
    static const Ends ends[] = {{PIPE_MTE2, PIPE_V},    {PIPE_V, PIPE_MTE2},    {PIPE_MTE3, PIPE_V}, {PIPE_V, PIPE_MTE3},
                                {PIPE_MTE3, PIPE_MTE2}, {PIPE_MTE2, PIPE_MTE3}, {PIPE_S, PIPE_V},    {PIPE_V, PIPE_S},
                                {PIPE_S, PIPE_MTE2},    {PIPE_MTE2, PIPE_S},    {PIPE_S, PIPE_MTE3}, {PIPE_MTE3, PIPE_S}};
    return ends[static_cast<int>(event)];
}
inline constexpr int EVENTS = 12, EVENT_IDS = 8;
inline std::string event_name(int event) {
    Ends ends = ends_of(static_cast<AscendC::HardEvent>(event));
    return std::string(pipe_short(ends.from)) + "_" + pipe_short(ends.to);
}

class Order {
  public:
    // Begins an instruction of `pipe`.
    void begin(int pipe) {
        at = pipe;
        ++time[pipe];
    }
    int pipe() const { return at; }
    uint32_t now() const { return time[at]; }
    uint32_t begun(int pipe) const { return time[pipe]; }

    // Whether the instruction at work may rely on instruction `when` of `pipe` being over.
    bool after(int pipe, uint32_t when) const {
        if (when == 0 || (pipe == at && (at == PIPE_S || when == time[at]))) return true;
        return known[at].done[pipe] >= when;
    }

    std::string missing(int pipe) const {
        if (pipe == at) return text("no PipeBarrier<", pipe_name(pipe), "> between");
        return text(
            "no wait of ", pipe_name(at), " for ", pipe_name(pipe), " between (HardEvent::", pipe_short(pipe), "_",
            pipe_short(at), ")");
    }

    // All that is over once what `pipe` was given is over.
    Clock snapshot(int pipe) const {
        Clock clock = known[pipe];
        clock.done[pipe] = time[pipe];
        return clock;
    }
    void join(int pipe, const Clock &clock) { known[pipe].join(clock); }

    void barrier(int pipe) { known[pipe].done[pipe] = time[pipe]; }
    void barrier_all() {
        Clock all;
        for (int i = 0; i < PIPES; ++i) all.join(snapshot(i));
        for (int i = 0; i < PIPES; ++i) known[i] = all;
    }

    // ---- flags

    void set(int event, int64_t id) {
        check_id(event, id);
        require(
            !flags[event][id].up, "SetFlag<", [&] { return event_name(event); }, ">(", id,
            ") while it is set: two SetFlag of one event and id need a WaitFlag between");
        flags[event][id] = {true, snapshot(ends_of(static_cast<AscendC::HardEvent>(event)).from)};
    }
    void wait(int event, int64_t id) {
        check_id(event, id);
        require(
            flags[event][id].up, "WaitFlag<", [&] { return event_name(event); }, ">(", id,
            ") with no SetFlag before it: the core hangs");
        flags[event][id].up = false;
        join(ends_of(static_cast<AscendC::HardEvent>(event)).to, flags[event][id].clock);
    }
    int64_t alloc_id(int event) {
        const int64_t id = free_id(event);
        taken[event] |= uint8_t(1u << id);
        lent[event] |= uint8_t(1u << id);
        return id;
    }
    // A queue takes an id, which is nobody else's then.
    void take_id(int event) {
        const int64_t id = free_id(event);
        taken[event] |= uint8_t(1u << id);
        lent[event] &= uint8_t(~(1u << id));
    }
    // A TPipe that ends gives all ids back.
    void forget_ids() {
        for (int event = 0; event < EVENTS; ++event) taken[event] = lent[event] = 0;
    }
    int64_t fetch_id(int event) {
        const int64_t id = free_id(event);
        lent[event] |= uint8_t(1u << id);
        return id;
    }
    void release_id(int event, int64_t id) {
        require(
            id >= 0 && id < EVENT_IDS && (taken[event] >> id & 1),
            "ReleaseEventID of an id that AllocEventID did not give");
        require(!flags[event][id].up, "ReleaseEventID of a flag that is set");
        taken[event] &= uint8_t(~(1u << id));
        lent[event] &= uint8_t(~(1u << id));
    }
    // At the end of a kernel: a flag that stays set disturbs the next one.
    void check_flags_down() const {
        for (int event = 0; event < EVENTS; ++event) {
            for (int id = 0; id < EVENT_IDS; ++id) {
                require(
                    !flags[event][id].up, "the kernel ends with ", [&] { return event_name(event); }, " id ", id,
                    " set and not waited for: it would be left to the next kernel");
            }
        }
    }

  private:
    int64_t free_id(int event) const {
        for (int id = 0; id < EVENT_IDS; ++id) {
            if (!(taken[event] >> id & 1)) return id;
        }
        broken(text("no event id of ", event_name(event), " is free: there are 8, queues take one a buffer"));
    }
    void check_id(int event, int64_t id) const {
        require(id >= 0 && id < EVENT_IDS, "event id ", id, " is not of 0 to 7");
        require(
            lent[event] >> id & 1, "event id ", id, " of ", [&] { return event_name(event); },
            " comes neither from AllocEventID nor from FetchEventID: beside TPipe, queues may use it");
    }

    struct Flag {
        bool up = false;
        Clock clock;
    };
    int at = PIPE_S;
    uint32_t time[PIPES] = {};
    Clock known[PIPES];
    Flag flags[EVENTS][EVENT_IDS];
    uint8_t taken[EVENTS] = {}, lent[EVENTS] = {};
};

} // namespace ascend_model
