//! One row, processed: the N columns, the kept prefix, its mass, and everything read off them.
//! The stages of SEMANTICS sections 4 to 8, in order.

use super::descent::{by_count, by_mass, each_within};
use super::lanes::{self, BLOCK, Engine, Kernels, Scratch};
use super::source::{Cut, Source, key};
use crate::mass::{self, exponent, log2_total, ratio};
use crate::params::{TOP_K_OFF, TOP_P_OFF};
use crate::pipeline::blocks::{SlotBlock, status};
use crate::random::scale_bits;

/// Tokens of a row, listed: their values and, ascending, their indices.
#[derive(Debug, Clone, Copy)]
pub(super) struct Near<'s> {
    pub values: &'s [f32],
    pub indices: &'s [u32],
}

/// What the lanes leave of a row, in work areas of theirs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filtered<'s> {
    pub k: &'static Kernels,
    /// The clean row.
    pub x: *const f32,
    pub n: usize,
    pub max: f32,
    pub status: i32,
    /// The N columns, if they are not the row.
    pub columns: Option<Near<'s>>,
    pub columns_cut: Cut,
    /// The kept tokens, if a filter was met.
    pub near: Option<Near<'s>>,
    pub kept_cut: Cut,
    /// Masses of what `near` lists, or of the row, a sum a block.
    pub sums: &'s [u64],
    pub total: u64,
    /// No kept token has a lower value.
    pub lowest: f32,
}

/// A row after the filters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Processed<'s> {
    pub source: Source,
    max: f32,
    scale: f32,
    /// The N columns.
    pub columns: Cut,
    /// The kept tokens; meaningless when `total` is 0.
    kept: Cut,
    /// Number of kept tokens, once it is known.
    kept_count: Option<u64>,
    /// Mass of the kept tokens; 0 for an empty row.
    pub total: u64,
    log2_total: f32,
    /// Status bits.
    pub status: i32,
    /// What was found in lanes, if it was.
    filtered: Option<Filtered<'s>>,
}

impl<'s> Processed<'s> {
    /// As [`new`](Self::new), in lanes where `tools` has them and they can.
    pub fn of(
        tools: Option<(Engine<'_>, &'s mut Scratch)>,
        source: Source,
        columns: u64,
        slot: &SlotBlock,
        known: i32,
    ) -> Self {
        let filtered = tools.and_then(|(k, scratch)| lanes::process(k, scratch, &source, columns, slot, false));
        filtered.map_or_else(|| Self::new(source, columns, slot, known), |f| Self::from(f, source, slot, known))
    }

    /// Wraps up what the lanes found.
    pub fn from(filtered: Filtered<'s>, source: Source, slot: &SlotBlock, known: i32) -> Self {
        let Filtered { max, status, columns_cut, near, kept_cut, total, .. } = filtered;
        Processed {
            source,
            max,
            scale: f32::from_bits(slot.scale as u32),
            columns: columns_cut,
            kept: kept_cut,
            kept_count: if total == 0 { Some(0) } else { near.map(|near| near.values.len() as u64) },
            total,
            log2_total: if total == 0 { 0.0 } else { log2_total(total) },
            status: status | known,
            filtered: Some(filtered),
        }
    }

    /// Processes `source` down to `columns` columns with the filters of `slot`. `status` holds what is known of the
    /// row already.
    pub fn new(source: Source, columns: u64, slot: &SlotBlock, known: i32) -> Self {
        let (max, found) = source.max();
        let mut row = Processed {
            source,
            max,
            scale: f32::from_bits(slot.scale as u32),
            columns: Cut::ALL,
            kept: Cut::ALL,
            kept_count: Some(0),
            total: 0,
            log2_total: 0.0,
            status: found | known,
            filtered: None,
        };
        // Section 4: force-top-k.
        if columns < source.len() as u64 {
            row.columns = by_count(&source, Cut::ALL, columns);
        }
        if max == f32::NEG_INFINITY {
            row.status |= status::EMPTY_ROW;
            return row;
        }
        row.filter(slot);
        let (mut count, mut total) = (0, 0);
        each_within(&source, row.kept, |_, _, x| {
            count += 1;
            total += row.mass(x);
        });
        row.kept_count = Some(count);
        row.total = total;
        row.log2_total = log2_total(total);
        row
    }

