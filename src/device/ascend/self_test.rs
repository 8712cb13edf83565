//! Whether the NPU's arithmetic rounds as the semantics ask (SEMANTICS section 11): the operations that the kernels are
//! built on, run on chosen operands and compared with the host's, bit for bit.

use crate::mass;
use half::{bf16, f16};

/// Elements of each operand and each result.
pub(super) const TILE: usize = 2048;
/// Elements that share a scalar operand, where an operation takes one.
const SHARE: usize = 256;
/// Bytes of the results.
pub(super) const RESULT_BYTES: usize = OPERATIONS.len() * TILE * 4;

/// What is tested, in the order of the results.
const OPERATIONS: [&str; 12] = [
    "addition",
    "subtraction",
    "multiplication",
    "addition of a scalar",
    "multiplication by a scalar",
    "comparison",
    "maximum",
    "masses, upper bits",
    "masses, lower bits",
    "widening of f16",
    "widening of bf16",
    "recognition of NaN",
];

/// What a device's arithmetic was found to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arithmetic {
    /// Every operation gave the bits IEEE 754 asks for: results are those of every other device.
    Exact,
    /// These operations gave other bits: a decision may differ at the edge of a mass.
    Inexact(Vec<&'static str>),
    /// The test could not be run, for this reason; the device counts as inexact.
    Untested(String),
}

impl std::fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Arithmetic::Exact => f.write_str("exact arithmetic"),
            Arithmetic::Inexact(operations) => write!(f, "inexact arithmetic: {}", operations.join(", ")),
            Arithmetic::Untested(reason) => write!(f, "arithmetic not tested: {reason}"),
        }
    }
}

/// The operands: vectors `a`, `b` and `c`, and patterns of 16 bits.
struct Operands {
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
    patterns: Vec<u16>,
}

impl Operands {
    /// Finite values of every magnitude, subnormals and values halfway between two floats among them, and exponents from
    /// far below the floor up to 0; every fourth of the patterns is an infinity, a NaN or a subnormal.
    fn new() -> Self {
        let mut n = 0;
        let mut bits = || {
            n += 1;
            crate::random::splitmix64(0x5A3E_D4A3, n)
        };
        let mut value = || {
            let word = bits();
            let (fraction, sign) = (word as u32 & 0x007F_FFFF, (word >> 31) as u32 & (1 << 31));
            let exponent = match word >> 60 {
                0 => 0,
                1 => 1 + (word >> 32) as u32 % 24,
                2 => 254,
                3..=6 => 127,
                _ => 100 + (word >> 32) as u32 % 60,
            };
            // Half of them have few bits, so that ties come up.
            let fraction = if word >> 59 & 1 == 0 { fraction & 0x0070_0001 } else { fraction };
            f32::from_bits(sign | (exponent << 23) | fraction)
        };
        let a: Vec<f32> = (0..TILE).map(|_| value()).collect();
        let b: Vec<f32> = (0..TILE).map(|_| value()).collect();
        let c = (0..TILE)
            .map(|i| match i % 4 {
                0 => -(i as f32) / 32.0,
                1 => f32::from_bits(0x8000_0000 | (bits() as u32 % 0x42C0_0000)),
                2 => -41.0 * ((bits() >> 40) as f32 / (1u64 << 24) as f32),
                _ if i % 32 == 3 => f32::NEG_INFINITY,
                _ => -((bits() % 4200) as f32) / 100.0,
            })
            .collect();
        let patterns = (0..TILE)
            .map(|i| {
                let word = bits() as u16;
                match i % 12 {
                    0 => word | 0x7C00,
                    1 => word & 0x83FF,
                    2 => (word & 0x8000) | 0x7C00,
                    3 => word | 0x7F80,
                    4 => word & 0x807F,
                    _ => word,
                }
            })
            .collect();
        Operands { a, b, c, patterns }
    }

    fn bytes(&self) -> Vec<u8> {
        let floats = [&self.a, &self.b, &self.c].into_iter().flatten().flat_map(|x| x.to_le_bytes());
        floats.chain(self.patterns.iter().flat_map(|x| x.to_le_bytes())).collect()
    }

    /// The bits of every result of operation number `operation`.
    fn results(&self, operation: usize) -> Vec<u32> {
        let result = |i: usize| {
            let (a, b, c, pattern) = (self.a[i], self.b[i], self.c[i], self.patterns[i]);
            let scalar = self.b[i / SHARE * SHARE];
            let half = f16::from_bits(pattern).to_f32();
            match operation {
                0 => (a + b).to_bits(),
                1 => (a - b).to_bits(),
                2 => (a * b).to_bits(),
                3 => (a + scalar).to_bits(),
                4 => (a * scalar).to_bits(),
                5 => if a > scalar { a } else { f32::NEG_INFINITY }.to_bits(),
                6 => if a > scalar { a } else { scalar }.to_bits(),
                7 => (mass::mass(c) >> 20) as u32,
                8 => (mass::mass(c) & 0xF_FFFF) as u32,
                9 => half.to_bits(),
                10 => bf16::from_bits(pattern).to_f32().to_bits(),
                _ => if half.is_nan() { f32::NEG_INFINITY } else { half }.to_bits(),
            }
        };
        (0..TILE).map(result).collect()
    }
}

