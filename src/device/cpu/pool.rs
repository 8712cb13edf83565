//! A fixed set of threads that runs the rows of one stage.
//!
//! A library pool would be the first choice, but the common one allocates a queue block every few dozen jobs sent from
//! outside, and a decode step must not allocate. Handing out a job here is one lock, one wake-up and an atomic counter.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// Number of the thread in its pool; 0 for a caller.
pub(super) fn thread_number() -> usize {
    NUMBER.get()
}

#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    /// Held while a job runs; a second caller runs its rows alone rather than wait.
    busy: Mutex<()>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    start: Condvar,
    done: Condvar,
    next: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    job: Option<Job>,
    generation: u64,
    /// Workers that have not finished the current job.
    running: usize,
    panic: Option<Box<dyn Any + Send>>,
    stop: bool,
}

/// The closure of the caller that waits in `run`, with its lifetime taken away.
#[derive(Debug, Clone, Copy)]
struct Job {
    data: *const (),
    call: unsafe fn(*const (), usize),
    count: usize,
}

// SAFETY: the closure behind `data` is Sync and outlives the job: `run` returns only when no worker runs it.
unsafe impl Send for Job {}

impl Job {
    fn drain(self, next: &AtomicUsize) {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= self.count {
                return;
            }
            // SAFETY: `data` and `call` were made together in `run`.
            unsafe { (self.call)(self.data, index) };
        }
    }
}

impl Pool {
    /// `threads` counts the caller: 1 starts no thread. A thread the system refuses is done without.
    pub(super) fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let workers = (1..threads)
            .map_while(|n| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new().name(format!("samedraw-{n}")).spawn(move || work(&shared, n)).ok()
            })
            .collect();
        Pool { shared, busy: Mutex::new(()), workers }
    }

    /// Threads that run a job, the caller's included.
    pub(super) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f` for every index below `count`, on all threads; returns when all are done. Does not allocate.
    pub(super) fn run<F: Fn(usize) + Sync>(&self, count: usize, f: F) {
        let guard = if count > 1 && !self.workers.is_empty() { self.claim() } else { None };
        if guard.is_none() {
            return (0..count).for_each(f);
        }
        unsafe fn call<F: Fn(usize)>(data: *const (), index: usize) {
            // SAFETY: `data` is the `f` below.
            unsafe { (*data.cast::<F>())(index) }
        }
        let job = Job { data: (&raw const f).cast(), call: call::<F>, count };
        self.shared.next.store(0, Ordering::Relaxed);
        {
            let mut state = lock(&self.shared.state);
            state.job = Some(job);
            state.generation += 1;
            state.running = self.workers.len();
            self.shared.start.notify_all();
        }
        let own = catch_unwind(AssertUnwindSafe(|| job.drain(&self.shared.next)));
        let mut state = lock(&self.shared.state);
        while state.running > 0 {
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.job = None;
        let theirs = state.panic.take();
        drop(state);
        if let Some(panic) = own.err().or(theirs) {
            resume_unwind(panic);
        }
    }
}

impl Pool {
    /// The right to use the workers. A job that panicked leaves them idle, so its poison means nothing.
    fn claim(&self) -> Option<MutexGuard<'_, ()>> {
        match self.busy.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

fn work(shared: &Shared, number: usize) {
    NUMBER.set(number);
    let mut seen = 0;
    loop {
        let mut state = lock(&shared.state);
        while state.generation == seen && !state.stop {
            state = shared.start.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stop {
            return;
        }
        seen = state.generation;
        let job = state.job;
        drop(state);
        let ran = catch_unwind(AssertUnwindSafe(|| {
            if let Some(job) = job {
                job.drain(&shared.next);
            }
        }));
        let mut state = lock(&shared.state);
        if let Err(panic) = ran {
            state.panic = Some(panic);
        }
        state.running -= 1;
        if state.running == 0 {
            shared.done.notify_all();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.shared.state).stop = true;
        self.shared.start.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches its jobs' panics, so there is nothing to report.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_runs_once_also_from_two_callers_and_nested() {
        // Miri takes a minute for ten thousand.
        let (indices, rounds) = if cfg!(miri) { (50, 4) } else { (1000, 50) };
        let pool = Pool::new(4);
        let counts: Vec<AtomicUsize> = (0..indices).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        pool.run(counts.len(), |i| _ = counts[i].fetch_add(1, Ordering::Relaxed));
                    }
                });
            }
        });
        assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 2 * rounds));
        pool.run(3, |_| pool.run(2, |_| ()));
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
        let pool = Pool::new(3);
        let caught = catch_unwind(AssertUnwindSafe(|| pool.run(64, |i| assert!(i != 40))));
        assert!(caught.is_err());
        let sum = AtomicUsize::new(0);
        pool.run(10, |i| _ = sum.fetch_add(i, Ordering::Relaxed));
        assert_eq!(sum.into_inner(), 45);
        // Three indices that wait for each other end only on three threads.
        let together = std::sync::Barrier::new(3);
        let (sender, done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            pool.run(3, |_| _ = together.wait());
            sender.send(()).expect("the test waits");
        });
        done.recv_timeout(std::time::Duration::from_secs(60)).expect("the workers are used again");
    }
}
