// Arithmetic of the scalar unit, in integers alone: the documentation does not say how its floats round.

namespace samedraw {

constexpr u32 MINUS_INF_BITS = 0xff800000u;
constexpr u32 PLUS_INF_BITS = 0x7f800000u;
// The most negative finite value: whatever is at least this is not -inf.
constexpr u32 LOWEST_BITS = 0xff7fffffu;

__aicore__ inline float float_of(u32 bits) {
    union {
        u32 bits;
        float value;
    } both;
    both.bits = bits;
    return both.value;
}

__aicore__ inline u32 bits_of(float value) {
    union {
        float value;
        u32 bits;
    } both;
    both.value = value;
    return both.bits;
}

// Order-preserving integer of a float's bits; -0 and +0 have one.
__aicore__ inline u32 key_of(u32 bits) {
    if (bits << 1 == 0) return 0x80000000u;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__aicore__ inline u32 bits_of_key(u32 key) { return key >> 31 ? key & 0x7fffffffu : ~key; }

__aicore__ inline bool is_nan(u32 bits) { return (bits & 0x7fffffffu) > PLUS_INF_BITS; }

// f32 bits of a half.
__aicore__ inline u32 widen_half(u32 half) {
    const u32 sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 31) return sign | PLUS_INF_BITS | fraction << 13;
    if (exponent != 0) return sign | (exponent + 112) << 23 | fraction << 13;
    if (fraction == 0) return sign;
    u32 top = 0;
    for (u32 rest = fraction; rest > 1; rest >>= 1) top++;
    return sign | (top + 103) << 23 | (fraction << (23 - top) & 0x7fffffu);
}

struct Wide {
    u64 high, low;
};

__aicore__ inline Wide multiply_wide(u64 a, u64 b) {
    const u64 low = 0xffffffffull;
    const u64 ll = (a & low) * (b & low), lh = (a & low) * (b >> 32), hl = (a >> 32) * (b & low);
    const u64 middle = (ll >> 32) + (lh & low) + (hl & low);
    return Wide{(a >> 32) * (b >> 32) + (lh >> 32) + (hl >> 32) + (middle >> 32), middle << 32 | (ll & low)};
}

// floor(a * b / 2^shift) for a result of 64 bits; `shift` is 1 to 63.
__aicore__ inline u64 multiply_shift(u64 a, u64 b, u32 shift) {
    const Wide product = multiply_wide(a, b);
    return product.high << (64 - shift) | product.low >> shift;
}

__aicore__ inline u64 splitmix64(u64 seed, u64 n) {
    u64 z = seed + (n + 1) * SD_SPLITMIX_GAMMA;
    z = (z ^ z >> 30) * SD_SPLITMIX_MIX1;
    z = (z ^ z >> 27) * SD_SPLITMIX_MIX2;
    return z ^ z >> 31;
}

// ---- f64 as its bits: zero and normal numbers, each operation rounded to nearest, ties to even

constexpr u64 F64_ONE = 0x3ff0000000000000ull;
constexpr u64 F64_SIGN = 1ull << 63;
constexpr u64 F64_FRACTION = (1ull << 52) - 1;

__aicore__ inline i32 f64_exponent(u64 a) { return static_cast<i32>(a >> 52 & 2047) - 1023; }

// The number m * 2^(e - 63), whose highest bit is bit 63; bit 0 may stand for all bits below it.
__aicore__ inline u64 f64_round(u64 sign, i32 e, u64 m) {
    u64 kept = m >> 11;
    const u64 rest = m & 2047;
    if (rest > 1024 || (rest == 1024 && (kept & 1))) kept++;
    if (kept >> 53) {
        kept >>= 1;
        e++;
    }
    return sign | static_cast<u64>(e + 1023) << 52 | (kept & F64_FRACTION);
}

// m, which is not 0, with its highest bit moved to bit 63.
__aicore__ inline u64 f64_normal(u64 sign, i32 e, u64 m) {
    while (!(m >> 63)) {
        m <<= 1;
        e--;
    }
    return f64_round(sign, e, m);
}

__aicore__ inline u64 f64_of(u64 a) { return a == 0 ? 0 : f64_normal(0, 63, a); }

__aicore__ inline u64 f64_of_signed(i64 a) {
    return a < 0 ? f64_of(static_cast<u64>(-a)) | F64_SIGN : f64_of(static_cast<u64>(a));
}

__aicore__ inline u64 f64_multiply(u64 a, u64 b) {
    const u64 sign = (a ^ b) & F64_SIGN;
    if (a << 1 == 0 || b << 1 == 0) return sign;
    Wide m = multiply_wide(((a & F64_FRACTION) | 1ull << 52) << 11, ((b & F64_FRACTION) | 1ull << 52) << 11);
    i32 e = f64_exponent(a) + f64_exponent(b) + 1;
    if (!(m.high >> 63)) {
        m.high = m.high << 1 | m.low >> 63;
        m.low <<= 1;
        e--;
    }
    return f64_round(sign, e, m.high | (m.low != 0 ? 1 : 0));
}

// b is not 0.
__aicore__ inline u64 f64_divide(u64 a, u64 b) {
    const u64 sign = (a ^ b) & F64_SIGN;
    if (a << 1 == 0) return sign;
    u64 rest = (a & F64_FRACTION) | 1ull << 52;
    const u64 by = (b & F64_FRACTION) | 1ull << 52;
    i32 e = f64_exponent(a) - f64_exponent(b);
    if (rest < by) {
        rest <<= 1;
        e--;
    }
    u64 m = 0;
    for (u32 i = 0; i < 64; i++) {
        m <<= 1;
        if (rest >= by) {
            rest -= by;
            m |= 1;
        }
        rest <<= 1;
    }
    return f64_round(sign, e, m | (rest != 0 ? 1 : 0));
}

__aicore__ inline u64 f64_add(u64 a, u64 b) {
    if (b << 1 == 0) return a;
    if (a << 1 == 0) return b;
    if ((a & ~F64_SIGN) < (b & ~F64_SIGN)) {
        const u64 other = a;
        a = b;
        b = other;
    }
    const u32 apart = static_cast<u32>(f64_exponent(a) - f64_exponent(b));
    const u64 large = ((a & F64_FRACTION) | 1ull << 52) << 10;
    u64 small = ((b & F64_FRACTION) | 1ull << 52) << 10;
    if (apart > 62) {
        small = 1;
    } else if (apart > 0) {
        small = small >> apart | (small << (64 - apart) != 0 ? 1 : 0);
    }
    const u64 m = (a ^ b) & F64_SIGN ? large - small : large + small;
    return m == 0 ? 0 : f64_normal(a & F64_SIGN, f64_exponent(a) + 1, m);
}

// f32 bits of a number that is 0 or within the normal range of f32.
__aicore__ inline u32 f32_of_f64(u64 a) {
    const u32 sign = static_cast<u32>(a >> 63) << 31;
    if (a << 1 == 0) return sign;
    i32 e = f64_exponent(a);
    const u64 m = (a & F64_FRACTION) | 1ull << 52, rest = m & ((1ull << 29) - 1);
    u64 kept = m >> 29;
    if (rest > 1ull << 28 || (rest == 1ull << 28 && (kept & 1))) kept++;
    if (kept >> 24) {
        kept >>= 1;
        e++;
    }
    return sign | static_cast<u32>(e + 127) << 23 | (static_cast<u32>(kept) & 0x7fffffu);
}

// log2 of a normal number above 0, SEMANTICS section 8.
__aicore__ inline u64 f64_log2(u64 x) {
    static_assert(SD_SQRT_2 == 0x1.6a09e667f3bcdp0 && SD_TWO_OVER_LN2 == 0x1.71547652b82fep1, "the bits below");
    constexpr u64 SQRT_2 = 0x3ff6a09e667f3bcdull, TWO_OVER_LN2 = 0x40071547652b82feull;
    // 1/15 to 1/3.
    constexpr u64 FRACTIONS[7] = {0x3fb1111111111111ull, 0x3fb3b13b13b13b14ull, 0x3fb745d1745d1746ull,
                                  0x3fbc71c71c71c71cull, 0x3fc2492492492492ull, 0x3fc999999999999aull,
                                  0x3fd5555555555555ull};
    i32 e = f64_exponent(x);
    u64 w = (x & F64_FRACTION) | F64_ONE;
    if (w > SQRT_2) {
        // Halved, which is exact.
        w -= 1ull << 52;
        e++;
    }
    const u64 r = f64_divide(f64_add(w, F64_ONE | F64_SIGN), f64_add(w, F64_ONE));
    const u64 z = f64_multiply(r, r);
    u64 s = FRACTIONS[0];
    for (u32 i = 1; i < 7; i++) s = f64_add(f64_multiply(s, z), FRACTIONS[i]);
    s = f64_add(f64_multiply(s, z), F64_ONE);
    return f64_add(f64_of_signed(e), f64_multiply(f64_multiply(r, TWO_OVER_LN2), s));
}

// f32(log2(total) - 40), as bits.
__aicore__ inline u32 log2_total(u64 total) {
    constexpr u64 MINUS_40 = 0xc044000000000000ull;
    return f32_of_f64(f64_add(f64_log2(f64_of(total)), MINUS_40));
}

// f32 bits of the ratio of two masses, the second not 0.
__aicore__ inline u32 ratio(u64 part, u64 total) { return f32_of_f64(f64_divide(f64_of(part), f64_of(total))); }

} // namespace samedraw
