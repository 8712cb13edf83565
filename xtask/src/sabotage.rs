//! Faults applied to a copy of the repository, one at a time: a promise that no test defends is not kept for long.
//!
//! The copy and what is built of it lie under `target/sabotage` and stay there, so that only the crate itself is
//! compiled again. A fault counts as caught when the tree with it compiles and the tests named for it fail;
//! they are first seen to pass without it.

mod faults;
mod tree;

use faults::Fault;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;
use tree::Tree;

/// Which faults to try.
#[derive(Debug, Clone, Copy)]
pub enum Choice<'a> {
    All,
    Quick,
    Named(&'a [&'a str]),
}

/// What became of a fault.
#[derive(Debug)]
enum Outcome {
    /// The first test that failed.
    Caught(String),
    Survived,
    /// The list is at fault: the text is not there once, or the result does not compile.
    Broken(String),
}

/// Names every fault and the promise it breaks.
pub fn list() {
    for fault in faults::all() {
        println!("{:<26} {}", fault.name, fault.breaks);
    }
}

/// Tries the chosen faults; an error if one survives or cannot be applied.
pub fn run(root: &Path, choice: Choice<'_>) -> Result<(), String> {
    let chosen = chosen(choice)?;
    let tree = Tree::copy(root, &root.join("target/sabotage"))?;
    passes_without_faults(&tree, &chosen)?;
    println!("{:<26} {:<9} {:>5}  by", "fault", "outcome", "s");
    let (mut survived, mut broken) = (0, 0);
    for fault in &chosen {
        let start = Instant::now();
        let (word, detail) = match attempt(&tree, fault)? {
            Outcome::Caught(test) => ("caught", test),
            Outcome::Survived => {
                survived += 1;
                ("SURVIVED", format!("{} ({})", fault.tests, fault.breaks))
            }
            Outcome::Broken(why) => {
                broken += 1;
                ("BROKEN", why)
            }
        };
        println!("{:<26} {word:<9} {:>5.0}  {detail}", fault.name, start.elapsed().as_secs_f32());
    }
    println!(
        "{} faults: {} caught, {survived} survived, {broken} broken",
        chosen.len(),
        chosen.len() - survived - broken
    );
    if survived + broken > 0 { Err("every fault must be caught".into()) } else { Ok(()) }
}

fn chosen(choice: Choice<'_>) -> Result<Vec<&'static Fault>, String> {
    match choice {
        Choice::All => Ok(faults::all().collect()),
        Choice::Quick => Ok(faults::all().filter(|fault| fault.quick).collect()),
        Choice::Named(names) => names
            .iter()
            .map(|name| {
                let found = faults::all().find(|fault| fault.name == *name);
                found.ok_or_else(|| format!("no fault is called {name:?}; `cargo xtask sabotage --list` names them"))
            })
            .collect(),
    }
}

/// Runs every test the chosen faults rely on, on the copy as it is.
fn passes_without_faults(tree: &Tree, chosen: &[&Fault]) -> Result<(), String> {
    let mut seen: Vec<&str> = Vec::new();
    for fault in chosen {
        if seen.contains(&fault.tests) {
            continue;
        }
        seen.push(fault.tests);
        let output = test(tree, fault.tests, false)?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(format!("{} fails without a fault:\n{text}{}", fault.tests, stderr(&output)));
        }
        if !text.contains("... ok") {
            return Err(format!("{} selects no test", fault.tests));
        }
    }
    println!("without a fault: {} selections of tests pass", seen.len());
    Ok(())
}

fn attempt(tree: &Tree, fault: &Fault) -> Result<Outcome, String> {
    let original = tree.read(fault.file)?;
    let found = original.matches(fault.find).count();
    if found != 1 {
        return Ok(Outcome::Broken(format!("{} holds its text {found} times", fault.file)));
    }
    tree.write(fault.file, &original.replacen(fault.find, fault.replace, 1))?;
    let outcome = judge(tree, fault);
    tree.write(fault.file, &original)?;
    outcome
}

fn judge(tree: &Tree, fault: &Fault) -> Result<Outcome, String> {
    let built = test(tree, fault.tests, true)?;
    if !built.status.success() {
        let errors = stderr(&built);
        let first = errors.lines().find(|line| line.starts_with("error")).unwrap_or("does not compile").to_string();
        return Ok(Outcome::Broken(first));
    }
    let output = test(tree, fault.tests, false)?;
    if output.status.success() {
        return Ok(Outcome::Survived);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let failed = text.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    let target = match fault.tests.strip_prefix("--test ") {
        Some(rest) => rest.split(' ').next().unwrap_or(rest),
        None => "unit test",
    };
    Ok(Outcome::Caught(format!("{target}: {}", failed.unwrap_or("the program ended early"))))
}

fn test(tree: &Tree, tests: &str, build_only: bool) -> Result<Output, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // The C programs meet the Ascend device, too.
    let features = if tests.split(' ').any(|word| word == "c") { "step-file,ascend" } else { "step-file" };
    command.args(["test", "--package", "samedraw", "--features", features]);
    let mut words = tests.split(' ').peekable();
    // The target comes first (`--lib`, `--test NAME`); what is left selects tests in it.
    while let Some(word) = words.next_if(|word| word.starts_with("--")) {
        command.arg(word);
        if word == "--test" {
            command.args(words.next());
        }
    }
    if build_only {
        command.arg("--no-run");
    } else {
        command.arg("--").args(words);
    }
    command.current_dir(tree.path()).env("CARGO_TARGET_DIR", tree.target());
    command.output().map_err(|e| format!("cargo test: {e}"))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_applies_to_the_files_as_they_are() {
        for fault in faults::all() {
            let path = crate::root().join(fault.file);
            let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert_eq!(text.matches(fault.find).count(), 1, "{} in {}", fault.name, fault.file);
            assert_ne!(fault.find, fault.replace, "{}", fault.name);
            assert!(!fault.find.contains('\n'), "{} is more than a line", fault.name);
        }
    }

    #[test]
    fn names_are_unique_and_unknown_ones_are_refused() {
        let mut names: Vec<&str> = faults::all().map(|fault| fault.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), faults::all().count());
        let error = chosen(Choice::Named(&["no_such_fault"])).map(|_| ()).unwrap_err();
        assert!(error.starts_with("no fault is called \"no_such_fault\""), "{error}");
    }
}
