//! The CUDA device on a GPU: graphs, streams and threads of the stack around it. Values are compared with those of
//! `tests/data`, which no device computed. Skipped, with a line on stderr, where there is no GPU; a failure instead if
//! SAMEDRAW_REQUIRE_CUDA=1.

use samedraw::device::cuda::{CudaDevice, Switches};
use samedraw::device::{CpuDevice, DevPtr, Device, RawStream, Stream};
use samedraw::pipeline::{HostRun, Variant};
use samedraw::step_file::{ResultDocument, StepFile};
use samedraw::{Error, Step};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn gpu(test: &str) -> Option<Arc<CudaDevice>> {
    match CudaDevice::open(0) {
        Ok(device) => Some(Arc::new(device)),
        Err(Error::Unavailable(why)) => {
            assert!(std::env::var("SAMEDRAW_REQUIRE_CUDA").is_err(), "SAMEDRAW_REQUIRE_CUDA is set, but {why}");
            eprintln!("SKIPPED {test}: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn vector(name: &str) -> (StepFile, ResultDocument) {
    let path =
        |end: &str| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data")).join(format!("{name}.{end}"));
    (StepFile::read(path("safetensors")).unwrap(), ResultDocument::read(path("expected.json")).unwrap())
}

/// The tokens a document expects, row after row.
fn tokens(document: &ResultDocument) -> Vec<i64> {
    document.requests.iter().flat_map(|request| request.tokens.iter().copied()).collect()
}

/// Runs a vector's step `enqueue`d by the caller and returns the tokens.
fn run_with(run: &mut HostRun<CudaDevice>, enqueue: impl FnOnce(&mut HostRun<CudaDevice>)) -> Vec<i64> {
    enqueue(run);
    run.read().unwrap().tokens
}

#[test]
fn a_plain_step_is_one_launch() {
    let Some(device) = gpu("a_plain_step_is_one_launch") else { return };
    for name in ["worked_prefill", "prefill_bitmask", "prefill_forced_topn", "decode_one_hot", "decode_chain"] {
        let (step, expected) = vector(name);
        let mut run = step.bring(&device, None).unwrap();
        let before = device.launches();
        assert_eq!(run.run().unwrap().tokens, tokens(&expected), "{name}");
        assert_eq!(device.launches() - before, 1, "{name}");
    }
}

/// A step captured once draws, at every replay, what the inputs then in device memory ask for.
#[test]
fn a_replay_reads_its_inputs_anew() {
    let Some(device) = gpu("a_replay_reads_its_inputs_anew") else { return };
    let (step, expected) = vector("worked_prefill");
    let mut run = step.bring(&device, None).unwrap();
    let stream = Stream::new(&device).unwrap();
    let positions = {
        let (_, step, _) = run.parts();
        step.positions
    };
    let rows = tokens(&expected).len();
    let captured = {
        let (sampler, step, _) = run.parts();
        let step = *step;
        // SAFETY: the run's pointers stay alive as long as the run; the stream is ours.
        unsafe { sampler.capture(stream.raw(), &step, Variant::Default) }.unwrap()
    };
    let replay = |run: &mut HostRun<CudaDevice>| {
        run_with(run, |_| {
            // SAFETY: as above.
            unsafe { captured.replay(stream.raw()) }.unwrap();
            stream.synchronize().unwrap();
        })
    };
    assert_eq!(replay(&mut run), tokens(&expected));
    assert_eq!(replay(&mut run), tokens(&expected), "the same inputs, the same tokens");

    // Other positions, the same graph: what the CPU device draws for them, at 40 positions in turn.
    let cpu = Arc::new(CpuDevice::open().unwrap());
    let mut differs = 0;
    for n in 0..40i64 {
        let moved: Vec<i64> = (0..rows as i64).map(|row| 1000 * n + row).collect();
        // SAFETY: the buffer holds one i64 a row; the copy is waited for.
        unsafe {
            device.copy_to_device(stream.raw(), positions, moved.as_ptr().cast(), rows * 8).unwrap();
        }
        stream.synchronize().unwrap();
        let got = replay(&mut run);
        let mut on_cpu = step.bring(&cpu, None).unwrap();
        {
            let (sampler, cpu_step, cpu_stream) = on_cpu.parts();
            let cpu_step = Step { positions: DevPtr::from_host(&moved), ..*cpu_step };
            // SAFETY: `moved` outlives the step, which the CPU device has run when it returns.
            unsafe { sampler.step(cpu_stream, &cpu_step) }.unwrap();
        }
        assert_eq!(got, on_cpu.read().unwrap().tokens, "positions {moved:?}");
        differs += usize::from(got != tokens(&expected));
    }
    assert!(differs > 0, "every position drew the same tokens");
}

/// A stream made by someone else is launched on and nothing more: it works afterwards.
#[test]
fn a_borrowed_stream_is_left_alone() {
    let Some(device) = gpu("a_borrowed_stream_is_left_alone") else { return };
    let stack = Arc::new(CudaDevice::open(0).unwrap());
    let borrowed = Stream::new(&stack).unwrap();
    let (step, expected) = vector("prefill_small");
    for _ in 0..3 {
        let device = Arc::new(CudaDevice::open(0).unwrap());
        let mut run = step.bring(&device, None).unwrap();
        let got = run_with(&mut run, |run| {
            let (sampler, step, _) = run.parts();
            let step = *step;
            // SAFETY: the run's pointers and the stream are alive.
            unsafe { sampler.step(borrowed.raw(), &step) }.unwrap();
            borrowed.synchronize().unwrap();
        });
        assert_eq!(got, tokens(&expected));
    }
    drop(device);
    borrowed.synchronize().unwrap();
    let event = stack.create_event(true).unwrap();
    // SAFETY: the event and the stream are alive.
    unsafe {
        stack.record_event(borrowed.raw(), event).unwrap();
        assert!(stack.elapsed_ms(event, event).unwrap() >= 0.0);
        stack.destroy_event(event).unwrap();
    }
}

#[test]
fn threads_share_a_device() {
    let Some(device) = gpu("threads_share_a_device") else { return };
    std::thread::scope(|scope| {
        for name in ["worked_prefill", "decode_rejection", "prefill_bf16_ties", "decode_chain"] {
            let device = &device;
            scope.spawn(move || {
                let (step, expected) = vector(name);
                for _ in 0..5 {
                    assert_eq!(step.bring(device, None).unwrap().run().unwrap().tokens, tokens(&expected), "{name}");
                }
            });
        }
    });
}

/// A stack loads and frees memory on other threads while a step is captured; neither notices the other.
#[test]
fn a_capture_and_allocations_on_another_thread_get_along() {
    let Some(device) = gpu("a_capture_and_allocations_on_another_thread_get_along") else { return };
    let (step, expected) = vector("worked_prefill");
    let mut run = step.bring(&device, None).unwrap();
    let stream = Stream::new(&device).unwrap();
    let (begun, done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !begun.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            for _ in 0..10 {
                let memory = device.alloc(1 << 20).unwrap();
                // SAFETY: allocated above and not used.
                unsafe { device.free(memory, 1 << 20) }.unwrap();
                let pinned = device.alloc_host(1 << 16).unwrap();
                // SAFETY: as above.
                unsafe { device.free_host(pinned, 1 << 16) }.unwrap();
            }
            done.store(true, Ordering::Release);
        });
        // SAFETY: the run's pointers and the stream outlive the graph.
        unsafe {
            device.begin_capture(stream.raw()).unwrap();
            begun.store(true, Ordering::Release);
            while !done.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let (sampler, step, _) = run.parts();
            let step = *step;
            sampler.step(stream.raw(), &step).unwrap();
            let graph = device.end_capture(stream.raw()).unwrap();
            device.launch_graph(stream.raw(), graph).unwrap();
            stream.synchronize().unwrap();
            device.destroy_graph(graph).unwrap();
        }
    });
    assert_eq!(run.read().unwrap().tokens, tokens(&expected));
}

#[test]
fn the_same_without_clusters() {
    let Some(_) = gpu("the_same_without_clusters") else { return };
    let switches = Switches { no_clusters: true, ..Switches::default() };
    let device = Arc::new(CudaDevice::open_with(0, switches).unwrap());
    for name in ["worked_prefill", "prefill_vocab_129280", "decode_rejection", "prefill_forced_topn"] {
        let (step, expected) = vector(name);
        let differences = step.run(&device, None).unwrap().differences(&expected);
        assert!(differences.is_empty(), "{name}: {differences:?}");
    }
}

#[test]
fn misuse_is_an_error() {
    let Some(device) = gpu("misuse_is_an_error") else { return };
    let stream = Stream::new(&device).unwrap();
    // SAFETY: the streams are alive, or the default one.
    unsafe {
        assert!(matches!(device.begin_capture(RawStream::default()), Err(Error::Capture { .. })));
        assert!(matches!(device.end_capture(stream.raw()), Err(Error::Capture { .. })));
    }
    assert!(matches!(device.alloc(1 << 50), Err(Error::OutOfMemory { bytes, .. }) if bytes == 1 << 50));
    assert!(matches!(CudaDevice::open(4096), Err(Error::Unavailable(_))));
    stream.synchronize().unwrap();
}
