"""What `x[key]` and `x[key] = v` mean: a key is read once into slices and integer arrays, by NumPy's rules.

Ints, slices, None and ... make a view. Integer arrays broadcast together; where they (and ints among them) stand side by side
their axes take that place, else they come first. A boolean array stands for the integer arrays that `nonzero` gives.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import field
from operator import index as as_index
from typing import TYPE_CHECKING, Any

import numpy as np

from tengen.base.dtype import bool_
from tengen.base.errors import DTypeError, IndexOutOfRange, ShapeError
from tengen.base.record import record
from tengen.ir.types import Dim
from tengen.loops.lang import Expr, as_int, unguarded
from tengen.ops.attributes import LARGEST
from tengen.ops.define import dispatch, shorthand
from tengen.ops.elementwise import astype, where
from tengen.ops.indexing import broadcasts_to, index, index_put, indexed_shape, set_slice
from tengen.ops.masks import nonzero
from tengen.ops.shape import broadcast_to, reshape, strided_slice

if TYPE_CHECKING:
    from tengen.tensor import Tensor


@record
class Key:
    """A key, read for one shape: first a strided slice of every axis, then `shape` (ints are gone, None made unit axes), then
    indices of some axes of that shape."""

    starts: list[Dim] = field(default_factory=list)
    sizes: list[Dim] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    shape: list[Dim] = field(default_factory=list)
    axes: list[int] = field(default_factory=list)
    indices: list[Tensor] = field(default_factory=list)
    position: int = 0

    @property
    def whole(self) -> bool:
        """Whether the slices take everything."""
        return all(s == 1 for s in self.steps) and all(isinstance(a, int) and a == 0 for a in self.starts)


def _is_array(k: Any) -> bool:
    return isinstance(k, (list, range, np.ndarray)) or (hasattr(k, "ndim") and hasattr(k, "dtype") and not isinstance(k, np.generic))


def _is_flag(k: Any) -> bool:
    return isinstance(k, (bool, np.bool_))


def _arrays(items: Sequence[Any]) -> list[Any]:
    """The items with arrays as tensors; 0-d integer tensors whose value is known are ints."""
    out: list[Any] = []
    for k in items:
        if _is_array(k) or isinstance(k, tuple):
            k = dispatch.tensor(np.asarray(k, np.int64) if isinstance(k, range) or (isinstance(k, (list, tuple)) and not len(k)) else k)
            if k.dtype.kind not in "iub":
                raise DTypeError(f"a tensor of {k.dtype} is no index; help: indices are integers, masks are bool")
        elif _is_flag(k):
            k = dispatch.tensor(np.asarray(k))
        out.append(k)
    return out


def _axes_used(k: Any) -> int:
    """How many axes of the tensor an item of a key stands for."""
    if k is None or k is Ellipsis:
        return 0
    return k.ndim if hasattr(k, "ndim") and k.dtype is bool_ else 1


def _expand(key: Any, shape: Sequence[Dim]) -> list[Any]:
    """The key as items, with full slices for ... and for what is left."""
    items = _arrays(key if isinstance(key, tuple) else (key,))
    used = sum(map(_axes_used, items))
    if used > len(shape):
        raise IndexOutOfRange(f"a key of {used} indices for a tensor of shape {tuple(shape)}, which has {len(shape)} axes")
    dots = [i for i, k in enumerate(items) if k is Ellipsis]
    if len(dots) > 1:
        raise IndexOutOfRange("a key has at most one ...")
    at = dots[0] if dots else len(items)
    rest = [slice(None)] * (len(shape) - used)
    return [
        *items[:at],
        *(rest if rest or not dots else [Ellipsis]),
        *items[at + bool(dots) :],
    ]  # an empty ... parts arrays, too


def _one(key: Key, i: Dim, d: Dim, axis: int, shape: Sequence[Dim]) -> None:
    """An int takes one element of its axis; so does an extent, which is at least 0."""
    if isinstance(i, int) and isinstance(d, int) and not -d <= i < d:
        raise IndexOutOfRange(f"getitem: index {i} is out of range for axis {axis} of extent {d} of shape {tuple(shape)}")
    key.starts.append(i + d if isinstance(i, int) and i < 0 else i)
    key.sizes.append(1)
    key.steps.append(1)


def _range(key: Key, s: slice, d: Dim) -> None:
    """A slice keeps its axis."""
    s = slice(unguarded(s.start), unguarded(s.stop), s.step)
    if any(isinstance(e, Expr) for e in (d, s.start, s.stop)):
        start, size, step = _open_range(s, d)
    else:
        start, stop, step = s.indices(d)
        size = len(range(start, stop, step))
        step = step if abs(step) <= LARGEST else 1  # beyond the axis, of which it takes an element at most
    key.starts.append(start if not (isinstance(size, int) and size == 0) else 0)
    key.sizes.append(size)
    key.steps.append(step)
    key.shape.append(size)


def _open_range(s: slice, d: Dim) -> tuple[Dim, Dim, int]:
    """(start, size, step) where the axis's extent or an end is known when the program runs. Nothing is clipped: where an axis
    turns out to be too short, that is an error."""
    step = 1 if s.step is None else s.step
    if isinstance(step, int) and step < 0 and s.start is None and s.stop is None:  # all of the axis, from its end
        return d - 1, d if step == -1 else (d + (-step - 1)) // -step, step
    ends = [(0 if s.start is None else s.start), (d if s.stop is None else s.stop)]
    if not isinstance(step, int) or step < 1 or not all(isinstance(e, (int, Expr)) for e in ends):
        what = f"a slice {s} of an axis of extent {d}, of which something is known only when the program runs"
        raise ShapeError(f"{what}; help: steps are to be 1, 2, ..., or the slice is to be of the whole axis, as x[::-1]")
    start, stop = (e + d if isinstance(e, int) and e < 0 else e for e in ends)
    size = stop - start
    return start, size if step == 1 else (size + (step - 1)) // step, step


def read_key(key: Any, shape: Sequence[Dim]) -> Key:
    """The key, read for a tensor of `shape`. Errors: IndexOutOfRange, DTypeError, ShapeError."""
    shape = tuple(map(unguarded, shape))
    items = _expand(key, shape)
    advanced = any(hasattr(k, "ndim") and not isinstance(k, np.generic) for k in items)
    out, axis, where_arrays = Key(), 0, []
    for place, k in enumerate(items):
        if k is None or k is Ellipsis:
            out.shape += [1] if k is None else []
            continue
        if hasattr(k, "ndim") and not isinstance(k, np.generic):
            where_arrays.append(place)
            axis += _add_array(out, k, shape, axis)
            continue
        d = shape[axis]
        if isinstance(k, slice):
            _range(out, k, d)
        else:
            try:
                i = e if isinstance(e := unguarded(k), Expr) else as_index(k)
            except TypeError:
                raise DTypeError(f"{k!r} is no index; help: ints, slices, None, ..., integer and bool tensors are") from None
            if advanced:  # it broadcasts with the arrays, and counts where they stand
                where_arrays.append(place)
            _one(out, i, d, axis, shape)
        axis += 1
    _place(out, items, where_arrays)
    return out


def dims(x: Tensor) -> tuple[Dim, ...]:
    """The extents as plain expressions, which may be compared: `x.shape` is for users."""
    return x._layout.type.shape


def _plain(key: Any) -> tuple | None:
    """A key of ints, slices, None and ... alone as what has a hash; None for any other."""
    out: list[Any] = []
    for k in key if type(key) is tuple else (key,):
        if type(k) is slice:
            if not all(x is None or type(x) is int for x in (k.start, k.stop, k.step)):
                return None
            k = k.start, k.stop, k.step
        elif type(k) is not int and k is not None and k is not Ellipsis:
            return None
        out.append(k)
    return tuple(out)


@functools.lru_cache(1024)  # loops take the same slices of the same shapes again and again
def _read_plain(plain: tuple, shape: tuple[Dim, ...]) -> Key:
    return read_key(tuple([slice(*k) if type(k) is tuple else k for k in plain]), shape)


def _add_array(out: Key, k: Tensor, shape: Sequence[Dim], axis: int) -> int:
    """An integer array, or a mask as integer arrays; returns how many axes it stands for."""
    if k.dtype is not bool_:
        _whole_axis(out, shape[axis])
        out.indices.append(k)
        return 1
    for j, (a, b) in enumerate(zip(k.shape, shape[axis:])):
        if isinstance(b, int) and a != b and as_int(a) != 0:  # masks without elements take nothing of any extent, as NumPy's
            raise IndexOutOfRange(
                f"a mask of shape {tuple(k.shape)} has extent {a} where axis {axis + j} of {tuple(shape)} has {b}"
            )
    if k.ndim == 0:  # a new axis of one element, taken or not
        out.axes.append(len(out.shape))
        out.shape.append(1)
        out.indices.append(reshape(nonzero(reshape(k, (1,)))[0], (-1,)))
        return 0
    for d, positions in zip(shape[axis:], nonzero(k)):
        _whole_axis(out, d)
        out.indices.append(positions)
    return k.ndim


def _whole_axis(out: Key, d: Dim) -> None:
    out.starts.append(0)
    out.sizes.append(d)
    out.steps.append(1)
    out.axes.append(len(out.shape))
    out.shape.append(d)


def _place(out: Key, items: Sequence[Any], places: Sequence[int]) -> None:
    """Where the indices' common axes go: to the first of them when they stand side by side, else to the front."""
    if not out.indices:
        return
    together = list(places) == list(range(places[0], places[-1] + 1))
    before = [k for k in items[: places[0]]]
    out.position = sum(1 for k in before if k is None or isinstance(k, slice)) if together else 0


