//! The type a device has in a build or a release that lacks it: it exists, and says why it cannot be opened.

use super::{DevPtr, Device, DeviceInfo, Platform, RawEvent, RawGraph, RawStream, Stage, StageKind};
use crate::error::{Error, Result, Unavailable};
use crate::pipeline::Limits;
use std::convert::Infallible;

/// A device that is not in this build. `P` is the platform's place in [`Platform::ALL`].
#[derive(Debug)]
pub struct Absent<const P: usize>(Infallible);

impl<const P: usize> Absent<P> {
    /// The reason there is none.
    pub fn unavailable() -> Unavailable {
        let platform = Platform::ALL[P];
        let compiled_in = match platform {
            Platform::Cpu => cfg!(feature = "cpu"),
            Platform::Cuda => cfg!(feature = "cuda"),
            Platform::Ascend => cfg!(feature = "ascend"),
        };
        let reason = if compiled_in {
            format!("this release has no {platform} device yet")
        } else {
            format!("built without the feature {:?}", platform.name())
        };
        Unavailable { platform, reason, tried: Vec::new() }
    }
}

impl Absent<0> {
    /// Always refused.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub fn open() -> Result<Self> {
        Err(Error::Unavailable(Self::unavailable()))
    }
}

macro_rules! open_by_ordinal {
    ($($p:literal),*) => {$(
        impl Absent<$p> {
            /// Always refused.
            ///
            /// # Errors
            /// [`Error::Unavailable`].
            pub fn open(_ordinal: usize) -> Result<Self> {
                Err(Error::Unavailable(Self::unavailable()))
            }
        }
    )*};
}
open_by_ordinal!(1, 2);

macro_rules! never {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)* $(unsafe fn $uname:ident($($uarg:ident: $uty:ty),*) -> $uout:ty;)*) => {
        $(fn $name(&self, $($arg: $ty),*) -> $out { $(let _ = $arg;)* match self.0 {} })*
        $(unsafe fn $uname(&self, $($uarg: $uty),*) -> $uout { $(let _ = $uarg;)* match self.0 {} })*
    };
}

impl<const P: usize> Device for Absent<P> {
    never! {
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
        unsafe fn record_event(stream: RawStream, event: RawEvent) -> Result<()>;
        unsafe fn query_event(event: RawEvent) -> Result<bool>;
        unsafe fn elapsed_ms(start: RawEvent, end: RawEvent) -> Result<f32>;
        unsafe fn begin_capture(stream: RawStream) -> Result<()>;
        unsafe fn end_capture(stream: RawStream) -> Result<RawGraph>;
        unsafe fn launch_graph(stream: RawStream, graph: RawGraph) -> Result<()>;
        unsafe fn destroy_graph(graph: RawGraph) -> Result<()>;
        unsafe fn enqueue(stream: RawStream, stage: &Stage<'_>) -> Result<()>;
    }
}
