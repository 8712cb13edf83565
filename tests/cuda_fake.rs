//! The CUDA device's dealings with the driver and with NVRTC, on machines without either: both are replaced by small
//! libraries compiled here. What the kernels compute is not in question.

use samedraw::device::cuda::{CudaDevice, PlainRead, Switches};
use samedraw::device::{self, Device, RawStream, Stream};
use samedraw::pipeline::{HostRun, HostStep, Variant};
use samedraw::{Error, SamplingParams, Unavailable};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts what the calling thread allocates.
struct Counting;

// SAFETY: every call goes on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Names the test a child process is to run.
const CHILD: &str = "SAMEDRAW_TEST_CHILD";

/// Compiles a source of `tests/cuda` to a library of that `soname`, once in this process.
fn library(source: &str, defines: &[&str], soname: &str) -> PathBuf {
    static MADE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let name = format!("{source}{}-{}", defines.join(""), std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let out = folder.join(soname);
    let mut made = MADE.lock().unwrap();
    if made.insert(out.clone()) {
        std::fs::create_dir_all(&folder).unwrap();
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let status = Command::new(&compiler)
            .args(["-std=gnu11", "-Wall", "-Werror", "-shared", "-fPIC", "-pthread", "-o"])
            .arg(&out)
            .arg(format!("-Wl,-soname,{soname}"))
            .args(defines)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda").join(source))
            .status();
        assert!(status.unwrap_or_else(|error| panic!("{compiler}: {error}")).success(), "{source} did not compile");
    }
    out
}

fn driver(defines: &[&str]) -> PathBuf {
    library("fake_driver.c", defines, "libcuda.so.1")
}

fn nvrtc(defines: &[&str]) -> PathBuf {
    library("fake_nvrtc.c", defines, "libnvrtc.so.13")
}

/// A folder for the cache of one test.
fn cache(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cache-{name}-{}", std::process::id()))
}

/// Runs `body` in a process of its own with this environment: a driver is loaded once in a process, for good.
fn in_child(name: &str, env: &[(&str, &Path)], body: impl FnOnce()) {
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        return body();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(CHILD, name).env_remove("SAMEDRAW_NVRTC");
    let output = command.envs(env.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// The first time, in the parent, makes something the child is told of by its environment.
fn made(make: impl FnOnce() -> PathBuf) -> PathBuf {
    if is_child() { PathBuf::new() } else { make() }
}

fn refusal(result: Result<impl std::fmt::Debug, Error>) -> Unavailable {
    match result {
        Err(Error::Unavailable(why)) => why,
        other => panic!("not refused as unavailable: {other:?}"),
    }
}

fn says(why: &Unavailable, parts: &[&str]) {
    let text = why.to_string();
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
    device::open("cpu").expect("the CPU device is usable beside a refused one");
}

/// The fakes of this process, for what they counted.
struct Fake(libloading::Library);

impl Fake {
    fn driver() -> Self {
        // SAFETY: the fake has no initialiser.
        Fake(unsafe { libloading::Library::new(std::env::var_os("SAMEDRAW_CUDA_DRIVER").unwrap()) }.unwrap())
    }

    fn count(&self, name: &CStr) -> i64 {
        // SAFETY: the fake exports it with this signature.
        unsafe { self.0.get::<unsafe extern "C" fn(*const c_char) -> c_long>(c"fake_count").unwrap()(name.as_ptr()) }
    }

    fn number(&self, name: &CStr) -> i64 {
        // SAFETY: as above.
        unsafe { self.0.get::<unsafe extern "C" fn() -> c_long>(name).unwrap()() }
    }

    fn of_stream(&self, name: &CStr, stream: RawStream) -> i64 {
        // SAFETY: as above; the stream is live.
        unsafe { self.0.get::<unsafe extern "C" fn(*mut c_void) -> c_long>(name).unwrap()(stream.0 as *mut c_void) }
    }

    fn current(&self) -> usize {
        let mut context = std::ptr::null_mut();
        // SAFETY: the fake writes the pointer.
        unsafe {
            self.0.get::<unsafe extern "C" fn(*mut *mut c_void) -> c_int>(c"cuCtxGetCurrent").unwrap()(&mut context)
        };
        context as usize
    }

    fn push(&self, context: usize) {
        // SAFETY: the fake keeps the number.
        unsafe {
            self.0.get::<unsafe extern "C" fn(*mut c_void) -> c_int>(c"cuCtxPushCurrent_v2").unwrap()(context as _)
        };
    }
}

#[test]
fn a_driver_that_is_not_there_is_named() {
    in_child(
        "a_driver_that_is_not_there_is_named",
        &[("SAMEDRAW_CUDA_DRIVER", Path::new("/no/such/driver.so"))],
        || {
            says(&refusal(CudaDevice::open(0)), &["/no/such/driver.so", "SAMEDRAW_CUDA_DRIVER"]);
        },
    );
}

#[test]
fn a_missing_symbol_is_named_with_the_versions() {
    let driver = made(|| driver(&["-DLACK_LAUNCH"]));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("FAKE_VERSION", Path::new("11040"))];
    in_child("a_missing_symbol_is_named_with_the_versions", &env, || {
        says(&refusal(CudaDevice::open(0)), &["cuLaunchKernelEx", "CUDA 11.4", "CUDA 12.0 or newer"]);
    });
}

#[test]
fn an_old_driver_is_refused_with_the_versions() {
    let driver = made(|| driver(&[]));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("FAKE_VERSION", Path::new("11080"))];
    in_child("an_old_driver_is_refused_with_the_versions", &env, || {
        says(&refusal(CudaDevice::open(0)), &["CUDA 11.8", "CUDA 12.0 or newer"]);
        assert_eq!(Fake::driver().count(c"cuInit"), 0);
    });
}

/// Newer symbols that other bindings want, cuCtxCreate_v4, cuLogsCurrent, cuDevSmResourceSplit, are not in the fake.
#[test]
fn a_driver_without_symbols_nobody_calls_is_used() {
    let driver = made(|| driver(&[]));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("FAKE_VERSION", Path::new("12000"))];
    in_child("a_driver_without_symbols_nobody_calls_is_used", &env, || {
        let device = CudaDevice::open(0).unwrap();
        assert_eq!(device.info().name, "Fake GPU, sm_90, 132 multiprocessors, 1024 MiB");
        says(&refusal(CudaDevice::open(1)), &["no GPU 1", "has 1"]);
    });
}

