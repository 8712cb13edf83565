//! Sizes, strides, alignment, padded vocabularies, rows that index something.

use super::common::{Case, Rng};
use super::{Fault, fault, greedy, near, seeded};
use half::{bf16, f16};
use samedraw::SamplingParams;
use samedraw::pipeline::DType;

/// `rows` rows of zeros with a 4 at `spike(row)`, `stride` apart, in any type, starting `shift` elements in.
fn spiked(dtype: DType, rows: usize, vocab: usize, shift: usize, spike: impl Fn(usize) -> usize) -> Case {
    let bytes = dtype.bytes();
    let mut logits = vec![0u8; bytes * (shift + rows * vocab)];
    for row in 0..rows {
        let at = bytes * (shift + row * vocab + spike(row));
        match dtype {
            DType::F32 => logits[at..at + 4].copy_from_slice(&4f32.to_le_bytes()),
            DType::F16 => logits[at..at + 2].copy_from_slice(&f16::from_f32(4.0).to_bits().to_le_bytes()),
            DType::BF16 => logits[at..at + 2].copy_from_slice(&bf16::from_f32(4.0).to_bits().to_le_bytes()),
        }
    }
    Case {
        logits,
        offset: bytes * shift,
        dtype,
        vocab,
        stride: vocab,
        logits_rows: rows,
        rows,
        row_to_slot: Some(vec![0; rows]),
        positions: Some(vec![0; rows]),
        ..Case::f32(&[&[0.0]], &[greedy()]).with_tokens_alone()
    }
}

pub const FAULTS: &[Fault] = &[
    fault("ids beyond the row from a top-k over half a million columns", "pytorch#95455", |device| {
        let mut rng = Rng::new(37);
        let row: Vec<f32> = (0..500_000).map(|_| rng.unit() as f32).collect();
        let mut best: Vec<usize> = (0..row.len()).collect();
        best.sort_by(|&a, &b| row[b].total_cmp(&row[a]).then(a.cmp(&b)));
        best.truncate(20);
        let want: Vec<i32> = best.iter().map(|&id| id as i32).collect();
        let case = Case { force_topk: 20, kept_ids: 20, ..Case::f32(&[&row], &[seeded(1)]) };
        assert_eq!(case.run(device, "half a million").top_ids, want);
    }),
    fault("vector loads assume that rows start on 16 bytes", "tokenspeed#683", |device| {
        for vocab in [32_003, 50_257, 128_257, 151_655] {
            for dtype in [DType::F32, DType::F16, DType::BF16] {
                for shift in 0..4 {
                    let got = spiked(dtype, 3, vocab, shift, |_| vocab - 1).run(device, "unaligned");
                    assert_eq!(got.tokens, [vocab as i64 - 1; 3], "V = {vocab}, {dtype:?}, shifted by {shift}");
                }
            }
        }
    }),
    fault("a launch fails above 1024 columns or 65535 rows", "candle#2361", |device| {
        for vocab in [1024, 1025, 32_000, 262_144] {
            let got = spiked(DType::F32, 1, vocab, 0, |_| vocab / 3).run(device, "one row");
            assert_eq!(got.tokens, [vocab as i64 / 3]);
        }
        let got = spiked(DType::F32, 70_000, 32, 0, |row| row % 32).run(device, "many rows");
        assert!(got.tokens.iter().enumerate().all(|(row, &token)| token == row as i64 % 32));
    }),
    fault("candidates that share a radix bucket overflow its buffer", "sglang#36807", |device| {
        let near_equal: Vec<f32> = (0..131_072u32).map(|i| f32::from_bits(0x3F80_0000 + i)).collect();
        let limit = device.info().platform.max_force_topk().unwrap_or(usize::MAX);
        for n in [2048usize, 4096, 16_384].into_iter().filter(|&n| n <= limit) {
            let rows: [&[f32]; 2] = [&near_equal, &[1.0; 131_072]];
            let case = Case { force_topk: n, top_logprobs: n, kept_ids: n, ..Case::f32(&rows, &[seeded(1)]) };
            let first = case.run(device, "one bucket");
            let descending: Vec<i32> = (0..n as i32).map(|rank| 131_071 - rank).collect();
            assert_eq!(first.top_ids[..n], descending[..]);
            assert!(first.dense_ids[..n].iter().eq(descending.iter().rev()));
            assert!(first.dense_ids[n..].iter().copied().eq(0..n as i32));
            assert!((0..3).all(|_| case.run(device, "again") == first));
        }
    }),
    fault("padding columns enter the nucleus", "lmdeploy#3661", |device| {
        let logits: Vec<u8> = (0..16).flat_map(|v| if v < 10 { 0f32 } else { 50.0 }.to_le_bytes()).collect();
        let tokens = |params: &SamplingParams, force_topk| {
            let case = Case::repeated(&[0.0; 10], 1000, params, |i| i as u64);
            let got = Case { logits: logits.clone(), stride: 16, force_topk, ..case }.run(device, "padded columns");
            (*got.tokens.iter().max().expect("rows"), got.logprobs[0])
        };
        let p = seeded(0);
        for (params, force_topk, last, logprob) in [
            // A token stays while at most half lies before it: six of ten equal ones.
            (SamplingParams { top_p: 0.5, ..p.clone() }, 0, 5, -1.7918),
            (SamplingParams { top_k: 3, ..p.clone() }, 0, 2, -1.0986),
            (p.clone(), 0, 9, 0.1f32.ln()),
            (p.clone(), 4, 3, -1.3863),
        ] {
            let (most, got) = tokens(&params, force_topk);
            assert_eq!(most, last);
            near(got, logprob, 1e-4);
        }
    }),
    fault("a reduction that carries the index gives a wrong one", "vllm-ascend#15118", |device| {
        let mut spikes: Vec<usize> = (0..18).flat_map(|k| [1usize << k, (1 << k) - 1]).collect();
        spikes.push(151_935);
        for _ in 0..3 {
            let got = spiked(DType::F32, spikes.len(), 151_936, 0, |row| spikes[row]).run(device, "spikes");
            assert!(got.tokens.iter().zip(&spikes).all(|(&token, &spike)| token == spike as i64));
        }
        let mut both = vec![0.0; 151_936];
        (both[65_535], both[65_536]) = (3.0, 3.0);
        assert_eq!(Case::f32(&[&both], &[greedy()]).with_tokens_alone().run(device, "two spikes").tokens, [65_535]);
    }),
    fault("padding rows of a graph write over live ones", "vllm#47066", |device| {
        let row: &[f32] = &[0.5, 1.5, -0.5, 0.25];
        let live = Case::f32(&[row, row, row], &[seeded(4)]);
        let want = live.run(device, "live rows");
        let padded = Case {
            row_to_slot: Some(vec![0, 0, 0, -1]),
            positions: Some(vec![0, 1, 2, 0]),
            ..Case::f32(&[row, row, row, &[f32::NAN; 4]], &[seeded(4)])
        };
        let got = padded.run(device, "padded rows");
        assert_eq!((&got.tokens[..3], &got.logprobs[..3]), (&want.tokens[..], &want.logprobs[..]));
        assert_eq!((&got.dense[..12], &got.top_ids[..12]), (&want.dense[..], &want.top_ids[..]));
        assert_eq!((got.tokens[3], got.status[3], got.kept_counts[3]), (-7777, -7777, -7777));
        assert!(got.dense[12..].iter().all(|x| x.is_nan()));
    }),
];
