//! Sampling on slices: the CPU device without a pointer in sight, for embedding in a Rust program.

use crate::device::{CpuDevice, DevPtr, RawStream};
use crate::error::{Error, Result};
use crate::params::SamplingParams;
use crate::pipeline::{DType, Index, Limits, Logits, Mask, Outputs, ParamTable, Sampler, Step};
use half::{bf16, f16};
use std::sync::Arc;

const OP: &str = "sample";

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
}

/// A type logits come in: f32, f16 or bf16.
pub trait Logit: sealed::Sealed {
    /// Its name in a [`Step`].
    const DTYPE: DType;
}

impl Logit for f32 {
    const DTYPE: DType = DType::F32;
}
impl Logit for f16 {
    const DTYPE: DType = DType::F16;
}
impl Logit for bf16 {
    const DTYPE: DType = DType::BF16;
}

/// Rows to draw from.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, T> {
    /// `[rows, stride]`; read in place.
    pub logits: &'a [T],
    /// Vocabulary size V.
    pub vocab: usize,
    /// Elements from one row to the next, at least `vocab`.
    pub stride: usize,
    /// Slot of each row's parameters, -1 = padding row.
    pub slots: &'a [i32],
    /// Position of each row's draw.
    pub positions: &'a [i64],
    /// Allowed-token bits `[rows, ceil(V / 32)]`; empty: everything is allowed.
    pub mask: &'a [i32],
    /// Keep the first N tokens of the order; 0 = off.
    pub force_topk: usize,
}

/// Where the results go: one entry a row, or an empty slice where they are not wanted.
#[derive(Debug, Default)]
pub struct Drawn<'a> {
    /// Token, -1 = none.
    pub tokens: &'a mut [i32],
    /// Processed logprob of the token.
    pub logprobs: &'a mut [f32],
    /// Rank of the token, from 1; 0 = none.
    pub ranks: &'a mut [i32],
    /// Number of kept tokens.
    pub kept_counts: &'a mut [i32],
    /// Bits of [`status`](crate::pipeline::blocks::status).
    pub status: &'a mut [i32],
}

/// A sampler on the host's cores with a parameter table of its own.
///
/// ```
/// use samedraw::embedded::{CpuSampler, Drawn, Rows};
/// use samedraw::{Limits, SamplingParams};
///
/// let mut sampler = CpuSampler::new(Limits::new(1, 4), 1)?;
/// sampler.set_params(0, &SamplingParams { top_k: 2, seq_seed: Some(7), ..SamplingParams::default() })?;
/// let logits = [0.5f32, 3.0, 1.0, 2.9];
/// let mut tokens = [0];
/// for position in 1..=20 {
///     let rows = Rows {
///         logits: &logits, vocab: 4, stride: 4, slots: &[0], positions: &[position], mask: &[], force_topk: 0,
///     };
///     sampler.sample(&rows, Drawn { tokens: &mut tokens, ..Drawn::default() })?;
///     assert!(tokens[0] == 1 || tokens[0] == 3);
/// }
/// # Ok::<(), samedraw::Error>(())
/// ```
#[derive(Debug)]
pub struct CpuSampler {
    sampler: Sampler<CpuDevice>,
}

impl CpuSampler {
    /// A sampler for steps within `limits`, with parameters for `slots` requests.
    ///
    /// # Errors
    /// As [`ParamTable::new`] and [`Sampler::new`].
    pub fn new(limits: Limits, slots: usize) -> Result<Self> {
        let device = Arc::new(CpuDevice::open()?);
        let table = Arc::new(ParamTable::new(&device, slots)?);
        Ok(CpuSampler { sampler: Sampler::new(&device, limits, &table)? })
    }

    /// Sets the parameters of a slot; returns the seed in use.
    ///
    /// # Errors
    /// As [`ParamTable::set`].
    pub fn set_params(&mut self, slot: usize, params: &SamplingParams) -> Result<u64> {
        // SAFETY: the default stream of the CPU device always exists and cannot capture.
        unsafe { self.sampler.table().set(RawStream::default(), slot, params) }
    }

    /// Empties a slot.
    ///
    /// # Errors
    /// As [`ParamTable::clear`].
    pub fn clear(&mut self, slot: usize) -> Result<()> {
        // SAFETY: as in `set_params`.
        unsafe { self.sampler.table().clear(RawStream::default(), slot) }
    }

