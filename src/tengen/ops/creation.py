"""Making tensors: filled, counting, identity matrices, triangles, grids.

Shapes, extents and dtypes are attributes; numbers (what to fill with, where to start) are operands, so one eager kernel serves
all. `device` is where the tensor shall lie, a `Device` or a name of one; None is the default device, and for the ``like`` forms
that of the tensor that the result is like.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tengen import kernels
from tengen.base.device import Device
from tengen.base.dtype import bool_, complex64, complex128, dtype, float32, float64, int64
from tengen.base.errors import ArgumentError, DTypeError, ShapeError, Undecided
from tengen.ir.types import TensorType
from tengen.kernels.source import Elementwise, broadcast
from tengen.loops.lang import Expr, cast, fma
from tengen.ops.attributes import DeviceLike, DTypeLike, Extent, Number, OpenDiagonal, Shape
from tengen.ops.define import Case, composite, dispatch, lookup, primitive, shorthand
from tengen.ops.elementwise import add, astype, div, mul, sub
from tengen.ops.shape import broadcast_to, reshape
from tengen.ops.views import on_diagonal

if TYPE_CHECKING:
    from tengen.tensor import Tensor

_dtype = dtype
_DEFAULTS = ((bool, bool_), (int, int64), (float, float32), (complex, complex64))  # of Python's numbers


def _place(device: DeviceLike | None) -> Device | None:
    """The device that a name means; None where there is no name."""
    return device if device is None or isinstance(device, Device) else Device.named(device)


@primitive
def fill(value: Tensor, shape: Shape) -> Tensor:
    """A tensor of `shape` with the 0-d `value` everywhere, in memory of its own."""


@fill.infer
def _(value, shape):
    if value.ndim:
        raise ShapeError("the value must be 0-d")
    return TensorType(shape, value.dtype)


@fill.source
def _(ins, out, shape):
    return broadcast(ins[0], out.shape)


@fill.vjp
def _(g, value, shape):
    return lookup("sum")(g)


fill.reference(lambda value, shape: np.full(shape, value))
fill.cases(
    Case(lambda r: (r.uniform(-1, 1, ()),), {"shape": (3, 17)}), Case(lambda r: (r.uniform(-1, 1, ()),), {"shape": (2, 0)})
)


@shorthand(functional="tensor")
def full(shape: Shape, value: Any, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """A tensor with `value` everywhere; of the value's dtype by default (Python floats float32, ints int64, complex complex64).

    Args: device: where it shall lie, such as "cpu0"; default: the default device. Errors: DeviceError for one that is not here.

    >>> from tengen import functional as F
    >>> F.full((2, 2), 7).tolist()
    [[7, 7], [7, 7]]
    """
    there = _place(device)
    default = next((d for kind, d in _DEFAULTS if isinstance(value, kind)), None)
    if default is not None:
        value = dispatch.scalar(value, default if dtype is None else _dtype(dtype), there)
    else:
        value = dispatch.tensor(value, there)
        value = value if dtype is None or value.dtype is _dtype(dtype) else astype(value, dtype)
    return fill(value, shape) if value.ndim == 0 else lookup("copy")(broadcast_to(value, shape))


@shorthand(functional="tensor")
def zeros(shape: Shape, dtype: DTypeLike | None = "float32", device: DeviceLike | None = None) -> Tensor:
    """A tensor of zeros.

    >>> from tengen import functional as F
    >>> F.zeros((2, 3)).shape
    (2, 3)
    """
    return full(shape, 0, dtype, device)


@shorthand(functional="tensor")
def ones(shape: Shape, dtype: DTypeLike | None = "float32", device: DeviceLike | None = None) -> Tensor:
    """A tensor of ones."""
    return full(shape, 1, dtype, device)


@shorthand(functional="tensor")
def full_like(inp: Tensor, value: Any, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """A tensor of inp's shape (and dtype and device, if none is given) with `value` everywhere."""
    x = dispatch.tensor(inp)
    if hasattr(x._layout, "rows"):  # a selection by a mask, whose elements need not be counted for this
        return lookup("where")(True, dispatch.scalar(value, x.dtype if dtype is None else _dtype(dtype)), astype(x, dtype or x.dtype))
    return full(x.shape, value, x.dtype if dtype is None else dtype, x.device if device is None else device)


