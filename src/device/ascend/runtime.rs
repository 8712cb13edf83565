//! CANN's runtime: found, checked symbol by symbol, initialised; its errors with its own messages.

use super::search::{Search, find};
use super::sys::acl::{self as sys, Acl};
use super::{RUNTIME_PATH, unavailable};
use crate::error::{Error, Result};
use libloading::Library;
use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The oldest CANN: 8.5.0, from which kernels are loaded from memory and launched with host arguments.
const OLDEST: i32 = 80_500_000;
/// The library that holds the runtime, and the one that held it before.
const NAMES: &[&str] = &["libacl_rt.so", "libascendcl.so"];

/// Calls one function of the runtime by name: `acl!(runtime, op, aclrtFree(ptr))`. Must stand in an unsafe block whose
/// comment answers for the call; a symbol that is not there is an error.
macro_rules! acl {
    ($runtime:expr, $op:expr, $name:ident($($arg:expr),* $(,)?)) => {
        match &$runtime.calls.$name {
            Ok(call) => $runtime.check($op, stringify!($name), call($($arg),*)),
            Err(_) => Err($runtime.lacks($op, stringify!($name))),
        }
    };
}
pub(super) use acl;

macro_rules! symbols {
    ($( $list:ident: $($name:ident)+; )+) => {
        $(
            /// Names of the list, each with whether the library has it.
            fn $list(calls: &Acl) -> Vec<(&'static str, bool)> {
                vec![$( (stringify!($name), calls.$name.is_ok()) ),+]
            }
        )+
    };
}

symbols! {
    required:
        aclInit aclGetRecentErrMsg aclGetDeviceCapability
        aclrtGetDeviceCount aclrtSetDevice aclrtResetDevice aclrtGetCurrentContext aclrtSetCurrentContext
        aclrtGetSocName aclrtGetMemInfo
        aclrtMalloc aclrtFree aclrtMallocHost aclrtFreeHost aclrtMemcpyAsync aclrtMemsetAsync
        aclrtCreateStream aclrtDestroyStream aclrtSynchronizeStream
        aclrtCreateEventExWithFlag aclrtDestroyEvent aclrtRecordEvent aclrtQueryEventStatus aclrtSynchronizeEvent
        aclrtEventElapsedTime
        aclrtBinaryLoadFromData aclrtBinaryGetFunction aclrtBinaryUnLoad aclrtLaunchKernelWithHostArgs;
    for_capture:
        aclmdlRICaptureBegin aclmdlRICaptureEnd aclmdlRICaptureGetInfo aclmdlRIExecuteAsync aclmdlRIDestroy;
}

/// The runtime of this process.
#[derive(Debug)]
pub(super) struct Runtime {
    pub calls: Acl,
    path: String,
    version: Option<i32>,
    version_text: String,
}

impl std::fmt::Debug for Acl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acl")
    }
}

