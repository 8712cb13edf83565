//! P-values, and the level they are held to.

use super::{ALPHA, LEAST};

/// Chance that a gamma variable of shape `a` is above `x`: the regularized upper incomplete gamma function, by its series
/// below the mean and by Lentz's continued fraction above. `a` is a multiple of 1/2.
fn gamma_above(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    // ln Gamma(a), from Gamma(1) = 1 and Gamma(1/2) = sqrt(pi).
    let whole = a.fract() == 0.0;
    let (mut ln_gamma, mut at) = if whole { (0.0, 1.0) } else { (std::f64::consts::PI.ln() / 2.0, 0.5) };
    while at < a {
        ln_gamma += f64::ln(at);
        at += 1.0;
    }
    let front = (a * x.ln() - x - ln_gamma).exp();
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > sum * 1e-16 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        return 1.0 - front * sum;
    }
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1e300, 1.0 / b);
    let mut fraction = d;
    for i in 1..100_000 {
        let i = f64::from(i);
        let an = -i * (i - a);
        b += 2.0;
        d = 1.0 / (an * d + b);
        c = b + an / c;
        fraction *= c * d;
        if (c * d - 1.0).abs() < 1e-15 {
            break;
        }
    }
    front * fraction
}

/// Chance of a chi-square above `chi2`.
pub fn chi_square_above(chi2: f64, freedom: usize) -> f64 {
    gamma_above(freedom as f64 / 2.0, chi2 / 2.0)
}

/// Chance that a normal variable is farther from 0 than `z`: its square is a chi-square of one degree.
pub fn normal_beyond(z: f64) -> f64 {
    chi_square_above(z * z, 1)
}

/// Chi-square of `counts` of `n` draws against `probabilities`. Cells that expect fewer than [`LEAST`] are one cell; if
/// that expects too few as well it is left out, with its draws. 0 where a draw fell where it cannot.
pub fn multinomial(counts: &[u64], probabilities: &[f64], n: usize) -> f64 {
    assert_eq!(counts.len(), probabilities.len());
    assert_eq!(counts.iter().sum::<u64>(), n as u64);
    let (mut chi2, mut cells, mut rare) = (0.0, 0usize, (0.0, 0.0));
    for (&count, &p) in counts.iter().zip(probabilities) {
        if p == 0.0 && count > 0 {
            return 0.0;
        }
        let (count, expected) = (count as f64, p * n as f64);
        if expected < LEAST {
            rare = (rare.0 + count, rare.1 + expected);
        } else {
            chi2 += (count - expected).powi(2) / expected;
            cells += 1;
        }
    }
    if rare.1 >= LEAST {
        chi2 += (rare.0 - rare.1).powi(2) / rare.1;
        cells += 1;
    }
    if cells < 2 { 1.0 } else { chi_square_above(chi2, cells - 1) }
}

/// How far `hits` of `n` trials are from a chance of `p`; a chance of 0 or 1 leaves no room.
pub fn binomial(hits: usize, n: usize, p: f64) -> f64 {
    let (mean, deviation) = (p * n as f64, (n as f64 * p * (1.0 - p)).sqrt());
    if deviation == 0.0 {
        return f64::from(u8::from(hits as f64 == mean));
    }
    normal_beyond((hits as f64 - mean) / deviation)
}

/// How far pairs of numbers, each uniform in 0..range, are from uncorrelated; their means and deviations are known.
pub fn correlation(pairs: impl Iterator<Item = (i64, i64)>, range: i64) -> f64 {
    let mean = (range - 1) as f64 / 2.0;
    let variance = (range * range - 1) as f64 / 12.0;
    let (mut sum, mut n) = (0.0, 0.0);
    for (a, b) in pairs {
        sum += (a as f64 - mean) * (b as f64 - mean) / variance;
        n += 1.0;
    }
    normal_beyond(sum / f64::sqrt(n))
}

