//! One row by the semantics, slowly: a full sort, 128-bit sums, powers of two in f64. Nothing here calls the crate's
//! arithmetic; expected values come from this file and [`oracle`](super::oracle), or are written out in a test.

use samedraw::SamplingParams;
use samedraw::params::FilterOrder;
use samedraw::pipeline::DType;

pub const NAN_LOGITS: i32 = 1;
pub const INF_LOGITS: i32 = 2;
pub const EMPTY_ROW: i32 = 4;
pub const NAN_DRAFT: i32 = 8;
pub const BAD_INDEX: i32 = 16;

const LOG2E: f64 = std::f64::consts::LOG2_E;
const LN2: f64 = std::f64::consts::LN_2;

// Section 1.

/// The n-th output, from 0, of SplitMix64.
pub fn splitmix64(seed: u64, n: u64) -> u64 {
    let mut state = u128::from(seed) + (u128::from(n) + 1) * 0x9E37_79B9_7F4A_7C15;
    state &= u128::from(u64::MAX);
    let mut z = state as u64;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The 53 bits of case `case` (0 fresh, 1 accept, 2 residual) at `position`.
pub fn random53(seed: u64, position: i64, case: u64) -> u64 {
    let sequence = (3 * i128::from(position) + i128::from(case)).rem_euclid(1 << 64);
    splitmix64(seed, sequence as u64) >> 11
}

// Section 3: types.

/// Element `i` of a buffer of `dtype`, as f32.
pub fn widen(bytes: &[u8], dtype: DType, i: usize) -> f32 {
    if dtype == DType::F32 {
        return f32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]]);
    }
    let raw = u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]);
    if dtype == DType::BF16 {
        return f32::from_bits(u32::from(raw) << 16);
    }
    let (exponent, fraction) = (i32::from(raw >> 10 & 31), f64::from(raw & 1023));
    let size = match exponent {
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        0 => fraction * two_to(-24),
        _ => (1024.0 + fraction) * two_to(exponent - 25),
    };
    (if raw >> 15 == 1 { -size } else { size }) as f32
}

// Sections 5 and 8: arithmetic.

/// 2^n in f64, |n| < 1000.
fn two_to(n: i32) -> f64 {
    f64::from_bits(((1023 + n) as u64) << 52)
}

/// Integer mass of an exponent t <= 0.
pub fn mass_of(t: f32) -> u64 {
    if t <= -41.0 {
        return 0;
    }
    let hex = |digits: u32, exponent: i32| (f64::from(digits) * two_to(exponent - 24)) as f32;
    let n = t.round_ties_even();
    let f = t - n;
    let mut p = hex(0x1_470b48, -13);
    for c in
        [hex(0x1_5f7276, -10), hex(0x1_3b270e, -7), hex(0x1_c6ae72, -5), hex(0x1_ebfbe2, -3), hex(0x1_62e432, -1), 1.0]
    {
        let product = p * f;
        p = product + c;
    }
    (f64::from(p) * two_to(n as i32 + 40)).floor() as u64
}

/// log2 of section 8.
pub fn log2(x: f64) -> f64 {
    let (mut w, mut e) = (x, 0.0);
    while w >= 2.0 {
        (w, e) = (w / 2.0, e + 1.0);
    }
    while w < 1.0 {
        (w, e) = (w * 2.0, e - 1.0);
    }
    if w > std::f64::consts::SQRT_2 {
        (w, e) = (0.5 * w, e + 1.0);
    }
    let r = (w - 1.0) / (w + 1.0);
    let z = r * r;
    let mut s = 1.0 / 15.0;
    for k in [13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        s = s * z + 1.0 / k;
    }
    e + r * (2.0 / LN2) * s
}

/// Mass of a draft's logprob.
pub fn draft_mass(q: f32) -> u64 {
    let t = q * LOG2E as f32;
    if t.is_nan() { 0 } else { mass_of(if t > 0.0 { 0.0 } else { t }) }
}

/// First of `weighted`, in its order, whose running sum passes floor(bits * total / 2^53); -1 if all is 0.
pub fn pick(weighted: &[(usize, u64)], bits: u64) -> i64 {
    let total: u128 = weighted.iter().map(|&(_, w)| u128::from(w)).sum();
    let target = (u128::from(bits) * total) >> 53;
    let mut running = 0u128;
    for &(id, w) in weighted {
        running += u128::from(w);
        if running > target {
            return id as i64;
        }
    }
    -1
}

/// One row after sections 3 to 6.
#[derive(Debug, Clone)]
pub struct Row {
    pub status: i32,
    /// Logits after the mask, NaN as -inf, by id.
    pub values: Vec<f32>,
    /// The N columns, ascending.
    pub columns: Vec<usize>,
    /// Kept tokens in order, with exponent and mass.
    pub ranked: Vec<(usize, f32, u64)>,
    /// Mass of the kept tokens.
    pub total: u64,
    log_total: f32,
}

