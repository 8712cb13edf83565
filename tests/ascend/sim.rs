//! The simulated CANN runtime, a test double: compiled from `tests/ascend_sim` and laid out as an installation.

use libloading::Library;
use samedraw::Error;
use samedraw::device::ascend::{AscendDevice, Options};
use std::ffi::{CString, c_char, c_int, c_long, c_void};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Code that is none of the codes the device treats: the driver's internal error.
pub const BROKEN: c_int = 507_899;
pub const OUT_OF_MEMORY: c_int = 207_001;
pub const LOST: c_int = 507_010;

const RUNTIME: [&str; 5] = ["faults", "runtime", "memory", "streams", "binary"];
const COMPILER: [&str; 2] = ["faults", "aclrtc"];

fn source_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ascend_sim")
}

/// The headers kernels are compiled with.
fn model_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ascend_model")
}

/// A folder of this test program's own, whose name changes with the simulator's sources.
pub fn folder() -> PathBuf {
    let mut hasher = DefaultHasher::new();
    let folders = [source_folder(), model_folder().join("model")];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.collect();
    files
        .extend(["acl_abi.h", "aclrtc_abi.h"].map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join("ffi").join(name)));
    files.sort();
    files.iter().for_each(|file| fs::read(file).unwrap().hash(&mut hasher));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ascend_sim-{:016x}", hasher.finish()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The C++ compiler with the flags of every part; `sanitizer` is empty or what follows `-fsanitize=`.
pub fn compiler(sanitizer: &str) -> Command {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(1).debug(true).pic(true).target(&target).host(&target).cargo_metadata(false);
    build.warnings(true).extra_warnings(true).warnings_into_errors(true);
    // Constants of a C header that not every file uses.
    build.flag("-Wno-unused-variable").flag("-fvisibility=hidden").flag("-pthread");
    if !sanitizer.is_empty() {
        build.flag(format!("-fsanitize={sanitizer}"));
    }
    build.define("ASCEND_MODEL_DIR", format!("\"{}\"", model_folder().display()).as_str());
    build.get_compiler().to_command()
}

pub fn run(mut command: Command) -> String {
    let output = command.output();
    let (program, words) = (command.get_program(), command.get_args().collect::<Vec<_>>());
    let output = output.unwrap_or_else(|error| panic!("{program:?} {words:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?} {words:?} gave {}:\n{text}", output.status);
    text.into_owned()
}

/// Makes `path` by `make`, which is given a temporary name, unless it is there: any number of processes may do so.
pub fn made(path: &Path, make: impl FnOnce(&Path)) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    if path.exists() {
        return;
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("{}.{count}.tmp", std::process::id()));
    make(&temporary);
    fs::rename(&temporary, path).unwrap();
}

fn objects(parts: &[&str], sanitizer: &str) -> Vec<PathBuf> {
    let compile = |part: &&str| {
        let object = folder().join(format!("{part}.{sanitizer}.o"));
        made(&object, |out| {
            let mut command = compiler(sanitizer);
            command.arg("-c").arg(source_folder().join(format!("{part}.cpp"))).arg("-o").arg(out);
            run(command);
        });
        object
    };
    parts.iter().map(compile).collect()
}

/// An installation: its root holds `lib64/libacl_rt.so` and `lib64/libacl_rtc.so`.
pub fn installation(name: &str, sanitizer: &str) -> PathBuf {
    let root = folder().join(name);
    library(&root.join("lib64/libacl_rt.so"), &RUNTIME, sanitizer, &[]);
    library(&root.join("lib64/libacl_rtc.so"), &COMPILER, sanitizer, &[]);
    root
}

/// A runtime at `path` that does not export `without`.
pub fn runtime_without(path: &Path, without: &[&str]) {
    library(path, &RUNTIME, "", without);
}

/// A compiler at `path` that does not export `without`.
pub fn compiler_without(path: &Path, without: &[&str]) {
    library(path, &COMPILER, "", without);
}

fn library(path: &Path, parts: &[&str], sanitizer: &str, without: &[&str]) {
    let objects = objects(parts, sanitizer);
    made(path, |out| {
        let script = out.with_extension("map");
        let local: String = without.iter().map(|symbol| format!("{symbol};")).collect();
        fs::write(&script, format!("{{ global: *; local: {local} ascend_sim_no_such_symbol; }};")).unwrap();
        let mut command = compiler(sanitizer);
        command.args(["-shared", "-Wl,-Bsymbolic", "-o"]).arg(out).args(objects);
        command.arg(format!("-Wl,--version-script={}", script.display())).arg("-ldl");
        // As the vendor's libraries do, it carries its name.
        command.arg(format!("-Wl,-soname,{}", path.file_name().unwrap().display()));
        run(command);
        fs::remove_file(script).unwrap();
    });
}

/// One of the two libraries, and what a test may ask of it.
pub struct Double(Library);

