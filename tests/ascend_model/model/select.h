// Compare, CompareScalar, Select, GatherMask (pages of these names).
#pragma once

#include "convert.h"

namespace AscendC {
namespace model {

template <typename T> bool compares(CMPMODE mode, T x, T y) {
    if constexpr (std::is_same_v<T, half>) {
        return compares<float>(mode, float(x), float(y));
    } else {
        switch (mode) {
        case CMPMODE::LT: return x < y;
        case CMPMODE::GT: return x > y;
        case CMPMODE::EQ: return x == y;
        case CMPMODE::LE: return x <= y;
        case CMPMODE::GE: return x >= y;
        default: return x != y;
        }
    }
}

template <typename T> inline constexpr bool comparable = one_of<T, half, float, int32_t>;

template <typename T> void check_compare(CMPMODE mode) {
    if constexpr (std::is_same_v<T, int32_t>) require(mode == CMPMODE::EQ, "int32_t is compared for EQ alone on dav-2201");
}

// Page "Compare": the bits of an iteration follow those of the one before, lowest bit first.
template <typename U> void put_bits(const LocalTensor<U> &dst, uint32_t repeat, uint32_t lanes, const uint64_t (&bits)[2]) {
    const uint32_t bytes = lanes / 8, at = dst.address + repeat * bytes;
    require((repeat + 1) * bytes <= dst.bytes, "dst has ", dst.bytes, " bytes, the call takes ", (repeat + 1) * bytes);
    std::memcpy(ascend_model::core().ub.write(at, bytes), bits, bytes);
}

template <typename T, typename U, typename Other>
void compare_one(const LocalTensor<U> &dst, const Operand<T> &src, CMPMODE mode, uint32_t repeat, const Other &other) {
    constexpr uint32_t LANES = lanes_of<T>;
    T a[LANES];
    src.load(repeat, Lanes::first(LANES), LANES, a);
    uint64_t bits[2] = {0, 0};
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        if (compares<T>(mode, a[lane], other(lane))) bits[lane / 64] |= uint64_t(1) << (lane % 64);
    }
    put_bits(dst, repeat, LANES, bits);
}

template <typename U> void check_bits(const LocalTensor<U> &dst) {
    check_local(dst, "dst", 0, {TPosition::VECIN, TPosition::VECOUT, TPosition::VECCALC});
}
template <typename A, typename B>
void check_apart(
    const LocalTensor<A> &a, const char *a_name, const LocalTensor<B> &b, const char *b_name, uint64_t a_bytes,
    uint64_t b_bytes) {
    require(a.address + a_bytes <= b.address || b.address + b_bytes <= a.address, a_name, " and ", b_name, " overlap");
}

// The count of both calls: whole iterations of 256 bytes.
template <typename T> uint32_t compare_repeats(uint64_t count) {
    require(
        count * sizeof(T) % 256 == 0, "count ", count, " is ", count * sizeof(T),
        " bytes, which must be a multiple of 256");
    return uint32_t(count / lanes_of<T>);
}

template <typename T, typename U>
void compare_all(
    const LocalTensor<U> &dst, const Operand<T> &a, const Operand<T> *b, T scalar, CMPMODE mode, uint32_t repeats) {
    check_compare<T>(mode);
    check_bits(dst);
    a.check();
    if (b) b->check();
    if (repeats == 0) return;
    // The page names no overlap, so there is none (page "General notes").
    const uint64_t bits = uint64_t(repeats) * lanes_of<T> / 8;
    check_apart(dst, "dst", a.tensor, "src0", bits, a.offset(repeats - 1, 7) + 32);
    if (b) check_apart(dst, "dst", b->tensor, "src1", bits, b->offset(repeats - 1, 7) + 32);
    begin_vector(repeats);
    for (uint32_t i = 0; i < repeats; ++i) {
        T other[lanes_of<T>];
        if (b) b->load(i, Lanes::first(lanes_of<T>), lanes_of<T>, other);
        compare_one(dst, a, mode, i, [&](uint32_t lane) { return b ? other[lane] : scalar; });
    }
}

} // namespace model

template <typename T, typename U>
void Compare(
    const LocalTensor<U> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, CMPMODE cmpMode, uint32_t count,
    ASCEND_MODEL_AT) {
    static_assert(
        model::comparable<T> && model::one_of<U, int8_t, uint8_t>, "Compare does not take these types on dav-2201");
    ascend_model::enter("Compare", at);
    model::Operand<T> a{src0, "src0", 1, 8}, b{src1, "src1", 1, 8};
    model::compare_all<T, U>(dst, a, &b, T{}, cmpMode, model::compare_repeats<T>(count));
}
// The mask has no effect on dav-2201: the page calls it reserved.
template <typename T, typename U>
void Compare(
    const LocalTensor<U> &dst, const LocalTensor<T> &src0, const LocalTensor<T> &src1, CMPMODE cmpMode, const uint64_t mask,
    model::Repeat repeatTime, const BinaryRepeatParams &p, ASCEND_MODEL_AT) {
    static_assert(
        model::comparable<T> && model::one_of<U, int8_t, uint8_t>, "Compare does not take these types on dav-2201");
    ascend_model::enter("Compare", at);
    model::Lanes::counted(mask, model::lanes_of<T>);
    model::Operand<T> a{src0, "src0", p.src0BlkStride, p.src0RepStride}, b{src1, "src1", p.src1BlkStride, p.src1RepStride};
    model::compare_all<T, U>(dst, a, &b, T{}, cmpMode, repeatTime.checked());
}

