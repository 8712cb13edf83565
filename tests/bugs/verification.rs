//! Drafts: accepting, recovering, whose distribution is whose.

use super::common::{Case, Drafted, Rng, oracle::NAN_DRAFT};
use super::{Fault, LAST, fault, ln, near, seeded};
use samedraw::pipeline::{DType, HostResult, VerifyMode};
use samedraw::{Device, SamplingParams};
use std::sync::Arc;

/// `n` requests of one verified row and one last row, all with target `p` and draft row `q`; the draft of request i is
/// `draft(i)`, its seed i.
fn requests(p: &[f32], q: &[f32], n: usize, draft: impl Fn(usize) -> i64) -> Case {
    let case = Case::repeated(p, 2 * n, &SamplingParams::default(), |row| row as u64 / 2);
    Case {
        positions: Some(vec![0; n]),
        verify: Some(Drafted {
            mode: Some(VerifyMode::Rejection),
            first_rows: (0..=n as i32).map(|r| 2 * r).collect(),
            row_to_request: (0..2 * n as i32).map(|row| row / 2).collect(),
            position_stride: 10_000_019,
            ids: (0..2 * n).map(|row| if row % 2 == 0 { draft(row / 2) } else { -1 }).collect(),
            logprobs: q.to_vec(),
            columns: Vec::new(),
            width: q.len(),
            rows: vec![0; 2 * n],
        }),
        ..case
    }
}

/// Share of first-row tokens equal to `id`.
fn share(got: &HostResult, id: i64) -> f32 {
    let firsts = got.tokens.iter().step_by(2);
    firsts.clone().filter(|&&token| token == id).count() as f32 / firsts.count() as f32
}

fn one(device: &Arc<dyn Device>, p: &[f32], q: &[f32], draft: i64, bits: u64) -> (i64, i32, i32) {
    let case = Case { bits: Some(vec![bits; 6]), ..requests(p, q, 1, |_| draft) };
    let got = case.run(device, "one request");
    (got.tokens[0], got.accepted[0], got.status[0])
}

