"""Arguments of random draws; their values are in tests/ops, their streams in tests/numerics."""

import numpy as np
import pytest

import tengen.module as M
from tengen import Tensor, random, trace
from tengen.base.errors import TengenError
from tengen.compiler import building, plans
from tengen.tensor import hide_plans, restore_plans


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


# ---- distributions: six standard deviations of the sample mean and variance, which a right sampler exceeds once in 5e8 times ----

N = 100_000
# draw(generator, size), mean, variance, fourth central moment
MOMENTS = {
    "exponential": (lambda g, n: g.exponential(2.0, n), 0.5, 0.25, 9 / 16),
    "gamma": (lambda g, n: g.gamma(3.0, 2.0, n), 6.0, 12.0, (3 + 6 / 3) * 144),
    "gamma below 1": (lambda g, n: g.gamma(0.25, 1.0, n), 0.25, 0.25, (3 + 6 / 0.25) / 16),
    "beta": (lambda g, n: g.beta(2.0, 3.0, n), 0.4, 0.04, (3 - 9 / 14) * 0.0016),
    "poisson": (lambda g, n: g.poisson(4.5, n), 4.5, 4.5, 4.5 + 3 * 4.5**2),
    "poisson beyond 10": (lambda g, n: g.poisson(40.0, n), 40.0, 40.0, 40 + 3 * 1600),
    "binomial": (lambda g, n: g.binomial(12, 0.25, n), 3.0, 2.25, 3 * 2.25**2 + 2.25 * (1 - 6 * 0.1875)),
    "binomial beyond 10": (lambda g, n: g.binomial(100, 0.7, n), 70.0, 21.0, 3 * 441 + 21 * (1 - 6 * 0.21)),
    "bernoulli": (lambda g, n: g.bernoulli(0.25, n), 0.25, 0.1875, 0.1875 * (1 - 3 * 0.1875)),
}  # fmt: skip


@pytest.mark.parametrize("name", MOMENTS)
def test_moments(name):
    draw, mean, variance, fourth = MOMENTS[name]
    x = draw(random.RNG(5), N).numpy().astype(np.float64)
    assert x.shape == (N,)
    assert abs(x.mean() - mean) < 6 * np.sqrt(variance / N)
    assert abs(((x - mean) ** 2).mean() - variance) < 6 * np.sqrt((fourth - variance**2) / N)


def test_outcomes_of_poisson_and_binomial_have_their_probabilities():
    """Frequencies of single outcomes, each within six standard deviations."""
    from math import comb, exp, factorial

    for draw, probability in [
        (lambda g: g.poisson(3.0, N), lambda k: exp(-3) * 3**k / factorial(k)),
        (lambda g: g.poisson(12.0, N), lambda k: exp(-12) * 12**k / factorial(k)),
        (lambda g: g.binomial(9, 0.75, N), lambda k: comb(9, k) * 0.75**k * 0.25 ** (9 - k)),
        (lambda g: g.binomial(30, 0.5, N), lambda k: comb(30, k) * 0.5**30),
    ]:
        x = draw(random.RNG(2)).numpy().astype(int)
        for k in range(10):
            p = probability(k)
            assert abs((x == k).sum() - N * p) < 6 * np.sqrt(N * p * (1 - p)) + 1


@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial(replacement):
    g, p = random.RNG(1), np.array([[0.0, 1, 2, 5], [4, 0, 4, 0]], np.float32)
    found = np.stack([g.multinomial(Tensor(p), 2, replacement).numpy() for _ in range(4000)])
    assert found.shape == (4000, 2, 2) and found.dtype == np.int64
    first = found[:, 0, 0]
    for k, share in enumerate(p[0] / 8):
        assert abs((first == k).mean() - share) < 6 * np.sqrt(share * (1 - share) / 4000) + 1e-12
    assert set(found[:, 1].ravel()) == {0, 2}
    assert (found[:, :, 0] != found[:, :, 1]).all() != replacement
    assert g.multinomial(Tensor([1.0, 1.0]), 1).shape == (1,)
    for weights, n in (([1.0, 0.0], 2), ([-1.0, 2.0], 1), ([0.0, 0.0], 1), ([[[1.0]]], 1), ([1.0], 0)):
        with pytest.raises(ValueError, match="multinomial"):
            g.multinomial(Tensor(weights), n, replacement and n < 2)


def test_shuffling_and_permutations():
    x = Tensor(np.arange(24).reshape(12, 2))
    assert random.shuffle(x) is None
    rows = x.numpy()
    assert sorted(rows[:, 0]) == list(range(0, 24, 2)) and (rows[:, 1] == rows[:, 0] + 1).all()
    assert rows[:, 0].tolist() != sorted(rows[:, 0])
    assert sorted(random.randperm(9).tolist()) == list(range(9))
    assert random.permutation(5, dtype="int32").dtype == np.int32 and random.permutation(5).dtype == np.int64
    with pytest.raises(ValueError, match="no rows"):
        random.shuffle(Tensor(1.0))


