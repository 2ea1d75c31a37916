"""`Tensor.size`: NumPy's and MegEngine's number of elements, which may also be called, as PyTorch's method: ``x.size()``, ``x.size(0)``;
and extents as programs of PyTorch's dialect see them."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

from tengen.base.errors import AxisError, Undecided
from tengen.loops.extents import OpenExtent


def _extent(shape: tuple, dim: int | None) -> Any:
    if dim is None:
        return shape
    if not -len(shape) <= dim < len(shape):
        raise AxisError(f"size({dim}) of a tensor of shape {shape}: it has {len(shape)} axes")
    return shape[dim]


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
        found = super().__getitem__(key)
        return Extents(found) if isinstance(key, slice) else found

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


@functools.lru_cache(4096)
def _known(shape: tuple[int, ...]) -> Size:
    return _made(shape, math.prod(shape))


@functools.lru_cache(4096)
def known_extents(shape: tuple[int, ...]) -> Extents:
    """`Extents` of extents that are known, of which many tensors have the same ones."""
    return Extents(shape)


@functools.lru_cache(4096)
def _known_extents_size(shape: tuple[int, ...]) -> Size:
    return _made(known_extents(shape), math.prod(shape))


def _made(shape: tuple, size: int) -> Size:
    made = Size(size)
    made.shape = shape
    return made


def with_numel(shape: tuple) -> Extents:
    """The extents of a tensor as PyTorch's programs see them."""
    try:
        return known_extents(shape)
    except Undecided:  # an open extent has no hash
        return Extents(shape)


def size_of(shape: tuple, size: Any, pytorchs: bool = False) -> Any:
    """The number of elements of a tensor of this shape, as users see it. pytorchs: when it is called, it gives `Extents`."""
    if type(size) is int and all([type(d) is int for d in shape]):
        return _known_extents_size(shape) if pytorchs else _known(shape)
    shape = Extents(shape) if pytorchs else shape
    if type(size) is int:  # of none, whatever the open extents are
        return _made(shape, size)
    if not isinstance(size, OpenExtent):
        return size
    made = OpenSize()
    for name in ("op", "args", "dtype", "lanes", "attr", "expr"):
        setattr(made, name, getattr(size, name))
    made.shape = shape
    return made
