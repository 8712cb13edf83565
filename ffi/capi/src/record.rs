//! The recorder.

use crate::device::text;
use crate::handle::{Handle, exclusive};
use crate::sampler::{raw, samedraw_sampler};
use crate::status::{guard, samedraw_status};
use crate::step::{samedraw_step, step};
use std::ffi::{c_char, c_void};

/// Writes the step that was just taken to a step file of at most max_bytes, to be replayed by `samedraw run`. Waits for
/// the stream and reads the step's inputs and parameters back: they are as they were when the step ran. Costs nothing
/// unless it is called; not for use in a capture.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn samedraw_sampler_record(
    sampler: *const samedraw_sampler,
    stream: *mut c_void,
    given: *const samedraw_step,
    path: *const c_char,
    max_bytes: usize,
) -> samedraw_status {
    guard(|| {
        // SAFETY: the header's promise.
        unsafe {
            let sampler = exclusive(samedraw_sampler::get(sampler)?, samedraw_sampler::NAME)?;
            let path = text(path, "path")?;
            sampler.record(raw(stream), &step(given)?, max_bytes)?.write(path)?;
        }
        Ok(())
    })
}
