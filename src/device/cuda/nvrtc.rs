//! NVRTC: found on the machine, checked symbol by symbol, asked for CUBIN.
//!
//! A loader of our own for eight functions: it reports what is missing instead of panicking, chooses the compiler that
//! fits the driver, and asks for machine code. PTX of a compiler newer than the driver is refused by the driver.

use super::driver::version_text;
use super::unavailable;
use crate::error::{Error, Result};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

/// Environment variable with the path of the NVRTC to use.
pub const NVRTC_PATH: &str = "SAMEDRAW_NVRTC";
/// Library names, newest first.
const NAMES: [&str; 2] = ["libnvrtc.so.13", "libnvrtc.so.12"];

/// Flags of every kernel: the roundings the semantics ask for, and code without the host's headers.
const FLAGS: [&str; 6] =
    ["-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true", "--std=c++17", "-default-device"];

/// The flags for a card of compute capability `major.minor`.
pub fn flags((major, minor): (u32, u32)) -> Vec<String> {
    let arch = format!("--gpu-architecture=sm_{major}{minor}");
    std::iter::once(arch).chain(FLAGS.iter().map(|flag| flag.to_string())).collect()
}

type Program = *mut std::ffi::c_void;
type Code = c_int;

macro_rules! functions {
    ($( $field:ident: $symbol:literal ($($ty:ty),*) -> $out:ty; )*) => {
        #[derive(Debug)]
        struct Functions { $( $field: unsafe extern "C" fn($($ty),*) -> $out, )* }

        impl Functions {
            fn load(library: &Library, path: &str) -> Result<Self> {
                let mut missing: Vec<&str> = Vec::new();
                $(
                    // SAFETY: NVRTC has exported this symbol with this signature since CUDA 11.1; it is not called here.
                    let $field = unsafe { library.get::<unsafe extern "C" fn($($ty),*) -> $out>($symbol) };
                    if $field.is_err() {
                        missing.push($symbol);
                    }
                )*
                match ($($field,)*) {
                    ($(Ok($field),)*) => Ok(Functions { $( $field: *$field, )* }),
                    _ => Err(unavailable(format!("{path} lacks {}", missing.join(", ")), vec![path.to_owned()])),
                }
            }
        }
    };
}

