//! The device's default context, which the stack around us uses too: current on a thread while a call of ours runs.
//!
//! Streams, events, memory and binaries belong to a context, and a thread has one or none. So every entry makes ours
//! current and puts back what was there. `aclrtSetDevice` counts its calls; it is called once, and given back once.

use super::runtime::{Runtime, acl};
use super::sys::acl as sys;
use crate::error::{Error, Result};
use std::ptr::null_mut;

/// One reference to a device, with its default context.
#[derive(Debug)]
pub(super) struct Context {
    runtime: &'static Runtime,
    device: i32,
    raw: sys::aclrtContext,
}

// SAFETY: a context handle may be made current on any thread; `within` does that.
unsafe impl Send for Context {}
// SAFETY: as above; the runtime's calls are thread-safe.
unsafe impl Sync for Context {}

impl Context {
    /// Takes a reference to device number `device`, which exists.
    pub fn attach(runtime: &'static Runtime, device: i32) -> Result<Self> {
        const OP: &str = "open";
        let before = current(runtime, OP)?;
        // SAFETY: the number is plain; the runtime refuses one it does not know.
        unsafe { acl!(runtime, OP, aclrtSetDevice(device))? };
        let mut context = Context { runtime, device, raw: null_mut() };
        let attached = match current(runtime, OP) {
            Ok(raw) => {
                context.raw = raw;
                context.put_back(OP, before)
            }
            Err(error) => Err(error),
        };
        match attached {
            Ok(()) => Ok(context),
            Err(error) => {
                // The first error is the one to report.
                let _ = context.release();
                Err(error)
            }
        }
    }

    /// Runs `work` with the context current on this thread.
    pub fn within<T>(&self, op: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.making(op, work, |_| Ok(()))
    }

    /// As [`within`](Self::within) for `work` that makes something: should the caller's context not come back, the call
    /// fails, and `undo` takes away what nobody would hear of.
    pub fn making<T>(
        &self,
        op: &'static str,
        work: impl FnOnce() -> Result<T>,
        undo: impl FnOnce(T) -> Result<()>,
    ) -> Result<T> {
        let before = current(self.runtime, op)?;
        if before == self.raw {
            return work();
        }
        // SAFETY: the context is alive while `self` is.
        unsafe { acl!(self.runtime, op, aclrtSetCurrentContext(self.raw))? };
        let made = work();
        match (self.put_back(op, before), made) {
            (Ok(()), made) => made,
            (Err(_), Err(first)) => Err(first),
            (Err(error), Ok(made)) => {
                // Ours is still the current one; the error above is the one to report.
                let _ = undo(made);
                Err(error)
            }
        }
    }

    /// Makes `before` current again. A thread that had none keeps ours, as there is no way to have none again; so does
    /// one whose context has ended since, as a thread's memory of it may outlive it.
    fn put_back(&self, op: &'static str, before: sys::aclrtContext) -> Result<()> {
        if before.is_null() || before == self.raw {
            return Ok(());
        }
        // SAFETY: it was current on this thread a moment ago, and the runtime knows the contexts that live.
        match unsafe { acl!(self.runtime, op, aclrtSetCurrentContext(before)) } {
            Err(Error::Driver { code, .. }) if code == i64::from(sys::ACL_ERROR_RT_CONTEXT_NULL) => Ok(()),
            done => done,
        }
    }

    /// Gives the reference back. Nothing of this device may be used afterwards.
    pub fn release(&self) -> Result<()> {
        // SAFETY: taken by `attach`; the runtime frees the device with the last reference.
        unsafe { acl!(self.runtime, "close", aclrtResetDevice(self.device)) }
    }
}

/// The current context of this thread, null if there is none.
fn current(runtime: &Runtime, op: &'static str) -> Result<sys::aclrtContext> {
    let mut raw = null_mut();
    // SAFETY: the handle is written. No context is a failure to the runtime and none to us; `check` has taken its
    // message.
    match unsafe { acl!(runtime, op, aclrtGetCurrentContext(&mut raw)) } {
        Ok(()) => Ok(raw),
        Err(Error::Driver { code, .. }) if code == i64::from(sys::ACL_ERROR_RT_CONTEXT_NULL) => Ok(null_mut()),
        Err(error) => Err(error),
    }
}
