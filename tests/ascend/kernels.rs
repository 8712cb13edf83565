//! The kernels of the Ascend device on a model of the calls they make (`tests/ascend_model`), on the simulated runtime.
//! Nothing in these tests has met an NPU.
//!
//! `SAMEDRAW_ROWS` sets the number of random rows, `SAMEDRAW_SEED` where the cases start, `SAMEDRAW_CORES` the numbers of
//! cores they run on, as `1,3,48`, `SAMEDRAW_VOCAB` the largest vocabulary of the vectors.

#[path = "../common/mod.rs"]
mod common;
#[path = "sim.rs"]
#[allow(dead_code)]
mod sim;

use common::{Case, assert_same, from_env, generate};
use samedraw::device::ascend::{Arithmetic, AscendDevice, Options};
use samedraw::device::{Device, Platform};
use samedraw::pipeline::{HostResult, HostRun};
use sim::Sim;
use std::path::PathBuf;
use std::sync::Arc;

/// Numbers of cores a test runs on.
fn cores(default: &[u32]) -> Vec<u32> {
    match std::env::var("SAMEDRAW_CORES") {
        Err(_) => default.to_vec(),
        Ok(text) => text.split(',').map(|n| n.trim().parse().expect("SAMEDRAW_CORES: numbers")).collect(),
    }
}

/// The device with so many cores, its arithmetic tested.
fn open(sim: &Sim, cores: u32) -> Arc<AscendDevice> {
    sim.runtime.set("VECTOR_CORES", &cores.to_string());
    let kernels = std::env::var_os("SAMEDRAW_ASCEND_KERNELS").map(PathBuf::from);
    let options = Options { skip_self_test: false, kernels, ..sim.options.clone() };
    let device = AscendDevice::open_with(0, options).expect("the simulated NPU");
    assert_eq!(device.vector_cores(), cores);
    Arc::new(device)
}

fn run(device: &Arc<AscendDevice>, case: &Case, what: &dyn Fn() -> String) -> HostResult {
    let run = HostRun::new(device, &case.host()).and_then(|mut run| run.run());
    run.unwrap_or_else(|error| panic!("{}: {error}", what()))
}

#[test]
fn the_self_test_finds_exact_arithmetic_exact_and_other_arithmetic_by_name() {
    let sim = Sim::take();
    let device = open(&sim, 3);
    assert_eq!(device.arithmetic(), &Arithmetic::Exact);
    assert!(device.info().exact && device.info().name.contains("exact arithmetic"), "{:?}", device.info());
    for (inexact, finds) in [("truncate", "multiplication"), ("flush", "addition"), ("truncate,flush", "masses")] {
        sim.runtime.set("INEXACT", inexact);
        let device = open(&sim, 3);
        let Arithmetic::Inexact(found) = device.arithmetic() else { panic!("{inexact}: {:?}", device.arithmetic()) };
        assert!(found.iter().any(|name| name.starts_with(finds)), "{inexact}: {found:?}");
        assert!(!device.info().exact && device.info().name.contains("inexact"), "{:?}", device.info());
    }
}

