"""Arrays of jax on the CPU: read in place, every type."""

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="SKIPPED: jax is not installed")

import jax.numpy as jnp
import samedraw


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
