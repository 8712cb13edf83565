// Moves between global memory and the unified buffer (pages "DataCopyPad" both ways, "DataCopy" contiguous and in blocks,
// "SetAtomicAdd", "SetAtomicMax", "SetAtomicMin", "SetPadValue").
#pragma once

#include "pipe.h"

namespace AscendC {

namespace model {

using ascend_model::require;

template <typename T, typename... List> inline constexpr bool one_of = (std::is_same_v<T, List> || ...);
template <typename T>
inline constexpr bool movable =
    one_of<T, int8_t, uint8_t, int16_t, uint16_t, half, bfloat16_t, int32_t, uint32_t, float, int64_t, uint64_t, double>;

template <typename T>
void check_local(
    const LocalTensor<T> &tensor, const char *what, uint64_t bytes, std::initializer_list<TPosition> positions) {
    const auto &held = tensor.holder(what);
    bool allowed = false;
    for (TPosition position : positions) allowed = allowed || position == held.position;
    require(allowed, what, " is of a TPosition that the call does not take");
    require(tensor.address % 32 == 0, what, " is not aligned to 32 bytes");
    require(bytes <= tensor.bytes, what, " has ", tensor.bytes, " bytes, the call takes ", bytes);
}

// What DMA leaves where the page says dummy: bits that are a NaN as float and far from zero as integers.
inline void poison(uint8_t *bytes, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) bytes[i] = uint8_t(i % 2 ? 0x7F : 0xDB);
}

template <typename T> T combined(ascend_model::Atomic how, T old, T given) {
    if constexpr (one_of<T, half, bfloat16_t>) {
        ascend_model::broken("of the model: atomics of 16-bit floats");
    } else {
        switch (how) {
        case ascend_model::Atomic::ADD:
            if constexpr (std::is_floating_point_v<T>)
                return old + given;
            else
                return T(std::make_unsigned_t<T>(old) + std::make_unsigned_t<T>(given));
        case ascend_model::Atomic::MAX: return old > given ? old : given;
        case ascend_model::Atomic::MIN: return old < given ? old : given;
        default: return given;
        }
    }
}

template <typename T> const char *type_name() {
    if constexpr (std::is_same_v<T, int8_t>)
        return "int8_t";
    else if constexpr (std::is_same_v<T, int16_t>)
        return "int16_t";
    else if constexpr (std::is_same_v<T, half>)
        return "half";
    else if constexpr (std::is_same_v<T, bfloat16_t>)
        return "bfloat16_t";
    else if constexpr (std::is_same_v<T, int32_t>)
        return "int32_t";
    else if constexpr (std::is_same_v<T, float>)
        return "float";
    else
        return "another type";
}

// Writes `bytes` from the unified buffer to global memory, as the atomic state asks.
template <typename T> void put(uint64_t address, const uint8_t *from, uint64_t bytes) {
    ascend_model::Core &core = ascend_model::core();
    if (core.atomic != ascend_model::Atomic::NONE) {
        require(
            core.atomic_type == type_name<T>(), "an atomic of ", core.atomic_type, " is set, the copy is of ",
            type_name<T>());
        // The sum needs what is there.
        ascend_model::Region *region = core.launch.memory->find(address);
        for (uint64_t i = 0; region && i < bytes; ++i) {
            require(
                !region->holds(address + i, 1) || region->defined[address + i - region->base],
                "an atomic on global memory that was never written");
        }
    }
    uint8_t *to = core.gm_write(address, bytes);
    core.counters.gm_written += bytes;
    if (core.atomic == ascend_model::Atomic::NONE) {
        std::memcpy(to, from, bytes);
        return;
    }
    for (uint64_t i = 0; i < bytes; i += sizeof(T)) {
        T old, given;
        std::memcpy(&old, to + i, sizeof(T));
        std::memcpy(&given, from + i, sizeof(T));
        T result = combined(core.atomic, old, given);
        std::memcpy(to + i, &result, sizeof(T));
    }
}

inline void get(uint8_t *to, uint64_t address, uint64_t bytes) {
    std::memcpy(to, ascend_model::core().gm_read(address, bytes), bytes);
    ascend_model::core().counters.gm_read += bytes;
}

inline void check_blocks(const DataCopyExtParams &params, size_t element) {
    require(params.blockCount <= 4095, "blockCount ", uint32_t(params.blockCount), " is not of 0 to 4095");
    require(params.blockLen <= 2097151, "blockLen ", uint32_t(params.blockLen), " is not of 0 to 2097151 bytes");
    require(
        params.blockLen % element == 0, "blockLen ", uint32_t(params.blockLen), " is not a multiple of the element's ",
        element, " bytes");
    require(params.rsv == 0, "the reserved field is ", uint32_t(params.rsv));
}

inline void begin_move(int pipe) {
    ascend_model::core().order.begin(pipe);
    ++ascend_model::core().counters.moves;
}

} // namespace model

