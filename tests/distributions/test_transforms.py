"""Distributions of transformed values: densities and their gradients beside PyTorch 2.13's, samples, edges, and a trace."""

import math

import numpy as np
import pytest

import tengen.distributions as D
from tengen import Tensor, random, trace
from tengen.autodiff import grad
from tengen.base.errors import ArgumentError


def t(*values):
    return Tensor(np.array(values))


N, GAMMA = D.Normal(t(0.3, -0.5), t(1.0, 2.0)), D.Gamma(t(2.0, 3.0), t(1.0, 1.0))
# distribution, value, then what PyTorch says: batch_shape, event_shape, log_prob, and the gradient of its sum by the value
CASES = {
    "tanh": (lambda: D.TransformedDistribution(N, [D.TanhTransform()]), (0.1, -0.9), (2,), (), [-0.928821, -0.069506], [0.403702, -8.194448]),
    "sigmoid": (lambda: D.TransformedDistribution(N, [D.SigmoidTransform()]), (0.1, 0.9), (2,), (), [-1.629058, -0.113518],
                [18.858051, 1.396598]),
    "exp, affine": (lambda: D.TransformedDistribution(N, [D.ExpTransform(), D.AffineTransform(1.0, -2.0)]), (-3.0, -0.9), (2,), (),
                    [-2.382515, -2.279107], [0.348287, 0.585356]),
    "softplus": (lambda: D.TransformedDistribution(N, D.SoftplusTransform()), (0.1, 3.0), (2,), (), [-1.823552, -3.047907],
                 [17.310701, -0.959806]),
    "power": (lambda: D.TransformedDistribution(GAMMA, [D.PowerTransform(t(0.5, 2.0))]), (0.1, 3.0), (2,), (), [-6.224608, -2.569039],
              [29.8, -0.122008]),
    "independent": (lambda: D.TransformedDistribution(D.Independent(N, 1), [D.TanhTransform(), D.AffineTransform(t(1.0, 2.0), t(3.0, 4.0))]),
                    (0.1, 0.9), (), (2,), [-5.034666], [0.003487, -0.163471]),
    "vectors": (lambda: D.TransformedDistribution(N, [D.AffineTransform(t(1.0, 2.0), t(3.0, 4.0), event_dim=1)]), (0.1, 0.9), (), (2,),
                [-5.202259], [0.2, -0.014062]),
    "broadcast": (lambda: D.TransformedDistribution(D.Normal(Tensor(np.float64(0)), 1.0), [D.AffineTransform(t(1.0, 2.0), 2.0)]), (0.1, 0.9),
                  (2,), (), [-1.713336, -1.763336], [0.225, 0.275]),
    "composed": (lambda: D.TransformedDistribution(N, [D.ComposeTransform([D.AffineTransform(0.0, 0.5), D.TanhTransform()])]), (0.1, 0.9),
                 (2,), (), [-0.220674, -0.741227], [0.402685, 0.409371]),
    "inverse": (lambda: D.TransformedDistribution(GAMMA, [D.ExpTransform().inv]), (0.1, 0.9), (2,), (), [-0.905171, -0.45275],
                [0.894829, 0.540397]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_densities_as_pytorchs(case):
    make, y, batch, event, wanted, slope = CASES[case]
    d = make()
    assert d.batch_shape == batch and d.event_shape == event
    np.testing.assert_allclose(d.log_prob(t(*y)).numpy().reshape(-1), wanted, atol=2e-6)
    np.testing.assert_allclose(grad(lambda v: d.log_prob(v).sum())(t(*y)).numpy(), slope, rtol=1e-5, atol=2e-6)
    assert (d.rsample if d.has_rsample else d.sample)((3, 4)).shape == (3, 4, *batch, *event)


def test_outside_of_the_support():
    """-inf, NaN stays, and gradients of what is inside have no NaN."""
    for d, outside in ((D.TransformedDistribution(N, [D.TanhTransform()]), 1.5), (D.TransformedDistribution(N, [D.ExpTransform()]), -1.0)):
        y = t(outside, 0.5)
        found = d.log_prob(y).numpy()
        assert found[0] == -math.inf and np.isfinite(found[1]) and np.isfinite(grad(lambda v, d=d: d.log_prob(v)[1])(y).numpy()).all()
        assert np.isnan(d.log_prob(t(math.nan, 0.5)).numpy()[0])
    pair = D.TransformedDistribution(D.Independent(N, 1), [D.ExpTransform()])
    assert pair.log_prob(t(-1.0, 0.5)).item() == -math.inf


def test_distribution_functions_of_increasing_and_decreasing_transforms():
    d = D.TransformedDistribution(D.Laplace(t(0.3, -0.5), t(1.0, 2.0)), [D.AffineTransform(0.0, -1.0), D.ExpTransform()])
    np.testing.assert_allclose(d.cdf(t(0.5, 2.0)).numpy(), [0.337465, 0.546028], atol=1e-6)
    np.testing.assert_allclose(d.icdf(t(0.25, 0.75)).numpy(), [0.370409, 6.594885], rtol=1e-6)
    with pytest.raises(NotImplementedError, match="cdf"):
        D.TransformedDistribution(N, [D.AffineTransform(0.0, t(1.0, -1.0))]).cdf(t(0.5, 2.0))


def test_a_cache_keeps_what_a_sample_was_made_of():
    """tanh(30) is 1, whose inverse is infinite; the policy's sample has a density all the same, also in a trace, with equal bits."""

    def run():
        d = D.TransformedDistribution(D.Normal(Tensor([30.0, 0.1]), 1.0), [D.TanhTransform(cache_size=1)])
        y = d.rsample()
        return y, d.log_prob(y)

    random.seed(3)
    y, found = run()
    assert y.numpy()[0] == 1.0 and np.isfinite(found.numpy()).all()
    random.seed(3)
    assert [v.numpy().tobytes() for v in trace(run)()] == [y.numpy().tobytes(), found.numpy().tobytes()]
    plain = D.TransformedDistribution(D.Normal(Tensor([30.0, 0.1]), 1.0), [D.TanhTransform()])
    assert not np.isfinite(plain.log_prob(y).numpy()[0])


def test_pytorchs_names():
    from tengen.pytorch.distributions import TransformedDistribution, transforms
    from tengen.pytorch.distributions.transforms import TanhTransform

    assert TransformedDistribution is D.TransformedDistribution and transforms.TanhTransform is TanhTransform is D.TanhTransform


def test_an_own_transform_and_what_is_none():
    class Cube(D.Transform):
        sign = 1

        def _call(self, x):
            return x * x * x

        def _inverse(self, y):
            return abs(y) ** (1 / 3) * (2 * (y > 0).astype("float64") - 1)

        def log_abs_det_jacobian(self, x, y):
            return (3 * x * x).log()

    d, y = D.TransformedDistribution(N, Cube()), np.array([8.0, -1.0])
    x = np.cbrt(y)
    wanted = N.log_prob(Tensor(x)).numpy() - np.log(3 * x * x)
    np.testing.assert_allclose(d.log_prob(Tensor(y)).numpy(), wanted, rtol=1e-12)
    with pytest.raises(ArgumentError, match="a function is no Transform"):
        D.TransformedDistribution(N, [lambda x: x])
    with pytest.raises(ArgumentError, match="cache_size=2"):
        D.ExpTransform(cache_size=2)
    with pytest.raises(NotImplementedError, match="reparameterised"):
        D.TransformedDistribution(D.Poisson(t(1.0, 2.0)), [D.AffineTransform(0.0, 2.0)]).rsample()
