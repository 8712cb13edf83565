//! What a step file asks for reaches the step: streams, positions, golden tokens, lists, overrides.
//!
//! The rows are flat, so that a draw shows the random number it was made with: of V equal masses the token is
//! floor(bits * V / 2^53).

use samedraw::batch::PositionRule;
use samedraw::device::CpuDevice;
use samedraw::params::SamplingParams;
use samedraw::pipeline::DType;
use samedraw::step_file::{
    DraftStep, Phase, ResultDocument, StepFile, StepRequest, StoredDrafts, StoredLogits, VerifyRule,
};
use std::sync::Arc;

const V: usize = 1 << 16;

/// The token a flat row draws afresh at `position` of the stream of `seed`: SplitMix64 by its published definition.
fn flat_token(seed: u64, position: i64) -> i64 {
    let n = (position as u64).wrapping_mul(3);
    let mut z = seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    (((u128::from(z >> 11) * V as u128) >> 53) as u64) as i64
}

fn request(seed: u64, seqlen_q: usize, seqlen_k: usize) -> StepRequest {
    StepRequest {
        id: format!("{seed}"),
        seqlen_q,
        seqlen_k,
        params: SamplingParams { seq_seed: Some(seed), ..SamplingParams::default() },
        draft_token_ids: Vec::new(),
        draft: None,
    }
}

/// A step of flat rows.
fn flat(phase: Phase, requests: Vec<StepRequest>) -> StepFile {
    let rows = match phase {
        Phase::Prefill => requests.len(),
        Phase::Decode => requests.iter().map(|request| request.seqlen_q).sum(),
    };
    StepFile {
        phase,
        force_topk: 0,
        draft_model: false,
        sum_smaller_probs: false,
        dense_logprobs: false,
        raw_logprobs: false,
        verify: VerifyRule::Rejection,
        positions: PositionRule::Strided,
        requests,
        logits: StoredLogits { dtype: DType::BF16, rows, vocab: V, bytes: vec![0; 2 * rows * V] },
        mask: None,
        drafts: None,
    }
}

/// Runs the step as it comes back from disk.
fn run(step: &StepFile, force_topk: Option<usize>) -> ResultDocument {
    let step = StepFile::parse(&step.to_bytes().expect("a step that holds together")).expect("what was written");
    step.run(&Arc::new(CpuDevice::open().expect("the CPU device")), force_topk).expect("a step that runs")
}

fn tokens(document: &ResultDocument) -> Vec<Vec<i64>> {
    document.requests.iter().map(|request| request.tokens.clone()).collect()
}

#[test]
fn a_prefill_draws_at_seqlen_k() {
    let step =
        flat(Phase::Prefill, vec![request(1, 41, 41), request(u64::MAX, 3, 100), request(0, 1, i64::MAX as usize)]);
    let expected = [flat_token(1, 41), flat_token(u64::MAX, 100), flat_token(0, i64::MAX)];
    assert_eq!(tokens(&run(&step, None)), expected.map(|token| vec![token]));
}

#[test]
fn a_draft_model_has_a_stream_of_its_own_and_each_request_its_own_place_in_it() {
    let places = [(1, 0), (2, 2), (5, 0), (1, 7), (3, i32::MAX)];
    let draft = |(step, last_valid_offset)| StepRequest {
        draft: Some(DraftStep { step, last_valid_offset }),
        ..request(u64::MAX - 5, 1, 60)
    };
    for phase in [Phase::Prefill, Phase::Decode] {
        let mut step = flat(phase, places.map(draft).to_vec());
        step.draft_model = true;
        let seed = (u64::MAX - 5).wrapping_add(1_000_000_007);
        let expected = places.map(|(i, offset)| vec![flat_token(seed, 60 + i64::from(offset) + i64::from(i))]);
        assert_eq!(tokens(&run(&step, None)), expected, "{phase:?}");
    }
}

