"""Values while a network that came from a file is run or recorded.

- a `Tensor`: computed by kernels.
- a `numpy.ndarray`: known while the network is recorded. Shapes and what is computed of them are known, so that a reshape knows its
  shape; entries may be open extents (dtype object).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tengen.functional as F
from tengen.base.dtype import int64
from tengen.base.errors import TraceError
from tengen.loops.lang import Expr, unguarded
from tengen.ops.reduce import extent
from tengen.tensor import Tensor, tracing


def recording() -> bool:
    """Whether calls are recorded, so that no tensor has a value."""
    return tracing.active is not None and tracing.recorder is not None


def as_tensor(v: Any) -> Tensor:
    """The tensor of a value that a kernel reads."""
    if isinstance(v, Tensor):
        return v
    if isinstance(v, np.ndarray) and v.dtype != object:
        return Tensor(v)
    if isinstance(v, np.ndarray):
        if any(isinstance(x, str) for x in v.flat):
            raise TraceError(f"{v.tolist()} is text, where a tensor is computed with")
        parts = [extent(unguarded(x), int64) if isinstance(x, Expr) else Tensor(np.int64(x)) for x in v.flat]
        return F.stack(parts, 0).reshape(v.shape) if v.ndim else parts[0]
    raise TypeError(not_a_tensor(v))


def not_a_tensor(v: Any) -> str:
    """The message where a tensor is needed, and an operator has none."""
    return f"a tensor is needed, this is {'absent' if v is None else type(v).__name__}"


def known(v: Any) -> np.ndarray:
    """The array of a value that has to be known when the network is recorded: a shape, an axis, a number of groups.

    Errors: TraceError for one that is computed from the network's inputs.
    """
    if isinstance(v, np.ndarray):
        return v
    if isinstance(v, Tensor):
        try:
            return v.numpy()
        except TraceError as e:
            raise TraceError(
                "a value is computed from the inputs, and shapes depend on it; help: to_module runs the network"
            ) from e
    raise TypeError(not_a_tensor(v))


def ints(v: Any) -> list:
    """The entries of a known vector of integers, or of a scalar: Python ints, or open extents."""
    return [x if not isinstance(x, (int, np.integer, float, np.floating)) else int(x) for x in known(v).reshape(-1).tolist()]


def shape_array(shape: Any) -> np.ndarray:
    """A shape as a known vector: int64, or objects where extents are open."""
    entries = list(shape)
    if all(isinstance(e, int) and type(e) is int for e in entries):
        return np.array(entries, np.int64)
    found = np.empty(len(entries), object)
    found[:] = entries
    return found
