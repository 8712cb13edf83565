//! The loops over a row (here those over masses; `scan` and `narrow` have the others), written once over arrays of 16 lanes. Compiled for an instruction set by the shells of
//! `isa`, into which everything here is inlined.
//!
//! Values are clean from `scan` on: masked, no NaN. No loop fuses a multiplication with an addition, and masses are
//! added as integers, so that every instruction set gives the same bits.

use super::scan::Load;
use crate::mass::{FLOOR, POLY, ROUND, exponent};

/// Lanes of a vector.
pub const W: usize = 16;
/// Values that leave one vector of 16 group maxima; a group is every 16th value of a segment.
pub const SEGMENT: usize = 16 * W;
/// Values whose masses are kept as one sum.
pub const BLOCK: usize = 2 * SEGMENT;

/// A vector of values.
pub type Lanes = [f32; W];

/// What is written for each instruction set: vectors of floats and of integers, comparisons as bits, packing.
///
/// # Safety
/// Every method may be called only where the instruction set is there; pointers are good for the vector's lanes.
pub trait Isa {
    /// Lanes of a vector; divides 16.
    const LANES: usize;
    type Floats: Copy;
    type Ints: Copy;

    unsafe fn load(from: *const f32) -> Self::Floats;
    unsafe fn splat(x: f32) -> Self::Floats;
    unsafe fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    unsafe fn sub(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    unsafe fn max(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// The bits of `p` plus those of `n`, moved up to the exponent.
    unsafe fn raise(p: Self::Floats, n: Self::Floats) -> Self::Floats;
    unsafe fn zero() -> Self::Ints;
    /// Towards 0; `x` is within i32.
    unsafe fn truncate(x: Self::Floats) -> Self::Ints;
    unsafe fn widen(x: Self::Ints) -> Self::Floats;
    unsafe fn sum(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// Sum of the lanes, none negative.
    unsafe fn total(x: Self::Ints) -> u64;

    /// Bit i: `x[i] >= low`.
    unsafe fn at_least(x: &Lanes, low: f32) -> u32;
    /// Bit i: `low <= x[i] <= high`.
    unsafe fn between(x: &Lanes, low: f32, high: f32) -> u32;
    /// Writes the lanes whose bit is set, in order; may write up to 16 lanes.
    unsafe fn pack(x: &Lanes, bits: u32, out: *mut f32);
    /// As `pack`, for integers.
    unsafe fn pack_indices(x: &[u32; W], bits: u32, out: *mut u32);
    /// Writes `first` plus the number of each lane whose bit is set, in order; may write up to 16.
    unsafe fn pack_numbers(first: u32, bits: u32, out: *mut u32);
}

/// Vectors of group maxima of `n` values.
pub const fn segments(n: usize) -> usize {
    n.div_ceil(SEGMENT)
}

/// Sums of masses of `n` values.
pub const fn blocks(n: usize) -> usize {
    n.div_ceil(BLOCK)
}

#[inline(always)]
pub fn larger(x: f32, than: f32) -> f32 {
    // This way round a NaN in x is passed over, and the comparison is one instruction.
    if x > than { x } else { than }
}

#[inline(always)]
pub fn merge(into: &mut Lanes, x: &Lanes) {
    for lane in 0..W {
        into[lane] = larger(x[lane], into[lane]);
    }
}

#[inline(always)]
pub fn highest(x: &Lanes) -> f32 {
    x.iter().fold(f32::NEG_INFINITY, |max, &x| larger(x, max))
}

/// The 16 values from `index` on; those from `n` on are -inf.
#[inline(always)]
pub unsafe fn partial<L: Load>(row: L, index: usize, n: usize) -> Lanes {
    let mut x = [f32::NEG_INFINITY; W];
    for (lane, x) in x.iter_mut().enumerate().take(n.saturating_sub(index)) {
        // SAFETY: index + lane < n.
        *x = unsafe { row.one(index + lane) };
    }
    x
}

/// What turns a value into an exponent.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Largest value of the row, finite.
    pub max: f32,
    pub scale: f32,
}

/// Vectors whose masses are computed side by side: one alone would wait for each of its own results.
const CHAINS: usize = 8;

/// Sums of masses in two halves of 20 bits, a lane each; room for 2^11 values a lane.
struct Halves<I: Isa> {
    high: I::Ints,
    low: I::Ints,
}

impl<I: Isa> Halves<I> {
    /// Adds trunc(2^t * 2^40) of `CHAINS` vectors of values: section 5's polynomial, then the mass as two integers.
    #[inline(always)]
    unsafe fn add(&mut self, x: *const f32, scale: Scale) {
        // 20 is even: the rounding of ROUND, with the exponent of the high half already in the low bits.
        const SHIFTED: f32 = ROUND + 20.0;
        // SAFETY: the caller's promise. The high half is at most 2^20, and what is left below 1 is below 2^20 once
        // scaled.
        unsafe {
            let (one, shifted) = (I::splat(1.0), I::splat(SHIFTED));
            let (mut n, mut f, mut p) = ([one; CHAINS], [one; CHAINS], [one; CHAINS]);
            for (k, f) in f.iter_mut().enumerate() {
                let t = I::mul(I::sub(I::load(x.add(k * I::LANES)), I::splat(scale.max)), I::splat(scale.scale));
                // 2^-41 truncates to 0, so everything at or below the floor may be taken there.
                *f = I::max(t, I::splat(FLOOR));
            }
            for k in 0..CHAINS {
                n[k] = I::add(f[k], shifted);
                f[k] = I::sub(f[k], I::sub(n[k], shifted));
                p[k] = I::splat(POLY[5]);
            }
            for c in [POLY[4], POLY[3], POLY[2], POLY[1], POLY[0], 1.0] {
                for k in 0..CHAINS {
                    p[k] = I::add(I::mul(p[k], f[k]), I::splat(c));
                }
            }
            for k in 0..CHAINS {
                let scaled = I::raise(p[k], n[k]);
                let high = I::truncate(scaled);
                let rest = I::mul(I::sub(scaled, I::widen(high)), I::splat(1_048_576.0));
                self.high = I::sum(self.high, high);
                self.low = I::sum(self.low, I::truncate(rest));
            }
        }
    }
}

/// Total mass; the sum of each block goes to `sums`. With group maxima, blocks without a mass are passed over.
///
/// # Safety
/// `x` has `n` clean values, `groups` (or null) those of `scan`; `sums` has room for one a block.
#[inline(always)]
pub unsafe fn masses<I: Isa>(x: *const f32, n: usize, groups: *const f32, scale: Scale, sums: *mut u64) -> u64 {
    let step = CHAINS * I::LANES;
    let mut total = 0;
    // SAFETY: the caller's promise; the last vectors of a row are copied to where they can be read whole.
    unsafe {
        for start in (0..n).step_by(BLOCK) {
            let end = n.min(start + BLOCK);
            let mut halves = Halves::<I> { high: I::zero(), low: I::zero() };
            let passed_over = !groups.is_null() && {
                let mut group = [f32::NEG_INFINITY; W];
                for segment in start / SEGMENT..segments(end) {
                    merge(&mut group, &groups.add(segment * W).cast::<Lanes>().read_unaligned());
                }
                exponent(highest(&group), scale.max, scale.scale) <= FLOOR
            };
            if !passed_over {
                let whole = start + (end - start) / step * step;
                for at in (start..whole).step_by(step) {
                    halves.add(x.add(at), scale);
                }
                if whole < end {
                    let mut last = [f32::NEG_INFINITY; CHAINS * W];
                    last.as_mut_ptr().copy_from_nonoverlapping(x.add(whole), end - whole);
                    halves.add(last.as_ptr(), scale);
                }
            }
            let sum = (I::total(halves.high) << 20) + I::total(halves.low);
            sums.add(start / BLOCK).write(sum);
            total += sum;
        }
    }
    total
}