// Page "CompareScalar" of CANN 8.5; later versions call it Compares too, and keep this name.
template <typename T, typename U>
void CompareScalar(
    const LocalTensor<U> &dst, const LocalTensor<T> &src0, const T src1Scalar, CMPMODE cmpMode, uint32_t count,
    ASCEND_MODEL_AT) {
    static_assert(model::comparable<T> && model::one_of<U, uint8_t>, "CompareScalar does not take these types on dav-2201");
    ascend_model::enter("CompareScalar", at);
    model::Operand<T> a{src0, "src0", 1, 8};
    model::compare_all<T, U>(dst, a, nullptr, src1Scalar, cmpMode, model::compare_repeats<T>(count));
}
template <typename T, typename U>
void CompareScalar(
    const LocalTensor<U> &dst, const LocalTensor<T> &src0, const T src1Scalar, CMPMODE cmpMode, const uint64_t mask,
    model::Repeat repeatTime, const UnaryRepeatParams &p, ASCEND_MODEL_AT) {
    static_assert(model::comparable<T> && model::one_of<U, uint8_t>, "CompareScalar does not take these types on dav-2201");
    ascend_model::enter("CompareScalar", at);
    model::Lanes::counted(mask, model::lanes_of<T>);
    model::Operand<T> a{src0, "src0", p.srcBlkStride, p.srcRepStride};
    model::compare_all<T, U>(dst, a, nullptr, src1Scalar, cmpMode, repeatTime.checked());
}

namespace model {

// The bits that choose for iteration `repeat`; in mode 0 the same for all.
template <typename U> void get_bits(const LocalTensor<U> &mask, uint32_t repeat, uint32_t used, uint64_t (&bits)[2]) {
    const uint32_t bytes = (used + 7) / 8;
    require(
        repeat + uint64_t(bytes) <= mask.bytes, "selMask has ", mask.bytes, " bytes, the call takes ",
        repeat + uint64_t(bytes));
    bits[0] = bits[1] = 0;
    std::memcpy(bits, ascend_model::core().ub.read(mask.address + repeat, bytes), bytes);
}

template <typename T, typename U>
void select_one(
    const Operand<T> &dst, const LocalTensor<U> &choice, uint32_t choice_at, const Operand<T> &a, const Operand<T> *b,
    T scalar, uint32_t repeat, const Lanes &mask, uint32_t used) {
    constexpr uint32_t LANES = lanes_of<T>;
    T x[LANES], y[LANES], out[LANES];
    uint64_t bits[2];
    get_bits(choice, choice_at, used, bits);
    check_overlap(dst, a, repeat, mask, LANES);
    a.load(repeat, mask, LANES, x);
    if (b) {
        check_overlap(dst, *b, repeat, mask, LANES);
        b->load(repeat, mask, LANES, y);
    }
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        bool first = bits[lane / 64] >> (lane % 64) & 1;
        if (mask.on(lane)) out[lane] = first ? x[lane] : b ? y[lane] : scalar;
    }
    dst.store(repeat, mask, LANES, out);
}

template <typename T, typename U>
void select_count(
    const LocalTensor<T> &dst, const LocalTensor<U> &choice, const LocalTensor<T> &src0, const LocalTensor<T> *src1,
    T scalar, SELMODE mode, uint32_t count) {
    static_assert(floating<T>, "Select takes half and float on dav-2201");
    static_assert(one_of<U, uint8_t, uint16_t, uint32_t, uint64_t>, "selMask is of unsigned integers");
    require(
        src1 ? mode != SELMODE::VSEL_TENSOR_SCALAR_MODE : mode == SELMODE::VSEL_TENSOR_SCALAR_MODE,
        "the select mode is not that of these operands");
    Operand<T> d{dst, "dst", 1, 8}, a{src0, "src0", 1, 8};
    d.check(), a.check();
    check_local(choice, "selMask", 0, {TPosition::VECIN, TPosition::VECOUT, TPosition::VECCALC});
    if (src1) Operand<T>{*src1, "src1", 1, 8}.check();
    const uint32_t bytes = lanes_of<T> / 8;
    over_count(count, lanes_of<T>, [&](uint32_t i, const Lanes &mask) {
        const uint32_t used = uint32_t(std::min<uint64_t>(lanes_of<T>, uint64_t(count) - uint64_t(i) * lanes_of<T>));
        const uint32_t at = mode == SELMODE::VSEL_CMPMASK_SPR ? 0 : i * bytes;
        if (src1) {
            Operand<T> b{*src1, "src1", 1, 8};
            select_one(d, choice, at, a, &b, scalar, i, mask, used);
        } else {
            select_one<T, U>(d, choice, at, a, nullptr, scalar, i, mask, used);
        }
    });
}

} // namespace model

