//! Draws follow the distributions they are drawn from, and streams of draws are independent of each other.
//!
//! Expected probabilities are a softmax in f64 and the filters on it, both written here. Every comparison gives a
//! p-value: the chance that a sampler without fault does as badly. Those of one family of tests on one device are held
//! to [`ALPHA`] together, each to its share of it (Bonferroni): of a thousand sets of seeds a sampler without fault
//! passes a family with all but one. The seeds are fixed, so that a run either always passes or never does.
//!
//! A cell of a chi-square test expects at least [`LEAST`] draws; tokens that are rarer are counted together, and each is
//! drawn on purpose, by injected bits from both ends of its interval.
//!
//! `SAMEDRAW_DRAWS` is the number of draws of each distribution, stream and verification, `SAMEDRAW_SEED` where seeds
//! start. With `--nocapture` every family tells its least p-value.

#[path = "../common/mod.rs"]
mod common;

mod distributions;
mod fresh;
mod level;
mod streams;
mod verification;

/// Chance that a sampler without fault fails one family of tests on one device.
const ALPHA: f64 = 1e-3;
/// Least number of draws that a cell of a chi-square test expects.
const LEAST: f64 = 5.0;
/// Most rows of one step.
const BATCH: usize = 50_000;

/// Draws of a test.
fn draws() -> usize {
    common::from_env("SAMEDRAW_DRAWS", 20_000) as usize
}

/// Where seeds start.
fn first_seed() -> u64 {
    common::from_env("SAMEDRAW_SEED", 1000)
}

/// Calls `f(start, len)` for the parts of `n` draws that make one step each.
fn in_batches(n: usize, mut f: impl FnMut(usize, usize)) {
    (0..n).step_by(BATCH).for_each(|start| f(start, BATCH.min(n - start)));
}
