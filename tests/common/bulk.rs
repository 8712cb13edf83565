//! Random steps of many rows each, made fast: for runs of a million rows, where one device is compared with another and
//! no oracle could keep up.

use super::generate::params;
use super::{Case, Drafted, Rng};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use samedraw::SamplingParams;
use samedraw::pipeline::{DType, VerifyMode};

/// Rows of a step.
pub const ROWS: usize = 256;
const TABLE: usize = 4096;
const SLOTS: usize = 48;
/// Most elements of an output that has a column for every token.
const CELLS: usize = 2 << 20;

/// Bounds of a step.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub rows: usize,
    /// Largest vocabulary of 99 steps in 100.
    pub vocab: usize,
    /// Largest vocabulary.
    pub most: usize,
}

impl Bounds {
    /// Vocabularies log-uniform from 1 to 262144, at most one step in a hundred above 65536.
    pub const FULL: Bounds = Bounds { rows: ROWS, vocab: 65_536, most: 262_144 };
}

/// Makes values a few bits of randomness at a time.
struct Values {
    rng: Rng,
    normals: Vec<f32>,
}

impl Values {
    fn new(rng: &mut Rng) -> Self {
        let normals = (0..TABLE).map(|_| 3.0 * rng.normal()).collect();
        Values { rng: Rng::new(rng.u64()), normals }
    }

    /// Fills `row` with normal values of deviation 3, few of them equal.
    fn normal(&mut self, row: &mut [f32]) {
        for chunk in row.chunks_mut(3) {
            let mut bits = self.rng.u64();
            for x in chunk {
                let at = self.normals[(bits % TABLE as u64) as usize].to_bits();
                *x = f32::from_bits(at ^ ((bits >> 12) as u32 & 0x1FF));
                bits >>= 21;
            }
        }
    }

    /// Fills `row` by a function of 16 random bits.
    fn each(&mut self, row: &mut [f32], of: impl Fn(u16) -> f32) {
        for chunk in row.chunks_mut(4) {
            let bits = self.rng.u64();
            chunk.iter_mut().enumerate().for_each(|(n, x)| *x = of((bits >> (16 * n)) as u16));
        }
    }

    /// Puts `value` in about one place of `odds`.
    fn sprinkle(&mut self, row: &mut [f32], odds: usize, value: f32) {
        let mut at = self.rng.below(2 * odds);
        while at < row.len() {
            row[at] = value;
            at += 1 + self.rng.below(2 * odds);
        }
    }

    fn row(&mut self, row: &mut [f32], kind: usize) {
        let spike = self.rng.below(row.len());
        match kind {
            // Heavy ties: a handful of values, values of a narrow type, one value.
            0 => self.each(row, |bits| [-1.0, -0.0, 0.0, 0.0, 1.0, 1.0, 1.5, -3.0][usize::from(bits % 8)]),
            1 => self.each(row, |bits| f32::from_bits(0x3F80_0000 + (u32::from(bits % 200) << 16))),
            2 => row.fill(0.25),
            3 => {
                row.fill(0.0);
                row[spike] = 12.0;
            }
            4 => row.iter_mut().enumerate().for_each(|(v, x)| *x = v as f32 * 0.001),
            5 => row.iter_mut().enumerate().for_each(|(v, x)| *x = v as f32 * -0.001),
            6 => self.each(row, |bits| f32::from_bits(0x3F80_0000 + u32::from(bits % 16))),
            7 => self.each(row, |bits| f32::from_bits(u32::from(bits % 40) | u32::from(bits >> 15) << 31)),
            8 => self.each(row, |bits| f32::from_bits(u32::from(bits) << 16 | u32::from(bits))),
            9 => row.fill(f32::NEG_INFINITY),
            10 => row.fill(f32::NAN),
            _ => {
                self.normal(row);
                match kind {
                    11 => self.sprinkle(row, 2, f32::NEG_INFINITY),
                    12 => self.sprinkle(row, 50, f32::NAN),
                    13 => self.sprinkle(row, 300, f32::INFINITY),
                    14 => {
                        let kept: Vec<(usize, f32)> = (0..row.len()).step_by(97).map(|v| (v, row[v])).collect();
                        row.fill(f32::NEG_INFINITY);
                        kept.into_iter().for_each(|(v, x)| row[v] = x);
                    }
                    15 => row[spike] = 20.0,
                    16 => row.iter_mut().for_each(|x| *x *= 12.0),
                    _ => {}
                }
            }
        }
    }
}

/// One step in 101 is above the ordinary bound: fewer than one row in a hundred, whatever the seeds.
fn vocab(rng: &mut Rng, seed: u64, bounds: &Bounds) -> usize {
    let log_uniform = |low: f64, high: f64, u: f64| (low.ln() + (high.ln() - low.ln()) * u).exp() as usize;
    let u = rng.unit();
    if bounds.most > bounds.vocab && seed.is_multiple_of(101) {
        log_uniform(bounds.vocab as f64, bounds.most as f64, u).clamp(bounds.vocab + 1, bounds.most)
    } else {
        log_uniform(1.0, bounds.vocab as f64 + 1.0, u).clamp(1, bounds.vocab)
    }
}

