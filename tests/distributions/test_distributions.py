"""Distributions against densities written out here: moments, entropies and divergences by quadrature or sums over them, samples by
their frequencies below some points, gradients by finite differences; PyTorch's numbers where it is installed."""

import math
import warnings

import mpmath
import numpy as np
import pytest
from exhaustive import but

from tengen import Tensor, distributions, random, trace
from tengen.autodiff import GradManager
from tengen.distributions import kl_divergence

INF, PI, N = math.inf, math.pi, 20_000
g = mpmath.gamma


def beta_function(a, b):
    return g(a) * g(b) / g(a + b)


# name -> (density, support, one set of parameters, another)
CONTINUOUS = {
    "Normal": (lambda x, loc, scale: mpmath.npdf(x, loc, scale), (-INF, INF), {"loc": 0.5, "scale": 2.0}, {"loc": -1.0, "scale": 0.75}),
    "LogNormal": (
        lambda x, loc, scale: mpmath.npdf(mpmath.log(x), loc, scale) / x if x > 0 else 0, (0, INF), {"loc": 0.25, "scale": 0.5},
        {"loc": -0.5, "scale": 0.75}),
    "Laplace": (
        lambda x, loc, scale: mpmath.exp(-abs(x - loc) / scale) / (2 * scale), (-INF, INF), {"loc": 0.5, "scale": 2.0},
        {"loc": -1.0, "scale": 0.75}),
    "Cauchy": (
        lambda x, loc, scale: 1 / (PI * scale * (1 + ((x - loc) / scale) ** 2)), (-INF, INF), {"loc": 0.5, "scale": 2.0},
        {"loc": -1.0, "scale": 0.75}),
    "Gumbel": (
        lambda x, loc, scale: mpmath.exp(-(x - loc) / scale - mpmath.exp(-(x - loc) / scale)) / scale, (-20, 80),
        {"loc": 0.5, "scale": 2.0}, {"loc": -1.0, "scale": 2.5}),
    "HalfNormal": (lambda x, scale: 2 * mpmath.npdf(x, 0, scale), (0, INF), {"scale": 2.0}, {"scale": 0.75}),
    "Exponential": (lambda x, rate: rate * mpmath.exp(-rate * x), (0, INF), {"rate": 2.0}, {"rate": 0.75}),
    "Uniform": (lambda x, low, high: mpmath.mpf(1) / (high - low), None, {"low": -0.5, "high": 2.0}, {"low": -1.0, "high": 2.5}),
    "Gamma": (
        lambda x, concentration, rate: rate**concentration * x ** (concentration - 1) * mpmath.exp(-rate * x) / g(concentration),
        (0, INF), {"concentration": 3.5, "rate": 2.0}, {"concentration": 1.5, "rate": 0.75}),
    "Chi2": (lambda x, df: x ** (df / 2 - 1) * mpmath.exp(-x / 2) / 2 ** (df / 2) / g(df / 2), (0, INF), {"df": 5.0}, {"df": 3.0}),
    "Beta": (
        lambda x, concentration1, concentration0: x ** (concentration1 - 1) * (1 - x) ** (concentration0 - 1)
        / beta_function(concentration1, concentration0),
        (0, 1), {"concentration1": 2.5, "concentration0": 3.0}, {"concentration1": 1.5, "concentration0": 2.0}),
    "StudentT": (
        lambda x, df, loc, scale: (1 + ((x - loc) / scale) ** 2 / df) ** (-(df + 1) / 2)
        / (scale * mpmath.sqrt(df) * beta_function(mpmath.mpf(1) / 2, df / 2)),
        (-INF, INF), {"df": 7.0, "loc": 0.5, "scale": 2.0}, {"df": 5.0, "loc": -1.0, "scale": 0.75}),
    "Weibull": (
        lambda x, scale, concentration: concentration / scale * (x / scale) ** (concentration - 1)
        * mpmath.exp(-((x / scale) ** concentration)),
        (0, INF), {"scale": 2.0, "concentration": 1.5}, {"scale": 0.75, "concentration": 2.5}),
    "Pareto": (
        lambda x, scale, alpha: alpha * scale**alpha / x ** (alpha + 1), None, {"scale": 0.5, "alpha": 6.5}, {"scale": 2.0, "alpha": 4.5}),
    "GeneralizedPareto": (
        lambda x, loc, scale, concentration: (1 + concentration * (x - loc) / scale) ** (-1 / mpmath.mpf(concentration) - 1) / scale, None,
        {"loc": 0.5, "scale": 2.0, "concentration": 0.125}, {"loc": -1.0, "scale": 0.75, "concentration": -0.25}),
    "HalfCauchy": (lambda x, scale: 2 / (PI * scale * (1 + (x / scale) ** 2)), (0, INF), {"scale": 2.0}, {"scale": 0.75}),
    "Kumaraswamy": (
        lambda x, concentration1, concentration0: concentration1 * concentration0 * x ** (concentration1 - 1)
        * (1 - x**concentration1) ** (concentration0 - 1), (0, 1), {"concentration1": 2.5, "concentration0": 3.0},
        {"concentration1": 1.5, "concentration0": 2.0}),
    "InverseGamma": (
        lambda x, concentration, rate: (
            rate**concentration * x ** (-concentration - 1) * mpmath.exp(-rate / x) / g(concentration) if x > 0 else 0),
        (0, INF), {"concentration": 6.0, "rate": 4.0}, {"concentration": 8.5, "rate": 7.0}),
    "FisherSnedecor": (
        lambda x, df1, df2: mpmath.sqrt((df1 * x) ** df1 * df2**df2 / (df1 * x + df2) ** (df1 + df2))
        / (x * beta_function(df1 / 2, df2 / 2)),
        (0, INF), {"df1": 5.0, "df2": 14.0}, {"df1": 7.0, "df2": 16.0}),
}  # fmt: skip
# name -> (probability, largest outcome that counts, one set of parameters, another)
DISCRETE = {
    "Bernoulli": (lambda k, probs: probs if k else 1 - probs, 1, {"probs": 0.3}, {"probs": 0.8}),
    "Geometric": (lambda k, probs: probs * (1 - probs) ** k, 400, {"probs": 0.3}, {"probs": 0.8}),
    "Binomial": (
        lambda k, total_count, probs: math.comb(int(total_count), k) * probs**k * (1 - probs) ** (total_count - k), 9,
        {"total_count": 9.0, "probs": 0.3}, {"total_count": 9.0, "probs": 0.8}),
    "Poisson": (lambda k, rate: mpmath.exp(-rate) * mpmath.mpf(rate) ** k / mpmath.factorial(k), 90, {"rate": 4.5}, {"rate": 11.0}),
    "Categorical": (lambda k, probs: probs[k], 3, {"probs": [0.1, 0.2, 0.3, 0.4]}, {"probs": [0.25, 0.25, 0.4, 0.1]}),
}  # fmt: skip
NAMES = [*CONTINUOUS, *DISCRETE]
FURTHER = ("Weibull", "Pareto", "GeneralizedPareto", "HalfCauchy", "Kumaraswamy", "InverseGamma", "FisherSnedecor")  # without divergences