#[test]
fn rows_of_a_decode_request_are_as_far_apart_as_the_rule_says() {
    for (rule, apart) in [(PositionRule::Strided, 10_000_019), (PositionRule::Sequential, 1)] {
        let expected: Vec<i64> = (0..4).map(|row| flat_token(9, 50 + row * apart)).collect();
        let mut decode = request(9, 4, 53);
        decode.draft_token_ids = expected[..3].to_vec();
        let mut step = flat(Phase::Decode, vec![decode]);
        (step.verify, step.positions) = (VerifyRule::Chain, rule);
        let got = run(&step, None);
        assert_eq!((tokens(&got), got.requests[0].accepted), (vec![expected.clone()], 3), "{rule:?}");

        step.requests[0].draft_token_ids[1] = (expected[1] + 1) % V as i64;
        let got = run(&step, None);
        let cut = vec![expected[0], expected[1], -1, -1];
        assert_eq!((tokens(&got), got.requests[0].accepted), (vec![cut], 1), "{rule:?}");
    }
}

/// A list longer than the rows is cut, a shorter one leaves the rest of the rows to themselves.
#[test]
fn golden_tokens_go_to_the_rows_in_order() {
    let mut long = request(1, 2, 10);
    (long.draft_token_ids, long.params.golden_token_ids) = (vec![7], vec![7, 8, 9, 10]);
    let mut short = request(2, 2, 10);
    (short.draft_token_ids, short.params.golden_token_ids) = (vec![7], vec![7]);
    let mut other = request(3, 2, 10);
    (other.draft_token_ids, other.params.golden_token_ids) = (vec![7], vec![6, 5]);
    let got = run(&flat(Phase::Decode, vec![long, short, other]), None);
    let fresh = flat_token(2, 9 + 10_000_019);
    assert_eq!(tokens(&got), [vec![7, 8], vec![7, fresh], vec![6, -1]]);
    assert_eq!(got.requests.iter().map(|request| request.accepted).collect::<Vec<_>>(), [1, 1, 0]);
}

/// A list longer than the vocabulary is a wish, not a size, and each request gets as much as it asked for.
#[test]
fn top_lists_are_as_long_as_asked_for_and_there_is() {
    let mut wants_all = request(1, 1, 1);
    (wants_all.params.top_logprobs, wants_all.params.top_k) = (i64::MAX as usize, 1000);
    let mut wants_two = request(1, 1, 1);
    wants_two.params.top_logprobs = 2;
    let got = run(&flat(Phase::Prefill, vec![wants_all, wants_two, request(1, 1, 1)]), None);
    let ids = |request: usize| -> Option<Vec<i64>> {
        Some(got.requests[request].top_logprobs.as_ref()?[0].iter().map(|entry| entry.0).collect())
    };
    assert_eq!(ids(0), Some((0..1000).collect()));
    assert_eq!(ids(1), Some(vec![0, 1]));
    assert_eq!(ids(2), None);
}

#[test]
fn force_topk_can_be_overridden_and_the_drafts_keep_their_columns() {
    let mut decode = request(4, 2, 10);
    decode.draft_token_ids = vec![2];
    let mut step = flat(Phase::Decode, vec![decode]);
    step.force_topk = 4;
    // The draft was sure of token 2, which is among the first 4 of a flat row, and of the first 8, but not of the first 2.
    let sure = vec![f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY];
    step.drafts = Some(StoredDrafts { width: 4, logprobs: sure, index: Some(vec![9, 8, 2, 1]) });
    for (force_topk, kept) in [(None, 4), (Some(8), 8), (Some(2), 2), (Some(0), V as i64), (Some(usize::MAX), V as i64)]
    {
        let got = run(&step, force_topk);
        assert_eq!(got.requests[0].kept, [kept; 2], "{force_topk:?}");
        assert!(got.requests[0].tokens[0] < kept, "{force_topk:?}");
        if force_topk == Some(2) {
            assert_eq!(got.requests[0].accepted, 0);
        }
    }
}

#[test]
fn one_long_request_among_many_short_ones_makes_no_square_array() {
    let mut requests: Vec<StepRequest> = (0..2000).map(|seed| request(seed, 1, 1)).collect();
    requests.push(StepRequest { draft_token_ids: vec![0; 1999], ..request(7, 2000, 2000) });
    let logits = StoredLogits { dtype: DType::F16, rows: 4000, vocab: 1, bytes: vec![0; 8000] };
    let step = StepFile { logits, ..flat(Phase::Decode, Vec::new()) };
    let step = StepFile { requests, ..step };
    let device = Arc::new(CpuDevice::with_threads(1));
    let result = step.bring(&device, None).expect("a step").run().expect("a result");
    assert_eq!(result.accepted[2000], 1999);
    assert!(result.accept_index.is_empty(), "{} entries nobody asked for", result.accept_index.len());
}
