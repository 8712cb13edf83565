//! A row processed in lanes: SEMANTICS sections 3 to 6, the steps of the scalar `Processed::new` in their order.
//!
//! A place in the row is an index here, not an id; ascending ids make both the same order.

use super::super::pool::Pool;
use super::super::row::{Filtered, Near};
use super::super::source::{Cut, Source, key, value_of_key};
use super::Engine;
use super::isa::{Kernels, Row};
use super::kernels::{BLOCK, SEGMENT, Scale, W, blocks, segments};
use super::narrow::Into;
use super::parts::{Shared, in_parts};
use super::scan::Scan;
use super::scratch::Scratch;
use crate::mass::{ONE, exponent};
use crate::params::TOP_P_OFF;
use crate::pipeline::blocks::{SlotBlock, status};

/// Largest value after the mask, the status bits its scan shows, and the index of the first value that equals it.
/// `None` where the work areas are too small.
pub fn find_max(engine: Engine<'_>, scratch: &mut Scratch, source: &Source) -> Option<(f32, i32, usize)> {
    let mut row = Work::new(engine, scratch, source)?;
    let (k, n, max) = (row.k, row.n, row.max);
    let segment = (0..segments(n)).find(|&segment| row.groups_of(segment).contains(&max))?;
    let start = segment * SEGMENT;
    let end = n.min(start + SEGMENT);
    // SAFETY: the segment lies within the row; its group maxima say that it holds the maximum.
    let index = unsafe { (k.nth_equal)(row.x.add(start), end - start, max, 1) };
    Some((max, row.found, start + index))
}

/// Processes a row. `None` where the scalar code has to: a row longer than the work areas, a token at +inf.
pub fn process<'s>(
    engine: Engine<'_>,
    scratch: &'s mut Scratch,
    source: &Source,
    columns: u64,
    slot: &SlotBlock,
    columns_alone: bool,
) -> Option<Filtered<'s>> {
    let min_exponent = f32::from_bits(slot.min_exponent as u32);
    if min_exponent > 0.0 || min_exponent.is_nan() {
        return None;
    }
    let mut row = Work::new(engine, scratch, source)?;
    if row.max == f32::INFINITY {
        return None;
    }
    row.scale.scale = f32::from_bits(slot.scale as u32);
    let mut set = Set::Row;
    let mut columns_cut = Cut::ALL;
    if columns < row.n as u64 {
        let cut = row.first_of_row(columns as usize, Target::Columns);
        columns_cut = row.cut(source, cut);
        set = Set::Columns(columns as usize);
    }
    if columns_alone || row.max == f32::NEG_INFINITY {
        let empty = row.max == f32::NEG_INFINITY;
        return Some(row.done(set, None, columns_cut, columns_cut, 0, if empty { status::EMPTY_ROW } else { 0 }));
    }
    if set == Set::Row && row.is_flat() {
        return Some(row.filter_flat(source, slot));
    }
    Some(row.filter(source, slot, set, columns_cut, min_exponent))
}

/// Values the filters look at.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Set {
    Row,
    Columns(usize),
    Kept(usize),
}

#[derive(Clone, Copy)]
pub(super) enum Target {
    Columns,
    Kept,
}

/// The last token of a prefix: its value and, unless it is the last of all that equal it, its index.
#[derive(Clone, Copy)]
pub(super) struct Last {
    pub(super) value: f32,
    pub(super) index: Option<usize>,
}

pub(super) struct Work<'s, 'p> {
    pub(super) k: &'static Kernels,
    threads: Option<&'p Pool>,
    pub(super) s: &'s mut Scratch,
    /// The clean row.
    pub(super) x: *const f32,
    pub(super) n: usize,
    max: f32,
    found: i32,
    pub(super) scale: Scale,
}

