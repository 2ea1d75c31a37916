"""Functions of integers that stand for numbers, under MegEngine's names: for inference.

An operand is an int8 or uint8 tensor whose `qparams` say what it stands for (`quantization.QParams`), and so is the result.
docs/numerics.md has the arithmetic.
"""

from __future__ import annotations

from typing import Any

from tengen.base.dtype import is_quantised
from tengen.base.errors import ArgumentError
from tengen.functional.nn import conv_int, relu, requantize_linear
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor
from tengen.tensor.quantised import meaning

__all__ = ["batch_conv_bias_activation", "conv_bias_activation", "conv_transpose2d"]


def _scale(x: Tensor, what: str) -> tuple[Tensor, Tensor | None]:
    q = x.qparams
    if q is None or q.scale is None or not x.dtype.is_int:
        raise ArgumentError(f"{what} must be integers whose `qparams` say what they stand for, got {x.dtype} and {q}")
    return q.scale, q.zero_point


def _finished(total: Tensor, scale: Tensor, bias: Tensor | None, dtype: Any, nonlinear_mode: str) -> Tensor:
    """Sums and a bias of int32, as `dtype` (`QParams`) says; None: what they stand for, in float32."""
    mode = nonlinear_mode.lower()
    if mode not in ("identity", "relu"):
        raise ArgumentError(f"nonlinear_mode={nonlinear_mode!r} must be 'identity' or 'relu'")
    total = total if bias is None else total + bias.astype("int32")
    if dtype is None:
        y = total.astype("float32") * scale
        return relu(y) if mode == "relu" else y
    if is_quantised(dtype):
        dtype = meaning.of(dtype)
    m = dtype.dtype_meta
    zero = None if dtype.zero_point is None else dtype.zero_point.astype("int32")
    out = requantize_linear(total, scale / dtype.scale, zero, m.qmin, m.qmax, m.np_dtype_str)
    if mode == "relu":
        out = REGISTRY["maximum"](out, Tensor(0, m.np_dtype_str) if zero is None else zero.astype(m.np_dtype_str))
    out.qparams = dtype
    return out


def _centred(x: Tensor, zero: Tensor | None) -> Tensor:
    return x if zero is None else REGISTRY["centre_codes"](x, zero.astype("int32"))


def conv_bias_activation(
    inp: Tensor, weight: Tensor, bias: Tensor | None, dtype: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, nonlinear_mode: str = "identity", conv_mode: str = "cross_correlation", compute_mode: str = "default",
) -> Tensor:  # fmt: skip
    """A convolution of integers with a bias, and relu if `nonlinear_mode` says so.

    Args:
        inp, weight: integers with `qparams`. bias: in units of the product of their scales, or None.
        dtype: `QParams` of the result, or one of MegEngine's quantised dtypes; None: float32. nonlinear_mode: "identity" or "relu".
        Others: as of `conv2d`.

    Errors: ArgumentError for operands without `qparams`, another mode
    """
    if conv_mode.lower() != "cross_correlation":
        raise ArgumentError(f"conv_mode={conv_mode!r} must be 'cross_correlation'")
    (a, za), (b, zb) = _scale(inp, "inp"), _scale(weight, "weight")
    shape = (1, -1, 1, 1)
    b = b.reshape(()) if b.size == 1 else b.reshape(shape)
    total = conv_int(_centred(inp, za), _centred(weight, zb), stride, padding, dilation, groups)
    return _finished(total, a.reshape(()) * b, None if bias is None else bias.reshape(shape), dtype, nonlinear_mode)


def batch_conv_bias_activation(
    inp: Tensor, weight: Tensor, bias: Tensor | None, dtype: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, nonlinear_mode: str = "identity", conv_mode: str = "cross_correlation", compute_mode: str = "default",
) -> Tensor:  # fmt: skip
    """`conv_bias_activation` with filters of its own for each image: weight has the shape (N, O, C, H, W), with groups (N, G,
    O/G, C/G, H, W).

    Errors: ArgumentError as of `conv_bias_activation`
    """
    (a, za), (b, zb) = _scale(inp, "inp"), _scale(weight, "weight")
    n, c, *space = inp.shape
    filters = _centred(weight, zb)
    filters = filters.reshape(-1, *filters.shape[-4:]) if groups > 1 else filters
    images = _centred(inp, za).reshape(1, n * c, *space)
    total = conv_int(images, filters, stride, padding, dilation, n * groups)
    total = total.reshape(n, -1, *total.shape[2:])
    return _finished(
        total, a.reshape(()) * b.reshape(()), None if bias is None else bias.reshape(1, -1, 1, 1), dtype, nonlinear_mode
    )


def conv_transpose2d(
    inp: Tensor, weight: Tensor, bias: Tensor | None = None, dtype: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    dilation: Any = 1, groups: int = 1, conv_mode: str = "cross_correlation", compute_mode: str = "default",
) -> Tensor:  # fmt: skip
    """A transposed convolution of integers with a bias; arguments as of `conv_bias_activation`, and `output_padding`.

    Errors: ArgumentError as of `conv_bias_activation`
    """
    (a, za), (b, zb) = _scale(inp, "inp"), _scale(weight, "weight")
    wide = [REGISTRY["astype"](_centred(x, z), "float64") for x, z in ((inp, za), (weight, zb))]  # in which such sums are exact
    total = REGISTRY["conv_transposed"](*wide, None, stride, padding, dilation, groups, output_padding, "direct").astype(
        "int32"
    )
    return _finished(
        total, a.reshape(()) * b.reshape(()), None if bias is None else bias.reshape(1, -1, 1, 1), dtype, "identity"
    )
