"""The compat functions against references of softmax and sort in torch, float64.

Frequencies are held to the reference by a chi-square test at a level of 1e-6 each: with the fixed seeds here a test either
always passes or always fails, and of 40 tests of a correct sampler one would fail for some choice of seeds in 25,000.
"""

import inspect
import math

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED: torch is not installed")

from samedraw.compat import flashinfer as sampling

DRAWS = 60_000
LEVEL = 1e-6
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def distribution(vocab, seed, device, sharp=2.0):
    logits = torch.randn(vocab, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * sharp
    return logits.float().to(device), torch.softmax(logits.float().double(), -1).to(device)


def fits(samples, probs):
    """Whether the frequencies are those of `probs`; tokens of fewer than 8 expected draws count together."""
    samples, probs = samples.long().cpu(), probs.double().cpu()
    counts = torch.bincount(samples, minlength=len(probs)).double()
    assert counts.sum() == len(samples) and len(counts) == len(probs)
    assert not counts[probs == 0].any(), "a token that is not kept was drawn"
    expected = probs * len(samples)
    rare = expected < 8
    counts = torch.cat([counts[~rare], counts[rare].sum()[None]])
    expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    counts, expected = counts[expected > 0], expected[expected > 0]
    if len(expected) == 1:
        return True
    statistic = ((counts - expected) ** 2 / expected).sum()
    p = torch.special.gammaincc(torch.tensor((len(expected) - 1) / 2, dtype=torch.float64), statistic / 2)
    return p > LEVEL


def test_the_frequencies_test_can_fail():
    _, probs = distribution(50, 1, "cpu")
    drawn = torch.multinomial(probs, DRAWS, replacement=True, generator=torch.Generator().manual_seed(0))
    assert fits(drawn, probs)
    tilted = probs * torch.linspace(1, 1.3, 50)
    assert not fits(drawn, tilted / tilted.sum())


def top_k(probs, k):
    kept = torch.zeros_like(probs)
    order = torch.sort(probs, descending=True, stable=True).indices[:k]
    kept[order] = probs[order]
    return kept / kept.sum()


def top_p(probs, p):
    order = torch.sort(probs, descending=True, stable=True)
    before = order.values.cumsum(0) - order.values
    kept = torch.zeros_like(probs)
    kept[order.indices[before <= p]] = probs[order.indices[before <= p]]
    return kept / kept.sum()


def min_p(probs, m):
    kept = torch.where(probs >= m * probs.max(), probs, 0)
    return kept / kept.sum()


def many(device):
    return torch.zeros(DRAWS, dtype=torch.int32, device=device)


@pytest.mark.parametrize("vocab", [7, 200, 3000])
def test_sampling_from_logits_and_probs(device, vocab):
    logits, probs = distribution(vocab, vocab, device)
    assert fits(sampling.sampling_from_logits(logits[None], many(device), seed=1, offset=0), probs)
    assert fits(sampling.sampling_from_probs(probs.float()[None], many(device), seed=2, offset=0), probs)
    assert fits(sampling.sampling_from_logits(logits.half()[None], many(device), seed=3, offset=9), torch.softmax(logits.half().double(), -1))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 1.0])
def test_top_p_sampling(device, p):
    _, probs = distribution(300, 3, device)
    samples = sampling.top_p_sampling_from_probs(probs.float()[None], p, many(device), seed=4, offset=0)
    assert fits(samples, top_p(probs, p) if p < 1 else probs)


@pytest.mark.parametrize("k", [1, 2, 17, 300])
def test_top_k_sampling(device, k):
    _, probs = distribution(300, 4, device)
    assert fits(sampling.top_k_sampling_from_probs(probs.float()[None], k, many(device), seed=5, offset=0), top_k(probs, k))


@pytest.mark.parametrize("m", [0.0, 0.05, 0.5, 1.0])
def test_min_p_sampling(device, m):
    _, probs = distribution(300, 5, device)
    assert fits(sampling.min_p_sampling_from_probs(probs.float()[None], m, many(device), seed=6, offset=0), min_p(probs, m))


