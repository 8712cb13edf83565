//! The host's half of the Ascend device on a simulated CANN runtime (`tests/ascend_sim`), a test double compiled here.
//! Nothing in these tests has met an NPU.

mod faults;
mod loader;
mod model;
mod run;
mod sanitized;
mod sim;
