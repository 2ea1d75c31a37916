"""`torch.distributions`: Tengen's, whose names and arguments are PyTorch's."""

from __future__ import annotations

import sys

from tengen.base.lazy import NoSuchName
from tengen.distributions import (
    AbsTransform,
    AffineTransform,
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    CatTransform,
    Cauchy,
    Chi2,
    ComposeTransform,
    ContinuousBernoulli,
    CorrCholeskyTransform,
    Dirichlet,
    Distribution,
    Exponential,
    ExpTransform,
    FisherSnedecor,
    Gamma,
    GeneralizedPareto,
    Geometric,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Independent,
    IndependentTransform,
    InverseGamma,
    Kumaraswamy,
    Laplace,
    LKJCholesky,
    LogisticNormal,
    LogNormal,
    LowerCholeskyTransform,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    Multinomial,
    MultivariateNormal,
    NegativeBinomial,
    Normal,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    Pareto,
    Poisson,
    PositiveDefiniteTransform,
    PowerTransform,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    StudentT,
    TanhTransform,
    Transform,
    TransformedDistribution,
    Uniform,
    VonMises,
    Weibull,
    Wishart,
    biject_to,
    kl_divergence,
    register_kl,
    transform_to,
)
from tengen.pytorch.distributions import constraint_registry, constraints, transforms, utils


def __getattr__(name: str) -> object:
    raise NoSuchName("tengen.pytorch.distributions", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    "AbsTransform", "CorrCholeskyTransform", "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "SoftmaxTransform",
    "biject_to", "constraint_registry", "transform_to",
    "CatTransform", "ContinuousBernoulli", "LKJCholesky", "LowRankMultivariateNormal", "StackTransform", "StickBreakingTransform", "Wishart",
    "Multinomial", "NegativeBinomial", "OneHotCategoricalStraightThrough", "RelaxedBernoulli", "RelaxedOneHotCategorical", "VonMises",
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "Dirichlet", "Distribution", "Exponential", "Gamma", "Geometric",
    "Gumbel", "HalfNormal", "Independent", "Laplace", "LogNormal", "MixtureSameFamily", "MultivariateNormal", "Normal", "OneHotCategorical",
    "FisherSnedecor", "GeneralizedPareto", "HalfCauchy", "LogisticNormal",
    "InverseGamma", "Kumaraswamy", "Pareto", "Poisson", "StudentT", "Uniform", "Weibull", "kl_divergence", "register_kl",
    "AffineTransform", "ComposeTransform", "ExpTransform", "PowerTransform", "SigmoidTransform", "SoftplusTransform", "TanhTransform",
    "Transform", "TransformedDistribution", "constraints", "transforms", "utils",
]  # fmt: skip
