"""A tensor's values as Python's and NumPy's: numbers, nested lists, arrays, text in a format.

All go through `numpy()`, which refuses a tensor that has no values yet: of a trace that is being recorded, or inside of `vmap`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tengen.base.errors import ShapeError

if TYPE_CHECKING:
    from tengen.base.dtype import DType


class Values:
    """The part of `Tensor` that gives values away."""

    __slots__ = ()

    if TYPE_CHECKING:
        _layout: Any

        @property
        def dtype(self) -> DType: ...

        @property
        def size(self) -> int: ...

        def numpy(self) -> np.ndarray: ...

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        a = self.numpy()
        if dtype is not None and a.dtype != dtype:
            if copy is False:
                raise ValueError(
                    f"a {a.dtype} tensor cannot be seen as {np.dtype(dtype)} without a copy; help: copy=None allows one"
                )
            return a.astype(dtype)
        return a.copy() if copy else a

    def item(self) -> float | int | bool | complex:
        """The one element as a Python number."""
        if self.size != 1:
            raise ShapeError(f"item() needs one element, this tensor is {self._layout.type!r}")
        return self.numpy().reshape(())[()].item()

    def tolist(self):
        """The values as nested lists."""
        return self.numpy().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ShapeError(f"the truth of {self._layout.type!r}, which has {self.size} elements, is ambiguous; help: use any() or all()")
        return bool(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.size != 1:
            raise TypeError(f"only an integer tensor of one element is an index, this one is {self._layout.type!r}")
        return int(self.item())

    def __format__(self, spec: str) -> str:
        """``f"{loss}"`` is the number of a tensor without axes, as in NumPy and PyTorch, and `str` of others; ``f"{loss:.3f}"`` is that of a
        tensor of one element."""
        if not spec and self.shape:
            return str(self)
        if self.size != 1:
            raise TypeError(f"the format {spec!r} is for one number, this tensor is {self._layout.type!r}; help: format x.tolist()")
        return format(self.item(), spec)
