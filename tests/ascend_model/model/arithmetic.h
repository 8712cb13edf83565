// Elementwise arithmetic and logic (pages "Add", "Sub", "Mul", "Max", "Min", "Adds", "Muls", "Maxs", "Mins", "Div", "Abs",
// "Relu", "And", "Or", "Not", "ShiftLeft", "ShiftRight"): each with a count, with a mask of bits and with a counted mask.
//
// f32 results are rounded to nearest; where the pages leave a result open (sums of integers that overflow, NaN in Max and Min)
// the call is refused.
#pragma once

#include "vector.h"

namespace AscendC {
namespace model {

inline float flushed(float value) {
    if (__builtin_expect(!ascend_model::inexact_somewhere.load(std::memory_order_relaxed), 1)) return value;
    return ascend_model::core().launch.inexact.flush && std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value)
                                                                                               : value;
}
// `nearest` is a rounded result whose exact value is about `exact`.
inline float settled(float nearest, double exact) {
    if (__builtin_expect(!ascend_model::inexact_somewhere.load(std::memory_order_relaxed), 1)) return nearest;
    const ascend_model::Inexact &inexact = ascend_model::core().launch.inexact;
    if (inexact.truncate && std::isfinite(nearest) && std::fabs(double(nearest)) > std::fabs(exact)) {
        nearest = std::nextafter(nearest, 0.0f);
    }
    return flushed(nearest);
}

template <typename T> [[noreturn]] void overflows(T a, T b) {
    ascend_model::broken(
        ascend_model::text(
            "overflows with ", int64_t(a), " and ", int64_t(b), ": the pages do not say what becomes of it"));
}

template <typename T> struct Number; // arithmetic of one element type
template <> struct Number<float> {
    static float add(float a, float b) {
        a = flushed(a), b = flushed(b);
        return settled(a + b, double(a) + double(b));
    }
    static float sub(float a, float b) {
        a = flushed(a), b = flushed(b);
        return settled(a - b, double(a) - double(b));
    }
    static float mul(float a, float b) {
        a = flushed(a), b = flushed(b);
        return settled(a * b, double(a) * double(b));
    }
    static float div(float a, float b) {
        a = flushed(a), b = flushed(b);
        return settled(a / b, double(a) / double(b));
    }
    static void ordered(float a) { require(!std::isnan(a), "meets a NaN: the pages do not say what becomes of it"); }
    static bool less(float a, float b) {
        ordered(a);
        ordered(b);
        return a < b;
    }
};
template <> struct Number<half> {
    static half from(float value) {
        half made;
        made.bits = ascend_model::narrow_float(value, 11, 5, 'R', true);
        return made;
    }
    static half add(half a, half b) { return from(float(a) + float(b)); }
    static half sub(half a, half b) { return from(float(a) - float(b)); }
    static half mul(half a, half b) { return from(float(a) * float(b)); }
    static half div(half a, half b) { return from(float(a) / float(b)); }
    static bool less(half a, half b) { return Number<float>::less(float(a), float(b)); }
};
template <typename T> struct Integer {
    static T add(T a, T b) {
        T r;
        if (__builtin_add_overflow(a, b, &r)) overflows(a, b);
        return r;
    }
    static T sub(T a, T b) {
        T r;
        if (__builtin_sub_overflow(a, b, &r)) overflows(a, b);
        return r;
    }
    static T mul(T a, T b) {
        T r;
        if (__builtin_mul_overflow(a, b, &r)) overflows(a, b);
        return r;
    }
    static bool less(T a, T b) { return a < b; }
};
template <> struct Number<int16_t> : Integer<int16_t> {};
template <> struct Number<int32_t> : Integer<int32_t> {};

struct DoAdd {
    template <typename T> static T of(T a, T b) { return Number<T>::add(a, b); }
};
struct DoSub {
    template <typename T> static T of(T a, T b) { return Number<T>::sub(a, b); }
};
struct DoMul {
    template <typename T> static T of(T a, T b) { return Number<T>::mul(a, b); }
};
struct DoDiv {
    template <typename T> static T of(T a, T b) { return Number<T>::div(a, b); }
};
struct DoMax {
    template <typename T> static T of(T a, T b) { return Number<T>::less(a, b) ? b : a; }
};
struct DoMin {
    template <typename T> static T of(T a, T b) { return Number<T>::less(b, a) ? b : a; }
};
struct DoAnd {
    template <typename T> static T of(T a, T b) { return T(a & b); }
};
struct DoOr {
    template <typename T> static T of(T a, T b) { return T(a | b); }
};

template <typename T> inline constexpr bool arithmetic = one_of<T, int16_t, half, int32_t, float>;
template <typename T> inline constexpr bool floating = one_of<T, half, float>;
template <typename T> inline constexpr bool bitwise = one_of<T, int16_t, uint16_t>;
template <typename T> inline constexpr bool shiftable = one_of<T, int16_t, uint16_t, int32_t, uint32_t>;

template <typename Op, typename T>
void binary_count(const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, int64_t count) {
    Operand<T> d{dst, "dst", 1, 8}, a{src0, "src0", 1, 8}, b{src1, "src1", 1, 8};
    d.check(), a.check(), b.check();
    over_count(count, lanes_of<T>, [&](uint32_t i, const Lanes &mask) { binary(d, a, b, i, mask, Op::template of<T>); });
}
template <typename Op, typename T>
void binary_mask(
    const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, const Lanes &mask, Repeat repeat,
    const BinaryRepeatParams &p, bool may_chain) {
    Operand<T> d{dst, "dst", nonzero_stride(p.dstBlkStride), p.dstRepStride},
        a{src0, "src0", p.src0BlkStride, p.src0RepStride}, b{src1, "src1", p.src1BlkStride, p.src1RepStride};
    d.check(), a.check(), b.check();
    // Page "General notes, overlap": these calls may pass a result on to src1 of the next iteration.
    bool chains = may_chain && one_of<T, half, int32_t, float> && dst.address == src1.address &&
                  (p.src1RepStride == 0 || p.dstRepStride == 0);
    ascend_model::core().ub.iterations_may_chain = chains;
    over_repeats(repeat, mask, [&](uint32_t i, const Lanes &lanes) { binary(d, a, b, i, lanes, Op::template of<T>); });
    ascend_model::core().ub.iterations_may_chain = false;
}
template <typename T, typename Op>
void unary_count(const LocalTensor<T> &dst, const LocalTensor<T> &src, int64_t count, const Op &op) {
    Operand<T> d{dst, "dst", 1, 8}, a{src, "src", 1, 8};
    d.check(), a.check();
    over_count(count, lanes_of<T>, [&](uint32_t i, const Lanes &mask) { unary(d, a, i, mask, op); });
}
template <typename T, typename Op>
void unary_mask(
    const LocalTensor<T> &dst, const LocalTensor<T> &src, const Lanes &mask, Repeat repeat, const UnaryRepeatParams &p,
    const Op &op) {
    Operand<T> d{dst, "dst", nonzero_stride(p.dstBlkStride), p.dstRepStride}, a{src, "src", p.srcBlkStride, p.srcRepStride};
    d.check(), a.check();
    over_repeats(repeat, mask, [&](uint32_t i, const Lanes &lanes) { unary(d, a, i, lanes, op); });
}

} // namespace model

