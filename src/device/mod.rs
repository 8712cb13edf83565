//! Devices: one trait, three implementations.
//!
//! # Contract
//! A device has two halves. *Memory and order*: allocation, copies, streams, events, capture. *Stages*: it enqueues the
//! [`Stage`]s a plan lists. What runs is the plan's decision; a device decides only how (one launch or several, a row
//! split over blocks or not), always with the same bits, those of the sampling semantics.
//!
//! * The trait is object-safe; `Sampler<dyn Device>` works.
//! * Work on one stream runs in order; two threads that use one stream order their calls themselves. Nothing waits for the host unless its name says `synchronize`, `wait` or
//!   `elapsed`.
//! * Streams and pointers handed in by the caller are borrowed: never freed, never synchronised.
//! * [`Device::enqueue`] neither allocates nor synchronises nor compiles: [`Device::prepare`] did.
//! * A method that is given a pointer trusts it, and is `unsafe` for that reason.
//!
//! # How the stages map to the devices
//! | stage | CPU | CUDA | Ascend |
//! |---|---|---|---|
//! | `Select` | lists narrowed down around pivots (scalar: radix descent on the key), rows in parallel | one launch; a row a block or a cluster, descent in shared memory | tiles against a rising threshold into a list that stays (two launches when rows are split over cores) |
//! | `Argmax` | one scan | one launch | one launch, one more to merge split rows |
//! | `Sample` | one scan of the row in place, then lists; few rows are split over threads | one launch, the row read once into shared memory | one launch, a row a core; split rows are scanned, weighed and put together by one launch each |
//! | `Remap` | binary search of each draft id in the target's columns | one launch | one launch |
//! | `Verify` | rows in parallel, then requests | one launch; the last row to finish settles the requests | rows as `Sample`, one launch more to settle the requests |

use crate::error::{Error, Result, Unavailable};
use crate::pipeline::Limits;
use crate::pipeline::blocks::{RowBlock, VerifyBlock};
use std::fmt;
use std::sync::Arc;

mod absent;
#[cfg(feature = "ascend")]
pub mod ascend;
#[cfg(any(feature = "cuda", feature = "ascend"))]
mod cache;
#[cfg(feature = "cpu")]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(any(feature = "cuda", feature = "ascend"))]
mod hash;
mod memory;
mod timing;

pub use absent::Absent;
#[cfg(feature = "ascend")]
pub use ascend::AscendDevice;
#[cfg(feature = "cpu")]
pub use cpu::CpuDevice;
#[cfg(feature = "cuda")]
pub use cuda::CudaDevice;
pub use memory::{DeviceBuffer, Stream};
pub use timing::TimedGraph;

/// The CPU device, absent from this build.
#[cfg(not(feature = "cpu"))]
pub type CpuDevice = Absent<0>;
/// The CUDA device, absent from this build.
#[cfg(not(feature = "cuda"))]
pub type CudaDevice = Absent<1>;
/// The Ascend device, absent from this build.
#[cfg(not(feature = "ascend"))]
pub type AscendDevice = Absent<2>;

/// An address in a device's memory; 0 is null. On the CPU device it is the host address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[repr(transparent)]
pub struct DevPtr(pub u64);

impl DevPtr {
    /// The null pointer: absent.
    pub const NULL: DevPtr = DevPtr(0);

    /// Whether this is the null pointer.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `bytes` further on.
    pub fn offset(self, bytes: usize) -> DevPtr {
        DevPtr(self.0 + bytes as u64)
    }

    /// The address of host memory, which is device memory on the CPU device.
    pub fn from_host<T>(slice: &[T]) -> DevPtr {
        DevPtr(slice.as_ptr() as u64)
    }

    /// As [`from_host`](Self::from_host), for memory the device writes.
    pub fn from_host_mut<T>(slice: &mut [T]) -> DevPtr {
        DevPtr(slice.as_mut_ptr() as u64)
    }
}

