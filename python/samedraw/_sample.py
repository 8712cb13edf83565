"""The one-call form."""

import functools
import sys

import numpy as np

from . import _pool
from ._samedraw import param_row


def param_rows(rows, temperature=1.0, top_p=1.0, top_k=-1, min_p=0.0, *, seed=None, filter_order="joint"):
    """Parameters of ``rows`` rows as a step takes them by ``params=``.

    Each argument is one value for all rows, or a sequence of one a row. ``seed=None`` takes 64 random bits for each row.

    Returns
    -------
    numpy.ndarray
        int64 ``[rows, 8]``; copied to a GPU once, it serves any number of steps there.

    Raises
    ------
    ValueError
        For a value out of range, by its name, and for a sequence of another length than ``rows``.
    """
    given = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "min_p": min_p, "seed": seed}
    each = {}
    for name, value in given.items():
        if value is None or np.ndim(value) == 0:
            each[name] = [None if value is None else _plain(value)] * rows
            continue
        values = [_plain(v) for v in np.asarray(value).tolist()] if not isinstance(value, (list, tuple)) else list(value)
        if len(values) != rows:
            raise ValueError(f"{name} has {len(values)} values: one for each of {rows} rows is expected")
        each[name] = values
    table = np.empty((rows, 8), dtype=np.uint64)
    for row in range(rows):
        table[row] = param_row(filter_order=filter_order, **{name: values[row] for name, values in each.items()})
    return table.view(np.int64)


def _plain(value):
    return value.item() if hasattr(value, "item") else value


@functools.lru_cache(maxsize=256)
def _shared_rows(name, rows, **params):
    """The rows of parameters that are the same for all of a batch, on the device, as torch has it."""
    import torch

    return torch.from_numpy(param_rows(rows, **params)).to(name)


class _Numpy:
    """Arrays in host memory."""

    name = "cpu"

    def stream(self):
        return 0

    def empty(self, n, dtype):
        return np.empty(n, dtype=dtype)

    def full(self, n, value, dtype):
        return np.full(n, value, dtype=dtype)

    def array(self, values, dtype):
        return np.ascontiguousarray(values, dtype=dtype)

    def rows(self, rows, params):
        return param_rows(rows, **params)


class _Torch:
    """Tensors, on a device."""

    def __init__(self, device):
        import torch

        index = device.index or 0
        self.torch, self.device, self.text = torch, device, str(device)
        self.name = "cpu" if device.type == "cpu" else f"{'ascend' if device.type == 'npu' else device.type}:{index}"
        self.dtypes = {"int64": torch.int64, "float32": torch.float32}
        self.stream = lambda: 0
        if device.type == "cuda":
            # The handle alone, where a stream object would take longer than all else here.
            self.stream = functools.partial(torch._C._cuda_getCurrentRawStream, index)
        elif device.type == "npu":
            self.stream = lambda: torch.npu.current_stream(device).npu_stream

    def empty(self, n, dtype):
        return self.torch.empty(n, dtype=self.dtypes[dtype], device=self.device)

    def full(self, n, value, dtype):
        # On a GPU a kernel, where a copy of a list would wait.
        return self.torch.full((n,), value, dtype=self.dtypes[dtype], device=self.device)

    def array(self, values, dtype):
        return self.torch.as_tensor(values, dtype=self.dtypes[dtype], device=self.device).contiguous()

    def rows(self, rows, params):
        if all(isinstance(value, (int, float, str)) for value in params.values()):
            return _shared_rows(self.text, rows, **params)
        return self.torch.from_numpy(param_rows(rows, **params)).to(self.device)


