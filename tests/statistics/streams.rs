//! Streams of neighbouring seeds, positions, rows and cases are independent: pairs of numbers are even and uncorrelated.
//!
//! A number is the token drawn from a flat row of 256, so the upper 8 of its bits. Those of the accept test do not draw a
//! token; seven chances of acceptance, k / 8 each, tell their upper 3 bits.

use super::common::{Case, Drafted, devices};
use super::level::{Family, correlation, multinomial};
use super::{draws, first_seed, in_batches};
use samedraw::pipeline::VerifyMode;
use samedraw::random::ROW_STRIDE;
use samedraw::{Device, SamplingParams};
use std::sync::Arc;

const RANGE: i64 = 256;

/// Numbers below `range`, in the order of their seeds or positions.
struct Stream {
    name: String,
    range: i64,
    numbers: Vec<i64>,
}

impl Stream {
    fn uniform(&self, family: &mut Family) {
        let mut counts = vec![0; self.range as usize];
        self.numbers.iter().for_each(|&number| counts[number as usize] += 1);
        let even = vec![1.0 / self.range as f64; self.range as usize];
        family.add(format!("{}, alone", self.name), multinomial(&counts, &even, self.numbers.len()));
    }

    /// Tests pairs, no number in two of them, on 16 x 16 cells or 8 x 8.
    fn joint(family: &mut Family, name: String, pairs: impl Iterator<Item = (i64, i64)>, (a, b): (i64, i64)) {
        let cells = a.min(b).min(16);
        let (mut counts, mut n) = (vec![0; (cells * cells) as usize], 0);
        for (x, y) in pairs {
            counts[(x * cells / a * cells + y * cells / b) as usize] += 1;
            n += 1;
        }
        let even = vec![1.0 / counts.len() as f64; counts.len()];
        family.add(format!("{name}, pairs"), multinomial(&counts, &even, n));
    }

    /// Against another stream, number by number.
    fn beside(&self, other: &Stream, family: &mut Family) {
        let name = format!("{} beside {}", self.name, other.name);
        let pairs = || self.numbers.iter().copied().zip(other.numbers.iter().copied());
        Self::joint(family, name.clone(), pairs(), (self.range, other.range));
        let common = self.range.min(other.range);
        let scaled = pairs().map(|(x, y)| (x * common / self.range, y * common / other.range));
        family.add(format!("{name}, correlation"), correlation(scaled, common));
    }

    /// Against itself, `lag` numbers on.
    fn serial(&self, lag: usize, family: &mut Family) {
        let name = format!("{}, {lag} apart", self.name);
        let pairs = || self.numbers.iter().copied().zip(self.numbers[lag..].iter().copied());
        let apart = pairs().enumerate().filter(|(i, _)| (i / lag).is_multiple_of(2)).map(|(_, pair)| pair);
        Self::joint(family, name.clone(), apart, (self.range, self.range));
        family.add(format!("{name}, correlation"), correlation(pairs(), self.range));
    }
}

/// Where number `i` of a stream comes from.
#[derive(Clone, Copy)]
struct At {
    seed: fn(u64, u64) -> u64,
    position: fn(i64) -> i64,
}

struct Streams<'a> {
    device: &'a Arc<dyn Device>,
    n: usize,
    first: u64,
}