def sliced(x: Tensor, key: Key) -> Tensor:
    """The view of x that the key's indices are for."""
    whole = key.whole and tuple(key.sizes) == dims(x)
    y = x if whole else strided_slice(x, tuple(key.starts), tuple(key.sizes), tuple(key.steps))
    return y if tuple(key.shape) == dims(y) else reshape(y, tuple(key.shape))


@shorthand
def getitem(inp: Tensor, key: Any) -> Tensor:
    """inp[key], as NumPy: ints, slices, None and ... give a view; integer and boolean arrays a copy.

    >>> from tengen import Tensor
    >>> x = Tensor([[1, 2, 3], [4, 5, 6]])
    >>> x[1, ::-1].tolist(), x[:, [0, 2]].tolist(), x[x > 4].tolist()
    ([6, 5, 4], [[1, 3], [4, 6]], [5, 6])
    """
    x = dispatch.tensor(inp)
    plain = _plain(key)
    if plain is None and (mask := _tensor_of_rows(x, key)) is not None and (found := dispatch.by_mask(x, mask)) is not None:
        return found
    if plain is not None and hasattr(x._layout, "rows") and _leaves_rows(key, x.ndim):  # of a selection by a mask
        return x._layout.owner.of_rows(getitem(x._layout.rows, key))
    k = read_key(key, x.shape) if plain is None else _read_plain(plain, dims(x))
    y = sliced(x, k)
    if k.indices:
        return index(k.indices, y, tuple(k.axes), k.position)
    return broadcast_to(x, x.shape) if y is x else y  # a tensor of its own, which can be written without changing x


