"""What ops mean for complex numbers: arithmetic, comparisons, sums, products, and everything that moves elements.

Each rule is a function over ops on real and imaginary parts, registered with the op (`Op.complex`). Functions of mathematics are in
`complex_functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tengen.base.dtype import DType, bool_, float32, promote
from tengen.base.errors import DTypeError, Undecided
from tengen.ops import contract, conv, creation, elementwise, indexing, joining, logic, ordering, reduce, shape, views
from tengen.ops.batching import again
from tengen.ops.complex_numbers import complex_, imag_part, real_part
from tengen.ops.define import Op, dispatch, lookup
from tengen.ops.elementwise import abs, add, astype, div, mul, neg, sub, where
from tengen.ops.float_parts import hypot
from tengen.ops.logic import equal, isfinite, isinf, isnan, logical_and, logical_or, not_equal


def parts(x: Any, whole: bool = False) -> tuple[Any, Any]:
    """(real part, imaginary part) of a tensor; that of a real one is 0, a number, or of x's shape where it has to be `whole`."""
    if x.dtype.is_complex:
        return real_part(x), imag_part(x)
    zero = dispatch.scalar(0, x.dtype if x.dtype.is_float else float32)
    return x, shape.broadcast_to(zero, x.shape) if whole else zero


def promoted(xs: Sequence[Any]) -> DType:
    """The complex dtype of what is computed from some tensors, at least one of them complex."""
    d = xs[0].dtype
    for x in xs[1:]:
        d = promote(d, x.dtype)
    return d


def all_parts(*xs: Any, whole: bool = False) -> list[tuple[Any, Any]]:
    """The parts of each tensor, in the dtype of the parts of what is computed from all of them."""
    d = promoted(xs).part
    cast = lambda v: v if v.dtype is d else astype(v, d)
    return [tuple(map(cast, parts(x, whole))) for x in xs]


# ---- what treats both parts alike --------------------------------------------------------------------------------------


def _by_parts(op: Op, values: Callable[[int], Sequence[int]]) -> None:
    """The rule of an op that is linear over the reals, as all that only moves elements is: the results' parts are the results of the
    operands' parts. values: from the number of operands to the places of those that are values, not indices or conditions."""

    @op.complex
    def _(*xs: Any, **attrs: Any) -> Any:
        there = [i for i in values(len(xs)) if xs[i] is not None]
        if odd := [x for i, x in enumerate(xs) if i not in there and x is not None and x.dtype.is_complex]:
            raise DTypeError(f"takes no complex numbers for an index or a condition, got {odd[0]._layout.type!r}")
        attrs = {k: a.part if isinstance(a, DType) else a for k, a in attrs.items()}
        pairs = dict(zip(there, all_parts(*(xs[i] for i in there), whole=op.kind != "elementwise")))
        both = [again(op, [pairs[i][part] if i in pairs else x for i, x in enumerate(xs)], attrs) for part in (0, 1)]
        if isinstance(both[0], tuple):
            return tuple(map(complex_, *both))
        return complex_(*both)


_every = range
for _op in (
    add, sub, neg, elementwise.copy, joining.concat, shape.slice_grad, views.on_diagonal, views.windows_grad, creation.fill,
    creation.triangle, indexing.set_slice, reduce.sum_, reduce.mean, reduce.sum_to, ordering.cumsum, creation.even_steps,
    elementwise.round,
):  # fmt: skip
    _by_parts(_op, _every)
_by_parts(where, lambda n: (1, 2))
_by_parts(indexing.gather, lambda n: (0,))
_by_parts(indexing.index, lambda n: (n - 1,))
_by_parts(indexing.index_put, lambda n: (n - 2, n - 1))
_by_parts(indexing.index_grad, lambda n: (n - 2, n - 1))


@indexing.scatter.complex
def _(inp, index, source, axis, mode):
    if mode not in ("set", "add"):
        raise DTypeError(f"mode {mode!r} has no meaning for complex numbers here; help: 'set' or 'add'")
    pairs = all_parts(inp, source, whole=True)
    return complex_(*(indexing.scatter(x, axis, index, s, mode) for x, s in zip(*pairs)))


@joining.pad.complex
def _(src, **attrs):
    re, im = parts(src)
    return complex_(again(joining.pad, [re], attrs), again(joining.pad, [im], attrs, constant_value=0.0))


