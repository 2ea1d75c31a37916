"""Constraints of parameters and of values, and transforms to them, beside those of PyTorch 2.13 and beside numerical derivatives."""

import numpy as np
import pytest

import tengen.distributions as D
from tengen import Tensor, trace
from tengen.autodiff import grad
from tengen.base.errors import ArgumentError, ShapeError
from tengen.distributions import biject_to, transform_to
from tengen.distributions import constraints as C

T = lambda *v: Tensor(list(v), dtype="float64")
EYE = Tensor(np.eye(2))
X = np.array([0.3, -0.7, 1.2, 0.1, -2.0, 0.5])
# a distribution; its support's class in PyTorch, where PyTorch leaves 0 out and Tengen does not "or equal"; and the classes of its parameters'
MAKE = {
    "Bernoulli": (lambda: D.Bernoulli(T(0.3)), "Boolean", "probs:Interval logits:Real"),
    "Beta": (lambda: D.Beta(T(2.0), T(3.0)), "Interval", "concentration1:GreaterThan concentration0:GreaterThan"),
    "Binomial": (lambda: D.Binomial(T(4.0), T(0.3)), "IntegerInterval", "total_count:IntegerGreaterThan probs:Interval logits:Real"),
    "Categorical": (lambda: D.Categorical(T(0.3, 0.7)), "IntegerInterval", "probs:Simplex logits:Independent"),
    "Cauchy": (lambda: D.Cauchy(T(0.0), T(1.0)), "Real", "loc:Real scale:GreaterThan"),
    "Chi2": (lambda: D.Chi2(T(3.0)), "GreaterThanEq", "df:GreaterThan"),
    "ContinuousBernoulli": (lambda: D.ContinuousBernoulli(T(0.3)), "Interval", "probs:Interval logits:Real"),
    "Dirichlet": (lambda: D.Dirichlet(T(2.0, 3.0)), "Simplex", "concentration:Independent"),
    "Exponential": (lambda: D.Exponential(T(1.0)), "GreaterThanEq", "rate:GreaterThan"),
    "FisherSnedecor": (lambda: D.FisherSnedecor(T(4.0), T(5.0)), "GreaterThan or equal", "df1:GreaterThan df2:GreaterThan"),
    "Gamma": (lambda: D.Gamma(T(2.0), T(1.0)), "GreaterThanEq", "concentration:GreaterThan rate:GreaterThan"),
    "GeneralizedPareto": (lambda: D.GeneralizedPareto(T(0.0), T(1.0), T(-0.5)), "Interval", "loc:Real scale:GreaterThan concentration:Real"),
    "Geometric": (lambda: D.Geometric(T(0.3)), "IntegerGreaterThan", "probs:Interval logits:Real"),
    "Gumbel": (lambda: D.Gumbel(T(0.0), T(1.0)), "Real", "loc:Real scale:GreaterThan"),
    "HalfCauchy": (lambda: D.HalfCauchy(T(1.0)), "GreaterThanEq", "scale:GreaterThan"),
    "HalfNormal": (lambda: D.HalfNormal(T(1.0)), "GreaterThanEq", "scale:GreaterThan"),
    "InverseGamma": (lambda: D.InverseGamma(T(2.0), T(1.0)), "GreaterThan", "concentration:GreaterThan rate:GreaterThan"),
    "Kumaraswamy": (lambda: D.Kumaraswamy(T(2.0), T(3.0)), "Interval", "concentration1:GreaterThan concentration0:GreaterThan"),
    "LKJCholesky": (lambda: D.LKJCholesky(3, T(1.0)), "CorrCholesky", "concentration:GreaterThan"),
    "Laplace": (lambda: D.Laplace(T(0.0), T(1.0)), "Real", "loc:Real scale:GreaterThan"),
    "LogNormal": (lambda: D.LogNormal(T(0.0), T(1.0)), "GreaterThan", "loc:Real scale:GreaterThan"),
    "LogisticNormal": (lambda: D.LogisticNormal(T(0.0, 0.0), T(1.0, 1.0)), "Simplex", "loc:Real scale:GreaterThan"),
    "LowRankMultivariateNormal": (lambda: D.LowRankMultivariateNormal(T(0.0, 0.0), Tensor(np.ones((2, 1))), T(1.0, 1.0)), "Independent",
                                  "loc:Independent cov_factor:Independent cov_diag:Independent"),
    "Multinomial": (lambda: D.Multinomial(2, T(0.3, 0.7)), "Multinomial", "probs:Simplex logits:Independent"),
    "MultivariateNormal": (lambda: D.MultivariateNormal(T(0.0, 0.0), EYE), "Independent",
                           "loc:Independent covariance_matrix:PositiveDefinite precision_matrix:PositiveDefinite scale_tril:LowerCholesky"),
    "NegativeBinomial": (lambda: D.NegativeBinomial(T(3.0), T(0.3)), "IntegerGreaterThan",
                         "total_count:GreaterThanEq probs:HalfOpenInterval logits:Real"),
    "Normal": (lambda: D.Normal(T(0.0), T(1.0)), "Real", "loc:Real scale:GreaterThan"),
    "OneHotCategorical": (lambda: D.OneHotCategorical(T(0.3, 0.7)), "OneHot", "probs:Simplex logits:Independent"),
    "OneHotCategoricalStraightThrough": (lambda: D.OneHotCategoricalStraightThrough(T(0.3, 0.7)), "OneHot", "probs:Simplex logits:Independent"),
    "Pareto": (lambda: D.Pareto(T(1.0), T(2.0)), "GreaterThanEq", "alpha:GreaterThan scale:GreaterThan"),
    "Poisson": (lambda: D.Poisson(T(1.0)), "IntegerGreaterThan", "rate:GreaterThanEq"),
    "RelaxedBernoulli": (lambda: D.RelaxedBernoulli(T(0.5), T(0.3)), "Interval", "probs:Interval logits:Real"),
    "RelaxedOneHotCategorical": (lambda: D.RelaxedOneHotCategorical(T(0.5), T(0.3, 0.7)), "Simplex", "probs:Simplex logits:Independent"),
    "StudentT": (lambda: D.StudentT(T(3.0)), "Real", "df:GreaterThan loc:Real scale:GreaterThan"),
    "Uniform": (lambda: D.Uniform(T(0.0), T(2.0)), "Interval", "low:LessThan high:GreaterThan"),
    "VonMises": (lambda: D.VonMises(T(0.0), T(1.0)), "Real", "loc:Real concentration:GreaterThan"),
    "Weibull": (lambda: D.Weibull(T(1.0), T(2.0)), "GreaterThan or equal", "scale:GreaterThan concentration:GreaterThan"),
    "Wishart": (lambda: D.Wishart(T(3.0), EYE), "PositiveDefinite",
                "covariance_matrix:PositiveDefinite precision_matrix:PositiveDefinite scale_tril:LowerCholesky df:GreaterThan"),
}  # fmt: skip