#[test]
fn a_driver_without_a_gpu_says_so() {
    let driver = made(|| driver(&[]));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("FAKE_INIT", Path::new("100"))];
    in_child("a_driver_without_a_gpu_says_so", &env, || {
        says(&refusal(CudaDevice::open(0)), &["cuInit", "100", "CUDA_ERROR_NO_DEVICE"]);
        let probes = device::probe();
        let cuda = probes.iter().find(|probe| probe.platform == samedraw::Platform::Cuda).unwrap();
        assert!(cuda.state.as_ref().is_err_and(|why| why.reason.contains("CUDA_ERROR_NO_DEVICE")));
    });
}

#[test]
fn a_gpu_too_old_is_named() {
    let driver = made(|| driver(&[]));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("FAKE_MAJOR", Path::new("7")), ("FAKE_MINOR", Path::new("5"))];
    in_child("a_gpu_too_old_is_named", &env, || {
        says(&refusal(CudaDevice::open(0)), &["Fake GPU", "sm_75", "sm_80"]);
    });
}

#[test]
fn an_nvrtc_that_is_not_there_is_named() {
    let driver = made(|| driver(&[]));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("SAMEDRAW_NVRTC", Path::new("/no/such/nvrtc.so"))];
    in_child("an_nvrtc_that_is_not_there_is_named", &env, || {
        let device = CudaDevice::open(0).unwrap();
        says(&refusal(device.prepare(&samedraw::Limits::new(1, 10))), &["NVRTC", "/no/such/nvrtc.so"]);
    });
}

#[test]
fn an_nvrtc_without_cubin_is_named() {
    let (driver, nvrtc) = (made(|| driver(&[])), made(|| nvrtc(&["-DLACK_CUBIN"])));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("SAMEDRAW_NVRTC", &*nvrtc)];
    in_child("an_nvrtc_without_cubin_is_named", &env, || {
        let device = CudaDevice::open(0).unwrap();
        says(&refusal(device.prepare(&samedraw::Limits::new(1, 10))), &["nvrtcGetCUBIN", "libnvrtc.so.13"]);
    });
}

