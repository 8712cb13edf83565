//! Compiling the kernels ahead of time, for maintenance.

use super::kernels::{PLAIN_READ, Unit};
use super::modules::{of_each_unit, source};
use super::nvrtc::{Nvrtc, flags};
use crate::error::Result;

pub use crate::device::hash::sources_hash;

/// A unit compiled for one architecture.
#[derive(Debug)]
pub struct Built {
    /// The unit's name.
    pub unit: &'static str,
    /// Its CUBIN.
    pub cubin: Vec<u8>,
    /// The compiler's messages.
    pub log: String,
}

/// Compiles every unit for compute capability `compute` with the NVRTC at `nvrtc` and the flags of production, plus
/// `more_flags`.
///
/// # Errors
/// What NVRTC reports.
pub fn build(nvrtc: &str, compute: (u32, u32), more_flags: &[&str]) -> Result<Vec<Built>> {
    let nvrtc = Nvrtc::open(nvrtc)?;
    let mut flags = flags(compute);
    flags.extend(more_flags.iter().map(|flag| flag.to_string()));
    let compile = |unit: &Unit| {
        let compiled = nvrtc.compile(unit.name, &source(unit), &flags)?;
        Ok(Built { unit: unit.name, cubin: compiled.cubin, log: compiled.log })
    };
    of_each_unit(compile).into_iter().chain([compile(&PLAIN_READ)]).collect()
}