fn encode(values: &[f32], dtype: DType, bytes: &mut Vec<u8>) {
    match dtype {
        DType::F32 => values.iter().for_each(|x| bytes.extend_from_slice(&x.to_le_bytes())),
        DType::F16 => {
            let mut narrow = vec![f16::ZERO; values.len()];
            narrow.convert_from_f32_slice(values);
            narrow.iter().for_each(|x| bytes.extend_from_slice(&x.to_le_bytes()));
        }
        DType::BF16 => {
            let mut narrow = vec![bf16::ZERO; values.len()];
            narrow.convert_from_f32_slice(values);
            narrow.iter().for_each(|x| bytes.extend_from_slice(&x.to_le_bytes()));
        }
    }
}

/// The step of `seed` within `bounds`; `verify` asks for drafts.
pub fn batch(seed: u64, verify: bool, bounds: &Bounds) -> Case {
    let rng = &mut Rng::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D));
    let (rows, vocab) = (bounds.rows, vocab(rng, seed, bounds));
    let mut values = Values::new(rng);
    let stride = vocab + rng.pick(&[0, 0, 1, 3, 5, 8, 31]);
    let dtype = rng.pick(&[DType::F32, DType::F16, DType::BF16]);
    let gathers = rng.one_in(3);
    let logits_rows = if gathers { rng.within(rows.div_ceil(2), rows) } else { rows + rng.below(3) };
    let mut all = vec![0f32; logits_rows * vocab];
    for row in all.chunks_mut(vocab) {
        // Half of the rows are plain, the rest of one kind each.
        let kind = if rng.one_in(2) { 99 } else { rng.below(17) };
        values.row(row, kind);
    }
    let offset = dtype.bytes() * rng.below(9);
    let mut bytes = vec![0xFF; offset];
    bytes.reserve_exact(logits_rows * stride * dtype.bytes());
    // What a row that saw the columns behind its end would be spoilt by.
    let beyond: Vec<f32> = (vocab..stride).map(|v| if v % 2 == 0 { f32::NAN } else { 1e4 }).collect();
    for row in all.chunks(vocab) {
        encode(row, dtype, &mut bytes);
        encode(&beyond, dtype, &mut bytes);
    }
    let (greedy, filtered) = (rng.one_in(12), !rng.one_in(6));
    let params: Vec<SamplingParams> = (0..SLOTS).map(|_| params(rng, vocab, greedy, filtered)).collect();
    let odd = rng.one_in(2);
    let mask_stride = vocab.div_ceil(32) + rng.below(3);
    let masked = rng.one_in(3);
    let mask_rows = rng.within(1, 24);
    let density = rng.below(3);
    let word = |rng: &mut Rng| match density {
        0 => rng.u64() & rng.u64() & rng.u64() & rng.u64() & rng.u64(),
        1 => rng.u64(),
        _ => rng.u64() | rng.u64() | rng.u64(),
    };
    let mask = masked.then(|| (0..mask_rows * mask_stride).map(|_| word(rng) as i32).collect::<Vec<i32>>());
    let lengths = if verify { lengths(rng, rows) } else { Vec::new() };
    let live = if verify { lengths.iter().sum() } else { rows };
    let mut slots: Vec<i32> = (0..rows)
        .map(|_| match rng.below(if odd { 60 } else { 59 }) {
            58 if !verify => -1,
            59 => rng.pick(&[-2, SLOTS as i32, i32::MAX, i32::MIN]),
            _ => rng.below(SLOTS) as i32,
        })
        .collect();
    slots[live..].fill(-1);
    // N is at most what every platform's kernels hold.
    let force_topk = rng.pick(&[0, 0, 0, 1, 7, 50, 1024, 4096, 16_384, vocab / 2, vocab]).min(16_384);
    let columns = if force_topk == 0 { vocab } else { force_topk.min(vocab) };
    let wide = rows * columns <= CELLS;
    let mut case = Case {
        logits: bytes,
        offset,
        dtype,
        vocab,
        stride,
        logits_rows,
        rows,
        gather: gathers.then(|| {
            let index = |rng: &mut Rng| match rng.below(if odd { 80 } else { 79 }) {
                79 => rng.pick(&[-1, logits_rows as i64, i64::MAX]),
                _ => rng.below(logits_rows) as i64,
            };
            (0..rows).map(|_| index(rng)).collect()
        }),
        force_topk,
        mask,
        mask_stride,
        mask_index: masked.then(|| {
            let index = |rng: &mut Rng| match rng.below(if odd { 80 } else { 79 }) {
                79 => rng.pick(&[-2, mask_rows as i32, i32::MAX]),
                0..=20 => -1,
                _ => rng.below(mask_rows) as i32,
            };
            (0..rows).map(|_| index(rng)).collect()
        }),
        params,
        row_to_slot: Some(slots),
        positions: None,
        position_offsets: None,
        draft_step: rng.one_in(6).then(|| rng.pick(&[1, 2, 5, i64::MAX])),
        golden: rng.one_in(8).then(|| {
            let golden = |rng: &mut Rng| if rng.one_in(3) { rng.below(vocab) as i64 } else { -1 };
            (0..rows).map(|_| golden(rng)).collect()
        }),
        filters: None,
        verify: None,
        top_logprobs: rng.pick(&[0, 1, 5, 20]),
        dense: wide && rng.one_in(3),
        places: true,
        raw_logprobs: rng.one_in(4),
        sum_smaller_probs: rng.one_in(3),
        kept_ids: rng.pick(&[0, 0, 8, if wide { columns } else { 64 }]),
        columns: force_topk > 0 && wide && rng.one_in(3),
        rows_wanted: true,
        bits: None,
    };
    if greedy && rng.one_in(2) {
        case.tokens_alone();
        case.golden = None;
    } else if seed % 5 == 1 {
        case.served();
    }
    let entries = if verify { lengths.len() } else { rows };
    case.positions = Some((0..entries).map(|_| rng.pick(&[0, 1, 55, 4000, i64::MAX, -1, 70_000, i64::MIN])).collect());
    case.position_offsets = rng.one_in(4).then(|| (0..entries).map(|_| rng.pick(&[0, 1, 6, -2, i32::MAX])).collect());
    if verify {
        case.verify = Some(drafts(rng, &mut values, &case, &all, &lengths));
    }
    case
}

