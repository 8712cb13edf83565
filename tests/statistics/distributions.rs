//! The distributions that are drawn from, and their probabilities in f64.

use super::common::row::Row;
use super::common::{Case, Rng};
use samedraw::SamplingParams;
use samedraw::params::FilterOrder;
use samedraw::pipeline::DType;

/// A row, what is done to it, and nothing that depends on a seed.
#[derive(Debug, Clone)]
pub struct Distribution {
    pub name: &'static str,
    pub logits: Vec<f32>,
    pub params: SamplingParams,
    /// Words of allowed tokens.
    pub mask: Option<Vec<i32>>,
    pub force_topk: usize,
    pub dtype: DType,
}

impl Distribution {
    pub fn new(name: &'static str, logits: Vec<f32>, params: SamplingParams) -> Distribution {
        Distribution { name, logits, params, mask: None, force_topk: 0, dtype: DType::F32 }
    }

    fn allowed(&self, v: usize) -> bool {
        self.mask.as_ref().is_none_or(|words| words[v / 32] >> (v % 32) & 1 == 1)
    }

    fn columns(&self) -> usize {
        if self.force_topk == 0 { self.logits.len() } else { self.force_topk }
    }

    /// Probabilities by token, in f64: softmax and filters as they are usually written. Refuses a row of which a filter's
    /// decision is so close that the arithmetic decides.
    pub fn probabilities(&self) -> Vec<f64> {
        let p = &self.params;
        let usable = |v: &usize| self.allowed(*v) && self.logits[*v] > f32::NEG_INFINITY;
        let mut order: Vec<usize> = (0..self.logits.len()).filter(usable).collect();
        order.sort_by(|&a, &b| self.logits[b].partial_cmp(&self.logits[a]).expect("no NaN is left"));
        order.truncate(self.columns());
        let max = f64::from(self.logits[order[0]]);
        let nearly_greedy = p.temperature < 1e-5;
        let temperature = f64::from(p.temperature.max(1e-5));
        let weight = |v: usize| match f64::from(self.logits[v]) {
            x if max == f64::INFINITY => f64::from(u8::from(x == max)),
            x => ((x - max) / temperature).exp(),
        };
        let mut kept: Vec<(usize, f64)> = order.iter().map(|&v| (v, weight(v))).filter(|kept| kept.1 > 0.0).collect();
        if !nearly_greedy {
            let first_k = if p.top_k == -1 { kept.len() } else { kept.len().min(p.top_k as usize) };
            let of = if p.filter_order == FilterOrder::TopKFirst { &kept[..first_k] } else { &kept[..] };
            let total: f64 = of.iter().map(|kept| kept.1).sum();
            let (mut before, mut len) = (0.0, 0);
            while len < kept.len() {
                let share = before / total - f64::from(p.top_p);
                let relative = kept[len].1 - f64::from(p.min_p);
                assert!(p.top_p == 1.0 || share.abs() > 1e-6, "{}: top-p is decided by rounding", self.name);
                assert!(p.min_p == 0.0 || relative.abs() > 1e-6, "{}: min-p is decided by rounding", self.name);
                if len >= first_k || (p.top_p < 1.0 && share > 0.0) || relative < 0.0 {
                    break;
                }
                before += kept[len].1;
                len += 1;
            }
            kept.truncate(len);
        }
        let sum: f64 = kept.iter().map(|kept| kept.1).sum();
        let mut probabilities = vec![0.0; self.logits.len()];
        kept.iter().for_each(|&(v, w)| probabilities[v] = w / sum);
        probabilities
    }

    /// The same by the oracle's integers.
    pub fn row(&self) -> Row {
        Row::new(&self.logits, |v| self.allowed(v), &self.params, self.columns())
    }

    /// `n` rows of it, of seeds `seed(i)`, at position 0.
    pub fn case(&self, n: usize, seed: impl Fn(usize) -> u64) -> Case {
        let repeated = Case::repeated(&self.logits, n, &self.params, seed);
        let as_half = |dtype| Case::half(dtype, &[&self.logits], &[SamplingParams::default()]).logits;
        Case {
            mask: self.mask.clone(),
            mask_index: self.mask.as_ref().map(|_| vec![0; n]),
            force_topk: self.force_topk,
            dtype: self.dtype,
            logits: if self.dtype == DType::F32 { repeated.logits } else { as_half(self.dtype) },
            ..repeated
        }
    }
}