impl Runtime {
    /// Finds, checks and initialises the runtime; a second call with the same result gives the same runtime. It is never
    /// closed: its threads and the stack around it outlive any device.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with everything tried, the symbols missing, the versions found and needed, or what the
    /// library says for itself.
    pub fn open(explicit: Option<&Path>) -> Result<&'static Self> {
        static OPENED: Mutex<Vec<&'static Runtime>> = Mutex::new(Vec::new());
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let search = Search { what: "CANN runtime", names: NAMES, explicit, variable: RUNTIME_PATH, beside: None };
        find(&search, |library, path| {
            // The same library may be found by its path now and by its name, being open, later.
            let init = address(&library, "aclInit");
            if let Some(known) = opened.iter().find(|known| init.is_some() && known.init() == init) {
                return Ok(*known);
            }
            let runtime: &'static Runtime = Box::leak(Box::new(Self::checked(library, path)?));
            opened.push(runtime);
            Ok(runtime)
        })
    }

    fn init(&self) -> Option<usize> {
        self.calls.aclInit.as_ref().ok().map(|call| *call as usize)
    }

    fn checked(library: Library, path: &str) -> Result<Self> {
        // SAFETY: the symbols are looked up, none is called here.
        let calls = unsafe { Acl::from_library(library) }
            .map_err(|error| unavailable(format!("{path}: {error}"), vec![path.to_owned()]))?;
        let mut runtime = Runtime { calls, path: path.to_owned(), version: None, version_text: String::new() };
        (runtime.version, runtime.version_text) = runtime.ask_version();
        let refused = match runtime.lack() {
            Some(lack) => Err(unavailable(lack, vec![path.to_owned()])),
            None => runtime.initialise(),
        };
        match refused {
            Ok(()) => Ok(runtime),
            Err(error) => {
                // Closing a library that may have started threads is not safe; the few bytes are.
                std::mem::forget(runtime);
                Err(error)
            }
        }
    }

    /// What keeps this library from being used: symbols it lacks, an old version.
    fn lack(&self) -> Option<String> {
        let missing: Vec<&str> =
            required(&self.calls).into_iter().filter(|(_, there)| !there).map(|(name, _)| name).collect();
        let old = self.version.is_some_and(|version| version < OLDEST);
        if missing.is_empty() && !old {
            return None;
        }
        let lacks = if missing.is_empty() { String::new() } else { format!(", which lacks {}", missing.join(", ")) };
        let is = match self.version {
            Some(_) => format!("of CANN {}", self.version_text),
            None => "of a CANN that does not tell its version".into(),
        };
        Some(format!("{} is {is}{lacks}; CANN {} or newer is needed", self.path, number_text(OLDEST)))
    }

    fn ask_version(&self) -> (Option<i32>, String) {
        let mut package = *b"runtime\0";
        let mut number = 0;
        let known = self.calls.aclsysGetVersionNum.as_ref().is_ok_and(|call| {
            // SAFETY: the name ends with a zero, the number is written; the call reads an installed file.
            let code = unsafe { call(package.as_mut_ptr().cast(), &mut number) };
            code == sys::ACL_ERROR_NONE
        });
        let mut text = [0u8; sys::ACL_PKG_VERSION_MAX_SIZE as usize + 1];
        let named = self.calls.aclsysGetVersionStr.as_ref().is_ok_and(|call| {
            // SAFETY: as above; at most ACL_PKG_VERSION_MAX_SIZE bytes are written, one is left for the zero.
            let code = unsafe { call(package.as_mut_ptr().cast(), text.as_mut_ptr().cast()) };
            code == sys::ACL_ERROR_NONE
        });
        if !known || !named {
            // What the runtime said of these two calls is not to be taken for a message of the next.
            let _ = self.message();
        }
        let text = named.then(|| CStr::from_bytes_until_nul(&text).ok()).flatten();
        let text = text.map(|text| text.to_string_lossy().into_owned()).filter(|text| !text.is_empty());
        let number = known.then_some(number);
        (number, text.or(number.map(number_text)).unwrap_or_else(|| "unknown".into()))
    }

    fn initialise(&self) -> Result<()> {
        // SAFETY: without a path there is no configuration to read. Whoever else uses the runtime may have done it.
        let done = unsafe { acl!(self, "open", aclInit(std::ptr::null())) };
        let why = match done {
            Err(Error::Driver { code, .. }) if code == i64::from(sys::ACL_ERROR_REPEAT_INITIALIZE) => return Ok(()),
            Err(Error::Driver { code, .. }) if code == i64::from(sys::ACL_ERROR_COMPILING_STUB_MODE) => format!(
                "{} is a stub, made for linking on machines without a driver (code {code}); the directory \
                 of the runtime must come before devlib in LD_LIBRARY_PATH",
                self.path
            ),
            Err(error) => format!("{}: {error}", self.path),
            Ok(()) => return Ok(()),
        };
        Err(unavailable(why, vec![self.path.clone()]))
    }

    /// Where it was found.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The folder it was found in, if it was not found by name.
    pub fn folder(&self) -> Option<PathBuf> {
        Path::new(&self.path).parent().filter(|folder| !folder.as_os_str().is_empty()).map(Path::to_owned)
    }

    /// Its version as it spells it.
    pub fn version(&self) -> &str {
        &self.version_text
    }

    /// Refuses capture where a symbol of it is missing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] naming the symbols.
    pub fn check_capture(&self, op: &'static str) -> Result<()> {
        let missing: Vec<&str> =
            for_capture(&self.calls).into_iter().filter(|(_, there)| !there).map(|(name, _)| name).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let what = format!("capture with CANN {}, which lacks {},", self.version_text, missing.join(", "));
        Err(Error::Unsupported { op, what })
    }

    /// The error of a call whose optional symbol is missing.
    pub fn lacks(&self, op: &'static str, call: &'static str) -> Error {
        Error::Unsupported { op, what: format!("{call}, which CANN {} lacks,", self.version_text) }
    }

    /// The result of a call, its failure with what the runtime says about it.
    pub fn check(&self, op: &'static str, call: &'static str, code: sys::aclError) -> Result<()> {
        if code == sys::ACL_ERROR_NONE {
            return Ok(());
        }
        let own = code_name(i64::from(code)).unwrap_or("a code without a name here");
        let said = self.message().unwrap_or_else(|| "the runtime gives no message".into());
        Err(Error::Driver { op, call, code: code.into(), message: format!("{own}; {said}") })
    }

    /// The runtime's message of the last failure on this thread. Asking clears it.
    pub fn message(&self) -> Option<String> {
        let call = self.calls.aclGetRecentErrMsg.as_ref().ok()?;
        // SAFETY: the call takes nothing; the text is good until the next call on this thread, and copied here.
        let text = unsafe {
            let text: *const c_char = call();
            if text.is_null() { return None } else { CStr::from_ptr(text).to_string_lossy().trim().to_owned() }
        };
        (!text.is_empty()).then_some(text)
    }
}

