"""Methods of PyTorch's dialect whose results are views there: what is written to one in place is written to the tensor that it is of.

    flat = x.view(-1); flat[0] = 1.0        rows = x.t(); rows.add_(1)        left, right = torch.chunk(x, 2); left.zero_()

Tensors here have values of their own, so each result knows how its values are read from the tensor and how they go back
(`in_place.as_part`). In: a method's tensor, arguments and result. Out: the result, or its parts, which know that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from tengen.base.errors import ArgumentError
from tengen.ops.define import REGISTRY
from tengen.tensor.in_place import as_part
from tengen.tensor.tensor import Tensor

Args, Named = Sequence[Any], dict[str, Any]


def _whole(back: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], None]:
    """Writes a view of all elements: back(x) are they, as they lie in the tensor."""

    def write(base: Tensor, x: Tensor) -> None:
        base[...] = back(x)

    return write


def _reshaped(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    shape, before, reshape = made.shape, base.shape, REGISTRY["reshape"]
    return as_part(base, made, lambda b: reshape(b, shape), _whole(lambda x: reshape(x, before)))


def _reshaped_in_place(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    """Where the elements lie in order; elsewhere PyTorch copies them."""
    if made.dtype is not base.dtype:  # x.view(dtype)
        return _not_written(base, made, method, args, named)
    return _reshaped(base, made, method, args, named) if base._layout.contiguous else made


def _exchanged(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    """Two axes, or all in reverse order: once more is as it was."""
    again = lambda x: method(x, *args, **named)
    return as_part(base, made, again, _whole(again))


def _transposed(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    """Two axes exchanged, as PyTorch says it; or the order of all axes, as NumPy says it."""
    order = args if len(args) > 2 else args[0] if len(args) == 1 and not isinstance(args[0], int) else None
    return _exchanged(base, made, method, args, named) if order is None else _permuted(base, made, REGISTRY["permute"].call, (order,), {})


def _permuted(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    order = next(iter(named.values())) if named else args[0] if len(args) == 1 and not isinstance(args[0], int) else args
    order = [a % base.ndim for a in order]
    back = sorted(range(base.ndim), key=order.__getitem__)
    return as_part(base, made, lambda b: method(b, *args, **named), _whole(lambda x: REGISTRY["permute"](x, back)))


def _moved(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    source, to = (*args, *named.values()) if not named or "source" not in named else (named["source"], named["destination"])
    return as_part(base, made, lambda b: method(b, *args, **named), _whole(lambda x: method(x, to, source)))


def _cut(base: Tensor, made: Any, axis: int, places: Sequence[Any]) -> Any:
    """Slices along an axis, or elements of it, at these places."""
    for part, place in zip(made if isinstance(made, (tuple, list)) else [made], places):
        key = (*[slice(None)] * (axis % base.ndim), place)
        read = lambda b, key=key: REGISTRY["getitem"].call(b, key)
        as_part(base, part, read, lambda b, x, key=key: b.__setitem__(key, x))
    return made


def _axis(args: Args, named: Named, at: int) -> int:
    return named.get("dim", named.get("axis", args[at] if len(args) > at else 0))


def _split(base: Tensor, made: Any, method: Callable, args: Args, named: Named) -> Any:
    axis = _axis(args, named, 1)
    ends = [0, *accumulate(p.shape[axis] for p in made)]
    if ends[-1] != base.shape[axis]:  # parts that overlap, or leave something out
        for part in made:
            _not_written(base, part, method, args, named)
        return made
    return _cut(base, made, axis, [slice(a, b) for a, b in zip(ends, ends[1:])])


def _unbound(base: Tensor, made: Any, method: Callable, args: Args, named: Named) -> Any:
    return _cut(base, made, _axis(args, named, 0), range(len(made)))


def _selected(base: Tensor, made: Any, method: Callable, args: Args, named: Named) -> Any:
    index = named["index"] if "index" in named else args[-1]
    return _cut(base, made, _axis(args, named, 0), [index]) if isinstance(index, int) else made


def _narrowed(base: Tensor, made: Any, method: Callable, args: Args, named: Named) -> Any:
    axis = _axis(args, named, 0)
    start = named["start"] if "start" in named else args[1]
    if not isinstance(start, int):
        return made
    start %= max(base.shape[axis], 1)
    return _cut(base, made, axis, [slice(start, start + made.shape[axis])])


def _diagonal(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    if base.ndim != 2 or len(args) > 1 or named.keys() - {"offset"}:
        return _not_written(base, made, method, args, named)
    offset = named.get("offset", args[0] if args else 0)
    place = REGISTRY["arange"](made.shape[0], dtype="int64")
    key = place + max(-offset, 0), place + max(offset, 0)
    return as_part(base, made, lambda b: method(b, *args, **named), lambda b, x: b.__setitem__(key, x))


def _not_written(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    """Elements that lie in the tensor in another way, or several times: to write them is an error, before anything is changed."""

    def refuse(b: Tensor, x: Tensor | None = None) -> Any:
        raise ArgumentError(
            f"what is written to x.{method.__name__}() is not written to x, of {b._layout.type!r}; help: copy it before, "
            f"x.{method.__name__}(...).clone(), or write x[index] = value"
        )

    return as_part(base, made, refuse, refuse)


def _expanded(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    return (_reshaped if made.size == base.size else _not_written)(base, made, method, args, named)


# method -> what its result knows
VIEWS: dict[str, Callable[[Tensor, Any, Callable, Args, Named], Any]] = {
    **dict.fromkeys(("view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "ravel"), _reshaped_in_place),
    **dict.fromkeys(("squeeze", "unsqueeze"), _reshaped),
    **dict.fromkeys(("t", "swapaxes", "swapdims", "T", "mT"), _exchanged), "transpose": _transposed,
    "permute": _permuted, **dict.fromkeys(("movedim", "moveaxis"), _moved),
    **dict.fromkeys(("split", "chunk", "tensor_split"), _split), "unbind": _unbound, "select": _selected, "narrow": _narrowed,
    "diagonal": _diagonal, **dict.fromkeys(("expand", "expand_as"), _expanded), **dict.fromkeys(("unfold", "as_strided"), _not_written),
}  # fmt: skip


def views_by(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of PyTorch's that is as the method of this name: its results are views, too."""

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        made = function(*args, **named)
        return VIEWS[name](args[0], made, function, args[1:], named) if args and isinstance(args[0], Tensor) else made

    return call