@shorthand(functional="tensor")
def zeros_like(inp: Tensor, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """A tensor of zeros of inp's shape and dtype, on inp's device."""
    return full_like(inp, 0, dtype, device)


@shorthand(functional="tensor")
def ones_like(inp: Tensor, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """A tensor of ones of inp's shape and dtype, on inp's device."""
    return full_like(inp, 1, dtype, device)


full.reference(lambda shape, value, dtype=None, device=None: np.full(shape, value, dtype))
full.cases(
    Case(lambda r: (), {"shape": (3, 17), "value": 2.5}), Case(lambda r: (), {"shape": (2, 0), "value": 3, "dtype": "int8"})
)
for _op, _f in ((zeros, np.zeros), (ones, np.ones)):
    _op.reference(lambda shape, dtype="float32", device=None, f=_f: f(shape, dtype))
    _op.cases(
        Case(lambda r: (), {"shape": (3, 17)}),
        Case(lambda r: (), {"shape": (), "dtype": "bool"}),
        Case(lambda r: (), {"shape": 5}),
    )
for _op, _f in ((zeros_like, np.zeros_like), (ones_like, np.ones_like)):
    _op.reference(lambda inp, dtype=None, device=None, f=_f: f(inp, dtype))
    _op.cases(Case(lambda r: (r.uniform(-1, 1, (3, 5)),)))
full_like.reference(lambda inp, value, dtype=None, device=None: np.full_like(inp, value, dtype))
full_like.cases(Case(lambda r: (r.uniform(-1, 1, (3, 5)),), {"value": 2.5}))

# ---- counting --------------------------------------------------------------------------------------------------------


@primitive
def iota(start: Tensor, step: Tensor, count: Extent, dtype: DTypeLike) -> Tensor:
    """start + i * step for i = 0 .. count - 1, in `dtype`: floats by one fma of the rounded i; start and step are 0-d."""


@iota.infer
def _(start, step, count, dtype):
    if start.ndim or step.ndim:
        raise ShapeError("start and step must be 0-d")
    if dtype.kind == "b":
        raise DTypeError("does not count in bool; help: compare the numbers with something")
    return TensorType((count,), dtype)


@iota.source
def _(ins, out, count, dtype):
    d = dtype.compute

    def fn(start, step, i):
        start, step, i = cast(start, d), cast(step, d), cast(i, d)
        return cast(fma(i, step, start) if d.is_float else i * step + start, dtype)

    return Elementwise(
        fn, [broadcast(ins[0], out.shape), broadcast(ins[1], out.shape), kernels.indexing.gather.Iota(out.shape, int64)], out.shape, dtype
    )


@iota.vjp
def _(g, start, step, count, dtype):
    if not dtype.is_float:
        return None, None
    total = lookup("sum")
    return (lambda: total(g)), (lambda: total(mul(g, arange(0, count, 1, g.dtype, g.device))))


iota.reference(lambda start, step, count, dtype: (start + step * np.arange(count)).astype(_dtype(dtype).numpy))
iota.cases(
    Case(lambda r: (np.float64(2.5), np.float64(-0.5)), {"count": 33, "dtype": "float64"}),
    Case(lambda r: (np.int64(2), np.int64(3)), {"count": 17, "dtype": "int32"}),
)


@shorthand(functional="tensor")
def arange(
    start: Number = 0,
    stop: Number | None = None,
    step: Number = 1,
    dtype: DTypeLike = "float32",
    device: DeviceLike | None = None,
) -> Tensor:
    """start, start + step, ... below stop; one argument is `stop`. float32 by default, as in MegEngine.

    Errors: ArgumentError for a step of 0; Undecided where the number of elements is only known when the program runs

    >>> from tengen import functional as F
    >>> F.arange(2, 5, dtype="int32").tolist()
    [2, 3, 4]
    """
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ArgumentError(f"arange({start}, {stop}, {step}): the step must not be 0")
    if isinstance(start, Expr):
        raise Undecided(f"arange({start!r}, {stop!r}): an extent that is known when the program runs can be its end alone")
    if isinstance(stop, Expr):  # an extent of a shape-generic program, which is not less than start
        if step < 0 or not (float(start).is_integer() and float(step).is_integer()):
            raise Undecided(f"arange({start}, {stop!r}, {step}): how many these are is not known before the program runs")
        count = (stop - int(start) + (int(step) - 1)) // int(step)
    else:
        steps = (stop - start) / step
        if not math.isfinite(steps):
            raise ArgumentError(f"arange({start}, {stop}, {step}): the numbers must be finite")
        count = max(0, math.ceil(steps))
    d = _dtype(dtype)
    number = float64 if any(isinstance(v, float) for v in (start, step)) else int64
    there = _place(device)
    return iota(dispatch.scalar(start, number, there), dispatch.scalar(step, number, there), count, d)


arange.reference(lambda start=0, stop=None, step=1, dtype="float32", device=None: np.arange(start, stop, step).astype(dtype))
arange.cases(
    Case(lambda r: (), {"start": 17}), Case(lambda r: (), {"start": 2, "stop": 9.5, "step": 0.5}),
    Case(lambda r: (), {"start": 5, "stop": -5, "step": -3, "dtype": "int8"}), Case(lambda r: (), {"start": 3, "stop": 3}),
)  # fmt: skip


@composite
def even_steps(start: Tensor, stop: Tensor, num: Extent, dtype: DTypeLike) -> Tensor:
    """`num` numbers from start to stop, both included, evenly spaced; computed in float64."""
    if start.shape or stop.shape:
        raise ShapeError(f"the ends are numbers, not tensors of shape {tuple(start.shape)} and {tuple(stop.shape)}")
    i = iota(dispatch.scalar(0, int64), dispatch.scalar(1, int64), num, float64)
    several = isinstance(num, Expr) or num > 1  # what is known when the program runs is not 1
    y = lookup("fma")(i, div(sub(stop, start), num - 1 if several else 1), start)
    last = lookup("equal")(i, num - 1) if several else lookup("less")(i, 0.0)
    return astype(lookup("where")(last, stop, y), dtype)


even_steps.reference(lambda start, stop, num, dtype: np.linspace(start, stop, num).astype(_dtype(dtype).numpy))
even_steps.cases(Case(lambda r: (np.float64(-1.5), np.float64(2)), {"num": 17, "dtype": "float64"}))


@shorthand(functional="tensor", aliases={"steps": "num", "end": "stop"})
def linspace(start: Any, stop: Any, num: Extent, dtype: DTypeLike = "float32", device: DeviceLike | None = None) -> Tensor:
    """`num` numbers from start to stop, both included, evenly spaced; computed in float64.

    >>> from tengen import functional as F
    >>> F.linspace(0, 1, 5).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    there = _place(device)
    d: Any = complex128 if _dtype(dtype).is_complex else float64
    number, other = (lambda v: dispatch.scalar(v, d, there)), (lambda v: astype(dispatch.tensor(v, there), d))
    ends = [number(v) if isinstance(v, (int, float, complex)) else other(v) for v in (start, stop)]
    return even_steps(*ends, num, _dtype(dtype))


linspace.reference(lambda start, stop, num, dtype="float32", device=None: np.linspace(start, stop, num).astype(dtype))
linspace.cases(
    Case(lambda r: (), {"start": -1.5, "stop": 7, "num": 33}), Case(lambda r: (), {"start": 2, "stop": 3, "num": 1}),
    Case(lambda r: (), {"start": 2, "stop": 3, "num": 0}), Case(lambda r: (), {"start": 0, "stop": 10, "num": 11, "dtype": "int32"}),
)  # fmt: skip

# ---- matrices and grids ----------------------------------------------------------------------------------------------


@shorthand(functional="tensor")
def eye(
    N: Shape, M: Extent | None = None, k: int = 0, dtype: DTypeLike = "float32", device: DeviceLike | None = None
) -> Tensor:
    """The N x M (N x N) matrix with ones on its k-th diagonal; N may be a shape of one or two extents.

    Errors: ShapeError for other shapes

    >>> from tengen import functional as F
    >>> F.eye([1, 2]).tolist()
    [[1.0, 0.0]]
    """
    sizes = (*N,) if M is None else (*N, M)
    if not 1 <= len(sizes) <= 2:
        raise ShapeError(f"eye: a matrix has one or two extents, got {sizes}")
    n, m = sizes[0], sizes[-1]
    ones_there = n if len(sizes) == 1 and k == 0 else max(0, min(n + min(k, 0), m - max(k, 0)))
    return on_diagonal(ones((ones_there,), dtype, device), n, m, k)


eye.reference(lambda N, M=None, k=0, dtype="float32", device=None: np.eye(N, M, k, dtype))
eye.cases(
    Case(lambda r: (), {"N": 17}),
    Case(lambda r: (), {"N": 3, "M": 5, "k": 1, "dtype": "int32"}),
    Case(lambda r: (), {"N": 3, "k": -7}),
)


@shorthand(functional="tensor", aliases={"diagonal": "k"})
def tril(inp: Tensor, k: int = 0) -> Tensor:
    """The last two axes' lower triangle, up to the k-th diagonal; zeros above."""
    return _triangle(inp, k, "less_equal")


@shorthand(functional="tensor", aliases={"diagonal": "k"})
def triu(inp: Tensor, k: int = 0) -> Tensor:
    """The last two axes' upper triangle, from the k-th diagonal on; zeros below."""
    return _triangle(inp, k, "greater_equal")


def _triangle(inp, k: int, compare: str) -> Tensor:
    x = dispatch.tensor(inp)
    if x.ndim < 2:
        raise ShapeError(f"a triangle of shape {tuple(x.shape)}: two axes are needed")
    return triangle(x, k, compare)


@composite
def triangle(x: Tensor, k: OpenDiagonal, compare: Literal["less_equal", "greater_equal"]) -> Tensor:
    """x where column `compare` row + k, else 0."""
    r, c = x.shape[-2:]
    rows, columns = reshape(arange(0, r, 1, "int64"), (r, 1)), reshape(arange(0, c, 1, "int64"), (1, c))
    return lookup("where")(lookup(compare)(columns, add(rows, lookup("extent_op")(k, int64))), x, dispatch.scalar(0, x.dtype))


tril.reference(lambda x, k=0: np.tril(x, k))
triu.reference(lambda x, k=0: np.triu(x, k))
triangle.reference(lambda x, k, compare: np.tril(x, k) if compare == "less_equal" else np.triu(x, k))
triangle.cases(
    Case(lambda r: (r.uniform(-1, 1, (4, 17)),), {"k": 2, "compare": "less_equal"}),
    Case(lambda r: (r.integers(0, 2, (4, 5)) > 0,), {"k": 0, "compare": "greater_equal"}, grad=False),
)
for _op in (tril, triu):
    _op.cases(Case(lambda r: (r.uniform(-1, 1, (2, 5, 4)),)), Case(lambda r: (r.uniform(-1, 1, (4, 17)),), {"k": -2}))


@shorthand(functional="tensor")
def meshgrid(*inputs: Tensor, indexing: Literal["xy", "ij"] = "xy") -> list[Tensor]:
    """Coordinate grids of vectors, as views: "xy" puts the second vector along the first axis, "ij" keeps the order.

    Errors: ShapeError for what is no vector, ArgumentError for another `indexing`

    >>> from tengen import Tensor, functional as F
    >>> [g.tolist() for g in F.meshgrid(Tensor([1, 2]), Tensor([3, 4]))]
    [[[1, 2], [1, 2]], [[3, 3], [4, 4]]]
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing={indexing!r} must be 'xy' or 'ij'")
    xs = [dispatch.tensor(x) for x in inputs]
    n = len(xs)
    place = list(range(n))
    if indexing == "xy" and n > 1:
        place[:2] = [1, 0]
    shape: list = [1] * n
    for x, p in zip(xs, place):
        if x.ndim > 1:
            raise ShapeError(f"meshgrid: vectors are expected, got shape {tuple(x.shape)}")
        shape[p] = x.size if x.ndim == 0 else x.shape[0]
    return [
        broadcast_to(reshape(x, tuple(shape[p] if i == p else 1 for i in range(n))), tuple(shape)) for x, p in zip(xs, place)
    ]


meshgrid.reference(lambda *xs, indexing="xy": np.meshgrid(*xs, indexing=indexing))
