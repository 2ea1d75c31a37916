"""Arithmetic, comparisons, logic, casts, activations."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

import numpy as np

import tengen.functional as F
from tengen import random
from tengen.base.errors import UsageWarning, warn_once
from tengen.interop.onnx.ops.codes import decode, encode
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import SMALL, Coded, Value, as_tensor, element_type, is_coded, is_text, known, value_of
from tengen.loops.lang import Expr, maximum, minimum


def all_known(*inputs: Value) -> bool:
    """Whether all are small arrays of numbers or extents that are known: what is computed while recording."""
    return all(isinstance(v, np.ndarray) and v.size <= SMALL and not is_text(v) for v in inputs)


def both(array: Callable, tensor: Callable) -> Callable:
    """The op that computes known arrays with one function and tensors with another."""

    def compute(n: NodeOf, *inputs: Value) -> Value:
        if all_known(*inputs):
            return np.asarray(array(*inputs))
        return tensor(*map(as_tensor, inputs))

    return compute


def truncated(x, y):
    """Quotient of integers rounded towards zero, and of floats as it is: ONNX's Div."""
    if isinstance(x, np.ndarray):
        if x.dtype == object or y.dtype == object:
            return x // y  # extents are not negative
        return x / y if x.dtype.kind == "f" else (np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))).astype(x.dtype)
    if x.dtype.is_inexact:
        return F.div(x, y)
    q = F.floor_div(x, y)
    if x.dtype.kind == "u":
        return q
    r = x - q * y
    return q + F.logical_and(F.not_equal(r, 0), F.not_equal(F.less(x, 0), F.less(y, 0))).astype(x.dtype)


for name, array, tensor in (
    ("Add", operator.add, F.add), ("Sub", operator.sub, F.sub), ("Mul", operator.mul, F.mul), ("Div", truncated, truncated),
    ("Neg", operator.neg, F.neg), ("Abs", np.abs, F.abs), ("Floor", np.floor, F.floor), ("Ceil", np.ceil, F.ceil),
    ("Sqrt", np.sqrt, F.sqrt), ("Reciprocal", np.reciprocal, F.reciprocal), ("Sign", np.sign, F.sign),
    ("Not", np.logical_not, F.logical_not), ("And", np.logical_and, F.logical_and), ("Or", np.logical_or, F.logical_or),
    ("Xor", np.logical_xor, F.logical_xor), ("Less", operator.lt, F.less), ("Greater", operator.gt, F.greater),
    ("LessOrEqual", operator.le, F.less_equal), ("GreaterOrEqual", operator.ge, F.greater_equal),
):  # fmt: skip
    op(name)(both(array, tensor))

for name, unary in {
    "Exp": F.exp, "Log": F.log, "Sin": F.sin, "Cos": F.cos, "Tan": F.tan, "Asin": F.asin, "Acos": F.acos, "Atan": F.atan, "Sinh": F.sinh,
    "Cosh": F.cosh, "Asinh": F.asinh, "Acosh": F.acosh, "Atanh": F.atanh, "Tanh": F.tanh, "Sigmoid": F.sigmoid, "Erf": F.erf,
    "Relu": F.relu, "Round": F.round, "IsNaN": F.isnan, "BitwiseNot": F.bitwise_not, "Softsign": lambda x: x / (1 + F.abs(x)),
    "Softplus": F.softplus, "Mish": F.mish, "HardSwish": lambda x: x * F.clip(x * np.float32(1 / 6) + 0.5, 0, 1),
}.items():  # fmt: skip
    op(name)(lambda n, x, f=unary: f(as_tensor(x)))

for name, binary in {"BitwiseAnd": F.bitwise_and, "BitwiseOr": F.bitwise_or, "BitwiseXor": F.bitwise_xor}.items():
    op(name)(lambda n, x, y, f=binary: f(as_tensor(x), as_tensor(y)))


@op("Pow")
def power(n: NodeOf, x: Value, y: Value) -> Value:
    """The result has the dtype of the base."""
    x, y = as_tensor(x), as_tensor(y)
    if x.dtype.is_int and y.dtype.is_inexact:
        return F.pow(x.astype("float64"), y.astype("float64")).astype(x.dtype)
    return F.pow(x, y if x.dtype.is_int else y.astype(x.dtype))


@op("Mod")
def modulo(n: NodeOf, x: Value, y: Value) -> Value:
    """fmod=0: the sign of the divisor, as Python's; fmod=1: that of the dividend, as C's."""
    if all_known(x, y):
        assert isinstance(x, np.ndarray)
        return np.asarray(np.fmod(x, y) if n["fmod"] else x % y)
    x, y = as_tensor(x), as_tensor(y)
    if not n["fmod"] or x.dtype.kind == "u":
        return F.mod(x, y)
    rest = F.mod(F.abs(x), F.abs(y))
    return F.where(F.less(x, 0), -rest, rest)


