"""Integers that stand for numbers: affine quantisation, exact products in int32, and what brings their sums back to 8 bits.

    x = scale (q - zero)

In: tensors of floats or integers, with scales (float32) and zero points (integers) as tensors, so that a training step may
change them. Out: integers, or what they stand for. docs/numerics.md has the arithmetic as a definition; every op here is that
definition. A sum of int32 is exact in any order, and scaling it takes one multiplication and one rounding, so no target needs
an fma.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tengen.base.dtype import DType, float32, int8, int16, int32, uint8
from tengen.base.errors import ArgumentError, DTypeError, ShapeError
from tengen.ir.types import TensorType
from tengen.kernels import contraction, convolution
from tengen.kernels.lowering import product
from tengen.kernels.source import Elementwise, broadcast
from tengen.loops import lang
from tengen.loops.floats import nearest_integer
from tengen.loops.lang import Expr, as_int, cast, equal, select
from tengen.loops.quotients import quotient
from tengen.ops.attributes import DTypeLike, Groups, Naturals, Positives
from tengen.ops.contract import in_dtype, matrix_extents
from tengen.ops.conv import channels_last, np_conv, one_of_each, small_filter
from tengen.ops.conv_parts import filter_extents, grouped, out_extent, per_axis
from tengen.ops.conv_strategies import RESULTS, Convolution, lower
from tengen.ops.define import Case, Op, broadcast_shapes, composite, element_by_element, primitive, same_axes, same_extent
from tengen.ops.elementwise import add, astype, div, mul, round, sub, where
from tengen.ops.indexing import take
from tengen.ops.logic import greater, less
from tengen.ops.reduce import sum_to

if TYPE_CHECKING:
    from tengen.tensor import Tensor

_LARGEST = {
    int8: 128,
    uint8: 255,
    int16: 255,
}  # dtype of an operand -> the largest magnitude; int16 is a code less its zero point


# ---- element by element ------------------------------------------------------------------------------------------------------


@primitive(functional="nn", own=(0, 1, 2))
def quantize_linear(
    inp: Tensor, scale: Tensor, zero: Tensor | None = None, low: int = -128, high: int = 127, dtype: DTypeLike = int8
) -> Tensor:
    """The integers that stand for numbers: clip(round(inp / scale) + zero, low, high), halves to even.

    Shapes: scale and zero broadcast with inp
    Dtypes: float32 in, `dtype` out
    Args:
        scale: greater than 0 and finite; what has other scales is not checked here. zero: the integer that stands for 0; None:
        0. low, high: the smallest and the largest integer.
    Numerics: one division and one rounding in float32; a NaN gives what stands nearest to 0.

    >>> from tengen import Tensor, functional as F
    >>> F.quantize_linear(Tensor([-9.0, 0.25, 0.75, 1.0]), Tensor(0.5)).tolist()
    [-18, 0, 2, 2]
    """


@primitive(functional="nn", own=(0, 1, 2))
def dequantize_linear(inp: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """What integers stand for: scale (inp - zero).

    Shapes: scale and zero broadcast with inp
    Dtypes: integers in, float32 out
    Numerics: the difference is exact, in int32; one rounding, of the product.

    >>> from tengen import Tensor, functional as F
    >>> F.dequantize_linear(Tensor([0, 10, 20], "uint8"), Tensor(0.5), Tensor(10, "int32")).tolist()
    [-5.0, 0.0, 5.0]
    """


@primitive(functional="nn", own=(0, 1, 2))
def requantize_linear(
    inp: Tensor, multiplier: Tensor, zero: Tensor | None = None, low: int = -128, high: int = 127, dtype: DTypeLike = int8
) -> Tensor:
    """Sums of products as integers of few bits: clip(round(inp * multiplier) + zero, low, high), halves to even.

    Shapes: multiplier and zero broadcast with inp
    Dtypes: int32 in, `dtype` out
    Args:
        multiplier: scale of the operands' product over that of the result, float32. zero, low, high: as of `quantize_linear`.
    Numerics: the sum is rounded to float32, the product too, then it is rounded to an integer; so the result is at most
        0.5 + |inp multiplier| 2^-23 off, and the same on every target.

    >>> from tengen import Tensor, functional as F
    >>> F.requantize_linear(Tensor([100, 300, -5000], "int32"), Tensor(0.05)).tolist()
    [5, 15, -128]
    """


_MOST_NEAREST = 1 << 22  # the largest integer that `nearest_integer` gives
_MOST_STEPS = 128 + 255  # between an integer of 8 bits and a zero point


def _codes(v: Expr, zero: Expr | None, low: int, high: int, d: DType) -> Expr:
    """A number in units of the scale, as an integer: rounded, saturated, and moved by the zero point. A NaN becomes that. Bounds are
    integers, so that what is cut off before it is rounded is what would be after."""
    if zero is None and -_MOST_NEAREST <= low <= high <= _MOST_NEAREST:
        if low == 0:  # what a NaN becomes; -0.25 is rounded to it, and LLVM takes one instruction for this maximum, for that with 0 two
            v = select(v > -0.25, v, -0.25)
        else:
            v = select(equal(v, v), select(v > float(low), v, float(low)), float(min(max(low, 0), high)))
        return cast(nearest_integer(select(v < float(high), v, float(high))), d)
    r, z = lang.unary("rint", v), None if zero is None else cast(zero, float32)
    least, most = (bound if z is None else bound - z for bound in (float(low), float(high)))
    q = cast(lang.minimum(lang.maximum(r, least), most), int32)
    return cast(q if zero is None else q + cast(zero, int32), d)


def _quantized(x: Expr, scale: Expr, zero: Expr | None, low: int, high: int, dtype: DType) -> Expr:
    return _codes(cast(cast(x, x.dtype.compute), float32) / cast(scale, float32), zero, low, high, dtype)


def _quantized_by_fma(x: Expr, scale: Expr, zero: Expr | None, low: int, high: int, dtype: DType) -> Expr:
    """The same integers; without a division where they have 8 bits and the scale is known."""
    if dtype.size > 1:
        return _quantized(x, scale, zero, low, high, dtype)
    v = quotient(cast(cast(x, x.dtype.compute), float32), cast(scale, float32), _MOST_STEPS)
    return _codes(v, zero, low, high, dtype)


def _dequantized(q: Expr, scale: Expr, zero: Expr | None) -> Expr:
    centred = cast(q, int32) if zero is None else cast(q, int32) - cast(zero, int32)
    return cast(centred, float32) * cast(scale, float32)


def _requantized(total: Expr, multiplier: Expr, zero: Expr | None, low: int, high: int, dtype: DType) -> Expr:
    return _codes(cast(total, float32) * cast(multiplier, float32), zero, low, high, dtype)


def _by_element(op: Op, body: Callable[..., Expr], floats: bool, by_fma: Callable[..., Expr] | None = None) -> None:
    """The rules of an op that is one expression of (inp, scale, zero or None), each of a dtype of its own.

    Args: floats: whether inp may be floats. by_fma: another expression of the same integers, as of `Elementwise`.
    """

    @op.infer
    def _(x, scale, zero, dtype=None, low=0, high=0):
        wrong = (not floats and not x.dtype.is_int) or x.dtype.kind not in "fiu" or not scale.dtype.is_float
        if wrong or (zero is not None and not zero.dtype.is_int) or (dtype is not None and not dtype.is_int):
            what = "numbers" if floats else "integers"
            raise DTypeError(
                f"takes {what}, a scale of floats and a zero point of integers, got {x}, {scale}, {zero}; to {dtype or float32}"
            )
        if dtype is not None and not (np.iinfo(dtype.numpy).min <= low <= high <= np.iinfo(dtype.numpy).max):
            raise ArgumentError(f"{dtype} does not hold the integers from {low} to {high}")
        return TensorType(broadcast_shapes(*(t.shape for t in (x, scale, zero) if t is not None)), dtype or float32)

    @op.source
    def _(ins, out, **attrs):
        there = [broadcast(s, out.shape) for s in ins if s is not None]
        fn = lambda body: lambda x, scale, zero=None: body(x, scale, zero, **attrs)
        return Elementwise(fn(body), there, out.shape, out.dtype, None if by_fma is None else fn(by_fma))

    element_by_element(op)


_by_element(quantize_linear, _quantized, floats=True, by_fma=_quantized_by_fma)
_by_element(dequantize_linear, _dequantized, floats=False)
_by_element(requantize_linear, _requantized, floats=False)


@composite(functional="nn")
def fake_quantize(inp: Tensor, scale: Tensor, zero: Tensor | None = None, low: int = -128, high: int = 127) -> Tensor:
    """`dequantize_linear` of `quantize_linear`: numbers rounded to what integers stand for, still as floats.

    The gradient goes straight through where the integer is inside of low..high, and is 0 elsewhere. That of the scale is LSQ's:
    the integer's distance from inp / scale inside, the bound (less the zero point) outside.

    Source: Esser et al., "Learned step size quantization", 2020

    >>> from tengen import Tensor, functional as F
    >>> F.fake_quantize(Tensor([-100.0, 0.3, 0.8]), Tensor(0.5)).tolist()
    [-64.0, 0.5, 1.0]
    """
    return dequantize_linear(quantize_linear(inp, scale, zero, low, high, int32), scale, zero)


@fake_quantize.vjp
def _(g, x, scale, zero, low, high):
    z = 0.0 if zero is None else astype(zero, "float32")
    v = div(x, scale)
    q = add(round(v), z)
    below, above = less(q, float(low)), greater(q, float(high))

    def of_input():
        return where(below, 0.0, where(above, 0.0, g))

    def of_scale():
        part = where(below, sub(float(low), z), where(above, sub(float(high), z), sub(round(v), v)))
        return sum_to(mul(g, part), scale.shape)

    return of_input, of_scale, None


@composite(functional="nn")
def centre_codes(inp: Tensor, zero: Tensor) -> Tensor:
    """inp - zero as int16: codes whose zero point is taken off, at most 9 bits, as `matmul_int` and `conv_int` multiply them.

    >>> from tengen import Tensor, functional as F
    >>> F.centre_codes(Tensor([0, 255], "uint8"), Tensor(128, "int32")).tolist()
    [-128, 127]
    """
    return sub(astype(inp, "int16"), astype(zero, "int16"))


@composite(functional="nn")
def straight_through(value: Tensor, through: Tensor) -> Tensor:
    """`value`, whose gradient goes to `through` instead: what is computed by integers, and learnt as floats.

    >>> from tengen import Tensor, functional as F
    >>> F.straight_through(Tensor([1.0]), Tensor([1.25])).tolist()
    [1.0]
    """
    return where(True, value, through)


@straight_through.vjp
def _(g, value, through):
    return None, lambda: g


@composite(functional="nn")
def lookup_codes(inp: Tensor, table: Tensor) -> Tensor:
    """table[inp - the least value of inp's dtype]: any function of an int8 or uint8, by a table of 256 entries.

    >>> from tengen import Tensor, functional as F
    >>> F.lookup_codes(Tensor([-128, 0], "int8"), Tensor(list(range(256)), "uint8")).tolist()
    [0, 128]
    """
    return take(table, add(astype(inp, "int32"), 128 if inp.dtype.kind == "i" else 0))


@lookup_codes.canon
def _(types, **attrs):
    x, table = types
    if x.dtype not in (int8, uint8):
        raise DTypeError(f"looks up int8 or uint8, got {x}")
    if table.shape != (256,):
        raise ShapeError(f"the table has the shape {table.shape}, it must have (256,)")
    return attrs


lookup_codes.no_vjp("an integer is not differentiable")
for _op in (quantize_linear, requantize_linear, dequantize_linear, centre_codes):
    _op.no_vjp("integers are not differentiable; fake_quantize has a gradient")


# ---- products ----------------------------------------------------------------------------------------------------------------


def _check_operands(x: TensorType, y: TensorType, terms) -> None:
    """DTypeError unless both are integers of at most 9 bits (as which int16 counts), ShapeError where sums may not fit
    int32."""
    for t in (x, y):
        if t.dtype not in _LARGEST:
            raise DTypeError(f"multiplies int8, uint8 and int16 (of at most 9 bits), got {t}; help: quantize_linear makes int8")
    largest = _LARGEST[x.dtype] * _LARGEST[y.dtype]
    most, n = ((1 << 31) - 1) // largest, as_int(terms)
    if n is not None and n > most:
        raise ShapeError(
            f"sums of {n} products of {x.dtype} and {y.dtype} may not fit int32, which holds {most}; help: cut the sum"
        )


def _terms(extents) -> object:
    return product(tuple(extents))


@primitive(functional="nn", whole_batch=True)
def matmul_int(inp1: Tensor, inp2: Tensor, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    """`matmul` of integers of few bits, in int32: exact.

    Shapes: as of `matmul`, with at least two axes each
    Dtypes: int8, uint8, or int16 that holds at most 9 bits (an int8 or uint8 whose zero point was taken off) -> int32
    Errors: ShapeError where so many terms may not fit int32: more than 131,071 of int8 by int8, 65,793 of uint8 by int8

    >>> from tengen import Tensor, functional as F
    >>> F.matmul_int(Tensor([[100, 100]], "int8"), Tensor([[100], [-1]], "int8")).tolist()
    [[9900]]
    """


@matmul_int.infer
def _(x, y, transpose_a, transpose_b):
    if min(x.ndim, y.ndim) < 2:
        raise ShapeError(f"takes matrices, got {x} and {y}; help: reshape a row to (1, K)")
    (ba, m, k), (bb, k2, n) = matrix_extents(x, True, transpose_a), matrix_extents(y, False, transpose_b)
    if not same_extent(k, k2, "inner extents"):
        raise ShapeError(f"the inner extents {k} and {k2} differ")
    _check_operands(x, y, k)
    return TensorType([*broadcast_shapes(ba, bb), m, n], int32)


@matmul_int.parts
def _(types, transpose_a, **attrs):
    x, y = types
    lead = max(x.ndim, y.ndim) - 2
    shape = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    rows = [None, lead] if transpose_a else [lead, None]
    return [[*same_axes(x.shape[:-2], shape), *rows], [*same_axes(y.shape[:-2], shape), None, None]]


def _turned(a):
    return a.permute([*range(a.ndim - 2), a.ndim - 1, a.ndim - 2])


@matmul_int.epilogue
def _(lo, ins, outs, epilogue, transpose_a, transpose_b):
    (x, y), out = ins, outs[0]
    x, y = _turned(x) if transpose_a else x, _turned(y) if transpose_b else y
    precision = "int32"
    if as_int(x.shape[-1]) == 0:  # no terms
        x, y, precision = in_dtype(lo, x, int32), in_dtype(lo, y, int32), "highest"
    format = contraction.formats.dot_format(x.dtype, precision, y.dtype, lo.target)
    lead, more = out.ndim - 2, {"epilogue": epilogue, "name": "matmul_int", "format": format}
    x = x.expand((*out.shape[:-2], *x.shape[-2:]))
    if y.ndim == 2:
        return contraction.contract.contract(lo, x, y, out, g=0, m=lead + 1, k=1, n=1, **more)
    y = y.expand((*out.shape[:-2], *y.shape[-2:]))
    return contraction.contract.contract(lo, x, y, out, g=lead, m=1, k=1, n=1, **more)


@primitive(functional="nn")
def conv_int(
    inp: Tensor, weight: Tensor, stride: Positives = 1, padding: Naturals = 0, dilation: Positives = 1, groups: Groups = 1
) -> Tensor:
    """`conv` of integers of few bits, in int32: exact. Padding is 0, so a zero point is taken off before (`centre_codes`).

    Shapes: as of `conv`
    Dtypes: as of `matmul_int` -> int32
    Errors: ShapeError where so many terms may not fit int32, as of `matmul_int`
    Layout: the result is channels-last in memory
    """


@conv_int.canon
def _(types, stride, padding, dilation, groups):
    n = types[0].ndim - 2
    if n < 1:
        raise ShapeError(f"a convolution needs an image of at least 3 axes (batch, channels, space), got {types[0]}")
    sides = {"stride": stride, "padding": padding, "dilation": dilation}
    return {name: per_axis(value, n, name) for name, value in sides.items()} | {"groups": groups}


conv_int.layout(channels_last)
conv_int.parts(lambda types, **attrs: [[0, *[None] * (types[0].ndim - 1)], [None] * types[1].ndim])
conv_int.known(small_filter)
conv_int.named(one_of_each)


@conv_int.infer
def _(x, w, stride, padding, dilation, groups):
    if x.ndim != len(stride) + 2:
        raise ShapeError(f"{x} is no image with {len(stride)} axes of space")
    o, c, k = filter_extents(w, x.ndim - 2, groups)
    if isinstance(x.shape[1], int) and isinstance(c, int) and x.shape[1] != c * groups:
        raise ShapeError(f"the image has {x.shape[1]} channels, the filter takes {c * groups}")
    _check_operands(x, w, _terms((c, *k)))
    out = [out_extent(*a) for a in zip(x.shape[2:], k, stride, padding, dilation)]
    return TensorType([x.shape[0], o * groups, *out], int32)


@conv_int.epilogue
def _(lo, ins, outs, epilogue, stride, padding, dilation, groups):
    x, w = ins
    o, c, k = filter_extents(TensorType(w.shape, w.dtype), len(stride), groups)
    alone = grouped(groups) and as_int(c) == 1
    stencil = alone and len(stride) == 2 and convolution.depthwise.fits(w, groups)
    if (alone and not stencil) or as_int(_terms((c, *k))) == 0:  # products are few, and nothing is packed
        x, w, precision = in_dtype(lo, x, int32), in_dtype(lo, w, int32), "highest"
    else:
        precision = "int32"
    lower(RESULTS, Convolution(lo, x, w, outs[0], stride, padding, dilation, groups, "direct", precision, epilogue))


for _op in (matmul_int, conv_int):
    _op.no_vjp("integers are not differentiable; straight_through gives them the gradient of a product of floats")


# ---- references and samples ---------------------------------------------------------------------------------------------------


def _np_codes(v, zero, low, high, dtype):
    q = np.where(np.isnan(v), 0, np.clip(np.rint(v), -(2.0**40), 2.0**40)).astype(np.int64)
    return np.clip(q + (0 if zero is None else zero), low, high).astype(str(dtype))


def _np_quantize(x, scale, zero=None, low=-128, high=127, dtype="int8"):
    return _np_codes(np.float32(x) / np.float32(scale), zero, low, high, dtype)


def _np_dequantize(q, scale, zero=None):
    return (q.astype(np.int64) - (0 if zero is None else zero)) * np.float64(scale)


def _np_requantize(total, multiplier, zero=None, low=-128, high=127, dtype="int8"):
    return _np_codes(np.float32(total) * np.float32(multiplier), zero, low, high, dtype)


def _integers(*operands):
    """Samples of integers: (low, high, shape, dtype) for each operand; a tuple of length 1 is a float constant."""
    return lambda r: tuple(
        None if o is None else np.float32(o[0]) if len(o) == 1 else r.integers(o[0], o[1], o[2]).astype(o[3]) for o in operands
    )


_I8 = lambda *shape: (-128, 128, shape, "int8")
_U8 = lambda *shape: (0, 256, shape, "uint8")
quantize_linear.reference(_np_quantize)
quantize_linear.cases(
    Case(lambda r: (r.uniform(-40, 40, (3, 37)), np.float32(0.25)), grad=False),
    Case(
        lambda r: (r.uniform(-40, 40, (2, 3, 5)), r.uniform(0.1, 1, (3, 1)), np.array([[3], [-7], [0]], np.int32)),
        {"low": 0, "high": 255, "dtype": "uint8"},
        grad=False,
    ),  # fmt: skip
    Case(lambda r: (np.array([0.5, 1.5, -2.5, np.inf, -np.inf, np.nan, 3e4]), np.float32(1.0), np.int32(5)), grad=False),
)
dequantize_linear.reference(_np_dequantize)
dequantize_linear.cases(Case(_integers(_U8(3, 37), (0.25,), (0, 256, (), "int32"))), Case(_integers(_I8(2, 5), (0.1,))))
requantize_linear.reference(_np_requantize)
requantize_linear.cases(
    Case(_integers((-(2**31), 2**31, (4, 33), "int32"), (1e-7,))),
    Case(
        _integers((-9999, 9999, (4, 33), "int32"), (0.01,), (0, 255, (33,), "int32")), {"low": 0, "high": 255, "dtype": "uint8"}
    ),
)
fake_quantize.reference(
    lambda x, scale, zero=None, low=-128, high=127: _np_dequantize(
        _np_quantize(x, scale, zero, low, high, "int64"), scale, zero
    )
)
fake_quantize.cases(
    Case(lambda r: (r.uniform(-4, 4, (3, 37)), np.float32(0.25)), grad=False),
    Case(lambda r: (r.uniform(-4, 4, (3, 37)), np.float32(0.25), np.int32(3)), {"low": 0, "high": 15}, grad=False),
)
centre_codes.reference(lambda q, zero: (q.astype(np.int64) - zero).astype(np.int16))
centre_codes.cases(Case(_integers(_U8(3, 37), (0, 256, (), "int32"))))
straight_through.reference(lambda value, through: value)
straight_through.cases(Case(lambda r: (r.uniform(-1, 1, (3, 5)), r.uniform(-1, 1, (3, 5))), grad=False))
lookup_codes.reference(lambda q, table: table[q.astype(np.int64) + 128])
lookup_codes.cases(Case(_integers(_I8(3, 37), _I8(256))))
matmul_int.reference(
    lambda x, y, transpose_a=False, transpose_b=False: np.matmul(
        np.swapaxes(x, -1, -2).astype(np.int64) if transpose_a else x.astype(np.int64),
        np.swapaxes(y, -1, -2).astype(np.int64) if transpose_b else y.astype(np.int64),
    ).astype(np.int32)
)
matmul_int.cases(
    Case(_integers(_I8(3, 5), _I8(5, 4))),
    Case(_integers(_U8(5, 3), _I8(40, 5)), {"transpose_a": True, "transpose_b": True}),
    Case(_integers(_I8(2, 1, 3, 600), _I8(4, 600, 2))),
    Case(_integers((-255, 256, (2, 3, 64), "int16"), _I8(64, 48))),
    Case(_integers(_I8(3, 0), _I8(0, 4))),
    Case(_integers(_I8(0, 5), _I8(5, 4))),
)
conv_int.reference(lambda x, w, **a: np_conv(x.astype(np.int64), w.astype(np.int64), **a).astype(np.int32))
conv_int.cases(
    Case(_integers(_I8(2, 3, 7, 6), _I8(4, 3, 3, 2))),
    Case(_integers(_U8(1, 16, 6, 6), _I8(32, 16, 3, 3)), {"padding": 1}),
    Case(_integers(_I8(2, 4, 7, 6), _I8(2, 3, 2, 3, 3)), {"stride": 2, "padding": (1, 2), "dilation": (1, 2), "groups": 2}),
    Case(_integers(_I8(2, 5, 6, 6), _I8(5, 1, 1, 3, 3)), {"padding": 1, "groups": 5}),
    Case(_integers((-255, 256, (1, 3, 9), "int16"), _I8(17, 3, 3)), {"stride": 3, "padding": 1}),
    Case(_integers(_I8(0, 2, 4, 4), _I8(3, 2, 3, 3))),
)
