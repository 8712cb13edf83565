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
const STAGES: [Source; 10] =
    sources!("source.h" "cut.h" "list.h" "access.h" "split.h" "row.h" "output.h" "rest.h" "verify.h" "kernels.asc");
/// What makes the self-test of them.
const SELF_TEST: [Source; 1] = sources!("self_test.asc");

/// Most columns of a selection: what a core keeps of a row.
pub(super) const MOST_SELECTED: u64 = 4096;

/// What the name of the kernel starts with that says which sources an object was built from.
pub(super) const MARK: &str = "samedraw_sources_";

const ARGMAX: usize = 0;
const ARGMAX_SLICES: usize = 1;
const ARGMAX_MERGE: usize = 2;
const SCAN: usize = 3;
const WEIGH: usize = 4;
const SELECT: usize = 5;
const SAMPLE: usize = 6;
const REMAP: usize = 7;
const VERIFY: usize = 8;
const SETTLE: usize = 9;
/// By the numbers above.
const ENTRIES: [&CStr; 10] = [
    c"samedraw_argmax",
    c"samedraw_argmax_slices",
    c"samedraw_argmax_merge",
    c"samedraw_scan",
    c"samedraw_weigh",
    c"samedraw_select",
    c"samedraw_sample",
    c"samedraw_remap",
    c"samedraw_verify",
    c"samedraw_settle",
];

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

/// One launch: a kernel by its place in the stages' entries, how many blocks, whether it takes both argument blocks, and
/// how many fields of the split follow them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Launch {
    pub kernel: usize,
    pub blocks: u32,
    pub both: bool,
    pub split_fields: usize,
}

/// The launches of a stage, in order, and how its rows are split.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launches {
    pub items: [Option<Launch>; 4],
    pub split: Split,
}

/// Elements of a tile, as the kernels have it.
const TILE: u64 = 2048;
/// Rows up to this long stay in a core's memory: splitting them gains nothing.
const STAYS: u64 = 8192;
/// Most tiles of a row whose masses the kernels remember.
const MOST_TILES: u64 = 256;
/// Tokens that a slice of a whole row hands on: enough for the filters of most rows, short enough to merge.
const KEPT_OF_SLICE: u64 = 512;
/// Bytes that a slice and a tile hand on besides their lists.
const SLICE_BYTES: u64 = 64;
const TILE_BYTES: u64 = 32;

/// How the rows of a step are split over cores: `slices` of `tiles` tiles, of which each hands on `keep` tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Split {
    pub slices: u64,
    pub tiles: u64,
    pub keep: u64,
}

impl Split {
    const NONE: Split = Split { slices: 1, tiles: 0, keep: 0 };

    /// The kernels' arguments.
    pub fn fields(&self) -> [u64; 3] {
        [self.slices, self.tiles, self.keep]
    }

    /// Rows are split where there are at most half as many as cores, and where what is handed on has room.
    fn of(cores: u32, b: &RowBlock, lists: bool) -> Split {
        let tiles = b.vocab.div_ceil(TILE);
        let most = u64::from(cores) / b.rows.max(1);
        if most < 2 || b.from_columns != 0 || b.vocab <= STAYS || tiles > MOST_TILES {
            return Split::NONE;
        }
        let selects = b.columns < b.vocab;
        // A selection's slices each hand on its whole width: the more there are, the longer the merge.
        let wanted = if selects && lists { (b.vocab / (2 * b.columns)).isqrt() } else { tiles };
        let each = tiles.div_ceil(wanted.clamp(1, most.min(tiles)));
        let keep = if !lists {
            0
        } else if selects {
            b.columns
        } else {
            KEPT_OF_SLICE
        };
        let split = Split { slices: tiles.div_ceil(each), tiles: each, keep };
        let fits = b.scratch != 0 && split.bytes(b.rows, tiles) <= b.scratch_bytes;
        if split.slices < 2 || !fits { Split::NONE } else { split }
    }

    /// Scratch bytes of so many rows of so many tiles.
    fn bytes(&self, rows: u64, tiles: u64) -> u64 {
        rows * (self.slices * (SLICE_BYTES + 8 * self.keep) + tiles * TILE_BYTES)
    }
}

