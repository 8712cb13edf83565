//! Graphs of the stack around us: captured in the strictest mode, replayed without a pause, at any number of live rows.

use super::common::Rng;
use super::{Case, cpu, gpu};
use libloading::Library;
use samedraw::SamplingParams;
use samedraw::device::cuda::CudaDevice;
use samedraw::device::{Device, RawGraph, RawStream, Stream};
use samedraw::pipeline::{HostRun, Index, Variant};
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// The driver as a stack calls it by itself.
struct Driver(Library);

impl Driver {
    /// The driver the device uses, its primary context current on this thread.
    fn open() -> Driver {
        let path = std::env::var("SAMEDRAW_CUDA_DRIVER").ok().filter(|path| !path.is_empty());
        // SAFETY: the device has opened it already.
        let driver = Driver(unsafe { Library::new(path.as_deref().unwrap_or("libcuda.so.1")) }.expect("the driver"));
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: the signatures are the driver's; each call writes one variable. The context is never given back, as a
        // stack keeps it.
        unsafe {
            let get: libloading::Symbol<unsafe extern "C" fn(*mut c_int, c_int) -> c_uint> =
                driver.0.get(c"cuDeviceGet").unwrap();
            assert_eq!(get(&mut device, 0), 0);
            let retain: libloading::Symbol<unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_uint> =
                driver.0.get(c"cuDevicePrimaryCtxRetain").unwrap();
            assert_eq!(retain(&mut context, device), 0);
            let push: libloading::Symbol<unsafe extern "C" fn(*mut c_void) -> c_uint> =
                driver.0.get(c"cuCtxPushCurrent_v2").unwrap();
            assert_eq!(push(context), 0);
        }
        driver
    }

    /// Starts a capture in the global mode: whatever might synchronise or allocate anywhere in the process fails it.
    unsafe fn begin_global_capture(&self, stream: RawStream) {
        const GLOBAL: c_uint = 0;
        // SAFETY: the signature is the driver's; the stream is the caller's promise.
        let code = unsafe {
            let begin: libloading::Symbol<unsafe extern "C" fn(*mut c_void, c_uint) -> c_uint> =
                self.0.get(c"cuStreamBeginCapture_v2").unwrap();
            begin(stream.0 as *mut c_void, GLOBAL)
        };
        assert_eq!(code, 0, "cuStreamBeginCapture in the global mode");
    }

    unsafe fn end_capture(&self, stream: RawStream) -> RawGraph {
        let (mut graph, mut exec) = (null_mut(), null_mut());
        // SAFETY: as above.
        unsafe {
            let end: libloading::Symbol<unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_uint> =
                self.0.get(c"cuStreamEndCapture").unwrap();
            assert_eq!(end(stream.0 as *mut c_void, &mut graph), 0, "cuStreamEndCapture");
            let make: libloading::Symbol<unsafe extern "C" fn(*mut *mut c_void, *mut c_void, c_ulonglong) -> c_uint> =
                self.0.get(c"cuGraphInstantiateWithFlags").unwrap();
            assert_eq!(make(&mut exec, graph, 0), 0, "cuGraphInstantiateWithFlags");
            let destroy: libloading::Symbol<unsafe extern "C" fn(*mut c_void) -> c_uint> =
                self.0.get(c"cuGraphDestroy").unwrap();
            assert_eq!(destroy(graph), 0);
        }
        RawGraph(exec as u64)
    }
}

/// 64 rows of 3000 logits with filters of every kind, tokens alone.
fn case() -> Case {
    let mut rng = Rng::new(64);
    let rows: Vec<Vec<f32>> = (0..64).map(|_| (0..3000).map(|_| 2.0 * rng.normal()).collect()).collect();
    let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
    let params: Vec<SamplingParams> = (0..64u64)
        .map(|n| SamplingParams {
            seq_seed: Some(n),
            top_p: if n % 3 == 0 { 0.9 } else { 1.0 },
            top_k: if n % 4 == 0 { 200 } else { -1 },
            min_p: if n % 5 == 0 { 0.01 } else { 0.0 },
            ..SamplingParams::default()
        })
        .collect();
    Case { row_to_slot: Some((0..64).collect()), ..Case::f32(&rows, &params) }.with_tokens_alone()
}