functions! {
    version: "nvrtcVersion" (*mut c_int, *mut c_int) -> Code;
    error_string: "nvrtcGetErrorString" (Code) -> *const c_char;
    create: "nvrtcCreateProgram"
        (*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> Code;
    compile: "nvrtcCompileProgram" (Program, c_int, *const *const c_char) -> Code;
    destroy: "nvrtcDestroyProgram" (*mut Program) -> Code;
    log_size: "nvrtcGetProgramLogSize" (Program, *mut usize) -> Code;
    log: "nvrtcGetProgramLog" (Program, *mut c_char) -> Code;
    cubin_size: "nvrtcGetCUBINSize" (Program, *mut usize) -> Code;
    cubin: "nvrtcGetCUBIN" (Program, *mut c_char) -> Code;
}

/// A compiler.
#[derive(Debug)]
pub struct Nvrtc {
    functions: Functions,
    path: String,
    version: (i32, i32),
    /// Closed last.
    _library: Library,
    _builtins: Option<Library>,
}

/// Machine code and what the compiler said about it.
#[derive(Debug)]
pub struct Compiled {
    /// The CUBIN.
    pub cubin: Vec<u8>,
    /// The compiler's messages.
    pub log: String,
}

impl Nvrtc {
    /// The compiler that fits a driver of CUDA `driver_version` (13000 is 13.0) best: of the driver's major version,
    /// else any.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with everything tried.
    pub fn find(driver_version: i32) -> Result<Self> {
        if let Some(path) = std::env::var(NVRTC_PATH).ok().filter(|path| !path.is_empty()) {
            return Self::open(&path);
        }
        let names = NAMES.map(str::to_owned);
        let open_now = names.iter().filter_map(|name| Some((name.clone(), loaded(name)?)));
        let mut tried = Vec::new();
        let mut other: Option<Nvrtc> = None;
        let mut fits = |name: String, library: Library| match Self::checked(library, &name) {
            Ok(nvrtc) if nvrtc.version.0 == driver_version / 1000 => Some(nvrtc),
            Ok(nvrtc) => {
                tried.push(format!("{name} (NVRTC {})", nvrtc.version_text()));
                other.get_or_insert(nvrtc);
                None
            }
            Err(error) => {
                tried.push(error.to_string());
                None
            }
        };
        for (name, library) in open_now {
            if let Some(nvrtc) = fits(name, library) {
                return Ok(nvrtc);
            }
        }
        let mut absent = Vec::new();
        for name in places().into_iter().chain(names) {
            match by_name(&name) {
                Some(library) => {
                    if let Some(nvrtc) = fits(name, library) {
                        return Ok(nvrtc);
                    }
                }
                None => absent.push(name),
            }
        }
        tried.extend(absent);
        let reason = format!("no NVRTC was found for a driver of CUDA {}", version_text(driver_version));
        other.ok_or_else(|| unavailable(format!("{reason}; {NVRTC_PATH} may name one"), tried))
    }

    /// The compiler at `path`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where it cannot be opened or lacks a symbol.
    pub fn open(path: &str) -> Result<Self> {
        // SAFETY: opening NVRTC runs its initialisers, which is what opening it is for.
        let library = unsafe { Library::new(path) }
            .map_err(|error| unavailable(format!("NVRTC cannot be opened: {error}"), vec![path.to_owned()]))?;
        Self::checked(library, path)
    }

    fn checked(library: Library, path: &str) -> Result<Self> {
        let functions = Functions::load(&library, path)?;
        let mut version = (0, 0);
        // SAFETY: the function writes two ints.
        let code = unsafe { (functions.version)(&mut version.0, &mut version.1) };
        if code != 0 {
            return Err(unavailable(format!("{path}: nvrtcVersion gave {code}"), vec![path.to_owned()]));
        }
        Ok(Nvrtc { functions, path: path.to_owned(), version, _library: library, _builtins: builtins(path, version) })
    }

    /// Where it was found.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its version, as `13.0`.
    pub fn version_text(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// Compiles `source` to machine code. `name` stands in the messages.
    ///
    /// # Errors
    /// [`Error::Driver`] with the compiler's messages.
    pub fn compile(&self, name: &str, source: &str, flags: &[String]) -> Result<Compiled> {
        let text = |what: &'static str, text: &str| {
            CString::new(text).map_err(|error| Error::argument("compile", what, error.nul_position(), "no zero byte"))
        };
        let (source, name) = (text("zero byte in source at", source)?, text("zero byte in name at", name)?);
        let flags = flags.iter().map(|flag| text("zero byte in flag at", flag)).collect::<Result<Vec<_>>>()?;
        let flags: Vec<*const c_char> = flags.iter().map(|flag| flag.as_ptr()).collect();
        let f = &self.functions;
        let mut program = Open { functions: f, raw: null_mut() };
        // SAFETY: every pointer is to a string or a variable that outlives the call; the sizes are those the library
        // gives; the program is destroyed by its owner's drop.
        unsafe {
            let raw = &mut program.raw;
            self.check("nvrtcCreateProgram", (f.create)(raw, source.as_ptr(), name.as_ptr(), 0, null(), null()), "")?;
            let code = (f.compile)(program.raw, flags.len() as c_int, flags.as_ptr());
            let log = self.log(&program)?;
            self.check("nvrtcCompileProgram", code, &log)?;
            let mut size = 0;
            self.check("nvrtcGetCUBINSize", (f.cubin_size)(program.raw, &mut size), &log)?;
            let mut cubin = vec![0u8; size];
            self.check("nvrtcGetCUBIN", (f.cubin)(program.raw, cubin.as_mut_ptr().cast()), &log)?;
            Ok(Compiled { cubin, log })
        }
    }

    fn log(&self, program: &Open<'_>) -> Result<String> {
        let mut size = 0;
        // SAFETY: the program is alive; the buffer has the size the library gives.
        let bytes = unsafe {
            self.check("nvrtcGetProgramLogSize", (self.functions.log_size)(program.raw, &mut size), "")?;
            let mut bytes = vec![0u8; size];
            self.check("nvrtcGetProgramLog", (self.functions.log)(program.raw, bytes.as_mut_ptr().cast()), "")?;
            bytes
        };
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
    }

    fn check(&self, call: &'static str, code: Code, log: &str) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the function returns a static string for any code.
        let name = unsafe {
            let text = (self.functions.error_string)(code);
            if text.is_null() { "".into() } else { CStr::from_ptr(text).to_string_lossy() }
        };
        let message = format!("{name} (NVRTC {} at {}) {log}", self.version_text(), self.path);
        Err(Error::Driver { op: "compile", call, code: code.into(), message })
    }
}

/// A program that is destroyed on drop.
struct Open<'a> {
    functions: &'a Functions,
    raw: Program,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: created by nvrtcCreateProgram, not used after this.
            unsafe { (self.functions.destroy)(&mut self.raw) };
        }
    }
}

