"""`torch.distributions`: Tengen's, whose names and arguments are PyTorch's."""

from __future__ import annotations

import sys

from tengen.base.lazy import NoSuchName
from tengen.distributions import (
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
    Dirichlet,
    Distribution,
    Exponential,
    ExpTransform,
    FisherSnedecor,
    Gamma,
    Geometric,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Independent,
    InverseGamma,
    Kumaraswamy,
    Laplace,
    LKJCholesky,
    LogNormal,
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
    PowerTransform,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
    SigmoidTransform,
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
    kl_divergence,
    register_kl,
)
from tengen.pytorch.distributions import constraints, transforms


def __getattr__(name: str) -> object:
    raise NoSuchName("tengen.pytorch.distributions", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    "CatTransform", "ContinuousBernoulli", "LKJCholesky", "LowRankMultivariateNormal", "StackTransform", "StickBreakingTransform", "Wishart",
    "Multinomial", "NegativeBinomial", "OneHotCategoricalStraightThrough", "RelaxedBernoulli", "RelaxedOneHotCategorical", "VonMises",
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "Dirichlet", "Distribution", "Exponential", "Gamma", "Geometric",
    "Gumbel", "HalfNormal", "Independent", "Laplace", "LogNormal", "MixtureSameFamily", "MultivariateNormal", "Normal", "OneHotCategorical",
    "FisherSnedecor", "HalfCauchy",
    "InverseGamma", "Kumaraswamy", "Pareto", "Poisson", "StudentT", "Uniform", "Weibull", "kl_divergence", "register_kl",
    "AffineTransform", "ComposeTransform", "ExpTransform", "PowerTransform", "SigmoidTransform", "SoftplusTransform", "TanhTransform",
    "Transform", "TransformedDistribution", "constraints", "transforms",
]  # fmt: skip