#define ASCEND_MODEL_BINARY(Name, Op, allowed, chains)                                                            \
    template <typename T>                                                                                         \
    void Name(                                                                                                    \
        const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, const int32_t &count,  \
        ASCEND_MODEL_AT) {                                                                                        \
        static_assert(model::allowed<T>, #Name " does not take this type on dav-2201");                           \
        ascend_model::enter(#Name, at);                                                                           \
        model::binary_count<model::Op>(dst, src0, src1, count);                                                   \
    }                                                                                                             \
    template <typename T>                                                                                         \
    void Name(                                                                                                    \
        const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, uint64_t mask,         \
        model::Repeat repeatTime, const BinaryRepeatParams &repeatParams, ASCEND_MODEL_AT) {                      \
        static_assert(model::allowed<T>, #Name " does not take this type on dav-2201");                           \
        ascend_model::enter(#Name, at);                                                                           \
        model::binary_mask<model::Op>(                                                                            \
            dst, src0, src1, model::Lanes::counted(mask, model::lanes_of<T>), repeatTime, repeatParams, chains);  \
    }                                                                                                             \
    template <typename T>                                                                                         \
    void Name(                                                                                                    \
        const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, const uint64_t mask[], \
        model::Repeat repeatTime, const BinaryRepeatParams &repeatParams, ASCEND_MODEL_AT) {                      \
        static_assert(model::allowed<T>, #Name " does not take this type on dav-2201");                           \
        ascend_model::enter(#Name, at);                                                                           \
        model::binary_mask<model::Op>(                                                                            \
            dst, src0, src1, model::Lanes::of_bits(mask, model::lanes_of<T>), repeatTime, repeatParams, chains);  \
    }
ASCEND_MODEL_BINARY(Add, DoAdd, arithmetic, true)
ASCEND_MODEL_BINARY(Sub, DoSub, arithmetic, true)
ASCEND_MODEL_BINARY(Mul, DoMul, arithmetic, true)
ASCEND_MODEL_BINARY(Max, DoMax, arithmetic, true)
ASCEND_MODEL_BINARY(Min, DoMin, arithmetic, true)
ASCEND_MODEL_BINARY(Div, DoDiv, floating, false)
ASCEND_MODEL_BINARY(And, DoAnd, bitwise, false)
ASCEND_MODEL_BINARY(Or, DoOr, bitwise, false)
#undef ASCEND_MODEL_BINARY

// Calls of one tensor, with what the element is put through.
#define ASCEND_MODEL_UNARY(Name, allowed, EXTRA, CHECK, OP)                                                                \
    template <typename T>                                                                                                  \
    void Name(const LocalTensor<T> &dst, const LocalTensor<T> &src EXTRA, const int32_t &count, ASCEND_MODEL_AT) {         \
        static_assert(model::allowed<T>, #Name " does not take this type on dav-2201");                                    \
        ascend_model::enter(#Name, at);                                                                                    \
        CHECK;                                                                                                             \
        model::unary_count(dst, src, count, [&](T x) { return OP; });                                                      \
    }                                                                                                                      \
    template <typename T>                                                                                                  \
    void Name(                                                                                                             \
        const LocalTensor<T> &dst, const LocalTensor<T> &src EXTRA, uint64_t mask, model::Repeat repeatTime,               \
        const UnaryRepeatParams &repeatParams, ASCEND_MODEL_AT) {                                                          \
        static_assert(model::allowed<T>, #Name " does not take this type on dav-2201");                                    \
        ascend_model::enter(#Name, at);                                                                                    \
        CHECK;                                                                                                             \
        model::unary_mask(                                                                                                 \
            dst, src, model::Lanes::counted(mask, model::lanes_of<T>), repeatTime, repeatParams, [&](T x) { return OP; }); \
    }                                                                                                                      \
    template <typename T>                                                                                                  \
    void Name(                                                                                                             \
        const LocalTensor<T> &dst, const LocalTensor<T> &src EXTRA, const uint64_t mask[], model::Repeat repeatTime,       \
        const UnaryRepeatParams &repeatParams, ASCEND_MODEL_AT) {                                                          \
        static_assert(model::allowed<T>, #Name " does not take this type on dav-2201");                                    \
        ascend_model::enter(#Name, at);                                                                                    \
        CHECK;                                                                                                             \
        model::unary_mask(                                                                                                 \
            dst, src, model::Lanes::of_bits(mask, model::lanes_of<T>), repeatTime, repeatParams, [&](T x) { return OP; }); \
    }
namespace model {
template <typename T> T absolute(T x) {
    if constexpr (std::is_same_v<T, half>) {
        x.bits &= 0x7FFF;
        return x;
    } else {
        return std::fabs(x);
    }
}
template <typename T> T shift_left(T x, int64_t by) {
    constexpr int WIDTH = int(sizeof(T)) * 8;
    using U = std::make_unsigned_t<T>;
    U shifted = by >= WIDTH ? U(0) : U(U(x) << by);
    // Page "ShiftLeft": of a signed type the sign stays and the bit below it is dropped.
    if constexpr (std::is_signed_v<T>) shifted = U((shifted & ~(U(1) << (WIDTH - 1))) | (U(x) & (U(1) << (WIDTH - 1))));
    return T(shifted);
}
template <typename T> T shift_right(T x, int64_t by) {
    constexpr int WIDTH = int(sizeof(T)) * 8;
    if (by >= WIDTH) return std::is_signed_v<T> && x < 0 ? T(-1) : T(0);
    return T(x >> by);
}
template <typename T> void check_shift(T by) {
    require(by >= 0 && uint64_t(by) <= sizeof(T) * 8, "a shift by ", int64_t(by), " of a type of ", sizeof(T) * 8, " bits");
}
} // namespace model

#define ASCEND_MODEL_NONE
#define ASCEND_MODEL_SCALAR , const T &scalarValue
ASCEND_MODEL_UNARY(Not, bitwise, ASCEND_MODEL_NONE, , T(~x))
ASCEND_MODEL_UNARY(Abs, floating, ASCEND_MODEL_NONE, , model::absolute(x))
ASCEND_MODEL_UNARY(Adds, arithmetic, ASCEND_MODEL_SCALAR, , model::Number<T>::add(x, scalarValue))
ASCEND_MODEL_UNARY(Muls, arithmetic, ASCEND_MODEL_SCALAR, , model::Number<T>::mul(x, scalarValue))
ASCEND_MODEL_UNARY(Maxs, arithmetic, ASCEND_MODEL_SCALAR, , model::DoMax::of<T>(x, scalarValue))
ASCEND_MODEL_UNARY(Mins, arithmetic, ASCEND_MODEL_SCALAR, , model::DoMin::of<T>(x, scalarValue))
ASCEND_MODEL_UNARY(
    ShiftLeft, shiftable, ASCEND_MODEL_SCALAR, model::check_shift(scalarValue), model::shift_left(x, scalarValue))
ASCEND_MODEL_UNARY(
    ShiftRight, shiftable, ASCEND_MODEL_SCALAR, model::check_shift(scalarValue), model::shift_right(x, scalarValue))
#undef ASCEND_MODEL_UNARY
#undef ASCEND_MODEL_NONE
#undef ASCEND_MODEL_SCALAR

} // namespace AscendC
