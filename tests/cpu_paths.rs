//! The scalar code and every set of lanes give the same bits: random rows of odd sizes, starts that no vector is
//! aligned to, all types of logits, masks, ties, infinities and NaN, every output.
//!
//! `SAMEDRAW_ROWS` sets the number of rows, `SAMEDRAW_SEED` where they start, `SAMEDRAW_LONGEST` how many values most rows
//! may have. `SAMEDRAW_REQUIRE_PATH=avx512` makes it a failure that the processor does not have that path.

#![cfg(feature = "cpu")]

mod common;

use common::{Rng, assert_same, from_env};
use samedraw::SamplingParams;
use samedraw::device::Device;
use samedraw::device::cpu::{CpuDevice, CpuPath};
use samedraw::params::FilterOrder;
use samedraw::pipeline::{DType, HostMask, HostResult, HostRun, HostStep};
use std::sync::Arc;

const ROWS: u64 = 3000;

#[test]
fn every_path_gives_the_scalar_codes_bits() {
    let (rows, first) = (from_env("SAMEDRAW_ROWS", ROWS), from_env("SAMEDRAW_SEED", 1));
    let paths: Vec<CpuPath> = CpuPath::ALL.into_iter().filter(|path| path.is_available()).collect();
    if let Ok(wanted) = std::env::var("SAMEDRAW_REQUIRE_PATH") {
        let found = paths.iter().any(|path| format!("{path:?}").eq_ignore_ascii_case(&wanted));
        assert!(found, "SAMEDRAW_REQUIRE_PATH={wanted}, this processor has {paths:?}");
    }
    eprintln!("paths: {paths:?}, {rows} rows from seed {first}");
    let open = |&path| Arc::new(CpuDevice::with_path(2, path).expect("available")) as Arc<dyn Device>;
    let devices: Vec<Arc<dyn Device>> = paths.iter().map(open).collect();
    let (mut done, mut seed) = (0, first);
    while done < rows {
        let case = Case::random(seed);
        let want = case.run(&devices[0]);
        for (path, device) in paths.iter().zip(&devices).skip(1) {
            assert_same(&want, &case.run(device), || format!("seed {seed} on {path:?}: {case:?}"));
        }
        done += case.rows as u64;
        seed += 1;
    }
}

#[test]
fn a_row_split_over_threads_gives_the_same() {
    let one = Arc::new(CpuDevice::with_path(1, CpuPath::Scalar).expect("available")) as Arc<dyn Device>;
    let devices = [2, 3, 8].map(|threads| Arc::new(CpuDevice::with_threads(threads)) as Arc<dyn Device>);
    for seed in 0..10 {
        // One row long enough that three threads pay, and eight.
        let case = Case::sized(&mut Rng::new(seed), 300_001 + 4096 * seed as usize % 9001, 1);
        let want = case.run(&one);
        for device in &devices {
            assert_same(&want, &case.run(device), || format!("seed {seed} on {}: {case:?}", device.info().name));
        }
    }
}

#[derive(Debug)]
struct Case {
    vocab: usize,
    stride: usize,
    rows: usize,
    dtype: DType,
    offset: usize,
    force_topk: usize,
    mask: Vec<i32>,
    params: Vec<SamplingParams>,
    bytes: Bytes,
    /// Golden tokens in place of a draw: their logprobs, ranks and sums are of tokens a draw would not give.
    golden: Option<Vec<i64>>,
}

