//! What logprobs say, of drawn, forced and prompt tokens.

use super::common::Case;
use super::{Fault, LAST, fault, greedy, ln, near, seeded};
use samedraw::device::{DeviceBuffer, Stream};
use samedraw::pipeline::{Index, Limits, Logits, PromptChunk, PromptLogprobs, PromptPlan, VerifyMode};
use samedraw::{Device, ParamTable, Sampler, SamplingParams};
use std::sync::Arc;

const INF: f32 = f32::INFINITY;

/// Prompt logprobs of one chunk of `prompt` from the logits of all its positions; `out` is prefilled with 7.
fn score(device: &Arc<dyn Device>, prompt: &[i64], logits: &[f32], vocab: usize, fed: (usize, usize)) -> Vec<f32> {
    let (seqlen_q, seqlen_k) = fed;
    let chunk = PromptChunk { prompt, seqlen_q, seqlen_k, slot: 0, off: None };
    let plan = PromptPlan::new(&[chunk], vocab).expect("a plan");
    let stream = Stream::new(device).expect("a stream");
    let table = Arc::new(ParamTable::new(device, 1).expect("a table"));
    // Two rows at a time, so that the scoring itself is chunked.
    let mut sampler = Sampler::new(device, Limits::new(2, vocab), &table).expect("a sampler");
    let rows = plan.rows.len();
    let raw = stream.raw();
    let all = DeviceBuffer::from_slice(device, &stream, logits).expect("room");
    let targets = DeviceBuffer::from_slice(device, &stream, &plan.targets).expect("room");
    let slots = DeviceBuffer::from_slice(device, &stream, &plan.row_to_slot).expect("room");
    let out = DeviceBuffer::from_slice(device, &stream, &vec![7.0f32; rows]).expect("room");
    let mut source = |range: std::ops::Range<usize>| {
        let first = seqlen_k - seqlen_q + plan.rows[range.start] as usize;
        let ptr = all.ptr().offset(4 * vocab * first);
        Ok(Logits { ptr, rows: range.len(), vocab, stride: vocab, ..Logits::default() })
    };
    // SAFETY: every buffer outlives the read below, which waits for the stream.
    unsafe {
        table.set(raw, 0, &seeded(0)).expect("a slot");
        let (targets, slots) = (Index::i64(targets.ptr()), Index::i32(slots.ptr()));
        sampler.prompt_logprobs(raw, rows, targets, slots, &mut source, out.ptr()).expect("scored");
    }
    let mut values = vec![0.0f32; rows];
    out.read(&stream, &mut values).expect("values");
    let PromptLogprobs::Values(values) = plan.split(&values).expect("one request").remove(0) else { panic!("values") };
    values
}

const PROMPT: [i64; 10] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3];

/// Row t puts 10 on the token after position t; the last row on none.
fn one_hot_rows() -> Vec<f32> {
    let mut logits = vec![0.0; 100];
    (0..9).for_each(|t| logits[10 * t + PROMPT[t + 1] as usize] = 10.0);
    logits
}

