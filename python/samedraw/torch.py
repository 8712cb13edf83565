"""Operators for torch, for graphs that torch captures and for ``torch.compile``.

``torch.ops.samedraw.param_rows``, ``sample``, ``dense_logprobs`` and ``verify`` work on tensors of the CPU and of NVIDIA
GPUs, on torch's current stream, without a copy to the host or a wait. Under ``torch.cuda.graph`` every replay reads logits,
parameters and positions anew: adding to the tensor of positions between replays gives fresh draws. Call once with the
same sizes before capturing. Captured calls of one size share a workspace: their replays are ordered by the stream they
run on; do not replay two of them at once on two streams. There is no backward; a call costs the host least in
``torch.inference_mode``, where torch does not prepare for one.
"""

import functools
import math
from typing import Optional, Tuple

import torch

from . import _pool
from ._samedraw import Verify
from ._sample import of_torch

_LOWEST = 1e-5
_LOG2_E = 1.4426950408889634
_TWO_OVER_LN2 = 2.0 / math.log(2.0)
_SQRT2 = 1.4142135623730951


# Not `torch.library.custom_op`: what it puts around an operator takes longer than the operator.
_library = torch.library.Library("samedraw", "DEF")


def _no_gradient(context, *gradients):
    raise RuntimeError("samedraw: there is no backward through a draw; detach the logits")


def _operator(function):
    """``torch.ops.samedraw`` gets an operator of the function's name, arguments and results; what is returned calls it."""
    name = function.__name__
    schema = torch.library.infer_schema(function, mutates_args=())
    _library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, function, "CompositeExplicitAutograd")
    # Without it torch would only warn, and go on without a gradient. In inference mode it is not even asked.
    torch.library.register_autograd(f"samedraw::{name}", _no_gradient, lib=_library)
    operator = getattr(torch.ops.samedraw, name).default

    @functools.wraps(function)
    def call(*arguments, **keywords):
        return operator(*arguments, **keywords)

    return call


def _fake(name):
    """Says what the operator returns, without its values."""
    return torch.library.register_fake(f"samedraw::{name}", lib=_library)


def _sampler(logits, rows, force_topk=0, verify=False):
    there = of_torch(logits.device)
    return _pool.sampler(there.name, there.stream(), rows, logits.size(-1), force_topk, verify)


def _log2(x):
    """The semantics' logarithm of positive float64 numbers: one rounding an operation."""
    bits = x.view(torch.int64)
    exponent = ((bits >> 52) - 1023).double()
    w = ((bits & ((1 << 52) - 1)) | (1023 << 52)).view(torch.float64)
    large = w > _SQRT2
    w = torch.where(large, w * 0.5, w)
    exponent = torch.where(large, exponent + 1.0, exponent)
    r = (w - 1.0) / (w + 1.0)
    z = r * r
    s = torch.full_like(z, 1.0 / 15.0)
    for k in (13.0, 11.0, 9.0, 7.0, 5.0, 3.0):
        s = s * z
        s = s + 1.0 / k
    s = s * z
    s = s + 1.0
    tail = r * _TWO_OVER_LN2
    return exponent + tail * s


def _bits(x):
    return x.view(torch.int32).long() & 0xFFFFFFFF


@_operator
def param_rows(
    temperature: torch.Tensor,
    top_p: torch.Tensor,
    top_k: torch.Tensor,
    min_p: torch.Tensor,
    seed: torch.Tensor,
    top_k_first: bool,
) -> torch.Tensor:
    """Rows of parameters made on the device, without a wait: what :func:`samedraw.param_rows` makes on the host.

    Parameters
    ----------
    temperature, top_p, min_p : float32 tensors ``[rows]``
    top_k, seed : int64 tensors ``[rows]``
    top_k_first : bool
        The filter order, for all rows.

    Returns
    -------
    Tensor
        int64 ``[rows, 8]``. A row with a value out of range is empty: its token is -1, its status ``bad_index``.
    """
    lowest = torch.full_like(temperature, _LOWEST)  # a fill, as a copy from the host cannot be captured
    near_greedy = temperature < lowest
    heat = torch.where(near_greedy, lowest, temperature)
    scale = (_LOG2_E / heat.double()).float()
    fraction = torch.round(top_p.double() * 4294967296.0).long()
    exponent = _log2(torch.where(min_p > 0, min_p, torch.ones_like(min_p)).double()).float()
    exponent = torch.where(min_p > 0, exponent, torch.full_like(exponent, -math.inf))
    valid = (temperature >= 0) & (temperature <= 1e30) & (top_p > 0) & (top_p <= 1)
    valid &= (min_p >= 0) & (min_p <= 1) & ((top_k == -1) | ((top_k >= 1) & (top_k <= 2**31 - 1)))
    off = torch.full_like(top_k, -1)
    kept = torch.where(near_greedy, off, top_k)
    rows = torch.stack(
        (
            torch.ones_like(top_k),
            _bits(scale),
            torch.where(near_greedy, torch.full_like(fraction, 1 << 32), fraction),
            kept,
            _bits(torch.where(near_greedy, torch.full_like(exponent, -math.inf), exponent)),
            seed,
            (kept != -1).long() * int(top_k_first),
            torch.zeros_like(top_k),
        ),
        dim=1,
    )
    return torch.where(valid[:, None], rows, torch.zeros_like(rows))


@_fake("param_rows")
def _(temperature, top_p, top_k, min_p, seed, top_k_first):
    return seed.new_empty((seed.size(0), 8), dtype=torch.int64)


def _filters(names):
    """The names in a text such as "top_k,top_p"; None is any."""
    return None if names == "any" else tuple(name for name in names.split(",") if name)


