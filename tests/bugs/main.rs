//! Faults that other samplers had, one row each: a small input and what the semantics make of it.
//!
//! A row names the kind of fault and the public report it is known from; inputs and values are our own. Where a report
//! assumes another rule (which token a tie keeps, what `top_k = 0` means, when a nucleus is full), the value is ours.

#[path = "../common/mod.rs"]
mod common;

mod degenerate;
mod draws;
mod filters;
mod logprobs;
mod masks;
mod shapes;
mod verification;

use samedraw::{Device, SamplingParams};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Largest 53-bit number: the draw closest to 1.
const LAST: u64 = (1 << 53) - 1;

/// One fault.
struct Fault {
    what: &'static str,
    report: &'static str,
    check: fn(&Arc<dyn Device>),
}

const fn fault(what: &'static str, report: &'static str, check: fn(&Arc<dyn Device>)) -> Fault {
    Fault { what, report, check }
}

/// Parameters with a seed.
fn seeded(seed: u64) -> SamplingParams {
    SamplingParams { seq_seed: Some(seed), ..Default::default() }
}

/// Exact argmax with a seed.
fn greedy() -> SamplingParams {
    SamplingParams { seq_seed: Some(1), ..SamplingParams::greedy() }
}

fn ln(probabilities: &[f32]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln()).collect()
}

#[track_caller]
fn near(got: f32, want: f32, within: f32) {
    assert!((got - want).abs() <= within, "{got} is not {want} within {within}");
}

#[test]
fn faults_of_other_samplers() {
    let lists = [
        degenerate::FAULTS,
        draws::FAULTS,
        filters::FAULTS,
        shapes::FAULTS,
        logprobs::FAULTS,
        verification::FAULTS,
        masks::FAULTS,
    ];
    let mut failed = Vec::new();
    for device in common::devices() {
        for fault in lists.into_iter().flatten() {
            if catch_unwind(AssertUnwindSafe(|| (fault.check)(&device))).is_err() {
                failed.push(format!("{} ({}) on {}", fault.what, fault.report, device.info().platform));
            }
        }
    }
    assert!(failed.is_empty(), "{} rows failed:\n{}", failed.len(), failed.join("\n"));
}
