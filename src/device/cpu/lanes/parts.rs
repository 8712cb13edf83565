//! A row in parts, one a thread: integer sums and maxima do not depend on who adds what.

use super::super::float_env::ExactMode;
use super::super::pool::Pool;
use super::isa::Row;
use super::kernels::BLOCK;
use std::sync::{Mutex, PoisonError};

/// Least values of a part.
const PART: usize = 32 * BLOCK;

/// What lets every thread have a pointer.
#[derive(Clone, Copy)]
pub struct Shared<T>(T);

// SAFETY: a pointer on its own does nothing; who reads through it or writes to its own part says why that is sound.
unsafe impl<T> Sync for Shared<T> {}

impl<T: Copy> Shared<T> {
    pub fn new(pointer: T) -> Self {
        Shared(pointer)
    }

    /// By a method, so that a closure captures the whole.
    pub fn get(&self) -> T {
        self.0
    }
}

/// Calls `f(start, len)` for parts of `n` values that begin at whole blocks, on all threads if there are any, and merges
/// the results. Does not allocate.
pub fn in_parts<T: Copy + Send>(
    threads: Option<&Pool>,
    n: usize,
    f: impl Fn(usize, usize) -> T + Sync,
    merge: impl Fn(T, T) -> T + Sync,
) -> Option<T> {
    let parts = threads.map_or(1, |pool| pool.threads().min(n / PART));
    let (Some(pool), 2..) = (threads, parts) else { return Some(f(0, n)) };
    let size = n.div_ceil(parts).next_multiple_of(BLOCK);
    let merged = Mutex::new(None);
    pool.run(n.div_ceil(size), |part| {
        let _mode = ExactMode::enter();
        let start = part * size;
        let found = f(start, size.min(n - start));
        let mut merged = merged.lock().unwrap_or_else(PoisonError::into_inner);
        *merged = Some(merged.map_or(found, |others| merge(others, found)));
    });
    merged.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Row {
    /// The row from value `index` on.
    ///
    /// # Safety
    /// It has at least as many.
    pub unsafe fn from(self, index: usize) -> Row {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Row::F32(p) => Row::F32(p.add(index)),
                Row::F16(p) => Row::F16(p.add(index)),
                Row::BF16(p) => Row::BF16(p.add(index)),
            }
        }
    }
}
