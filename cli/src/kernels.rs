//! `samedraw kernels`.

use crate::Outcome;
use crate::output::Failure;

/// Arguments of `samedraw kernels`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Architecture to compile for: dav-2201 (Atlas A2 and A3)
    #[arg(long)]
    target: String,
}

/// Prints what is compiled for a target, and how to do so ahead of time.
#[cfg(feature = "ascend")]
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    crate::output::print(&samedraw::device::ascend::kernels::listing(&arguments.target)?)?;
    Ok(Outcome::Done)
}

/// Prints what is compiled for a target, and how to do so ahead of time.
#[cfg(not(feature = "ascend"))]
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    Err(Failure(format!("kernels for {:?}: built without the feature \"ascend\"", arguments.target)))
}
