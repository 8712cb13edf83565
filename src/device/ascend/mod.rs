//! The Ascend device: NPUs of Atlas A2 and A3 (dav-2201), on CANN 8.5.0 or newer.
//!
//! It shares the NPU's default context with the stack around it, takes the stack's streams and pointers as they are, and
//! makes its context current only while a call of its own runs. Nothing of CANN is needed to build it.
//!
//! Kernels are compiled at [`prepare`](Device::prepare) and kept in a cache, or come as a prebuilt object. Nothing
//! here has run on an NPU: the host's calls are held to the vendor's public headers and exercised on a simulated runtime, the
//! kernels run on a model of the calls they make (`docs/ascend.md`).
//!
//! When a device opens it runs the operations that results depend on and compares them with the host's, bit for bit: see
//! [`AscendDevice::arithmetic`].
//!
//! # What CANN must have
//! Every call of memory, order, loading and launching is looked up when the library is opened; a library that lacks one
//! is refused with its name. Optional are: `aclsysGetVersionNum` and `aclsysGetVersionStr` (without them the version is
//! unknown and the symbols decide), `aclrtGetDeviceInfo` (then `aclGetDeviceCapability` counts the vector cores), the
//! five calls of capture (`aclmdlRICaptureBegin`, `aclmdlRICaptureEnd`, `aclmdlRICaptureGetInfo`,
//! `aclmdlRIExecuteAsync`, `aclmdlRIDestroy`; without them [`Device::begin_capture`] is refused with the names), and
//! `libacl_rtc.so` (without it kernels come as a prebuilt object).
//!
//! | file | what |
//! |---|---|
//! | `sys` | the bindings |
//! | `search` | where libraries are looked for |
//! | `runtime` | the runtime, checked, its errors with its messages |
//! | `chip` | which chips the kernels run on |
//! | `context` | the default context, current for the length of a call |
//! | `compiler` | aclrtc |
//! | `kernels`, `modules` | the sources, and the loaded kernels |
//! | `launch` | one launch |
//! | `self_test` | whether the NPU's arithmetic is exact |
//! | `memory` | alignment the runtime does not promise |
//! | `calls` | the `Device` trait |

mod calls;
mod chip;
mod compiler;
mod context;
#[doc(hidden)]
pub mod kernels;
#[doc(hidden)]
pub mod launch;
mod memory;
mod modules;
mod runtime;
mod search;
mod self_test;
mod sys;

pub use self_test::Arithmetic;

use crate::device::{DevPtr, Device, DeviceInfo, Platform, RawStream};
use crate::error::{Error, Result, Unavailable};
use compiler::Compiler;
use context::Context;
use kernels::Unit;
use launch::{Arguments, Kernel};
use memory::Aligned;
use modules::Binary;
use runtime::{Runtime, acl};
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Environment variable with the path of the runtime to use: `libacl_rt.so`.
const RUNTIME_PATH: &str = "SAMEDRAW_ASCEND_RUNTIME";
/// Environment variable with the path of the compiler to use: `libacl_rtc.so`, in its place in a toolkit.
const COMPILER_PATH: &str = "SAMEDRAW_ASCEND_COMPILER";
/// Environment variable with the path of a prebuilt kernel object.
const KERNELS_PATH: &str = "SAMEDRAW_ASCEND_KERNELS";

/// Paths that are used instead of looking for the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// The runtime, `libacl_rt.so`.
    pub runtime: Option<PathBuf>,
    /// The compiler, `libacl_rtc.so`, in its place in a toolkit: it finds its parts by its own path.
    pub compiler: Option<PathBuf>,
    /// A prebuilt kernel object; nothing is compiled then.
    pub kernels: Option<PathBuf>,
    /// The folder compiled kernels are kept in, instead of the user's cache.
    pub cache: Option<PathBuf>,
    /// Open without the self-test. The device counts as inexact.
    pub skip_self_test: bool,
}

impl Options {
    /// What the environment says: `SAMEDRAW_ASCEND_RUNTIME`, `SAMEDRAW_ASCEND_COMPILER`, `SAMEDRAW_ASCEND_KERNELS`.
    pub fn from_env() -> Self {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Options {
            runtime: from(RUNTIME_PATH),
            compiler: from(COMPILER_PATH),
            kernels: from(KERNELS_PATH),
            ..Options::default()
        }
    }
}

/// One NPU.
#[derive(Debug)]
pub struct AscendDevice {
    info: DeviceInfo,
    runtime: &'static Runtime,
    context: Context,
    chip: String,
    vector_cores: u32,
    options: Options,
    compiler: Mutex<Option<Compiler>>,
    binaries: Mutex<Vec<Binary>>,
    aligned: Aligned,
    arithmetic: Arithmetic,
    preparing: Mutex<()>,
    stages: OnceLock<Vec<Kernel>>,
    launched: AtomicU64,
    closed: bool,
}

