"""`Tensor.size`: NumPy's and MegEngine's number of elements, which may also be called, as PyTorch's method: ``x.size()``, ``x.size(0)``."""

from __future__ import annotations

import functools
import math
from typing import Any

from tengen.base.errors import AxisError
from tengen.loops.extents import OpenExtent


def _extent(shape: tuple, dim: int | None) -> Any:
    if dim is None:
        return shape
    if not -len(shape) <= dim < len(shape):
        raise AxisError(f"size({dim}) of a tensor of shape {shape}: it has {len(shape)} axes")
    return shape[dim]


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


def _made(shape: tuple, size: int) -> Size:
    made = Size(size)
    made.shape = shape
    return made


def size_of(shape: tuple, size: Any) -> Any:
    """The number of elements of a tensor of this shape, as users see it."""
    if type(size) is int:
        return _known(shape) if all([type(d) is int for d in shape]) else _made(shape, size)  # of none, whatever the open extents are
    if not isinstance(size, OpenExtent):
        return size
    made = OpenSize()
    for name in ("op", "args", "dtype", "lanes", "attr", "expr"):
        setattr(made, name, getattr(size, name))
    made.shape = shape
    return made
