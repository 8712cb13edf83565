"""Samplers that calls without one share: one for a device, a stream and a size, made when first needed.

A sampler has one workspace and one step in flight, so two streams never share one. Captured calls have one of their own,
made beforehand, as nothing can be made while a stream captures.
"""

import sys
import threading

from ._samedraw import Device, ParamTable, Sampler

_lock = threading.Lock()
_devices = {}
_tables = {}
_samplers = {}


def device(name):
    """The device of that name, opened once."""
    with _lock:
        if name not in _devices:
            _devices[name] = Device(name)
            _tables[name] = ParamTable(_devices[name], 1)
        return _devices[name]


def _capturing(name):
    torch = sys.modules.get("torch")
    return torch is not None and name.startswith("cuda") and torch.cuda.is_current_stream_capturing()


def _rounded(n):
    return 1 << (n - 1).bit_length() if n > 0 else 1


def sampler(name, stream, rows, vocab, force_topk=0, verify=False):
    """A sampler on the device `name` for calls on `stream`, 0 on the CPU, of up to these sizes."""
    size = (_rounded(rows), vocab, min(_rounded(force_topk), vocab) if force_topk else 0, verify)
    if name != "cpu" and _capturing(name):
        found = _samplers.get((name, "captured", *size))
        if found is None:
            raise RuntimeError(
                f"samedraw: nothing can be made while the stream is capturing; call once before the capture with "
                f"{rows} rows of {vocab} tokens"
            )
        return found
    key = (name, stream, *size)
    found = _samplers.get(key)
    return _made(key) if found is None else found


def _made(key):
    name, _, *size = key
    opened = device(name)
    with _lock:
        for each in (key,) if name == "cpu" else (key, (name, "captured", *size)):
            if each not in _samplers:
                rows, vocab, force_topk, verify = size
                made = Sampler(opened, rows, vocab, table=_tables[name], force_topk=force_topk, verify=verify)
                _samplers[each] = made
        return _samplers[key]