/// Requests of one to seven rows that together have at most `rows`.
fn lengths(rng: &mut Rng, rows: usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut left = rows - rng.below(3).min(rows - 1);
    while left > 0 {
        let length = rng.within(1, 7).min(left);
        lengths.push(length);
        left -= length;
    }
    lengths
}

fn drafts(rng: &mut Rng, values: &mut Values, case: &Case, all: &[f32], lengths: &[usize]) -> Drafted {
    let (rows, vocab) = (case.rows, case.vocab);
    let mode = rng.pick(&[VerifyMode::Rejection, VerifyMode::Rejection, VerifyMode::OneHot, VerifyMode::Chain]);
    let mut first_rows = vec![0i32];
    let mut row_to_request = Vec::new();
    for (request, &length) in lengths.iter().enumerate() {
        row_to_request.extend(std::iter::repeat_n(request as i32, length));
        first_rows.push(row_to_request.len() as i32);
    }
    row_to_request.resize(rows, -1);
    let target = |row: usize| {
        let at = case.gather.as_ref().map_or(row as i64, |gather| gather[row]);
        let at = usize::try_from(at).ok().filter(|&at| at < case.logits_rows).unwrap_or(0);
        &all[at * vocab..(at + 1) * vocab]
    };
    let best = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0) as i64;
    let ids = (0..rows)
        .map(|row| match rng.below(40) {
            0..=24 => best(target(row)),
            39 => rng.pick(&[-1, vocab as i64, i64::MIN, i64::MAX, (1 << 32) + 1]),
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
    if mode != VerifyMode::Rejection {
        return drafted;
    }
    let moved = rng.one_in(3);
    let pool_rows = rng.within(rows / 8 + 1, rows);
    drafted.width = if moved || rng.one_in(3) { rng.within(1, vocab) } else { vocab };
    let step = (0..).map(|n| vocab / 2 + n).find(|&step| coprime(step.max(1), vocab)).unwrap_or(1).max(1);
    for pool_row in 0..pool_rows {
        let row = target(pool_row);
        let max = row.iter().copied().filter(|x| x.is_finite()).fold(f32::MIN, f32::max).clamp(-1e30, 1e30);
        let sum: f32 = row.iter().map(|&x| (x - max).exp()).filter(|x| x.is_finite()).sum();
        let shift = -max - sum.max(1e-30).ln();
        let start = drafted.logprobs.len();
        drafted.logprobs.resize(start + drafted.width, 0.0);
        let logprobs = &mut drafted.logprobs[start..];
        if rng.one_in(3) {
            logprobs.fill(0.0);
        } else {
            values.normal(logprobs);
        }
        let noise = rng.pick(&[0.05, 0.2]);
        let first = rng.below(vocab);
        // Distinct ids: a step that shares no factor with the vocabulary's size.
        let id = |column: usize| if moved { (first + column * step) % vocab } else { column };
        logprobs.iter_mut().enumerate().for_each(|(column, q)| *q = row[id(column)] + shift + noise * *q);
        if rng.one_in(5) {
            values.sprinkle(logprobs, 5, f32::NAN);
        }
        if moved {
            drafted.columns.extend((0..drafted.width).map(|column| id(column) as i32));
            if let Some(last) = drafted.columns.last_mut().filter(|_| rng.one_in(4)) {
                *last = rng.pick(&[-1, vocab as i32, i32::MAX]);
            }
        }
    }
    let any = |rng: &mut Rng| {
        if rng.one_in(60) { rng.pick(&[-1, pool_rows as i32, i32::MAX]) } else { rng.below(pool_rows) as i32 }
    };
    drafted.rows = (0..rows).map(|_| any(rng)).collect();
    drafted
}

fn coprime(mut a: usize, mut b: usize) -> bool {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}
