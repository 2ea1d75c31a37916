"""Methods of PyTorch's dialect whose results are views there: what is written to one in place is written to the tensor that it is of.

    flat = x.view(-1); flat[0] = 1.0        rows = x.t(); rows.add_(1)        left, right = torch.chunk(x, 2); left.zero_()

Tensors here have values of their own, so each result knows how its values are read from the tensor and how they go back
(`parts.as_part`). In: a method's tensor, arguments and result. Out: the result, or its parts, which know that.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from tengen.base.errors import ArgumentError
from tengen.compiler.plans import Layout
from tengen.ops.define import REGISTRY
from tengen.tensor.parts import as_alias, as_own, as_part, is_part, lies, relaid, root_of
from tengen.tensor.tensor import Tensor, settled

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
    """Where strides can say it; elsewhere PyTorch copies the elements."""
    return (_reshaped if _strides_fit(lies(base), made.shape) else _copied)(base, made, method, args, named)


def _strides_fit(layout: Any, shape: Sequence[Any]) -> bool:
    """Whether elements that lie so have this shape where they lie: each run of them that lie evenly is axes of it."""
    if layout.contiguous or layout.size == 0:
        return True
    runs: list[list[Any]] = []  # [extent, stride], outermost first
    for n, step in zip(layout.shape, layout.strides):
        if runs and runs[-1][1] == n * step:
            runs[-1] = [runs[-1][0] * n, step]
        elif n != 1:
            runs.append([n, step])
    extents = [n for n in shape if n != 1]
    for n, _ in reversed(runs):
        product = 1
        while extents and product < n:
            product *= extents.pop()
        if product != n:
            return False
    return True


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
            not_written(base, part, method, args, named)
        return made
    return _cut(base, made, axis, [slice(a, b) for a, b in zip(ends, ends[1:])])


def _unbound(base: Tensor, made: Any, method: Callable, args: Args, named: Named) -> Any:
    return _cut(base, made, _axis(args, named, 0), range(len(made)))


def _place(index: Any) -> int | None:
    """An index as a number; None for a tensor whose value a program computes."""
    return index if isinstance(index, int) else int(index.item()) if isinstance(index, Tensor) and settled(index) else None


def _selected(base: Tensor, made: Any, method: Callable, args: Args, named: Named) -> Any:
    index = _place(named["index"] if "index" in named else args[-1])
    return not_written(base, made, method, args, named) if index is None else _cut(base, made, _axis(args, named, 0), [index])


def _narrowed(base: Tensor, made: Any, method: Callable, args: Args, named: Named) -> Any:
    axis = _axis(args, named, 0)
    start = _place(named["start"] if "start" in named else args[1])
    if start is None:
        return not_written(base, made, method, args, named)
    start %= max(base.shape[axis], 1)
    return _cut(base, made, axis, [slice(start, start + made.shape[axis])])


def _picked(of: Callable[..., np.ndarray]) -> Callable[..., Tensor]:
    """Views of single elements, of(an array in place of the tensor, the method's arguments): where no element stands in one twice, they are
    written one by one. Where they lie is found when one is written."""

    def view(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
        if not all(isinstance(n, int) for n in base.shape):
            return not_written(base, made, method, args, named)
        shape = base.shape

        @functools.cache
        def places() -> np.ndarray | None:
            found = np.array(of(np.arange(math.prod(shape)).reshape(shape), *args, **named)).reshape(-1)
            return found if len(np.unique(found)) == len(found) else None

        def read(b: Tensor) -> Tensor:
            return refused(b, method) if places() is None else method(b, *args, **named)

        def write(b: Tensor, x: Tensor) -> None:
            b[tuple(Tensor(i) for i in np.unravel_index(places(), shape))] = REGISTRY["reshape"](x, (-1,))

        return as_part(base, made, read, write)

    return view


def _diagonal(a: np.ndarray, offset: int = 0, dim1: int = 0, dim2: int = 1, axis1: int = 0, axis2: int = 1) -> np.ndarray:
    return np.diagonal(a, offset, dim1 or axis1, dim2 if dim2 != 1 else axis2)


def _windows(a: np.ndarray, dimension: int, size: int, step: int = 1) -> np.ndarray:
    return np.moveaxis(np.moveaxis(sliding_window_view(a, size, dimension), dimension, 0)[::step], 0, dimension % a.ndim)


def _unfolded(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    """Windows, which are copied here and views in PyTorch: along the axis a step of them, behind the others one of the elements."""
    made = _picked(_windows)(base, made, method, args, named)
    dimension, step = named.get("dimension", args[0] if args else 0), named.get("step", args[2] if len(args) > 2 else 1)
    of = lies(base)
    if all(isinstance(n, int) for n in of.shape):
        strides = list(of.strides)
        strides.append(strides[dimension])
        strides[dimension % base.ndim] *= step
        made._part = made._part._replace(as_if=Layout(made.shape, made.dtype, tuple(strides), made.device))
    return made


def in_memory(x: Tensor, offset: int | None) -> tuple[Tensor, int]:
    """(What x is a view of, the place there that `offset` names; of None that of x's first element). Errors: ArgumentError where the elements
    lie in another order in memory than in the tensor's shape, or are no elements of it."""
    whole, at = root_of(x), x
    links = []
    while at is not whole:
        links.append(at._part)
        at = at._part.base
    if not whole._layout.contiguous or any(n.base.dtype.is_complex is not x.dtype.is_complex for n in links):
        raise ArgumentError(f"as_strided({x._layout.type!r}): its places in memory are not known; help: x.contiguous().as_strided(...)")
    if offset is not None or not links or not x.size:
        return whole, offset or 0
    places = Tensor(np.arange(whole.size).reshape(whole.shape))
    for link in reversed(links):
        places = link.read(places)
    return whole, int(places.numpy().reshape(-1)[0])


def _strided(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    def places(a: np.ndarray, size: Args, stride: Args, storage_offset: int) -> np.ndarray:
        return as_strided(a.reshape(-1)[storage_offset:], tuple(size), [s * a.itemsize for s in stride])

    size, stride, offset = (*args, *named.values(), None)[:3]
    whole, first = in_memory(base, named.get("storage_offset", offset))
    return _picked(places)(whole, made, REGISTRY["as_strided"].call, (named.get("size", size), named.get("stride", stride), first), {})


def refused(base: Tensor, method: Callable) -> Any:
    """ArgumentError for a view whose elements cannot be written, before anything is changed."""
    raise ArgumentError(
        f"what is written to x.{method.__name__}() is not written to x, of {base._layout.type!r}; help: copy it before, "
        f"x.{method.__name__}(...).clone(), or write x[index] = value"
    )


def not_written(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    """Elements that lie in the tensor several times, or in a way that is not known: to write them is an error."""
    return as_part(base, made, lambda b: refused(b, method), lambda b, x: refused(b, method))


def _expanded(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    return (_reshaped if made.size == base.size else not_written)(base, made, method, args, named)


def _itself(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Any:
    """x.float() of a tensor of float32 is x."""
    return base if isinstance(made, Tensor) and made.dtype is base.dtype else made


def _detached(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    return as_alias(base, made) if made is not base else made


def _copied(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    return as_own(made) if made is not base else made


def _real(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    return as_part(base, made, REGISTRY["real"].call, lambda b, x: b.__setitem__(..., REGISTRY["complex"](x, REGISTRY["imag"](b))))


def _imaginary(base: Tensor, made: Tensor, method: Callable, args: Args, named: Named) -> Tensor:
    return as_part(base, made, REGISTRY["imag"].call, lambda b, x: b.__setitem__(..., REGISTRY["complex"](REGISTRY["real"](b), x)))


def _paired(back: str) -> Callable[..., Tensor]:
    """Complex numbers as pairs, or the other way round; back: the op that goes back."""
    return lambda base, made, method, args, named: as_part(base, made, method, _whole(REGISTRY[back].call))


# method -> what its result knows
VIEWS: dict[str, Callable[[Tensor, Any, Callable, Args, Named], Any]] = {
    **dict.fromkeys(("view", "view_as", "unflatten"), _reshaped),
    **dict.fromkeys(("reshape", "reshape_as", "flatten", "ravel"), _reshaped_in_place),
    **dict.fromkeys(("squeeze", "unsqueeze", "atleast_1d", "atleast_2d", "atleast_3d"), _reshaped),
    **dict.fromkeys(("t", "swapaxes", "swapdims", "T", "mT", "mH", "H", "adjoint", "conj"), _exchanged), "transpose": _transposed,
    "permute": _permuted, **dict.fromkeys(("movedim", "moveaxis"), _moved),
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "tensor_split"), _split), "unbind": _unbound, "select": _selected,
    "narrow": _narrowed, "diagonal": _picked(_diagonal), "unfold": _unfolded, "as_strided": _strided,
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), _expanded),
    "real": _real, "imag": _imaginary, "view_as_real": _paired("view_as_complex"), "view_as_complex": _paired("view_as_real"),
    "detach": _detached, "flip": _copied,
    **dict.fromkeys(("float", "double", "half", "bfloat16", "long", "int", "short", "char", "byte", "bool", "cfloat", "cdouble", "type",
                     "type_as"), _itself),
}  # fmt: skip


def views_by(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of PyTorch's that is as the method of this name: its results are views, too."""

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        if args and isinstance(args[0], Tensor):
            relaid(args[0])
        made = function(*args, **named)
        if args and isinstance(args[0], Tensor) and not (isinstance(made, Tensor) and is_part(made)):
            return VIEWS[name](args[0], made, function, args[1:], named)
        return made

    return call


def views_of_each(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of several tensors that gives each of them, repeated along axes."""

    @functools.wraps(function)
    def call(*tensors: Any, **named: Any) -> Any:
        given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
        each = zip(given, function(*tensors, **named))
        return tuple([_expanded(t, made, function, (), {}) if isinstance(t, Tensor) and made is not t else made for t, made in each])

    return call
