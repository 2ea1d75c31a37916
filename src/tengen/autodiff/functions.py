"""Gradients of functions, for those who do not want a manager."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tengen.base.errors import GradientError
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor
from tengen.tensor.nodes import Level, node_of, on_tape
from tengen.tensor.tape import check_outputs, cut, gradients


def _mapped(f: Callable[[Tensor], Any], x: Any, what: str) -> Any:
    """x with f of its tensors, which may be nested in tuples, lists and dicts."""
    if isinstance(x, Tensor) and x.dtype.is_inexact:
        return f(x)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_mapped(f, v, what) for v in x))
    if isinstance(x, (tuple, list)):
        return type(x)(_mapped(f, v, what) for v in x)
    if isinstance(x, dict):
        return {k: _mapped(f, v, what) for k, v in x.items()}
    found = repr(x._layout.type) if isinstance(x, Tensor) else f"a {type(x).__name__}"
    raise GradientError(
        f"{what} is not a float tensor, so it has no gradient; it is {found}; help: a tensor, or tuples, lists and dicts of tensors"
    )


def _started(level: Level, args: tuple, argnums: Sequence[int]) -> tuple[list, list[Tensor]]:
    """The arguments with copies in place of the tensors of `argnums`, for which `level` records; and the copies."""
    xs: list[Tensor] = []

    def copy(x: Tensor) -> Tensor:
        xs.append(level.copy(x))
        return xs[-1]

    full = list(args)
    for i in dict.fromkeys(argnums):
        if not -len(args) <= i < len(args):
            raise GradientError(f"there is no argument {i} to differentiate; {len(args)} were given by position")
        full[i] = _mapped(copy, args[i], f"argument {i}")
    return full, xs


def _walked(level: Level, outputs: Sequence, seeds: Sequence, xs: list[Tensor], places: list, again: bool = False) -> list[Tensor]:
    """The gradients of all xs; zeros for those on which nothing depends."""
    found = gradients(outputs, seeds, places, level, again)
    return [REGISTRY["zeros_like"](x.detach()) if g is None else g for g, x in zip(found, xs)]


def value_and_grad(function: Callable, argnums: int | Sequence[int] = 0) -> Callable:
    """A function that returns (value, gradient) of a function whose result is a tensor of one element.

    Args:
        function: called as it is. argnums: which of its arguments the gradient is taken of; several give a tuple of gradients. An
            argument may be a tensor or tensors in tuples, lists and dicts; its gradient has the same structure.

    It nests with itself, with `vjp` and with `GradManager`, as deep as you like: where the function uses tensors that another
    gradient around this one is taken of, as arguments or otherwise, value and gradient depend on them.

    Errors: `GradientError` for an argument that is no float tensor, and for a result of several elements.

    >>> from tengen import Tensor, autodiff
    >>> autodiff.value_and_grad(lambda x: (x * x).sum())(Tensor([3.0]))[1].tolist()
    [6.0]
    """
    several = not isinstance(argnums, int)
    nums = tuple(argnums) if isinstance(argnums, Sequence) else (argnums,)

    def run(*args, **kwargs):
        with Level() as level:
            full, xs = _started(level, args, nums)
            places = [node_of(x) for x in xs]  # the function may change its argument in place
            value = function(*full, **kwargs)
            if not isinstance(value, Tensor) or value.size != 1:
                found = repr(value._layout.type) if isinstance(value, Tensor) else f"a {type(value).__name__}"
                raise GradientError(
                    f"the function's result is {found}, and only a tensor of one element has a gradient; "
                    "help: reduce it with .sum() or .mean(), or use vjp()"
                )
            check_outputs([value], [None])
            found = iter(_walked(level, [value], [None], xs, places))
        gs = {i: _mapped(lambda _: next(found), args[i], f"argument {i}") for i in dict.fromkeys(nums)}
        value = value if on_tape(value) else value._off_tape()
        return value, (tuple(gs[i] for i in nums) if several else gs[nums[0]])

    return run


def grad(function: Callable, argnums: int | Sequence[int] = 0) -> Callable:
    """The gradient of a scalar function as a function; it nests. Arguments and errors: as `value_and_grad`.

    >>> from tengen import Tensor, autodiff
    >>> autodiff.grad(autodiff.grad(lambda x: x * x * x))(Tensor(2.0)).item()
    12.0
    """
    run = value_and_grad(function, argnums)
    return lambda *args, **kwargs: run(*args, **kwargs)[1]


def vjp(function: Callable, *args: Tensor) -> tuple[Any, Callable]:
    """(function(*args), pull): `pull(dy)` gives the gradients of all arguments, weighted by dy, as often as you like.

    Errors: GradientError where the result has something in it that is no tensor.
    """
    level = Level()
    try:
        full, xs = _started(level, args, range(len(args)))
        places = [node_of(x) for x in xs]
        value = function(*full)
    except BaseException:
        level.end()
        raise
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    if odd := [v for v in values if v is not None and not isinstance(v, Tensor)]:
        level.end()
        raise GradientError(f"the function's result has a {type(odd[0]).__name__} in it; help: a tensor, or a tuple or list of tensors")

    def pull(dy):
        seeds = list(dy) if isinstance(dy, (tuple, list)) else [dy]
        check_outputs(values, seeds)
        found = iter(_walked(level, values, seeds, xs, places, again=True))
        return tuple(_mapped(lambda _: next(found), a, "an argument") for a in args)

    weakref.finalize(pull, level.end).atexit = False
    level.complete = True
    off = cut(values, level)
    return (type(value)(off) if isinstance(value, (tuple, list)) else off[0]), pull