@pytest.mark.parametrize("order", ["top_k_first", "joint"])
@pytest.mark.parametrize("k, p", [(5, 0.9), (40, 0.5), (40, 0.97)])
def test_top_k_top_p_sampling(device, order, k, p):
    logits, probs = distribution(300, 6, device, sharp=1.0)
    if order == "top_k_first":
        want = top_p(top_k(probs, k), p)
    else:
        want = torch.where(top_k(probs, k) > 0, top_p(probs, p), 0)
        want = want / want.sum()
    given = {"filter_apply_order": order, "seed": 7, "offset": 0}
    assert fits(sampling.top_k_top_p_sampling_from_logits(logits[None], k, p, many(device), **given), want)
    assert fits(sampling.top_k_top_p_sampling_from_probs(probs.float()[None], k, p, many(device), **given), want)


def test_the_default_order_is_top_k_first(device):
    logits, _ = distribution(300, 7, device, sharp=0.5)
    given = {"indices": many(device), "seed": 8, "offset": 0}
    default = sampling.top_k_top_p_sampling_from_logits(logits[None], 10, 0.5, **given)
    first = sampling.top_k_top_p_sampling_from_logits(logits[None], 10, 0.5, filter_apply_order="top_k_first", **given)
    joint = sampling.top_k_top_p_sampling_from_logits(logits[None], 10, 0.5, filter_apply_order="joint", **given)
    assert torch.equal(default, first) and not torch.equal(first, joint)
    with pytest.raises(ValueError, match="filter_apply_order = 'last'"):
        sampling.top_k_top_p_sampling_from_logits(logits[None], 10, 0.5, filter_apply_order="last")


def test_parameters_of_each_row(device):
    _, probs = distribution(200, 8, device)
    rows = torch.arange(3, device=device).repeat_interleave(DRAWS)
    ks, ps, ms = (torch.tensor(v, device=device)[rows] for v in ([1, 10, 200], [0.2, 0.7, 0.95], [0.5, 0.1, 0.0]))
    given = {"indices": torch.zeros_like(rows), "seed": 9, "offset": 0}
    by_k = sampling.top_k_sampling_from_probs(probs.float()[None], ks, **given)
    by_p = sampling.top_p_sampling_from_probs(probs.float()[None], ps.float(), **given)
    by_m = sampling.min_p_sampling_from_probs(probs.float()[None], ms.float(), **given)
    for row, (k, p, m) in enumerate(((1, 0.2, 0.5), (10, 0.7, 0.1), (200, 0.95, 0.0))):
        assert fits(by_k[rows == row], top_k(probs, k))
        assert fits(by_p[rows == row], top_p(probs, p))
        assert fits(by_m[rows == row], min_p(probs, m))


def test_rows_of_a_batch_draw_apart(device):
    logits = torch.zeros(4096, 16, device=device)
    tokens = sampling.sampling_from_logits(logits, seed=10, offset=0).long().cpu()
    pairs = tokens[:-1] * 16 + tokens[1:]
    assert fits(tokens, torch.full((16,), 1 / 16))
    assert fits(pairs, torch.full((256,), 1 / 256))
    later = sampling.sampling_from_logits(logits, seed=10, offset=1).long().cpu()
    assert fits(tokens * 16 + later, torch.full((256,), 1 / 256))


def test_softmax(device):
    logits, _ = distribution(5000, 9, device, sharp=3.0)
    rows = torch.stack([logits, logits.flip(0)])
    for temperature in (None, 0.3, 1.0, 2.5, torch.tensor([0.5, 2.0], device=device)):
        divisor = 1.0 if temperature is None else temperature
        divisor = divisor.double()[:, None] if isinstance(divisor, torch.Tensor) else divisor
        want = torch.softmax(rows.double() / divisor, -1)
        got = sampling.softmax(rows, temperature).double()
        large = want > 1e-6
        assert (got[large] / want[large] - 1).abs().max() < 6e-6
        assert (got - want).abs().max() < 1e-6
    greedy = sampling.softmax(rows, 0.0)
    assert greedy.argmax(-1).tolist() == rows.argmax(-1).tolist() and greedy.max(-1).values.tolist() == [1.0, 1.0]


