//! The command as a person or a script meets it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn samedraw(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_samedraw"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    samedraw(arguments).output().expect("samedraw starts")
}

fn vector(name: &str) -> String {
    format!("{}/../tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// Demands exit code 2, nothing on standard output and one line on standard error that says `what`.
#[track_caller]
fn refused(arguments: &[&str], what: &str) {
    let out = output(arguments);
    let stderr = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert_eq!(text(&out.stdout), "", "{arguments:?}");
    assert!(stderr.starts_with("samedraw: ") && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    assert!(stderr.contains(what), "{arguments:?}: {stderr}");
}

/// A file in the temporary folder that goes away again.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("samedraw-cli-{}-{name}", std::process::id())))
    }

    fn str(&self) -> &str {
        self.0.to_str().expect("a UTF-8 path")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn run_prints_a_table_of_the_expected_results() {
    let out = output(&["run", &vector("worked_prefill.safetensors")]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let expected: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(vector("worked_prefill.expected.json")).unwrap()).unwrap();
    let lines: Vec<Vec<&str>> = text(&out.stdout).lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[1], ["request", "token", "accepted", "logprob", "rank", "kept", "status"]);
    let requests = expected["requests"].as_array().unwrap();
    assert_eq!(lines.len(), 2 + requests.len());
    for (line, request) in lines[2..].iter().zip(requests) {
        assert_eq!(line[0], request["id"].as_str().unwrap());
        assert_eq!(line[1], request["tokens"][0].to_string());
        assert_eq!(line[6], request["ranks"][0].to_string());
        assert_eq!(line[7], request["kept"][0].to_string());
    }
}

#[test]
fn a_result_document_goes_to_a_file_or_to_standard_output() {
    let step = vector("decode_golden.safetensors");
    let result = Scratch::new("result.json");
    let to_file = output(&["run", &step, "--out", result.str()]);
    assert_eq!((to_file.status.code(), text(&to_file.stdout)), (Some(0), ""));
    let written = std::fs::read_to_string(&result.0).unwrap();
    let to_stdout = output(&["run", &step, "--out", "-"]);
    assert_eq!(text(&to_stdout.stdout), written);
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(json(&written), json(&std::fs::read_to_string(vector("decode_golden.expected.json")).unwrap()));
}

#[test]
fn compare_is_silent_about_equals_and_exits_with_0() {
    for other in [vector("decode_rejection.expected.json").as_str(), "cpu"] {
        let out = output(&["run", &vector("decode_rejection.safetensors"), "--compare", other]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        assert_eq!(text(&out.stdout), format!("all equal: 3 requests on cpu and {other}, to the last bit\n"));
    }
}

#[test]
fn compare_names_a_doctored_value_and_exits_with_1() {
    let step = vector("worked_prefill.safetensors");
    let mut expected: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(vector("worked_prefill.expected.json")).unwrap()).unwrap();
    let logprob = expected["requests"][1]["logprobs"][0].as_f64().unwrap() as f32;
    // The neighbouring f32: the comparison is exact.
    let doctored = f32::from_bits(logprob.to_bits() + 1);
    expected["requests"][1]["logprobs"][0] = f64::from(doctored).into();
    let document = Scratch::new("doctored.json");
    std::fs::write(&document.0, expected.to_string()).unwrap();

    let out = output(&["run", &step, "--compare", document.str()]);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    let said = format!("request \"b\", row 0: logprobs {logprob:?}, other {doctored:?}\n");
    assert_eq!(text(&out.stdout), format!("{said}1 differences between cpu and {}\n", document.str()));

    // With the document on standard output, the differences go to standard error.
    let out = output(&["run", &step, "--compare", document.str(), "--out", "-"]);
    assert_eq!(out.status.code(), Some(1));
    serde_json::from_slice::<serde_json::Value>(&out.stdout).expect("the document alone");
    assert!(text(&out.stderr).starts_with(&said), "{}", text(&out.stderr));
}

#[test]
fn a_long_list_of_differences_is_cut_and_counted() {
    let step = vector("smollm2_rows.safetensors");
    let out = output(&["run", &step, "--force-topk", "1", "--compare", &vector("smollm2_rows.expected.json")]);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    let lines: Vec<&str> = text(&out.stdout).lines().collect();
    assert_eq!(lines.len(), 22);
    let number = |line: &str, word: usize| line.split(' ').nth(word).unwrap().parse::<usize>().expect("a count");
    assert_eq!(number(lines[20], 2) + 20, number(lines[21], 0));
}

#[test]
fn bad_files_flags_and_devices_exit_with_2() {
    let step = vector("worked_prefill.safetensors");
    let manifest = format!("{}/Cargo.toml", env!("CARGO_MANIFEST_DIR"));
    let folder = env!("CARGO_MANIFEST_DIR");
    refused(&["run", "/nonexistent/step"], "/nonexistent/step");
    refused(&["run", folder], "not a regular file");
    refused(&["run", &manifest], "step file: container");
    refused(&["run", &step, "--device", "gpu"], "device \"gpu\" (cpu, cuda[:i] or ascend[:i])");
    refused(&["run", &step, "--device", "cuda:x"], "device \"cuda:x\"");
    refused(&["run", &step, "--compare", "/nonexistent/result"], "/nonexistent/result");
    refused(&["run", &step, "--compare", &manifest], "result document");
    refused(&["run", &step, "--compare", "cpu:1"], "device \"cpu:1\"");
    refused(&["run", &step, "--out", "/nonexistent/result"], "writing /nonexistent/result");
    refused(&["demo", "--device", "tpu"], "device \"tpu\"");
    refused(&["run"], "<FILE>");
    refused(&["walk"], "'walk'");
    refused(&["run", &step, "--force-topk", "-1"], "'-1'");
    refused(&["run", &step, "--fast"], "'--fast'");
    let help = output(&[]);
    assert_eq!((help.status.code(), text(&help.stdout)), (Some(2), ""));
    assert!(text(&help.stderr).contains("Usage: samedraw"), "{}", text(&help.stderr));
}

#[test]
fn devices_lists_every_platform() {
    let out = output(&["devices", "--json"]);
    assert_eq!(out.status.code(), Some(0));
    let list: Vec<serde_json::Value> = serde_json::from_slice(&out.stdout).expect("a JSON list");
    let platforms: Vec<&str> = list.iter().map(|entry| entry["platform"].as_str().unwrap()).collect();
    assert_eq!(platforms, ["cpu", "cuda", "ascend"]);
    assert_eq!((&list[0]["available"], &list[0]["exact"]), (&true.into(), &true.into()));
    let limits: Vec<Option<u64>> = list.iter().map(|entry| entry["max_force_topk"].as_u64()).collect();
    assert_eq!(limits, [None, Some(16384), Some(4096)]);
    let plain = output(&["devices"]);
    for entry in list {
        let said = entry[if entry["available"] == true { "name" } else { "reason" }].as_str().unwrap();
        assert!(text(&plain.stdout).contains(said), "{said}");
    }
}

#[cfg(feature = "ascend")]
#[test]
fn kernels_prints_a_source_file_with_its_commands() {
    let out = output(&["kernels", "--target", "dav-2201"]);
    assert_eq!(out.status.code(), Some(0));
    let printed = text(&out.stdout);
    for part in
        ["bisheng -std=c++17", "--npu-arch=dav-2201", "ld.lld -m aicorelinux", "// ---- abi.h", "struct RowBlock"]
    {
        assert!(printed.contains(part), "{part} is missing");
    }
    refused(&["kernels", "--target", "dav-3510"], "dav-3510");
    refused(&["kernels", "--target", ""], "dav-2201");
}

#[cfg(not(feature = "ascend"))]
#[test]
fn kernels_of_a_platform_that_is_not_built_in_are_refused() {
    refused(&["kernels", "--target", "dav-2201"], "built without the feature \"ascend\"");
}

#[cfg(feature = "ascend")]
#[test]
fn devices_says_where_cann_was_looked_for() {
    if Path::new("/usr/local/Ascend").exists() {
        println!("SKIPPED: this machine has CANN in its default place");
        return;
    }
    let mut command = samedraw(&["devices"]);
    for variable in ["SAMEDRAW_ASCEND_RUNTIME", "ASCEND_TOOLKIT_HOME", "LD_LIBRARY_PATH"] {
        command.env_remove(variable);
    }
    let out = command.env("ASCEND_HOME_PATH", "/no/such/cann").env("HOME", "/no/such/home").output().unwrap();
    let printed = text(&out.stdout);
    for part in [
        "/no/such/cann/lib64/libacl_rt.so",
        "/no/such/home/Ascend/cann/lib64/libascendcl.so",
        "SAMEDRAW_ASCEND_RUNTIME",
    ] {
        assert!(printed.contains(part), "{part} is missing in {printed}");
    }
}

#[test]
fn the_demo_is_plain_when_piped_and_shows_the_expected_tokens() {
    let out = output(&["demo"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let shown = text(&out.stdout);
    assert!(!shown.contains('\x1b'), "{shown}");
    let expected: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(vector("smollm2_rows.expected.json")).unwrap()).unwrap();
    let requests = expected["requests"].as_array().unwrap();
    let header = shown.lines().position(|line| line.trim_start().starts_with("row")).expect("a header");
    for (row, (line, request)) in shown.lines().skip(header + 1).zip(requests).enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let probability = request["logprobs"][0].as_f64().unwrap().exp();
        let want = [
            row.to_string(),
            request["tokens"][0].to_string(),
            format!("{probability:.4}"),
            request["kept"][0].to_string(),
        ];
        assert_eq!(words[..4], want, "{line}");
    }
    assert!(shown.contains("24 of 24 rows gave the same result"), "{shown}");
    assert!(shown.contains(" ms (median of "), "{shown}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let step = vector("smollm2_rows.safetensors");
    for arguments in [&["run", &step, "--out", "-"][..], &["devices"], &["--help"]] {
        let mut child = samedraw(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), ""), "{arguments:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_failure() {
    assert!(Path::new("/dev/full").exists());
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let out = samedraw(&["devices"]).stdout(full).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).starts_with("samedraw: standard output: "), "{}", text(&out.stderr));
}

#[test]
fn bench_times_every_combination_and_writes_its_figures() {
    let (json, svg) = (Scratch::new("bench.json"), Scratch::new("bench.svg"));
    let shape =
        ["bench", "--threads", "1", "--rows", "1,3", "--vocab", "700", "--row", "normal,equal", "--repeat", "3"];
    let files = ["--mix", "argmax,top-p", "--json", json.str(), "--svg", svg.str()];
    let out = output(&[&shape[..], &files].concat());
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(text(&out.stderr), "", "no bar where nobody watches");
    let written: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json.0).unwrap()).unwrap();
    let steps = written["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 8);
    for (step, rows) in steps.iter().zip([1, 1, 1, 1, 3, 3, 3, 3]) {
        assert_eq!((step["rows"].as_u64(), step["vocab"].as_u64()), (Some(rows), Some(700)));
        let time = |name: &str| step[name].as_f64().unwrap();
        assert!(0.0 < time("p10_us") && time("p10_us") <= time("median_us") && time("median_us") <= time("p90_us"));
        assert!(time("maximum_us") > 0.0 && time("sort_us") > time("maximum_us"));
    }
    assert_eq!(text(&out.stdout).lines().filter(|line| line.starts_with("argmax ")).count(), 4);
    let chart = std::fs::read_to_string(&svg.0).unwrap();
    assert!(chart.starts_with("<svg ") && chart.trim_end().ends_with("</svg>"));
    assert_eq!(chart.matches("top-p 0.9, ").count(), 4);
    let out = output(&[&shape[..], &["--mix", "argmax", "--path", "scalar"]].concat());
    assert!(text(&out.stdout).starts_with("cpu (1 host thread, Scalar), "), "{}", text(&out.stdout));
    refused(&["bench", "--device", "cuda", "--threads", "2"], "--threads is for the CPU device");
    refused(&["bench", "--mix", "one-hot"], "measured on a GPU alone");
}

#[cfg(not(feature = "cuda"))]
#[test]
fn bench_on_a_gpu_says_what_this_build_lacks() {
    refused(&["bench", "--device", "cuda"], "cuda is unavailable");
    refused(&["bench", "--device", "cuda:first"], "cuda:first");
}