fn address(library: &Library, name: &str) -> Option<usize> {
    // SAFETY: the symbol is not called, its address is compared.
    unsafe { library.get::<unsafe extern "C" fn()>(name) }.ok().map(|symbol| *symbol as usize)
}

/// `80500000` as `8.5.0`.
fn number_text(number: i32) -> String {
    format!("{}.{}.{}", number / 10_000_000, number / 100_000 % 100, number / 1000 % 100)
}

/// What a return code means.
fn code_name(code: i64) -> Option<&'static str> {
    macro_rules! names {
        ($( $name:ident $text:literal )+) => { [$( (sys::$name as i64, concat!(stringify!($name), ": ", $text)) ),+] };
    }
    let names = names! {
        ACL_ERROR_INVALID_PARAM "an argument is refused"
        ACL_ERROR_UNINITIALIZE "the runtime is not initialised"
        ACL_ERROR_COMPILING_STUB_MODE "a stub library, made for linking, was loaded"
        ACL_ERROR_BAD_ALLOC "host memory is exhausted"
        ACL_ERROR_API_NOT_SUPPORT "the call is not supported here"
        ACL_ERROR_INTERNAL_ERROR "internal error"
        ACL_ERROR_FAILURE "failure without a cause"
        ACL_ERROR_RT_PARAM_INVALID "an argument is refused"
        ACL_ERROR_RT_INVALID_DEVICEID "there is no such device"
        ACL_ERROR_RT_CONTEXT_NULL "no device is set on this thread"
        ACL_ERROR_RT_STREAM_CONTEXT "the stream is of another context"
        ACL_ERROR_RT_INVALID_HANDLE "a handle is not valid"
        ACL_ERROR_RT_STREAM_CAPTURED "the stream is capturing"
        ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT "not allowed during a capture"
        ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED "the capture was invalidated"
        ACL_ERROR_RT_FEATURE_NOT_SUPPORT "the feature is not supported here"
        ACL_ERROR_RT_MEMORY_ALLOCATION "memory is exhausted"
        ACL_ERROR_RT_NO_STREAM_RESOURCE "there are no streams left"
        ACL_ERROR_RT_DEVICE_OOM "device memory is exhausted"
        ACL_ERROR_RT_SOC_VERSION "not for this chip"
        ACL_ERROR_RT_LOST_HEARTBEAT "the device no longer answers"
        ACL_ERROR_RT_AICORE_TIMEOUT "a kernel did not end in time"
        ACL_ERROR_RT_AICORE_EXCEPTION "a kernel failed"
        ACL_ERROR_RT_KERNEL_LOOKUP "there is no such kernel in the binary"
        ACL_ERROR_RT_VECTOR_CORE_TIMEOUT "a kernel did not end in time"
        ACL_ERROR_RT_VECTOR_CORE_EXCEPTION "a kernel failed"
    };
    names.iter().find(|(known, _)| *known == code).map(|(_, text)| *text)
}

/// Whether `error` is a refused allocation, in one of the runtime's ways to say so.
pub(super) fn is_out_of_memory(error: &Error) -> bool {
    let codes = [
        i64::from(sys::ACL_ERROR_BAD_ALLOC),
        i64::from(sys::ACL_ERROR_RT_MEMORY_ALLOCATION),
        i64::from(sys::ACL_ERROR_RT_DEVICE_OOM),
    ];
    matches!(error, Error::Driver { code, .. } if codes.contains(code))
}

#[cfg(test)]
mod tests {
    use super::number_text;

    #[test]
    fn versions_are_spelled_as_the_vendor_spells_them() {
        assert_eq!(number_text(80_500_000), "8.5.0");
        assert_eq!(number_text(90_001_000), "9.0.1");
        assert_eq!(number_text(80_200_000), "8.2.0");
    }
}