def test_renormalised_probabilities_and_masked_logits(device):
    logits, probs = distribution(400, 10, device)
    for k in (1, 7, 400):
        got = sampling.top_k_renorm_probs(probs.float()[None], k)[0].double()
        assert (got - top_k(probs, k)).abs().max() < 1e-6 and (got > 0).sum() == k
        masked = sampling.top_k_mask_logits(logits[None], k)[0]
        order = torch.sort(logits, descending=True, stable=True).indices
        assert torch.equal(masked[order[:k]], logits[order[:k]]) and masked[order[k:]].isneginf().all()
    for p in (0.1, 0.6, 0.99):
        got = sampling.top_p_renorm_probs(probs.float()[None], p)[0].double()
        want = top_p(probs, p)
        assert (got - want).abs().max() < 1e-6 and torch.equal(got > 0, want > 0)
    half = sampling.top_k_mask_logits(logits.bfloat16()[None], 3)
    assert half.dtype == torch.bfloat16 and (~half.isneginf()).sum() == 3
    assert sampling.top_k_renorm_prob is sampling.top_k_renorm_probs


def test_ties_are_told_apart_by_id(device):
    flat = torch.full((1, 8), 1 / 8, device=device)
    assert sampling.top_k_renorm_probs(flat, 3)[0].tolist() == [pytest.approx(1 / 3)] * 3 + [0] * 5


def test_how_exact_probabilities_are(device):
    """What is drawn with, against what was handed in."""
    probs = torch.rand(1, 4096, generator=torch.Generator().manual_seed(1), dtype=torch.float64).pow(12).float().to(device)
    drawn = sampling.softmax(torch.log(probs.double()).float()).double()
    exact = probs.double() / probs.double().sum()
    for low, bound in ((1e-6, 4e-6), (1e-12, 8e-6)):
        large = exact > low
        assert (drawn[large] / exact[large] - 1).abs().max() < bound


def test_rows_without_a_token(device):
    probs = torch.tensor([[0.5, 0.5], [0.0, 0.0], [math.nan, math.nan]], device=device)
    tokens, valid = sampling.sampling_from_probs(probs, seed=1, offset=0, return_valid=True)
    assert valid.tolist() == [True, False, False] and tokens[1:].tolist() == [-1, -1]
    for name in ("top_p_sampling_from_probs", "top_k_sampling_from_probs", "min_p_sampling_from_probs"):
        _, valid = getattr(sampling, name)(probs, 1, seed=1, offset=0, return_valid=True)
        assert valid.dtype == torch.bool and valid.tolist() == [True, False, False]
    with pytest.raises(ValueError, match="probs contain NaN"):
        sampling.sampling_from_probs(probs, check_nan=True)


def test_types_of_results(device):
    probs = torch.full((2, 4), 0.25, device=device)
    assert sampling.sampling_from_probs(probs).dtype == torch.int32
    for dtype in (torch.int32, torch.int64):
        indices = torch.tensor([1, 0, 1], dtype=dtype, device=device)
        assert sampling.sampling_from_probs(probs, indices).dtype == dtype
    with pytest.raises(ValueError, match="indices have dtype"):
        sampling.sampling_from_probs(probs, torch.tensor([0.0], device=device))


def test_seeds_offsets_and_generators(device):
    probs = torch.full((64, 1000), 1e-3, device=device)
    draw = sampling.sampling_from_probs
    assert torch.equal(draw(probs, seed=3, offset=4), draw(probs, seed=3, offset=4))
    assert not torch.equal(draw(probs, seed=3, offset=4), draw(probs, seed=3, offset=5))
    assert not torch.equal(draw(probs, seed=3, offset=4), draw(probs, seed=4, offset=4))
    one = torch.tensor([3], device=device)
    assert torch.equal(draw(probs, seed=one, offset=one + 1), draw(probs, seed=3, offset=4))
    seeds = torch.arange(64, device=device)
    each = draw(probs, seed=seeds, offset=one.expand(64).contiguous())
    swapped = draw(probs, seed=seeds.flip(0), offset=one.expand(64).contiguous())
    assert torch.equal(each, swapped.flip(0)), "a row with a seed of its own draws the same wherever it stands"
    torch.manual_seed(5)
    first, second = draw(probs), draw(probs)
    torch.manual_seed(5)
    assert torch.equal(draw(probs), first) and not torch.equal(first, second)
    generator = torch.Generator(device).manual_seed(6)
    a, b = draw(probs, generator=generator), draw(probs, generator=generator)
    assert not torch.equal(a, b)
    with pytest.raises(ValueError, match="both be tensors"):
        draw(probs, seed=one, offset=1)
    with pytest.raises(ValueError, match="seed has shape"):
        draw(probs, seed=seeds[:3], offset=seeds[:3])
    with pytest.raises(ValueError, match="top_k = 0 is refused"):
        sampling.top_k_sampling_from_probs(probs, 0)
    with pytest.raises(ValueError, match="top_p = 0 is refused"):
        sampling.top_p_sampling_from_probs(probs, 0)
    bad = sampling.top_k_sampling_from_probs(probs[:2], torch.tensor([0, 3], device=device), seed=1, offset=1)
    assert bad[0] == -1 and bad[1] >= 0


