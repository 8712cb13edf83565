//! The loops over a row, written once over arrays of 16 lanes. Compiled for an instruction set by the shells of
//! `isa`, into which everything here is inlined.
//!
//! Values are clean from `scan` on: masked, no NaN. No loop fuses a multiplication with an addition, and masses are
//! added as integers, so that every instruction set gives the same bits.

use crate::mass::{FLOOR, POLY, ROUND, exponent};

/// Lanes of a vector.
pub const W: usize = 16;
/// Values that leave one vector of 16 group maxima; a group is every 16th value of a segment.
pub const SEGMENT: usize = 16 * W;
/// Values whose masses are kept as one sum.
pub const BLOCK: usize = 2 * SEGMENT;

pub type Lanes = [f32; W];

/// The place of the values a scan reads: an element type.
pub trait Load: Copy {
    /// The value at `index`, widened exactly.
    ///
    /// # Safety
    /// The row has more than `index` values.
    unsafe fn one(self, index: usize) -> f32;

    /// The 16 values from `index` on.
    ///
    /// # Safety
    /// The row has at least `index + 16` values.
    #[inline(always)]
    unsafe fn lanes(self, index: usize) -> Lanes {
        // SAFETY: the caller's promise.
        std::array::from_fn(|lane| unsafe { self.one(index + lane) })
    }
}

#[derive(Debug, Clone, Copy)]
pub struct F32(pub *const f32);
#[derive(Debug, Clone, Copy)]
pub struct F16(pub *const u16);
#[derive(Debug, Clone, Copy)]
pub struct BF16(pub *const u16);

impl Load for F32 {
    #[inline(always)]
    unsafe fn one(self, index: usize) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(index).read_unaligned() }
    }

    #[inline(always)]
    unsafe fn lanes(self, index: usize) -> Lanes {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(index).cast::<Lanes>().read_unaligned() }
    }
}

impl Load for F16 {
    /// Exponent and fraction move to their place in an f32; the product makes up for the other bias, exactly, also for
    /// subnormals. What has the highest exponent is an infinity or a NaN and keeps the highest exponent.
    #[inline(always)]
    unsafe fn one(self, index: usize) -> f32 {
        // SAFETY: the caller's promise.
        let half = u32::from(unsafe { self.0.add(index).read_unaligned() });
        let (sign, rest) = ((half & 0x8000) << 16, (half & 0x7FFF) << 13);
        let scaled = (f32::from_bits(rest) * f32::from_bits((127 + 112) << 23)).to_bits();
        let special = if half & 0x7C00 == 0x7C00 { 0xFF << 23 } else { 0 };
        f32::from_bits(scaled | special | sign)
    }
}

impl Load for BF16 {
    #[inline(always)]
    unsafe fn one(self, index: usize) -> f32 {
        // SAFETY: the caller's promise.
        f32::from_bits(u32::from(unsafe { self.0.add(index).read_unaligned() }) << 16)
    }
}

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
}

/// What a scan finds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scan {
    /// Largest value; -inf for none.
    pub max: f32,
    /// Whether a NaN was left after the mask.
    pub nan: bool,
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
fn larger(x: f32, than: f32) -> f32 {
    // This way round a NaN in x is passed over, and the comparison is one instruction.
    if x > than { x } else { than }
}

#[inline(always)]
fn merge(into: &mut Lanes, x: &Lanes) {
    for lane in 0..W {
        into[lane] = larger(x[lane], into[lane]);
    }
}

#[inline(always)]
fn highest(x: &Lanes) -> f32 {
    x.iter().fold(f32::NEG_INFINITY, |max, &x| larger(x, max))
}

/// The 16 values from `index` on; those from `n` on are -inf.
#[inline(always)]
unsafe fn partial<L: Load>(row: L, index: usize, n: usize) -> Lanes {
    let mut x = [f32::NEG_INFINITY; W];
    for (lane, x) in x.iter_mut().enumerate().take(n.saturating_sub(index)) {
        // SAFETY: index + lane < n.
        *x = unsafe { row.one(index + lane) };
    }
    x
}

/// Largest value and group maxima of a row without a mask. Where it finds a NaN, `clean` has to follow.
///
/// # Safety
/// `row` has `n` values; `groups` has room for 16 a segment.
#[inline(always)]
pub unsafe fn scan<L: Load>(row: L, n: usize, groups: *mut f32) -> Scan {
    let mut nan = [false; W];
    let mut top = [f32::NEG_INFINITY; W];
    let whole = n / SEGMENT;
    // SAFETY: the caller's promise; whole segments end at or before n.
    unsafe {
        for segment in 0..whole {
            let start = segment * SEGMENT;
            let mut group = [[f32::NEG_INFINITY; W]; 2];
            for pair in 0..SEGMENT / (2 * W) {
                let x = row.lanes(start + pair * 2 * W);
                let y = row.lanes(start + pair * 2 * W + W);
                for lane in 0..W {
                    nan[lane] |= x[lane].is_nan() | y[lane].is_nan();
                }
                merge(&mut group[0], &x);
                merge(&mut group[1], &y);
            }
            let [mut group, other] = group;
            merge(&mut group, &other);
            merge(&mut top, &group);
            groups.add(segment * W).cast::<Lanes>().write_unaligned(group);
        }
        if whole * SEGMENT < n {
            let mut group = [f32::NEG_INFINITY; W];
            for at in (whole * SEGMENT..n).step_by(W) {
                let x = partial(row, at, n);
                for lane in 0..W {
                    nan[lane] |= x[lane].is_nan();
                }
                merge(&mut group, &x);
            }
            merge(&mut top, &group);
            groups.add(whole * W).cast::<Lanes>().write_unaligned(group);
        }
    }
    Scan { max: highest(&top), nan: nan.contains(&true) }
}