/// What is handed to the kernel.
pub(super) fn operands() -> Vec<u8> {
    Operands::new().bytes()
}

/// What the kernel's results say.
pub(super) fn judge(results: &[u8]) -> Arithmetic {
    let operands = Operands::new();
    let differs = |operation: usize| {
        let got = results[4 * TILE * operation..4 * TILE * (operation + 1)].chunks_exact(4);
        let got = got.map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        // One NaN is as good as another: none is ever looked into.
        let nan = |bits: u32| f32::from_bits(bits).is_nan();
        let widens = OPERATIONS[operation].starts_with("widening");
        let same = |(want, got): (u32, u32)| want == got || (widens && nan(want) && nan(got));
        !operands.results(operation).into_iter().zip(got).all(same)
    };
    let differing: Vec<&str> = (0..OPERATIONS.len()).filter(|&i| differs(i)).map(|i| OPERATIONS[i]).collect();
    if differing.is_empty() { Arithmetic::Exact } else { Arithmetic::Inexact(differing) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right() -> Vec<u8> {
        let operands = Operands::new();
        (0..OPERATIONS.len()).flat_map(|i| operands.results(i)).flat_map(u32::to_le_bytes).collect()
    }

    #[test]
    fn sizes_are_those_the_kernel_takes() {
        // Three vectors of f32 and one of 16-bit patterns.
        assert_eq!(operands().len(), TILE * (3 * 4 + 2));
        assert_eq!(right().len(), RESULT_BYTES);
        let kernel = include_str!("../../../ascend/self_test.asc");
        assert!(kernel.contains(&format!("operation < {}", OPERATIONS.len())));
        assert!(kernel.contains(&format!("SHARE = {SHARE};")));
        assert!(include_str!("../../../ascend/core.h").contains(&format!("TILE = {TILE};")));
    }

    #[test]
    fn one_bit_anywhere_makes_an_operation_inexact() {
        assert_eq!(judge(&right()), Arithmetic::Exact);
        for operation in 0..OPERATIONS.len() {
            let mut wrong = right();
            // An element that is no NaN.
            wrong[4 * (operation * TILE + 7)] ^= 1;
            assert_eq!(judge(&wrong), Arithmetic::Inexact(vec![OPERATIONS[operation]]));
        }
    }

    /// Operands are worth their name only where another way to round shows.
    #[test]
    fn the_operands_tell_other_arithmetic_apart() {
        let operands = Operands::new();
        let flushed = |x: f32| if x.is_subnormal() { 0.0 } else { x };
        let any = |f: &dyn Fn(f32, f32) -> bool| operands.a.iter().zip(&operands.b).any(|(&a, &b)| f(a, b));
        assert!(operands.a.iter().all(|x| x.is_finite()) && operands.b.iter().all(|x| x.is_finite()));
        assert!(any(&|a, b| (flushed(a) + flushed(b)).to_bits() != (a + b).to_bits()), "subnormal operands");
        assert!(any(&|a, b| (a * b).is_subnormal()), "subnormal products");
        let exact = |a: f32, b: f32| f64::from(a) * f64::from(b);
        let truncated = |x: f64| {
            let rounded = x as f32;
            if f64::from(rounded).abs() > x.abs() { f32::from_bits(rounded.to_bits() - 1) } else { rounded }
        };
        assert!(any(&|a, b| exact(a, b).is_normal() && truncated(exact(a, b)).to_bits() != (a * b).to_bits()));
        // Halfway between two floats: what rounds away from zero gives another result.
        let tie = |a: f32, b: f32| {
            let product = a * b;
            let next = f32::from_bits(product.to_bits() + 1);
            product.is_normal() && (f64::from(product) + f64::from(next)) / 2.0 == exact(a, b)
        };
        assert!(any(&tie), "products halfway between two floats");
        // One rounding where there are two: the polynomial's steps.
        let fused = |c: f32| {
            let t = c.max(mass::FLOOR);
            let f = t - ((t + mass::ROUND) - mass::ROUND);
            f.mul_add(mass::POLY[5], mass::POLY[4]) != f * mass::POLY[5] + mass::POLY[4]
        };
        assert!(operands.c.iter().any(|&c| fused(c)));
        assert!(operands.c.iter().all(|&c| c <= 0.0));
    }
}