@pytest.mark.parametrize("name", MAKE)
def test_families(name):
    """The sets are PyTorch's; parameters lie in theirs, samples in the support; what is transformed to them does, too."""
    make, support, parameters = MAKE[name]
    d = make()
    kinds = {k: type(c).__name__ for k, c in d.arg_constraints.items()}
    assert kinds == dict(p.split(":") for p in parameters.split())
    assert type(d.support).__name__ == support.replace(" or equal", "Eq") and d.support.event_dim == len(d.event_shape)
    assert d.support.check(d.sample((3,)).astype("float64")).numpy().all()
    for what, constraint in d.arg_constraints.items():
        if hasattr(d, what):
            assert constraint.check(getattr(d, what)).numpy().all()
    for constraint in (d.support, *d.arg_constraints.values()):
        shape = (3, 2, 2) if constraint.event_dim < 2 or constraint is not C.corr_cholesky else (3,)
        x = Tensor(np.random.default_rng(0).normal(size=shape))
        if constraint.is_discrete:
            with pytest.raises(NotImplementedError, match="transform_to: no transform to"):
                transform_to(constraint)
        else:
            assert constraint.check(transform_to(constraint)(x)).numpy().all()


def test_no_family_is_left_out():
    made_of_others = {"Independent", "MixtureSameFamily", "TransformedDistribution", "Distribution"}
    assert {n for n in D.__all__ if isinstance(getattr(D, n), type) and issubclass(getattr(D, n), D.Distribution)} == {*MAKE} | made_of_others


