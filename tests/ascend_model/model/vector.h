// How the vector unit walks its operands (pages "SIMD computation: contiguous", "in several dimensions", "masks", and "General
// notes: alignment, overlap"): iterations of 256 bytes of the widest operand, in blocks of 32, with strides between blocks and
// between iterations, and a mask that says which lanes take part.
#pragma once

#include "copy.h"

namespace AscendC {
namespace model {

// A count of iterations: the calls hold it in 8 bits, this sees what does not fit (page "in several dimensions": at most 255).
struct Repeat {
    template <typename V, typename = std::enable_if_t<std::is_integral_v<V>>> Repeat(V given) : times(int64_t(given)) {}
    uint32_t checked() const {
        require(times >= 0 && times <= 255, "repeatTime ", times, " is not of 0 to 255");
        return uint32_t(times);
    }
    int64_t times;
};

// Which lanes of an iteration take part.
struct Lanes {
    uint64_t bits[2] = {0, 0};
    bool on(uint32_t lane) const { return bits[lane / 64] >> (lane % 64) & 1; }
    bool all(uint32_t from, uint32_t count) const {
        for (uint32_t i = from; i < from + count; ++i) {
            if (!on(i)) return false;
        }
        return true;
    }
    bool any(uint32_t from, uint32_t count) const {
        for (uint32_t i = from; i < from + count && i < 128; ++i) {
            if (on(i)) return true;
        }
        return false;
    }
    // How many lanes take part where these are the first ones, else 0.
    uint32_t prefix() const {
        const uint64_t low = bits[0], high = bits[1];
        if (high == 0) return (low & (low + 1)) == 0 && low ? 64 - uint32_t(__builtin_clzll(low)) : 0;
        return low == ~uint64_t(0) && (high & (high + 1)) == 0 ? 128 - uint32_t(__builtin_clzll(high)) : 0;
    }
    static Lanes first(uint32_t count) {
        Lanes lanes;
        lanes.bits[0] = count >= 64 ? ~uint64_t(0) : (uint64_t(1) << count) - 1;
        lanes.bits[1] = count >= 128 ? ~uint64_t(0) : count <= 64 ? 0 : (uint64_t(1) << (count - 64)) - 1;
        return lanes;
    }
    // Page "masks": a number is of 1 to the lanes of an iteration.
    static Lanes counted(uint64_t mask, uint32_t lanes) {
        require(mask >= 1 && mask <= lanes, "mask ", mask, " is not of 1 to ", lanes);
        return first(uint32_t(mask));
    }
    // Bits: two words for elements of 16 bits, one for wider ones.
    static Lanes of_bits(const uint64_t *mask, uint32_t lanes) {
        Lanes made;
        made.bits[0] = mask[0];
        if (lanes == 128) made.bits[1] = mask[1];
        require(made.bits[0] != 0 || made.bits[1] != 0, "no bit of the mask is set");
        require(lanes != 32 || mask[0] >> 32 == 0, "the mask has bits past the 32 lanes of an iteration");
        return made;
    }
};

// An operand and how it is walked.
template <typename T> struct Operand {
    const LocalTensor<T> &tensor;
    const char *what;
    uint32_t block_stride, repeat_stride;

    static constexpr uint32_t PER_BLOCK = 32 / sizeof(T);

    void check() const { check_local(tensor, what, 0, {TPosition::VECIN, TPosition::VECOUT, TPosition::VECCALC}); }
    uint64_t offset(uint32_t repeat, uint32_t block) const {
        return (uint64_t(repeat) * repeat_stride + uint64_t(block) * block_stride) * 32;
    }
    uint32_t place(uint32_t repeat, uint32_t lane, uint32_t lanes) const {
        uint64_t at = offset(repeat, lane / PER_BLOCK) + lane % PER_BLOCK * sizeof(T), end = at + lanes * sizeof(T);
        require(end <= tensor.bytes, what, " has ", tensor.bytes, " bytes, the call takes ", end);
        return uint32_t(tensor.address + at);
    }
    // Runs `body(address, first lane, lanes)` over the lanes that take part, block by block.
    template <typename Body> void walk(uint32_t repeat, const Lanes &mask, uint32_t lanes, const Body &body) const {
        const uint32_t prefix = block_stride == 1 ? std::min(mask.prefix(), lanes) : 0;
        if (prefix) {
            body(place(repeat, 0, prefix), 0, prefix);
            return;
        }
        for (uint32_t start = 0; start < lanes; start += PER_BLOCK) {
            uint32_t count = std::min(PER_BLOCK, lanes - start);
            if (mask.all(start, count)) {
                body(place(repeat, start, count), start, count);
                continue;
            }
            for (uint32_t lane = start; lane < start + count; ++lane) {
                if (mask.on(lane)) body(place(repeat, lane, 1), lane, 1);
            }
        }
    }
    void load(uint32_t repeat, const Lanes &mask, uint32_t lanes, T *out) const {
        walk(repeat, mask, lanes, [&](uint32_t at, uint32_t lane, uint32_t count) {
            std::memcpy(out + lane, ascend_model::core().ub.read(at, count * uint32_t(sizeof(T))), count * sizeof(T));
        });
    }
    void store(uint32_t repeat, const Lanes &mask, uint32_t lanes, const T *in) const {
        walk(repeat, mask, lanes, [&](uint32_t at, uint32_t lane, uint32_t count) {
            std::memcpy(ascend_model::core().ub.write(at, count * uint32_t(sizeof(T))), in + lane, count * sizeof(T));
        });
    }
};

// Page "General notes, overlap": within an iteration source and destination are the same bytes or apart. Blocks without a
// lane that takes part are not touched.
template <typename D, typename S>
void check_overlap(const Operand<D> &dst, const Operand<S> &src, uint32_t repeat, const Lanes &mask, uint32_t lanes) {
    const uint64_t d = dst.tensor.address + dst.offset(repeat, 0), s = src.tensor.address + src.offset(repeat, 0);
    if (sizeof(D) == sizeof(S) && d == s && dst.block_stride == src.block_stride) return;
    if (d >= s + src.offset(0, 8) || s >= d + dst.offset(0, 8)) return;
    for (uint32_t i = 0; i * dst.PER_BLOCK < lanes; ++i) {
        if (!mask.any(i * dst.PER_BLOCK, dst.PER_BLOCK)) continue;
        for (uint32_t j = 0; j * src.PER_BLOCK < lanes; ++j) {
            if (!mask.any(j * src.PER_BLOCK, src.PER_BLOCK)) continue;
            const bool meet = d + dst.offset(0, i) == s + src.offset(0, j);
            require(
                !meet || (i == j && sizeof(D) == sizeof(S)), "dst and ", src.what,
                " overlap in part: they must be the same or apart");
        }
    }
}

inline void begin_vector(uint32_t repeats) {
    ascend_model::core().order.begin(PIPE_V);
    ++ascend_model::core().counters.vector_calls;
    ascend_model::core().counters.vector_repeats += repeats;
}

// `body(iteration, lanes that take part)` for the first `count` elements, contiguous.
template <typename Body> void over_count(int64_t count, uint32_t lanes, const Body &body) {
    require(count >= 0, "count ", count, " is negative");
    if (count == 0) return; // the pages: nothing is done on dav-2201
    const uint32_t repeats = uint32_t((uint64_t(count) + lanes - 1) / lanes);
    begin_vector(repeats);
    for (uint32_t i = 0; i < repeats; ++i)
        body(i, Lanes::first(uint32_t(std::min<int64_t>(lanes, count - int64_t(i) * lanes))));
}
// The same for `repeats` iterations of one mask.
template <typename Body> void over_repeats(Repeat repeat, const Lanes &mask, const Body &body) {
    const uint32_t repeats = repeat.checked();
    if (repeats == 0) return;
    begin_vector(repeats);
    for (uint32_t i = 0; i < repeats; ++i) body(i, mask);
}

inline uint32_t nonzero_stride(uint32_t stride) {
    require(stride != 0, "dst's stride between blocks is 0");
    return stride;
}

// One iteration of an elementwise call.
template <typename D, typename S, typename Op>
void unary(const Operand<D> &dst, const Operand<S> &src, uint32_t repeat, const Lanes &mask, const Op &op) {
    constexpr uint32_t LANES = 256 / (sizeof(D) > sizeof(S) ? sizeof(D) : sizeof(S));
    S in[LANES];
    D out[LANES];
    check_overlap(dst, src, repeat, mask, LANES);
    src.load(repeat, mask, LANES, in);
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        if (mask.on(lane)) out[lane] = op(in[lane]);
    }
    dst.store(repeat, mask, LANES, out);
}
template <typename T, typename Op>
void binary(
    const Operand<T> &dst, const Operand<T> &src0, const Operand<T> &src1, uint32_t repeat, const Lanes &mask,
    const Op &op) {
    constexpr uint32_t LANES = 256 / sizeof(T);
    T a[LANES], b[LANES], out[LANES];
    check_overlap(dst, src0, repeat, mask, LANES);
    check_overlap(dst, src1, repeat, mask, LANES);
    src0.load(repeat, mask, LANES, a);
    src1.load(repeat, mask, LANES, b);
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        if (mask.on(lane)) out[lane] = op(a[lane], b[lane]);
    }
    dst.store(repeat, mask, LANES, out);
}

template <typename T> inline constexpr uint32_t lanes_of = 256 / uint32_t(sizeof(T));

} // namespace model
} // namespace AscendC
