//! The CUDA kernels themselves, without a GPU: compiled by the C++ compiler and run, thread by thread, by the model in this
//! folder; README.md says what it shows and what it cannot. Skipped, with a line on stderr, where there is no C++ compiler;
//! a failure instead if SAMEDRAW_REQUIRE_MODEL=1.

#[path = "../common/mod.rs"]
mod common;
mod launch;
mod library;
mod numbers;
mod steps;
mod wrong;

use library::Model;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Names the test a child process is to run.
const CHILD: &str = "SAMEDRAW_TEST_CHILD";

/// Runs `body` in a process of its own that has the model for a GPU: a driver is loaded once in a process, for good. `env`
/// is for the model; what the caller's environment says of it comes first.
fn on_the_model(name: &str, env: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        return body();
    }
    static MODEL: OnceLock<Option<Model>> = OnceLock::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let build = || match Model::build(root, Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target folder")) {
        Ok(model) => Some(model),
        Err(None) => None,
        Err(Some(why)) => panic!("the model was not built: {why}"),
    };
    let Some(model) = MODEL.get_or_init(build) else {
        let required = std::env::var("SAMEDRAW_REQUIRE_MODEL").is_ok_and(|value| value == "1");
        assert!(!required, "SAMEDRAW_REQUIRE_MODEL=1, but there is no g++, nor is CXX set");
        // Past the test harness, which keeps what `eprintln!` says of a passing test to itself.
        writeln!(std::io::stderr(), "SKIPPED {name}: there is no g++, nor is CXX set").expect("stderr");
        return;
    };
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", name, "--nocapture"]).env(CHILD, name).env("SAMEDRAW_REQUIRE_CUDA", "1");
    command.envs(model.environment());
    for (key, value) in env.iter().filter(|(key, _)| std::env::var_os(key).is_none()) {
        command.env(key, value);
    }
    let output = command.output().expect("a child process");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    // For `--nocapture`.
    eprint!("{text}");
}