def make(name, parameters, dtype="float64"):
    return getattr(distributions, name)(**{k: Tensor(np.array(v, dtype)) for k, v in parameters.items()})


def support(name, parameters):
    if name == "Pareto":
        return parameters["scale"], INF
    if name == "GeneralizedPareto":
        low, scale, c = parameters.values()
        return low, INF if c >= 0 else low - scale / c
    return CONTINUOUS[name][1] or (parameters["low"], parameters["high"])


def quadrature(f, low, high):
    """In parts, with corners where the densities here have them."""
    corners = [-20, -6, -2, -1, 0, 0.1, 0.5, 1, 2, 5, 20]
    return float(mpmath.quad(f, [low, *(c for c in corners if low < c < high), high]))


def mean_of(name, f, parameters):
    """The expectation of f(x), as a number."""
    density, *_ = CONTINUOUS.get(name) or DISCRETE[name]
    if name in DISCRETE:
        return float(mpmath.fsum(density(k, **parameters) * f(k) for k in range(DISCRETE[name][1] + 1)))
    low, high = support(name, parameters)
    return quadrature(lambda x: density(x, **parameters) * f(x), low, high)


def log_density(name, parameters):
    density = (CONTINUOUS.get(name) or DISCRETE[name])[0]

    def f(x):
        p = density(x, **parameters)
        return mpmath.log(p) if p > 0 else mpmath.mpf(-1e4)

    return f


