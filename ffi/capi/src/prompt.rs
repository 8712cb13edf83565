//! Prompt logprobs: which rows are scored against which tokens, and the scoring.

use crate::device::text;
use crate::handle::{Handle, exclusive, out};
use crate::sampler::{raw, samedraw_sampler};
use crate::sized::{Versioned, read, write};
use crate::status::samedraw_status::{SAMEDRAW_ARGUMENT, SAMEDRAW_CALLBACK};
use crate::status::{Failure, Result, guard, null, refuse, samedraw_status};
use crate::step::{index, logits, ptr, samedraw_logits};
use samedraw::pipeline::{PromptChunk, PromptPlan};
use std::ffi::{CString, c_char, c_void};
use std::mem::size_of;
use std::ptr::null as nothing;

/// The rows of a prefill step that are scored. Immutable: any number of threads may read it.
pub struct samedraw_prompt_plan {
    _opaque: [u8; 0],
}

/// A plan, and the reasons in it as C strings.
pub(crate) struct Planned {
    plan: PromptPlan,
    reasons: Vec<Option<CString>>,
}

impl Handle for samedraw_prompt_plan {
    type Value = Planned;
    const NAME: &'static str = "samedraw_prompt_plan";
}

/// The part of one request's prompt that a prefill step processes. In host memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct samedraw_prompt_chunk {
    /// sizeof(samedraw_prompt_chunk)
    pub size: usize,
    /// [prompt_length]: the whole prompt.
    pub prompt: *const i64,
    /// Its tokens.
    pub prompt_length: usize,
    /// Tokens of the prompt this step feeds.
    pub seqlen_q: usize,
    /// Tokens of the prompt fed after this step.
    pub seqlen_k: usize,
    /// Why the request gets none, where its prompt logprobs are switched off; null: it gets them.
    pub off: *const c_char,
    /// Parameter slot of the request.
    pub slot: i32,
    /// 0
    pub reserved: u32,
}

/// What a plan holds, in host memory of the plan's.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct samedraw_prompt_rows {
    /// sizeof(samedraw_prompt_rows)
    pub size: usize,
    /// Scored rows.
    pub count: usize,
    /// [count]: row of the step's hidden states for each scored row.
    pub rows: *const i32,
    /// [count]: the prompt token each scored row should predict.
    pub targets: *const i64,
    /// [count]: parameter slot of each scored row.
    pub row_to_slot: *const i32,
}

const _: () = assert!(size_of::<samedraw_prompt_chunk>() == 56 && size_of::<samedraw_prompt_rows>() == 40);
// SAFETY: as the trait asks.
unsafe impl Versioned for samedraw_prompt_chunk {
    const NAME: &'static str = "samedraw_prompt_chunk";
    const FIRST: usize = 56;
}
// SAFETY: as the trait asks.
unsafe impl Versioned for samedraw_prompt_rows {
    const NAME: &'static str = "samedraw_prompt_rows";
    const FIRST: usize = 40;
}

/// Plans the chunks of one step, whose hidden states lie behind each other in the same order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_prompt_plan_create(
    chunks: *const samedraw_prompt_chunk,
    count: usize,
    vocab: usize,
    plan: *mut *mut samedraw_prompt_plan,
) -> samedraw_status {
    guard(|| {
        // SAFETY: the header's promise.
        let plan = unsafe { out(plan, "plan") }?;
        if count > i32::MAX as usize {
            return refuse(SAMEDRAW_ARGUMENT, format!("chunks = {count} is refused: at most 2147483647"));
        }
        if count == 0 {
            let plan_of_none = PromptPlan::new(&[], vocab)?;
            samedraw_prompt_plan::give(plan, Planned { plan: plan_of_none, reasons: Vec::new() });
            return Ok(());
        }
        // SAFETY: the header's promise: one after the other, each of the size that the first one states.
        let step = unsafe {
            read(chunks)?;
            chunks.cast::<usize>().read_unaligned()
        };
        // SAFETY: as above.
        let chunk = |i: usize| unsafe { chunk(chunks.cast::<u8>().wrapping_add(i * step).cast()) };
        let chunks: Vec<PromptChunk<'_>> = (0..count).map(chunk).collect::<Result<_>>()?;
        let planned = PromptPlan::new(&chunks, vocab)?;
        let reason = |chunk: &PromptChunk<'_>| chunk.off.as_ref().and_then(|why| CString::new(why.as_str()).ok());
        let reasons = chunks.iter().map(reason).collect();
        samedraw_prompt_plan::give(plan, Planned { plan: planned, reasons });
        Ok(())
    })
}

/// # Safety
/// As [`read`], and its pointers are null or valid for what the struct states.
unsafe fn chunk<'a>(given: *const samedraw_prompt_chunk) -> Result<PromptChunk<'a>> {
    // SAFETY: the caller's promise.
    let c = unsafe { read(given) }?;
    crate::table::zero("samedraw_prompt_chunk.reserved", c.reserved)?;
    if c.prompt.is_null() {
        return null("prompt");
    }
    if c.prompt_length > isize::MAX as usize / size_of::<i64>() || !c.prompt.is_aligned() {
        return refuse(SAMEDRAW_ARGUMENT, format!("prompt_length = {} is refused: no such array", c.prompt_length));
    }
    Ok(PromptChunk {
        // SAFETY: the caller's promise.
        prompt: unsafe { std::slice::from_raw_parts(c.prompt, c.prompt_length) },
        seqlen_q: c.seqlen_q,
        seqlen_k: c.seqlen_k,
        slot: c.slot,
        // SAFETY: the caller's promise.
        off: if c.off.is_null() { None } else { Some(unsafe { text(c.off, "off") }?.to_owned()) },
    })
}