    /// Draws one token a row. The results are there when it returns; nothing is allocated.
    ///
    /// # Errors
    /// [`Error::Argument`] for a slice whose length does not fit; otherwise as [`Sampler::step`].
    pub fn sample<T: Logit>(&mut self, rows: &Rows<'_, T>, out: Drawn<'_>) -> Result<()> {
        let n = rows.slots.len();
        let words = rows.vocab.div_ceil(32);
        let exact = |what, len: usize, want: usize| {
            if len == want { Ok(()) } else { Err(Error::argument(OP, what, len, format!("rows: {want} elements"))) }
        };
        let wanted = |what, len: usize| if len == 0 { Ok(()) } else { exact(what, len, n) };
        exact("positions", rows.positions.len(), n)?;
        exact("tokens", out.tokens.len(), n)?;
        wanted("logprobs", out.logprobs.len())?;
        wanted("ranks", out.ranks.len())?;
        wanted("kept_counts", out.kept_counts.len())?;
        wanted("status", out.status.len())?;
        let needed = n.checked_sub(1).and_then(|last| last.checked_mul(rows.stride)?.checked_add(rows.vocab));
        if needed.is_none_or(|needed| rows.logits.len() < needed) {
            let limit = format!("{n} rows of {} elements, {} apart", rows.vocab, rows.stride);
            return Err(Error::argument(OP, "logits", rows.logits.len(), limit));
        }
        if !rows.mask.is_empty() {
            exact("mask words", rows.mask.len(), n.saturating_mul(words))?;
        }
        fn address<T>(slice: &mut [T]) -> DevPtr {
            if slice.is_empty() { DevPtr::NULL } else { DevPtr::from_host_mut(slice) }
        }
        let step = Step {
            logits: Logits {
                ptr: DevPtr::from_host(rows.logits),
                dtype: T::DTYPE,
                rows: n,
                vocab: rows.vocab,
                stride: rows.stride,
            },
            rows: n,
            force_topk: rows.force_topk,
            mask: (!rows.mask.is_empty()).then(|| Mask {
                ptr: DevPtr::from_host(rows.mask),
                rows: n,
                stride: words,
                index: None,
            }),
            row_to_slot: Some(Index::i32(DevPtr::from_host(rows.slots))),
            positions: DevPtr::from_host(rows.positions),
            outputs: Outputs {
                tokens: Some(Index::i32(address(out.tokens))),
                logprobs: address(out.logprobs),
                ranks: address(out.ranks),
                kept_counts: address(out.kept_counts),
                status: address(out.status),
                ..Outputs::default()
            },
            ..Step::default()
        };
        // SAFETY: every pointer is a slice that was held to the shape the step states and outlives the call, which
        // ends only when the CPU device is done; the outputs are distinct `&mut` slices.
        unsafe { self.sampler.step(RawStream::default(), &step) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows<'a>(logits: &'a [f32], slots: &'a [i32], positions: &'a [i64]) -> Rows<'a, f32> {
        Rows { logits, vocab: 3, stride: 4, slots, positions, mask: &[], force_topk: 0 }
    }

    #[test]
    fn slices_of_the_wrong_length_are_refused_and_the_last_row_needs_no_padding() {
        let mut sampler = CpuSampler::new(Limits::new(2, 3), 2).unwrap();
        sampler.set_params(0, &SamplingParams::greedy()).unwrap();
        let logits = [0.0, 5.0, 1.0, 99.0, 7.0, 2.0, 1.0];
        let mut tokens = [9, 9];
        sampler.sample(&rows(&logits, &[0, 0], &[1, 1]), Drawn { tokens: &mut tokens, ..Drawn::default() }).unwrap();
        assert_eq!(tokens, [1, 0]);
        let short =
            sampler.sample(&rows(&logits[..6], &[0, 0], &[1, 1]), Drawn { tokens: &mut tokens, ..Drawn::default() });
        assert_eq!(short.unwrap_err().to_string(), "sample: logits = 6 is refused: 2 rows of 3 elements, 4 apart");
        let positions =
            sampler.sample(&rows(&logits, &[0, 0], &[1]), Drawn { tokens: &mut tokens, ..Drawn::default() });
        assert_eq!(positions.unwrap_err().to_string(), "sample: positions = 1 is refused: rows: 2 elements");
    }

    #[test]
    fn padding_rows_keep_their_slots_contents() {
        let mut sampler = CpuSampler::new(Limits::new(2, 3), 1).unwrap();
        sampler.set_params(0, &SamplingParams::greedy()).unwrap();
        let mut tokens = [77, 77];
        let logits = [f32::NAN; 7];
        sampler.sample(&rows(&logits, &[-1, 0], &[1, 1]), Drawn { tokens: &mut tokens, ..Drawn::default() }).unwrap();
        assert_eq!(tokens, [77, -1]);
    }
}
