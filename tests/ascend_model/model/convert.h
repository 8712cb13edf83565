// Cast (pages "Cast", table of Atlas A2, and "Precision conversion"): the pairs of types that dav-2201 has with the rounding
// modes of each. Overflow saturates; NaN to an integer is open in the pages and refused.
#pragma once

#include "arithmetic.h"

namespace AscendC {
namespace model {

enum : uint32_t {
    NONE = 1,
    RINT = 2,
    FLOOR = 4,
    CEIL = 8,
    ROUND = 16,
    TRUNC = 32,
    ODD = 64,
    FIVE = RINT | FLOOR | CEIL | ROUND | TRUNC
};

template <typename D, typename S> constexpr uint32_t cast_modes() {
    if (one_of<S, int8_t, uint8_t> && one_of<D, half>) return NONE;
    if (one_of<S, int16_t> && one_of<D, half>) return FIVE | NONE;
    if (one_of<S, int16_t> && one_of<D, float>) return NONE;
    if (one_of<S, half> && one_of<D, int8_t, uint8_t>) return FIVE | NONE;
    if (one_of<S, half> && one_of<D, int16_t, int32_t>) return FIVE;
    if (one_of<S, half, bfloat16_t> && one_of<D, float>) return NONE;
    if (one_of<S, bfloat16_t> && one_of<D, int32_t>) return FIVE;
    if (one_of<S, int32_t> && one_of<D, int16_t, int64_t>) return NONE;
    if (one_of<S, int32_t> && one_of<D, float>) return FIVE | NONE;
    if (one_of<S, float> && one_of<D, int16_t, int32_t, int64_t, bfloat16_t, float>) return FIVE;
    if (one_of<S, float> && one_of<D, half>) return FIVE | ODD | NONE;
    if (one_of<S, int64_t> && one_of<D, int32_t>) return NONE;
    if (one_of<S, int64_t> && one_of<D, float>) return FIVE;
    return 0;
}

inline char mode_letter(RoundMode mode) {
    static const char letters[] = {'R', 'R', 'F', 'C', 'A', 'T', 'O'};
    return letters[static_cast<int>(mode)];
}

inline double whole(double value, char mode) {
    switch (mode) {
    case 'R': return std::nearbyint(value);
    case 'F': return std::floor(value);
    case 'C': return std::ceil(value);
    case 'A': return std::round(value);
    default: return std::trunc(value);
    }
}

// An integer of at most 63 bits to f32, rounded once.
inline float integer_to_float(int64_t value, char mode) {
    const bool negative = value < 0;
    uint64_t size = negative ? uint64_t(0) - uint64_t(value) : uint64_t(value);
    int drop = size >> 24 ? 64 - __builtin_clzll(size) - 24 : 0;
    uint64_t kept = size >> drop, rest = size & ((uint64_t(1) << drop) - 1), tie = drop ? uint64_t(1) << (drop - 1) : 0;
    bool up = false;
    if (rest) {
        switch (mode) {
        case 'R': up = rest > tie || (rest == tie && (kept & 1)); break;
        case 'F': up = negative; break;
        case 'C': up = !negative; break;
        case 'A': up = rest >= tie; break;
        default: break;
        }
    }
    float result = std::ldexp(float(kept + (up ? 1 : 0)), drop);
    return negative ? -result : result;
}

template <typename D> D to_integer(float value, char mode) {
    require(!std::isnan(value), "meets a NaN, to be cast to an integer: the pages do not say what becomes of it");
    double result = whole(value, mode);
    if (result <= double(std::numeric_limits<D>::min())) return std::numeric_limits<D>::min();
    // 2^63 - 1 is no double: from 2^63 on everything saturates.
    if (result >= std::ldexp(1.0, std::numeric_limits<D>::digits)) return std::numeric_limits<D>::max();
    return D(result);
}

template <typename D, typename S> D cast(S x, char mode) {
    if constexpr (std::is_same_v<S, half>) {
        if constexpr (std::is_same_v<D, float>)
            return float(x);
        else
            return to_integer<D>(float(x), mode);
    } else if constexpr (std::is_same_v<S, bfloat16_t>) {
        float value = ascend_model::bits_as<float>(uint32_t(x.bits) << 16);
        if constexpr (std::is_same_v<D, float>)
            return flushed(value);
        else
            return to_integer<D>(value, mode);
    } else if constexpr (std::is_same_v<S, float>) {
        if constexpr (std::is_same_v<D, half>) {
            half made;
            made.bits = ascend_model::narrow_float(x, 11, 5, mode, true);
            return made;
        } else if constexpr (std::is_same_v<D, bfloat16_t>) {
            return bfloat16_t{ascend_model::narrow_float(x, 8, 8, mode, true)};
        } else if constexpr (std::is_same_v<D, float>) {
            return float(whole(x, mode));
        } else {
            return to_integer<D>(x, mode);
        }
    } else if constexpr (std::is_same_v<D, float>) {
        return integer_to_float(int64_t(x), mode);
    } else if constexpr (std::is_same_v<D, half>) {
        half made;
        made.bits = ascend_model::narrow_float(float(x), 11, 5, mode, true);
        return made;
    } else {
        if (x < std::numeric_limits<D>::min()) return std::numeric_limits<D>::min();
        if (x > std::numeric_limits<D>::max()) return std::numeric_limits<D>::max();
        return D(x);
    }
}

template <typename D, typename S> char check_cast(RoundMode mode) {
    static_assert(cast_modes<D, S>() != 0, "Cast has no such pair of types on dav-2201");
    require(
        cast_modes<D, S>() >> static_cast<int>(mode) & 1, "round mode ", static_cast<int>(mode),
        " is not one of this pair of types");
    return mode_letter(mode);
}
template <typename D, typename S>
inline constexpr uint32_t cast_lanes = 256 / uint32_t(sizeof(D) > sizeof(S) ? sizeof(D) : sizeof(S));

template <typename D, typename S>
void cast_mask(
    const LocalTensor<D> &dst, const LocalTensor<S> &src, RoundMode mode, const Lanes &mask, Repeat repeat,
    const UnaryRepeatParams &p) {
    const char letter = check_cast<D, S>(mode);
    Operand<D> d{dst, "dst", nonzero_stride(p.dstBlkStride), p.dstRepStride};
    Operand<S> s{src, "src", p.srcBlkStride, p.srcRepStride};
    d.check(), s.check();
    over_repeats(repeat, mask, [&](uint32_t i, const Lanes &lanes) {
        unary(d, s, i, lanes, [&](S x) { return cast<D>(x, letter); });
    });
}

} // namespace model

template <typename D, typename S>
void Cast(
    const LocalTensor<D> &dst, const LocalTensor<S> &src, const RoundMode &roundMode, const uint32_t count,
    ASCEND_MODEL_AT) {
    ascend_model::enter("Cast", at);
    const char letter = model::check_cast<D, S>(roundMode);
    constexpr uint32_t LANES = model::cast_lanes<D, S>;
    model::Operand<D> d{dst, "dst", 1, LANES * uint32_t(sizeof(D)) / 32};
    model::Operand<S> s{src, "src", 1, LANES * uint32_t(sizeof(S)) / 32};
    d.check(), s.check();
    model::over_count(count, LANES, [&](uint32_t i, const model::Lanes &mask) {
        model::unary(d, s, i, mask, [&](S x) { return model::cast<D>(x, letter); });
    });
}
template <typename D, typename S>
void Cast(
    const LocalTensor<D> &dst, const LocalTensor<S> &src, const RoundMode &roundMode, uint64_t mask,
    model::Repeat repeatTime, const UnaryRepeatParams &repeatParams, ASCEND_MODEL_AT) {
    ascend_model::enter("Cast", at);
    model::cast_mask(dst, src, roundMode, model::Lanes::counted(mask, model::cast_lanes<D, S>), repeatTime, repeatParams);
}
template <typename D, typename S>
void Cast(
    const LocalTensor<D> &dst, const LocalTensor<S> &src, const RoundMode &roundMode, const uint64_t mask[],
    model::Repeat repeatTime, const UnaryRepeatParams &repeatParams, ASCEND_MODEL_AT) {
    ascend_model::enter("Cast", at);
    model::cast_mask(dst, src, roundMode, model::Lanes::of_bits(mask, model::cast_lanes<D, S>), repeatTime, repeatParams);
}

} // namespace AscendC
