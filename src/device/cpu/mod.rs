//! The CPU device: plain Rust, rows in parallel, logits read in place.
//!
//! Device memory is host memory and streams are names: work runs before `enqueue` returns. Capture records the blocks
//! and a replay runs them again, so that everything about graphs can be tested without a GPU.
//!
//! | file | what |
//! |---|---|
//! | `source` | a row of logits: masked, NaN removed, in place; the order of tokens |
//! | `descent` | the last token of a prefix, by count or by mass |
//! | `row` | a processed row and what is read off it |
//! | `stages`, `verify` | the stages |
//! | `access` | pointers and indices of a block |
//! | `lanes` | the same results from loops over vectors, where the processor has them |
//! | `pool` | the threads |

mod access;
mod descent;
mod float_env;
mod lanes;
mod pool;
mod row;
mod source;
mod stages;
#[cfg(test)]
mod tests;
mod verify;

use crate::device::{DevPtr, Device, DeviceInfo, Platform, RawEvent, RawGraph, RawStream, Stage, StageKind};
use crate::error::{Error, Result};
use crate::pipeline::Limits;
use crate::pipeline::blocks::{RowBlock, VerifyBlock};
use float_env::ExactMode;
pub use lanes::CpuPath;
use lanes::{Engine, Kernels, Slot};
use pool::Pool;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Instant;

const ALIGN: usize = 256;
/// About what a thread does of a row that is sampled.
const VALUES_PER_MICROSECOND: u64 = 1600;
/// About what it costs to send the two parts of the work that are split to all threads and to wait for them.
const SPLIT_MICROSECONDS: u64 = 100;
/// Work areas beyond one a thread.
const SPARE_SLOTS: usize = 4;

/// The host's cores as a device.
#[derive(Debug)]
pub struct CpuDevice {
    info: DeviceInfo,
    pool: Arc<Pool>,
    /// Lanes, if this device uses them.
    kernels: Option<&'static Kernels>,
    /// Work areas for the lanes: one a thread and a few more, for callers that find the pool busy.
    slots: Box<[Mutex<Slot>]>,
    /// Streams that are capturing; looked at without a lock when there are none.
    capturing: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    captures: HashMap<RawStream, Vec<Recorded>>,
    graphs: HashMap<RawGraph, Arc<[Recorded]>>,
    events: HashMap<RawEvent, Option<Instant>>,
}

/// One piece of captured work.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "boxing the blocks would make every step allocate")]
enum Recorded {
    Copy { dst: u64, src: u64, bytes: usize },
    Fill { dst: u64, value: u8, bytes: usize },
    Stage(StageKind, RowBlock, VerifyBlock),
}

impl CpuDevice {
    /// All of the host's cores, through threads that every device opened this way shares.
    ///
    /// # Errors
    /// None today; the signature is that of every device.
    pub fn open() -> Result<Self> {
        static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
        let cores = || std::thread::available_parallelism().map_or(1, |n| n.get());
        Ok(Self::build(Arc::clone(POOL.get_or_init(|| Arc::new(Pool::new(cores())))), CpuPath::best()))
    }

    /// `threads` threads of its own, the caller's counted in; 0 is taken as 1.
    pub fn with_threads(threads: usize) -> Self {
        Self::build(Arc::new(Pool::new(threads.max(1))), CpuPath::best())
    }

    /// As [`with_threads`](Self::with_threads), by the named path.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the processor does not have it.
    #[doc(hidden)]
    pub fn with_path(threads: usize, path: CpuPath) -> Result<Self> {
        if !path.is_available() {
            let what = format!("{path:?}: this processor does not have it");
            return Err(Error::Unsupported { op: "open", what });
        }
        Ok(Self::build(Arc::new(Pool::new(threads.max(1))), path))
    }

