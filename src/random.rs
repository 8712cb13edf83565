//! Random numbers: a hash of (seed, position, case), SEMANTICS section 1.
//!
//! A draw depends on nothing else: not on the row's place in the batch, not on earlier draws.

/// Distance between the positions of neighbouring rows of one decode request under
/// [`PositionRule::Strided`](crate::batch::PositionRule::Strided).
pub const ROW_STRIDE: i64 = 10_000_019;
/// Added (wrapping) to a request's seed for the draft model's stream.
pub const DRAFT_SEED_OFFSET: u64 = 1_000_000_007;
/// Number of random bits a draw uses.
pub const DRAW_BITS: u32 = 53;

/// What SplitMix64's state grows by from one output to the next.
pub const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;
/// The multipliers of SplitMix64's two rounds.
pub const MIX: [u64; 2] = [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB];

/// Which of the three numbers of a position is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Case {
    /// A draw from the row's distribution.
    Fresh = 0,
    /// The accept test of a draft token.
    Accept = 1,
    /// A draw from what is left after a rejection.
    Residual = 2,
}

/// The `n`-th output, counted from 0, of the SplitMix64 generator seeded with `seed`.
///
/// ```
/// assert_eq!(samedraw::random::splitmix64(0, 0), 0xE220_A839_7B1D_CDAF);
/// ```
pub const fn splitmix64(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_add(1).wrapping_mul(GAMMA));
    z = (z ^ (z >> 30)).wrapping_mul(MIX[0]);
    z = (z ^ (z >> 27)).wrapping_mul(MIX[1]);
    z ^ (z >> 31)
}

/// The 53 random bits of a draw; `bits / 2^53` is the uniform number in [0, 1).
pub const fn draw_bits(seed: u64, position: i64, case: Case) -> u64 {
    splitmix64(seed, (position as u64).wrapping_mul(3).wrapping_add(case as u64)) >> (64 - DRAW_BITS)
}

/// `floor(bits * mass / 2^53)` in 128 bits.
pub const fn scale_bits(bits: u64, mass: u64) -> u64 {
    ((bits as u128 * mass as u128) >> DRAW_BITS) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_splitmix64_outputs() {
        // The generator's published test outputs for seed 1234567, and the value SEMANTICS names.
        let expected = [
            6_457_827_717_110_365_317u64,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        for (n, want) in expected.into_iter().enumerate() {
            assert_eq!(splitmix64(1_234_567, n as u64), want, "output {n}");
        }
        assert_eq!(splitmix64(0, 0), 0xE220_A839_7B1D_CDAF);
    }

    #[test]
    fn sequence_numbers_wrap_and_the_largest_draw_is_below_one() {
        assert_eq!(draw_bits(9, -1, Case::Accept), splitmix64(9, 0u64.wrapping_sub(2)) >> 11);
        let largest = u64::MAX >> 11;
        assert!((largest as f64) / 2f64.powi(53) < 1.0);
        assert_eq!(scale_bits(largest, 1 << 40), (1 << 40) - 1);
        assert_eq!(scale_bits(largest, 1 << 63), (1 << 63) - (1 << 10));
    }

    #[test]
    fn seeds_three_apart_are_not_shifted_streams() {
        assert_ne!(draw_bits(42, 1, Case::Fresh), draw_bits(45, 0, Case::Fresh));
    }
}
