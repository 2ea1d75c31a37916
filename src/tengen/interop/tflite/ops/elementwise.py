"""Arithmetic, comparisons, logic, functions and activations; what is known of shapes stays known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.base.errors import ArgumentError
from tengen.interop.networks.values import as_tensor
from tengen.interop.tflite.reader import DTYPES, OpOf
from tengen.interop.tflite.registry import op
from tengen.interop.tflite.schema import names_of
from tengen.tensor import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "NONE": lambda x: x, "RELU": F.relu, "RELU_N1_TO_1": lambda x: F.clip(x, -1, 1), "RELU6": F.relu6, "TANH": F.tanh,
    "SIGN_BIT": lambda x: F.less(x, 0).astype(x.dtype),
}  # fmt: skip


def activation_of(n: OpOf) -> str:
    """The name of the function that an operator ends with."""
    return names_of("ActivationFunctionType").get(n.get("FusedActivationFunction", 0), "unknown")


def fused(n: OpOf, y: Tensor) -> Tensor:
    """The result, through the function that the operator ends with."""
    name = activation_of(n)
    if name not in ACTIVATIONS:
        raise ValueError(f"{n.op} ends with the unknown function {n['FusedActivationFunction']}")
    return ACTIVATIONS[name](y)


def all_known(*values: Any) -> bool:
    """Whether all are known while a network is recorded."""
    return all(isinstance(v, np.ndarray) for v in values)


def quotient(x: Tensor, y: Tensor) -> Tensor:
    """x / y; of integers towards zero."""
    if x.dtype.is_inexact:
        return x / y
    low = F.floor_div(x, y)
    inexact = F.logical_and(F.not_equal(low * y, x), F.less(low, 0))
    return low + inexact.astype(low.dtype)


def known_quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The same of known arrays; of open extents, which are not below zero, rounded down."""
    if x.dtype.kind == "f":
        return x / y
    if object in (x.dtype, y.dtype):
        return x // y
    return np.sign(x) * np.sign(y) * (abs(x) // abs(y))


BINARY: dict[str, tuple[Callable, Callable | None]] = {  # name -> of tensors, of known arrays
    "ADD": (F.add, np.add), "SUB": (F.sub, np.subtract), "MUL": (F.mul, np.multiply), "DIV": (quotient, known_quotient),
    "MAXIMUM": (F.maximum, np.maximum), "MINIMUM": (F.minimum, np.minimum), "POW": (F.pow, None),
    "FLOOR_DIV": (F.floor_div, np.floor_divide), "FLOOR_MOD": (F.mod, np.mod),
    "SQUARED_DIFFERENCE": (lambda x, y: (x - y) * (x - y), None), "ATAN2": (F.atan2, None),
    "EQUAL": (F.equal, np.equal), "NOT_EQUAL": (F.not_equal, np.not_equal), "LESS": (F.less, np.less),
    "LESS_EQUAL": (F.less_equal, np.less_equal), "GREATER": (F.greater, np.greater),
    "GREATER_EQUAL": (F.greater_equal, np.greater_equal), "LOGICAL_AND": (F.logical_and, np.logical_and),
    "LOGICAL_OR": (F.logical_or, np.logical_or), "BITWISE_XOR": (F.bitwise_xor, None), "RIGHT_SHIFT": (F.right_shift, None),
}  # fmt: skip


def _binary(name: str, of_tensors: Callable, of_arrays: Callable | None) -> Callable[..., Any]:
    def compute(n: OpOf, x: Any, y: Any) -> Any:
        """An operator on two operands, which broadcast."""
        if of_arrays is not None and all_known(x, y):
            return np.asarray(of_arrays(x, y))
        made = of_tensors(as_tensor(x), as_tensor(y))
        return fused(n, made) if name in ("ADD", "SUB", "MUL", "DIV") else made

    return compute


for _name, _of in BINARY.items():
    op(_name)(_binary(_name, *_of))


@op("ADD_N")
def add_n(n: OpOf, *x: Any) -> Tensor:
    """The sum of all."""
    total = as_tensor(x[0])
    for v in x[1:]:
        total = total + as_tensor(v)
    return total


def gelu(n: OpOf, x: Tensor) -> Tensor:
    """Exact, or by tanh."""
    return F.gelu(x, "tanh") if n.get("Approximate", False) else F.gelu(x)


def hard_swish(n: OpOf, x: Tensor) -> Tensor:
    """x relu6(x + 3) / 6."""
    return F.hswish(x)


UNARY: dict[str, Callable[[OpOf, Tensor], Tensor]] = {
    "ABS": lambda n, x: F.abs(x), "CEIL": lambda n, x: F.ceil(x), "FLOOR": lambda n, x: F.floor(x), "ROUND": lambda n, x: F.round(x),
    "COS": lambda n, x: F.cos(x), "SIN": lambda n, x: F.sin(x), "EXP": lambda n, x: F.exp(x), "LOG": lambda n, x: F.log(x),
    "SQRT": lambda n, x: F.sqrt(x), "RSQRT": lambda n, x: F.rsqrt(x), "SQUARE": lambda n, x: x * x, "NEG": lambda n, x: -x,
    "SIGN": lambda n, x: F.sign(x), "LOGICAL_NOT": lambda n, x: F.logical_not(x), "RELU": lambda n, x: F.relu(x),
    "RELU6": lambda n, x: F.relu6(x), "RELU_N1_TO_1": lambda n, x: F.clip(x, -1, 1), "RELU_0_TO_1": lambda n, x: F.clip(x, 0, 1),
    "TANH": lambda n, x: F.tanh(x), "LOGISTIC": lambda n, x: F.sigmoid(x), "ELU": lambda n, x: F.elu(x, 1.0), "GELU": gelu,
    "HARD_SWISH": hard_swish, "LEAKY_RELU": lambda n, x: F.leaky_relu(x, float(n["Alpha"])),
    "SOFTMAX": lambda n, x: F.softmax(x * float(n.get("Beta", 1.0)) if n.get("Beta", 1.0) != 1 else x, -1),
    "LOG_SOFTMAX": lambda n, x: F.log_softmax(x, -1), "ZEROS_LIKE": lambda n, x: F.zeros_like(x),
    "REAL": lambda n, x: x.real if x.dtype.kind == "c" else x, "IMAG": lambda n, x: x.imag, "COMPLEX_ABS": lambda n, x: F.abs(x),
}  # fmt: skip


def _unary(name: str, of_tensor: Callable[[OpOf, Tensor], Tensor]) -> Callable[..., Any]:
    def compute(n: OpOf, x: Any) -> Any:
        """An operator on one operand."""
        return of_tensor(n, as_tensor(x))

    return compute


for _name, _one in UNARY.items():
    op(_name)(_unary(_name, _one))


@op("PRELU")
def prelu(n: OpOf, x: Any, slope: Any) -> Tensor:
    """x where it is above 0, else x slope."""
    return F.prelu(as_tensor(x), as_tensor(slope))


@op("SELECT", "SELECT_V2")
def select(n: OpOf, condition: Any, x: Any, y: Any) -> Any:
    """x where the condition holds, else y; the condition of the older operator may be one for each row."""
    if all_known(condition, x, y):
        return np.where(condition, x, y)
    c, a, b = as_tensor(condition), as_tensor(x), as_tensor(y)
    if n.op == "SELECT" and len(c.shape) == 1 and len(a.shape) > 1:
        c = c.reshape(-1, *[1] * (len(a.shape) - 1))
    return F.where(c, a, b)


@op("CAST")
def cast(n: OpOf, x: Any) -> Any:
    """In the dtype of the result."""
    to = n.out().dtype
    if to is None:
        raise ValueError(f"a cast to {n.out().kind}")
    if isinstance(x, np.ndarray):
        return (
            x
            if x.dtype == object and to.kind in "iu"
            else as_tensor(x).numpy().astype(to)
            if x.dtype == object
            else x.astype(to)
        )
    t = as_tensor(x)
    if t.dtype.kind == "c" and to.kind != "c":
        t = t.real
    return t.astype(to)


@op("BITCAST")
def bitcast(n: OpOf, x: Any) -> Tensor:
    """The same bits as another integer dtype of the same width."""
    t, to = as_tensor(x), n.out().dtype
    if to is None or t.dtype.size != to.itemsize or t.dtype.kind not in "iu" or to.kind not in "iu":
        raise ArgumentError(f"the bits of {t.dtype} as {n.out().kind}: only integers of one width are known")
    return t.astype(to)


@op("FAKE_QUANT")
def fake_quant(n: OpOf, x: Any) -> Tensor:
    """Floats rounded to those that integers of some bits stand for."""
    bits, low, high = n["NumBits"], np.float32(n["Min"]), np.float32(n["Max"])
    least, most = (1 if n["NarrowRange"] else 0), (1 << bits) - 1
    scale = np.float32((high - low) / np.float32(most - least))
    zero = float(np.clip(least - low / scale, least, most))
    zero = math.floor(zero + 0.5)
    bottom, top = np.float32((least - zero) * scale), np.float32((most - zero) * scale)
    t = F.clip(as_tensor(x), float(bottom), float(top))
    return F.floor((t - float(bottom)) * float(np.float32(1) / scale) + 0.5) * float(scale) + float(bottom)


@op("DEQUANTIZE")
def dequantize(n: OpOf, x: Any) -> Tensor:
    """(q - zero) scale, in float32; of float16 the same numbers."""
    t, q = as_tensor(x), n.of(0).quant
    if t.dtype.is_inexact:
        return t.astype("float32")
    if q is None:
        raise ValueError("integers without a scale")
    shape = () if q.scales.size == 1 else tuple(-1 if a == q.axis else 1 for a in range(len(t.shape)))
    zero, scale = q.zeros.astype(np.int32).reshape(shape), q.scales.reshape(shape)
    return (t.astype("int32") - as_tensor(zero)).astype("float32") * as_tensor(scale)


@op("DENSIFY")
def densify(n: OpOf, x: Any) -> Any:
    """The array, which was made dense when the file was read."""
    return x


@op("QUANTIZE")
def plain_quantize(n: OpOf, x: Any) -> Tensor:
    """To float16."""
    if DTYPES.get(n.out().kind) not in (np.float16, np.float32):
        raise ValueError(f"{n.out().kind} without a scale")
    return as_tensor(x).astype(n.out().dtype)
