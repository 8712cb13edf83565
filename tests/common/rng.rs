//! The tests' own random numbers: a xorshift-multiply generator, none of the crate's.

/// A generator with a seed or, for a fuzzer, with a tape of the decisions it is to take.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
    /// Two bytes a number, last first, as long as there are any.
    tape: Vec<u8>,
    taped: bool,
}

impl Rng {
    /// Any seed will do, 0 too.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng { state: seed ^ 0xD1B5_4A32_D192_ED03, tape: Vec::new(), taped: false };
        (0..4).for_each(|_| _ = rng.u64());
        rng
    }

    /// Numbers whose upper 16 bits `tape` tells, which decide every choice among few; what follows its end has a seed.
    pub fn from_tape(tape: &[u8]) -> Self {
        Rng { tape: tape.iter().rev().copied().collect(), taped: true, ..Rng::new(tape.len() as u64) }
    }

    /// Whether a tape tells the numbers.
    pub fn is_taped(&self) -> bool {
        self.taped
    }

    /// Calls `f` with a generator for many numbers of which none matters much: itself, or one whose seed the tape tells, so
    /// that the tape is left for decisions.
    pub fn in_bulk<T>(&mut self, f: impl FnOnce(&mut Rng) -> T) -> T {
        if self.taped { f(&mut Rng::new(self.u64())) } else { f(self) }
    }

    /// 64 bits.
    pub fn u64(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut x = self.state;
        x ^= x >> 32;
        x = x.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        x ^= x >> 29;
        match (self.tape.pop(), self.tape.pop()) {
            (Some(high), Some(low)) => x >> 16 | u64::from(high) << 56 | u64::from(low) << 48,
            _ => x,
        }
    }

    /// Below `n`, which is at least 1.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.u64()) * n as u128) >> 64) as usize
    }

    /// From `low` to `high`, both included.
    pub fn within(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Bell-shaped, mean 0, deviation 1.
    pub fn normal(&mut self) -> f32 {
        ((0..12).map(|_| self.unit()).sum::<f64>() - 6.0) as f32
    }

    /// One of `choices`.
    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    /// In random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
