//! Runs tests with the CUDA device on a model of a GPU that is compiled for this machine's CPU.

#[path = "../../tests/cuda_model/library.rs"]
mod library;

use library::Model;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the model and runs `cargo test` with it as the GPU; `args` go on to `cargo test`.
pub fn run(root: &Path, args: &[&str]) -> Result<(), String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let model =
        Model::build(root, &target).map_err(|why| why.unwrap_or_else(|| "there is no g++, nor is CXX set".into()))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--package", "samedraw", "--features", "cuda,step-file"]).args(args);
    command.envs(model.environment()).env("SAMEDRAW_REQUIRE_CUDA", "1").current_dir(root);
    let status = command.status().map_err(|error| format!("cargo test: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("the tests on the model: {status}")) }
}
