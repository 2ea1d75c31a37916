"""Attention: softmax(q k^T) v as one op that keeps no matrix of scores (`kernels/attention/`), its gradient, and that of int8."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tengen import kernels
from tengen.base.dtype import bool_, float32, int8, promote
from tengen.base.errors import DTypeError, ShapeError, Undecided
from tengen.ir.types import Dim, TensorType
from tengen.kernels import numerics
from tengen.kernels.axes import memory_order
from tengen.loops.lang import as_int
from tengen.ops.attributes import Causal
from tengen.ops.contract import in_dtype, matmul
from tengen.ops.define import (
    Case,
    broadcast_shapes,
    check_floats,
    check_shape,
    composite,
    lookup,
    primitive,
    same_axes,
    same_extent,
)
from tengen.ops.elementwise import add, div, exp, mul, sub
from tengen.ops.quantized import fake_quantize, quantize_linear, straight_through
from tengen.ops.reduce import max_, sum_
from tengen.ops.shape import reshape
from tengen.ops.widths import rounded_once

if TYPE_CHECKING:
    from tengen.tensor import Tensor

MOST_KEYS = ((1 << 31) - 1) // (255 * 128)  # of which sums of products of uint8 and int8 fit int32



@primitive(autocast="low", whole_batch=True)
def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, scale: float | None = None, causal: Causal = "none"
) -> Tensor:
    """softmax(scale q k^T + mask) v. Returns (result, log-sum-exp of each query's scores).

    Shapes:   query (*G, T, D), key (*G, S, D), value (*G, S, E), mask (*G, T, S) -> (*G, T, E), (*G, T); leading axes and the
              mask are broadcast; D + E at most 1024
    Dtypes:   floats, promoted; float16 and bfloat16 are computed in float32. The mask: bool, true where a key is seen, or a
              float that is added to the scores. The log-sum-exp has the dtype that is computed in
    Args:
        scale: default 1 / sqrt(D). causal: "none", "upper_left" (query t sees keys 0..t) or "lower_right" (0..t + S - T: the
            last query sees all, as when keys of a cache come first).
    Returns:  a query that sees no key has the result 0 and the log-sum-exp inf
    Numerics: see `kernels.attention.forward.attention`: the bits of a row are a function of that query, its mask, the keys and the
        values, not of other queries, the batch, threads or target (docs/numerics.md)
    Source:   Dao et al., arXiv 2205.14135
    """


def _scaled(types, scale, causal):
    """The scale as a number."""
    if scale is None:
        d = types[0].shape[-1] if types[0].ndim else 1
        if not isinstance(d, int):
            raise Undecided(f"the scale is a function of {d}")
        scale = max(d, 1) ** -0.5
    return {"scale": float(scale), "causal": causal}


attention.canon(_scaled)


@attention.infer
def _(q, k, v, mask, scale, causal):
    return _results(q, k, v, mask)


def _extents(q: TensorType, k: TensorType, v: TensorType) -> tuple[Dim, Dim, Dim]:
    """How many queries, keys and features of a result there are. Errors: ShapeError where the three do not fit each other, or are too wide."""
    if min(q.ndim, k.ndim, v.ndim) < 2:
        raise ShapeError("query, key and value need two axes at least: (..., positions, features)")
    (t, d), (s, d2), (s2, e) = (x.shape[-2:] for x in (q, k, v))
    for a, b, what in ((d, d2, "features of query and key"), (s, s2, "positions of key and value")):
        if not same_extent(a, b):
            raise ShapeError(f"{what} differ: {a} and {b}")
    most = numerics.ATTENTION_MOST_FEATURES
    if isinstance(d, int) and isinstance(e, int) and d + e > most:
        raise ShapeError(f"{d} and {e} features are more than {most}; help: F.scaled_dot_product_attention takes any")
    return t, s, e


def _results(q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None) -> tuple[TensorType, TensorType]:
    """The types of the result and of the log-sum-exp."""
    t, s, e = _extents(q, k, v)
    dtype = promote(promote(q.dtype, k.dtype), v.dtype)
    if not all(x.dtype.is_float for x in (q, k, v)) or not (mask is None or mask.dtype is bool_ or mask.dtype.is_float):
        raise DTypeError("takes floats, and a mask of bool or float; help: cast with .astype('float32')")
    lead = broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    if mask is not None and tuple(broadcast_shapes((*lead, t, s), mask.shape)) != (*lead, t, s):
        raise ShapeError(f"a mask of shape {mask.shape} does not fit scores of shape {(*lead, t, s)}")
    return TensorType((*lead, t, e), dtype), TensorType((*lead, t), dtype.compute)


@attention.layout
def _(arrays, out, **_):
    q, n = arrays[0], len(out.shape)
    if n != q.ndim or out.shape[:-1] != q.shape[:-1]:  # the log-sum-exp has an axis less
        return list(range(n))
    return rows_first(q, n)


def rows_first(a, n: int) -> list[int]:
    """The axes of `a` as they lie, but for the last one, which becomes dense."""
    return [*(i for i in memory_order(a) if i != n - 1), n - 1]


@attention.parts
def _(types, scale, causal):
    q, _, v, mask = types
    lead = broadcast_shapes(*(t.shape[:-2] for t in types[:3]))
    axes: list[list[int | None]] = [[*same_axes(t.shape[:-2], lead), None, None] for t in types[:3]]
    if causal == "none":  # else which keys a query sees is a matter of its number
        axes[0][-2] = len(lead)
    if mask is None:
        return [*axes, []]
    seen = same_axes(mask.shape, (*lead, q.shape[-2], v.shape[-2]))
    return [*axes, [a if a is not None and a < len(lead) + (causal == "none") else None for a in seen]]


attention.known(lambda arrays, **_: {arrays[0].shape[-1], arrays[2].shape[-1]})


@attention.lower
def _(lo, ins, outs, scale, causal):
    out, lse = outs
    lead, t, s = out.shape[:-2], out.shape[-2], ins[1].shape[-2]
    q, k, v = (in_dtype(lo, a, out.dtype) for a in ins[:3])
    q, k, v = (a.expand((*lead, *a.shape[-2:])) for a in (q, k, v))
    mask = None if ins[3] is None else ins[3].expand((*lead, t, s))
    kernels.attention.forward.attention(lo, q, k, v, mask, out, lse, scale, _offset(causal, t, s))


def _offset(causal: str, t, s):
    """How many keys the first query sees, less one; None for all."""
    return {"none": None, "upper_left": 0, "lower_right": s - t}[causal]


@attention.vjp
def _(g, query, key, value, mask, *, out, scale, causal):
    g, from_lse = (*g, None)[:2] if isinstance(g, tuple) else (g, None)
    y, lse = out
    if g is None:
        g = lookup("zeros_like")(y)
    empty = 0 in (as_int(query.shape[-1]), as_int(value.shape[-1]))  # no features, of which tiles could be made
    dq, dk, dv = (attention_grad_of_scores if empty else attention_grad)(g, from_lse, query, key, value, mask, y, lse, scale, causal)
    if mask is None or mask.dtype is bool_:
        return dq, dk, dv, None
    return dq, dk, dv, lambda: attention_mask_grad(g, from_lse, query, key, value, mask, y, lse, scale, causal)


@primitive
def attention_grad(
    grad: Tensor, grad_lse: Tensor | None, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, out: Tensor,
    lse: Tensor, scale: float, causal: Causal,
) -> Tensor:  # fmt: skip
    """The gradients of `attention` with respect to query, key and value, from its results, without a matrix of scores: the
    softmax is made again, chunk by chunk. Leading axes are those of `out`.

    Numerics: see `kernels.attention.backward.attention_grad`
    """


@attention_grad.infer
def _(grad, grad_lse, q, k, v, mask, out, lse, scale, causal):
    check_floats(grad, grad_lse, out, lse)
    y, sums = _results(q, k, v, mask)
    for what, x, wanted in (
        ("the result", out, y), ("its gradient", grad, y), ("the log-sum-exp", lse, sums), ("its gradient", grad_lse, sums),
    ):  # fmt: skip
        if x is not None:
            check_shape(what, x.shape, wanted.shape)
    return tuple(TensorType((*out.shape[:-2], *x.shape[-2:]), out.dtype) for x in (q, k, v))


attention_grad.known(lambda arrays, **_: {arrays[2].shape[-1], arrays[4].shape[-1]})


@attention_grad.layout
def _(arrays, out, **_):
    same = next((a for a in arrays[2:5] if a.shape == out.shape), None)
    return list(range(len(out.shape))) if same is None else rows_first(same, len(out.shape))


@attention_grad.lower
def _(lo, ins, outs, scale, causal):
    grad, grad_lse, q, k, v, mask, out, lse = ins
    lead, t, s = out.shape[:-2], q.shape[-2], k.shape[-2]
    q, k, v, grad = (in_dtype(lo, a, out.dtype) for a in (q, k, v, grad))
    inputs = [a.expand((*lead, *a.shape[-2:])) for a in (q, k, v)]
    mask = None if mask is None else mask.expand((*lead, t, s))
    kernels.attention.backward.attention_grad(lo, grad, grad_lse, inputs, mask, out, lse, outs, scale, _offset(causal, t, s))


@composite
@rounded_once
def attention_grad_of_scores(
    grad: Tensor, grad_lse: Tensor | None, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, out: Tensor,
    lse: Tensor, scale: float, causal: Causal,
) -> Tensor:  # fmt: skip
    """What `attention_grad` gives, by products of whole matrices of scores: gradients of gradients are those of this."""
    p, ds = _score_gradients(grad, grad_lse, query, key, value, mask, out, lse, scale, causal)
    return mul(matmul(ds, key), scale), mul(matmul(ds, query, True), scale), matmul(p, grad, True)


attention_grad.same(attention_grad_of_scores)


@attention_grad_of_scores.canon
def _floats_alone(types, **attrs):
    """The attributes as they are; DTypeError for integers, which would wrap in the body. Masks may be of bools."""
    check_floats(*types[:5], *types[6:])
    return attrs


@composite
@rounded_once
def attention_mask_grad(
    grad: Tensor, grad_lse: Tensor | None, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, out: Tensor, lse: Tensor,
    scale: float, causal: Causal,
) -> Tensor:  # fmt: skip
    """The gradient of `attention` with respect to a mask of floats, as large as the scores."""
    return _score_gradients(grad, grad_lse, query, key, value, mask, out, lse, scale, causal)[1]


attention_mask_grad.canon(_floats_alone)


def _score_gradients(grad, grad_lse, query, key, value, mask, out, lse, scale: float, causal: str):
    """(the softmax, the gradient of the scores)."""
    p = probabilities(query, key, mask, lse, scale, causal)
    along = sum_(mul(grad, out), -1, True)
    along = along if grad_lse is None else sub(along, lookup("expand_dims")(grad_lse, -1))
    return p, mul(p, sub(matmul(grad, value, False, True), along))


def probabilities(query, key, mask, lse, scale: float, causal: str):
    """The softmax of the scores, from its log-sum-exp."""
    p = exp(sub(_scores(query, key, mask, scale), lookup("expand_dims")(lse, -1)))
    return _where_seen(p, mask, causal, 0.0)


def _scores(query, key, mask, scale: float):
    scores = mul(matmul(query, key, False, True), scale)
    return scores if mask is None or mask.dtype is bool_ else add(scores, mask)


def _where_seen(x, mask, causal: str, other: float):
    """x where a key is seen, `other` elsewhere."""
    where = lookup("where")
    if mask is not None and mask.dtype is bool_:
        x = where(mask, x, other)
    if causal != "none":
        (t, s), arange, flip = x.shape[-2:], lookup("arange"), lookup("flip")
        rows, columns = reshape(arange(0, t, 1, "int32"), (t, 1)), reshape(arange(0, s, 1, "int32"), (1, s))
        if causal == "lower_right":  # counted from the last
            rows, columns = flip(columns, 1), flip(rows, 0)
        x = where(lookup("less_equal")(columns, rows), x, other)
    return x


@composite(autocast="low")
@rounded_once
def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None, causal: Causal) -> Tensor:
    """The softmax inside `attention`, (*G, T, S); 0 in the row of a query that sees no key."""
    assert scale is not None  # by the rule "canon"
    scores = _where_seen(_scores(query, key, mask, scale), mask, causal, float("-inf"))
    top = lookup("maximum")(max_(scores, (-1,), True), numerics.LEAST_SCORE[scores.dtype.size])
    e = exp(sub(scores, top))
    total = sum_(e, (-1,), True)
    return div(e, lookup("where")(lookup("equal")(total, 0.0), 1.0, total))


attention_weights.canon(_scaled)


@primitive(functional="nn", whole_batch=True, own=(0, 1, 2, 3, 4))
def attention_int(query: Tensor, key: Tensor, value: Tensor, multiplier: Tensor, value_scale: Tensor) -> Tensor:
    """Attention of numbers that int8 stands for, as float32: softmax(multiplier q k^T) v value_scale, with weights of 8 bits.

    Shapes:   query (*G, T, D), key (*G, S, D), value (*G, S, E) -> (*G, T, E); leading axes are broadcast; multiplier and value_scale ();
              D + E at most 1024, S at most 65,793
    Dtypes:   int8 (zero point 0), floats for multiplier and value_scale, which become float32 -> float32
    Args:
        multiplier: of a product of integers, to give the score: (scale of the queries) (scale of the keys) (scale of the softmax).
            value_scale: scale of the values.
    Returns:  0 where there are no keys; NaN where the multiplier is below 0, inf or NaN
    Numerics: c = the sum of q k over d, in int32; p = rint(255 exp(float32(c - max of c over the keys) multiplier)), halves to even, an
        integer of 0..255; the result is float32(sum of p v) (value_scale / float32(sum of p)). Sums are exact in int32 and have no order;
        each operation of float32 is rounded once. Without the rounding of p, which is at most 1/510 of the largest weight, it is the
        attention of what the integers stand for

    >>> from tengen import Tensor, functional as F
    >>> x = Tensor([[100, 0], [0, 100]], "int8")
    >>> F.attention_int(x, x, x, Tensor(1e-3), Tensor(0.01)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """


@attention_int.infer
def _(q, k, v, multiplier, value_scale):
    t, s, e = _extents(q, k, v)
    if any(x.dtype is not int8 for x in (q, k, v)) or not all(x.dtype.is_float for x in (multiplier, value_scale)):
        given = ", ".join(str(x) for x in (q, k, v, multiplier, value_scale))
        raise DTypeError(f"takes int8 three times, and a multiplier and a scale of floats; got {given}; help: quantize_linear makes int8")
    if multiplier.shape or value_scale.shape:
        raise ShapeError(f"the multiplier and the values' scale are one number each, got {multiplier} and {value_scale}")
    if (n := as_int(s)) is not None and n > MOST_KEYS:
        raise ShapeError(f"sums over {n} keys may not fit int32, which holds {MOST_KEYS}")
    return TensorType((*broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2]), t, e), float32)


@attention_int.layout
def _(arrays, out, **_):
    q, n = arrays[0], len(out.shape)
    return rows_first(q, n) if q.ndim == n and q.shape[:-1] == out.shape[:-1] else list(range(n))


@attention_int.parts
def _(types):
    lead = broadcast_shapes(*(t.shape[:-2] for t in types[:3]))
    axes: list[list[int | None]] = [[*same_axes(t.shape[:-2], lead), None, None] for t in types[:3]]
    axes[0][-2] = len(lead)
    return [*axes, [], []]


attention_int.known(lambda arrays, **_: {arrays[0].shape[-1], arrays[2].shape[-1]})
attention_int.no_vjp("integers are not differentiable; straight_through gives them the gradient of attention")


@attention_int.lower
def _(lo, ins, outs):
    (out,) = outs
    q, k, v = (a.expand((*out.shape[:-2], *a.shape[-2:])) for a in ins[:3])
    kernels.attention.integers.attention_int(lo, q, k, v, ins[3], ins[4], out)


@composite(functional="nn")
def fake_attention(
    query: Tensor, key: Tensor, value: Tensor, query_scale: Tensor, key_scale: Tensor, value_scale: Tensor, scale: float | None = None
) -> Tensor:  # fmt: skip
    """What `attention_int` gives of numbers that are rounded to int8, as a network learns that will compute it so: the same bits.

    The gradient is that of `attention` of the rounded numbers, whose gradient is `fake_quantize`'s: straight through where the integer is in
    range, and LSQ's for the scales.

    Shapes:   as of `attention_int`; scales ()
    Args:
        query_scale, key_scale, value_scale: of `quantize_linear`. scale: of the softmax; default 1 / sqrt(D).

    >>> from tengen import Tensor, functional as F
    >>> x, s = Tensor([[10.0, 0.0], [0.0, 10.0]]), Tensor(0.1)
    >>> F.fake_attention(x, x, x, s, s, s).tolist()
    [[10.0, 0.0], [0.0, 10.0]]
    """
    scale = _scaled([query], scale, "none")["scale"]
    scales = query_scale, key_scale, value_scale
    q, k, v = (quantize_linear(x, s, None) for x, s in zip((query, key, value), scales))
    made = attention_int(q, k, v, mul(mul(query_scale, key_scale), scale), value_scale)
    through = attention(*(fake_quantize(x, s, None) for x, s in zip((query, key, value), scales)), None, scale, "none")[0]
    return straight_through(made, through)


fake_attention.known(lambda arrays, **_: {arrays[0].shape[-1], arrays[2].shape[-1]})


def _np_seen(t: int, s: int, causal: str):
    offset = {"none": s, "upper_left": 0, "lower_right": s - t}[causal]
    return np.arange(s) <= np.arange(t)[:, None] + offset


def _np_attention_weights(q, k, mask=None, scale=None, causal="none"):
    return _np_attention(q, k, np.eye(k.shape[-2]), mask, scale, causal)[0]


def _np_attention(q, k, v, mask=None, scale=None, causal="none"):
    x = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    seen = np.broadcast_to(_np_seen(*x.shape[-2:], causal), x.shape)
    if mask is not None and mask.dtype == bool:
        seen = seen & mask
    elif mask is not None:
        x = x + mask
    x = np.where(seen, x, -np.inf)
    m = x.max(-1, keepdims=True, initial=-1e300)
    p = np.exp(x - m)
    total = p.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.where(total == 0, np.inf, m + np.log(total))[..., 0]
    return (p / np.where(total == 0, 1, total)) @ v, lse


def _np_attention_grad(g, gl, q, k, v, mask, out, lse, scale, causal):
    x = q @ np.swapaxes(k, -1, -2) * scale
    seen = _np_seen(*x.shape[-2:], causal)
    if mask is not None and mask.dtype == bool:
        seen = seen & mask
    elif mask is not None:
        x = x + mask
    p = np.where(seen, np.exp(x - lse[..., None]), 0)
    ds = p * (g @ np.swapaxes(v, -1, -2) - (g * out).sum(-1, keepdims=True) + (0 if gl is None else gl[..., None]))
    turned = np.swapaxes(ds, -1, -2)
    return ds @ k * scale, turned @ q * scale, np.swapaxes(p, -1, -2) @ g, ds


def _sample(*shapes):
    return lambda r: tuple(None if s is None else r.uniform(-1, 1, s) for s in shapes)


attention.reference(_np_attention)
attention_weights.reference(_np_attention_weights)
attention_weights.cases(
    Case(_sample((2, 3, 5), (2, 4, 5), (3, 4)), {"scale": None, "causal": "lower_right"}),
    Case(lambda r: (*_sample((3, 4), (5, 4))(r), r.uniform(0, 1, (3, 5)) < 0.5), {"scale": 0.7, "causal": "none"}),
)
for _op in (attention_grad, attention_grad_of_scores):
    _op.reference(lambda *a, **attrs: _np_attention_grad(*a, **attrs)[:3])
attention_mask_grad.reference(lambda *a, **attrs: _np_attention_grad(*a, **attrs)[3])
attention.cases(
    Case(_sample((2, 3, 5), (2, 4, 5), (2, 4, 3), None)),
    Case(_sample((3, 4), (3, 4), (3, 4), None), {"causal": "upper_left", "scale": 2.0}),
    Case(_sample((2, 1, 2, 3), (5, 7, 3), (1, 1, 7, 2), (2, 7)), {"causal": "lower_right"}),
    Case(_sample((1, 3), (70, 3), (70, 17), None), {"causal": "lower_right"}),
    Case(lambda r: (*_sample((2, 3, 4), (2, 5, 4), (2, 5, 4))(r), r.uniform(0, 1, (2, 1, 5)) < 0.7)),
    Case(_sample((0, 3), (4, 3), (4, 2), None)),
    Case(_sample((2, 3), (0, 3), (0, 2), None), grad=False),
    Case(_sample((3, 5), (4, 5), (4, 0), None)),
    Case(_sample((2, 3, 0), (2, 4, 0), (2, 4, 3), None), {"scale": 0.5}),
)
_GRAD_CASES = [
    Case(_sample(*shapes), {"scale": 0.4, "causal": causal})
    for causal, shapes in (
        ("none", ((2, 3, 4), (2, 3), (2, 3, 5), (2, 6, 5), (2, 6, 4), (3, 6), (2, 3, 4), (2, 3))),
        ("lower_right", ((3, 4), None, (3, 5), (6, 5), (6, 4), None, (3, 4), (3,))),
    )
]
attention_grad.cases(*_GRAD_CASES)
attention_grad_of_scores.cases(*_GRAD_CASES)
attention_mask_grad.cases(_GRAD_CASES[0])


def _np_attention_int(q, k, v, multiplier, value_scale):
    """In float64, but for the rounded weights, whose arguments are those of float32."""
    c = q.astype(np.int64) @ np.swapaxes(k, -1, -2).astype(np.int64)
    x = (c - c.max(-1, keepdims=True, initial=-(2**40))).astype(np.float32) * np.float32(multiplier)
    p = np.rint(255 * np.exp(x.astype(np.float64))).astype(np.int64)
    return p @ v.astype(np.int64) * (np.float64(value_scale) / np.maximum(p.sum(-1, keepdims=True), 1))


def _codes(q, k, v, multiplier=1e-4):
    of = lambda r, shape: r.integers(-128, 128, shape).astype("int8")
    return lambda r: (of(r, q), of(r, k), of(r, v), np.float32(multiplier), np.float32(0.02))


attention_int.reference(_np_attention_int)
attention_int.cases(
    Case(_codes((2, 3, 5), (2, 7, 5), (2, 7, 3))),
    Case(_codes((20, 64), (70, 64), (70, 17))),
    Case(_codes((2, 1, 2, 3), (5, 9, 3), (1, 1, 9, 2), 1e-2)),
    Case(_codes((0, 3), (4, 3), (4, 2))),
    Case(_codes((2, 3), (0, 3), (0, 2))),
    Case(_codes((3, 5), (4, 5), (4, 0))),
    Case(_codes((2, 3, 0), (2, 4, 0), (2, 4, 3))),
)
def _np_fake_attention(q, k, v, query_scale, key_scale, value_scale, scale):
    codes = lambda x, by: np.clip(np.rint(np.float32(x) / np.float32(by)), -128, 127).astype("int8")
    scale = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    m = np.float32(query_scale) * np.float32(key_scale) * np.float32(scale)
    return _np_attention_int(codes(q, query_scale), codes(k, key_scale), codes(v, value_scale), m, value_scale)


_SCALES = (np.float32(0.01), np.float32(0.007), np.float32(0.009))
fake_attention.reference(_np_fake_attention)
fake_attention.cases(Case(lambda r: (*_sample((2, 3, 5), (2, 7, 5), (2, 7, 3))(r), *_SCALES), {"scale": 0.5}, grad=False))
