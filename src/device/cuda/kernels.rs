//! The kernels: their sources, and which of them a stage launches.

use crate::device::{Stage, StageKind};
use crate::pipeline::Limits;
use std::ffi::CStr;

/// One translation unit: a name, and the sources that are compiled together.
pub(super) struct Unit {
    pub name: &'static str,
    pub sources: &'static [&'static str],
}

/// What NVRTC compiles.
pub(super) const UNITS: &[Unit] = &[];

/// Facts of the card a launch depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Card {
    /// Compute capability, major and minor.
    pub compute: (u32, u32),
    /// Multiprocessors.
    pub sms: u32,
    /// Largest dynamic shared memory of a block.
    pub smem_per_block_optin: usize,
    /// Size of the second-level cache.
    pub l2_bytes: usize,
    /// Whether launches may use clusters of blocks.
    pub clusters: bool,
    /// Whether a launch may start before the one ahead of it in the stream has ended; the kernels wait for it themselves.
    pub pdl: bool,
}

/// One launch of a kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Launch {
    /// Index in [`UNITS`].
    pub unit: usize,
    pub entry: &'static CStr,
    pub grid: [u32; 3],
    pub block: u32,
    /// Bytes of dynamic shared memory.
    pub smem: u32,
    /// Blocks of a cluster; 1 = none.
    pub cluster: u32,
}

/// The launches of a stage, in order.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LaunchList {
    items: [Option<Launch>; 3],
}

impl LaunchList {
    pub fn iter(&self) -> impl Iterator<Item = &Launch> {
        self.items.iter().flatten()
    }
}

/// A kernel, and the most dynamic shared memory it is launched with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub unit: usize,
    pub entry: &'static CStr,
    pub smem: u32,
}

/// Every kernel `launches` can name.
pub(super) fn entries(_card: &Card) -> Vec<Entry> {
    Vec::new()
}

/// The launches of `stage`.
pub(super) fn launches(_card: &Card, _stage: &Stage<'_>) -> LaunchList {
    LaunchList::default()
}

/// Scratch bytes a stage of `kind` needs at most.
pub(super) fn scratch_bytes(_card: &Card, _kind: StageKind, _limits: &Limits) -> usize {
    0
}
