//! The loops of `kernels`, compiled once for each instruction set and collected in tables of functions.

use super::kernels::{self, Scale};
use super::narrow::{self, Into};
use super::scan::{self as scans, BF16, F16, F32, Scan};

/// Where a row lies, by its element type.
#[derive(Debug, Clone, Copy)]
pub enum Row {
    F32(*const f32),
    F16(*const u16),
    BF16(*const u16),
}

/// The loops for one instruction set. Safety is that of the function of the same name; the table itself
/// may be used only on a processor that has the instruction set.
#[derive(Debug)]
pub struct Kernels {
    pub scan: unsafe fn(Row, usize, *mut f32) -> Scan,
    pub clean: unsafe fn(Row, usize, Option<*const u32>, *mut f32, *mut f32) -> Scan,
    pub masses: unsafe fn(*const f32, usize, *const f32, Scale, *mut u64) -> u64,
    pub count: unsafe fn(*const f32, usize, f32) -> (usize, usize),
    pub all_reach: unsafe fn(*const f32, usize, f32) -> bool,
    pub compact: unsafe fn(*const f32, *const u32, usize, f32, f32, Into) -> usize,
    pub compact_row: unsafe fn(*const f32, *const f32, (usize, usize), f32, Into) -> usize,
    pub nth_equal: unsafe fn(*const f32, usize, f32, usize) -> usize,
}

macro_rules! shells {
    ($name:ident, $isa:ty $(, $features:literal)?) => {
        mod $name {
            use super::*;

            $(#[target_feature(enable = $features)])?
            unsafe fn scan(row: Row, n: usize, groups: *mut f32) -> Scan {
                // SAFETY: the caller's promise, here and below.
                unsafe {
                    match row {
                        Row::F32(p) => scans::scan(F32(p), n, groups),
                        Row::F16(p) => scans::scan(F16(p), n, groups),
                        Row::BF16(p) => scans::scan(BF16(p), n, groups),
                    }
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn clean(row: Row, n: usize, mask: Option<*const u32>, out: *mut f32, groups: *mut f32) -> Scan {
                // SAFETY: as above.
                unsafe {
                    match row {
                        Row::F32(p) => scans::clean(F32(p), n, mask, out, groups),
                        Row::F16(p) => scans::clean(F16(p), n, mask, out, groups),
                        Row::BF16(p) => scans::clean(BF16(p), n, mask, out, groups),
                    }
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn masses(x: *const f32, n: usize, groups: *const f32, scale: Scale, sums: *mut u64) -> u64 {
                // SAFETY: as above.
                unsafe { kernels::masses::<$isa>(x, n, groups, scale, sums) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn count(x: *const f32, n: usize, pivot: f32) -> (usize, usize) {
                // SAFETY: as above.
                unsafe { narrow::count::<$isa>(x, n, pivot) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn all_reach(x: *const f32, n: usize, low: f32) -> bool {
                // SAFETY: as above.
                unsafe { narrow::all_reach::<$isa>(x, n, low) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn compact(x: *const f32, indices: *const u32, n: usize, low: f32, high: f32, out: Into) -> usize {
                // SAFETY: as above. One loop for values alone and one for both.
                unsafe {
                    if indices.is_null() {
                        narrow::compact::<$isa>(x, std::ptr::null(), n, low, high, out)
                    } else {
                        narrow::compact::<$isa>(x, indices, n, low, high, out)
                    }
                }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn compact_row(
                x: *const f32,
                groups: *const f32,
                range: (usize, usize),
                low: f32,
                out: Into,
            ) -> usize {
                // SAFETY: as above.
                unsafe { narrow::compact_row::<$isa>(x, groups, range, low, out) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn nth_equal(x: *const f32, n: usize, value: f32, nth: usize) -> usize {
                // SAFETY: as above.
                unsafe { narrow::nth_equal::<$isa>(x, n, value, nth) }
            }

            pub static KERNELS: Kernels =
                Kernels { scan, clean, masses, count, all_reach, compact, compact_row, nth_equal };
        }
    };
}

shells!(for_base, super::super::base::Base);
pub use for_base::KERNELS as BASE;

// No set enables fma: products and sums are rounded on their own.
#[cfg(target_arch = "x86_64")]
shells!(for_avx2, super::super::x86::Avx2, "avx2,popcnt,bmi1,bmi2");
#[cfg(target_arch = "x86_64")]
shells!(for_avx512, super::super::x86::Avx512, "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2");
#[cfg(target_arch = "x86_64")]
pub use {for_avx2::KERNELS as AVX2, for_avx512::KERNELS as AVX512};
