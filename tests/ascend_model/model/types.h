// The element types of dav-2201 that sampling kernels meet, the enumerations, and the structs of parameters, with the names
// and defaults of the vendor's pages ("Built-in data types", UnaryRepeatParams, BinaryRepeatParams, DataCopyPad, GatherMask,
// MrgSort, Brcb, TPosition, SetFlag/WaitFlag (ISASI)).
#pragma once

#include "report.h"

#include <cmath>
#include <cstring>

namespace ascend_model {
template <typename To, typename From> To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "sizes differ");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

// 11 bits of significand; subnormals kept. `mode` as RoundMode's names: R to nearest even, F floor, C ceil, A away on ties,
// T to zero, O to odd. Overflow saturates at `largest` (page SetCtrlSpr: CTRL[48] is 0 by default).
inline uint16_t narrow_float(float value, int significand, int exponent_bits, char mode, bool saturate) {
    const int bias = (1 << (exponent_bits - 1)) - 1, fraction = significand - 1;
    const uint16_t sign = std::signbit(value) ? uint16_t(1u << 15) : uint16_t(0);
    const uint16_t infinity = uint16_t(((1u << exponent_bits) - 1) << fraction), largest = uint16_t(infinity - 1);
    if (std::isnan(value)) return saturate ? uint16_t(0) : uint16_t(infinity | (1u << (fraction - 1)));
    if (std::isinf(value)) return uint16_t(sign | (saturate ? largest : infinity));
    if (value == 0) return sign;
    int exponent;
    std::frexp(std::fabs(value), &exponent); // |value| = f * 2^exponent, f in [0.5, 1)
    int scale = exponent - significand;      // the weight of the last bit kept
    if (scale < 1 - bias - fraction) scale = 1 - bias - fraction;
    double exact = std::ldexp(double(std::fabs(value)), -scale), kept = std::floor(exact), rest = exact - kept;
    bool odd = std::fmod(kept, 2) != 0, up = false;
    switch (mode) {
    case 'R': up = rest > 0.5 || (rest == 0.5 && odd); break;
    case 'F': up = sign && rest > 0; break;
    case 'C': up = !sign && rest > 0; break;
    case 'A': up = rest >= 0.5; break;
    case 'O': up = rest > 0 && !odd; break;
    default: break;
    }
    double rounded = std::ldexp(kept + (up ? 1 : 0), scale);
    double limit = std::ldexp(2.0 - std::ldexp(1.0, -fraction), bias);
    if (rounded > limit) return uint16_t(sign | (saturate || mode == 'T' ? largest : infinity));
    if (rounded == 0) return sign;
    std::frexp(rounded, &exponent);
    int biased = exponent - 1 + bias;
    if (biased <= 0) return uint16_t(sign | uint16_t(std::ldexp(rounded, bias - 1 + fraction)));
    double significand_bits = std::ldexp(rounded, fraction - (exponent - 1));
    return uint16_t(sign | (uint16_t(biased) << fraction) | (uint16_t(significand_bits) & ((1u << fraction) - 1)));
}

inline float widen_float(uint16_t bits, int significand, int exponent_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1, fraction = significand - 1;
    const int biased = (bits >> fraction) & ((1 << exponent_bits) - 1);
    const uint32_t rest = bits & ((1u << fraction) - 1);
    float value;
    if (biased == (1 << exponent_bits) - 1) {
        value = rest ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
    } else if (biased == 0) {
        value = std::ldexp(float(rest), 1 - bias - fraction);
    } else {
        value = std::ldexp(float(rest | (1u << fraction)), biased - bias - fraction);
    }
    return bits >> 15 ? -value : value;
}
} // namespace ascend_model

// Scalars of these types only carry bits and convert; arithmetic on them is the vector unit's.
struct half {
    uint16_t bits = 0;
    half() = default;
    half(float value) : bits(ascend_model::narrow_float(value, 11, 5, 'R', false)) {}
    explicit operator float() const { return ascend_model::widen_float(bits, 11, 5); }
};
struct bfloat16_t {
    uint16_t bits = 0;
};