template <typename T, typename U>
void Select(
    const LocalTensor<T> &dst, const LocalTensor<U> &selMask, const LocalTensor<T> &src0, T src1, SELMODE selMode,
    uint32_t count, ASCEND_MODEL_AT) {
    ascend_model::enter("Select", at);
    model::select_count<T, U>(dst, selMask, src0, nullptr, src1, selMode, count);
}
template <typename T, typename U>
void Select(
    const LocalTensor<T> &dst, const LocalTensor<U> &selMask, const LocalTensor<T> &src0, const LocalTensor<T> &src1,
    SELMODE selMode, uint32_t count, ASCEND_MODEL_AT) {
    ascend_model::enter("Select", at);
    model::select_count<T, U>(dst, selMask, src0, &src1, T{}, selMode, count);
}

// Iterations of a mask; modes 1 and 2 take the bits of selMask one iteration after another, mode 0 the same for all.
namespace model {
template <typename T, typename U>
void select_mask(
    const LocalTensor<T> &dst, const LocalTensor<U> &choice, const LocalTensor<T> &src0, const LocalTensor<T> *src1,
    T scalar, SELMODE mode, const Lanes &mask, Repeat repeat, const BinaryRepeatParams &p) {
    static_assert(floating<T>, "Select takes half and float on dav-2201");
    static_assert(one_of<U, uint8_t, uint16_t, uint32_t, uint64_t>, "selMask is of unsigned integers");
    require(
        src1 ? mode != SELMODE::VSEL_TENSOR_SCALAR_MODE : mode == SELMODE::VSEL_TENSOR_SCALAR_MODE,
        "the select mode is not that of these operands");
    Operand<T> d{dst, "dst", nonzero_stride(p.dstBlkStride), p.dstRepStride},
        a{src0, "src0", p.src0BlkStride, p.src0RepStride};
    d.check(), a.check();
    check_local(choice, "selMask", 0, {TPosition::VECIN, TPosition::VECOUT, TPosition::VECCALC});
    over_repeats(repeat, mask, [&](uint32_t i, const Lanes &lanes) {
        const uint32_t at = mode == SELMODE::VSEL_CMPMASK_SPR ? 0 : i * lanes_of<T> / 8;
        if (src1) {
            Operand<T> b{*src1, "src1", p.src1BlkStride, p.src1RepStride};
            b.check();
            select_one(d, choice, at, a, &b, scalar, i, lanes, lanes_of<T>);
        } else {
            select_one<T, U>(d, choice, at, a, nullptr, scalar, i, lanes, lanes_of<T>);
        }
    });
}
} // namespace model
template <typename T, typename U>
void Select(
    const LocalTensor<T> &dst, const LocalTensor<U> &selMask, const LocalTensor<T> &src0, T src1, SELMODE selMode,
    uint64_t mask, model::Repeat repeatTime, const BinaryRepeatParams &repeatParams, ASCEND_MODEL_AT) {
    ascend_model::enter("Select", at);
    model::select_mask<T, U>(
        dst, selMask, src0, nullptr, src1, selMode, model::Lanes::counted(mask, model::lanes_of<T>), repeatTime,
        repeatParams);
}
template <typename T, typename U>
void Select(
    const LocalTensor<T> &dst, const LocalTensor<U> &selMask, const LocalTensor<T> &src0, const LocalTensor<T> &src1,
    SELMODE selMode, uint64_t mask, model::Repeat repeatTime, const BinaryRepeatParams &repeatParams, ASCEND_MODEL_AT) {
    ascend_model::enter("Select", at);
    model::select_mask<T, U>(
        dst, selMask, src0, &src1, T{}, selMode, model::Lanes::counted(mask, model::lanes_of<T>), repeatTime, repeatParams);
}