pub fn normal(seed: u64, vocab: usize, deviation: f32) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    (0..vocab).map(|_| deviation * rng.normal()).collect()
}

/// Probabilities that fall as 1 / rank^power, in random order.
fn zipf(seed: u64, vocab: usize, power: f64) -> Vec<f32> {
    let mut logits: Vec<f32> = (1..=vocab).map(|rank| (-power * (rank as f64).ln()) as f32).collect();
    Rng::new(seed).shuffle(&mut logits);
    logits
}

fn ln(probabilities: &[f32]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln()).collect()
}

pub fn all() -> Vec<Distribution> {
    use Distribution as D;
    let plain = SamplingParams::default();
    let at = |temperature| SamplingParams { temperature, ..plain.clone() };
    let top_k = |top_k| SamplingParams { top_k, ..plain.clone() };
    let top_p = |top_p| SamplingParams { top_p, ..plain.clone() };
    let first = FilterOrder::TopKFirst;
    let mut rng = Rng::new(77);
    let levels: Vec<f32> = (0..96).map(|_| rng.pick(&[-1.0, -0.0, 0.0, 1.5])).collect();
    let peak = |height| std::iter::once(height).chain(std::iter::repeat_n(0.0, 400)).collect::<Vec<f32>>();
    let third = |n: usize, rng: &mut Rng| (0..n.div_ceil(32)).map(|_| (rng.u64() & rng.u64()) as i32).collect();
    let mut holes = normal(21, 200, 1.5);
    for (v, x) in holes.iter_mut().enumerate() {
        *x = if v % 7 == 0 { f32::NEG_INFINITY } else { *x };
        *x = if v % 11 == 3 { f32::NAN } else { *x };
    }
    let in_half = |to: fn(f32) -> f32| normal(24, 300, 2.0).into_iter().map(to).collect::<Vec<f32>>();
    vec![
        D::new("flat, 64", vec![0.5; 64], plain.clone()),
        D::new("flat, 1000", vec![-3.0; 1000], plain.clone()),
        D::new("two tokens", ln(&[0.3, 0.7]), plain.clone()),
        D::new("two tokens, one rare", ln(&[0.999, 0.001]), plain.clone()),
        D::new("one peak", peak(9.0), plain.clone()),
        D::new("one peak with nearly everything", peak(16.0), plain.clone()),
        D::new("normal", normal(1, 64, 1.5), plain.clone()),
        D::new("normal, cold", normal(2, 64, 1.5), at(0.6)),
        D::new("normal, hot", normal(3, 64, 1.5), at(3.0)),
        D::new("nearly greedy", vec![2.0, 1.99999, 2.0, 1.0, 1.999_985], at(0.0)),
        D::new("tied", levels.clone(), plain.clone()),
        D::new("tied at the cut of top-k", levels.clone(), top_k(30)),
        D::new("tied at the cut of top-p", vec![1.0; 50], top_p(0.51)),
        D::new("top-k", normal(4, 300, 1.5), top_k(10)),
        D::new("top-p", normal(5, 300, 1.5), top_p(0.9)),
        D::new("min-p", normal(6, 300, 1.5), SamplingParams { min_p: 0.05, ..plain.clone() }),
        D::new("joint top-k and top-p", normal(7, 500, 2.0), SamplingParams { top_k: 20, ..top_p(0.55) }),
        D::new(
            "top-k, then top-p",
            normal(8, 500, 2.0),
            SamplingParams { top_k: 20, filter_order: first, ..top_p(0.8) },
        ),
        D { mask: Some(third(300, &mut rng)), ..D::new("masked", normal(9, 300, 1.5), plain.clone()) },
        D { mask: Some(third(200, &mut rng)), ..D::new("masked, with holes", holes, top_p(0.95)) },
        D::new("infinite", vec![f32::INFINITY, 3.0, f32::INFINITY, f32::INFINITY, -1.0], plain.clone()),
        D::new("long-tailed", zipf(10, 1500, 1.1), plain.clone()),
        D::new("long-tailed, truncated", zipf(11, 2500, 1.0), top_p(0.95)),
        D { force_topk: 100, ..D::new("columns", normal(12, 1000, 1.5), top_p(0.9)) },
        D { dtype: DType::F16, ..D::new("f16", in_half(|x| half::f16::from_f32(x).to_f32()), plain.clone()) },
        D { dtype: DType::BF16, ..D::new("bf16", in_half(|x| half::bf16::from_f32(x).to_f32()), plain.clone()) },
    ]
}
