"""Complex numbers: their parts as views, and how an op that is called of them becomes ops of their parts.

A complex tensor holds pairs of floats, the real part first, as NumPy's do. No kernel knows complex values: `real_part`,
`imag_part` and `view_as_real` are views of floats on the same memory, and `complex` writes two floats of each element. What another
op means for complex numbers its rule "complex" says, in ops (`complex_rules.py`, `complex_functions.py`). A call of an op with
complex operands is a call of its form for them, a composite over that rule (`formed`), so fusion, tracing, files, `vmap` and gradients
follow as for any other composite.

The gradient of a real loss L by a complex z = x + iy is dL/dx + i dL/dy, as in PyTorch: ``z -= rate * gradient`` descends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tengen import kernels
from tengen.base.dtype import DType, complex64, complex128, float32, float64, promote
from tengen.base.errors import DTypeError, ShapeError
from tengen.ir.types import TensorType
from tengen.kernels.axes import memory_order
from tengen.kernels.lowering import Array, contiguous_strides
from tengen.kernels.source import Elementwise, broadcast
from tengen.loops.lang import as_int, cast
from tengen.ops.define import Case, broadcast_shapes, composite, dispatch, lookup, primitive, same_axes, shorthand
from tengen.ops.elementwise import astype, atan2, cos, mul, neg, sin, where
from tengen.ops.float_parts import copysign
from tengen.ops.logic import equal, isnan, less, logical_and

if TYPE_CHECKING:
    from tengen.tensor import Tensor

OF_PARTS = {float32: complex64, float64: complex128}


def _sample(r: Any, *shape: int) -> np.ndarray:
    return r.uniform(-2, 2, shape) + 1j * r.uniform(-2, 2, shape)


# ---- views -----------------------------------------------------------------------------------------------------------


def _complex_type(x: TensorType) -> DType:
    if not x.dtype.is_complex:
        raise DTypeError(f"takes complex numbers, got {x}; help: .astype('complex64')")
    return x.dtype.part


@primitive
def real_part(x: Tensor) -> Tensor:
    """The real parts of complex numbers: a view."""


@primitive
def imag_part(x: Tensor) -> Tensor:
    """The imaginary parts of complex numbers: a view."""


for _op in (real_part, imag_part):
    _op.infer(lambda x: TensorType(x.shape, _complex_type(x)))
    _op.parts(lambda types: [list(range(types[0].ndim))])
real_part.view(lambda a, out: a.parts()[0])
imag_part.view(lambda a, out: a.parts()[1])
real_part.vjp(lambda g, x: lookup("complex")(g, dispatch.scalar(0, g.dtype)))
imag_part.vjp(lambda g, x: lookup("complex")(dispatch.scalar(0, g.dtype), g))
real_part.reference(np.real)
imag_part.reference(np.imag)
for _op in (real_part, imag_part):
    _op.cases(Case(lambda r: (_sample(r, 3, 17),)))


@primitive(functional="tensor", methods="view_as_real")
def view_as_real(x: Tensor) -> Tensor:
    """Complex numbers as pairs of floats: a view with one axis more, of the real and the imaginary part.

    Shapes: (...) -> (..., 2). Dtypes: complex64 -> float32, complex128 -> float64. Errors: DTypeError for what is not complex.

    >>> from tengen import Tensor, functional as F
    >>> F.view_as_real(Tensor([1 + 2j, 3j])).tolist()
    [[1.0, 2.0], [0.0, 3.0]]
    """


@view_as_real.infer
def _(x):
    return TensorType((*x.shape, 2), _complex_type(x))


@view_as_real.view
def _(a, out):
    first = a.parts()[0]
    return replace(first, shape=(*a.shape, 2), strides=(*first.strides, 1))


view_as_real.vjp(lambda g, x: lookup("view_as_complex")(g))
view_as_real.parts(lambda types: [list(range(types[0].ndim))])
view_as_real.reference(lambda x: np.stack([x.real, x.imag], -1))
view_as_real.cases(Case(lambda r: (_sample(r, 3, 17),)))


@primitive(functional="tensor", methods="view_as_complex")
def view_as_complex(x: Tensor) -> Tensor:
    """Pairs of floats along the last axis as complex numbers: a view, where the two of each pair are neighbours in memory.

    Shapes: (..., 2) -> (...). Dtypes: float32 -> complex64, float64 -> complex128. Errors: DTypeError, ShapeError for others.

    >>> from tengen import Tensor, functional as F
    >>> F.view_as_complex(Tensor([[1.0, 2.0], [0.0, 3.0]])).tolist()
    [(1+2j), 3j]
    """


@view_as_complex.infer
def _(x):
    if x.dtype not in OF_PARTS:
        raise DTypeError(f"takes float32 or float64, got {x}; help: .astype('float32')")
    if not x.ndim or as_int(x.shape[-1]) != 2:
        raise ShapeError(f"takes pairs along the last axis, got {x}; help: the shape is to be (..., 2)")
    return TensorType(x.shape[:-1], OF_PARTS[x.dtype])


@view_as_complex.view
def _(a, out):
    if a.is_contiguous() and as_int(a.offset) == 0:
        return Array(a.id, out.dtype, out.shape, contiguous_strides(out.shape))
    numbers = [as_int(n) for n in (*a.strides[:-1], a.offset)]
    if as_int(a.strides[-1]) != 1 or any(n is None or n % 2 for n in numbers):
        return None
    *strides, offset = (n // 2 for n in numbers if n is not None)
    return Array(a.id, out.dtype, out.shape, tuple(strides), offset)


view_as_complex.vjp(lambda g, x: view_as_real(g))
view_as_complex.reference(lambda x: x[..., 0] + 1j * x[..., 1])
view_as_complex.cases(Case(lambda r: (r.uniform(-2, 2, (3, 17, 2)),)))


# ---- from parts ------------------------------------------------------------------------------------------------------


@primitive(functional="tensor")
def complex_(real: Tensor, imag: Tensor) -> Tensor:
    """The complex numbers real + i imag; the parts broadcast. float64 parts give complex128, all others complex64.

    >>> from tengen import Tensor, functional as F
    >>> F.complex(Tensor([1.0, 0.0]), Tensor([2.0, 3.0])).tolist()
    [(1+2j), 3j]
    """


def _part_type(*dtypes: DType) -> DType:
    """The dtype of the parts that parts of some dtypes become."""
    d = dtypes[0]
    for other in dtypes[1:]:
        d = promote(d, other)
    return float64 if d is float64 else float32


@complex_.infer
def _(real, imag):
    for t in (real, imag):
        if t.dtype.is_complex:
            raise DTypeError(f"takes real numbers for the parts, got {t}; help: x + 1j * y adds complex ones")
    return TensorType(broadcast_shapes(real.shape, imag.shape), OF_PARTS[_part_type(real.dtype, imag.dtype)])


@complex_.lower_values
def _(lo, ins, outs):
    d = outs[0].dtype.part
    parts = [broadcast(s, outs[0].shape) for s in ins]
    parts = [s if s.dtype is d else Elementwise(lambda v: cast(v, d), [s], s.shape, d) for s in parts]
    kernels.pointwise.pointwise(lo, parts, outs[0].parts(), "complex")


@complex_.parts
def _(types):
    shape = broadcast_shapes(*(t.shape for t in types))
    return [same_axes(t.shape, shape) for t in types]


@complex_.layout
def _(arrays, out):
    whole = next((a for a in arrays if a is not None and a.shape == out.shape), None)
    return list(range(len(out.shape))) if whole is None else memory_order(whole)


complex_.vjp(lambda g, real, imag: ((lambda: real_part(g)), (lambda: imag_part(g))))
complex_.reference(lambda real, imag: real + 1j * imag)
complex_.cases(Case(lambda r: (r.uniform(-2, 2, (3, 17)), r.uniform(-2, 2, 17))))


# ---- for users -------------------------------------------------------------------------------------------------------


@shorthand(functional="tensor", aliases={"complex": "inp"})
def real(inp: Tensor) -> Tensor:
    """The real parts: a view of complex numbers; what is not complex, as it is.

    >>> from tengen import Tensor, functional as F
    >>> F.real(Tensor([1 + 2j, 3j])).tolist()
    [1.0, 0.0]
    """
    x = dispatch.tensor(inp)
    return real_part(x) if x.dtype.is_complex else x


@shorthand(functional="tensor", aliases={"complex": "inp"})
def imag(inp: Tensor) -> Tensor:
    """The imaginary parts: a view of complex numbers; zeros of what is not complex.

    >>> from tengen import Tensor, functional as F
    >>> F.imag(Tensor([1 + 2j, 3j])).tolist()
    [2.0, 3.0]
    """
    x = dispatch.tensor(inp)
    return imag_part(x) if x.dtype.is_complex else lookup("zeros_like")(x)


@shorthand(functional="tensor", methods="conj")
def conj(inp: Tensor) -> Tensor:
    """The complex conjugate x - iy of x + iy; what is not complex, as it is.

    >>> from tengen import Tensor, functional as F
    >>> F.conj(Tensor([1 + 2j])).tolist()
    [(1-2j)]
    """
    x = dispatch.tensor(inp)
    return conjugate(x) if x.dtype.is_complex else x


@composite
def conjugate(x: Tensor) -> Tensor:
    """The complex conjugate of complex numbers."""
    return complex_(real_part(x), neg(imag_part(x)))


conjugate.complex(conjugate.fn)
conjugate.reference(np.conj)
conjugate.cases(Case(lambda r: (_sample(r, 3, 17),)))


@shorthand(functional="tensor", methods="angle")
def angle(inp: Tensor) -> Tensor:
    """The argument of complex numbers in [-pi, pi], by `atan2`; of real numbers 0 or pi, and NaN of NaN, as in NumPy. Where a number is
    0 so is its gradient.

    >>> from tengen import Tensor, functional as F
    >>> F.angle(Tensor([1j, 1.0])).numpy().round(4).tolist()
    [1.5707999467849731, 0.0]
    """
    x = dispatch.tensor(inp)
    if x.dtype.is_complex:
        return argument(x)
    x = x if x.dtype.is_float else astype(x, float32)
    return where(isnan(x), x, where(less(x, 0.0), dispatch.scalar(np.pi, x.dtype), dispatch.scalar(0.0, x.dtype)))


@composite
def argument(x: Tensor) -> Tensor:
    """The argument of complex numbers. Where one is 0, the gradient is that of a constant."""
    parts = real_part(x), imag_part(x)
    zero = logical_and(equal(parts[0], 0), equal(parts[1], 0))
    return atan2(where(zero, copysign(0, parts[1]), parts[1]), where(zero, copysign(1, parts[0]), parts[0]))


argument.complex(argument.fn)
argument.reference(np.angle)
argument.cases(Case(lambda r: (_sample(r, 3, 17),)))


@shorthand(functional="tensor")
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """The complex numbers of these absolute values and arguments, abs (cos(angle) + i sin(angle)).

    >>> from tengen import Tensor, functional as F
    >>> F.polar(Tensor([2.0]), Tensor([0.0])).tolist()
    [(2+0j)]
    """
    return complex_(mul(abs, cos(angle)), mul(abs, sin(angle)))


polar.reference(lambda abs, angle: abs * np.exp(1j * angle))
polar.cases(Case(lambda r: (r.uniform(0.1, 2, (3, 17)), r.uniform(-2, 2, 17))))
for _op, _f in ((real, np.real), (imag, np.imag), (conj, np.conj), (angle, np.angle)):
    _op.reference(_f)
    _op.cases(Case(lambda r: (_sample(r, 3, 17),)), Case(lambda r: (r.uniform(-2, 2, (3, 17)),)))
