"""`Tensor.size`: NumPy's and MegEngine's number of elements, which may also be called, as PyTorch's method: ``x.size()``, ``x.size(0)``;
and extents as programs of PyTorch's dialect see them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from tengen.base.errors import AxisError
from tengen.compiler.plans import Layout
from tengen.loops.extents import OpenExtent


def _extent(shape: tuple, dim: int | None) -> Any:
    if dim is None:
        return shape
    if not -len(shape) <= dim < len(shape):
        raise AxisError(f"size({dim}) of a tensor of shape {shape}: it has {len(shape)} axes")
    return shape[dim]


_item, _made_of = tuple.__getitem__, tuple.__new__


class Extents(tuple):
    """`torch.Size`: a tuple of extents, which equals the plain one and can count elements. Its slices, sums and multiples are such too.

    >>> s = Extents([2, 3])
    >>> s, s.numel(), s == (2, 3), s[1:] + (4,)
    (torch.Size([2, 3]), 6, True, torch.Size([3, 4]))
    """

    __slots__ = ()

    def __new__(cls, extents: Iterable = ()) -> Extents:
        made = super().__new__(cls, extents)
        for i, d in enumerate(made):
            if not hasattr(d, "__index__"):
                raise TypeError(f"torch.Size() takes integers, and element {i} is {d!r}")
        return made

    def numel(self) -> Any:
        """The number of elements of a tensor with these extents."""
        return math.prod(self)

    def __getitem__(self, key: Any) -> Any:
        found = _item(self, key)
        return _made_of(Extents, found) if type(found) is tuple else found  # a slice: extents are no tuples

    def __add__(self, other: Any) -> Any:
        return Extents(super().__add__(other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return Extents((*other, *self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, n: Any) -> Any:
        return Extents(super().__mul__(n))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"


def extents_of(*extents: Any) -> Extents:
    """`Extents` of these numbers."""
    return Extents(extents)


class Size(int):
    """A number of elements; called, the extents, or one of them.

    >>> from tengen import functional as F
    >>> x = F.zeros((2, 3))
    >>> x.size, x.size(), x.size(-1), x.size(dim=0)
    (6, (2, 3), 3, 2)
    """

    shape: tuple[int, ...]

    def __call__(self, dim: int | None = None) -> Any:
        return _extent(self.shape, dim)

    def __reduce__(self) -> tuple:
        return int, (int(self),)


class OpenSize(OpenExtent):
    """The same where only a run knows it."""

    __slots__ = ("shape",)
    shape: tuple

    def __call__(self, dim: int | None = None) -> Any:
        return _extent(self.shape, dim)


def _made(shape: tuple, size: int) -> Size:
    made = Size(size)
    made.shape = shape
    return made


class Seen(NamedTuple):
    """A shape as users see it.

    Attributes:
        size: the number of elements; called, it gives the extents. extents: as PyTorch's programs see them. extents_size: the number of
            elements as they see it; called, it gives `Extents`.
    """

    size: Any
    extents: Extents
    extents_size: Any


def extents_of_layout(layout: Any) -> Extents:
    """The extents of a tensor as PyTorch's programs see them: one object for one `Layout`."""
    return _seen(layout).extents if type(layout) is Layout else Extents(layout.shape)


def size_of_layout(layout: Any, pytorchs: bool = False) -> Any:
    """The number of elements of a tensor, as users see it. pytorchs: when it is called, it gives `Extents`."""
    if type(layout) is not Layout:
        return _sized(Extents(layout.shape) if pytorchs else layout.shape, layout.size)
    seen = _seen(layout)
    return seen.extents_size if pytorchs else seen.size


def _seen(layout: Layout) -> Seen:
    try:
        return layout.seen
    except AttributeError:
        extents = Extents(layout.shape)
        layout.seen = Seen(_made(layout.shape, layout.size), extents, _made(extents, layout.size))
        return layout.seen


def _sized(shape: tuple, size: Any) -> Any:
    if type(size) is int:  # also of none, whatever open extents are
        return _made(shape, size)
    if not isinstance(size, OpenExtent):
        return size
    made = OpenSize()
    for name in ("op", "args", "dtype", "lanes", "attr", "expr"):
        setattr(made, name, getattr(size, name))
    made.shape = shape
    return made
