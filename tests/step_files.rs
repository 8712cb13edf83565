//! Step files from a hostile hand: every rule is held, with the place and the value in one line; nothing panics and
//! nothing is allocated on a file's word alone.

use samedraw::Error;
use samedraw::step_file::StepFile;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// V of the test files, one more than a word of mask holds.
const V: usize = 33;

/// A tensor: its name, type, shape and bytes.
type Tensor = (&'static str, &'static str, Vec<usize>, Vec<u8>);

/// A container with a step given as text.
fn container(step: &str, tensors: &[Tensor]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    header.insert("__metadata__".into(), json!({ "step": step }));
    let mut data = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        header.insert((*name).into(), json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets }));
        data.extend(bytes);
    }
    raw(&Value::Object(header).to_string(), &data)
}

/// A container with a header given as text.
fn raw(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

fn f32s(n: usize) -> Vec<u8> {
    (0..n).flat_map(|i| ((i * 37 % 101) as f32 / 16.0).to_le_bytes()).collect()
}

fn i32s(values: impl IntoIterator<Item = i32>) -> Vec<u8> {
    values.into_iter().flat_map(i32::to_le_bytes).collect()
}

/// A decode step: two requests of 3 and 1 rows, N = 4 columns, masks and drafts with columns of their own.
fn decode() -> (Value, Vec<Tensor>) {
    let step = json!({
        "phase": "decode", "force_topk": 4, "requests": [
            { "id": "a", "seq_seed": u64::MAX, "seqlen_q": 3, "seqlen_k": 9, "draft_token_ids": [5, -1], "golden": [7, -1, 2, 4],
              "params": { "temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0, "filter_order": "joint", "top_logprobs": 2 } },
            { "id": "b", "seq_seed": 0, "seqlen_q": 1, "seqlen_k": 1, "params": {} },
        ]
    });
    let tensors = vec![
        ("logits", "F32", vec![4, V], f32s(4 * V)),
        ("token_bitmask", "I32", vec![4, 2], i32s([-1; 8])),
        ("draft_logprobs", "F32", vec![2, 4], f32s(8)),
        ("draft_index", "I32", vec![2, 4], i32s([5, 0, 1, 2, 3, 4, 5, 32])),
    ];
    (step, tensors)
}

fn prefill() -> (Value, Vec<Tensor>) {
    let step = json!({ "phase": "prefill", "requests": [{ "id": "p", "seq_seed": 1, "seqlen_q": 3, "seqlen_k": 7 }] });
    (step, vec![("logits", "BF16", vec![1, V], vec![0; 2 * V])])
}

fn refusal(bytes: &[u8]) -> (String, String) {
    match StepFile::parse(bytes) {
        Err(Error::StepFile { place, what }) => {
            assert!(!place.contains('\n') && !what.contains('\n') && what.len() < 2000, "{place}: {what}");
            (place, what)
        }
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("accepted"),
    }
}

#[track_caller]
fn refused(bytes: &[u8], place: &str, what: &str) {
    let got = refusal(bytes);
    assert!(got.0 == place && got.1.contains(what), "expected {place:?}: {what:?}\n     got {:?}: {:?}", got.0, got.1);
}

#[test]
fn the_files_the_refusals_start_from_are_accepted() {
    let (step, tensors) = decode();
    let file = StepFile::parse(&container(&step.to_string(), &tensors)).unwrap();
    assert_eq!(file.requests[0].params.seq_seed, Some(u64::MAX));
    assert_eq!((file.logits.rows, file.logits.vocab, file.columns()), (4, V, 4));
    let (step, tensors) = prefill();
    StepFile::parse(&container(&step.to_string(), &tensors)).unwrap();
}

/// A change of one value of the decode step: the pointer to it, its new value, then where and what the refusal says.
#[test]
fn values_of_the_step() {
    const TABLE: &[(&str, &str, &str, &str)] = &[
        ("/phase", "\"train\"", "step.phase", "\"train\" where \"prefill\" or \"decode\""),
        ("/phase", "3", "step.phase", "3 where"),
        ("/force_topk", "-1", "step.force_topk", "-1 where an integer from 0"),
        ("/force_topk", "4.0", "step.force_topk", "4.0 where an integer"),
        ("/draft_model", "1", "step.draft_model", "1 where true or false"),
        ("/sum_smaller_probs", "null", "step.sum_smaller_probs", "null where true or false"),
        ("/verify", "\"hope\"", "step.verify", "\"hope\" where \"rejection\" or \"chain\""),
        ("/positions", "\"random\"", "step.positions", "\"strided\" or \"sequential\""),
        ("/temprature", "1", "step", "unknown key \"temprature\""),
        ("/requests", "{}", "step.requests", "an object where a list"),
        ("/requests", "[]", "step.requests", "no request"),
        ("/requests/0", "7", "step.requests[0]", "7 where an object"),
        ("/requests/1/seed", "7", "step.requests[1]", "unknown key \"seed\""),
        ("/requests/1/params/penalty", "7", "step.requests[1].params", "unknown key \"penalty\""),
        ("/requests/1/id", "7", "step.requests[1].id", "7 where a string"),
        (
            "/requests/1/seq_seed",
            "-1",
            "step.requests[1].seq_seed",
            "-1 where an integer from 0 to 18446744073709551615",
        ),
        ("/requests/1/seq_seed", "18446744073709551616", "step.requests[1].seq_seed", "where an integer"),
        ("/requests/1/seq_seed", "1.0", "step.requests[1].seq_seed", "1.0 where an integer"),
        ("/requests/1/seqlen_q", "0", "step.requests[1].seqlen_q", "0 where an integer from 1"),
        ("/requests/1/seqlen_k", "0", "step.requests[1].seqlen_k", "0 where an integer from 1"),
        ("/requests/0/seqlen_k", "2", "step.requests[0].seqlen_k", "2 where seqlen_q = 3"),
        ("/requests/0/draft_token_ids", "[1]", "step.requests[0].draft_token_ids", "1 drafts where seqlen_q - 1 = 2"),
        ("/requests/0/draft_token_ids/1", "0.5", "step.requests[0].draft_token_ids[1]", "0.5 where an integer"),
        ("/requests/1/draft_token_ids", "[1]", "step.requests[1].draft_token_ids", "1 drafts where seqlen_q - 1 = 0"),
        ("/requests/0/golden/2", "33", "step.requests[0].golden[2]", "golden id 33 where -1 (none) to V - 1 = 32"),
        ("/requests/0/golden/3", "-2", "step.requests[0].golden[3]", "golden id -2"),
        ("/requests/0/params", "[]", "step.requests[0].params", "a list where an object"),
        ("/requests/0/params/temperature", "-0.5", "step.requests[0].params.temperature", "-0.5 where 0 to 1e30"),
        ("/requests/0/params/temperature", "1e31", "step.requests[0].params.temperature", "1e31 where 0 to 1e30"),
        ("/requests/0/params/temperature", "1e300", "step.requests[0].params.temperature", "inf where"),
        ("/requests/0/params/temperature", "\"hot\"", "step.requests[0].params.temperature", "where a number"),
        ("/requests/0/params/top_p", "0", "step.requests[0].params.top_p", "0.0 where above 0, at most 1"),
        ("/requests/0/params/top_p", "1.5", "step.requests[0].params.top_p", "1.5 where"),
        ("/requests/0/params/top_k", "0", "step.requests[0].params.top_k", "0 where -1 (off) or 1 to 2147483647"),
        ("/requests/0/params/top_k", "2147483648", "step.requests[0].params.top_k", "2147483648 where"),
        ("/requests/0/params/top_k", "3.0", "step.requests[0].params.top_k", "3.0 where an integer"),
        ("/requests/0/params/min_p", "-0.1", "step.requests[0].params.min_p", "-0.1 where 0 to 1"),
        ("/requests/0/params/min_p", "null", "step.requests[0].params.min_p", "null where a number"),
        ("/requests/0/params/filter_order", "\"both\"", "step.requests[0].params.filter_order", "\"joint\" or"),
        ("/requests/0/params/top_logprobs", "-1", "step.requests[0].params.top_logprobs", "-1 where an integer from 0"),
        ("/requests/0/draft_step", "1", "step.requests[0]", "\"draft_step\" is given, but draft_model is not true"),
        ("/requests/0/last_valid_offset", "1", "step.requests[0]", "\"last_valid_offset\" is given"),
        ("/draft_model", "true", "step.requests[0]", "\"draft_step\" is missing"),
        ("/requests/1/seqlen_k", "9223372036854775808", "step.requests[1].seqlen_k", "where an integer from 1 to"),
    ];
    for (pointer, value, place, what) in TABLE {
        let (mut step, tensors) = decode();
        // Values that `serde_json` would round go in as text.
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match step.pointer_mut(parent).unwrap() {
            Value::Object(map) => _ = map.insert((*key).into(), json!("@")),
            Value::Array(list) => list[key.parse::<usize>().unwrap()] = json!("@"),
            other => panic!("{pointer} leads into {other}"),
        }
        refused(&container(&step.to_string().replace("\"@\"", value), &tensors), place, what);
    }
}

#[test]
fn keys_that_are_missing() {
    for key in ["phase", "requests"] {
        let (mut step, tensors) = decode();
        step.as_object_mut().unwrap().remove(key);
        refused(&container(&step.to_string(), &tensors), "step", &format!("key {key:?} is missing"));
    }
    for key in ["id", "seq_seed", "seqlen_q", "seqlen_k"] {
        let (mut step, tensors) = decode();
        step["requests"][1].as_object_mut().unwrap().remove(key);
        refused(&container(&step.to_string(), &tensors), "step.requests[1]", &format!("key {key:?} is missing"));
    }
}

#[test]
fn rows_that_do_not_add_up() {
    for (rows, said) in [(3, "3 rows, the requests add up to 4"), (5, "5 rows, the requests add up to 4")] {
        let (step, mut tensors) = decode();
        tensors[0] = ("logits", "F32", vec![rows, V], f32s(rows * V));
        refused(&container(&step.to_string(), &tensors), "tensor logits", said);
    }
    let (mut step, tensors) = prefill();
    let request = step["requests"][0].clone();
    step["requests"].as_array_mut().unwrap().push(request);
    refused(&container(&step.to_string(), &tensors), "tensor logits", "1 rows, the requests add up to 2");
}

/// A change of one tensor of the decode step.
#[test]
fn tensors() {
    let huge = vec![0u8; 4 << 23];
    let table: Vec<(usize, Tensor, &str, &str)> = vec![
        (0, ("logits", "F64", vec![4, V], vec![0; 8 * 4 * V]), "tensor logits.dtype", "\"F64\" where \"F32\" or"),
        (0, ("logits", "Q4", vec![4, V], f32s(4 * V)), "tensor logits.dtype", "\"Q4\" where"),
        (0, ("logits", "F32", vec![4 * V], f32s(4 * V)), "tensor logits", "1 dimensions where 2"),
        (0, ("logits", "F32", vec![4, 0], vec![]), "tensor logits", "vocabulary of 0 tokens"),
        (0, ("logits", "F32", vec![0, V], vec![]), "tensor logits", "0 rows, the requests add up to 4"),
        (0, ("logits", "BF16", vec![1, (1 << 24)], huge), "tensor logits", "vocabulary of 16777216 tokens"),
        (0, ("logit", "F32", vec![4, V], f32s(4 * V)), "container", "unknown tensor \"logit\""),
        (1, ("token_bitmask", "I64", vec![4, 2], vec![0; 64]), "tensor token_bitmask.dtype", "\"I64\" where \"I32\""),
        (
            1,
            ("token_bitmask", "I32", vec![4, 1], i32s([-1; 4])),
            "tensor token_bitmask",
            "1 words a row where ceil(V / 32) = 2",
        ),
        (1, ("token_bitmask", "I32", vec![4, 0], vec![]), "tensor token_bitmask", "0 words a row"),
        (1, ("token_bitmask", "I32", vec![3, 2], i32s([-1; 6])), "tensor token_bitmask", "3 rows, the logits have 4"),
        (1, ("token_bitmask", "I32", vec![8], i32s([-1; 8])), "tensor token_bitmask", "1 dimensions where 2"),
        (2, ("draft_logprobs", "F16", vec![2, 4], vec![0; 16]), "tensor draft_logprobs.dtype", "\"F16\" where \"F32\""),
        (
            2,
            ("draft_logprobs", "F32", vec![2, 3], f32s(6)),
            "tensor draft_index",
            "shape [2, 4], draft_logprobs has [2, 3]",
        ),
        (
            2,
            ("draft_logprobs", "F32", vec![3, 4], f32s(12)),
            "tensor draft_index",
            "shape [2, 4], draft_logprobs has [3, 4]",
        ),
        (3, ("draft_index", "I32", vec![2, 5], i32s(0..10)), "tensor draft_index", "shape [2, 5]"),
        (
            3,
            ("draft_index", "I32", vec![2, 4], i32s([0, 1, 2, 3, 9, 8, 7, 9])),
            "tensor draft_index",
            "row 1 names token 9 twice",
        ),
        (3, ("draft_index", "F32", vec![2, 4], f32s(8)), "tensor draft_index.dtype", "\"F32\" where \"I32\""),
    ];
    for (n, tensor, place, what) in table {
        let (step, mut tensors) = decode();
        tensors[n] = tensor;
        refused(&container(&step.to_string(), &tensors), place, what);
    }
}

#[test]
fn draft_tensors_that_do_not_belong() {
    let (step, mut tensors) = decode();
    tensors.truncate(3);
    tensors[2] = ("draft_logprobs", "F32", vec![2, 5], f32s(10));
    refused(&container(&step.to_string(), &tensors), "tensor draft_logprobs", "5 columns where N = 4");
    tensors[2] = ("draft_logprobs", "F32", vec![1, 4], f32s(4));
    refused(&container(&step.to_string(), &tensors), "tensor draft_logprobs", "1 rows, the requests verify 2");

    let (step, mut tensors) = decode();
    tensors.remove(2);
    refused(&container(&step.to_string(), &tensors), "tensor draft_index", "given without draft_logprobs");

    let (step, mut tensors) = prefill();
    tensors.push(("draft_logprobs", "F32", vec![1, V], f32s(V)));
    refused(&container(&step.to_string(), &tensors), "tensor draft_logprobs", "a prefill verifies no drafts");

    let (mut step, tensors) = prefill();
    step["requests"][0]["draft_token_ids"] = json!([1, 2]);
    refused(&container(&step.to_string(), &tensors), "step.requests[0].draft_token_ids", "2 drafts where 0, a prefill");
}

#[test]
fn containers_that_are_malformed() {
    let logits = r#""logits":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}"#;
    let request = r#"{\"id\":\"a\",\"seq_seed\":1,\"seqlen_q\":1,\"seqlen_k\":1}"#;
    let step = format!(r#""__metadata__":{{"step":"{{\"phase\":\"prefill\",\"requests\":[{request}]}}"}}"#);
    StepFile::parse(&raw(&format!("{{{step},{logits}}}"), &[0; 4])).expect("the file the table starts from");
    let table: Vec<(Vec<u8>, &str, &str)> = vec![
        (vec![], "container", "0 bytes are too few"),
        (vec![1, 0, 0], "container", "3 bytes are too few"),
        (raw(&format!("[{}]", 1), &[]), "container header", "not an object"),
        (raw("{", &[]), "container header", "EOF while parsing"),
        (raw(&" ".repeat((32 << 20) + 1), &[]), "container", "33554433 bytes is longer than 33554432"),
        (raw("{}", &[]), "container", "metadata entry step is missing"),
        (raw("{\"__metadata__\":{\"step\":\"{}\"}} x", &[]), "container header", "trailing characters"),
        ([&8u64.to_le_bytes()[..], &[0xff; 8]].concat(), "container", "not UTF-8"),
        (raw(&format!("{{{logits}}}"), &[0; 4]), "container", "metadata entry step is missing"),
        (raw(&format!("{{\"__metadata__\":{{}},{logits}}}"), &[0; 4]), "__metadata__", "key \"step\" is missing"),
        (raw(&format!("{{\"__metadata__\":7,{logits}}}"), &[0; 4]), "__metadata__", "7 where an object"),
        (
            raw(&format!("{{\"__metadata__\":{{\"step\":\"{{\",\"x\":\"\"}},{logits}}}"), &[0; 4]),
            "__metadata__",
            "unknown key \"x\"",
        ),
        (raw(&format!("{{\"__metadata__\":{{\"step\":\"{{\"}},{logits}}}"), &[0; 4]), "step", "EOF while parsing"),
        (raw(&format!("{{{step}}}"), &[]), "container", "tensor logits is missing"),
        (raw(&format!("{{{step},{logits},{logits}}}"), &[0; 4]), "container header", "key \"logits\" appears twice"),
        (raw(&format!("{{{step},{logits}}}"), &[0; 5]), "container", ""),
        (raw(&format!("{{{step},{logits}}}"), &[0; 3]), "container", ""),
        (raw(&format!("{{{step},{}}}", logits.replace("[0,4]", "[4,8]")), &[0; 8]), "container", ""),
        (raw(&format!("{{{step},{}}}", logits.replace("[0,4]", "[4,0]")), &[0; 4]), "container", ""),
        (raw(&format!("{{{step},{}}}", logits.replace("[1,1]", "[1,2]")), &[0; 4]), "container", ""),
        (raw(&format!("{{{step},{}}}", logits.replace("[1,1]", "[1,-1]")), &[0; 4]), "container", ""),
        (
            raw(&format!("{{{step},{}}}", logits.replace("\"shape\"", "\"order\":0,\"shape\"")), &[0; 4]),
            "tensor logits",
            "unknown key \"order\"",
        ),
        (
            raw(&format!("{{{},{logits}}}", step.replace(r#"{\"phase"#, r#"{\"phase\":\"decode\",\"phase"#)), &[0; 4]),
            "step",
            "key \"phase\" appears twice",
        ),
    ];
    for (bytes, place, what) in table {
        refused(&bytes, place, what);
    }
}

#[test]
fn sizes_that_are_only_claimed_are_refused_at_once() {
    let start = Instant::now();
    for length in [u64::MAX, 1 << 62, 1 << 40, 3] {
        refused(&[&length.to_le_bytes()[..], b"{}"].concat(), "container", &format!("{length} bytes is announced"));
    }
    let (step, _) = prefill();
    let claims = [
        ("[4611686018427387904,4611686018427387904]", "[0,4]"),
        ("[1,4611686018427387904]", "[0,4]"),
        ("[1,8388608]", "[0,33554432]"),
        ("[1,8388608]", "[0,18446744073709551615]"),
        ("[18446744073709551615,0]", "[0,0]"),
    ];
    for (shape, offsets) in claims {
        let header = format!(
            r#"{{"__metadata__":{{"step":{}}},"logits":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#,
            Value::String(step.to_string())
        );
        refusal(&raw(&header, &[0; 4]));
    }
    // Rows that only their sum gives away, and one that overflows it.
    for q in [1u64 << 40, i64::MAX as u64] {
        let request = json!({ "id": "a", "seq_seed": 1, "seqlen_q": q, "seqlen_k": i64::MAX });
        let step = json!({ "phase": "decode", "requests": [request, request, request] });
        refusal(&container(&step.to_string(), &[("logits", "F32", vec![3, 1], f32s(3))]));
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn every_truncation_is_refused() {
    let (step, tensors) = decode();
    let bytes = container(&step.to_string(), &tensors);
    for length in 0..bytes.len() {
        refusal(&bytes[..length]);
    }
}

/// The next number of a xorshift generator.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// What still parses must also run, on the CPU where the build has it, and be written and read back.
#[test]
fn flipped_bytes_never_panic() {
    let mut state = 0x5eed_5eed_5eed_5eed;
    let (mut accepted, mut refused) = (0, 0);
    for (step, tensors) in [decode(), prefill()] {
        let valid = container(&step.to_string(), &tensors);
        for _ in 0..3000 {
            let mut bytes = valid.clone();
            for _ in 0..=next(&mut state) % 3 {
                let at = (next(&mut state) % bytes.len() as u64) as usize;
                bytes[at] = match next(&mut state) % 3 {
                    0 => bytes[at] ^ (1 << (next(&mut state) % 8)),
                    1 => b'0' + (next(&mut state) % 10) as u8,
                    _ => next(&mut state) as u8,
                };
            }
            match StepFile::parse(&bytes) {
                Err(_) => refused += 1,
                Ok(file) => {
                    accepted += 1;
                    #[cfg(feature = "cpu")]
                    run(&file);
                    // NaN logprobs are not equal to themselves, so the bytes are compared.
                    let written = file.to_bytes().expect("what was read can be written");
                    let again = StepFile::parse(&written).expect("what was written can be read");
                    assert_eq!(again.to_bytes().unwrap(), written);
                }
            }
        }
    }
    assert!(
        accepted > 500 && refused > 500,
        "{accepted} accepted, {refused} refused: the flips are too mild or too wild"
    );
}

#[cfg(feature = "cpu")]
fn run(file: &StepFile) {
    let device = samedraw::device::open("cpu").expect("the CPU device");
    let document = file.run(&device, None).expect("a step that was accepted runs");
    assert_eq!(document.requests.len(), file.requests.len());
}

#[test]
fn a_step_is_written_as_it_was_read() {
    let (step, tensors) = decode();
    let file = StepFile::parse(&container(&step.to_string(), &tensors)).unwrap();
    assert_eq!(StepFile::parse(&file.to_bytes().unwrap()).unwrap(), file);

    let path = std::env::temp_dir().join(format!("samedraw-step-{}.safetensors", std::process::id()));
    file.write(&path).unwrap();
    let read = StepFile::read(&path);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read.unwrap(), file);

    let mut broken = file;
    broken.requests[1].seqlen_q = 2;
    assert!(broken.to_bytes().is_err(), "a step that does not hold together is not written");
}

#[test]
fn files_that_cannot_be_read_name_their_path() {
    for path in ["/nonexistent/step.safetensors", "/"] {
        let Err(Error::Io { path: named, .. }) = StepFile::read(path) else { panic!("{path}") };
        assert_eq!(named, path);
    }
}
