//! The `Device` trait in calls of the runtime.

use super::launch::{self, Arguments};
use super::memory::{ALIGN, Aligned};
use super::runtime::{acl, is_out_of_memory};
use super::sys::acl as sys;
use super::{AscendDevice, kernels};
use crate::device::{DevPtr, Device, DeviceInfo, Platform, RawEvent, RawGraph, RawStream, Stage, StageKind};
use crate::error::{Error, Result};
use crate::pipeline::Limits;
use crate::pipeline::blocks::VerifyBlock;
use std::ptr::null_mut;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

/// An event, and whether it was recorded: the runtime calls one that was not "not ready".
struct Event {
    raw: sys::aclrtEvent,
    recorded: AtomicBool,
}

pub(super) fn stream(raw: RawStream) -> sys::aclrtStream {
    raw.0 as sys::aclrtStream
}

fn graph(raw: RawGraph) -> sys::aclmdlRI {
    raw.0 as sys::aclmdlRI
}

/// # Safety
/// `raw` came from `create_event` and is not destroyed.
unsafe fn event<'a>(raw: RawEvent) -> &'a Event {
    // SAFETY: the caller's promise: the number is the address of a leaked box.
    unsafe { &*(raw.0 as *const Event) }
}

fn memory(op: &'static str, bytes: usize, error: Error) -> Error {
    match error {
        Error::Driver { call, code, ref message, .. } if is_out_of_memory(&error) => {
            let cause = format!("{call} failed with code {code}: {message}");
            Error::OutOfMemory { op, platform: Platform::Ascend, bytes, cause }
        }
        other => other,
    }
}

impl AscendDevice {
    /// Memory at whatever address the runtime gives; the context is current.
    fn malloc(&self, bytes: usize) -> Result<u64> {
        let mut ptr = null_mut();
        let policy = sys::ACL_MEM_MALLOC_HUGE_FIRST;
        // SAFETY: `ptr` is written.
        unsafe { acl!(self.runtime, "alloc", aclrtMalloc(&mut ptr, bytes, policy))? };
        Ok(ptr as u64)
    }

    /// Frees memory of [`malloc`](Self::malloc); the context is current.
    fn mfree(&self, op: &'static str, base: u64) -> Result<()> {
        // SAFETY: the callers free what `malloc` gave, once.
        unsafe { acl!(self.runtime, op, aclrtFree(base as *mut _)) }
    }

    /// Whether `raw` is capturing, without disturbing the capture; the context is current.
    ///
    /// # Safety
    /// `raw` is a live stream.
    unsafe fn is_capturing(&self, op: &'static str, raw: RawStream) -> Result<bool> {
        let (mut status, mut model) = (sys::ACL_MODEL_RI_CAPTURE_STATUS_NONE, null_mut());
        // SAFETY: the caller's promise; both variables are written.
        unsafe { acl!(self.runtime, op, aclmdlRICaptureGetInfo(stream(raw), &mut status, &mut model))? };
        Ok(status != sys::ACL_MODEL_RI_CAPTURE_STATUS_NONE)
    }
}

