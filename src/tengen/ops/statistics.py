"""Medians, quantiles, histograms, distinct values, and what PyTorch and NumPy users reach for besides: compositions of other ops.

They are loaded with `tengen.functional`, and no graph holds them, so that `import tengen` need not define them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from tengen.base.dtype import bool_, float32, float64, int64, promote
from tengen.base.errors import ArgumentError, ShapeError, TraceError
from tengen.loops.lang import as_int
from tengen.ops.attributes import Count, Positive
from tengen.ops.define import Case, dispatch, lookup, shorthand
from tengen.ops.indexing import gather, index, scatter, searchsorted
from tengen.ops.masks import is_concrete, true_positions
from tengen.ops.ordering import argsort, sort
from tengen.ops.reduce import all_, extent, max_, min_, sum_
from tengen.ops.shape import normalize_axes, permute, reshape
from tengen.ops.widths import rounded_once

if TYPE_CHECKING:
    from tengen.tensor import Tensor


INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")  # between neighbours


def _float(x: Tensor) -> Tensor:
    return x if x.dtype.is_inexact else lookup("astype")(x, float32)


def _lines(x: Tensor, axis: int | Sequence[int] | None) -> tuple[Tensor, tuple[int, ...]]:
    """x with the axes to be reduced as its last one, and its shape with extents of 1 in their places."""
    axes = normalize_axes(axis, x.ndim)
    kept = [i for i in range(x.ndim) if i not in axes]
    moved = permute(x, (*kept, *axes)) if axes else x
    return reshape(moved, (*(x.shape[i] for i in kept), -1)), tuple(1 if i in axes else d for i, d in enumerate(x.shape))


@shorthand(functional="math")
def quantile(
    inp: Tensor, q: float | Sequence[float], axis: int | Sequence[int] | None = None, keepdims: bool = False,
    interpolation: Literal["linear", "lower", "higher", "midpoint", "nearest"] = "linear",
) -> Tensor:
    """Values that a share q of the elements along `axis` (all axes by default) is not greater than.

    Args:
        q: a number from 0 to 1, or several, which make the first axis of the result. interpolation: between neighbours "linear", "lower",
            "higher", "midpoint" or "nearest".

    Returns: floats; integers give float32. NaN where an element is NaN.
    Errors: ShapeError where there are no elements, ArgumentError for a share outside of 0 to 1.

    >>> from tengen import Tensor, functional as F
    >>> F.quantile(Tensor([1.0, 2.0, 4.0]), [0.5, 0.75]).tolist()
    [2.0, 3.0]
    """
    several = np.ndim(q) > 0
    shares = [float(v) for v in np.atleast_1d(np.asarray(q)).tolist()]
    if not all(0 <= s <= 1 for s in shares):
        raise ArgumentError(f"quantile: q={q!r} must be numbers from 0 to 1")
    x = _float(dispatch.tensor(inp))
    lines, kept = _lines(x, axis)
    n = as_int(lines.shape[-1])
    if n == 0:
        raise ShapeError(f"the quantile of no elements is not defined: {x.shape} along {axis}")
    if interpolation not in INTERPOLATIONS:
        raise ArgumentError(f"quantile: interpolation={interpolation!r} must be {', '.join(INTERPOLATIONS[:-1])} or {INTERPOLATIONS[-1]}")
    ordered = sort(lines, False, -1)[0]
    broken = lookup("isnan")(ordered[..., -1])
    found = []
    for s in shares:
        y = _between(ordered, s, interpolation) if n is None else _at(ordered, s * (n - 1), interpolation)
        y = lookup("where")(broken, float("nan"), y)
        found.append(reshape(y, kept) if keepdims else y)
    return lookup("stack")(found, 0) if several else found[0]


def _at(ordered: Tensor, at: float, interpolation: str) -> Tensor:
    """What lies at a position along the last axis."""
    low, part = int(at), at - int(at)
    part = {"linear": part, "higher": float(part > 0), "midpoint": 0.5 * (part > 0)}.get(interpolation, 0.0)
    if interpolation == "nearest":
        low = round(at)  # halves to even
    y = ordered[..., low] if part < 1 else ordered[..., low + 1]
    return y + (ordered[..., low + 1] - y) * part if 0 < part < 1 else y


def _between(ordered: Tensor, share: float, interpolation: str) -> Tensor:
    """What lies at a share of the last axis, whose extent each run knows: with the bits of `_at` for that extent."""
    where, astype, last = lookup("where"), lookup("astype"), ordered.shape[-1] - 1
    at = extent(last, float64) * share
    low = lookup("round")(at) if interpolation == "nearest" else lookup("floor")(at)
    part = at - low
    position = lambda i: index([astype(i, int64)], ordered, (ordered.ndim - 1,), ordered.ndim - 1)
    y = position(low)
    if interpolation in ("lower", "nearest"):
        return y
    above = position(lookup("minimum")(low + 1, extent(last, float64)))
    if interpolation == "higher":
        return where(part > 0, above, y)
    part = astype(part, ordered.dtype) if interpolation == "linear" else 0.5
    return where(at > low, y + (above - y) * part, y)


quantile.reference(
    lambda x, q, axis=None, keepdims=False, interpolation="linear": np.quantile(x, q, axis=axis, keepdims=keepdims, method=interpolation)
)
quantile.cases(
    Case(lambda r: (r.permutation(35).reshape(5, 7) / 3.0,), {"q": 0.3, "axis": 1}),
    Case(lambda r: (r.permutation(24).reshape(2, 3, 4) / 3.0,), {"q": (0.25, 1.0, 0.0), "axis": (0, 2), "keepdims": True}),
    Case(lambda r: (r.permutation(9) / 3.0,), {"q": 0.4, "interpolation": "midpoint"}),
)


@shorthand(functional="math")
def median(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The element in the middle along `axis` (of all by default); of an even number the mean of both, as in NumPy (PyTorch gives the
    lower one). Integers give float32. NaN where an element is NaN.

    >>> from tengen import Tensor, functional as F
    >>> F.median(Tensor([3.0, 1.0, 2.0, 10.0])).item()
    2.5
    """
    return quantile.call(inp, 0.5, axis, keepdims)


