//! What a step launches, on whose stream, and in what shape.

use crate::ALLOCATIONS;
use crate::fakes::{Fake, cache, driver, in_child, is_child, made, nvrtc};
use samedraw::device::cuda::{CudaDevice, PlainRead, Switches};
use samedraw::device::{Device, RawStream, Stream};
use samedraw::pipeline::{HostRun, HostStep, Variant};
use samedraw::{Error, SamplingParams};
use std::ffi::c_int;
use std::path::Path;
use std::sync::Arc;

fn plain_run(device: &Arc<CudaDevice>) -> HostRun<CudaDevice> {
    let logits = [0.5f32; 40];
    let params = [SamplingParams { seq_seed: Some(1), ..SamplingParams::default() }, SamplingParams::greedy()];
    let step = HostStep {
        logits: bytemuck::cast_slice(&logits),
        vocab: 20,
        stride: 20,
        logits_rows: 2,
        rows: 2,
        params: &params,
        positions: Some(&[3, 4]),
        ..HostStep::default()
    };
    HostRun::new(device, &step).unwrap()
}

/// With a foreign context current on the thread: every call finds the primary context, one launch a plain step, the
/// borrowed stream only launched on, and the thread is left as it was found.
#[test]
fn a_step_is_one_launch_on_a_borrowed_stream() {
    let (driver, nvrtc, cache) = (made(|| driver(&[])), made(|| nvrtc(&[])), made(|| cache("launch")));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("SAMEDRAW_NVRTC", &*nvrtc), ("SAMEDRAW_CACHE_DIR", &*cache)];
    in_child("launches::a_step_is_one_launch_on_a_borrowed_stream", &env, || {
        let device = Arc::new(CudaDevice::open(0).unwrap());
        let fake = Fake::driver();
        let borrowed = device.create_stream().unwrap();
        fake.push(0x77);
        let mut run = plain_run(&device);
        let calls = [
            c"cuMemAlloc_v2",
            c"cuMemHostAlloc",
            c"cuStreamSynchronize",
            c"cuEventSynchronize",
            c"cuEventQuery",
            c"cuModuleLoadData",
            c"cuModuleGetFunction",
            c"cuStreamDestroy_v2",
            c"cuMemFree_v2",
            c"cuEventRecord",
        ];
        let before = calls.map(|name| fake.count(name));
        let (sampler, step, _) = run.parts();
        let step = *step;
        for n in 1..=3 {
            let allocated = ALLOCATIONS.get();
            // SAFETY: the run's pointers are alive.
            unsafe { sampler.step(borrowed, &step) }.unwrap();
            assert_eq!(ALLOCATIONS.get(), allocated, "a step allocates nothing");
            assert_eq!((device.launches(), fake.of_stream(c"fake_stream_launches", borrowed)), (n, n as i64));
        }
        let allocated = ALLOCATIONS.get();
        drop(std::hint::black_box(Box::new(7)));
        assert!(ALLOCATIONS.get() > allocated, "the allocator counts");
        assert_eq!(calls.map(|name| fake.count(name)), before, "{calls:?}");

        let other = Stream::new(&device).unwrap();
        // SAFETY: as above.
        let graph = unsafe { sampler.capture(other.raw(), &step, Variant::Default) }.unwrap();
        assert_eq!(fake.of_stream(c"fake_capture_mode", other.raw()) as c_int, 1, "the thread-local mode");
        assert_eq!(device.launches(), 4);
        // SAFETY: as above.
        (0..5).for_each(|_| unsafe { graph.replay(borrowed) }.unwrap());
        assert_eq!((device.launches(), fake.count(c"cuGraphLaunch")), (4, 5));

        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut run = plain_run(&device);
                let (sampler, step, _) = run.parts();
                let step = *step;
                // SAFETY: as above.
                unsafe { sampler.step(borrowed, &step) }.unwrap();
                assert_eq!(fake.current(), 0, "this thread had no context before and has none after");
            });
        });
        drop((graph, other, run));
        assert_eq!(fake.current(), 0x77);
        assert_eq!(fake.count(c"cuStreamDestroy_v2") + 1, fake.count(c"cuStreamCreate"), "all but the borrowed one");
        // SAFETY: created above.
        unsafe { device.destroy_stream(borrowed) }.unwrap();
        for (made, gone) in [
            (c"cuMemAlloc_v2", c"cuMemFree_v2"),
            (c"cuMemHostAlloc", c"cuMemFreeHost"),
            (c"cuEventCreate", c"cuEventDestroy_v2"),
            (c"cuStreamCreate", c"cuStreamDestroy_v2"),
            (c"cuGraphInstantiateWithFlags", c"cuGraphExecDestroy"),
            (c"cuStreamEndCapture", c"cuGraphDestroy"),
        ] {
            assert_eq!(fake.count(made), fake.count(gone), "{made:?} and {gone:?}");
        }
        drop(device);
        assert_eq!(fake.count(c"cuModuleLoadData"), fake.count(c"cuModuleUnload"));
        assert_eq!(fake.number(c"fake_retained"), 0);
        assert_eq!(fake.current(), 0x77);
    });
    let _ = std::fs::remove_dir_all(cache);
}

