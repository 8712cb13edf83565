//! Steps of the crate on the model, by the code that drives a GPU: the kernels, clusters and shared memory are those it
//! chooses, or those that the environment forces (README.md lists the variables).

use crate::common::{Case, assert_same, ends, from_env, generate, halves};
use crate::on_the_model;
use samedraw::device::{self, Device};
use samedraw::pipeline::HostRun;
use samedraw::step_file::{ResultDocument, StepFile};
use std::path::PathBuf;
use std::sync::Arc;

fn gpu() -> Arc<dyn Device> {
    device::open("cuda").expect("the model")
}

/// Whether the case takes the stage of that name.
fn takes(case: &Case, stage: &str) -> bool {
    let selects = case.force_topk != 0 && case.force_topk < case.vocab;
    let greedy = case.params.iter().all(|params| params.top_k == 1) && case.verify.is_none();
    match stage {
        "" => true,
        "select" => selects,
        "argmax" => greedy && !selects && !case.dense && case.kept_ids == 0 && case.top_logprobs == 0,
        "sample" => case.verify.is_none() && !greedy,
        "verify" => case.verify.is_some(),
        "remap" => case.verify.as_ref().is_some_and(|verify| !verify.columns.is_empty()),
        other => panic!("SAMEDRAW_STAGE={other:?} is none of select, argmax, sample, verify, remap"),
    }
}

/// Random steps, each output compared bit for bit with the oracle.
///
/// SAMEDRAW_ROWS rows from SAMEDRAW_SEED on; with SAMEDRAW_STAGE those alone that take a stage, with SAMEDRAW_VOCAB of
/// that vocabulary.
fn random_steps(rows: usize) {
    let (rows, first) = (from_env("SAMEDRAW_ROWS", rows as u64) as usize, from_env("SAMEDRAW_SEED", 1));
    let vocab = from_env("SAMEDRAW_VOCAB", 0) as usize;
    let stage = std::env::var("SAMEDRAW_STAGE").unwrap_or_default();
    let device = gpu();
    let (mut seen, mut seed, mut passed_over) = (0, first, 0);
    while seen < rows {
        let verify = match &*stage {
            "verify" | "remap" => true,
            "argmax" | "sample" => false,
            _ => seed.is_multiple_of(2),
        };
        let case = generate::random_of(seed, verify, (vocab > 0).then_some(vocab));
        seed += 1;
        if !takes(&case, &stage) || !case.fits(&device) {
            passed_over += 1;
            assert!(passed_over < 2000 + 200 * rows, "no case takes the stage {stage:?}");
            continue;
        }
        seen += case.rows;
        let Case { rows, vocab, dtype, force_topk, .. } = case;
        let what = format!("seed {} ({rows} rows, V = {vocab}, {dtype:?}, force_topk {force_topk})", seed - 1);
        assert_same(&case.expected(), &case.run(&device, &what), || what.clone());
    }
    eprintln!("{seen} rows of seeds {first} to {} on the model", seed - 1);
}

#[test]
fn random_steps_are_the_oracles() {
    on_the_model("steps::random_steps_are_the_oracles", &[], || random_steps(600));
}

#[test]
fn random_steps_on_a_card_without_clusters() {
    let env = [("SAMEDRAW_MODEL_SM", "80"), ("SAMEDRAW_SEED", "5000")];
    on_the_model("steps::random_steps_on_a_card_without_clusters", &env, || random_steps(150));
}

/// More blocks a row than short rows get of their own.
#[test]
fn random_steps_in_clusters_of_eight() {
    let env = [("SAMEDRAW_CUDA_VARIANT", "cluster:8"), ("SAMEDRAW_SEED", "6000")];
    on_the_model("steps::random_steps_in_clusters_of_eight", &env, || random_steps(150));
}

#[test]
fn greedy_steps_in_clusters_of_eight() {
    let env = [("SAMEDRAW_CUDA_VARIANT", "cluster:8"), ("SAMEDRAW_STAGE", "argmax"), ("SAMEDRAW_SEED", "9001")];
    on_the_model("steps::greedy_steps_in_clusters_of_eight", &env, || random_steps(60));
}

#[test]
fn random_steps_in_clusters_of_sixteen() {
    let env = [("SAMEDRAW_CUDA_VARIANT", "cluster:16"), ("SAMEDRAW_SEED", "7000")];
    on_the_model("steps::random_steps_in_clusters_of_sixteen", &env, || random_steps(60));
}

#[test]
fn random_steps_of_a_whole_vocabulary() {
    let env = [("SAMEDRAW_VOCAB", "32003"), ("SAMEDRAW_SEED", "8000")];
    on_the_model("steps::random_steps_of_a_whole_vocabulary", &env, || random_steps(12));
}

/// What a server asks for, with drafts or without.
fn served_steps(rows: usize, verify: bool) {
    let (rows, first) = (from_env("SAMEDRAW_ROWS", rows as u64) as usize, from_env("SAMEDRAW_SEED", 1));
    let vocab = from_env("SAMEDRAW_VOCAB", 0) as usize;
    let device = gpu();
    let (mut seen, mut seed) = (0, first);
    while seen < rows {
        let mut case = generate::random_of(seed, verify, (vocab > 0).then_some(vocab));
        seed += 1;
        case.served();
        seen += case.rows;
        let what = format!("seed {} ({} rows, V = {}, {:?})", seed - 1, case.rows, case.vocab, case.dtype);
        assert_same(&case.expected(), &case.run(&device, &what), || what.clone());
    }
    eprintln!("{seen} served rows of seeds {first} to {} on the model", seed - 1);
}

// By clusters that stay and take row after row: more rows than the model's card holds clusters.

