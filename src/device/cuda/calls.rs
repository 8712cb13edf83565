//! The `Device` trait in calls of the driver.

use super::kernels;
use super::launch::launch;
use super::modules::Modules;
use super::{CudaDevice, driver, stream};
use crate::device::{DevPtr, Device, DeviceInfo, Platform, RawEvent, RawGraph, RawStream, Stage, StageKind};
use crate::error::{Error, Result};
use crate::pipeline::Limits;
use crate::pipeline::blocks::VerifyBlock;
use cudarc::driver::sys;
use std::ptr::null_mut;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// The driver's code for work that has not run yet.
const NOT_READY: i64 = sys::CUresult::CUDA_ERROR_NOT_READY as i64;
const NO_MEMORY: i64 = sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as i64;
const NON_BLOCKING: u32 = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
const WITH_TIMING: u32 = sys::CUevent_flags::CU_EVENT_DEFAULT as u32;
const WITHOUT_TIMING: u32 = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;

fn event(raw: RawEvent) -> sys::CUevent {
    raw.0 as sys::CUevent
}

fn graph(raw: RawGraph) -> sys::CUgraphExec {
    raw.0 as sys::CUgraphExec
}

fn memory(op: &'static str, bytes: usize, error: Error) -> Error {
    match error {
        Error::Driver { code: NO_MEMORY, ref call, ref message, .. } => {
            let cause = format!("{call} failed with code {NO_MEMORY}: {message}");
            Error::OutOfMemory { op, platform: Platform::Cuda, bytes, cause }
        }
        other => other,
    }
}

impl CudaDevice {
    /// Whether `raw` is capturing, without disturbing the capture.
    ///
    /// # Safety
    /// `raw` is a live stream; the context is current.
    unsafe fn is_capturing(&self, op: &'static str, raw: RawStream) -> Result<bool> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the caller's promise.
        unsafe { driver::cuStreamIsCapturing(op, stream(raw), &mut status)? };
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }
}

impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, bytes: usize) -> Result<DevPtr> {
        const OP: &str = "alloc";
        let _current = self.context.enter(OP)?;
        let mut ptr = 0;
        // SAFETY: `ptr` is written.
        unsafe { driver::cuMemAlloc_v2(OP, &mut ptr, bytes.max(1)) }.map_err(|error| memory(OP, bytes, error))?;
        Ok(DevPtr(ptr))
    }

    unsafe fn free(&self, ptr: DevPtr, _bytes: usize) -> Result<()> {
        let _current = self.context.enter("free")?;
        // SAFETY: the caller's promise.
        unsafe { driver::cuMemFree_v2("free", ptr.0) }
    }

    fn alloc_host(&self, bytes: usize) -> Result<*mut u8> {
        const OP: &str = "alloc_host";
        let _current = self.context.enter(OP)?;
        let mut ptr = null_mut();
        // SAFETY: `ptr` is written. Pinned memory comes in pages, so it is aligned to 64 bytes.
        unsafe { driver::cuMemHostAlloc(OP, &mut ptr, bytes.max(1), 0) }.map_err(|error| memory(OP, bytes, error))?;
        Ok(ptr.cast())
    }

    unsafe fn free_host(&self, ptr: *mut u8, _bytes: usize) -> Result<()> {
        let _current = self.context.enter("free_host")?;
        // SAFETY: the caller's promise.
        unsafe { driver::cuMemFreeHost("free_host", ptr.cast()) }
    }

    unsafe fn copy_to_device(&self, on: RawStream, dst: DevPtr, src: *const u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.context.enter("copy_to_device")?;
        // SAFETY: the caller's promise.
        unsafe { driver::cuMemcpyHtoDAsync_v2("copy_to_device", dst.0, src.cast(), bytes, stream(on)) }
    }

    unsafe fn copy_to_host(&self, on: RawStream, dst: *mut u8, src: DevPtr, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.context.enter("copy_to_host")?;
        // SAFETY: the caller's promise.
        unsafe { driver::cuMemcpyDtoHAsync_v2("copy_to_host", dst.cast(), src.0, bytes, stream(on)) }
    }

    unsafe fn fill(&self, on: RawStream, dst: DevPtr, value: u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let _current = self.context.enter("fill")?;
        // SAFETY: the caller's promise.
        unsafe { driver::cuMemsetD8Async("fill", dst.0, value, bytes, stream(on)) }
    }

    fn create_stream(&self) -> Result<RawStream> {
        let _current = self.context.enter("create_stream")?;
        let mut raw = null_mut();
        // SAFETY: `raw` is written. A stream that does not block works beside the stack's default stream.
        unsafe { driver::cuStreamCreate("create_stream", &mut raw, NON_BLOCKING)? };
        Ok(RawStream(raw as u64))
    }

    unsafe fn destroy_stream(&self, on: RawStream) -> Result<()> {
        let _current = self.context.enter("destroy_stream")?;
        // SAFETY: the caller's promise.
        unsafe { driver::cuStreamDestroy_v2("destroy_stream", stream(on)) }
    }

    unsafe fn synchronize(&self, on: RawStream) -> Result<()> {
        const OP: &str = "synchronize";
        let _current = self.context.enter(OP)?;
        // SAFETY: the caller's promise.
        unsafe {
            // Waiting for a capturing stream would invalidate the capture.
            if self.is_capturing(OP, on)? {
                return Err(Error::Capture { op: OP, what: "the stream is capturing" });
            }
            driver::cuStreamSynchronize(OP, stream(on))
        }
    }

    fn create_event(&self, timing: bool) -> Result<RawEvent> {
        let _current = self.context.enter("create_event")?;
        let mut raw = null_mut();
        let flags = if timing { WITH_TIMING } else { WITHOUT_TIMING };
        // SAFETY: `raw` is written.
        unsafe { driver::cuEventCreate("create_event", &mut raw, flags)? };
        Ok(RawEvent(raw as u64))
    }

    unsafe fn destroy_event(&self, raw: RawEvent) -> Result<()> {
        let _current = self.context.enter("destroy_event")?;
        // SAFETY: the caller's promise.
        unsafe { driver::cuEventDestroy_v2("destroy_event", event(raw)) }
    }

    unsafe fn record_event(&self, on: RawStream, raw: RawEvent) -> Result<()> {
        let _current = self.context.enter("record_event")?;
        // SAFETY: the caller's promise.
        unsafe { driver::cuEventRecord("record_event", event(raw), stream(on)) }
    }

    unsafe fn query_event(&self, raw: RawEvent) -> Result<bool> {
        let _current = self.context.enter("query_event")?;
        // SAFETY: the caller's promise.
        match unsafe { driver::cuEventQuery("query_event", event(raw)) } {
            Ok(()) => Ok(true),
            Err(Error::Driver { code: NOT_READY, .. }) => Ok(false),
            Err(other) => Err(other),
        }
    }

    unsafe fn elapsed_ms(&self, start: RawEvent, end: RawEvent) -> Result<f32> {
        const OP: &str = "elapsed_ms";
        let _current = self.context.enter(OP)?;
        // SAFETY: the caller's promise.
        unsafe {
            driver::cuEventSynchronize(OP, event(start))?;
            driver::cuEventSynchronize(OP, event(end))?;
            self.driver.elapsed_ms(OP, event(start), event(end))
        }
    }

    unsafe fn begin_capture(&self, on: RawStream) -> Result<()> {
        const OP: &str = "begin_capture";
        if on == RawStream::default() {
            return Err(Error::Capture { op: OP, what: "the default stream cannot capture" });
        }
        let _current = self.context.enter(OP)?;
        // SAFETY: the caller's promise.
        unsafe {
            if self.is_capturing(OP, on)? {
                return Err(Error::Capture { op: OP, what: "the stream is already capturing" });
            }
            // Enqueuing calls nothing that a capture forbids, so what other threads do meanwhile is their affair: in the
            // global mode an allocation of theirs would fail, and would invalidate this capture.
            let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            driver::cuStreamBeginCapture_v2(OP, stream(on), mode)
        }
    }

    unsafe fn end_capture(&self, on: RawStream) -> Result<RawGraph> {
        const OP: &str = "end_capture";
        let _current = self.context.enter(OP)?;
        let (mut captured, mut exec) = (null_mut(), null_mut());
        // SAFETY: the caller's promise; both handles are written, and the graph is not needed once instantiated.
        unsafe {
            if !self.is_capturing(OP, on)? {
                return Err(Error::Capture { op: OP, what: "the stream is not capturing" });
            }
            driver::cuStreamEndCapture(OP, stream(on), &mut captured)?;
            let instantiated = driver::cuGraphInstantiateWithFlags(OP, &mut exec, captured, 0);
            driver::cuGraphDestroy(OP, captured)?;
            instantiated?;
        }
        Ok(RawGraph(exec as u64))
    }

    unsafe fn launch_graph(&self, on: RawStream, raw: RawGraph) -> Result<()> {
        let _current = self.context.enter("launch_graph")?;
        // SAFETY: the caller's promise.
        unsafe { driver::cuGraphLaunch("launch_graph", graph(raw), stream(on)) }
    }

    unsafe fn destroy_graph(&self, raw: RawGraph) -> Result<()> {
        let _current = self.context.enter("destroy_graph")?;
        // SAFETY: the caller's promise.
        unsafe { driver::cuGraphExecDestroy("destroy_graph", graph(raw)) }
    }

    fn scratch_bytes(&self, kind: StageKind, limits: &Limits) -> usize {
        kernels::scratch_bytes(self.card(), kind, limits)
    }

    fn prepare(&self, _limits: &Limits) -> Result<()> {
        let _one_at_a_time = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if self.modules.get().is_none() {
            let _current = self.context.enter("prepare")?;
            let loaded = Modules::load(self.card, self.driver.version)?;
            // The lock is held, so nothing was set in between.
            self.modules.get_or_init(|| loaded);
        }
        Ok(())
    }

    fn supports(&self, _stage: &Stage<'_>) -> Result<()> {
        // There are kernels for every stage; to look for them here would be to choose the launches of a step twice.
        Ok(())
    }

    unsafe fn enqueue(&self, on: RawStream, stage: &Stage<'_>) -> Result<()> {
        const OP: &str = "enqueue";
        let Some(modules) = self.modules.get() else {
            return Err(Error::Unsupported { op: OP, what: "a stage before prepare has loaded the kernels".into() });
        };
        let none = VerifyBlock::default();
        let (rows, verify) = match stage {
            Stage::Select(rows) | Stage::Argmax(rows) | Stage::Sample(rows) => (*rows, &none),
            Stage::Remap(rows, verify) | Stage::Verify(rows, verify) => (*rows, *verify),
        };
        let _current = self.context.enter(OP)?;
        for one in kernels::launches(modules.card(), stage).iter() {
            let function = modules.function(one)?;
            // SAFETY: the context is current and the function of it; streams and pointers are the caller's promise.
            unsafe { launch(self.driver, modules.card(), function, one, stream(on), rows, verify)? };
            self.launched.fetch_add(1, Ordering::Relaxed);
            if let Some(count) =
                one.cluster.checked_ilog2().and_then(|log| self.clustered.get((log as usize).wrapping_sub(1)))
            {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}