@elementwise.astype.complex
def _(x, dtype):
    if dtype.is_complex:
        re, im = (p if p.dtype is dtype.part else astype(p, dtype.part) for p in parts(x))
        return complex_(re, im)
    if dtype is bool_:
        re, im = parts(x)
        return logical_or(not_equal(re, 0), not_equal(im, 0))
    raise DTypeError(f"{x._layout.type!r} as {dtype} would lose the imaginary parts; help: real(x).astype('{dtype}')")


@reduce.extent_op.complex
def _(n, dtype):
    return complex_(reduce.extent_op(n, dtype.part), dispatch.scalar(0, dtype.part))


# ---- arithmetic --------------------------------------------------------------------------------------------------------


@mul.complex
def _(x, y):
    (a, b), (c, d) = all_parts(x, y)
    return complex_(sub(mul(a, c), mul(b, d)), add(mul(a, d), mul(b, c)))


@elementwise.fma.complex
def _(x, y, z):
    return add(mul(x, y), z)


@elementwise.square.complex
def _(x):
    return mul(x, x)


@abs.complex
def _(x):
    return hypot(real_part(x), imag_part(x))


@elementwise.sign.complex
def _(x):
    """x / |x|; 0 of 0."""
    re, im = parts(x)
    length = hypot(re, im)
    zero = equal(length, 0)
    safe = where(zero, 1, length)
    return complex_(where(zero, 0, div(re, safe)), where(zero, 0, div(im, safe)))


LARGE_DIVISORS = {"float32": (2.0**126, 2.0**-80, 2.0**48), "float64": (2.0**1022, 2.0**-915, 2.0**106)}


@div.complex
def _(x, y):
    """Smith's method, over numbers that were scaled by powers of two so that nothing overflows or vanishes on the way (Baudin and
    Smith, "A robust complex division in Scilab", 2012). A finite number over an infinite one is 0, one over 0 is infinite, or NaN."""
    (a, b), (c, d) = all_parts(x, y)
    large, small, up = LARGE_DIVISORS[c.dtype.name]
    ab, cd = (lookup("maximum")(abs(p), abs(q)) for p, q in ((a, b), (c, d)))
    one = dispatch.scalar(1, ab.dtype)
    by, below = (where(lookup("greater")(size, large), 0.25, where(lookup("less")(size, small), up, one)) for size in (ab, cd))
    u, v, p, q = mul(a, by), mul(b, by), mul(c, below), mul(d, below)
    turned = lookup("less")(abs(p), abs(q))
    most, least = where(turned, q, p), where(turned, p, q)
    zero = equal(cd, 0)
    ratio = where(zero, 0, div(least, where(zero, 1, most)))
    under = add(most, mul(least, ratio))
    first, second = where(turned, v, u), where(turned, u, v)  # re = (first + second r) / under
    times = lambda n: where(equal(ratio, 0), mul(div(n, where(zero, 1, most)), least), mul(n, ratio))  # r may vanish, n r not
    re = div(add(first, times(second)), under)
    im = div(where(turned, sub(times(first), second), sub(second, times(first))), under)
    scale = div(below, by)
    re, im = mul(re, scale), mul(im, scale)
    far = logical_and(logical_or(isinf(c), isinf(d)), logical_and(isfinite(a), isfinite(b)))
    nowhere = logical_or(isnan(c), isnan(d))
    far = logical_and(far, lookup("logical_not")(nowhere))
    return complex_(where(far, 0, where(zero, div(a, abs(c)), re)), where(far, 0, where(zero, div(b, abs(c)), im)))


@div.slope
def _(x, y):
    return (lambda: elementwise.reciprocal(y)), (lambda: neg(div(div(x, y), y)))


@elementwise.reciprocal.complex
def _(x):
    return div(dispatch.scalar(1, x.dtype), x)


@elementwise.reciprocal.slope
def _(x):
    r = elementwise.reciprocal(x)
    return neg(mul(r, r))


# ---- comparisons and tests ---------------------------------------------------------------------------------------------


@equal.complex
def _(x, y):
    (a, b), (c, d) = all_parts(x, y)
    return logical_and(equal(a, c), equal(b, d))


@not_equal.complex
def _(x, y):
    (a, b), (c, d) = all_parts(x, y)
    return logical_or(not_equal(a, c), not_equal(b, d))


