"""MegEngine's quantised dtypes: NumPy dtypes of integers that carry a scale, and perhaps a zero point. A tensor of one knows what its
integers stand for by its `qparams`.

In: dtypes and tensors. Out: what the dtypes mean, which `tengen.quantization`, where they are made, installs here. `Tensor.astype` gives with
such a dtype the integers that stand for the numbers, rounded to nearest; of such integers it takes what they stand for.

>>> from tengen import Tensor
>>> from tengen.core.tensor.dtype import qint8
>>> x = Tensor([1.0, 2.26]).astype(qint8(0.5))
>>> x.tolist(), x.astype("float32").tolist()
([2, 5], [1.0, 2.5])
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tengen.base.dtype import dtype as dtype_named
from tengen.base.dtype import is_quantised
from tengen.ops.define import REGISTRY

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
    d = getattr(data, "dtype", None) if dtype is None else dtype
    return d if is_quantised(d) else None


def stored(d: np.dtype) -> np.dtype:
    """The dtype of the integers alone."""
    return np.dtype(d.str)


def known(x: Tensor) -> Any:
    """A tensor's `qparams` with a scale; None where nobody said what its numbers were rounded to."""
    q = getattr(x, "_qparams", None)
    return None if q is None or q.scale is None else q


def holds_codes(x: Tensor) -> bool:
    """Whether a tensor's elements are integers that stand for numbers."""
    return x._layout.dtype.is_int and known(x) is not None


def numbers_of(x: Any) -> Any:
    """What integers stand for, as a float32 tensor that knows its `qparams`; anything else as it is."""
    return meaning.values(x, x._qparams) if hasattr(x, "_layout") and holds_codes(x) else x


_astype = REGISTRY["astype"].call


@functools.wraps(_astype)
def astype(x: Tensor, dtype: Any) -> Tensor:  # `Tensor.astype`, once `tengen.quantization.qparams` is loaded
    if not is_quantised(dtype):
        codes = getattr(x, "_qparams", None) is not None and holds_codes(x) and dtype_named(dtype).is_inexact
        return _astype(numbers_of(x) if codes else x, dtype)
    q = meaning.of(dtype)
    made = meaning.codes(numbers_of(x), q)
    made.qparams = q
    return made
