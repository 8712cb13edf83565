//! Sampling parameters of a request, SEMANTICS section 2, and the row of the device table they become.

use crate::error::{Error, Result};
use crate::mass;
use crate::pipeline::blocks::SlotBlock;

/// Temperatures below this become this, and switch top-p, top-k and min-p off.
pub const MIN_TEMPERATURE: f32 = 1e-5;
/// Largest temperature.
pub const MAX_TEMPERATURE: f32 = 1e30;
/// `top_k` in [`SlotBlock`] when the filter is off.
pub const TOP_K_OFF: u64 = u64::MAX;
/// 2^32: `top_p` in [`SlotBlock`] when the filter keeps everything.
pub const TOP_P_OFF: u64 = 1 << 32;

/// How top-p and top-k combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FilterOrder {
    /// Top-p looks at the whole distribution; top-k is applied beside it.
    #[default]
    Joint,
    /// Top-p looks at the distribution of the first `top_k` tokens alone.
    TopKFirst,
}

/// Parameters of one request. Floats are rounded to f32 first, then checked.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// 0 to 1e30; below 1e-5 it becomes 1e-5 and the filters are switched off (nearly greedy, still a seeded draw).
    pub temperature: f32,
    /// In (0, 1]: keep the shortest prefix of the order whose probability is larger; 1 keeps all.
    pub top_p: f32,
    /// 1 to 2^31-1 tokens are kept; -1 keeps all. 1 is exact argmax.
    pub top_k: i64,
    /// In [0, 1]: keep tokens at least this likely relative to the most likely one; 0 keeps all.
    pub min_p: f32,
    /// How top-p and top-k combine.
    pub filter_order: FilterOrder,
    /// Seed of the request's draws; `None` takes 64 random bits from the operating system. 0 is a seed like any other.
    pub seq_seed: Option<u64>,
    /// Number of most likely kept tokens to report with their logprobs.
    pub top_logprobs: usize,
    /// Whether a prefill reports the logprob of each prompt token.
    pub prompt_logprobs: bool,
    /// Tokens the request must output, -1 = none at that place.
    pub golden_token_ids: Vec<i64>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        SamplingParams {
            temperature: 1.0,
            top_p: 1.0,
            top_k: -1,
            min_p: 0.0,
            filter_order: FilterOrder::Joint,
            seq_seed: None,
            top_logprobs: 0,
            prompt_logprobs: false,
            golden_token_ids: Vec::new(),
        }
    }
}

impl SamplingParams {
    /// Exact argmax: `top_k = 1`.
    pub fn greedy() -> Self {
        SamplingParams { top_k: 1, ..Self::default() }
    }

    /// Checks every field against its range.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the first field out of range, its value and the range.
    pub fn check(&self) -> Result<()> {
        let refuse = |field, value: String, allowed| Err(Error::Parameter { field, value, allowed });
        if !(0.0..=MAX_TEMPERATURE).contains(&self.temperature) {
            return refuse("temperature", format!("{:?}", self.temperature), "0 to 1e30");
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return refuse("top_p", format!("{:?}", self.top_p), "above 0, at most 1");
        }
        if !(self.top_k == -1 || (1..=i64::from(i32::MAX)).contains(&self.top_k)) {
            return refuse("top_k", self.top_k.to_string(), "-1 (off) or 1 to 2147483647");
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return refuse("min_p", format!("{:?}", self.min_p), "0 to 1");
        }
        Ok(())
    }

    /// The seed to use: the given one, or 64 random bits from the operating system.
    ///
    /// With several ranks, call this once, on the root, and send the value to the others.
    ///
    /// # Errors
    /// [`Error::Io`] when the operating system has no random numbers to give.
    pub fn resolve_seed(&self) -> Result<u64> {
        match self.seq_seed {
            Some(seed) => Ok(seed),
            None => getrandom::u64().map_err(|e| Error::Io {
                op: "reading random numbers from",
                path: "the operating system".into(),
                message: e.to_string(),
            }),
        }
    }