for _op, _join in ((isnan, logical_or), (isinf, logical_or), (isfinite, logical_and)):
    _op.complex(lambda x, op=_op, join=_join: join(op(real_part(x)), op(imag_part(x))))
for _op in (logic.logical_and, logic.logical_or, logic.logical_xor, logic.logical_not):
    _op.complex(lambda *xs, op=_op: op(*(astype(x, bool_) if x.dtype.is_complex else x for x in xs)))
for _op in (reduce.all_, reduce.any_):
    _op.complex(lambda x, op=_op, **attrs: again(op, [astype(x, bool_)], attrs))


# ---- products ----------------------------------------------------------------------------------------------------------


def _bilinear(op: Op) -> None:
    """The rule of an op that is linear in each of its first two operands: four products of parts, two where one operand is real. Of
    further operands only the type is used."""

    @op.complex
    def _(x: Any, y: Any, *more: Any, **attrs: Any) -> Any:
        more = tuple(real_part(m) if m is not None and m.dtype.is_complex else m for m in more)
        (a, b), (c, d) = all_parts(x, y, whole=True)
        product = lambda p, q: again(op, [p, q, *more], attrs)
        if not x.dtype.is_complex:
            return complex_(product(a, c), product(a, d))
        if not y.dtype.is_complex:
            return complex_(product(a, c), product(b, c))
        return complex_(sub(product(a, c), product(b, d)), add(product(a, d), product(b, c)))


_bilinear(contract.matmul)
_bilinear(conv.conv)
_bilinear(conv.conv_transposed)


for _op in (contract.linear, conv.conv_bias):  # made of these products: their bodies hold
    _op.complex(_op.fn)


# ---- products of many --------------------------------------------------------------------------------------------------


def _product(z: Any, axis: int, keepdims: bool) -> Any:
    """The product along an axis: of neighbours, of their products, and so on, the last one alone where their number is odd."""
    n = z.shape[axis]
    if not isinstance(n, int):
        raise Undecided("how often neighbours are multiplied follows from their number")
    while n > 1:
        pairs, rest = n // 2, n % 2
        first, second = (_stepped(z, axis, start, pairs, 2) for start in (0, 1))
        made = mul(first, second)
        z = joining.concat([made, _stepped(z, axis, n - 1, 1, 1)], axis) if rest else made
        n = pairs + rest
    if n == 0:
        lengths = tuple(1 if i == axis else d for i, d in enumerate(z.shape))
        z = shape.broadcast_to(dispatch.scalar(1, z.dtype), lengths)
    return z if keepdims else shape.reshape(z, tuple(d for i, d in enumerate(z.shape) if i != axis))


def _stepped(z: Any, axis: int, start: int, size: int, step: int) -> Any:
    starts, sizes, steps = [0] * z.ndim, list(z.shape), [1] * z.ndim
    starts[axis], sizes[axis], steps[axis] = start, size, step
    return shape.strided_slice(z, tuple(starts), tuple(sizes), tuple(steps))


@reduce.prod.complex
def _(x, axes, keepdims):
    for axis in reversed(axes):
        x = _product(x, axis, keepdims)
    return x


@ordering.cumprod.complex
def _(x, axis, exclusive, reverse):
    """Products of the last 2, 4, 8 ... elements, each of two of half as many."""
    if not x.ndim:
        return lookup("ones_like")(x) if exclusive else x
    x = views.flip(x, axis) if reverse else x
    n = x.shape[axis]
    if not isinstance(n, int):
        raise Undecided("how often elements are multiplied follows from their number")
    ones = lambda k: shape.broadcast_to(dispatch.scalar(1, x.dtype), tuple(k if i == axis else d for i, d in enumerate(x.shape)))
    if exclusive and n:
        x = joining.concat([ones(1), _stepped(x, axis, 0, n - 1, 1)], axis)
    k = 1
    while k < n:
        x = mul(x, joining.concat([ones(k), _stepped(x, axis, 0, n - k, 1)], axis))
        k *= 2
    return views.flip(x, axis) if reverse else x


@reduce.var.complex
def _(inp, axis, keepdims, correction):
    away = sub(inp, reduce.mean(inp, axis, True))
    re, im = parts(away)
    return reduce.mean_of(add(mul(re, re), mul(im, im)), axis, keepdims, correction)


@reduce.std.complex
def _(inp, axis, keepdims, correction):
    return elementwise.sqrt(reduce.var(inp, axis, keepdims, correction))