#[test]
fn a_capture_in_the_global_mode_succeeds() {
    let _turn = super::alone();
    let Some(device) = gpu("a_capture_in_the_global_mode_succeeds", None) else { return };
    let driver = Driver::open();
    let case = case();
    let want = case.run(&cpu(), "on the CPU");
    let mut run = HostRun::new(&device, &case.host()).expect("a step");
    let stream = Stream::new(&device).expect("a stream");
    let launched = device.launches();
    {
        let (sampler, step, _) = run.parts();
        let step = *step;
        // SAFETY: the run's pointers and the stream outlive the graph.
        unsafe {
            driver.begin_global_capture(stream.raw());
            sampler.step(stream.raw(), &step).expect("a step within the stack's capture");
            let graph = driver.end_capture(stream.raw());
            assert_eq!(device.launches() - launched, 1, "one launch for a plain step");
            assert!(run.read().expect("outputs").tokens.iter().all(|&token| token == -7777), "capturing ran the step");
            device.launch_graph(stream.raw(), graph).expect("a replay");
            stream.synchronize().expect("replayed");
            device.destroy_graph(graph).expect("destroyed");
        }
    }
    assert_eq!(run.read().expect("outputs").tokens, want.tokens);
}

/// Pinned host memory for copies that the host does not wait for.
struct Pinned {
    device: Arc<CudaDevice>,
    at: *mut u8,
    bytes: usize,
}

impl Pinned {
    fn new<T: bytemuck::NoUninit>(device: &Arc<CudaDevice>, data: &[T]) -> Self {
        let (at, bytes) = (device.alloc_host(size_of_val(data)).expect("pinned memory"), size_of_val(data));
        // SAFETY: the memory is ours and holds as many bytes.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr().cast(), at, bytes) };
        Pinned { device: Arc::clone(device), at, bytes }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`; the tests wait for the copies before.
        let _ = unsafe { self.device.free_host(self.at, self.bytes) };
    }
}

/// One graph, 40 replays enqueued without waiting for any, each with other positions and another number of live rows in
/// device memory: fresh draws, the CPU's tokens, padding rows untouched.
#[test]
fn replays_draw_afresh_at_any_number_of_live_rows() {
    let _turn = super::among_others();
    const REPLAYS: usize = 40;
    let Some(device) = gpu("replays_draw_afresh_at_any_number_of_live_rows", None) else { return };
    let (case, cpu) = (case(), cpu());
    let rows = case.rows;
    let live = |replay: usize| [64, 17, 1, 0, 63, 33, 64, 2][replay % 8];
    let positions = |replay: usize| -> Vec<i64> { (0..rows as i64).map(|row| 100 * row + replay as i64).collect() };
    let slots =
        |replay: usize| -> Vec<i32> { (0..rows as i32).map(|row| if row < live(replay) { row } else { -1 }).collect() };
    let mut run = HostRun::new(&device, &case.host()).expect("a step");
    let stream = Stream::new(&device).expect("a stream");
    let untouched = vec![-7777i64; rows];
    let staged: Vec<(Pinned, Pinned, Pinned)> = (0..REPLAYS)
        .map(|replay| {
            (
                Pinned::new(&device, &positions(replay)),
                Pinned::new(&device, &slots(replay)),
                Pinned::new(&device, &untouched),
            )
        })
        .collect();
    let poison = Pinned::new(&device, &untouched);
    let (sampler, step, _) = run.parts();
    let step = *step;
    let (Some(Index { ptr: slot_ptr, .. }), Some(Index { ptr: tokens, .. })) = (step.row_to_slot, step.outputs.tokens)
    else {
        panic!("explicit slots and tokens")
    };
    // SAFETY: every pointer belongs to `run` or to pinned memory that outlives the wait.
    unsafe {
        let graph = sampler.capture(stream.raw(), &step, Variant::Default).expect("a graph");
        let launched = device.launches();
        for (at, slots, out) in &staged {
            device.copy_to_device(stream.raw(), step.positions, at.at, at.bytes).expect("a copy");
            device.copy_to_device(stream.raw(), slot_ptr, slots.at, slots.bytes).expect("a copy");
            device.copy_to_device(stream.raw(), tokens, poison.at, poison.bytes).expect("a copy");
            graph.replay(stream.raw()).expect("a replay");
            device.copy_to_host(stream.raw(), out.at, tokens, out.bytes).expect("a copy");
        }
        stream.synchronize().expect("all replays");
        assert_eq!(device.launches(), launched, "a replay launches nothing itself");
    }
    let mut distinct = std::collections::BTreeSet::new();
    for (replay, (_, _, out)) in staged.iter().enumerate() {
        // SAFETY: the copy into it has been waited for; it holds one i64 a row.
        let got = unsafe { std::slice::from_raw_parts(out.at.cast::<i64>(), rows) };
        let moved = Case { positions: Some(positions(replay)), row_to_slot: Some(slots(replay)), ..case.clone() };
        assert_eq!(got, moved.run(&cpu, "on the CPU").tokens, "replay {replay}, {} live rows", live(replay));
        if live(replay) > 0 {
            distinct.insert(got[0]);
        }
    }
    assert!(distinct.len() > 20, "fresh draws: {} tokens of row 0", distinct.len());
}
