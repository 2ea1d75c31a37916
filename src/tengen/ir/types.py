"""The type of a tensor in a program: its logical shape and its dtype. Layout is not here; it is the lowering's business."""

from __future__ import annotations

from collections.abc import Iterable

from tengen.base.dtype import DType, dtype
from tengen.loops.lang import Expr, Index

Dim = Index  # an int, or an int64 expression over named symbols


class TensorType:
    """An interned pair of shape and dtype: equal types are the same object. Prints as ``f32[N,3,224,224]``.

    >>> TensorType((2, 3), "float32")
    f32[2,3]
    """

    __slots__ = ("shape", "dtype")
    shape: tuple[Dim, ...]
    dtype: DType
    _table: dict = {}

    def __new__(cls, shape: Iterable[Dim], dt):
        key = (tuple(_dim(d) for d in shape), dtype(dt))
        t = cls._table.get(key)
        if t is None:
            t = super().__new__(cls)
            t.shape, t.dtype = key
            cls._table[key] = t
        return t

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __reduce__(self):
        return (TensorType, (self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"{self.dtype.short}[{','.join(map(str, self.shape))}]"


def _dim(d: Dim) -> Dim:
    if isinstance(d, Expr):
        return d.attr if d.op == "const" else d  # type: ignore[return-value]
    return int(d)