// SAFETY of the unsafe blocks below: `x` has `n` clean values, the lists of the scratch hold as many as their `Set` says,
// and every work area has room for n values and two vectors more (the group maxima for 16 a segment, the sums for one a
// block). Kernels of a table are called only where `CpuPath::kernels` found the processor to have them.
impl<'s, 'p> Work<'s, 'p> {
    fn new(engine: Engine<'p>, s: &'s mut Scratch, source: &Source) -> Option<Self> {
        let Engine { k, threads } = engine;
        let n = source.len();
        if n > s.len {
            return None;
        }
        let (groups, clean) = (Shared::new(s.groups.ptr()), Shared::new(s.clean.ptr()));
        let (place, mask) = (Shared::new(source.place()), Shared::new(source.mask()));
        let scan_part = |start, len| {
            // SAFETY: as above; parts begin at whole segments and write to places of their own.
            unsafe { (k.scan)(place.get().from(start), len, groups.get().add(start / W)) }
        };
        let clean_part = |start, len| {
            // SAFETY: as for `scan_part`; segments are whole words of a mask.
            unsafe {
                let mask = mask.get().map(|mask| mask.add(start / 32));
                (k.clean)(place.get().from(start), len, mask, clean.get().add(start), groups.get().add(start / W))
            }
        };
        let mut x: *const f32 = clean.get();
        let scan = match (source.place(), source.mask()) {
            (Row::F32(p), None) => {
                let scan = in_parts(threads, n, scan_part, Scan::and)?;
                if scan.nan {
                    in_parts(threads, n, clean_part, Scan::and)?
                } else {
                    x = p;
                    scan
                }
            }
            _ => in_parts(threads, n, clean_part, Scan::and)?,
        };
        let mut found = if scan.nan { status::NAN_LOGITS } else { 0 };
        if scan.max == f32::INFINITY {
            found |= status::INF_LOGITS;
        }
        let mut max = scan.max;
        if max == 0.0 {
            // Of zeros of both signs the first is the maximum; which one shows in the sign of a logprob of 0.
            // SAFETY: as above; a maximum of 0 is there.
            max = unsafe { x.add((k.nth_equal)(x, n, 0.0, 1)).read_unaligned() };
        }
        Some(Work { k, threads, s, x, n, max, found, scale: Scale { max, scale: 1.0 } })
    }

