"""Logits to tokens: the same logits, seed, position and parameters give the same token on any device.

Arrays are taken where they are, without a copy: tensors of torch, and anything with DLPack (numpy, cupy, jax), on the CPU
or on an NVIDIA GPU. What is wrong with an argument (its device, type, shape or strides) is a ``ValueError`` that names it.
"""

from ._samedraw import (
    CapturedStep,
    Device,
    ParamTable,
    Sampler,
    Verify,
    __version__,
    address,
    devices,
    param_row,
    status_names,
)
from ._sample import param_rows, sample

__all__ = [
    "CapturedStep",
    "Device",
    "ParamTable",
    "Sampler",
    "Verify",
    "__version__",
    "address",
    "devices",
    "param_row",
    "param_rows",
    "sample",
    "status_names",
]
