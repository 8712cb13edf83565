"""The package on torch's tensors of the CPU: in place, to the last bit, inside torch.compile."""

import itertools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="SKIPPED: torch is not installed")

import samedraw
import samedraw.torch
import stepfile
from test_numpy import flat_token

OPS = torch.ops.samedraw


def tensor(array, bf16=False):
    made = torch.from_numpy(array.copy())
    return made.view(torch.bfloat16) if bf16 else made


def test_every_vector(vectors):
    for path in vectors:
        assert stepfile.differences(path, stepfile.run(path, tensor)) == [], path.name


class Own(torch.Tensor):
    """Tensors of a type of its own do not come by DLPack's table of functions, but as those of older releases do."""


def plain(made):
    return made


def own(made):
    return made if made.is_sparse else made.as_subclass(Own)


@pytest.mark.parametrize("kind", [plain, own])
def test_nothing_is_copied(kind):
    a = kind(torch.zeros(4, 8, dtype=torch.bfloat16))
    assert samedraw.address(a) == a.data_ptr() and samedraw.address(a[2:]) == a.data_ptr() + 32
    tokens = kind(torch.zeros(4, dtype=torch.int64))
    sampler = samedraw.Sampler(samedraw.Device("cpu"), 4, 8)
    for slot in range(4):
        sampler.set_params(slot, seed=slot)
    sampler.step(a, positions=kind(torch.arange(4)), tokens=tokens)
    assert tokens.tolist() == [flat_token(n, n, 8) for n in range(4)]


def test_sample_gives_tensors():
    tokens, logprobs = samedraw.sample(torch.zeros(3, 50), seed=[1, 2, 3], position=[7, 8, 9], logprobs=True)
    assert tokens.dtype == torch.int64 and logprobs.dtype == torch.float32
    assert tokens.tolist() == [flat_token(s, p, 50) for s, p in ((1, 7), (2, 8), (3, 9))]
    positions = torch.tensor([7, 8, 9])
    assert samedraw.sample(torch.zeros(3, 50), seed=[1, 2, 3], position=positions).tolist() == tokens.tolist()
    assert samedraw.sample(torch.zeros(3, 50), seed=4).tolist() == samedraw.sample(np.zeros((3, 50), np.float32), seed=4).tolist()


@pytest.mark.parametrize("kind", [plain, own])
def test_what_is_wrong_is_named(kind):
    for logits, error, text in (
        (torch.zeros(2, 4, dtype=torch.float64), ValueError, "logits has dtype a type not known here"),
        (torch.zeros(4, 2).t(), ValueError, "logits have stride 2 between tokens"),
        (torch.zeros(2, 4, device="meta"), ValueError, "logits is on meta: cpu, cuda or npu is expected"),
        (torch.zeros(2, 4).to_sparse(), ValueError, "logits has no address"),
        (torch.zeros(1, 1, 1, 1, 1), ValueError, "logits has 5 dimensions"),
    ):
        sampler = samedraw.Sampler(samedraw.Device("cpu"), 2, 4)
        with pytest.raises(error, match=text):
            positions, tokens = torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
            sampler.step(kind(logits), positions=kind(positions), tokens=kind(tokens))
    sampler = samedraw.Sampler(samedraw.Device("cpu"), 2, 4)
    for dtype, text in ((torch.int32, "positions has dtype int32"), (torch.bool, "positions has dtype a type not known")):
        with pytest.raises(ValueError, match=text):
            sampler.step(kind(torch.zeros(2, 4)), positions=kind(torch.zeros(2, dtype=dtype)))
    with pytest.raises(ValueError, match="positions has stride 2: 1 is expected"):
        sampler.step(kind(torch.zeros(2, 4)), positions=kind(torch.zeros(4, dtype=torch.int64)[::2]))
    if torch.cuda.is_available():
        with pytest.raises(ValueError, match="positions is on cuda:0, the sampler on cpu"):
            sampler.step(kind(torch.zeros(2, 4)), positions=kind(torch.zeros(2, dtype=torch.int64, device="cuda")))


def columns(rows, seeds):
    f32 = {"dtype": torch.float32}
    temperature, top_p, top_k, min_p = zip(*rows)
    return (
        torch.tensor(temperature, **f32),
        torch.tensor(top_p, **f32),
        torch.tensor(top_k),
        torch.tensor(min_p, **f32),
        torch.tensor(seeds),
    )


