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

/// Everything that is compiled for `target` as one source file, which starts with the commands that build it ahead of time
/// with the tools of an installed CANN.
///
/// # Errors
/// As [`sources`].
pub fn listing(target: &str) -> Result<String> {
    let sources = sources(target)?;
    let number = target.trim_start_matches("dav-");
    let mut text = format!(
        "// Kernels of samedraw {} for {target}: {NOT_BUILT}, the shared declarations alone.\n\
         // Kept as samedraw.asc, this text is built by\n\
         //   bisheng -std=c++17 -O3 --npu-arch={target} --aicore-only -o samedraw.o -c --asc-aicore-lang samedraw.asc\n\
         //   ld.lld -m aicorelinux -Ttext=0 samedraw.o -static -o samedraw_{number}.o\n\
         // with the tools of CANN 8.5.0 or newer (ld.lld is the one beside its compiler), and used where\n\
         // SAMEDRAW_ASCEND_KERNELS is the absolute path of samedraw_{number}.o.\n",
        env!("CARGO_PKG_VERSION")
    );
    for (name, source) in sources {
        // Writing to a string does not fail.
        let _ = write!(text, "\n// ---- {name}\n{source}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listing_is_the_sources_and_other_targets_are_refused() {
        let text = listing("dav-2201").unwrap();
        let (head, rest) = text.split_once("// ---- abi.h\n").unwrap();
        assert!(head.lines().all(|line| line.is_empty() || line.starts_with("// ")), "{head}");
        assert!(head.contains("--npu-arch=dav-2201") && head.contains("samedraw_2201.o") && head.contains(NOT_BUILT));
        assert_eq!(rest, include_str!("../../../ascend/abi.h"));
        let refused = listing("dav-3510").unwrap_err().to_string();
        assert!(refused.contains("dav-3510") && refused.contains("dav-2201"), "{refused}");
    }
}