median.reference(lambda x, axis=None, keepdims=False: np.median(x, axis=axis, keepdims=keepdims))
median.cases(Case(lambda r: (r.permutation(40).reshape(5, 8) / 3.0,), {"axis": 1}), Case(lambda r: (r.permutation(15).reshape(3, 5) / 3.0,)))


def _places_in_order(x: Tensor) -> Tensor:
    """The positions that sort a vector; equal elements keep their order."""
    if not x.dtype.is_complex:
        return argsort(x, False, 0)
    first = argsort(lookup("imag_part")(x), False, 0)
    return gather(first, 0, argsort(gather(lookup("real_part")(x), 0, first), False, 0))


@shorthand(functional="math")
def unique(
    inp: Tensor, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, equal_nan: bool = True
) -> Tensor | tuple[Tensor, ...]:
    """The distinct elements in ascending order (complex ones by their real parts, then the imaginary ones), as a vector. Not inside a
    trace.

    Args:
        return_index: also the position of each one's first occurrence in the flattened tensor. return_inverse: also, in inp's shape, which
            of them each element is. return_counts: also how often each occurs. All int64. equal_nan: all NaNs count as one.

    >>> from tengen import Tensor, functional as F
    >>> values, counts = F.unique(Tensor([3, 1, 3]), return_counts=True)
    >>> values.tolist(), counts.tolist()
    ([1, 3], [1, 2])
    """
    x = dispatch.tensor(inp)
    flat = reshape(x, (-1,))
    n = int(flat.shape[0])
    numbers = flat if x.dtype.kind != "b" else lookup("astype")(flat, "uint8")
    places = _places_in_order(numbers)
    ordered = index([places], numbers, (0,), 0) if n else numbers
    first = lookup("ones")((n,), bool_)
    if n > 1:
        same = lookup("equal")(ordered[1:], ordered[:-1])
        if x.dtype.is_inexact and equal_nan:
            same = lookup("logical_or")(same, lookup("logical_and")(lookup("isnan")(ordered[1:]), lookup("isnan")(ordered[:-1])))
        first = lookup("concat")([first[:1], lookup("logical_not")(same)], 0)
    at = true_positions(first)
    values = index([at], flat[:0] if not n else index([places], flat, (0,), 0), (0,), 0)
    out = [values]
    if return_index:
        out.append(index([at], places, (0,), 0))
    if return_inverse:
        ranks = lookup("cumsum")(lookup("astype")(first, int64), 0) - 1
        out.append(reshape(scatter(lookup("zeros")((n,), int64), 0, places, ranks), x.shape))
    if return_counts:
        ends = lookup("concat")([at[1:], lookup("full")((min(n, 1),), n, int64)], 0)
        out.append(ends - at)
    return out[0] if len(out) == 1 else tuple(out)


