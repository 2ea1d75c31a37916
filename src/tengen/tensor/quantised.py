"""MegEngine's quantised dtypes: NumPy dtypes of integers that carry a scale, and perhaps a zero point. A tensor of one knows what its
integers stand for by its `qparams`.

In: dtypes and tensors. Out: what the dtypes mean, which `tengen.quantization`, where they are made, installs here. `Tensor.astype` gives with
such a dtype the integers that stand for the numbers, rounded to nearest; of such integers it takes what they stand for.

>>> from tengen import Tensor
>>> from tengen.core.tensor.dtype import qint8
>>> x = Tensor([1.0, 2.26]).astype(qint8(0.5))
>>> x.tolist(), x.astype("float32").tolist()
([2, 5], [1.0, 2.5])

Operations that only move elements (views, slices, `concat`, `stack`, `take`, `gather` ...) keep what the integers stand for: a filter of
`dispatch`, which is added with the first dtype that carries a scale, hands it on. What else is computed of such integers is plain integers.

>>> x[1:].astype("float32").tolist()
[2.5]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tengen.base.dtype import dtype as dtype_named
from tengen.base.dtype import is_quantised
from tengen.base.errors import ArgumentError, UsageWarning, warn_once
from tengen.ops.define import REGISTRY, Op, dispatch

if TYPE_CHECKING:
    from tengen.tensor.tensor import Tensor


class Meaning:
    """`of`: a dtype's `QParams`. `codes`: the integers that stand for a tensor's numbers, by `QParams`. `values`: what integers stand for.
    `begun`: whether integers of any tensor may stand for numbers."""

    begun = False
    of: Callable[[np.dtype], Any]
    codes: Callable[[Tensor, Any], Tensor]
    values: Callable[[Tensor, Any], Tensor]

    def install(self, of: Callable, codes: Callable, values: Callable) -> None:
        """Installs the functions."""

        def first(d: np.dtype) -> Any:
            self.begin()
            self.of = of
            return of(d)

        self.of, self.codes, self.values = first, codes, values

    def begin(self) -> None:
        """Is called before a tensor gets its first `qparams`: from then on what moves elements hands them on, and traces look for them."""
        if not self.begun:
            self.begun = True
            dispatch.add_filter(_handing_on)


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


# ---- what only moves elements --------------------------------------------------------------------------------------------

# ops beside views -> the operands that they move
_MOVED = {"copy": slice(0, 1), "concat": slice(None), "gather": slice(0, 1), "index": slice(-1, None)}


def _handing_on(run: Callable[..., Any]) -> Callable[..., Any]:
    """The function that runs ops, whose results know what their integers stand for where an op only moves elements."""

    def call(op: Op, inputs: tuple, attrs: tuple) -> Any:
        moved = slice(0, 1) if op.kind == "view" else _MOVED.get(op.name)
        q = None if moved is None else _common(op, inputs[moved])
        out = run(op, inputs, attrs)
        if q is not None:
            out._qparams = q
        return out

    return call


def _common(op: Op, moved: Sequence[Any]) -> Any:
    """The `qparams` of operands that an op moves; None where they are plain. Errors: ArgumentError where they stand for other numbers."""
    found = [x._qparams if hasattr(x, "_layout") and holds_codes(x) else None for x in moved]
    first = next((q for q in found if q is not None), None)
    if first is None:
        return None
    if first.scale.size > 1 and op.name != "copy":
        warn_once(
            f"{op.name}() of integers with {first.scale.size} scales gives plain integers; help: move what they stand for, x.astype('float32')",
            UsageWarning,
        )
        return None
    if any(q is not first and q != first for q in found):
        told = ", ".join("plain integers" if q is None else repr(q) for q in found)
        raise ArgumentError(
            f"{op.name}() of integers that do not stand for the same numbers: {told}; help: bring them to one dtype, "
            "[x.astype(qint8(scale)) for x in ...], or join what they stand for, x.astype('float32')"
        )
    return first


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
