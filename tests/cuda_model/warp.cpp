// What the lanes of a warp do together: each waits until all lanes that the mask names have come to the same operation.

#include "model.h"

namespace model {
namespace {

const char* name_of(ModelWarpOp op) {
    static const char* const names[] = {"__syncwarp",
                                        "__shfl_sync",
                                        "__shfl_up_sync",
                                        "__shfl_down_sync",
                                        "__shfl_xor_sync",
                                        "__ballot_sync",
                                        "__any_sync",
                                        "__all_sync",
                                        "__reduce_add_sync",
                                        "__reduce_min_sync",
                                        "__reduce_max_sync",
                                        "__reduce_min_sync",
                                        "__reduce_max_sync",
                                        "__reduce_and_sync",
                                        "__reduce_or_sync",
                                        "__reduce_xor_sync",
                                        "__match_any_sync",
                                        "__match_all_sync",
                                        "an instruction of the whole warp"};
    return names[op];
}

u64 folded(const Rendezvous& r) {
    bool first = true;
    u32 x = 0;
    for (u32 lane = 0; lane < WARP; lane++) {
        if (!(r.mask >> lane & 1)) continue;
        u32 y = (u32)r.value[lane];
        if (first) {
            first = false;
            x = y;
            continue;
        }
        switch (r.op) {
        case MODEL_REDUCE_ADD: x += y; break;
        case MODEL_REDUCE_MIN: x = y < x ? y : x; break;
        case MODEL_REDUCE_MAX: x = y > x ? y : x; break;
        case MODEL_REDUCE_MIN_SIGNED: x = (int32_t)y < (int32_t)x ? y : x; break;
        case MODEL_REDUCE_MAX_SIGNED: x = (int32_t)y > (int32_t)x ? y : x; break;
        case MODEL_REDUCE_AND: x &= y; break;
        case MODEL_REDUCE_OR: x |= y; break;
        default: x ^= y; break;
        }
    }
    return x;
}

// The lanes whose value is `x`.
u32 lanes_with(const Rendezvous& r, u64 x) {
    u32 lanes = 0;
    for (u32 lane = 0; lane < WARP; lane++)
        if ((r.mask >> lane & 1) && r.value[lane] == x) lanes |= 1u << lane;
    return lanes;
}

// The lane a shuffle reads from, the lane's own where the source lies outside its segment.
u32 source_of(const Rendezvous& r, u32 lane) {
    u32 width = r.width[lane], argument = r.argument[lane], segment = lane & ~(width - 1), within = lane - segment;
    switch (r.op) {
    case MODEL_SHFL: return segment + (argument & (width - 1));
    case MODEL_SHFL_UP: return within >= argument ? lane - argument : lane;
    case MODEL_SHFL_DOWN: return within + argument < width ? lane + argument : lane;
    default: {
        u32 from = lane ^ argument;
        // A later segment cannot be read, an earlier one can.
        return from < segment + width ? from : lane;
    }
    }
}

void finish(Warp& warp, Rendezvous& r) {
    u64 common = 0;
    u32 ballot = lanes_with(r, 1);
    switch (r.op) {
    case MODEL_BALLOT: common = ballot; break;
    case MODEL_ANY: common = ballot != 0; break;
    case MODEL_ALL: common = ballot == r.mask; break;
    case MODEL_MATCH_ALL: common = lanes_with(r, r.value[__builtin_ctz(r.mask)]) == r.mask ? r.mask : 0; break;
    case MODEL_SYNCWARP:
    case MODEL_ALIGNED: break;
    default: common = r.op >= MODEL_REDUCE_ADD && r.op <= MODEL_REDUCE_XOR ? folded(r) : 0; break;
    }
    ClockPtr known;
    // Only this one orders what the lanes do to memory.
    if (r.op == MODEL_SYNCWARP && now->checked) {
        if (r.mask == warp.alive) r.gathered.add_warp(warp.number, now->moment++);
        known = r.gathered.take();
    }
    for (u32 lane = 0; lane < WARP; lane++) {
        if (!(r.mask >> lane & 1)) continue;
        if (known) warp.lane[lane]->known = known;
        u64 result = common;
        if (r.op >= MODEL_SHFL && r.op <= MODEL_SHFL_XOR) {
            u32 from = source_of(r, lane);
            if (!(r.mask >> from & 1))
                fail("%s: lane %u reads from lane %u, which the mask %08x does not name", name_of(r.op), lane, from, r.mask);
            result = r.value[from];
        }
        if (r.op == MODEL_MATCH_ANY) result = lanes_with(r, r.value[lane]);
        warp.lane[lane]->result = result;
        if (warp.lane[lane] != self) wake(warp.lane[lane]);
    }
    r.open = false;
}

} // namespace

void warp_lost(Warp* warp, Thread* thread) {
    for (Rendezvous& r : warp->meeting)
        if (r.open && (r.mask >> thread->lane & 1))
            fail("exits while other lanes of its warp wait for it in %s with mask %08x", name_of(r.op), r.mask);
}

} // namespace model

using namespace model;

extern "C" unsigned model_active_lanes() {
    // Lanes that are not waiting elsewhere could be here too; a model can only be sure of one.
    return 1u << self->lane;
}

extern "C" uint64_t model_warp(ModelWarpOp op, unsigned mask, uint64_t value, unsigned argument, unsigned width) {
    Warp& warp = *self->warp;
    u32 own = 1u << self->lane;
    if (!(mask & own)) fail("%s with mask %08x, which does not name the calling lane", name_of(op), mask);
    if (mask & ~warp.alive)
        fail("%s with mask %08x, which names lanes that have exited (alive: %08x)", name_of(op), mask, warp.alive);
    if (width == 0 || width > WARP || (width & (width - 1)) != 0) fail("%s with a width of %u", name_of(op), width);
    Rendezvous* meeting = nullptr;
    for (Rendezvous& r : warp.meeting) {
        if (!r.open) {
            if (!meeting) meeting = &r;
            continue;
        }
        if (!(r.mask & mask)) continue;
        if (r.mask != mask)
            fail("%s with mask %08x, while lanes %08x wait in %s with mask %08x", name_of(op), mask, r.arrived,
                 name_of(r.op), r.mask);
        if (r.op != op) fail("%s, while lanes %08x of its warp wait in %s", name_of(op), r.arrived, name_of(r.op));
        meeting = &r;
        break;
    }
    Rendezvous& r = *meeting;
    if (!r.open) {
        r.open = true;
        r.op = op;
        r.mask = mask;
        r.arrived = 0;
    }
    r.arrived |= own;
    r.value[self->lane] = value;
    r.argument[self->lane] = argument;
    r.width[self->lane] = width;
    if (op == MODEL_SYNCWARP && now->checked) {
        if (mask == warp.alive)
            r.gathered.add(self->known);
        else
            tell(r.gathered, self);
    }
    if (r.arrived == r.mask)
        finish(warp, r);
    else
        sleep(IN_WARP, name_of(op), mask, nullptr);
    return self->result;
}
