//! Where top-p ends in a row: a guess by a sample says what to list, sums of masses say whether that was enough.

use super::super::source::{Cut, Source};
use super::row::{Set, Target, Work};
use super::select::mass_end;
use crate::mass::{FLOOR, ONE, exponent};

/// Values sampled to guess where top-p ends.
const SAMPLED: usize = 512;
/// Bins the sample goes to.
const BINS_PER_OCTAVE: f32 = 8.0;
const BINS: usize = 8 * 41 + 1;
/// 2^(1/8).
const EIGHTH_OF_AN_OCTAVE: f64 = 1.090_507_732_665_257_7;

// SAFETY of the unsafe blocks below: as in `row`.
impl Work<'_, '_> {
    /// Leaves of `set` what has a preceding mass of at most `limit`; what of it is below `lowest` may be left out. `all`
    /// is the mass of `whole`.
    pub(super) fn top_p(
        &mut self,
        source: &Source,
        (set, whole): (Set, Set),
        (limit, all): (u64, u64),
        lowest: f32,
        kept: Cut,
    ) -> (Set, Cut) {
        let (mut candidates, mut total, mut first) = (set, all, None);
        if set == Set::Row {
            let groups = self.s.groups.ptr();
            let (sample, tail) = (self.sample(), (all - limit) as f64);
            first = self.guess(&sample, tail * 1.25);
            // Most of the row lies below where top-p ends: list what may lie above, more of it if that was not enough.
            // Where a few likely tokens have nearly all of the mass a sample misses them and the group maxima do not.
            for (share, count) in [(0.75, 64), (0.3, 1024), (0.0, usize::MAX)] {
                let low = self.guess(&sample, tail * share).or_else(|| self.group_rank(count));
                let low = low.map_or(lowest, |low| low.max(lowest));
                let out = self.target(Target::Kept);
                // SAFETY: as above.
                let len = unsafe { (self.k.compact_row)(self.x, groups, (0, self.n), low, out) };
                candidates = Set::Kept(len);
                total = self.masses_aside(candidates);
                if total > limit {
                    break;
                }
                if low == lowest {
                    return (candidates, kept);
                }
            }
        } else if set != whole {
            total = self.masses_aside(candidates);
        }
        if total <= limit {
            return (candidates, kept);
        }
        let (x, indices, len) = self.list(candidates);
        let (work, spare) = (self.s.work.ptr(), self.s.spare.ptr());
        // SAFETY: as above.
        let end = unsafe {
            work.copy_from_nonoverlapping(x, len);
            mass_end(self.k, (work, spare), self.s.other_sums.ptr(), len, (limit, total), self.scale, first)
        };
        let (last, len) = self.cut_list((x, indices, len), end, Target::Kept);
        (Set::Kept(len), kept.and(self.cut(source, last)))
    }

    fn masses_aside(&mut self, set: Set) -> u64 {
        let (x, _, len) = self.list(set);
        // SAFETY: as above.
        unsafe { (self.k.masses)(x, len, std::ptr::null(), self.scale, self.s.other_sums.ptr()) }
    }

    /// How many of some evenly spaced values lie how far below the maximum.
    fn sample(&self) -> [u32; BINS] {
        let mut bins = [0; BINS];
        for i in (self.step() / 2..self.n).step_by(self.step()) {
            // SAFETY: below n.
            let x = unsafe { self.x.add(i).read_unaligned() };
            let t = exponent(x, self.scale.max, self.scale.scale);
            let bin = (t.max(FLOOR) * -BINS_PER_OCTAVE) as usize;
            bins[bin.min(BINS - 1)] += 1;
        }
        bins
    }

    /// Distance between the values of the sample.
    fn step(&self) -> usize {
        (self.n / SAMPLED).max(1)
    }

    /// A value below which a mass of about `tail` lies, if the sample has as much.
    fn guess(&self, sample: &[u32; BINS], tail: f64) -> Option<f32> {
        if tail <= 0.0 {
            return None;
        }
        // The mass a value of the lowest bin stands for, by the middle of the bin; that of the next is an eighth of an
        // octave more.
        let mut each = self.step() as f64 * ONE as f64 * (-(BINS as f64 - 0.5) / f64::from(BINS_PER_OCTAVE)).exp2();
        let mut below = 0.0;
        for (bin, &count) in sample.iter().enumerate().rev() {
            below += each * f64::from(count);
            if below >= tail {
                return Some(self.scale.max - (bin + 1) as f32 / BINS_PER_OCTAVE / self.scale.scale);
            }
            each *= EIGHTH_OF_AN_OCTAVE;
        }
        None
    }
}
