"""Arrays of cupy: read and written in place, on cupy's streams, also where torch is imported and has streams of its own."""

import os

import numpy as np
import pytest

cupy = pytest.importorskip("cupy", reason="SKIPPED: cupy is not installed")
if not cupy.is_available():
    if os.environ.get("SAMEDRAW_REQUIRE_CUDA") == "1":
        raise RuntimeError("SAMEDRAW_REQUIRE_CUDA is set, and cupy finds no GPU")
    pytest.skip("SKIPPED: cupy finds no GPU", allow_module_level=True)

import samedraw
from test_numpy import flat_token


def test_nothing_is_copied():
    logits = cupy.zeros((4, 1000), dtype=cupy.float32)
    assert samedraw.address(logits) == logits.data.ptr
    assert samedraw.address(logits[1:]) == logits.data.ptr + 4000


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_tokens_are_those_of_numpy_on_the_cpu(dtype):
    logits = (3 * np.random.default_rng(1).normal(size=(5, 700))).astype(dtype)
    rows = samedraw.param_rows(5, temperature=0.8, top_p=0.9, seed=[1, 2, 3, 4, 5])
    expected, logprobs = samedraw.sample(logits, params=rows, position=6, logprobs=True)
    assert len(set(expected.tolist())) > 1
    sampler = samedraw.Sampler(samedraw.Device("cuda"), 5, 700)
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            tokens, written = cupy.zeros(5, dtype=np.int64), cupy.zeros(5, dtype=np.float32)
            given = {"positions": cupy.full(5, 6, dtype=np.int64), "params": cupy.asarray(rows)}
            # Without the stream it would be torch's current one, where torch is imported.
            sampler.step(cupy.asarray(logits), tokens=tokens, logprobs=written, stream=stream, **given)
            assert cupy.asnumpy(tokens).tolist() == expected.tolist()
            assert cupy.asnumpy(written).tolist() == logprobs.tolist()


def test_the_one_call_form_is_on_the_current_stream_of_cupy():
    logits = cupy.zeros((2, 1000), dtype=cupy.float32)
    cupy.cuda.Stream.null.synchronize()
    with cupy.cuda.Stream(non_blocking=True):
        tokens = samedraw.sample(logits, seed=[1, 2], position=[3, 4])
        assert isinstance(tokens, cupy.ndarray)
        assert cupy.asnumpy(tokens).tolist() == [flat_token(1, 3, 1000), flat_token(2, 4, 1000)]
        busy = cupy.ones((2048, 2048), dtype=cupy.float32)
        for token in range(5, 15):
            for _ in range(20):
                busy = busy @ busy * 0  # what comes is late: on another stream the step would miss it
            logits[:] = busy[:2, :1000]
            logits[:, token] = 9.0
            assert cupy.asnumpy(samedraw.sample(logits, top_k=1)).tolist() == [token, token]


def test_arrays_elsewhere_are_named():
    sampler = samedraw.Sampler(samedraw.Device("cuda"), 1, 4)
    with pytest.raises(ValueError, match="positions is on cpu, the sampler on cuda:0"):
        sampler.step(cupy.zeros((1, 4), dtype=np.float32), positions=np.zeros(1, dtype=np.int64))
    with pytest.raises(ValueError, match="logits is on cuda:0, the sampler on cpu"):
        samedraw.Sampler(samedraw.Device("cpu"), 1, 4).step(cupy.zeros((1, 4), dtype=np.float32))