/// A stream of the host stack or of ours: `CUstream`, `aclrtStream`, or any number on the CPU device. 0 is the default
/// stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[repr(transparent)]
pub struct RawStream(pub u64);

/// An event created by [`Device::create_event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct RawEvent(pub u64);

/// A graph instantiated by [`Device::end_capture`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct RawGraph(pub u64);

/// A kind of accelerator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Platform {
    /// The host's cores.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
    /// Ascend NPUs.
    Ascend,
}

impl Platform {
    /// Every platform, in the order the documentation lists them.
    pub const ALL: [Platform; 3] = [Platform::Cpu, Platform::Cuda, Platform::Ascend];

    /// Largest force-top-k, counted as min(N, V); `None` is no limit.
    pub const fn max_force_topk(self) -> Option<usize> {
        match self {
            Platform::Cpu => None,
            Platform::Cuda => Some(16384),
            Platform::Ascend => Some(4096),
        }
    }

    /// The name a command line uses.
    pub const fn name(self) -> &'static str {
        match self {
            Platform::Cpu => "cpu",
            Platform::Cuda => "cuda",
            Platform::Ascend => "ascend",
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its platform.
    pub platform: Platform,
    /// Its number on the platform.
    pub ordinal: usize,
    /// Its name: chip and what matters of its size.
    pub name: String,
    /// Whether its arithmetic was found to round as the semantics ask; false is the `inexact` state of section 11.
    pub exact: bool,
}

/// A stage's kind, without its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StageKind {
    /// Keep the first N tokens of the order, ids ascending.
    Select,
    /// Exact argmax of every row.
    Argmax,
    /// Process a row and draw its token.
    Sample,
    /// Move the drafts' logprobs to the target's columns.
    Remap,
    /// Process rows, verify their drafts, settle each request.
    Verify,
}

