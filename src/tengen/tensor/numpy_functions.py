"""NumPy's functions of Tensors: ``np.sin(t)``, ``np.sum(t, axis=0)``, ``array * t``.

NumPy asks an operand of another library what a call means (`__array_ufunc__` of NEP 13, `__array_function__` of NEP 18). Three
answers are given here:

- A function that Tengen has too is Tengen's: the result is a Tensor, with a gradient, and `trace` records it.
- Any other function gets the values as arrays and returns arrays, as for every object that NumPy converts. No gradient flows
  through it, which a warning says, once for each line, where one is being recorded.
- With ``out=`` an array, NumPy computes, and the result is in that array.

In: a function of NumPy and its arguments. Out: a Tensor, or what NumPy returns.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError, UsageWarning, warn_once
from tengen.ops.define import REGISTRY
from tengen.tensor.nodes import on_tape
from tengen.tensor.tensor import Tensor

# NumPy's universal functions whose names differ from those of the ops with the same meaning
UFUNCS = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2",
    "arctanh": "atanh", "divide": "div", "floor_divide": "floor_div", "invert": "bitwise_not", "multiply": "mul",
    "negative": "neg", "power": "pow", "remainder": "mod", "rint": "round", "subtract": "sub", "true_divide": "div",
}  # fmt: skip


def _cast(x: Any, dtype: Any) -> Any:
    return x if dtype is None else REGISTRY["astype"](x, dtype)


def _reduction(name: str) -> Callable:
    def call(a, axis=None, dtype=None, keepdims=False):
        return _cast(REGISTRY[name](_cast(a, dtype), axis, keepdims), dtype)

    return call


def _spread(name: str) -> Callable:
    def call(a, axis=None, dtype=None, ddof=0, keepdims=False, correction=None):
        return _cast(REGISTRY[name](_cast(a, dtype), axis, keepdims, ddof if correction is None else correction), dtype)

    return call


def rounded(x: Tensor, decimals: int = 0) -> Tensor:
    """x rounded to so many decimal digits, halves to even; negative: to tens, hundreds, ... Integers stay integers.

    >>> Tensor([0.125, 2.5]).round(2).tolist()
    [0.11999999731779099, 2.5]
    """
    if decimals == 0 or x.dtype.kind in "iub" and decimals > 0:
        return x if x.dtype.kind in "iub" else REGISTRY["round"](x)
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return REGISTRY["round"](x * scale) / scale
    return REGISTRY["astype"](REGISTRY["round"](x / scale) * scale, x.dtype)


FUNCTIONS: dict[Callable, Callable] = {
    **{getattr(np, name): _reduction(name) for name in ("sum", "prod", "mean", "max", "min")},
    np.std: _spread("std"),
    np.var: _spread("var"),
    np.amax: _reduction("max"),
    np.amin: _reduction("min"),
    np.all: lambda a, axis=None, keepdims=False: REGISTRY["all"](a, axis, keepdims),
    np.any: lambda a, axis=None, keepdims=False: REGISTRY["any"](a, axis, keepdims),
    np.argmax: lambda a, axis=None, keepdims=False: REGISTRY["argmax"](a, axis, keepdims),
    np.argmin: lambda a, axis=None, keepdims=False: REGISTRY["argmin"](a, axis, keepdims),
    np.cumsum: lambda a, axis=None, dtype=None: _running("cumsum", _cast(a, dtype), axis),
    np.cumprod: lambda a, axis=None, dtype=None: _running("cumprod", _cast(a, dtype), axis),
    np.concatenate: lambda arrays, axis=0: REGISTRY["concat"](list(arrays), axis),
    np.stack: lambda arrays, axis=0: REGISTRY["stack"](list(arrays), axis),
    np.where: lambda condition, x, y: REGISTRY["where"](condition, x, y),
    np.round: lambda a, decimals=0: rounded(a, decimals),
    np.around: lambda a, decimals=0: rounded(a, decimals),
    np.clip: lambda a, a_min=None, a_max=None: REGISTRY["clip"](a, a_min, a_max),
    np.reshape: lambda a, shape: REGISTRY["reshape"](a, shape),
    np.transpose: lambda a, axes=None: a.transpose() if axes is None else REGISTRY["permute"](a, axes),
    np.squeeze: lambda a, axis=None: REGISTRY["squeeze"](a, axis),
    np.expand_dims: lambda a, axis: REGISTRY["expand_dims"](a, axis),
    np.swapaxes: lambda a, axis1, axis2: REGISTRY["swapaxes"](a, axis1, axis2),
    np.moveaxis: lambda a, source, destination: REGISTRY["moveaxis"](a, source, destination),
    np.broadcast_to: lambda array, shape: REGISTRY["broadcast_to"](array, shape),
    np.flip: lambda m, axis=None: REGISTRY["flip"](m, axis),
    np.tile: lambda A, reps: REGISTRY["tile"](A, reps),
    np.repeat: lambda a, repeats, axis=None: REGISTRY["repeat"](a, repeats, axis),
    np.tril: lambda m, k=0: REGISTRY["tril"](m, k),
    np.triu: lambda m, k=0: REGISTRY["triu"](m, k),
    np.zeros_like: lambda a, dtype=None: _cast(REGISTRY["zeros_like"](a), dtype),
    np.ones_like: lambda a, dtype=None: _cast(REGISTRY["ones_like"](a), dtype),
    np.full_like: lambda a, fill_value, dtype=None: REGISTRY["full_like"](_cast(a, dtype), fill_value),
    np.copy: lambda a: REGISTRY["copy"](a),
    np.real: lambda val: REGISTRY["real"](val),
    np.imag: lambda val: REGISTRY["imag"](val),
    np.angle: lambda z: REGISTRY["angle"](z),
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
}


def _running(name: str, x: Tensor, axis: int | None) -> Tensor:
    return REGISTRY[name](x.reshape(-1), 0) if axis is None else REGISTRY[name](x, axis)


def _over_arrays(name: str, function: Callable, args: tuple, kwargs: dict) -> Any:
    """What NumPy computes of the tensors' values."""

    def plain(x: Any) -> Any:
        if isinstance(x, Tensor):
            if on_tape(x):
                warn_once(
                    f"np.{name}() of a {x._layout.type!r} whose gradient is being recorded gives an array: no gradient flows "
                    "through it; help: use Tengen's functions, or detach() the tensor to say that this is meant",
                    UsageWarning,
                )
            return x.numpy()
        if isinstance(x, (list, tuple)):
            return type(x)(map(plain, x)) if type(x) in (list, tuple) else x
        return x

    return function(*map(plain, args), **{k: plain(v) for k, v in kwargs.items()})