unique.reference(
    lambda x, return_index=False, return_inverse=False, return_counts=False, equal_nan=True: np.unique(
        x, return_index, return_inverse, return_counts, equal_nan=equal_nan
    )
)
unique.cases(
    Case(lambda r: (r.integers(0, 6, (5, 7)),), {"return_index": True, "return_inverse": True, "return_counts": True}, grad=False),
    Case(lambda r: (r.integers(0, 6, 9),), grad=False),
)


@shorthand(functional="math")
def histogram(inp: Tensor, bins: Positive = 10, range: Sequence[float] | None = None, density: bool = False) -> tuple[Tensor, Tensor]:
    """(counts, edges): how many elements lie in each of `bins` parts of equal width. A part begins with its lower edge; the last one has
    its upper edge too. NaNs, and what lies outside of `range`, are not counted.

    Args: range: (least, greatest) edge; default: the least and the greatest element that is no NaN (edges are NaN where that is
        an infinity). density: counts divided by their sum and by the width of a part, as floats; else int64.
    Returns: counts (bins), edges (bins + 1), in inp's dtype, of integers float32.
    Errors: ArgumentError for bins or a range that it cannot have

    >>> from tengen import Tensor, functional as F
    >>> counts, edges = F.histogram(Tensor([0.0, 1.0, 1.5, 4.0]), 2)
    >>> counts.tolist(), edges.tolist()
    ([3, 1], [0.0, 2.0, 4.0])
    """
    x = reshape(_float(dispatch.tensor(inp)), (-1,))
    if bins < 1:
        raise ArgumentError(f"histogram: bins={bins} must be at least 1")
    if range is None:
        if not int(x.shape[0]):
            range = (0.0, 1.0)
        else:
            number = lookup("equal")(x, x)
            low, high = min_(lookup("where")(number, x, math.inf), None, False), max_(lookup("where")(number, x, -math.inf), None, False)
            flat = lookup("equal")(low, high)  # as NumPy: half to each side
            low, high = lookup("where")(flat, low - 0.5, low), lookup("where")(flat, high + 0.5, high)
    if range is not None:
        if len(range) != 2 or not float(range[0]) < float(range[1]):
            raise ArgumentError(f"histogram: range={range!r} must be two numbers, ascending")
        low, high = (lookup("full")((), float(v), x.dtype) for v in range)
    steps = lookup("arange")(0, bins + 1, 1, x.dtype)
    edges = lookup("where")(lookup("equal")(steps, bins), high, low + (high - low) * (steps / bins))
    place = searchsorted(edges, x, True) - 1
    place = lookup("where")(lookup("equal")(x, high), bins - 1, place)
    inside = lookup("logical_and")(lookup("greater_equal")(x, low), lookup("less_equal")(x, high))
    place = lookup("where")(inside, place, bins)  # the last of the counts is thrown away
    counts = scatter(lookup("zeros")((bins + 1,), int64), 0, place, lookup("ones_like")(place), "add")[:bins]
    if density:
        counts = lookup("astype")(counts, x.dtype) / (lookup("astype")(sum_(counts, None, False), x.dtype) * (edges[1:] - edges[:-1]))
    return counts, edges


