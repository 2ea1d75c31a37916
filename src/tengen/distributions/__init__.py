"""Probability distributions: samples from the counter-based generator of `tengen.random`, log-densities, entropies, divergences, as
tensors with gradients, eagerly and traced. MegEngine's `Distribution` and `Exponential`, PyTorch's names for the others.

`sample` has no gradient; `rsample`, where a distribution has it (`has_rsample`), is a smooth function of the parameters."""

from tengen.base.lazy import modules_of
from tengen.distributions import constraints
from tengen.distributions import divergences as divergences  # which registers them
from tengen.distributions.composed import Independent, MixtureSameFamily, MultivariateNormal, OneHotCategorical
from tengen.distributions.constraint_registry import biject_to, transform_to
from tengen.distributions.constraints import Constraint
from tengen.distributions.continuous import Cauchy, Exponential, Gumbel, HalfNormal, Laplace, LogNormal, Normal, Uniform
from tengen.distributions.discrete import Bernoulli, Binomial, Categorical, Geometric, Poisson
from tengen.distributions.distribution import Distribution, kl_divergence, register_kl
from tengen.distributions.further import (
    ContinuousBernoulli,
    Multinomial,
    NegativeBinomial,
    OneHotCategoricalStraightThrough,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
    VonMises,
)
from tengen.distributions.gamma_family import Beta, Chi2, Dirichlet, Gamma, StudentT
from tengen.distributions.joined_transforms import CatTransform, StackTransform, StickBreakingTransform
from tengen.distributions.logistic_normal import LogisticNormal
from tengen.distributions.matrices import LKJCholesky, LowRankMultivariateNormal, Wishart
from tengen.distributions.matrix_transforms import (
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SoftmaxTransform,
)
from tengen.distributions.tails import FisherSnedecor, GeneralizedPareto, HalfCauchy, InverseGamma, Kumaraswamy, Pareto, Weibull
from tengen.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    IndependentTransform,
    PowerTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
    Transform,
    TransformedDistribution,
)

__getattr__ = modules_of(__name__)
__all__ = [
    "AbsTransform", "CorrCholeskyTransform", "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "SoftmaxTransform",
    "biject_to", "constraints", "transform_to",
    "CatTransform", "ContinuousBernoulli", "LKJCholesky", "LowRankMultivariateNormal", "StackTransform", "StickBreakingTransform", "Wishart",
    "Multinomial", "NegativeBinomial", "OneHotCategoricalStraightThrough", "RelaxedBernoulli", "RelaxedOneHotCategorical", "VonMises",
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "Constraint", "Dirichlet", "Distribution", "Exponential", "Gamma",
    "Geometric", "Gumbel", "HalfNormal", "Laplace", "LogNormal", "Normal", "Poisson", "StudentT", "Uniform", "kl_divergence",
    "FisherSnedecor", "GeneralizedPareto", "HalfCauchy", "LogisticNormal",
    "Independent", "InverseGamma", "Kumaraswamy", "MixtureSameFamily", "Pareto", "Weibull",
    "MultivariateNormal", "OneHotCategorical", "register_kl", "AffineTransform", "ComposeTransform", "ExpTransform", "PowerTransform",
    "SigmoidTransform", "SoftplusTransform", "TanhTransform", "Transform", "TransformedDistribution",
]  # fmt: skip
