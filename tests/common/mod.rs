//! What the device tests share. Everything is written over `Arc<dyn Device>`, so a new device only joins the list that
//! [`devices`] returns.

// Each test binary compiles this module and uses a part of it.
#![allow(dead_code, unused_imports)]

pub mod arrange;
pub mod bulk;
pub mod case;
pub mod compare;
pub mod ends;
pub mod generate;
pub mod halves;
pub mod intervals;
pub mod oracle;
pub mod rng;
pub mod row;

pub use case::{Case, Drafted};
pub use compare::{assert_same, differences, first_difference};
pub use rng::Rng;

use samedraw::device::{self, Device};
use std::sync::Arc;

/// The devices a conformance test runs on: the CPU, by its lanes and by its scalar code, and a GPU where there is one.
///
/// `SAMEDRAW_REQUIRE_CUDA=1` makes a missing GPU a failure, so that a machine that has one cannot skip it unnoticed.
pub fn devices() -> Vec<Arc<dyn Device>> {
    let mut found = Vec::new();
    if cfg!(feature = "cpu") {
        found.push(device::open("cpu").expect("the CPU device opens everywhere"));
        found.push(scalar_cpu());
    }
    match device::open("cuda") {
        Ok(cuda) => found.push(cuda),
        Err(why) if std::env::var("SAMEDRAW_REQUIRE_CUDA").is_ok_and(|v| v == "1") => {
            panic!("SAMEDRAW_REQUIRE_CUDA=1, but {why}")
        }
        Err(why) => eprintln!("skipped: {why}"),
    }
    found
}

/// The CPU device by its scalar code, which the lanes are held to.
#[cfg(feature = "cpu")]
pub fn scalar_cpu() -> Arc<dyn Device> {
    use samedraw::device::cpu::{CpuDevice, CpuPath};
    Arc::new(CpuDevice::with_path(2, CpuPath::Scalar).expect("the scalar code runs everywhere"))
}

/// Absent: there is no CPU device in this build.
#[cfg(not(feature = "cpu"))]
pub fn scalar_cpu() -> Arc<dyn Device> {
    panic!("built without the feature \"cpu\"")
}

/// A number from the environment, for runs larger than the default.
pub fn from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Err(_) => default,
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")),
    }
}
