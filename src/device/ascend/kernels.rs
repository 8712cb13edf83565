//! The kernels' sources, and the commands that build them ahead of time.

use super::chip::ARCHITECTURE;
use crate::device::StageKind;
use crate::error::{Error, Result};
use std::ffi::CStr;
use std::fmt::Write;

/// One translation unit: its name, its text, and the kernels in it.
#[derive(Debug, Clone, Copy)]
pub struct Unit<'a> {
    /// Its name, without an extension.
    pub name: &'a str,
    /// Its text, whole.
    pub source: &'a str,
    /// The kernels it holds.
    pub entries: &'a [&'a CStr],
}

/// Files shared by the units, in the order they are put in front of each.
const SHARED: [(&str, &str); 1] = [("abi.h", include_str!("../../../ascend/abi.h"))];

/// What [`unbuilt`] says, and what a listing of devices shows.
pub(super) const NOT_BUILT: &str = "no sampling kernels yet";

/// The refusal of a stage: this version has the host's half alone.
pub(super) fn unbuilt(op: &'static str, stage: Option<StageKind>) -> Error {
    let stage = stage.map_or_else(|| "every stage".into(), |kind| format!("the stage {kind:?}"));
    Error::Unsupported { op, what: format!("{stage} on ascend (the Ascend kernels of this stage are not built yet)") }
}

/// The sources the kernels are compiled from, each as (file name, text).
///
/// # Errors
/// [`Error::Unsupported`] for a target other than dav-2201.
pub fn sources(target: &str) -> Result<&'static [(&'static str, &'static str)]> {
    if target == ARCHITECTURE {
        return Ok(&SHARED);
    }
    Err(Error::Unsupported { op: "kernels", what: format!("the target {target:?} ({ARCHITECTURE})") })
}

/// The commands that build a prebuilt object of the unit `name` with the tools of an installed CANN.
///
/// # Errors
/// As [`sources`].
pub fn commands(target: &str, name: &str) -> Result<String> {
    sources(target)?;
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "bisheng -std=c++17 -O3 --npu-arch={target} --aicore-only -o {name}.o -c --asc-aicore-lang {name}.asc"
    );
    let _ = writeln!(text, "ld.lld -m aicorelinux -Ttext=0 {name}.o -static -o {name}_{}.o", &target["dav-".len()..]);
    Ok(text)
}
