//! A sampling step on disk, to be replayed on any device and compared.
//!
//! A step file is a safetensors container.
//!
//! | tensor | shape | type | |
//! |---|---|---|---|
//! | `logits` | `[rows, V]` | F32, F16, BF16 | prefill: a row per request; decode: `seqlen_q` rows per request, in order |
//! | `token_bitmask` | `[rows, at least ceil(V/32)]` | I32 | optional |
//! | `draft_logprobs` | `[verified rows, N]` | F32 | optional, decode only; without it verification is one-hot |
//! | `draft_index` | `[verified rows, N]` | I32 | optional: ids of the columns of `draft_logprobs`; without it column = id |
//!
//! N is V, or `min(force_topk, V)` when `force_topk` is not 0. The metadata entry `step` is a JSON object with the keys
//! `phase` ("prefill" or "decode"), `force_topk`, `draft_model`, `sum_smaller_probs`, `dense_logprobs`, `raw_logprobs`,
//! `verify` ("rejection" or "chain"), `positions` ("strided" or "sequential") and `requests`; a request has `id`,
//! `seq_seed`, `seqlen_q`, `seqlen_k`, `params` (`temperature`, `top_p`, `top_k`, `min_p`, `filter_order`,
//! `top_logprobs`), `draft_token_ids`, `golden` and, with `draft_model`, `draft_step` and `last_valid_offset`.
//!
//! [`Sampler::record`](crate::Sampler::record) makes one of the step that a running stack has just taken.
//!
//! The file is untrusted. What does not hold together is refused with [`Error::StepFile`], which says where and what; no
//! size is believed before it is checked against the bytes that are there, and the header may take 32 MiB.

mod check;
mod json;
mod read;
mod record;
mod result;
mod run;
mod write;

pub use result::{Float, RequestResult, ResultDocument};

use crate::batch::PositionRule;
use crate::error::{Error, Result};
use crate::params::SamplingParams;
use crate::pipeline::DType;
use std::fmt::Display;
use std::fs::File;
use std::path::Path;

/// What a step samples from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The last row of each prompt.
    Prefill,
    /// `seqlen_q` rows a request, all but the last verifying a draft.
    Decode,
}

/// How a decode step verifies its drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VerifyRule {
    /// Rejection sampling; one-hot where the file has no draft logprobs.
    #[default]
    Rejection,
    /// Every row draws; drafts count while they equal the drawn token.
    Chain,
}

/// The logits of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredLogits {
    /// Type of an element.
    pub dtype: DType,
    /// Rows.
    pub rows: usize,
    /// Vocabulary size V.
    pub vocab: usize,
    /// The elements, little-endian, `rows * vocab` of them.
    pub bytes: Vec<u8>,
}

/// The grammar masks of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMask {
    /// Words a row, at least ceil(V / 32).
    pub width: usize,
    /// `[rows, width]`.
    pub words: Vec<i32>,
}

/// The drafts' distributions, one row per verified row.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredDrafts {
    /// Columns N.
    pub width: usize,
    /// `[verified rows, width]`.
    pub logprobs: Vec<f32>,
    /// `[verified rows, width]`: ids of the columns; `None`: column = id.
    pub index: Option<Vec<i32>>,
}

/// Where a draft model's request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraftStep {
    /// Number of the draft, from 1.
    pub step: i32,
    /// Drafts the target has just accepted.
    pub last_valid_offset: i32,
}

/// A request of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRequest {
    /// Name in messages and results.
    pub id: String,
    /// Tokens this step feeds; in a decode step also the request's rows.
    pub seqlen_q: usize,
    /// Length of the sequence with this step's tokens.
    pub seqlen_k: usize,
    /// Parameters. The seed is always given; golden tokens count from this step's first row.
    pub params: SamplingParams,
    /// Drafts, `seqlen_q - 1` of them in a decode step, none in a prefill.
    pub draft_token_ids: Vec<i64>,
    /// Given exactly when the step is a draft model's.
    pub draft: Option<DraftStep>,
}

/// A step as it is on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct StepFile {
    /// Prefill or decode.
    pub phase: Phase,
    /// Force-top-k N; 0 = off.
    pub force_topk: usize,
    /// Whether the draws are those of a draft model's stream.
    pub draft_model: bool,
    /// Whether the result holds `sum_smaller_probs`.
    pub sum_smaller_probs: bool,
    /// Whether the result holds dense logprobs.
    pub dense_logprobs: bool,
    /// Whether the result holds raw logprobs.
    pub raw_logprobs: bool,
    /// How drafts are verified; without meaning in a prefill, which has none.
    pub verify: VerifyRule,
    /// How positions of a request's rows follow each other; without meaning in a prefill.
    pub positions: PositionRule,
    /// The requests, in row order.
    pub requests: Vec<StepRequest>,
    /// The logits.
    pub logits: StoredLogits,
    /// The grammar masks.
    pub mask: Option<StoredMask>,
    /// The drafts' distributions.
    pub drafts: Option<StoredDrafts>,
}

impl StepFile {
    /// Columns N a row of the file is processed in.
    pub fn columns(&self) -> usize {
        if self.force_topk == 0 { self.logits.vocab } else { self.force_topk.min(self.logits.vocab) }
    }

    /// Rows of request `i`.
    fn rows_of(&self, request: &StepRequest) -> usize {
        match self.phase {
            Phase::Prefill => 1,
            Phase::Decode => request.seqlen_q,
        }
    }
}

/// Opens a regular file, and its size in bytes. A device or a pipe has no size to hold anything against and may never
/// end; opening one can already wait for ever, so it is looked at first.
fn open_regular(path: &Path) -> Result<(File, u64)> {
    let found = std::fs::metadata(path).map_err(|error| unreadable(path, error))?;
    if !found.is_file() {
        return Err(unreadable(path, "not a regular file"));
    }
    Ok((File::open(path).map_err(|error| unreadable(path, error))?, found.len()))
}

fn unreadable(path: &Path, why: impl Display) -> Error {
    Error::Io { op: "reading", path: path.display().to_string(), message: why.to_string() }
}

/// An [`Error::StepFile`] that stays one line of bounded length, whatever the file put into it.
fn refuse(place: impl Into<String>, what: impl Into<String>) -> Error {
    const LONGEST: usize = 400;
    let line = |text: String| -> String {
        let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        clean.take(LONGEST).collect()
    };
    Error::StepFile { place: line(place.into()), what: line(what.into()) }
}
