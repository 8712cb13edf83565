//! What runs under compute-sanitizer, which slows kernels down by two or three orders: every stage and type on small rows
//! and one large one.

use super::common::assert_same;
use super::common::bulk::{Bounds, batch};
use super::{cpu, describe, gpu};
use samedraw::Device;
use samedraw::device::StageKind;
use samedraw::pipeline::{DType, HostRun, VerifyMode};
use std::collections::BTreeSet;
use std::sync::Arc;

/// V <= 8192 in steps of 3 rows, and one row of 131072; 61 rows in all.
#[test]
fn sanitizer_subset() {
    let _turn = super::among_others();
    let cases = subset();
    let Some(device) = gpu("sanitizer_subset", None) else { return };
    let (device, cpu): (Arc<dyn Device>, _) = (device, cpu());
    for (seed, case) in &cases {
        let want = case.run(&cpu, &describe(*seed, case));
        let got = case.run(&device, &describe(*seed, case));
        assert_same(&want, &got, || describe(*seed, case));
    }
    eprintln!("sanitizer_subset: {} rows", cases.iter().map(|(_, case)| case.rows).sum::<usize>());
}

/// The first steps of the generator that add a stage with a type, or a verification, not yet seen; then one large row.
fn subset() -> Vec<(u64, super::Case)> {
    let small = Bounds { rows: 3, vocab: 8192, most: 8192 };
    let cpu = cpu();
    let mut wanted = BTreeSet::new();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for stage in [StageKind::Select, StageKind::Argmax, StageKind::Sample, StageKind::Remap, StageKind::Verify] {
            wanted.insert(format!("{dtype:?} {stage:?}"));
        }
        for mode in [VerifyMode::Rejection, VerifyMode::OneHot, VerifyMode::Chain] {
            wanted.insert(format!("{dtype:?} {mode:?}"));
        }
    }
    let mut cases = Vec::new();
    for seed in 0..3000 {
        let mut case = batch(seed, seed % 2 == 0, &small);
        if case.vocab < 700 {
            continue;
        }
        if seed % 11 == 1 {
            // What an argmax alone answers, which is rare otherwise.
            case.params.iter_mut().for_each(|params| *params = samedraw::SamplingParams::greedy());
            case.tokens_alone();
            (case.golden, case.bits) = (None, None);
        }
        let mut run = HostRun::new(&cpu, &case.host()).expect("a step");
        let (sampler, step, _) = run.parts();
        let plan = sampler.plan(step).expect("a plan");
        let mode = case.verify.as_ref().and_then(|verify| verify.mode);
        let stages = plan.stages().map(|stage| format!("{stage:?}")).chain(mode.map(|mode| format!("{mode:?}")));
        let new = stages.map(|what| wanted.remove(&format!("{:?} {what}", case.dtype))).filter(|&new| new).count();
        let wide_enough = cases.len() < 20 && (new > 0 || wanted.len() < 3 && case.vocab > 6000);
        if wide_enough {
            cases.push((seed, case));
        }
    }
    assert!(wanted.is_empty(), "no step of {wanted:?}");
    // The one seed in 101 whose step is of the largest size.
    let mut last = (3030, batch(3030, false, &Bounds { rows: 1, vocab: 131_071, most: 131_072 }));
    assert_eq!(last.1.vocab, 131_072);
    // Nothing as large as the row but the row.
    (last.1.dense, last.1.kept_ids, last.1.columns) = (false, 8, false);
    cases.push(last);
    assert_eq!(cases.iter().map(|(_, case)| case.rows).sum::<usize>(), 61);
    cases
}
