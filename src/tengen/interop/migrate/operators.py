"""MegEngine's operators (MegBrain's, as a .mge file has them) by Tengen's functions.

In: an operator's settings and inputs. Out: its result. Shapes and indices are NumPy arrays while a graph runs, so that they stay numbers
of the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.tensor import Tensor

Settings = Mapping[str, Any]

ELEMENTWISE: dict[str, Callable] = {
    "ADD": lambda a, b: a + b, "SUB": lambda a, b: a - b, "MUL": lambda a, b: a * b, "TRUE_DIV": lambda a, b: a / b, "POW": lambda a, b: a**b,
    "FLOOR_DIV": lambda a, b: a // b, "MOD": lambda a, b: a % b, "MAX": lambda a, b: _both(F.maximum, np.maximum, a, b),
    "MIN": lambda a, b: _both(F.minimum, np.minimum, a, b), "RELU": lambda a: F.relu(a), "SIGMOID": lambda a: F.sigmoid(a),
    "TANH": lambda a: F.tanh(a), "EXP": lambda a: F.exp(a), "LOG": lambda a: F.log(a), "ABS": lambda a: F.abs(a), "NEGATE": lambda a: -a,
    "SQRT": lambda a: F.sqrt(a), "GELU": lambda a: F.gelu(a), "SILU": lambda a: F.silu(a), "H_SWISH": lambda a: F.hswish(a),
    "FUSE_MUL_ADD3": lambda a, b, c: a * b + c, "FUSE_MUL_ADD4": lambda a, b, c, d: a * b + c * d,
    "FUSE_ADD_RELU": lambda a, b: F.relu(a + b), "FUSE_ADD_SIGMOID": lambda a, b: F.sigmoid(a + b),
    "FUSE_ADD_TANH": lambda a, b: F.tanh(a + b), "FUSE_ADD_H_SWISH": lambda a, b: F.hswish(a + b),
}  # fmt: skip
REDUCTIONS: dict[str, Callable] = {
    "SUM": F.sum, "MEAN": F.mean, "MAX": F.max, "MIN": F.min, "PRODUCT": F.prod, "SUM_SQR": lambda x, *a, **k: F.sum(x * x, *a, **k),
}  # fmt: skip


def _both(of_tensors: Callable, of_arrays: Callable, *args: Any) -> Any:
    """One function where all are arrays of a shape, the other where one is a tensor."""
    return of_tensors(*args) if any(isinstance(a, Tensor) for a in args) else of_arrays(*args)


def _convolution(s: Settings, x: Tensor, w: Tensor) -> Tensor:
    groups = w.shape[0] if s["sparse"] == "GROUP" else 1
    return F.conv2d(x, w, None, _pair(s, "stride"), _pair(s, "pad"), _pair(s, "dilate"), groups)


def _transposed(s: Settings, w: Tensor, x: Tensor) -> Tensor:
    groups = w.shape[0] if s["sparse"] == "GROUP" else 1
    return F.conv_transpose2d(x, w, None, _pair(s, "stride"), _pair(s, "pad"), dilation=_pair(s, "dilate"), groups=groups)


def _pair(s: Settings, name: str) -> tuple[int, int]:
    return s[f"{name}_h"], s[f"{name}_w"]


def _pool(s: Settings, x: Tensor) -> Tensor:
    window, stride, pad = _pair(s, "window"), _pair(s, "stride"), _pair(s, "pad")
    if s["mode"] == "MAX":
        return F.max_pool2d(x, window, stride, pad)
    return F.avg_pool2d(x, window, stride, pad, "average" if s["mode"] == "AVERAGE" else "average_count_exclude_padding")


def _adaptive(s: Settings, x: Tensor, shape: np.ndarray) -> Tensor:
    size = tuple(np.broadcast_to(shape, (2,)).tolist())
    return (F.adaptive_max_pool2d if s["mode"] == "MAX" else F.adaptive_avg_pool2d)(x, size)


def _shape(s: Settings, *args: Any) -> np.ndarray:
    return np.array(np.broadcast_shapes(*(tuple(a.shape) for a in args)), np.int32)


def _subtensor(s: Settings, x: Any, *bounds: Any) -> Any:
    """items: (axis, has a begin, an end, a step, is an index); their values follow in this order."""
    left, key = list(bounds), [slice(None)] * x.ndim
    for axis, *there in s["items"]:
        given = [int(np.asarray(left.pop(0)).reshape(())) if has else None for has in there]
        key[axis] = given[3] if there[3] else slice(*given[:3])
    return x[tuple(key)]


def _concat(s: Settings, *args: Any) -> Any:
    if any(isinstance(a, Tensor) for a in args):
        return F.concat(list(args), s["axis"])
    return np.concatenate([np.atleast_1d(a) for a in args], s["axis"])


def _dimshuffle(s: Settings, x: Tensor) -> Tensor:
    """pattern: for each axis of the result one of x, or -1 for a new one; axes of x that it lacks have one element."""
    kept = [n for n in s["pattern"] if n >= 0]
    x = x.transpose(*kept, *(i for i in range(x.ndim) if i not in kept))
    x = x.reshape(x.shape[: len(kept)])
    return F.expand_dims(x, [i for i, n in enumerate(s["pattern"]) if n < 0]) if len(kept) < len(s["pattern"]) else x


def _axes(s: Settings, x: Any) -> Any:
    """The reader tells the axes and not whether they come or go: the result's rank does."""
    axes = list(s["axis"])
    if s["ndim"] > x.ndim:
        return _both(F.expand_dims, np.expand_dims, x, axes)
    return _both(F.squeeze, lambda a, b: np.squeeze(a, tuple(b)), x, axes)


