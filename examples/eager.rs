//! The plainest caller: a Rust program that generates a few tokens, one step at a time, from logits it holds itself.
//!
//! `cargo run --example eager`
//!
//! A draw depends on the logits, the seed, the position and the parameters, and on nothing else. So the loop below keeps
//! no generator state: to continue a sequence, or to repeat it, the position is enough.

use samedraw::embedded::{CpuSampler, Drawn, Rows};
use samedraw::{Limits, Result, SamplingParams};

const WORDS: [&str; 8] = ["the", "cat", "dog", "sat", "ran", "on", "mat", "."];

/// A model of a sort: it likes the words that follow the last one in the list, and never repeats it.
fn logits_after(last: usize) -> [f32; WORDS.len()] {
    std::array::from_fn(|next| match (next + WORDS.len() - last) % WORDS.len() {
        0 => f32::NEG_INFINITY,
        distance => 2.5 - 0.7 * distance as f32,
    })
}

/// Generates `length` tokens after `prompt`; returns them with the logprob each was drawn with.
fn generate(sampler: &mut CpuSampler, prompt: &[usize], length: usize) -> Result<(Vec<usize>, Vec<f32>)> {
    let (mut sequence, mut logprobs) = (prompt.to_vec(), Vec::new());
    for _ in 0..length {
        let logits = logits_after(sequence.last().copied().unwrap_or(0));
        // One row, drawn with the parameters of slot 0. Its position is the number of tokens so far: that is what makes
        // every step's random number a new one, and the same one again when the step is repeated.
        let rows = Rows {
            logits: &logits,
            vocab: WORDS.len(),
            stride: WORDS.len(),
            slots: &[0],
            positions: &[sequence.len() as i64],
            mask: &[],
            force_topk: 0,
        };
        // Results go into slices of ours; what is left out (ranks, kept counts, status) is not computed.
        let (mut token, mut logprob) = ([0], [0.0]);
        sampler.sample(&rows, Drawn { tokens: &mut token, logprobs: &mut logprob, ..Drawn::default() })?;
        sequence.push(token[0] as usize);
        logprobs.push(logprob[0]);
    }
    Ok((sequence.split_off(prompt.len()), logprobs))
}

fn main() -> Result<()> {
    // The limits say what the largest step will be, so that no step has to allocate: here one row over eight words.
    let mut sampler = CpuSampler::new(Limits::new(1, WORDS.len()), 1)?;
    let warm = SamplingParams { temperature: 0.8, top_p: 0.9, seq_seed: Some(42), ..SamplingParams::default() };
    sampler.set_params(0, &warm)?;

    let prompt = [0, 1];
    let (tokens, logprobs) = generate(&mut sampler, &prompt, 10)?;
    let text: Vec<&str> = prompt.iter().chain(&tokens).map(|&token| WORDS[token]).collect();
    println!("seed 42:  {}", text.join(" "));
    println!("logprob of the sequence: {:.4}", logprobs.iter().sum::<f32>());

    // The second half alone, from the first half as its prompt: the same tokens.
    let first_half: Vec<usize> = prompt.iter().chain(&tokens[..5]).copied().collect();
    let (again, _) = generate(&mut sampler, &first_half, 5)?;
    assert_eq!(again, tokens[5..]);
    println!("resumed after 5 tokens: the same 5 follow");

    // top_k = 1 is exact argmax; the seed no longer matters.
    sampler.set_params(0, &SamplingParams::greedy())?;
    let (greedy, _) = generate(&mut sampler, &prompt, 6)?;
    assert_eq!(greedy, [2, 3, 4, 5, 6, 7]);
    println!("greedy:   {}", greedy.iter().map(|&token| WORDS[token]).collect::<Vec<_>>().join(" "));
    Ok(())
}
