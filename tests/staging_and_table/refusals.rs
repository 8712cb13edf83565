//! Every way a step is refused: one change to a good step, and the message.

use super::common::{Case, Drafted, devices};
use super::seeded;
use samedraw::device::{DevPtr, DeviceBuffer};
use samedraw::pipeline::{
    Dense, Drafts, HostRun, Index, KeptIds, Mask, Step, TopLogprobs, Variant, Verify, VerifyMode,
};
use samedraw::{Limits, Sampler};
use std::sync::Arc;

type Change = fn(&mut Step);

const NULL: DevPtr = DevPtr::NULL;

/// A step of four rows over 40 tokens that selects 8 of them, with a mask, golden tokens and every output.
fn good() -> Case {
    let row: &[f32] = &[0.5; 40];
    Case {
        force_topk: 8,
        mask: Some(vec![-1; 8]),
        golden: Some(vec![-1; 4]),
        gather: Some(vec![0, 1, 2, 3]),
        columns: true,
        ..Case::f32(&[row; 4], &[seeded(1)])
    }
}

/// One request of four rows whose drafts come with columns of their own.
fn verifying() -> Case {
    let draft: &[f32] = &[-1.0; 5];
    let mut case = Case { columns: false, ..good() }.verifying(VerifyMode::Rejection, &[1, 2, 3], &[draft; 3]);
    case.verify.as_mut().expect("verification").columns = (0..15).map(|i| i % 5).collect();
    case
}

fn mask(step: &mut Step) -> &mut Mask {
    step.mask.as_mut().expect("a mask")
}

fn top(step: &mut Step) -> &mut TopLogprobs {
    step.outputs.top.as_mut().expect("top lists")
}

fn dense(step: &mut Step) -> &mut Dense {
    step.outputs.dense.as_mut().expect("dense logprobs")
}

fn kept(step: &mut Step) -> &mut KeptIds {
    step.outputs.kept_ids.as_mut().expect("kept ids")
}

fn verify(step: &mut Step) -> &mut Verify {
    step.verify.as_mut().expect("verification")
}

fn drafted(case: &mut Case) -> &mut Drafted {
    case.verify.as_mut().expect("verification")
}

fn drafts(step: &mut Step) -> &mut Drafts {
    verify(step).drafts.as_mut().expect("drafts")
}

const PLAIN: &[(Change, &str)] = &[
    (|s| s.rows = 0, "step: rows = 0 is refused: at least one row = 1"),
    (|s| s.rows = 5, "step: rows = 5 is refused: at most the sampler's limit = 4"),
    (|s| s.logits.vocab = 0, "step: vocab = 0 is refused: at least one token = 1"),
    (|s| s.logits.vocab = 41, "step: vocab = 41 is refused: at most the sampler's limit = 40"),
    (|s| s.logits.stride = 39, "step: logits stride = 39 is refused: at least vocab = 40"),
    (|s| s.logits.ptr = NULL, "step: logits is a null pointer"),
    (|s| s.logits.ptr = DevPtr(258), "step: logits pointer = 258 is refused: aligned to its elements"),
    (|s| (s.gather, s.logits.rows) = (None, 3), "step: logits rows = 3 is refused: at least rows = 4"),
    (
        |s| s.logits.rows = usize::MAX / 8,
        "step: logits rows = 2305843009213693951 is refused: rows * stride within the address space",
    ),
    (|s| s.force_topk = 9, "step: force_topk = 9 is refused: at most the sampler's limit = 8"),
    (
        |s| (s.force_topk, s.outputs.dense) = (0, None),
        "step: force_topk = 0 is refused: at least one column, to hand out the columns = 1",
    ),
    (|s| s.adjust = DevPtr(256), "step: adjusting logits by a list (penalties, bias) is not supported"),
    (|s| s.row_to_slot = None, "step: table slots = 1 is refused: at least rows, as there is no row_to_slot = 4"),
    (|s| s.gather = Some(Index::i32(NULL)), "step: gather is a null pointer"),
    (|s| s.row_to_slot = Some(Index::i64(NULL)), "step: row_to_slot is a null pointer"),
    (|s| s.golden = Some(Index::i64(NULL)), "step: golden is a null pointer"),
    (|s| mask(s).ptr = NULL, "step: mask is a null pointer"),
    (|s| mask(s).stride = 1, "step: mask stride = 1 is refused: at least ceil(vocab / 32) = 2"),
    (|s| mask(s).index = Some(Index::i32(NULL)), "step: mask index is a null pointer"),
    (|s| mask(s).rows = 3, "step: mask rows = 3 is refused: at least rows = 4"),
    (
        |s| (s.positions, s.golden) = (NULL, None),
        "step: positions (absent only where golden tokens are scored or columns alone are selected) is a null pointer",
    ),
    (|s| s.outputs.tokens = Some(Index::i32(NULL)), "step: tokens is a null pointer"),
    (|s| top(s).width = 0, "step: top_logprobs width = 0 is refused: at least one entry = 1"),
    (|s| top(s).ids = NULL, "step: top_logprobs ids is a null pointer"),
    (|s| top(s).logprobs = NULL, "step: top_logprobs logprobs is a null pointer"),
    (|s| dense(s).logprobs = NULL, "step: dense logprobs is a null pointer"),
    (|s| dense(s).stride = 7, "step: dense stride = 7 is refused: at least N = 8"),
    (|s| kept(s).ids = NULL, "step: kept ids is a null pointer"),
    (|s| kept(s).width = 0, "step: kept width = 0 is refused: at least one entry = 1"),
    (|s| s.outputs.columns.as_mut().expect("columns").values = NULL, "step: column values is a null pointer"),
    (|s| s.outputs.columns.as_mut().expect("columns").ids = NULL, "step: column ids is a null pointer"),
];