def value_for(x: Tensor, value: Any) -> Tensor:
    """A value that x takes at some key, as a tensor; its dtype may differ. A number is rounded once."""
    numbers = (int, float, complex) if x.dtype.is_complex else (int, float)
    weak = x.dtype.is_inexact and isinstance(value, numbers) and not isinstance(value, np.generic)
    return dispatch.scalar(value, x.dtype) if weak else dispatch.tensor(value)


def mask_of_rows(x: Tensor, key: Any) -> Any:
    """The mask, where the key is one mask of x's first axes, and takes the others as they are; else None."""
    key, *rest = key if isinstance(key, tuple) and key else (key,)
    if not _is_array(key) or not all([k is Ellipsis or (type(k) is slice and k == slice(None)) for k in rest]):
        return None
    mask = dispatch.tensor(key)
    if mask.dtype is not bool_ or not mask.ndim or rest.count(Ellipsis) > 1 or mask.ndim + len(rest) - rest.count(Ellipsis) > x.ndim:
        return None
    return mask if dims(mask) == dims(x)[: mask.ndim] else None


def _leaves_rows(key: Any, ndim: int) -> bool:
    """Whether a key of slices, ints, None and ... takes the first axis as it is, in its place."""
    first, *rest = key if isinstance(key, tuple) and key else (key,)
    if first is Ellipsis:
        return None not in rest and len(rest) < ndim
    return isinstance(first, slice) and first == slice(None)