@op("Equal")
def equal(n: NodeOf, x: Value, y: Value) -> Value:
    """Of numbers, bools and text."""
    if all_known(x, y) or is_text(x):
        return np.asarray(np.equal(x, y), bool)
    return F.equal(as_tensor(x), as_tensor(y))


@op("BitShift")
def shift(n: NodeOf, x: Value, y: Value) -> Value:
    """By as many bits as the second says."""
    return (F.left_shift if n["direction"] == "LEFT" else F.right_shift)(as_tensor(x), as_tensor(y))


def folded(array: Callable, tensor: Callable) -> Callable:
    """The op that combines any number of inputs."""

    def compute(n: NodeOf, *inputs: Value) -> Value:
        if all_known(*inputs):
            return np.asarray(functools.reduce(array, inputs))
        return functools.reduce(tensor, map(as_tensor, inputs))

    return compute


def of_extents(array: Callable, extents: Callable) -> Callable:
    """A function of known arrays that compares their elements: of extents that are open, an expression stands for what is not known."""
    one = lambda a, b: extents(a, b) if isinstance(a, Expr) or isinstance(b, Expr) else array(a, b)
    each = np.frompyfunc(one, 2, 1)
    return lambda x, y: np.asarray(each(x, y), object) if object in (x.dtype, y.dtype) else array(x, y)


op("Sum")(folded(operator.add, F.add))
op("Max")(folded(of_extents(np.maximum, maximum), F.maximum))
op("Min")(folded(of_extents(np.minimum, minimum), F.minimum))


@op("Mean")
def mean(n: NodeOf, *inputs: Value) -> Value:
    """Of several tensors, element by element."""
    return functools.reduce(F.add, map(as_tensor, inputs)) / len(inputs)


@op("Clip")
def clip(n: NodeOf, x: Value, lower: Value = None, upper: Value = None) -> Value:
    """Bounds are inputs since opset 11, attributes before; the upper one wins where they cross."""
    x = as_tensor(x)
    if n.since < 11:
        lower, upper = (np.asarray(v, x.dtype.numpy) if v is not None else None for v in (n.get("min"), n.get("max")))
    x = x if lower is None else F.maximum(x, as_tensor(lower))
    return x if upper is None else F.minimum(x, as_tensor(upper))


@op("Where")
def where(n: NodeOf, mask: Value, x: Value, y: Value) -> Value:
    """Text too."""
    if isinstance(mask, np.ndarray) and isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return np.where(mask.astype(bool), x, y)
    if is_text(x) or is_text(y):
        return np.where(known(mask), x, y)
    return F.where(as_tensor(mask), as_tensor(x), as_tensor(y))


# -- casts ---------------------------------------------------------------------------------------------------------------
def cast_to(v: Value, to: int, saturate: bool = True, round_mode: str = "up") -> Value:
    """A value in the dtype that ONNX numbers so."""
    import onnx

    target = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(to)) if to != onnx.TensorProto.STRING else np.dtype(object)
    if target.kind == "O":
        return texts(known(decode(v) if isinstance(v, Coded) else v))
    if is_text(v):
        assert isinstance(v, np.ndarray)
        read = np.array([float(x) for x in v.flat]).reshape(v.shape)
        if is_coded(target):
            return encode(as_tensor(read.astype(np.float32)), target, saturate, round_mode)
        return as_tensor(read.astype(target))
    if isinstance(v, np.ndarray) and v.dtype == object and target.kind == "i":
        return v
    if isinstance(v, np.ndarray) and v.size <= SMALL and v.dtype != object and not is_coded(target):
        return v.astype(target)
    x = decode(v) if isinstance(v, Coded) else as_tensor(v)
    if is_coded(target):
        return v if isinstance(v, Coded) and v.dtype == target else encode(x, target, saturate, round_mode)
    return x.astype(target)


def texts(a: np.ndarray) -> np.ndarray:
    """Numbers as text."""
    found = np.empty(a.shape, object)
    found[...] = np.array([shortest(x) for x in a.reshape(-1)], object).reshape(a.shape) if a.size else found
    return found


def shortest(x) -> str:
    """A number in the least number of digits that say it."""
    if isinstance(x, str):
        return x
    if isinstance(x, (bool, np.bool_)):
        return "1" if x else "0"
    if isinstance(x, (int, np.integer)):
        return str(int(x))
    return {"nan": "NaN", "inf": "INF", "-inf": "-INF"}.get(str(x), str(x))


@op("Cast")
def cast(n: NodeOf, x: Value) -> Value:
    """`saturate` is for float8, `round_mode` for float8e8m0."""
    return cast_to(x, n["to"], bool(n.get("saturate", 1)), n.get("round_mode", "up"))


