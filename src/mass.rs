//! Integer masses and the logarithm, SEMANTICS sections 5 and 8.
//!
//! Every operation here is a single IEEE 754 operation rounded to nearest; there is no fused
//! multiply-add and no library exp or log, so that every device computes the same bits.

/// Mass of the most likely token of a row.
pub const ONE: u64 = 1 << 40;
/// `f32(log2(e))`, the scale of temperature 1.
pub const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// `f32(ln 2)`.
pub const LN_2: f32 = std::f32::consts::LN_2;
/// Exponents at or below this have mass 0.
pub const FLOOR: f32 = -41.0;
/// Coefficients c1..c6 of 2^f on [-1/2, 1/2].
pub const POLY: [f32; 6] = [
    f32::from_bits(0x3F31_7219), // 0x1.62e432p-1
    f32::from_bits(0x3E75_FDF1), // 0x1.ebfbe2p-3
    f32::from_bits(0x3D63_5739), // 0x1.c6ae72p-5
    f32::from_bits(0x3C1D_9387), // 0x1.3b270ep-7
    f32::from_bits(0x3AAF_B93B), // 0x1.5f7276p-10
    f32::from_bits(0x3923_85A4), // 0x1.470b48p-13
];
/// 1.5 * 2^23: adding and subtracting it rounds to the nearest integer, ties to even.
pub const ROUND: f32 = 12_582_912.0;
/// `2 / ln 2`, the factor of the series of [`log2`].
pub const TWO_OVER_LN2: f64 = 2.885_390_081_777_926_8;

/// `s = f32(log2(e) / temperature)`, the division in f64.
pub fn scale(temperature: f32) -> f32 {
    (std::f64::consts::LOG2_E / f64::from(temperature)) as f32
}

/// `t`: log2 of a token's weight relative to the row's largest logit `max`; at most 0.
#[inline(always)]
pub fn exponent(logit: f32, max: f32, scale: f32) -> f32 {
    (logit - max) * scale
}

/// `trunc(2^t * 2^40)`, 0 for `t <= -41`. `t` is at most 0 and not NaN.
#[inline(always)]
pub fn mass(t: f32) -> u64 {
    if t <= FLOOR {
        return 0;
    }
    let n = (t + ROUND) - ROUND;
    let f = t - n;
    let mut p = POLY[5];
    for c in [POLY[4], POLY[3], POLY[2], POLY[1], POLY[0], 1.0] {
        p = p * f + c;
    }
    // p is in (0.7, 1.42): scaling by 2^(n + 40), n + 40 in -1..=40, is exact and stays normal.
    f32::from_bits(p.to_bits().wrapping_add(((n as i32 + 40) << 23) as u32)) as u64
}

/// Mass of a draft's log-probability `q` (natural logarithm), capped at that of probability 1; NaN gives 0.
#[inline(always)]
pub fn draft_mass(q: f32) -> u64 {
    let t = q * LOG2_E;
    if t.is_nan() { 0 } else { mass(if t > 0.0 { 0.0 } else { t }) }
}

/// `floor(mass * total / 2^40)` in 128 bits: a draft's mass in units of a row of total mass `total`.
#[inline(always)]
pub fn scale_draft(mass: u64, total: u64) -> u64 {
    ((u128::from(mass) * u128::from(total)) >> 40) as u64
}

/// log2 of a positive, finite, normal `x`.
pub fn log2(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut e = ((bits >> 52) as i64 - 1023) as f64;
    let mut w = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if w > std::f64::consts::SQRT_2 {
        w *= 0.5;
        e += 1.0;
    }
    let r = (w - 1.0) / (w + 1.0);
    let z = r * r;
    let mut s = 1.0 / 15.0;
    for k in [13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        s = s * z + 1.0 / k;
    }
    s = s * z + 1.0;
    e + r * TWO_OVER_LN2 * s
}

/// `L = f32(log2(M) - 40)` of a total mass.
pub fn log2_total(total: u64) -> f32 {
    (log2(total as f64) - 40.0) as f32
}

/// Log-probability of a kept token with exponent `t` in a row whose [`log2_total`] is `l`.
#[inline(always)]
pub fn logprob(t: f32, l: f32) -> f32 {
    (t - l) * LN_2
}

/// Ratio of two masses as the semantics round it: each to f64, divided, rounded to f32.
pub fn ratio(part: u64, total: u64) -> f32 {
    (part as f64 / total as f64) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_are_the_published_hexadecimal_floats() {
        let hex = [
            (0x1_62e432u64, -1),
            (0x1_ebfbe2, -3),
            (0x1_c6ae72, -5),
            (0x1_3b270e, -7),
            (0x1_5f7276, -10),
            (0x1_470b48, -13),
        ];
        for (c, (digits, exponent)) in POLY.into_iter().zip(hex) {
            assert_eq!(f64::from(c), digits as f64 / 2f64.powi(24) * 2f64.powi(exponent));
        }
        assert_eq!(TWO_OVER_LN2, 2.0 / std::f64::consts::LN_2);
        assert_eq!(std::f64::consts::SQRT_2, "1.4142135623730951".parse::<f64>().unwrap());
    }

    #[test]
    fn masses_of_exact_powers_and_of_the_floor() {
        assert_eq!(mass(0.0), ONE);
        assert_eq!(mass(-0.0), ONE);
        for k in 0..=40 {
            assert_eq!(mass(-(k as f32)), ONE >> k, "2^-{k}");
        }
        assert_eq!(mass(-41.0), 0);
        assert_eq!(mass(f32::NEG_INFINITY), 0);
        assert_eq!(mass(f32::from_bits((-41.0f32).to_bits() - 1)), 0); // just above -41: below one unit
        assert_eq!(mass(-40.0), 1);
        assert_eq!(draft_mass(f32::NAN), 0);
        assert_eq!(draft_mass(1.0), ONE);
        assert_eq!(draft_mass(f32::NEG_INFINITY), 0);
    }

    #[test]
    fn mass_error_is_within_the_stated_bounds() {
        let mut t = -40.0f32;
        while t <= 0.0 {
            let exact = 2f64.powf(f64::from(t));
            let got = mass(t) as f64 / ONE as f64;
            let bound = if exact > 0.1 {
                4e-7
            } else if exact > 1e-6 {
                3e-6
            } else {
                1.0
            };
            assert!(mass(t) <= ONE);
            assert!((got - exact).abs() <= bound * exact.max(1e-12), "t = {t}");
            t += 0.000_973;
        }
    }

    #[test]
    fn log2_matches_the_library_to_rounding() {
        for i in 0..4000u64 {
            let x = (1u64 << (i % 64)) | (i.wrapping_mul(0x9E37_79B9) & ((1 << (i % 64)) - 1));
            let x = x as f64;
            assert!((log2(x) - x.log2()).abs() <= 1e-9 * x.log2().abs().max(1.0), "{x}");
        }
        assert_eq!(log2(8.0), 3.0);
        assert_eq!(log2_total(ONE), 0.0);
    }

    #[test]
    fn scale_divides_in_f64_and_rounds_once() {
        assert_eq!(scale(1.0), LOG2_E);
        assert_eq!(scale(0.7), (f64::from_bits(0x3FF7_1547_652B_82FE) / f64::from(0.7f32)) as f32);
    }
}
