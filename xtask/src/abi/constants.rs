//! The constants the kernels share with the crate. Names and comments are given here, values are the crate's own.

use samedraw::pipeline::blocks::{filter, status, verify_mode};
use samedraw::pipeline::{DType, IndexWidth};
use samedraw::random::{self, Case};
use samedraw::{mass, params};

/// A value as C++ spells it.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    F32(f32),
    F64(f64),
}

/// Constants that belong together.
#[derive(Debug)]
pub struct Group {
    pub title: &'static str,
    pub constants: Vec<(&'static str, Value, &'static str)>,
}

/// Every constant of the headers, in order.
pub fn groups() -> Vec<Group> {
    use Value::*;
    let group = |title, constants| Group { title, constants };
    vec![
        group(
            "Status bits of a row.",
            vec![
                ("SD_STATUS_NAN_LOGITS", I32(status::NAN_LOGITS), "a NaN was left after the mask"),
                ("SD_STATUS_INF_LOGITS", I32(status::INF_LOGITS), "a token at +inf"),
                ("SD_STATUS_EMPTY_ROW", I32(status::EMPTY_ROW), "nothing above -inf was left"),
                ("SD_STATUS_NAN_DRAFT", I32(status::NAN_DRAFT), "a NaN in the draft's logprobs was met"),
                ("SD_STATUS_BAD_INDEX", I32(status::BAD_INDEX), "an index out of range"),
            ],
        ),
        group(
            "Bits of RowBlock::filters.",
            vec![
                ("SD_FILTER_TOP_K", U64(filter::TOP_K), "some slot uses top-k"),
                ("SD_FILTER_TOP_P", U64(filter::TOP_P), "some slot uses top-p"),
                ("SD_FILTER_MIN_P", U64(filter::MIN_P), "some slot uses min-p"),
                ("SD_FILTER_ALL_GREEDY", U64(filter::ALL_GREEDY), "every slot has top-k 1"),
                ("SD_FILTER_ALL", U64(filter::ALL), "every filter may be met"),
            ],
        ),
        group(
            "Values of VerifyBlock::mode.",
            vec![
                ("SD_VERIFY_REJECTION", U64(verify_mode::REJECTION), "against the draft's distribution"),
                ("SD_VERIFY_ONE_HOT", U64(verify_mode::ONE_HOT), "the distribution is one token"),
                ("SD_VERIFY_CHAIN", U64(verify_mode::CHAIN), "drafts count while they equal the drawn token"),
            ],
        ),
        group(
            "Values of RowBlock::logits_dtype, and of every *_width.",
            vec![
                ("SD_DTYPE_F32", U64(DType::F32 as u64), ""),
                ("SD_DTYPE_F16", U64(DType::F16 as u64), ""),
                ("SD_DTYPE_BF16", U64(DType::BF16 as u64), ""),
                ("SD_WIDTH_I32", U64(IndexWidth::I32 as u64), ""),
                ("SD_WIDTH_I64", U64(IndexWidth::I64 as u64), ""),
            ],
        ),
        group(
            "SlotBlock fields of a filter that is off; min_exponent is then -inf.",
            vec![
                ("SD_TOP_K_OFF", U64(params::TOP_K_OFF), "top_k"),
                ("SD_TOP_P_OFF", U64(params::TOP_P_OFF), "top_p: 2^32"),
            ],
        ),
        group(
            "Random numbers: splitmix64(seed, 3 * position + case) >> (64 - SD_DRAW_BITS).",
            vec![
                ("SD_CASE_FRESH", U64(Case::Fresh as u64), "a draw from the row's distribution"),
                ("SD_CASE_ACCEPT", U64(Case::Accept as u64), "the accept test of a draft"),
                ("SD_CASE_RESIDUAL", U64(Case::Residual as u64), "a draw after a rejection"),
                ("SD_DRAW_BITS", U32(random::DRAW_BITS), "random bits of a draw"),
                ("SD_SPLITMIX_GAMMA", U64(random::GAMMA), "state step"),
                ("SD_SPLITMIX_MIX1", U64(random::MIX[0]), "first multiplier, after z ^= z >> 30"),
                ("SD_SPLITMIX_MIX2", U64(random::MIX[1]), "second multiplier, after z ^= z >> 27; then z ^= z >> 31"),
                ("SD_ROW_STRIDE", I64(random::ROW_STRIDE), "strided positions; reaches kernels as position_stride"),
                ("SD_DRAFT_SEED_OFFSET", U64(random::DRAFT_SEED_OFFSET), "reaches kernels as seed_add"),
            ],
        ),
        group(
            "Masses: trunc(2^t * SD_MASS_ONE), 2^t by Horner from SD_POLY_C6 down to 1, every operation rounded.",
            vec![
                ("SD_MASS_ONE", U64(mass::ONE), "mass of the most likely token: 2^40"),
                ("SD_MASS_FLOOR", F32(mass::FLOOR), "exponents at or below it have mass 0"),
                ("SD_ROUND", F32(mass::ROUND), "rint(t) = (t + SD_ROUND) - SD_ROUND"),
                ("SD_POLY_C1", F32(mass::POLY[0]), ""),
                ("SD_POLY_C2", F32(mass::POLY[1]), ""),
                ("SD_POLY_C3", F32(mass::POLY[2]), ""),
                ("SD_POLY_C4", F32(mass::POLY[3]), ""),
                ("SD_POLY_C5", F32(mass::POLY[4]), ""),
                ("SD_POLY_C6", F32(mass::POLY[5]), ""),
            ],
        ),
        group(
            "Logarithms: log2 = e + r * SD_TWO_OVER_LN2 * s, s by Horner from 1/15 over the odd fractions down to 1.",
            vec![
                ("SD_LOG2_E", F32(mass::LOG2_E), "scale of temperature 1, and of draft logprobs"),
                ("SD_LN_2", F32(mass::LN_2), ""),
                ("SD_SQRT_2", F64(std::f64::consts::SQRT_2), "a w above it is halved"),
                ("SD_TWO_OVER_LN2", F64(mass::TWO_OVER_LN2), ""),
            ],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_bit_with_a_name_is_listed() {
        let listed: Vec<(&str, i32)> = groups()[0]
            .constants
            .iter()
            .map(|&(name, value, _)| match value {
                Value::I32(bit) => (name, bit),
                other => panic!("{name} is {other:?}"),
            })
            .collect();
        let mut named = 0;
        for bit in (0..31).map(|shift| 1i32 << shift) {
            for name in status::names(bit) {
                let want = format!("SD_STATUS_{}", name.to_uppercase());
                assert!(listed.contains(&(want.as_str(), bit)), "{want} = {bit}");
                named += 1;
            }
        }
        assert_eq!(named, listed.len());
    }
}
