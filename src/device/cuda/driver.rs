//! The CUDA driver: looked for and checked symbol by symbol before the first call, then called through cudarc.
//!
//! cudarc panics where the library or a symbol is missing. So every call this device makes is declared in one list,
//! and [`open`] finds each name of it, or says which is missing, before cudarc sees the driver.

use super::unavailable;
use crate::error::{Error, Result};
use cudarc::driver::sys;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// Environment variable with the path of the driver to use.
pub const DRIVER_PATH: &str = "SAMEDRAW_CUDA_DRIVER";
/// Oldest driver: CUDA 12.0, where launch attributes and the clusters of sm_90 are complete.
const OLDEST: i32 = 12000;
/// The names cudarc tries and that a Linux driver has, in cudarc's order.
const NAMES: [&str; 2] = ["libcuda.so", "libcuda.so.1"];

macro_rules! calls {
    ($( $name:ident($($arg:ident: $ty:ty),*); )*) => {
        /// Every symbol used, those called in other ways included.
        const REQUIRED: &[&str] =
            &["cuGetErrorName", "cuGetErrorString", "cuEventElapsedTime", "cuLaunchKernelEx", $( stringify!($name), )*];
        $(
            /// The driver's call of that name, for the operation `op` of ours.
            ///
            /// # Safety
            /// As the driver's documentation of the call; [`open`] has returned a driver.
            #[allow(non_snake_case)]
            pub(super) unsafe fn $name(op: &'static str, $($arg: $ty),*) -> Result<()> {
                // SAFETY: the caller's promise; `open` found the symbol.
                check(op, stringify!($name), unsafe { sys::$name($($arg),*) })
            }
        )*
    };
}

calls! {
    cuInit(flags: c_uint);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGet(device: *mut sys::CUdevice, ordinal: c_int);
    cuDeviceGetName(name: *mut c_char, len: c_int, device: sys::CUdevice);
    cuDeviceGetAttribute(value: *mut c_int, which: sys::CUdevice_attribute, device: sys::CUdevice);
    cuDeviceTotalMem_v2(bytes: *mut usize, device: sys::CUdevice);
    cuDevicePrimaryCtxRetain(context: *mut sys::CUcontext, device: sys::CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: sys::CUdevice);
    cuCtxGetCurrent(context: *mut sys::CUcontext);
    cuCtxPushCurrent_v2(context: sys::CUcontext);
    cuCtxPopCurrent_v2(context: *mut sys::CUcontext);
    cuMemAlloc_v2(ptr: *mut sys::CUdeviceptr, bytes: usize);
    cuMemFree_v2(ptr: sys::CUdeviceptr);
    cuMemHostAlloc(ptr: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemFreeHost(ptr: *mut c_void);
    cuMemcpyHtoDAsync_v2(dst: sys::CUdeviceptr, src: *const c_void, bytes: usize, stream: sys::CUstream);
    cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: sys::CUdeviceptr, bytes: usize, stream: sys::CUstream);
    cuMemsetD8Async(dst: sys::CUdeviceptr, value: u8, bytes: usize, stream: sys::CUstream);
    cuStreamCreate(stream: *mut sys::CUstream, flags: c_uint);
    cuStreamDestroy_v2(stream: sys::CUstream);
    cuStreamSynchronize(stream: sys::CUstream);
    cuStreamIsCapturing(stream: sys::CUstream, status: *mut sys::CUstreamCaptureStatus);
    cuStreamBeginCapture_v2(stream: sys::CUstream, mode: sys::CUstreamCaptureMode);
    cuStreamEndCapture(stream: sys::CUstream, graph: *mut sys::CUgraph);
    cuEventCreate(event: *mut sys::CUevent, flags: c_uint);
    cuEventDestroy_v2(event: sys::CUevent);
    cuEventRecord(event: sys::CUevent, stream: sys::CUstream);
    cuEventQuery(event: sys::CUevent);
    cuEventSynchronize(event: sys::CUevent);
    cuGraphInstantiateWithFlags(exec: *mut sys::CUgraphExec, graph: sys::CUgraph, flags: c_ulonglong);
    cuGraphLaunch(exec: sys::CUgraphExec, stream: sys::CUstream);
    cuGraphExecDestroy(exec: sys::CUgraphExec);
    cuGraphDestroy(graph: sys::CUgraph);
    cuModuleLoadData(module: *mut sys::CUmodule, image: *const c_void);
    cuModuleUnload(module: sys::CUmodule);
    cuModuleGetFunction(function: *mut sys::CUfunction, module: sys::CUmodule, name: *const c_char);
    cuFuncGetAttribute(value: *mut c_int, which: sys::CUfunction_attribute, function: sys::CUfunction);
    cuFuncSetAttribute(function: sys::CUfunction, which: sys::CUfunction_attribute, value: c_int);
    cuOccupancyMaxActiveClusters(clusters: *mut c_int, function: sys::CUfunction, config: *const sys::CUlaunchConfig);
}

type LaunchKernelEx = unsafe extern "C" fn(
    *const sys::CUlaunchConfig,
    sys::CUfunction,
    *mut *mut c_void,
    *mut *mut c_void,
) -> sys::CUresult;
type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// The process's driver, checked.
#[derive(Debug)]
pub(super) struct Driver {
    /// As `cuDriverGetVersion` gives it: 13000 is CUDA 13.0.
    pub version: i32,
    /// Bindings of CUDA 13 know this call under another name alone, which older drivers lack.
    elapsed: ElapsedTime,
    /// Looked up here and not by cudarc, which would do so, and allocate, within the first step.
    launch: LaunchKernelEx,
    /// Never closed: cudarc keeps the driver open for good, too.
    _library: Library,
}

