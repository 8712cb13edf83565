//! Drafts to verify: requests of one fresh draw after a few drafts, target rows, and the drafts' distributions.

use super::inputs::POOL;
use super::rows::{Character, values};
use clap::ValueEnum;
use std::fmt;

/// Drafts of a request; it has one row more.
pub const DRAFTS: usize = 5;

/// What becomes of the drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fate {
    /// Every draft is rejected, so that every first row draws from what is left
    Rejected,
    /// Four drafts in five are accepted
    Accepted,
}

impl Fate {
    pub const ALL: [Fate; 2] = [Fate::Rejected, Fate::Accepted];
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fate::Rejected => "rejected",
            Fate::Accepted => "accepted",
        })
    }
}

/// [`POOL`] target rows, each with a draft and its distribution.
pub struct Pool {
    pub targets: Vec<f32>,
    pub ids: Vec<i64>,
    pub logprobs: Vec<f32>,
}

impl Pool {
    /// Normal rows. Rejected: the draft is the least likely token, half of its distribution's mass. Accepted: the target
    /// gives the draft a probability of 0.8, the distribution it was drawn from gives it 0.98.
    pub fn new(fate: Fate, vocab: usize) -> Pool {
        let mut pool = Pool { targets: values(Character::Normal, POOL, vocab), ids: Vec::new(), logprobs: Vec::new() };
        for (number, row) in pool.targets.chunks_mut(vocab).enumerate() {
            let least = row.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(id, _)| id);
            let (id, of_draft) = match fate {
                Fate::Rejected => (least, 0.5f64),
                Fate::Accepted => (number * 7919 % vocab, 0.98),
            };
            let others = row.iter().enumerate().filter(|(other, _)| *other != id);
            let sum: f64 = others.map(|(_, &x)| f64::from(x).exp()).sum();
            if fate == Fate::Accepted {
                row[id] = (sum.ln() + 4f64.ln()) as f32;
            }
            let shift = (1.0 - of_draft).ln() - sum.ln();
            pool.logprobs.extend(row.iter().map(|&x| (f64::from(x) + shift) as f32));
            let last = pool.logprobs.len() - vocab;
            pool.logprobs[last + id] = of_draft.ln() as f32;
            pool.ids.push(id as i64);
        }
        pool
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_have_the_probabilities_stated() {
        let vocab = 900;
        for (fate, by_target, by_draft) in [(Fate::Rejected, 0.0, 0.5), (Fate::Accepted, 0.8, 0.98)] {
            let pool = Pool::new(fate, vocab);
            for (number, row) in pool.targets.chunks(vocab).enumerate() {
                let (id, total) = (pool.ids[number] as usize, row.iter().map(|&x| f64::from(x).exp()).sum::<f64>());
                assert!((f64::from(row[id]).exp() / total - by_target).abs() < 1e-4, "{fate}");
                let draft = &pool.logprobs[number * vocab..][..vocab];
                assert!((f64::from(draft[id]).exp() - by_draft).abs() < 1e-4, "{fate}");
                assert!((draft.iter().map(|&q| f64::from(q).exp()).sum::<f64>() - 1.0).abs() < 1e-4, "{fate}");
            }
        }
    }
}
