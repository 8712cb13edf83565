//! Random steps that visit every corner the semantics name.

use super::case::{Case, Drafted};
use super::rng::Rng;
use half::{bf16, f16};
use samedraw::SamplingParams;
use samedraw::params::FilterOrder;
use samedraw::pipeline::{DType, Filters, VerifyMode};

/// Most elements of a case: keeps one case's work and the whole run's memory small.
const CELLS: usize = 60_000;

/// A vocabulary size, log-uniform up to 3000, once in 150 times up to 70000.
fn vocab(rng: &mut Rng) -> usize {
    let largest = if rng.one_in(150) { 70_000f64 } else { 3000.0 };
    (largest.powf(rng.unit()) as usize).clamp(1, largest as usize)
}

/// One row of logits; `kind` chooses its character.
fn logits(rng: &mut Rng, vocab: usize, kind: usize) -> Vec<f32> {
    let mut row = rng.in_bulk(|rng| plain_logits(rng, vocab, kind));
    if rng.is_taped() {
        for _ in 0..rng.below(5) {
            row[rng.below(vocab)] = f32::from_bits((rng.u64() >> 32) as u32);
        }
    }
    row
}

fn plain_logits(rng: &mut Rng, vocab: usize, kind: usize) -> Vec<f32> {
    let special = |rng: &mut Rng, odds, value: f32| if rng.one_in(odds) { value } else { 3.0 * rng.normal() };
    let spike = rng.below(vocab);
    (0..vocab)
        .map(|v| match kind {
            0..=3 => 3.0 * rng.normal(),
            4 | 5 => rng.pick(&[-1.0, -0.0, 0.0, 0.0, 1.0, 1.5]),
            6 => 0.25,
            7 => {
                if v == spike {
                    12.0
                } else {
                    0.0
                }
            }
            8 => loop {
                let x = f32::from_bits(rng.u64() as u32);
                if x.is_finite() {
                    break x;
                }
            },
            9 => f32::from_bits(rng.below(40) as u32 | (rng.below(2) as u32) << 31),
            10 => special(rng, 2, f32::NEG_INFINITY),
            11 => f32::NEG_INFINITY,
            12 => special(rng, 5, f32::NAN),
            13 => f32::NAN,
            14 => special(rng, 6, f32::INFINITY),
            15 => f32::from_bits(0x3F80_0000 + rng.below(16) as u32),
            16 => v as f32 * 0.01,
            17 => rng.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -3.5]),
            _ => 40.0 * rng.normal(),
        })
        .collect()
}

/// Parameters, at the edges of their ranges half the time.
pub(super) fn params(rng: &mut Rng, vocab: usize, greedy: bool, filters: bool) -> SamplingParams {
    let temperatures = [0.0, 1e-6, 9.9e-6, 1e-5, 0.05, 0.5, 0.7, 1.0, 1.0, 1.0, 2.5, 100.0, 1e30];
    let seed = rng.u64();
    let plain = SamplingParams { temperature: rng.pick(&temperatures), seq_seed: Some(seed), ..Default::default() };
    if greedy {
        return SamplingParams { temperature: 1.0, top_k: 1, ..plain };
    }
    if !filters {
        return plain;
    }
    let any = rng.unit() as f32;
    SamplingParams {
        top_p: rng.pick(&[1.0, 1.0, 0.9, 0.5, 0.999_999, 1e-9, f32::MIN_POSITIVE, 1e-45, 0.1, any.max(1e-7)]),
        top_k: rng.pick(&[
            -1,
            -1,
            1,
            2,
            3,
            20,
            vocab as i64,
            vocab as i64 + 1,
            i64::from(i32::MAX),
            1 + vocab as i64 / 2,
        ]),
        min_p: rng.pick(&[0.0, 0.0, 0.0, 1.0, 0.05, 0.3, 1e-45, 1e-12, any]),
        filter_order: rng.pick(&[FilterOrder::Joint, FilterOrder::TopKFirst]),
        ..plain
    }
}

