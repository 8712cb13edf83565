// Exponents, masses and logprobs of a tile's elements, SEMANTICS sections 3, 5 and 8, on the vector unit: every step is
// one operation, and integers are exact. The n of these functions is a multiple of 64, at most a tile.

namespace samedraw {

// What turns a logit into its exponent.
struct Weight {
    u32 max, scale;
};

// t of every element. `bits` is a work area.
__aicore__ inline void exponents(const Floats& t, const Floats& x, const Weight& weight, const Bits& bits, u32 n) {
    if (weight.max == PLUS_INF_BITS) {
        compare(bits, x, float_of(PLUS_INF_BITS), AscendC::CMPMODE::EQ, n);
        fill(t, 0.0f, n);
        select(t, bits, t, float_of(MINUS_INF_BITS), n);
        return;
    }
    add_scalar(t, x, float_of(weight.max ^ 0x80000000u), n);
    multiply_scalar(t, t, float_of(weight.scale), n);
}

// 2^t * 2^40 of every element; 1/2 where t is -41 or below, which is a mass of 0. `a` and `f` are work areas.
__aicore__ inline void powers(const Floats& p, const Floats& t, const Floats& a, const Floats& f, u32 n) {
    at_least(a, t, SD_MASS_FLOOR, n);
    add_scalar(p, a, SD_ROUND, n);
    add_scalar(p, p, -SD_ROUND, n);
    subtract(f, a, p, n);
    // The bits of 2^(rint(t) + 40), which p is multiplied with in the end, exactly.
    const Ints power = a.ReinterpretCast<i32>();
    truncate(power, p, n);
    add_scalar(power, power, 127 + 40, n);
    shift_left(power, power, 23, n);
    multiply_scalar(p, f, SD_POLY_C6, n);
    add_scalar(p, p, SD_POLY_C5, n);
    multiply(p, p, f, n);
    add_scalar(p, p, SD_POLY_C4, n);
    multiply(p, p, f, n);
    add_scalar(p, p, SD_POLY_C3, n);
    multiply(p, p, f, n);
    add_scalar(p, p, SD_POLY_C2, n);
    multiply(p, p, f, n);
    add_scalar(p, p, SD_POLY_C1, n);
    multiply(p, p, f, n);
    add_scalar(p, p, 1.0f, n);
    multiply(p, p, a, n);
}

// Splits trunc(p), at most 2^40, into its upper bits and its lower 20. `a` is a work area.
__aicore__ inline void halve(const Ints& high, const Ints& low, const Floats& p, const Floats& a, u32 n) {
    multiply_scalar(a, p, 0x1p-20f, n);
    truncate(high, a, n);
    to_floats(a, high, n);
    multiply_scalar(a, a, 0x1p20f, n);
    subtract(a, p, a, n);
    truncate(low, a, n);
}

// Logprobs of exponents in place; `log2_mass` are the bits of a row's L.
__aicore__ inline void logprobs(const Floats& t, u32 log2_mass, u32 n) {
    add_scalar(t, t, float_of(log2_mass ^ 0x80000000u), n);
    multiply_scalar(t, t, SD_LN_2, n);
}

// One value's exponent, mass and logprob, by the same operations. They use every temporary.
__aicore__ inline u32 exponent_of(const Core& core, u32 value, const Weight& weight) {
    const Floats &t = core.temporary[0], &x = core.temporary[5];
    fill(x, float_of(value), REPEAT);
    exponents(t, x, weight, core.also, REPEAT);
    vector_to_scalar();
    const u32 bits = bits_of(t.GetValue(0));
    scalar_to_vector();
    return bits;
}

__aicore__ inline u64 mass_of_exponent(const Core& core, u32 exponent) {
    const Floats &t = core.temporary[0], &p = core.temporary[3];
    const Ints high = core.temporary[1].ReinterpretCast<i32>(), low = core.temporary[2].ReinterpretCast<i32>();
    fill(t, float_of(exponent), REPEAT);
    powers(p, t, core.temporary[1], core.temporary[2], REPEAT);
    halve(high, low, p, core.temporary[4], REPEAT);
    vector_to_scalar();
    const u64 mass = (static_cast<u64>(static_cast<u32>(high.GetValue(0))) << 20) + static_cast<u32>(low.GetValue(0));
    scalar_to_vector();
    return mass;
}

__aicore__ inline u64 mass_of(const Core& core, u32 value, const Weight& weight) {
    return mass_of_exponent(core, exponent_of(core, value, weight));
}

__aicore__ inline u32 logprob_of(const Core& core, u32 value, const Weight& weight, u32 log2_mass) {
    const Floats &t = core.temporary[0], &x = core.temporary[5];
    fill(x, float_of(value), REPEAT);
    exponents(t, x, weight, core.also, REPEAT);
    logprobs(t, log2_mass, REPEAT);
    vector_to_scalar();
    const u32 bits = bits_of(t.GetValue(0));
    scalar_to_vector();
    return bits;
}

// Mass of a draft's logprob: bits of q, not NaN.
__aicore__ inline u64 draft_mass(const Core& core, u32 logprob) {
    const Floats& t = core.temporary[5];
    fill(t, float_of(logprob), REPEAT);
    multiply_scalar(t, t, SD_LOG2_E, REPEAT);
    at_most(t, t, 0.0f, REPEAT);
    vector_to_scalar();
    const u32 bits = bits_of(t.GetValue(0));
    scalar_to_vector();
    return mass_of_exponent(core, bits);
}

} // namespace samedraw
