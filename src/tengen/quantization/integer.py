"""The layers that multiply, by integers: what a quantised network runs, and a network in quantisation-aware training evaluates.

In: numbers that stand for integers (their `QParams` say which), a weight as integers, a bias as float32. Out: what the
resulting integers stand for, which knows its `QParams`; or, where there are none for the result, float32. docs/numerics.md
defines each step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen import functional as F
from tengen.ops.define import REGISTRY
from tengen.quantization.qparams import QParams, bias_codes, codes, product_scale, values, zero_of
from tengen.tensor import Tensor

Product = Callable[[Tensor, Tensor], Tensor]  # (integers without a zero point, integers of the weight) -> sums in int32


def layer(x: Tensor, x_q: QParams, w: Tensor, w_q: QParams, bias: Tensor | None, product: Product, shape: tuple[int, ...], y_q: QParams | None,
          relu: bool = False) -> Tensor:  # fmt: skip
    """product(x, w) + bias, rounded to y_q; and relu.

    Args:
        x: numbers that stand for integers by x_q. w: integers, by w_q without a zero point. bias: float32, of a shape that
        broadcasts with the sums, or None. shape: in which one scale for each output channel broadcasts with the sums.
        y_q: of the result; None: the sums in float32.
    """
    q, zero = codes(x, x_q), zero_of(x_q)
    total = product(q if zero is None else F.centre_codes(q, zero), w)
    scale = product_scale(x_q, w_q, shape)
    if bias is not None:
        total = total + bias_codes(bias.detach().reshape(shape), scale)
    if y_q is None:
        y = total.astype("float32") * scale
        return F.relu(y) if relu else y
    m, z = y_q.dtype_meta, zero_of(y_q)
    assert m is not None and y_q.scale is not None
    made = F.requantize_linear(total, scale / y_q.scale, z, m.qmin, m.qmax, m.np_dtype_str)
    if relu:
        made = F.maximum(made, 0 if z is None else z.astype(m.np_dtype_str)).astype(m.np_dtype_str)
    return values(made, y_q)


def convolution(stride: Any, padding: Any, dilation: Any, groups: int) -> Product:
    """The convolution of images."""
    return lambda x, w: F.conv_int(x, w, stride, padding, dilation, groups)


def transposed(stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: int) -> Product:
    """The transposed convolution of images: in float64, in which sums of such integers are exact."""

    def product(x: Tensor, w: Tensor) -> Tensor:
        wide = REGISTRY["conv_transposed"](
            x.astype("float64"), w.astype("float64"), None, stride, padding, dilation, groups, output_padding, "direct"
        )
        return wide.astype("int32")

    return product


def linear(x: Tensor, w: Tensor) -> Tensor:
    """x w^T."""
    rows = x if x.ndim > 1 else x.reshape(1, -1)
    y = F.matmul_int(rows, w, transpose_b=True)
    return y if x.ndim > 1 else y.reshape(-1)
