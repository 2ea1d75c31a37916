"""Reductions. Each sums (multiplies, compares ...) over 16 virtual lanes and a fixed tree, see `kernels/reduction/reduce.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tengen import kernels
from tengen.base.dtype import DType, bool_, float16, float32, int64, uint64
from tengen.base.errors import AxisError, DTypeError, ShapeError
from tengen.ir.types import Dim, TensorType
from tengen.kernels.lowering import Array, product
from tengen.kernels.source import Elementwise, Leaf, Source
from tengen.loops.lang import Expr, as_int, cast, const
from tengen.ops.attributes import Count, DTypeLike, Offset, Shape
from tengen.ops.define import Case, Op, composite, lookup, primitive
from tengen.ops.elementwise import astype, div, mul, sub
from tengen.ops.shape import broadcast_to, normalize_axes, permute, reshape
from tengen.ops.widths import narrowed, to_float, widened

if TYPE_CHECKING:
    from tengen.tensor import Tensor


def _canon(types, axis, keepdims):
    return {"axes": normalize_axes(axis, types[0].ndim), "keepdims": keepdims}


def _reduced_shape(shape: Sequence[Dim], axes: Sequence[int], keepdims: bool) -> list[Dim]:
    return [1 if i in axes else d for i, d in enumerate(shape) if keepdims or i not in axes]


def _without(a: Array, axes: Sequence[int]) -> Array:
    keep = [i for i in range(a.ndim) if i not in axes]
    return Array(a.id, a.dtype, tuple(a.shape[i] for i in keep), tuple(a.strides[i] for i in keep), a.offset)


def _reduction(
    op: Op, combine: str, result: Callable[[DType], DType], kinds: str, work: Callable[[DType], DType], scale: bool = False
) -> None:
    """The rules of a reduction. `work` is the dtype it computes in, `result` its output's; `scale` divides by the count
    (mean)."""

    op.canon(_canon)

    @op.infer
    def _(x, axes, keepdims):
        if x.dtype.kind not in kinds:
            raise DTypeError(f"does not take {x.dtype}; help: cast it, for example with .astype('float32')")
        if combine in ("min", "max") and no_elements(x.shape, axes):
            raise ShapeError(f"the {op.name} of no elements is not defined")
        return TensorType(_reduced_shape(x.shape, axes, keepdims), result(x.dtype))

    @op.parts
    def _(types, axes, keepdims):
        kept = [i for i in range(types[0].ndim) if keepdims or i not in axes]
        return [[None if i in axes else kept.index(i) for i in range(types[0].ndim)]]

    def prepared(s: Source) -> Source:
        d = work(s.dtype).compute
        return s if s.dtype is d else Elementwise(lambda v: cast(v, d), [s], s.shape, d)

    def finish_value(v: Expr, shape, axes, out: DType) -> Expr:
        if scale:
            n = product([shape[i] for i in axes])
            v = v / (const(n, v.dtype) if isinstance(n, int) else cast(n, v.dtype))
        return cast(v, out)

    @op.lower_values
    def _(lo, ins, outs, axes, keepdims):
        s = ins[0]
        out = _without(outs[0], axes) if keepdims else outs[0]
        finish = lambda v: finish_value(v, s.shape, axes, out.dtype)
        kernels.reduction.reduce.reduce(lo, combine, prepared(s), out, axes, then=finish, name=op.name)

    @op.reduced
    def _(ins, out, axes, keepdims):
        s = ins[0]
        r = kernels.reduction.reduce.Reduced(combine, prepared(s), axes) if axes else prepared(s)
        return Elementwise(lambda v: finish_value(v, s.shape, axes, out.dtype), [r], r.shape, out.dtype)


def _same(d: DType) -> DType:
    return d


def _sum_dtype(d: DType) -> DType:
    return int64 if d.kind in "bi" else d if d.kind == "f" else uint64


def _float(d: DType) -> DType:
    return d if d.is_float else float32


def _back(g, x, axes, keepdims):
    """A gradient (or output) of a reduction, seen with x's shape."""
    if not keepdims:
        g = reshape(g, tuple(1 if i in axes else d for i, d in enumerate(x.shape)))
    return broadcast_to(g, x.shape)


