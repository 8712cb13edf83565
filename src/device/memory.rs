//! Owning handles over a device's raw memory and streams.

use super::{DevPtr, Device, RawStream};
use crate::error::{Error, Result};
use std::sync::Arc;

/// Device memory that is freed on drop.
#[derive(Debug)]
pub struct DeviceBuffer<D: Device + ?Sized> {
    ptr: DevPtr,
    bytes: usize,
    device: Arc<D>,
}

impl<D: Device + ?Sized> DeviceBuffer<D> {
    /// Allocates `bytes`, rounded up to at least 1; the contents are unspecified.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the device refuses.
    pub fn new(device: &Arc<D>, bytes: usize) -> Result<Self> {
        let bytes = bytes.max(1);
        Ok(DeviceBuffer { ptr: device.alloc(bytes)?, bytes, device: Arc::clone(device) })
    }

    /// Allocates room for `data` and copies it there, waiting for the copy.
    ///
    /// # Errors
    /// As [`new`](Self::new), and whatever the copy reports.
    pub fn from_slice<T: bytemuck::NoUninit>(device: &Arc<D>, stream: &Stream<D>, data: &[T]) -> Result<Self> {
        let buffer = Self::new(device, size_of_val(data))?;
        buffer.write(stream, 0, data)?;
        Ok(buffer)
    }

    /// Copies `data` to element `start` and on, in order with the work on `stream`, waiting for the copy.
    ///
    /// # Errors
    /// [`Error::Argument`] when the buffer ends before the data; whatever the copy reports.
    pub fn write<T: bytemuck::NoUninit>(&self, stream: &Stream<D>, start: usize, data: &[T]) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(data);
        let offset = start.saturating_mul(size_of::<T>());
        if offset.saturating_add(bytes.len()) > self.bytes {
            let limit = format!("the buffer holds {}, {offset} of them before the start", self.bytes);
            return Err(Error::argument("write", "bytes", bytes.len(), limit));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: the range lies within the buffer; the source outlives the wait.
        unsafe {
            self.device.copy_to_device(stream.raw, self.ptr.offset(offset), bytes.as_ptr(), bytes.len())?;
            self.device.synchronize(stream.raw)
        }
    }

    /// Copies the first elements back, waiting for the stream.
    ///
    /// # Errors
    /// [`Error::Argument`] when `out` is longer than the buffer; whatever the copy reports.
    pub fn read<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(
        &self,
        stream: &Stream<D>,
        out: &mut [T],
    ) -> Result<()> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(out);
        if bytes.len() > self.bytes {
            return Err(Error::argument("read", "bytes", bytes.len(), format!("the buffer holds {}", self.bytes)));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: both ranges hold `bytes.len()` bytes; the wait comes before `out` is used again.
        unsafe {
            self.device.copy_to_host(stream.raw, bytes.as_mut_ptr(), self.ptr, bytes.len())?;
            self.device.synchronize(stream.raw)
        }
    }

    /// Where it is.
    pub fn ptr(&self) -> DevPtr {
        self.ptr
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<D: Device + ?Sized> Drop for DeviceBuffer<D> {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this size; work that used it was waited for by whoever enqueued it.
        // A failure here has no caller to go to.
        let _ = unsafe { self.device.free(self.ptr, self.bytes) };
    }
}

/// A stream of our own that is destroyed on drop.
#[derive(Debug)]
pub struct Stream<D: Device + ?Sized> {
    raw: RawStream,
    device: Arc<D>,
}

impl<D: Device + ?Sized> Stream<D> {
    /// Creates a stream.
    ///
    /// # Errors
    /// What the device reports.
    pub fn new(device: &Arc<D>) -> Result<Self> {
        Ok(Stream { raw: device.create_stream()?, device: Arc::clone(device) })
    }

    /// The raw stream.
    pub fn raw(&self) -> RawStream {
        self.raw
    }

    /// Waits until everything enqueued has run.
    ///
    /// # Errors
    /// What the device reports, including faults of earlier asynchronous work.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream is ours and alive.
        unsafe { self.device.synchronize(self.raw) }
    }
}

impl<D: Device + ?Sized> Drop for Stream<D> {
    fn drop(&mut self) {
        // SAFETY: created in `new`, not used after this.
        let _ = unsafe { self.device.destroy_stream(self.raw) };
    }
}