/// Says which rows are scored; the arrays live as long as the plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_prompt_plan_rows(
    plan: *const samedraw_prompt_plan,
    rows: *mut samedraw_prompt_rows,
) -> samedraw_status {
    guard(|| {
        // SAFETY: the header's promise.
        let plan = &unsafe { samedraw_prompt_plan::get(plan) }?.plan;
        let found = samedraw_prompt_rows {
            size: 0,
            count: plan.rows.len(),
            rows: plan.rows.as_ptr(),
            targets: plan.targets.as_ptr(),
            row_to_slot: plan.row_to_slot.as_ptr(),
        };
        // SAFETY: the header's promise.
        unsafe { write(rows, found) }
    })
}

/// Which of the scored rows are those of chunk number `chunk`: `count` from `first` on. off is null, or why there are
/// none; it lives as long as the plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_prompt_plan_request(
    plan: *const samedraw_prompt_plan,
    chunk: usize,
    first: *mut usize,
    count: *mut usize,
    off: *mut *const c_char,
) -> samedraw_status {
    guard(|| {
        // SAFETY: the header's promise.
        unsafe {
            let (first, count, off) = (out(first, "first")?, out(count, "count")?, out(off, "off")?);
            let planned = samedraw_prompt_plan::get(plan)?;
            let Some(request) = planned.plan.requests().get(chunk) else {
                let chunks = planned.plan.requests().len();
                return refuse(SAMEDRAW_ARGUMENT, format!("chunk = {chunk} is refused: the plan has {chunks}"));
            };
            let range = request.clone().unwrap_or_default();
            (*first, *count) = (range.start, range.len());
            *off = planned.reasons[chunk].as_ref().map_or(nothing(), |why| why.as_ptr());
        }
        Ok(())
    })
}

/// Frees a plan; null is nothing to do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_prompt_plan_free(plan: *mut samedraw_prompt_plan) -> samedraw_status {
    // SAFETY: the header's promise.
    guard(|| unsafe { samedraw_prompt_plan::free(plan, |_| Ok(())) })
}

/// The caller's source of logits: enqueues those of `count` scored rows from `first` on, one row each, and says in *logits
/// (whose size is set) where they will be. Returns 0, or any other number to give up. It throws no exception and calls
/// nothing on the sampler.
pub type samedraw_logits_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, first: usize, count: usize, logits: *mut samedraw_logits) -> i32>;

/// Enqueues the scoring of `rows` scored rows, in chunks of at most 8192 or the sampler's row limit, each asked for by
/// `source` on this thread; so never more than a chunk of logits exists. targets and row_to_slot hold one entry a scored row
/// in device memory, of that many bytes (4 or 8); logprobs takes one value each. The slot's temperature, top-p, top-k and
/// min-p apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_sampler_prompt_logprobs(
    sampler: *const samedraw_sampler,
    stream: *mut c_void,
    rows: usize,
    targets: *const c_void,
    targets_width: u32,
    row_to_slot: *const c_void,
    row_to_slot_width: u32,
    source: samedraw_logits_fn,
    user: *mut c_void,
    logprobs: *mut f32,
) -> samedraw_status {
    guard(|| {
        let Some(source) = source else { return null("source") };
        let Some(targets) = index("targets_width", targets, targets_width)? else { return null("targets") };
        let Some(slots) = index("row_to_slot_width", row_to_slot, row_to_slot_width)? else {
            return null("row_to_slot");
        };
        if logprobs.is_null() {
            return null("logprobs");
        }
        if rows > isize::MAX as usize / 8 {
            return refuse(SAMEDRAW_ARGUMENT, format!("rows = {rows} is refused: no such array"));
        }
        let mut failed = None;
        let mut ask = |range: std::ops::Range<usize>| {
            // SAFETY: any bytes are a value of the struct.
            let mut given: samedraw_logits = unsafe { std::mem::zeroed() };
            given.size = size_of::<samedraw_logits>();
            // SAFETY: the header's promise.
            let code = unsafe { source(user, range.start, range.len(), &mut given) };
            let asked = match code {
                // SAFETY: the struct is ours, and `read` looks at its size again.
                0 => unsafe { logits(&given) },
                code => refuse(SAMEDRAW_CALLBACK, format!("source returned {code} for the rows {range:?}")),
            };
            asked.map_err(|failure| {
                failed = Some(failure);
                samedraw::Error::Unsupported { op: "prompt logprobs", what: "what the source returned".into() }
            })
        };
        // SAFETY: the header's promise.
        let done = unsafe {
            let mut sampler = exclusive(samedraw_sampler::get(sampler)?, samedraw_sampler::NAME)?;
            sampler.prompt_logprobs(raw(stream), rows, targets, slots, &mut ask, ptr(logprobs))
        };
        done.map_err(|error| failed.unwrap_or(Failure::Core(error)))
    })
}
