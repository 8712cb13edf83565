//! Captured steps and the variants a captured step can be.

use super::limits::Workspace;
use super::step::Filters;
use super::table::ParamTable;
use crate::device::{Device, RawGraph, RawStream};
use crate::error::Result;
use std::sync::Arc;

/// Which filters the replays of a captured step may meet. Every variant gives the tokens of [`Variant::Default`]; a
/// row whose parameters use a filter the variant excludes gets token -1 and status `bad_index`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Variant {
    /// Any.
    #[default]
    Default,
    /// None.
    NoFilter,
    /// Top-k alone.
    TopK,
    /// Top-p alone.
    TopP,
    /// Top-k and top-p.
    TopKTopP,
    /// Any, in a step that verifies drafts.
    Verify,
    /// None, in a step that verifies drafts.
    VerifyNoFilter,
}

impl Variant {
    /// Every variant.
    pub const ALL: [Variant; 7] = [
        Variant::Default,
        Variant::NoFilter,
        Variant::TopK,
        Variant::TopP,
        Variant::TopKTopP,
        Variant::Verify,
        Variant::VerifyNoFilter,
    ];

    /// The filters its replays may meet.
    pub fn filters(self) -> Filters {
        match self {
            Variant::Default | Variant::Verify => Filters::ALL,
            Variant::NoFilter | Variant::VerifyNoFilter => Filters::NONE,
            Variant::TopK => Filters { top_k: true, ..Filters::NONE },
            Variant::TopP => Filters { top_p: true, ..Filters::NONE },
            Variant::TopKTopP => Filters { top_k: true, top_p: true, ..Filters::NONE },
        }
    }

    /// Whether its steps verify drafts; [`Variant::Default`] may do either.
    pub(super) fn verifies(self) -> Option<bool> {
        match self {
            Variant::Default => None,
            Variant::Verify | Variant::VerifyNoFilter => Some(true),
            _ => Some(false),
        }
    }
}

/// A step captured by [`Sampler::capture`](super::Sampler::capture). It keeps the workspace and the table alive.
#[derive(Debug)]
pub struct CapturedStep<D: Device + ?Sized> {
    device: Arc<D>,
    graph: RawGraph,
    _workspace: Arc<Workspace<D>>,
    _table: Arc<ParamTable<D>>,
}

impl<D: Device + ?Sized> CapturedStep<D> {
    pub(super) fn new(
        device: &Arc<D>,
        graph: RawGraph,
        workspace: &Arc<Workspace<D>>,
        table: &Arc<ParamTable<D>>,
    ) -> Self {
        CapturedStep { device: Arc::clone(device), graph, _workspace: Arc::clone(workspace), _table: Arc::clone(table) }
    }

    /// Enqueues one replay: the step again, reading its inputs anew.
    ///
    /// # Errors
    /// What the device reports.
    ///
    /// # Safety
    /// As [`Sampler::step`](super::Sampler::step) for the step that was captured; the sampler's other steps and this
    /// replay are ordered, as they share a workspace. This value lives until the stream has passed the replay.
    pub unsafe fn replay(&self, stream: RawStream) -> Result<()> {
        // SAFETY: the graph is ours and alive; its pointers are the caller's promise, workspace and table are held.
        unsafe { self.device.launch_graph(stream, self.graph) }
    }
}

impl<D: Device + ?Sized> Drop for CapturedStep<D> {
    fn drop(&mut self) {
        // SAFETY: created by `end_capture` of this device; replays in flight are the caller's to wait for.
        let _ = unsafe { self.device.destroy_graph(self.graph) };
    }
}
