//! Fresh draws of many distributions, over seeds and over positions.

use super::common::intervals::{LAST, intervals};
use super::common::{Case, devices};
use super::distributions::{Distribution, all};
use super::level::{Family, multinomial};
use super::{LEAST, draws, first_seed, in_batches};
use samedraw::{Device, SamplingParams};
use std::sync::Arc;

/// How often each token was drawn by `n` draws, in steps that `part(start, len)` makes.
fn counts(device: &Arc<dyn Device>, d: &Distribution, n: usize, part: impl Fn(usize, usize) -> Case) -> Vec<u64> {
    let mut counts = vec![0; d.logits.len()];
    in_batches(n, |start, len| {
        for token in part(start, len).run(device, d.name).tokens {
            let token = usize::try_from(token).unwrap_or_else(|_| panic!("{}: token {token}", d.name));
            counts[token] += 1;
        }
    });
    counts
}

#[test]
fn draws_follow_the_distribution() {
    let (n, seed) = (draws(), first_seed());
    for device in devices() {
        let mut family = Family::new(format!("fresh draws on {}, {n} each", device.info().name));
        for d in all() {
            let want = d.probabilities();
            let seeds = |start, len| d.case(len, |i| seed + (start + i) as u64);
            family.add(format!("{}, over seeds", d.name), multinomial(&counts(&device, &d, n, seeds), &want, n));
            let positions = |start, len| Case {
                row_to_slot: Some(vec![0; len]),
                params: vec![SamplingParams { seq_seed: Some(seed), ..d.params.clone() }],
                positions: Some((start as i64..(start + len) as i64).collect()),
                ..d.case(len, |_| 0)
            };
            let over = counts(&device, &d, n, positions);
            family.add(format!("{}, over positions", d.name), multinomial(&over, &want, n));
        }
        family.judge();
    }
}

#[test]
fn rare_tokens_are_drawn_by_their_bits_and_by_no_others() {
    let (mut tokens, n) = (0, draws() as f64);
    for d in all() {
        let (want, row) = (d.probabilities(), d.row());
        let kept = row.kept();
        // The intervals have the lengths that the probabilities ask for.
        for &(id, mass) in &kept {
            let (share, p) = (mass as f64 / row.total as f64, want[id]);
            assert!((share - p).abs() < 1e-5 * p + 1e-12, "{}: token {id} has {share}, not {p}", d.name);
        }
        assert!((0..want.len()).all(|id| want[id] < 1e-12 || row.mass(id as i64) > 0), "{}", d.name);
        let (mut bits, mut ids) = (Vec::new(), Vec::new());
        for &(id, first, last) in intervals(&kept).iter().filter(|interval| want[interval.0 as usize] * n < LEAST) {
            let middle = first + (last - first) / 2;
            for (draw, token) in [(first, id), (middle, id), (last, id)] {
                bits.extend([draw, LAST, LAST]);
                ids.push(token);
            }
        }
        if ids.is_empty() {
            continue;
        }
        tokens += ids.len() / 3;
        for device in devices() {
            let case = Case { bits: Some(bits.clone()), ..d.case(ids.len(), |_| 0) };
            let got = case.run(&device, d.name).tokens;
            let wrong = got.iter().zip(&ids).position(|(got, want)| got != want);
            assert_eq!(wrong, None, "{}: {got:?}, not {ids:?}", d.name);
        }
    }
    eprintln!("{tokens} rare tokens drawn by their bits");
    assert!(tokens > 300, "{tokens}");
}
