// Random bits, masses and the logarithm. Each floating-point operation is one IEEE 754 operation rounded to nearest,
// so that every device computes the same bits: no fused multiply-add, no library function.

#define MINUS_INF __uint_as_float(0xff800000u)
#define PLUS_INF __uint_as_float(0x7f800000u)

__device__ __forceinline__ u64 splitmix64(u64 seed, u64 n) {
    u64 z = seed + (n + 1) * SD_SPLITMIX_GAMMA;
    z = (z ^ (z >> 30)) * SD_SPLITMIX_MIX1;
    z = (z ^ (z >> 27)) * SD_SPLITMIX_MIX2;
    return z ^ (z >> 31);
}

// floor(a * b / 2^shift) in 128 bits, shift from 1 to 63.
__device__ __forceinline__ u64 multiply_shift(u64 a, u64 b, u32 shift) {
    return (__umul64hi(a, b) << (64 - shift)) | ((a * b) >> shift);
}

// floor(bits * mass / 2^53)
__device__ __forceinline__ u64 scale_bits(u64 bits, u64 mass) { return multiply_shift(bits, mass, SD_DRAW_BITS); }

// trunc(2^t * 2^40), 0 for t <= -41; t is at most 0.
__device__ __forceinline__ u64 mass_of_exponent(float t) {
    // Below -41 the result truncates to 0; the bound only keeps the exponent field in range.
    t = fmaxf(t, -64.0f);
    // 1.5 * 2^23 rounds t to an integer; the 40 more leave n + 40 in the low bits, ready for the exponent field.
    float r = __fadd_rn(t, (SD_ROUND + 40.0f));
    float f = __fsub_rn(t, __fsub_rn(r, (SD_ROUND + 40.0f)));
    float p = SD_POLY_C6;
    p = __fadd_rn(__fmul_rn(p, f), SD_POLY_C5);
    p = __fadd_rn(__fmul_rn(p, f), SD_POLY_C4);
    p = __fadd_rn(__fmul_rn(p, f), SD_POLY_C3);
    p = __fadd_rn(__fmul_rn(p, f), SD_POLY_C2);
    p = __fadd_rn(__fmul_rn(p, f), SD_POLY_C1);
    p = __fadd_rn(__fmul_rn(p, f), 1.0f);
    return __float2ull_rz(__uint_as_float(__float_as_uint(p) + (__float_as_uint(r) << 23)));
}

// Mass of a draft's log-probability, capped at that of probability 1; NaN gives 0.
__device__ __forceinline__ u64 draft_mass(float q) {
    float t = __fmul_rn(q, SD_LOG2_E);
    if (t != t) return 0;
    return mass_of_exponent(t > 0.0f ? 0.0f : t);
}

// A draft's mass in units of a row of total mass `total`.
__device__ __forceinline__ u64 scale_draft(u64 mass, u64 total) { return multiply_shift(mass, total, 40); }

// log2 of a positive, finite, normal x.
__device__ __forceinline__ double log2_exact(double x) {
    i64 bits = __double_as_longlong(x);
    double e = __ll2double_rn((bits >> 52) - 1023);
    double w = __longlong_as_double((bits & 0xfffffffffffffll) | 0x3ff0000000000000ll);
    if (w > SD_SQRT_2) {
        w = __dmul_rn(w, 0.5);
        e = __dadd_rn(e, 1.0);
    }
    double r = __ddiv_rn(__dsub_rn(w, 1.0), __dadd_rn(w, 1.0));
    double z = __dmul_rn(r, r);
    double s = 1.0 / 15.0;
    s = __dadd_rn(__dmul_rn(s, z), 1.0 / 13.0);
    s = __dadd_rn(__dmul_rn(s, z), 1.0 / 11.0);
    s = __dadd_rn(__dmul_rn(s, z), 1.0 / 9.0);
    s = __dadd_rn(__dmul_rn(s, z), 1.0 / 7.0);
    s = __dadd_rn(__dmul_rn(s, z), 1.0 / 5.0);
    s = __dadd_rn(__dmul_rn(s, z), 1.0 / 3.0);
    s = __dadd_rn(__dmul_rn(s, z), 1.0);
    return __dadd_rn(e, __dmul_rn(__dmul_rn(r, SD_TWO_OVER_LN2), s));
}

// f32(log2(M) - 40)
__device__ __forceinline__ float log2_total(u64 total) {
    return __double2float_rn(__dsub_rn(log2_exact(__ull2double_rn(total)), 40.0));
}

__device__ __forceinline__ float logprob_of_exponent(float t, float l) {
    return __fmul_rn(__fsub_rn(t, l), SD_LN_2);
}

// Ratio of two masses, each converted to f64 first.
__device__ __forceinline__ float ratio(u64 part, u64 total) {
    return __double2float_rn(__ddiv_rn(__ull2double_rn(part), __ull2double_rn(total)));
}