    /// Section 6: what every filter keeps is a prefix of the order, so all of them together keep the shortest.
    fn filter(&mut self, slot: &SlotBlock) {
        let (source, columns) = (&self.source, self.columns);
        let first_k = if slot.top_k == TOP_K_OFF { columns } else { by_count(source, columns, slot.top_k) };
        let mut kept = columns.and(first_k).and(self.finite_and_min_p(f32::from_bits(slot.min_exponent as u32)));
        if slot.top_p != TOP_P_OFF {
            let mut total = 0;
            let whole = if slot.top_k_first != 0 { first_k } else { columns };
            each_within(source, whole, |_, _, x| total += self.mass(x));
            let limit = ((u128::from(total) * u128::from(slot.top_p)) >> 32) as u64;
            kept = kept.and(by_mass(source, columns, limit, |x| self.mass(x)));
        }
        self.kept = kept;
    }

    /// The prefix of tokens whose exponent is above -inf and at least `min_exponent`.
    fn finite_and_min_p(&self, min_exponent: f32) -> Cut {
        let mut lowest = u32::MAX;
        each_within(&self.source, self.columns, |k, _, x| {
            let t = self.exponent(x);
            if t > f32::NEG_INFINITY && t >= min_exponent && k < lowest {
                lowest = k;
            }
        });
        Cut { key: lowest, id: u32::MAX }
    }

    /// Section 5, and section 3's rule for rows with tokens at +inf.
    #[inline(always)]
    fn exponent(&self, x: f32) -> f32 {
        if self.max == f32::INFINITY {
            if x == f32::INFINITY { 0.0 } else { f32::NEG_INFINITY }
        } else {
            exponent(x, self.max, self.scale)
        }
    }

    #[inline(always)]
    fn mass(&self, x: f32) -> u64 {
        mass::mass(self.exponent(x))
    }

    /// Whether `id` is among the N columns.
    pub fn has_column(&self, id: i64) -> bool {
        self.source.find(id).is_some_and(|index| self.columns.has(key(self.source.at(index)), id as u32))
    }

    /// The value of `id` if it is kept.
    fn kept_value(&self, id: i64) -> Option<f32> {
        if self.total == 0 {
            return None;
        }
        let x = self.source.at(self.source.find(id)?);
        self.kept.has(key(x), id as u32).then_some(x)
    }

    /// Mass of `id`, 0 if it is not kept.
    pub fn mass_of(&self, id: i64) -> u64 {
        self.kept_value(id).map_or(0, |x| self.mass(x))
    }

    /// Calls `f(index, id, value)` for every kept token, ascending id.
    #[inline(always)]
    fn each_kept_value(&self, mut f: impl FnMut(usize, u32, f32)) {
        if self.total == 0 {
            return;
        }
        if let Some(near) = self.near() {
            for (&index, &x) in near.indices.iter().zip(near.values) {
                f(index as usize, self.source.id_at(index as usize), x);
            }
            return;
        }
        self.source.each(|index, id, x| {
            if self.kept.has(key(x), id) {
                f(index, id, x);
            }
        });
    }

    /// Calls `f(index, id, mass)` for every kept token, ascending id.
    pub fn each_kept(&self, mut f: impl FnMut(usize, u32, u64)) {
        self.each_kept_value(|index, id, x| f(index, id, self.mass(x)));
    }

