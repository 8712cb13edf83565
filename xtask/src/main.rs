//! Maintenance tasks.
fn main() {}