const VERIFYING: &[(Change, &str)] = &[
    (|s| verify(s).requests = 0, "step: requests to verify = 0 is refused: 1 to rows = 4"),
    (|s| verify(s).requests = 5, "step: requests to verify = 5 is refused: 1 to rows = 4"),
    (|s| verify(s).first_rows = NULL, "step: first_rows is a null pointer"),
    (|s| verify(s).row_to_request = Index::i32(NULL), "step: row_to_request is a null pointer"),
    (|s| verify(s).draft_ids = Index::i32(NULL), "step: draft_ids is a null pointer"),
    (|s| verify(s).accepted = NULL, "step: accepted is a null pointer"),
    (|s| s.outputs.tokens = None, "step: tokens (verification writes them) is a null pointer"),
    (|s| verify(s).accept_width = 0, "step: accept_width = 0 is refused: at least the longest request"),
    (
        |s| s.positions = NULL,
        "step: positions (absent only where golden tokens are scored or columns alone are selected) is a null pointer",
    ),
    (|s| drafts(s).logprobs = NULL, "step: draft logprobs is a null pointer"),
    (|s| drafts(s).width = 0, "step: draft width = 0 is refused: 1 to vocab = 40"),
    (|s| drafts(s).width = 41, "step: draft width = 41 is refused: 1 to vocab = 40"),
    (|s| drafts(s).stride = 4, "step: draft stride = 4 is refused: at least the width = 5"),
    (|s| drafts(s).pool_rows = 0, "step: draft pool rows = 0 is refused: at least rows = 4"),
    (|s| drafts(s).rows = None, "step: draft pool rows = 3 is refused: at least rows = 4"),
    (|s| drafts(s).rows = Some(Index::i32(NULL)), "step: draft rows is a null pointer"),
    (|s| verify(s).drafts = None, "step: drafts (rejection needs the drafts' logprobs) is a null pointer"),
    (
        |s| verify(s).mode = VerifyMode::OneHot,
        "step: draft width = 5 is refused: no drafts' logprobs: OneHot does not use them",
    ),
    (
        |s| verify(s).mode = VerifyMode::Chain,
        "step: draft width = 5 is refused: no drafts' logprobs: Chain does not use them",
    ),
    (
        |s| (s.force_topk, s.outputs.dense) = (0, None),
        "step: columns to remap drafts to = 40 is refused: at most the sampler's limit = 8",
    ),
];

#[test]
fn a_step_that_does_not_hold_together_is_refused_before_anything_runs() {
    for device in devices() {
        for (case, changes) in [(good(), PLAIN), (verifying(), VERIFYING)] {
            let mut run = HostRun::new(&device, &case.host()).expect("a step");
            for (number, (change, message)) in changes.iter().enumerate() {
                let (sampler, step, stream) = run.parts();
                let mut changed = *step;
                change(&mut changed);
                let planned = sampler.plan(&changed).expect_err(message).to_string();
                // SAFETY: refused steps read nothing; `read` below shows that nothing was written.
                let stepped = unsafe { sampler.step(stream, &changed) }.expect_err(message).to_string();
                // SAFETY: as above.
                let captured = unsafe { sampler.capture(stream, &changed, Variant::Default) }.expect_err(message);
                assert_eq!([planned, stepped, captured.to_string()], [*message; 3], "change {number}");
            }
            let untouched = run.read().expect("outputs");
            assert!(untouched.tokens.iter().all(|&token| token == -7777), "a refused step wrote");
            run.run().expect("the good step runs after all refusals");
        }
    }
}