#[test]
fn served_steps_in_resident_clusters_of_two() {
    let env = [("SAMEDRAW_CUDA_VARIANT", "resident,cluster:2"), ("SAMEDRAW_SEED", "1000")];
    on_the_model("steps::served_steps_in_resident_clusters_of_two", &env, || served_steps(250, false));
}

#[test]
fn served_steps_in_resident_clusters_of_eight() {
    let env = [("SAMEDRAW_CUDA_VARIANT", "resident,cluster:8"), ("SAMEDRAW_SEED", "2000")];
    on_the_model("steps::served_steps_in_resident_clusters_of_eight", &env, || served_steps(60, false));
}

/// Top-p by lists, and where those run over by the whole row; top-k of fewer tokens than it asks for.
#[test]
fn hard_ends_in_resident_clusters() {
    let env = [("SAMEDRAW_CUDA_VARIANT", "resident,cluster:2")];
    on_the_model("steps::hard_ends_in_resident_clusters", &env, || {
        let device = gpu();
        for (seed, vocab, with_top_k) in [(0, 7001, false), (1, 12_007, false), (2, 3001, true), (3, 2003, true)] {
            let case = ends::ends(seed, vocab, with_top_k);
            assert_same(&case.expected(), &case.run(&device, "ends"), || format!("seed {seed}, V = {vocab}"));
        }
    });
}

/// The same by a cluster a row.
#[test]
fn hard_ends() {
    on_the_model("steps::hard_ends", &[("SAMEDRAW_CUDA_VARIANT", "cluster:2")], || {
        let device = gpu();
        for (seed, vocab, with_top_k) in [(4, 5003, false), (5, 3001, true)] {
            let case = ends::ends(seed, vocab, with_top_k);
            assert_same(&case.expected(), &case.run(&device, "ends"), || format!("seed {seed}, V = {vocab}"));
        }
    });
}

#[test]
fn served_drafts() {
    let env = [("SAMEDRAW_SEED", "3000")];
    on_the_model("steps::served_drafts", &env, || served_steps(300, true));
}

/// On every road that a row with a draft can take.
#[test]
fn served_drafts_of_half_the_mass() {
    on_the_model("steps::served_drafts_of_half_the_mass", &[], || {
        let device = gpu();
        for seed in 0..9 {
            let case = halves::halves(seed);
            assert_same(&case.expected(), &case.run(&device, "halves"), || format!("halves of seed {seed}"));
        }
    });
}

#[test]
fn served_drafts_in_clusters_of_eight() {
    let env = [("SAMEDRAW_CUDA_VARIANT", "cluster:8"), ("SAMEDRAW_SEED", "4000")];
    on_the_model("steps::served_drafts_in_clusters_of_eight", &env, || served_steps(100, true));
}

// More rows than the model's card holds clusters, and a launch behind them for rejected rows.

#[test]
fn served_drafts_in_resident_clusters_of_two() {
    let env = [("SAMEDRAW_CUDA_VARIANT", "resident,cluster:2"), ("SAMEDRAW_SEED", "5000")];
    on_the_model("steps::served_drafts_in_resident_clusters_of_two", &env, || served_steps(200, true));
}

#[test]
fn served_drafts_in_resident_clusters_of_eight() {
    let env = [("SAMEDRAW_CUDA_VARIANT", "resident,cluster:8"), ("SAMEDRAW_SEED", "5500")];
    on_the_model("steps::served_drafts_in_resident_clusters_of_eight", &env, || served_steps(60, true));
}

#[test]
fn served_drafts_of_half_the_mass_in_resident_clusters() {
    let env = [("SAMEDRAW_CUDA_VARIANT", "resident,cluster:2")];
    on_the_model("steps::served_drafts_of_half_the_mass_in_resident_clusters", &env, || {
        let device = gpu();
        for seed in 0..9 {
            // One sampler, which no step leaves anything to the next: other positions are other draws.
            let mut case = halves::halves(seed);
            let mut run = HostRun::new(&device, &case.host()).expect("a step");
            for step in 0..3 {
                let mut got = case.step_on(&mut run, step == 1);
                let want = case.expected();
                if step == 1 {
                    got.status.clone_from(&want.status);
                }
                assert_same(&want, &got, || format!("step {step} of halves of seed {seed}"));
            }
        }
    });
}

#[test]
fn served_drafts_of_a_whole_vocabulary() {
    let env = [("SAMEDRAW_VOCAB", "32003"), ("SAMEDRAW_SEED", "4500")];
    on_the_model("steps::served_drafts_of_a_whole_vocabulary", &env, || served_steps(12, true));
}

/// Every vector of `tests/data` up to the vocabulary SAMEDRAW_VOCAB, in the order of their names.
#[test]
fn every_vector_gives_its_expected_result() {
    on_the_model("steps::every_vector_gives_its_expected_result", &[], || {
        let device = gpu();
        let largest = from_env("SAMEDRAW_VOCAB", 32_003) as usize;
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
        let entries = std::fs::read_dir(folder).expect("tests/data").map(|entry| entry.expect("an entry").path());
        let mut files: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|e| e == "safetensors")).collect();
        files.sort();
        let (mut ran, mut wrong) = (0, Vec::new());
        for path in files {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let step = StepFile::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            if step.logits.vocab > largest {
                continue;
            }
            ran += 1;
            let expected = ResultDocument::read(path.with_extension("expected.json")).expect(&name);
            let got = step.run(&device, None).unwrap_or_else(|error| panic!("{name}: {error}"));
            wrong.extend(got.differences(&expected).iter().take(5).map(|line| format!("{name}: {line}")));
        }
        assert!(ran >= 39 || largest < 32_003, "only {ran} vectors");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        eprintln!("{ran} vectors on the model");
    });
}
