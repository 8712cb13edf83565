//! Draws at the very edges: where the integer interval of a token is known, the smallest and the largest bits inside it
//! give the token, and one beyond gives its neighbour.

mod common;

use common::intervals::{LAST, intervals, smallest};
use common::oracle::product;
use common::row::{Row, draft_mass};
use common::{Case, Rng, devices};
use samedraw::SamplingParams;
use samedraw::params::FilterOrder;
use samedraw::pipeline::VerifyMode;

/// Bits at both edges of every token's interval and one beyond, with the token each must give.
fn edges(weighted: &[(usize, u64)]) -> Vec<(u64, i64)> {
    let intervals = intervals(weighted);
    let mut points = Vec::new();
    for (place, &(id, first, last)) in intervals.iter().enumerate() {
        points.extend([(first, id), (last, id)]);
        points.extend((place > 0).then(|| (first - 1, intervals[place - 1].0)));
        points.extend(intervals.get(place + 1).map(|next| (last + 1, next.0)));
    }
    points
}

/// Distributions: plain, tied, tiny tails, masses of 0, filtered in every way, many columns.
fn distributions() -> Vec<(Vec<f32>, SamplingParams, usize)> {
    let p = SamplingParams { seq_seed: Some(1), ..Default::default() };
    let probabilities = [0.5f32, 0.25, 0.15, 0.06, 0.04].map(f32::ln).to_vec();
    let mut rng = Rng::new(7);
    let wide: Vec<f32> = (0..700).map(|_| 4.0 * rng.normal()).collect();
    let falling: Vec<f32> = (0..90).map(|v| -0.4 * v as f32).collect();
    let tail: Vec<f32> = std::iter::once(18.0).chain(std::iter::repeat_n(0.0, 400)).collect();
    vec![
        (probabilities.clone(), p.clone(), 0),
        (probabilities.clone(), SamplingParams { top_p: 0.8, ..p.clone() }, 0),
        (probabilities.clone(), SamplingParams { top_k: 2, ..p.clone() }, 0),
        (probabilities, SamplingParams { top_k: 3, top_p: 0.6, filter_order: FilterOrder::TopKFirst, ..p.clone() }, 0),
        (vec![f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0, 0.0, f32::NAN], p.clone(), 0),
        (vec![f32::INFINITY, 3.0, f32::INFINITY, f32::INFINITY], p.clone(), 0),
        (vec![0.0; 33], SamplingParams { top_p: 0.5, ..p.clone() }, 0),
        (wide.clone(), p.clone(), 0),
        (wide.clone(), SamplingParams { min_p: 0.01, temperature: 1.7, ..p.clone() }, 0),
        (wide, p.clone(), 37),
        (falling, SamplingParams { temperature: 0.9, ..p.clone() }, 0),
        (tail, p.clone(), 0),
        (vec![-0.0, 0.0, -3.0, 1e-40], SamplingParams { temperature: 0.0, ..p.clone() }, 0),
        // A flat row of 2^14 tokens weighs more than 2^53: then one draw's steps are wider than a unit of mass.
        (vec![1.5; 1 << 14], p, 0),
    ]
}

fn row_of(logits: &[f32], params: &SamplingParams, force_topk: usize) -> Row {
    let columns = if force_topk == 0 { logits.len() } else { force_topk };
    Row::new(logits, |_| true, params, columns)
}

#[test]
fn fresh_draws_at_the_edges_of_every_kept_token() {
    for device in devices() {
        for (number, (logits, params, force_topk)) in distributions().into_iter().enumerate() {
            let mut points = edges(&row_of(&logits, &params, force_topk).kept());
            let step = points.len().div_ceil(4000);
            points = points.into_iter().step_by(step).collect();
            let rows = points.len();
            let case = Case {
                bits: Some(points.iter().flat_map(|&(bits, _)| [bits, LAST, LAST]).collect()),
                force_topk,
                ..Case::repeated(&logits, rows, &params, |_| 1)
            };
            let got = case.run(&device, "edges").tokens;
            for (&(bits, want), got) in points.iter().zip(got) {
                assert_eq!(got, want, "distribution {number}, bits {bits}");
            }
        }
    }
}