/// A sum of masses that is a little off moves a draw to a neighbour where the draw falls near the edge between the two, and
/// nowhere else: every token lies between those that exact arithmetic draws a hundred-thousandth of the whole earlier and later.
#[test]
fn inexact_arithmetic_moves_draws_at_the_edges_of_masses_alone() {
    const VOCAB: usize = 3000;
    const ROWS: usize = 40;
    const WHOLE: i64 = 1 << 53;
    let sim = Sim::take();
    sim.runtime.set("INEXACT", "truncate,flush");
    let device = open(&sim, 3);
    assert!(!device.info().exact);
    let rng = &mut common::Rng::new(11);
    let rows: Vec<Vec<f32>> = (0..ROWS).map(|_| (0..VOCAB).map(|_| 3.0 * rng.normal()).collect()).collect();
    let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
    let params = |row: usize| samedraw::SamplingParams {
        seq_seed: Some(row as u64),
        top_k: if row.is_multiple_of(2) { -1 } else { 200 },
        ..Default::default()
    };
    let params: Vec<_> = (0..ROWS).map(params).collect();
    let bits: Vec<i64> = (0..3 * ROWS).map(|_| (rng.u64() >> 11) as i64).collect();
    let shifted = |by: i64| {
        let bits = bits.iter().map(|&bits| (bits + by).clamp(0, WHOLE - 1) as u64).collect();
        Case { bits: Some(bits), ..Case::f32(&rows, &params) }.with_tokens_alone()
    };
    let got = run(&device, &shifted(0), &|| "inexact".into());
    let (earlier, exact, later) =
        (shifted(-WHOLE / 100_000).expected(), shifted(0).expected(), shifted(WHOLE / 100_000).expected());
    let mut same = 0;
    for row in 0..ROWS {
        let (low, high) = (earlier.tokens[row], later.tokens[row]);
        assert!((low..=high).contains(&got.tokens[row]), "row {row}: {} beyond {low} to {high}", got.tokens[row]);
        if got.tokens[row] == exact.tokens[row] {
            same += 1;
            assert!((got.logprobs[row] - exact.logprobs[row]).abs() < 1e-4, "row {row}: a logprob far off");
        }
    }
    assert!(same > ROWS * 9 / 10, "only {same} of {ROWS} rows are the exact ones");
    assert_ne!(got.logprobs, exact.logprobs, "inexact arithmetic that shows nowhere");
}

#[test]
fn argmax_of_plain_rows() {
    let sim = Sim::take();
    let device = open(&sim, 3);
    let mut rows = vec![vec![0.0f32; 5000]; 5];
    for (i, at) in [(0, 0), (1, 4999), (2, 2048), (3, 77)] {
        rows[i][at] = 2.0 + i as f32;
    }
    let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
    let greedy = samedraw::SamplingParams { seq_seed: Some(1), ..samedraw::SamplingParams::greedy() };
    let case = Case::f32(&rows, &vec![greedy; 5]).with_tokens_alone();
    let result = run(&device, &case, &|| "argmax".into());
    assert_eq!(result.tokens, [0, 4999, 2048, 77, 0]);
    assert_same(&case.expected(), &result, || "argmax".into());
}

fn describe(seed: u64, case: &Case, cores: u32) -> String {
    let verify = case.verify.as_ref().and_then(|v| v.mode);
    let Case { rows, vocab, dtype, force_topk, .. } = case;
    format!(
        "seed {seed} ({rows} rows, V = {vocab}, {dtype:?}, force_topk {force_topk}, verify {verify:?}), {cores} cores"
    )
}

#[test]
fn every_output_of_random_steps_is_the_oracles() {
    let (rows, first) = (from_env("SAMEDRAW_ROWS", 1000) as usize, from_env("SAMEDRAW_SEED", 1));
    let cores = cores(&[3]);
    eprintln!("ascend: {rows} rows from seed {first} on {cores:?} cores");
    let sim = Sim::take();
    let devices: Vec<Arc<AscendDevice>> = cores.iter().map(|&cores| open(&sim, cores)).collect();
    let (mut seen, mut seed) = (0, first);
    while seen < rows {
        let case = generate::random(seed, seed.is_multiple_of(2));
        if case.force_topk.min(case.vocab) <= Platform::Ascend.max_force_topk().expect("a limit") {
            let want = case.expected();
            for device in &devices {
                let what = || describe(seed, &case, device.vector_cores());
                assert_same(&want, &run(device, &case, &what), what);
            }
            seen += case.rows;
        }
        seed += 1;
    }
}