    /// The table row these parameters become with `seed`.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn to_slot(&self, seed: u64) -> Result<SlotBlock> {
        self.check()?;
        let near_greedy = self.temperature < MIN_TEMPERATURE;
        let temperature = if near_greedy { MIN_TEMPERATURE } else { self.temperature };
        let (top_p, top_k, min_p) = if near_greedy { (1.0, -1, 0.0) } else { (self.top_p, self.top_k, self.min_p) };
        Ok(SlotBlock {
            live: 1,
            scale: u64::from(mass::scale(temperature).to_bits()),
            top_p: top_p_fraction(top_p),
            top_k: if top_k == -1 { TOP_K_OFF } else { top_k as u64 },
            min_exponent: u64::from(min_exponent(min_p).to_bits()),
            seed,
            top_k_first: u64::from(self.filter_order == FilterOrder::TopKFirst && top_k != -1),
            reserved: 0,
        })
    }

    /// Parameters that give this table row; `None` for an empty one, and for one that no parameters give. What the row
    /// leaves open (temperatures that round to the same scale, the reports a request wants) makes no difference to a draw.
    pub fn from_slot(slot: &SlotBlock) -> Option<Self> {
        if slot.live != 1 {
            return None;
        }
        let exponent = f32::from_bits(slot.min_exponent as u32);
        let top_p = if slot.top_p == 0 { f32::MIN_POSITIVE } else { (slot.top_p as f64 / TOP_P_OFF as f64) as f32 };
        let about = SamplingParams {
            top_p,
            top_k: if slot.top_k == TOP_K_OFF { -1 } else { i64::try_from(slot.top_k).ok()? },
            filter_order: if slot.top_k_first == 1 { FilterOrder::TopKFirst } else { FilterOrder::Joint },
            seq_seed: Some(slot.seed),
            ..Self::default()
        };
        let temperature = std::f64::consts::LOG2_E / f64::from(f32::from_bits(slot.scale as u32));
        let temperature = neighbours(temperature as f32).find(|&t| {
            (MIN_TEMPERATURE..=MAX_TEMPERATURE).contains(&t) && mass::scale(t).to_bits() == slot.scale as u32
        })?;
        let min_p = if exponent == f32::NEG_INFINITY {
            0.0
        } else {
            neighbours(f64::from(exponent).exp2() as f32)
                .find(|&p| (0.0..=1.0).contains(&p) && min_exponent(p).to_bits() == exponent.to_bits())?
        };
        let params = SamplingParams { temperature, min_p, ..about };
        (params.to_slot(slot.seed).as_ref() == Ok(slot)).then_some(params)
    }
}

/// `about` and the floats around it, the nearest ones first.
fn neighbours(about: f32) -> impl Iterator<Item = f32> {
    let at = move |step: i64| u32::try_from(i64::from(about.to_bits()) + step).map_or(f32::NAN, f32::from_bits);
    (0..64).flat_map(move |step| [at(step), at(-step)])
}

/// `top_p * 2^32` rounded half to even; the product is exact in f64.
fn top_p_fraction(top_p: f32) -> u64 {
    (f64::from(top_p) * 4_294_967_296.0).round_ties_even() as u64
}