@_operator
def sample(
    logits: torch.Tensor,
    params: torch.Tensor,
    positions: torch.Tensor,
    slots: Optional[torch.Tensor] = None,
    gather: Optional[torch.Tensor] = None,
    mask: Optional[torch.Tensor] = None,
    force_topk: int = 0,
    filters: str = "any",
    dtype: torch.dtype = torch.int64,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Draws one token a row.

    Parameters
    ----------
    logits : float32, float16 or bfloat16 tensor ``[rows, vocab]``
    params : int64 tensor ``[slots, 8]`` of :func:`param_rows`
    positions : int64 tensor ``[rows]``
    slots, gather : int32 or int64 tensors ``[rows]``
        Row of ``params`` (-1: padding, nothing is drawn) and of ``logits`` for each row; the same number without.
    mask : int32 tensor ``[rows, ceil(vocab / 32)]``
    force_topk : int
    filters : str
        What the batch uses, as "top_k,top_p"; a row that uses another gets token -1.
    dtype : torch.int64 or torch.int32

    Returns
    -------
    (Tensor, Tensor)
        Tokens and their float32 logprobs, ``[rows]``.
    """
    rows = positions.size(0)
    tokens = torch.empty(rows, dtype=dtype, device=logits.device)
    logprobs = torch.empty(rows, dtype=torch.float32, device=logits.device)
    if slots is not None:
        # Padding is not written.
        tokens.fill_(-1)
        logprobs.fill_(-math.inf)
    _sampler(logits, rows, force_topk).step(
        logits,
        rows=rows,
        params=params,
        positions=positions,
        slots=slots,
        gather=gather,
        mask=mask,
        force_topk=force_topk,
        filters=_filters(filters),
        tokens=tokens,
        logprobs=logprobs,
    )
    return tokens, logprobs


@_fake("sample")
def _(logits, params, positions, slots=None, gather=None, mask=None, force_topk=0, filters="any", dtype=torch.int64):
    rows = positions.size(0)
    return logits.new_empty((rows,), dtype=dtype), logits.new_empty((rows,), dtype=torch.float32)


@_operator
def dense_logprobs(logits: torch.Tensor, params: torch.Tensor, filters: str = "any") -> torch.Tensor:
    """The logprob of every token under the filtered distribution, float32 ``[rows, vocab]``; -inf where it is not kept."""
    rows = logits.size(0)
    dense = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    positions = torch.zeros(rows, dtype=torch.int64, device=logits.device)
    _sampler(logits, rows).step(logits, params=params, positions=positions, filters=_filters(filters), dense=dense)
    return dense


@_fake("dense_logprobs")
def _(logits, params, filters="any"):
    return logits.new_empty(logits.shape, dtype=torch.float32)


@_operator
def verify(
    logits: torch.Tensor,
    params: torch.Tensor,
    positions: torch.Tensor,
    draft_ids: torch.Tensor,
    draft_logprobs: Optional[torch.Tensor],
    chain: bool,
    filters: str = "any",
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Verifies the drafts of requests that have equally many.

    Parameters
    ----------
    logits : tensor ``[requests, drafts + 1, vocab]``
    params : int64 tensor ``[requests, 8]``
    positions : int64 tensor ``[requests]``
        The position of each request's first row.
    draft_ids : int32 or int64 tensor ``[requests, drafts]``
    draft_logprobs : float32 tensor ``[requests, drafts, vocab]``, or None
        The drafts' distributions; None: each draft was certain of its token.
    chain : bool
        Whether every row draws and drafts count while they equal the drawn token.

    Returns
    -------
    (Tensor, Tensor, Tensor)
        int32: tokens ``[requests, drafts + 1]``, -1 after the first rejection; drafts accepted ``[requests]``; whether each
        row accepts its draft taken by itself ``[requests, drafts]``.
    """
    requests, each, vocab = logits.shape
    rows, device = requests * each, logits.device
    ids = torch.full((requests, each), -1, dtype=draft_ids.dtype, device=device)
    ids[:, :-1] = draft_ids
    request = torch.arange(requests, dtype=torch.int32, device=device)
    first_rows = torch.arange(0, rows + 1, each, dtype=torch.int32, device=device)
    of = request.repeat_interleave(each, output_size=rows)
    tokens = torch.full((requests, each), -1, dtype=torch.int32, device=device)
    accepted = torch.zeros(requests, dtype=torch.int32, device=device)
    accepts = torch.zeros((requests, each), dtype=torch.int32, device=device)
    arrays = {}
    if draft_logprobs is not None and not chain:
        # Row j of a request reads pool row j; its last row reads none.
        pool = torch.arange(rows, dtype=torch.int32, device=device) - of
        arrays = {"draft_logprobs": draft_logprobs.reshape(-1, vocab), "draft_rows": pool}
    mode = "chain" if chain else "one_hot" if draft_logprobs is None else "rejection"
    given = Verify(
        mode,
        first_rows=first_rows,
        row_to_request=of,
        draft_ids=ids.view(-1),
        accepted=accepted,
        row_accepts=accepts.view(-1),
        **arrays,
    )
    _sampler(logits, rows, verify=True).step(
        logits.reshape(rows, vocab),
        params=params,
        positions=positions,
        slots=of,
        filters=_filters(filters),
        verify=given,
        tokens=tokens.view(-1),
    )
    return tokens, accepted, accepts[:, :-1].contiguous()


@_fake("verify")
def _(logits, params, positions, draft_ids, draft_logprobs, chain, filters="any"):
    requests, each = logits.size(0), logits.size(1)
    int32 = {"dtype": torch.int32}
    return (
        logits.new_empty((requests, each), **int32),
        logits.new_empty((requests,), **int32),
        logits.new_empty((requests, each - 1), **int32),
    )
