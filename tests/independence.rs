//! A row's results depend on its logits, parameters and position alone: not on its place, its neighbours, the batch's
//! size, nor on how the step is run.

mod common;

use common::arrange::{movable, rows_of, with_rows};
use common::{Case, Rng, assert_same, devices, generate};
use samedraw::Device;
use samedraw::pipeline::{HostResult, HostRun, Variant};
use std::sync::Arc;

const SEEDS: std::ops::Range<u64> = 0..150;

fn each_case(check: impl Fn(&Arc<dyn Device>, u64, &Case, &HostResult, &mut Rng)) {
    for device in devices() {
        for seed in SEEDS {
            let case = movable(generate::random(seed * 2 + 1, false));
            if !case.fits(&device) {
                continue;
            }
            let whole = case.run(&device, &format!("seed {seed}"));
            check(&device, seed, &case, &whole, &mut Rng::new(seed));
        }
    }
}

#[test]
fn permuted_and_repeated_rows_keep_their_results() {
    each_case(|device, seed, case, whole, rng| {
        let mut rows: Vec<usize> = (0..case.rows).collect();
        rng.shuffle(&mut rows);
        rows.push(rows[0]);
        let got = with_rows(case, &rows).run(device, &format!("seed {seed}"));
        assert_same(&rows_of(whole, case.rows, &rows), &got, || format!("seed {seed}, permuted"));
    });
}

#[test]
fn split_batches_give_the_rows_of_the_whole() {
    each_case(|device, seed, case, whole, rng| {
        let cut = rng.within(0, case.rows);
        for part in [0..cut, cut..case.rows].into_iter().filter(|part| !part.is_empty()) {
            let rows: Vec<usize> = part.collect();
            let got = with_rows(case, &rows).run(device, &format!("seed {seed}"));
            assert_same(&rows_of(whole, case.rows, &rows), &got, || format!("seed {seed}, cut at {cut}"));
        }
    });
}

#[test]
fn padding_rows_in_between_change_nothing_and_stay_untouched() {
    each_case(|device, seed, case, whole, rng| {
        let mut rows: Vec<usize> = (0..case.rows).collect();
        let pads = rng.within(1, 5);
        let mut padded = vec![];
        for _ in 0..pads {
            rows.insert(rng.below(rows.len() + 1), usize::MAX);
        }
        let filled: Vec<usize> = rows.iter().map(|&row| if row == usize::MAX { 0 } else { row }).collect();
        let mut with_padding = with_rows(case, &filled);
        for (place, &row) in rows.iter().enumerate() {
            if row == usize::MAX {
                with_padding.row_to_slot.as_mut().expect("explicit slots")[place] = -1;
                padded.push(place);
            }
        }
        let got = with_padding.run(device, &format!("seed {seed}"));
        let places: Vec<usize> = (0..rows.len()).filter(|&place| rows[place] != usize::MAX).collect();
        assert_same(whole, &rows_of(&got, rows.len(), &places), || format!("seed {seed}, padded"));
        let pad = rows_of(&got, rows.len(), &padded);
        let ints =
            [&pad.ranks, &pad.kept_counts, &pad.status, &pad.top_ids, &pad.dense_ids, &pad.kept_ids, &pad.column_ids];
        assert!(pad.tokens.iter().all(|&t| t == -7777) && ints.iter().all(|all| all.iter().all(|&i| i == -7777)));
        let floats = [&pad.logprobs, &pad.raw_logprobs, &pad.sum_smaller_probs, &pad.dense, &pad.column_values];
        assert!(floats.iter().all(|all| all.iter().all(|x| x.is_nan())), "seed {seed}: a padding row was written");
    });
}

#[test]
fn gathered_rows_equal_copied_ones() {
    each_case(|device, seed, case, whole, _| {
        let gather = case.gather.as_ref().expect("explicit rows");
        if gather.iter().any(|&row| row < 0 || row >= case.logits_rows as i64) {
            return;
        }
        let bytes = case.stride * case.dtype.bytes();
        let mut logits = case.logits[..case.offset].to_vec();
        for &row in gather {
            logits.extend(&case.logits[case.offset + row as usize * bytes..][..bytes]);
        }
        let copied = Case { logits, gather: None, logits_rows: case.rows, ..case.clone() };
        assert_same(whole, &copied.run(device, &format!("seed {seed}")), || format!("seed {seed}, copied"));
    });
}

