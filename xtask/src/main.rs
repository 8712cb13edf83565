//! Maintenance of the repository: `cargo xtask abi [--check]`, `abi-check`, `bindgen`, `header`, `install`,
//! `kernels`, `cubins`, `instructions`, `model` and `cargo xtask sabotage [NAME]`.

mod abi;
mod abi_check;
mod bindgen;
mod header;
mod install;
mod instructions;
mod kernels;
mod model;
mod sabotage;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask abi              write cuda/abi.cuh and ascend/abi.h from the argument blocks
cargo xtask abi --check      fail if either differs from what would be written
cargo xtask abi-check HEADERS
                             compare ffi/ with the vendor's headers (HEADERS holds acl/acl.h)
cargo xtask bindgen [--check]
                             write the ACL bindings from ffi/, or fail if they differ; needs libclang
cargo xtask header [--check]
                             write ffi/samedraw.h from ffi/capi, or fail if it differs
cargo xtask install --prefix DIR [--debug]
                             build the C library and install it with its header, for pkg-config and CMake
cargo xtask kernels [--nvrtc PATH] [--arch sm_90]...
                             compile the CUDA kernels; fail on a warning or a spill
cargo xtask cubins --out DIR [--nvrtc PATH]
                             write what the feature `precompiled` embeds
cargo xtask model ARGS...    `cargo test ARGS` with a model of a GPU in the place of one; needs g++
cargo xtask instructions [--write]
                             count the instructions of steps on the CPU by valgrind, compare with those kept
cargo xtask sabotage         apply every fault to a copy, one at a time; fail if a test suite lets one pass
cargo xtask sabotage --quick the few faults that continuous integration tries
cargo xtask sabotage --list  name them
cargo xtask sabotage NAME... those faults alone";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["abi"] => abi::write(&root()),
        ["abi", "--check"] => abi::check(&root()),
        ["abi-check", headers] => abi_check::run(&root(), Path::new(headers)),
        ["bindgen"] => bindgen::run(&root(), bindgen::Mode::Write),
        ["bindgen", "--check"] => bindgen::run(&root(), bindgen::Mode::Check),
        ["header"] => header::run(&root(), header::Mode::Write),
        ["header", "--check"] => header::run(&root(), header::Mode::Check),
        ["install", ref options @ ..] => install::run(&root(), options),
        ["kernels" | "cubins", ..] => kernels::run(&root(), &args),
        ["model", ref args @ ..] => model::run(&root(), args),
        ["instructions"] => instructions::run(&root(), false),
        ["instructions", "--write"] => instructions::run(&root(), true),
        ["instructions-of", step, times] => instructions::subject(step, times),
        ["sabotage", "--list"] => {
            sabotage::list();
            Ok(())
        }
        ["sabotage"] => sabotage::run(&root(), sabotage::Choice::All),
        ["sabotage", "--quick"] => sabotage::run(&root(), sabotage::Choice::Quick),
        ["sabotage", ref names @ ..] if !names.iter().any(|name| name.starts_with('-')) => {
            sabotage::run(&root(), sabotage::Choice::Named(names))
        }
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// The repository: the folder above this package.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}