impl Streams<'_> {
    fn tokens(&self, name: &str, range: i64, run: impl Fn(usize, usize) -> Vec<i64>) -> Stream {
        let mut numbers = Vec::with_capacity(self.n);
        in_batches(self.n, |start, len| numbers.extend(run(start, len)));
        Stream { name: name.to_owned(), range, numbers }
    }

    fn flat(&self, at: At, start: usize, len: usize) -> Case {
        let case = Case::repeated(&[0.0; RANGE as usize], len, &SamplingParams::default(), |i| {
            (at.seed)(self.first, (start + i) as u64)
        });
        Case { positions: Some((start..start + len).map(|i| (at.position)(i as i64)).collect()), ..case }
    }

    /// Case 0.
    fn fresh(&self, name: &str, at: At, draft_step: Option<i64>) -> Stream {
        self.tokens(name, RANGE, |start, len| {
            Case { draft_step, ..self.flat(at, start, len) }.run(self.device, name).tokens
        })
    }

    /// Case 2: requests of a row without a draft, which draws it, and a last row.
    fn residual(&self, name: &str, at: At) -> Stream {
        self.tokens(name, RANGE, |start, len| {
            let case = verifying(self.flat(at, start, len), -1);
            case.run(self.device, name).tokens.into_iter().step_by(2).collect()
        })
    }

    /// Case 1: of seven requests the draft is accepted where the number is below its chance.
    fn accept(&self, name: &str, at: At) -> Stream {
        self.tokens(name, 8, |start, len| {
            let mut numbers = vec![7; len];
            for eighths in 1..8 {
                let p = eighths as f32 / 8.0;
                let row: Vec<u8> = [p.ln(), (1.0 - p).ln()].iter().flat_map(|x| x.to_le_bytes()).collect();
                let case = Case { logits: row, vocab: 2, stride: 2, mask_stride: 1, ..self.flat(at, start, len) };
                let accepted = verifying(case, 0).run(self.device, name).accepted;
                numbers.iter_mut().zip(accepted).for_each(|(number, accepted)| *number -= i64::from(accepted));
            }
            numbers
        })
    }
}

/// Each row as a request of its own whose draft, certain of itself, is `draft`.
fn verifying(case: Case, draft: i64) -> Case {
    let n = case.rows;
    Case {
        rows: 2 * n,
        gather: Some(vec![0; 2 * n]),
        row_to_slot: Some((0..2 * n as i32).map(|row| row / 2).collect()),
        verify: Some(Drafted {
            mode: Some(VerifyMode::OneHot),
            first_rows: (0..=n as i32).map(|request| 2 * request).collect(),
            row_to_request: (0..2 * n as i32).map(|row| row / 2).collect(),
            position_stride: ROW_STRIDE,
            ids: (0..n).flat_map(|_| [draft, -1]).collect(),
            ..Drafted::default()
        }),
        ..case
    }
}

const OVER_SEEDS: At = At { seed: |first, i| first + i, position: |_| 5 };
const OVER_POSITIONS: At = At { seed: |first, _| first, position: |i| i };

#[test]
fn neighbouring_streams_are_independent() {
    for device in &devices() {
        let streams = Streams { device, n: draws(), first: first_seed() };
        let mut done = Family::new(format!("streams on {}, {} numbers each", device.info().name, streams.n));
        let family = &mut done;

        let own = streams.fresh("fresh over seeds", OVER_SEEDS, None);
        own.uniform(family);
        (1..=3).for_each(|lag| own.serial(lag, family));
        let at = |position| At { position, ..OVER_SEEDS };
        let accept = streams.accept("accept", OVER_SEEDS);
        let residual = streams.residual("residual", OVER_SEEDS);
        for other in [
            &streams.fresh("the next position", at(|_| 6), None),
            &streams.fresh("the next position but one", at(|_| 7), None),
            &streams.fresh("the next row", at(|_| 5 + ROW_STRIDE), None),
            &streams.fresh("the draft's stream", at(|_| 4), Some(1)),
            &streams.fresh("the next seed's next position", At { seed: |first, i| first + i + 1, ..at(|_| 6) }, None),
            &accept,
            &residual,
        ] {
            own.beside(other, family);
        }
        accept.uniform(family);
        residual.uniform(family);
        accept.beside(&residual, family);
        for next in [
            streams.fresh("fresh at the next position", at(|_| 6), None),
            streams.fresh("fresh at the next position but one", at(|_| 7), None),
        ] {
            accept.beside(&next, family);
            residual.beside(&next, family);
        }

        for stream in [
            streams.fresh("fresh over positions", OVER_POSITIONS, None),
            streams.fresh("fresh over rows", At { position: |i| 5 + i * ROW_STRIDE, ..OVER_POSITIONS }, None),
            streams.accept("accept over positions", OVER_POSITIONS),
            streams.residual("residual over positions", OVER_POSITIONS),
        ] {
            stream.uniform(family);
            (1..=3).for_each(|lag| stream.serial(lag, family));
        }
        done.judge();
    }
}
