//! Rows whose top-p or top-k ends where it is hard to find: among equal tokens, in a row that is sorted, flat, all on one token, has
//! its likely tokens side by side or fewer tokens than top_k; at every temperature.

use super::Case;
use super::rng::Rng;
use samedraw::pipeline::DType;
use samedraw::{FilterOrder, SamplingParams};

/// One row of each kind for each of a few settings, f32 or bf16 by the seed; of which the tokens are wanted. With a top-k or without.
pub fn ends(seed: u64, vocab: usize, with_top_k: bool) -> Case {
    let rng = &mut Rng::new(seed);
    let (mut rows, mut params) = (Vec::new(), Vec::new());
    for kind in 0..16 {
        for _ in 0..3 {
            rows.push(row(rng, kind, vocab));
            params.push(SamplingParams {
                top_p: rng.pick(&[1e-6, 0.1, 0.5, 0.9, 0.95, 0.99, 0.9999]),
                top_k: if with_top_k { rng.pick(&[2, 7, 50, 128, 129, 400, 3000]) } else { -1 },
                filter_order: rng.pick(&[FilterOrder::Joint, FilterOrder::TopKFirst]),
                temperature: rng.pick(&[0.05, 0.3, 0.7, 1.0, 1.0, 2.0, 50.0]),
                min_p: if rng.one_in(6) { 0.01 } else { 0.0 },
                seq_seed: Some(rng.u64()),
                ..Default::default()
            });
            if kind == 13 {
                let params = params.last_mut().unwrap();
                (params.top_p, params.temperature, params.min_p) = (0.9, 1.0, 0.0);
            }
        }
    }
    let rows: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
    let mut case = Case::f32(&rows, &params);
    if seed % 2 == 1 {
        case.dtype = DType::BF16;
        case.logits =
            rows.iter().flat_map(|row| row.iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes())).collect();
    }
    case.served();
    case
}

fn row(rng: &mut Rng, kind: usize, vocab: usize) -> Vec<f32> {
    let deviation = rng.pick(&[0.5, 1.0, 2.0, 3.0, 4.0]);
    let mut row: Vec<f32> = (0..vocab).map(|_| deviation * rng.normal()).collect();
    let place = rng.below(vocab);
    match kind {
        0 => row.fill(0.0),
        1 => row.fill(-3.25),
        2 => row.sort_by(f32::total_cmp),
        3 => row.sort_by(|a, b| b.total_cmp(a)),
        4 => row.iter_mut().for_each(|x| *x = (*x * 2.0).round()),
        5 => row.iter_mut().for_each(|x| *x = x.round() * 0.25),
        // One token far above a rest that is flat, or not.
        6 => row.fill(0.0),
        7 => row[place] += 25.0,
        // The likely ones side by side.
        8 => row.iter_mut().skip(place).take(700).for_each(|x| *x += 12.0),
        9 => row.iter_mut().skip(place).take(40).for_each(|x| *x += 90.0),
        10 => row.iter_mut().for_each(|x| *x = if rng.one_in(50) { *x } else { f32::NEG_INFINITY }),
        11 => row[place] = f32::INFINITY,
        // Top-p ends among likely tokens that every look at even ids misses.
        13 => {
            row.fill(-20.0);
            row[place & !1] = 0.0;
            let start = (place * 7 % (vocab - 801)) & !1;
            (0..400).for_each(|i| row[start + 2 * i + 1] = -7.83);
        }
        // Fewer than some top-k.
        14 => keep_few(rng, &mut row, 3),
        15 => keep_few(rng, &mut row, 40),
        12 => (0..200).for_each(|i| row[i * 31 % vocab] = f32::NAN),
        _ => {}
    }
    if kind == 6 {
        row[place] = 7.0;
    }
    row
}

/// Leaves `few` tokens above -inf.
fn keep_few(rng: &mut Rng, row: &mut [f32], few: usize) {
    let kept: Vec<(usize, f32)> = (0..few).map(|_| rng.below(row.len())).map(|place| (place, row[place])).collect();
    row.fill(f32::NEG_INFINITY);
    kept.iter().for_each(|&(place, x)| row[place] = x);
}
