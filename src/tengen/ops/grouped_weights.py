"""Linear layers whose weight is integers of few bits, with a scale for each group of input features.

In: activations in float32, integers as they lie in memory, scales. Out: float32, with the bits of dequantising the weight and
multiplying it; but each weight is read as 8, 4 or 2 bits, and becomes a number in a register. Or activations become integers too,
whose products are exact (docs/numerics.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tengen.base.dtype import float16, float32, int8, uint8
from tengen.base.errors import ArgumentError, DTypeError, ShapeError
from tengen.ir.types import TensorType
from tengen.kernels import contraction
from tengen.kernels.contraction.grouped_weights import COLUMNS, WORD
from tengen.loops.lang import as_int
from tengen.ops.contract import matmul
from tengen.ops.define import Case, primitive, same_extent
from tengen.ops.elementwise import astype, sub
from tengen.ops.joining import stack
from tengen.ops.logic import bitwise_and, right_shift
from tengen.ops.quantized import dequantize_linear
from tengen.ops.shape import permute, reshape, strided_slice

if TYPE_CHECKING:
    from tengen.tensor import Tensor

ACTIVATIONS = ("float32", "int8")  # what activations are multiplied as


@primitive(functional="nn")
def linear_grouped(
    inp: Tensor, codes: Tensor, scale: Tensor, bits: int = 8, group: int = 32, features: int | None = None,
    activations: str = "float32",
) -> Tensor:  # fmt: skip
    """inp @ w.T, where w[o, k] = scale[o, k // group] q[o, k]: for few rows, which cost what reading the integers costs.

    Shapes: inp (..., K), scale (O, groups) with groups = K / group, rounded up -> (..., O). codes: (O, groups * group) of 8 bits,
        (O, groups * group * bits / 8) of fewer. In tiles of 64 output features: codes (tiles, bytes of a feature / 4, 64, 4),
        scale (tiles, groups, 64)
    Dtypes: float32, int8 (of 8 bits) or uint8 (of 4 bits: two integers in a byte, the first in its low half, each with 8 added; of 2 bits:
        four, the first in the lowest two bits, each with 2 added), float32 or float16, which become float32, exactly -> float32
    Args:
        bits: 8, 4 or 2. group: features that share a scale: 16, 32, 64, 128 or 256.
        features: output features, O, of codes in tiles, whose last may be filled up; None: codes are no tiles.
        activations: "float32", or "int8": each group of a row of inp is rounded to integers of 8 bits, too.
    Numerics: "float32": each weight is rounded once, as `dequantize_linear` does; sums have the order of `matmul`. The bits of both.
        "int8": step = max(max |x|, 2^-100) / 127 of a group, p = rint(x / step), half to even; the sum of p q is exact in int32; groups
        are added in order: y = y + float32(sum) (step scale), each operation rounded to float32. A NaN or inf makes the row NaN.
        Gradients of inp are those of "float32": rounding counts as the identity
    Speed: tiles are read where they lie. Others are made tiles, once where they are a constant, in every run where they are a state

    >>> import numpy as np
    >>> from tengen import Tensor, functional as F
    >>> q, scale = np.array([[1, -2] + [0] * 30, [3, 4] + [0] * 30], "int8"), np.array([[0.5], [2.0]], "float32")
    >>> F.linear_grouped(Tensor([[1.0, 10.0]]), Tensor(q), Tensor(scale)).tolist()
    [[-9.5, 86.0]]
    """


@linear_grouped.infer
def _(x, codes, scale, bits, group, features, activations):
    if bits not in (8, 4, 2) or not contraction.grouped_weights.fits(group):
        raise ArgumentError(f"bits={bits} by groups of {group}: bits are 8, 4 or 2, and groups have 16, 32, 64, 128 or 256 features")
    if activations not in ACTIVATIONS:
        raise ArgumentError(f"activations={activations!r} must be one of {', '.join(map(repr, ACTIVATIONS))}")
    if (x.dtype, codes.dtype) != (float32, integers := int8 if bits == 8 else uint8) or scale.dtype not in (float32, float16):
        raise DTypeError(f"takes float32, integers of {bits} bits in {integers}, float32 or float16; got {x}, {codes}, {scale}")
    ndims = (2, 2) if features is None else (4, 3)
    if x.ndim < 1 or (codes.ndim, scale.ndim) != ndims or not same_extent(codes.shape[0], scale.shape[0], "output features"):
        tiles = f"(tiles, bytes / {WORD}, {COLUMNS}, {WORD}) and (tiles, groups, {COLUMNS})"
        raise ShapeError(f"takes (..., K), {'(O, bytes) and (O, groups)' if features is None else tiles}, got {x}, {codes}, {scale}")
    groups, terms = as_int(scale.shape[1]), as_int(x.shape[-1])
    depth = None if groups is None else groups * group * bits // 8 // (1 if features is None else WORD)
    if depth is None or terms is None or groups != -(-terms // group) or as_int(codes.shape[1]) != depth:
        raise ShapeError(f"{x.shape[-1]} features by groups of {group}, of {bits} bits, do not fit codes {codes} and scales {scale}")
    if features is None:
        return TensorType([*x.shape[:-1], codes.shape[0]], float32)
    lie = (*map(as_int, codes.shape[2:]), as_int(scale.shape[2]))
    if lie != (COLUMNS, WORD, COLUMNS) or as_int(codes.shape[0]) != -(-features // COLUMNS):
        raise ShapeError(f"{features} output features in tiles of {COLUMNS} do not fit codes {codes} and scales {scale}")
    return TensorType([*x.shape[:-1], features], float32)


linear_grouped.parts(lambda types, **attrs: [[*range(types[0].ndim - 1), None], *([None] * t.ndim for t in types[1:])])


@linear_grouped.epilogue
def _(lo, ins, outs, epilogue, bits, group, features, activations):
    run = contraction.grouped_integers.grouped_integers if activations == "int8" else contraction.grouped_weights.grouped_weights
    run(lo, *ins, outs[0], bits, group, epilogue)


@linear_grouped.vjp
def _(g, x, codes, scale, bits, group, features, activations):
    def gx():
        q, s = (codes, scale) if features is None else (rows_of_tiles(t, features) for t in (codes, scale))
        if bits < 8:
            q = taken_apart(q, bits)
        w = dequantize_linear(reshape(q, (*s.shape, group)), reshape(astype(s, "float32"), (*s.shape, 1)))
        w = reshape(w, (s.shape[0], -1))
        return matmul(g, strided_slice(w, (0, 0), (s.shape[0], x.shape[-1]), (1, 1)))

    return gx, None, None


def taken_apart(codes: Tensor, bits: int) -> Tensor:
    """The integers, int8 (..., bytes * 8 / bits), that lie in bytes, uint8 (..., bytes)."""
    high = 8 - bits
    parts = [right_shift(codes, high) if at == high else bitwise_and(right_shift(codes, at) if at else codes, (1 << bits) - 1)
             for at in range(0, 8, bits)]  # fmt: skip
    return sub(astype(reshape(stack(parts, -1), (*codes.shape[:-1], -1)), "int8"), 1 << bits - 1)


def tiles_of_codes(codes: np.ndarray) -> np.ndarray:
    """Bytes of integers (rows, bytes of a row) in tiles of 64 rows, (tiles, bytes of a row / 4, 64, 4), the last filled up with zeros: as
    the kernel reads them."""
    return tiles_of_rows(np.ascontiguousarray(codes).view(np.uint32))[..., None].view(codes.dtype)


def tiles_of_rows(a: np.ndarray) -> np.ndarray:
    """A matrix (rows, K) in tiles of 64 rows, (tiles, K, 64), the last filled up with zeros: as the kernel reads scales."""
    whole = np.pad(a, ((0, -len(a) % COLUMNS), (0, 0)))
    return np.ascontiguousarray(whole.reshape(-1, COLUMNS, a.shape[1]).transpose(0, 2, 1))


def rows_of_tiles(tiles: Tensor, rows: int) -> Tensor:
    """The matrix (rows, K) that lies in tiles (tiles, K, 64) or (tiles, K / 4, 64, 4)."""
    whole = permute(tiles, (0, 2, 1, 3) if tiles.ndim == 4 else (0, 2, 1))
    whole = reshape(whole, (tiles.shape[0] * COLUMNS, -1))
    return strided_slice(whole, (0, 0), (rows, whole.shape[1]), (1, 1))


def _np_linear_grouped(x, codes, scale, bits=8, group=32, features=None, activations="float32"):
    if features is not None:
        codes = codes.transpose(0, 2, 1, 3).reshape(-1, codes.shape[1] * WORD)[:features]
        scale = scale.transpose(0, 2, 1).reshape(-1, scale.shape[1])[:features]
    q = codes.astype(np.int64)
    if bits < 8:
        parts = [q >> at & (1 << bits) - 1 for at in range(0, 8, bits)]
        q = np.stack(parts, -1).reshape(len(q), -1) - (1 << bits - 1)
    q = q.reshape(*scale.shape, group)
    if activations == "int8":
        whole = np.pad(x, ((0, 0),) * (x.ndim - 1) + ((0, q.shape[1] * group - x.shape[-1]),)).astype(np.float32)
        whole = whole.reshape(*x.shape[:-1], *q.shape[1:])
        step = np.maximum(np.abs(whole).max(-1, keepdims=True), np.float32(2.0**-100)) / np.float32(127)
        sums = np.einsum("...gk,ogk->...og", np.rint(whole / step).astype(np.int64), q)
        return (sums * step[..., None, :, 0].astype(np.float64) * scale).sum(-1)
    w = (q * scale[..., None].astype(np.float64)).reshape(len(q), -1)
    return x @ w[:, : x.shape[-1]].T


linear_grouped.reference(_np_linear_grouped)


def _sample(
    rows: tuple[int, ...], terms: int, outputs: int, bits: int, group: int, tiled: bool = False, activations: str = "float32"
) -> Case:
    def made(r: np.random.Generator):
        groups = -(-terms // group)
        low, high = (-127, 128) if bits == 8 else (0, 256)
        codes = r.integers(low, high, (outputs, groups * group * bits // 8))
        scale = r.uniform(0.01, 0.1, (outputs, groups)).astype("float32")
        codes = codes.astype("int8" if bits == 8 else "uint8")
        weight = (tiles_of_codes(codes), tiles_of_rows(scale)) if tiled else (codes, scale)
        return r.uniform(-1, 1, (*rows, terms)).astype("float32"), *weight

    attrs: dict[str, Any] = {"bits": bits, "group": group} | ({"features": outputs} if tiled else {})
    attrs |= {} if activations == "float32" else {"activations": activations}
    return Case(made, attrs, grad=False)  # of floats alone; tests/quantization has that of inp


linear_grouped.cases(
    _sample((1,), 64, 70, 8, 32), _sample((2, 3), 301, 20, 4, 64), _sample((), 10, 5, 4, 16), _sample((0,), 8, 5, 8, 16),
    _sample((2,), 67, 70, 2, 32), _sample((), 9, 5, 2, 16), _sample((3,), 70, 70, 4, 32, tiled=True),
    _sample((2, 3), 301, 20, 4, 64, activations="int8"), _sample((), 70, 70, 8, 32, True, "int8"), _sample((5,), 37, 66, 2, 16, True, "int8"),
)  # fmt: skip
