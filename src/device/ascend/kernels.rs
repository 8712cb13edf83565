//! The kernels: their sources, which of them a stage launches, and the commands that build them ahead of time.

use super::chip::ARCHITECTURE;
use crate::device::hash::fnv128;
use crate::device::{Stage, StageKind};
use crate::error::{Error, Result};
use crate::pipeline::Limits;
use crate::pipeline::blocks::RowBlock;
use std::ffi::CStr;
use std::fmt::Write;
use std::sync::OnceLock;

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

/// A file name and its text.
type Source = (&'static str, &'static str);

macro_rules! sources {
    ($($name:literal)+) => { [$( ($name, include_str!(concat!("../../../ascend/", $name))) ),+] };
}

/// Files in front of every unit, in the order of use.
const SHARED: [Source; 5] = sources!("abi.h" "vector.h" "number.h" "core.h" "mass.h");
/// What makes the stages of them.
const STAGES: [Source; 9] =
    sources!("source.h" "cut.h" "list.h" "access.h" "row.h" "output.h" "rest.h" "verify.h" "kernels.asc");
/// What makes the self-test of them.
const SELF_TEST: [Source; 1] = sources!("self_test.asc");

/// Most columns of a selection: what a core keeps of a row.
pub(super) const MOST_SELECTED: u64 = 4096;

/// What the name of the kernel starts with that says which sources an object was built from.
pub(super) const MARK: &str = "samedraw_sources_";

const ARGMAX: usize = 0;
const SELECT: usize = 1;
const SAMPLE: usize = 2;
const REMAP: usize = 3;
const VERIFY: usize = 4;
const SETTLE: usize = 5;
/// By the numbers above.
const ENTRIES: [&CStr; 6] =
    [c"samedraw_argmax", c"samedraw_select", c"samedraw_sample", c"samedraw_remap", c"samedraw_verify", c"samedraw_settle"];

/// The kernels of the stages.
pub(super) fn stages() -> Unit<'static> {
    static SOURCE: OnceLock<String> = OnceLock::new();
    let source = SOURCE.get_or_init(|| text(SHARED.iter().chain(&STAGES)));
    Unit { name: "samedraw_stages", source, entries: &ENTRIES }
}

/// The kernel of the self-test.
pub(super) fn self_test() -> Unit<'static> {
    static SOURCE: OnceLock<String> = OnceLock::new();
    let source = SOURCE.get_or_init(|| text(SHARED.iter().chain(&SELF_TEST)));
    Unit { name: "samedraw_self_test", source, entries: &[c"samedraw_self_test"] }
}

fn text<'a>(sources: impl Iterator<Item = &'a Source>) -> String {
    sources.flat_map(|(_, text)| [*text, "\n"]).collect::<String>() + &mark()
}

/// The hash of every source, as the mark has it.
pub(super) fn hash() -> String {
    let texts: Vec<&[u8]> = all().map(|(_, text)| text.as_bytes()).collect();
    format!("{:032x}", fnv128(&texts))
}

/// A kernel that does nothing and is named after the sources, so that their object tells what it was built from.
fn mark() -> String {
    format!("extern \"C\" __global__ __vector__ __aicore__ void {MARK}{}(uint64_t) {{}}\n", hash())
}

fn all() -> impl Iterator<Item = &'static Source> {
    SHARED.iter().chain(&STAGES).chain(&SELF_TEST)
}

/// One launch: a kernel by its place in the stages' entries, how many blocks, and whether it takes both argument blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Launch {
    pub kernel: usize,
    pub blocks: u32,
    pub both: bool,
}

/// The launches of a stage, in order.
pub(super) type Launches = [Option<Launch>; 3];

/// The launches of `stage` on an NPU with `cores` vector cores.
pub(super) fn launches(cores: u32, stage: &Stage<'_>) -> Launches {
    let blocks = |work: u64| work.clamp(1, u64::from(cores)) as u32;
    let rows = |kernel, b: &RowBlock, both| Some(Launch { kernel, blocks: blocks(b.rows), both });
    match *stage {
        Stage::Select(b) => [rows(SELECT, b, false), None, None],
        Stage::Argmax(b) => [rows(ARGMAX, b, false), None, None],
        Stage::Sample(b) => [rows(SAMPLE, b, false), None, None],
        Stage::Remap(b, _) => [rows(REMAP, b, true), None, None],
        // No row knows when the others have decided: the requests are settled by a launch of their own.
        Stage::Verify(b, v) => {
            [rows(VERIFY, b, true), Some(Launch { kernel: SETTLE, blocks: blocks(v.requests), both: true }), None]
        }
    }
}

