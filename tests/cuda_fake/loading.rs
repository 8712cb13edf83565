//! Drivers and compilers that are missing, too old or fail, and the cache of compiled kernels.

use crate::fakes::{Fake, cache, driver, in_child, is_child, made, nvrtc, refusal, says};
use samedraw::Error;
use samedraw::device::cuda::CudaDevice;
use samedraw::device::{self, Device};
use std::path::Path;

#[test]
fn a_driver_that_is_not_there_is_named() {
    in_child(
        "loading::a_driver_that_is_not_there_is_named",
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
    in_child("loading::a_missing_symbol_is_named_with_the_versions", &env, || {
        says(&refusal(CudaDevice::open(0)), &["cuLaunchKernelEx", "CUDA 11.4", "CUDA 12.0 or newer"]);
    });
}

#[test]
fn an_old_driver_is_refused_with_the_versions() {
    let driver = made(|| driver(&[]));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("FAKE_VERSION", Path::new("11080"))];
    in_child("loading::an_old_driver_is_refused_with_the_versions", &env, || {
        says(&refusal(CudaDevice::open(0)), &["CUDA 11.8", "CUDA 12.0 or newer"]);
        assert_eq!(Fake::driver().count(c"cuInit"), 0);
    });
}

/// Newer symbols that other bindings want, cuCtxCreate_v4, cuLogsCurrent, cuDevSmResourceSplit, are not in the fake.
#[test]
fn a_driver_without_symbols_nobody_calls_is_used() {
    let driver = made(|| driver(&[]));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("FAKE_VERSION", Path::new("12000"))];
    in_child("loading::a_driver_without_symbols_nobody_calls_is_used", &env, || {
        let device = CudaDevice::open(0).unwrap();
        assert_eq!(device.info().name, "Fake GPU, sm_90, 132 multiprocessors, 1024 MiB");
        says(&refusal(CudaDevice::open(1)), &["no GPU 1", "has 1"]);
    });
}

#[test]
fn a_driver_without_a_gpu_says_so() {
    let driver = made(|| driver(&[]));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("FAKE_INIT", Path::new("100"))];
    in_child("loading::a_driver_without_a_gpu_says_so", &env, || {
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
    in_child("loading::a_gpu_too_old_is_named", &env, || {
        says(&refusal(CudaDevice::open(0)), &["Fake GPU", "sm_75", "sm_80"]);
    });
}

#[test]
fn an_nvrtc_that_is_not_there_is_named() {
    let driver = made(|| driver(&[]));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("SAMEDRAW_NVRTC", Path::new("/no/such/nvrtc.so"))];
    in_child("loading::an_nvrtc_that_is_not_there_is_named", &env, || {
        let device = CudaDevice::open(0).unwrap();
        says(&refusal(device.prepare(&samedraw::Limits::new(1, 10))), &["NVRTC", "/no/such/nvrtc.so"]);
    });
}

#[test]
fn an_nvrtc_without_cubin_is_named() {
    let (driver, nvrtc) = (made(|| driver(&[])), made(|| nvrtc(&["-DLACK_CUBIN"])));
    let env = [("SAMEDRAW_CUDA_DRIVER", &*driver), ("SAMEDRAW_NVRTC", &*nvrtc)];
    in_child("loading::an_nvrtc_without_cubin_is_named", &env, || {
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
    in_child("loading::code_the_driver_refuses_names_both_versions", &env, || {
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
    in_child("loading::a_compile_error_carries_the_compilers_words", &env, || {
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
        in_child("loading::the_second_process_compiles_nothing", &env, || {
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
