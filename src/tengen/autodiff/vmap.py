"""`vmap`: a function of one example becomes a function of many, computed together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Literal

from tengen.base.errors import ArgumentError, AxisError, ShapeError
from tengen.ops.define import REGISTRY
from tengen.ops.shape import normalize_axis
from tengen.tensor import Tensor
from tengen.tensor.batched import Mapping
from tengen.tensor.batching import examples, whole

Axes = Any  # an int, None, or tuples, lists and dicts of these with the structure of what they are the axes of


def vmap(
    function: Callable, in_axes: Axes = 0, out_axes: Axes = 0, randomness: Literal["error", "same", "different"] = "error"
) -> Callable:
    """A function that calls `function` for each example, for all of them at once: each op runs once, for all examples.

    Args:
        function: of one example: it sees tensors without the axis of the examples, may call any ops, `grad` and `vmap`, and may not
            ask for values (`item`, `if x > 0`).
        in_axes: the axis of each positional argument along which its examples lie; None: it is the same for all. One int stands
            for all arguments; in tuples, lists and dicts, as the argument is nested, each tensor has its own. Keyword arguments
            are mapped along axis 0.
        out_axes: the axis of the results along which the examples shall lie, in the same form; None for a result that is the same
            for all examples.
        randomness: whether random numbers that the function draws are the "same" for all examples or "different"; "error" is to
            refuse them.

    Returns: a function of whole tensors. It nests with itself and with `grad`, `vjp`, `jacobian`, in any order, and runs inside of
    a `trace`.

    Errors: `ShapeError` where arguments have different numbers of examples, `AxisError` for an axis that is not there, `VmapError`
    where the function asks for values, gives a tensor from outside values that differ by example, or draws random numbers under
    "error".

    Numerics: each example has the bits that the function gives for it alone.
    Errors: ArgumentError for in_axes that are not as many as arguments, and for another `randomness`

    >>> from tengen import Tensor, autodiff
    >>> autodiff.vmap(lambda x, y: x @ y, in_axes=(0, None))(Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1.0, 1.0])).tolist()
    [3.0, 7.0]
    >>> per_example = autodiff.vmap(autodiff.grad(lambda w, x: (w * x).sum()), in_axes=(None, 0))
    >>> per_example(Tensor([1.0, 1.0]), Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    if randomness not in ("error", "same", "different"):
        raise ArgumentError(f"vmap: randomness={randomness!r} must be 'error', 'same' or 'different'")

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        axes = in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
        if len(axes) != len(args):
            raise ArgumentError(f"vmap: in_axes has {len(axes)} entries for {len(args)} arguments")
        found = [*_axes(args, tuple(axes), "in_axes"), *_axes(kwargs, 0, "in_axes")]
        with Mapping(_examples(found), randomness) as mapping:
            places = iter(found)
            enter = lambda x: _entering(x, next(places)[1], mapping)
            given, named = _rebuilt(args, enter), _rebuilt(kwargs, enter)
            out = function(*given, **named)
            outs = iter(list(_axes(out, out_axes, "out_axes", Tensor)))
            return _rebuilt(out, lambda t: _leaving(t, next(outs)[1], mapping))

    return run


def _axes(x: Any, axes: Axes, what: str, *kinds: type) -> Iterator[tuple[Any, int | None]]:
    """The leaves of nested tuples, lists and dicts, each with its axis; None for what is no tensor. One axis stands for all that
    is nested below it."""
    if isinstance(x, (tuple, list)):
        if isinstance(axes, (tuple, list)) and len(axes) != len(x):
            raise ArgumentError(f"vmap: {what} has {len(axes)} entries where there are {len(x)} values")
        for i, v in enumerate(x):
            yield from _axes(v, axes[i] if isinstance(axes, (tuple, list)) else axes, what, *kinds)
    elif isinstance(x, dict):
        if isinstance(axes, dict) and axes.keys() != x.keys():
            raise ArgumentError(f"vmap: {what} has the keys {sorted(axes)} where there are {sorted(x)}")
        for k, v in x.items():
            yield from _axes(v, axes[k] if isinstance(axes, dict) else axes, what, *kinds)
    elif isinstance(x, Tensor):
        if axes is not None and (not isinstance(axes, int) or isinstance(axes, bool)):
            raise ArgumentError(f"vmap: {what} names {axes!r} for a tensor {x._layout.type!r}; help: an int, or None")
        yield x, axes
    elif kinds and x is not None:
        raise ArgumentError(f"vmap: the function returned a {type(x).__name__}; help: tensors, or tuples, lists and dicts of them")
    else:
        yield x, None


def _rebuilt(x: Any, f: Callable) -> Any:
    """The same nest with f of its leaves, in the order of `_axes`."""
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_rebuilt(v, f) for v in x))
    if isinstance(x, (tuple, list)):
        return type(x)([_rebuilt(v, f) for v in x])
    if isinstance(x, dict):
        return {k: _rebuilt(v, f) for k, v in x.items()}
    return f(x)


def _examples(found: list[tuple[Any, int | None]]) -> Any:
    """How many examples there are."""
    sizes = [(x.shape[normalize_axis(axis, x.ndim)], x, axis) for x, axis in found if axis is not None]
    if not sizes:
        raise ArgumentError("vmap: no argument has an axis of examples; help: in_axes names one")
    n = sizes[0][0]
    for size, x, axis in sizes:
        if isinstance(size, int) and isinstance(n, int) and size != n:
            raise ShapeError(f"vmap: {x._layout.type!r} has {size} examples along axis {axis}, an argument before it has {n}")
    return n


def _entering(x: Any, axis: int | None, mapping: Mapping) -> Any:
    """An argument as the function sees it."""
    if axis is None:
        return x
    axis = normalize_axis(axis, x.ndim)
    return examples(x if axis == 0 else REGISTRY["moveaxis"].call(x, axis, 0), mapping)


def _leaving(x: Any, axis: int | None, mapping: Mapping) -> Any:
    """A result of the function as the caller sees it."""
    if not isinstance(x, Tensor):
        return x
    out, differs = whole(x, mapping)
    if axis is None:
        if differs:
            raise ArgumentError(f"vmap: out_axes is None for a result {x._layout.type!r} that differs by example; help: name its axis")
        return out
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise AxisError(f"vmap: out_axes names axis {axis} of a result that has {x.ndim + 1} with that of the examples")
    if not differs:
        out = REGISTRY["broadcast_to"](out, (mapping.size, *out.shape))
    axis += (x.ndim + 1) * (axis < 0)
    return out if axis == 0 else REGISTRY["moveaxis"].call(out, 0, axis)