/// The library that NVRTC opens by name once it compiles, from the folder NVRTC is in: in a Python wheel the loader would
/// not look there. Where it is not in that folder, NVRTC finds it or says that it did not.
fn builtins(nvrtc: &str, (major, minor): (i32, i32)) -> Option<Library> {
    let folder = Path::new(nvrtc).parent().filter(|folder| !folder.as_os_str().is_empty())?;
    by_name(&folder.join(format!("libnvrtc-builtins.so.{major}.{minor}")).to_string_lossy())
}

/// A library this process has open already, as a framework may.
fn loaded(name: &str) -> Option<Library> {
    use libloading::os::unix;
    const RTLD_NOLOAD: c_int = 4;
    // SAFETY: nothing is loaded, so no initialiser runs; the handle counts one more reference.
    unsafe { unix::Library::open(Some(name), unix::RTLD_LAZY | RTLD_NOLOAD) }.ok().map(Library::from)
}

fn by_name(name: &str) -> Option<Library> {
    // SAFETY: opening NVRTC runs its initialisers, which is what opening it is for.
    unsafe { Library::new(name) }.ok()
}

/// Files that exist where toolkits and Python wheels put the library, in the order they are tried.
fn places() -> Vec<String> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut folders: Vec<PathBuf> = from("CUDA_HOME").map(|home| home.join("lib64")).into_iter().collect();
    folders.push("/usr/local/cuda/lib64".into());
    let mut versions = below(Path::new("/usr/local"), "cuda-");
    versions.sort();
    folders.extend(versions.into_iter().rev().map(|folder| folder.join("lib64")));
    let python = std::env::current_exe()
        .ok()
        .filter(|exe| exe.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python")));
    let prefix = python.and_then(|exe| Some(exe.parent()?.parent()?.to_owned()));
    for prefix in [from("VIRTUAL_ENV"), from("CONDA_PREFIX"), prefix].into_iter().flatten() {
        for version in below(&prefix.join("lib"), "python3") {
            let wheels = version.join("site-packages").join("nvidia");
            folders.extend(["cu13", "cuda_nvrtc"].map(|wheel| wheels.join(wheel).join("lib")));
        }
    }
    let files = folders.iter().flat_map(|folder| NAMES.map(|name| folder.join(name)));
    files.filter(|file| file.exists()).map(|file| file.to_string_lossy().into_owned()).collect()
}

/// Entries of a folder whose name starts with `start`.
fn below(folder: &Path, start: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start)).map(|entry| entry.path()).collect()
}
