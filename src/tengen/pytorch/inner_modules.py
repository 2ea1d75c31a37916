"""The modules in which PyTorch keeps what its packages show: ``from torch.distributions.normal import Normal``,
``from torch.optim.optimizer import Optimizer``. Here each is a view of its package: it has the package's names."""

from __future__ import annotations

import sys
from typing import Any

from tengen.base import inner_modules
from tengen.base.lazy import Absent

VIEWS = {  # a package: the modules inside it that show its names
    "distributions": (
        "bernoulli beta binomial categorical cauchy chi2 dirichlet distribution exponential fishersnedecor gamma geometric gumbel half_cauchy "
        "half_normal independent inverse_gamma kl kumaraswamy laplace log_normal mixture_same_family multinomial multivariate_normal "
        "negative_binomial normal one_hot_categorical pareto poisson relaxed_bernoulli relaxed_categorical studentT transformed_distribution "
        "uniform von_mises weibull continuous_bernoulli lkj_cholesky lowrank_multivariate_normal wishart"
    ),
    "optim": "adadelta adafactor adagrad adam adamax adamw asgd lbfgs nadam radam rmsprop rprop sgd",
    "nn": (
        "modules.activation modules.channelshuffle modules.container modules.conv modules.distance modules.dropout modules.flatten "
        "modules.fold modules.instancenorm modules.lazy modules.linear modules.loss modules.normalization modules.padding modules.pixelshuffle "
        "modules.pooling modules.rnn modules.sparse modules.transformer modules.upsampling"
    ),
    "nn.utils": "convert_parameters spectral_norm weight_norm",
    "utils.data": "dataloader",
    "autograd": "variable grad_mode",
    "amp": "autocast_mode grad_scaler",
}
OLDER = {"autograd.profiler": "profiler", "nn.utils.stateless": "func"}  # an older place of a module -> the module
# bases that programs derive classes of their own from -> (the module that has them here, their name)
BASES = {
    "_Loss": ("nn.losses", "Loss"), "_WeightedLoss": ("nn.losses", "WeightedLoss"), "_ConvNd": ("nn.layers", "ConvNd"),
    "_InstanceNorm": ("nn.norms", "_InstanceNorm"), "_DropoutNd": ("nn.layers", "_Share"),
}  # fmt: skip


class View(inner_modules.View):
    """A module with the names of another, and the bases."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name not in BASES:
                raise
        home, name = BASES[name]
        return getattr(sys.modules[f"tengen.pytorch.{home}"], name)


def install() -> None:
    """Makes them importable. An attribute that the package has already, such as the function `nn.utils.weight_norm`, stays what it is."""
    places = [(f"{package}.{inner}", package) for package, names in VIEWS.items() for inner in names.split()]
    for place, of in [*places, *OLDER.items()]:
        full = f"tengen.pytorch.{place}"
        view = sys.modules[full] = View(full, f"tengen.pytorch.{of}", f"torch.{place}")
        home, _, last = full.rpartition(".")
        if last not in vars(sys.modules[home]):
            setattr(sys.modules[home], last, view)
    if not any(isinstance(finder, Absent) for finder in sys.meta_path):
        sys.meta_path.append(Absent("tengen.pytorch"))