/// Rows that are long enough to be split over cores, or not to stay in one.
#[test]
fn long_rows_are_the_oracles_split_or_not() {
    let rows = from_env("SAMEDRAW_LONG_ROWS", 12) as usize;
    let cores = cores(&[3, 48]);
    let sim = Sim::take();
    let devices: Vec<Arc<AscendDevice>> = cores.iter().map(|&cores| open(&sim, cores)).collect();
    let (mut seen, mut seed, mut split) = (0, from_env("SAMEDRAW_SEED", 1), 0);
    while seen < rows {
        let case = generate::random(seed, seed.is_multiple_of(2));
        // The generator has few long rows; what it makes of the others costs little.
        if case.vocab > 8192 && case.force_topk.min(case.vocab) <= 4096 {
            let want = case.expected();
            for device in &devices {
                let before = device.launches();
                let what = || describe(seed, &case, device.vector_cores());
                assert_same(&want, &run(device, &case, &what), what);
                split += usize::from(device.launches() > before + 2);
            }
            seen += case.rows;
        }
        seed += 1;
    }
    assert!(split > 0 || rows < 12, "no row was split");
}

/// Bytes a row's step reads from global memory and launches it takes, against what `docs/ascend.md` says of them.
#[test]
fn bytes_read_and_launches_are_the_documented_ones() {
    const VOCAB: usize = 40_000;
    let sim = Sim::take();
    let rng = &mut common::Rng::new(5);
    let rows: Vec<Vec<f32>> = (0..3).map(|_| (0..VOCAB).map(|_| 3.0 * rng.normal()).collect()).collect();
    let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
    let plain = samedraw::SamplingParams { seq_seed: Some(9), ..Default::default() };
    let top_p = samedraw::SamplingParams { top_p: 0.9, ..plain.clone() };
    let wide = samedraw::SamplingParams { top_p: 0.99, ..plain.clone() };
    let top_k =
        samedraw::SamplingParams { top_k: 50, filter_order: samedraw::params::FilterOrder::TopKFirst, ..top_p.clone() };
    let greedy = samedraw::SamplingParams { seq_seed: Some(9), ..samedraw::SamplingParams::greedy() };
    let (row, tile) = (4.0 * VOCAB as f64, 4.0 * 2048.0);
    // Name, parameters, force-top-k, bytes a row may read at least and at most, launches; on three cores for three rows,
    // and on 48.
    for (name, params, force_topk, whole, split) in [
        ("argmax", &greedy, 0, (row, row, 1), (row, row, 2)),
        ("temperature", &plain, 0, (2.0 * row, 2.0 * row + tile, 1), (2.0 * row, 2.0 * row + tile + 5e3, 3)),
        ("top-p", &top_p, 0, (2.0 * row, 2.0 * row, 1), (2.0 * row, 2.0 * row + 8.0 * 512.0 * 16.0, 3)),
        (
            "wide top-p",
            &wide,
            0,
            (4.0 * row, 5.0 * row + tile, 1),
            (4.0 * row, 5.0 * row + tile + 8.0 * 512.0 * 16.0, 3),
        ),
        ("top-k first, top-p", &top_k, 0, (row, row, 1), (2.0 * row, 2.0 * row + 8.0 * 512.0 * 16.0, 3)),
        ("N = 1024, top-p", &top_p, 1024, (row, row, 1), (row, row + 4.0 * 8.0 * 1024.0, 2)),
        ("N = 4096, top-p", &top_p, 4096, (row, row, 1), (row, row + 2.0 * 8.0 * 4096.0, 2)),
    ] {
        for (cores, (least, most, launches)) in [(3, whole), (48, split)] {
            let device = open(&sim, cores);
            let case = Case { force_topk, ..Case::f32(&rows, &[params.clone(), params.clone(), params.clone()]) };
            let case = case.with_tokens_alone();
            let mut run = HostRun::new(&device, &case.host()).expect("a step");
            run.tokens_alone();
            let (read, launched) = (sim.runtime.counter("gm_read"), device.launches());
            let result = run.run().expect("a result");
            assert_eq!(case.expected().tokens, result.tokens, "{name}");
            let read = (sim.runtime.counter("gm_read") - read) as f64 / 3.0;
            eprintln!("{name}, {cores} cores: {read} bytes a row ({:.3} reads), {launches} launches", read / row);
            // Indices, parameters and what slices say of themselves come to less than this.
            let other = 64.0 * 1024.0 * f64::from(u8::from(launches > 1)) / 4.0 + 1024.0;
            assert!(
                least <= read && read <= most + other,
                "{name}, {cores} cores: {read} bytes, not {least} to {most}"
            );
            assert_eq!(device.launches() - launched, launches, "{name}, {cores} cores");
            assert_eq!(sim.runtime.counter("scalar_written"), 0, "results leave by moves alone");
        }
    }
}

