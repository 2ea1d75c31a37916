"""Derivatives of functions beyond one gradient: forward derivatives, Jacobians, Hessians.

All are made of `vjp` and `vmap`, so what has a gradient has these too, and they nest with each other and with traces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tengen.autodiff.functions import grad, value_and_grad, vjp
from tengen.autodiff.vmap import vmap
from tengen.base.errors import GradientError, ShapeError
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor


def _as_list(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (tuple, list)) else [x]


def _check_tangents(name: str, primals: Sequence[Any], tangents: Sequence[Any]) -> None:
    for what, given in (("arguments", primals), ("tangents", tangents)):
        if isinstance(given, Tensor):
            raise GradientError(f"{name}: the {what} are one tensor, {given._layout.type!r}; help: a list, [x] for a function of one argument")
    if len(primals) != len(tangents):
        raise GradientError(f"{name}: {len(primals)} arguments and {len(tangents)} tangents")
    for i, (x, t) in enumerate(zip(primals, tangents)):
        for what, v in (("argument", x), ("tangent", t)):
            if not isinstance(v, Tensor) or not v.dtype.is_inexact:
                found = repr(v._layout.type) if isinstance(v, Tensor) else f"a {type(v).__name__}"
                raise GradientError(f"{name}: {what} {i} is {found}; help: a float tensor")
        if x.shape != t.shape:
            raise ShapeError(f"{name}: tangent {i} has the shape {t.shape}, its argument {x.shape}; help: they must be equal")


def jvp(function: Callable, primals: Sequence[Tensor], tangents: Sequence[Tensor]) -> tuple[Any, Any]:
    """(function(*primals), how that changes as the arguments move along the tangents): the Jacobian times a vector.

    Args:
        function: of tensors; its result is a float tensor or a tuple of them. primals: its arguments. tangents: one of the shape of
            each argument.

    The derivative has the structure and the shapes of the result. Numerics: it is the gradient of the backward pass, which is
    linear in what it is given, so it costs about three times the function, as a gradient does twice.

    Errors: `GradientError` for what is no float tensor, `ShapeError` where a tangent does not fit its argument.

    >>> from tengen import Tensor, autodiff
    >>> y, dy = autodiff.jvp(lambda x: x * x, [Tensor([3.0])], [Tensor([1.0])])
    >>> y.tolist(), dy.tolist()
    ([9.0], [6.0])
    """
    _check_tangents("jvp", primals, tangents)
    value, pull = vjp(function, *primals)
    outs = _as_list(value)
    zeros_like = REGISTRY["zeros_like"].call
    _, push = vjp(lambda *weights: pull(list(weights)), *(zeros_like(o._off_tape()) for o in outs))
    found = push(tuple(tangents))
    return value, (type(value)(found) if isinstance(value, (tuple, list)) else found[0])


def jacobian(function: Callable, argnums: int | Sequence[int] = 0) -> Callable:
    """The Jacobian of a function as a function: for a result of shape R and an argument of shape A, a tensor of shape (*R, *A).

    Args:
        function: of tensors; its result is a float tensor, or a tuple of them: then there is a Jacobian of each. argnums: which
            arguments it is taken of; several give a tuple of Jacobians for each result.

    It takes one backward pass for all elements of the result together (`vmap` of `vjp`), in the memory of that many.

    >>> from tengen import Tensor, autodiff
    >>> autodiff.jacobian(lambda x: x * x)(Tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    several = not isinstance(argnums, int)
    nums = tuple(argnums) if isinstance(argnums, Sequence) else (argnums,)

    def run(*args: Any, **kwargs: Any) -> Any:
        for n in nums:
            if not -len(args) <= n < len(args):
                raise GradientError(f"jacobian: there is no argument {n}; {len(args)} were given by position")
        places = [n % len(args) for n in nums]

        def of_these(*xs: Tensor) -> Any:
            full = list(args)
            for n, x in zip(places, xs):
                full[n] = x
            return function(*full, **kwargs)

        value, pull = vjp(of_these, *(args[n] for n in places))
        outs = _as_list(value)
        if any(t is None for t in outs):
            raise GradientError("jacobian: the function's result has a None in it; help: a tensor, or a tuple of tensors")
        for t in (*outs, *(args[n] for n in places)):
            if isinstance(t, Tensor) and t.dtype.is_complex:
                what = "one number for each pair says not how both parts move both; help: a function of view_as_real(x), to view_as_real(y)"
                raise GradientError(f"jacobian: {t._layout.type!r} is complex, and {what}")
        found = [_rows(pull, outs, i, [args[n] for n in places]) for i in range(len(outs))]
        each = [tuple(rows) if several else rows[0] for rows in found]
        return type(value)(each) if isinstance(value, (tuple, list)) else each[0]

    return run


def _rows(pull: Callable, outs: Sequence[Tensor], i: int, xs: Sequence[Tensor]) -> list[Tensor]:
    """The Jacobians of result i with respect to all arguments."""
    out, reshape = outs[i], REGISTRY["reshape"].call
    unit = reshape(REGISTRY["eye"].call(out.size, dtype=out.dtype), (out.size, *out.shape))
    zeros = [REGISTRY["zeros_like"].call(o._off_tape()) for o in outs]
    rows = vmap(lambda u: pull([u if j == i else z for j, z in enumerate(zeros)]))(unit)
    return [reshape(r, (*out.shape, *x.shape)) for r, x in zip(rows, xs)]


def hessian(function: Callable, argnums: int = 0) -> Callable:
    """The second derivatives of a scalar function as a function: for an argument of shape A, a tensor of shape (*A, *A).

    >>> from tengen import Tensor, autodiff
    >>> autodiff.hessian(lambda x: (x * x * x).sum())(Tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    return jacobian(grad(function, argnums), argnums)


def hvp(function: Callable, primals: Sequence[Tensor], tangents: Sequence[Tensor]) -> tuple[Any, Any]:
    """(function(*primals), its Hessian times the tangents), without the Hessian: for a scalar function, and as many products as it
    has arguments.

    >>> from tengen import Tensor, autodiff
    >>> autodiff.hvp(lambda x: (x * x * x).sum(), [Tensor([1.0, 2.0])], [Tensor([1.0, 1.0])])[1][0].tolist()
    [6.0, 12.0]
    """
    _check_tangents("hvp", primals, tangents)
    both = value_and_grad(function, tuple(range(len(primals))))
    value = []

    def gradient(*xs: Tensor) -> tuple[Tensor, ...]:
        y, gs = both(*xs)
        value.append(y)
        return gs

    _, pull = vjp(gradient, *primals)
    return value[0]._off_tape(), pull(tuple(tangents))  # the Hessian is symmetric