impl Device for AscendDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, bytes: usize) -> Result<DevPtr> {
        const OP: &str = "alloc";
        let bytes = bytes.max(1);
        let work = || {
            let base = self.malloc(bytes)?;
            if base.is_multiple_of(ALIGN as u64) {
                return Ok(DevPtr(base));
            }
            self.mfree(OP, base)?;
            Ok(DevPtr(self.aligned.align(self.malloc(Aligned::padded(bytes))?)))
        };
        let undo = |ptr: DevPtr| self.mfree(OP, self.aligned.base(ptr.0));
        self.context.making(OP, work, undo).map_err(|error| memory(OP, bytes, error))
    }

    unsafe fn free(&self, ptr: DevPtr, _bytes: usize) -> Result<()> {
        self.context.within("free", || self.mfree("free", self.aligned.base(ptr.0)))
    }

    fn alloc_host(&self, bytes: usize) -> Result<*mut u8> {
        const OP: &str = "alloc_host";
        let bytes = bytes.max(1);
        let work = || {
            let mut ptr = null_mut();
            // SAFETY: `ptr` is written; the runtime documents an alignment of 64 bytes.
            unsafe { acl!(self.runtime, OP, aclrtMallocHost(&mut ptr, bytes))? };
            Ok(ptr.cast())
        };
        // SAFETY: allocated above, told to nobody.
        let undo = |ptr: *mut u8| unsafe { acl!(self.runtime, OP, aclrtFreeHost(ptr.cast())) };
        self.context.making(OP, work, undo).map_err(|error| memory(OP, bytes, error))
    }

    unsafe fn free_host(&self, ptr: *mut u8, _bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        self.context.within("free_host", || unsafe { acl!(self.runtime, "free_host", aclrtFreeHost(ptr.cast())) })
    }

    unsafe fn copy_to_device(&self, on: RawStream, dst: DevPtr, src: *const u8, bytes: usize) -> Result<()> {
        const OP: &str = "copy_to_device";
        if bytes == 0 {
            return Ok(());
        }
        let (dst, src, kind) = (dst.0 as *mut _, src.cast(), sys::ACL_MEMCPY_HOST_TO_DEVICE);
        // SAFETY: the caller's promise. From memory that is not pinned the runtime copies before it returns.
        let copy = || unsafe { acl!(self.runtime, OP, aclrtMemcpyAsync(dst, bytes, src, bytes, kind, stream(on))) };
        self.context.within(OP, copy)
    }

    unsafe fn copy_to_host(&self, on: RawStream, dst: *mut u8, src: DevPtr, bytes: usize) -> Result<()> {
        const OP: &str = "copy_to_host";
        if bytes == 0 {
            return Ok(());
        }
        let (dst, src, kind) = (dst.cast(), src.0 as *const _, sys::ACL_MEMCPY_DEVICE_TO_HOST);
        // SAFETY: the caller's promise.
        let copy = || unsafe { acl!(self.runtime, OP, aclrtMemcpyAsync(dst, bytes, src, bytes, kind, stream(on))) };
        self.context.within(OP, copy)
    }

    unsafe fn fill(&self, on: RawStream, dst: DevPtr, value: u8, bytes: usize) -> Result<()> {
        const OP: &str = "fill";
        if bytes == 0 {
            return Ok(());
        }
        let (dst, value) = (dst.0 as *mut _, i32::from(value));
        // SAFETY: the caller's promise.
        let fill = || unsafe { acl!(self.runtime, OP, aclrtMemsetAsync(dst, bytes, value, bytes, stream(on))) };
        self.context.within(OP, fill)
    }

    fn create_stream(&self) -> Result<RawStream> {
        const OP: &str = "create_stream";
        let work = || {
            let mut raw = null_mut();
            // SAFETY: `raw` is written.
            unsafe { acl!(self.runtime, OP, aclrtCreateStream(&mut raw))? };
            Ok(RawStream(raw as u64))
        };
        // SAFETY: created above, told to nobody.
        let undo = |raw: RawStream| unsafe { acl!(self.runtime, OP, aclrtDestroyStream(stream(raw))) };
        self.context.making(OP, work, undo)
    }

    unsafe fn destroy_stream(&self, on: RawStream) -> Result<()> {
        const OP: &str = "destroy_stream";
        // SAFETY: the caller's promise.
        self.context.within(OP, || unsafe { acl!(self.runtime, OP, aclrtDestroyStream(stream(on))) })
    }

    unsafe fn synchronize(&self, on: RawStream) -> Result<()> {
        const OP: &str = "synchronize";
        self.context.within(OP, || {
            // SAFETY: the caller's promise.
            unsafe {
                // Waiting for a capturing stream would invalidate the capture; without the symbols there is none of ours.
                if on != RawStream::default() && self.runtime.check_capture(OP).is_ok() && self.is_capturing(OP, on)? {
                    return Err(Error::Capture { op: OP, what: "the stream is capturing" });
                }
                acl!(self.runtime, OP, aclrtSynchronizeStream(stream(on)))
            }
        })
    }

    fn create_event(&self, timing: bool) -> Result<RawEvent> {
        const OP: &str = "create_event";
        // Without the first flag a stream could not wait for the event.
        let flags = sys::ACL_EVENT_SYNC | if timing { sys::ACL_EVENT_TIME_LINE } else { 0 };
        let work = || {
            let mut raw = null_mut();
            // SAFETY: `raw` is written.
            unsafe { acl!(self.runtime, OP, aclrtCreateEventExWithFlag(&mut raw, flags))? };
            Ok(raw)
        };
        // SAFETY: created above, told to nobody.
        let undo = |raw| unsafe { acl!(self.runtime, OP, aclrtDestroyEvent(raw)) };
        let raw = self.context.making(OP, work, undo)?;
        let event = Box::new(Event { raw, recorded: AtomicBool::new(false) });
        Ok(RawEvent(Box::into_raw(event) as u64))
    }

    unsafe fn destroy_event(&self, raw: RawEvent) -> Result<()> {
        const OP: &str = "destroy_event";
        self.context.within(OP, || {
            // SAFETY: the caller's promise: made by `create_event`, not used again.
            unsafe { acl!(self.runtime, OP, aclrtDestroyEvent(event(raw).raw))? };
            // SAFETY: as above; what the runtime did not destroy stays whole.
            drop(unsafe { Box::from_raw(raw.0 as *mut Event) });
            Ok(())
        })
    }

    unsafe fn record_event(&self, on: RawStream, raw: RawEvent) -> Result<()> {
        const OP: &str = "record_event";
        self.context.within(OP, || {
            // SAFETY: the caller's promise.
            let event = unsafe { event(raw) };
            // SAFETY: as above.
            unsafe { acl!(self.runtime, OP, aclrtRecordEvent(event.raw, stream(on)))? };
            event.recorded.store(true, Ordering::Release);
            Ok(())
        })
    }

    unsafe fn query_event(&self, raw: RawEvent) -> Result<bool> {
        const OP: &str = "query_event";
        // SAFETY: the caller's promise.
        let event = unsafe { event(raw) };
        if !event.recorded.load(Ordering::Acquire) {
            return Ok(true);
        }
        self.context.within(OP, || {
            let mut status = sys::ACL_EVENT_RECORDED_STATUS_NOT_READY;
            // SAFETY: the caller's promise; `status` is written.
            unsafe { acl!(self.runtime, OP, aclrtQueryEventStatus(event.raw, &mut status))? };
            Ok(status == sys::ACL_EVENT_RECORDED_STATUS_COMPLETE)
        })
    }

    unsafe fn elapsed_ms(&self, start: RawEvent, end: RawEvent) -> Result<f32> {
        const OP: &str = "elapsed_ms";
        self.context.within(OP, || {
            let mut ms = 0.0;
            // SAFETY: the caller's promise; `ms` is written.
            unsafe {
                let (start, end) = (event(start).raw, event(end).raw);
                acl!(self.runtime, OP, aclrtSynchronizeEvent(start))?;
                acl!(self.runtime, OP, aclrtSynchronizeEvent(end))?;
                acl!(self.runtime, OP, aclrtEventElapsedTime(&mut ms, start, end))?;
            }
            Ok(ms)
        })
    }

    unsafe fn begin_capture(&self, on: RawStream) -> Result<()> {
        const OP: &str = "begin_capture";
        if on == RawStream::default() {
            return Err(Error::Capture { op: OP, what: "the default stream cannot capture" });
        }
        self.runtime.check_capture(OP)?;
        let work = || {
            // SAFETY: the caller's promise.
            unsafe {
                if self.is_capturing(OP, on)? {
                    return Err(Error::Capture { op: OP, what: "the stream is already capturing" });
                }
                // Other threads of the stack keep their synchronous calls.
                let mode = sys::ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
                acl!(self.runtime, OP, aclmdlRICaptureBegin(stream(on), mode))
            }
        };
        let undo = |()| {
            let mut captured = null_mut();
            // SAFETY: the capture began above, and nothing is in it.
            unsafe {
                acl!(self.runtime, OP, aclmdlRICaptureEnd(stream(on), &mut captured))?;
                acl!(self.runtime, OP, aclmdlRIDestroy(captured))
            }
        };
        self.context.making(OP, work, undo)
    }

    unsafe fn end_capture(&self, on: RawStream) -> Result<RawGraph> {
        const OP: &str = "end_capture";
        self.runtime.check_capture(OP)?;
        let work = || {
            let mut captured = null_mut();
            // SAFETY: the caller's promise; the handle is written.
            unsafe {
                if !self.is_capturing(OP, on)? {
                    return Err(Error::Capture { op: OP, what: "the stream is not capturing" });
                }
                acl!(self.runtime, OP, aclmdlRICaptureEnd(stream(on), &mut captured))?;
            }
            Ok(RawGraph(captured as u64))
        };
        // SAFETY: made above, told to nobody.
        let undo = |raw: RawGraph| unsafe { acl!(self.runtime, OP, aclmdlRIDestroy(graph(raw))) };
        self.context.making(OP, work, undo)
    }

    unsafe fn launch_graph(&self, on: RawStream, raw: RawGraph) -> Result<()> {
        const OP: &str = "launch_graph";
        // SAFETY: the caller's promise.
        self.context.within(OP, || unsafe { acl!(self.runtime, OP, aclmdlRIExecuteAsync(graph(raw), stream(on))) })
    }

    unsafe fn destroy_graph(&self, raw: RawGraph) -> Result<()> {
        const OP: &str = "destroy_graph";
        // SAFETY: the caller's promise.
        self.context.within(OP, || unsafe { acl!(self.runtime, OP, aclmdlRIDestroy(graph(raw))) })
    }

    fn scratch_bytes(&self, kind: StageKind, limits: &Limits) -> usize {
        kernels::scratch_bytes(self.vector_cores, kind, limits)
    }

    fn prepare(&self, _limits: &Limits) -> Result<()> {
        let _one = self.preparing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stages.get().is_none() {
            let kernels = self.load(&kernels::stages())?;
            // Nobody else sets it while the lock is held.
            let _ = self.stages.set(kernels);
        }
        Ok(())
    }

    fn supports(&self, stage: &Stage<'_>) -> Result<()> {
        let (Stage::Select(b) | Stage::Argmax(b) | Stage::Sample(b) | Stage::Remap(b, _) | Stage::Verify(b, _)) =
            *stage;
        let selected = b.columns < b.vocab || b.from_columns != 0 || stage.kind() == StageKind::Select;
        if selected && b.columns > kernels::MOST_SELECTED {
            let what = format!("{:?} over {} selected columns on ascend", stage.kind(), b.columns);
            return Err(Error::Unsupported { op: "supports", what });
        }
        Ok(())
    }

    unsafe fn enqueue(&self, on: RawStream, stage: &Stage<'_>) -> Result<()> {
        const OP: &str = "enqueue";
        let Some(kernels) = self.stages.get() else {
            return Err(Error::Unsupported { op: OP, what: "a stage before prepare has loaded the kernels".into() });
        };
        let none = VerifyBlock::default();
        let (rows, verify) = match *stage {
            Stage::Select(b) | Stage::Argmax(b) | Stage::Sample(b) => (b, &none),
            Stage::Remap(b, v) | Stage::Verify(b, v) => (b, v),
        };
        let of_rows = Arguments::default().and_block(rows)?;
        let of_both = of_rows.and_block(verify)?;
        self.context.within(OP, || {
            let launches = kernels::launches(self.vector_cores, stage);
            for launch in launches.items.iter().flatten() {
                let arguments = if launch.both { &of_both } else { &of_rows };
                let arguments = arguments.and(&launches.split.fields()[..launch.split_fields])?;
                // SAFETY: the caller's promise; the kernels are of this device and take these arguments.
                unsafe { launch::launch(self.runtime, stream(on), kernels[launch.kernel], launch.blocks, &arguments)? };
                self.launched.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })
    }
}
