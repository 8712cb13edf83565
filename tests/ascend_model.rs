//! The model of Ascend C (`tests/ascend_model`): every rule has a kernel that breaks it and is caught with the reason, kernels
//! that keep the rules run, and calls give the values of the vendor's documentation. Nothing of this has met an NPU.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ascend_model")
}

fn compiler() -> Command {
    let mut build = cc::Build::new();
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    build.cpp(true).std("c++17").opt_level(1).pic(true).target(&target).host(&target).cargo_metadata(false);
    build.warnings(true).extra_warnings(true);
    let mut command = build.get_compiler().to_command();
    // As the simulated aclrtc does.
    command.args(["-ffp-contract=off", "-fno-strict-aliasing", "-I"]).arg(folder());
    command
}

/// Runs a command that is to succeed and gives its output.
fn run(mut command: Command, input: &str) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}:\n{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// What the text above a kernel asks of it.
#[derive(Debug, Clone, PartialEq)]
enum Expected {
    Right,
    Breaks(String),
    Gives { kind: String, values: Vec<String> },
}

#[derive(Debug)]
struct Rule {
    name: String,
    cores: u32,
    expected: Expected,
}

/// The kernels of a file of `rules/`, in its order.
fn rules(file: &str) -> Vec<Rule> {
    let text = fs::read_to_string(folder().join("rules").join(file)).unwrap();
    let (mut found, mut cores, mut expected) = (Vec::new(), 1, None);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("// cores: ") {
            cores = rest.parse().unwrap();
        } else if let Some(rest) = line.strip_prefix("// breaks: ") {
            expected = Some(Expected::Breaks(rest.to_owned()));
        } else if line == "// right" {
            expected = Some(Expected::Right);
        } else if let Some(rest) = line.strip_prefix("// gives ") {
            let (kind, values) = rest.split_once(": ").unwrap();
            let values = values.split(' ').map(str::to_owned).collect();
            expected = Some(Expected::Gives { kind: kind.to_owned(), values });
        } else if let Some(rest) = line.strip_prefix("RULE(") {
            let name = rest.split(')').next().unwrap().to_owned();
            let expected = expected.take().unwrap_or_else(|| panic!("{file}: {name} does not say what it must be"));
            found.push(Rule { name, cores: std::mem::replace(&mut cores, 1), expected });
        }
    }
    assert!(!found.is_empty(), "{file} has no kernels");
    found
}

fn output(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ascend_model-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

fn runner() -> &'static Path {
    static RUNNER: OnceLock<PathBuf> = OnceLock::new();
    RUNNER.get_or_init(|| {
        let program = output("runner");
        let mut build = compiler();
        build.arg("-o").arg(&program).arg(folder().join("runner.cpp")).arg("-ldl");
        run(build, "");
        program
    })
}

/// The kernels of `file` as a library, made once.
fn library(file: &str) -> PathBuf {
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap();
    let stem = file.strip_suffix(".asc").unwrap();
    let library = output(&format!("{stem}.so"));
    if library.exists() {
        return library;
    }
    let mut source = format!("#include \"rules/{file}\"\n");
    for Rule { name, .. } in rules(file) {
        let entry = format!("const ascend_model::Entry ascend_sim_entry_{name} = ascend_model::entry<{name}>();");
        writeln!(source, "extern \"C\" __attribute__((visibility(\"default\"))) {entry}").unwrap();
    }
    let path = output(&format!("{stem}.cpp"));
    fs::write(&path, source).unwrap();
    let mut build = compiler();
    build.args(["-shared", "-o"]).arg(&library).arg(&path);
    run(build, "");
    library
}

/// What kernels of `file` broke and gave, by name.
fn results(file: &str, rules: &[Rule], variables: &[(&str, &str)]) -> HashMap<String, (String, String)> {
    let mut input = String::new();
    for Rule { name, cores, expected } in rules {
        let (kind, count) = match expected {
            Expected::Gives { kind, values } => (kind.as_str(), values.len()),
            _ => ("none", 0),
        };
        writeln!(input, "{name} {cores} {kind} {count}").unwrap();
    }
    let mut command = Command::new(runner());
    command.arg(library(file)).envs(variables.iter().copied());
    let text = run(command, &input);
    let parsed = text.lines().map(|line| {
        let mut parts = line.splitn(3, '\t').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_else(|| panic!("{line:?}"));
        (next(), (next(), next()))
    });
    parsed.collect()
}