#[test]
fn parameters_of_other_rows_do_not_matter() {
    each_case(|device, seed, case, whole, rng| {
        let slots = case.row_to_slot.as_ref().expect("explicit slots");
        let own = slots[rng.below(case.rows)];
        let mut other = case.clone();
        // Explicit filters would make some of the others' new parameters bad; the table's own always fit.
        other.filters = None;
        let before = Case { filters: None, ..case.clone() }.run(device, &format!("seed {seed}"));
        for (slot, params) in other.params.iter_mut().enumerate() {
            if slot as i32 != own {
                let seq_seed = Some(rng.u64());
                let (top_k, top_p) = (rng.pick(&[-1, 1, 4]), rng.pick(&[1.0, 0.4]));
                *params = samedraw::SamplingParams { top_k, top_p, seq_seed, temperature: 0.9, ..Default::default() };
            }
        }
        let got = other.run(device, &format!("seed {seed}"));
        let rows: Vec<usize> = (0..case.rows).filter(|&row| slots[row] == own).collect();
        let part = |result: &HostResult| rows_of(result, case.rows, &rows);
        assert_same(&part(&before), &part(&got), || format!("seed {seed}, slot {own} among others"));
        assert_eq!(whole.tokens.len(), got.tokens.len());
    });
}

#[test]
fn selected_columns_and_the_fused_way_agree() {
    each_case(|device, seed, case, _, rng| {
        let limit = device.info().platform.max_force_topk().unwrap_or(usize::MAX);
        let force_topk = rng.within(1, case.vocab.min(limit));
        let fused = Case { force_topk, columns: false, ..case.clone() };
        let apart = Case { force_topk, columns: true, ..case.clone() };
        let want = fused.run(device, &format!("seed {seed}"));
        let got = apart.run(device, &format!("seed {seed}"));
        let got = HostResult { column_values: vec![], column_ids: vec![], ..got };
        assert_same(&want, &got, || format!("seed {seed}, N = {force_topk}"));
    });
}

#[test]
fn a_sampler_used_before_gives_what_a_fresh_one_gives() {
    each_case(|device, seed, case, whole, _| {
        let mut run = HostRun::new(device, &case.host()).expect("a step");
        for _ in 0..3 {
            let again = run.run().expect("a result");
            assert_same(whole, &again, || format!("seed {seed}, again"));
        }
    });
}

/// Runs `case` from a graph that `variant` captured.
fn replayed(device: &Arc<dyn Device>, case: &Case, variant: Variant, seed: u64) -> HostResult {
    let mut run = HostRun::new(device, &case.host()).expect("a step");
    let (sampler, step, stream) = run.parts();
    let step = *step;
    // SAFETY: every pointer of the step belongs to `run`, which outlives the graph and its replays.
    unsafe {
        let graph = sampler.capture(stream, &step, variant).unwrap_or_else(|e| panic!("seed {seed}, {variant:?}: {e}"));
        let untouched = run.read().expect("outputs");
        assert!(untouched.tokens.iter().all(|&t| t == -7777), "seed {seed}: capturing ran the step");
        graph.replay(stream).expect("a replay");
        graph.replay(stream).expect("a second replay");
        run.read().expect("outputs")
    }
}

#[test]
fn replays_of_every_variant_that_applies_equal_the_eager_step() {
    for device in devices() {
        for seed in SEEDS {
            let verifies = seed % 2 == 0;
            let case = Case { filters: None, rows_wanted: true, ..generate::random(seed, verifies) };
            if !case.fits(&device) {
                continue;
            }
            let want = case.run(&device, &format!("seed {seed}"));
            let uses = |f: &dyn Fn(&samedraw::SamplingParams) -> bool| {
                case.params.iter().any(|p| p.temperature >= 1e-5 && f(p))
            };
            let (top_k, top_p) = (uses(&|p| p.top_k != -1), uses(&|p| p.top_p != 1.0));
            let min_p = uses(&|p| p.min_p > 0.0);
            for variant in Variant::ALL {
                let filters = variant.filters();
                let covers = (filters.top_k || !top_k) && (filters.top_p || !top_p) && (filters.min_p || !min_p);
                let kind = match variant {
                    Variant::Default => true,
                    Variant::Verify | Variant::VerifyNoFilter => verifies,
                    _ => !verifies,
                };
                if covers && kind {
                    let got = replayed(&device, &case, variant, seed);
                    assert_same(&want, &got, || format!("seed {seed}, replayed as {variant:?}"));
                }
            }
        }
    }
}