impl Double {
    pub fn open(path: &Path) -> Self {
        // SAFETY: the simulator's initialisers start nothing.
        Double(unsafe { Library::new(path) }.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    fn call<F: Copy, R>(&self, name: &str, call: impl FnOnce(F) -> R) -> R {
        // SAFETY: the callers name the signature the simulator has.
        call(*unsafe { self.0.get::<F>(name) }.unwrap_or_else(|error| panic!("{name}: {error}")))
    }

    /// The `nth` next call of that name fails with `code`, and those after it up to `times`.
    pub fn fail(&self, call: &str, nth: usize, times: usize, code: c_int) {
        let call = CString::new(call).unwrap();
        type Fail = unsafe extern "C" fn(*const c_char, c_long, c_long, c_int);
        // SAFETY: the string outlives the call.
        self.call("ascend_sim_fail", |f: Fail| unsafe { f(call.as_ptr(), nth as c_long, times as c_long, code) });
    }

    pub fn fail_next(&self, call: &str, code: c_int) {
        self.fail(call, 1, 1, code);
    }

    pub fn lose_device(&self, after: usize) {
        // SAFETY: takes a number.
        self.call("ascend_sim_lose_device", |f: unsafe extern "C" fn(c_long)| unsafe { f(after as c_long) });
    }

    pub fn reset(&self) {
        // SAFETY: takes nothing.
        self.call("ascend_sim_reset", |f: unsafe extern "C" fn()| unsafe { f() });
    }

    pub fn set(&self, key: &str, value: &str) {
        let (key, value) = (CString::new(key).unwrap(), CString::new(value).unwrap());
        type Set = unsafe extern "C" fn(*const c_char, *const c_char);
        // SAFETY: the strings outlive the call.
        self.call("ascend_sim_set", |f: Set| unsafe { f(key.as_ptr(), value.as_ptr()) });
    }

    fn number(&self, name: &str, of: &str) -> usize {
        let of = CString::new(of).unwrap();
        // SAFETY: the string outlives the call.
        self.call(name, |f: unsafe extern "C" fn(*const c_char) -> c_long| unsafe { f(of.as_ptr()) }) as usize
    }

    /// What kernels did since the last reset: see `ascend_sim_counter`.
    pub fn counter(&self, name: &str) -> usize {
        self.number("ascend_sim_counter", name)
    }

    pub fn count(&self, call: &str) -> usize {
        self.number("ascend_sim_count", call)
    }

    /// What lives of every kind.
    pub fn live(&self) -> Vec<(&'static str, usize)> {
        let kinds = ["device", "memory", "host", "stream", "event", "graph", "binary", "program"];
        kinds.map(|kind| (kind, self.number("ascend_sim_live", kind))).to_vec()
    }

    /// Names of the calls since the last reset.
    pub fn trace(&self) -> Vec<String> {
        let mut bytes = vec![0u8; 1 << 20];
        type Trace = unsafe extern "C" fn(*mut u8, usize) -> usize;
        // SAFETY: the buffer has the size given.
        let size = self.call("ascend_sim_trace", |f: Trace| unsafe { f(bytes.as_mut_ptr(), bytes.len()) });
        assert!(size <= bytes.len());
        String::from_utf8(bytes[..size].to_vec()).unwrap().lines().map(str::to_owned).collect()
    }

    /// Initialises the runtime, as a stack does that was there first.
    pub fn initialise(&self) -> c_int {
        // SAFETY: without a configuration.
        self.call("aclInit", |f: unsafe extern "C" fn(*const c_char) -> c_int| unsafe { f(std::ptr::null()) })
    }

    /// A context beside the default one, as a stack may have; current on this thread.
    pub fn foreign_context(&self) -> *mut c_void {
        // SAFETY: takes a number.
        self.call("ascend_sim_foreign_context", |f: unsafe extern "C" fn(c_int) -> *mut c_void| unsafe { f(0) })
    }

    pub fn destroy_foreign_context(&self, context: *mut c_void) {
        type Destroy = unsafe extern "C" fn(*mut c_void);
        // SAFETY: made by `foreign_context`.
        self.call("ascend_sim_destroy_foreign_context", |f: Destroy| unsafe { f(context) });
    }

    pub fn current_context(&self) -> *mut c_void {
        // SAFETY: takes nothing.
        self.call("ascend_sim_current_context", |f: unsafe extern "C" fn() -> *mut c_void| unsafe { f() })
    }
}

/// The simulated installation this process uses, by one test at a time: its failures are shared by all.
pub struct Sim {
    pub runtime: Double,
    pub compiler: Double,
    pub options: Options,
    _one_at_a_time: MutexGuard<'static, ()>,
}

impl Sim {
    pub fn take() -> Self {
        static LOCK: Mutex<()> = Mutex::new(());
        let guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let root = installation("plain", "");
        let options = options_of(&root);
        let (runtime, compiler) =
            (Double::open(&root.join("lib64/libacl_rt.so")), Double::open(&root.join("lib64/libacl_rtc.so")));
        runtime.reset();
        compiler.reset();
        Sim { runtime, compiler, options, _one_at_a_time: guard }
    }

    pub fn open(&self) -> Result<AscendDevice, Error> {
        AscendDevice::open_with(0, self.options.clone())
    }

    pub fn live(&self) -> Vec<(&'static str, usize)> {
        let both = self.runtime.live().into_iter().zip(self.compiler.live());
        both.map(|((kind, one), (_, other))| (kind, one + other)).collect()
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.runtime.reset();
        self.compiler.reset();
    }
}

/// The paths of an installation, given explicitly, with a cache of this process's own.
pub fn options_of(root: &Path) -> Options {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ascend-cache-{}", std::process::id()));
    Options {
        runtime: Some(root.join("lib64/libacl_rt.so")),
        compiler: Some(root.join("lib64/libacl_rtc.so")),
        kernels: None,
        cache: Some(cache),
        // It is a test of kernels; those of the host's side count every call.
        skip_self_test: true,
    }
}

/// What a refused open says.
pub fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Unavailable(why)) => why.to_string(),
        other => panic!("not refused as unavailable: {other:?}"),
    }
}

pub fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
    samedraw::device::open("cpu").expect("the CPU device is usable beside a refused one");
}
