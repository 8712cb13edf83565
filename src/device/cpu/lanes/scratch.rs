//! The work areas of a thread, sized when a sampler is made.

use super::kernels::{W, blocks, segments};
use crate::device::Platform;
use crate::error::{Error, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;

/// An array whose pages cost nothing until they are touched: most of a work area never is.
pub struct Area<T: bytemuck::Zeroable + Copy> {
    ptr: NonNull<T>,
    len: usize,
}

// SAFETY: the memory belongs to this value alone.
unsafe impl<T: bytemuck::Zeroable + Copy + Send> Send for Area<T> {}

impl<T: bytemuck::Zeroable + Copy> Area<T> {
    const EMPTY: Area<T> = Area { ptr: NonNull::dangling(), len: 0 };

    fn new(len: usize) -> Result<Self> {
        let bytes = len.saturating_mul(size_of::<T>());
        let refused = Error::OutOfMemory {
            op: "prepare",
            platform: Platform::Cpu,
            bytes,
            cause: "the allocator refused a work area".into(),
        };
        let Ok(layout) = Layout::array::<T>(len) else { return Err(refused) };
        if layout.size() == 0 {
            return Ok(Self::EMPTY);
        }
        // SAFETY: the layout has a size.
        match NonNull::new(unsafe { alloc_zeroed(layout) }.cast()) {
            Some(ptr) => Ok(Area { ptr, len }),
            None => Err(refused),
        }
    }

    /// Its start.
    pub fn ptr(&mut self) -> *mut T {
        self.ptr.as_ptr()
    }
}

impl<T: bytemuck::Zeroable + Copy> Drop for Area<T> {
    fn drop(&mut self) {
        if self.len > 0
            && let Ok(layout) = Layout::array::<T>(self.len)
        {
            // SAFETY: allocated in `new` with this layout.
            unsafe { dealloc(self.ptr.as_ptr().cast(), layout) };
        }
    }
}

impl<T: bytemuck::Zeroable + Copy> fmt::Debug for Area<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements", self.len)
    }
}

/// Values with their indices in the row.
#[derive(Debug)]
pub struct Pair {
    pub values: Area<f32>,
    pub indices: Area<u32>,
}

/// What processing one row needs.
#[derive(Debug)]
pub struct Scratch {
    /// Longest row.
    pub len: usize,
    /// The clean values of a row that cannot be read in place.
    pub clean: Area<f32>,
    /// Group maxima.
    pub groups: Area<f32>,
    /// Sums of masses, a block each.
    pub sums: Area<u64>,
    /// As `sums`, for what is on the way to the result.
    pub other_sums: Area<u64>,
    /// The N columns.
    pub columns: Pair,
    /// The kept tokens.
    pub kept: Pair,
    /// What a selection narrows down.
    pub work: Area<f32>,
    pub spare: Area<f32>,
}

impl Scratch {
    const EMPTY: Scratch = Scratch {
        len: 0,
        clean: Area::EMPTY,
        groups: Area::EMPTY,
        sums: Area::EMPTY,
        other_sums: Area::EMPTY,
        columns: Pair { values: Area::EMPTY, indices: Area::EMPTY },
        kept: Pair { values: Area::EMPTY, indices: Area::EMPTY },
        work: Area::EMPTY,
        spare: Area::EMPTY,
    };

    /// Work areas for rows of up to `len` values; without `lists`, for rows that nothing is selected from.
    fn new(len: usize, lists: bool) -> Result<Scratch> {
        // Packing writes whole vectors.
        let listed = if lists { len + 2 * W } else { 0 };
        let pair = || Ok(Pair { values: Area::new(listed)?, indices: Area::new(listed)? });
        Ok(Scratch {
            len,
            clean: Area::new(len)?,
            groups: Area::new(segments(len) * W)?,
            sums: Area::new(blocks(len) + 1)?,
            other_sums: Area::new(blocks(len) + 1)?,
            columns: pair()?,
            kept: pair()?,
            work: Area::new(listed.max(segments(len) * W))?,
            spare: Area::new(listed)?,
        })
    }
}

/// The work areas a thread takes for a row.
#[derive(Debug)]
pub struct Slot {
    pub main: Scratch,
    /// For the logits as handed in, while `main` still holds the processed row.
    pub raw: Scratch,
}

impl Slot {
    pub const EMPTY: Slot = Slot { main: Scratch::EMPTY, raw: Scratch::EMPTY };

    /// Makes room for rows of `len` values.
    pub fn grow(&mut self, len: usize) -> Result<()> {
        if len > self.main.len {
            *self = Slot { main: Scratch::new(len, true)?, raw: Scratch::new(len, false)? };
        }
        Ok(())
    }
}
