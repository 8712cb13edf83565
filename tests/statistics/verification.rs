//! Verification gives the target's distribution whatever is drafted, and accepts as often as it must.
//!
//! Every request has two drafts and three rows of unlike targets. A row's table is the draft beside the token, over the
//! requests in which the drafts before it were accepted; the expected one is the definition of the mode in f64.

use super::common::{Case, Drafted, Rng, devices};
use super::distributions::{Distribution, normal};
use super::level::{Family, binomial, multinomial};
use super::{draws, first_seed, in_batches};
use samedraw::pipeline::VerifyMode;
use samedraw::random::ROW_STRIDE;
use samedraw::{Device, SamplingParams};
use std::sync::Arc;

const VOCAB: usize = 24;
const ROWS: usize = 3;

/// What is drafted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// A token drawn from the draft's distribution.
    Sampled,
    /// The most likely token of a draft that is certain of it.
    Greedy,
    /// No draft: -1 or no token of the vocabulary.
    Absent,
    /// Drawn from a distribution that mostly gives what the target does not.
    Wrong,
}

/// What is done to the target.
#[derive(Debug, Clone)]
struct Target {
    name: &'static str,
    params: SamplingParams,
    force_topk: usize,
    /// The drafts' logprobs come in an order of their own.
    moved: bool,
}

fn targets() -> [Target; 4] {
    let plain = SamplingParams::default();
    let filtered = SamplingParams { top_k: 6, min_p: 0.01, temperature: 0.8, ..plain.clone() };
    [
        Target { name: "plain", params: plain.clone(), force_topk: 0, moved: false },
        Target { name: "filtered", params: filtered, force_topk: 0, moved: false },
        Target { name: "moved", params: plain.clone(), force_topk: 0, moved: true },
        Target { name: "columns", params: SamplingParams { top_p: 0.9, ..plain }, force_topk: 12, moved: true },
    ]
}

struct Setting {
    mode: VerifyMode,
    kind: Kind,
    target: Target,
    logits: [Vec<f32>; ROWS],
    /// Of the target's rows.
    p: [Vec<f64>; ROWS],
    /// Of the drafts.
    q: [Vec<f64>; ROWS - 1],
}

impl Setting {
    fn new(mode: VerifyMode, kind: Kind, target: Target) -> Setting {
        let logits: [Vec<f32>; ROWS] = std::array::from_fn(|row| normal(40 + row as u64, VOCAB, 1.5));
        let p = logits.clone().map(|logits| {
            let force_topk = target.force_topk;
            Distribution { force_topk, ..Distribution::new(target.name, logits, target.params.clone()) }.probabilities()
        });
        let q = std::array::from_fn(|row| {
            let scores = match kind {
                Kind::Wrong => logits[row].iter().map(|x| -1.2 * x).collect(),
                _ => normal(50 + row as u64, VOCAB, 1.2).iter().zip(&logits[row]).map(|(a, b)| a + 0.5 * b).collect(),
            };
            let q = Distribution::new("draft", scores, SamplingParams::default()).probabilities();
            let best = (0..VOCAB).max_by(|&a, &b| q[a].total_cmp(&q[b])).expect("tokens");
            let certain = (0..VOCAB).map(|v| f64::from(u8::from(v == best))).collect();
            if kind == Kind::Greedy { certain } else { q }
        });
        Setting { mode, kind, target, logits, p, q }
    }

    /// Probabilities of (draft, token) of a row, and of acceptance.
    fn table(&self, row: usize) -> (Vec<f64>, f64) {
        let (p, q) = (&self.p[row], &self.q[row]);
        let mut table = vec![0.0; VOCAB * VOCAB];
        let mut accepted = 0.0;
        for d in (0..VOCAB).filter(|&d| q[d] > 0.0) {
            let own = |v: usize| match self.mode {
                VerifyMode::Rejection => q[v],
                _ => f64::from(u8::from(v == d)),
            };
            let line = &mut table[d * VOCAB..(d + 1) * VOCAB];
            if self.mode == VerifyMode::Chain {
                line.iter_mut().zip(p).for_each(|(cell, p)| *cell = q[d] * p);
                accepted += q[d] * p[d];
                continue;
            }
            let accept = (p[d] / own(d)).min(1.0);
            let residual: Vec<f64> = (0..VOCAB).map(|v| (p[v] - own(v)).max(0.0)).collect();
            let rest: f64 = residual.iter().sum();
            line[d] += q[d] * accept;
            accepted += q[d] * accept;
            for v in 0..VOCAB {
                let share = if rest > 0.0 { residual[v] / rest } else { p[v] };
                line[v] += q[d] * (1.0 - accept) * share;
            }
        }
        if self.mode == VerifyMode::Rejection {
            let overlap: f64 = p.iter().zip(q).map(|(p, q)| p.min(*q)).sum();
            assert!((accepted - overlap).abs() < 1e-12, "acceptance is what the distributions share");
        }
        // What all of this is for: the tokens are the target's.
        for v in 0..VOCAB {
            let sum: f64 = (0..VOCAB).map(|d| table[d * VOCAB + v]).sum();
            assert!((sum - p[v]).abs() < 1e-12);
        }
        (table, accepted)
    }

    /// Draft tokens of `n` requests.
    fn drafts(&self, n: usize, seed: u64) -> Vec<[i64; ROWS - 1]> {
        let mut rng = Rng::new(seed);
        let mut one = |q: &[f64]| {
            let mut u = rng.unit();
            let passed = |&p: &f64| {
                u -= p;
                u < 0.0
            };
            let last = q.iter().rposition(|&p| p > 0.0).expect("a distribution");
            q.iter().position(passed).unwrap_or(last) as i64
        };
        let absent = |request: usize| [-1, VOCAB as i64, i64::MAX, i64::MIN][request % 4];
        (0..n)
            .map(|request| match self.kind {
                Kind::Absent => [absent(request); ROWS - 1],
                _ => std::array::from_fn(|row| one(&self.q[row])),
            })
            .collect()
    }

