//! The first pass over a row, the only one that sees its type, its mask and its NaN.

use super::kernels::{Lanes, SEGMENT, W, highest, larger, merge, partial};

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

/// What a scan finds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scan {
    /// Largest value; -inf for none.
    pub max: f32,
    /// Whether a NaN was left after the mask.
    pub nan: bool,
}

impl Scan {
    /// Of both parts.
    pub fn and(self, other: Scan) -> Scan {
        Scan { max: larger(self.max, other.max), nan: self.nan | other.nan }
    }
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
