"""MegEngine's quantised dtypes: NumPy dtypes of integers that carry a scale, and perhaps a zero point. A tensor of one knows what its
integers stand for by its `qparams`.

In: dtypes and tensors. Out: what the dtypes mean, which `tengen.quantization`, where they are made, installs here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tengen.base.dtype import is_quantised

if TYPE_CHECKING:
    from tengen.tensor.tensor import Tensor


class Meaning:
    """`of`: a dtype's `QParams`. `codes`: the integers that stand for a tensor's numbers, by `QParams`. `values`: what integers stand for."""

    of: Callable[[np.dtype], Any]
    codes: Callable[[Tensor, Any], Tensor]
    values: Callable[[Tensor, Any], Tensor]

    def install(self, of: Callable, codes: Callable, values: Callable) -> None:
        """Installs the functions."""
        self.of, self.codes, self.values = of, codes, values


meaning = Meaning()


def carried(data: Any, dtype: Any) -> np.dtype | None:
    """The quantised dtype that a tensor of `data` is asked for, or that the array has; None where there is none."""
    for d in (dtype, getattr(data, "dtype", None)) if dtype is None else (dtype,):
        if is_quantised(d):
            return d
    return None


def stored(d: np.dtype) -> np.dtype:
    """The dtype of the integers alone."""
    return np.dtype(d.str)


def holds_codes(x: Tensor) -> bool:
    """Whether a tensor's elements are integers that stand for numbers."""
    q = getattr(x, "_qparams", None)
    return q is not None and q.scale is not None and x._layout.dtype.is_int


def converted(x: Tensor, dtype: Any) -> Tensor:
    """A tensor's numbers, which its integers may stand for, as the integers of a quantised dtype, or in float32 for any other dtype."""
    numbers = meaning.values(x, x._qparams) if holds_codes(x) else x
    if not is_quantised(dtype):
        return numbers
    q = meaning.of(dtype)
    made = meaning.codes(numbers, q)
    made.qparams = q
    return made
