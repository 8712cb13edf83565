//! Kernel binaries: from a prebuilt object, from the cache, or compiled now; loaded, and unloaded with the device.

use super::chip::ARCHITECTURE;
use super::compiler::{self, Compiler};
use super::context::Context;
use super::kernels::{self, MARK, Unit};
use super::launch::Kernel;
use super::runtime::{Runtime, acl};
use super::sys::acl as sys;
use super::{Options, unavailable};
use crate::device::cache::Cache;
use crate::error::{Error, Result};
use std::ffi::CStr;
use std::path::Path;
use std::ptr::null_mut;

const OP: &str = "prepare";
/// What the cache holds.
const KIND: &str = "ascend.o";

/// A loaded binary.
#[derive(Debug)]
pub(super) struct Binary {
    raw: sys::aclrtBinHandle,
    pub kernels: Vec<Kernel>,
    /// Where its code came from.
    pub origin: String,
}

// SAFETY: handles the runtime takes on any thread in whose context they were made.
unsafe impl Send for Binary {}

/// Gets the code of `unit`, and finds the compiler only once it is needed.
pub(super) fn code(
    runtime: &Runtime,
    chip: &str,
    options: &Options,
    compiler: &mut Option<Compiler>,
    unit: &Unit<'_>,
) -> Result<(Vec<u8>, String)> {
    if let Some(path) = &options.kernels {
        return Ok((object(path)?, format!("the object {}", path.display())));
    }
    let flags = compiler::options();
    // The compiler tells no version of its own; it comes with the runtime's.
    let by = format!("CANN {} for {chip}", runtime.version());
    let key = format!("{by}\n{}\n{}\n{}", flags.join(" "), unit.name, unit.source);
    let cache = match &options.cache {
        Some(folder) => Some(Cache::at(folder, KIND)),
        None => Cache::of_user(KIND),
    };
    if let Some(code) = cache.as_ref().and_then(|cache| cache.load(key.as_bytes())) {
        return Ok((code, format!("cached, by {by}")));
    }
    let compiler = match compiler {
        Some(compiler) => compiler,
        none => none.insert(Compiler::find(options.compiler.as_deref(), runtime.folder().as_deref())?),
    };
    let code = compiler.compile(unit.name, unit.source, &flags)?;
    let kept = match cache.map(|cache| cache.store(key.as_bytes(), &code)) {
        Some(Ok(path)) => format!("kept at {}", path.display()),
        // A cache that cannot be written costs the next process the compilation and nothing else.
        Some(Err(error)) => format!("not kept: {error}"),
        None => "not kept: no cache folder".into(),
    };
    Ok((code, format!("compiled by {} of {by}, {kept}", compiler.path())))
}

/// A prebuilt object, which is an ELF file built from the sources of this version.
fn object(path: &Path) -> Result<Vec<u8>> {
    let shown = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| Error::Io {
        op: "read kernels",
        path: shown.clone(),
        message: error.to_string(),
    })?;
    if !bytes.starts_with(b"\x7fELF") {
        return Err(unavailable(format!("the kernels at {shown} are no object file for {ARCHITECTURE}"), vec![shown]));
    }
    let own = kernels::hash();
    match built_from(&bytes) {
        Some(other) if other == own => Ok(bytes),
        Some(other) => Err(unavailable(
            format!("the kernels at {shown} were built from the sources {other}, this version has {own}"),
            vec![shown],
        )),
        None => {
            let reason = format!("the kernels at {shown} do not tell which sources they were built from ({MARK}...)");
            Err(unavailable(reason, vec![shown]))
        }
    }
}

/// The hash of the sources an object was built from: it stands in the name of one of its kernels.
fn built_from(object: &[u8]) -> Option<String> {
    let mark = MARK.as_bytes();
    let at = object.windows(mark.len()).position(|part| part == mark)? + mark.len();
    let hash = object.get(at..at + 32)?;
    hash.iter().all(u8::is_ascii_hexdigit).then(|| String::from_utf8_lossy(hash).into_owned())
}

impl Binary {
    /// Loads `code` and looks up its kernels. The context is current.
    pub fn load(runtime: &Runtime, code: &[u8], origin: String, entries: &[&CStr]) -> Result<Self> {
        let magic = sys::ACL_RT_BINARY_MAGIC_ELF_AICORE;
        let mut option = sys::aclrtBinaryLoadOption {
            type_: sys::ACL_RT_BINARY_LOAD_OPT_MAGIC,
            value: sys::aclrtBinaryLoadOptionValue { magic },
        };
        let options = sys::aclrtBinaryLoadOptions { options: &mut option, numOpt: 1 };
        let mut binary = Binary { raw: null_mut(), kernels: Vec::with_capacity(entries.len()), origin };
        // SAFETY: code and options outlive the call, the handle is written.
        unsafe {
            acl!(runtime, OP, aclrtBinaryLoadFromData(code.as_ptr().cast(), code.len(), &options, &mut binary.raw))?;
        }
        for entry in entries {
            let mut raw = null_mut();
            // SAFETY: the binary is loaded, the name a C string, the handle is written.
            let found = unsafe { acl!(runtime, OP, aclrtBinaryGetFunction(binary.raw, entry.as_ptr(), &mut raw)) };
            if let Err(error) = found {
                // The first error is the one to report.
                let _ = binary.unload(runtime);
                return Err(named(error, entry, &binary.origin));
            }
            binary.kernels.push(Kernel(raw));
        }
        Ok(binary)
    }

    /// Unloads it. The context of the load is current and no launch of its kernels is in flight.
    pub fn unload(&self, runtime: &Runtime) -> Result<()> {
        // SAFETY: loaded by `load`, not used after this.
        unsafe { acl!(runtime, "close", aclrtBinaryUnLoad(self.raw)) }
    }
}

/// Adds to a failed look-up which kernel was looked for.
fn named(error: Error, entry: &CStr, origin: &str) -> Error {
    match error {
        Error::Driver { op, call, code, message } => {
            Error::Driver { op, call, code, message: format!("{message} (kernel {entry:?} in {origin})") }
        }
        other => other,
    }
}

/// Unloads every binary; the first error, after all were tried. Those that are still loaded stay in the list.
pub(super) fn unload_all(runtime: &Runtime, context: &Context, binaries: &mut Vec<Binary>) -> Result<()> {
    if binaries.is_empty() {
        return Ok(());
    }
    context.within("close", || {
        let mut result = Ok(());
        binaries.retain(|binary| {
            let unloaded = binary.unload(runtime);
            let failed = unloaded.is_err();
            result = std::mem::replace(&mut result, Ok(())).and(unloaded);
            failed
        });
        result
    })
}
