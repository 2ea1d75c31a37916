"""`torch.nn.init`: first values. Each function fills a tensor in place and returns it."""

from __future__ import annotations

from typing import Any

from tengen.module import init as _init
from tengen.module.init import calculate_gain
from tengen.tensor import Tensor


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform in [a, b)."""
    if generator is not None:
        tensor.data.copy_(generator.uniform(a, b, tensor.shape))
        return tensor
    _init.uniform_(tensor, a, b)
    return tensor


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal."""
    if generator is not None:
        tensor.data.copy_(generator.normal(mean, std, tensor.shape))
        return tensor
    _init.normal_(tensor, mean, std)
    return tensor


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    """Normal, of the numbers that lie in [a, b]."""
    _init.trunc_normal_(tensor, mean, std, a, b)
    return tensor


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One value everywhere."""
    _init.fill_(tensor, val)
    return tensor


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    _init.ones_(tensor)
    return tensor


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    _init.zeros_(tensor)
    return tensor


def eye_(tensor: Tensor) -> Tensor:
    """The identity."""
    _init.eye_(tensor)
    return tensor


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Filters that are the identity."""
    _init.dirac_(tensor, groups)
    return tensor


def orthogonal_(tensor: Tensor, gain: float = 1) -> Tensor:
    """`gain` times a random matrix with orthonormal rows or columns."""
    _init.orthogonal_(tensor, gain)
    return tensor


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01) -> Tensor:
    """A matrix of normal numbers, of whose columns so great a share is 0."""
    _init.sparse_(tensor, sparsity, std)
    return tensor


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Glorot and Bengio, AISTATS 2010."""
    _init.xavier_uniform_(tensor, gain)
    return tensor


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Glorot and Bengio, AISTATS 2010."""
    _init.xavier_normal_(tensor, gain)
    return tensor


def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """He et al., arXiv 1502.01852."""
    _init.msra_uniform_(tensor, a, mode, nonlinearity)
    return tensor


def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """He et al., arXiv 1502.01852."""
    _init.msra_normal_(tensor, a, mode, nonlinearity)
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[float, float]:
    """How many inputs an output element sums over, and how many outputs an input element reaches; programs call it by this name."""
    return _init.calculate_fan_in_and_fan_out(tensor)


__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_", "orthogonal_", "sparse_",
    "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip
