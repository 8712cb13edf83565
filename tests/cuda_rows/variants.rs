//! The same rows in every way of launching: the general kernels, clusters of every size, none, launches that overlap; eager
//! and from a graph; alone, in larger batches and at other places.

use super::common::arrange::{movable, rows_of, with_rows};
use super::common::bulk::{self, Bounds};
use super::common::{Rng, assert_same, generate, halves};
use super::{Case, cpu, describe, from_env, gpu};
use samedraw::device::cuda::{CudaDevice, Switches};
use samedraw::device::effective_columns;
use samedraw::pipeline::{HostResult, HostRun, Variant};
use samedraw::{Device, Platform};
use std::sync::Arc;

const VARIANTS: [&str; 18] = [
    "",
    "pdl",
    "general",
    "general,pdl",
    "no-clusters",
    "no-clusters,pdl",
    "cluster:1",
    "cluster:2",
    "cluster:4",
    "cluster:8",
    "cluster:16",
    "cluster:2,pdl",
    "cluster:16,pdl",
    "resident",
    "resident,pdl",
    "resident,cluster:2",
    "resident,cluster:8",
    "resident,cluster:16",
];
/// Sizes on both sides of those from which on a row gets fewer blocks.
const BATCHES: [usize; 6] = [1, 5, 16, 33, 140, 300];
/// Most elements of a step made larger.
const CELLS: usize = 1 << 20;
const MOST_COLUMNS: usize = match Platform::Cuda.max_force_topk() {
    Some(limit) => limit,
    None => usize::MAX,
};

/// A case and its results on the CPU device.
struct Known {
    seed: u64,
    case: Case,
    want: HostResult,
}

/// Small cases that reach every corner, and some with larger vocabularies.
fn case_of(seed: u64) -> Case {
    let large = Bounds { rows: 12, vocab: 30_000, most: 140_000 };
    let verify = seed.is_multiple_of(3);
    let mut case =
        if seed.is_multiple_of(4) { bulk::batch(seed, verify, &large) } else { generate::random(seed, verify) };
    if !verify {
        case = movable(case);
        case.kept_ids = case.kept_ids.min(5000);
    }
    // Where a step asks for more columns than a GPU holds, the rest of it is still worth a run.
    case.force_topk = case.force_topk.min(MOST_COLUMNS);
    case
}

/// Cases of about `rows` rows.
fn known(rows: usize, first: u64) -> Vec<Known> {
    let (cpu, mut cases, mut seen) = (cpu(), Vec::new(), 0);
    for seed in first.. {
        if seen >= rows {
            break;
        }
        let case = case_of(seed);
        let want = case.run(&cpu, &describe(seed, &case));
        seen += case.rows;
        cases.push(Known { seed, case, want });
    }
    cases
}

/// Captures the case and replays it twice.
fn replayed(device: &Arc<dyn Device>, case: &Case, variant: Variant, what: &str) -> HostResult {
    let mut run = HostRun::new(device, &case.host()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let (sampler, step, stream) = run.parts();
    let step = *step;
    // SAFETY: every pointer of the step belongs to `run`, which outlives the graph and its replays.
    unsafe {
        let graph = sampler.capture(stream, &step, variant).unwrap_or_else(|error| panic!("{what}: {error}"));
        graph.replay(stream).expect("a replay");
        graph.replay(stream).expect("a second replay");
        run.read().expect("outputs")
    }
}

/// The named variants whose filters cover what the case's parameters use.
fn named(case: &Case) -> Vec<Variant> {
    let uses =
        |f: &dyn Fn(&samedraw::SamplingParams) -> bool| case.params.iter().any(|p| p.temperature >= 1e-5 && f(p));
    let (top_k, top_p) = (uses(&|p| p.top_k != -1), uses(&|p| p.top_p != 1.0));
    let min_p = uses(&|p| p.min_p > 0.0);
    let verifies = case.verify.is_some();
    let fits = |variant: &Variant| {
        let filters = variant.filters();
        let covers = (filters.top_k || !top_k) && (filters.top_p || !top_p) && (filters.min_p || !min_p);
        let kind = match variant {
            Variant::Default => true,
            Variant::Verify | Variant::VerifyNoFilter => verifies,
            _ => !verifies,
        };
        covers && kind
    };
    Variant::ALL.into_iter().filter(fits).collect()
}

fn check(device: &Arc<dyn Device>, name: &str, known: &Known) {
    let Known { seed, case, want } = known;
    let what = |how: &str| format!("{name:?}, {}, {how}", describe(*seed, case));
    let rng = &mut Rng::new(*seed ^ 0xA5);
    assert_same(want, &case.run(device, &what("eager")), || what("eager"));
    // A captured step meets any filter, unless it is told which; filters of the case's own would make rows bad.
    if case.filters.is_none() {
        let variants = named(case);
        for variant in [Variant::Default, rng.pick(&variants)] {
            let how = format!("replayed as {variant:?}");
            assert_same(want, &replayed(device, case, variant, &what(&how)), || what(&how));
        }
    }
    if case.verify.is_some() {
        return;
    }
    let cells = case.vocab * if case.dense || case.kept_ids > 64 || case.columns { 3 } else { 1 };
    for size in
        BATCHES.into_iter().filter(|size| size * cells <= CELLS).take(if rng.one_in(4) { 6 } else { 0 }).chain([1])
    {
        let mut rows: Vec<usize> = (0..size).map(|_| rng.below(case.rows)).collect();
        rng.shuffle(&mut rows);
        let how = format!("in a batch of {size}");
        let got = with_rows(case, &rows).run(device, &what(&how));
        assert_same(&rows_of(want, case.rows, &rows), &got, || what(&how));
    }
}

/// The checks themselves, where there is no GPU: the CPU's scalar code against its lanes.
#[test]
fn those_checks_hold_on_the_cpu_alone() {
    known(300, 1).iter().for_each(|known| check(&super::common::scalar_cpu(), "scalar", known));
}

#[test]
fn every_case_is_within_what_a_gpu_holds() {
    for seed in 0..1000 {
        let case = case_of(seed);
        if let Err(error) = effective_columns(Platform::Cuda, case.force_topk, case.vocab) {
            panic!("{}: {error}", describe(seed, &case));
        }
    }
}

/// That a device which was told to launch in some way did.
fn launched_so(device: &CudaDevice, name: &str, switches: Switches) {
    assert!(device.launches() > 0, "{name:?}");
    let of = |blocks| device.launches_in_clusters_of(blocks);
    let clustered: u64 = [2, 4, 8, 16].into_iter().map(of).sum();
    match switches.cluster {
        Some(blocks) if blocks > device.largest_cluster() => {
            eprintln!("{name:?}: the card schedules clusters of {} at most", device.largest_cluster());
        }
        Some(blocks) if blocks > 1 => assert!(of(blocks) > 0, "{name:?}: no launch in clusters of {blocks}"),
        _ if switches.general || switches.no_clusters => assert_eq!(clustered, 0, "{name:?}"),
        _ => {}
    }
}

#[test]
fn every_variant_gives_the_bits_of_the_cpu() {
    let _turn = super::among_others();
    const TEST: &str = "every_variant_gives_the_bits_of_the_cpu";
    if gpu(TEST, Some(Switches::default())).is_none() {
        return;
    }
    let (rows, first) = (from_env("SAMEDRAW_ROWS", 1500) as usize, from_env("SAMEDRAW_SEED", 1));
    let known = known(rows, first);
    eprintln!(
        "{TEST}: {} rows from seed {first} in {} ways",
        known.iter().map(|k| k.case.rows).sum::<usize>(),
        VARIANTS.len()
    );
    std::thread::scope(|scope| {
        for name in VARIANTS {
            let known = &known;
            scope.spawn(move || {
                let switches = Switches::parse(name).expect("a variant");
                let typed = gpu(TEST, Some(switches)).expect("the GPU opened before");
                let device: Arc<dyn Device> = typed.clone();
                known.iter().for_each(|known| check(&device, name, known));
                launched_so(&typed, name, switches);
            });
        }
    });
}

/// A row of NaN among others changes none of them, wherever it is and however the step is launched.
#[test]
fn a_row_of_nan_changes_no_other_row() {
    let _turn = super::among_others();
    const TEST: &str = "a_row_of_nan_changes_no_other_row";
    if gpu(TEST, Some(Switches::default())).is_none() {
        return;
    }
    let cpu = cpu();
    for name in VARIANTS {
        let device: Arc<dyn Device> = gpu(TEST, Some(Switches::parse(name).expect("a variant"))).expect("as before");
        for vocab in [1000, 33_001] {
            let mut rng = Rng::new(vocab as u64);
            let rows: Vec<Vec<f32>> = (0..24).map(|_| (0..vocab).map(|_| 3.0 * rng.normal()).collect()).collect();
            let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
            let params: Vec<samedraw::SamplingParams> = (0..rows.len())
                .map(|row| samedraw::SamplingParams { seq_seed: Some(row as u64), top_p: 0.9, ..Default::default() })
                .collect();
            let clean = Case { kept_ids: 50, ..Case::f32(&rows, &params) };
            let want = clean.run(&cpu, "clean");
            for bad in [0, 11, 23] {
                let mut spoilt = clean.clone();
                spoilt.logits[bad * vocab * 4..(bad + 1) * vocab * 4]
                    .chunks_mut(4)
                    .for_each(|x| x.copy_from_slice(&f32::NAN.to_le_bytes()));
                let got = spoilt.run(&device, "spoilt");
                let others: Vec<usize> = (0..rows.len()).filter(|&row| row != bad).collect();
                let part = |result: &HostResult| rows_of(result, rows.len(), &others);
                assert_same(&part(&want), &part(&got), || format!("{name:?}, V = {vocab}, NaN in row {bad}"));
                assert_eq!((got.tokens[bad], got.status[bad]), (-1, 1 | 4), "{name:?}: nan_logits and empty_row");
            }
        }
    }
}

/// More requests than there are places to tell their rejections in, so that some share one; steps of one sampler, at other
/// positions each, without the status every other time.
#[test]
fn more_requests_than_hints() {
    const TEST: &str = "more_requests_than_hints";
    let _turn = super::among_others();
    for name in ["", "resident"] {
        let Some(device) = gpu(TEST, Some(Switches::parse(name).expect("a variant"))) else { return };
        for seed in 0..6 {
            let mut case = halves::many_halves(seed, 2500);
            let mut run = HostRun::new(&device, &case.host()).expect("a step");
            for step in 0..4 {
                let silent = step % 2 == 1;
                let mut got = case.step_on(&mut run, silent);
                let want = case.run(&cpu(), "on the CPU");
                if silent {
                    got.status.clone_from(&want.status);
                }
                assert_same(&want, &got, || format!("step {step} of seed {seed} by {name:?}"));
            }
        }
    }
}
