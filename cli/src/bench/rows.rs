//! What is measured: filters, and rows to run them on.

use clap::ValueEnum;
use samedraw::SamplingParams;
use samedraw::device::cpu::CpuPath;
use samedraw::params::FilterOrder;
use samedraw::pipeline::{DType, VerifyMode};
use samedraw::random::splitmix64;
use std::fmt;

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mix {
    /// top_k = 1
    Argmax,
    /// No filter
    Temperature,
    /// top_p = 0.9
    TopP,
    /// min_p = 0.05
    MinP,
    /// top_k = 50 and top_p = 0.9 of the whole row
    Joint,
    /// top_k = 50, then top_p = 0.9 of those
    TopKFirst,
    /// Force-top-k 1024 and top_p = 0.9
    ForceTopK,
    /// top_p = 0.9, with logprob, rank, kept count and status
    Reports,
    /// The values and ids of the first 1024 columns
    #[value(name = "select-1024")]
    Select1024,
    /// The values and ids of the first 4096 columns
    #[value(name = "select-4096")]
    Select4096,
    /// The values and ids of the first 16384 columns
    #[value(name = "select-16384")]
    Select16384,
    /// Force-top-k 1024, top_p = 0.9, token, logprob and the 20 most likely
    Whole,
    /// Verification of drafts without a distribution
    OneHot,
    /// Verification against the drafts' distributions
    Rejection,
    /// Verification against the drafts' distributions, top_k = 50, then top_p = 0.9 of those
    RejectionTopKFirst,
}

impl Mix {
    /// What is measured on the host's cores unless the command line says otherwise.
    pub const HOST: [Mix; 8] =
        [Mix::Argmax, Mix::Temperature, Mix::TopP, Mix::MinP, Mix::Joint, Mix::TopKFirst, Mix::ForceTopK, Mix::Reports];

    /// What is measured on a GPU unless the command line says otherwise.
    pub const GPU: [Mix; 12] = [
        Mix::Argmax,
        Mix::Temperature,
        Mix::TopP,
        Mix::Joint,
        Mix::TopKFirst,
        Mix::Select1024,
        Mix::Select4096,
        Mix::Select16384,
        Mix::Whole,
        Mix::OneHot,
        Mix::Rejection,
        Mix::RejectionTopKFirst,
    ];

    pub fn params(self) -> SamplingParams {
        let seeded = SamplingParams { seq_seed: Some(7), ..SamplingParams::default() };
        match self {
            Mix::Argmax => SamplingParams { top_k: 1, ..seeded },
            Mix::Temperature => SamplingParams { temperature: 0.8, ..seeded },
            Mix::TopP | Mix::ForceTopK | Mix::Reports | Mix::Whole => SamplingParams { top_p: 0.9, ..seeded },
            Mix::MinP => SamplingParams { min_p: 0.05, ..seeded },
            Mix::Joint => SamplingParams { top_k: 50, top_p: 0.9, ..seeded },
            Mix::TopKFirst | Mix::RejectionTopKFirst => {
                SamplingParams { top_k: 50, top_p: 0.9, filter_order: FilterOrder::TopKFirst, ..seeded }
            }
            Mix::Select1024 | Mix::Select4096 | Mix::Select16384 | Mix::OneHot | Mix::Rejection => seeded,
        }
    }

    pub fn force_topk(self) -> usize {
        match self {
            Mix::ForceTopK | Mix::Whole | Mix::Select1024 => 1024,
            Mix::Select4096 => 4096,
            Mix::Select16384 => 16384,
            _ => 0,
        }
    }

    /// Whether more than tokens is wanted.
    pub fn reports(self) -> bool {
        self == Mix::Reports
    }

    /// Whether the columns are wanted, and nothing else.
    pub fn selects(self) -> bool {
        matches!(self, Mix::Select1024 | Mix::Select4096 | Mix::Select16384)
    }

    /// How drafts are verified, where they are.
    pub fn verifies(self) -> Option<VerifyMode> {
        match self {
            Mix::OneHot => Some(VerifyMode::OneHot),
            Mix::Rejection | Mix::RejectionTopKFirst => Some(VerifyMode::Rejection),
            _ => None,
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mix::Argmax => "argmax",
            Mix::Temperature => "temperature",
            Mix::TopP => "top-p 0.9",
            Mix::MinP => "min-p 0.05",
            Mix::Joint => "joint 50, 0.9",
            Mix::TopKFirst => "top-k first 50, 0.9",
            Mix::ForceTopK => "force-top-k 1024, 0.9",
            Mix::Reports => "top-p 0.9, reports",
            Mix::Select1024 => "1024 columns",
            Mix::Select4096 => "4096 columns",
            Mix::Select16384 => "16384 columns",
            Mix::Whole => "whole: 1024, 0.9, top 20",
            Mix::OneHot => "verify one-hot",
            Mix::Rejection => "verify rejection",
            Mix::RejectionTopKFirst => "verify rejection, top-k first 50, 0.9",
        })
    }
}