def _tensor_of_rows(x: Tensor, key: Any) -> Any:
    """The same where the mask is a tensor, which a trace may compute."""
    first = key[0] if isinstance(key, tuple) and key else key
    return mask_of_rows(x, key) if hasattr(first, "_layout") else None


def masks_whole(x: Tensor, key: Any, value: Tensor) -> Any:
    """The mask, where one value goes everywhere that it is true: that is `where`."""
    return None if value.size != 1 else mask_of_rows(x, key)


@shorthand
def setitem(inp: Tensor, key: Any, value: Any) -> Tensor:
    """A copy of inp with `value` (which broadcasts, and is cast to inp's dtype) at [key]. Where integer arrays name a place
    twice, the last value stays."""
    x = dispatch.tensor(inp)
    v = value_for(x, value)
    v = v if v.dtype is x.dtype else astype(v, x.dtype)
    if (mask := _tensor_of_rows(x, key)) is not None and (new := dispatch.by_mask(x, mask, v)) is not None:
        return new
    mask = masks_whole(x, key, v)
    if mask is not None:
        return where(reshape(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim))), reshape(v, ()), x)
    k = read_key(key, x.shape)
    sizes = tuple(k.sizes)
    if not k.indices:
        return set_slice(x, fitted(v, k.shape, sizes), tuple(k.starts), sizes, tuple(k.steps))
    inside = sliced(x, k)
    axes = tuple(k.axes)
    ndim = len(indexed_shape([i._layout.type for i in k.indices], inside._layout.type, axes, k.position))
    new = index_put(k.indices, inside, dropped(v, ndim), axes, k.position)
    if k.whole and tuple(k.shape) == dims(x):
        return new
    return set_slice(x, reshape(new, sizes), tuple(k.starts), sizes, tuple(k.steps))


def dropped(v: Tensor, ndim: int) -> Tensor:
    """v without leading unit axes beyond `ndim`, as NumPy's assignment allows."""
    extra = v.ndim - ndim
    if extra > 0 and all(isinstance(d, int) and d == 1 for d in v.shape[:extra]):
        return reshape(v, tuple(v.shape[extra:]))
    return v


def fitted(v: Tensor, shape: Sequence[Dim], sizes: Sequence[Dim]) -> Tensor:
    """A value that broadcasts to `shape`, so that it broadcasts to `sizes`, where ints left unit axes."""
    v = dropped(v, len(shape))
    if not broadcasts_to(dims(v), shape):
        raise ShapeError(f"setitem: a value of shape {tuple(v.shape)} does not broadcast to {tuple(shape)}")
    if v.ndim == 0 or tuple(shape) == tuple(sizes):
        return v
    return reshape(v if dims(v) == tuple(shape) else broadcast_to(v, tuple(shape)), sizes)