/// A step captured once gives what each replay's logits ask for.
#[test]
fn a_captured_step_replays() {
    use samedraw::device::{DeviceBuffer, Stream};
    let sim = Sim::take();
    let device = open(&sim, 48);
    let mut first = vec![0.0f32; 9000];
    first[8500] = 50.0;
    let params = [samedraw::SamplingParams { seq_seed: Some(3), ..Default::default() }];
    let case = Case::f32(&[&first], &params).with_tokens_alone();
    let mut run = HostRun::new(&device, &case.host()).expect("a step");
    let stream = Stream::new(&device).expect("a stream");
    let logits = DeviceBuffer::from_slice(&device, &stream, &first).expect("room");
    let tokens = DeviceBuffer::from_slice(&device, &stream, &[-7i64]).expect("room");
    let (sampler, step, _) = run.parts();
    let mut step = *step;
    step.logits.ptr = logits.ptr();
    step.outputs.tokens = Some(samedraw::pipeline::Index::i64(tokens.ptr()));
    // SAFETY: everything lives until the stream has ended.
    let captured =
        unsafe { sampler.capture(stream.raw(), &step, samedraw::pipeline::Variant::Default) }.expect("a graph");
    for place in [8500usize, 17, 4095] {
        let mut row = vec![0.0f32; 9000];
        row[place] = 50.0;
        // SAFETY: as above; the copy ends before the replay begins, on one stream.
        unsafe {
            device.copy_to_device(stream.raw(), logits.ptr(), row.as_ptr().cast(), 4 * row.len()).expect("a copy");
            captured.replay(stream.raw()).expect("a replay");
        }
        let mut token = [0i64];
        tokens.read(&stream, &mut token).expect("a token");
        assert_eq!(token, [place as i64]);
    }
}

#[cfg(feature = "step-file")]
mod vectors {
    use super::*;
    use samedraw::Error;
    use samedraw::step_file::{ResultDocument, StepFile};

    /// Every vector over at most `most` tokens, on each number of cores, to the last bit.
    fn vectors(cores: &[u32], most: usize) {
        let sim = Sim::take();
        let devices: Vec<Arc<dyn Device>> = cores.iter().map(|&cores| open(&sim, cores) as Arc<dyn Device>).collect();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
        let entries = std::fs::read_dir(folder).expect("tests/data").map(|entry| entry.expect("an entry").path());
        let mut files: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|e| e == "safetensors")).collect();
        files.sort();
        let only = std::env::var("SAMEDRAW_VECTOR").ok();
        let (mut ran, mut wrong) = (0, Vec::new());
        for path in files {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            if only.as_ref().is_some_and(|only| !name.contains(only)) {
                continue;
            }
            let step = StepFile::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            if step.logits.vocab > most {
                continue;
            }
            let expected = ResultDocument::read(path.with_extension("expected.json")).expect(&name);
            for (device, cores) in devices.iter().zip(cores) {
                let started = std::time::Instant::now();
                match step.run(device, None) {
                    Ok(got) => {
                        let differences = got.differences(&expected);
                        wrong.extend(differences.iter().take(5).map(|line| format!("{name}, {cores} cores: {line}")));
                        ran += 1;
                    }
                    Err(Error::ForceTopK { requested, limit, .. }) => assert!(requested > limit, "{name}"),
                    Err(error) => wrong.push(format!("{name}, {cores} cores: {error}")),
                }
                eprintln!("{name}, {cores} cores: {} ms", started.elapsed().as_millis());
            }
        }
        assert!(only.is_some() || ran >= 35 * cores.len(), "only {ran} vectors ran");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_vector_up_to_32003_tokens_gives_its_expected_result() {
        vectors(&cores(&[3]), from_env("SAMEDRAW_VOCAB", 32_003) as usize);
    }
}
