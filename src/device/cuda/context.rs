//! The card's primary context, shared with every other library of the process that uses the runtime API.

use super::driver;
use crate::error::Result;
use cudarc::driver::sys;
use std::ptr::null_mut;

/// One reference to the primary context of a card, given back on drop. The driver destroys the context with the last
/// reference, so a stack that uses it keeps it.
#[derive(Debug)]
pub(super) struct Context {
    device: sys::CUdevice,
    raw: sys::CUcontext,
}

// SAFETY: a context handle may be used from any thread; `enter` makes it current there.
unsafe impl Send for Context {}
// SAFETY: as above; the driver's calls are thread-safe.
unsafe impl Sync for Context {}

impl Context {
    /// # Safety
    /// `device` is a handle of the driver that [`driver::open`] returned.
    pub unsafe fn retain(device: sys::CUdevice) -> Result<Self> {
        let mut raw = null_mut();
        // SAFETY: the caller's promise; `raw` is written.
        unsafe { driver::cuDevicePrimaryCtxRetain("open", &mut raw, device)? };
        Ok(Context { device, raw })
    }

    /// Makes the context current on this thread until the guard is dropped, then the caller's again.
    pub fn enter(&self, op: &'static str) -> Result<Entered> {
        let mut current = null_mut();
        // SAFETY: the driver is open as a context exists; `current` is written; `raw` is alive while `self` is.
        unsafe {
            driver::cuCtxGetCurrent(op, &mut current)?;
            if current == self.raw {
                return Ok(Entered { pushed: false });
            }
            driver::cuCtxPushCurrent_v2(op, self.raw)?;
        }
        Ok(Entered { pushed: true })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained in `retain`. At the end of a process the driver may be gone already, and says so.
        let _ = unsafe { driver::cuDevicePrimaryCtxRelease_v2("close", self.device) };
    }
}

/// The time in which a context is current.
pub(super) struct Entered {
    pushed: bool,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = null_mut();
            // SAFETY: pushed on this thread by `enter`; guards are dropped in reverse order of their creation.
            let _ = unsafe { driver::cuCtxPopCurrent_v2("leave", &mut popped) };
        }
    }
}
