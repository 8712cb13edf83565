//! Every test vector on every device that is there, against results that no device computed.

use samedraw::device::{self, Device};
use samedraw::step_file::{ResultDocument, StepFile};
use samedraw::{Error, Platform};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// The step files, in the order of their names.
fn vectors() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    let entries = std::fs::read_dir(folder).expect("tests/data").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "safetensors")).collect();
    files.sort();
    files
}

/// Demands the expected result of every vector, to the last bit of every logprob. A vector whose force-top-k is above
/// the platform's limit must be refused by that limit instead.
fn every_vector_gives_its_expected_result(device: &Arc<dyn Device>) {
    let files = vectors();
    assert!(files.len() >= 44, "only {} vectors found", files.len());
    let mut wrong = Vec::new();
    for path in files {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let step = StepFile::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let expected = ResultDocument::read(path.with_extension("expected.json")).expect(&name);
        let got = match step.run(device, None) {
            Ok(got) => got,
            Err(Error::ForceTopK { platform, requested, limit }) => {
                assert_eq!(platform, device.info().platform, "{name}");
                assert!(requested > limit && requested == step.columns(), "{name}: {requested} refused, limit {limit}");
                continue;
            }
            Err(error) => panic!("{name} on {}: {error}", device.info().platform),
        };
        let differences = got.differences(&expected);
        wrong.extend(differences.iter().take(5).map(|line| format!("{name}: {line}")));
        // The comparison is trusted for its lines, not for its verdict: the documents must also be equal as values.
        let json = |document: &ResultDocument| -> serde_json::Value {
            serde_json::from_str(&document.to_json().expect(&name)).expect(&name)
        };
        assert_eq!(differences.is_empty(), json(&got) == json(&expected), "{name}: {differences:?}");
    }
    assert!(wrong.is_empty(), "on {}:\n{}", device.info().name, wrong.join("\n"));
}

/// Runs the list on a platform, or says on stderr why it is skipped.
fn on(platform: Platform) {
    match device::open(platform.name()) {
        Ok(device) => every_vector_gives_its_expected_result(&device),
        Err(Error::Unavailable(why)) => {
            let required = format!("SAMEDRAW_REQUIRE_{}", platform.name().to_uppercase());
            let set = std::env::var(&required).is_ok_and(|value| value == "1");
            assert!(!set, "{required} is set, but {why}");
            // Past the test harness, which keeps what `eprintln!` says of a passing test to itself.
            writeln!(std::io::stderr(), "SKIPPED vectors on {platform}: {why}").expect("stderr");
        }
        Err(error) => panic!("{platform}: {error}"),
    }
}

#[cfg(feature = "cpu")]
#[test]
fn cpu() {
    every_vector_gives_its_expected_result(&device::open("cpu").expect("the CPU device"));
}

#[cfg(feature = "cpu")]
#[test]
fn cpu_scalar() {
    use samedraw::device::cpu::{CpuDevice, CpuPath};
    let scalar: Arc<dyn Device> = Arc::new(CpuDevice::with_path(1, CpuPath::Scalar).expect("the scalar code"));
    every_vector_gives_its_expected_result(&scalar);
}

#[test]
fn cuda() {
    on(Platform::Cuda);
}

#[test]
fn ascend() {
    on(Platform::Ascend);
}