/// One step of a plan with its arguments.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Stage<'a> {
    /// [`StageKind::Select`].
    Select(&'a RowBlock),
    /// [`StageKind::Argmax`].
    Argmax(&'a RowBlock),
    /// [`StageKind::Sample`].
    Sample(&'a RowBlock),
    /// [`StageKind::Remap`].
    Remap(&'a RowBlock, &'a VerifyBlock),
    /// [`StageKind::Verify`].
    Verify(&'a RowBlock, &'a VerifyBlock),
}

impl Stage<'_> {
    /// The kind of this stage.
    pub fn kind(&self) -> StageKind {
        match self {
            Stage::Select(_) => StageKind::Select,
            Stage::Argmax(_) => StageKind::Argmax,
            Stage::Sample(_) => StageKind::Sample,
            Stage::Remap(..) => StageKind::Remap,
            Stage::Verify(..) => StageKind::Verify,
        }
    }
}

/// What a device implements. See the [module documentation](self) for the contract.
pub trait Device: Send + Sync + fmt::Debug {
    /// What this device is.
    fn info(&self) -> &DeviceInfo;

    // Memory and order.

    /// Allocates `bytes` (at least 1) of device memory, aligned to 256 bytes. The contents are unspecified.
    fn alloc(&self, bytes: usize) -> Result<DevPtr>;
    /// Frees memory of [`alloc`](Self::alloc).
    ///
    /// # Safety
    /// `ptr` came from `alloc(bytes)` of this device, is not freed yet, and no enqueued work uses it.
    unsafe fn free(&self, ptr: DevPtr, bytes: usize) -> Result<()>;
    /// Allocates `bytes` (at least 1) of host memory that asynchronous copies can use (pinned), aligned to 64 bytes.
    fn alloc_host(&self, bytes: usize) -> Result<*mut u8>;
    /// Frees memory of [`alloc_host`](Self::alloc_host).
    ///
    /// # Safety
    /// As for [`free`](Self::free).
    unsafe fn free_host(&self, ptr: *mut u8, bytes: usize) -> Result<()>;
    /// Enqueues a copy from host memory to device memory.
    ///
    /// # Safety
    /// Both ranges are valid for `bytes`; the source stays unchanged until the stream has passed this point.
    unsafe fn copy_to_device(&self, stream: RawStream, dst: DevPtr, src: *const u8, bytes: usize) -> Result<()>;
    /// Enqueues a copy from device memory to host memory.
    ///
    /// # Safety
    /// Both ranges are valid for `bytes`; the destination is not used until the stream has passed this point.
    unsafe fn copy_to_host(&self, stream: RawStream, dst: *mut u8, src: DevPtr, bytes: usize) -> Result<()>;
    /// Enqueues filling `bytes` of device memory with `value`.
    ///
    /// # Safety
    /// The range is valid for `bytes`.
    unsafe fn fill(&self, stream: RawStream, dst: DevPtr, value: u8, bytes: usize) -> Result<()>;
    /// Creates a stream of our own.
    fn create_stream(&self) -> Result<RawStream>;
    /// Destroys a stream of [`create_stream`](Self::create_stream).
    ///
    /// # Safety
    /// `stream` came from `create_stream` of this device and is not used again.
    unsafe fn destroy_stream(&self, stream: RawStream) -> Result<()>;
    /// Waits until everything enqueued on `stream` has run. For tests, command lines and tear-down, never for a step.
    ///
    /// # Safety
    /// `stream` is a live stream of this device.
    unsafe fn synchronize(&self, stream: RawStream) -> Result<()>;
    /// Creates an event; `timing` lets [`elapsed_ms`](Self::elapsed_ms) use it.
    fn create_event(&self, timing: bool) -> Result<RawEvent>;
    /// Destroys an event.
    ///
    /// # Safety
    /// `event` came from `create_event` of this device and is not used again.
    unsafe fn destroy_event(&self, event: RawEvent) -> Result<()>;
    /// Records `event` on `stream`.
    ///
    /// # Safety
    /// Both are live and of this device.
    unsafe fn record_event(&self, stream: RawStream, event: RawEvent) -> Result<()>;
    /// Whether the work before the last recording has run; true if it was never recorded. Does not wait.
    ///
    /// # Safety
    /// `event` is live and of this device.
    unsafe fn query_event(&self, event: RawEvent) -> Result<bool>;
    /// Milliseconds between two recorded timing events; waits for both.
    ///
    /// # Safety
    /// Both are live, were created with `timing`, and were recorded.
    unsafe fn elapsed_ms(&self, start: RawEvent, end: RawEvent) -> Result<f32>;
    /// Starts capturing what is enqueued on `stream` instead of running it.
    ///
    /// # Safety
    /// `stream` is a live stream of this device, not the default one.
    unsafe fn begin_capture(&self, stream: RawStream) -> Result<()>;
    /// Ends the capture and instantiates the graph.
    ///
    /// # Safety
    /// `stream` is capturing by [`begin_capture`](Self::begin_capture), on the same thread.
    unsafe fn end_capture(&self, stream: RawStream) -> Result<RawGraph>;
    /// Enqueues one replay of a graph.
    ///
    /// # Safety
    /// `graph` is live, and every pointer captured in it still is.
    unsafe fn launch_graph(&self, stream: RawStream, graph: RawGraph) -> Result<()>;
    /// Destroys a graph.
    ///
    /// # Safety
    /// `graph` came from `end_capture` of this device, no replay is in flight, and it is not used again.
    unsafe fn destroy_graph(&self, graph: RawGraph) -> Result<()>;

    // Stages.

    /// Scratch bytes a stage of `kind` needs at most for steps within `limits`.
    fn scratch_bytes(&self, kind: StageKind, limits: &Limits) -> usize;
    /// Compiles, loads and touches everything that steps within `limits` can reach.
    fn prepare(&self, limits: &Limits) -> Result<()>;
    /// Whether this device runs `stage` as given.
    ///
    /// # Errors
    /// What it does not support, by name.
    fn supports(&self, stage: &Stage<'_>) -> Result<()>;
    /// Enqueues one stage.
    ///
    /// # Safety
    /// Every pointer of the blocks is absent (0) where the block's documentation allows it, or valid on this device
    /// for what the block says is behind it until the stream has passed this point.
    unsafe fn enqueue(&self, stream: RawStream, stage: &Stage<'_>) -> Result<()>;
}

/// The N a device processes rows in: min(force_topk, V), V when `force_topk` is 0. The one place the platform limits
/// are checked.
///
/// # Errors
/// [`Error::ForceTopK`] when min(force_topk, V) is above the platform's limit; a step without force-top-k has none.
pub fn effective_columns(platform: Platform, force_topk: usize, vocab: usize) -> Result<usize> {
    if force_topk == 0 {
        return Ok(vocab);
    }
    let columns = force_topk.min(vocab);
    match platform.max_force_topk() {
        Some(limit) if columns > limit => Err(Error::ForceTopK { platform, requested: columns, limit }),
        _ => Ok(columns),
    }
}

/// Opens a device by the name a command line uses: `cpu`, `cuda`, `cuda:1`, `ascend`, `ascend:0`.
///
/// # Errors
/// [`Error::Unsupported`] for a name that is none of these, [`Error::Unavailable`] where the platform cannot be used.
pub fn open(name: &str) -> Result<Arc<dyn Device>> {
    let unknown = || Error::Unsupported { op: "open", what: format!("device {name:?} (cpu, cuda[:i] or ascend[:i])") };
    let (platform, ordinal) = match name.split_once(':') {
        None => (name, 0),
        Some((platform, number)) => (platform, number.parse::<usize>().map_err(|_| unknown())?),
    };
    match platform {
        "cpu" if !name.contains(':') => Ok(Arc::new(CpuDevice::open()?)),
        "cuda" => Ok(Arc::new(CudaDevice::open(ordinal)?)),
        "ascend" => Ok(Arc::new(AscendDevice::open(ordinal)?)),
        _ => Err(unknown()),
    }
}

/// One line of [`probe`]: a platform, and its first device or why there is none.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The platform.
    pub platform: Platform,
    /// Its first device, or why it cannot be used.
    pub state: Result<DeviceInfo, Unavailable>,
}

/// Looks at every platform. Never aborts on a host without a driver.
pub fn probe() -> Vec<Probe> {
    Platform::ALL
        .into_iter()
        .map(|platform| Probe {
            platform,
            state: match open(platform.name()) {
                Ok(device) => Ok(device.info().clone()),
                Err(Error::Unavailable(why)) => Err(why),
                Err(other) => Err(Unavailable { platform, reason: other.to_string(), tried: Vec::new() }),
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_counts_the_columns_there_are() {
        for (platform, force_topk, vocab, expected) in [
            (Platform::Cuda, 0, 200_000, Some(200_000)),
            (Platform::Cuda, 16_384, 200_000, Some(16_384)),
            (Platform::Cuda, 16_385, 200_000, None),
            (Platform::Cuda, 200_001, 200_000, None),
            (Platform::Cuda, 200_001, 16_384, Some(16_384)),
            (Platform::Cuda, 16_384, 5, Some(5)),
            (Platform::Ascend, 4_096, 200_000, Some(4_096)),
            (Platform::Ascend, 4_097, 200_000, None),
            (Platform::Cpu, 100_000, 200_000, Some(100_000)),
        ] {
            let refused = || {
                let limit = platform.max_force_topk().expect("a platform that refuses has a limit");
                Error::ForceTopK { platform, requested: force_topk.min(vocab), limit }
            };
            assert_eq!(
                effective_columns(platform, force_topk, vocab),
                expected.ok_or_else(refused),
                "{platform} {force_topk}"
            );
        }
    }
}