/// A driver older than the compiler's machine code: the error has both versions.
#[test]
fn code_the_driver_refuses_names_both_versions() {
    let (driver, nvrtc, cache) = (made(|| driver(&[])), made(|| nvrtc(&[])), made(|| cache("refused")));
    let env = [
        ("SAMEDRAW_CUDA_DRIVER", &*driver),
        ("SAMEDRAW_NVRTC", &*nvrtc),
        ("SAMEDRAW_CACHE_DIR", &*cache),
        ("FAKE_VERSION", Path::new("12040")),
        ("FAKE_LOAD", Path::new("222")),
    ];
    in_child("code_the_driver_refuses_names_both_versions", &env, || {
        let device = CudaDevice::open(0).unwrap();
        let why = refusal(device.prepare(&samedraw::Limits::new(1, 10)));
        says(&why, &["NVRTC 13.9", "CUDA 12.4", "sm_90", "222", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"]);
    });
    let _ = std::fs::remove_dir_all(cache);
}

#[test]
fn a_compile_error_carries_the_compilers_words() {
    let (driver, nvrtc, cache) = (made(|| driver(&[])), made(|| nvrtc(&[])), made(|| cache("words")));
    let env = [
        ("SAMEDRAW_CUDA_DRIVER", &*driver),
        ("SAMEDRAW_NVRTC", &*nvrtc),
        ("SAMEDRAW_CACHE_DIR", &*cache),
        ("FAKE_COMPILE_ERROR", Path::new("1")),
    ];
    in_child("a_compile_error_carries_the_compilers_words", &env, || {
        let device = CudaDevice::open(0).unwrap();
        match device.prepare(&samedraw::Limits::new(1, 10)) {
            Err(Error::Driver { call: "nvrtcCompileProgram", code: 6, message, .. }) => {
                assert!(message.contains("NVRTC_ERROR_COMPILATION") && message.contains("fake message"), "{message}");
            }
            other => panic!("{other:?}"),
        }
    });
}

/// A first process compiles and keeps, a second finds.
#[test]
fn the_second_process_compiles_nothing() {
    let (driver, nvrtc, cache) = (made(|| driver(&[])), made(|| nvrtc(&[])), made(|| cache("kept")));
    let compiles = cache.with_extension("compiles");
    let run = |folder: &Path| {
        let _ = std::fs::remove_file(&compiles);
        let env = [
            ("SAMEDRAW_CUDA_DRIVER", &*driver),
            ("SAMEDRAW_NVRTC", &*nvrtc),
            ("SAMEDRAW_CACHE_DIR", folder),
            ("FAKE_COMPILES", &*compiles),
        ];
        in_child("the_second_process_compiles_nothing", &env, || {
            CudaDevice::open(0).unwrap().prepare(&samedraw::Limits::new(1, 10)).unwrap();
        });
        std::fs::metadata(&compiles).map_or(0, |file| file.len())
    };
    if is_child() {
        run(Path::new(""));
        return;
    }
    let units = run(&cache);
    assert!(units > 0, "the first process compiles");
    assert_eq!(run(&cache), 0, "the second finds everything");
    let damaged = std::fs::read_dir(&cache).unwrap().next().unwrap().unwrap().path();
    let bytes = std::fs::read(&damaged).unwrap();
    std::fs::write(&damaged, &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(run(&cache), 1, "the damaged entry alone");
    assert_eq!(run(&cache), 0, "which was replaced");
    let file = cache.join("file");
    std::fs::write(&file, b"").unwrap();
    assert_eq!(run(&file.join("below")), units, "no folder is no hindrance");
    std::fs::remove_dir_all(&cache).unwrap();
    std::fs::remove_file(&compiles).unwrap();
}

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
    in_child("a_step_is_one_launch_on_a_borrowed_stream", &env, || {
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
        in_child("clusters_are_no_larger_than_the_card_can_schedule", &env, || {
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
    in_child("switches_choose_how_a_step_is_launched", &env, || {
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
    in_child("an_unknown_switch_is_refused_by_name", &env, || {
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
    in_child("a_plain_read_is_one_launch_of_blocks_that_cover_it", &env, || {
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
    in_child("misuse_is_an_error_that_breaks_nothing", &env, || {
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