/// Whether `report` has the parts of `text` between its asterisks, in their order.
fn says(report: &str, text: &str) -> bool {
    let mut rest = report;
    text.split('*').all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

/// Runs every kernel of a file and compares; gives how many broke a rule.
fn holds(file: &str) -> usize {
    let rules = rules(file);
    let results = results(file, &rules, &[]);
    let mut wrong = String::new();
    for Rule { name, expected, .. } in &rules {
        let (report, values) = &results[name];
        let as_expected = match expected {
            Expected::Right => report.is_empty(),
            Expected::Breaks(text) => says(report, text),
            Expected::Gives { values: expected, .. } => report.is_empty() && *values == expected.join(" "),
        };
        if !as_expected {
            writeln!(wrong, "{name}: {report:?} {values:?}, not {expected:?}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{file}:\n{wrong}");
    rules.iter().filter(|rule| matches!(rule.expected, Expected::Breaks(_))).count()
}

#[test]
fn order_between_pipes() {
    assert!(holds("waits.asc") >= 18);
}

#[test]
fn buffers_and_queues() {
    assert!(holds("queues.asc") >= 15);
}

#[test]
fn moves() {
    assert!(holds("moves.asc") >= 18);
}

#[test]
fn global_memory_and_the_cache() {
    assert!(holds("memory.asc") >= 12);
}

#[test]
fn vector_calls() {
    assert!(holds("vector.asc") >= 26);
}

#[test]
fn values_of_calls() {
    holds("values.asc");
}

/// The sections of `refused.asc` with what the compiler must say of each.
#[test]
fn what_the_chip_lacks_does_not_compile() {
    let path = folder().join("rules/refused.asc");
    let text = fs::read_to_string(&path).unwrap();
    let sections: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("#elif SECTION == ")).collect();
    assert!(sections.len() >= 17);
    let compile = |section: &str| {
        let mut command = compiler();
        command.args(["-fsyntax-only", "-w", "-x", "c++"]).arg(format!("-DSECTION={section}")).arg(&path);
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(compile("0"), (true, String::new()));
    for line in sections {
        let (section, says) = line.split_once(" // says: ").unwrap();
        let (compiles, told) = compile(section);
        assert!(!compiles && told.contains(says), "section {section} must say {says:?}:\n{told}");
    }
}

/// The order of cores follows the seed, and rules between cores are found in any.
#[test]
fn cores_are_found_out_in_any_order() {
    let file = "memory.asc";
    let mut rules = rules(file);
    rules.retain(|rule| rule.cores > 1);
    let mut reports = std::collections::HashSet::new();
    for seed in ["1", "2", "3", "4", "5", "6"] {
        for (name, (report, _)) in results(file, &rules, &[("SEED", seed)]) {
            let expected = &rules.iter().find(|rule| rule.name == name).unwrap().expected;
            match expected {
                Expected::Breaks(text) => assert!(says(&report, text), "{name} with seed {seed}: {report}"),
                _ => assert_eq!(report, "", "{name} with seed {seed}"),
            }
            reports.insert(report);
        }
    }
    assert!(reports.len() > rules.len() + 1, "the seed changes nothing: {reports:?}");
}

/// With the arithmetic made inexact, results differ where they are rounded and nowhere else.
#[test]
fn inexact_arithmetic_is_off_where_it_rounds() {
    let file = "inexact.asc";
    let rules = rules(file);
    let values = |inexact: &str| {
        let results = results(file, &rules, &[("INEXACT", inexact)]);
        results
            .into_iter()
            .map(|(name, (report, values))| {
                assert_eq!(report, "", "{name}");
                (name, values)
            })
            .collect::<HashMap<_, _>>()
    };
    let (exact, truncated, flushed) = (values(""), values("truncate"), values("flush"));
    for (name, nearest, to_zero, without_subnormals) in [
        // 1 + 3 * 2^-25 is 1 + 2^-23 to nearest and 1 to zero.
        ("sum_that_rounds_up", "1065353217", "1065353216", "1065353217"),
        // 11184809 * 3 = 33554427, an odd number of 25 bits: a tie that goes up to even, and down to zero.
        ("product_that_rounds_up", "1065353214", "1065353213", "1065353214"),
        ("exact_product", "1088421888", "1088421888", "1088421888"),
        // Half of the smallest normal number.
        ("subnormal_product", "4194304", "4194304", "0"),
    ] {
        assert_eq!(
            (&*exact[name], &*truncated[name], &*flushed[name]),
            (nearest, to_zero, without_subnormals),
            "{name}"
        );
    }
}

/// Casts of 4096 numbers are those of other implementations: the `half` crate and the standard library.
#[test]
fn casts_are_those_of_others() {
    let file = "casts.asc";
    let kinds = |name: &str| if name.contains("integers") { "i32" } else { "u16" };
    let expected = |rule: Rule| {
        let expected = Expected::Gives { kind: kinds(&rule.name).to_owned(), values: vec![String::new(); 4096] };
        Rule { expected, ..rule }
    };
    let rules: Vec<Rule> = rules(file).into_iter().map(expected).collect();
    let results = results(file, &rules, &[]);
    type Cast = fn(f32) -> i32;
    let all: [(&str, f32, Cast); 6] = [
        ("to_half", 1.3125 / 8192.0, |x| half::f16::from_f32(x).to_bits().into()),
        ("to_half_and_small", 1.9375 / 1_073_741_824.0, |x| half::f16::from_f32(x).to_bits().into()),
        ("to_bfloat16", -9.102_219, |x| half::bf16::from_f32(x).to_bits().into()),
        ("to_integers", -0.125, |x| x.round_ties_even() as i32),
        ("to_integers_down", -0.125, |x| x.floor() as i32),
        ("to_integers_away", -0.125, |x| x.round() as i32),
    ];
    assert_eq!(all.len(), rules.len());
    for (name, scale, cast) in all {
        let (report, values) = &results[name];
        assert_eq!(report, "", "{name}");
        let expected: Vec<String> = (0..4096).map(|i| cast(i as f32 * scale).to_string()).collect();
        assert_eq!(values.split(' ').collect::<Vec<_>>(), expected, "{name}");
    }
}
