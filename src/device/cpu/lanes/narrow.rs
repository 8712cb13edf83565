//! Counting, finding and listing clean values by comparison.

use super::kernels::{Isa, Lanes, SEGMENT, W, merge, partial, segments};
use super::scan::{F32, Load};

/// Where no more than this many groups of a segment have something to list, most of its quarters have nothing.
const SPARSE: u32 = 4;

/// The 16 values from `at` on, filled up with -inf, and the bits of those that are no filling.
///
/// Loops call this and not a closure: a closure is compiled without the instruction set and would not be inlined.
#[inline(always)]
unsafe fn vector(x: *const f32, at: usize, n: usize) -> (Lanes, u32) {
    // SAFETY: the caller's promise.
    unsafe { if at + W <= n { (F32(x).lanes(at), 0xFFFF) } else { (partial(F32(x), at, n), (1 << (n - at)) - 1) } }
}

/// Numbers of values above and equal to `pivot`.
///
/// # Safety
/// `x` has `n` clean values.
#[inline(always)]
pub unsafe fn count<I: Isa>(x: *const f32, n: usize, pivot: f32) -> (usize, usize) {
    let (mut above, mut reach) = (0, 0);
    let next = pivot.next_up();
    let whole = n / W * W;
    // SAFETY: the caller's promise.
    unsafe {
        for at in (0..whole).step_by(W) {
            let x = F32(x).lanes(at);
            above += I::at_least(&x, next).count_ones() as usize;
            reach += I::at_least(&x, pivot).count_ones() as usize;
        }
        if whole < n {
            let (x, all) = vector(x, whole, n);
            above += I::at_least(&x, next).count_ones() as usize;
            reach += (I::at_least(&x, pivot) & all).count_ones() as usize;
        }
    }
    (above, reach - above)
}

/// Whether every value is at least `low`.
///
/// # Safety
/// `x` has `n` clean values.
#[inline(always)]
pub unsafe fn all_reach<I: Isa>(x: *const f32, n: usize, low: f32) -> bool {
    let whole = n / W * W;
    // SAFETY: the caller's promise.
    unsafe {
        for at in (0..whole).step_by(W) {
            if I::at_least(&F32(x).lanes(at), low) != 0xFFFF {
                return false;
            }
        }
        (whole..n).all(|at| F32(x).one(at) >= low)
    }
}

/// Where `compact` writes; either may be the array it reads.
#[derive(Debug, Clone, Copy)]
pub struct Into {
    pub values: *mut f32,
    /// Null where the indices are not wanted.
    pub indices: *mut u32,
}

/// Writes the values between `low` and `high`, both included, in their order, with their `indices` if those are not
/// null; returns how many.
///
/// # Safety
/// `x` and `indices` have `n` entries, x clean; `out` has room for 16 more than it gets, and where it is what is read, it
/// starts at or before it.
#[inline(always)]
pub unsafe fn compact<I: Isa>(x: *const f32, indices: *const u32, n: usize, low: f32, high: f32, out: Into) -> usize {
    let mut len = 0;
    let whole = n / W * W;
    // SAFETY: the caller's promise; what is written never reaches past the vector that was read.
    unsafe {
        for at in (0..whole).step_by(W) {
            let x = F32(x).lanes(at);
            let found = I::between(&x, low, high);
            if !indices.is_null() {
                let own = indices.add(at).cast::<[u32; W]>().read_unaligned();
                I::pack_indices(&own, found, out.indices.add(len));
            }
            I::pack(&x, found, out.values.add(len));
            len += found.count_ones() as usize;
        }
        if whole < n {
            let (x, all) = vector(x, whole, n);
            let found = I::between(&x, low, high) & all;
            if !indices.is_null() {
                let mut own = [0; W];
                own.as_mut_ptr().copy_from_nonoverlapping(indices.add(whole), n - whole);
                I::pack_indices(&own, found, out.indices.add(len));
            }
            I::pack(&x, found, out.values.add(len));
            len += found.count_ones() as usize;
        }
    }
    len
}

