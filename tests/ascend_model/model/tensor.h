// LocalTensor and GlobalTensor (pages of these names), with the scalar unit's accesses to what is behind them.
#pragma once

#include "core.h"

namespace AscendC {

template <typename T> class LocalTensor {
  public:
    LocalTensor() = default;

    // Page "LocalTensor operator[]": the offset does not exceed the tensor's size.
    LocalTensor operator[](uint32_t offset) const {
        ascend_model::require(offset <= GetSize(), "LocalTensor[", offset, "] of a tensor of ", GetSize(), " elements");
        LocalTensor part = *this;
        part.address += offset * uint32_t(sizeof(T));
        part.bytes -= offset * uint32_t(sizeof(T));
        return part;
    }

    // Pages "GetValue", "SetValue": by the scalar unit, from and to VECIN, VECOUT and VECCALC.
    T GetValue(uint32_t index, ASCEND_MODEL_AT) const {
        T value;
        ascend_model::enter("GetValue", at);
        std::memcpy(&value, scalar(index, false), sizeof value);
        return value;
    }
    template <typename V> void SetValue(uint32_t index, V value, ASCEND_MODEL_AT) const {
        ascend_model::enter("SetValue", at);
        T converted = static_cast<T>(value);
        std::memcpy(scalar(index, true), &converted, sizeof converted);
    }

    template <typename Other> LocalTensor<Other> ReinterpretCast() const {
        LocalTensor<Other> other;
        other.address = address, other.bytes = bytes, other.buffer = buffer, other.generation = generation;
        return other;
    }

    uint32_t GetSize() const { return bytes / uint32_t(sizeof(T)); }
    // Page "SetSize": the number of elements that the tensor is used with.
    void SetSize(uint32_t size) {
        const auto &held = ascend_model::core().buffers.at(buffer);
        uint64_t end = uint64_t(address) + uint64_t(size) * sizeof(T);
        ascend_model::require(end <= held.address + held.bytes, "SetSize(", size, ") past the end of the buffer");
        bytes = size * uint32_t(sizeof(T));
    }
    int32_t GetPosition() const { return static_cast<int32_t>(holder("GetPosition").position); }

    // ---- for the calls of the model

    static constexpr uint32_t NONE = 0xFFFFFFFF;
    uint32_t address = 0, bytes = 0, buffer = NONE, generation = 0;

    // The buffer, while the tensor may be used.
    const ascend_model::Core::Buffer &holder(const char *what) const {
        using Use = ascend_model::Core::Use;
        ascend_model::require(buffer != NONE, what, " is a tensor without a buffer");
        ascend_model::require(buffer < ascend_model::core().buffers.size(), what, " is a tensor of a TPipe that is gone");
        const auto &held = ascend_model::core().buffers[buffer];
        ascend_model::require(
            held.generation == generation && held.use != Use::FREE, what, " is a tensor that FreeTensor gave back");
        ascend_model::require(held.use != Use::QUEUED, what, " is a tensor that is in its queue, between EnQue and DeQue");
        return held;
    }

  private:
    uint8_t *scalar(uint32_t index, bool writes) const {
        ascend_model::Core &core = ascend_model::core();
        holder("the tensor");
        ascend_model::require(index < GetSize(), "index ", index, " of a tensor of ", GetSize(), " elements");
        core.order.begin(PIPE_S);
        ++core.counters.scalar_ub;
        uint32_t where = address + index * uint32_t(sizeof(T));
        ascend_model::require(where % sizeof(T) == 0, "the element is not aligned to its size");
        if (writes) return core.ub.write(where, sizeof(T));
        return const_cast<uint8_t *>(core.ub.read(where, sizeof(T)));
    }
};

template <typename T> class GlobalTensor {
  public:
    // Page "SetGlobalBuffer": without a size, GetSize gives 0 and nothing is checked but the memory itself.
    void SetGlobalBuffer(T *buffer, uint64_t size) {
        address = reinterpret_cast<uint64_t>(buffer);
        elements = size;
        sized = true;
    }
    void SetGlobalBuffer(T *buffer) {
        address = reinterpret_cast<uint64_t>(buffer);
        elements = 0;
        sized = false;
    }
    uint64_t GetSize() const { return elements; }
    const T *GetPhyAddr() const { return reinterpret_cast<const T *>(address); }
    const T *GetPhyAddr(uint64_t offset) const { return reinterpret_cast<const T *>(address + offset * sizeof(T)); }

    GlobalTensor operator[](uint64_t offset) const {
        ascend_model::require(
            !sized || offset <= elements, "GlobalTensor[", offset, "] of a tensor of ", elements, " elements");
        GlobalTensor part = *this;
        part.address += offset * sizeof(T);
        if (sized) part.elements -= offset;
        return part;
    }

    // Pages "GlobalTensor GetValue", "SetValue": by the scalar unit, through its data cache.
    T GetValue(uint64_t offset, ASCEND_MODEL_AT) const {
        ascend_model::enter("GlobalTensor GetValue", at);
        T value;
        ascend_model::core().order.begin(PIPE_S);
        ascend_model::core().scalar_read(place(offset), sizeof(T), &value);
        return value;
    }
    void SetValue(uint64_t offset, T value, ASCEND_MODEL_AT) const {
        ascend_model::enter("GlobalTensor SetValue", at);
        ascend_model::core().order.begin(PIPE_S);
        ascend_model::core().scalar_write(place(offset), sizeof(T), &value);
    }

    // ---- for the calls of the model

    uint64_t address = 0, elements = 0;
    bool sized = false;

    // Checks that `count` bytes from `skip` on lie within the size that was given, if one was.
    void check(uint64_t skip, uint64_t count) const {
        ascend_model::require(address != 0, "a GlobalTensor without SetGlobalBuffer");
        ascend_model::require(
            !sized || skip + count <= elements * sizeof(T), "bytes ", skip, " to ", skip + count, " of a GlobalTensor of ",
            elements * sizeof(T), " bytes");
    }

  private:
    uint64_t place(uint64_t offset) const {
        check(offset * sizeof(T), sizeof(T));
        uint64_t where = address + offset * sizeof(T);
        ascend_model::require(where % sizeof(T) == 0, "the element is not aligned to its size");
        return where;
    }
};

// Page "DataCacheCleanAndInvalid": writes the line of `dst`, or all lines, back and drops it.
template <typename T, CacheLine entireType, DcciDst dcciDst>
void DataCacheCleanAndInvalid(const GlobalTensor<T> &dst, ASCEND_MODEL_AT) {
    static_assert(dcciDst != DcciDst::CACHELINE_UB, "of the model: the cache and global memory alone");
    ascend_model::enter("DataCacheCleanAndInvalid", at);
    ascend_model::core().order.begin(PIPE_S);
    if constexpr (entireType == CacheLine::ENTIRE_DATA_CACHE) {
        ascend_model::core().clean_all();
    } else {
        ascend_model::core().clean(dst.address);
    }
}

// Pages "ReadGmByPassDCache", "WriteGmByPassDCache": the scalar unit past its data cache, which must not hold the line dirty.
namespace model {
template <typename T> uint64_t passed(const T *address) {
    static_assert(std::is_integral_v<T> && !std::is_same_v<T, bool>, "integers pass the data cache");
    const uint64_t where = reinterpret_cast<uint64_t>(address);
    ascend_model::require(where % sizeof(T) == 0, "the element is not aligned to its size");
    ascend_model::core().order.begin(PIPE_S);
    ascend_model::core().check_clean(where, sizeof(T), "passes by");
    return where;
}
} // namespace model
template <typename T> T ReadGmByPassDCache(T *address, ASCEND_MODEL_AT) {
    ascend_model::enter("ReadGmByPassDCache", at);
    T value;
    std::memcpy(&value, ascend_model::core().gm_read(model::passed(address), sizeof value), sizeof value);
    ascend_model::core().counters.scalar_read += sizeof value;
    return value;
}
template <typename T> void WriteGmByPassDCache(T *address, T value, ASCEND_MODEL_AT) {
    ascend_model::enter("WriteGmByPassDCache", at);
    std::memcpy(ascend_model::core().gm_write(model::passed(address), sizeof value), &value, sizeof value);
    ascend_model::core().counters.scalar_written += sizeof value;
}

// Pages "GetBitCount", "CountLeadingZero", "GetSFFValue": of 64 bits, by the scalar unit.
template <int countValue> int64_t GetBitCount(uint64_t valueIn) {
    static_assert(countValue == 0 || countValue == 1, "a bit is 0 or 1");
    return __builtin_popcountll(countValue ? valueIn : ~valueIn);
}
inline int64_t CountLeadingZero(uint64_t valueIn) { return valueIn ? __builtin_clzll(valueIn) : 64; }
template <int countValue> int64_t GetSFFValue(uint64_t valueIn) {
    static_assert(countValue == 0 || countValue == 1, "a bit is 0 or 1");
    const uint64_t sought = countValue ? valueIn : ~valueIn;
    return sought ? __builtin_ctzll(sought) : -1;
}

// Pages "GetBlockIdx", "GetBlockNum".
inline int64_t GetBlockIdx() { return ascend_model::core().index; }
inline int64_t GetBlockNum() { return ascend_model::core().launch.blocks; }

} // namespace AscendC
