//! Statuses, the message of a thread's last failure, and the guard around every function.

use samedraw::Error;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a function returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum samedraw_status {
    /// Done, or enqueued.
    SAMEDRAW_OK = 0,
    /// A sampling parameter out of its range.
    SAMEDRAW_PARAMETER = 1,
    /// force_topk above what the platform's kernels hold.
    SAMEDRAW_FORCE_TOPK = 2,
    /// A number outside what the operation takes.
    SAMEDRAW_ARGUMENT = 3,
    /// A pointer the operation needs is null.
    SAMEDRAW_NULL_POINTER = 4,
    /// Described but not built.
    SAMEDRAW_UNSUPPORTED = 5,
    /// The platform's driver, library or feature is missing.
    SAMEDRAW_UNAVAILABLE = 6,
    /// A call into a driver or runtime failed.
    SAMEDRAW_DRIVER = 7,
    /// An allocation was refused.
    SAMEDRAW_OUT_OF_MEMORY = 8,
    /// A lent workspace is too small or not aligned.
    SAMEDRAW_WORKSPACE = 9,
    /// 64 writes of the parameter table are in flight; try again after the stream has moved on.
    SAMEDRAW_STAGING_BUSY = 10,
    /// A capture was started, ended or used out of order.
    SAMEDRAW_CAPTURE = 11,
    /// The step cannot be written as a step file.
    SAMEDRAW_STEP_FILE = 12,
    /// A file could not be written.
    SAMEDRAW_IO = 13,
    /// The handle is in use by another call, on another thread or further up on this one.
    SAMEDRAW_BUSY = 14,
    /// What was passed as a handle is none of that kind.
    SAMEDRAW_HANDLE = 15,
    /// A struct's size is none that this library knows, or a field it does not know is set.
    SAMEDRAW_STRUCT_SIZE = 16,
    /// The caller's function returned an error.
    SAMEDRAW_CALLBACK = 17,
    /// A defect of the library; please report the message.
    SAMEDRAW_INTERNAL = 18,
}

use samedraw_status::*;

/// Why a function fails.
#[derive(Debug)]
pub(crate) enum Failure {
    Core(Error),
    Here(samedraw_status, String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Core(error)
    }
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

pub(crate) fn refuse<T>(status: samedraw_status, message: impl Into<String>) -> Result<T> {
    Err(Failure::Here(status, message.into()))
}

pub(crate) fn null<T>(what: &str) -> Result<T> {
    refuse(SAMEDRAW_NULL_POINTER, format!("{what} is a null pointer"))
}

impl Failure {
    fn status(&self) -> samedraw_status {
        match self {
            Failure::Here(status, _) => *status,
            Failure::Core(error) => match error {
                Error::Parameter { .. } => SAMEDRAW_PARAMETER,
                Error::ForceTopK { .. } => SAMEDRAW_FORCE_TOPK,
                Error::Argument { .. } => SAMEDRAW_ARGUMENT,
                Error::NullPointer { .. } => SAMEDRAW_NULL_POINTER,
                Error::Unsupported { .. } => SAMEDRAW_UNSUPPORTED,
                Error::Unavailable(_) => SAMEDRAW_UNAVAILABLE,
                Error::Driver { .. } => SAMEDRAW_DRIVER,
                Error::OutOfMemory { .. } => SAMEDRAW_OUT_OF_MEMORY,
                Error::Workspace { .. } => SAMEDRAW_WORKSPACE,
                Error::StagingBusy { .. } => SAMEDRAW_STAGING_BUSY,
                Error::Capture { .. } => SAMEDRAW_CAPTURE,
                Error::StepFile { .. } => SAMEDRAW_STEP_FILE,
                Error::Io { .. } => SAMEDRAW_IO,
                _ => SAMEDRAW_INTERNAL,
            },
        }
    }

    fn message(self) -> String {
        match self {
            Failure::Core(error) => error.to_string(),
            Failure::Here(_, message) => message,
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Runs `work`; a failure or a panic becomes a status, and its text this thread's last message.
pub(crate) fn guard(work: impl FnOnce() -> Result<()>) -> samedraw_status {
    // What a panic left half done is behind handles whose locks it poisons or that are plain numbers.
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return SAMEDRAW_OK,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Failure::Here(SAMEDRAW_INTERNAL, format!("a defect of the library: {text}"))
        }
    };
    let status = failure.status();
    let text = CString::new(failure.message().replace('\0', " ")).unwrap_or_default();
    // A thread that is ending has no message to keep.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
    status
}

/// What the last function that failed on this thread said; "" if none did. The text stays as it is until the next
/// failure on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn samedraw_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