/// Bits of those of the 64 values from `at` on, before `end`, that are at least `low`.
#[inline(always)]
unsafe fn reaching<I: Isa>(x: *const f32, at: usize, end: usize, low: f32) -> u64 {
    let mut found = 0;
    // SAFETY: the caller's promise.
    unsafe {
        if at + 4 * W <= end {
            for quarter in 0..4 {
                found |= u64::from(I::at_least(&F32(x).lanes(at + quarter * W), low)) << (quarter * W);
            }
        } else {
            for (quarter, at) in (at..end).step_by(W).enumerate() {
                let (x, all) = vector(x, at, end);
                found |= u64::from(I::at_least(&x, low) & all) << (quarter * W);
            }
        }
    }
    found
}

/// Writes the values not below `low`, and their indices, from `start` to before `end` of a scanned row; returns how
/// many. Passes over the segments whose group maxima are all below `low`.
///
/// # Safety
/// `x` has at least `end` values and `groups` is what `scan` wrote for them; `out` has room for 16 more than it gets.
#[inline(always)]
pub unsafe fn compact_row<I: Isa>(
    x: *const f32,
    groups: *const f32,
    (start, end): (usize, usize),
    low: f32,
    out: Into,
) -> usize {
    let mut len = 0;
    for segment in start / SEGMENT..segments(end) {
        let (from, to) = (start.max(segment * SEGMENT), end.min((segment + 1) * SEGMENT));
        // SAFETY: the caller's promise.
        unsafe {
            if from >= to {
                continue;
            }
            let reached = I::at_least(&groups.add(segment * W).cast::<Lanes>().read_unaligned(), low).count_ones();
            if reached == 0 {
                continue;
            }
            for at in (from..to).step_by(4 * W) {
                if reached <= SPARSE && at + 4 * W <= to {
                    let mut top = F32(x).lanes(at);
                    for quarter in 1..4 {
                        merge(&mut top, &F32(x).lanes(at + quarter * W));
                    }
                    if I::at_least(&top, low) == 0 {
                        continue;
                    }
                }
                let mut found = reaching::<I>(x, at, to, low);
                let many = found.count_ones() as usize;
                if many > 16 {
                    for (quarter, at) in (at..to.min(at + 4 * W)).step_by(W).enumerate() {
                        let here = (found >> (quarter * W)) as u32 & 0xFFFF;
                        I::pack_numbers(at as u32, here, out.indices.add(len));
                        I::pack(&vector(x, at, to).0, here, out.values.add(len));
                        len += here.count_ones() as usize;
                    }
                    continue;
                }
                // Four at a time, without asking whether there are as many: what is written past the last is written
                // over, and the branch is easier to foresee.
                let mut next = len;
                len += many;
                while next < len {
                    for place in next..next + 4 {
                        // Of no bits that is `at`.
                        let index = at + (found.trailing_zeros() as usize & 63);
                        out.indices.add(place).write(index as u32);
                        out.values.add(place).write(x.add(index).read_unaligned());
                        found &= found.wrapping_sub(1);
                    }
                    next += 4;
                }
            }
        }
    }
    len
}

/// Index of the `nth` value, from 1, that equals `value`; n where there are fewer.
///
/// # Safety
/// `x` has `n` clean values.
#[inline(always)]
pub unsafe fn nth_equal<I: Isa>(x: *const f32, n: usize, value: f32, nth: usize) -> usize {
    let mut left = nth;
    for at in (0..n).step_by(W) {
        // SAFETY: the caller's promise.
        let mut found = unsafe {
            let (x, all) = vector(x, at, n);
            I::between(&x, value, value) & all
        };
        let here = found.count_ones() as usize;
        if here < left {
            left -= here;
            continue;
        }
        for _ in 1..left {
            found &= found - 1;
        }
        return at + found.trailing_zeros() as usize;
    }
    n
}