    fn build(pool: Arc<Pool>, path: CpuPath) -> Self {
        let threads = pool.threads();
        let name = format!("{} host thread{}", threads, if threads == 1 { "" } else { "s" });
        CpuDevice {
            info: DeviceInfo { platform: Platform::Cpu, ordinal: 0, name, exact: true },
            kernels: path.kernels(),
            slots: (0..threads + SPARE_SLOTS).map(|_| Mutex::new(Slot::EMPTY)).collect(),
            pool,
            capturing: AtomicUsize::new(0),
            state: Mutex::new(State::default()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(bytes: usize, cause: &str) -> Error {
        Error::OutOfMemory { op: "alloc", platform: Platform::Cpu, bytes, cause: cause.to_owned() }
    }

    /// Whether the rows of a step are done one after the other, each of them on all threads: where there are so few that
    /// most threads would have none.
    fn splits_rows(&self, b: &RowBlock) -> bool {
        let threads = self.pool.threads() as u64;
        let one = b.vocab / VALUES_PER_MICROSECOND;
        threads > 1 && b.from_columns == 0 && b.rows * (one / threads + SPLIT_MICROSECONDS) < one
    }

    /// Work areas that no other row uses now; `None`: the row goes without lanes.
    fn claim(&self) -> Option<MutexGuard<'_, Slot>> {
        self.kernels?;
        let first = pool::thread_number() % self.slots.len();
        let (before, from) = self.slots.split_at(first);
        from.iter().chain(before).find_map(|slot| match slot.try_lock() {
            Ok(slot) => Some(slot),
            Err(TryLockError::Poisoned(slot)) => Some(slot.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        })
    }

    fn layout(bytes: usize, align: usize) -> Result<Layout> {
        Layout::from_size_align(bytes.max(1), align).map_err(|error| Self::refused(bytes, &error.to_string()))
    }

    fn allocate(bytes: usize, align: usize) -> Result<*mut u8> {
        // Zeroed, because a buffer may be read back before anything wrote to it.
        // SAFETY: the layout has a size of at least 1.
        let ptr = unsafe { alloc_zeroed(Self::layout(bytes, align)?) };
        if ptr.is_null() {
            return Err(Self::refused(bytes, "the system's allocator has no more"));
        }
        Ok(ptr)
    }

    /// Runs `work` now, or records it where `stream` is capturing.
    ///
    /// # Safety
    /// As [`Device::enqueue`].
    unsafe fn submit(&self, stream: RawStream, work: Recorded) {
        if self.capturing.load(Ordering::Acquire) > 0
            && let Some(recorded) = self.state().captures.get_mut(&stream)
        {
            recorded.push(work);
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { self.execute(&work) };
    }

    /// # Safety
    /// As [`Device::enqueue`].
    unsafe fn execute(&self, work: &Recorded) {
        // SAFETY: the caller's promise.
        unsafe {
            match *work {
                Recorded::Copy { dst, src, bytes } => std::ptr::copy(src as *const u8, dst as *mut u8, bytes),
                Recorded::Fill { dst, value, bytes } => std::ptr::write_bytes(dst as *mut u8, value, bytes),
                Recorded::Stage(kind, ref b, ref v) => self.run_stage(kind, b, v),
            }
        }
    }

    /// # Safety
    /// As [`Device::enqueue`].
    unsafe fn run_stage(&self, kind: StageKind, b: &RowBlock, v: &VerifyBlock) {
        let each = |count: u64, f: &(dyn Fn(usize) + Sync)| {
            self.pool.run(count as usize, |index| {
                let _mode = ExactMode::enter();
                f(index);
            });
        };
        let row_by_row = |splits: bool, f: &(dyn Fn(usize, stages::Tools<'_>) + Sync)| {
            let threads = (splits && self.splits_rows(b)).then_some(&*self.pool);
            let one = |row| {
                let mut slot = self.claim();
                f(row, self.kernels.map(|k| Engine { k, threads }).zip(slot.as_deref_mut()));
            };
            if threads.is_some() {
                let _mode = ExactMode::enter();
                (0..b.rows as usize).for_each(one);
            } else {
                each(b.rows, &one);
            }
        };
        // SAFETY: the caller's promise; rows touch only slots of their own.
        unsafe {
            match kind {
                StageKind::Select => row_by_row(false, &|row, tools| stages::select(b, row, tools)),
                StageKind::Argmax => row_by_row(false, &|row, tools| stages::argmax(b, row, tools)),
                StageKind::Sample => row_by_row(true, &|row, tools| stages::sample(b, row, tools)),
                StageKind::Remap => each(b.rows, &|row| stages::remap(b, v, row)),
                StageKind::Verify => {
                    row_by_row(true, &|row, tools| verify::verify_row(b, v, row, tools));
                    each(v.requests, &|request| verify::settle(b, v, request));
                }
            }
        }
    }
}

impl Device for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, bytes: usize) -> Result<DevPtr> {
        Self::allocate(bytes, ALIGN).map(|ptr| DevPtr(ptr as u64))
    }

    unsafe fn free(&self, ptr: DevPtr, bytes: usize) -> Result<()> {
        // SAFETY: allocated by `alloc` with this layout.
        unsafe { dealloc(ptr.0 as *mut u8, Self::layout(bytes, ALIGN)?) };
        Ok(())
    }

    fn alloc_host(&self, bytes: usize) -> Result<*mut u8> {
        Self::allocate(bytes, ALIGN)
    }

    unsafe fn free_host(&self, ptr: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: allocated by `alloc_host` with this layout.
        unsafe { dealloc(ptr, Self::layout(bytes, ALIGN)?) };
        Ok(())
    }

    unsafe fn copy_to_device(&self, stream: RawStream, dst: DevPtr, src: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.submit(stream, Recorded::Copy { dst: dst.0, src: src as u64, bytes }) };
        Ok(())
    }

    unsafe fn copy_to_host(&self, stream: RawStream, dst: *mut u8, src: DevPtr, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.submit(stream, Recorded::Copy { dst: dst as u64, src: src.0, bytes }) };
        Ok(())
    }

    unsafe fn fill(&self, stream: RawStream, dst: DevPtr, value: u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.submit(stream, Recorded::Fill { dst: dst.0, value, bytes }) };
        Ok(())
    }

