//! Requests whose drafts hold about half of their row's mass, so that half of them are rejected and every sum a draw is
//! found by shows what the draft cedes; and drafts that leave nothing.

use super::rng::Rng;
use super::{Case, Drafted};
use samedraw::SamplingParams;
use samedraw::pipeline::VerifyMode;

/// Whole rows, a small top-k or a top-p, by the seed; f32.
pub fn halves(seed: u64) -> Case {
    let rng = &mut Rng::new(seed);
    let vocab = rng.within(300, 5000);
    let mut lengths = vec![7, 1, 2];
    lengths.extend((0..12).map(|_| rng.within(2, 7)));
    halves_of(seed, rng, vocab, lengths)
}

/// The same of many requests, with rows of a few hundred tokens.
pub fn many_halves(seed: u64, requests: usize) -> Case {
    let rng = &mut Rng::new(seed);
    let lengths = (0..requests).map(|_| rng.within(2, 4)).collect();
    halves_of(seed, rng, 300, lengths)
}

fn halves_of(seed: u64, rng: &mut Rng, vocab: usize, lengths: Vec<usize>) -> Case {
    let mut first_rows = vec![0];
    let mut row_to_request = Vec::new();
    for (request, &length) in (0i32..).zip(&lengths) {
        row_to_request.extend(std::iter::repeat_n(request, length));
        first_rows.push(row_to_request.len() as i32);
    }
    let rows = row_to_request.len();
    let ids: Vec<i64> = (0..rows).map(|_| rng.below(vocab) as i64).collect();
    let few = rng.within(20, 60);
    let kind = seed % 3;
    let values: Vec<Vec<f32>> = ids
        .iter()
        .map(|&id| {
            let mut row: Vec<f32> = (0..vocab).map(|_| 0.3 * rng.normal()).collect();
            let mut others = vocab;
            if kind > 0 {
                // What the filters keep, far above the rest.
                others = few;
                (0..few).for_each(|_| row[rng.below(vocab)] = 20.0 + 0.3 * rng.normal());
            }
            row[id as usize] = (others as f32).ln() + if kind > 0 { 20.0 } else { 0.0 };
            if rng.one_in(8) {
                row[rng.below(vocab)] = f32::INFINITY;
            }
            row
        })
        .collect();
    let params: Vec<SamplingParams> = lengths
        .iter()
        .map(|_| {
            let plain = SamplingParams { seq_seed: Some(rng.u64()), ..Default::default() };
            match kind {
                0 => plain,
                1 => SamplingParams { top_k: 40, top_p: rng.pick(&[1.0, 0.9]), ..plain },
                _ => SamplingParams { top_p: 0.95, ..plain },
            }
        })
        .collect();
    let mode = if (seed / 3).is_multiple_of(2) { VerifyMode::Rejection } else { VerifyMode::OneHot };
    let mut drafted = Drafted {
        mode: Some(mode),
        first_rows,
        row_to_request: row_to_request.clone(),
        position_stride: 1,
        ids: ids.clone(),
        ..Drafted::default()
    };
    if mode == VerifyMode::Rejection {
        drafted.width = vocab;
        for row in &values {
            // Logprob 0 of every token: nothing is left. Else a distribution that is the draft's token and little else.
            let left = rng.one_in(3).then_some(0.0);
            let most = row.iter().copied().fold(f32::MIN, f32::max);
            drafted.logprobs.extend(row.iter().map(|x| left.unwrap_or(2.0 * (x - most))));
        }
    }
    let slices: Vec<&[f32]> = values.iter().map(|row| &row[..]).collect();
    let mut case = Case {
        row_to_slot: Some(row_to_request),
        params,
        positions: Some(lengths.iter().map(|_| rng.below(1000) as i64).collect()),
        verify: Some(drafted),
        ..Case::f32(&slices, &[SamplingParams::default()])
    };
    case.served();
    case
}