CORR = [1.0, 0, 0, 0, 0.2913126124515909, 0.9566279119002483, 0, 0, -0.6043677771171635, 0.6641771771547985, 0.4400093945919131, 0,
        0.09966799462495582, -0.9592274447386058, 0.12222016016092695, 0.23454473466254144]  # fmt: skip
# a constraint, and PyTorch's transform of X, flat, and its log_abs_det_jacobian
BIJECTIVE = {
    "greater_than": (C.greater_than(2.0), [3.349858807576003, 2.4965853037914094, 5.320116922736547, 3.1051709180756477, 2.135335283236613,
                                           3.648721270700128], X),
    "less_than": (C.less_than(-1.0), [-2.349858807576003, -1.4965853037914094, -4.320116922736547, -2.1051709180756477, -1.1353352832366128,
                                      -2.648721270700128], X),
    "interval": (C.interval(-1.0, 3.0), [1.2977700672466361, 0.3272489113273356, 2.07409913399607, 1.09991674991576, -0.5231883119115298,
                                         1.4898373248074184], [-0.022416127817163733, -0.12007773665102528, -0.34027057355617174,
                                                               -0.0024989590272512796, -0.8675616609660548, -0.0618596072403228]),
    "positive": (C.positive, [1.3498588075760032, 0.4965853037914095, 3.3201169227365472, 1.1051709180756477, 0.1353352832366127,
                              1.6487212707001282], X),
    "simplex": (C.simplex, [0.18365778757336282, 0.073751888336202, 0.3368097433000258, 0.10924195507543599, 0.01879430327255302,
                            0.17288454519262123, 0.10485977724979913], -15.588620960871914),
    "real_vector": (C.real_vector, X, 0.0),
    "corr_cholesky": (C.corr_cholesky, CORR, -6.193074182392139),
    "independent": (C.independent(C.nonnegative, 1), np.exp(X), -0.6),
    "cat": (C.cat([C.positive, C.unit_interval], 0, [2, 4]), [1.3498588075760032, 0.4965853037914095, 0.7685247834990175, 0.52497918747894,
                                                              0.11920292202211755, 0.6224593312018546],
            [0.3, -0.7, -1.7265649346760623, -1.3887933201471419, -2.2538560220859454, -1.4481539683602134]),
}  # fmt: skip