    fn create_stream(&self) -> Result<RawStream> {
        let mut state = self.state();
        state.next += 1;
        Ok(RawStream(state.next))
    }

    unsafe fn destroy_stream(&self, stream: RawStream) -> Result<()> {
        if self.state().captures.remove(&stream).is_some() {
            self.capturing.fetch_sub(1, Ordering::Release);
        }
        Ok(())
    }

    unsafe fn synchronize(&self, stream: RawStream) -> Result<()> {
        if self.capturing.load(Ordering::Acquire) > 0 && self.state().captures.contains_key(&stream) {
            return Err(Error::Capture { op: "synchronize", what: "the stream is capturing" });
        }
        Ok(())
    }

    fn create_event(&self, _timing: bool) -> Result<RawEvent> {
        let mut state = self.state();
        state.next += 1;
        let event = RawEvent(state.next);
        state.events.insert(event, None);
        Ok(event)
    }

    unsafe fn destroy_event(&self, event: RawEvent) -> Result<()> {
        self.state().events.remove(&event);
        Ok(())
    }

    unsafe fn record_event(&self, _stream: RawStream, event: RawEvent) -> Result<()> {
        match self.state().events.get_mut(&event) {
            Some(time) => *time = Some(Instant::now()),
            None => return Err(Error::argument("record_event", "event", event.0, "a live event of this device")),
        }
        Ok(())
    }

    unsafe fn query_event(&self, _event: RawEvent) -> Result<bool> {
        Ok(true)
    }

    unsafe fn elapsed_ms(&self, start: RawEvent, end: RawEvent) -> Result<f32> {
        let state = self.state();
        let time = |event: RawEvent| {
            let recorded = state.events.get(&event).copied().flatten();
            recorded.ok_or_else(|| Error::argument("elapsed_ms", "event", event.0, "a recorded event of this device"))
        };
        Ok(time(end)?.saturating_duration_since(time(start)?).as_secs_f32() * 1e3)
    }

    unsafe fn begin_capture(&self, stream: RawStream) -> Result<()> {
        let op = "begin_capture";
        if stream == RawStream::default() {
            return Err(Error::Capture { op, what: "the default stream cannot capture" });
        }
        let mut state = self.state();
        if state.captures.contains_key(&stream) {
            return Err(Error::Capture { op, what: "the stream is already capturing" });
        }
        state.captures.insert(stream, Vec::new());
        self.capturing.fetch_add(1, Ordering::Release);
        Ok(())
    }

    unsafe fn end_capture(&self, stream: RawStream) -> Result<RawGraph> {
        let mut state = self.state();
        let Some(recorded) = state.captures.remove(&stream) else {
            return Err(Error::Capture { op: "end_capture", what: "the stream is not capturing" });
        };
        self.capturing.fetch_sub(1, Ordering::Release);
        state.next += 1;
        let graph = RawGraph(state.next);
        state.graphs.insert(graph, recorded.into());
        Ok(graph)
    }

    unsafe fn launch_graph(&self, stream: RawStream, graph: RawGraph) -> Result<()> {
        let mut state = self.state();
        let Some(recorded) = state.graphs.get(&graph).cloned() else {
            return Err(Error::argument("launch_graph", "graph", graph.0, "a live graph of this device"));
        };
        if let Some(capture) = state.captures.get_mut(&stream) {
            capture.extend_from_slice(&recorded);
            return Ok(());
        }
        drop(state);
        // SAFETY: the caller's promise.
        recorded.iter().for_each(|work| unsafe { self.execute(work) });
        Ok(())
    }

    unsafe fn destroy_graph(&self, graph: RawGraph) -> Result<()> {
        self.state().graphs.remove(&graph);
        Ok(())
    }

    fn scratch_bytes(&self, _kind: StageKind, _limits: &Limits) -> usize {
        0
    }

    fn prepare(&self, limits: &Limits) -> Result<()> {
        if self.kernels.is_none() {
            return Ok(());
        }
        let grow = |slot: &Mutex<Slot>| slot.lock().unwrap_or_else(PoisonError::into_inner).grow(limits.vocab);
        self.slots.iter().try_for_each(grow)
    }

    fn supports(&self, _stage: &Stage<'_>) -> Result<()> {
        Ok(())
    }

    unsafe fn enqueue(&self, stream: RawStream, stage: &Stage<'_>) -> Result<()> {
        let (rows, verify) = match *stage {
            Stage::Select(b) | Stage::Argmax(b) | Stage::Sample(b) => (b, VerifyBlock::default()),
            Stage::Remap(b, v) | Stage::Verify(b, v) => (b, *v),
        };
        // SAFETY: the caller's promise.
        unsafe { self.submit(stream, Recorded::Stage(stage.kind(), *rows, verify)) };
        Ok(())
    }
}
