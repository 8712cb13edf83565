//! The pipeline: what a step asks for becomes a plan, the plan runs on a device.
//!
//! In the order of the semantics, a row goes through: mask (3), force-top-k (4), masses (5), the filters top-p, min-p
//! and top-k (6), the draw (7), logprobs (8), and for decode rows verification (9). A device fuses them as it likes;
//! [`plan`](mod@plan) decides which [`Stage`](crate::device::Stage)s run.

pub mod blocks;
mod capture;
mod check;
mod host;
mod limits;
pub mod plan;
mod prompt;
mod sampler;
mod staging;
mod step;
mod table;

pub use capture::{CapturedStep, Variant};
pub use host::{HostMask, HostResult, HostRun, HostStep, HostVerify};
pub use limits::{Limits, MAX_VOCAB};
pub use prompt::{PROMPT_CHUNK_ROWS, PromptChunk, PromptLogprobs, PromptPlan};
pub use sampler::Sampler;
pub use staging::{StagingArea, StagingRing};
pub use step::{
    Columns, DType, Dense, Drafts, Filters, Index, IndexWidth, KeptIds, Logits, Mask, Outputs, Slots, Step,
    TopLogprobs, Verify, VerifyMode,
};
pub use table::ParamTable;
