"""Weights that are computed from other parameters each time they are read: weight and spectral normalisation.

In: a module and the name of its weight. Out: the same module, of a class derived from its own, in which that name is a property; the
parameters that it is computed from are listed, trained and saved in its place. Such a module is copied and saved by its state dict; it
has no pickle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen.module.module import Module
from tengen.ops.define import REGISTRY
from tengen.random import normal
from tengen.tensor import Parameter, Tensor


def _computed(module: Module, name: str, what: str, compute: Callable[[Any], Tensor]) -> Module:
    """Makes an attribute a property of the module."""
    cls = type(module)
    module.__dict__.pop(name)
    module.__class__ = type(cls.__name__, (cls,), {name: property(compute), "_computed_by": what, "__module__": cls.__module__})
    return module


def _weight(module: Module, name: str, what: str) -> Tensor:
    if getattr(module, "_computed_by", None):
        raise ValueError(f"{what}: {type(module).__name__} has {module._computed_by} already; help: remove it first")
    value = module.__dict__.get(name)
    if not isinstance(value, Parameter):
        raise ValueError(f"{what}: {type(module).__name__} has no parameter {name!r}")
    return value


def _removed(module: Module, name: str, what: str, parts: tuple[str, ...]) -> Module:
    if getattr(module, "_computed_by", None) != what or not isinstance(type(module).__dict__.get(name), property):
        raise ValueError(f"{type(module).__name__} has no {what} of {name!r}")
    value = Parameter(getattr(module, name).detach())
    module.__class__ = type(module).__mro__[1]
    for part in parts:
        delattr(module, f"{name}_{part}")
    setattr(module, name, value)
    return module


def _norms(v: Tensor, dim: int | None) -> Tensor:
    """The Euclidean norm of each slice along an axis, or of all."""
    axes = tuple(i for i in range(v.ndim) if dim is None or i != dim % v.ndim)
    return REGISTRY["sqrt"](REGISTRY["sum"](v * v, axes, True))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """The weight as g v / |v|: its length and its direction are trained as ``weight_g`` and ``weight_v``.

    Args: name: of the parameter. dim: |v| is of each slice along this axis; None: of the whole. Returns the module.
    Errors: ValueError where there is no such parameter.
    Source: Salimans and Kingma, arXiv 1602.07868.

    >>> from tengen import module as M
    >>> [n for n, _ in weight_norm(M.Linear(4, 3)).named_parameters()]
    ['bias', 'weight_g', 'weight_v']
    """
    w = _weight(module, name, "weight_norm")
    setattr(module, f"{name}_g", Parameter(_norms(w.detach(), dim)))
    setattr(module, f"{name}_v", Parameter(w.detach()))

    def compute(m: Any) -> Tensor:
        v = getattr(m, f"{name}_v")
        return v * (getattr(m, f"{name}_g") / _norms(v, dim))

    return _computed(module, name, "weight_norm", compute)


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Makes the weight a parameter again, of its value now."""
    return _removed(module, name, "weight_norm", ("g", "v"))


def spectral_norm(module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int = 0) -> Module:
    """The weight divided by its largest singular value, as a matrix whose rows lie along `dim`; that is followed by power iterations, of
    which each reading of the weight in training makes some. ``weight_orig`` is trained; ``weight_u`` and ``weight_v``, the singular vectors,
    are buffers, as in PyTorch.

    Args: name: of the parameter. n_power_iterations: at each reading. eps: the least norm of a vector.
    Errors: ValueError where there is no such parameter.
    Source: Miyato et al., arXiv 1802.05957.
    """
    w = _weight(module, name, "spectral_norm")
    if n_power_iterations < 1:
        raise ValueError(f"spectral_norm: n_power_iterations={n_power_iterations} must be at least 1")
    rows = w.shape[dim]
    setattr(module, f"{name}_orig", Parameter(w.detach()))
    u = normal(0.0, 1.0, (rows,)).astype(w.dtype)

    def matrix(w: Tensor) -> Tensor:
        order = (dim % w.ndim, *(i for i in range(w.ndim) if i != dim % w.ndim))
        return REGISTRY["permute"](w, order).reshape(rows, -1)

    def unit(v: Tensor) -> Tensor:
        return v / REGISTRY["maximum"](_norms(v, None), eps)

    module.register_buffer(f"{name}_u", unit(u))
    module.register_buffer(f"{name}_v", unit(REGISTRY["matmul"](matrix(w.detach()), unit(u), True)))

    def compute(m: Any) -> Tensor:
        w, kept = getattr(m, f"{name}_orig"), [getattr(m, f"{name}_{part}") for part in "uv"]
        a = matrix(w)
        fixed, u, v = a.detach(), *(t.detach() for t in kept)
        for _ in range(n_power_iterations if m.training else 0):
            v = unit(REGISTRY["matmul"](fixed, u, True))
            u = unit(REGISTRY["matmul"](fixed, v))
        if m.training:
            for t, now in zip(kept, (u, v)):
                t._reset(now)
        return w / REGISTRY["sum"](u * REGISTRY["matmul"](a, v))

    return _computed(module, name, "spectral_norm", compute)


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Makes the weight a parameter again, of its value now."""
    return _removed(module, name, "spectral_norm", ("orig", "u", "v"))
