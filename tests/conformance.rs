//! Random steps on every device, each output compared bit for bit with the oracle.
//!
//! `SAMEDRAW_ROWS` sets the number of rows, `SAMEDRAW_SEED` where the cases start; a failure names the case's seed.

mod common;

use common::{Case, assert_same, devices, ends, from_env, generate, halves, oracle};
use samedraw::device::{DeviceBuffer, Stream};
use samedraw::pipeline::{HostResult, HostRun, Index, VerifyMode};
use std::collections::BTreeMap;

const ROWS: u64 = 20_000;

fn describe(seed: u64, case: &Case) -> String {
    let verify = case.verify.as_ref().and_then(|v| v.mode);
    let Case { rows, vocab, dtype, force_topk, .. } = case;
    format!("seed {seed} ({rows} rows, V = {vocab}, {dtype:?}, force_topk {force_topk}, verify {verify:?})")
}

#[test]
fn every_output_of_random_steps_is_the_oracles() {
    let (rows, first) = (from_env("SAMEDRAW_ROWS", ROWS) as usize, from_env("SAMEDRAW_SEED", 1));
    eprintln!("conformance: {rows} rows from seed {first}");
    let devices = devices();
    let (mut seen, mut seed, mut met) = (0, first, BTreeMap::new());
    while seen < rows {
        let case = generate::random(seed, seed.is_multiple_of(2));
        let want = case.expected();
        for device in devices.iter().filter(|device| case.fits(device)) {
            let got = case.run(device, &describe(seed, &case));
            assert_same(&want, &got, || format!("{} on {}", describe(seed, &case), device.info().platform));
        }
        tally(&case, &want, &mut met);
        seen += case.rows;
        seed += 1;
    }
    eprintln!("conformance: met {met:?}");
    // The generator is only worth its name while it goes on reaching every corner.
    for (what, count) in met {
        assert!(count as u64 * 4000 >= seen as u64 || seen < 4000, "{what}: only {count} of {seen} rows");
    }
}

#[test]
fn drafts_of_half_the_mass_are_the_oracles() {
    let devices = devices();
    for seed in 0..60 {
        let case = halves::halves(seed);
        let want = case.expected();
        for device in &devices {
            let got = case.run(device, &describe(seed, &case));
            assert_same(&want, &got, || format!("halves of {} on {}", describe(seed, &case), device.info().platform));
        }
        let accepted: i32 = want.accepted.iter().sum();
        assert!(0 < accepted && (accepted as usize) < case.rows, "seed {seed}: {accepted} of {} drafts", case.rows);
    }
}

/// At a size of which a GPU holds the rows in its shared memory, too.
#[test]
fn ends_that_are_hard_to_find_are_the_oracles() {
    let devices = devices();
    for (seed, vocab) in [(0, 3001), (1, 9001), (2, 20_011), (3, 40_009), (4, 30_001), (5, 20_011), (6, 70_001)] {
        let case = ends::ends(seed, vocab, seed >= 4);
        let want = case.expected();
        for device in &devices {
            let got = case.run(device, &describe(seed, &case));
            assert_same(&want, &got, || format!("ends of {} on {}", describe(seed, &case), device.info().platform));
        }
    }
}

