//! aclrtc, CANN's compiler as a library: kernels from source text, on a machine with the full toolkit.

use super::chip::ARCHITECTURE;
use super::search::{Search, find};
use super::sys::aclrtc::{self as sys, Aclrtc};
use super::{COMPILER_PATH, unavailable};
use crate::error::{Error, Result};
use libloading::Library;
use std::ffi::{CString, c_char, c_int};
use std::path::Path;
use std::ptr::null_mut;

/// It finds the compiler proper by its own path, so it must lie where it was installed.
const NAMES: &[&str] = &["libacl_rtc.so"];
/// Options of every kernel; `-std=c++17` and the toolkit's headers are added by aclrtc itself.
const OPTIMISE: &str = "-O3";

/// The options kernels are compiled with.
pub(super) fn options() -> Vec<String> {
    vec![format!("--npu-arch={ARCHITECTURE}"), OPTIMISE.to_owned()]
}

/// A compiler.
#[derive(Debug)]
pub(super) struct Compiler {
    calls: Aclrtc,
    path: String,
}

impl std::fmt::Debug for Aclrtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Aclrtc")
    }
}

macro_rules! aclrtc {
    ($compiler:expr, $name:ident($($arg:expr),*)) => {
        match &$compiler.calls.$name {
            Ok(call) => $compiler.check(stringify!($name), call($($arg),*)),
            // `open` has seen every one of them.
            Err(error) => Err(unavailable(error.to_string(), vec![$compiler.path.clone()])),
        }
    };
}

impl Compiler {
    /// Finds the compiler: the caller's, else the one beside the runtime, else as the runtime is looked for.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with everything tried or the symbols missing.
    pub fn find(explicit: Option<&Path>, beside: Option<&Path>) -> Result<Self> {
        let search = Search { what: "CANN compiler (aclrtc)", names: NAMES, explicit, variable: COMPILER_PATH, beside };
        find(&search, Self::checked)
    }

    fn checked(library: Library, path: &str) -> Result<Self> {
        // SAFETY: the symbols are looked up, none is called here.
        let calls = unsafe { Aclrtc::from_library(library) }
            .map_err(|error| unavailable(format!("{path}: {error}"), vec![path.to_owned()]))?;
        macro_rules! missing {
            ($($name:ident)+) => { [$( (stringify!($name), calls.$name.is_err()) ),+] };
        }
        let missing: Vec<&str> = missing!(aclrtcCreateProg aclrtcCompileProg aclrtcDestroyProg aclrtcGetBinDataSize
            aclrtcGetBinData aclrtcGetCompileLogSize aclrtcGetCompileLog)
        .into_iter()
        .filter_map(|(name, missing)| missing.then_some(name))
        .collect();
        if missing.is_empty() {
            return Ok(Compiler { calls, path: path.to_owned() });
        }
        Err(unavailable(format!("{path} lacks {}", missing.join(", ")), vec![path.to_owned()]))
    }

    /// Where it was found.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Compiles `source` to a binary; `name` stands in the messages. Needs no device.
    ///
    /// # Errors
    /// [`Error::Driver`] with the compiler's log.
    pub fn compile(&self, name: &str, source: &str, options: &[String]) -> Result<Vec<u8>> {
        let text = |what: &'static str, text: &str| {
            CString::new(text).map_err(|error| Error::argument("compile", what, error.nul_position(), "no zero byte"))
        };
        let source = text("zero byte in source at", source)?;
        let name = text("zero byte in name at", &format!("{name}.asc"))?;
        let options = options.iter().map(|o| text("zero byte in option at", o)).collect::<Result<Vec<_>>>()?;
        let mut options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = Program { compiler: self, raw: null_mut() };
        // SAFETY: every pointer is to a string or a variable that outlives the call; the buffer has the size the
        // library gives; the program is destroyed below, or by its owner's drop where a call failed before.
        unsafe {
            let (raw, none) = (&mut program.raw, null_mut::<*const c_char>());
            aclrtc!(self, aclrtcCreateProg(raw, source.as_ptr(), name.as_ptr(), 0, none, none))?;
            let count = options.len() as c_int;
            aclrtc!(self, aclrtcCompileProg(program.raw, count, options.as_mut_ptr()))
                .map_err(|error| self.with_log(error, &program))?;
            let mut size = 0;
            aclrtc!(self, aclrtcGetBinDataSize(program.raw, &mut size))?;
            let mut binary = vec![0u8; size];
            aclrtc!(self, aclrtcGetBinData(program.raw, binary.as_mut_ptr().cast()))?;
            program.destroy()?;
            Ok(binary)
        }
    }

    /// Adds the compiler's log to a failed compilation, or why there is none.
    fn with_log(&self, error: Error, program: &Program<'_>) -> Error {
        let log = self.log(program).unwrap_or_else(|why| format!("(no log: {why})"));
        match error {
            Error::Driver { op, call, code, message } => {
                Error::Driver { op, call, code, message: format!("{message}\n{}", log.trim_end()) }
            }
            other => other,
        }
    }

    fn log(&self, program: &Program<'_>) -> Result<String> {
        let mut size = 0;
        // SAFETY: the program is alive; the buffer has the size the library gives.
        let bytes = unsafe {
            aclrtc!(self, aclrtcGetCompileLogSize(program.raw, &mut size))?;
            let mut bytes = vec![0u8; size];
            aclrtc!(self, aclrtcGetCompileLog(program.raw, bytes.as_mut_ptr().cast()))?;
            bytes
        };
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
    }

    fn check(&self, call: &'static str, code: sys::aclError) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let name = code_name(code).unwrap_or("a code without a name here");
        Err(Error::Driver { op: "compile", call, code: code.into(), message: format!("{name}; by {}", self.path) })
    }
}

/// What a return code of aclrtc means; its header names none of them.
fn code_name(code: sys::aclError) -> Option<&'static str> {
    Some(match code {
        176_000 => "the program is not valid",
        176_001 => "an argument is refused",
        176_002 => "an option is refused",
        176_003 => "the source does not compile",
        176_004 => "the object does not link",
        276_000 => "the program could not be created",
        276_001 => "memory is exhausted",
        576_000 => "failure; a copy of libacl_rtc.so outside its toolkit, or a toolkit without its compiler, ends so",
        _ => return None,
    })
}

/// A program that is destroyed on drop.
struct Program<'a> {
    compiler: &'a Compiler,
    raw: sys::aclrtcProg,
}

impl Program<'_> {
    fn destroy(&mut self) -> Result<()> {
        if self.raw.is_null() {
            return Ok(());
        }
        // SAFETY: created by aclrtcCreateProg, not used after this.
        unsafe { aclrtc!(self.compiler, aclrtcDestroyProg(&mut self.raw)) }?;
        self.raw = null_mut();
        Ok(())
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // Only where this or another call failed before, whose error is the one to report.
        let _ = self.destroy();
    }
}