impl AscendDevice {
    /// NPU number `ordinal`, in the runtime's numbering, with the paths the environment gives.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the runtime is missing, a stub, too old or lacks a symbol, where there is no such
    /// NPU, and where the chip is not dav-2201; [`Error::Driver`] for what the runtime reports.
    pub fn open(ordinal: usize) -> Result<Self> {
        Self::open_with(ordinal, Options::from_env())
    }

    /// As [`open`](Self::open) with paths of the caller's; the environment is not asked for them.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(ordinal: usize, options: Options) -> Result<Self> {
        const OP: &str = "open";
        let runtime = Runtime::open(options.runtime.as_deref())?;
        let mut count = 0;
        // SAFETY: the number is written.
        unsafe { acl!(runtime, OP, aclrtGetDeviceCount(&mut count))? };
        let number = i32::try_from(ordinal).ok().filter(|_| ordinal < count as usize).ok_or_else(|| {
            unavailable(format!("there is no NPU {ordinal}, the runtime has {count}"), vec![runtime.path().to_owned()])
        })?;
        let context = Context::attach(runtime, number)?;
        let mut device = match context.within(OP, || Facts::ask(runtime, number)) {
            Ok(facts) => AscendDevice {
                info: DeviceInfo { platform: Platform::Ascend, ordinal, name: facts.describe(runtime), exact: false },
                runtime,
                context,
                chip: facts.chip,
                vector_cores: facts.vector_cores,
                options,
                compiler: Mutex::new(None),
                binaries: Mutex::new(Vec::new()),
                aligned: Aligned::default(),
                arithmetic: Arithmetic::Untested("skipped".into()),
                preparing: Mutex::new(()),
                stages: OnceLock::new(),
                launched: AtomicU64::new(0),
                closed: false,
            },
            Err(error) => {
                // The first error is the one to report.
                let _ = context.release();
                return Err(error);
            }
        };
        if !device.options.skip_self_test {
            device.arithmetic = device.test_arithmetic()?;
        }
        device.info.exact = device.arithmetic == Arithmetic::Exact;
        device.info.name = format!("{} ({})", device.info.name, device.arithmetic);
        Ok(device)
    }

    /// What the self-test at opening found: whether results are bit-identical to those of other devices.
    pub fn arithmetic(&self) -> &Arithmetic {
        &self.arithmetic
    }

    /// Runs the self-test. Kernels that cannot be had leave it untested, and will be refused by name when a step needs
    /// them.
    fn test_arithmetic(&self) -> Result<Arithmetic> {
        let kernel = match self.load(&kernels::self_test()) {
            Ok(kernels) => kernels[0],
            Err(error) => return Ok(Arithmetic::Untested(error.to_string())),
        };
        let operands = self_test::operands();
        let mut results = vec![0u8; self_test::RESULT_BYTES];
        let bytes = operands.len() + results.len();
        let memory = self.alloc(bytes)?;
        let ran = self.create_stream().and_then(|stream| {
            // SAFETY: the memory holds both; the host's vectors and the stream live until the stream has ended.
            let ran = unsafe { self.run_self_test(stream, kernel, memory, &operands, &mut results) };
            // SAFETY: created above, and everything on it has ended or failed.
            ran.and(unsafe { self.destroy_stream(stream) })
        });
        // SAFETY: allocated above, used no more.
        ran.and(unsafe { self.free(memory, bytes) })?;
        Ok(self_test::judge(&results))
    }

    /// # Safety
    /// `memory` holds operands and results one after the other; the stream is live.
    unsafe fn run_self_test(
        &self,
        stream: RawStream,
        kernel: Kernel,
        memory: DevPtr,
        operands: &[u8],
        results: &mut [u8],
    ) -> Result<()> {
        let output = memory.offset(operands.len());
        let arguments = Arguments::default().and(&[memory.0, output.0])?;
        // SAFETY: the caller's promise.
        unsafe {
            self.copy_to_device(stream, memory, operands.as_ptr(), operands.len())?;
            self.launch(stream, kernel, 1, &arguments)?;
            self.copy_to_host(stream, results.as_mut_ptr(), output, results.len())?;
            self.synchronize(stream)
        }
    }

    /// Kernel launches enqueued so far.
    #[doc(hidden)]
    pub fn launches(&self) -> u64 {
        self.launched.load(Ordering::Relaxed)
    }

    /// Vector cores of the NPU.
    pub fn vector_cores(&self) -> u32 {
        self.vector_cores
    }

    /// Unloads the kernels and gives the NPU back. Dropping the device does the same and has nobody to tell of a
    /// failure. What is refused is tried once more.
    ///
    /// # Errors
    /// What the runtime reports, after everything was tried.
    pub fn close(mut self) -> Result<()> {
        self.shut()
    }

    fn shut(&mut self) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        let binaries = self.binaries.get_mut().unwrap_or_else(PoisonError::into_inner);
        modules::unload_all(self.runtime, &self.context, binaries)?;
        self.context.release()?;
        self.closed = true;
        Ok(())
    }

    /// Compiles or finds the code of `unit` and loads it; its kernels, in the order of its entries. They stay loaded
    /// until the device is dropped.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where no compiler is found, [`Error::Driver`] for what compiler and runtime report,
    /// [`Error::Io`] for a prebuilt object that cannot be read.
    #[doc(hidden)]
    pub fn load(&self, unit: &Unit<'_>) -> Result<Vec<Kernel>> {
        let (code, origin) = {
            // One compilation at a time; the compiler stays open for the next.
            let mut compiler = self.compiler.lock().unwrap_or_else(PoisonError::into_inner);
            modules::code(self.runtime, &self.chip, &self.options, &mut compiler, unit)?
        };
        let binary = self.context.making(
            "prepare",
            || Binary::load(self.runtime, &code, origin, unit.entries),
            |binary| binary.unload(self.runtime),
        )?;
        let kernels = binary.kernels.clone();
        self.binaries.lock().unwrap_or_else(PoisonError::into_inner).push(binary);
        Ok(kernels)
    }

    /// Where the code of the loaded kernels came from.
    #[doc(hidden)]
    pub fn kernel_origins(&self) -> Vec<String> {
        let binaries = self.binaries.lock().unwrap_or_else(PoisonError::into_inner);
        binaries.iter().map(|binary| binary.origin.clone()).collect()
    }

    /// Enqueues `blocks` blocks of `kernel`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a number of blocks or arguments that cannot be, [`Error::Driver`] for what the runtime
    /// reports.
    ///
    /// # Safety
    /// The kernel is of this device, the stream is live, and what the arguments point at is what the kernel takes until
    /// the stream has passed this point.
    #[doc(hidden)]
    pub unsafe fn launch(&self, stream: RawStream, kernel: Kernel, blocks: u32, arguments: &Arguments) -> Result<()> {
        // SAFETY: the caller's promise; `within` makes the context current.
        self.context.within("launch", || unsafe {
            launch::launch(self.runtime, calls::stream(stream), kernel, blocks, arguments)
        })
    }
}

