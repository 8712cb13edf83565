//! Captured steps.

use crate::handle::{Handle, exclusive, out};
use crate::sampler::{raw, samedraw_sampler};
use crate::status::samedraw_status::SAMEDRAW_ARGUMENT;
use crate::status::{guard, refuse, samedraw_status};
use crate::step::{samedraw_step, step};
use samedraw::Device;
use samedraw::pipeline::{CapturedStep, Variant};
use std::ffi::c_void;

/// A captured step. It keeps the workspace and the table alive: the sampler may be freed before it.
pub struct samedraw_captured {
    _opaque: [u8; 0],
}

impl Handle for samedraw_captured {
    type Value = CapturedStep<dyn Device>;
    const NAME: &'static str = "samedraw_captured";
}

/// Which filters the replays of a captured step may meet. Each gives the tokens of SAMEDRAW_VARIANT_DEFAULT; a row that
/// uses a filter the variant excludes gets token -1 and SAMEDRAW_ROW_BAD_INDEX.
#[repr(u32)]
pub enum samedraw_variant {
    /// Any.
    SAMEDRAW_VARIANT_DEFAULT = 0,
    /// None.
    SAMEDRAW_VARIANT_NO_FILTER = 1,
    /// Top-k alone.
    SAMEDRAW_VARIANT_TOP_K = 2,
    /// Top-p alone.
    SAMEDRAW_VARIANT_TOP_P = 3,
    /// Top-k and top-p.
    SAMEDRAW_VARIANT_TOP_K_TOP_P = 4,
    /// Any, in a step that verifies drafts.
    SAMEDRAW_VARIANT_VERIFY = 5,
    /// None, in a step that verifies drafts.
    SAMEDRAW_VARIANT_VERIFY_NO_FILTER = 6,
}

/// Captures a step on the stream, which is not the default one, as a graph: runs nothing. A replay reads logits,
/// parameters, positions and drafts anew from the captured addresses. variant is a samedraw_variant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_sampler_capture(
    sampler: *const samedraw_sampler,
    stream: *mut c_void,
    given: *const samedraw_step,
    variant: u32,
    captured: *mut *mut samedraw_captured,
) -> samedraw_status {
    guard(|| {
        let Some(&variant) = Variant::ALL.get(variant as usize) else {
            let most = Variant::ALL.len() - 1;
            return refuse(SAMEDRAW_ARGUMENT, format!("variant = {variant} is refused: 0 to {most}"));
        };
        // SAFETY: the header's promise.
        unsafe {
            let mut sampler = exclusive(samedraw_sampler::get(sampler)?, samedraw_sampler::NAME)?;
            let captured = out(captured, "captured")?;
            samedraw_captured::give(captured, sampler.capture(raw(stream), &step(given)?, variant)?);
        }
        Ok(())
    })
}

/// Enqueues one replay. It uses the sampler's workspace, so it is ordered with the sampler's steps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_captured_replay(
    captured: *const samedraw_captured,
    stream: *mut c_void,
) -> samedraw_status {
    guard(|| {
        // SAFETY: the header's promise.
        unsafe { samedraw_captured::get(captured)?.replay(raw(stream))? };
        Ok(())
    })
}

/// Frees a captured step, whose replays have run; null is nothing to do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_captured_free(captured: *mut samedraw_captured) -> samedraw_status {
    // SAFETY: the header's promise.
    guard(|| unsafe { samedraw_captured::free(captured, |_| Ok(())) })
}

const _: () = assert!(matches!(Variant::ALL[samedraw_variant::SAMEDRAW_VARIANT_NO_FILTER as usize], Variant::NoFilter));
const _: () = assert!(matches!(Variant::ALL[samedraw_variant::SAMEDRAW_VARIANT_TOP_K as usize], Variant::TopK));
const _: () = assert!(matches!(Variant::ALL[samedraw_variant::SAMEDRAW_VARIANT_TOP_P as usize], Variant::TopP));
const _: () =
    assert!(matches!(Variant::ALL[samedraw_variant::SAMEDRAW_VARIANT_TOP_K_TOP_P as usize], Variant::TopKTopP));
const _: () = assert!(matches!(Variant::ALL[samedraw_variant::SAMEDRAW_VARIANT_VERIFY as usize], Variant::Verify));
const _: () = assert!(matches!(
    Variant::ALL[samedraw_variant::SAMEDRAW_VARIANT_VERIFY_NO_FILTER as usize],
    Variant::VerifyNoFilter
));