def test_chain_speculative_sampling(device):
    """Whatever the drafts, the output is distributed as the target's; drafts are accepted as often as they overlap."""
    requests, vocab = 40_000, 12
    _, q = distribution(vocab, 11, device, sharp=1.0)
    target = torch.stack([distribution(vocab, 12 + j, device, sharp=1.0)[1] for j in range(3)])
    drawn = torch.multinomial(q.float(), 2 * requests, replacement=True).view(requests, 2).int()
    tokens, accepted, emitted = sampling.chain_speculative_sampling(
        q.float().expand(requests, 2, vocab).contiguous(),
        drawn,
        target.float().expand(requests, 3, vocab).contiguous(),
        seed=13,
        offset=50,
    )
    assert tokens.shape == (requests, 3) and tokens.dtype == torch.int32
    assert fits(tokens[:, 0], target[0])
    second = tokens[:, 1] >= 0
    assert torch.equal(second, emitted >= 1) and torch.equal(tokens[:, 2] >= 0, emitted == 2)
    assert fits(tokens[second, 1], target[1])
    assert fits(tokens[emitted == 2, 2], target[2])
    overlap = [torch.minimum(q, target[j]).sum().item() for j in range(2)]
    for rate, want in ((accepted.double().mean().item(), sum(overlap)), (emitted.double().mean().item(), overlap[0] * (1 + overlap[1]))):
        assert abs(rate - want) < 5 * math.sqrt(2 / requests), (rate, want)
    assert torch.equal(tokens[emitted >= 1, 0], drawn[emitted >= 1, 0])
    total = torch.full((requests,), 100, dtype=torch.int32, device=device)
    _, _, counted = sampling.chain_speculative_sampling(
        q.float().expand(requests, 2, vocab).contiguous(),
        drawn,
        target.float().expand(requests, 3, vocab).contiguous(),
        maybe_output_emitted_draft_token_num=total,
        seed=13,
        offset=50,
    )
    assert counted is total and torch.equal(total, emitted + 100)
    with pytest.raises(ValueError, match="draft_token_ids has shape"):
        sampling.chain_speculative_sampling(target[None, :2], drawn[:1, :1], target[None])


def test_the_documented_example():
    draft = torch.tensor([[[0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.1]]])
    target = torch.tensor([[[0.0, 0.1, 0.6, 0.3], [1.0, 0.0, 0.0, 0.0], [0.7, 0.1, 0.1, 0.1]]])
    tokens, _, emitted = sampling.chain_speculative_sampling(draft, torch.tensor([[2, 1]]), target, seed=1, offset=1)
    # .6 over .3: accepted; 0 over .3: refused, and only token 0 is left.
    assert tokens.tolist() == [[2, 0, -1]] and emitted.tolist() == [1]


SIGNATURES = {
    "softmax": "logits temperature enable_pdl",
    "sampling_from_logits": "logits indices deterministic generator check_nan seed offset",
    "sampling_from_probs": "probs indices deterministic generator check_nan seed offset return_valid",
    "top_p_sampling_from_probs": "probs top_p indices deterministic generator check_nan seed offset return_valid",
    "top_k_sampling_from_probs": "probs top_k indices deterministic generator check_nan seed offset return_valid",
    "min_p_sampling_from_probs": "probs min_p indices deterministic generator check_nan seed offset return_valid",
    "top_k_top_p_sampling_from_logits": "logits top_k top_p indices filter_apply_order deterministic generator check_nan seed offset",
    "top_k_top_p_sampling_from_probs": "probs top_k top_p indices filter_apply_order deterministic generator check_nan seed offset return_valid",
    "top_p_renorm_probs": "probs top_p is_deterministic",
    "top_k_renorm_probs": "probs top_k is_deterministic",
    "top_k_mask_logits": "logits top_k",
    "chain_speculative_sampling": "draft_probs draft_token_ids target_probs maybe_output_accepted_token_num maybe_output_emitted_draft_token_num deterministic generator seed offset",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_have_their_names_and_places(name):
    assert list(inspect.signature(getattr(sampling, name)).parameters) == SIGNATURES[name].split()