pub const FAULTS: &[Fault] = &[
    fault("a draft the target forbids is accepted when the coin is 0", "sglang#35771", |device| {
        assert_eq!(one(device, &ln(&[0., 1.]), &ln(&[1., 0.]), 0, 0), (1, 0, 0));
        // q = 0 at a draft that the target allows: 0 < p accepts; 0 at both rejects.
        assert_eq!(one(device, &ln(&[0.2, 0.8]), &ln(&[0., 1.]), 0, 0), (0, 1, 0));
        assert_eq!(one(device, &ln(&[0.2, 0.8]), &ln(&[0., 1.]), 0, LAST), (0, 1, 0));
        assert_eq!(one(device, &ln(&[0., 1.]), &ln(&[0., 1.]), 0, 0), (1, 0, 0));
    }),
    fault("every draft is accepted", "vllm-ascend#13766", |device| {
        let (p, q) = ([0.5, 0.2, 0.3], [0.2, 0.6, 0.2]);
        let mut rng = Rng::new(56);
        let drafts: Vec<i64> = (0..131_072)
            .map(|_| match rng.unit() {
                u if u < 0.2 => 0,
                u if u < 0.8 => 1,
                _ => 2,
            })
            .collect();
        let got = requests(&ln(&p), &ln(&q), drafts.len(), |i| drafts[i]).run(device, "many requests");
        let accepted = got.accepted.iter().sum::<i32>() as f32 / drafts.len() as f32;
        near(accepted, 0.6, 0.005);
        (0..3).for_each(|id| near(share(&got, id), p[id as usize], 0.005));
    }),
    fault("recovery after a NaN draft row emits the rejected token", "vllm#41834", |device| {
        let p = ln(&[0., 0.03, 0.97, 0.]);
        for (q, status) in [([f32::NAN; 4], NAN_DRAFT), ([f32::NEG_INFINITY; 4], 0)] {
            let got = requests(&p, &q, 10_000, |_| 0).run(device, "no draft distribution");
            assert!(got.accepted.iter().all(|&n| n == 0) && got.status.iter().step_by(2).all(|&s| s == status));
            near(share(&got, 1), 0.03, 0.006);
            near(share(&got, 2), 0.97, 0.006);
        }
    }),
    fault("drafts are drawn from one rounding of a distribution and judged by another", "DeepSpec#31", |device| {
        let mut rng = Rng::new(59);
        let logits: Vec<f32> = (0..1000).map(|_| 2.0 * rng.normal()).collect();
        let n = 2000;
        // The draft model draws and hands on its processed logprobs.
        let draft = Case { draft_step: Some(1), dense: true, ..Case::repeated(&logits, n, &seeded(0), |i| i as u64) };
        let rounded = Case::half(DType::BF16, &[&logits], &[]);
        let draft = Case { logits: rounded.logits.clone(), dtype: DType::BF16, ..draft };
        let drafted = draft.run(device, "the draft model");
        let q = &drafted.dense[..1000];
        let judged = |target: Case| {
            let case = requests(&logits, q, n, |i| drafted.tokens[i]);
            let case = Case { logits: target.logits, dtype: target.dtype, ..case };
            case.run(device, "the target").accepted.iter().sum::<i32>()
        };
        // A target that is the draft model accepts all of its drafts.
        assert_eq!(judged(rounded), n as i32);
        // Control: against the unrounded logits some are rejected.
        assert!(judged(Case::f32(&[&logits], &[])) < n as i32);
    }),
    fault("the map from draft to target ids is skipped where widths agree", "rtp-llm#1311", |device| {
        let p = ln(&[0.1, 0.2, 0.3, 0.4]);
        let q = ln(&[0.7, 0.1, 0.1, 0.1]);
        let decide = |u: f64, columns: &[i32]| {
            let bits = (u * (1u64 << 53) as f64) as u64;
            let mut case = Case { bits: Some(vec![bits; 6]), ..requests(&p, &q, 1, |_| 2) };
            case.verify.as_mut().expect("verification").columns = columns.to_vec();
            case.run(device, "moved").accepted[0]
        };
        // Draft column 0 is target token 2: accepted with 0.3 / 0.7 = 0.4286.
        assert_eq!((decide(0.4285, &[2, 0, 3, 1]), decide(0.4287, &[2, 0, 3, 1])), (1, 0));
        // Unmapped, token 2 has q = 0.1 < p: always accepted.
        assert_eq!(decide(0.9999, &[0, 1, 2, 3]), 1);
        // Entries outside the vocabulary belong to no token.
        assert_eq!(decide(0.4287, &[2, -1, 4, i32::MAX]), 0);
    }),
    fault("recovered and last tokens are always the argmax", "mistral.rs#2424", |device| {
        let row = [1.0, 0.9, 0.8];
        for (mode, draft) in [(VerifyMode::Rejection, -1), (VerifyMode::OneHot, -1), (VerifyMode::Chain, -1)] {
            let mut case = requests(&row, &[0.0; 3], 300, |_| draft);
            let verify = case.verify.as_mut().expect("verification");
            verify.mode = Some(mode);
            let got = case.run(device, "recovered");
            assert!((0..3).all(|id| share(&got, id) > 0.2), "{mode:?}");
        }
        // All accepted: the last rows draw.
        let mut case = requests(&row, &[0.0; 3], 300, |_| 0);
        case.verify.as_mut().expect("verification").mode = Some(VerifyMode::OneHot);
        let got = Case { bits: None, ..case }.run(device, "last rows");
        let lasts: Vec<i64> = got.tokens.iter().skip(1).step_by(2).copied().filter(|&token| token >= 0).collect();
        assert!((0..3).all(|id| lasts.iter().filter(|&&token| token == id).count() * 5 > lasts.len()));
    }),
];
