//! The alignment a device promises, above the one the runtime documents.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// What [`Device::alloc`](crate::Device::alloc) promises. The runtime documents 64 bytes.
pub(super) const ALIGN: usize = 256;

/// Allocations whose address is not the one the runtime gave.
#[derive(Debug, Default)]
pub(super) struct Aligned {
    bases: Mutex<HashMap<u64, u64>>,
}

impl Aligned {
    /// Bytes to ask for so that `bytes` fit after aligning an address that was not.
    pub fn padded(bytes: usize) -> usize {
        bytes.saturating_add(ALIGN)
    }

    /// The first aligned address in an allocation at `base`, remembered.
    pub fn align(&self, base: u64) -> u64 {
        let aligned = base.next_multiple_of(ALIGN as u64);
        if aligned != base {
            self.bases.lock().unwrap_or_else(PoisonError::into_inner).insert(aligned, base);
        }
        aligned
    }

    /// The runtime's address of an allocation, which is then forgotten.
    pub fn base(&self, address: u64) -> u64 {
        self.bases.lock().unwrap_or_else(PoisonError::into_inner).remove(&address).unwrap_or(address)
    }
}
