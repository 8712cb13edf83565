//! NaN, infinities, rows with nothing to draw.

use super::common::{Case, oracle::*};
use super::{Fault, fault, greedy, near, seeded};
use samedraw::SamplingParams;
use samedraw::pipeline::VerifyMode;

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

pub const FAULTS: &[Fault] = &[
    fault("an all-NaN row reads past its end and spoils the batch", "flashinfer#2402", |device| {
        let rows: [&[f32]; 3] = [&[5., 0., 0., 0., 0., 0., 0., 0.], &[NAN; 8], &[0., 0., 0., 0., 0., 0., 0., 5.]];
        let params = [1, 2, 3].map(|seed| SamplingParams { top_k: 2, top_p: 0.9, ..seeded(seed) });
        let got = Case { positions: Some(vec![0; 3]), ..Case::f32(&rows, &params) }.run(device, "three rows");
        // The spike alone weighs 0.955 > 0.9.
        assert_eq!((got.tokens, got.status), (vec![0, -1, 7], vec![0, NAN_LOGITS | EMPTY_ROW, 0]));
        assert_eq!((got.kept_counts, got.logprobs), (vec![1, 0, 1], vec![0.0, -INF, 0.0]));
    }),
    fault("a lane past the vocabulary wins an all-NaN verification row", "vllm#53029", |device| {
        let (bad, healthy): (&[f32], &[f32]) = (&[NAN; 5], &[0., 0., 9., 0., 0.]);
        let uniform = [0.2f32.ln(); 5];
        for mode in [VerifyMode::Rejection, VerifyMode::OneHot, VerifyMode::Chain] {
            let draft: &[&[f32]] = if mode == VerifyMode::Rejection { &[&uniform] } else { &[] };
            let run = |rows: &[&[f32]]| {
                let mut case = Case::f32(rows, &[greedy()]).verifying(mode, &vec![3; rows.len() - 1], draft);
                let verify = case.verify.as_mut().expect("verification");
                if rows.len() == 4 {
                    (verify.first_rows, verify.row_to_request) = (vec![0, 2, 4], vec![0, 0, 1, 1]);
                    verify.rows = if draft.is_empty() { vec![] } else { vec![0; 4] };
                    case.positions = Some(vec![0; 2]);
                }
                case.run(device, "verification")
            };
            let alone = run(&[healthy, healthy]);
            let both = run(&[bad, healthy, healthy, healthy]);
            assert_eq!(
                (&both.tokens[..2], &both.accepted[..]),
                (&[-1, -1][..], &[0, alone.accepted[0]][..]),
                "{mode:?}"
            );
            assert_eq!(both.status[0], NAN_LOGITS | EMPTY_ROW);
            assert_eq!((&both.tokens[2..], &both.logprobs[2..]), (&alone.tokens[..], &alone.logprobs[..]));
        }
    }),
    fault("a sentinel temperature turns -inf into +inf", "vllm#22180", |device| {
        let params = [SamplingParams { temperature: 0.0, ..seeded(1) }, seeded(2)];
        let rows: [&[f32]; 2] = [&[1., -INF, 3., -INF], &[0.; 4]];
        let got = Case::f32(&rows, &params).run(device, "mixed");
        assert_eq!((got.tokens[0], got.logprobs[0], got.status), (2, 0.0, vec![0, 0]));
        assert!((0..4).contains(&got.tokens[1]));
        near(got.logprobs[1], -1.3863, 1e-4);
        let error = SamplingParams { temperature: -1.0, ..seeded(1) }.check().expect_err("refused");
        assert_eq!(error.to_string(), "temperature = -1.0 is refused: allowed is 0 to 1e30");
    }),
    fault("a row of -inf aborts the process", "llama.cpp#26651", |device| {
        let rows: [&[f32]; 2] = [&[-INF; 4], &[0., 9., 0., 0.]];
        for params in [seeded(3), greedy()] {
            let got = Case::f32(&rows, &[params.clone(), greedy()]).run(device, "empty row");
            assert_eq!((got.tokens, got.status), (vec![-1, 1], vec![EMPTY_ROW, 0]));
            assert_eq!((got.kept_counts[0], got.ranks[0], got.top_counts[0]), (0, 0, 0));
        }
    }),
    fault("+inf logits become NaN", "flashinfer#1575", |device| {
        let params = SamplingParams { top_p: 0.3, ..seeded(3) };
        let got = Case::f32(&[&[0.0, INF, 2.0, INF]], &[params]).run(device, "+inf");
        // Both weigh one half; 0.3 is reached by the first.
        assert_eq!((got.tokens, got.status), (vec![1], vec![INF_LOGITS]));
        let all = Case::f32(&[&[0.0, INF, 2.0, INF]], &[seeded(3)]).run(device, "+inf");
        assert_eq!(all.kept_ids, [1, 3, -1, -1]);
        near(all.logprobs[0], -std::f32::consts::LN_2, 1e-6);
    }),
];