@primitive(functional="math", methods="sum", autocast="high")
def sum_(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis` (all axes by default). Integers and bools give int64; float16 and bfloat16 add in float32. An
    empty sum is 0.

    >>> from tengen import Tensor, functional as F
    >>> F.sum(Tensor([[1, 2], [3, 4]]), axis=0).tolist()
    [4, 6]
    """


_reduction(sum_, "add", _sum_dtype, "fiub", _sum_dtype)
sum_.vjp(lambda g, x, axes, keepdims: _back(g, x, axes, keepdims))


@primitive(functional="math", methods="mean", autocast="high")
def mean(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The sum divided by the number of elements; integers give float32. NaN where there are none."""


_reduction(mean, "add", _float, "fiub", _float, scale=True)


@mean.vjp
def _(g, x, axes, keepdims):
    n = product([x.shape[i] for i in axes])
    return _back(div(g, count(n, g.dtype)), x, axes, keepdims)


def count(n: Dim, d: DType):
    """A number of elements as an operand: known, or an extent of the program."""
    return n if isinstance(n, int) else extent(n, d)


@primitive(functional="math", methods="prod", autocast="high")
def prod(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The product over `axis`; integers and bools give int64. An empty product is 1."""


_reduction(prod, "mul", _sum_dtype, "fiub", _sum_dtype)


@prod.vjp
def _(g, x, axes, keepdims):
    cumprod = lookup("cumprod")
    keep = [i for i in range(x.ndim) if i not in axes]
    order = (*keep, *axes)
    many = product([x.shape[i] for i in axes])  # not -1, which says nothing where another axis is empty
    flat = reshape(permute(x, order), (*(x.shape[i] for i in keep), many))
    others = mul(cumprod(flat, -1, exclusive=True), cumprod(flat, -1, exclusive=True, reverse=True))
    back = permute(reshape(others, tuple(x.shape[i] for i in order)), tuple(int(i) for i in np.argsort(order)))
    return mul(_back(g, x, axes, keepdims), back)


def _extremum_vjp(g, x, axes, keepdims, out):
    hit = astype(lookup("equal")(x, _back(out, x, axes, keepdims)), g.dtype)
    ties = sum_(hit, axes, True)
    return div(mul(hit, _back(g, x, axes, keepdims)), ties)


@primitive(functional="math", methods="max")
def max_(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The largest element; a NaN wins. The gradient is shared by equal largest elements. An empty one is an error."""


_reduction(max_, "max", _same, "fiub", _same)
max_.vjp(lambda g, x, *, out, axes, keepdims: _extremum_vjp(g, x, axes, keepdims, out))


@primitive(functional="math", methods="min")
def min_(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The smallest element; a NaN wins. The gradient is shared by equal smallest elements. An empty one is an error."""


_reduction(min_, "min", _same, "fiub", _same)
min_.vjp(lambda g, x, *, out, axes, keepdims: _extremum_vjp(g, x, axes, keepdims, out))


@primitive(functional="math", methods="all")
def all_(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Whether every element is true (not zero)."""


@primitive(functional="math", methods="any")
def any_(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Whether an element is true (not zero)."""


for _op, _c in ((all_, "and"), (any_, "or")):
    _reduction(_op, _c, lambda d: bool_, "fiub", lambda d: bool_)
    _op.no_vjp("a truth value is not differentiable")


def _arg(op: Op, which: str) -> None:
    @op.canon
    def _(types, axis, keepdims):
        if isinstance(axis, tuple) and not axis:
            raise AxisError(f"{op.name} needs an axis, or None for all, got {axis!r}")
        return {"axes": normalize_axes(axis, types[0].ndim), "keepdims": keepdims}

    @op.infer
    def _(x, axes, keepdims):
        if as_int(product([x.shape[i] for i in axes])) == 0:
            raise ShapeError(f"the {op.name} of no elements is not defined")
        return TensorType(_reduced_shape(x.shape, axes, keepdims), int64)

    @op.lower
    def _(lo, ins, outs, axes, keepdims):
        s: Source = Leaf(ins[0])
        d = s.dtype.compute
        if s.dtype is not d:
            s = Elementwise(lambda v: cast(v, d), [s], s.shape, d)
        kernels.reduction.arg.arg_reduce(lo, which, s, _without(outs[0], axes) if keepdims else outs[0], axes)

    op.no_vjp("an index is not differentiable")


@primitive(functional="math", methods="argmax")
def argmax(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The int64 position of the first largest element along `axis` (in the flattened tensor by default); a NaN counts as
    largest."""


@primitive(functional="math", methods="argmin")
def argmin(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The int64 position of the first smallest element along `axis` (in the flattened tensor by default); a NaN counts as
    smallest."""


_arg(argmax, "max")
_arg(argmin, "min")


def extent(n: Dim, d: DType):
    """The number `n`, maybe known only when the program runs, as a 0-d tensor."""
    return extent_op(n, d)


@primitive
def extent_op(n: Offset, dtype: DTypeLike) -> Tensor:
    """The extent `n` as a 0-d tensor: how a shape-generic program divides by a count."""


@extent_op.infer
def _(n, dtype):
    return TensorType((), dtype)


@extent_op.source
def _(ins, out, n, dtype):
    return Elementwise(lambda: cast(cast(n if isinstance(n, Expr) else const(n), dtype.compute), dtype), [], (), dtype)


extent_op.no_vjp("an extent is a constant")


@composite
def sum_to(inp: Tensor, shape: Shape) -> Tensor:
    """Sums over the axes that broadcasting `shape` to inp's shape would repeat: the gradient of broadcasting."""
    extents: Sequence[Dim] = shape  # in canonical form
    lead = len(inp.shape) - len(extents)
    axes = [*range(lead), *(i + lead for i, d in enumerate(extents) if as_int(d) == 1 and as_int(inp.shape[i + lead]) != 1)]
    out = sum_(inp, axes, True) if axes else inp
    return reshape(out, tuple(extents)) if lead else out


@sum_to.canon
def _(types, shape):
    """Checked here, where the extents of an eager call are numbers still."""
    lead = types[0].ndim - len(shape)
    pairs = [(as_int(d), as_int(e)) for d, e in zip(shape, types[0].shape[max(lead, 0) :])]
    if lead < 0 or any(d is not None and e is not None and d not in (1, e) for d, e in pairs):
        raise ShapeError(f"the shape {tuple(shape)} does not broadcast to {tuple(types[0].shape)}")
    return {"shape": shape}


def no_elements(shape: Sequence[Dim], axes: Sequence[int]) -> bool:
    """Whether there is nothing along some axes."""
    return any(as_int(shape[i]) == 0 for i in axes)


_NO_CORRECTION = {"correction": 0}  # what a file means that does not say it


@composite(functional="math", methods="var", autocast="high", older=_NO_CORRECTION)
def var(
    inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False, correction: Count = 0, unbiased: bool | None = None
) -> Tensor:
    """The variance: the mean of the squared distance from the mean.

    Args: correction: the sum of squares is divided by the number of elements less this; NumPy's `ddof`. PyTorch has 1 by default.
        unbiased: PyTorch's older word: True is correction=1, False is 0.

    >>> from tengen import Tensor, functional as F
    >>> x = Tensor([1.0, 2.0, 3.0])
    >>> F.var(x, correction=1).item(), F.var(x, unbiased=False).item() == F.var(x).item()
    (1.0, True)
    """
    given = to_float(inp)
    x = widened(given)
    d = sub(x, mean(x, axis, True))
    return narrowed(mean_of(mul(d, d), axis, keepdims, correction), given)


def mean_of(x, axis, keepdims: bool, correction: Dim):
    """The sum divided by the number of elements less `correction`."""
    if as_int(correction) == 0:
        return mean(x, axis, keepdims)
    rest = product([x.shape[i] for i in normalize_axes(axis, len(x.shape))]) - correction
    return div(sum_(x, axis, keepdims), lookup("maximum")(extent(rest, x.dtype), 0))


def root(x: Tensor) -> Tensor:
    """The square root, whose gradient at 0 is 0: of sums of squares, which are 0 where each term is at its least."""
    nothing = lookup("equal")(x, 0)
    return lookup("where")(nothing, 0.0, lookup("sqrt")(lookup("where")(nothing, 1.0, x)))


@composite(functional="math", methods="std", autocast="high", older=_NO_CORRECTION)
def std(
    inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False, correction: Count = 0, unbiased: bool | None = None
) -> Tensor:
    """The standard deviation: the square root of `var`, which see for `correction`. The gradient is 0 where it is 0."""
    x = to_float(inp)
    return narrowed(root(var(widened(x), axis, keepdims, correction)), x)


def _canon_correction(types, axis, keepdims, correction, unbiased=None):
    return {"axis": axis, "keepdims": keepdims, "correction": correction if unbiased is None else int(unbiased)}


for _op in (var, std):
    _op.canon(_canon_correction)
    _op.named(lambda arrays, **attrs: ("correction",))


@composite(functional="nn", autocast="high")
def logsumexp(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))), without overflow: the largest element is taken out first. -inf where there are none."""
    given = to_float(inp)
    x = widened(given)
    axes = normalize_axes(axis, len(x.shape))
    if no_elements(x.shape, axes):
        return narrowed(lookup("log")(sum_(lookup("exp")(x), axes, keepdims)), given)
    m = max_(x, axes, True).detach()
    finite = lookup("where")(lookup("isfinite")(m), m, lookup("zeros_like")(m))
    s = narrowed(lookup("add")(lookup("log")(sum_(lookup("exp")(sub(x, finite)), axes, True)), finite), given)
    return s if keepdims else reshape(s, _reduced_shape(x.shape, axes, False))


for _op, _f in (
    (sum_, np.sum),
    (mean, np.mean),
    (prod, np.prod),
    (max_, np.max),
    (min_, np.min),
    (all_, np.all),
    (any_, np.any),
):
    _op.reference(lambda x, axis=None, keepdims=False, f=_f: f(x, axis=axis, keepdims=keepdims))
    _op.cases(
        Case(lambda r: (r.uniform(-2, 2, (3, 5)),), {"axis": 1}),
        Case(lambda r: (r.uniform(-2, 2, (4, 3, 17)),), {"axis": (0, 2), "keepdims": True}),
        Case(lambda r: (r.uniform(-2, 2, (6, 4)),)),
        Case(lambda r: (r.uniform(-2, 2, (33, 4)),), {"axis": 0}),
    )

for _op in (sum_, prod, all_, any_, mean):
    _op.cases(Case(lambda r: (np.zeros((0, 3)),), {"axis": 1}), Case(lambda r: (np.full((), 1.5),)))
for _op in (sum_, prod, all_, any_):
    _op.cases(Case(lambda r: (np.zeros((0, 3)),), {"axis": 0}))
for _op in (max_, min_):
    _op.cases(Case(lambda r: (np.zeros((0, 3)),), {"axis": 1}), Case(lambda r: (np.full((1, 1), 1.5),), {"axis": (0, 1)}))
sum_.cases(Case(lambda r: (r.uniform(-2, 2, (3, 5000)),), {"axis": 1}))
for _op, _f in ((argmax, np.argmax), (argmin, np.argmin)):
    _op.reference(lambda x, axis=None, keepdims=False, f=_f: f(x, axis=axis, keepdims=keepdims))
    _op.cases(
        Case(lambda r: (r.integers(-3, 4, (4, 37)) * 0.5,), {"axis": 1}, grad=False),
        Case(lambda r: (r.integers(-3, 4, (19, 4)) * 0.5,), {"axis": 0, "keepdims": True}, grad=False),
        Case(lambda r: (r.uniform(-2, 2, (3, 4, 5)),), grad=False),
    )
extent_op.reference(lambda n, dtype: np.asarray(n, dtype.numpy))
extent_op.cases(*(Case(lambda r: (), {"n": 7, "dtype": d}, grad=False) for d in (float32, float16)))


def _np_sum_to(x, shape):
    lead = x.ndim - len(shape)
    x = x.sum(tuple(range(lead)))
    return x.sum(tuple(i for i, d in enumerate(shape) if d == 1), keepdims=True)


sum_to.reference(_np_sum_to)
sum_to.cases(
    Case(lambda r: (r.uniform(-2, 2, (2, 3, 4)),), {"shape": (3, 1)}),
    Case(lambda r: (r.uniform(-2, 2, (2, 3, 4)),), {"shape": ()}),
    Case(lambda r: (r.uniform(-2, 2, (2, 3)),), {"shape": (2, 3)}),
)


def _np_logsumexp(x, axis=None, keepdims=False):
    m = x.max(axis, keepdims=True)
    m = np.where(np.isfinite(m), m, 0)
    with np.errstate(divide="ignore"):
        return (
            (np.log(np.exp(x - m).sum(axis, keepdims=True)) + m)
            if keepdims
            else (np.log(np.exp(x - m).sum(axis)) + m.squeeze(axis))
        )


for _op in (var, std, logsumexp):
    _op.cases(
        Case(lambda r: (r.uniform(-2, 2, (3, 5)),), {"axis": 1}),
        Case(lambda r: (r.uniform(-2, 2, (4, 3, 17)),), {"axis": (0, 2), "keepdims": True}),
        Case(lambda r: (r.uniform(-2, 2, (6, 4)),)),
    )
for _op, _f in ((var, np.var), (std, np.std)):
    _op.reference(
        lambda x, axis=None, keepdims=False, correction=0, unbiased=None, f=_f: f(
            x, axis=axis, keepdims=keepdims, ddof=correction if unbiased is None else int(unbiased)
        )
    )
    _op.cases(Case(lambda r: (r.uniform(-2, 2, (4, 3, 17)),), {"axis": (0, 2), "correction": 1}))
logsumexp.reference(_np_logsumexp)
logsumexp.cases(Case(lambda r: (np.array([[-np.inf, -np.inf], [0.0, -np.inf], [1e4, 1e4]]),), {"axis": 1}, grad=False))
