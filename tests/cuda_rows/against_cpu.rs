//! Very many random rows: the GPU against the CPU device.

use super::common::bulk::{Bounds, ROWS, batch};
use super::common::{differences, first_difference, scalar_cpu};
use super::{cpu, describe, from_env, gpu};
use samedraw::Device;
use samedraw::pipeline::{HostResult, VerifyMode};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What a run has seen.
#[derive(Default)]
struct Seen {
    rows: usize,
    live: usize,
    above_65536: usize,
    /// Elements compared and elements that differ, by output.
    outputs: BTreeMap<&'static str, (usize, usize)>,
    met: BTreeMap<String, usize>,
    first: Vec<String>,
    /// Making steps, running them on the one device and on the other, comparing; summed over the threads.
    times: [Duration; 4],
}

impl Seen {
    fn add(&mut self, seed: u64, case: &super::Case, want: &HostResult, got: &HostResult) {
        self.rows += case.rows;
        self.live += want.status.iter().filter(|&&status| status >= 0).count();
        self.above_65536 += if case.vocab > 65_536 { case.rows } else { 0 };
        let mut differ = 0;
        for (name, compared, differing) in differences(want, got) {
            let entry = self.outputs.entry(name).or_default();
            *entry = (entry.0 + compared, entry.1 + differing);
            differ += differing;
        }
        if differ > 0 && self.first.len() < 12 {
            let difference = first_difference(want, got).unwrap_or_default();
            self.first.push(format!("{}: {difference}", describe(seed, case)));
        }
        let mut met = |what: String, n: usize| *self.met.entry(what).or_default() += n;
        met(format!("{:?}", case.dtype), case.rows);
        for (bit, name) in [(1, "nan_logits"), (2, "inf_logits"), (4, "empty_row"), (8, "nan_draft"), (16, "bad_index")]
        {
            met(name.into(), want.status.iter().filter(|&&status| status > 0 && status & bit != 0).count());
        }
        met("masked".into(), if case.mask.is_some() { case.rows } else { 0 });
        met("N above 4096".into(), if case.force_topk.min(case.vocab) > 4096 { case.rows } else { 0 });
        met("columns".into(), if case.columns { case.rows } else { 0 });
        if let Some(mode) = case.verify.as_ref().and_then(|verify| verify.mode) {
            let accepted: usize = want.accepted.iter().map(|&n| n.max(0) as usize).sum();
            met(format!("{mode:?}: accepted"), accepted);
            met(format!("{mode:?}: rejected"), case.rows - accepted);
            let moved = case.verify.as_ref().is_some_and(|verify| !verify.columns.is_empty());
            met("drafts moved".into(), if moved { case.rows } else { 0 });
        }
    }

    fn join(&mut self, other: Seen) {
        self.rows += other.rows;
        self.live += other.live;
        self.above_65536 += other.above_65536;
        for (name, (compared, differing)) in other.outputs {
            let entry = self.outputs.entry(name).or_default();
            *entry = (entry.0 + compared, entry.1 + differing);
        }
        other.met.into_iter().for_each(|(what, n)| *self.met.entry(what).or_default() += n);
        self.first.extend(other.first);
        self.times.iter_mut().zip(other.times).for_each(|(sum, time)| *sum += time);
    }

    fn report(&self, took: Duration) {
        eprintln!(
            "{} rows ({} with a result, {} with V > 65536) in {took:.1?}",
            self.rows, self.live, self.above_65536
        );
        for (name, (compared, differing)) in &self.outputs {
            eprintln!("  {name}: {differing} of {compared} differ");
        }
        eprintln!("  met {:?}", self.met);
        let [made, first, second, compared] = self.times;
        eprintln!("  thread time: making {made:.1?}, CPU {first:.1?}, other {second:.1?}, comparing {compared:.1?}");
        self.first.iter().for_each(|difference| eprintln!("  {difference}"));
    }

    /// Fails on any difference, and where the steps no longer reach what they are made for.
    fn check(&self) {
        let differing: usize = self.outputs.values().map(|(_, differing)| differing).sum();
        assert_eq!(differing, 0, "elements that differ; the first: {:?}", self.first.first());
        // One seed in 101 makes a step of them.
        assert!(self.above_65536 * 100 <= self.rows + 100 * ROWS, "{} rows above 65536", self.above_65536);
        for (what, &n) in self.met.iter().filter(|_| self.rows >= 20_000) {
            assert!(n * 4000 >= self.rows, "{what}: only {n} of {} rows", self.rows);
        }
    }
}

/// Runs `rows` rows from seed `first` on the CPU device and on `other`, on `threads` threads.
fn compare(other: &Arc<dyn Device>, rows: usize, first: u64, threads: usize, bounds: &Bounds) -> Seen {
    let (next, last) = (AtomicU64::new(first), first + rows.div_ceil(bounds.rows) as u64);
    let (all, begun) = (Mutex::new(Seen::default()), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let (cpu, mut seen) = (cpu(), Seen::default());
                let mut marks = [begun; 5];
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= last {
                        break;
                    }
                    marks[0] = Instant::now();
                    let case = batch(seed, seed.is_multiple_of(3), bounds);
                    marks[1] = Instant::now();
                    let want = case.run(&cpu, &describe(seed, &case));
                    marks[2] = Instant::now();
                    let got = case.run(other, &describe(seed, &case));
                    marks[3] = Instant::now();
                    seen.add(seed, &case, &want, &got);
                    marks[4] = Instant::now();
                    seen.times.iter_mut().zip(marks.windows(2)).for_each(|(sum, mark)| *sum += mark[1] - mark[0]);
                }
                all.lock().expect("no thread failed").join(seen);
            });
        }
    });
    let all = all.into_inner().expect("no thread failed");
    all.report(begun.elapsed());
    all
}

fn threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    from_env("SAMEDRAW_THREADS", cores as u64).max(1) as usize
}

#[test]
fn cuda_against_cpu() {
    let _turn = super::among_others();
    let Some(device) = gpu("cuda_against_cpu", None) else { return };
    let (rows, first) = (from_env("SAMEDRAW_ROWS", 20_000) as usize, from_env("SAMEDRAW_SEED", 1));
    eprintln!("cuda_against_cpu: {rows} rows in steps of {ROWS} from seed {first}");
    let device: Arc<dyn Device> = device;
    compare(&device, rows, first, threads(), &Bounds::FULL).check();
}

/// The steps themselves, and the comparison, where there is no GPU: the CPU's lanes against its scalar code.
#[test]
fn the_steps_of_that_run_on_the_cpu_alone() {
    let (rows, first) = (from_env("SAMEDRAW_CPU_ROWS", 3000) as usize, from_env("SAMEDRAW_SEED", 1));
    let bounds = Bounds { rows: 48, vocab: 3000, most: 20_000 };
    let seen = compare(&scalar_cpu(), rows, first, threads(), &bounds);
    seen.check();
    for mode in [VerifyMode::Rejection, VerifyMode::OneHot, VerifyMode::Chain] {
        for end in ["accepted", "rejected"] {
            assert!(seen.met.get(&format!("{mode:?}: {end}")).is_some_and(|&n| n > 10), "{mode:?} {end}");
        }
    }
    for what in ["nan_logits", "inf_logits", "empty_row", "nan_draft", "bad_index", "masked", "columns", "drafts moved"]
    {
        assert!(seen.met.get(what).is_some_and(|&n| n > 4), "{what}: {:?}", seen.met);
    }
}