/// A random case of `seed`; `verify` asks for drafts.
pub fn random(seed: u64, verify: bool) -> Case {
    random_of(seed, verify, None)
}

/// The same with a vocabulary of that size.
pub fn random_of(seed: u64, verify: bool, of: Option<usize>) -> Case {
    random_by(&mut Rng::new(seed), verify, of)
}

/// A case of the decisions `rng` takes.
pub fn random_by(rng: &mut Rng, verify: bool, of: Option<usize>) -> Case {
    let vocab = of.unwrap_or_else(|| vocab(rng));
    let most_rows = (CELLS / vocab).clamp(1, 24);
    let lengths: Vec<usize> = if verify {
        let mut lengths: Vec<usize> = (0..rng.within(1, 6)).map(|_| rng.within(1, 7)).collect();
        while lengths.iter().sum::<usize>() > most_rows && lengths.len() > 1 {
            lengths.pop();
        }
        // A request without rows, where there are rows enough for the number of requests.
        if rng.one_in(20) && lengths.iter().sum::<usize>() > lengths.len() {
            lengths.push(0);
        }
        lengths
    } else {
        Vec::new()
    };
    let padded_rows = if rng.one_in(4) { rng.within(1, 3) } else { 0 };
    let rows = if verify { lengths.iter().sum::<usize>() + padded_rows } else { rng.within(1, most_rows) };
    let gathers = rng.one_in(3);
    let logits_rows = if gathers { rng.within(1, rows) } else { rows + rng.below(3) };
    let stride = vocab + rng.pick(&[0, 0, 1, 3, 7, 32]);
    let dtype = rng.pick(&[DType::F32, DType::F32, DType::F16, DType::BF16]);
    // Half of the cases are well-behaved rows, so that filters and drafts meet plain distributions often.
    let tame = rng.one_in(2);
    let values: Vec<Vec<f32>> = (0..logits_rows)
        .map(|_| {
            let kind = rng.below(if tame { 6 } else { 20 });
            logits(rng, vocab, kind)
        })
        .collect();
    let offset = dtype.bytes() * rng.below(5);
    let mut bytes = vec![0xFFu8; offset];
    for row in &values {
        // Columns from V on hold what would win or spoil a row that saw them.
        let beyond = (vocab..stride).map(|v| if v % 2 == 0 { f32::NAN } else { 1e4 });
        for x in row.iter().copied().chain(beyond) {
            match dtype {
                DType::F32 => bytes.extend(x.to_le_bytes()),
                DType::F16 => bytes.extend(f16::from_f32(x).to_bits().to_le_bytes()),
                DType::BF16 => bytes.extend(bf16::from_f32(x).to_bits().to_le_bytes()),
            }
        }
    }
    let (greedy, filtered) = (rng.one_in(12), !rng.one_in(5));
    let slots = rng.within(1, rows + 2);
    let mut params: Vec<SamplingParams> = (0..slots).map(|_| params(rng, vocab, greedy, filtered)).collect();
    let indexed_slots = slots < rows || rng.one_in(2);
    if !indexed_slots {
        params.truncate(slots.max(rows));
    }
    let (masked, own_index) = (rng.one_in(3), rng.one_in(2));
    let mask_rows = if own_index { rng.within(1, rows) } else { rows };
    let mask_stride = vocab.div_ceil(32) + rng.below(3);
    let density = rng.pick(&[1, 2, 30]);
    let word = |rng: &mut Rng| match density {
        1 => (rng.u64() & rng.u64() & rng.u64()) as i32,
        2 => rng.u64() as i32,
        _ => (rng.u64() | rng.u64() | rng.u64()) as i32,
    };
    let odd = rng.one_in(3);
    let mut case = Case {
        logits: bytes,
        offset,
        dtype,
        vocab,
        stride,
        logits_rows,
        rows,
        gather: gathers.then(|| {
            (0..rows)
                .map(|_| {
                    if odd && rng.one_in(12) {
                        rng.pick(&[-1, logits_rows as i64, i64::MAX])
                    } else {
                        rng.below(logits_rows) as i64
                    }
                })
                .collect()
        }),
        force_topk: rng.pick(&[0, 0, 0, 1, 2, 7, 50, vocab / 2, vocab, vocab + 9]),
        mask: masked.then(|| rng.in_bulk(|rng| (0..mask_rows * mask_stride).map(|_| word(rng)).collect())),
        mask_stride,
        mask_index: own_index.then(|| {
            let index = |rng: &mut Rng| match rng.below(if odd { 12 } else { 11 }) {
                0..=2 => -1,
                11 => rng.pick(&[-2, mask_rows as i32, i32::MAX]),
                _ => rng.below(mask_rows) as i32,
            };
            (0..rows).map(|_| index(rng)).collect()
        }),
        row_to_slot: indexed_slots.then(|| {
            let slot = |rng: &mut Rng| match rng.below(if odd { 12 } else { 10 }) {
                10 => -1,
                11 => rng.pick(&[-2, slots as i32, i32::MAX, i32::MIN]),
                _ => rng.below(slots) as i32,
            };
            // Padding inside a request is not a batch that can arise; `drafts` pads whole requests.
            (0..rows)
                .map(|_| {
                    loop {
                        let s = slot(rng);
                        if !(verify && s == -1) {
                            break s;
                        }
                    }
                })
                .collect()
        }),
        params,
        positions: Some(Vec::new()),
        position_offsets: None,
        draft_step: rng.one_in(4).then(|| rng.pick(&[1, 2, 5, i64::MAX])),
        golden: rng.one_in(5).then(|| {
            let golden = |rng: &mut Rng| match rng.below(if odd { 8 } else { 7 }) {
                0..=2 => rng.below(vocab) as i64,
                7 => rng.pick(&[-2, vocab as i64, i64::MIN, (1 << 32) + 1]),
                _ => -1,
            };
            (0..rows).map(|_| golden(rng)).collect()
        }),
        filters: None,
        verify: None,
        top_logprobs: if vocab > 3000 { 5 } else { rng.pick(&[0, 1, 5, 20, vocab + 3]) },
        dense: rng.one_in(2),
        places: true,
        raw_logprobs: rng.one_in(2),
        sum_smaller_probs: rng.one_in(2),
        kept_ids: rng.pick(&[0, 1, 8, vocab]),
        columns: false,
        rows_wanted: true,
        bits: None,
    };
    if greedy && rng.one_in(2) {
        // The outputs that an argmax answers alone.
        case.tokens_alone();
        case.golden = None;
    }
    case.filters = match rng.below(6) {
        0 => Some(Filters::ALL),
        1 if odd => Some(Filters {
            top_k: rng.one_in(2),
            top_p: rng.one_in(2),
            min_p: rng.one_in(2),
            all_greedy: rng.one_in(4),
        }),
        _ => None,
    };
    if case.force_topk > 0 && rng.one_in(3) {
        case.columns = true;
        if !verify && rng.one_in(4) {
            case.tokens_alone();
            case.rows_wanted = false;
        }
    }
    if verify {
        case.verify = Some(drafts(rng, &mut case, &values, &lengths, odd));
    }
    let entries = if verify { lengths.len() } else { rows };
    let position = |rng: &mut Rng| rng.pick(&[0, 1, 55, 4000, i64::MAX, -1]);
    case.positions = Some((0..entries).map(|_| position(rng)).collect());
    case.position_offsets = rng.one_in(3).then(|| (0..entries).map(|_| rng.pick(&[0, 1, 6, -2, i32::MAX])).collect());
    if !verify && case.golden.is_some() && rng.one_in(3) {
        case.positions = None;
        case.position_offsets = None;
    }
    if rng.one_in(6) {
        case.bits = Some((0..3 * rows).map(|_| rng.pick(&[0, (1 << 53) - 1, rng.clone().u64() >> 11])).collect());
    }
    case
}

