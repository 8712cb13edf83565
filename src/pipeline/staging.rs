//! Host arrays on their way to the device: a ring of pinned areas, polled and never waited on.

use crate::device::{DevPtr, Device, DeviceBuffer, RawEvent, RawStream};
use crate::error::{Error, Result};
use std::sync::Arc;

/// Alignment of the arrays in an area.
const ALIGN: usize = 16;

/// `areas` pairs of a pinned host area and a device area, each used by one step at a time.
///
/// Not for use inside a capture: a replay would copy whatever the area holds by then.
#[derive(Debug)]
pub struct StagingRing<D: Device + ?Sized> {
    areas: Vec<Area<D>>,
    next: usize,
    bytes: usize,
    device: Arc<D>,
}

#[derive(Debug)]
struct Area<D: Device + ?Sized> {
    host: HostBuffer<D>,
    target: DeviceBuffer<D>,
    done: Event<D>,
}

impl<D: Device + ?Sized> StagingRing<D> {
    /// A ring of `areas` areas of `bytes` each.
    ///
    /// # Errors
    /// [`Error::Argument`] when either is 0; what the device reports.
    pub fn new(device: &Arc<D>, areas: usize, bytes: usize) -> Result<Self> {
        if areas == 0 || bytes == 0 {
            return Err(Error::argument("staging ring", "areas * bytes", 0, "at least one area of one byte"));
        }
        let area = || {
            Ok(Area {
                host: HostBuffer::new(device, bytes)?,
                target: DeviceBuffer::new(device, bytes)?,
                done: Event::new(device)?,
            })
        };
        let areas = (0..areas).map(|_| area()).collect::<Result<_>>()?;
        Ok(StagingRing { areas, next: 0, bytes, device: Arc::clone(device) })
    }

    /// Takes the next area.
    ///
    /// # Errors
    /// [`Error::StagingBusy`] while the work that last used it has not finished.
    pub fn begin(&mut self) -> Result<StagingArea<'_, D>> {
        let index = self.next;
        if !self.areas[index].done.query()? {
            return Err(Error::StagingBusy { areas: self.areas.len() });
        }
        self.next = (index + 1) % self.areas.len();
        Ok(StagingArea { area: &self.areas[index], device: &*self.device, limit: self.bytes, used: 0 })
    }
}

/// One area in use: push arrays, upload them, run the step, finish.
#[derive(Debug)]
pub struct StagingArea<'a, D: Device + ?Sized> {
    area: &'a Area<D>,
    device: &'a D,
    limit: usize,
    used: usize,
}

impl<D: Device + ?Sized> StagingArea<'_, D> {
    /// Copies `data` into the area and says where it will be on the device.
    ///
    /// # Errors
    /// [`Error::Argument`] when the area is full.
    pub fn push<T: bytemuck::NoUninit>(&mut self, data: &[T]) -> Result<DevPtr> {
        let bytes: &[u8] = bytemuck::cast_slice(data);
        let start = self.used.next_multiple_of(ALIGN);
        if bytes.len() > self.limit.saturating_sub(start) {
            let limit = format!("the area holds {} bytes, {start} are used", self.limit);
            return Err(Error::argument("staging", "bytes", bytes.len(), limit));
        }
        // SAFETY: `start + bytes.len()` is within the pinned area, which nothing in flight reads (begin polled it).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.area.host.ptr.add(start), bytes.len()) };
        self.used = start + bytes.len();
        Ok(self.area.target.ptr().offset(start))
    }

    /// Enqueues the copy of everything pushed, in one piece.
    ///
    /// # Errors
    /// What the device reports.
    ///
    /// # Safety
    /// `stream` is a live stream of the device; [`finish`](Self::finish) follows on it, before the area is dropped.
    pub unsafe fn upload(&self, stream: RawStream) -> Result<()> {
        // SAFETY: both areas hold `used` bytes and stay as they are until `finish`'s event has passed.
        unsafe { self.copy_to(stream, self.area.target.ptr()) }
    }

    /// Enqueues the copy of everything pushed to a place of the caller's.
    ///
    /// # Errors
    /// What the device reports.
    ///
    /// # Safety
    /// As [`upload`](Self::upload), and `target` has room for what was pushed.
    pub unsafe fn copy_to(&self, stream: RawStream, target: DevPtr) -> Result<()> {
        if self.used == 0 {
            return Ok(());
        }
        // SAFETY: the pinned area holds `used` bytes and is not reused before the event of `finish`; the target is the
        // caller's promise.
        unsafe { self.device.copy_to_device(stream, target, self.area.host.ptr, self.used) }
    }

    /// Marks the end of the work that uses the area; it is free again once the stream has passed this point.
    ///
    /// # Errors
    /// What the device reports.
    ///
    /// # Safety
    /// `stream` is the stream of that work.
    pub unsafe fn finish(self, stream: RawStream) -> Result<()> {
        // SAFETY: the event is the ring's own.
        unsafe { self.device.record_event(stream, self.area.done.raw) }
    }
}

#[derive(Debug)]
struct HostBuffer<D: Device + ?Sized> {
    ptr: *mut u8,
    bytes: usize,
    device: Arc<D>,
}

// SAFETY: the memory belongs to this value alone; access goes through `&mut StagingRing`.
unsafe impl<D: Device + ?Sized> Send for HostBuffer<D> {}
// SAFETY: as above; a shared reference gives no access to the memory.
unsafe impl<D: Device + ?Sized> Sync for HostBuffer<D> {}

impl<D: Device + ?Sized> HostBuffer<D> {
    fn new(device: &Arc<D>, bytes: usize) -> Result<Self> {
        Ok(HostBuffer { ptr: device.alloc_host(bytes)?, bytes, device: Arc::clone(device) })
    }
}

impl<D: Device + ?Sized> Drop for HostBuffer<D> {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this size; a copy in flight is the caller's to wait for, as for any buffer.
        let _ = unsafe { self.device.free_host(self.ptr, self.bytes) };
    }
}

#[derive(Debug)]
struct Event<D: Device + ?Sized> {
    raw: RawEvent,
    device: Arc<D>,
}

impl<D: Device + ?Sized> Event<D> {
    fn new(device: &Arc<D>) -> Result<Self> {
        Ok(Event { raw: device.create_event(false)?, device: Arc::clone(device) })
    }

    fn query(&self) -> Result<bool> {
        // SAFETY: the event is ours and alive.
        unsafe { self.device.query_event(self.raw) }
    }
}

impl<D: Device + ?Sized> Drop for Event<D> {
    fn drop(&mut self) {
        // SAFETY: created in `new`, not used after this.
        let _ = unsafe { self.device.destroy_event(self.raw) };
    }
}
