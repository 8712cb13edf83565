// Reductions (pages "ReduceMax", "ReduceMin", "ReduceSum", "WholeReduceMax", "WholeReduceMin", "WholeReduceSum",
// "BlockReduceMax", "BlockReduceMin", "BlockReduceSum"; later versions document the last six as ReduceRepeat and
// ReduceDataBlock). half and float alone; sums go by pairs, then iteration after iteration.
#pragma once

#include "select.h"

namespace AscendC {
namespace model {

enum class Reduce { SUM, MAX, MIN };

// Page "ReduceDataBlock": neighbours are added, then their sums, and so on; lanes that are masked out count as absent.
template <typename T> T sum_by_pairs(T *values, bool *there, uint32_t count) {
    for (uint32_t step = 1; step < count; step *= 2) {
        for (uint32_t i = 0; i + step < count; i += 2 * step) {
            if (!there[i + step]) continue;
            values[i] = there[i] ? Number<T>::add(values[i], values[i + step]) : values[i + step];
            there[i] = true;
        }
    }
    return values[0];
}

// The extreme of the lanes that take part and the lowest lane it is at.
template <typename T> uint32_t extreme(Reduce kind, const T *values, const Lanes &mask, uint32_t from, uint32_t count) {
    uint32_t best = count;
    for (uint32_t i = 0; i < count; ++i) {
        if (!mask.on(from + i)) continue;
        Number<float>::ordered(float(values[i]));
        if (best == count ||
            (kind == Reduce::MAX ? Number<T>::less(values[best], values[i]) : Number<T>::less(values[i], values[best])))
            best = i;
    }
    return best;
}

template <typename T> void check_dst(const LocalTensor<T> &dst, uint32_t alignment) {
    dst.holder("dst");
    require(dst.address % alignment == 0, "dst is not aligned to ", alignment, " bytes");
}
template <typename V, typename T> void put_value(const LocalTensor<T> &dst, uint64_t offset, V value) {
    require(offset + sizeof(V) <= dst.bytes, "dst has ", dst.bytes, " bytes, the call takes ", offset + sizeof(V));
    std::memcpy(ascend_model::core().ub.write(dst.address + uint32_t(offset), sizeof(V)), &value, sizeof(V));
}
template <typename T> using index_of = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;

inline uint32_t stride16(int64_t stride, const char *what) {
    require(stride >= 0 && stride <= 65535, what, " ", stride, " is not of 0 to 65535");
    return uint32_t(stride);
}

// Whole iterations to one value, to a value and its lane, or to the lane.
template <typename T>
void whole_reduce(
    Reduce kind, const LocalTensor<T> &dst, const LocalTensor<T> &src, const Lanes &mask, Repeat repeat, int32_t dstRep,
    int32_t srcBlk, int32_t srcRep, ReduceOrder order) {
    static_assert(floating<T>, "reductions take half and float on dav-2201");
    constexpr uint32_t LANES = lanes_of<T>;
    const bool pair =
        kind != Reduce::SUM && (order == ReduceOrder::ORDER_VALUE_INDEX || order == ReduceOrder::ORDER_INDEX_VALUE);
    const bool index_only = kind != Reduce::SUM && order == ReduceOrder::ORDER_ONLY_INDEX;
    const uint32_t unit = pair ? 2 * sizeof(T) : index_only ? 4 : sizeof(T);
    Operand<T> s{src, "src", stride16(srcBlk, "srcBlkStride"), stride16(srcRep, "srcRepStride")};
    s.check();
    check_dst(dst, unit);
    const uint32_t times = repeat.checked();
    if (times == 0) return;
    // Page "General notes, overlap": the operands differ in size, so they are apart.
    check_apart(
        dst, "dst", src, "src", uint64_t(times - 1) * stride16(dstRep, "dstRepStride") * unit + unit,
        s.offset(times - 1, 7) + 32);
    const uint32_t step = stride16(dstRep, "dstRepStride") * unit;
    over_repeats(repeat, mask, [&](uint32_t i, const Lanes &lanes) {
        T in[LANES];
        s.load(i, lanes, LANES, in);
        const uint64_t at = uint64_t(i) * step;
        if (kind == Reduce::SUM) {
            bool there[LANES];
            for (uint32_t lane = 0; lane < LANES; ++lane) there[lane] = lanes.on(lane);
            put_value(dst, at, sum_by_pairs(in, there, LANES));
            return;
        }
        const uint32_t best = extreme(kind, in, lanes, 0, LANES);
        if (index_only) {
            put_value(dst, at, best);
        } else if (order == ReduceOrder::ORDER_ONLY_VALUE) {
            put_value(dst, at, in[best]);
        } else {
            const bool value_first = order == ReduceOrder::ORDER_VALUE_INDEX;
            put_value(dst, at + (value_first ? 0 : sizeof(T)), in[best]);
            put_value(dst, at + (value_first ? sizeof(T) : 0), index_of<T>(best));
        }
    });
}

// Every block of 32 bytes to one value; 8 values an iteration.
template <typename T>
void block_reduce(
    Reduce kind, const LocalTensor<T> &dst, const LocalTensor<T> &src, const Lanes &mask, Repeat repeat, int32_t dstRep,
    int32_t srcBlk, int32_t srcRep) {
    static_assert(floating<T>, "reductions take half and float on dav-2201");
    constexpr uint32_t LANES = lanes_of<T>, PER = 32 / sizeof(T);
    Operand<T> s{src, "src", stride16(srcBlk, "srcBlkStride"), stride16(srcRep, "srcRepStride")};
    s.check();
    check_dst(dst, 8 * sizeof(T));
    const uint32_t step = stride16(dstRep, "dstRepStride") * 8 * uint32_t(sizeof(T));
    over_repeats(repeat, mask, [&](uint32_t i, const Lanes &lanes) {
        T in[LANES];
        s.load(i, lanes, LANES, in);
        for (uint32_t block = 0; block < 8; ++block) {
            T *part = in + block * PER;
            bool there[PER], any = false;
            for (uint32_t lane = 0; lane < PER; ++lane) any = (there[lane] = lanes.on(block * PER + lane)) || any;
            if (!any) continue; // the page: nothing is written for a block without lanes
            T value =
                kind == Reduce::SUM ? sum_by_pairs(part, there, PER) : part[extreme(kind, part, lanes, block * PER, PER)];
            put_value(dst, uint64_t(i) * step + block * sizeof(T), value);
        }
    });
}

// Page "ReduceMax", key features: the elements of the area for intermediate results.
template <typename T> uint64_t reduce_area(uint64_t repeats, bool index) {
    const uint64_t per_block = 32 / sizeof(T), per_repeat = 256 / sizeof(T);
    auto up = [](uint64_t a, uint64_t b) { return (a + b - 1) / b; };
    const uint64_t first = repeats * 2, first_end = up(first, per_block) * per_block;
    if (!index) return first_end;
    const uint64_t second = up(first, per_repeat) * 2, second_end = up(second, per_block) * per_block;
    uint64_t need = first_end + second_end;
    if (second > 2) need += up(up(second, per_repeat) * 2, per_block) * per_block;
    return need;
}

template <typename T>
void reduce_all(
    Reduce kind, const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<T> &area, int64_t count,
    bool index) {
    static_assert(floating<T>, "reductions take half and float on dav-2201");
    constexpr uint32_t LANES = lanes_of<T>;
    Operand<T> s{src, "src", 1, 8};
    s.check();
    check_dst(dst, kind == Reduce::SUM ? uint32_t(sizeof(T)) : 2 * uint32_t(sizeof(T)));
    require(count >= 0, "count ", count, " is negative");
    if (count == 0) return;
    require(
        uint64_t(count) * sizeof(T) <= src.bytes, "src has ", src.bytes, " bytes, the call takes ",
        uint64_t(count) * sizeof(T));
    const uint64_t repeats = (uint64_t(count) + LANES - 1) / LANES;
    if (kind != Reduce::SUM) {
        const bool reuses_src = area.address == src.address;
        if (!reuses_src)
            check_apart(
                area, "sharedTmpBuffer", src, "src", reduce_area<T>(repeats, index) * sizeof(T),
                uint64_t(count) * sizeof(T));
        const uint64_t need = reduce_area<T>(repeats, index) * sizeof(T);
        check_local(
            area, "sharedTmpBuffer", reuses_src ? 0 : need, {TPosition::VECIN, TPosition::VECOUT, TPosition::VECCALC});
        require(sizeof(T) != 2 || !index || count <= 65536, "an index of half is held in 16 bits");
    }
    T best{};
    uint32_t where = 0;
    over_count(count, LANES, [&](uint32_t i, const Lanes &mask) {
        T in[LANES];
        s.load(i, mask, LANES, in);
        if (kind == Reduce::SUM) {
            bool there[LANES];
            for (uint32_t lane = 0; lane < LANES; ++lane) there[lane] = mask.on(lane);
            T sum = sum_by_pairs(in, there, LANES);
            best = i == 0 ? sum : Number<T>::add(best, sum);
            return;
        }
        uint32_t at = extreme(kind, in, mask, 0, LANES);
        bool better = i == 0 || (kind == Reduce::MAX ? Number<T>::less(best, in[at]) : Number<T>::less(in[at], best));
        if (better) best = in[at], where = i * LANES + at;
    });
    // What is left in the area is for nobody to read.
    if (kind != Reduce::SUM) {
        const uint64_t need = std::min<uint64_t>(reduce_area<T>(repeats, index) * sizeof(T), area.bytes);
        ascend_model::core().ub.write(area.address, uint32_t(need), ascend_model::UnifiedBuffer::DUMMY);
    }
    put_value(dst, 0, best);
    if (kind != Reduce::SUM && index) put_value(dst, sizeof(T), index_of<T>(where));
}

} // namespace model

#define ASCEND_MODEL_REDUCE_ALL(Name, kind)                                                                               \
    template <typename T>                                                                                                 \
    void Name(                                                                                                            \
        const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<T> &sharedTmpBuffer, const int32_t count, \
        bool calIndex = false, ASCEND_MODEL_AT) {                                                                         \
        ascend_model::enter(#Name, at);                                                                                   \
        model::reduce_all(model::Reduce::kind, dst, src, sharedTmpBuffer, count, calIndex);                               \
    }
ASCEND_MODEL_REDUCE_ALL(ReduceMax, MAX)
ASCEND_MODEL_REDUCE_ALL(ReduceMin, MIN)
#undef ASCEND_MODEL_REDUCE_ALL
template <typename T>
void ReduceSum(
    const LocalTensor<T> &dst, const LocalTensor<T> &src, const LocalTensor<T> &sharedTmpBuffer, const int32_t count,
    ASCEND_MODEL_AT) {
    ascend_model::enter("ReduceSum", at);
    model::reduce_all(model::Reduce::SUM, dst, src, sharedTmpBuffer, count, false);
}

#define ASCEND_MODEL_WHOLE(Name, kind)                                                                                     \
    template <typename T>                                                                                                  \
    void Name(                                                                                                             \
        const LocalTensor<T> &dst, const LocalTensor<T> &src, const int32_t mask, const int32_t repeatTime,                \
        const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride,                                \
        ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, ASCEND_MODEL_AT) {                                             \
        ascend_model::enter(#Name, at);                                                                                    \
        model::whole_reduce(                                                                                               \
            model::Reduce::kind, dst, src, model::Lanes::counted(uint64_t(int64_t(mask)), model::lanes_of<T>), repeatTime, \
            dstRepStride, srcBlkStride, srcRepStride, order);                                                              \
    }                                                                                                                      \
    template <typename T>                                                                                                  \
    void Name(                                                                                                             \
        const LocalTensor<T> &dst, const LocalTensor<T> &src, const uint64_t mask[], const int32_t repeatTime,             \
        const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride,                                \
        ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, ASCEND_MODEL_AT) {                                             \
        ascend_model::enter(#Name, at);                                                                                    \
        model::whole_reduce(                                                                                               \
            model::Reduce::kind, dst, src, model::Lanes::of_bits(mask, model::lanes_of<T>), repeatTime, dstRepStride,      \
            srcBlkStride, srcRepStride, order);                                                                            \
    }
ASCEND_MODEL_WHOLE(WholeReduceMax, MAX)
ASCEND_MODEL_WHOLE(WholeReduceMin, MIN)
#undef ASCEND_MODEL_WHOLE
template <typename T>
void WholeReduceSum(
    const LocalTensor<T> &dst, const LocalTensor<T> &src, const int32_t mask, const int32_t repeatTime,
    const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride, ASCEND_MODEL_AT) {
    ascend_model::enter("WholeReduceSum", at);
    model::whole_reduce(
        model::Reduce::SUM, dst, src, model::Lanes::counted(uint64_t(int64_t(mask)), model::lanes_of<T>), repeatTime,
        dstRepStride, srcBlkStride, srcRepStride, ReduceOrder::ORDER_ONLY_VALUE);
}

// The iterations come before the mask here.
#define ASCEND_MODEL_BLOCK(Name, kind)                                                                                     \
    template <typename T>                                                                                                  \
    void Name(                                                                                                             \
        const LocalTensor<T> &dst, const LocalTensor<T> &src, const int32_t repeatTime, const int32_t mask,                \
        const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride, ASCEND_MODEL_AT) {             \
        ascend_model::enter(#Name, at);                                                                                    \
        model::block_reduce(                                                                                               \
            model::Reduce::kind, dst, src, model::Lanes::counted(uint64_t(int64_t(mask)), model::lanes_of<T>), repeatTime, \
            dstRepStride, srcBlkStride, srcRepStride);                                                                     \
    }
ASCEND_MODEL_BLOCK(BlockReduceSum, SUM)
ASCEND_MODEL_BLOCK(BlockReduceMax, MAX)
ASCEND_MODEL_BLOCK(BlockReduceMin, MIN)
#undef ASCEND_MODEL_BLOCK

#define ASCEND_MODEL_BLOCK_BITS(Name, kind)                                                                           \
    template <typename T>                                                                                             \
    void Name(                                                                                                        \
        const LocalTensor<T> &dst, const LocalTensor<T> &src, const int32_t repeatTime, const uint64_t mask[],        \
        const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride, ASCEND_MODEL_AT) {        \
        ascend_model::enter(#Name, at);                                                                               \
        model::block_reduce(                                                                                          \
            model::Reduce::kind, dst, src, model::Lanes::of_bits(mask, model::lanes_of<T>), repeatTime, dstRepStride, \
            srcBlkStride, srcRepStride);                                                                              \
    }
ASCEND_MODEL_BLOCK_BITS(BlockReduceSum, SUM)
ASCEND_MODEL_BLOCK_BITS(BlockReduceMax, MAX)
ASCEND_MODEL_BLOCK_BITS(BlockReduceMin, MIN)
#undef ASCEND_MODEL_BLOCK_BITS

template <typename T>
void WholeReduceSum(
    const LocalTensor<T> &dst, const LocalTensor<T> &src, const uint64_t mask[], const int32_t repeatTime,
    const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride, ASCEND_MODEL_AT) {
    ascend_model::enter("WholeReduceSum", at);
    model::whole_reduce(
        model::Reduce::SUM, dst, src, model::Lanes::of_bits(mask, model::lanes_of<T>), repeatTime, dstRepStride,
        srcBlkStride, srcRepStride, ReduceOrder::ORDER_ONLY_VALUE);
}

// Page "PairReduceSum" (later "ReducePairElem"): neighbours are added, 128 bytes of results an iteration.
template <typename T>
void PairReduceSum(
    const LocalTensor<T> &dst, const LocalTensor<T> &src, const int32_t repeatTime, const int32_t mask,
    const int32_t dstRepStride, const int32_t srcBlkStride, const int32_t srcRepStride, ASCEND_MODEL_AT) {
    static_assert(model::floating<T>, "reductions take half and float on dav-2201");
    ascend_model::enter("PairReduceSum", at);
    constexpr uint32_t LANES = model::lanes_of<T>;
    model::Operand<T> s{
        src, "src", model::stride16(srcBlkStride, "srcBlkStride"), model::stride16(srcRepStride, "srcRepStride")};
    s.check();
    model::check_dst(dst, 32);
    const model::Lanes lanes = model::Lanes::counted(uint64_t(int64_t(mask)), LANES);
    const uint32_t times = model::Repeat(repeatTime).checked(), step = model::stride16(dstRepStride, "dstRepStride") * 128;
    if (times == 0) return;
    model::check_apart(dst, "dst", src, "src", uint64_t(times - 1) * step + 128, s.offset(times - 1, 7) + 32);
    model::over_repeats(repeatTime, lanes, [&](uint32_t i, const model::Lanes &) {
        T in[LANES];
        s.load(i, lanes, LANES, in);
        for (uint32_t lane = 0; lane < LANES; lane += 2) {
            if (!lanes.on(lane)) continue; // the page: nothing is written for a pair without lanes
            T sum = lanes.on(lane + 1) ? model::Number<T>::add(in[lane], in[lane + 1]) : in[lane];
            model::put_value(dst, uint64_t(i) * step + lane / 2 * sizeof(T), sum);
        }
    });
}

} // namespace AscendC
