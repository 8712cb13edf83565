//! Which bits draw which token: the integer interval of each, from masses of the oracle.

use super::oracle::product;

/// Largest 53-bit number.
pub const LAST: u64 = (1 << 53) - 1;

/// The smallest bits with floor(bits * total / 2^53) >= target.
pub fn smallest(target: u64, total: u64) -> u64 {
    let bits = (u128::from(target) << 53).div_ceil(u128::from(total)) as u64;
    assert!(product(bits, total, 53) >= target && (bits == 0 || product(bits - 1, total, 53) < target));
    bits
}

/// Tokens in their order with the first and the last bits that draw them; those that no bits draw are left out.
pub fn intervals(weighted: &[(usize, u64)]) -> Vec<(i64, u64, u64)> {
    let total = weighted.iter().map(|w| w.1).sum();
    let mut intervals = Vec::new();
    let mut low = 0;
    for &(id, mass) in weighted {
        let (first, end) = (smallest(low, total), smallest(low + mass, total));
        if first < end {
            intervals.push((id as i64, first, end - 1));
        }
        low += mass;
    }
    // They cover all 53-bit numbers, each once.
    assert_eq!((intervals[0].1, intervals[intervals.len() - 1].2), (0, LAST));
    assert!(intervals.windows(2).all(|w| w[0].2 + 1 == w[1].1));
    intervals
}