histogram.reference(lambda x, bins=10, range=None, density=False: np.histogram(x + 0.0, bins, range, density=density))
histogram.cases(
    Case(lambda r: (r.integers(0, 64, (9, 7)) / 8.0,), {"bins": 8, "range": (0.0, 8.0)}, grad=False),
    Case(lambda r: (np.append(r.integers(0, 64, 40) / 8.0, [0.0, 8.0]),), {"bins": 4, "density": True}, grad=False),
)


@shorthand(functional="math")
def bincount(inp: Tensor, weights: Tensor | None = None, minlength: Count = 0) -> Tensor:
    """How often each of the integers 0, 1, ... occurs in a vector, as int64; with weights their sums. Not inside a trace: how long the
    result is depends on the largest.

    Errors: ShapeError for what is no vector of integers and for weights of another shape, ArgumentError for numbers below 0, TraceError
        inside of a trace

    >>> from tengen import Tensor, functional as F
    >>> F.bincount(Tensor([0, 2, 2])).tolist()
    [1, 0, 2]
    """
    x = dispatch.tensor(inp)
    if x.ndim != 1 or x.dtype.kind not in "iu":
        raise ShapeError(f"bincount takes a vector of integers, got {x.dtype}{list(x.shape)}")
    if not is_concrete(x):
        raise TraceError("bincount inside a trace: how long its result is is known only when the program runs; help: scatter_add into zeros")
    each = lookup("ones")(x.shape, int64) if weights is None else dispatch.tensor(weights)
    if each.shape != x.shape:  # looked at before memory for the result is taken, which may be much
        raise ShapeError(f"bincount takes a weight for each of {x.size} integers, got weights of shape {list(each.shape)}")
    n = max(minlength, int(max_(x, None, False).item()) + 1 if x.size else 0)
    if x.size and min_(x, None, False).item() < 0:
        raise ArgumentError("bincount takes integers >= 0")
    return scatter(lookup("zeros")((n,), each.dtype), 0, x, each, "add")


bincount.reference(lambda x, weights=None, minlength=0: np.bincount(x, weights, minlength))
bincount.cases(
    Case(lambda r: (r.integers(0, 9, 40), None), {"minlength": 12}, grad=False),
    Case(lambda r: (r.integers(0, 9, 40), r.uniform(-1, 1, 40)), grad=False),
)


@shorthand(functional="tensor")
def scatter_add(inp: Tensor, axis: int, index: Tensor, source: Tensor) -> Tensor:
    """`scatter` in mode "add": a copy of inp to whose elements [..., index[..., i, ...], ...] along `axis` source[..., i, ...] is added. A sum
    of bools is true where one of them is.

    >>> from tengen import Tensor, functional as F
    >>> F.scatter_add(Tensor([0.0, 1.0]), 0, Tensor([1, 1]), Tensor([5.0, 6.0])).tolist()
    [0.0, 12.0]
    """
    x, s = dispatch.tensor(inp), dispatch.tensor(source)
    if x.dtype is bool_ and s.dtype is bool_:
        return lookup("astype")(scatter(lookup("astype")(x, "uint8"), axis, index, lookup("astype")(s, "uint8"), "max"), bool_)
    return scatter(x, axis, index, s, "add")


@shorthand(functional="tensor")
def take_along_axis(inp: Tensor, indices: Tensor, axis: int) -> Tensor:
    """`gather`, with NumPy's order of arguments: out[..., i, ...] = inp[..., indices[..., i, ...], ...] along `axis`.

    >>> from tengen import Tensor, functional as F
    >>> F.take_along_axis(Tensor([[1, 2], [3, 4]]), Tensor([[1], [0]]), 1).tolist()
    [[2], [3]]
    """
    return gather(inp, axis, indices)


