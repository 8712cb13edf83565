//! Bytes to a step: the container, then the JSON, then [`StepFile::check`].

use super::json::{At, Fields, Json};
use super::{
    DraftStep, Phase, StepFile, StepRequest, StoredDrafts, StoredLogits, StoredMask, VerifyRule, open_regular, refuse,
    unreadable,
};
use crate::batch::PositionRule;
use crate::error::Result;
use crate::params::{FilterOrder, SamplingParams};
use crate::pipeline::DType;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

const STEP_KEYS: &[&str] = &[
    "phase",
    "force_topk",
    "draft_model",
    "sum_smaller_probs",
    "dense_logprobs",
    "raw_logprobs",
    "verify",
    "positions",
    "requests",
];
const REQUEST_KEYS: &[&str] = &[
    "id",
    "seq_seed",
    "seqlen_q",
    "seqlen_k",
    "params",
    "draft_token_ids",
    "golden",
    "draft_step",
    "last_valid_offset",
];
const PARAM_KEYS: &[&str] = &["temperature", "top_p", "top_k", "min_p", "filter_order", "top_logprobs"];
/// The tensors and the types each may have.
const TENSORS: &[(&str, &[&str])] = &[
    ("logits", &["F32", "F16", "BF16"]),
    ("token_bitmask", &["I32"]),
    ("draft_logprobs", &["F32"]),
    ("draft_index", &["I32"]),
];
/// Bytes of the header's length in front of it.
const LENGTH_BYTES: usize = 8;
/// Longest header. JSON grows up to fiftyfold while it is parsed, so what a file may claim there is bounded; the step of
/// 65536 requests takes less.
const MAX_HEADER: usize = 32 << 20;

impl StepFile {
    /// Reads the step file at `path`.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when the file cannot be read, otherwise as [`parse`](Self::parse).
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (mut file, size) = open_regular(path)?;
        // The header is held to its bound before the rest is read, however long the file is.
        let mut length = [0; LENGTH_BYTES];
        let mut bytes = Vec::new();
        if size >= LENGTH_BYTES as u64 {
            file.read_exact(&mut length).map_err(|error| unreadable(path, error))?;
            header_length(length, size)?;
            bytes.extend_from_slice(&length);
        }
        file.read_to_end(&mut bytes).map_err(|error| unreadable(path, error))?;
        Self::parse(&bytes)
    }

    /// Reads a step file from memory.
    ///
    /// # Errors
    /// [`Error::StepFile`](crate::Error::StepFile) with the place and what is wrong there.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let header = header(bytes)?;
        let step = check_header(header)?;
        let container = SafeTensors::deserialize(bytes).map_err(|error| refuse("container", error.to_string()))?;
        let logits = matrix(&container, "logits")?.ok_or_else(|| refuse("container", "tensor logits is missing"))?;
        let dtype = match logits.view.dtype() {
            safetensors::Dtype::F16 => DType::F16,
            safetensors::Dtype::BF16 => DType::BF16,
            _ => DType::F32,
        };
        let stored = StoredLogits { dtype, rows: logits.rows, vocab: logits.width, bytes: Vec::new() };
        let mut file = step_of(step, stored)?;
        file.mask = match matrix(&container, "token_bitmask")? {
            None => None,
            Some(mask) => Some(StoredMask { width: mask.width, words: elements(&mask.view, i32::from_le_bytes) }),
        };
        let index = matrix(&container, "draft_index")?;
        file.drafts = match (matrix(&container, "draft_logprobs")?, index) {
            (None, None) => None,
            (None, Some(_)) => return Err(refuse("tensor draft_index", "given without draft_logprobs")),
            (Some(drafts), index) => Some(StoredDrafts {
                width: drafts.width,
                logprobs: elements(&drafts.view, f32::from_le_bytes),
                index: match index {
                    None => None,
                    Some(index) if (index.rows, index.width) != (drafts.rows, drafts.width) => {
                        let shape = format!("[{}, {}]", index.rows, index.width);
                        let wanted = format!("[{}, {}]", drafts.rows, drafts.width);
                        return Err(refuse(
                            "tensor draft_index",
                            format!("shape {shape}, draft_logprobs has {wanted}"),
                        ));
                    }
                    Some(index) => Some(elements(&index.view, i32::from_le_bytes)),
                },
            }),
        };
        file.logits.bytes = logits.view.data().to_vec();
        file.check()?;
        Ok(file)
    }
}

