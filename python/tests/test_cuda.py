"""The package on a GPU, with torch. Skipped, with a line in the summary, where there is none.

SAMEDRAW_CLI names a `samedraw` binary built with the feature `cuda`: its results on all vectors are compared, too.
"""

import json
import os
import statistics
import subprocess
import time

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED: torch is not installed")
if not torch.cuda.is_available():
    if os.environ.get("SAMEDRAW_REQUIRE_CUDA") == "1":
        raise RuntimeError("SAMEDRAW_REQUIRE_CUDA is set, and torch finds no GPU")
    pytest.skip("SKIPPED: torch finds no GPU", allow_module_level=True)

import samedraw
import samedraw.torch
import stepfile
from samedraw.compat import flashinfer as sampling
from test_numpy import flat_token

OPS = torch.ops.samedraw
LIMIT = 16384


def tensor(array, bf16=False):
    made = torch.from_numpy(array.copy()).cuda()
    return made.view(torch.bfloat16) if bf16 else made


def within_limit(path):
    tensors, _, step = stepfile.read(path)
    vocab = tensors["logits"].shape[1]
    return not step.get("force_topk") or min(step["force_topk"], vocab) <= LIMIT


def test_every_vector_to_the_last_bit(vectors):
    done = 0
    for path in filter(within_limit, vectors):
        assert stepfile.differences(path, stepfile.run(path, tensor, "cuda")) == [], path.name
        done += 1
    assert done >= 40, done


def test_the_same_tokens_as_the_command_line(vectors):
    program = os.environ.get("SAMEDRAW_CLI")
    if not program:
        pytest.skip("SKIPPED: SAMEDRAW_CLI names no samedraw binary")
    for path in filter(within_limit, vectors):
        said = subprocess.run(
            [program, "run", str(path), "--device", "cuda", "--out", "-"], check=True, capture_output=True, text=True
        )
        _, _, back, _ = stepfile.run(path, tensor, "cuda")
        tokens = [token for request in json.loads(said.stdout)["requests"] for token in request["tokens"]]
        assert back["tokens"].tolist() == tokens, path.name


def test_nothing_is_copied():
    logits = torch.randn(8, 50_000, device="cuda")
    assert samedraw.address(logits) == logits.data_ptr()
    before = torch.cuda.memory_allocated()
    sampler = samedraw.Sampler(samedraw.Device("cuda"), 8, 50_000)
    for slot in range(8):
        sampler.set_params(slot, seed=slot)
    tokens = torch.zeros(8, dtype=torch.int64, device="cuda")
    positions = torch.ones(8, dtype=torch.int64, device="cuda")
    free = torch.cuda.mem_get_info()[0]
    for _ in range(50):
        sampler.step(logits, positions=positions, tokens=tokens)
    torch.cuda.synchronize()
    assert torch.cuda.mem_get_info()[0] == free, "a step takes no memory"
    assert torch.cuda.memory_allocated() - before <= 4096
    host = samedraw.Sampler(samedraw.Device("cpu"), 8, 50_000)
    for slot in range(8):
        host.set_params(slot, seed=slot)
    there = torch.zeros(8, dtype=torch.int64)
    host.step(logits.cpu(), positions=positions.cpu(), tokens=there)
    assert tokens.tolist() == there.tolist()


def test_arrays_elsewhere_are_named():
    sampler = samedraw.Sampler(samedraw.Device("cuda"), 2, 4)
    logits = torch.zeros(2, 4, device="cuda")
    with pytest.raises(ValueError, match="positions is on cpu, the sampler on cuda:0"):
        sampler.step(logits, positions=torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="logits is on cpu, the sampler on cuda:0"):
        sampler.step(logits.cpu(), positions=torch.zeros(2, dtype=torch.int64))


def test_the_current_stream_orders_the_work():
    vocab = 200_000
    sampler = samedraw.Sampler(samedraw.Device("cuda"), 1, vocab)
    sampler.set_params(0, top_k=1)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    tokens = torch.zeros(1, dtype=torch.int64, device="cuda")
    positions = torch.ones(1, dtype=torch.int64, device="cuda")
    for round in range(20):
        with torch.cuda.stream(stream):
            logits = torch.zeros(1, vocab, device="cuda")
            torch.cuda._sleep(2_000_000)  # what comes is late: on another stream the step would miss it
            logits[0, round * 100] = 5.0
            sampler.step(logits, positions=positions, tokens=tokens)
            assert tokens.item() == round * 100


def test_a_graph_of_torchs_draws_afresh_at_each_replay():
    rows, vocab = 4, 5000
    logits = torch.zeros(rows, vocab, device="cuda")
    params = torch.from_numpy(samedraw.param_rows(rows, seed=list(range(10, 10 + rows)))).cuda()
    positions = torch.zeros(rows, dtype=torch.int64, device="cuda")
    OPS.sample(logits, params, positions)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens, logprobs = OPS.sample(logits, params, positions)
        positions.add_(1)
    positions.zero_()
    seen = []
    for step in range(30):
        graph.replay()
        drawn = tokens.tolist()
        assert drawn == [flat_token(10 + row, step, vocab) for row in range(rows)]
        seen.append(tuple(drawn))
    assert len(set(seen)) == 30
    assert torch.allclose(logprobs, torch.full((rows,), -8.517193, device="cuda"), atol=1e-5)
    # New logits at the same address are read.
    logits[:, 77] = 100.0
    graph.replay()
    assert tokens.tolist() == [77] * rows