/// Scratch bytes of a stage.
pub(super) fn scratch_bytes(_cores: u32, _kind: StageKind, _limits: &Limits) -> usize {
    0
}

/// The sources the kernels are compiled from, each as (file name, text).
///
/// # Errors
/// [`Error::Unsupported`] for a target other than dav-2201.
pub fn sources(target: &str) -> Result<Vec<(&'static str, &'static str)>> {
    if target == ARCHITECTURE {
        return Ok(all().copied().collect());
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
        "// Kernels of samedraw {} for {target}.\n\
         // Kept as samedraw.asc, this text is built by\n\
         //   bisheng -std=c++17 -O3 --npu-arch={target} --aicore-only -o samedraw.o -c --asc-aicore-lang samedraw.asc\n\
         //   ld.lld -m aicorelinux -Ttext=0 samedraw.o -static -o samedraw_{number}.o\n\
         // with the tools of CANN 8.5.0 or newer (ld.lld is the one beside its compiler), and used where\n\
         // SAMEDRAW_ASCEND_KERNELS is the absolute path of samedraw_{number}.o. An object of other sources is refused.\n",
        env!("CARGO_PKG_VERSION")
    );
    for (name, source) in sources {
        // Writing to a string does not fail.
        let _ = write!(text, "\n// ---- {name}\n{source}");
    }
    Ok(text + "\n// ---- what an object of these sources is known by\n" + &mark())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listing_is_the_sources_and_other_targets_are_refused() {
        let text = listing("dav-2201").unwrap();
        let (head, rest) = text.split_once("// ---- abi.h\n").unwrap();
        assert!(head.lines().all(|line| line.is_empty() || line.starts_with("// ")), "{head}");
        assert!(head.contains("--npu-arch=dav-2201") && head.contains("samedraw_2201.o"));
        assert!(rest.starts_with(include_str!("../../../ascend/abi.h")));
        for (name, source) in sources("dav-2201").unwrap() {
            assert!(text.contains(&format!("// ---- {name}\n{source}")), "{name}");
        }
        assert!(text.contains(&format!("{MARK}{}(uint64_t)", hash())));
        let refused = listing("dav-3510").unwrap_err().to_string();
        assert!(refused.contains("dav-3510") && refused.contains("dav-2201"), "{refused}");
    }

    #[test]
    fn every_file_of_the_folder_is_compiled_and_every_entry_is_a_kernel_of_it() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/ascend");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        let mut named: Vec<&str> = all().map(|(name, _)| *name).collect();
        files.sort();
        named.sort_unstable();
        assert_eq!(files, named);
        for unit in [stages(), self_test()] {
            for entry in unit.entries {
                assert!(unit.source.contains(&format!("__aicore__ void {}(", entry.to_str().unwrap())), "{entry:?}");
            }
        }
    }

    #[test]
    fn a_launch_has_at_least_one_block_and_no_more_than_there_are_cores() {
        use crate::pipeline::blocks::VerifyBlock;
        let verify = VerifyBlock { requests: 2, ..VerifyBlock::default() };
        for (rows, blocks) in [(0, 1), (1, 1), (7, 7), (48, 48), (70_000, 48)] {
            let rows = RowBlock { rows, ..RowBlock::default() };
            for stage in [Stage::Select(&rows), Stage::Argmax(&rows), Stage::Sample(&rows), Stage::Remap(&rows, &verify)] {
                assert_eq!(launches(48, &stage)[0].unwrap().blocks, blocks);
            }
            let settled = launches(48, &Stage::Verify(&rows, &verify));
            assert_eq!((settled[0].unwrap().blocks, settled[1].unwrap().blocks), (blocks, 2));
        }
    }
}
