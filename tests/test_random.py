"""Arguments of random draws; their values are in tests/ops, their streams in tests/numerics."""

import numpy as np
import pytest

from tengen import Tensor, random, trace


@pytest.mark.parametrize("size, shape", [(None, ()), ((), ()), (3, (3,)), (np.int64(3), (3,)), ((2, np.int32(3)), (2, 3)), ([2, 3], (2, 3))])
def test_sizes(size, shape):
    for draw in (random.uniform, random.normal, lambda size: random.randint(5, size=size)):
        assert draw(size=size).shape == trace(lambda d=draw: d(size=size))().shape == shape


def test_bounds_and_moments_may_be_arrays():
    """One for each element, as in MegEngine: the number that is drawn, scaled and moved."""
    low, high = np.array([0, 10, 20], np.float32), np.array([1, 30, 21], np.float32)
    for wrap in (Tensor, lambda a: a):
        u, v = random.RNG(3).uniform(wrap(low), wrap(high), (3,)).numpy(), random.RNG(3).uniform(size=(3,)).numpy()
        assert np.allclose(u, v * (high - low) + low, rtol=1e-6) and (u >= low).all() and (u < high).all()
        z, n = random.RNG(3).normal(wrap(low), wrap(high), (3,)).numpy(), random.RNG(3).normal(size=(3,)).numpy()
        assert np.allclose(z, n * high + low, rtol=1e-6)


@pytest.mark.parametrize("seed, error", [(1.5, TypeError), ("a", TypeError), (None, TypeError), (-1, ValueError), (2**64, ValueError)])
def test_seeds_are_whole_numbers(seed, error):
    with pytest.raises(error):
        random.seed(seed)


@pytest.mark.parametrize("state", [[1], [1, 2, 3], [-1, 2], [1.5, 2.0], ["1", "2"], None])
def test_a_state_is_two_whole_numbers(state):
    generator = random.RNG(1)
    with pytest.raises(ValueError, match="two whole numbers"):
        generator.set_state(state)
    kept, drawn = generator.state(), generator.uniform(size=(3,)).numpy()
    generator.set_state(kept.tolist())
    assert np.array_equal(generator.uniform(size=(3,)).numpy(), drawn)