/// A target row and a draft row over the same tokens, for the edges of verification.
fn pairs() -> Vec<(Vec<f32>, Vec<f32>, SamplingParams)> {
    let ln = |p: &[f32]| p.iter().map(|p| p.ln()).collect::<Vec<f32>>();
    let p = SamplingParams { seq_seed: Some(1), ..Default::default() };
    let mut rng = Rng::new(11);
    let target: Vec<f32> = (0..60).map(|_| 2.0 * rng.normal()).collect();
    let scores: Vec<f32> = target.iter().map(|x| x + rng.normal()).collect();
    let sum = scores.iter().map(|x| x.exp()).sum::<f32>().ln();
    let draft: Vec<f32> = scores.iter().map(|x| x - sum).collect();
    vec![
        (ln(&[0.5, 0.2, 0.3]), ln(&[0.2, 0.6, 0.2]), p.clone()),
        (ln(&[0.1, 0.9]), ln(&[0.9, 0.1]), p.clone()),
        (ln(&[0.25; 4]), ln(&[0.25; 4]), p.clone()),
        (ln(&[0.6, 0.4, 0.0]), ln(&[0.3, 0.0, 0.7]), p.clone()),
        (target.clone(), draft.clone(), p.clone()),
        (target, draft, SamplingParams { top_k: 20, top_p: 0.95, ..p }),
    ]
}

/// Runs one verified row (and its request's last) per entry: draft token, bits of case 1 and 2.
fn verified(
    device: &std::sync::Arc<dyn samedraw::Device>,
    (target, draft, params): &(Vec<f32>, Vec<f32>, SamplingParams),
    mode: VerifyMode,
    entries: &[(i64, u64, u64)],
) -> Vec<(i64, i32)> {
    let requests = entries.len();
    let repeated = Case::repeated(target, 2 * requests, params, |_| 1);
    let by_rejection = mode == VerifyMode::Rejection;
    let case = Case {
        positions: Some(vec![0; requests]),
        bits: Some(entries.iter().flat_map(|&(_, accept, residual)| [0, accept, residual, 0, 0, 0]).collect()),
        verify: Some(common::Drafted {
            mode: Some(mode),
            first_rows: (0..=requests as i32).map(|r| 2 * r).collect(),
            row_to_request: (0..2 * requests as i32).map(|row| row / 2).collect(),
            position_stride: 1,
            ids: entries.iter().flat_map(|&(d, ..)| [d, -1]).collect(),
            logprobs: if by_rejection { draft.clone() } else { Vec::new() },
            columns: Vec::new(),
            width: if by_rejection { draft.len() } else { 0 },
            rows: if by_rejection { vec![0; 2 * requests] } else { Vec::new() },
        }),
        ..repeated
    };
    let got = case.run(device, "verified edges");
    (0..requests).map(|request| (got.tokens[2 * request], got.accepted[request])).collect()
}

/// Mass of each token of the draft in units of the target's total.
fn scaled(target: &Row, draft: &[f32], mode: VerifyMode, d: usize, id: usize) -> u64 {
    match mode {
        VerifyMode::OneHot => {
            if id == d {
                target.total
            } else {
                0
            }
        }
        _ => product(draft_mass(draft[id]), target.total, 40),
    }
}

#[test]
fn accept_tests_at_their_boundary() {
    for device in devices() {
        for (number, pair) in pairs().iter().enumerate() {
            let row = row_of(&pair.0, &pair.2, 0);
            for mode in [VerifyMode::Rejection, VerifyMode::OneHot] {
                let (mut entries, mut accepts) = (Vec::new(), Vec::new());
                for d in 0..pair.0.len() {
                    let (own, q) = (row.mass(d as i64), scaled(&row, &pair.1, mode, d, d));
                    // floor(bits * q / 2^53) < own holds below the first bits that reach `own`.
                    let end = if own == 0 {
                        0
                    } else if q <= own {
                        LAST + 1
                    } else {
                        smallest(own, q)
                    };
                    let inside = [0, end.wrapping_sub(1)].into_iter().filter(|&bits| bits < end);
                    let beyond = [end, LAST].into_iter().filter(|&bits| bits >= end && bits <= LAST);
                    for (bits, accept) in inside.map(|b| (b, true)).chain(beyond.map(|b| (b, false))) {
                        entries.push((d as i64, bits, 0));
                        accepts.push(accept);
                    }
                }
                let got = verified(&device, pair, mode, &entries);
                for ((entry, accept), (token, accepted)) in entries.iter().zip(accepts).zip(got) {
                    assert_eq!(accepted == 1, accept, "pair {number}, {mode:?}, draft {}, bits {}", entry.0, entry.1);
                    assert!(!accept || token == entry.0);
                }
            }
        }
    }
}

