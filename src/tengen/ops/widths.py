"""The width in which functions of several ops compute: float16 and bfloat16 as float32, rounded once at the end.

In: tensors, or functions of them. Out: the same in another float dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from tengen.base.dtype import DType, float32, promote
from tengen.ops.elementwise import astype


def to_float(x):
    """x itself where it is a float tensor, else as float32."""
    return x if x.dtype.is_float else astype(x, float32)


def widened(x):
    """x in the dtype that its arithmetic is done in: float16 and bfloat16 as float32, anything else as it is. A body of several ops that sums
    squares begins with it, since squares and sums leave float16's range, and ends with `narrowed`."""
    return x if x.dtype.compute is x.dtype else astype(x, x.dtype.compute)


def narrowed(y, *operands):
    """y rounded to float16 or bfloat16 where these operands promote to it (None is left out), else as it is."""
    d = functools.reduce(promote, [x.dtype for x in operands if x is not None])
    return y if y.dtype is d or d.compute is d else astype(y, d)


def rounded_once(f: Callable | None = None, *, like: str | None = None) -> Callable:
    """A decorator of a function of several ops, each of which would round its result: operands of float16 and bfloat16 are taken as float32,
    and results are rounded once, to what the operands promote to. like: the operand whose dtype the results have, where others' say nothing
    of it."""
    if f is None:
        return functools.partial(rounded_once, like=like)

    @functools.wraps(f)
    def call(*args, **named):
        floats = [
            v for v in _flat((*args, *named.values())) if isinstance(d := getattr(v, "dtype", None), DType) and d.is_float
        ]
        if all([v.dtype.compute is v.dtype for v in floats]):
            return f(*args, **named)
        made = f(*map(_wide, args), **{k: _wide(v) for k, v in named.items()})
        d = (
            functools.reduce(promote, [v.dtype for v in floats])
            if like is None
            else (named[like] if like in named else args[0]).dtype
        )
        if isinstance(made, tuple):
            parts = [_rounded(m, d) for m in made]
            return type(made)(*parts) if hasattr(made, "_fields") else tuple(parts)
        return _rounded(made, d)

    call.body = f  # whose parameters it has
    return call


def _flat(values: Sequence) -> list:
    return [w for v in values for w in (_flat(v) if isinstance(v, (list, tuple)) else [v])]


def _wide(v):
    if isinstance(v, (list, tuple)):
        return type(v)(map(_wide, v))
    return widened(v) if isinstance(d := getattr(v, "dtype", None), DType) and d.is_float else v


def _rounded(v, d: DType):
    return astype(v, d) if getattr(v, "dtype", None) is d.compute else v
