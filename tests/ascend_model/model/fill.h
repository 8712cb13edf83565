// Filling and rearranging (pages "Duplicate", "CreateVecIndex", "Brcb", "Gather", "Copy").
#pragma once

#include "reduce.h"

namespace AscendC {
namespace model {

template <typename T>
inline constexpr bool fillable = one_of<T, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float>;

template <typename T, typename Value>
void fill_one(const Operand<T> &dst, uint32_t repeat, const Lanes &mask, const Value &value) {
    constexpr uint32_t LANES = lanes_of<T>;
    T out[LANES];
    for (uint32_t lane = 0; lane < LANES; ++lane) {
        if (mask.on(lane)) out[lane] = value(repeat * LANES + lane);
    }
    dst.store(repeat, mask, LANES, out);
}

template <typename T, typename Value> void fill_count(const LocalTensor<T> &dst, int64_t count, const Value &value) {
    Operand<T> d{dst, "dst", 1, 8};
    d.check();
    over_count(count, lanes_of<T>, [&](uint32_t i, const Lanes &mask) { fill_one(d, i, mask, value); });
}
template <typename T, typename Value>
void fill_mask(
    const LocalTensor<T> &dst, const Lanes &mask, Repeat repeat, uint32_t blk, uint32_t rep, const Value &value) {
    Operand<T> d{dst, "dst", nonzero_stride(blk), rep};
    d.check();
    over_repeats(repeat, mask, [&](uint32_t i, const Lanes &lanes) { fill_one(d, i, lanes, value); });
}

template <typename T> T counted_from(T first, uint32_t i) {
    if constexpr (std::is_same_v<T, half>) {
        return Number<half>::from(float(first) + float(i));
    } else if constexpr (std::is_same_v<T, float>) {
        return first + float(i);
    } else {
        return Number<T>::add(first, T(i));
    }
}

} // namespace model

template <typename T>
void Duplicate(const LocalTensor<T> &dst, const T &scalarValue, const int32_t &count, ASCEND_MODEL_AT) {
    static_assert(model::fillable<T>, "Duplicate does not take this type on dav-2201");
    ascend_model::enter("Duplicate", at);
    model::fill_count(dst, count, [&](uint32_t) { return scalarValue; });
}
template <typename T>
void Duplicate(
    const LocalTensor<T> &dst, const T &scalarValue, uint64_t mask, model::Repeat repeatTime,
    ascend_model::Field<uint16_t> dstBlockStride, ascend_model::Field<uint8_t> dstRepeatStride, ASCEND_MODEL_AT) {
    static_assert(model::fillable<T>, "Duplicate does not take this type on dav-2201");
    ascend_model::enter("Duplicate", at);
    model::fill_mask(
        dst, model::Lanes::counted(mask, model::lanes_of<T>), repeatTime, dstBlockStride, dstRepeatStride,
        [&](uint32_t) { return scalarValue; });
}
template <typename T>
void Duplicate(
    const LocalTensor<T> &dst, const T &scalarValue, const uint64_t mask[], model::Repeat repeatTime,
    ascend_model::Field<uint16_t> dstBlockStride, ascend_model::Field<uint8_t> dstRepeatStride, ASCEND_MODEL_AT) {
    static_assert(model::fillable<T>, "Duplicate does not take this type on dav-2201");
    ascend_model::enter("Duplicate", at);
    model::fill_mask(
        dst, model::Lanes::of_bits(mask, model::lanes_of<T>), repeatTime, dstBlockStride, dstRepeatStride,
        [&](uint32_t) { return scalarValue; });
}

template <typename T> void CreateVecIndex(LocalTensor<T> dst, const T &firstValue, uint32_t count, ASCEND_MODEL_AT) {
    static_assert(model::arithmetic<T>, "CreateVecIndex does not take this type on dav-2201");
    ascend_model::enter("CreateVecIndex", at);
    model::fill_count(dst, count, [&](uint32_t i) { return model::counted_from(firstValue, i); });
}

template <typename T>
void CreateVecIndex(
    LocalTensor<T> &dst, const T &firstValue, uint64_t mask, model::Repeat repeatTime,
    ascend_model::Field<uint16_t> dstBlkStride, ascend_model::Field<uint8_t> dstRepStride, ASCEND_MODEL_AT) {
    static_assert(model::arithmetic<T>, "CreateVecIndex does not take this type on dav-2201");
    ascend_model::enter("CreateVecIndex", at);
    model::fill_mask(
        dst, model::Lanes::counted(mask, model::lanes_of<T>), repeatTime, dstBlkStride, dstRepStride,
        [&](uint32_t i) { return model::counted_from(firstValue, i); });
}

// Page "Brcb": 8 elements an iteration, each to a whole block.
template <typename T>
void Brcb(
    const LocalTensor<T> &dst, const LocalTensor<T> &src, model::Repeat repeatTime, const BrcbRepeatParams &p,
    ASCEND_MODEL_AT) {
    static_assert(model::fillable<T>, "Brcb does not take this type on dav-2201");
    ascend_model::enter("Brcb", at);
    model::Operand<T> d{dst, "dst", model::nonzero_stride(p.dstBlkStride), p.dstRepStride};
    d.check();
    const uint32_t repeats = repeatTime.checked();
    const uint64_t bytes = uint64_t(repeats) * 8 * sizeof(T);
    model::check_local(src, "src", bytes, {TPosition::VECIN, TPosition::VECOUT, TPosition::VECCALC});
    if (repeats == 0) return;
    model::check_apart(dst, "dst", src, "src", d.offset(repeats - 1, 7) + 32, bytes);
    model::begin_vector(repeats);
    for (uint32_t i = 0; i < repeats; ++i) {
        T in[8], out[model::lanes_of<T>];
        std::memcpy(in, ascend_model::core().ub.read(src.address + i * 8 * uint32_t(sizeof(T)), 8 * sizeof(T)), sizeof in);
        for (uint32_t lane = 0; lane < model::lanes_of<T>; ++lane) out[lane] = in[lane / model::Operand<T>::PER_BLOCK];
        d.store(i, model::Lanes::first(model::lanes_of<T>), model::lanes_of<T>, out);
    }
}

// Page "Gather": offsets in bytes, from srcBaseAddr bytes into src.
template <typename T>
void Gather(
    const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<uint32_t> &srcOffset,
    const uint32_t srcBaseAddr, const uint32_t count, ASCEND_MODEL_AT) {
    static_assert(model::fillable<T>, "Gather does not take this type on dav-2201");
    ascend_model::enter("Gather", at);
    model::require(srcBaseAddr % sizeof(T) == 0, "srcBaseAddr ", srcBaseAddr, " is not aligned to the element");
    model::check_local(dst, "dst", uint64_t(count) * sizeof(T), {TPosition::VECIN, TPosition::VECOUT, TPosition::VECCALC});
    model::check_local(src, "src", 0, {TPosition::VECIN, TPosition::VECOUT, TPosition::VECCALC});
    model::check_local(
        srcOffset, "srcOffset", uint64_t(count) * 4, {TPosition::VECIN, TPosition::VECOUT, TPosition::VECCALC});
    model::check_apart(dst, "dst", srcOffset, "srcOffset", uint64_t(count) * sizeof(T), uint64_t(count) * 4);
    if (count == 0) return;
    model::begin_vector((count + model::lanes_of<T> - 1) / model::lanes_of<T>);
    const uint64_t written = dst.address + uint64_t(count) * sizeof(T);
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t offset;
        std::memcpy(&offset, ascend_model::core().ub.read(srcOffset.address + i * 4, 4), 4);
        model::require(offset % sizeof(T) == 0, "offset ", offset, " is not aligned to the element");
        uint64_t from = uint64_t(srcBaseAddr) + offset;
        model::require(from + sizeof(T) <= src.bytes, "offset ", from, " lies past the ", src.bytes, " bytes of src");
        const uint64_t place = src.address + from;
        model::require(place + sizeof(T) <= dst.address || place >= written, "dst and src overlap");
        T value;
        std::memcpy(&value, ascend_model::core().ub.read(src.address + uint32_t(from), sizeof(T)), sizeof(T));
        std::memcpy(ascend_model::core().ub.write(dst.address + i * uint32_t(sizeof(T)), sizeof(T)), &value, sizeof(T));
    }
}