/// The header's length, held to the file's `total` bytes and to the bound.
fn header_length(length: [u8; LENGTH_BYTES], total: u64) -> Result<usize> {
    let length = u64::from_le_bytes(length);
    let rest = total - LENGTH_BYTES as u64;
    if length > rest {
        return Err(refuse("container", format!("a header of {length} bytes is announced, {rest} bytes follow")));
    }
    match usize::try_from(length) {
        Ok(length) if length <= MAX_HEADER => Ok(length),
        _ => Err(refuse("container", format!("a header of {length} bytes is longer than {MAX_HEADER}"))),
    }
}

/// The header's text, once its length is known to be there.
fn header(bytes: &[u8]) -> Result<&str> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(refuse("container", format!("{} bytes are too few for a safetensors file", bytes.len())));
    };
    let header = &rest[..header_length(*length, bytes.len() as u64)?];
    std::str::from_utf8(header).map_err(|error| refuse("container", format!("the header is not UTF-8: {error}")))
}

/// Names what the container's reader would pass over or report without a place: keys given twice, unknown keys,
/// tensors and types. Returns the step's JSON.
fn check_header(header: &str) -> Result<Json> {
    let Json::Object(entries) = Json::parse("container header", header)? else {
        return Err(refuse("container header", "not an object"));
    };
    let mut entries: BTreeMap<String, Json> = entries.into_iter().collect();
    let metadata =
        entries.remove("__metadata__").ok_or_else(|| refuse("container", "metadata entry step is missing"))?;
    for (name, entry) in entries {
        let Some((name, dtypes)) = TENSORS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = TENSORS.iter().map(|(name, _)| *name).collect();
            let name: String = name.chars().take(60).collect();
            return Err(refuse("container", format!("unknown tensor {name:?} (known: {})", known.join(", "))));
        };
        let mut fields = Fields::new(format!("tensor {name}"), entry, &["dtype", "shape", "data_offsets"])?;
        let choices: Vec<(&str, ())> = dtypes.iter().map(|dtype| (*dtype, ())).collect();
        fields.required("dtype")?.choice(&choices)?;
    }
    let mut fields = Fields::new("__metadata__", metadata, &["step"])?;
    Json::parse("step", &fields.required("step")?.text()?)
}

/// A tensor of two dimensions.
struct Matrix<'a> {
    rows: usize,
    width: usize,
    view: TensorView<'a>,
}

fn matrix<'a>(container: &SafeTensors<'a>, name: &str) -> Result<Option<Matrix<'a>>> {
    let Ok(view) = container.tensor(name) else { return Ok(None) };
    match *view.shape() {
        [rows, width] => Ok(Some(Matrix { rows, width, view })),
        _ => Err(refuse(format!("tensor {name}"), format!("{} dimensions where 2 are expected", view.shape().len()))),
    }
}

/// The elements of a tensor, which may start at any byte.
fn elements<T>(view: &TensorView<'_>, read: fn([u8; 4]) -> T) -> Vec<T> {
    view.data().as_chunks().0.iter().map(|bytes| read(*bytes)).collect()
}

