//! Logits on the device, more of them than its caches hold.

use super::rows::{self, Character, Type};
use samedraw::device::{DeviceBuffer, Stream};
use samedraw::pipeline::{DType, Index, Mask};
use samedraw::{Device, Error, Result};
use std::sync::Arc;

/// Rows that differ from one another; more of them would take longer to make and no time to tell apart.
pub const POOL: usize = 48;

/// Rows of one kind: the first [`POOL`] of them over and over, each time at another place.
pub struct Inputs {
    logits: DeviceBuffer<dyn Device>,
    mask: Option<(DeviceBuffer<dyn Device>, usize)>,
    rows: usize,
    pub vocab: usize,
    pub dtype: DType,
    row_bytes: usize,
}

/// As many rows as take `bytes` at least, and as 4 steps of `step_rows` need.
pub fn rows_for(bytes: usize, row_bytes: usize, step_rows: usize) -> usize {
    bytes.div_ceil(row_bytes).max(4 * step_rows)
}

impl Inputs {
    /// `rows` rows, or half as many, and so on down to `least`, where the device has no room.
    pub fn new(
        device: &Arc<dyn Device>,
        stream: &Stream<dyn Device>,
        (character, dtype, vocab): (Character, Type, usize),
        rows: usize,
        least: usize,
    ) -> Result<Inputs> {
        let values = rows::values(character, POOL, vocab);
        let mut inputs = Self::of_pool(device, stream, (&values, dtype, vocab), rows, least)?;
        inputs.mask = match rows::mask(character, POOL, vocab) {
            Some(words) => Some((DeviceBuffer::from_slice(device, stream, &words)?, words.len() / POOL)),
            None => None,
        };
        Ok(inputs)
    }

    /// As [`new`](Self::new), of these rows.
    pub fn of_pool(
        device: &Arc<dyn Device>,
        stream: &Stream<dyn Device>,
        (values, dtype, vocab): (&[f32], Type, usize),
        rows: usize,
        least: usize,
    ) -> Result<Inputs> {
        let (pool, dtype) = dtype.encode(values);
        let row_bytes = vocab * dtype.bytes();
        let mut rows = rows;
        let logits = loop {
            match DeviceBuffer::new(device, rows * row_bytes) {
                Err(Error::OutOfMemory { .. }) if rows / 2 >= least => rows /= 2,
                other => break other?,
            }
        };
        for start in (0..rows * row_bytes).step_by(pool.len()) {
            let bytes = pool.len().min(rows * row_bytes - start);
            // SAFETY: the range lies within the buffer; `pool` outlives the wait below, which an early return skips only
            // when the device no longer copies.
            unsafe { device.copy_to_device(stream.raw(), logits.ptr().offset(start), pool.as_ptr(), bytes)? };
        }
        stream.synchronize()?;
        Ok(Inputs { logits, mask: None, rows, vocab, dtype, row_bytes })
    }

    /// How many steps of `rows` rows they are enough for.
    pub fn steps_of(&self, rows: usize) -> usize {
        self.rows / rows
    }

    /// Bytes of `rows` rows.
    pub fn bytes_of(&self, rows: usize) -> usize {
        rows * self.row_bytes
    }

    /// First row of step `step` of `rows` rows each, one of those there is room for.
    pub fn start(&self, step: usize, rows: usize) -> samedraw::device::DevPtr {
        self.logits.ptr().offset(step * self.bytes_of(rows))
    }

    /// Their mask, with the row of each row in `index`.
    pub fn mask(&self, index: Index) -> Option<Mask> {
        let (words, stride) = self.mask.as_ref()?;
        Some(Mask { ptr: words.ptr(), rows: POOL, stride: *stride, index: Some(index) })
    }
}