/// A row of 129280 logits, which whole cards put into clusters of 16.
fn wide_run(device: &Arc<CudaDevice>) -> HostRun<CudaDevice> {
    const VOCAB: usize = 129_280;
    let step = HostStep {
        logits: &vec![0; VOCAB * 4],
        vocab: VOCAB,
        stride: VOCAB,
        logits_rows: 1,
        rows: 1,
        params: &[SamplingParams { seq_seed: Some(1), ..SamplingParams::default() }],
        positions: Some(&[3]),
        ..HostStep::default()
    };
    HostRun::new(device, &step).unwrap()
}

/// Largest cluster a device with these switches launches, and whether its launches overlap.
fn launched(fake: &Fake, switches: Switches) -> (i64, bool) {
    let before = fake.number(c"fake_overlapped");
    let device = Arc::new(CudaDevice::open_with(0, switches).unwrap());
    wide_run(&device).run().unwrap();
    assert_eq!(device.launches(), 1);
    let largest = [16, 8, 4, 2].into_iter().find(|&size| device.launches_in_clusters_of(size) > 0).unwrap_or(1);
    (i64::from(largest), fake.number(c"fake_overlapped") > before)
}

/// Part of a card (MIG, a context with few multiprocessors) may have no room for 16 blocks at a time.
#[test]
fn clusters_are_no_larger_than_the_card_can_schedule() {
    let (driver, nvrtc, cache) = (made(|| driver(&[])), made(|| nvrtc(&[])), made(|| cache("clusters")));
    for most in ["16", "8", "4", "1"] {
        let env = [
            ("SAMEDRAW_CUDA_DRIVER", &*driver),
            ("SAMEDRAW_NVRTC", &*nvrtc),
            ("SAMEDRAW_CACHE_DIR", &*cache),
            ("FAKE_LARGEST_CLUSTER", Path::new(most)),
        ];
        in_child("launches::clusters_are_no_larger_than_the_card_can_schedule", &env, || {
            let most: i64 = std::env::var("FAKE_LARGEST_CLUSTER").unwrap().parse().unwrap();
            let fake = Fake::driver();
            assert_eq!(launched(&fake, Switches::default()).0, most);
            assert_eq!(fake.number(c"fake_largest_cluster"), most);
            let forced = Switches { cluster: Some(16), ..Switches::default() };
            assert_eq!(launched(&fake, forced).0, most, "a forced size yields to the card");
        });
        if is_child() {
            return;
        }
    }
    let _ = std::fs::remove_dir_all(cache);
}

#[test]
fn switches_choose_how_a_step_is_launched() {
    let (driver, nvrtc, cache) = (made(|| driver(&[])), made(|| nvrtc(&[])), made(|| cache("switches")));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("SAMEDRAW_NVRTC", &*nvrtc), ("SAMEDRAW_CACHE_DIR", &*cache)];
    in_child("launches::switches_choose_how_a_step_is_launched", &env, || {
        let fake = Fake::driver();
        for (text, expected) in [
            ("general", (1, None)),
            ("no-clusters", (1, None)),
            ("cluster:8", (8, None)),
            ("cluster:16,pdl", (16, Some(true))),
            ("cluster:16,no-pdl", (16, Some(false))),
            ("general,pdl", (1, Some(true))),
        ] {
            let (cluster, overlaps) = launched(&fake, Switches::parse(text).unwrap());
            assert_eq!((cluster, expected.1.map(|_| overlaps)), (expected.0, expected.1), "{text}");
        }
    });
    let _ = std::fs::remove_dir_all(cache);
}

