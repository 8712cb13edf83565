//! Rows on a GPU, compared bit for bit with the CPU device: a million of them, in every way of launching, in graphs, in
//! buffers past 2^31 elements. Skipped, with a line on stderr, where there is no GPU; a failure instead with
//! `SAMEDRAW_REQUIRE_CUDA=1`.
//!
//! | variable | what |
//! |---|---|
//! | `SAMEDRAW_ROWS` | rows of `cuda_against_cpu` and of `every_variant_gives_the_bits_of_the_cpu` |
//! | `SAMEDRAW_SEED` | first seed of both |
//! | `SAMEDRAW_THREADS` | threads of `cuda_against_cpu`; all of the host's cores if not given |
//! | `SAMEDRAW_CUDA_VARIANT` | a way of launching for tests that do not choose their own |

#[path = "../common/mod.rs"]
mod common;

mod against_cpu;
mod graphs;
mod large;
mod sanitized;
mod variants;

use common::{Case, from_env};
use samedraw::device::cuda::{CudaDevice, Switches};
use samedraw::{Device, Error};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// While a stream is captured in the global mode, no thread of the process may allocate: that test runs alone.
static DRIVER: RwLock<()> = RwLock::new(());

/// Held by a test that uses the driver in ways any other test may meanwhile.
fn among_others() -> RwLockReadGuard<'static, ()> {
    DRIVER.read().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test that no other may disturb.
fn alone() -> RwLockWriteGuard<'static, ()> {
    DRIVER.write().unwrap_or_else(PoisonError::into_inner)
}

/// The GPU, its steps launched as `switches` say, or as the environment does.
fn gpu(test: &str, switches: Option<Switches>) -> Option<Arc<CudaDevice>> {
    let opened = match switches {
        Some(switches) => CudaDevice::open_with(0, switches),
        None => CudaDevice::open(0),
    };
    match opened {
        Ok(device) => Some(Arc::new(device)),
        Err(Error::Unavailable(why)) => {
            let required = std::env::var("SAMEDRAW_REQUIRE_CUDA").is_ok_and(|v| v == "1");
            assert!(!required, "SAMEDRAW_REQUIRE_CUDA=1, but {why}");
            eprintln!("SKIPPED {test}: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The CPU device on one thread, for tests that have threads of their own.
fn cpu() -> Arc<dyn Device> {
    Arc::new(samedraw::device::CpuDevice::with_threads(1))
}

/// What a case is, in a message.
fn describe(seed: u64, case: &Case) -> String {
    let verify = case.verify.as_ref().and_then(|v| v.mode);
    let Case { rows, vocab, stride, offset, dtype, force_topk, .. } = case;
    format!(
        "seed {seed} ({rows} rows, V = {vocab}, stride {stride}, offset {offset}, {dtype:?}, N = {force_topk}, verify {verify:?})"
    )
}