#[test]
fn residual_draws_at_the_edges_of_every_token() {
    for device in devices() {
        let mut drawn = 0;
        for (number, pair) in pairs().iter().enumerate() {
            let row = row_of(&pair.0, &pair.2, 0);
            for mode in [VerifyMode::Rejection, VerifyMode::OneHot] {
                let (mut entries, mut wants) = (Vec::new(), Vec::new());
                for d in 0..pair.0.len() {
                    let (own, q) = (row.mass(d as i64), scaled(&row, &pair.1, mode, d, d));
                    if product(LAST, q, 53) < own {
                        continue; // The largest bits accept it too.
                    }
                    let residual: Vec<(usize, u64)> = row
                        .kept()
                        .into_iter()
                        .map(|(id, mass)| (id, mass.saturating_sub(scaled(&row, &pair.1, mode, d, id))))
                        .collect();
                    let whole = residual.iter().all(|r| r.1 == 0);
                    for (bits, want) in edges(&if whole { row.kept() } else { residual }) {
                        entries.push((d as i64, LAST, bits));
                        wants.push(want);
                    }
                }
                drawn += entries.len();
                if entries.is_empty() {
                    continue;
                }
                for ((entry, want), got) in entries.iter().zip(wants).zip(verified(&device, pair, mode, &entries)) {
                    assert_eq!(got, (want, 0), "pair {number}, {mode:?}, draft {}, bits {}", entry.0, entry.2);
                }
            }
        }
        assert!(drawn > 1000);
    }
}

#[test]
fn worked_intervals() {
    // Two tokens of equal mass: the border lies at 2^52. Four tokens, one masked: thirds of 3 * 2^40.
    let p = SamplingParams { seq_seed: Some(1), ..Default::default() };
    let cases: [(&[f32], u64, i64); 8] = [
        (&[0.0, 0.0], (1 << 52) - 1, 0),
        (&[0.0, 0.0], 1 << 52, 1),
        (&[0.0, f32::NEG_INFINITY, 0.0, 0.0], 3_002_399_751_580_330, 0),
        (&[0.0, f32::NEG_INFINITY, 0.0, 0.0], 3_002_399_751_580_331, 2),
        (&[0.0, f32::NEG_INFINITY, 0.0, 0.0], 6_004_799_503_160_661, 2),
        (&[0.0, f32::NEG_INFINITY, 0.0, 0.0], 6_004_799_503_160_662, 3),
        (&[f32::NEG_INFINITY, 7.0], 0, 1),
        (&[7.0, f32::NEG_INFINITY], LAST, 0),
    ];
    for device in devices() {
        for (logits, bits, want) in cases {
            let case = Case { bits: Some(vec![bits, 0, 0]), ..Case::f32(&[logits], std::slice::from_ref(&p)) };
            assert_eq!(case.run(&device, "worked").tokens, [want], "{logits:?}, bits {bits}");
        }
    }
}

#[test]
fn top_p_at_the_edges_of_a_flat_nucleus() {
    // Of 3001 equal tokens the second stays while V * q >= 2^32, from q = 1431179 on. That number is odd, so a top_p
    // half a unit below it rounds down to even and keeps one token.
    let (vocab, unit) = (3001, 2f64.powi(-32));
    for device in devices() {
        for (q, kept) in [(1_431_178.0, 1), (1_431_178.5, 1), (1_431_179.0, 2), (1_431_179.5, 2), (2_862_358.0, 3)] {
            let top_p = (q * unit) as f32;
            assert_eq!(f64::from(top_p), q * unit, "exact in f32");
            let params = SamplingParams { top_p, seq_seed: Some(1), ..Default::default() };
            let case = Case::f32(&[&vec![0.25; vocab]], &[params]);
            assert_eq!(case.run(&device, "a flat nucleus").kept_counts, [kept], "q = {q}");
        }
    }
}
