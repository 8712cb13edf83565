//! Handles. Each starts with a tag of its kind, so that a pointer to something else is refused and not followed.

use crate::status::samedraw_status::{SAMEDRAW_BUSY, SAMEDRAW_HANDLE};
use crate::status::{Result, null, refuse};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// What is behind a handle.
#[repr(C)]
pub(crate) struct Tagged<T> {
    tag: u64,
    value: T,
}

/// An opaque C type.
pub(crate) trait Handle: Sized {
    /// What is behind it.
    type Value;
    /// Its name, whose bytes make the tag.
    const NAME: &'static str;

    /// Hands `value` out through `out`, which was held to be there by [`out`].
    fn give(out: &mut *mut Self, value: Self::Value) {
        *out = Box::into_raw(Box::new(Tagged { tag: tag(Self::NAME), value })).cast();
    }

    /// # Safety
    /// `handle` is null, or readable for 8 bytes; where a tag of this kind is, so is a value that [`give`](Self::give)
    /// made and that outlives `'a`.
    unsafe fn get<'a>(handle: *const Self) -> Result<&'a Self::Value> {
        check::<Self>(handle)?;
        // SAFETY: the caller's promise.
        unsafe { checked::<Self>(handle) }.map(|tagged| &tagged.value)
    }

    /// Takes the value back, once `ready` says that it may go; null is nothing to free.
    ///
    /// # Safety
    /// As [`get`](Self::get), and no other call uses the handle.
    unsafe fn free(handle: *mut Self, ready: impl FnOnce(&Self::Value) -> Result<()>) -> Result<()> {
        if handle.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        ready(unsafe { Self::get(handle) }?)?;
        let tagged: *mut Tagged<Self::Value> = handle.cast();
        // SAFETY: made by `give`, and nobody else's. The tag goes first: a second call with the same pointer then finds
        // none for as long as the memory is not used again.
        unsafe {
            std::ptr::write_volatile(&raw mut (*tagged).tag, 0);
            drop(Box::from_raw(tagged));
        }
        Ok(())
    }
}

const fn tag(name: &str) -> u64 {
    let (bytes, mut hash, mut i) = (name.as_bytes(), 0xcbf2_9ce4_8422_2325u64, 0);
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0100_0000_01b3);
        i += 1;
    }
    hash
}

fn check<H: Handle>(handle: *const H) -> Result<()> {
    if handle.is_null() {
        return null(H::NAME);
    }
    if !handle.cast::<Tagged<H::Value>>().is_aligned() {
        return refuse(SAMEDRAW_HANDLE, format!("{:#x} is no {}", handle as usize, H::NAME));
    }
    Ok(())
}

/// # Safety
/// As [`Handle::get`]; `handle` is neither null nor unaligned.
unsafe fn checked<'a, H: Handle>(handle: *const H) -> Result<&'a Tagged<H::Value>> {
    // SAFETY: the caller's promise.
    if unsafe { handle.cast::<u64>().read() } != tag(H::NAME) {
        return refuse(SAMEDRAW_HANDLE, format!("{:#x} is no {}, or one that was freed", handle as usize, H::NAME));
    }
    // SAFETY: the tag is the kind's.
    Ok(unsafe { &*handle.cast() })
}

/// The place a function returns a value in.
///
/// # Safety
/// `out` is null or writable.
pub(crate) unsafe fn out<'a, T>(out: *mut T, what: &str) -> Result<&'a mut T> {
    // SAFETY: the caller's promise.
    if out.is_null() { null(what) } else { Ok(unsafe { &mut *out }) }
}

/// The value behind a lock, unless another call has it: a sampler runs one step at a time, and waiting here would hide
/// that two threads use it.
pub(crate) fn exclusive<'a, T>(mutex: &'a Mutex<T>, name: &str) -> Result<MutexGuard<'a, T>> {
    match mutex.try_lock() {
        Ok(guard) => Ok(guard),
        // A panic happened under the lock. A sampler keeps nothing of a step on the host.
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => refuse(SAMEDRAW_BUSY, format!("{name} is in use by another call")),
    }
}
