"""`torch.autograd.functional`: derivatives of functions of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen import autodiff
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor


def _several(inputs: Any) -> tuple[tuple, bool]:
    return ((inputs,), True) if isinstance(inputs, Tensor) else (tuple(inputs), False)


def jacobian(func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False, **how: Any) -> Any:
    """The Jacobian, of the shape of the output and then of the input; of several inputs a tuple."""
    xs, one = _several(inputs)
    return autodiff.jacobian(func, 0 if one else tuple(range(len(xs))))(*xs)


def hessian(func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False, **how: Any) -> Any:
    """The Hessian of a function of one element; of several inputs a tuple of tuples."""
    xs, one = _several(inputs)
    if one:
        return autodiff.hessian(func)(*xs)

    def row(i: int) -> Callable:
        return autodiff.jacobian(autodiff.grad(func, i), tuple(range(len(xs))))

    return tuple(row(i)(*xs) for i in range(len(xs)))


def _seed(out: Any, v: Any) -> Any:
    return REGISTRY["ones_like"](out) if v is None else v


def vjp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(func(inputs), v times the Jacobian)."""
    xs, one = _several(inputs)
    out, pull = autodiff.vjp(func, *xs)
    found = pull(_seed(out, v))
    return out, found[0] if one else found


def jvp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(func(inputs), the Jacobian times v)."""
    xs, _ = _several(inputs)
    vs = tuple(map(REGISTRY["ones_like"], xs)) if v is None else _several(v)[0]
    return autodiff.jvp(func, xs, vs)


def hvp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(func(inputs), the Hessian times v)."""
    xs, one = _several(inputs)
    vs = _several(v)[0]
    found = autodiff.jvp(autodiff.grad(func, tuple(range(len(xs)))), xs, vs)[1]
    return func(*xs), found[0] if one else found


vhp = hvp  # a Hessian is symmetric

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
