"""Attention that is spelled out in products, and that of ``com.microsoft``: Attention, MultiHeadAttention, GroupQueryAttention, and rotary
positions.

Inside, queries, keys and values are (batch, heads, steps, features); keys and values that were computed before (the past) stand before the
new ones. Masks are numbers that are added to the scores, as onnxruntime's are: `mask_filter_value` where a key is not seen.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

import tengen.functional as F
from tengen.interop.onnx.groups import ATTENTION
from tengen.interop.onnx.ops.control import scoped
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import Value, as_tensor, element_type, known, recording
from tengen.ops.define import broadcast_shapes
from tengen.tensor import Tensor

if TYPE_CHECKING:
    from tengen.interop.onnx.network import Scope

MS = "com.microsoft."
FLOAT = 1  # ONNX's number of float32


# -- spelled out ---------------------------------------------------------------------------------------------------------------
@op(ATTENTION)
@scoped
def of_products(scope: Scope, n: NodeOf, *inputs: Value) -> Value:
    """Attention by one kernel where the values are such, else by the nodes that the file has."""
    values = dict(zip(n.inputs, inputs))
    made = by_one_kernel(scope, n, values)
    if made is not None:
        return made
    run(scope, [*n["scaled"], *n["nodes"]], values)
    return values[n.outputs[0]]


def run(scope: Scope, nodes: Iterable[NodeOf], values: dict[str, Value]) -> None:
    """Computes nodes from what they read, and adds what they make to the values."""
    for one in nodes:
        values.update(zip(one.outputs, scope.compute(one, [values[name] if name else None for name in one.inputs])))


def factor(what: str, v: Value, x: Value) -> float | None:
    """By what Mul or Div by a value multiplies x, where that is one number which is known while the network is recorded. Not of numbers of
    16 bits, whose products a file rounds to so many."""
    if not isinstance(x, Tensor) or x.dtype.size < 4 or not isinstance(v, np.ndarray) or v.dtype != x.dtype.numpy:
        return None
    if v.size != 1 or v.ndim > len(x.shape):
        return None
    number = float(v.reshape(())[()])
    return None if number == 0 or not math.isfinite(number) else number if what == "Mul" else 1 / number


def by_one_kernel(scope: Scope, n: NodeOf, values: dict[str, Value]) -> Tensor | None:
    """softmax(q k f + mask) v, with q (..., queries, features), k (..., features, keys), v (..., keys, features), numbers f and masks of the
    scores' shape; None where shapes or dtypes are others. Known numbers f, and those by which q or k was multiplied before, are the scale."""
    scale, values = 1.0, dict(values)
    for one in n["scaled"]:
        a, b = (values[name] for name in one.inputs)
        x, f = (a, factor(one.op, b, a)) if one.op == "Div" or not isinstance(a, np.ndarray) else (b, factor(one.op, a, b))
        if f is None:
            run(scope, [one], values)
        else:
            values[one.outputs[0]], scale = x, scale * f
    names = [*(n[name] for name in "qkv"), *(name for _, name in n["factors"]), *n["masks"]]
    read = [as_tensor(v) if isinstance(v, np.ndarray) and v.dtype.kind == "f" else v for v in map(values.get, names)]
    given = [t for t in read if isinstance(t, Tensor) and t.dtype.is_float]
    if len(given) < len(names):
        return None
    q, k, v = given[:3]
    numbers, masks = given[3 : 3 + len(n["factors"])], given[3 + len(n["factors"]) :]
    dtype, dims = q.dtype, len(q.shape)
    casts = [one["to"] for one in n["nodes"] if one.op == "Cast"]
    if any(t.dtype != dtype for t in (k, v, *numbers, *masks)) or any(to not in (element_type(q), FLOAT) for to in casts):
        return None
    if {dims, len(k.shape), len(v.shape)} != {dims} or dims < 3 or n["softmax"]["axis"] not in (-1, dims - 1):
        return None
    if (casts and casts[-1] != element_type(q)) or any(math.prod(f.shape) != 1 or len(f.shape) > dims for f in numbers):
        return None
    mask = functools.reduce(F.add, masks) if masks else None
    scores = (*broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2]), q.shape[-2], k.shape[-1])
    if mask is not None and (not mask.shape or tuple(broadcast_shapes(scores, mask.shape)) != scores):
        return None
    for (what, name), t in zip(n["factors"], numbers):
        if (f := factor(what, values[name], q)) is not None:
            scale *= f
        else:
            q = q * t.reshape(()) if what == "Mul" else q / t.reshape(())
    causal = n["causal"] and mask is not None and tuple(mask.shape) == scores[-2:]
    made = F.scaled_dot_product_attention(q, F.swapaxes(k, -1, -2), v, None if causal else mask, causal, scale)
    if mask is None or causal or n["guarded"]:
        return made
    unseen = F.all(F.equal(mask, -np.inf), -1, keepdims=True)  # such a query's softmax is NaN, and its attention 0
    return F.where(unseen, np.nan, made).astype(dtype)