def _product(s: Settings, a: Tensor, b: Tensor) -> Tensor:
    return F.matmul(a, b, s["transposeA"], s["transposeB"])


OPERATORS: dict[str, Callable] = {
    "GetVarShape": _shape,
    "Elemwise": lambda s, *args: ELEMENTWISE[_mode(s)](*args),
    "Convolution": _convolution,
    "ConvTranspose": _transposed,
    "Pooling": _pool,
    "AdaptivePooling": _adaptive,
    "Subtensor": _subtensor,
    "Concat": _concat,
    "Dimshuffle": _dimshuffle,
    "AxisAddRemove": _axes,
    "Reshape": lambda s, x, shape: x.reshape(tuple(np.atleast_1d(shape).tolist())),
    "Broadcast": lambda s, x, shape: F.broadcast_to(x, tuple(np.atleast_1d(shape).tolist())),
    "MatrixMul": _product,
    "BatchedMatmul": _product,
    "Reduce": lambda s, x: REDUCTIONS[s["mode"]](x, s["axis"], keepdims=True),
    "TypeCvt": lambda s, x: x.astype(s["dtype"]),
    "Argmax": lambda s, x: F.argmax(x, s["axis"], keepdims=True).astype("int32"),
    "Argmin": lambda s, x: F.argmin(x, s["axis"], keepdims=True).astype("int32"),
}  # fmt: skip
NEEDS = {  # operator -> settings that must be so
    "Convolution": {"format": ("NCHW",), "mode": ("CROSS_CORRELATION",), "sparse": ("DENSE", "GROUP")},
    "ConvTranspose": {"format": ("NCHW",), "mode": ("CROSS_CORRELATION",), "sparse": ("DENSE", "GROUP")},
    "Pooling": {"format": ("NCHW",), "mode": ("MAX", "AVERAGE", "AVERAGE_COUNT_EXCLUDE_PADDING")},
    "AdaptivePooling": {"format": ("NCHW",), "mode": ("MAX", "AVERAGE")},
    "MatrixMul": {"format": ("DEFAULT",)},
    "BatchedMatmul": {"format": ("DEFAULT",)},
    "TypeCvt": {"dtype": ("float32", "float16", "int32", "int8", "uint8", "bool")},
    "Reduce": {"mode": tuple(REDUCTIONS), "data_type": ("DEFAULT",)},
}


def _mode(settings: Settings) -> str:
    return str(settings.get("mode")).rpartition(".")[2]


def known_operator(name: Any, settings: Settings) -> str | None:
    """None where Tengen has an operator with these settings, else what it does not have."""
    if not isinstance(name, str) or name not in OPERATORS:
        return f"the operator {str(name)[:60]!r}"
    if name == "Elemwise" and _mode(settings) not in ELEMENTWISE:
        return f"the operator Elemwise of {_mode(settings)[:60]!r}"
    for key, among in NEEDS.get(name, {}).items():
        if settings.get(key) not in among:
            return f"the operator {name} with {key}={str(settings.get(key))[:40]!r}"
    return None