class _Cupy:
    """Arrays of cupy, on a device."""

    def __init__(self, device):
        import cupy

        self.cupy = cupy
        self.name = f"cuda:{device}"

    def stream(self):
        return self.cupy.cuda.get_current_stream().ptr

    def empty(self, n, dtype):
        return self.cupy.empty(n, dtype=dtype)

    def full(self, n, value, dtype):
        return self.cupy.full(n, value, dtype=dtype)

    def array(self, values, dtype):
        return self.cupy.ascontiguousarray(self.cupy.asarray(values, dtype=dtype))

    def rows(self, rows, params):
        return self.cupy.asarray(param_rows(rows, **params))


_numpy = _Numpy()
of_torch = functools.lru_cache(maxsize=None)(_Torch)
_of_cupy = functools.lru_cache(maxsize=None)(_Cupy)


def library_of(logits):
    """How arrays like ``logits`` are made: torch's and cupy's by their own library, others in host memory."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(logits, torch.Tensor):
        return of_torch(logits.device)
    if type(logits).__module__.partition(".")[0] == "cupy":
        return _of_cupy(logits.device.id)
    return _numpy


def sample(
    logits,
    temperature=1.0,
    top_p=1.0,
    top_k=-1,
    min_p=0.0,
    *,
    seed=None,
    position=0,
    filter_order="joint",
    mask=None,
    force_topk=0,
    params=None,
    logprobs=False,
):
    """Draws one token for each row of logits.

    Parameters
    ----------
    logits : array
        float32, float16 or bfloat16 ``[rows, vocab]`` or ``[vocab]``, tokens next to each other; read in place. A tensor
        of torch, an array of cupy, or anything in host memory with DLPack.
    temperature, top_p, top_k, min_p : number or sequence of rows
        0 to 1e30; in (0, 1]; -1 or from 1; in [0, 1]. The defaults keep every token. ``top_k=1`` is exact argmax.
    seed : int, sequence of rows, or None
        The seed of a row's draw; None takes random bits, so that every call is another.
    position : int, sequence of rows, or int64 array
        The row's place in its sequence, usually the number of tokens before. The same seed and position are the same draw.
    filter_order : "joint" or "top_k_first"
        Whether top-p looks at the whole distribution, or at the first ``top_k`` tokens alone.
    mask : array, optional
        int32 ``[rows, ceil(vocab / 32)]``: bit ``v % 32`` of word ``v // 32`` allows token ``v``.
    force_topk : int
        Keep the first so many tokens of the order; 0 = off.
    params : array, optional
        Rows of :func:`param_rows` on the device of the logits, in place of temperature to seed and filter_order.
    logprobs : bool
        Whether to return the logprob of each token under the filtered distribution, too.

    Returns
    -------
    tokens, or (tokens, logprobs)
        int64 and float32 ``[rows]``, or without a dimension for logits without one; torch's or cupy's for theirs, else
        numpy's. -1 where a row had no token to draw.

    Raises
    ------
    ValueError
        For a parameter out of range, an array on another device, of another type, shape or stride: by name.
    """
    library = library_of(logits)
    shape = logits.shape
    flat = len(shape) == 1
    rows = 1 if flat else shape[0]
    if rows == 0:
        raise ValueError("logits have no row")
    if params is None:
        params = library.rows(
            rows,
            {
                "temperature": temperature,
                "top_p": top_p,
                "top_k": top_k,
                "min_p": min_p,
                "seed": seed,
                "filter_order": filter_order,
            },
        )
    if hasattr(position, "__dlpack__") or np.ndim(position) > 0:
        positions = library.array(position, "int64")
    else:
        positions = library.full(rows, position, "int64")
    tokens = library.empty(rows, "int64")
    out = library.empty(rows, "float32") if logprobs else None
    stream = library.stream()
    _pool.sampler(library.name, stream, rows, shape[-1], force_topk).step(
        logits,
        stream=stream,
        positions=positions,
        params=params,
        mask=mask,
        force_topk=force_topk,
        tokens=tokens,
        logprobs=out,
    )
    if flat:
        tokens, out = tokens[0], None if out is None else out[0]
    return (tokens, out) if logprobs else tokens
