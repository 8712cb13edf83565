//! Draws follow the distributions they are drawn from: chi-square tests at level 0.001 with fixed seeds, so that a run
//! either always passes or never does.

mod common;

use common::{Case, Drafted, Rng, devices};
use samedraw::pipeline::VerifyMode;
use samedraw::{Device, SamplingParams};
use std::sync::Arc;

/// Chi-square above which a sample with `freedom` degrees of freedom is refused at level 0.001, by Wilson and
/// Hilferty's cube; within 2 % of the tables from 5 degrees on.
fn critical(freedom: usize) -> f64 {
    let (n, z) = (freedom as f64, 3.0902);
    n * (1.0 - 2.0 / (9.0 * n) + z * (2.0 / (9.0 * n)).sqrt()).powi(3)
}

/// Compares counts with probabilities; cells that expect fewer than 8 are taken together.
fn assert_follows(tokens: &[i64], probabilities: &[f64], what: &str) {
    let n = tokens.len() as f64;
    let mut counts = vec![0f64; probabilities.len()];
    for &token in tokens {
        counts[usize::try_from(token).unwrap_or_else(|_| panic!("{what}: token {token}"))] += 1.0;
    }
    let (mut chi2, mut cells, mut rare) = (0.0, 0, (0.0, 0.0));
    for (count, p) in counts.into_iter().zip(probabilities) {
        assert!(*p > 0.0 || count == 0.0, "{what}: an impossible token was drawn");
        if n * p < 8.0 {
            rare = (rare.0 + count, rare.1 + n * p);
        } else {
            chi2 += (count - n * p).powi(2) / (n * p);
            cells += 1;
        }
    }
    if rare.1 >= 8.0 {
        chi2 += (rare.0 - rare.1).powi(2) / rare.1;
        cells += 1;
    }
    let limit = critical(cells - 1);
    assert!(chi2 < limit, "{what}: chi-square {chi2:.1} of {cells} cells, limit {limit:.1}");
}

/// Softmax in f64 of the tokens `kept` says are kept.
fn softmax(logits: &[f32], temperature: f64, kept: impl Fn(usize) -> bool) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::MIN, f32::max);
    let weight = |v: usize| if kept(v) { (f64::from(logits[v] - max) / temperature).exp() } else { 0.0 };
    let weights: Vec<f64> = (0..logits.len()).map(weight).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|w| w / sum).collect()
}

fn normal_row(seed: u64, vocab: usize) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    (0..vocab).map(|_| 1.5 * rng.normal()).collect()
}

#[test]
fn the_limit_is_that_of_the_tables() {
    for (freedom, table) in [(5, 20.515), (10, 29.588), (63, 103.442), (100, 149.449)] {
        let off = (critical(freedom) / table - 1.0f64).abs();
        assert!(off < 0.02, "{freedom}: {}", critical(freedom));
    }
}

#[test]
fn fresh_draws_over_seeds_and_over_positions() {
    let n = 30_000;
    let row = normal_row(1, 64);
    let ranked = {
        let mut ids: Vec<usize> = (0..64).collect();
        ids.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        ids
    };
    let top_ten = |v: usize| ranked[..10].contains(&v);
    let none = SamplingParams::default();
    let cases = [
        (none.clone(), softmax(&row, 1.0, |_| true)),
        (SamplingParams { temperature: 0.6, ..none.clone() }, softmax(&row, f64::from(0.6f32), |_| true)),
        (SamplingParams { temperature: 3.0, ..none.clone() }, softmax(&row, 3.0, |_| true)),
        (SamplingParams { top_k: 10, ..none }, softmax(&row, 1.0, top_ten)),
    ];
    for device in devices() {
        for (number, (params, want)) in cases.iter().enumerate() {
            let seeds = Case::repeated(&row, n, params, |i| 1000 + i as u64);
            assert_follows(&seeds.run(&device, "seeds").tokens, want, &format!("case {number}, seeds"));
            let positions = Case {
                row_to_slot: Some(vec![0; n]),
                params: vec![SamplingParams { seq_seed: Some(77), ..params.clone() }],
                positions: Some((0..n as i64).collect()),
                ..seeds
            };
            assert_follows(&positions.run(&device, "positions").tokens, want, &format!("case {number}, positions"));
        }
    }
}

#[test]
fn neighbouring_draws_are_independent() {
    // Pairs of tokens of a flat row of 8, one position, one row and one seed apart, and target beside draft.
    let n = 40_000;
    for device in devices() {
        let run = |seed: &dyn Fn(usize) -> u64, position: &dyn Fn(usize) -> i64, draft_step| {
            let case = Case::repeated(&[0.0; 8], n, &SamplingParams::default(), seed);
            let positions = Some((0..n).map(position).collect());
            Case { positions, draft_step, ..case }.run(&device, "flat").tokens
        };
        let own = run(&|i| i as u64, &|_| 5, None);
        for (what, other) in [
            ("the next position", run(&|i| i as u64, &|_| 6, None)),
            ("the next row of a request", run(&|i| i as u64, &|_| 5 + 10_000_019, None)),
            ("the next seed", run(&|i| i as u64 + 1, &|_| 5, None)),
            ("the draft's stream", run(&|i| i as u64, &|_| 5, Some(1))),
        ] {
            let pairs: Vec<i64> = own.iter().zip(&other).map(|(a, b)| 8 * a + b).collect();
            assert_follows(&pairs, &[1.0 / 64.0; 64], what);
        }
    }
}