def points(name, parameters):
    if name in DISCRETE:
        return np.arange(min(DISCRETE[name][1], 12) + 1, dtype=np.float64)
    low, high = support(name, parameters)
    return np.linspace(max(low, -6.0), min(high, 9.0), 24)[1:-1]


@but(first_of="name")
@pytest.mark.parametrize("which", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_densities(name, which):
    parameters = (CONTINUOUS.get(name) or DISCRETE[name])[which]
    d, x = make(name, parameters), points(name, parameters)
    want = [float(log_density(name, parameters)(int(v) if name in DISCRETE else v)) for v in x]
    np.testing.assert_allclose(d.log_prob(Tensor(x)).numpy(), want, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(d.prob(Tensor(x)).numpy(), np.exp(want), rtol=1e-9)
    traced = trace(lambda v: make(name, parameters).log_prob(v))
    assert traced(Tensor(x)).numpy().tobytes() == d.log_prob(Tensor(x)).numpy().tobytes()
    single = make(name, parameters, "float32").log_prob(Tensor(x.astype("f4")))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single.numpy(), want, rtol=3e-6, atol=3e-6)


@but(first_of="name")
@pytest.mark.parametrize("which", [2, 3])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("Cauchy", "HalfCauchy", "Categorical")])
def test_moments_and_entropies(name, which):
    parameters = (CONTINUOUS.get(name) or DISCRETE[name])[which]
    d = make(name, parameters)
    mean = mean_of(name, lambda x: x, parameters)
    variance = mean_of(name, lambda x: (x - mean) ** 2, parameters)
    np.testing.assert_allclose([d.mean.item(), d.variance.item(), d.stddev.item()], [mean, variance, variance**0.5], rtol=1e-6)
    if name not in ("Poisson", "Binomial"):
        f = log_density(name, parameters)
        np.testing.assert_allclose(d.entropy().item(), -mean_of(name, f, parameters), rtol=1e-6, atol=1e-7)


def test_entropies_of_cauchy_and_categorical():
    assert make("Cauchy", {"loc": 1.0, "scale": 2.0}).entropy().item() == pytest.approx(math.log(8 * PI))
    assert make("HalfCauchy", {"scale": 2.0}).entropy().item() == pytest.approx(math.log(4 * PI))
    assert make("HalfCauchy", {"scale": 2.0}).mean.item() == INF == make("Pareto", {"scale": 1.0, "alpha": 1.0}).mean.item()
    assert np.isnan(make("FisherSnedecor", {"df1": 3.0, "df2": 4.0}).variance.item())
    assert np.isnan(make("Cauchy", {"loc": 1.0, "scale": 2.0}).mean.item())
    p = np.array([0.5, 0.25, 0.25, 0.0])
    assert distributions.Categorical(probs=Tensor(p * 8)).entropy().item() == pytest.approx(1.5 * math.log(2))


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("StudentT", "Chi2", *FURTHER)])
def test_divergences(name):
    one, other = (CONTINUOUS.get(name) or DISCRETE[name])[2:4]
    p, q = make(name, one), make(name, other)
    fp, fq = log_density(name, one), log_density(name, other)
    np.testing.assert_allclose(kl_divergence(p, q).item(), mean_of(name, lambda x: fp(x) - fq(x), one), rtol=1e-5)
    np.testing.assert_allclose(kl_divergence(p, p).item(), 0, atol=1e-9)