@pytest.mark.parametrize("name", BIJECTIVE)
def test_bijections_as_pytorchs(name):
    constraint, wanted, log_det = BIJECTIVE[name]
    f, x = biject_to(constraint), Tensor(X)
    y = f(x)
    np.testing.assert_allclose(y.numpy().ravel(), wanted, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(f.log_abs_det_jacobian(x, y).numpy(), log_det, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(f.inv(y).numpy(), X, rtol=1e-12, atol=1e-14)
    assert f.bijective and f.inv.inv is f and constraint.check(y).numpy().all() and f.codomain.check(y).numpy().all()
    assert f.forward_shape(x.shape) == y.shape and f.inverse_shape(y.shape) == x.shape
    if name == "simplex":
        assert y.numpy().sum() == pytest.approx(1.0, abs=1e-14)


def test_transforms_that_are_no_bijections():
    """PyTorch's results for a square matrix, and for a vector; the inverse of a result gives the same result."""
    x = Tensor(np.array([[0.3, -0.7, 1.2], [0.1, -2.0, 0.5], [0.2, 0.4, -0.6]]))
    low = [[1.3498588075760032, 0, 0], [0.1, 0.1353352832366127, 0], [0.2, 0.4, 0.5488116360940265]]
    soft = [0.16756383395009994, 0.061643289594107115, 0.4121405273010523, 0.13718966395859922, 0.0167997562415969, 0.20466292895454474]
    cases = [(C.lower_cholesky, x, low), (C.positive_definite, x, np.array(low) @ np.array(low).T), (C.simplex, Tensor(X), soft)]
    for constraint, given, wanted in cases:
        f = transform_to(constraint)
        np.testing.assert_allclose(f(given).numpy(), wanted, rtol=1e-13)
        np.testing.assert_allclose(f(f.inv(f(given))).numpy(), wanted, rtol=1e-12)
        assert not f.bijective and np.isfinite(grad(lambda v, f=f: (f(v) ** 2).sum())(given).numpy()).all()
    with pytest.raises(NotImplementedError, match="biject_to: no transform to lower_cholesky"):
        biject_to(C.lower_cholesky)
    assert D.AbsTransform().inv(D.AbsTransform()(T(-1.0, 2.0))).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("n", [0, 1, 3, 10])
def test_cholesky_factors_of_correlations(n):
    """The log-determinant beside that of numerical derivatives; the transform is the same in a trace."""
    f, x = D.CorrCholeskyTransform(), np.random.default_rng(n).normal(size=(2, n))
    y = f(Tensor(x))
    d = y.shape[-1]
    assert d * (d - 1) // 2 == n and C.corr_cholesky.check(y).numpy().all()
    np.testing.assert_allclose(f.inv(y).numpy(), x, rtol=1e-9, atol=1e-12)
    if not n:
        return
    below = np.tril_indices(d, -1)
    flat = lambda v: f(Tensor(v)).numpy()[(..., *below)]
    step = 1e-6 * np.eye(n)
    jacobian = (flat(x[0] + step) - flat(x[0] - step)) / 2e-6
    found = f.log_abs_det_jacobian(Tensor(x), y).numpy()
    np.testing.assert_allclose(found[0], np.linalg.slogdet(jacobian)[1], rtol=1e-6)
    traced = trace(lambda v: (f(v), f.log_abs_det_jacobian(v, f(v))))
    for _ in range(2):
        a, b = traced(Tensor(x))
        assert a.numpy().tobytes() == y.numpy().tobytes() and b.numpy().tobytes() == found.tobytes()


def test_cholesky_factors_far_away():
    """Where tanh is 1 in float32 nothing is NaN, and the log-determinant is that of the numbers, not of their rounded tanh."""
    x = Tensor(np.array([20.0, -20.0, 30.0], "f4"))
    f = D.CorrCholeskyTransform()
    y = f(x)
    assert np.isfinite(y.numpy()).all() and (np.diagonal(y.numpy()) > 0).all()
    np.testing.assert_allclose(f.log_abs_det_jacobian(x, y).item(), 3.5 * np.log(4.0) - 2 * (20 + 1.5 * 20 + 30), rtol=1e-6)
    assert np.isfinite(grad(lambda v: f.log_abs_det_jacobian(v, f(v)))(x).numpy()).all()
    np.testing.assert_allclose(f.inv(y).numpy(), x.numpy(), rtol=1e-4)
    with pytest.raises(ShapeError, match=r"as of 1, 3 or 6 elements, got \(2,\)"):
        f(T(1.0, 2.0))


def test_a_distribution_of_correlations():
    """Of LKJ's density, whose number of axes the transform changes: the base's event has one, that of the values two."""
    d = D.TransformedDistribution(D.Normal(Tensor(np.zeros((5, 3))), 1.0), D.CorrCholeskyTransform())
    assert d.batch_shape == (5,) and d.event_shape == (3, 3) and d.sample((4,)).shape == (4, 5, 3, 3) and d.support is C.corr_cholesky
    x = np.array([0.3, -0.7, 1.2])
    f = D.CorrCholeskyTransform()
    y = f(Tensor(x))
    wanted = (-0.5 * x * x - 0.5 * np.log(2 * np.pi)).sum() - f.log_abs_det_jacobian(Tensor(x), y).item()
    np.testing.assert_allclose(d.log_prob(y).numpy(), np.full(5, wanted), rtol=1e-12)
    assert (d.log_prob(y + 1.0).numpy() == -np.inf).all()
    back = D.TransformedDistribution(D.LKJCholesky(3, T(2.0, 1.0)), f.inv)
    assert back.batch_shape == (2,) and back.event_shape == (3,) and back.support.event_dim == 1
    wanted = D.LKJCholesky(3, T(2.0, 1.0)).log_prob(y).numpy() + f.log_abs_det_jacobian(Tensor(x), y).item()
    np.testing.assert_allclose(back.log_prob(Tensor(x)).numpy(), wanted, rtol=1e-12)


M = np.array([[[1.0, 0.0], [0.5, 2.0]], [[2.0, 1.0], [1.0, 2.0]], [[1.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [0.6, 0.8]], [[0.0, 0.0], [1.0, 0.0]]])
CHECKS = {
    "half_open_interval": (C.half_open_interval(0.0, 1.0), [0.0, 0.5, 1.0, np.nan], [1, 1, 0, 0]),
    "positive_integer": (C.positive_integer, [0.0, 1.0, 1.5, np.inf], [0, 1, 0, 0]),
    "real": (C.real, [0.0, np.inf, np.nan], [1, 0, 0]),
    "positive": (C.positive, [0.0, 1e-300, np.inf], [0, 1, 0]),
    "one_hot": (C.one_hot, [[0.0, 1.0], [1.0, 1.0], [0.5, 0.5], [0.0, 0.0]], [1, 0, 0, 0]),
    "multinomial": (C.multinomial(3), [[1.0, 2.0], [1.0, 1.0], [1.5, 1.5], [4.0, -1.0]], [1, 0, 0, 0]),
    "real_vector": (C.real_vector, [[0.0, 1.0], [0.0, np.nan]], [1, 0]),
    "square": (C.square, M, [1, 1, 1, 1, 1]), "no square": (C.symmetric, M[:, :1], [0, 0, 0, 0, 0]),
    "symmetric": (C.symmetric, M, [0, 1, 1, 0, 0]), "lower_triangular": (C.lower_triangular, M, [1, 0, 0, 1, 1]),
    "lower_cholesky": (C.lower_cholesky, M, [1, 0, 0, 1, 0]), "corr_cholesky": (C.corr_cholesky, M, [0, 0, 0, 1, 0]),
    "positive_definite": (C.positive_definite, M[[0, 1, 4]], [0, 1, 0]),
    "positive_semidefinite": (C.positive_semidefinite, np.array([np.zeros((2, 2)), M[1], -M[1]]), [1, 1, 0]),
    "independent": (C.independent(C.positive, 2), M[:3], [0, 1, 1]),
    "cat": (C.cat([C.positive, C.real], 0, [1, 2]), [-1.0, -1.0, -1.0], [0, 1, 1]),
    "cat of vectors": (C.cat([C.simplex, C.positive], -1, [2, 1]), [[0.5, 0.5, 1.0], [0.5, 0.5, -1.0], [0.5, 0.6, 1.0]], [1, 0, 0]),
    "stack": (C.stack([C.positive, C.real], 1), [[-1.0, -1.0], [2.0, np.nan]], [[0, 1], [1, 0]]),
    "stack of vectors": (C.stack([C.simplex, C.real_vector], 0), [[0.5, 0.6], [0.5, 0.6]], [0, 1]),
    "mixture": (C.MixtureSameFamilyConstraint(C.greater_than(T(0.0, 1.0))), [0.5, 2.0], [0, 1]),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_what_is_inside(name):
    constraint, values, wanted = CHECKS[name]
    np.testing.assert_array_equal(constraint.check(Tensor(np.array(values))).numpy(), np.array(wanted, bool))


def test_supports_of_distributions_made_of_others():
    pareto = D.Pareto(T(1.0), T(2.0)).expand((3,))
    assert pareto.support.lower_bound.shape == (3,)
    vectors = D.Independent(D.Exponential(T(1.0, 2.0)), 1)
    assert vectors.support.event_dim == 1 and vectors.support.check(T(1.0, -1.0)).item() is False
    mixture = D.MixtureSameFamily(D.Categorical(T(0.5, 0.5)), D.Uniform(T(0.0, 1.0), T(2.0, 3.0)))
    assert mixture.support.check(T(0.5, 1.5)).tolist() == [False, True]
    moved = D.TransformedDistribution(vectors, [D.ExpTransform()])
    assert moved.support.event_dim == 1 and D.TransformedDistribution(vectors, []).support.event_dim == 1
    assert C.is_dependent(D.Uniform.support) and not C.is_dependent(D.Normal.support) and D.Multinomial.support.is_discrete
    with pytest.raises(ValueError, match="take it from the object"):
        D.Uniform.support.check(T(1.0))


def test_stacked_transforms_of_vectors():
    """Each piece gets an element more; the density is the product of the pieces'."""
    one, two = D.Normal(Tensor(np.zeros((4, 3))), 1.0), D.Normal(Tensor(np.zeros((4, 2, 3))), 1.0)
    pieces = [D.StickBreakingTransform(), D.StickBreakingTransform()]
    for dim in (-2, 1):
        d = D.TransformedDistribution(two, [D.StackTransform(pieces, dim=dim)])
        assert d.batch_shape == (4, 2) and d.event_shape == (4,) and d.support.event_dim == 1
        y = d.sample()
        assert y.shape == (4, 2, 4) and d.support.check(y).numpy().all()
        each = D.TransformedDistribution(one, D.StickBreakingTransform())
        np.testing.assert_allclose(d.log_prob(y)[:, 1].numpy(), each.log_prob(y[:, 1]).numpy(), rtol=1e-12)
    back = D.StackTransform(pieces, dim=1)
    assert back.inverse_shape((4, 2, 4)) == (4, 2, 3) and back.forward_shape((4, 2, 3)) == (4, 2, 4)


def test_rates_and_probabilities_at_the_ends():
    assert D.Poisson(T(0.0)).log_prob(T(0.0, 1.0)).tolist() == [0.0, -np.inf] and D.Poisson(T(0.0)).sample((3,)).tolist() == [[0.0]] * 3
    with pytest.raises(ValueError, match=r"probs must be half_open_interval\(0.0, 1.0\), got \[1.0\]"):
        D.NegativeBinomial(2.0, probs=T(1.0))


def test_a_constraint_and_a_transform_of_ones_own():
    class Even(C.Constraint):
        is_discrete = True

        def check(self, value):
            return value % 2 == 0

    registry = D.constraint_registry.ConstraintRegistry("mine")
    double = D.AffineTransform(0.0, 2.0)

    @registry.register(Even)
    def _(constraint):
        return double

    assert registry(Even()) is double and repr(Even()) == "Even" and Even().check(T(1.0, 2.0)).tolist() == [False, True]
    with pytest.raises(ArgumentError, match="a Constraint or a class of them is needed, got 3"):
        registry.register(3, lambda c: double)
    with pytest.raises(NotImplementedError, match="mine: no transform to real is known"):
        registry(C.real)
    with pytest.raises(NotImplementedError, match="Constraint needs check"):
        C.Constraint().check(T(1.0))


def test_pytorchs_names():
    import tengen.pytorch.distributions as P
    from tengen.pytorch.distributions.constraint_registry import transform_to as theirs

    assert P.transform_to is theirs is transform_to and P.constraints.lower_cholesky is C.lower_cholesky
    assert P.transforms.identity_transform(T(1.0)).item() == 1.0 and P.biject_to is biject_to