@shorthand(functional="elemwise")
@rounded_once
def lerp(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    """start + weight (end - start): the point at a share `weight` of the way. The weight may be a number.

    >>> from tengen import Tensor, functional as F
    >>> F.lerp(Tensor([0.0, 10.0]), Tensor([4.0, 20.0]), 0.25).tolist()
    [1.0, 12.5]
    """
    a, b = dispatch.tensor(start), dispatch.tensor(end)
    return a + weight * (b - a)


@shorthand(functional="elemwise")
def nan_to_num(x: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """x with other numbers for what is none: `nan` for NaNs; for infinities the given ones, else the largest and the least of the dtype.
    Of complex numbers, each part by itself.

    >>> from tengen import Tensor, functional as F
    >>> F.nan_to_num(Tensor([float("nan"), 1.0, float("-inf")]), neginf=-9.0).tolist()
    [0.0, 1.0, -9.0]
    """
    x = dispatch.tensor(x)
    if x.dtype.is_complex:
        return lookup("complex")(*(nan_to_num(lookup(part)(x), nan, posinf, neginf) for part in ("real_part", "imag_part")))
    if not x.dtype.is_float:
        return lookup("copy")(x)
    most = float(_MOST[x.dtype.name])
    where, equal = lookup("where"), lookup("equal")
    y = where(equal(x, float("inf")), most if posinf is None else float(posinf), x)
    y = where(equal(y, float("-inf")), -most if neginf is None else float(neginf), y)
    return where(lookup("isnan")(x), float(nan), y)


_MOST = {
    "float16": 65504.0, "bfloat16": float.fromhex("0x1.fep127"), "float32": float(np.finfo(np.float32).max),
    "float64": float(np.finfo(np.float64).max),
}  # fmt: skip


@shorthand(functional="math")
def diff(inp: Tensor, n: Count = 1, axis: int = -1) -> Tensor:
    """Differences of neighbours along `axis`, n times over.

    >>> from tengen import Tensor, functional as F
    >>> F.diff(Tensor([1.0, 4.0, 9.0])).tolist()
    [3.0, 5.0]
    """
    x = dispatch.tensor(inp)
    (a,) = normalize_axes(axis, x.ndim)
    before = (slice(None),) * a
    for _ in range(n):
        x = x[(*before, slice(1, None))] - x[(*before, slice(None, -1))]
    return x


diff.reference(lambda x, n=1, axis=-1: np.diff(x, n, axis))
diff.cases(Case(lambda r: (r.uniform(-1, 1, (3, 5)),)), Case(lambda r: (r.uniform(-1, 1, (5, 3)),), {"n": 2, "axis": 0}))


@shorthand(functional="math")
def count_nonzero(inp: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """How many elements along `axis` (of all by default) are not 0, as int64.

    >>> from tengen import Tensor, functional as F
    >>> F.count_nonzero(Tensor([[0, 5], [6, 7]]), axis=1).tolist()
    [1, 2]
    """
    return sum_(lookup("not_equal")(inp, 0), axis, keepdims)


@shorthand(functional="math")
def isclose(inp: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Where |inp - other| <= atol + rtol |other|, or both are equal (infinities too), or with `equal_nan` both are NaN.

    >>> from tengen import Tensor, functional as F
    >>> F.isclose(Tensor([1.0, 2.0]), Tensor([1.0 + 1e-7, 2.1])).tolist()
    [True, False]
    """
    a, b = dispatch.tensor(inp), dispatch.tensor(other)
    d = promote(a.dtype, b.dtype)
    a, b = (_float(lookup("astype")(t, d)) for t in (a, b))
    either, both = lookup("logical_or"), lookup("logical_and")
    near = both(lookup("less_equal")(lookup("abs")(a - b), atol + rtol * lookup("abs")(b)), lookup("isfinite")(b))
    near = either(near, lookup("equal")(a, b))
    return either(near, both(lookup("isnan")(a), lookup("isnan")(b))) if equal_nan else near


@shorthand(functional="math")
def allclose(inp: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Whether all elements are close, see `isclose`: a 0-d bool tensor.

    >>> from tengen import Tensor, functional as F
    >>> bool(F.allclose(Tensor([1.0]), Tensor([1.0 + 1e-7])))
    True
    """
    return all_(isclose.call(inp, other, rtol, atol, equal_nan), None, False)