# -- of com.microsoft ----------------------------------------------------------------------------------------------------------
def split_heads(t: Tensor, heads: int) -> Tensor:
    """(batch, steps, heads x features) -> (batch, heads, steps, features)."""
    b, s, width = t.shape
    return F.transpose(t.reshape(b, s, heads, width // heads), [0, 2, 1, 3])


def joined(t: Tensor) -> Tensor:
    """The way back."""
    b, heads, s, width = t.shape
    return F.transpose(t, [0, 2, 1, 3]).reshape(b, s, heads * width)


def unseen(n: NodeOf, mask: Value, batch: Any, queries: Any, keys: Any) -> Tensor | None:
    """What a mask adds to the scores (batch, heads or 1, queries or 1, keys). It is the number of keys that are seen, for each example; or
    the ends and then the beginnings of what is seen; or zeros for what is not seen: by key, by query and key, or by head too."""
    if mask is None:
        return None
    m = as_tensor(mask)
    if len(m.shape) == 1:
        ends = m.reshape(-1, batch, 1).astype("int32")
        if ends.shape[0] not in (1, 2):
            raise ValueError(f"a mask of {m.shape[0]} numbers for {batch} examples; as many, or twice as many are known here")
        place = F.arange(keys, dtype="int32").reshape(1, -1)
        seen = F.less(place, ends[0])
        seen = seen if ends.shape[0] == 1 else F.logical_and(seen, F.greater_equal(place, ends[1]))
        seen = seen.reshape(batch, 1, 1, keys)
    else:
        seen = F.not_equal(m, 0)
        match len(m.shape):
            case 2: seen = seen.reshape(m.shape[0], 1, 1, m.shape[1])  # fmt: skip
            case 3: seen = F.expand_dims(seen, 1)  # fmt: skip
            case _: seen = seen[:, :, keys - queries : keys, :keys]  # fmt: skip
    return F.where(seen, 0.0, float(n.get("mask_filter_value", -10000.0))).astype("float32")


def attended(n: NodeOf, q: Tensor, k: Tensor, v: Tensor, mask: Value, bias: Value) -> Tensor:
    """softmax(scale q k.T + mask + bias) v, as (batch, steps, heads x features)."""
    added = unseen(n, mask, q.shape[0], q.shape[2], k.shape[2])
    if bias is not None:
        added = as_tensor(bias) if added is None else added + as_tensor(bias)
    causal = "lower_right" if n.get("unidirectional", 0) else False
    return joined(F.scaled_dot_product_attention(q, k, v, added, causal, n.get("scale") or None))


def after(past: Tensor | None, new: Tensor) -> Tensor:
    """What was there before, and what is new."""
    return new if past is None else F.concat([past, new], 2)


def of_projected(n: NodeOf, all_: Tensor, widths: list[int], mask: Value, past: Value, bias: Value) -> tuple[Value, Value]:
    """Attention of queries, keys and values that stand beside each other along the last axis."""
    heads = n["num_heads"]
    if n.get("do_rotary", 0) or n.get("past_present_share_buffer", 0):
        raise ValueError("Attention with do_rotary or past_present_share_buffer is not known here")
    q, k, v = (
        split_heads(all_[:, :, at : at + w], heads) for at, w in zip((0, widths[0], widths[0] + widths[1]), widths)
    )
    before = None if past is None else as_tensor(past)
    k, v = after(None if before is None else before[0], k), after(None if before is None else before[1], v)
    present = F.stack([k, v], 0) if len(n.outputs) > 1 and n.outputs[1] else None
    return attended(n, q, k, v, mask, bias), present


@op(f"{MS}Attention")
def attention(
    n: NodeOf, x: Value, w: Value, b: Value = None, mask: Value = None, past: Value = None, bias: Value = None, length: Value = None
) -> tuple[Value, ...]:
    """With the projection of queries, keys and values in it."""
    weights = as_tensor(w)
    widths = list(n.get("qkv_hidden_sizes") or [weights.shape[1] // 3] * 3)
    made = F.matmul(as_tensor(x), weights)
    return of_projected(n, made if b is None else made + as_tensor(b), widths, mask, past, bias)


@op(f"{MS}MultiHeadAttention")
def multi_head_attention(
    n: NodeOf, query: Value, key: Value = None, value: Value = None, b: Value = None, padding: Value = None, bias: Value = None,
    past_key: Value = None, past_value: Value = None, length: Value = None, beams: Value = None,
) -> tuple[Value, ...]:  # fmt: skip
    """Of queries, keys and values that were projected; all three in one tensor, or the last two; keys and values may stand by heads."""
    if length is not None or beams is not None:
        raise ValueError("MultiHeadAttention with a shared buffer or beams is not known here")
    heads, q = n["num_heads"], as_tensor(query)
    add: list[Tensor | None] = [None] * 3
    if len(q.shape) == 5:
        parts = [q[:, :, :, i] for i in range(3)]
    elif value is None:
        pair = as_tensor(key)
        parts = [q, pair[:, :, :, 0], pair[:, :, :, 1]]
    else:
        parts = [q, as_tensor(key), as_tensor(value)]
    flat = lambda t: t.reshape(t.shape[0], t.shape[1], heads, -1) if len(t.shape) == 3 else t
    by_heads = value is not None and len(parts[1].shape) == 4
    spread = [flat(p) if i == 0 or not by_heads else p for i, p in enumerate(parts)]
    if b is not None:
        at, total = 0, as_tensor(b)
        for i, t in enumerate(spread):
            width = heads * t.shape[3]
            add[i] = total[at : at + width].reshape(heads, t.shape[3])
            at += width
    q, k, v = (
        t if i and by_heads else F.transpose(t if add[i] is None else t + add[i], [0, 2, 1, 3]) for i, t in enumerate(spread)
    )
    k, v = (after(None if p is None else as_tensor(p), t) for p, t in ((past_key, k), (past_value, v)))
    return attended(n, q, k, v, padding, bias), k, v


# -- rotary positions ----------------------------------------------------------------------------------------------------------
def rotated(t: Tensor, position: Tensor, cosines: Value, sines: Value, interleaved: bool, width: int = 0) -> Tensor:
    """(batch, heads, steps, features) turned by the angles of their positions (batch, steps); of the first `width` features alone."""
    cos, sin = (F.expand_dims(F.take(as_tensor(c), position, 0), 1) for c in (cosines, sines))
    width = width or 2 * cos.shape[3]
    part, rest = t[:, :, :, :width], t[:, :, :, width:]
    half = width // 2
    x, y = (part[:, :, :, 0::2], part[:, :, :, 1::2]) if interleaved else (part[:, :, :, :half], part[:, :, :, half:])
    real, imaginary = x * cos - y * sin, y * cos + x * sin
    turned = F.stack([real, imaginary], 4).reshape(part.shape) if interleaved else F.concat([real, imaginary], 3)
    return turned if width == t.shape[3] else F.concat([turned, rest], 3)


@op(f"{MS}RotaryEmbedding")
def rotary(n: NodeOf, x: Value, position: Value, cosines: Value, sines: Value) -> Value:
    """Rotary positions, counted from a first one or given for each step."""
    t, at, width = as_tensor(x), as_tensor(position), n.get("rotary_embedding_dim", 0)
    if n.get("is_packed_batching", 0) or n.get("scale", 1.0) != 1:
        raise ValueError("RotaryEmbedding with is_packed_batching or a scale is not known here")
    flat = len(t.shape) == 3
    if flat:
        heads = n.get("num_heads", 0) or t.shape[2] // (2 * as_tensor(cosines).shape[1])
        t = split_heads(t, heads)
    steps = F.arange(t.shape[2], dtype="int64").reshape(1, -1)
    at = at.reshape(1, 1) + steps if len(at.shape) == 1 else at
    made = rotated(t, at, cosines, sines, bool(n.get("interleaved", 0)), width)
    return joined(made) if flat else made


# -- grouped queries -----------------------------------------------------------------------------------------------------------
@op(f"{MS}GroupQueryAttention")
def group_query_attention(
    n: NodeOf, query: Value, key: Value, value: Value, past_key: Value, past_value: Value, lengths: Value, total: Value,
    cosines: Value = None, sines: Value = None, position: Value = None, bias: Value = None, sink: Value = None, *more: Value,
) -> tuple[Value, ...]:  # fmt: skip
    """Fewer heads of keys and values than of queries, with a past of `lengths` + 1 - steps keys for each example. The present is as long as the
    past and the new steps together, or as the past where `total` is known to fit in it (a shared buffer)."""
    if any(v is not None for v in more) or sink is not None or n.get("smooth_softmax", -1) > 0 or n.get("qk_output", 0):
        raise ValueError("GroupQueryAttention with head_sink, smooth_softmax, qk_output, norms or a quantised cache is not known here")
    heads, few, softcap = n["num_heads"], n["kv_num_heads"], n.get("softcap", 0.0)
    q = as_tensor(query)
    if key is None:
        width = q.shape[2] // (heads + 2 * few)
        at = (0, heads * width, (heads + few) * width)
        q, k, v = q[:, :, : at[1]], q[:, :, at[1] : at[2]], q[:, :, at[2] :]
    else:
        k, v = as_tensor(key), as_tensor(value)
    q, k, v = split_heads(q, heads), split_heads(k, few), split_heads(v, few)
    steps = q.shape[2]
    before = F.maximum(as_tensor(lengths).reshape(-1, 1).astype("int32") + 1 - steps, 0)  # keys of the past, for each example
    now = before + F.arange(steps, dtype="int32").reshape(1, -1)
    if n.get("do_rotary", 0):
        where = now if position is None else as_tensor(position)
        q, k = (rotated(t, where, cosines, sines, bool(n.get("rotary_interleaved", 0))) for t in (q, k))
    k, v = (grown(None if p is None else as_tensor(p), t, before, total) for p, t in ((past_key, k), (past_value, v)))
    place = F.arange(k.shape[2], dtype="int32").reshape(1, 1, -1)
    seen = F.less_equal(place, F.expand_dims(now, 2)) if n.get("causal", 1) else F.less(place, F.expand_dims(before + steps, 2))
    if n.get("local_window_size", -1) >= 0:
        seen = F.logical_and(seen, F.greater(place, F.expand_dims(now, 2) - n["local_window_size"]))
    added = F.where(F.expand_dims(seen, 1), 0.0, -np.inf).astype("float32")
    added = added if bias is None else added + as_tensor(bias)[:, :, :, : k.shape[2]]
    wide = lambda t: F.repeat(t, heads // few, 1)
    if softcap:
        scale = n.get("scale") or 1 / np.sqrt(q.shape[3])
        scores = F.matmul(q, wide(k), transpose_b=True) * np.float32(scale)
        made = F.matmul(F.softmax(F.tanh(scores / np.float32(softcap)) * np.float32(softcap) + added, -1), wide(v))
    else:
        made = F.scaled_dot_product_attention(q, wide(k), wide(v), added, False, n.get("scale") or None)
    return joined(made), k, v


def grown(past: Tensor | None, new: Tensor, before: Tensor, total: Value) -> Tensor:
    """The first `before` steps of the past, then the new ones, then zeros: of each example."""
    if past is None:
        return new
    steps, size = new.shape[2], past.shape[2]
    shared = isinstance(size, int) and (isinstance(total, np.ndarray) or not recording()) and int(known(total).reshape(-1)[0]) <= size
    length = size if shared else size + steps
    place = F.arange(length, dtype="int32").reshape(1, -1)
    both = F.concat([past, new, F.zeros_like(new[:, :, :1])], 2)
    is_new = F.logical_and(F.greater_equal(place, before), F.less(place, before + steps))
    at = F.where(is_new, place - before + size, F.where(F.less(place, before), place, size + steps))
    index = F.broadcast_to(at.reshape(-1, 1, length, 1), (past.shape[0], past.shape[1], length, past.shape[3]))
    return F.gather(both, 2, index)
