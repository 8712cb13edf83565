//! How large a sampler's steps may be, and the work areas that follows from.

use crate::device::{DevPtr, Device, DeviceBuffer, StageKind};
use crate::error::{Error, Result};

/// Largest vocabulary: 2^23, so that a flat row's mass, 2^63, fits an unsigned 64-bit sum.
pub const MAX_VOCAB: usize = 1 << 23;
/// Alignment of a lent workspace and of the areas in it.
pub(super) const ALIGN: usize = 256;

/// The largest step a sampler is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Rows of a step.
    pub rows: usize,
    /// Vocabulary size, at most 2^23.
    pub vocab: usize,
    /// Largest force-top-k; 0 = never used.
    pub force_topk: usize,
    /// Whether steps verify drafts.
    pub verify: bool,
    /// Whether drafts come with column ids of their own, to be moved to the target's columns.
    pub remap: bool,
}

impl Limits {
    /// Steps of up to `rows` rows over `vocab` tokens, without force-top-k or verification.
    pub fn new(rows: usize, vocab: usize) -> Self {
        Limits { rows, vocab, force_topk: 0, verify: false, remap: false }
    }

    pub(super) fn check(&self) -> Result<()> {
        let refuse = |what, value: usize, limit: &str| Err(Error::argument("limits", what, value, limit));
        if self.rows == 0 || self.rows > i32::MAX as usize {
            return refuse("rows", self.rows, "1 to 2147483647");
        }
        if self.vocab == 0 || self.vocab > MAX_VOCAB {
            return refuse("vocab", self.vocab, "1 to 8388608");
        }
        Ok(())
    }

    /// Columns of the work areas.
    pub(super) fn columns(&self) -> usize {
        if self.force_topk == 0 { self.vocab } else { self.force_topk.min(self.vocab) }
    }
}

/// Where the work areas lie in the workspace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub column_values: usize,
    pub column_ids: usize,
    pub column_status: usize,
    pub remapped: usize,
    pub row_accepts: usize,
    pub scratch: usize,
    pub scratch_bytes: usize,
    pub bytes: usize,
}

impl Layout {
    pub(super) fn new<D: Device + ?Sized>(device: &D, limits: &Limits) -> Layout {
        let mut bytes = 0usize;
        let mut area = |size: usize| {
            let start = bytes;
            bytes = (start + size).next_multiple_of(ALIGN);
            start
        };
        let cells = |wanted: bool| if wanted { limits.rows * limits.columns() * 4 } else { 0 };
        let selects = limits.remap && limits.force_topk != 0;
        let kinds = [StageKind::Select, StageKind::Argmax, StageKind::Sample, StageKind::Remap, StageKind::Verify];
        let scratch_bytes = kinds.iter().map(|&kind| device.scratch_bytes(kind, limits)).max().unwrap_or(0);
        Layout {
            column_values: area(cells(selects)),
            column_ids: area(cells(selects)),
            column_status: area(limits.rows * 4),
            remapped: area(cells(limits.remap)),
            row_accepts: area(limits.rows * 4),
            scratch: area(scratch_bytes),
            scratch_bytes,
            bytes: bytes.max(ALIGN),
        }
    }
}

/// The work areas of one sampler: owned, or lent by a framework's allocator.
#[derive(Debug)]
pub(super) struct Workspace<D: Device + ?Sized> {
    pub base: DevPtr,
    pub layout: Layout,
    pub _owned: Option<DeviceBuffer<D>>,
}
