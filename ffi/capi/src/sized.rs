//! Structs with a size in front, so that caller and library may be of different releases.
//!
//! The caller says how large its struct is. What a smaller one lacks is 0, which always means absent or off; what a
//! larger one has more than we know must be 0.

use crate::status::samedraw_status::SAMEDRAW_STRUCT_SIZE;
use crate::status::{Result, null, refuse};
use std::mem::{MaybeUninit, size_of};

/// Larger than any struct will be: what is said to be longer has no size at all.
const LARGEST: usize = 4096;

/// A struct of the interface.
///
/// # Safety
/// `repr(C)`, starts with `size: usize`, and any bytes are a value of it.
pub(crate) unsafe trait Versioned: Copy {
    const NAME: &'static str;
    /// Its size in the first release: a smaller one is a mistake.
    const FIRST: usize;
}

/// # Safety
/// `ptr` is null, or readable for a `usize` and for as many bytes as that says.
pub(crate) unsafe fn read<T: Versioned>(ptr: *const T) -> Result<T> {
    // SAFETY: the caller's promise.
    let size = unsafe { size_of_struct(ptr) }?;
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: `size` bytes can be read, and as many as T has can be written; any bytes are a T.
    let value = unsafe {
        std::ptr::copy_nonoverlapping(ptr.cast::<u8>(), value.as_mut_ptr().cast(), size.min(size_of::<T>()));
        value.assume_init()
    };
    for at in size_of::<T>()..size {
        // SAFETY: below `size`.
        if unsafe { ptr.cast::<u8>().add(at).read() } != 0 {
            let known = size_of::<T>();
            return refuse(
                SAMEDRAW_STRUCT_SIZE,
                format!("{}: byte {at} is set, this release knows {known} of {size}", T::NAME),
            );
        }
    }
    Ok(value)
}

/// Writes as much of `value` as the caller's struct holds; its size stays the caller's.
///
/// # Safety
/// As [`read`], writable.
pub(crate) unsafe fn write<T: Versioned>(ptr: *mut T, value: T) -> Result<()> {
    // SAFETY: the caller's promise.
    let size = unsafe { size_of_struct(ptr) }?.min(size_of::<T>());
    let start = size_of::<usize>();
    // SAFETY: both hold `size` bytes.
    unsafe {
        let from = (&raw const value).cast::<u8>();
        std::ptr::copy_nonoverlapping(from.add(start), ptr.cast::<u8>().add(start), size - start);
    }
    Ok(())
}

/// # Safety
/// `ptr` is null or readable for a `usize`.
unsafe fn size_of_struct<T: Versioned>(ptr: *const T) -> Result<usize> {
    if ptr.is_null() {
        return null(T::NAME);
    }
    // SAFETY: the caller's promise.
    let size = unsafe { ptr.cast::<usize>().read_unaligned() };
    if !(T::FIRST..=LARGEST).contains(&size) {
        let (first, known) = (T::FIRST, size_of::<T>());
        return refuse(
            SAMEDRAW_STRUCT_SIZE,
            format!("{}.size = {size} is refused: {first} to {LARGEST}, {known} in this release", T::NAME),
        );
    }
    Ok(size)
}