def test_a_sampler_in_a_graph_of_torchs():
    rows, vocab = 2, 3000
    sampler = samedraw.Sampler(samedraw.Device("cuda"), rows, vocab)
    for slot in range(rows):
        sampler.set_params(slot, seed=20 + slot, top_p=1.0)
    logits = torch.zeros(rows, vocab, device="cuda", dtype=torch.bfloat16)
    positions = torch.zeros(rows, dtype=torch.int64, device="cuda")
    tokens = torch.zeros(rows, dtype=torch.int32, device="cuda")
    sampler.step(logits, positions=positions, tokens=tokens)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        sampler.step(logits, positions=positions, tokens=tokens, filters=["top_k", "top_p", "min_p"])
    for step in range(10):
        positions.fill_(step)
        graph.replay()
        assert tokens.tolist() == [flat_token(20 + row, step, vocab) for row in range(rows)]
    with pytest.raises(RuntimeError, match="capturing"):
        recording = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recording):
            sampler.record("/tmp/never", 1 << 20, logits, positions=positions, tokens=tokens)


def test_captured_steps_of_our_own():
    stream = torch.cuda.Stream()
    sampler = samedraw.Sampler(samedraw.Device("cuda"), 1, 999)
    sampler.set_params(0, seed=31)
    torch.cuda.synchronize()
    positions = torch.zeros(1, dtype=torch.int64, device="cuda")
    tokens = torch.zeros(1, dtype=torch.int64, device="cuda")
    logits = torch.zeros(1, 999, device="cuda")
    torch.cuda.synchronize()
    captured = sampler.capture(logits, positions=positions, tokens=tokens, stream=stream)
    with torch.cuda.stream(stream):
        for step in range(5):
            positions.fill_(step)
            captured.replay()
            assert tokens.item() == flat_token(31, step, 999)


def test_the_compat_functions_in_a_graph():
    probs = torch.full((3, 1000), 1e-3, device="cuda")
    seed = torch.tensor([5], device="cuda")
    offset = torch.zeros(1, dtype=torch.int64, device="cuda")
    sampling.top_k_top_p_sampling_from_probs(probs, 50, 0.9, seed=seed, offset=offset)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens = sampling.top_k_top_p_sampling_from_probs(probs, 50, 0.9, seed=seed, offset=offset)
    seen = set()
    for step in range(10):
        offset.fill_(step)
        graph.replay()
        seen.add(tuple(tokens.tolist()))
        assert tokens.tolist() == sampling.top_k_top_p_sampling_from_probs(probs, 50, 0.9, seed=5, offset=step).tolist()
    assert len(seen) == 10


def test_compiled():
    logits = torch.randn(4, 1000, device="cuda")
    params = torch.from_numpy(samedraw.param_rows(4, top_p=0.9, seed=[1, 2, 3, 4])).cuda()
    positions = torch.arange(4, device="cuda")

    def decode(logits, params, positions):
        return OPS.sample(logits / 2, params, positions)[0] + 1

    compiled = torch.compile(decode, fullgraph=True)
    assert torch.equal(compiled(logits, params, positions), decode(logits, params, positions))


def test_host_cost_of_a_call(capsys):
    rows, vocab = 8, 1024
    sampler = samedraw.Sampler(samedraw.Device("cuda"), rows, vocab)
    for slot in range(rows):
        sampler.set_params(slot, seed=slot, top_p=0.9)
    logits = torch.randn(rows, vocab, device="cuda")
    positions = torch.arange(rows, device="cuda")
    slots = torch.arange(rows, device="cuda", dtype=torch.int32)
    tokens = torch.zeros(rows, dtype=torch.int64, device="cuda")
    params = torch.from_numpy(samedraw.param_rows(rows, seed=list(range(rows)))).cuda()
    stream = torch.cuda.Stream()
    captured = sampler.capture(logits, positions=positions, slots=slots, tokens=tokens, stream=stream)
    calls = {
        "Sampler.step": lambda: sampler.step(logits, positions=positions, slots=slots, tokens=tokens),
        "CapturedStep.replay": captured.replay,
        "torch.ops.samedraw.sample": lambda: OPS.sample(logits, params, positions),
        "samedraw.sample": lambda: samedraw.sample(logits, params=params, position=positions),
    }

    def median(call):
        times = []
        for _ in range(60):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(50):
                call()
            times.append((time.perf_counter() - start) / 50 * 1e6)
        return statistics.median(times[10:])

    medians = {name: median(call) for name, call in calls.items()}
    with torch.inference_mode():
        medians["the operator in inference mode"] = median(calls["torch.ops.samedraw.sample"])
    with capsys.disabled():
        print("\nhost cost of a call:", ", ".join(f"{name} {us:.1f} us" for name, us in medians.items()))
    assert medians["Sampler.step"] < 10, "the goal is below 10 us"