    fn groups_of(&mut self, segment: usize) -> &[f32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.s.groups.ptr().add(segment * W), W) }
    }

    pub(super) fn target(&mut self, target: Target) -> Into {
        let pair = match target {
            Target::Columns => &mut self.s.columns,
            Target::Kept => &mut self.s.kept,
        };
        Into { values: pair.values.ptr(), indices: pair.indices.ptr() }
    }

    /// Values, indices and length of a set; the row itself has no indices.
    pub(super) fn list(&mut self, set: Set) -> (*const f32, *const u32, usize) {
        let (Into { values, indices }, len) = match set {
            Set::Row => return (self.x, std::ptr::null(), self.n),
            Set::Columns(len) => (self.target(Target::Columns), len),
            Set::Kept(len) => (self.target(Target::Kept), len),
        };
        (values, indices, len)
    }

    pub(super) fn cut(&self, source: &Source, last: Last) -> Cut {
        Cut { key: key(last.value), id: last.index.map_or(u32::MAX, |index| source.id_at(index)) }
    }

    /// Total mass of a set; sums of its blocks go to the scratch.
    fn masses(&mut self, set: Set) -> u64 {
        let (x, _, len) = self.list(set);
        let (k, scale) = (self.k, self.scale);
        let sums = self.s.sums.ptr();
        if set != Set::Row {
            // SAFETY: as above.
            return unsafe { (k.masses)(x, len, std::ptr::null(), scale, sums) };
        }
        let (x, groups, sums) = (Shared::new(x), Shared::new(self.s.groups.ptr()), Shared::new(sums));
        // SAFETY: as above; parts begin at whole blocks and write to places of their own.
        let part = |start, len| unsafe {
            let (groups, sums) = (groups.get().add(start / W), sums.get().add(start / BLOCK));
            (k.masses)(x.get().add(start), len, groups, scale, sums)
        };
        in_parts(self.threads, len, part, |a, b| a + b).unwrap_or(0)
    }

    /// Whether all values are equal.
    fn is_flat(&mut self) -> bool {
        let max = self.max;
        let whole = self.n / SEGMENT;
        // Hardly any other row gets past its first groups.
        (0..whole).all(|segment| self.groups_of(segment).iter().all(|&group| group == max))
            // SAFETY: as above.
            && unsafe { (self.k.all_reach)(self.x, self.n, max) }
    }

    /// Section 6 for a row of equal values: what is kept are its first tokens, each of mass 2^40.
    fn filter_flat(self, source: &Source, slot: &SlotBlock) -> Filtered<'s> {
        let mut kept = slot.top_k.min(self.n as u64);
        if slot.top_p != TOP_P_OFF {
            let all = ONE * if slot.top_k_first != 0 { kept } else { self.n as u64 };
            let limit = ((u128::from(all) * u128::from(slot.top_p)) >> 32) as u64;
            kept = kept.min(limit / ONE + 1);
        }
        let kept = kept as usize;
        let sums = self.s.sums.ptr();
        for block in 0..blocks(kept) {
            // SAFETY: as above.
            unsafe { sums.add(block).write(ONE * BLOCK.min(kept - block * BLOCK) as u64) };
        }
        let cut = Cut { key: key(self.max), id: source.id_at(kept - 1) };
        let lowest = self.max;
        Work { n: kept, ..self }.done(Set::Row, Some((Set::Row, lowest)), Cut::ALL, cut, ONE * kept as u64, 0)
    }

    /// Section 6.
    fn filter(
        mut self,
        source: &Source,
        slot: &SlotBlock,
        mut set: Set,
        columns: Cut,
        min_exponent: f32,
    ) -> Filtered<'s> {
        let mut kept = columns;
        let whole = set;
        if slot.top_k < self.list(set).2 as u64 {
            let count = slot.top_k as usize;
            let last = match set {
                Set::Row => self.first_of_row(count, Target::Kept),
                _ => self.first_of_list(set, count),
            };
            set = Set::Kept(count);
            kept = kept.and(self.cut(source, last));
        }
        let lowest = self.lowest(min_exponent);
        kept = kept.and(Cut { key: key(lowest), id: u32::MAX });
        if slot.top_p != TOP_P_OFF {
            let measured = if slot.top_k_first != 0 { set } else { whole };
            let all = self.masses(measured);
            let limit = ((u128::from(all) * u128::from(slot.top_p)) >> 32) as u64;
            (set, kept) = self.top_p(source, (set, measured), (limit, all), lowest, kept);
        }
        let exact = match set {
            Set::Row => min_exponent == f32::NEG_INFINITY,
            Set::Columns(_) => false,
            // A prefix that ends above `lowest` has nothing below it.
            Set::Kept(_) => kept.key > key(lowest),
        };
        if !exact {
            set = self.at_least(set, lowest);
        }
        let total = self.masses(set);
        self.done(whole, Some((set, lowest)), columns, kept, total, 0)
    }

    /// The lowest value whose exponent is above -inf and at least `min_exponent`: exponents do not fall with values.
    fn lowest(&self, min_exponent: f32) -> f32 {
        let Scale { max, scale } = self.scale;
        let (mut low, mut high) = (key(f32::NEG_INFINITY), key(max));
        // `high` is in, by its exponent of 0; `low` is not.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let t = exponent(value_of_key(middle), max, scale);
            if t > f32::NEG_INFINITY && t >= min_exponent { high = middle } else { low = middle }
        }
        value_of_key(high)
    }

    /// `kept` is what is kept and the lowest value of it, of a row that is not empty.
    fn done(
        self,
        whole: Set,
        kept: Option<(Set, f32)>,
        columns_cut: Cut,
        kept_cut: Cut,
        total: u64,
        more: i32,
    ) -> Filtered<'s> {
        let Work { k, s, x, n, max, found, .. } = self;
        let sums_len;
        // SAFETY: the lists hold as many as the sets say; the scratch is borrowed for as long as the result lives.
        unsafe {
            let slices = |values: *const f32, indices: *const u32, len| {
                let values = std::slice::from_raw_parts(values, len);
                Near { values, indices: std::slice::from_raw_parts(indices, len) }
            };
            let columns = match whole {
                Set::Columns(len) => Some(slices(s.columns.values.ptr(), s.columns.indices.ptr(), len)),
                _ => None,
            };
            let near = match kept {
                Some((Set::Kept(len), _)) => {
                    sums_len = len;
                    Some(slices(s.kept.values.ptr(), s.kept.indices.ptr(), len))
                }
                _ => {
                    sums_len = n;
                    None
                }
            };
            let sums = std::slice::from_raw_parts(s.sums.ptr(), blocks(sums_len));
            let lowest = kept.map_or(f32::INFINITY, |(_, lowest)| lowest);
            Filtered { k, x, n, max, status: found | more, columns, columns_cut, near, kept_cut, sums, total, lowest }
        }
    }
}