/// `f32(log2(min_p))`; -inf switches the filter off.
fn min_exponent(min_p: f32) -> f32 {
    if min_p > 0.0 { mass::log2(f64::from(min_p)) as f32 } else { f32::NEG_INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_refused_by_field_value_and_range() {
        let p = SamplingParams::default;
        let cases: Vec<(SamplingParams, &str)> = vec![
            (SamplingParams { temperature: -1.0, ..p() }, "temperature = -1.0 is refused: allowed is 0 to 1e30"),
            (SamplingParams { temperature: f32::NAN, ..p() }, "temperature = NaN"),
            (SamplingParams { temperature: 1.1e30, ..p() }, "temperature = 1.1e30"),
            (SamplingParams { top_p: 0.0, ..p() }, "top_p = 0.0 is refused: allowed is above 0, at most 1"),
            (SamplingParams { top_p: 1.0000001, ..p() }, "top_p = 1.0000001"),
            (SamplingParams { top_p: f32::NAN, ..p() }, "top_p = NaN"),
            (SamplingParams { top_k: 0, ..p() }, "top_k = 0 is refused: allowed is -1 (off) or 1 to 2147483647"),
            (SamplingParams { top_k: -2, ..p() }, "top_k = -2"),
            (SamplingParams { top_k: 1 << 31, ..p() }, "top_k = 2147483648"),
            (SamplingParams { min_p: -0.1, ..p() }, "min_p = -0.1"),
            (SamplingParams { min_p: f32::NAN, ..p() }, "min_p = NaN"),
        ];
        for (params, message) in cases {
            let error = params.to_slot(0).expect_err(message).to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn low_temperatures_switch_the_filters_off() {
        let slot = |temperature| {
            SamplingParams { temperature, top_k: 1, top_p: 0.5, min_p: 0.5, ..Default::default() }.to_slot(7).unwrap()
        };
        let off = slot(0.0);
        assert_eq!(
            (off.top_k, off.top_p, off.min_exponent as u32),
            (TOP_K_OFF, TOP_P_OFF, f32::NEG_INFINITY.to_bits())
        );
        assert_eq!(off.scale as u32, mass::scale(1e-5).to_bits());
        assert_eq!(slot(f32::MIN_POSITIVE / 4.0), off);
        assert_eq!((slot(1e-5).top_k, slot(1e-5).top_p), (1, 1 << 31));
    }

    #[test]
    fn a_table_row_gives_back_parameters_that_give_it() {
        // Every octave of each range, at odd places in it, and the ends.
        let spread = |low: i32, high: i32| {
            let octave = |e: i32| [0x00_0000u32, 0x12_3457, 0x40_0001, 0x7F_FFFF].map(|m| (e, m));
            (low..=high).flat_map(octave).map(|(e, m)| f32::from_bits(1.0f32.to_bits() | m) * (e as f32).exp2())
        };
        let check = |params: SamplingParams| {
            let slot = params.to_slot(9).unwrap();
            let found = SamplingParams::from_slot(&slot).unwrap_or_else(|| panic!("{params:?}"));
            assert_eq!(found.to_slot(found.seq_seed.unwrap()).unwrap(), slot, "{params:?}");
        };
        for temperature in spread(-40, 98).chain([0.0, MIN_TEMPERATURE, 0.7, 1.0, MAX_TEMPERATURE]) {
            check(SamplingParams { temperature, top_k: 7, min_p: 0.1, top_p: 0.3, ..Default::default() });
        }
        for top_p in spread(-50, -1).chain([f32::MIN_POSITIVE, 0.9, 1.0]) {
            check(SamplingParams { top_p, top_k: 3, filter_order: FilterOrder::TopKFirst, ..Default::default() });
        }
        for min_p in spread(-126, -1).chain([0.0, 0.05, 0.999_999_94, 1.0]) {
            check(SamplingParams { min_p, ..Default::default() });
        }
        assert_eq!(SamplingParams::from_slot(&SlotBlock::default()), None);
        let scale = u64::from(f32::INFINITY.to_bits());
        let odd = SlotBlock { scale, ..SamplingParams::default().to_slot(1).unwrap() };
        assert_eq!(SamplingParams::from_slot(&odd), None);
    }

    #[test]
    fn top_p_rounds_half_to_even() {
        // 2^-33 * 3 = 1.5 / 2^32 rounds to 2; 2^-33 = 0.5 / 2^32 rounds to 0.
        assert_eq!(top_p_fraction(3.0 / 8_589_934_592.0), 2);
        assert_eq!(top_p_fraction(1.0 / 8_589_934_592.0), 0);
        assert_eq!(top_p_fraction(1.0), TOP_P_OFF);
    }

    #[test]
    fn unset_seeds_differ_and_zero_is_a_seed() {
        let unset = SamplingParams::default();
        assert_ne!(unset.resolve_seed().unwrap(), unset.resolve_seed().unwrap());
        assert_eq!(SamplingParams { seq_seed: Some(0), ..unset }.resolve_seed().unwrap(), 0);
    }
}
