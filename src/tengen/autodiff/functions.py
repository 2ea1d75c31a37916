"""Gradients of functions, for those who do not want a manager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tengen.base.errors import GradientError
from tengen.ops.define import REGISTRY
from tengen.tape import gradients, leaf
from tengen.tensor import Tensor


def _recorded(function: Callable, args: tuple, argnums: Sequence[int], kwargs: dict) -> tuple[Any, list[Tensor]]:
    """function(*args) with fresh nodes on the chosen arguments; keeps their links below, for gradients of gradients."""
    xs = []
    for i in argnums:
        if not isinstance(args[i], Tensor) or not args[i].dtype.is_float:
            raise GradientError(f"argument {i} is not a float tensor, so it has no gradient")
        x = REGISTRY["broadcast_to"](args[i], args[i].shape)
        if x._node is None:
            x = x.detach()
            leaf(x)
        xs.append(x)
    full = list(args)
    for i, x in zip(argnums, xs):
        full[i] = x
    return function(*full, **kwargs), xs


def value_and_grad(function: Callable, argnums: int | Sequence[int] = 0) -> Callable:
    """A function that returns (value, gradient): of a scalar function, with respect to the arguments `argnums`.

    >>> from tengen import Tensor, autodiff
    >>> autodiff.value_and_grad(lambda x: (x * x).sum())(Tensor([3.0]))[1].tolist()
    [6.0]
    """
    several = not isinstance(argnums, int)
    nums = tuple(argnums) if isinstance(argnums, Sequence) else (argnums,)

    def run(*args, **kwargs):
        value, xs = _recorded(function, args, nums, kwargs)
        found = gradients([value], [None], xs, create_graph=True)
        gs = tuple(REGISTRY["zeros_like"](x) if g is None else g for g, x in zip(found, xs))
        if not any(isinstance(a, Tensor) and a._node is not None for a in args):
            value, gs = value.detach(), tuple(g.detach() for g in gs)
        return value, (gs if several else gs[0])

    return run


def grad(function: Callable, argnums: int | Sequence[int] = 0) -> Callable:
    """The gradient of a scalar function as a function; it nests.

    >>> from tengen import Tensor, autodiff
    >>> autodiff.grad(autodiff.grad(lambda x: x * x * x))(Tensor(2.0)).item()
    12.0
    """
    run = value_and_grad(function, argnums)
    return lambda *args, **kwargs: run(*args, **kwargs)[1]


def vjp(function: Callable, *args: Tensor) -> tuple[Any, Callable]:
    """(function(*args), pull): `pull(dy)` gives the gradients of all arguments, weighted by dy."""
    value, xs = _recorded(function, args, range(len(args)), {})
    values = value if isinstance(value, tuple) else (value,)

    def pull(dy):
        seeds = dy if isinstance(dy, tuple) else (dy,)
        found = gradients(list(values), list(seeds), xs, create_graph=True)
        return tuple(REGISTRY["zeros_like"](x) if g is None else g for g, x in zip(found, xs))

    return value, pull