/// Drafts for requests of `lengths` rows, most of them near the target's distribution.
fn drafts(rng: &mut Rng, case: &mut Case, values: &[Vec<f32>], lengths: &[usize], odd: bool) -> Drafted {
    let (rows, vocab) = (case.rows, case.vocab);
    let mode = rng.pick(&[VerifyMode::Rejection, VerifyMode::Rejection, VerifyMode::OneHot, VerifyMode::Chain]);
    let mut first_rows = vec![0i32];
    let mut row_to_request = Vec::new();
    for (request, &length) in lengths.iter().enumerate() {
        let padding = odd && rng.one_in(10);
        let start = row_to_request.len();
        for row in start..start + length {
            let wrong = odd && rng.one_in(40);
            row_to_request.push(if wrong { rng.pick(&[-2, lengths.len() as i32, i32::MAX]) } else { request as i32 });
            if padding {
                row_to_request[row] = -1;
                if let Some(slots) = &mut case.row_to_slot {
                    slots[row] = -1;
                } else {
                    case.columns = false;
                }
            }
        }
        first_rows.push((start + length) as i32);
    }
    let live = row_to_request.len();
    row_to_request.resize(rows, -1);
    match &mut case.row_to_slot {
        Some(slots) => slots[live..].fill(-1),
        None if live < rows => case.columns = false,
        None => {}
    }
    let source = |row: usize| case.gather.as_ref().map_or(row as i64, |gather| gather[row]);
    let target = |row: usize| values.get(usize::try_from(source(row)).unwrap_or(0)).unwrap_or(&values[0]);
    let best = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0) as i64;
    let ids = (0..rows)
        .map(|row| match rng.below(if odd { 12 } else { 10 }) {
            0..=5 => best(target(row)),
            10 => rng.pick(&[-1, vocab as i64, i64::MIN, i64::MAX, (1 << 32) + 1]),
            _ => rng.below(vocab) as i64,
        })
        .collect();
    let mut drafted = Drafted {
        mode: Some(mode),
        first_rows,
        row_to_request,
        position_stride: rng.pick(&[10_000_019, 1]),
        ids,
        ..Drafted::default()
    };
    if mode == VerifyMode::Rejection {
        drafted.width = if rng.one_in(2) { vocab } else { rng.within(1, vocab) };
        let moved = rng.one_in(2);
        let indexed = rng.one_in(2);
        let pool_rows = if indexed { rng.within(1, rows + 2) } else { rows };
        for pool_row in 0..pool_rows {
            let mut columns: Vec<i32> = (0..vocab as i32).chain([-1, vocab as i32, i32::MAX]).collect();
            if moved {
                rng.in_bulk(|rng| rng.shuffle(&mut columns));
            }
            columns.truncate(drafted.width);
            let row = &values[pool_row % values.len()];
            let noise = rng.pick(&[0.0f32, 0.0, 0.5, 2.0]);
            let temper = if noise == 0.0 { 1.0 } else { 0.5 };
            let score =
                |rng: &mut Rng, id: i32| temper * row.get(id as usize).copied().unwrap_or(0.0) + noise * rng.normal();
            let scores: Vec<f32> = rng.in_bulk(|rng| columns.iter().map(|&id| score(rng, id)).collect());
            let max = scores.iter().copied().fold(f32::MIN, f32::max).min(1e30);
            let sum: f32 = scores.iter().map(|&x| (x - max).exp()).filter(|x| x.is_finite()).sum();
            let spoiled = rng.pick(&[0, 0, 0, if odd { 5 } else { 0 }]);
            rng.in_bulk(|rng| {
                for &score in &scores {
                    let logprob = score - max - sum.max(1e-30).ln();
                    let special = || f32::NAN;
                    drafted.logprobs.push(if spoiled > 0 && rng.one_in(spoiled) { special() } else { logprob });
                }
            });
            if moved {
                drafted.columns.extend(columns);
            }
        }
        if indexed {
            let wild = |rng: &mut Rng| rng.pick(&[-1, pool_rows as i32, i32::MAX]);
            let any = |rng: &mut Rng| if odd && rng.one_in(15) { wild(rng) } else { rng.below(pool_rows) as i32 };
            drafted.rows = (0..rows).map(|_| any(rng)).collect();
        }
    }
    drafted
}