def test_rows_of_parameters_made_on_the_device_are_those_made_on_the_host():
    octaves = [2.0**e * m for e in range(-40, 90, 7) for m in (1.0, 1.37, 1.999)]
    rows = [(t, 0.9, 5, 0.1) for t in [0.0, 1e-5, 9.9e-6, 0.7, 1e30, *octaves]]
    rows += [(1.0, p, -1, 0.0) for p in [1.0, 1e-30, 3 / 2**33, 1 / 2**33, 0.1, 0.95, *[0.99 * 2.0**-e for e in range(34)]]]
    rows += [(1.0, 1.0, 1, p) for p in [0.0, 1.0, 0.05, 1e-38, 0.70710678, 0.7071068, *[1.7 * 2.0**-e for e in range(1, 126)]]]
    for first in (False, True):
        seeds = list(range(-2, len(rows) - 2))
        made = OPS.param_rows(*columns(rows, seeds), first)
        order = "top_k_first" if first else "joint"
        for row, (t, p, k, m) in enumerate(rows):
            want = samedraw.param_row(temperature=t, top_p=p, top_k=k, min_p=m, seed=seeds[row] % 2**64, filter_order=order)
            assert [v % 2**64 for v in made[row].tolist()] == want, rows[row]


def test_a_row_of_parameters_out_of_range_is_empty():
    bad = [(-1, 1, -1, 0), (math.nan, 1, -1, 0), (1, 0, -1, 0), (1, 1.1, -1, 0), (1, 1, 0, 0), (1, 1, -2, 0), (1, 1, -1, 2)]
    made = OPS.param_rows(*columns(bad, [1] * len(bad)), False)
    assert made.eq(0).all()
    tokens, logprobs = OPS.sample(torch.zeros(len(bad), 4), made, torch.ones(len(bad), dtype=torch.int64))
    assert tokens.tolist() == [-1] * len(bad) and logprobs.isneginf().all()


def arguments(rows=4, vocab=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    params = torch.from_numpy(samedraw.param_rows(rows, top_p=0.9, seed=list(range(rows))))
    return torch.randn(rows, vocab, generator=generator), params, torch.arange(1, rows + 1)


def test_operators_keep_torchs_rules():
    logits, params, positions = arguments()
    mask = torch.full((4, 2), -1, dtype=torch.int32)
    slots = torch.tensor([3, -1, 0, 1], dtype=torch.int32)
    torch.library.opcheck(OPS.sample.default, (logits, params, positions))
    torch.library.opcheck(OPS.sample.default, (logits, params, positions, slots, slots.clamp(min=0), mask, 8, "top_p", torch.int32))
    torch.library.opcheck(OPS.dense_logprobs.default, (logits, params))
    torch.library.opcheck(OPS.param_rows.default, (*columns([(1.0, 0.9, 5, 0.1)] * 4, [1, 2, 3, 4]), True))
    drafts = torch.tensor([[1], [2]])
    distributions = torch.log_softmax(torch.randn(2, 1, 64), -1)
    verified = (logits.view(2, 2, 64), params[:2].contiguous(), positions[:2].contiguous(), drafts, distributions, False)
    torch.library.opcheck(OPS.verify.default, verified)


def test_there_is_no_gradient():
    logits, params, positions = arguments()
    _, logprobs = OPS.sample(logits.requires_grad_(), params, positions)
    with pytest.raises(RuntimeError, match="no backward through a draw"):
        logprobs.sum().backward()
    # Which is asked of no tensor but by the operators.
    tokens = torch.zeros(4, dtype=torch.int64)
    samedraw.Sampler(samedraw.Device("cpu"), 4, 64).step(logits, params=params, positions=positions, tokens=tokens)


def test_padding_rows_draw_nothing():
    logits, params, positions = arguments()
    alone, _ = OPS.sample(logits, params, positions)
    slots = torch.tensor([0, -1, 2, -1])
    tokens, _ = OPS.sample(logits, params, positions, slots)
    assert tokens.tolist() == [alone[0].item(), -1, alone[2].item(), -1]


def test_compiled_as_one_graph():
    logits, params, positions = arguments()

    def decode(logits, params, positions):
        tokens, logprobs = OPS.sample(logits * 2, params, positions + 1, filters="top_p")
        return tokens + 1, logprobs

    compiled = torch.compile(decode, fullgraph=True, backend="aot_eager")
    for got, want in zip(compiled(logits, params, positions), decode(logits, params, positions)):
        assert torch.equal(got, want)


def test_verification_of_all_ways():
    requests, each, vocab = 3, 4, 32
    logits = torch.full((requests, each, vocab), -50.0)
    for request, row in itertools.product(range(requests), range(each)):
        logits[request, row, request + row] = 50.0
    params = torch.from_numpy(samedraw.param_rows(requests, seed=[1, 2, 3]))
    positions = torch.tensor([5, 6, 7])
    drafts = torch.tensor([[0, 1, 2], [1, 9, 3], [9, 3, 4]])
    for chain in (False, True):
        tokens, accepted, alone = OPS.verify(logits, params, positions, drafts, None, chain)
        assert tokens.tolist() == [[0, 1, 2, 3], [1, 2, -1, -1], [2, -1, -1, -1]]
        assert accepted.tolist() == [3, 1, 0]
        assert alone.tolist() == [[1, 1, 1], [1, 0, 1], [0, 1, 1]]
