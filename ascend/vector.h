// The vector unit's operations as the kernels use them. Each ends with a barrier of its pipe, so that what follows may
// use the result; waits between pipes are `fence`s at the places that need them. Counts are in elements.
#include "kernel_operator.h"

namespace samedraw {

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;
typedef int64_t i64;

typedef AscendC::LocalTensor<float> Floats;
typedef AscendC::LocalTensor<i32> Ints;
typedef AscendC::LocalTensor<u32> Words;
// One bit an element, the lowest of a byte first.
typedef AscendC::LocalTensor<u8> Bits;

// Makes the second pipe of `event` wait for all that the first was given so far.
template <AscendC::HardEvent event>
__aicore__ inline void fence() {
    using namespace AscendC;
    const int32_t id = static_cast<int32_t>(GetTPipePtr()->FetchEventID(event));
    AscendC::SetFlag<event>(id);
    AscendC::WaitFlag<event>(id);
}

// The scalar unit may read what the vector unit wrote.
__aicore__ inline void vector_to_scalar() { fence<AscendC::HardEvent::V_S>(); }
// The vector unit may read what the scalar unit wrote, and overwrite what it read.
__aicore__ inline void scalar_to_vector() { fence<AscendC::HardEvent::S_V>(); }

__aicore__ inline void done() { AscendC::PipeBarrier<PIPE_V>(); }

template <class T>
__aicore__ inline void add(const AscendC::LocalTensor<T>& out, const AscendC::LocalTensor<T>& a,
                           const AscendC::LocalTensor<T>& b, u32 n) {
    AscendC::Add(out, a, b, static_cast<i32>(n));
    done();
}

template <class T>
__aicore__ inline void subtract(const AscendC::LocalTensor<T>& out, const AscendC::LocalTensor<T>& a,
                                const AscendC::LocalTensor<T>& b, u32 n) {
    AscendC::Sub(out, a, b, static_cast<i32>(n));
    done();
}

template <class T>
__aicore__ inline void multiply(const AscendC::LocalTensor<T>& out, const AscendC::LocalTensor<T>& a,
                                const AscendC::LocalTensor<T>& b, u32 n) {
    AscendC::Mul(out, a, b, static_cast<i32>(n));
    done();
}

template <class T>
__aicore__ inline void add_scalar(const AscendC::LocalTensor<T>& out, const AscendC::LocalTensor<T>& a, T b, u32 n) {
    AscendC::Adds(out, a, b, static_cast<i32>(n));
    done();
}

template <class T>
__aicore__ inline void multiply_scalar(const AscendC::LocalTensor<T>& out, const AscendC::LocalTensor<T>& a, T b, u32 n) {
    AscendC::Muls(out, a, b, static_cast<i32>(n));
    done();
}

template <class T>
__aicore__ inline void at_least(const AscendC::LocalTensor<T>& out, const AscendC::LocalTensor<T>& a, T b, u32 n) {
    AscendC::Maxs(out, a, b, static_cast<i32>(n));
    done();
}

template <class T>
__aicore__ inline void at_most(const AscendC::LocalTensor<T>& out, const AscendC::LocalTensor<T>& a, T b, u32 n) {
    AscendC::Mins(out, a, b, static_cast<i32>(n));
    done();
}

template <class T>
__aicore__ inline void fill(const AscendC::LocalTensor<T>& out, T value, u32 n) {
    AscendC::Duplicate(out, value, static_cast<i32>(n));
    done();
}

__aicore__ inline void shift_left(const Ints& out, const Ints& a, i32 by, u32 n) {
    AscendC::ShiftLeft(out, a, by, static_cast<i32>(n));
    done();
}

// Arithmetic, as the elements are signed.
__aicore__ inline void shift_right(const Ints& out, const Ints& a, i32 by, u32 n) {
    AscendC::ShiftRight(out, a, by, static_cast<i32>(n));
    done();
}

// Towards zero.
__aicore__ inline void truncate(const Ints& out, const Floats& a, u32 n) {
    AscendC::Cast(out, a, AscendC::RoundMode::CAST_TRUNC, n);
    done();
}

// Exact up to 2^24, rounded to nearest above.
__aicore__ inline void to_floats(const Floats& out, const Ints& a, u32 n) {
    AscendC::Cast(out, a, AscendC::RoundMode::CAST_RINT, n);
    done();
}

// A 16-bit type to f32, which is exact.
template <class T>
__aicore__ inline void widen(const Floats& out, const AscendC::LocalTensor<T>& a, u32 n) {
    AscendC::Cast(out, a, AscendC::RoundMode::CAST_NONE, n);
    done();
}

// Moves 4-byte elements as integers, so that every bit arrives.
template <class T>
__aicore__ inline void move(const AscendC::LocalTensor<T>& out, const AscendC::LocalTensor<T>& a, u32 n) {
    add_scalar<i32>(out.template ReinterpretCast<i32>(), a.template ReinterpretCast<i32>(), 0, n);
}

// 0, 1, 2, ... from `first` on.
template <class T>
__aicore__ inline void count_up(const AscendC::LocalTensor<T>& out, T first, u32 n) {
    AscendC::CreateVecIndex(out, first, n);
    done();
}

// The functions below take `n` in whole repeats: a multiple of 64.

__aicore__ inline void compare(const Bits& out, const Floats& a, float b, AscendC::CMPMODE mode, u32 n) {
    AscendC::CompareScalar(out, a, b, mode, n);
    done();
}

// Elements that equal themselves: those that are no NaN.
__aicore__ inline void compare_with_itself(const Bits& out, const Floats& a, u32 n) {
    AscendC::Compare(out, a, a, AscendC::CMPMODE::EQ, n);
    done();
}

__aicore__ inline void both(const Bits& out, const Bits& a, const Bits& b, u32 n) {
    AscendC::And(out.ReinterpretCast<u16>(), a.ReinterpretCast<u16>(), b.ReinterpretCast<u16>(), static_cast<i32>(n / 16));
    done();
}

__aicore__ inline void either(const Bits& out, const Bits& a, const Bits& b, u32 n) {
    AscendC::Or(out.ReinterpretCast<u16>(), a.ReinterpretCast<u16>(), b.ReinterpretCast<u16>(), static_cast<i32>(n / 16));
    done();
}

__aicore__ inline void neither(const Bits& out, const Bits& a, u32 n) {
    AscendC::Not(out.ReinterpretCast<u16>(), a.ReinterpretCast<u16>(), static_cast<i32>(n / 16));
    done();
}

// Elements with their bit set, `otherwise` in place of the others.
__aicore__ inline void select(const Floats& out, const Bits& bits, const Floats& a, float otherwise, u32 n) {
    AscendC::Select(out, bits, a, otherwise, AscendC::SELMODE::VSEL_TENSOR_SCALAR_MODE, n);
    done();
}

// The elements with their bit set, one after the other; how many they are. `out` is not `a`.
template <class T>
__aicore__ inline u32 gather(const AscendC::LocalTensor<T>& out, const AscendC::LocalTensor<T>& a, const Bits& bits, u32 n) {
    u64 count = 0;
    // One repeat over all of them, so that the bits are used up without gaps.
    AscendC::GatherMask(out, a, bits.ReinterpretCast<u32>(), true, n, AscendC::GatherMaskParams{1, 1, 8, 8}, count);
    done();
    return static_cast<u32>(count);
}

// A tensor over global memory at `address`.
template <class T>
__aicore__ inline AscendC::GlobalTensor<T> global(u64 address) {
    AscendC::GlobalTensor<T> tensor;
    tensor.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(address));
    return tensor;
}