// Page "DataCopyPad (GM to UB)".
template <typename T>
void DataCopyPad(
    const LocalTensor<T> &dst, const GlobalTensor<T> &src, const DataCopyExtParams &params,
    const DataCopyPadExtParams<T> &pad, ASCEND_MODEL_AT) {
    static_assert(model::movable<T>, "DataCopyPad does not take this type on dav-2201");
    ascend_model::enter("DataCopyPad", at);
    ascend_model::Core &core = ascend_model::core();
    model::check_blocks(params, sizeof(T));
    if (params.blockCount == 0 || params.blockLen == 0) return; // the page: nothing is done
    const uint32_t length = params.blockLen, left = uint32_t(pad.leftPadding * sizeof(T)),
                   right = uint32_t(pad.rightPadding * sizeof(T));
    model::require(
        left <= 32 && right <= 32, "leftPadding of ", left, " and rightPadding of ", right,
        " bytes, each of which may be 32 at most");
    if constexpr (sizeof(T) == 8) {
        model::require(
            !pad.isPad || ascend_model::bits_as<uint64_t>(pad.paddingValue) == 0,
            "types of 64 bits are padded with 0 alone");
    }
    const uint32_t whole = model::rounded(uint64_t(left) + length + right);
    const uint64_t step = whole + uint64_t(params.dstStride) * 32;
    model::check_local(dst, "dst", (params.blockCount - 1) * step + whole, {TPosition::VECIN, TPosition::VECOUT});
    model::begin_move(PIPE_MTE2);
    // The page: without padding on a side the rest of the block is dummy even where isPad is true; a value from SetPadValue
    // counts where isPad is false and there is padding.
    const bool asked = left + right != 0, defined = asked && (pad.isPad || core.pad_set);
    for (uint32_t i = 0; i < params.blockCount; ++i) {
        const uint64_t skip = i * (uint64_t(length) + params.srcStride);
        src.check(skip, length);
        const uint32_t start = dst.address + uint32_t(i * step);
        uint8_t *to = core.ub.write(start + left, length);
        model::get(to, src.address + skip, length);
        auto fill = [&](uint32_t from, uint32_t until) {
            if (from == until) return;
            uint8_t *bytes = core.ub.write(
                from, until - from, defined ? ascend_model::UnifiedBuffer::WRITTEN : ascend_model::UnifiedBuffer::DUMMY);
            model::poison(bytes, until - from);
            if (!defined) return;
            T value;
            if (pad.isPad)
                value = pad.paddingValue;
            else
                std::memcpy(&value, &core.pad_bits, sizeof(T));
            for (uint32_t byte = 0; byte < until - from; byte += uint32_t(sizeof(T)))
                std::memcpy(bytes + byte, &value, sizeof(T));
        };
        fill(start, start + left);
        fill(start + left + length, start + whole);
    }
}

// Page "DataCopyPad (UB to GM)".
template <typename T>
void DataCopyPad(const GlobalTensor<T> &dst, const LocalTensor<T> &src, const DataCopyExtParams &params, ASCEND_MODEL_AT) {
    static_assert(model::movable<T>, "DataCopyPad does not take this type on dav-2201");
    ascend_model::enter("DataCopyPad", at);
    ascend_model::Core &core = ascend_model::core();
    model::check_blocks(params, sizeof(T));
    if (params.blockCount == 0 || params.blockLen == 0) return;
    const uint32_t length = params.blockLen;
    const uint64_t step = model::rounded(length) + uint64_t(params.srcStride) * 32;
    model::check_local(src, "src", (params.blockCount - 1) * step + length, {TPosition::VECIN, TPosition::VECOUT});
    model::begin_move(PIPE_MTE3);
    for (uint32_t i = 0; i < params.blockCount; ++i) {
        const uint64_t skip = i * (uint64_t(length) + params.dstStride);
        dst.check(skip, length);
        const uint8_t *from = core.ub.read(src.address + uint32_t(i * step), length);
        model::put<T>(dst.address + skip, from, length);
    }
}

// Page "DataCopy (contiguous, GM and UB)"; a count that is not of whole blocks of 32 bytes is cut there, and refused here.
template <typename T>
void DataCopy(const LocalTensor<T> &dst, const GlobalTensor<T> &src, uint32_t count, ASCEND_MODEL_AT) {
    static_assert(model::movable<T>, "DataCopy does not take this type on dav-2201");
    ascend_model::enter("DataCopy", at);
    const uint64_t bytes = uint64_t(count) * sizeof(T);
    model::require(bytes % 32 == 0, bytes, " bytes are not a multiple of 32");
    model::require(src.address % sizeof(T) == 0, "src is not aligned to its element");
    model::check_local(dst, "dst", bytes, {TPosition::VECIN});
    src.check(0, bytes);
    if (bytes == 0) return;
    model::begin_move(PIPE_MTE2);
    model::get(ascend_model::core().ub.write(dst.address, uint32_t(bytes)), src.address, bytes);
}
template <typename T>
void DataCopy(const GlobalTensor<T> &dst, const LocalTensor<T> &src, uint32_t count, ASCEND_MODEL_AT) {
    static_assert(model::movable<T>, "DataCopy does not take this type on dav-2201");
    ascend_model::enter("DataCopy", at);
    const uint64_t bytes = uint64_t(count) * sizeof(T);
    model::require(bytes % 32 == 0, bytes, " bytes are not a multiple of 32");
    model::require(dst.address % sizeof(T) == 0, "dst is not aligned to its element");
    model::check_local(src, "src", bytes, {TPosition::VECOUT});
    dst.check(0, bytes);
    if (bytes == 0) return;
    model::begin_move(PIPE_MTE3);
    model::put<T>(dst.address, ascend_model::core().ub.read(src.address, uint32_t(bytes)), bytes);
}