/// What rows look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Character {
    /// Normal, deviation 3
    Normal,
    /// All logits equal
    Equal,
    /// A few likely tokens far above a normal rest
    Peaked,
    /// One token far above a flat rest
    Spike,
    /// Normal, ascending
    Sorted,
    /// 200 values that all types hold, drawn at random
    Few,
    /// Normal, 99 in 100 tokens forbidden by a mask
    Masked,
    /// Normal, 99 in 100 logits minus infinity
    MinusInf,
}

impl fmt::Display for Character {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Character::Normal => "normal",
            Character::Equal => "equal",
            Character::Peaked => "peaked",
            Character::Spike => "spike",
            Character::Sorted => "sorted",
            Character::Few => "few",
            Character::Masked => "masked",
            Character::MinusInf => "minus-inf",
        })
    }
}

/// Type of the logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Type {
    F32,
    F16,
    Bf16,
}

impl Type {
    pub fn encode(self, values: &[f32]) -> (Vec<u8>, DType) {
        match self {
            Type::F32 => (values.iter().flat_map(|x| x.to_le_bytes()).collect(), DType::F32),
            Type::F16 => (values.iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect(), DType::F16),
            Type::Bf16 => (values.iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes()).collect(), DType::BF16),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::F32 => "f32",
            Type::F16 => "f16",
            Type::Bf16 => "bf16",
        })
    }
}

/// Code of the CPU device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Path {
    Scalar,
    Base,
    Avx2,
    Avx512,
}

impl Path {
    pub fn code(self) -> CpuPath {
        match self {
            Path::Scalar => CpuPath::Scalar,
            Path::Base => CpuPath::Base,
            Path::Avx2 => CpuPath::Avx2,
            Path::Avx512 => CpuPath::Avx512,
        }
    }
}

/// The same values in every run.
pub fn values(character: Character, rows: usize, vocab: usize) -> Vec<f32> {
    let unit = |n: u64| (splitmix64(11, n) >> 11) as f64 / (1u64 << 53) as f64;
    let normal = |n: u64| {
        let (a, b) = (1.0 - unit(2 * n), unit(2 * n + 1));
        ((-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()) as f32
    };
    let chosen = |n: u64, odds: u64| splitmix64(13, n) % odds;
    let place = |n: u64| n % vocab as u64;
    let value = |n: u64| match character {
        Character::Normal | Character::Sorted | Character::Masked => 3.0 * normal(n),
        Character::Equal => 0.5,
        Character::Peaked if place(n) % 9973 == 17 => 18.0 + normal(n),
        Character::Peaked => 2.0 * normal(n),
        Character::Spike => {
            let spike = chosen(n / vocab as u64, vocab as u64);
            if place(n) == spike { 20.0 } else { 0.0 }
        }
        Character::Few => f32::from_bits(0x3F80_0000 + ((chosen(n, 200) as u32) << 16)),
        Character::MinusInf if chosen(n, 100) > 0 => f32::NEG_INFINITY,
        Character::MinusInf => 3.0 * normal(n),
    };
    let mut values: Vec<f32> = (0..(rows * vocab) as u64).map(value).collect();
    if character == Character::Sorted {
        values.chunks_mut(vocab).for_each(|row| row.sort_unstable_by(f32::total_cmp));
    }
    values
}

/// The words of each row's mask, where rows of this character have one.
pub fn mask(character: Character, rows: usize, vocab: usize) -> Option<Vec<i32>> {
    let words = vocab.div_ceil(32);
    let word =
        |n: u64| (0..32).filter(|bit| splitmix64(17, 32 * n + bit).is_multiple_of(100)).fold(0, |w, bit| w | 1 << bit);
    (character == Character::Masked).then(|| (0..(rows * words) as u64).map(word).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_what_they_are_called() {
        let vocab = 5000;
        let of = |character| values(character, 2, vocab);
        assert!(of(Character::Sorted)[..vocab].is_sorted() && of(Character::Sorted)[0] < -6.0);
        assert!(
            [0, 1].iter().all(|&row| {
                of(Character::Spike)[row * vocab..][..vocab].iter().filter(|&&x| x == 20.0).count() == 1
            })
        );
        let mut few: Vec<u32> = of(Character::Few).iter().map(|x| x.to_bits()).collect();
        few.sort_unstable();
        few.dedup();
        assert_eq!(few.len(), 200);
        for dtype in [Type::F16, Type::Bf16] {
            let (bytes, _) = dtype.encode(&of(Character::Few));
            let mut codes: Vec<&[u8]> = bytes.chunks(2).collect();
            codes.sort_unstable();
            codes.dedup();
            assert_eq!(codes.len(), 200, "{dtype}");
        }
        let left = of(Character::MinusInf).iter().filter(|x| x.is_finite()).count();
        assert!((60..140).contains(&left), "{left} of 10000");
        let allowed: u32 = mask(Character::Masked, 2, vocab).unwrap().iter().map(|word| word.count_ones()).sum();
        assert!((60..140).contains(&allowed), "{allowed} of 10000");
        assert_eq!(mask(Character::Normal, 2, vocab), None);
    }
}