/// Counts what the rows of a case are, by the oracle.
fn tally(case: &Case, want: &HostResult, met: &mut BTreeMap<&'static str, usize>) {
    let mut add = |what, n: usize| *met.entry(what).or_default() += n;
    let status = |bit| want.status.iter().filter(|&&s| s > 0 && s & bit != 0).count();
    add("nan_logits", status(oracle::NAN_LOGITS));
    add("inf_logits", status(oracle::INF_LOGITS));
    add("empty_row", status(oracle::EMPTY_ROW));
    add("nan_draft", status(oracle::NAN_DRAFT));
    add("bad_index", status(oracle::BAD_INDEX));
    add("padding", want.status.iter().filter(|&&s| s == -7777).count());
    add("golden token", case.golden.iter().flatten().zip(&want.tokens).filter(|(g, t)| **g >= 0 && g == t).count());
    add("selected columns handed out", if case.columns { case.rows } else { 0 });
    add("16-bit logits", if case.dtype.bytes() == 2 { case.rows } else { 0 });
    add("vocabulary above 3000", if case.vocab > 3000 { case.rows } else { 0 });
    let some = |n: &&i32| (2..case.vocab as i32).contains(*n);
    add("some but not all kept", want.kept_counts.iter().filter(some).count());
    for (mode, accepts, rejects) in [
        (VerifyMode::Rejection, "rejection: accepted", "rejection: rejected"),
        (VerifyMode::OneHot, "one-hot: accepted", "one-hot: rejected"),
        (VerifyMode::Chain, "chain: accepted", "chain: rejected"),
    ] {
        let Some(verify) = case.verify.as_ref().filter(|v| v.mode == Some(mode)) else { continue };
        for (request, &accepted) in want.accepted.iter().enumerate() {
            let drafts = verify.first_rows[request + 1] - verify.first_rows[request] - 1;
            add(accepts, accepted as usize);
            add(rejects, usize::from(accepted < drafts));
        }
        add("drafts moved to the target's columns", if verify.columns.is_empty() { 0 } else { case.rows });
    }
}

#[test]
fn indices_of_either_width_and_tokens_of_either_give_the_same() {
    for device in &devices() {
        for seed in 0..200 {
            let case = generate::random(seed, seed % 2 == 0);
            if !case.rows_wanted || !case.fits(device) {
                continue;
            }
            let mut run = HostRun::new(device, &case.host()).expect("a step");
            let mut step = *run.parts().1;
            let narrow = |wide: &[i64]| wide.iter().map(|&i| i32::try_from(i)).collect::<Result<Vec<_>, _>>().ok();
            let wide = |narrow: &[i32]| narrow.iter().map(|&i| i64::from(i)).collect::<Vec<_>>();
            // i64 entries that i32 cannot hold stay as they are.
            if let Some(gather) = case.gather.as_deref().and_then(narrow) {
                let ptr = run.put(&gather).expect("room");
                step.gather = Some(Index::i32(ptr));
            }
            if let Some(golden) = case.golden.as_deref().and_then(narrow) {
                let ptr = run.put(&golden).expect("room");
                step.golden = Some(Index::i32(ptr));
            }
            if let Some(slots) = &case.row_to_slot {
                let ptr = run.put(&wide(slots)).expect("room");
                step.row_to_slot = Some(Index::i64(ptr));
            }
            if let (Some(_), Some(index)) = (&case.mask, &case.mask_index) {
                let ptr = run.put(&wide(index)).expect("room");
                step.mask.as_mut().expect("a mask").index = Some(Index::i64(ptr));
            }
            if let Some(drafted) = &case.verify {
                let requests = run.put(&wide(&drafted.row_to_request)).expect("room");
                let ids = narrow(&drafted.ids).map(|ids| run.put(&ids).expect("room"));
                let rows = (!drafted.rows.is_empty()).then(|| run.put(&wide(&drafted.rows)).expect("room"));
                let verify = step.verify.as_mut().expect("verification");
                verify.row_to_request = Index::i64(requests);
                if let Some(ids) = ids {
                    verify.draft_ids = Index::i32(ids);
                }
                if let (Some(drafts), Some(rows)) = (&mut verify.drafts, rows) {
                    drafts.rows = Some(Index::i64(rows));
                }
            }
            let (sampler, _, stream) = run.parts();
            let own = Stream::new(device).expect("a stream");
            let tokens = DeviceBuffer::from_slice(device, &own, &vec![-7777i32; case.rows]).expect("room");
            step.outputs.tokens = Some(Index::i32(tokens.ptr()));
            // SAFETY: the step's pointers belong to `run` and `tokens`; each array holds what the one before it held.
            unsafe { sampler.step(stream, &step) }.expect("a step");
            let mut got = run.read().expect("a result");
            let mut read = vec![0i32; case.rows];
            tokens.read(&own, &mut read).expect("tokens");
            got.tokens = wide(&read);
            assert_same(&case.expected(), &got, || format!("{} on {}", describe(seed, &case), device.info().platform));
        }
    }
}