impl Driver {
    /// Enqueues a kernel.
    ///
    /// # Safety
    /// As the driver's documentation of `cuLaunchKernelEx`.
    pub unsafe fn launch(
        &self,
        op: &'static str,
        config: &sys::CUlaunchConfig,
        function: sys::CUfunction,
        params: &mut [*mut c_void],
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        let result = unsafe { (self.launch)(config, function, params.as_mut_ptr(), null_mut()) };
        check(op, "cuLaunchKernelEx", result)
    }

    /// Milliseconds between two events.
    ///
    /// # Safety
    /// Both are timing events that were recorded and have passed.
    pub unsafe fn elapsed_ms(&self, op: &'static str, start: sys::CUevent, end: sys::CUevent) -> Result<f32> {
        let mut ms = 0.0;
        // SAFETY: the caller's promise; `ms` is written.
        check(op, "cuEventElapsedTime", unsafe { (self.elapsed)(&mut ms, start, end) })?;
        Ok(ms)
    }
}

/// `13000` as `13.0`.
pub(super) fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The driver, opened and initialised on the first call that succeeds.
///
/// # Errors
/// [`Error::Unavailable`] with the names tried, the symbols missing, or the versions found and needed.
pub(super) fn open() -> Result<&'static Driver> {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let driver = load()?;
    Ok(DRIVER.get_or_init(|| driver))
}

fn load() -> Result<Driver> {
    let (library, found) = find()?;
    let version = version_of(&library, &found)?;
    let missing: Vec<&str> = REQUIRED.iter().copied().filter(|name| !has(&library, name)).collect();
    if version < OLDEST || !missing.is_empty() {
        let lack = if missing.is_empty() { String::new() } else { format!(", which lacks {}", missing.join(", ")) };
        return Err(unavailable(
            format!("{found} is a driver of CUDA {}{lack}; CUDA 12.0 or newer is needed", version_text(version)),
            vec![found],
        ));
    }
    // SAFETY: the symbols are there (checked above) and have these signatures; the pointers stay valid as the library is
    // kept.
    let (elapsed, launch) = unsafe {
        let elapsed = library.get::<ElapsedTime>(c"cuEventElapsedTime").map_err(|e| gone(&found, &e))?;
        let launch = library.get::<LaunchKernelEx>(c"cuLaunchKernelEx").map_err(|e| gone(&found, &e))?;
        (*elapsed, *launch)
    };
    // SAFETY: every symbol was found; initialising takes no argument but 0.
    unsafe { cuInit("open", 0) }.map_err(|error| unavailable(error.to_string(), vec![found]))?;
    Ok(Driver { version, elapsed, launch, _library: library })
}

/// Opens the library cudarc will open, which is the one the environment names if it names one.
fn find() -> Result<(Library, String)> {
    // SAFETY: opening the driver runs its initialisers, which is what every CUDA program does.
    let open = |name: &str| unsafe { Library::new(name) }.map(|library| (library, name.to_owned()));
    let by_name = || NAMES.iter().find_map(|name| open(name).ok());
    let Some(path) = std::env::var(DRIVER_PATH).ok().filter(|path| !path.is_empty()) else {
        return by_name().ok_or_else(|| {
            unavailable("no CUDA driver was found".into(), NAMES.iter().map(|name| name.to_string()).collect())
        });
    };
    let (named, path) =
        open(&path).map_err(|error| unavailable(format!("{DRIVER_PATH} cannot be opened: {error}"), vec![path]))?;
    // A library that is open under its own name is what that name gives; cudarc knows names alone.
    let same = by_name().is_some_and(|(library, _)| address(&library, "cuInit") == address(&named, "cuInit"));
    // A file with missing symbols or an old version is reported as such, whatever its own name.
    if !same && version_of(&named, &path).is_ok_and(|v| v >= OLDEST) && REQUIRED.iter().all(|name| has(&named, name)) {
        return Err(unavailable(
            format!("{DRIVER_PATH} does not carry the library name libcuda.so.1, or another driver is found first"),
            vec![path],
        ));
    }
    Ok((named, path))
}

fn address(library: &Library, name: &str) -> Option<usize> {
    // SAFETY: the symbol is not called, its address is compared.
    unsafe { library.get::<unsafe extern "C" fn()>(name) }.ok().map(|symbol| *symbol as usize)
}

fn has(library: &Library, name: &str) -> bool {
    address(library, name).is_some()
}

fn gone(found: &str, error: &libloading::Error) -> Error {
    unavailable(error.to_string(), vec![found.to_owned()])
}

fn version_of(library: &Library, found: &str) -> Result<i32> {
    let mut version = 0;
    // SAFETY: the call has had this signature since CUDA 2.2, works before initialisation, and writes one int.
    let code = unsafe {
        let symbol = library.get::<unsafe extern "C" fn(*mut c_int) -> c_uint>(c"cuDriverGetVersion");
        symbol.map_err(|error| gone(found, &error))?(&mut version)
    };
    if code == 0 {
        Ok(version)
    } else {
        Err(unavailable(format!("cuDriverGetVersion gave {code}"), vec![found.into()]))
    }
}

fn check(op: &'static str, call: &'static str, result: sys::CUresult) -> Result<()> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(Error::Driver { op, call, code: result as i64, message: text(result) })
}

/// The driver's name and description of an error.
fn text(result: sys::CUresult) -> String {
    type Text = unsafe fn(sys::CUresult, *mut *const c_char) -> sys::CUresult;
    let ask = |call: Text| {
        let mut text = std::ptr::null();
        // SAFETY: the symbol was found by `open`; it writes a pointer to a static string, or null.
        unsafe {
            call(result, &mut text);
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    };
    format!("{}: {}", ask(sys::cuGetErrorName), ask(sys::cuGetErrorString))
}