def test_shapes_and_dtypes_of_parameters():
    g = random.RNG(0)
    assert g.gamma(Tensor([[1.0], [10.0]]), Tensor([1.0, 5.0])).shape == (2, 2)
    assert g.gamma(Tensor([[1.0], [10.0]]), Tensor([1.0, 5.0]), 3).shape == (3, 2, 2)
    assert g.beta(2, 1, (2, 3)).shape == (2, 3) and g.poisson(2).shape == () and g.poisson(Tensor([1, 2])).dtype == np.float32
    assert g.exponential(np.ones(3)).dtype == np.float64
    assert random.rand(2, 3).shape == random.randn((2, 3)).shape == (2, 3) and random.rand().shape == ()
    bad = Tensor([-1.0, float("nan")])
    for x in (g.gamma(bad), g.gamma(1.0, bad), g.exponential(bad), g.poisson(bad), g.bernoulli(bad), g.binomial(Tensor([2.5]), 0.5)):
        assert np.isnan(x.numpy()).all()
    wrong = [lambda: g.bernoulli(-0.5), lambda: g.gamma(-1.0), lambda: g.beta(1.0, -2.0)]
    wrong += [lambda: g.poisson(float("nan")), lambda: g.exponential(-1)]
    wrong += [lambda: g.gamma(0.0), lambda: g.beta(1.0, 0), lambda: g.uniform(0, float("nan")), lambda: g.normal(std=float("inf"))]
    for call in wrong:
        with pytest.raises(ValueError, match="must be finite"):
            call()


DRAWS = {
    "uniform": lambda: random.uniform(size=5),
    "gamma": lambda: random.gamma(Tensor([0.5, 3.0]), 2.0, 4),
    "beta": lambda: random.beta(2.0, 3.0, 4),
    "poisson": lambda: random.poisson(20.0, 4),
    "exponential": lambda: random.exponential(1.0, 4),
    "binomial": lambda: random.binomial(50, 0.5, 4),
    "permutation": lambda: random.permutation(7),
    "multinomial": lambda: random.multinomial(Tensor([1.0, 2.0, 3.0]), 2),
    "bernoulli": lambda: random.bernoulli(0.5, 9),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_saved_state_resumes_with_equal_bits(name, tmp_path):
    """Eagerly and traced, by way of a file, whoever saved."""
    import tengen

    draw = DRAWS[name]
    run = trace(lambda: draw())
    random.seed(11)
    draw()
    tengen.save({"random": random.get_state()}, tmp_path / "state")
    want = [draw().numpy().tobytes() for _ in range(3)]
    end = random.get_state()
    assert len(set(want)) > 1
    for again in (run, draw):
        random.seed(3)
        again()
        random.set_state(tengen.load(tmp_path / "state")["random"])
        assert [again().numpy().tobytes() for _ in range(3)] == want
        assert (random.get_state() == end).all()


def test_draws_of_all_shapes_share_one_program(monkeypatch):
    """A network's weights have dozens of shapes: making it must not make a program for each."""
    made = []
    build = building.build
    monkeypatch.setattr(building, "build", lambda lo, ins, outs, name, *more: made.append(name) or build(lo, ins, outs, name, *more))
    monkeypatch.setattr(plans, "_programs", {})
    monkeypatch.setattr(plans, "HOT_AFTER_S", 0.0)
    g, known = random.RNG(3), hide_plans()  # those of other tests
    for shape in ((5,), (2, 3), (3, 3), (1, 4, 2), (2, 2, 3, 3), (6, 1, 1), (2, 3)):
        x = g.normal(0.5, 2.0, shape)
        assert x.shape == shape and x._layout.contiguous
        t = Tensor(np.zeros(shape, "float32"))
        M.init.normal_(t)
        M.init.uniform_(t)
    restore_plans(known)
    assert made.count("random_normal") == made.count("random_uniform") == 1 and "astype" not in made


def test_a_draw_does_not_depend_on_the_shape():
    rows = [random.RNG(3).normal(size=shape).numpy().ravel().tobytes() for shape in ((24,), (4, 6), (2, 1, 3, 4))]
    assert rows[0] == rows[1] == rows[2]
    seeded = random.RNG(3)
    traced = trace(lambda: seeded.normal(size=(4, 6)))
    assert traced().numpy().tobytes() == rows[0]
    with pytest.raises(TengenError, match="random_normal"):
        random.RNG(3).normal(size=(-2, -3))
