//! The crate's one error type.

use crate::device::Platform;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call was refused or failed. Each variant names the operation, the value and the limit.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A sampling parameter outside the range of SEMANTICS section 2.
    #[error("{field} = {value} is refused: allowed is {allowed}")]
    Parameter {
        /// The field of `SamplingParams`.
        field: &'static str,
        /// The value as given.
        value: String,
        /// The allowed range.
        allowed: &'static str,
    },
    /// Force-top-k, counted as min(N, V), above what the platform's kernels hold.
    #[error("force_topk = {requested} is above the limit of {limit} on {platform}")]
    ForceTopK {
        /// Platform whose limit applies.
        platform: Platform,
        /// min(N, V) of the request.
        requested: usize,
        /// Largest N of the platform.
        limit: usize,
    },
    /// A number outside what the operation takes.
    #[error("{op}: {what} = {value} is refused: {limit}")]
    Argument {
        /// The operation.
        op: &'static str,
        /// The argument.
        what: &'static str,
        /// Its value.
        value: i128,
        /// The rule it breaks, with the limit's value.
        limit: String,
    },
    /// A pointer the operation needs is null.
    #[error("{op}: {what} is a null pointer")]
    NullPointer {
        /// The operation.
        op: &'static str,
        /// The argument.
        what: &'static str,
    },
    /// A capability that is described but not built.
    #[error("{op}: {what} is not supported")]
    Unsupported {
        /// The operation.
        op: &'static str,
        /// What was asked for.
        what: String,
    },
    /// A platform whose driver, library or feature is missing on this machine or in this build.
    #[error("{0}")]
    Unavailable(Unavailable),
    /// A call into a driver or runtime failed.
    #[error("{op}: {call} failed with code {code}: {message}")]
    Driver {
        /// The operation of ours.
        op: &'static str,
        /// The vendor's function.
        call: &'static str,
        /// Its return code.
        code: i64,
        /// The vendor's message.
        message: String,
    },
    /// An allocation was refused.
    #[error("{op}: {bytes} bytes could not be allocated on {platform}: {cause}")]
    OutOfMemory {
        /// The operation.
        op: &'static str,
        /// Platform asked.
        platform: Platform,
        /// Bytes asked for.
        bytes: usize,
        /// The refusing call, its code and its message.
        cause: String,
    },
    /// A lent workspace is too small or not aligned.
    #[error("workspace: {given} bytes lent, {needed} needed, aligned to {align} bytes")]
    Workspace {
        /// Bytes lent.
        given: usize,
        /// Bytes needed.
        needed: usize,
        /// Alignment needed.
        align: usize,
    },
    /// Every area of the staging ring still has a copy in flight.
    #[error("staging ring: all {areas} areas are in flight; poll again after the stream has moved on")]
    StagingBusy {
        /// Number of areas.
        areas: usize,
    },
    /// A capture was started, ended or used out of order.
    #[error("{op}: {what}")]
    Capture {
        /// The operation.
        op: &'static str,
        /// What was out of order.
        what: &'static str,
    },
    /// A step file or result document is malformed.
    #[error("step file: {place}: {what}")]
    StepFile {
        /// Where in the file.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// A file could not be read or written.
    #[error("{op} {path}: {message}")]
    Io {
        /// The operation.
        op: &'static str,
        /// The path.
        path: String,
        /// The system's message.
        message: String,
    },
}

/// A platform that cannot be used here, and what was looked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{platform} is unavailable: {reason}{}", tried_list(.tried))]
pub struct Unavailable {
    /// The platform.
    pub platform: Platform,
    /// Why.
    pub reason: String,
    /// Libraries or paths tried, in order; empty when nothing was looked for.
    pub tried: Vec<String>,
}

fn tried_list(tried: &[String]) -> String {
    if tried.is_empty() { String::new() } else { format!(" (tried {})", tried.join(", ")) }
}

impl Error {
    pub(crate) fn argument(
        op: &'static str,
        what: &'static str,
        value: impl TryInto<i128>,
        limit: impl Into<String>,
    ) -> Self {
        Error::Argument { op, what, value: value.try_into().unwrap_or(i128::MAX), limit: limit.into() }
    }
}
