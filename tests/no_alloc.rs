//! After its first run a step allocates nothing, on any thread: the allocator of this binary counts.

#![cfg(feature = "cpu")]

mod common;

use common::{Case, generate};
use samedraw::device::{CpuDevice, Stream};
use samedraw::pipeline::{DType, HostRun, StagingRing, Variant, VerifyMode};
use samedraw::{Device, SamplingParams};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of any thread while `work` runs.
fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    work();
    ALLOCATIONS.load(Ordering::SeqCst) - before
}

/// Rows that keep several threads busy.
fn many_rows(force_topk: usize) -> Case {
    let row: Vec<f32> = (0..600).map(|v| (v * 37 % 101) as f32 * 0.1).collect();
    let rows: Vec<&[f32]> = vec![&row; 40];
    let params: Vec<SamplingParams> = (0..40)
        .map(|i| SamplingParams { top_k: 50, top_p: 0.9, min_p: 0.001, seq_seed: Some(i), ..Default::default() })
        .collect();
    Case { force_topk, ..Case::f32(&rows, &params) }
}

/// A batch whose drafts' logprobs are moved to the target's columns.
fn remapping() -> Case {
    let remaps = |case: &Case| {
        let verify = case.verify.as_ref().expect("verification");
        verify.mode == Some(VerifyMode::Rejection) && !verify.columns.is_empty() && case.force_topk > 0 && case.rows > 6
    };
    (0..10_000).map(|seed| generate::random(seed, true)).find(remaps).expect("some case remaps")
}

// One test alone in its binary: another one running beside it would be counted too. It is kept well below the minute
// after which the harness's own thread speaks up.
#[test]
fn steps_after_the_first_allocate_nothing() {
    let device: Arc<dyn Device> = Arc::new(CpuDevice::with_threads(4));
    assert!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))) > 0, "the allocator counts");

    let greedy = SamplingParams { seq_seed: Some(1), ..SamplingParams::greedy() };
    let argmax = Case::f32(&[&[0.5; 300]; 40].map(|row: &[f32; 300]| &row[..]), &[greedy]).with_tokens_alone();
    let row: Vec<f32> = (0..500).map(|v| (v % 89) as f32).collect();
    let half_rows: Vec<&[f32]> = vec![&row; 40];
    let cases = [
        ("plain", many_rows(0)),
        ("force-top-k", many_rows(64)),
        ("columns", Case { columns: true, ..many_rows(64) }),
        ("argmax", argmax),
        ("bf16", Case::half(DType::BF16, &half_rows, &[SamplingParams { seq_seed: Some(3), ..Default::default() }])),
        ("remap and verify", remapping()),
    ];
    for (name, case) in &cases {
        let mut run = HostRun::new(&device, &case.host()).expect("a step");
        let (sampler, step, stream) = run.parts();
        let step = *step;
        // SAFETY: the step's pointers belong to `run`.
        let mut once = || unsafe { sampler.step(stream, &step) }.expect("a step");
        once();
        let counted = allocations(|| (0..10).for_each(|_| once()));
        assert_eq!(counted, 0, "{name}: allocations in 10 steps");

        // SAFETY: as above.
        let graph = unsafe { sampler.capture(stream, &step, Variant::Default) }.expect("a graph");
        // SAFETY: as above.
        let replay = || unsafe { graph.replay(stream) }.expect("a replay");
        replay();
        let counted = allocations(|| (0..10).for_each(|_| replay()));
        assert_eq!(counted, 0, "{name}: allocations in 10 replays");

        let table = Arc::clone(sampler.table());
        let params = SamplingParams { top_k: 5, seq_seed: Some(8), ..Default::default() };
        // SAFETY: the stream is the run's own.
        let mut write = |slot: usize| unsafe {
            table.set(stream, slot % table.slots(), &params).expect("a slot");
            sampler.step(stream, &step).expect("a step");
        };
        write(0);
        let counted = allocations(|| (0..10).for_each(&mut write));
        assert_eq!(counted, 0, "{name}: allocations in 10 table writes and steps");
    }

    let stream = Stream::new(&device).expect("a stream");
    let mut ring = StagingRing::new(&device, 3, 4096).expect("a ring");
    let (positions, slots) = ([7i64; 96], [0i32; 96]);
    let mut stage = || {
        let mut area = ring.begin().expect("a free area");
        area.push(&positions).expect("room");
        area.push(&slots).expect("room");
        // SAFETY: the stream is alive.
        unsafe {
            area.upload(stream.raw()).expect("a copy");
            area.finish(stream.raw()).expect("an event");
        }
    };
    (0..3).for_each(|_| stage());
    assert_eq!(allocations(|| (0..10).for_each(|_| stage())), 0, "staging");
}
