//! The first tokens of a row's order as a list: what top-k keeps, and what lies above a value.

use super::kernels::{W, segments};
use super::narrow::Into;
use super::row::{Last, Set, Target, Work};
use super::select::{End, kth_largest};

// SAFETY of the unsafe blocks below: as in `row`.
impl Work<'_, '_> {
    /// The first `count` tokens of the row's order, fewer than it has, as a list.
    pub(super) fn first_of_row(&mut self, count: usize, target: Target) -> Last {
        let (k, x, n) = (self.k, self.x, self.n);
        let (groups, work) = (self.s.groups.ptr(), self.s.work.ptr());
        let out = self.target(target);
        let mut low = f32::NEG_INFINITY;
        // What at least `count` groups reach, at least as many values reach. Some of the groups tell nearly always where that
        // is, in a part of the time.
        if count * 2 <= segments(n) * W {
            if let Some(low) = self.likely_group_rank(count).filter(|&low| low > f32::NEG_INFINITY)
                && let Ok(last) = self.first_above(low, count, target)
            {
                return last;
            }
            low = self.group_rank(count).unwrap_or(low);
        }
        let in_list = (low > f32::NEG_INFINITY).then(|| self.first_above(low, count, target));
        // SAFETY: as above.
        unsafe {
            let (value, above) = match in_list {
                Some(Ok(last)) => return last,
                Some(Err(above)) => (low, above),
                None => {
                    work.copy_from_nonoverlapping(x, n);
                    let value = kth_largest(k, work, n, count);
                    (value, (k.count)(x, n, value).0)
                }
            };
            let last = (k.nth_equal)(x, n, value, count - above);
            let len = (k.compact_row)(x, groups, (0, last + 1), value, out);
            let rest = Into { values: out.values.add(len), indices: out.indices.add(len) };
            (k.compact_row)(x, groups, (last + 1, n), value.next_up(), rest);
            Last { value, index: Some(last) }
        }
    }

    /// The first `count` tokens of the row's order, if so many are above `low`; how many are, otherwise.
    fn first_above(&mut self, low: f32, count: usize, target: Target) -> Result<Last, usize> {
        let (k, work, out) = (self.k, self.s.work.ptr(), self.target(target));
        // SAFETY: as above.
        unsafe {
            let above = (k.compact_row)(self.x, self.s.groups.ptr(), (0, self.n), low.next_up(), out);
            if above < count {
                return Err(above);
            }
            work.copy_from_nonoverlapping(out.values, above);
            let value = kth_largest(k, work, above, count);
            let ties = count - (k.count)(out.values, above, value).0;
            let listed = (out.values.cast_const(), out.indices.cast_const(), above);
            Ok(self.cut_list(listed, End { value, ties }, target).0)
        }
    }

    /// The tokens of a list up to `end`, as another list or in its own place; and how many.
    pub(super) fn cut_list(
        &mut self,
        (x, indices, n): (*const f32, *const u32, usize),
        end: End,
        target: Target,
    ) -> (Last, usize) {
        let (k, out) = (self.k, self.target(target));
        let End { value, ties } = end;
        // SAFETY: as above.
        unsafe {
            let len = (k.compact)(x, indices, n, value, f32::INFINITY, out);
            let surplus = (k.nth_equal)(out.values, len, value, ties + 1);
            if surplus == len {
                return (Last { value, index: None }, len);
            }
            let last = (k.nth_equal)(out.values, len, value, ties);
            let index = Some(out.indices.add(last).read() as usize);
            let rest = Into { values: out.values.add(surplus), indices: out.indices.add(surplus) };
            let more = (k.compact)(rest.values, rest.indices, len - surplus, value.next_up(), f32::INFINITY, rest);
            (Last { value, index }, surplus + more)
        }
    }

    pub(super) fn first_of_list(&mut self, set: Set, count: usize) -> Last {
        let (x, indices, len) = self.list(set);
        let (k, work) = (self.k, self.s.work.ptr());
        // SAFETY: as above.
        unsafe {
            work.copy_from_nonoverlapping(x, len);
            let value = kth_largest(k, work, len, count);
            let ties = count - (k.count)(x, len, value).0;
            self.cut_list((x, indices, len), End { value, ties }, Target::Kept).0
        }
    }

    /// The `rank`-th largest of the group maxima.
    pub(super) fn group_rank(&mut self, rank: usize) -> Option<f32> {
        let (groups, work, count) = (self.s.groups.ptr(), self.s.work.ptr(), segments(self.n) * W);
        (rank <= count).then(|| {
            // SAFETY: as above.
            unsafe {
                work.copy_from_nonoverlapping(groups, count);
                kth_largest(self.k, work, count, rank)
            }
        })
    }

    /// As `group_rank` and, most likely, not above it: by every fourth segment and a rank three deviations further down.
    fn likely_group_rank(&mut self, rank: usize) -> Option<f32> {
        const EVERY: usize = 4;
        let (groups, work) = (self.s.groups.ptr(), self.s.work.ptr());
        let rank = rank.div_ceil(EVERY);
        let (rank, mut count) = (rank + 3 * rank.isqrt() + 1, 0);
        for segment in (0..segments(self.n)).step_by(EVERY) {
            // SAFETY: as above.
            unsafe { work.add(count).copy_from_nonoverlapping(groups.add(segment * W), W) };
            count += W;
        }
        // SAFETY: as above.
        (rank <= count).then(|| unsafe { kth_largest(self.k, work, count, rank) })
    }

    /// What of a set is not below `lowest`, as the kept list.
    pub(super) fn at_least(&mut self, set: Set, lowest: f32) -> Set {
        let (x, indices, len) = self.list(set);
        let (out, groups) = (self.target(Target::Kept), self.s.groups.ptr());
        // SAFETY: as above.
        let len = unsafe {
            match set {
                Set::Row => (self.k.compact_row)(x, groups, (0, len), lowest, out),
                _ => (self.k.compact)(x, indices, len, lowest, f32::INFINITY, out),
            }
        };
        Set::Kept(len)
    }
}
