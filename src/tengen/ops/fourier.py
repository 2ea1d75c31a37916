"""The discrete Fourier transform of lines of complex numbers as pairs of floats; kernels in `kernels/fourier.py`.

Transforms of tensors, of any length and along any axes, are in `tengen.fft`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tengen import kernels
from tengen.base.errors import ShapeError
from tengen.ir.types import TensorType
from tengen.kernels.source import Elementwise, Leaf
from tengen.loops.lang import cast
from tengen.ops.contract import in_dtype
from tengen.ops.define import Case, check_floats, check_shape, lookup, primitive

if TYPE_CHECKING:
    from tengen.tensor import Tensor


@primitive(autocast="high")
def dft(real: Tensor, imag: Tensor, roots: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """The sums over k of (real + i imag)[..., k] exp(-2 pi i j k / n), times scale, as real and imaginary parts. With the parts exchanged,
    of operands and results, it is the inverse transform without its factor.

    Shapes: real, imag (lines, n), roots (2, n) -> twice (lines, n). Dtypes: floats, promoted; float16 and bfloat16 are computed in float32.
    Args: roots: `kernels.roots.roots_of_unity(n)`, which has no gradient. n must be a product of 2, 3, 5, 7, 11 and 13.
    Gradient: the inverse transform without its factor, times scale
    """


@dft.infer
def _(real, imag, roots, scale):
    d = check_floats(real, imag, roots)
    if real.ndim != 2:
        raise ShapeError(f"takes lines (lines, n), got {real}")
    check_shape("the imaginary part", imag.shape, real.shape)
    check_shape("the table of roots", roots.shape, (2, real.shape[1]))
    n = real.shape[1]
    if isinstance(n, int) and (n < 1 or kernels.fourier.factors(n) is None):
        raise ShapeError(f"lines of {n} elements, which is no product of 2, 3, 5, 7, 11 and 13; help: tengen.fft takes every length")
    return TensorType(real.shape, d), TensorType(real.shape, d)


@dft.lower
def _(lo, ins, outs, scale):
    d = outs[0].dtype.compute
    real, imag, roots = (in_dtype(lo, a, d) for a in ins)
    made = outs if outs[0].dtype is d else [lo.temp(d, a.shape) for a in outs]
    kernels.fourier.fourier(lo, (real, imag), roots, (made[0], made[1]), float(scale))
    if made is not outs:
        kernels.pointwise.pointwise(
            lo, [Elementwise(lambda v: cast(v, outs[0].dtype), [Leaf(a)], a.shape, outs[0].dtype) for a in made], outs, "dft_round"
        )


dft.known(lambda arrays, **attrs: {arrays[0].shape[1]})


@dft.vjp
def _(g, real, imag, roots, *, out, scale):
    from_real, from_imag = (lookup("zeros_like")(real) if v is None else v for v in g)
    b, a = dft(from_imag, from_real, roots, scale)
    return a, b, None


@dft.reference
def _(real, imag, roots, scale=1.0):
    n = real.shape[1]
    j = np.arange(n)
    matrix = np.exp(-2j * np.pi * (np.outer(j, j) % n) / n) * scale
    y = (real + 1j * imag) @ matrix
    return y.real, y.imag


def _lines(count: int, n: int):
    return lambda r: (r.uniform(-1, 1, (count, n)), r.uniform(-1, 1, (count, n)), kernels.roots.roots_of_unity(n).copy())


# the gradients, of which the roots have none: tests/test_fft.py
for _n, _count, _scale in ((4, 3, 0.25), (1, 2, 1.0), (30, 5, 1.0), (64, 1, 1.0), (77, 2, 1.0), (48, 2, 0.5), (208, 2, 1.0)):
    dft.cases(Case(_lines(_count, _n), {"scale": _scale}, grad=False))
