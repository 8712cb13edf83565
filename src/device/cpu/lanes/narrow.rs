//! Counting, finding and listing clean values by comparison.

use super::kernels::{Isa, Lanes, SEGMENT, W, partial, segments};
use super::scan::{F32, Load};

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
    // SAFETY: the caller's promise.
    unsafe {
        for at in (0..n).step_by(W) {
            let (x, all) = vector(x, at, n);
            above += I::at_least(&x, next).count_ones() as usize;
            reach += (I::at_least(&x, pivot) & all).count_ones() as usize;
        }
    }
    (above, reach - above)
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
    // SAFETY: the caller's promise; what is written never reaches past the vector that was read.
    unsafe {
        for at in (0..n).step_by(W) {
            let (x, all) = vector(x, at, n);
            let found = I::between(&x, low, high) & all;
            if !indices.is_null() {
                let mut own = [0; W];
                if all == 0xFFFF {
                    own = indices.add(at).cast::<[u32; W]>().read_unaligned();
                } else {
                    own.as_mut_ptr().copy_from_nonoverlapping(indices.add(at), n - at);
                }
                I::pack_indices(&own, found, out.indices.add(len));
            }
            I::pack(&x, found, out.values.add(len));
            len += found.count_ones() as usize;
        }
    }
    len
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
            if from >= to || I::at_least(&groups.add(segment * W).cast::<Lanes>().read_unaligned(), low) == 0 {
                continue;
            }
            for at in (from..to).step_by(4 * W) {
                let mut found = 0u64;
                for (quarter, at) in (at..to.min(at + 4 * W)).step_by(W).enumerate() {
                    let (x, all) = vector(x, at, to);
                    found |= u64::from(I::at_least(&x, low) & all) << (quarter * W);
                }
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
                        let index = at + (found.trailing_zeros() as usize & 63).min(to - 1 - at);
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