/// The launches of `stage` on an NPU with `cores` vector cores.
pub(super) fn launches(cores: u32, stage: &Stage<'_>) -> Launches {
    let blocks = |work: u64| work.clamp(1, u64::from(cores)) as u32;
    let launch = |kernel, work, both, split_fields| Some(Launch { kernel, blocks: blocks(work), both, split_fields });
    let one = |item| Launches { items: [item, None, None, None], split: Split::NONE };
    match *stage {
        Stage::Argmax(b) => match Split::of(cores, b, false) {
            Split::NONE => one(launch(ARGMAX, b.rows, false, 0)),
            split => {
                let slices = launch(ARGMAX_SLICES, b.rows * split.slices, false, 2);
                Launches { items: [slices, launch(ARGMAX_MERGE, b.rows, false, 2), None, None], split }
            }
        },
        Stage::Remap(b, _) => one(launch(REMAP, b.rows, true, 0)),
        Stage::Select(b) => split_rows(cores, b, [launch(SELECT, b.rows, false, 3), None]),
        Stage::Sample(b) => split_rows(cores, b, [launch(SAMPLE, b.rows, false, 3), None]),
        // No row knows when the others have decided: the requests are settled by a launch of their own.
        Stage::Verify(b, v) => {
            split_rows(cores, b, [launch(VERIFY, b.rows, true, 3), launch(SETTLE, v.requests, true, 0)])
        }
    }
}

/// The launches of a stage whose rows end in `last`: one before them to look at the slices of split rows, and one to weigh
/// them where nothing was selected.
fn split_rows(cores: u32, b: &RowBlock, last: [Option<Launch>; 2]) -> Launches {
    let split = Split::of(cores, b, true);
    if split == Split::NONE {
        return Launches { items: [last[0], last[1], None, None], split };
    }
    let blocks = (b.rows * split.slices).min(u64::from(cores)) as u32;
    let over_slices = |kernel| Some(Launch { kernel, blocks, both: false, split_fields: 3 });
    let weigh = if b.columns < b.vocab { None } else { over_slices(WEIGH) };
    Launches { items: [over_slices(SCAN), weigh, last[0], last[1]], split }
}

