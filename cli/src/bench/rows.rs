//! What is measured: filters, and rows to run them on.

use clap::ValueEnum;
use samedraw::SamplingParams;
use samedraw::device::cpu::CpuPath;
use samedraw::params::FilterOrder;
use samedraw::pipeline::DType;
use samedraw::random::splitmix64;
use std::fmt;

/// Filters of a step.
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
}

impl Mix {
    pub const ALL: [Mix; 8] =
        [Mix::Argmax, Mix::Temperature, Mix::TopP, Mix::MinP, Mix::Joint, Mix::TopKFirst, Mix::ForceTopK, Mix::Reports];

    pub fn params(self) -> SamplingParams {
        let seeded = SamplingParams { seq_seed: Some(7), ..SamplingParams::default() };
        match self {
            Mix::Argmax => SamplingParams { top_k: 1, ..seeded },
            Mix::Temperature => SamplingParams { temperature: 0.8, ..seeded },
            Mix::TopP | Mix::ForceTopK | Mix::Reports => SamplingParams { top_p: 0.9, ..seeded },
            Mix::MinP => SamplingParams { min_p: 0.05, ..seeded },
            Mix::Joint => SamplingParams { top_k: 50, top_p: 0.9, ..seeded },
            Mix::TopKFirst => SamplingParams { top_k: 50, top_p: 0.9, filter_order: FilterOrder::TopKFirst, ..seeded },
        }
    }

    pub fn force_topk(self) -> usize {
        if self == Mix::ForceTopK { 1024 } else { 0 }
    }

    /// Whether more than tokens is wanted.
    pub fn reports(self) -> bool {
        self == Mix::Reports
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
}

impl fmt::Display for Character {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Character::Normal => "normal",
            Character::Equal => "equal",
            Character::Peaked => "peaked",
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
    let value = |n: u64| match character {
        Character::Normal => 3.0 * normal(n),
        Character::Equal => 0.5,
        Character::Peaked if n % (vocab as u64) % 9973 == 17 => 18.0 + normal(n),
        Character::Peaked => 2.0 * normal(n),
    };
    (0..(rows * vocab) as u64).map(value).collect()
}
