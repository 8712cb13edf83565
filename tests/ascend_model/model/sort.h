// Sort32 and MrgSort (pages of these names): records of 8 bytes, the score low, the index high; descending scores, and of
// equal ones the lower index, or the earlier queue, first. NaN is open in the pages and refused.
#pragma once

#include "fill.h"

#include <algorithm>

namespace AscendC {
namespace model {
template <typename T> float score_of(const uint8_t *record) {
    T score;
    std::memcpy(&score, record, sizeof score);
    float value = float(score);
    Number<float>::ordered(value);
    return value;
}
} // namespace model

template <typename T>
void Sort32(
    const LocalTensor<T> &dst, const LocalTensor<T> &src0, const LocalTensor<uint32_t> &src1, const int32_t repeatTime,
    ASCEND_MODEL_AT) {
    static_assert(model::floating<T>, "Sort32 takes half and float");
    ascend_model::enter("Sort32", at);
    const uint32_t repeats = model::Repeat(repeatTime).checked();
    const std::initializer_list<TPosition> anywhere = {TPosition::VECIN, TPosition::VECOUT, TPosition::VECCALC};
    model::check_local(dst, "dst", uint64_t(repeats) * 256, anywhere);
    model::check_local(src0, "src0", uint64_t(repeats) * 32 * sizeof(T), anywhere);
    model::check_local(src1, "src1", uint64_t(repeats) * 128, anywhere);
    model::check_apart(dst, "dst", src0, "src0", uint64_t(repeats) * 256, uint64_t(repeats) * 32 * sizeof(T));
    model::check_apart(dst, "dst", src1, "src1", uint64_t(repeats) * 256, uint64_t(repeats) * 128);
    if (repeats == 0) return;
    model::begin_vector(repeats);
    for (uint32_t i = 0; i < repeats; ++i) {
        struct Record {
            float score;
            T given;
            uint32_t index;
        };
        Record records[32];
        const uint8_t *scores = ascend_model::core().ub.read(src0.address + i * 32 * uint32_t(sizeof(T)), 32 * sizeof(T));
        const uint8_t *indices = ascend_model::core().ub.read(src1.address + i * 128, 128);
        for (uint32_t j = 0; j < 32; ++j) {
            records[j].score = model::score_of<T>(scores + j * sizeof(T));
            std::memcpy(&records[j].given, scores + j * sizeof(T), sizeof(T));
            std::memcpy(&records[j].index, indices + j * 4, 4);
        }
        // The page speaks of the place in src0: of equal scores the earlier place comes first.
        std::stable_sort(records, records + 32, [](const Record &a, const Record &b) { return a.score > b.score; });
        uint8_t *out = ascend_model::core().ub.write(dst.address + i * 256, 256);
        std::memset(out, 0, 256);
        for (uint32_t j = 0; j < 32; ++j) {
            std::memcpy(out + j * 8, &records[j].given, sizeof(T));
            std::memcpy(out + j * 8 + 4, &records[j].index, 4);
        }
    }
}

template <typename T> struct MrgSortSrcList {
    MrgSortSrcList() {}
    MrgSortSrcList(const LocalTensor<T> &a, const LocalTensor<T> &b, const LocalTensor<T> &c, const LocalTensor<T> &d)
        : src1(a), src2(b), src3(c), src4(d) {}
    LocalTensor<T> src1, src2, src3, src4;
};

struct MrgSort4Info {
    MrgSort4Info() {}
    MrgSort4Info(
        const uint16_t lengths[4], bool suspend, ascend_model::Field<uint16_t> valid, ascend_model::Field<uint8_t> times)
        : ifExhaustedSuspension(suspend), validBit(valid), repeatTimes(times) {
        std::memcpy(elementLengths, lengths, sizeof elementLengths);
    }
    uint16_t elementLengths[4] = {0, 0, 0, 0};
    bool ifExhaustedSuspension = false;
    ascend_model::Field<uint16_t> validBit = 0;
    ascend_model::Field<uint8_t> repeatTimes = 1;
};

// Merges from where each queue is until one is at its end (or all are) and says how many records each gave.
namespace model {
struct Queues {
    const uint8_t *records[4];
    uint32_t lengths[4], given[4];
    uint32_t count;
};
template <typename T> void merge(Queues &queues, bool stops, uint8_t *out) {
    for (;;) {
        uint32_t best = 4;
        for (uint32_t i = 0; i < queues.count; ++i) {
            if (queues.given[i] == queues.lengths[i]) {
                if (stops) return;
                continue;
            }
            if (best == 4 || score_of<T>(queues.records[i] + queues.given[i] * 8) >
                                 score_of<T>(queues.records[best] + queues.given[best] * 8)) {
                best = i;
            }
        }
        if (best == 4) return;
        std::memcpy(out, queues.records[best] + queues.given[best]++ * 8, 8);
        out += 8;
    }
}
} // namespace model

template <typename T>
void MrgSort(const LocalTensor<T> &dst, const MrgSortSrcList<T> &src, const MrgSort4Info &params, ASCEND_MODEL_AT) {
    static_assert(model::floating<T>, "MrgSort takes half and float");
    ascend_model::enter("MrgSort", at);
    const uint32_t valid = params.validBit, repeats = params.repeatTimes;
    model::require(valid == 3 || valid == 7 || valid == 15, "validBit ", valid, " is not 3, 7 or 15");
    const LocalTensor<T> *queues[4] = {&src.src1, &src.src2, &src.src3, &src.src4};
    model::Queues merged{};
    merged.count = valid == 3 ? 2 : valid == 7 ? 3 : 4;
    uint64_t total = 0;
    for (uint32_t i = 0; i < merged.count; ++i) {
        const uint32_t length = params.elementLengths[i];
        model::require(length <= 4095, "a queue of ", length, " records, of at most 4095");
        queues[i]->holder("a queue");
        model::require(queues[i]->address % 8 == 0, "a queue is not aligned to 8 bytes");
        merged.lengths[i] = length;
        total += length;
    }
    // Page "MrgSort": several iterations take four queues of one length that follow each other, and run to the end.
    if (repeats != 1) {
        bool four = valid == 15 && !params.ifExhaustedSuspension;
        for (uint32_t i = 1; four && i < 4; ++i) {
            four = merged.lengths[i] == merged.lengths[0] &&
                   queues[i]->address == queues[0]->address + i * merged.lengths[0] * 8;
        }
        model::require(four, "repeatTimes ", repeats, " needs four queues of one length that follow each other");
    }
    const uint64_t step = repeats > 1 ? total * 8 : 0;
    for (uint32_t i = 0; i < merged.count; ++i) {
        const uint64_t bytes = uint64_t(merged.lengths[i]) * 8, all = step * (repeats ? repeats - 1 : 0) + bytes;
        model::require(all <= queues[i]->bytes, "a queue has ", queues[i]->bytes, " bytes, the call takes ", all);
        model::check_apart(dst, "dst", *queues[i], "a queue", total * 8 * repeats, all);
    }
    model::check_local(dst, "dst", total * 8 * repeats, {TPosition::VECIN, TPosition::VECOUT, TPosition::VECCALC});
    if (total == 0 || repeats == 0) return;
    model::begin_vector(repeats);
    ascend_model::Core &core = ascend_model::core();
    for (uint32_t repeat = 0; repeat < repeats; ++repeat) {
        for (uint32_t i = 0; i < merged.count; ++i) {
            merged.given[i] = 0;
            if (merged.lengths[i] == 0) continue;
            merged.records[i] = core.ub.read(queues[i]->address + uint32_t(repeat * step), merged.lengths[i] * 8);
            for (uint32_t j = 1; j < merged.lengths[i]; ++j) {
                model::require(
                    model::score_of<T>(merged.records[i] + j * 8 - 8) >= model::score_of<T>(merged.records[i] + j * 8),
                    "queue ", i + 1, " is not sorted");
            }
        }
        std::vector<uint8_t> out(total * 8);
        model::merge<T>(merged, params.ifExhaustedSuspension, out.data());
        const uint32_t made = (merged.given[0] + merged.given[1] + merged.given[2] + merged.given[3]) * 8;
        if (made) std::memcpy(core.ub.write(dst.address + repeat * uint32_t(total) * 8, made), out.data(), made);
    }
    for (uint32_t i = 0; i < 4; ++i) core.merged[i] = uint16_t(merged.given[i]);
    core.merge_stopped = params.ifExhaustedSuspension;
}

// Page "GetMrgSortResult": after a merge that stops with its first queue at the end.
inline void GetMrgSortResult(uint16_t &first, uint16_t &second, uint16_t &third, uint16_t &fourth, ASCEND_MODEL_AT) {
    ascend_model::enter("GetMrgSortResult", at);
    const ascend_model::Core &core = ascend_model::core();
    model::require(core.merge_stopped, "there was no MrgSort with ifExhaustedSuspension");
    first = core.merged[0], second = core.merged[1], third = core.merged[2], fourth = core.merged[3];
}

} // namespace AscendC