def array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """`np.sin(t)` and the like, and operators of an array and a Tensor."""
    out = kwargs.get("out", ())
    if any(isinstance(x, Tensor) for x in out):
        raise ArgumentError(f"np.{ufunc.__name__}(out=a Tensor): NumPy cannot write to a Tensor; help: t[...] = value")
    name = UFUNCS.get(ufunc.__name__, ufunc.__name__)
    if method == "__call__" and name in REGISTRY and not out and kwargs.keys() <= {"dtype"}:
        dtype = kwargs.get("dtype")
        return REGISTRY[name](*(x if dtype is None else _cast(x, dtype) for x in inputs))
    whole = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
    return _over_arrays(whole, getattr(ufunc, method), inputs, kwargs)


# NumPy's modules -> what holds our functions for them, in `FUNCTIONS`, and stands floors above: it is imported for the first such call
_ABOVE = {"numpy.linalg": "tengen.linalg.numpy_names", "numpy.fft": "tengen.fft"}


def array_function(self: Tensor, func: Callable, types: Any, args: tuple, kwargs: dict) -> Any:
    """`np.sum(t)` and the like."""
    if not all(issubclass(t, (Tensor, np.ndarray)) for t in types):
        return NotImplemented
    if func.__module__ in _ABOVE:
        importlib.import_module(_ABOVE[func.__module__])
    ours = FUNCTIONS.get(func)
    if ours is None or (func is np.where and len(args) == 1) or isinstance(kwargs.get("out"), np.ndarray):
        return _over_arrays(func.__name__, func, args, kwargs)
    given = {k: v for k, v in kwargs.items() if not (v is None and k in ("dtype", "out") or v is np._NoValue)}
    try:
        inspect.signature(ours).bind(*args, **given)
    except TypeError as e:
        raise ArgumentError(f"np.{func.__name__}() of a Tensor: {e}; help: np.{func.__name__}(t.numpy(), ...)") from None
    return ours(*args, **given)
