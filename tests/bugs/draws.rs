//! The edges of a draw, seeds, reproducibility.

use super::common::row::{mass_of, random53};
use super::common::{Case, oracle};
use super::{Fault, LAST, fault, seeded};
use samedraw::pipeline::{HostRun, Variant};
use samedraw::{Device, SamplingParams};
use std::sync::Arc;

const INF: f32 = f32::INFINITY;

/// The token that `bits` draws from `logits` with no filter.
fn drawn(device: &Arc<dyn Device>, logits: &[f32], bits: u64) -> i64 {
    let case = Case::f32(&[logits], &[seeded(1)]).with_tokens_alone();
    Case { bits: Some(vec![bits; 3]), ..case }.run(device, "an injected draw").tokens[0]
}

/// Tokens of a flat row of 1024 for each (seed, position): the top ten of the draw's bits.
fn flat(device: &Arc<dyn Device>, draws: &[(u64, i64)]) -> Vec<i64> {
    let case = Case::repeated(&[0.0; 1024], draws.len(), &SamplingParams::default(), |i| draws[i].0);
    Case { positions: Some(draws.iter().map(|d| d.1).collect()), ..case }.run(device, "flat rows").tokens
}

fn flat_token(seed: u64, position: i64) -> i64 {
    (random53(seed, position, 0) >> 43) as i64
}