    /// Tokens and numbers of accepted drafts of requests of seeds from `first` on.
    fn run(&self, device: &Arc<dyn Device>, drafts: &[[i64; ROWS - 1]], first: u64) -> (Vec<i64>, Vec<i32>) {
        let n = drafts.len();
        let rows: Vec<&[f32]> = self.logits.iter().map(|row| &row[..]).collect();
        let seeded = |i| SamplingParams { seq_seed: Some(first + i as u64), ..self.target.params.clone() };
        let columns: Vec<i32> = if self.target.moved {
            (0..VOCAB as i32).map(|v| (v * 7 + 5) % VOCAB as i32).collect()
        } else {
            Vec::new()
        };
        let logprobs = self.q.iter().flat_map(|q| {
            let at = |place: usize| columns.get(place).map_or(place, |&id| id as usize);
            (0..VOCAB).map(move |place| q[at(place)].ln() as f32).collect::<Vec<f32>>()
        });
        let rejection = self.mode == VerifyMode::Rejection;
        let drafted = Drafted {
            mode: Some(self.mode),
            first_rows: (0..=n as i32).map(|request| 3 * request).collect(),
            row_to_request: (0..3 * n as i32).map(|row| row / 3).collect(),
            position_stride: ROW_STRIDE,
            ids: drafts.iter().flat_map(|&[a, b]| [a, b, -1]).collect(),
            logprobs: if rejection { logprobs.collect() } else { Vec::new() },
            columns: if rejection { columns.repeat(ROWS - 1) } else { Vec::new() },
            width: if rejection { VOCAB } else { 0 },
            rows: if rejection { [0, 1, -1].repeat(n) } else { Vec::new() },
        };
        let case = Case {
            rows: ROWS * n,
            gather: Some((0..ROWS * n).map(|row| (row % ROWS) as i64).collect()),
            row_to_slot: Some((0..(ROWS * n) as i32).map(|row| row / ROWS as i32).collect()),
            params: (0..n).map(seeded).collect(),
            positions: Some(vec![0; n]),
            force_topk: self.target.force_topk,
            verify: Some(drafted),
            ..Case::f32(&rows, &[SamplingParams::default()]).with_tokens_alone()
        };
        let got = case.run(device, &self.name());
        (got.tokens, got.accepted)
    }

    fn name(&self) -> String {
        format!("{:?}, {:?}, {}", self.mode, self.kind, self.target.name)
    }

    fn test(&self, device: &Arc<dyn Device>, n: usize, family: &mut Family) {
        let mut tables = [vec![0u64; VOCAB * VOCAB], vec![0; VOCAB * VOCAB]];
        let (mut alone, mut last) = (vec![0u64; VOCAB], vec![0u64; VOCAB]);
        // Requests that reach a row.
        let mut reached = [n, 0, 0];
        in_batches(n, |start, len| {
            let first = first_seed() + start as u64;
            let drafts = self.drafts(len, first);
            let (tokens, accepted) = self.run(device, &drafts, first);
            for request in 0..len {
                let row = |row: usize| tokens[ROWS * request + row] as usize;
                (1..=accepted[request] as usize).for_each(|row| reached[row] += 1);
                for (place, draft) in drafts[request].iter().take(1 + accepted[request] as usize).enumerate() {
                    match self.kind {
                        Kind::Absent => alone[row(place)] += 1,
                        _ => tables[place][*draft as usize * VOCAB + row(place)] += 1,
                    }
                }
                if accepted[request] == 2 {
                    last[row(2)] += 1;
                }
            }
        });
        let name = self.name();
        if self.kind == Kind::Absent {
            family.add(format!("{name}: tokens"), multinomial(&alone, &self.p[0], n));
            family.add(format!("{name}: acceptance"), binomial(reached[1], n, 0.0));
            return;
        }
        for row in 0..ROWS - 1 {
            let (table, accepted) = self.table(row);
            let tokens: Vec<u64> = (0..VOCAB).map(|v| (0..VOCAB).map(|d| tables[row][d * VOCAB + v]).sum()).collect();
            family.add(format!("{name}: tokens of row {row}"), multinomial(&tokens, &self.p[row], reached[row]));
            family.add(format!("{name}: table of row {row}"), multinomial(&tables[row], &table, reached[row]));
            let accept = binomial(reached[row + 1], reached[row], accepted);
            family.add(format!("{name}: acceptance of row {row}"), accept);
        }
        family.add(format!("{name}: the last row"), multinomial(&last, &self.p[2], reached[2]));
    }
}

#[test]
fn verification_gives_the_target() {
    let n = draws();
    for device in devices() {
        let mut family = Family::new(format!("verification on {}, {n} requests each", device.info().name));
        for mode in [VerifyMode::Rejection, VerifyMode::OneHot, VerifyMode::Chain] {
            for kind in [Kind::Sampled, Kind::Greedy, Kind::Absent, Kind::Wrong] {
                for target in targets() {
                    // Only rejection reads the drafts' logprobs.
                    if mode == VerifyMode::Rejection || !target.moved || target.force_topk > 0 {
                        Setting::new(mode, kind, target).test(&device, n, &mut family);
                    }
                }
            }
        }
        family.judge();
    }
}