namespace model {
template <typename T> using pattern_of = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;

template <typename T, typename Chosen>
uint64_t gather_mask(
    const LocalTensor<T> &dst, const LocalTensor<T> &src0, bool reduceMode, uint32_t mask, const GatherMaskParams &p,
    const Chosen &chosen) {
    static_assert(
        one_of<T, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float>,
        "GatherMask does not take this type on dav-2201");
    constexpr uint32_t LANES = lanes_of<T>;
    Operand<T> a{src0, "src0", p.src0BlockStride, p.src0RepeatStride};
    a.check();
    check_local(dst, "dst", 0, {TPosition::VECIN, TPosition::VECOUT, TPosition::VECCALC});
    require(p.repeatTimes <= 255, "repeatTimes ", uint32_t(p.repeatTimes), " is not of 0 to 255");
    if (p.repeatTimes == 0) return 0;
    const uint32_t repeats = p.repeatTimes;
    // Normal mode: whole iterations, the page suggests mask 0. Counter mode: `mask` elements an iteration, of 1 and up.
    const uint32_t each = reduceMode ? mask : LANES;
    require(
        reduceMode ? mask >= 1 : mask == 0, "mask ", mask,
        reduceMode ? " of the counter mode is not of 1 and up" : " has no effect in the normal mode, and is not 0");
    begin_vector(repeats * ((each + LANES - 1) / LANES));
    uint64_t kept = 0;
    for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
        for (uint32_t from = 0; from < each; from += LANES) {
            const uint32_t count = std::min(LANES, each - from);
            T in[LANES];
            // An iteration of more than 256 bytes goes on in the blocks that follow.
            LocalTensor<T> part = src0;
            Operand<T> step{part, "src0", p.src0BlockStride, p.src0RepeatStride};
            const uint64_t skip = uint64_t(from) / LANES * 8 * p.src0BlockStride * 32;
            require(skip <= src0.bytes, "src0 has ", src0.bytes, " bytes, the call takes more");
            part.address += uint32_t(skip), part.bytes -= uint32_t(skip);
            step.load(repeat, Lanes::first(count), LANES, in);
            for (uint32_t lane = 0; lane < count; ++lane) {
                if (!chosen(repeat, from + lane)) continue;
                require((kept + 1) * sizeof(T) <= dst.bytes, "dst has ", dst.bytes, " bytes, the call keeps more elements");
                const uint32_t at = dst.address + uint32_t(kept * sizeof(T));
                std::memcpy(ascend_model::core().ub.write(at, sizeof(T)), &in[lane], sizeof(T));
                ++kept;
            }
        }
    }
    const uint64_t taken = a.offset(repeats - 1, 0) + uint64_t(each) * sizeof(T);
    if (dst.address != src0.address) check_apart(dst, "dst", src0, "src0", kept * sizeof(T), taken);
    return kept;
}
} // namespace model

// A tensor of bits chooses.
template <typename T, typename U>
void GatherMask(
    const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<U> &src1Pattern, const bool reduceMode,
    const uint32_t mask, const GatherMaskParams &params, uint64_t &rsvdCnt, ASCEND_MODEL_AT) {
    static_assert(
        std::is_same_v<U, model::pattern_of<T>>,
        "the pattern of GatherMask is uint16_t for 16-bit elements, uint32_t for 32-bit ones");
    ascend_model::enter("GatherMask", at);
    model::check_local(src1Pattern, "src1Pattern", 0, {TPosition::VECIN, TPosition::VECOUT, TPosition::VECCALC});
    uint64_t pattern_bytes = 0;
    rsvdCnt = model::gather_mask(dst, src0, reduceMode, mask, params, [&](uint32_t repeat, uint32_t lane) {
        const uint64_t byte = uint64_t(repeat) * params.src1RepeatStride * 32 + lane / 8;
        pattern_bytes = std::max(pattern_bytes, byte + 1);
        model::require(
            byte < src1Pattern.bytes, "src1Pattern has ", src1Pattern.bytes, " bytes, the call takes byte ", byte);
        return (*ascend_model::core().ub.read(src1Pattern.address + uint32_t(byte), 1) >> (lane % 8) & 1) != 0;
    });
    model::check_apart(dst, "dst", src1Pattern, "src1Pattern", rsvdCnt * sizeof(T), pattern_bytes);
}
// A fixed pattern of 1 to 7 chooses.
template <typename T>
void GatherMask(
    const LocalTensor<T> &dst, const LocalTensor<T> &src0, const uint8_t src1Pattern, const bool reduceMode,
    const uint32_t mask, const GatherMaskParams &params, uint64_t &rsvdCnt, ASCEND_MODEL_AT) {
    ascend_model::enter("GatherMask", at);
    model::require(src1Pattern >= 1 && src1Pattern <= 7, "pattern ", uint32_t(src1Pattern), " is not of 1 to 7");
    rsvdCnt = model::gather_mask(dst, src0, reduceMode, mask, params, [&](uint32_t, uint32_t lane) {
        if (src1Pattern <= 2) return lane % 2 == uint32_t(src1Pattern - 1);
        return src1Pattern == 7 || lane % 4 == uint32_t(src1Pattern - 3);
    });
}

} // namespace AscendC