// Page "Copy": within the unified buffer, by the vector unit.
template <typename T>
void Copy(
    const LocalTensor<T> &dst, const LocalTensor<T> &src, const uint64_t mask, model::Repeat repeatTime,
    const CopyRepeatParams &p, ASCEND_MODEL_AT) {
    static_assert(model::fillable<T>, "Copy does not take this type on dav-2201");
    ascend_model::enter("Copy", at);
    model::require(p.dstRepeatSize <= 4095 && p.srcRepeatSize <= 4095, "a repeat size is not of 0 to 4095");
    model::Operand<T> d{dst, "dst", model::nonzero_stride(p.dstStride), p.dstRepeatSize},
        s{src, "src", p.srcStride, p.srcRepeatSize};
    d.check(), s.check();
    model::over_repeats(
        repeatTime, model::Lanes::counted(mask, model::lanes_of<T>),
        [&](uint32_t i, const model::Lanes &lanes) { model::unary(d, s, i, lanes, [](T x) { return x; }); });
}

// Page "DataCopy (contiguous, UB to UB)": VECIN to VECCALC and VECCALC to VECOUT, by the vector unit.
template <typename T>
void DataCopy(const LocalTensor<T> &dst, const LocalTensor<T> &src, const uint32_t count, ASCEND_MODEL_AT) {
    static_assert(model::movable<T>, "DataCopy does not take this type on dav-2201");
    ascend_model::enter("DataCopy", at);
    const uint64_t bytes = uint64_t(count) * sizeof(T);
    model::require(bytes % 32 == 0, bytes, " bytes are not a multiple of 32");
    const TPosition from = src.holder("src").position;
    model::check_local(src, "src", bytes, {TPosition::VECIN, TPosition::VECCALC});
    model::check_local(dst, "dst", bytes, {from == TPosition::VECIN ? TPosition::VECCALC : TPosition::VECOUT});
    model::check_apart(dst, "dst", src, "src", bytes, bytes);
    if (bytes == 0) return;
    model::begin_vector(uint32_t((bytes + 255) / 256));
    const uint8_t *in = ascend_model::core().ub.read(src.address, uint32_t(bytes));
    std::memcpy(ascend_model::core().ub.write(dst.address, uint32_t(bytes)), in, bytes);
}

} // namespace AscendC
