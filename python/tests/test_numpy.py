"""The package on arrays of numpy: in place, to the last bit, and with errors that name what is wrong."""

import ast
import json
import pathlib
import threading
import time

import numpy as np
import pytest

import samedraw
import stepfile

V = 100


def plain(array, bf16=False):
    return array


def splitmix64(seed, n):
    mask = (1 << 64) - 1
    z = (seed + (n + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def flat_token(seed, position, vocab):
    """The token that a row of equal logits draws."""
    return ((splitmix64(seed, 3 * position) >> 11) * vocab) >> 53


def test_every_vector(vectors):
    done = 0
    for path in vectors:
        _, types, _ = stepfile.read(path)
        if types["logits"] == "BF16":
            continue  # numpy has none; the tests of torch run them
        assert stepfile.differences(path, stepfile.run(path, plain)) == [], path.name
        done += 1
    assert done >= 30, done


def test_nothing_is_copied():
    array = np.zeros((3, 7), dtype=np.float32)
    assert samedraw.address(array) == array.ctypes.data
    assert samedraw.address(array[1:]) == array.ctypes.data + 28
    read_only = array[:]
    read_only.flags.writeable = False
    try:
        assert samedraw.address(read_only) == array.ctypes.data
    except ValueError as error:  # a numpy that exports nothing read-only
        assert "DLPack" in str(error)


def test_sample_draws_what_the_semantics_say():
    logits = np.zeros((3, V), dtype=np.float32)
    tokens = samedraw.sample(logits, seed=[5, 6, 7], position=[10, 20, 30])
    assert tokens.tolist() == [flat_token(s, p, V) for s, p in ((5, 10), (6, 20), (7, 30))]
    assert samedraw.sample(logits[0], seed=5, position=10) == tokens[0]
    assert samedraw.sample(logits, seed=2**64 - 1).tolist() == [flat_token(2**64 - 1, 0, V)] * 3
    tokens, logprobs = samedraw.sample(logits, seed=1, logprobs=True)
    assert np.allclose(logprobs, -np.log(V), atol=1e-6)
    unseeded = {tuple(samedraw.sample(logits).tolist()) for _ in range(8)}
    assert len(unseeded) > 1
    sharp = np.array([0.0, 3.0, 2.0, -1.0], dtype=np.float16)
    assert samedraw.sample(sharp, top_k=1) == 1
    mask = np.array([0b1001], dtype=np.int32)
    assert samedraw.sample(sharp[None], top_k=1, mask=mask[None])[0] == 0
    assert samedraw.sample(sharp, temperature=[0.5], top_p=np.array([0.01])) == 1
    rows = samedraw.param_rows(3, top_k=[1, 2, 3], seed=9)
    assert rows.shape == (3, 8) and rows[:, 3].tolist() == [1, 2, 3]
    assert samedraw.sample(np.tile(sharp, (3, 1)), params=rows)[0] == 1


def test_a_row_with_padding_and_strides_is_read_in_place():
    wide = np.full((4, 16), 1e30, dtype=np.float32)
    wide[:, :10] = np.arange(10)
    assert samedraw.sample(wide[::2, :10], top_k=1).tolist() == [9, 9]


REFUSED = [
    ({"logits": np.zeros((2, V), dtype=np.float64)}, ValueError, "logits has dtype a type not known here: float32"),
    ({"logits": np.zeros((2, V), dtype=np.int32)}, ValueError, "logits has dtype int32: float32 or float16 or bfloat16"),
    ({"logits": np.zeros((2, 3, V), dtype=np.float32)}, ValueError, r"logits have shape \[2, 3, 100\]"),
    ({"logits": np.zeros((V, 2), dtype=np.float32).T}, ValueError, "logits have stride 2 between tokens"),
    ({"logits": np.zeros((2, V), dtype=np.float32)[::-1]}, ValueError, "logits have stride -100 between rows"),
    ({"logits": [[0.0] * V]}, TypeError, "logits is a list"),
    ({"positions": np.zeros(2, dtype=np.int32)}, ValueError, "positions has dtype int32: int64 is expected"),
    ({"positions": np.zeros(3, dtype=np.int64)}, ValueError, r"positions has shape \[3\]: \[2\] is expected"),
    ({"positions": np.zeros(4, dtype=np.int64)[::2]}, ValueError, "positions has stride 2: 1 is expected"),
    ({"positions": None}, ValueError, "positions"),
    ({"tokens": np.zeros(2, dtype=np.int16)}, ValueError, "tokens has dtype a type not known here: int32 or int64"),
    ({"tokens": np.zeros((2, 1), dtype=np.int64)}, ValueError, r"tokens has shape \[2, 1\]"),
    ({"logprobs": np.zeros(2, dtype=np.float64)}, ValueError, "logprobs has dtype"),
    ({"mask": np.zeros((2, 3), dtype=np.int32)}, ValueError, "mask stride = 3 is refused: at least ceil"),
    ({"mask_index": np.zeros(2, dtype=np.int32)}, ValueError, "mask_index is given without a mask"),
    ({"top_ids": np.zeros((2, 3), dtype=np.int32)}, ValueError, "top_ids is given without top_logprobs"),
    ({"dense": np.zeros((2, V - 1), dtype=np.float32)}, ValueError, "dense stride = 99 is refused"),
    ({"dense_ids": np.zeros((2, V), dtype=np.int32)}, ValueError, "dense_ids is given without dense"),
    ({"params": np.zeros((2, 7), dtype=np.int64)}, ValueError, r"params have shape \[2, 7\]"),
    ({"filters": ["top_q"]}, ValueError, 'filter "top_q" is refused'),
    ({"force_topk": 5}, ValueError, "force_topk = 5 is refused: at most the sampler's limit = 0"),
    ({"rows": 99}, ValueError, r"positions has shape \[2\]: \[99\] is expected"),
    ({"vocab": V + 1}, ValueError, "vocab = 101 is refused: the logits have 100 columns"),
    ({"verify": 3}, TypeError, "verify is to be a samedraw.Verify"),
    ({"temperature": 1.0}, TypeError, 'a step has no argument "temperature"'),
    ({"stream": "main"}, TypeError, "stream is a str"),
]


@pytest.mark.parametrize("change, error, text", REFUSED, ids=[next(iter(c)) + str(i) for i, (c, _, _) in enumerate(REFUSED)])
def test_what_is_wrong_is_named(change, error, text):
    sampler = samedraw.Sampler(samedraw.Device("cpu"), 2, V)
    given = {
        "logits": np.zeros((2, V), dtype=np.float32),
        "positions": np.zeros(2, dtype=np.int64),
        "tokens": np.zeros(2, dtype=np.int64),
    }
    logits = {**given, **change}.pop("logits")
    arguments = {k: v for k, v in {**given, **change}.items() if k != "logits"}
    with pytest.raises(error, match=text):
        sampler.step(logits, **arguments)


def test_parameters_and_devices_out_of_range_are_named():
    for change, text in (
        ({"temperature": -1}, "temperature = -1.0 is refused"),
        ({"temperature": float("nan")}, "temperature = NaN"),
        ({"top_p": 0}, "top_p = 0.0 is refused"),
        ({"top_k": 0}, "top_k = 0 is refused"),
        ({"min_p": 1.5}, "min_p = 1.5 is refused"),
        ({"filter_order": "first"}, 'filter_order = "first" is refused'),
        ({"top_p": [0.5]}, "top_p has 1 values: one for each of 2 rows"),
    ):
        with pytest.raises(ValueError, match=text):
            samedraw.sample(np.zeros((2, 4), dtype=np.float32), **change)
    with pytest.raises(TypeError, match='no sampling parameter "top"'):
        samedraw.param_row(top=1)
    with pytest.raises(NotImplementedError, match="tpu"):
        samedraw.Device("tpu")
    table = samedraw.ParamTable(samedraw.Device("cpu"), 2)
    with pytest.raises(ValueError, match="slot = 2 is refused"):
        table.set(2)
    with pytest.raises(ValueError, match="of another device"):
        samedraw.Sampler(samedraw.Device("cpu"), 1, 4, table=table)
    read_only = np.zeros(1, dtype=np.int64)
    read_only.flags.writeable = False
    sampler = samedraw.Sampler(samedraw.Device("cpu"), 1, 4)
    with pytest.raises(ValueError, match="tokens"):
        sampler.step(np.zeros(4, dtype=np.float32), positions=np.ones(1, dtype=np.int64), tokens=read_only)


def test_captured_steps_read_their_arrays_anew_and_keep_them():
    sampler = samedraw.Sampler(samedraw.Device("cpu"), 2, V)
    for slot in range(2):
        assert sampler.set_params(slot, seed=slot + 5) == slot + 5
    positions, tokens = np.array([1, 1], dtype=np.int64), np.zeros(2, dtype=np.int32)
    captured = sampler.capture(np.zeros((2, V), dtype=np.float32), positions=positions, tokens=tokens, stream=7)
    assert tokens.tolist() == [0, 0]
    del sampler
    for step in range(5):
        positions[:] = [step, step + 9]
        captured.replay()
        assert tokens.tolist() == [flat_token(5, step, V), flat_token(6, step + 9, V)]
    with pytest.raises(ValueError, match="variant"):
        samedraw.Sampler(samedraw.Device("cpu"), 2, V).capture(np.zeros((2, V), dtype=np.float32), variant="all")


def test_a_recording_holds_the_step(tmp_path):
    sampler = samedraw.Sampler(samedraw.Device("cpu"), 2, V)
    sampler.set_params(0, seed=11, temperature=0.7, top_p=0.9)
    sampler.set_params(1, seed=12, top_k=5)
    logits = np.random.default_rng(1).normal(size=(2, V)).astype(np.float32)
    given = {
        "positions": np.array([41, 100], dtype=np.int64),
        "slots": np.array([1, 0], dtype=np.int64),
        "tokens": np.zeros(2, dtype=np.int64),
    }
    sampler.step(logits, **given)
    path = tmp_path / "step.safetensors"
    with pytest.raises(ValueError, match="max_bytes = 500"):
        sampler.record(path, 500, logits, **given)
    sampler.record(path, 1 << 20, logits, **given)
    tensors, _, step = stepfile.read(path)
    assert tensors["logits"].tobytes() == logits.tobytes()
    assert [r["seqlen_k"] for r in step["requests"]] == [41, 100]
    assert [r["seq_seed"] for r in step["requests"]] == [12, 11]
    _, _, back, _ = stepfile.run(path, plain)
    assert back["tokens"].tolist() == given["tokens"].tolist()


def test_prompt_logprobs_in_pieces():
    sampler = samedraw.Sampler(samedraw.Device("cpu"), 2, 5, slots=1)
    sampler.set_params(0)
    p = np.array([0.5, 0.25, 0.15, 0.06, 0.04])
    logits = np.tile(np.log(p).astype(np.float32), (5, 1))
    targets, out = np.array([0, 4, 2, 2, 1], dtype=np.int64), np.zeros(5, dtype=np.float32)
    sampler.prompt_logprobs(targets, np.zeros(5, dtype=np.int32), logits, out)
    assert np.allclose(out, np.log(p[targets]), atol=1e-6)
    with pytest.raises(ValueError, match="logits have 4 rows"):
        sampler.prompt_logprobs(targets, np.zeros(5, dtype=np.int32), logits[:4], out)


def test_a_lent_workspace_is_used_and_held():
    device = samedraw.Device("cpu")
    needed = samedraw.Sampler.workspace_bytes(device, 2, V)
    memory = np.zeros(needed + 255, dtype=np.uint8)
    start = -memory.ctypes.data % 256
    sampler = samedraw.Sampler(device, 2, V, workspace=memory[start : start + needed])
    sampler.set_params(0, seed=3)
    tokens = np.zeros(1, dtype=np.int64)
    del memory
    sampler.step(np.zeros(V, dtype=np.float32), positions=np.array([4], dtype=np.int64), tokens=tokens)
    assert tokens[0] == flat_token(3, 4, V)
    with pytest.raises(ValueError, match="workspace"):
        samedraw.Sampler(device, 2, V, workspace=np.zeros(8, dtype=np.uint8))


def test_python_runs_while_a_step_does():
    vocab, shared = 100_000, 64
    logits = np.random.default_rng(2).normal(size=(shared, vocab)).astype(np.float32)
    # More rows on a host with more cores, until a step takes long enough to see something beside it.
    for rows in (256 << n for n in range(8)):
        sampler = samedraw.Sampler(samedraw.Device("cpu"), rows, vocab, slots=1)
        sampler.set_params(0, seed=1, top_p=0.9)
        given = {
            "gather": np.arange(rows, dtype=np.int32) % shared,
            "slots": np.zeros(rows, dtype=np.int32),
            "positions": np.arange(rows, dtype=np.int64),
            "tokens": np.zeros(rows, dtype=np.int64),
        }
        start = time.perf_counter()
        sampler.step(logits, **given)
        if time.perf_counter() - start > 0.1:
            break
    done, ticks = threading.Event(), []

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.perf_counter()
    sampler.step(logits, **given)
    end = time.perf_counter()
    done.set()
    thread.join()
    within = [t for t in ticks if start + 0.001 < t < end - 0.001]
    assert end - start > 0.01, "the step is too short to tell"
    assert within, "Python stood still during the step"


def test_threads_share_a_sampler():
    sampler = samedraw.Sampler(samedraw.Device("cpu"), 1, V)
    sampler.set_params(0, seed=8)
    wrong = []

    def draw(first):
        for position in range(first, first + 200):
            tokens = np.zeros(1, dtype=np.int64)
            sampler.step(np.zeros(V, dtype=np.float32), positions=np.array([position]), tokens=tokens)
            if tokens[0] != flat_token(8, position, V):
                wrong.append(position)

    threads = [threading.Thread(target=draw, args=(1000 * n,)) for n in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert wrong == []


def test_the_stubs_are_those_of_the_package():
    stubs = ast.parse((pathlib.Path(samedraw.__file__).parent / "_samedraw.pyi").read_text())
    classes = {node.name: node for node in stubs.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in stubs.body if isinstance(node, ast.FunctionDef)}
    compiled = samedraw._samedraw
    public = {name for name in dir(compiled) if not name.startswith("_")}
    assert public == set(classes) | functions
    for name, node in classes.items():
        stubbed = {item.name for item in node.body if isinstance(item, ast.FunctionDef)} - {"__init__"}
        found = {n: v for n, v in vars(getattr(compiled, name)).items() if not n.startswith("_")}
        assert stubbed == set(found), name
        assert all(value.__doc__ for value in found.values()) and getattr(compiled, name).__doc__, name
    step = next(item for item in classes["Sampler"].body if isinstance(item, ast.FunctionDef) and item.name == "step")
    sampler = samedraw.Sampler(samedraw.Device("cpu"), 1, 4)
    for argument in step.args.kwonlyargs:
        with pytest.raises(ValueError, match="positions"):  # known, and not what is missing
            sampler.step(np.zeros(4, dtype=np.float32), tokens=np.zeros(1, dtype=np.int64), **(
                {} if argument.arg == "tokens" else {argument.arg: None}
            ))
    verify = next(item for item in classes["Verify"].body if isinstance(item, ast.FunctionDef))
    samedraw.Verify("chain", **{a.arg: None for a in verify.args.kwonlyargs if a.arg != "positions"})


def test_what_a_platform_lacks_is_said():
    found = {name: (there, text) for name, there, text in samedraw.devices()}
    assert found["cpu"][0] and set(found) == {"cpu", "cuda", "ascend"}
    assert all(text for _, text in found.values())
    assert samedraw.status_names(20) == ["bad_index", "empty_row"]


def test_json_of_the_vectors_is_what_is_compared(vectors):
    """The comparison of this folder finds a difference where there is one."""
    path = next(path for path in vectors if path.name == "prefill_small.safetensors")
    requests, rows, back, kept = stepfile.run(path, plain)
    back["tokens"] = back["tokens"].copy()
    back["tokens"][0] += 1
    back["logprobs"] = back["logprobs"].copy()
    back["logprobs"][1] = np.nextafter(back["logprobs"][1], np.float32(0))
    found = stepfile.differences(path, (requests, rows, back, kept))
    assert len(found) == 2, json.dumps(found)
