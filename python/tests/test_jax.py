"""Arrays of jax, on the CPU and on a GPU where jax has one: read in place, every type."""

import os

# Or jax would take most of the GPU's memory at its first call, from the other tests of this process, too.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="SKIPPED: jax is not installed")

import jax.numpy as jnp
import samedraw


@pytest.fixture(autouse=True)
def on_the_cpu():
    """Where jax has a GPU, too, its arrays would be there."""
    with jax.default_device(jax.devices("cpu")[0]):
        yield


def test_nothing_is_copied():
    a = jnp.zeros((4, 8), jnp.float32)
    assert samedraw.address(a) == a.unsafe_buffer_pointer()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
def test_the_tokens_are_those_of_the_same_values_elsewhere(dtype):
    values = jnp.asarray(3 * np.random.default_rng(1).normal(size=(5, 700))).astype(dtype)
    params = {"temperature": 0.8, "top_p": 0.9, "seed": [1, 2, 3, 4, 5], "position": 6}
    # Every value of a smaller type is one of float32.
    expected = samedraw.sample(np.asarray(values, np.float32), **params)
    assert samedraw.sample(values, **params).tolist() == expected.tolist()
    assert len(set(expected.tolist())) > 1


def test_an_array_of_jax_is_not_written():
    sampler = samedraw.Sampler(samedraw.Device("cpu"), 1, 8)
    tokens = jnp.zeros(1, jnp.int32)
    with pytest.raises(ValueError, match="tokens"):
        sampler.step(jnp.zeros((1, 8), jnp.float32), positions=np.zeros(1, np.int64), tokens=tokens)
    assert tokens.tolist() == [0]


def gpu():
    try:
        return jax.devices("cuda")[0]
    except RuntimeError as error:
        if os.environ.get("SAMEDRAW_REQUIRE_CUDA") == "1":
            raise
        pytest.skip(f"SKIPPED: jax has no GPU: {error}")


def writable():
    """How arrays that a step may write come to the GPU and back."""
    try:
        import torch

        if torch.cuda.is_available():
            return lambda array: torch.from_numpy(array).cuda(), lambda tensor: tensor.cpu().numpy()
    except ImportError:
        pass
    cupy = pytest.importorskip("cupy", reason="SKIPPED: neither torch with CUDA nor cupy is installed")
    return cupy.asarray, cupy.asnumpy


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.bfloat16])
def test_logits_of_jax_on_a_gpu_give_the_tokens_of_the_cpu(dtype):
    device, (upload, download) = gpu(), writable()
    values = jnp.asarray(3 * np.random.default_rng(1).normal(size=(5, 700))).astype(dtype)
    rows = samedraw.param_rows(5, temperature=0.8, top_p=0.9, seed=[1, 2, 3, 4, 5])
    expected = samedraw.sample(np.asarray(values, np.float32), params=rows, position=6)
    # jax has no current stream, so its arrays are waited for; the others are ordered by the stream of their library.
    logits = jax.device_put(values, device).block_until_ready()
    assert samedraw.address(logits) == logits.unsafe_buffer_pointer()
    sampler = samedraw.Sampler(samedraw.Device("cuda"), 5, 700)
    positions, params = upload(np.full(5, 6, dtype=np.int64)), upload(rows)
    for type in (np.int64, np.int32):
        tokens = upload(np.zeros(5, dtype=type))
        sampler.step(logits, positions=positions, params=params, tokens=tokens)
        assert download(tokens).tolist() == expected.tolist()
    with pytest.raises(ValueError, match="tokens is read-only"):
        sampler.step(logits, positions=positions, params=params, tokens=jax.device_put(jnp.zeros(5, jnp.int32), device))
    with pytest.raises(ValueError, match="logits is on cpu, the sampler on cuda:0"):
        sampler.step(values, positions=positions, params=params, tokens=tokens)
