//! The faults. Each is one line that breaks one promise of the semantics.

mod ascend;
mod draws;
mod interfaces;
mod kernels;
mod lanes;
mod launches;
mod model;
mod row;
mod step;

/// One fault and the tests expected to catch it.
#[derive(Debug)]
pub struct Fault {
    /// Its name on the command line.
    pub name: &'static str,
    /// The promise it breaks.
    pub breaks: &'static str,
    /// The file it is applied to.
    pub file: &'static str,
    /// What it replaces; stands in the file exactly once.
    pub find: &'static str,
    /// By what.
    pub replace: &'static str,
    /// Target of `cargo test` (`--lib`, `--test NAME`), then a filter.
    pub tests: &'static str,
    /// Whether continuous integration tries it.
    pub quick: bool,
}

/// Every fault.
pub fn all() -> impl Iterator<Item = &'static Fault> {
    let host = row::FAULTS.iter().chain(step::FAULTS).chain(lanes::FAULTS).chain(draws::FAULTS);
    let devices = launches::FAULTS.iter().chain(kernels::FAULTS).chain(model::FAULTS).chain(ascend::FAULTS);
    host.chain(interfaces::FAULTS).chain(devices)
}
