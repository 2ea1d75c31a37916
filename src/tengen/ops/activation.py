"""Activations of networks, each one scalar expression: eagerly one kernel, and its gradient one kernel.

In and out: floats of any shape (integers give float32). Where an activation multiplies x by something that vanishes, -inf gives
NaN.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from tengen.loops import lang
from tengen.loops.lang import call, const, select
from tengen.ops.define import elementwise

ROOT_HALF = math.sqrt(0.5)
ROOT_2_BY_PI = math.sqrt(2.0 / math.pi)
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805  # Klambauer et al., arXiv 1706.02515

IN_PLACE = {"inplace": ""}  # PyTorch's word: it changes no number


def _np_sigmoid(x):
    return np.exp(-np.logaddexp(0, -x))


@elementwise(functional="elemwise nn", methods="relu", aliases=IN_PLACE)
def relu(x):
    """max(x, 0); the gradient at 0 is 0; a NaN stays. Integers are taken as they are.

    >>> from tengen import Tensor, functional as F
    >>> F.relu(Tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return lang.maximum(x, const(0, x.dtype))


relu.reference(lambda x: np.maximum(x, 0))


@elementwise(functional="elemwise nn", aliases=IN_PLACE)
def relu6(x):
    """min(max(x, 0), 6); the gradient at 0 and 6 is 0."""
    return lang.minimum(lang.maximum(x, const(0, x.dtype)), const(6, x.dtype))


relu6.reference(lambda x: np.minimum(np.maximum(x, 0), 6))


@elementwise(result="float", functional="elemwise nn", aliases={"inp": "x"} | IN_PLACE)
def leaky_relu(x, negative_slope: float = 0.01):
    """x where x > 0, else negative_slope * x.

    >>> from tengen import Tensor, functional as F
    >>> F.leaky_relu(Tensor([-2.0, 3.0]), 0.5).tolist()
    [-1.0, 3.0]
    """
    return select(x > 0.0, x, x * negative_slope)


leaky_relu.reference(lambda x, negative_slope=0.01: np.where(x > 0, x, x * negative_slope))


@elementwise(result="float", functional="elemwise nn", aliases={"y": "weight"})
def prelu(x, weight):
    """x where x > 0, else weight * x; the weight broadcasts, and has a gradient."""
    return select(x > 0.0, x, x * weight)


prelu.reference(lambda x, weight: np.where(x > 0, x, x * weight))


@elementwise(result="float", functional="elemwise", aliases=IN_PLACE)
def elu(x, alpha: float = 1.0):
    """x where x > 0, else alpha (e^x - 1)."""
    return select(x > 0.0, x, call("expm1", x) * alpha)


elu.reference(lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x)))


@elementwise(result="float", functional="elemwise", aliases=IN_PLACE)
def selu(x):
    """Scaled elu, which keeps mean 0 and variance 1 through deep networks.

    Source: Klambauer et al., arXiv 1706.02515
    """
    return select(x > 0.0, x, call("expm1", x) * SELU_ALPHA) * SELU_SCALE


selu.reference(lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(x)))


@elementwise(result="float", functional="elemwise nn", methods="sigmoid")
def sigmoid(x):
    """1 / (1 + e^-x), at most 2 ULP off; nothing overflows on the way."""
    return call("sigmoid", x)


sigmoid.reference(_np_sigmoid)


@elementwise(result="float", domain=(-2.5, 2.5), functional="elemwise nn", aliases=IN_PLACE)
def hsigmoid(x):
    """relu6(x + 3) / 6: a sigmoid of straight lines."""
    return lang.minimum(lang.maximum(x + 3.0, 0.0), 6.0) / 6.0


hsigmoid.reference(lambda x: np.clip(x + 3, 0, 6) / 6)


@elementwise(result="float", domain=(-2.5, 2.5), functional="elemwise nn", aliases=IN_PLACE)
def hswish(x):
    """x hsigmoid(x).

    Source: Howard et al., arXiv 1905.02244
    """
    return x * (lang.minimum(lang.maximum(x + 3.0, 0.0), 6.0) / 6.0)


hswish.reference(lambda x: x * (np.clip(x + 3, 0, 6) / 6))


@elementwise(result="float", functional="elemwise nn", aliases=IN_PLACE)
def silu(x):
    """x sigmoid(x).

    Source: Elfwing et al., arXiv 1702.03118
    """
    return x * call("sigmoid", x)


silu.reference(lambda x: x * _np_sigmoid(x))


@elementwise(result="float", functional="elemwise nn")
def gelu(x, approximate: Literal["none", "tanh"] = "none"):
    """x P(X <= x) for a standard normal X: x (1 + erf(x / sqrt 2)) / 2.

    Args:      approximate: "none", or "tanh" for x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)), which is the same as the usual
               formula with tanh and does not cancel for negative x.
    Numerics:  "none" is x times `normal_cdf`, off by at most 2 ULP of x
    Source:    Hendrycks and Gimpel, arXiv 1606.08415
    """
    if approximate == "tanh":
        inner = lang.fma(x * x * x, const(0.044715, x.dtype), x)
        return x * call("sigmoid", inner * (2.0 * ROOT_2_BY_PI))
    return x * call("normal_cdf", x)


def _np_gelu(x, approximate="none"):
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(ROOT_2_BY_PI * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x * ROOT_HALF))


gelu.reference(_np_gelu)


@elementwise(result="float", autocast="high")
def softplus(x):
    """log(1 + e^x), at most 2 ULP off; nothing overflows on the way."""
    return call("softplus", x)


softplus.reference(lambda x: np.logaddexp(0, x))


@elementwise(result="float", functional="elemwise nn", autocast="high", aliases={"inp": "x"})
def logsigmoid(x):
    """log(sigmoid(x)) = -softplus(-x)."""
    return -call("softplus", -x)


logsigmoid.reference(lambda x: -np.logaddexp(0, -x))


@elementwise(result="float", functional="elemwise", aliases=IN_PLACE)
def mish(x):
    """x tanh(softplus(x)).

    Source: Misra, arXiv 1908.08681
    """
    return x * call("tanh", call("softplus", x))


mish.reference(lambda x: x * np.tanh(np.logaddexp(0, x)))