/// Scratch bytes of a stage: room for the largest split there can be.
pub(super) fn scratch_bytes(cores: u32, kind: StageKind, limits: &Limits) -> usize {
    if kind == StageKind::Remap || limits.vocab as u64 <= STAYS || cores < 2 {
        return 0;
    }
    // Slices are at most as many as cores, however many rows they belong to.
    let cores = u64::from(cores);
    let keep =
        KEPT_OF_SLICE.max(if limits.force_topk == 0 { 0 } else { (limits.force_topk as u64).min(MOST_SELECTED) });
    let tiles = (limits.vocab as u64).div_ceil(TILE).min(MOST_TILES);
    let rows = (limits.rows as u64).min(cores / 2);
    (cores * (SLICE_BYTES + 8 * keep) + rows * tiles * TILE_BYTES) as usize
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
/// As [`sources()`].
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
    use crate::pipeline::blocks::VerifyBlock;

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

    fn kernels(launches: &Launches) -> Vec<(usize, u32)> {
        launches.items.iter().flatten().map(|launch| (launch.kernel, launch.blocks)).collect()
    }

    #[test]
    fn a_launch_has_at_least_one_block_and_no_more_than_there_are_cores() {
        let verify = VerifyBlock { requests: 2, ..VerifyBlock::default() };
        for (rows, blocks) in [(0, 1), (1, 1), (7, 7), (48, 48), (70_000, 48)] {
            let rows = RowBlock { rows, vocab: 5000, columns: 5000, ..RowBlock::default() };
            for stage in
                [Stage::Select(&rows), Stage::Argmax(&rows), Stage::Sample(&rows), Stage::Remap(&rows, &verify)]
            {
                assert_eq!(kernels(&launches(48, &stage)).iter().map(|(_, b)| *b).collect::<Vec<_>>(), [blocks]);
            }
            assert_eq!(kernels(&launches(48, &Stage::Verify(&rows, &verify))), [(VERIFY, blocks), (SETTLE, 2)]);
        }
    }

    #[test]
    fn few_rows_are_split_as_far_as_scratch_allows_and_many_are_not() {
        let limits = Limits { force_topk: 4096, ..Limits::new(64, 129_280) };
        let room = scratch_bytes(48, StageKind::Sample, &limits) as u64;
        let block = |rows, columns, scratch_bytes| RowBlock {
            rows,
            vocab: 129_280,
            columns,
            scratch: 256,
            scratch_bytes,
            ..RowBlock::default()
        };
        let verify = VerifyBlock { requests: 1, ..VerifyBlock::default() };
        let full = block(1, 129_280, room);
        assert_eq!(kernels(&launches(48, &Stage::Argmax(&full))), [(ARGMAX_SLICES, 32), (ARGMAX_MERGE, 1)]);
        assert_eq!(kernels(&launches(48, &Stage::Sample(&full))), [(SCAN, 32), (WEIGH, 32), (SAMPLE, 1)]);
        let verified = launches(48, &Stage::Verify(&full, &verify));
        assert_eq!(kernels(&verified), [(SCAN, 32), (WEIGH, 32), (VERIFY, 1), (SETTLE, 1)]);
        for (rows, columns, scan) in [(1, 1024, 7), (16, 1024, 48), (16, 50, 48), (1, 4096, 3)] {
            let b = block(rows, columns, room);
            let found = launches(48, &Stage::Sample(&b));
            assert_eq!(kernels(&found), [(SCAN, scan), (SAMPLE, rows as u32)], "{rows} rows, N = {columns}: {found:?}");
        }
        for (what, b) in [
            ("more than half as many rows as cores", block(25, 129_280, room)),
            ("no scratch", block(1, 129_280, 0)),
            ("a row that stays", RowBlock { vocab: 8192, columns: 8192, ..block(1, 8192, room) }),
            ("columns", RowBlock { from_columns: 1, ..block(1, 1024, room) }),
            ("too many tiles", RowBlock { vocab: 1 << 20, columns: 1 << 20, ..block(1, 0, room) }),
        ] {
            assert_eq!(kernels(&launches(48, &Stage::Sample(&b))).len(), 1, "{what}");
        }
    }

    #[test]
    fn every_split_has_room_in_the_scratch_area() {
        for cores in [2u32, 3, 20, 40, 48, 50] {
            for (vocab, force_topk) in [(8193, 0), (32_003, 1000), (129_280, 4096), (524_288, 1), (1 << 23, 4096)] {
                let limits = Limits { force_topk, ..Limits::new(300, vocab) };
                let room = scratch_bytes(cores, StageKind::Verify, &limits) as u64;
                for rows in 1..=u64::from(cores) {
                    for columns in [1, force_topk.max(1) as u64, vocab as u64] {
                        for vocab in [vocab as u64, (vocab as u64 / 2).max(8193)] {
                            let columns = columns.min(vocab);
                            let all = u64::MAX;
                            let b = RowBlock {
                                rows,
                                vocab,
                                columns,
                                scratch: 256,
                                scratch_bytes: all,
                                ..RowBlock::default()
                            };
                            for lists in [false, true] {
                                let split = Split::of(cores, &b, lists);
                                let tiles = vocab.div_ceil(TILE);
                                if split != Split::NONE {
                                    assert!(
                                        split.bytes(rows, tiles) <= room,
                                        "{cores} {rows} {vocab} {columns} {split:?}"
                                    );
                                    assert!(split.slices * rows <= u64::from(cores));
                                    assert!(
                                        split.slices * split.tiles >= tiles && (split.slices - 1) * split.tiles < tiles
                                    );
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_are_those_of_the_kernels() {
        let text = stages().source;
        for said in [
            format!("TILE = {TILE};"),
            format!("LIST = {STAYS};"),
            format!("MOST_SELECTED = {MOST_SELECTED};"),
            format!("REMEMBERED = {MOST_TILES};"),
            format!("SLICE_WORDS = {};", SLICE_BYTES / 4),
            format!("TILE_WORDS = {};", TILE_BYTES / 4),
        ] {
            assert!(text.contains(&said), "{said}");
        }
    }
}