#[test]
fn what_the_limits_leave_out_is_refused() {
    for device in devices() {
        let case = verifying();
        let mut run = HostRun::new(&device, &case.host()).expect("a step");
        let (sampler, step, stream) = run.parts();
        let (step, limits, table) = (*step, *sampler.limits(), Arc::clone(sampler.table()));
        for (limits, message) in [
            (
                Limits { verify: false, ..limits },
                "step: requests to verify = 1 is refused: 0: the sampler's limits do not verify",
            ),
            (
                Limits { remap: false, ..limits },
                "step: draft columns = 5 is refused: none: the sampler's limits do not remap",
            ),
            (Limits { force_topk: 0, ..limits }, "step: force_topk = 8 is refused: at most the sampler's limit = 0"),
        ] {
            let mut small = Sampler::new(&device, limits, &table).expect("a sampler");
            // SAFETY: refused steps read and write nothing.
            let error = unsafe { small.step(stream, &step) }.expect_err(message).to_string();
            assert_eq!(error, message);
        }
    }
}

#[test]
fn a_variant_must_agree_with_the_step_on_verification() {
    for device in devices() {
        for (case, variant, message) in [
            (good(), Variant::Verify, "capture: steps that verify = 0 is refused: variant Verify verifies drafts"),
            (
                verifying(),
                Variant::NoFilter,
                "capture: steps that verify = 1 is refused: variant NoFilter does not verify",
            ),
        ] {
            let mut run = HostRun::new(&device, &case.host()).expect("a step");
            let (sampler, step, stream) = run.parts();
            let step = *step;
            // SAFETY: the step's pointers belong to `run`.
            let error = unsafe { sampler.capture(stream, &step, variant) }.expect_err(message).to_string();
            assert_eq!(error, message);
            run.run().expect("the stream is not left capturing");
        }
    }
}

#[test]
fn host_arrays_of_a_wrong_length_are_refused() {
    type Shorten = fn(&mut Case);
    let cases: &[(Shorten, &str)] = &[
        (|c| c.logits_rows = 5, "host step: logits bytes = 640 is refused: rows = 5 of 40 elements behind offset 0"),
        (|c| c.gather = Some(vec![0]), "host step: gather = 1 is refused: 4 elements"),
        (|c| c.row_to_slot = Some(vec![0; 5]), "host step: row_to_slot = 5 is refused: 4 elements"),
        (|c| c.positions = Some(vec![]), "host step: positions = 0 is refused: 1 elements"),
        (|c| c.position_offsets = Some(vec![0; 2]), "host step: position_offsets = 2 is refused: 1 elements"),
        (|c| c.golden = Some(vec![0; 3]), "host step: golden = 3 is refused: 4 elements"),
        (|c| c.bits = Some(vec![0; 4]), "host step: injected bits = 4 is refused: 12 elements"),
        (|c| c.mask_index = Some(vec![0]), "host step: mask index = 1 is refused: 4 elements"),
        (|c| drafted(c).ids = vec![1], "host step: draft_ids = 1 is refused: 4 elements"),
        (|c| drafted(c).row_to_request = vec![0; 5], "host step: row_to_request = 5 is refused: 4 elements"),
        (|c| drafted(c).rows = vec![0], "host step: draft rows = 1 is refused: 4 elements"),
        (|c| drafted(c).columns = vec![0; 14], "host step: draft columns = 14 is refused: 15 elements"),
        (|c| drafted(c).width = 4, "host step: draft logprobs = 15 is refused: rows of 4 columns"),
        (|c| drafted(c).first_rows = vec![0, 5], "host step: first_rows = 5 is refused: ascending from 0 to at most 4"),
        (|c| drafted(c).first_rows = vec![1, 4], "host step: first_rows = 4 is refused: ascending from 0 to at most 4"),
        (|c| c.mask_stride = 3, "host step: mask words = 8 is refused: rows of 3 words"),
    ];
    for device in devices() {
        for (change, message) in cases {
            let mut case = verifying();
            change(&mut case);
            assert_eq!(HostRun::new(&device, &case.host()).expect_err(message).to_string(), *message);
        }
    }
}

#[test]
fn buffers_are_not_read_past_their_end() {
    for device in devices() {
        let stream = samedraw::device::Stream::new(&device).expect("a stream");
        let buffer = DeviceBuffer::from_slice(&device, &stream, &[1i32, 2]).expect("room");
        let error = buffer.read(&stream, &mut [0i32; 3]).expect_err("too long").to_string();
        assert_eq!(error, "read: bytes = 12 is refused: the buffer holds 8");
    }
}