def test_a_divergence_of_ones_own():
    class Half(distributions.HalfNormal):
        pass

    p = Half(Tensor(1.0))
    assert kl_divergence(p, p).item() == 0.0  # by the class above it
    with pytest.raises(NotImplementedError, match="no divergence of Half from Normal"):
        kl_divergence(p, distributions.Normal(0.0, 1.0))

    @distributions.register_kl(Half, distributions.Normal)
    def _(p, q):
        return Tensor(7.0)

    assert kl_divergence(p, distributions.Normal(0.0, 1.0)).item() == 7.0


WITH_CDF = [
    "Weibull", "Pareto", "GeneralizedPareto", "HalfCauchy", "Kumaraswamy",
    "Normal", "LogNormal", "Laplace", "Cauchy", "Gumbel", "HalfNormal", "Exponential",
    "Uniform", "Geometric",
]  # fmt: skip


def below(name, parameters, x):
    """The probability of at most x."""
    density = (CONTINUOUS.get(name) or DISCRETE[name])[0]
    if name in DISCRETE:
        return float(sum(density(k, **parameters) for k in range(int(x) + 1)))
    low, high = support(name, parameters)
    return quadrature(lambda v: density(v, **parameters), low, float(x))


@pytest.mark.parametrize("name", WITH_CDF)
def test_distribution_functions(name):
    parameters = (CONTINUOUS.get(name) or DISCRETE[name])[2]
    d, x = make(name, parameters), points(name, parameters)[::3]
    got = d.cdf(Tensor(x))
    np.testing.assert_allclose(got.numpy(), [below(name, parameters, v) for v in x], rtol=1e-6, atol=1e-9)
    if name in ("Laplace", "Cauchy", "Gumbel", "Exponential", "Uniform", *FURTHER):
        np.testing.assert_allclose(d.icdf(got).numpy(), x, rtol=1e-9, atol=1e-9)
    low = support(name, parameters)[0] if name in CONTINUOUS else 0
    if low > -20:
        assert d.cdf(low - 1.0).item() == 0.0 and d.log_prob(low - 1.0).item() == -INF