/// Left out of a failure's message.
struct Bytes(Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Case {
    fn random(seed: u64) -> Case {
        let rng = &mut Rng::new(seed);
        let longest = from_env("SAMEDRAW_LONGEST", 4000) as f64;
        let largest = if rng.one_in(200) { 15.0 * longest } else { longest };
        let vocab = (largest.powf(rng.unit()) as usize).max(1);
        let rows = rng.within(1, (20_000 / vocab).clamp(1, 12));
        Case::sized(rng, vocab, rows)
    }

    fn sized(rng: &mut Rng, vocab: usize, rows: usize) -> Case {
        let dtype = rng.pick(&[DType::F32, DType::F16, DType::BF16]);
        let stride = vocab + rng.pick(&[0, 0, 1, 5, 17]);
        let offset = dtype.bytes() * rng.below(9);
        let mut bytes = vec![0xFF; offset];
        for _ in 0..rows {
            let kind = rng.below(14);
            let row: Vec<f32> = (0..stride).map(|v| value(rng, kind, v)).collect();
            for x in row {
                match dtype {
                    DType::F32 => bytes.extend(x.to_le_bytes()),
                    DType::F16 => bytes.extend(half::f16::from_f32(x).to_bits().to_le_bytes()),
                    DType::BF16 => bytes.extend(half::bf16::from_f32(x).to_bits().to_le_bytes()),
                }
            }
        }
        let word = |rng: &mut Rng| match rng.below(4) {
            0 => 0,
            1 => -1,
            2 => rng.u64() as i32,
            _ => (rng.u64() & rng.u64() & rng.u64()) as i32,
        };
        let masked = rng.one_in(3);
        let force_topk = if rng.one_in(3) { rng.within(1, vocab) } else { 0 };
        Case {
            vocab,
            stride,
            rows,
            dtype,
            offset,
            force_topk,
            mask: (0..if masked { rows * vocab.div_ceil(32) } else { 0 }).map(|_| word(rng)).collect(),
            params: (0..rows).map(|_| params(rng, vocab)).collect(),
            bytes: Bytes(bytes),
            golden: rng.one_in(4).then(|| (0..rows).map(|_| rng.below(vocab) as i64).collect()),
        }
    }

    fn run(&self, device: &Arc<dyn Device>) -> HostResult {
        let positions: Vec<i64> = (0..self.rows as i64).collect();
        let mask = HostMask { words: &self.mask, stride: self.vocab.div_ceil(32), index: None };
        let host = HostStep {
            logits: &self.bytes.0,
            logits_offset: self.offset,
            dtype: self.dtype,
            vocab: self.vocab,
            stride: self.stride,
            logits_rows: self.rows,
            rows: self.rows,
            force_topk: self.force_topk,
            mask: (!self.mask.is_empty()).then_some(mask),
            params: &self.params,
            positions: Some(&positions),
            golden: self.golden.as_deref(),
            top_logprobs: self.vocab.min(20),
            dense: true,
            raw_logprobs: true,
            sum_smaller_probs: true,
            kept_ids: self.vocab,
            columns: self.force_topk != 0 && self.vocab.is_multiple_of(2),
            ..HostStep::default()
        };
        HostRun::new(device, &host).and_then(|mut run| run.run()).expect("a step")
    }
}

fn value(rng: &mut Rng, kind: usize, v: usize) -> f32 {
    match kind {
        0..=3 => 3.0 * rng.normal(),
        4 => 0.1 * rng.normal(),
        5 => 60.0 * rng.normal(),
        6 => rng.pick(&[-1.0, -0.0, 0.0, 0.5]),
        7 => 1.5,
        8 => f32::from_bits(rng.u64() as u32),
        9 => 3.0 * if rng.one_in(3) { f32::NEG_INFINITY } else { rng.normal() },
        10 => v as f32 * if v.is_multiple_of(2) { -0.01 } else { -0.02 },
        11 => rng.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -3.5]),
        12 => f32::from_bits(0x3F80_0000 + rng.below(16) as u32),
        _ => 20.0 / (1.0 + v as f32) + 0.01 * rng.normal(),
    }
}

fn params(rng: &mut Rng, vocab: usize) -> SamplingParams {
    let (any, some) = (rng.unit() as f32, 1 + rng.below(vocab) as i64);
    SamplingParams {
        temperature: rng.pick(&[0.0, 1e-5, 0.3, 1.0, 1.0, 1.0, 3.0, 1e30]),
        top_p: rng.pick(&[1.0, 1.0, 0.9, 0.5, 0.999_999, 1e-9, any.max(1e-7)]),
        top_k: rng.pick(&[-1, -1, 1, 2, 50, some]),
        min_p: rng.pick(&[0.0, 0.0, 0.0, 1.0, 0.05, 1e-12, any]),
        filter_order: rng.pick(&[FilterOrder::Joint, FilterOrder::TopKFirst]),
        seq_seed: Some(rng.u64()),
        ..SamplingParams::default()
    }
}
