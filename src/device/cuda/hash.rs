// FNV-1a over 128 bits: names cache entries, finds damaged ones, and tells prebuilt kernels of other sources apart. It
// guards against accidents; a cache entry's key is compared in full.
// No `//!` comment here: the build script includes this file.

const FNV_BASIS: u128 = 0x6c62272e07bb014262b821756295c58d;
const FNV_PRIME: u128 = 0x0000000001000000000000000000013b;

/// The hash of `parts`, one after the other, with the length of each.
pub(crate) fn fnv128(parts: &[&[u8]]) -> u128 {
    let step = |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(FNV_PRIME);
    parts.iter().fold(FNV_BASIS, |hash, part| {
        let hash = (part.len() as u64).to_le_bytes().iter().fold(hash, step);
        part.iter().fold(hash, step)
    })
}
