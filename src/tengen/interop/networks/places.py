"""Positions of elements in flattened tensors, for reading and writing by indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.base.errors import FileFormatError
from tengen.functional.windows import larger
from tengen.interop.networks.values import as_tensor
from tengen.loops.lang import cdiv
from tengen.tensor import Tensor

MOST = 1 << 22  # elements of an array that is known while a network is recorded


def product(shape: Sequence) -> Any:
    """Of extents."""
    found: Any = 1
    for e in shape:
        found = found * e
    return found


def modest(count: Any) -> None:
    """Errors: FileFormatError for more elements than a known array may have."""
    if isinstance(count, int) and count > MOST:
        raise FileFormatError(f"{count:,} elements that have to be known; {MOST:,} may be")


def same_paddings(extent: Any, span: int, stride: int) -> Any:
    """What is added to an axis, which may be open, so that it has one window for each `stride` elements, rounded up."""
    return span - 1 if stride == 1 else larger((cdiv(extent, stride) - 1) * stride + span - extent, 0)


def positive(index: Any, extent: Any) -> Tensor:
    """Indices that count from the beginning."""
    if isinstance(index, np.ndarray) and index.dtype != object and (isinstance(extent, int) or (index >= 0).all()):
        return as_tensor(np.where(index < 0, index + extent, index) if (index < 0).any() else index)
    index = as_tensor(index)
    if index.dtype.kind == "u":
        return index.astype("int64")
    return F.where(F.less(index, 0), index + extent, index)


def flat_places(at: Tensor, extents: Sequence, batch: int = 0) -> Tensor:
    """The positions that vectors of indices name in the flattened first axes."""
    found: Any = 0
    for i in range(int(at.shape[-1])):
        found = found * extents[i] + positive(at[..., i].astype("int64"), extents[i])
    return found if isinstance(found, Tensor) else F.zeros(at.shape[:-1], "int64")


def grid_places(at: Tensor, extents: Sequence, axis: int, along: Tensor) -> Tensor:
    """The positions in a flattened tensor of the elements of an index, which names those along one axis."""
    found: Any = 0
    for a, e in enumerate(extents):
        here = along
        if a != axis:
            here = F.arange(at.shape[a], dtype="int64").reshape(*[at.shape[a] if b == a else 1 for b in range(len(extents))])
        found = found * e + here
    return F.broadcast_to(found, at.shape) if found.shape != at.shape else found