// Page "DataCopy (in blocks, GM and UB)": lengths and gaps in blocks of 32 bytes on both sides.
namespace model {
inline void check_params(const DataCopyParams &params) {
    require(params.blockCount <= 4095, "blockCount ", uint32_t(params.blockCount), " is not of 0 to 4095");
}
template <typename T, typename Move>
void copy_blocks(
    uint64_t global, const LocalTensor<T> &local, const DataCopyParams &params, uint32_t global_gap, uint32_t local_gap,
    const Move &move) {
    require(global % sizeof(T) == 0, "global memory is not aligned to the element");
    const uint64_t length = uint64_t(params.blockLen) * 32;
    for (uint32_t i = 0; i < params.blockCount; ++i) {
        move(
            uint32_t(i * (length + local_gap * 32ull)) + local.address, i * (length + global_gap * 32ull),
            uint32_t(length));
    }
}
inline uint64_t extent(const DataCopyParams &params, uint32_t gap) {
    return (params.blockCount - 1) * (params.blockLen + uint64_t(gap)) * 32 + params.blockLen * 32ull;
}
} // namespace model
template <typename T>
void DataCopy(const LocalTensor<T> &dst, const GlobalTensor<T> &src, const DataCopyParams &params, ASCEND_MODEL_AT) {
    static_assert(model::movable<T>, "DataCopy does not take this type on dav-2201");
    ascend_model::enter("DataCopy", at);
    model::check_params(params);
    if (params.blockCount == 0 || params.blockLen == 0) return;
    model::check_local(dst, "dst", model::extent(params, params.dstStride), {TPosition::VECIN});
    model::begin_move(PIPE_MTE2);
    model::copy_blocks(
        src.address, dst, params, params.srcStride, params.dstStride, [&](uint32_t local, uint64_t skip, uint32_t length) {
            src.check(skip, length);
            model::get(ascend_model::core().ub.write(local, length), src.address + skip, length);
        });
}
template <typename T>
void DataCopy(const GlobalTensor<T> &dst, const LocalTensor<T> &src, const DataCopyParams &params, ASCEND_MODEL_AT) {
    static_assert(model::movable<T>, "DataCopy does not take this type on dav-2201");
    ascend_model::enter("DataCopy", at);
    model::check_params(params);
    if (params.blockCount == 0 || params.blockLen == 0) return;
    model::check_local(src, "src", model::extent(params, params.srcStride), {TPosition::VECOUT});
    model::begin_move(PIPE_MTE3);
    model::copy_blocks(
        dst.address, src, params, params.dstStride, params.srcStride, [&](uint32_t local, uint64_t skip, uint32_t length) {
            dst.check(skip, length);
            model::put<T>(dst.address + skip, ascend_model::core().ub.read(local, length), length);
        });
}

// Page "SetAtomicAdd" and its like: what the copies to global memory do until SetAtomicNone.
namespace model {
template <typename T> void set_atomic(ascend_model::Atomic how) {
    static_assert(
        one_of<T, int8_t, int16_t, half, bfloat16_t, int32_t, float>,
        "atomics of dav-2201: int8, int16, half, bfloat16, int32, float");
    ascend_model::core().atomic = how;
    ascend_model::core().atomic_type = type_name<T>();
}
} // namespace model
template <typename T> void SetAtomicAdd() { model::set_atomic<T>(ascend_model::Atomic::ADD); }
template <typename T> void SetAtomicMax() { model::set_atomic<T>(ascend_model::Atomic::MAX); }
template <typename T> void SetAtomicMin() { model::set_atomic<T>(ascend_model::Atomic::MIN); }
inline void SetAtomicNone() { ascend_model::core().atomic = ascend_model::Atomic::NONE; }

template <typename T> void SetPadValue(T value) {
    static_assert(model::movable<T>, "SetPadValue does not take this type on dav-2201");
    ascend_model::core().pad_set = true;
    ascend_model::core().pad_bits = 0;
    std::memcpy(&ascend_model::core().pad_bits, &value, sizeof value);
}

} // namespace AscendC
