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

// The mass of 2^t * 2^40: truncated, 0 for t <= -41.
__device__ __forceinline__ u64 whole_mass(float scaled) { return __float2ull_rz(scaled); }

// 2^t as p * 2^n, n the integer nearest to t, for N values of t of at most 0; below -64, where every mass is 0, that of -64.
// Several at a time, each step for all of them, as a step waits for the one before.
template <u32 N>
struct Powers {
    // `rounded` is n + 40 on top of a constant that leaves it in the low bits.
    float p[N], rounded[N];

    __device__ __forceinline__ explicit Powers(const float* exponents) {
        float t[N], f[N];
        // Below -41 the mass truncates to 0; the bound only keeps the exponent field in range.
        for (u32 i = 0; i < N; i++) t[i] = fmaxf(exponents[i], -64.0f);
        // 1.5 * 2^23 rounds t to an integer; the 40 more leave n + 40 in the low bits, ready for the exponent field.
        for (u32 i = 0; i < N; i++) rounded[i] = __fadd_rn(t[i], SD_ROUND + 40.0f);
        for (u32 i = 0; i < N; i++) f[i] = __fsub_rn(t[i], __fsub_rn(rounded[i], SD_ROUND + 40.0f));
        for (u32 i = 0; i < N; i++) p[i] = __fadd_rn(__fmul_rn(SD_POLY_C6, f[i]), SD_POLY_C5);
        for (u32 i = 0; i < N; i++) p[i] = __fadd_rn(__fmul_rn(p[i], f[i]), SD_POLY_C4);
        for (u32 i = 0; i < N; i++) p[i] = __fadd_rn(__fmul_rn(p[i], f[i]), SD_POLY_C3);
        for (u32 i = 0; i < N; i++) p[i] = __fadd_rn(__fmul_rn(p[i], f[i]), SD_POLY_C2);
        for (u32 i = 0; i < N; i++) p[i] = __fadd_rn(__fmul_rn(p[i], f[i]), SD_POLY_C1);
        for (u32 i = 0; i < N; i++) p[i] = __fadd_rn(__fmul_rn(p[i], f[i]), 1.0f);
    }
    // 2^t * 2^40
    __device__ __forceinline__ float scaled(u32 i) const {
        return __uint_as_float(__float_as_uint(p[i]) + (__float_as_uint(rounded[i]) << 23));
    }
    // -n
    __device__ __forceinline__ u32 octave(u32 i) const {
        return __float_as_uint(SD_ROUND + 40.0f) - __float_as_uint(rounded[i]);
    }
};

__device__ __forceinline__ u64 mass_of_exponent(float t) { return whole_mass(Powers<1>(&t).scaled(0)); }

// Exponent of a draft's log-probability, capped at that of probability 1; that of no mass for NaN.
__device__ __forceinline__ float draft_exponent(float q) {
    float t = __fmul_rn(q, SD_LOG2_E);
    return t != t ? MINUS_INF : fminf(t, 0.0f);
}

__device__ __forceinline__ u64 draft_mass(float q) { return mass_of_exponent(draft_exponent(q)); }

// A draft's mass in units of a row of total mass `total`: floor(mass * total / 2^40), for a mass of at most 2^40 and a total of at most
// 2^63, between which no sum here overflows.
__device__ __forceinline__ u64 scale_draft(u64 mass, u64 total) {
    u32 low = (u32)mass, high = (u32)(mass >> 32), total_low = (u32)total, total_high = (u32)(total >> 32);
    u64 middle = (u64)low * total_high + ((u64)high * total_low + __umulhi(low, total_low));
    return ((u64)high * total_high << 24) + (middle >> 8);
}

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
