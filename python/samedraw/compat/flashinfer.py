"""FlashInfer's sampling functions: the same names, arguments and return values, on the CPU too.

    from samedraw.compat import flashinfer as sampling    # in place of: from flashinfer import sampling

What differs:

- *Random numbers*: a draw is decided by a seed and a position, ``seed`` and ``offset`` here. A row of a batch uses
  ``seed + 0xD1342543DE82EF95 * row``; with a tensor of one seed a row each seed is used as it is, so that a row draws the
  same wherever it stands (give each row its own). Without them they come from the generator. One call draws at one
  position: adding 1 to the offset is enough for the next.
- *Nothing is random about the rest*: exactly k tokens survive a top-k and the shortest prefix whose sum exceeds p a top-p;
  equal probabilities are told apart by id, the lower first. ``deterministic`` and ``is_deterministic`` change nothing.
- *Probabilities become logits*, ``log(p)`` to the nearest float32: a probability of p is drawn with p(1 + e), where |e| is at
  most 4e-6 for p down to 1e-6 and 8e-6 down to 1e-12; tokens below 2**-41 of the largest are never drawn. Probabilities
  within 1e-6 of each other, relatively, may count as equal. Rows need not add up to 1.
- *Order*: top-k first, as theirs by default; ``joint`` looks at the whole distribution for top-p.
- *Per-row tensors* of top_k, top_p and min_p go with the outputs, also where ``indices`` are given. A row whose value is
  out of range gets token -1; a number out of range is a ``ValueError``.
- *No token*: -1, with ``valid`` False, for a row of NaN, zeros or -inf alone.
- ``softmax`` with a temperature below 1e-5, 0 included, gives the argmax all of the probability.
- ``enable_pdl`` is accepted and unused.
"""

import math
from typing import Optional, Tuple, Union

import torch

from .. import torch as ops

__all__ = [
    "chain_speculative_sampling",
    "min_p_sampling_from_probs",
    "sampling_from_logits",
    "sampling_from_probs",
    "softmax",
    "top_k_mask_logits",
    "top_k_renorm_prob",
    "top_k_renorm_probs",
    "top_k_sampling_from_probs",
    "top_k_top_p_sampling_from_logits",
    "top_k_top_p_sampling_from_probs",
    "top_p_renorm_prob",
    "top_p_renorm_probs",
    "top_p_sampling_from_probs",
]

Number = Union[torch.Tensor, float, int]
Seed = Optional[Union[int, torch.Tensor]]

# Odd, and far from the step of the generator, so that the rows' sequences lie apart.
_ROW_STEP = 0xD1342543DE82EF95 - (1 << 64)


