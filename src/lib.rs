#![doc = include_str!("crate.md")]

pub mod batch;
pub mod device;
#[cfg(feature = "cpu")]
pub mod embedded;
mod error;
pub mod mass;
pub mod params;
pub mod pipeline;
pub mod random;
#[cfg(feature = "step-file")]
pub mod step_file;

pub use device::{Device, Platform};
pub use error::{Error, Result, Unavailable};
pub use params::{FilterOrder, SamplingParams};
pub use pipeline::{Limits, ParamTable, Sampler, Step};

/// The README's example must compile and run.
#[cfg(all(doctest, feature = "cpu"))]
#[doc = include_str!("../README.md")]
struct Readme;
