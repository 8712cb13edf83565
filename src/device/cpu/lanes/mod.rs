//! Rows in lanes: the scalar code's results, bit for bit, from loops over 16 values at a time.
//!
//! | file | what |
//! |---|---|
//! | `kernels`, `scan`, `narrow` | the loops, written once |
//! | `base`, `x86` | vectors of the instruction sets |
//! | `isa` | the loops compiled for each of them |
//! | `scratch` | a thread's work areas |
//! | `parts` | a row over several threads |
//! | `select` | the last value of a prefix, by count or by mass |
//! | `row`, `top_p` | a row processed |
//!
//! A row is read once: that scan leaves its maximum and those of groups of 16 values. Selections start from the group
//! maxima (the k-th largest of them is at most the k-th largest value) and from then on see few candidates. Masses of a
//! whole row are computed only where a total is asked for, and summed by blocks, so that a draw looks into one block.

mod base;
mod isa;
mod kernels;
mod narrow;
mod parts;
mod prefix;
mod row;
mod scan;
mod scratch;
mod select;
mod top_p;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::pool::Pool;
pub(super) use isa::{Kernels, Row};
pub(super) use kernels::BLOCK;
pub(super) use row::{find_max, process};
pub(super) use scratch::{Scratch, Slot};

/// The loops a row is processed by, and the threads it may be split over.
#[derive(Debug, Clone, Copy)]
pub struct Engine<'p> {
    pub k: &'static Kernels,
    pub threads: Option<&'p Pool>,
}

/// The code that rows are processed with; every one gives the same bits.
///
/// The device chooses the fastest when it opens. Tests and benches name one.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuPath {
    /// One value at a time.
    Scalar,
    /// Lanes of what the target has at least (SSE2 on x86-64).
    Base,
    Avx2,
    /// F, BW, DQ and VL.
    Avx512,
}

impl CpuPath {
    /// Slowest first.
    pub const ALL: [CpuPath; 4] = [CpuPath::Scalar, CpuPath::Base, CpuPath::Avx2, CpuPath::Avx512];

    /// Whether this processor has it.
    pub fn is_available(self) -> bool {
        match self {
            CpuPath::Scalar | CpuPath::Base => true,
            #[cfg(target_arch = "x86_64")]
            CpuPath::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("popcnt")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
            }
            #[cfg(target_arch = "x86_64")]
            CpuPath::Avx512 => {
                CpuPath::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            CpuPath::Avx2 | CpuPath::Avx512 => false,
        }
    }

    /// The one a device takes. Other processors than x86-64 get lanes once the tests were run there (`tests/cpu_paths.rs`
    /// covers what the processor has): code that never ran is not chosen for anybody.
    pub(super) fn best() -> CpuPath {
        if cfg!(not(target_arch = "x86_64")) {
            return CpuPath::Scalar;
        }
        let widest = [CpuPath::Avx512, CpuPath::Avx2].into_iter().find(|path| path.is_available());
        widest.unwrap_or(CpuPath::Base)
    }

    /// Its loops; none for the scalar code or where the processor does not have it.
    pub(super) fn kernels(self) -> Option<&'static Kernels> {
        if !self.is_available() {
            return None;
        }
        match self {
            CpuPath::Scalar => None,
            CpuPath::Base => Some(&isa::BASE),
            #[cfg(target_arch = "x86_64")]
            CpuPath::Avx2 => Some(&isa::AVX2),
            #[cfg(target_arch = "x86_64")]
            CpuPath::Avx512 => Some(&isa::AVX512),
            #[cfg(not(target_arch = "x86_64"))]
            CpuPath::Avx2 | CpuPath::Avx512 => None,
        }
    }
}
