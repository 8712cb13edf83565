//! A CPU device whose recorded events never pass until they are let through, as a busy stream's do.

use samedraw::device::{CpuDevice, DevPtr, DeviceInfo, RawEvent, RawGraph, RawStream, Stage, StageKind};
use samedraw::{Device, Limits, Result};
use std::collections::HashSet;
use std::sync::Mutex;

/// See the module.
#[derive(Debug)]
pub struct SlowDevice {
    inner: CpuDevice,
    pending: Mutex<HashSet<RawEvent>>,
}

impl SlowDevice {
    /// On one thread.
    pub fn new() -> Self {
        SlowDevice { inner: CpuDevice::with_threads(1), pending: Mutex::default() }
    }

    /// Lets every recorded event pass.
    pub fn catch_up(&self) {
        self.pending.lock().expect("no panic while locked").clear();
    }
}

macro_rules! delegate {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)* $(unsafe fn $uname:ident($($uarg:ident: $uty:ty),*) -> $uout:ty;)*) => {
        $(fn $name(&self, $($arg: $ty),*) -> $out { self.inner.$name($($arg),*) })*
        $(unsafe fn $uname(&self, $($uarg: $uty),*) -> $uout {
            // SAFETY: the caller's promise.
            unsafe { self.inner.$uname($($uarg),*) }
        })*
    };
}

impl Device for SlowDevice {
    unsafe fn record_event(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        self.pending.lock().expect("no panic while locked").insert(event);
        // SAFETY: the caller's promise.
        unsafe { self.inner.record_event(stream, event) }
    }

    unsafe fn query_event(&self, event: RawEvent) -> Result<bool> {
        Ok(!self.pending.lock().expect("no panic while locked").contains(&event))
    }

    delegate! {
        fn info() -> &DeviceInfo;
        fn alloc(bytes: usize) -> Result<DevPtr>;
        fn alloc_host(bytes: usize) -> Result<*mut u8>;
        fn create_stream() -> Result<RawStream>;
        fn create_event(timing: bool) -> Result<RawEvent>;
        fn scratch_bytes(kind: StageKind, limits: &Limits) -> usize;
        fn prepare(limits: &Limits) -> Result<()>;
        fn supports(stage: &Stage<'_>) -> Result<()>;
        unsafe fn free(ptr: DevPtr, bytes: usize) -> Result<()>;
        unsafe fn free_host(ptr: *mut u8, bytes: usize) -> Result<()>;
        unsafe fn copy_to_device(stream: RawStream, dst: DevPtr, src: *const u8, bytes: usize) -> Result<()>;
        unsafe fn copy_to_host(stream: RawStream, dst: *mut u8, src: DevPtr, bytes: usize) -> Result<()>;
        unsafe fn fill(stream: RawStream, dst: DevPtr, value: u8, bytes: usize) -> Result<()>;
        unsafe fn destroy_stream(stream: RawStream) -> Result<()>;
        unsafe fn synchronize(stream: RawStream) -> Result<()>;
        unsafe fn destroy_event(event: RawEvent) -> Result<()>;
        unsafe fn elapsed_ms(start: RawEvent, end: RawEvent) -> Result<f32>;
        unsafe fn begin_capture(stream: RawStream) -> Result<()>;
        unsafe fn end_capture(stream: RawStream) -> Result<RawGraph>;
        unsafe fn launch_graph(stream: RawStream, graph: RawGraph) -> Result<()>;
        unsafe fn destroy_graph(graph: RawGraph) -> Result<()>;
        unsafe fn enqueue(stream: RawStream, stage: &Stage<'_>) -> Result<()>;
    }
}