pub const FAULTS: &[Fault] = &[
    fault("logprobs beside top_k = 1 hold -inf entries", "vllm#10234", |device| {
        let case = Case { top_logprobs: 3, ..Case::f32(&[&[5., 4., 3., 2.]], &[greedy()]) };
        let got = case.run(device, "top_k = 1");
        assert_eq!((got.top_counts, got.top_ids), (vec![1], vec![0, -1, -1]));
        assert_eq!(got.top_logprobs, [0.0, -INF, -INF]);
        assert!(got.dense.iter().all(|x| !x.is_nan()));
    }),
    fault("top_logprobs above the vocabulary crashes", "sglang#40099", |device| {
        let case = Case::f32(&[&[0.; 8]], &[seeded(1)]);
        let got = Case { top_logprobs: 20, ..case.clone() }.run(device, "n = 20");
        assert_eq!((got.top_counts[0], &got.top_ids[..8]), (8, &[0, 1, 2, 3, 4, 5, 6, 7][..]));
        assert!(got.top_ids[8..].iter().all(|&id| id == -1));
        let none = Case { top_logprobs: 0, ..case }.run(device, "n = 0");
        assert!(none.top_ids.is_empty());
        near(none.logprobs[0], -2.0794, 1e-4);
    }),
    fault("logprobs of a filtered row are 0", "text-generation-inference#1629", |device| {
        let row = ln(&[0.5, 0.3, 0.2]);
        for (temperature, want) in [(1.0, [-0.4700, -0.9808]), (0.5, [-0.3075, -1.3291])] {
            let params = SamplingParams { temperature, top_p: 0.7, ..seeded(1) };
            let got = Case::f32(&[&row], &[params]).run(device, "top_p = 0.7");
            assert_eq!((got.kept_counts[0], got.dense[2]), (2, -INF));
            (0..2).for_each(|v| near(got.dense[v], want[v], 1e-4));
        }
    }),
    fault("accepted drafts report logprob 0", "llama.cpp#27972", |device| {
        let row = ln(&[0.5, 0.3, 0.1, 0.1]);
        let case = Case::f32(&[&row, &row, &row], &[seeded(1)]).verifying(VerifyMode::OneHot, &[0, 1], &[]);
        let got = Case { bits: Some(vec![0; 9]), ..case.clone() }.run(device, "accepted");
        assert_eq!((got.tokens, got.accepted), (vec![0, 1, 0], vec![2]));
        ln(&[0.5, 0.3, 0.5]).iter().zip(&got.logprobs).for_each(|(&want, &got)| near(got, want, 1e-4));
        let got = Case { bits: Some(vec![LAST; 9]), ..case }.run(device, "rejected");
        assert_eq!(
            (&got.tokens[1..], &got.logprobs[1..], &got.ranks[1..]),
            (&[-1; 2][..], &[-INF; 2][..], &[0; 2][..])
        );
        // The draft was rejected, so the token comes from the others; the largest bits give the last.
        assert_eq!(got.tokens[0], 3);
        near(got.logprobs[0], 0.1f32.ln(), 1e-4);
    }),
    fault("the top list holds probabilities, not their logs", "text-generation-inference#1023", |device| {
        let got = Case::f32(&[&[0.; 4]], &[seeded(1)]).run(device, "flat");
        got.top_logprobs.iter().for_each(|&logprob| near(logprob, -1.3863, 1e-4));
        near(got.dense.iter().map(|x| x.exp()).sum::<f32>().ln(), 0.0, 1e-5);
    }),
    fault("prompt logprobs are wrong when the prompt comes in chunks", "tokenspeed#337", |device| {
        for cuts in [vec![10], vec![4, 8, 10], (1..=10).collect()] {
            let (mut start, mut values) = (0, Vec::new());
            for end in cuts {
                values.extend(score(device, &PROMPT, &one_hot_rows(), 10, (end - start, end)));
                start = end;
            }
            assert_eq!(values.len(), 9);
            values.iter().for_each(|&value| near(value, -0.000_408_6, 2e-6));
        }
    }),
    fault("positions taken from a cache keep stale values", "vllm#42019", |device| {
        // Six positions came from a cache: they have no entry at all, and the rest hold no 7.
        let values = score(device, &PROMPT, &one_hot_rows(), 10, (4, 10));
        assert_eq!(values.len(), 3);
        values.iter().for_each(|&value| near(value, -0.000_408_6, 2e-6));
        // A row that cannot be scored is written too.
        let case = Case { golden: Some(vec![99]), positions: None, ..Case::f32(&[&[0.; 4]], &[seeded(1)]) };
        let got = case.run(device, "out of range");
        assert_eq!((got.tokens[0], got.logprobs[0], got.status[0]), (-1, -INF, 16));
    }),
    fault("logprobs of the whole vocabulary blow up", "vllm#46746", |device| {
        let row: Vec<f32> = (0..151_936).map(|v| (v % 977) as f32 * 0.01).collect();
        for n in [20usize, 1024, 16_384, 16_385, 151_936] {
            let case = Case { top_logprobs: n, dense: false, kept_ids: 0, ..Case::f32(&[&row], &[seeded(1)]) };
            let got = case.run(device, "long lists");
            assert_eq!(got.top_counts, [n as i32]);
            let before = |a: i32, b: i32| (b % 977, a) < (a % 977, b);
            assert!(got.top_ids.windows(2).all(|w| before(w[0], w[1])), "n = {n}");
        }
    }),
    fault("a forced token reports another token's logprob and rank", "vllm#46701", |device| {
        let row: &[f32] = &[3., 2., 1., 0.];
        let free = Case::f32(&[row, row], &[seeded(1)]);
        let drawn = free.run(device, "free").tokens;
        let forced = |golden: [i64; 2], top_k| {
            let params = vec![SamplingParams { top_k, ..seeded(1) }];
            Case { golden: Some(golden.to_vec()), params, ..free.clone() }.run(device, "forced")
        };
        let got = forced([3, -1], -1);
        near(got.logprobs[0], -3.4402, 1e-4);
        // The other row draws what it draws without forcing.
        assert_eq!((got.tokens, got.ranks[0]), (vec![3, drawn[1]], 4));
        let got = forced([3, -1], 2);
        assert_eq!((got.tokens[0], got.logprobs[0], got.ranks[0]), (3, -INF, 0));
        near(got.raw_logprobs[0], -3.4402, 1e-4);
        assert_eq!(forced([-1, -1], -1).tokens, drawn);
        let got = forced([4, -1], -1);
        assert_eq!((got.tokens, got.status), (vec![-1, drawn[1]], vec![16, 0]));
        let error = samedraw::batch::golden_rows(&[4], 1, 1, 4).expect_err("refused").to_string();
        assert_eq!(error, "golden tokens: id = 4 is refused: -1 (none) or 0 to vocab - 1 = 3");
    }),
];
