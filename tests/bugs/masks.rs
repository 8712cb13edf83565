//! Grammar masks.

use super::common::{Case, oracle::EMPTY_ROW};
use super::{Fault, fault, greedy, seeded};
use samedraw::pipeline::{HostRun, VerifyMode};

pub const FAULTS: &[Fault] = &[
    fault("bits past the vocabulary let ids out of it through", "xgrammar#902", |device| {
        let tail = 0xFFFF_FF00u32 as i32;
        let got = Case { mask: Some(vec![1, tail]), ..Case::f32(&[&[0.; 40]], &[seeded(1)]) }.run(device, "tail bits");
        assert_eq!((got.tokens, got.logprobs, got.kept_counts), (vec![0], vec![0.0], vec![1]));
        for vocab in [32_003usize, 50_257, 128_257] {
            let row: Vec<f32> = (0..vocab).map(|v| (v % 13) as f32).collect();
            let words = vocab.div_ceil(32);
            let mut clean = vec![-1i32; words];
            clean[words - 1] = (1i32 << (vocab % 32)) - 1;
            let case = Case { kept_ids: 0, mask: Some(clean), ..Case::f32(&[&row], &[seeded(3)]) };
            let all = Case { mask: Some(vec![-1; words]), ..case.clone() };
            assert_eq!(case.run(device, "clean tail"), all.run(device, "dirty tail"), "V = {vocab}");
        }
    }),
    fault("ids above 2^32 wrap to small ones", "xgrammar#902", |device| {
        let wide = (1i64 << 32) + 1;
        let golden = Case { golden: Some(vec![wide]), ..Case::f32(&[&[0.; 40]], &[greedy()]) };
        assert_eq!(golden.run(device, "golden").status, [16]);
        let rows: [&[f32]; 2] = [&[0., 9., 0.], &[0., 9., 0.]];
        let draft = Case::f32(&rows, &[greedy()]).verifying(VerifyMode::OneHot, &[wide], &[]);
        let got = draft.run(device, "a wide draft");
        assert_eq!((got.accepted, got.tokens), (vec![0], vec![1, -1]));
    }),
    fault("a mask that allows nothing kills the batch or emits token 0", "TensorRT-LLM#18893", |device| {
        for second in [0, 0xFFFF_FF00u32 as i32] {
            let case = Case::f32(&[&[0.; 40], &[0.; 40]], &[seeded(1)]);
            let got = Case { mask: Some(vec![0, second, 0x10, 0]), ..case }.run(device, "nothing allowed");
            assert_eq!((got.tokens, got.status), (vec![-1, 4], vec![EMPTY_ROW, 0]));
        }
    }),
    fault("a mask with too few rows is read past its end", "vllm#50952", |device| {
        let case = Case::f32(&[&[0f32; 8][..]; 8], &[seeded(1)]);
        let mask = Some(vec![-1; 5]);
        let mut run = HostRun::new(device, &Case { mask: mask.clone(), ..case.clone() }.host()).expect("arrays");
        let error = run.run().expect_err("refused").to_string();
        assert_eq!(error, "step: mask rows = 5 is refused: at least rows = 8");
        let index = Some(vec![0, 1, 2, 3, 4, 0, 1, 2]);
        assert_eq!(
            Case { mask, mask_index: index, ..case.clone() }.run(device, "indexed"),
            case.run(device, "no mask")
        );
    }),
    fault("rows without a grammar get another row's mask", "vllm#22963", |device| {
        let row: &[f32] = &[9., 0., 0., 0., 0.];
        let case =
            Case { mask: Some(vec![0b00100]), mask_index: Some(vec![-1, 0, -1]), ..Case::f32(&[row; 3], &[greedy()]) };
        assert_eq!(case.run(device, "one grammar").tokens, [0, 2, 0]);
        assert_eq!(case.with_tokens_alone().run(device, "argmax").tokens, [0, 2, 0]);
    }),
];
