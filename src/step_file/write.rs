//! A step to bytes.

use super::{Phase, StepFile, StepRequest, VerifyRule, refuse};
use crate::batch::PositionRule;
use crate::error::{Error, Result};
use crate::params::FilterOrder;
use crate::pipeline::DType;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::Path;

impl StepFile {
    /// Writes the step to `path`.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be written, otherwise as [`to_bytes`](Self::to_bytes).
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        std::fs::write(path, self.to_bytes()?).map_err(|error| Error::Io {
            op: "writing",
            path: path.display().to_string(),
            message: error.to_string(),
        })
    }

    /// The step as a step file's bytes.
    ///
    /// # Errors
    /// As [`check`](Self::check): what could not be read back is not written.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.check()?;
        let logits = &self.logits;
        let dtype = match logits.dtype {
            DType::F32 => Dtype::F32,
            DType::F16 => Dtype::F16,
            DType::BF16 => Dtype::BF16,
        };
        let words = self.mask.as_ref().map(|mask| bytes(&mask.words, i32::to_le_bytes));
        let drafts = self.drafts.as_ref().map(|drafts| bytes(&drafts.logprobs, f32::to_le_bytes));
        let index =
            self.drafts.as_ref().and_then(|drafts| drafts.index.as_ref()).map(|ids| bytes(ids, i32::to_le_bytes));
        let verified = logits.rows - self.requests.len();
        let mut tensors = vec![("logits", dtype, [logits.rows, logits.vocab], &logits.bytes)];
        if let (Some(mask), Some(words)) = (&self.mask, &words) {
            tensors.push(("token_bitmask", Dtype::I32, [logits.rows, mask.width], words));
        }
        if let Some(drafts) = &drafts {
            tensors.push(("draft_logprobs", Dtype::F32, [verified, self.columns()], drafts));
        }
        if let Some(index) = &index {
            tensors.push(("draft_index", Dtype::I32, [verified, self.columns()], index));
        }
        let failed = |error: safetensors::SafeTensorError| refuse("container", error.to_string());
        let views: Vec<(&str, TensorView<'_>)> = tensors
            .into_iter()
            .map(|(name, dtype, shape, data)| Ok((name, TensorView::new(dtype, shape.to_vec(), data).map_err(failed)?)))
            .collect::<Result<_>>()?;
        let metadata = HashMap::from([("step".to_owned(), self.step_json().to_string())]);
        safetensors::serialize(views, Some(metadata)).map_err(failed)
    }

    fn step_json(&self) -> Value {
        let phase = match self.phase {
            Phase::Prefill => "prefill",
            Phase::Decode => "decode",
        };
        let verify = match self.verify {
            VerifyRule::Rejection => "rejection",
            VerifyRule::Chain => "chain",
        };
        let positions = match self.positions {
            PositionRule::Strided => "strided",
            PositionRule::Sequential => "sequential",
        };
        json!({
            "phase": phase,
            "force_topk": self.force_topk,
            "draft_model": self.draft_model,
            "sum_smaller_probs": self.sum_smaller_probs,
            "dense_logprobs": self.dense_logprobs,
            "raw_logprobs": self.raw_logprobs,
            "verify": verify,
            "positions": positions,
            "requests": self.requests.iter().map(request_json).collect::<Vec<_>>(),
        })
    }
}

fn request_json(request: &StepRequest) -> Value {
    let params = &request.params;
    let order = match params.filter_order {
        FilterOrder::Joint => "joint",
        FilterOrder::TopKFirst => "top_k_first",
    };
    let mut json = Map::new();
    let mut put = |key: &str, value: Value| json.insert(key.to_owned(), value);
    put("id", json!(request.id));
    put("seq_seed", json!(params.seq_seed));
    put("seqlen_q", json!(request.seqlen_q));
    put("seqlen_k", json!(request.seqlen_k));
    // As f64, which holds each f32 exactly, so that it reads back to the same bits.
    put(
        "params",
        json!({
            "temperature": f64::from(params.temperature),
            "top_p": f64::from(params.top_p),
            "top_k": params.top_k,
            "min_p": f64::from(params.min_p),
            "filter_order": order,
            "top_logprobs": params.top_logprobs,
        }),
    );
    if !request.draft_token_ids.is_empty() {
        put("draft_token_ids", json!(request.draft_token_ids));
    }
    if !params.golden_token_ids.is_empty() {
        put("golden", json!(params.golden_token_ids));
    }
    if let Some(draft) = &request.draft {
        put("draft_step", json!(draft.step));
        put("last_valid_offset", json!(draft.last_valid_offset));
    }
    Value::Object(json)
}

fn bytes<T: Copy>(values: &[T], write: fn(T) -> [u8; 4]) -> Vec<u8> {
    values.iter().flat_map(|&value| write(value)).collect()
}