#[test]
fn a_replay_reads_the_positions_and_parameters_of_its_day() {
    let zeros = vec![0.0f32; 1024];
    let params = samedraw::SamplingParams { seq_seed: Some(9), ..Default::default() };
    for device in devices() {
        let case = Case::f32(&[&zeros], std::slice::from_ref(&params)).with_tokens_alone();
        let eager = |position: i64, seed: u64| {
            let params = vec![samedraw::SamplingParams { seq_seed: Some(seed), ..Default::default() }];
            Case { positions: Some(vec![position]), params, ..case.clone() }.run(&device, "eager").tokens[0]
        };
        let mut run = HostRun::new(&device, &case.host()).expect("a step");
        let (sampler, step, stream) = run.parts();
        let (step, table) = (*step, Arc::clone(sampler.table()));
        // SAFETY: the step's pointers belong to `run`; `at` holds one i64 and outlives the copy, which is waited for.
        unsafe {
            let graph = sampler.capture(stream, &step, Variant::Default).expect("a graph");
            let mut seen = Vec::new();
            for at in [0i64, 1, 2] {
                device.copy_to_device(stream, step.positions, (&raw const at).cast(), 8).expect("a copy");
                graph.replay(stream).expect("a replay");
                let token = run.read().expect("outputs").tokens[0];
                assert_eq!(token, eager(at, 9), "position {at}");
                seen.push(token);
            }
            assert!(seen[0] != seen[1] && seen[1] != seen[2], "{seen:?}: one draw for every replay");
            let other = samedraw::SamplingParams { seq_seed: Some(10), ..Default::default() };
            table.set(stream, 0, &other).expect("a slot");
            graph.replay(stream).expect("a replay");
            assert_eq!(run.read().expect("outputs").tokens[0], eager(2, 10), "the slot's new seed");
        }
    }
}

#[test]
fn a_graph_outlives_the_sampler_and_keeps_its_workspace() {
    for device in devices() {
        let case = generate::random(4, true);
        let want = case.run(&device, "eager");
        let mut run = HostRun::new(&device, &case.host()).expect("a step");
        let (sampler, step, stream) = run.parts();
        let step = *step;
        // SAFETY: the step's pointers belong to `run`; the graph holds the workspace of the sampler replaced here.
        unsafe {
            let graph = sampler.capture(stream, &step, Variant::Default).expect("a graph");
            let table = Arc::clone(sampler.table());
            *sampler = samedraw::Sampler::new(&device, *sampler.limits(), &table).expect("a sampler");
            graph.replay(stream).expect("a replay");
            assert_same(&want, &run.read().expect("outputs"), || "replayed without its sampler".into());
        }
    }
}

#[cfg(feature = "cpu")]
#[test]
fn a_device_behind_dyn_with_any_number_of_threads_gives_the_same() {
    let shared = samedraw::device::open("cpu").expect("a CPU");
    for threads in [1, 3] {
        let own = Arc::new(samedraw::device::CpuDevice::with_threads(threads));
        let as_dyn: Arc<dyn Device> = own.clone();
        for seed in SEEDS {
            let case = generate::random(seed, seed % 2 == 0);
            let want = case.run(&shared, &format!("seed {seed}"));
            let typed = HostRun::new(&own, &case.host()).and_then(|mut run| run.run()).expect("a result");
            assert_same(&want, &typed, || format!("seed {seed}, {threads} threads"));
            assert_same(&want, &case.run(&as_dyn, "dyn"), || format!("seed {seed}, {threads} threads, dyn"));
        }
    }
}