impl Row {
    /// `logits` as handed in; `columns` is N.
    pub fn new(logits: &[f32], allowed: impl Fn(usize) -> bool, params: &SamplingParams, columns: usize) -> Row {
        let mut values: Vec<f32> = logits.to_vec();
        let mut status = 0;
        for (id, x) in values.iter_mut().enumerate() {
            if !allowed(id) {
                *x = f32::NEG_INFINITY;
            } else if x.is_nan() {
                status |= NAN_LOGITS;
                *x = f32::NEG_INFINITY;
            }
        }
        // IEEE comparison makes -0 equal to +0, and the sort is stable, so equal logits stay in id order.
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|&a, &b| values[b].partial_cmp(&values[a]).expect("no NaN is left"));
        order.truncate(columns);
        let mut ids = order.clone();
        ids.sort();
        let mut row = Row { status, values, columns: ids, ranked: Vec::new(), total: 0, log_total: 0.0 };
        // Adding +0 makes -0 and +0 one value for the arithmetic too.
        let max = row.values[order[0]] + 0.0;
        if max == f32::NEG_INFINITY {
            row.status |= EMPTY_ROW;
            return row;
        }
        if max == f32::INFINITY {
            row.status |= INF_LOGITS;
        }
        row.filter(&order, max, params);
        row
    }

    fn filter(&mut self, order: &[usize], max: f32, params: &SamplingParams) {
        let off = params.temperature < 1e-5;
        let temperature = if off { 1e-5f32 } else { params.temperature };
        let scale = (LOG2E / f64::from(temperature)) as f32;
        let exponent = |x: f32| match (max == f32::INFINITY, x == f32::INFINITY) {
            (true, true) => 0.0,
            (true, false) => f32::NEG_INFINITY,
            _ => {
                let distance = (x + 0.0) - max;
                distance * scale
            }
        };
        let t: Vec<f32> = order.iter().map(|&id| exponent(self.values[id])).collect();
        let w: Vec<u64> = t.iter().map(|&t| mass_of(t)).collect();
        let sum = |w: &[u64]| w.iter().map(|&w| u128::from(w)).sum::<u128>();
        let top_k = if off || params.top_k == -1 { order.len() } else { order.len().min(params.top_k as usize) };
        let q = if off { 1 << 32 } else { (f64::from(params.top_p) * 4_294_967_296.0).round_ties_even() as u128 };
        let of = if params.filter_order == FilterOrder::TopKFirst { &w[..top_k] } else { &w[..] };
        let limit = (sum(of) * q) >> 32;
        let min_p = if off { 0.0 } else { f64::from(params.min_p) };
        let mut before = 0u128;
        for (rank, &id) in order.iter().enumerate() {
            let unlikely = min_p > 0.0 && t[rank] < log2(min_p) as f32;
            if rank < top_k && before <= limit && !unlikely && t[rank] > f32::NEG_INFINITY {
                assert_eq!(self.ranked.len(), rank, "the kept set is a prefix of the order");
                self.ranked.push((id, t[rank], w[rank]));
            }
            before += u128::from(w[rank]);
        }
        self.total = self.ranked.iter().map(|k| k.2).sum();
        self.log_total = (log2(self.total as f64) - 40.0) as f32;
    }

    /// Kept tokens by id, with their masses.
    pub fn kept(&self) -> Vec<(usize, u64)> {
        let mut kept: Vec<_> = self.ranked.iter().map(|&(id, _, w)| (id, w)).collect();
        kept.sort();
        kept
    }

    /// Where a token stands among the kept ones, from 0.
    pub fn place(&self, token: i64) -> Option<usize> {
        self.ranked.iter().position(|k| k.0 as i64 == token)
    }

    /// Mass of a token, 0 if it is not kept.
    pub fn mass(&self, token: i64) -> u64 {
        self.place(token).map_or(0, |place| self.ranked[place].2)
    }

    pub fn logprob_at(&self, place: usize) -> f32 {
        let relative = self.ranked[place].1 - self.log_total;
        relative * LN2 as f32
    }

    /// Processed logprob.
    pub fn logprob(&self, token: i64) -> f32 {
        self.place(token).map_or(f32::NEG_INFINITY, |place| self.logprob_at(place))
    }

    /// Section 7.
    pub fn draw(&self, bits: u64) -> i64 {
        pick(&self.kept(), bits)
    }

    pub fn sum_smaller(&self, token: i64) -> f32 {
        let Some(place) = self.place(token) else { return 0.0 };
        let own = self.ranked[place].1;
        let smaller = |&&(id, t, _): &&(usize, f32, u64)| t < own || (t == own && id as i64 <= token);
        let sum: u64 = self.ranked.iter().filter(smaller).map(|k| k.2).sum();
        (sum as f64 / self.total as f64) as f32
    }
}