impl Drop for AscendDevice {
    fn drop(&mut self) {
        // A failure here has no caller to go to; `close` has one. With binaries that do not unload the NPU is not given
        // back: they would go with its last reference while somebody may still run them.
        let _ = self.shut();
    }
}

/// What an NPU is.
struct Facts {
    chip: String,
    vector_cores: u32,
    bytes: usize,
}

impl Facts {
    /// Asks the runtime; the NPU's context is current.
    fn ask(runtime: &Runtime, number: i32) -> Result<Self> {
        const OP: &str = "open";
        // SAFETY: the call takes nothing; the text it returns is a constant of the library, or null.
        let chip = unsafe {
            let Ok(name) = &runtime.calls.aclrtGetSocName else { return Err(runtime.lacks(OP, "aclrtGetSocName")) };
            let name = name();
            (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
        };
        let Some(chip) = chip else {
            let said = runtime.message().unwrap_or_else(|| "the runtime gives no message".into());
            return Err(Error::Driver {
                op: OP,
                call: "aclrtGetSocName",
                code: 0,
                message: format!("no name; {said}"),
            });
        };
        chip::check(&chip).map_err(|reason| unavailable(reason, vec![runtime.path().to_owned()]))?;
        let (mut cores, mut free, mut bytes) = (0, 0, 0);
        // SAFETY: each call writes the variables it is given.
        unsafe {
            use sys::acl;
            if runtime.calls.aclrtGetDeviceInfo.is_ok() {
                let which = acl::ACL_DEV_ATTR_VECTOR_CORE_NUM;
                acl!(runtime, OP, aclrtGetDeviceInfo(number as u32, which, &mut cores))?;
            } else {
                let which = acl::ACL_DEVICE_INFO_VECTOR_CORE_NUM;
                acl!(runtime, OP, aclGetDeviceCapability(number as u32, which, &mut cores))?;
            }
            acl!(runtime, OP, aclrtGetMemInfo(acl::ACL_HBM_MEM, &mut free, &mut bytes))?;
        }
        let vector_cores = u32::try_from(cores).ok().filter(|cores| *cores > 0).ok_or_else(|| {
            unavailable(format!("{chip} reports {cores} vector cores"), vec![runtime.path().to_owned()])
        })?;
        Ok(Facts { chip, vector_cores, bytes })
    }

    fn describe(&self, runtime: &Runtime) -> String {
        format!(
            "{}, {}, {} vector cores, {} MiB, CANN {}",
            self.chip,
            chip::ARCHITECTURE,
            self.vector_cores,
            self.bytes >> 20,
            runtime.version()
        )
    }
}

fn unavailable(reason: String, tried: Vec<String>) -> Error {
    Error::Unavailable(Unavailable { platform: Platform::Ascend, reason, tried })
}