#[test]
fn an_unknown_switch_is_refused_by_name() {
    let driver = made(|| driver(&[]));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("SAMEDRAW_CUDA_VARIANT", Path::new("cluster:5"))];
    in_child("launches::an_unknown_switch_is_refused_by_name", &env, || {
        let error = CudaDevice::open(0).expect_err("refused");
        let text = error.to_string();
        assert!(matches!(error, Error::Unsupported { op: "open", .. }), "{error:?}");
        assert!(text.contains("SAMEDRAW_CUDA_VARIANT") && text.contains("cluster:5"), "{text}");
    });
}

#[test]
fn a_plain_read_is_one_launch_of_blocks_that_cover_it() {
    let (driver, nvrtc, cache) = (made(|| driver(&[])), made(|| nvrtc(&[])), made(|| cache("read")));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("SAMEDRAW_NVRTC", &*nvrtc), ("SAMEDRAW_CACHE_DIR", &*cache)];
    in_child("launches::a_plain_read_is_one_launch_of_blocks_that_cover_it", &env, || {
        let device = Arc::new(CudaDevice::open(0).unwrap());
        let (fake, stream) = (Fake::driver(), Stream::new(&device).unwrap());
        let loaded = fake.count(c"cuModuleLoadData");
        let read = PlainRead::new(&device).unwrap();
        let from = samedraw::device::DevPtr(0x1008);
        // SAFETY: the fake's kernels read nothing.
        unsafe {
            for shape in 0..PlainRead::SHAPES {
                read.enqueue(stream.raw(), shape, from, 1 << 20).unwrap();
            }
            assert!(matches!(read.enqueue(stream.raw(), PlainRead::SHAPES, from, 64), Err(Error::Argument { .. })));
            assert!(matches!(read.enqueue(stream.raw(), 0, from, 15), Err(Error::Argument { .. })), "no whole piece");
        }
        assert_eq!(fake.of_stream(c"fake_stream_launches", stream.raw()), PlainRead::SHAPES as i64);
        drop(read);
        assert_eq!((loaded, fake.count(c"cuModuleUnload")), (0, 1));
    });
    let _ = std::fs::remove_dir_all(cache);
}

#[test]
fn misuse_is_an_error_that_breaks_nothing() {
    let (driver, nvrtc, cache) = (made(|| driver(&[])), made(|| nvrtc(&[])), made(|| cache("misuse")));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("SAMEDRAW_NVRTC", &*nvrtc), ("SAMEDRAW_CACHE_DIR", &*cache)];
    in_child("launches::misuse_is_an_error_that_breaks_nothing", &env, || {
        let device = Arc::new(CudaDevice::open(0).unwrap());
        let stream = Stream::new(&device).unwrap();
        let cause = "cuMemAlloc_v2 failed with code 2: FAKE_ERROR: as told by the fake".to_owned();
        assert_eq!(
            device.alloc(1 << 31),
            Err(Error::OutOfMemory { op: "alloc", platform: samedraw::Platform::Cuda, bytes: 1 << 31, cause })
        );
        // SAFETY: the streams are alive, or the default one.
        unsafe {
            assert!(matches!(device.begin_capture(RawStream::default()), Err(Error::Capture { .. })));
            assert!(matches!(device.end_capture(stream.raw()), Err(Error::Capture { .. })));
            device.begin_capture(stream.raw()).unwrap();
            assert!(matches!(device.begin_capture(stream.raw()), Err(Error::Capture { .. })));
            assert!(matches!(device.synchronize(stream.raw()), Err(Error::Capture { .. })));
            let graph = device.end_capture(stream.raw()).unwrap();
            device.destroy_graph(graph).unwrap();
            device.synchronize(stream.raw()).unwrap();
            let event = device.create_event(true).unwrap();
            assert_eq!(device.query_event(event), Ok(true));
            assert_eq!(device.elapsed_ms(event, event), Ok(1.5));
            device.destroy_event(event).unwrap();
        }
    });
}
