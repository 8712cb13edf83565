//! The libraries that stand in for the driver and for NVRTC, and processes that load them.

use samedraw::device::{self, RawStream};
use samedraw::{Error, Unavailable};
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Names the test a child process is to run.
pub const CHILD: &str = "SAMEDRAW_TEST_CHILD";

/// Compiles a source of `tests/cuda` to a library of that `soname`, once in this process.
pub fn library(source: &str, defines: &[&str], soname: &str) -> PathBuf {
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

pub fn driver(defines: &[&str]) -> PathBuf {
    library("fake_driver.c", defines, "libcuda.so.1")
}

pub fn nvrtc(defines: &[&str]) -> PathBuf {
    library("fake_nvrtc.c", defines, "libnvrtc.so.13")
}

/// A folder for the cache of one test.
pub fn cache(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cache-{name}-{}", std::process::id()))
}

/// Runs `body` in a process of its own with this environment: a driver is loaded once in a process, for good.
pub fn in_child(name: &str, env: &[(&str, &Path)], body: impl FnOnce()) {
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        return body();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(CHILD, name).env_remove("SAMEDRAW_NVRTC");
    let output = command.envs(env.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// The first time, in the parent, makes something the child is told of by its environment.
pub fn made(make: impl FnOnce() -> PathBuf) -> PathBuf {
    if is_child() { PathBuf::new() } else { make() }
}

pub fn refusal(result: Result<impl std::fmt::Debug, Error>) -> Unavailable {
    match result {
        Err(Error::Unavailable(why)) => why,
        other => panic!("not refused as unavailable: {other:?}"),
    }
}

pub fn says(why: &Unavailable, parts: &[&str]) {
    let text = why.to_string();
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
    device::open("cpu").expect("the CPU device is usable beside a refused one");
}

/// The fakes of this process, for what they counted.
pub struct Fake(libloading::Library);

impl Fake {
    pub fn driver() -> Self {
        // SAFETY: the fake has no initialiser.
        Fake(unsafe { libloading::Library::new(std::env::var_os("SAMEDRAW_CUDA_DRIVER").unwrap()) }.unwrap())
    }

    pub fn count(&self, name: &CStr) -> i64 {
        // SAFETY: the fake exports it with this signature.
        unsafe { self.0.get::<unsafe extern "C" fn(*const c_char) -> c_long>(c"fake_count").unwrap()(name.as_ptr()) }
    }

    pub fn number(&self, name: &CStr) -> i64 {
        // SAFETY: as above.
        unsafe { self.0.get::<unsafe extern "C" fn() -> c_long>(name).unwrap()() }
    }

    pub fn of_stream(&self, name: &CStr, stream: RawStream) -> i64 {
        // SAFETY: as above; the stream is live.
        unsafe { self.0.get::<unsafe extern "C" fn(*mut c_void) -> c_long>(name).unwrap()(stream.0 as *mut c_void) }
    }

    pub fn current(&self) -> usize {
        let mut context = std::ptr::null_mut();
        // SAFETY: the fake writes the pointer.
        unsafe {
            self.0.get::<unsafe extern "C" fn(*mut *mut c_void) -> c_int>(c"cuCtxGetCurrent").unwrap()(&mut context)
        };
        context as usize
    }

    pub fn push(&self, context: usize) {
        // SAFETY: the fake keeps the number.
        unsafe {
            self.0.get::<unsafe extern "C" fn(*mut c_void) -> c_int>(c"cuCtxPushCurrent_v2").unwrap()(context as _)
        };
    }
}