// Reads `n` elements; what is left of the last 32 bytes becomes `pad`.
template <class T>
__aicore__ inline void load(const AscendC::LocalTensor<T>& out, u64 address, u32 n, T pad) {
    constexpr u32 PER_BLOCK = 32 / sizeof(T);
    const u8 right = static_cast<u8>((PER_BLOCK - n % PER_BLOCK) % PER_BLOCK);
    const AscendC::DataCopyExtParams copy{1, static_cast<u32>(n * sizeof(T)), 0, 0, 0};
    const AscendC::DataCopyPadExtParams<T> padding{true, 0, right, pad};
    AscendC::DataCopyPad(out, global<T>(address), copy, padding);
}

// Writes `n` elements.
template <class T>
__aicore__ inline void store(u64 address, const AscendC::LocalTensor<T>& a, u32 n) {
    const AscendC::DataCopyExtParams copy{1, static_cast<u32>(n * sizeof(T)), 0, 0, 0};
    AscendC::DataCopyPad(global<T>(address), a, copy);
}

// What the vector unit wrote goes out; call `written` before it writes there again.
__aicore__ inline void write_out() { fence<AscendC::HardEvent::V_MTE3>(); }
__aicore__ inline void written() {
    fence<AscendC::HardEvent::MTE3_V>();
    fence<AscendC::HardEvent::MTE3_S>();
}

} // namespace samedraw
