//! What a step is compared with: the least anybody can do, and what most do.

/// Largest value, by the widest vectors the processor has: every step has to read the row at least as this does.
pub fn maximum(row: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has it.
            return unsafe { wide::maximum_avx512(row) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has it.
            return unsafe { wide::maximum_avx2(row) };
        }
    }
    in_lanes(row)
}

#[cfg(target_arch = "x86_64")]
mod wide {
    #[target_feature(enable = "avx2")]
    pub fn maximum_avx2(row: &[f32]) -> f32 {
        super::in_lanes(row)
    }

    #[target_feature(enable = "avx512f")]
    pub fn maximum_avx512(row: &[f32]) -> f32 {
        super::in_lanes(row)
    }
}

#[inline(always)]
fn in_lanes(row: &[f32]) -> f32 {
    const LANES: usize = 64;
    let mut top = [f32::NEG_INFINITY; LANES];
    let (whole, rest) = row.as_chunks::<LANES>();
    for chunk in whole {
        for (top, &x) in top.iter_mut().zip(chunk) {
            *top = if x > *top { x } else { *top };
        }
    }
    top.iter().chain(rest).fold(f32::NEG_INFINITY, |max, &x| if x > max { x } else { max })
}

/// The textbook way: softmax, sort every token by its probability, cut at `top_p`, walk to `uniform`.
pub fn sort_and_draw(row: &[f32], top_p: f32, uniform: f32, order: &mut Vec<(f32, u32)>) -> u32 {
    let max = maximum(row);
    order.clear();
    order.extend(row.iter().zip(0..).map(|(&x, id)| ((x - max).exp(), id)));
    let total: f32 = order.iter().map(|&(p, _)| p).sum();
    order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let (mut kept, mut mass) = (0, 0.0);
    for &(p, _) in order.iter() {
        mass += p;
        kept += 1;
        if mass > top_p * total {
            break;
        }
    }
    let mut left = uniform * mass;
    for &(p, id) in &order[..kept] {
        left -= p;
        if left < 0.0 {
            return id;
        }
    }
    order[kept - 1].1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baselines_do_what_they_say() {
        let row: Vec<f32> = (0..1001).map(|v| ((v * 37) % 1001) as f32).collect();
        assert_eq!(maximum(&row), 1000.0);
        assert_eq!(maximum(&row[..5]), 148.0);
        let mut order = Vec::new();
        // Logits a whole apart: the largest has 63% of the probability.
        let largest = row.iter().position(|&x| x == 1000.0).unwrap() as u32;
        assert_eq!(sort_and_draw(&row, 0.5, 0.99, &mut order), largest);
        assert_ne!(sort_and_draw(&row, 0.9, 0.99, &mut order), largest);
    }
}