/// `n` requests of one draft each: draft tokens and the tokens of their first rows, with the share accepted.
fn verified(device: &Arc<dyn Device>, case: Case, drafts: Vec<i64>, mut drafted: Drafted) -> (Vec<i64>, f64) {
    let n = drafts.len();
    drafted.first_rows = (0..=n as i32).map(|r| 2 * r).collect();
    drafted.row_to_request = (0..2 * n as i32).map(|row| row / 2).collect();
    drafted.position_stride = 10_000_019;
    drafted.ids = drafts.iter().flat_map(|&d| [d, -1]).collect();
    if !drafted.logprobs.is_empty() {
        drafted.rows = vec![0; 2 * n];
    }
    let case = Case { positions: Some(vec![0; n]), verify: Some(drafted), ..case };
    let got = case.run(device, "verification");
    let firsts = got.tokens.iter().step_by(2).copied().collect();
    (firsts, f64::from(got.accepted.iter().sum::<i32>()) / n as f64)
}

/// `n` tokens of `q`, by the tests' generator.
fn draw_from(q: &[f64], n: usize, seed: u64) -> Vec<i64> {
    let mut rng = Rng::new(seed);
    let one = |mut u: f64| {
        let at = q.iter().position(|&p| {
            u -= p;
            u < 0.0
        });
        at.unwrap_or(q.len() - 1) as i64
    };
    (0..n).map(|_| one(rng.unit())).collect()
}

#[test]
fn verification_returns_the_target_distribution() {
    let n = 30_000;
    let (target, draft) = (normal_row(2, 24), normal_row(3, 24));
    let q = softmax(&draft, 1.0, |_| true);
    let logprobs: Vec<f32> = q.iter().map(|p| p.ln() as f32).collect();
    let ranked = {
        let mut ids: Vec<usize> = (0..24).collect();
        ids.sort_by(|&a, &b| target[b].total_cmp(&target[a]));
        ids
    };
    let filtered = SamplingParams { top_k: 6, ..Default::default() };
    for device in devices() {
        for (params, kept) in [(SamplingParams::default(), 24), (filtered.clone(), 6)] {
            let p = softmax(&target, 1.0, |v| ranked[..kept].contains(&v));
            let case = Case::repeated(&target, 2 * n, &params, |row| row as u64 / 2);
            let overlap = p.iter().zip(&q).map(|(p, q)| p.min(*q)).sum::<f64>();
            let deviation = (overlap * (1.0 - overlap) / n as f64).sqrt();

            let by_id = Drafted {
                mode: Some(VerifyMode::Rejection),
                logprobs: logprobs.clone(),
                width: 24,
                ..Drafted::default()
            };
            let columns: Vec<i32> = (0..24).map(|v| (v * 7 + 5) % 24).collect();
            let moved =
                Drafted { logprobs: columns.iter().map(|&v| logprobs[v as usize]).collect(), columns, ..by_id.clone() };
            for (what, drafted) in [("rejection", by_id), ("rejection, moved", moved)] {
                let (tokens, accepted) = verified(&device, case.clone(), draw_from(&q, n, 4), drafted);
                assert_follows(&tokens, &p, what);
                assert!(
                    (accepted - overlap).abs() < 4.0 * deviation,
                    "{what}: {accepted} accepted, {overlap} expected"
                );
            }
            // A fixed draft is a distribution of one token; so is a chain's.
            let best = ranked[0];
            for mode in [VerifyMode::OneHot, VerifyMode::Chain] {
                let drafted = Drafted { mode: Some(mode), ..Drafted::default() };
                let (tokens, accepted) = verified(&device, case.clone(), vec![best as i64; n], drafted);
                assert_follows(&tokens, &p, &format!("{mode:?}"));
                let deviation = (p[best] * (1.0 - p[best]) / n as f64).sqrt();
                assert!((accepted - p[best]).abs() < 4.0 * deviation, "{mode:?}: {accepted} accepted of {}", p[best]);
            }
        }
    }
}

#[test]
fn a_test_of_the_wrong_distribution_fails() {
    // The control: the same draws against a distribution one percent away.
    let tokens = draw_from(&[0.5, 0.3, 0.2], 200_000, 9);
    assert_follows(&tokens, &[0.5, 0.3, 0.2], "its own");
    let other = std::panic::catch_unwind(|| assert_follows(&tokens, &[0.51, 0.29, 0.2], "another"));
    assert!(other.is_err());
}