@but(every=3)
@pytest.mark.parametrize("name", NAMES)
def test_samples_fall_below_points_as_often_as_they_should(name):
    """Within six standard deviations, which happens otherwise once in 5e8 times."""
    for which in (2, 3):
        parameters = (CONTINUOUS.get(name) or DISCRETE[name])[which]
        random.seed(which)
        x = make(name, parameters, "float32").sample((N // 2, 2)).numpy()
        assert x.shape == (N // 2, 2) and x.dtype == (np.int64 if name == "Categorical" else np.float32)
        for v in points(name, parameters)[1:-1:4]:
            p = min(max(below(name, parameters, v), 0.0), 1.0)
            assert abs((x <= v).mean() - p) < 6 * math.sqrt(p * (1 - p) / N) + 1e-6, (v, p)
        again = make(name, parameters, "float32")
        assert bool(np.all(again.support.check(Tensor(x.astype("f4"))).numpy()))


@but(every=3)
@pytest.mark.parametrize("name", NAMES)
def test_traced_samples_have_the_bits_of_eager_ones(name):
    parameters = (CONTINUOUS.get(name) or DISCRETE[name])[2]
    d = make(name, parameters, "float32")
    run = trace(lambda: d.sample(5))
    random.seed(4)
    want = [d.sample(5).numpy().tobytes() for _ in range(3)]
    random.seed(4)
    assert [run().numpy().tobytes() for _ in range(3)] == want and len(set(want)) > 1


SMOOTH = [n for n in NAMES if getattr(distributions, n).has_rsample]


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_of_samples(name):
    """The derivative of sum(w x) by each parameter, for the same random numbers."""
    parameters = CONTINUOUS[name][2]
    w = np.random.default_rng(0).uniform(1, 2, 50)

    def value(**parameters):
        random.seed(9)
        return make(name, parameters).rsample(50)

    tensors = {k: Tensor(np.array(v)) for k, v in parameters.items()}
    gm = GradManager().attach(list(tensors.values()))
    with gm:
        random.seed(9)
        gm.backward((getattr(distributions, name)(**tensors).rsample(50) * Tensor(w)).sum())
    for k, t in tensors.items():
        h = 1e-5
        up, down = (value(**{**parameters, k: parameters[k] + s * h}).numpy() @ w for s in (1, -1))
        assert t.grad.item() == pytest.approx((up - down) / (2 * h), rel=1e-6)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in SMOOTH])
def test_what_has_no_smooth_samples_says_so(name):
    d = make(name, (CONTINUOUS.get(name) or DISCRETE[name])[2])
    with pytest.raises(NotImplementedError, match="no reparameterised samples"):
        d.rsample()


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_densities(name):
    parameters = (CONTINUOUS.get(name) or DISCRETE[name])[2]
    x = points(name, parameters)[1:8]
    whole = {"total_count"}
    tensors = {k: Tensor(np.array(v)) for k, v in parameters.items()}
    gm = GradManager().attach([t for k, t in tensors.items() if k not in whole])
    with gm:
        gm.backward(getattr(distributions, name)(**tensors).log_prob(Tensor(x)).sum())
    for k, t in tensors.items():
        if k in whole:
            continue
        base = np.array(parameters[k], np.float64)
        for i in np.ndindex(base.shape):
            h = 1e-5
            step = np.zeros(base.shape)
            step[i] = h
            up, down = (
                make(name, {**parameters, k: base + s * step}).log_prob(Tensor(x)).numpy().sum() for s in (1, -1)
            )  # fmt: skip
            assert np.asarray(t.grad.numpy())[i] == pytest.approx((up - down) / (2 * h), rel=1e-5, abs=1e-6)


def test_dirichlet():
    a = np.array([[1.5, 2.0, 3.0], [4.0, 0.75, 1.0]])
    d = distributions.Dirichlet(Tensor(a))
    assert d.batch_shape == (2,) and d.event_shape == (3,)
    x = np.array([0.2, 0.3, 0.5])
    want = [sum((c - 1) * math.log(v) - math.lgamma(c) for c, v in zip(row, x)) + math.lgamma(row.sum()) for row in a]
    np.testing.assert_allclose(d.log_prob(Tensor(x)).numpy(), want, rtol=1e-10)
    assert d.log_prob(Tensor([0.5, 0.6, 0.1])).tolist() == [-INF, -INF]
    random.seed(0)
    s = d.sample(N).numpy()
    assert s.shape == (N, 2, 3) and abs(s.sum(-1) - 1).max() < 1e-6
    total = a.sum(-1, keepdims=True)
    variance = a * (total - a) / (total**2 * (total + 1))
    assert (abs(s.mean(0) - a / total) < 6 * np.sqrt(variance / N)).all()
    np.testing.assert_allclose(d.mean.numpy(), a / total)
    np.testing.assert_allclose(d.variance.numpy(), variance)
    two = distributions.Dirichlet(Tensor([2.5, 3.0])), distributions.Dirichlet(Tensor([1.5, 2.0]))  # are beta distributions
    pair = distributions.Beta(2.5, 3.0), distributions.Beta(1.5, 2.0)
    assert two[0].entropy().item() == pytest.approx(pair[0].entropy().item(), rel=1e-5)
    assert kl_divergence(*two).item() == pytest.approx(kl_divergence(*pair).item(), rel=1e-4)


@pytest.mark.parametrize("name", ["Bernoulli", "Geometric", "Binomial", "Categorical"])
def test_logits(name):
    """The same distribution as by probabilities, also where those round to 0 or 1."""
    parameters = DISCRETE[name][2]
    p = np.array(parameters["probs"])
    more = {k: v for k, v in parameters.items() if k != "probs"}
    logits = np.log(p) + 3 if name == "Categorical" else np.log(p / (1 - p))
    a, b = make(name, parameters), make(name, {**more, "logits": logits})
    x = Tensor(points(name, parameters))
    np.testing.assert_allclose(b.log_prob(x).numpy(), a.log_prob(x).numpy(), rtol=1e-12)
    np.testing.assert_allclose(b.probs.numpy(), p, rtol=1e-12)
    if name == "Bernoulli":
        assert distributions.Bernoulli(logits=100.0).log_prob(0.0).item() == -100.0
        assert distributions.Bernoulli(probs=Tensor([0.0, 1.0])).entropy().tolist() == [0, 0]
    with pytest.raises(ValueError, match="either probs or logits"):
        getattr(distributions, name)(**more)


def test_shapes_and_errors():
    d = distributions.Normal(Tensor(np.zeros((3, 1), "f4")), Tensor(np.ones(4, "f4")))
    assert d.batch_shape == (3, 4) and d.sample(2).shape == (2, 3, 4) and d.rsample((2, 5)).shape == (2, 5, 3, 4)
    assert d.log_prob(np.zeros((7, 1, 1), "f4")).shape == (7, 3, 4) and d.mean.shape == (3, 4)
    assert repr(distributions.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
    assert np.isnan(d.log_prob(math.nan).numpy()).all() and np.isnan(distributions.Gamma(1.0, 1.0).log_prob(math.nan).item())
    for call, message in [
        (lambda: distributions.Normal(0.0, -1.0), "Normal: scale must be positive, got -1.0"),
        (lambda: distributions.Beta(1.0, 0.0), "concentration0 must be positive"),
        (lambda: distributions.Bernoulli(1.5), "probs must be unit_interval"),
        (lambda: distributions.Uniform(1.0, 1.0), "high - low must be positive"),
        (lambda: distributions.Binomial(2.5, 0.5), "total_count must be nonnegative_integer"),
        (lambda: distributions.Categorical([0.0, 0.0]), "probs must be weights along the last axis"),
        (lambda: distributions.Dirichlet(1.0), "help: .*, n"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(NotImplementedError, match="Gamma has no cdf"):
        distributions.Gamma(1.0, 1.0).cdf(1.0)


@pytest.mark.parametrize("name", NAMES)
def test_pytorch_agrees(name):
    torch = pytest.importorskip("torch")
    for which in (2, 3):
        parameters = (CONTINUOUS.get(name) or DISCRETE[name])[which]
        theirs = {k: torch.tensor(v, dtype=torch.float64) for k, v in parameters.items()}
        if name == "Binomial":
            theirs["total_count"] = 9
        d, t, x = make(name, parameters), getattr(torch.distributions, name)(**theirs), points(name, parameters)
        try:
            want = t.log_prob(torch.tensor(x)).numpy()
        except RuntimeError as e:
            pytest.skip(f"PyTorch {torch.__version__} computes no {name} in float64: {e}")
        np.testing.assert_allclose(d.log_prob(Tensor(x)).numpy(), want, rtol=1e-9, atol=1e-12)
        for what in ("mean", "variance"):
            np.testing.assert_allclose(getattr(d, what).numpy(), getattr(t, what).numpy(), rtol=1e-9)
        if name not in ("Poisson", "Binomial", "FisherSnedecor"):  # PyTorch has none
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                np.testing.assert_allclose(d.entropy().item(), t.entropy().item(), rtol=1e-9)
