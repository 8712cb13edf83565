//! The C ABI: opaque handles, plain structs with a size in front, raw device pointers and streams.
//!
//! Thin on purpose: every function checks what C can get wrong, turns its structs into the Rust API's and calls that.
//! `ffi/samedraw.h` is generated from here by `cargo xtask header` and checked for drift.
//!
//! | file | what |
//! |---|---|
//! | `status` | statuses, the message of the last failure, the guard that no panic passes |
//! | `handle` | handles: null, foreign and busy ones are refused |
//! | `sized` | structs with a size in front |
//! | `device`, `table`, `sampler`, `capture`, `prompt`, `record` | the functions |
//! | `step`, `verify` | a step as it crosses, and what it becomes |
//! | `version` | versions |

#![allow(non_camel_case_types, reason = "these are the names of the C types")]
#![allow(missing_docs, reason = "the header documents what C sees; the modules are public so that all of it is built")]
#![allow(clippy::missing_safety_doc, reason = "the C header's opening comment states what every pointer must be")]

pub mod capture;
pub mod device;
mod handle;
pub mod prompt;
pub mod record;
pub mod sampler;
mod sized;
pub mod status;
pub mod step;
pub mod table;
pub mod verify;
pub mod version;