fn step_of(json: Json, logits: StoredLogits) -> Result<StepFile> {
    let mut step = Fields::new("step", json, STEP_KEYS)?;
    let phase = step.required("phase")?.choice(&[("prefill", Phase::Prefill), ("decode", Phase::Decode)])?;
    let verify = [("rejection", VerifyRule::Rejection), ("chain", VerifyRule::Chain)];
    let positions = [("strided", PositionRule::Strided), ("sequential", PositionRule::Sequential)];
    let draft_model = step.flag("draft_model")?;
    Ok(StepFile {
        phase,
        force_topk: step.optional("force_topk").map_or(Ok(0), |at| at.integer(0, i64::MAX.into()))?,
        draft_model,
        sum_smaller_probs: step.flag("sum_smaller_probs")?,
        dense_logprobs: step.flag("dense_logprobs")?,
        raw_logprobs: step.flag("raw_logprobs")?,
        verify: step.optional("verify").map_or(Ok(VerifyRule::default()), |at| at.choice(&verify))?,
        positions: step.optional("positions").map_or(Ok(PositionRule::default()), |at| at.choice(&positions))?,
        requests: step.required("requests")?.list()?.map(|at| request_of(at, draft_model)).collect::<Result<_>>()?,
        logits,
        mask: None,
        drafts: None,
    })
}

fn request_of(at: At, draft_model: bool) -> Result<StepRequest> {
    let place = at.place.clone();
    let mut request = Fields::new(at.place, at.json, REQUEST_KEYS)?;
    let id = request.required("id")?.text()?;
    let seed = request.required("seq_seed")?.integer(0, u64::MAX.into())?;
    let mut params = request.optional("params").map_or(Ok(SamplingParams::default()), params_of)?;
    params.seq_seed = Some(seed);
    let any = (i128::from(i64::MIN), i128::from(i64::MAX));
    let ids = |at: Option<At>| at.map_or(Ok(Vec::new()), |at| at.integers(any.0, any.1));
    params.golden_token_ids = ids(request.optional("golden"))?;
    let step = request.optional("draft_step");
    let offset = request.optional("last_valid_offset");
    let draft = match (draft_model, step, offset) {
        (true, Some(step), offset) => Some(DraftStep {
            step: step.integer(1, i32::MAX.into())?,
            last_valid_offset: offset.map_or(Ok(0), |offset| offset.integer(0, i32::MAX.into()))?,
        }),
        (true, None, _) => return Err(refuse(place, "key \"draft_step\" is missing, and draft_model is true")),
        (false, None, None) => None,
        (false, step, _) => {
            let key = if step.is_some() { "draft_step" } else { "last_valid_offset" };
            return Err(refuse(place, format!("key {key:?} is given, but draft_model is not true")));
        }
    };
    Ok(StepRequest {
        id,
        seqlen_q: request.required("seqlen_q")?.integer(1, any.1)?,
        seqlen_k: request.required("seqlen_k")?.integer(1, any.1)?,
        params,
        draft_token_ids: ids(request.optional("draft_token_ids"))?,
        draft,
    })
}

fn params_of(at: At) -> Result<SamplingParams> {
    let mut fields = Fields::new(at.place, at.json, PARAM_KEYS)?;
    let default = SamplingParams::default();
    let order = [("joint", FilterOrder::Joint), ("top_k_first", FilterOrder::TopKFirst)];
    let mut float = |key, default| fields.optional(key).map_or(Ok(default), At::float);
    Ok(SamplingParams {
        temperature: float("temperature", default.temperature)?,
        top_p: float("top_p", default.top_p)?,
        min_p: float("min_p", default.min_p)?,
        // The range is the parameters' own, checked with them; here only that it is an integer.
        top_k: fields.optional("top_k").map_or(Ok(default.top_k), |at| at.integer(i64::MIN.into(), i64::MAX.into()))?,
        filter_order: fields.optional("filter_order").map_or(Ok(default.filter_order), |at| at.choice(&order))?,
        top_logprobs: fields.optional("top_logprobs").map_or(Ok(0), |at| at.integer(0, i64::MAX.into()))?,
        ..default
    })
}
