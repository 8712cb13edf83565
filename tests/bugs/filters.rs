//! Temperature, top-k, top-p and min-p at the ends of their ranges; ties.

use super::common::{Case, Rng};
use super::{Fault, fault, greedy, ln, near, seeded};
use samedraw::SamplingParams;
use samedraw::params::FilterOrder;
use samedraw::pipeline::DType;

const INF: f32 = f32::INFINITY;

/// The kept ids of a result's only row.
fn kept(case: Case, device: &std::sync::Arc<dyn samedraw::Device>) -> Vec<i32> {
    case.run(device, "kept ids").kept_ids.into_iter().filter(|&id| id != -1).collect()
}

pub const FAULTS: &[Fault] = &[
    fault("top_k = 0 beside a filtered row reads out of range", "vllm-metal#646", |device| {
        let error = SamplingParams { top_k: 0, ..seeded(1) }.check().expect_err("refused");
        assert_eq!(error.to_string(), "top_k = 0 is refused: allowed is -1 (off) or 1 to 2147483647");
        let logits: Vec<f32> = (0..128).map(|v| v as f32).collect();
        let off = SamplingParams { temperature: 0.0, ..seeded(1) };
        let on = SamplingParams { top_k: 64, top_p: 0.95, ..seeded(2) };
        let got = Case::f32(&[&logits, &logits], &[off, on]).run(device, "mixed");
        assert_eq!(got.tokens[0], 127);
        assert!((64..128).contains(&got.tokens[1]));
    }),
    fault("top_k above the vocabulary crashes", "vllm#14234", |device| {
        let row: &[f32] = &[0., 1., 2., 3., 4.];
        let off = Case::f32(&[row], &[seeded(1)]).run(device, "off");
        for top_k in [6, 9_999_999, 2_147_483_647] {
            let case = Case::f32(&[row], &[SamplingParams { top_k, ..seeded(1) }]);
            assert_eq!(case.run(device, "on"), off, "top_k {top_k}");
            assert_eq!(Case { force_topk: 16384, ..case }.run(device, "forced"), off);
        }
        assert_eq!(off.kept_counts, [5]);
    }),
    fault("low temperatures overflow in half precision", "vllm#3063", |device| {
        let row: &[f32] = &[2.875, 2.955, 11.0625, -2.447];
        for dtype in [DType::F16, DType::BF16] {
            for temperature in [1e-4, 1e-5, 1e-6, 1e-30, 1e-38] {
                let params = SamplingParams { temperature, ..seeded(1) };
                let got = Case::half(dtype, &[row], &[params]).run(device, "cold");
                assert_eq!((got.tokens, got.logprobs), (vec![2], vec![0.0]), "{dtype:?} at {temperature}");
            }
        }
    }),
    fault("top_p = 1 drops small probabilities", "flashinfer#708", |device| {
        let row: Vec<f32> = std::iter::once(0.0).chain(std::iter::repeat_n(-20.7233, 20)).collect();
        let case = Case { top_logprobs: 21, ..Case::f32(&[&row], &[seeded(1)]) };
        let got = case.run(device, "top_p = 1");
        assert_eq!((&got.kept_counts[..], &got.top_counts[..]), (&[21][..], &[21][..]));
        got.top_logprobs[1..].iter().for_each(|&logprob| near(logprob, -20.7233, 1e-4));
    }),
    fault("paths differ in whether top-k comes before top-p", "sglang#36173", |device| {
        let mut p = vec![0.35, 0.25, 0.20, 0.05, 0.03];
        p.resize(17, 0.01);
        for (filter_order, want) in [(FilterOrder::Joint, vec![0, 1, 2, 3]), (FilterOrder::TopKFirst, vec![0, 1, 2])] {
            let params = SamplingParams { top_k: 4, top_p: 0.82, filter_order, ..seeded(1) };
            let case = Case::f32(&[&ln(&p)], &[params]);
            assert_eq!(kept(Case { force_topk: 17, columns: true, ..case.clone() }, device), want);
            assert_eq!(kept(case.clone(), device), want);
            // The rows of a verification step are filtered alike.
            let verify = case.verifying(samedraw::pipeline::VerifyMode::OneHot, &[], &[]);
            assert_eq!(kept(verify, device), want);
        }
    }),
    fault("the nucleus is one token short or long when the sum equals top_p", "llama.cpp#1953", |device| {
        // A token goes when the mass before it is larger than top_p's; equal mass keeps one more.
        for (top_p, count, logprob) in
            [(0.5, 3, -1.0986), (0.75, 4, -1.3863), (0.500_001, 3, -1.0986), (0.49, 2, 0.5f32.ln())]
        {
            let params = SamplingParams { top_p, ..seeded(1) };
            let got = Case::f32(&[&[0.; 4]], &[params]).run(device, "nucleus");
            assert_eq!(got.kept_counts, [count], "top_p {top_p}");
            near(got.logprobs[0], logprob, 1e-4);
        }
    }),
    fault("top_k = 1 and low temperature keep every tied token", "vllm#41598", |device| {
        let row = Case::half(DType::BF16, &[&[21.375, 3., 21.375, 0.]], &[seeded(1)]);
        let tokens = |params: SamplingParams| {
            let many = Case::repeated(&[0.; 4], 1000, &params, |i| i as u64);
            let case = Case { logits: row.logits.clone(), dtype: DType::BF16, ..many };
            case.run(device, "ties").tokens
        };
        assert!(tokens(SamplingParams { top_k: 1, ..seeded(0) }).iter().all(|&t| t == 0));
        assert!(tokens(SamplingParams { top_p: 1e-9, ..seeded(0) }).iter().all(|&t| t == 0));
        // Without a filter both have equal mass, however cold: nearly greedy is a seeded draw.
        for temperature in [0.0, 1e-6] {
            let drawn = tokens(SamplingParams { temperature, ..seeded(0) });
            let first = drawn.iter().filter(|&&t| t == 0).count();
            assert!(drawn.iter().all(|&t| t == 0 || t == 2) && (420..580).contains(&first), "{first} of 1000");
        }
    }),
    fault("top_k = 2 lets three tokens through at a tie", "flashinfer#3774", |device| {
        let params = SamplingParams { top_k: 2, ..seeded(0) };
        let row = [0.287_682, 0., 0., -INF];
        let got = Case::repeated(&row, 100_000, &params, |i| i as u64).run(device, "ties");
        let share = |id| got.tokens.iter().filter(|&&t| t == id).count() as f32 / 1e5;
        near(share(0), 0.5714, 0.005);
        near(share(1), 0.4286, 0.005);
        assert!(got.tokens.iter().all(|&t| t < 2) && got.kept_counts.iter().all(|&n| n == 2));
    }),
    fault("the draw and the logprobs break ties differently", "sglang#4876", |device| {
        let params = SamplingParams { top_p: 0.5, ..seeded(0) };
        let got = Case::repeated(&[0.0; 8], 1000, &params, |i| i as u64).run(device, "ties");
        // Half of the mass lies before the fifth token, so it is kept too.
        assert!(got.tokens.iter().all(|t| (0..5).contains(t)));
        got.logprobs.iter().for_each(|&logprob| near(logprob, -1.6094, 1e-4));
    }),
    fault("-0 and +0 are two values to one step and one to the next", "cccl#9470", |device| {
        let row: &[f32] = &[-0.0, 0.0, -1.0, -0.0];
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let case = |params: SamplingParams| match dtype {
                DType::F32 => Case::f32(&[row], &[params]),
                _ => Case::half(dtype, &[row], &[params]),
            };
            assert_eq!(case(greedy()).with_tokens_alone().run(device, "argmax").tokens, [0], "{dtype:?}");
            assert_eq!(case(greedy()).run(device, "sample").tokens, [0], "{dtype:?}");
            assert_eq!(kept(case(SamplingParams { top_k: 2, ..seeded(1) }), device), [0, 1], "{dtype:?}");
            let forced = Case { force_topk: 3, ..case(seeded(1)) }.run(device, "forced");
            assert_eq!(forced.dense_ids, [0, 1, 3], "{dtype:?}");
        }
    }),
    fault("top-p keeps a lower logit and drops a higher one", "vllm-ascend#13847", |device| {
        let mut rng = Rng::new(80);
        let rows: Vec<Vec<f32>> = (0..20).map(|_| (0..32_000).map(|_| rng.normal()).collect()).collect();
        let refs: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
        let params = SamplingParams { top_p: 0.9, ..seeded(1) };
        let case = Case { kept_ids: 32_000, dense: false, top_logprobs: 0, ..Case::f32(&refs, &[params]) };
        let got = case.run(device, "long rows");
        for (row, ids) in rows.iter().zip(got.kept_ids.chunks(32_000)) {
            let is_kept = |v: usize| ids.binary_search_by_key(&(v as u32), |&id| id as u32).is_ok();
            let (inside, outside): (Vec<usize>, Vec<usize>) = (0..32_000).partition(|&v| is_kept(v));
            let lowest = inside.iter().map(|&v| row[v]).fold(INF, f32::min);
            assert!(outside.iter().all(|&v| row[v] <= lowest));
            let mut weights: Vec<f64> = row.iter().map(|&x| f64::from(x).exp()).collect();
            weights.sort_by(|a, b| b.total_cmp(a));
            let limit = 0.9 * weights.iter().sum::<f64>();
            let mut before = 0.0;
            let want = weights
                .iter()
                .take_while(|&&w| {
                    let keeps = before <= limit;
                    before += w;
                    keeps
                })
                .count();
            assert!(inside.len().abs_diff(want) <= 1, "{} kept, {want} in f64", inside.len());
        }
    }),
];