namespace AscendC {

using ascend_model::Field;

enum class TPosition : uint8_t { GM, A1, A2, B1, B2, C1, C2, CO1, CO2, VECIN, VECOUT, VECCALC, MAX };

enum class HardEvent : uint8_t {
    MTE2_V,
    V_MTE2,
    MTE3_V,
    V_MTE3,
    MTE3_MTE2,
    MTE2_MTE3,
    S_V,
    V_S,
    S_MTE2,
    MTE2_S,
    S_MTE3,
    MTE3_S
};

enum class RoundMode { CAST_NONE = 0, CAST_RINT, CAST_FLOOR, CAST_CEIL, CAST_ROUND, CAST_TRUNC, CAST_ODD };
enum class CMPMODE : uint8_t { LT = 0, GT, EQ, LE, GE, NE };
enum class SELMODE : uint8_t { VSEL_CMPMASK_SPR = 0, VSEL_TENSOR_SCALAR_MODE, VSEL_TENSOR_TENSOR_MODE };
enum class ReduceOrder : uint8_t { ORDER_VALUE_INDEX = 0, ORDER_INDEX_VALUE, ORDER_ONLY_VALUE, ORDER_ONLY_INDEX };
enum class CacheLine : uint64_t { SINGLE_CACHE_LINE = 0, ENTIRE_DATA_CACHE };
enum class DcciDst : uint64_t { CACHELINE_ALL = 0, CACHELINE_UB, CACHELINE_OUT };

using QuePosition = TPosition;
using TEventID = int8_t;

inline constexpr int32_t DEFAULT_BLK_STRIDE = 1;
inline constexpr uint8_t DEFAULT_REPEAT_STRIDE = 8;

struct UnaryRepeatParams {
    UnaryRepeatParams() {}
    UnaryRepeatParams(Field<uint16_t> dst, Field<uint16_t> src, Field<uint8_t> dstRep, Field<uint8_t> srcRep)
        : dstBlkStride(dst), srcBlkStride(src), dstRepStride(dstRep), srcRepStride(srcRep) {}
    Field<uint16_t> dstBlkStride = 1, srcBlkStride = 1;
    Field<uint8_t> dstRepStride = 8, srcRepStride = 8;
};

struct BinaryRepeatParams {
    BinaryRepeatParams() {}
    BinaryRepeatParams(
        Field<uint8_t> dst, Field<uint8_t> src0, Field<uint8_t> src1, Field<uint8_t> dstRep, Field<uint8_t> src0Rep,
        Field<uint8_t> src1Rep)
        : dstBlkStride(dst), src0BlkStride(src0), src1BlkStride(src1), dstRepStride(dstRep), src0RepStride(src0Rep),
          src1RepStride(src1Rep) {}
    Field<uint8_t> dstBlkStride = 1, src0BlkStride = 1, src1BlkStride = 1;
    Field<uint8_t> dstRepStride = 8, src0RepStride = 8, src1RepStride = 8;
};

struct CopyRepeatParams {
    CopyRepeatParams() {}
    CopyRepeatParams(Field<uint16_t> dst, Field<uint16_t> src, Field<uint16_t> dstRepeat, Field<uint16_t> srcRepeat)
        : dstStride(dst), srcStride(src), dstRepeatSize(dstRepeat), srcRepeatSize(srcRepeat) {}
    Field<uint16_t> dstStride = 1, srcStride = 1, dstRepeatSize = 8, srcRepeatSize = 8;
};

struct BrcbRepeatParams {
    BrcbRepeatParams() {}
    BrcbRepeatParams(Field<uint16_t> blk, Field<uint16_t> rep) : dstBlkStride(blk), dstRepStride(rep) {}
    Field<uint16_t> dstBlkStride = 1, dstRepStride = 8;
};

struct GatherMaskParams {
    GatherMaskParams() {}
    GatherMaskParams(Field<uint8_t> block, Field<uint16_t> times, Field<uint16_t> src0, Field<uint8_t> src1)
        : src0BlockStride(block), repeatTimes(times), src0RepeatStride(src0), src1RepeatStride(src1) {}
    Field<uint8_t> src0BlockStride = 1;
    Field<uint16_t> repeatTimes = 0;
    Field<uint16_t> src0RepeatStride = 8;
    Field<uint8_t> src1RepeatStride = 8;
};

struct DataCopyParams {
    DataCopyParams() {}
    DataCopyParams(Field<uint16_t> count, Field<uint16_t> len, Field<uint16_t> src, Field<uint16_t> dst)
        : blockCount(count), blockLen(len), srcStride(src), dstStride(dst) {}
    Field<uint16_t> blockCount = 1, blockLen = 0, srcStride = 0, dstStride = 0;
};

struct DataCopyExtParams {
    DataCopyExtParams() {}
    DataCopyExtParams(
        Field<uint16_t> count, Field<uint32_t> len, Field<uint32_t> src, Field<uint32_t> dst, Field<uint32_t> reserved)
        : blockCount(count), blockLen(len), srcStride(src), dstStride(dst), rsv(reserved) {}
    Field<uint16_t> blockCount = 1;
    Field<uint32_t> blockLen = 0, srcStride = 0, dstStride = 0, rsv = 0;
};

template <typename T> struct DataCopyPadExtParams {
    DataCopyPadExtParams() {}
    DataCopyPadExtParams(bool pad, Field<uint8_t> left, Field<uint8_t> right, T value)
        : isPad(pad), leftPadding(left), rightPadding(right), paddingValue(value) {}
    bool isPad = false;
    Field<uint8_t> leftPadding = 0, rightPadding = 0;
    T paddingValue{};
};

} // namespace AscendC

inline constexpr int32_t EVENT_ID0 = 0, EVENT_ID1 = 1, EVENT_ID2 = 2, EVENT_ID3 = 3, EVENT_ID4 = 4, EVENT_ID5 = 5,
                         EVENT_ID6 = 6, EVENT_ID7 = 7;
enum pipe_t { PIPE_S = 0, PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_ALL };