@op("CastLike")
def cast_like(n: NodeOf, x: Value, like: Value) -> Value:
    """To the dtype of another."""
    return cast_to(x, element_type(like), bool(n.get("saturate", 1)), n.get("round_mode", "up"))


@op("BitCast")
def bit_cast(n: NodeOf, x: Value) -> Value:
    """The same bits as another dtype of the same size: of values that are there, or known."""
    import onnx

    target = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(n["to"]))
    bits = known(x.codes).view(x.dtype) if isinstance(x, Coded) else known(x)
    return value_of(bits.view(target))


# -- activations with attributes -----------------------------------------------------------------------------------------
@op("LeakyRelu")
def leaky_relu(n: NodeOf, x: Value) -> Value:
    """x or alpha x."""
    return F.leaky_relu(as_tensor(x), n["alpha"])


@op("PRelu")
def prelu(n: NodeOf, x: Value, slope: Value) -> Value:
    """x, or slope times x where it is below zero; the slope broadcasts."""
    x, slope = as_tensor(x), as_tensor(slope)
    if len(slope.shape) == 1 and n.since < 9 and len(x.shape) > 1:
        slope = slope.reshape(-1, *[1] * (len(x.shape) - 2))  # one for each channel, before slopes were broadcast
    return F.where(F.less(x, 0), slope * x, x)


@op("Elu")
def elu(n: NodeOf, x: Value) -> Value:
    """x or alpha (exp(x) - 1)."""
    return F.elu(as_tensor(x), n["alpha"])


@op("Selu")
def selu(n: NodeOf, x: Value) -> Value:
    """gamma times elu."""
    return F.elu(as_tensor(x), n["alpha"]) * n["gamma"]


@op("Celu")
def celu(n: NodeOf, x: Value) -> Value:
    """x or alpha (exp(x / alpha) - 1)."""
    return F.elu(as_tensor(x) / n["alpha"], 1.0) * n["alpha"]


@op("ThresholdedRelu")
def thresholded_relu(n: NodeOf, x: Value) -> Value:
    """x above alpha, else 0."""
    x = as_tensor(x)
    return F.where(F.greater(x, n["alpha"]), x, F.zeros_like(x))


@op("HardSigmoid")
def hard_sigmoid(n: NodeOf, x: Value) -> Value:
    """alpha x + beta, within 0 and 1."""
    return F.clip(as_tensor(x) * n["alpha"] + n["beta"], 0, 1)


@op("Gelu")
def gelu(n: NodeOf, x: Value) -> Value:
    """By erf or by tanh."""
    return F.gelu(as_tensor(x), approximate=n.get("approximate", "none"))


@op("Swish")
def swish(n: NodeOf, x: Value) -> Value:
    """x sigmoid(alpha x)."""
    x = as_tensor(x)
    return x * F.sigmoid(x * n["alpha"])


@op("Shrink")
def shrink(n: NodeOf, x: Value) -> Value:
    """Towards zero by bias outside of +-lambd, zero inside."""
    x = as_tensor(x)
    bias, lambd = np.asarray(n["bias"], np.float32).astype(x.dtype.numpy), n["lambd"]
    zero = F.zeros_like(x)
    return F.where(F.less(x, -lambd), x + bias, F.where(F.greater(x, lambd), x - bias, zero)).astype(x.dtype)


@op("IsInf")
def is_inf(n: NodeOf, x: Value) -> Value:
    """Of the signs that are asked for."""
    x = decode(x) if isinstance(x, Coded) else as_tensor(x)
    positive, negative = n["detect_positive"], n["detect_negative"]
    found = F.isinf(x)
    if positive and negative:
        return found
    if not (positive or negative):
        return F.zeros(x.shape, "bool")
    return F.logical_and(found, F.greater(x, 0) if positive else F.less(x, 0))


@op("Identity")
def identity(n: NodeOf, x: Value) -> Value:
    """Anything."""
    return x


def warn_of_seed(n: NodeOf) -> None:
    """Warns of a seed, which is of another framework's generator."""
    if n.get("seed") is not None:
        warn_once(f"the seed of {n.op} is another generator's and says nothing here; help: tengen.random.seed", UsageWarning)


@op("Dropout")
def dropout(n: NodeOf, x: Value, ratio: Value = None, training: Value = None) -> tuple[Value, Value]:
    """With training_mode it draws from Tengen's generator; the mask says what is kept."""
    x = as_tensor(x)
    p = float(known(ratio).reshape(-1)[0]) if ratio is not None else n.get("ratio", 0.5)
    if training is None or not bool(known(training).reshape(-1)[0]) or p == 0:
        return x, F.ones(x.shape, "bool" if n.since >= 10 else x.dtype)
    warn_of_seed(n)
    kept = F.greater_equal(random.uniform(0, 1, size=x.shape), p)
    return F.where(kept, x / (1 - p), F.zeros_like(x)), kept