/// The p-values of a family of tests.
#[derive(Debug)]
pub struct Family {
    name: String,
    values: Vec<(f64, String)>,
}

impl Family {
    pub fn new(name: impl Into<String>) -> Family {
        Family { name: name.into(), values: Vec::new() }
    }

    /// Adds a test.
    pub fn add(&mut self, what: impl Into<String>, p_value: f64) {
        assert!((0.0..=1.0).contains(&p_value), "not a chance: {p_value}");
        self.values.push((p_value, what.into()));
    }

    /// The tests that fail at their share of [`ALPHA`].
    pub fn failures(&self) -> Vec<&(f64, String)> {
        let level = ALPHA / self.values.len() as f64;
        self.values.iter().filter(|(p_value, _)| *p_value < level).collect()
    }

    /// Fails unless every test passes.
    pub fn judge(mut self) {
        self.values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let tests = self.values.len();
        let (least, what) = self.values.first().expect("a family has tests");
        eprintln!(
            "{}: {tests} tests, each at level {:.1e}; least p {least:.2e} ({what})",
            self.name,
            ALPHA / tests as f64
        );
        let failures = self.failures();
        assert!(failures.is_empty(), "{}: {} of {tests} tests fail: {failures:.2?}", self.name, failures.len());
    }
}

#[test]
fn p_values_are_those_of_the_tables() {
    // The 0.1 %, 5 % and 95 % points of the published tables.
    for (freedom, points) in [
        (1, [10.828, 3.841, 0.004]),
        (5, [20.515, 11.070, 1.145]),
        (10, [29.588, 18.307, 3.940]),
        (100, [149.449, 124.342, 77.929]),
    ] {
        for (point, want) in points.into_iter().zip([0.001, 0.05, 0.95]) {
            let got = chi_square_above(point, freedom);
            assert!((got / want - 1.0).abs() < 0.02, "{freedom} degrees, {point}: {got}, not {want}");
        }
    }
    for (z, want) in [(1.959_964, 0.05), (2.575_829, 0.01), (3.290_527, 0.001), (4.891_638, 1e-6)] {
        assert!((normal_beyond(z) / want - 1.0).abs() < 1e-4, "{z}: {}", normal_beyond(z));
    }
    assert!((chi_square_above(2000.0, 2000) - 0.4958).abs() < 1e-3);
}

#[test]
fn tests_that_ought_to_fail_do() {
    use super::common::Rng;
    let (n, mut rng) = (200_000, Rng::new(9));
    let mut counts = [0u64; 3];
    for _ in 0..n {
        let u = rng.unit();
        counts[usize::from(u >= 0.5) + usize::from(u >= 0.8)] += 1;
    }
    // One percent away, and where nothing may fall.
    assert!(multinomial(&counts, &[0.5, 0.3, 0.2], n) > 1e-3);
    assert!(multinomial(&counts, &[0.51, 0.29, 0.2], n) < 1e-6);
    assert_eq!(multinomial(&counts, &[0.5, 0.5, 0.0], n), 0.0);
    assert!(binomial(counts[0] as usize, n, 0.5) > 1e-3);
    assert!(binomial(counts[0] as usize, n, 0.51) < 1e-6);
    assert_eq!(binomial(1, n, 0.0), 0.0);
    // A twentieth of each number comes from the one before.
    let numbers: Vec<i64> = (0..n).map(|_| rng.below(256) as i64).collect();
    let mixed: Vec<i64> = (1..n).map(|i| if rng.one_in(20) { numbers[i - 1] } else { numbers[i] }).collect();
    assert!(correlation(numbers.iter().copied().zip(numbers[1..].iter().copied()), 256) > 1e-3);
    assert!(correlation(mixed.iter().copied().zip(numbers.iter().copied()), 256) < 1e-6);
    let mut family = Family::new("a family");
    family.add("even", 0.3);
    family.add("far", 4e-4);
    assert_eq!(family.failures().len(), 1, "one of two tests is held to half of the level");
}