    fn near(&self) -> Option<Near<'s>> {
        self.filtered.and_then(|filtered| filtered.near)
    }

    /// Number of kept tokens.
    pub fn kept_count(&self) -> u64 {
        self.kept_count.unwrap_or_else(|| {
            // Only lanes leave it open, for a row that no filter shortens.
            self.filtered.map_or(0, |row| {
                // SAFETY: `x` has `n` clean values for as long as this lives.
                let (above, equal) = unsafe { (row.k.count)(row.x, row.n, row.lowest) };
                (above + equal) as u64
            })
        })
    }

    /// Section 7: the kept token that `bits` draws, -1 for an empty row.
    pub fn draw(&self, bits: u64) -> i64 {
        let Some(row) = self.filtered.filter(|_| self.total > 0) else {
            return pick(bits, self.total, |f| self.each_kept(|_, id, mass| f(id, mass)));
        };
        let mut left = scale_bits(bits, self.total);
        for (block, &sum) in row.sums.iter().enumerate() {
            if sum <= left {
                left -= sum;
                continue;
            }
            let (start, len) = (block * BLOCK, row.near.map_or(row.n, |near| near.values.len()));
            for place in start..len.min(start + BLOCK) {
                let (x, index) = match row.near {
                    Some(near) => (near.values[place], near.indices[place] as usize),
                    // SAFETY: below n.
                    None => (unsafe { row.x.add(place).read_unaligned() }, place),
                };
                let mass = self.mass(x);
                if mass > left {
                    return i64::from(self.source.id_at(index));
                }
                left -= mass;
            }
        }
        -1
    }

    /// Section 8: logprob of a token, -inf if it is not kept.
    pub fn logprob(&self, id: i64) -> f32 {
        self.kept_value(id).map_or(f32::NEG_INFINITY, |x| self.logprob_of(x))
    }

    fn logprob_of(&self, x: f32) -> f32 {
        mass::logprob(self.exponent(x), self.log2_total)
    }

    /// Rank of a token from 1, 0 if it is not kept.
    pub fn rank(&self, id: i64) -> i32 {
        let Some(x) = self.kept_value(id) else { return 0 };
        if let (Some(row), Some(index)) = (self.filtered, self.source.find(id)) {
            let (values, len, place) = match row.near {
                Some(near) => {
                    let place = near.indices.partition_point(|&other| (other as usize) < index);
                    (near.values.as_ptr(), near.values.len(), place)
                }
                None => (row.x, row.n, index),
            };
            // SAFETY: `len` clean values, `place` at most as many.
            let (above, ties) = unsafe { ((row.k.count)(values, len, x).0, (row.k.count)(values, place, x).1) };
            return (above + ties + 1) as i32;
        }
        let (own, mut ahead) = (key(x), 1);
        each_within(&self.source, self.kept, |k, other, _| {
            ahead += i32::from(k > own || (k == own && i64::from(other) < id));
        });
        ahead
    }

    /// Probability of the tokens up to `id`, least likely first.
    pub fn sum_smaller(&self, id: i64) -> f32 {
        let Some(x) = self.kept_value(id) else { return 0.0 };
        let (own, mut sum) = (self.exponent(x), 0);
        self.each_kept_value(|_, other, y| {
            let t = self.exponent(y);
            if t < own || (t == own && i64::from(other) <= id) {
                sum += self.mass(y);
            }
        });
        ratio(sum, self.total)
    }

    /// The first `ids.len()` kept tokens of the order with their logprobs; unused entries are -1 and -inf. Returns the
    /// number of used ones.
    pub fn top(&self, ids: &mut [i32], logprobs: &mut [f32]) -> i32 {
        let mut used = 0;
        if self.total > 0 {
            // The kept tokens as a row: listed ones go by their index.
            let (row, kept) = match self.near() {
                // SAFETY: the lists stay as they are while this lives.
                Some(near) => unsafe {
                    let indices = near.indices.as_ptr().cast();
                    (Source::columns(near.values.as_ptr(), indices, near.values.len()), Cut::ALL)
                },
                None => (self.source, self.kept),
            };
            let wanted = kept.and(by_count(&row, kept, ids.len() as u64));
            each_within(&row, wanted, |_, id, _| {
                ids[used] = id as i32;
                used += 1;
            });
            let value = |id: i32| row.find(i64::from(id)).map_or(f32::NEG_INFINITY, |i| row.at(i));
            // Only the few tokens of the list are put in order, never the row.
            ids[..used].sort_unstable_by_key(|&id| (std::cmp::Reverse(key(value(id))), id));
            for (id, logprob) in ids[..used].iter_mut().zip(logprobs.iter_mut()) {
                *logprob = self.logprob_of(value(*id));
                if self.near().is_some() {
                    *id = self.source.id_at(*id as usize) as i32;
                }
            }
        }
        ids[used..].fill(-1);
        logprobs[used..].fill(f32::NEG_INFINITY);
        used as i32
    }

    /// Calls `f(id, value, logprob)` for each of the N columns, ascending id.
    pub fn each_column(&self, mut f: impl FnMut(u32, f32, f32)) {
        let (kept, any) = (self.kept, self.total > 0);
        let mut see = |k, id, x| {
            let logprob = if any && kept.has(k, id) { self.logprob_of(x) } else { f32::NEG_INFINITY };
            f(id, x, logprob);
        };
        if let Some(columns) = self.filtered.and_then(|filtered| filtered.columns) {
            for (&index, &x) in columns.indices.iter().zip(columns.values) {
                see(key(x), self.source.id_at(index as usize), x);
            }
            return;
        }
        each_within(&self.source, self.columns, see);
    }
}

/// The first token, in the order `each` calls, whose running mass passes the target of `bits`; -1 if all is 0.
pub(super) fn pick(bits: u64, total: u64, each: impl FnOnce(&mut dyn FnMut(u32, u64))) -> i64 {
    if total == 0 {
        return -1;
    }
    let target = scale_bits(bits, total);
    let (mut running, mut token) = (0u64, -1);
    each(&mut |id, mass| {
        if running <= target {
            running += mass;
            if running > target {
                token = i64::from(id);
            }
        }
    });
    token
}