/// As `scan`, and writes the clean values to `out`: what `mask` forbids and NaN are -inf.
///
/// # Safety
/// As `scan`; `mask` has a bit a value, `out` room for `n`.
#[inline(always)]
pub unsafe fn clean<L: Load>(row: L, n: usize, mask: Option<*const u32>, out: *mut f32, groups: *mut f32) -> Scan {
    // SAFETY: the caller's promise.
    unsafe {
        match mask {
            None => clean_by(row, n, |_| !0, out, groups),
            Some(mask) => clean_by(row, n, |word| mask.add(word).read_unaligned(), out, groups),
        }
    }
}

#[inline(always)]
unsafe fn clean_by<L: Load>(row: L, n: usize, mask: impl Fn(usize) -> u32, out: *mut f32, groups: *mut f32) -> Scan {
    let mut nan = [0u32; W];
    let mut top = [f32::NEG_INFINITY; W];
    let mut tidy = |x: &mut Lanes, at: usize, group: &mut Lanes| {
        let allowed = mask(at / 32) >> (at % 32);
        for lane in 0..W {
            let here = if allowed & 1 << lane != 0 { x[lane] } else { f32::NEG_INFINITY };
            nan[lane] |= u32::from(here.is_nan());
            x[lane] = larger(here, f32::NEG_INFINITY);
        }
        merge(group, x);
    };
    // SAFETY: the caller's promise.
    unsafe {
        for start in (0..n).step_by(SEGMENT) {
            let mut group = [f32::NEG_INFINITY; W];
            if start + SEGMENT <= n {
                for vector in 0..SEGMENT / W {
                    let at = start + vector * W;
                    let mut x = row.lanes(at);
                    tidy(&mut x, at, &mut group);
                    out.add(at).cast::<Lanes>().write_unaligned(x);
                }
            } else {
                for at in (start..n).step_by(W) {
                    let mut x = partial(row, at, n);
                    tidy(&mut x, at, &mut group);
                    out.add(at).copy_from_nonoverlapping(x.as_ptr(), W.min(n - at));
                }
            }
            merge(&mut top, &group);
            groups.add(start / W).cast::<Lanes>().write_unaligned(group);
        }
    }
    Scan { max: highest(&top), nan: nan.iter().any(|&nan| nan != 0) }
}

/// What turns a value into an exponent.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// Largest value of the row, finite.
    pub max: f32,
    pub scale: f32,
}

/// Vectors whose masses are computed side by side: one alone would wait for each of its own results.
const CHAINS: usize = 4;

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
    /// Null: the indices are not wanted.
    pub indices: *mut u32,
}

/// The indices of the values `compact` reads.
#[derive(Debug, Clone, Copy)]
pub enum Indices {
    /// Consecutive ones from here.
    From(usize),
    Of(*const u32),
}

/// Writes the values between `low` and `high`, both included, in their order; returns how many.
///
/// # Safety
/// `x` and `indices` have `n` entries, x clean; `out` has room for 16 more than it gets, and where it is what is read, it
/// starts at or before it.
#[inline(always)]
pub unsafe fn compact<I: Isa>(x: *const f32, indices: Indices, n: usize, low: f32, high: f32, out: Into) -> usize {
    let mut len = 0;
    // SAFETY: the caller's promise; what is written never reaches past the vector that was read.
    unsafe {
        for at in (0..n).step_by(W) {
            let (x, all) = vector(x, at, n);
            let found = I::between(&x, low, high) & all;
            if found == 0 {
                continue;
            }
            if !out.indices.is_null() {
                let mut own = [0; W];
                match indices {
                    Indices::From(first) => {
                        for (lane, own) in own.iter_mut().enumerate() {
                            *own = (first + at + lane) as u32;
                        }
                    }
                    Indices::Of(indices) => {
                        own.as_mut_ptr().copy_from_nonoverlapping(indices.add(at), W.min(n - at));
                    }
                }
                I::pack_indices(&own, found, out.indices.add(len));
            }
            I::pack(&x, found, out.values.add(len));
            len += found.count_ones() as usize;
        }
    }
    len
}

/// As `compact` without an upper end, over the values from `start` to before `end` of a scanned row, passing over the
/// segments whose group maxima are all below `low`.
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
            let indices = if out.indices.is_null() { out.indices } else { out.indices.add(len) };
            let rest = Into { values: out.values.add(len), indices };
            len += compact::<I>(x.add(from), Indices::From(from), to - from, low, f32::INFINITY, rest);
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