def _signed(value):
    """A number of 64 bits as torch's int64 has it."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _from_generator(generator, device):
    """A seed and an offset that no call before had."""
    if device.type == "cuda":
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("give seed and offset as tensors: a graph would replay the generator's numbers")
        if generator is None:
            index = device.index if device.index is not None else torch.cuda.current_device()
            torch.cuda.init()
            generator = torch.cuda.default_generators[index]
        if generator.device.type == "cuda":
            offset = generator.get_offset()
            generator.set_offset(offset + 4)
            return generator.initial_seed(), offset
    drawn = torch.randint(-(2**63), 2**63 - 1, (1,), dtype=torch.int64, generator=generator)
    return int(drawn), 0


def _seeds(seed, offset, generator, device, rows):
    """Seeds and positions of the rows."""
    if isinstance(seed, torch.Tensor) != isinstance(offset, torch.Tensor) and seed is not None and offset is not None:
        raise ValueError("seed and offset must both be tensors or both be numbers")
    if seed is None or offset is None:
        seed, offset = _from_generator(generator, device)
    step = torch.arange(rows, dtype=torch.int64, device=device) * _ROW_STEP
    if not isinstance(seed, torch.Tensor):
        seeds = step + _signed(int(seed))
        return seeds, torch.full((rows,), _signed(int(offset)), dtype=torch.int64, device=device)
    for name, tensor in (("seed", seed), ("offset", offset)):
        if tensor.device != device:
            raise ValueError(f"{name} is on {tensor.device}: {device} is expected")
        if tensor.dtype not in (torch.int64, torch.uint64):
            raise ValueError(f"{name} has dtype {tensor.dtype}: int64 or uint64 is expected")
        if tensor.ndim != 1 or tensor.size(0) not in (1, rows):
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}: [1] or [{rows}] is expected")
    seed, offset = seed.view(torch.int64), offset.view(torch.int64)
    seeds = seed + step if seed.size(0) == 1 and rows > 1 else seed
    return seeds, offset.expand(rows).contiguous()


def _check(name, value, low, high, opened=False):
    if not (low < value <= high if opened else low <= value <= high):
        raise ValueError(f"{name} = {value} is refused: {'above ' if opened else ''}{low} to {high}")


def _column(name, value, rows, dtype, device):
    """A parameter of every row, as a tensor."""
    if isinstance(value, torch.Tensor):
        if value.device != device:
            raise ValueError(f"{name} is on {value.device}: {device} is expected")
        if value.shape not in ((rows,), (1,), ()):
            raise ValueError(f"{name} has shape {tuple(value.shape)}: [{rows}] is expected")
        return value.to(dtype).expand(rows).contiguous()
    return torch.full((rows,), value, dtype=dtype, device=device)


def _table(rows, device, seeds, temperature=1.0, top_p=1.0, top_k=-1, min_p=0.0, top_k_first=False):
    """The rows of parameters, and the filters they use."""
    if not isinstance(temperature, torch.Tensor):
        _check("temperature", temperature, 0, 1e30)
    if not isinstance(top_p, torch.Tensor):
        _check("top_p", top_p, 0, 1, opened=True)
    if not isinstance(top_k, torch.Tensor) and top_k != -1:
        _check("top_k", top_k, 1, 2**31 - 1)
    if not isinstance(min_p, torch.Tensor):
        _check("min_p", min_p, 0, 1)
    params = torch.ops.samedraw.param_rows(
        _column("temperature", temperature, rows, torch.float32, device),
        _column("top_p", top_p, rows, torch.float32, device),
        _column("top_k", top_k, rows, torch.int64, device),
        _column("min_p", min_p, rows, torch.float32, device),
        seeds,
        top_k_first,
    )
    used = {"top_k": top_k, "top_p": top_p, "min_p": min_p}
    off = {"top_k": -1, "top_p": 1.0, "min_p": 0.0}
    return params, ",".join(k for k, v in used.items() if isinstance(v, torch.Tensor) or v != off[k])


def _matrix(name, tensor):
    if tensor.ndim != 2:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}: [rows, tokens] is expected")
    if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"{name} has dtype {tensor.dtype}: float32, float16 or bfloat16 is expected")
    return tensor


def _logits(probs):
    """Logits of probabilities: a negative one and a NaN become NaN, which counts as no probability."""
    return torch.log(_matrix("probs", probs).double()).float()


def _no_nan(name, tensor, check_nan):
    if check_nan and bool(torch.isnan(tensor).any()):
        raise ValueError(f"{name} contain NaN")


def _draw(logits, indices, generator, seed, offset, return_valid=False, **filters):
    rows, device = logits.size(0) if indices is None else indices.size(0), logits.device
    if indices is not None and indices.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"indices have dtype {indices.dtype}: int32 or int64 is expected")
    seeds, positions = _seeds(seed, offset, generator, device, rows)
    params, used = _table(rows, device, seeds, **filters)
    dtype = torch.int32 if indices is None else indices.dtype
    samples, _ = torch.ops.samedraw.sample(
        logits, params, positions, None, indices, None, 0, used, dtype
    )
    return (samples, samples >= 0) if return_valid else samples


def softmax(
    logits: torch.Tensor,
    temperature: Optional[Union[torch.Tensor, float]] = None,
    enable_pdl: Optional[bool] = None,
) -> torch.Tensor:
    """float32 probabilities ``[rows, tokens]`` of the logits divided by the temperature (a number or one a row)."""
    rows, device = _matrix("logits", logits).size(0), logits.device
    zeros = torch.zeros(rows, dtype=torch.int64, device=device)
    params, used = _table(rows, device, zeros, temperature=1.0 if temperature is None else temperature)
    return torch.ops.samedraw.dense_logprobs(logits, params, used).exp()


def sampling_from_logits(
    logits: torch.Tensor,
    indices: Optional[torch.Tensor] = None,
    deterministic: bool = True,
    generator: Optional[torch.Generator] = None,
    check_nan: bool = False,
    seed: Seed = None,
    offset: Seed = None,
) -> torch.Tensor:
    """One token a row of ``softmax(logits)``: int32, or of the type of ``indices``, which name the row of each output."""
    _no_nan("logits", _matrix("logits", logits), check_nan)
    return _draw(logits, indices, generator, seed, offset)


def sampling_from_probs(
    probs: torch.Tensor,
    indices: Optional[torch.Tensor] = None,
    deterministic: bool = True,
    generator: Optional[torch.Generator] = None,
    check_nan: bool = False,
    seed: Seed = None,
    offset: Seed = None,
    return_valid: bool = False,
) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """One token a row of ``probs``; with ``return_valid`` also whether the row had one."""
    _no_nan("probs", probs, check_nan)
    return _draw(_logits(probs), indices, generator, seed, offset, return_valid)


def top_p_sampling_from_probs(
    probs: torch.Tensor,
    top_p: Union[torch.Tensor, float],
    indices: Optional[torch.Tensor] = None,
    deterministic: bool = True,
    generator: Optional[torch.Generator] = None,
    check_nan: bool = False,
    seed: Seed = None,
    offset: Seed = None,
    return_valid: bool = False,
) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """One token a row of the shortest prefix whose sum exceeds ``top_p``."""
    _no_nan("probs", probs, check_nan)
    return _draw(_logits(probs), indices, generator, seed, offset, return_valid, top_p=top_p)


def top_k_sampling_from_probs(
    probs: torch.Tensor,
    top_k: Union[torch.Tensor, int],
    indices: Optional[torch.Tensor] = None,
    deterministic: bool = True,
    generator: Optional[torch.Generator] = None,
    check_nan: bool = False,
    seed: Seed = None,
    offset: Seed = None,
    return_valid: bool = False,
) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """One token a row of the ``top_k`` most likely."""
    _no_nan("probs", probs, check_nan)
    return _draw(_logits(probs), indices, generator, seed, offset, return_valid, top_k=top_k)


def min_p_sampling_from_probs(
    probs: torch.Tensor,
    min_p: Union[torch.Tensor, float],
    indices: Optional[torch.Tensor] = None,
    deterministic: bool = True,
    generator: Optional[torch.Generator] = None,
    check_nan: bool = False,
    seed: Seed = None,
    offset: Seed = None,
    return_valid: bool = False,
) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """One token a row of those at least ``min_p`` times as likely as the most likely one."""
    _no_nan("probs", probs, check_nan)
    return _draw(_logits(probs), indices, generator, seed, offset, return_valid, min_p=min_p)


def _first(order):
    if order not in ("top_k_first", "joint"):
        raise ValueError(f"filter_apply_order = {order!r} is refused: top_k_first or joint")
    return order == "top_k_first"


def top_k_top_p_sampling_from_logits(
    logits: torch.Tensor,
    top_k: Union[torch.Tensor, int],
    top_p: Union[torch.Tensor, float],
    indices: Optional[torch.Tensor] = None,
    filter_apply_order: str = "top_k_first",
    deterministic: bool = True,
    generator: Optional[torch.Generator] = None,
    check_nan: bool = False,
    seed: Seed = None,
    offset: Seed = None,
) -> torch.Tensor:
    """One token a row after top-k and top-p, in the order given."""
    first = _first(filter_apply_order)
    _no_nan("logits", _matrix("logits", logits), check_nan)
    return _draw(logits, indices, generator, seed, offset, top_k=top_k, top_p=top_p, top_k_first=first)


def top_k_top_p_sampling_from_probs(
    probs: torch.Tensor,
    top_k: Union[torch.Tensor, int],
    top_p: Union[torch.Tensor, float],
    indices: Optional[torch.Tensor] = None,
    filter_apply_order: str = "top_k_first",
    deterministic: bool = True,
    generator: Optional[torch.Generator] = None,
    check_nan: bool = False,
    seed: Seed = None,
    offset: Seed = None,
    return_valid: bool = False,
) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """One token a row after top-k and top-p, in the order given."""
    first = _first(filter_apply_order)
    _no_nan("probs", probs, check_nan)
    kept = {"top_k": top_k, "top_p": top_p, "top_k_first": first}
    return _draw(_logits(probs), indices, generator, seed, offset, return_valid, **kept)


def _kept(logits, **filters):
    """Which tokens of each row are kept."""
    rows, device = logits.size(0), logits.device
    params, used = _table(rows, device, torch.zeros(rows, dtype=torch.int64, device=device), **filters)
    return torch.ops.samedraw.dense_logprobs(logits, params, used) > -math.inf


def _renormalised(probs, **filters):
    kept = torch.where(_kept(_logits(probs), **filters), probs.float(), 0.0)
    return (kept / kept.sum(dim=-1, keepdim=True)).to(probs.dtype)


def top_p_renorm_probs(
    probs: torch.Tensor, top_p: Union[torch.Tensor, float], is_deterministic: bool = False
) -> torch.Tensor:
    """The probabilities that a top-p keeps, divided by their sum; 0 elsewhere."""
    return _renormalised(probs, top_p=top_p)


def top_k_renorm_probs(
    probs: torch.Tensor, top_k: Union[torch.Tensor, int], is_deterministic: bool = False
) -> torch.Tensor:
    """The ``top_k`` largest probabilities divided by their sum; 0 elsewhere."""
    return _renormalised(probs, top_k=top_k)


top_p_renorm_prob = top_p_renorm_probs
top_k_renorm_prob = top_k_renorm_probs


def top_k_mask_logits(logits: torch.Tensor, top_k: Union[torch.Tensor, int]) -> torch.Tensor:
    """The ``top_k`` largest logits as they are; -inf elsewhere."""
    kept = _kept(_matrix("logits", logits), top_k=top_k)
    return torch.where(kept, logits, torch.full_like(logits, -math.inf))


def chain_speculative_sampling(
    draft_probs: torch.Tensor,
    draft_token_ids: torch.Tensor,
    target_probs: torch.Tensor,
    maybe_output_accepted_token_num: Optional[torch.Tensor] = None,
    maybe_output_emitted_draft_token_num: Optional[torch.Tensor] = None,
    deterministic: bool = True,
    generator: Optional[torch.Generator] = None,
    seed: Seed = None,
    offset: Seed = None,
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Verifies ``draft_token_ids [requests, drafts]``, drawn from ``draft_probs [requests, drafts, tokens]``, against
    ``target_probs [requests, drafts + 1, tokens]``.

    Returns the output tokens ``[requests, drafts + 1]``, int32, -1 after the first rejection; the number of drafts that would
    be accepted each by itself; the number of drafts emitted. The last two are added to the tensors given, if any.
    """
    if target_probs.ndim != 3 or draft_probs.ndim != 3:
        raise ValueError("draft_probs and target_probs are to have three dimensions: [requests, drafts, tokens]")
    requests, each, vocab = target_probs.shape
    for name, shape, wanted in (
        ("draft_probs", draft_probs.shape, (requests, each - 1, vocab)),
        ("draft_token_ids", draft_token_ids.shape, (requests, each - 1)),
    ):
        if tuple(shape) != wanted:
            raise ValueError(f"{name} has shape {tuple(shape)}: {list(wanted)} is expected")
    device = target_probs.device
    seeds, positions = _seeds(seed, offset, generator, device, requests)
    params, used = _table(requests, device, seeds)
    target = torch.log(target_probs.double()).float()
    draft = torch.log(draft_probs.double()).float()
    tokens, emitted, accepts = torch.ops.samedraw.verify(target, params, positions, draft_token_ids, draft, False, used)
    accepted = accepts.sum(dim=1, dtype=torch.int32)
    given = (maybe_output_accepted_token_num, maybe_output_emitted_draft_token_num)
    accepted, emitted = (
        counted if total is None else total.add_(counted) for total, counted in zip(given, (accepted, emitted))
    )
    return tokens, accepted, emitted