pub const FAULTS: &[Fault] = &[
    fault("a draw of 0 lands on a token of weight 0", "pytorch#48841", |device| {
        assert_eq!(drawn(device, &[-INF, -INF, 0., 0.], 0), 2);
        let masked = Case { mask: Some(vec![0b1100]), bits: Some(vec![0; 3]), ..Case::f32(&[&[0.; 4]], &[seeded(1)]) };
        assert_eq!(masked.run(device, "masked").tokens, [2]);
    }),
    fault("the largest draw is 1.0 and forces an impossible token", "sglang#25106", |device| {
        assert_eq!(drawn(device, &[0., -INF, -INF], LAST), 0);
        assert_eq!(drawn(device, &[0., 0., -INF, -INF], LAST), 1);
        assert_eq!(u64::MAX >> 11, LAST);
        assert!((LAST as f64 / (1u64 << 53) as f64) < 1.0);
    }),
    fault("running sums of floats are not monotone", "flashinfer#225", |device| {
        let bits = (0.999 * (1u64 << 53) as f64) as u64;
        assert_eq!(drawn(device, &vec![0.0; 151_936], bits), 151_784);
    }),
    fault("the tail of a long row is never drawn", "flashinfer#2438", |device| {
        let mut logits = vec![0.0f32; 131_072];
        logits[0] = 18.0;
        let each = mass_of(-18.0 * std::f32::consts::LOG2_E);
        let total = (1u64 << 40) + 131_071 * each;
        for step in 0..12 {
            let bits = LAST - step * (1 << 40);
            let target = oracle::product(bits, total, 53);
            assert_eq!(drawn(device, &logits, bits), 1 + ((target - (1 << 40)) / each) as i64);
        }
    }),
    fault("unlikely tokens are drawn too often", "vllm#51367", |device| {
        // 1023 tokens that weigh 0.0019922 together: 199 of 100,000 draws, one deviation is 14.
        let mut logits = vec![0.0f32; 1024];
        logits[0] = 13.147;
        let got = Case::repeated(&logits, 100_000, &SamplingParams::default(), |i| i as u64).run(device, "tail");
        let tail = got.tokens.iter().filter(|&&token| token != 0).count();
        assert!((140..=260).contains(&tail), "{tail}");
    }),
    fault("an unseeded neighbour takes a seeded request's generator", "vllm#51226", |device| {
        let want: Vec<i64> = (0..16).map(|at| flat_token(42, at)).collect();
        let own: Vec<(u64, i64)> = (0..16).map(|at| (42, at)).collect();
        assert_eq!(flat(device, &own), want);
        for place in [0usize, 7] {
            for mate in [None, Some(5)] {
                let tokens: Vec<i64> = (0..16i64)
                    .map(|at| {
                        let mut params = vec![SamplingParams { seq_seed: mate, ..Default::default() }; 8];
                        params[place].seq_seed = Some(42);
                        let case = Case { params, ..Case::repeated(&[0.0; 1024], 8, &seeded(0), |_| 0) };
                        Case { positions: Some(vec![at; 8]), ..case }.run(device, "mates").tokens[place]
                    })
                    .collect();
                assert_eq!(tokens, want, "row {place}, mates seeded {mate:?}");
            }
        }
    }),
    fault("only the first of an array of seeds is used", "flashinfer#4861", |device| {
        let one = flat(device, &[(1111, 0), (2222, 0), (3333, 0), (4444, 0)]);
        assert_eq!(one, [1111, 2222, 3333, 4444].map(|seed| flat_token(seed, 0)));
        assert!(one[1..].iter().all(|&token| token != one[0]));
        assert_eq!(flat(device, &[(1111, 0); 4]), [one[0]; 4]);
        assert_eq!(flat(device, &[(3333, 0), (1111, 0), (4444, 0), (2222, 0)]), [one[2], one[0], one[3], one[1]]);
    }),
    fault("every replay of a graph repeats the captured random numbers", "flashinfer#2132", |device| {
        let case = Case { positions: Some(vec![0]), ..Case::f32(&[&[0.0; 1024]], &[seeded(9)]) };
        let mut run = HostRun::new(device, &case.host()).expect("a step");
        let (sampler, step, stream) = run.parts();
        let step = *step;
        // SAFETY: the step's pointers belong to `run`; each position outlives its copy, which `read` waits for.
        unsafe {
            let graph = sampler.capture(stream, &step, Variant::Default).expect("a graph");
            for at in 0..3i64 {
                device.copy_to_device(stream, step.positions, (&raw const at).cast(), 8).expect("a copy");
                graph.replay(stream).expect("a replay");
                assert_eq!(run.read().expect("a result").tokens, [flat_token(9, at)]);
            }
        }
    }),
    fault("seeds are indexed by slot where the array goes by batch", "TensorRT-LLM#1742", |device| {
        let params: Vec<_> = [0, 31, 0, 0, 0, 30].into_iter().map(seeded).collect();
        let case = Case::repeated(&[0.0; 1024], 2, &seeded(0), |_| 0);
        let case = Case { params, row_to_slot: Some(vec![5, 1]), ..case };
        let mut run = HostRun::new(device, &case.host()).expect("a step");
        assert_eq!(run.run().expect("a result").tokens, [flat_token(30, 0), flat_token(31, 0)]);
        // A later request in slot 5; seed 0 is a seed like any other.
        let (sampler, _, stream) = run.parts();
        // SAFETY: the stream is the run's own.
        unsafe { sampler.table().set(stream, 5, &seeded(0)) }.expect("a slot");
        assert_eq!(run.run().expect("a result").tokens, [flat_token(0, 0), flat_token(31, 0)]);
    }),
    fault("neighbouring seeds draw neighbouring numbers", "imp#1143", |device| {
        let draws: Vec<(u64, i64)> = (0..10_000).map(|seed| (seed, 0)).collect();
        let u: Vec<f64> = flat(device, &draws).into_iter().map(|token| (token as f64 + 0.5) / 1024.0).collect();
        let mean = u.iter().sum::<f64>() / 1e4;
        let spread: f64 = u.iter().map(|x| (x - mean).powi(2)).sum();
        let together: f64 = u.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
        assert!((together / spread).abs() < 0.04, "lag-1 correlation {}", together / spread);
        let mut bins = [0f64; 16];
        u.iter().for_each(|x| bins[(x * 16.0) as usize] += 1.0);
        let chi2: f64 = bins.iter().map(|n| (n - 625.0).powi(2) / 625.0).sum();
        assert!(chi2 < 37.7, "chi-square {chi2}, 15 degrees of freedom, level 0.001");
        // A hash of seed + 3 * position would give these two the same number.
        let pair = flat(device, &[(42, 1), (45, 0)]);
        assert_ne!(pair[0], pair[1]);
    }),
    fault("the first of three identical requests differs", "lmdeploy#2459", |device| {
        let params = SamplingParams { top_k: 40, ..seeded(1) };
        let case = Case { positions: Some(vec![0]), ..Case::f32(&[&[0.0; 1024]], &[params]) };
        // Forty equal tokens are kept, the first by id.
        let want = oracle::product(random53(1, 0, 0), 40, 53) as i64;
        let mut run = HostRun::new(device, &case.host()).expect("a step");
        for _ in 0..3 {
            assert_eq!(run.run().expect("a result").tokens, [want]);
        }
        flat(device, &[(1, 1); 9]);
        assert_eq!(run.run().expect("a result").tokens, [want]);
    }),
];
