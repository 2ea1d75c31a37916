"""What moves elements and what asks for shapes: known arrays stay known, so that a shape computed from shapes is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tengen.functional as F
from tengen.base.errors import Undecided
from tengen.interop.networks.places import flat_places, grid_places, modest, positive, product
from tengen.interop.onnx.groups import POSITIONS
from tengen.interop.onnx.ops.control import scoped
from tengen.interop.onnx.ops.elementwise import all_known
from tengen.interop.onnx.reader import NodeOf
from tengen.interop.onnx.registry import op
from tengen.interop.onnx.values import (
    SMALL,
    Coded,
    Value,
    as_tensor,
    element_type,
    ints,
    is_coded,
    is_text,
    known,
    not_a_tensor,
    shape_array,
    value_of,
)  # fmt: skip
from tengen.loops.lang import Expr, as_int, cdiv, maximum, unguarded
from tengen.tensor import Tensor

if TYPE_CHECKING:
    from tengen.interop.onnx.network import Scope

KNOWN = 1 << 20  # elements of a known array that an operator makes larger than its inputs
AT_THE_END = 10**9  # exporters' numbers for the end of an axis begin here: an open axis is not cut there


def moving(
    v: Value, array: Callable[[np.ndarray], np.ndarray], tensor: Callable[[Tensor], Tensor], extents: Sequence[Any] = (), count: Any = 0
) -> Value:
    """A value whose elements are moved: a known array stays one unless it takes an open extent, or has more elements then than a known one may
    have (`count` of them), codes are moved as they are."""
    if isinstance(v, np.ndarray) and not any(isinstance(e, Expr) for e in extents) and (v.dtype == object or count <= KNOWN):
        return np.asarray(array(v))
    return Coded(tensor(v.codes), v.dtype) if isinstance(v, Coded) else tensor(as_tensor(v))


def shape_of(v: Value) -> tuple:
    """The shape of any value. Errors: TypeError for one that has none: absent, a sequence, a map."""
    if v is None or isinstance(v, (list, dict)):
        raise TypeError(not_a_tensor(v))
    return tuple(v.shape)


@op("Constant")
def constant(n: NodeOf) -> Value:
    """One of its attributes."""
    for name in ("value", "sparse_value"):
        if name in n.attributes:
            return value_of(n[name]) if is_coded(n[name].dtype) else n[name]
    for name, dtype in (
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        if name in n.attributes:
            return np.array(n[name], dtype)
    return np.array(n["value_string"] if "value_string" in n.attributes else n["value_strings"], object)


@op("Shape")
def shape(n: NodeOf, x: Value) -> Value:
    """Of the axes from start to end."""
    return shape_array(shape_of(x)[slice(n.get("start", 0), n.get("end"))])


@op("Size")
def size(n: NodeOf, x: Value) -> Value:
    """How many elements."""
    found: Any = 1
    for e in shape_of(x):
        found = found * e
    return np.array(found) if not isinstance(found, int) else np.array(found, np.int64)


@op("Reshape")
def reshape(n: NodeOf, x: Value, to: Value = None) -> Value:
    """0 keeps an extent (unless allowzero), -1 is what is left."""
    wanted = n["shape"] if n.since < 5 else ints(to)
    if not n.get("allowzero", 0):
        wanted = [shape_of(x)[i] if isinstance(d, int) and d == 0 else d for i, d in enumerate(wanted)]
    return moving(x, lambda a: a.reshape(wanted), lambda t: t.reshape(tuple(wanted)), wanted)


@op("Flatten")
def flatten(n: NodeOf, x: Value) -> Value:
    """To a matrix: the axes before `axis`, and the others."""
    s = shape_of(x)
    axis = n["axis"] + len(s) * (n["axis"] < 0)
    rows: Any = 1
    for e in s[:axis]:
        rows = rows * e
    columns: Any = 1
    for e in s[axis:]:
        columns = columns * e
    return moving(x, lambda a: a.reshape(rows, columns), lambda t: t.reshape(rows, columns))


@op("Transpose")
def transpose(n: NodeOf, x: Value) -> Value:
    """Default: all axes turned around."""
    axes = n.get("perm") or list(range(len(shape_of(x))))[::-1]
    return moving(x, lambda a: a.transpose(axes), lambda t: F.transpose(t, axes) if axes else t)


def axes_of(n: NodeOf, axes: Value, name: str = "axes") -> list[int] | None:
    """Axes that are an attribute in old opsets and an input in new ones."""
    return ints(axes) if axes is not None else n.get(name)


@op("Unsqueeze")
def unsqueeze(n: NodeOf, x: Value, axes: Value = None) -> Value:
    """Axes count in the result."""
    found = axes_of(n, axes) or []
    ndim = len(shape_of(x)) + len(found)
    places = sorted(a % ndim for a in found)
    if len(set(places)) < len(places):
        raise ValueError(f"axes {found} name one axis twice")

    def shaped(s: Sequence) -> list:
        out = list(s)
        for a in places:
            out.insert(a, 1)
        return out

    return moving(x, lambda a: a.reshape(shaped(a.shape)), lambda t: t.reshape(tuple(shaped(t.shape))))


@op("Squeeze")
def squeeze(n: NodeOf, x: Value, axes: Value = None) -> Value:
    """Default: every axis of extent 1."""
    found = axes_of(n, axes)
    axes_ = None if found is None else tuple(found)
    s = shape_of(x)
    for a in range(len(s)) if axes_ is None else axes_:
        if as_int(s[a]) is None:
            needed = None if axes_ is None else (unguarded(s[a]), 1)
            raise Undecided(f"whether axis {a}, of extent {s[a]}, is squeezed is known when the program runs", equal=needed)
    return moving(
        x, lambda a: a.squeeze(axes_), lambda t: F.squeeze(t, None if axes_ is None else list(axes_)) if axes_ != () else t
    )


@op("Concat")
def concat(n: NodeOf, *parts: Value) -> Value:
    """Known arrays stay known."""
    if all(isinstance(p, np.ndarray) for p in parts) and (sum(p.size for p in parts) <= KNOWN or any(p.dtype == object for p in parts)):
        return np.concatenate(parts, n["axis"])
    if all(isinstance(p, Coded) for p in parts):
        return Coded(F.concat([p.codes for p in parts], n["axis"]), parts[0].dtype)
    return F.concat([as_tensor(p) for p in parts], n["axis"])


@op("Split")
def split(n: NodeOf, x: Value, sizes: Value = None) -> tuple[Value, ...]:
    """In parts of given extents, or in equal ones of which the last may be smaller."""
    axis, extent = n["axis"], shape_of(x)[n["axis"]]
    parts = ints(sizes) if sizes is not None else n.get("split")
    if parts is None:
        count = n.get("num_outputs") or len(n.outputs)
        each = cdiv(extent, count)
        parts = [each] * (count - 1) + [extent - each * (count - 1)]
    starts = [sum(parts[:i]) for i in range(len(parts) + 1)]
    cut = lambda a, b: (slice(None),) * (axis % len(shape_of(x))) + (slice(a, b),)
    return tuple(moving(x, lambda v, c=cut(a, b): v[c], lambda t, c=cut(a, b): t[c]) for a, b in zip(starts, starts[1:]))


@op("Slice")
def slice_(n: NodeOf, x: Value, starts: Value = None, ends: Value = None, axes: Value = None, steps: Value = None) -> Value:
    """Like Python's slices."""
    if n.since < 10:
        begin, end, where, by = n["starts"], n["ends"], n.get("axes"), None
    else:
        begin, end = ints(starts), ints(ends)
        where, by = (ints(axes) if axes is not None else None), (ints(steps) if steps is not None else None)
    where = list(range(len(begin))) if where is None else where
    by = [1] * len(begin) if by is None else by
    if isinstance(x, np.ndarray) and x.dtype != object and any(isinstance(v, Expr) for v in (*begin, *end)):
        x = as_tensor(x)  # as much of a table of positions as there are places
    s = shape_of(x)
    index: list[Any] = [slice(None)] * len(s)
    flipped: list[int] = []
    for a, lo, hi, step in zip(where, begin, end, by):
        extent = s[a]
        if step < 0 and isinstance(lo, int) and isinstance(extent, int) and lo < -extent:
            lo = 0  # the first element, as the standard says; Python takes nothing
        if step < 0 and isinstance(hi, int) and isinstance(extent, int) and hi < -extent:
            hi = None
        if isinstance(hi, int) and hi >= (AT_THE_END if isinstance(extent, Expr) else 1 << 31):
            hi = None
        if isinstance(lo, int) and lo >= 1 << 31:
            lo = None if step < 0 else extent
        if isinstance(extent, Expr) and step < 0:  # the whole axis, turned around: exporters' numbers for its ends
            lo = None if isinstance(lo, int) and (lo == -1 or lo >= AT_THE_END) else lo
            hi = None if isinstance(hi, int) and hi <= -AT_THE_END else hi
            if step == -1 and (lo is None or lo >= 0) and (hi is None or hi >= 0):
                flipped.append(a)  # the same elements forwards
                index[a % len(s)] = slice(None if hi is None else hi + 1, None if lo is None else lo + 1)
                continue
            raise Undecided(f"where a slice from {lo} to {hi} in steps of {step} begins on an axis of extent {extent}")
        if step > 0 and isinstance(lo, int) and isinstance(hi, int) and hi <= lo and (hi < 0) == (lo < 0):
            hi = lo  # nothing
        index[a % len(s)] = slice(lo, hi, step)
    at = tuple(index)
    return moving(x, lambda v: v[at], lambda t: F.flip(t[at], flipped) if flipped else t[at])


@op("Gather")
def gather(n: NodeOf, x: Value, index: Value) -> Value:
    """Rows along an axis; negative numbers count from the end."""
    axis = n["axis"]
    if isinstance(x, np.ndarray) and (isinstance(index, np.ndarray) or is_text(x)):
        return np.asarray(np.take(x, known(index).astype(np.int64), axis))
    if isinstance(x, np.ndarray):
        x = as_tensor(x)
    if isinstance(index, np.ndarray) and index.dtype != object and not index.ndim:  # a slice, whose place needs no check in each run
        at = (slice(None),) * (axis % len(shape_of(x))) + (int(index),)
        return moving(x, lambda a: a, lambda t: t[at])
    return moving(x, lambda a: a, lambda t: F.take(t, positive(index, t.shape[axis]), axis))


@op("GatherElements")
def gather_elements(n: NodeOf, x: Value, index: Value) -> Value:
    """One element for each index."""
    axis = n["axis"]
    return moving(as_tensor(x) if isinstance(x, np.ndarray) else x, lambda a: a, lambda t: gathered(t, as_tensor(index), axis))


def gathered(t: Tensor, index: Tensor, axis: int) -> Tensor:
    """Elements along an axis; the other axes of the index may be shorter."""
    axis %= len(t.shape)
    cut = tuple(slice(None) if a == axis else slice(0, e) for a, e in enumerate(index.shape))
    return F.gather(t[cut], axis, positive(index, t.shape[axis]).astype("int32"))


@op("GatherND")
def gather_nd(n: NodeOf, x: Value, index: Value) -> Value:
    """Slices by the vectors in the index's last axis, example by example along the first axes."""
    t, at, batch = as_tensor(x), as_tensor(index), n.get("batch_dims", 0)
    places = flat_places(at, t.shape[batch:], batch)
    depth = at.shape[-1]
    rest = t.shape[batch + depth :]
    lead = t.shape[:batch]
    rows = product(t.shape[batch : batch + depth])
    source = t.reshape(product(lead) * rows, *rest)
    if batch:
        offset = F.arange(product(lead), dtype="int64").reshape(*lead, *[1] * (len(at.shape) - 1 - batch)) * rows
        places = places + offset
    return F.take(source, places.reshape(-1), 0).reshape(*at.shape[:-1], *rest)


MODES = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}


@op("ScatterElements", "Scatter")
def scatter_elements(n: NodeOf, x: Value, index: Value, updates: Value) -> Value:
    """One update for each index."""
    t, at, new = as_tensor(x), as_tensor(index), as_tensor(updates)
    axis = n["axis"] % len(t.shape)
    places = grid_places(at, t.shape, axis, positive(at.astype("int64"), t.shape[axis]))
    return F.scatter(t.reshape(-1), 0, places.reshape(-1), new.reshape(-1), MODES[n.get("reduction", "none")]).reshape(t.shape)


@op("ScatterND")
def scatter_nd(n: NodeOf, x: Value, index: Value, updates: Value) -> Value:
    """Slices by the vectors in the index's last axis."""
    t, at, new = as_tensor(x), as_tensor(index), as_tensor(updates)
    depth = int(at.shape[-1])
    width = product(t.shape[depth:])
    places = flat_places(at, t.shape).reshape(-1, 1) * width + F.arange(width, dtype="int64").reshape(1, -1)
    return F.scatter(t.reshape(-1), 0, places.reshape(-1), new.reshape(-1), MODES[n.get("reduction", "none")]).reshape(t.shape)


@op("TensorScatter")
def tensor_scatter(n: NodeOf, cache: Value, update: Value, start: Value = None) -> Value:
    """Writes rows into a cache from given places on, around its end if it is circular."""
    t, new = as_tensor(cache), as_tensor(update)
    axis = n.get("axis", -2) % len(t.shape)
    first = as_tensor(start).astype("int64") if start is not None else F.zeros((t.shape[0],), "int64")
    batch = first.reshape(-1, *[1] * (len(t.shape) - 1))
    along = batch + F.arange(new.shape[axis], dtype="int64").reshape(
        *[new.shape[axis] if a == axis else 1 for a in range(len(t.shape))]
    )
    if n.get("mode", "linear") == "circular":
        along = F.mod(along, t.shape[axis])
    places = grid_places(new, t.shape, axis, along)
    return F.scatter(t.reshape(-1), 0, places.reshape(-1), new.reshape(-1)).reshape(t.shape)


@op("Expand")
def expand(n: NodeOf, x: Value, to: Value) -> Value:
    """Broadcasts in both directions."""
    have, want = list(shape_of(x)), ints(to)
    width = max(len(have), len(want))
    have, want = [1] * (width - len(have)) + have, [1] * (width - len(want)) + want
    target = tuple(h if isinstance(w, int) and w == 1 else w for h, w in zip(have, want))
    return moving(x, lambda a: np.broadcast_to(a, target), lambda t: F.broadcast_to(t.reshape(tuple(have)), target), target, product(target))


@op("Tile")
def tile(n: NodeOf, x: Value, repeats: Value) -> Value:
    """Repeated along each axis."""
    count = product([*shape_of(x), *ints(repeats)])
    return moving(x, lambda a: np.tile(a, ints(repeats)), lambda t: F.tile(t, ints(repeats)), ints(repeats), count)


@op("ConstantOfShape")
def constant_of_shape(n: NodeOf, shape: Value) -> Value:
    """Filled with one value, 0 in float32 by default."""
    value = n.get("value", np.zeros(1, np.float32)).reshape(-1)[0]
    extents = ints(shape)
    if all(isinstance(e, int) for e in extents) and value.dtype.kind in "iub" and np.prod(extents) <= 4096:
        return np.full(extents, value)
    return F.full(tuple(extents), value.item(), dtype=value.dtype)


@op("Range")
def range_(n: NodeOf, start: Value, limit: Value, delta: Value) -> Value:
    """From start on, by delta, before limit."""
    if all_known(start, limit, delta):
        ends = [np.asarray(v).reshape(())[()] for v in (start, limit, delta)]
        if all(isinstance(e, (np.number, int, float)) for e in ends):
            lo, hi, by = (e.item() if isinstance(e, np.generic) else e for e in ends)
            if by and (hi - lo) / by > SMALL:  # not an array of any size that a file asks for
                return F.arange(lo, hi, by, dtype=as_tensor(start).dtype)
            return np.arange(*ends, dtype=np.result_type(*(np.asarray(e).dtype for e in ends)))
        return F.arange(ints(start)[0], ints(limit)[0], ints(delta)[0], dtype="int64")
    dtype = as_tensor(start).dtype
    ends = [known(v).reshape(())[()] for v in (start, limit, delta)]
    return as_tensor(np.arange(*ends).astype(dtype.numpy))


@op(POSITIONS)
@scoped
def positions(scope: Scope, n: NodeOf, start: Value, limit: Value, delta: Value) -> Value:
    """Range of floats up to an integer: computed as integers where that is an extent which is open."""
    if isinstance(limit, np.ndarray) and limit.dtype == object:
        (lo, by), dtype = n["ends"], as_tensor(start).dtype
        return F.arange(lo, ints(limit)[0], by, dtype="int64").astype(dtype)
    cast, made = n["nodes"]
    return scope.compute(made, [start, *scope.compute(cast, [limit]), delta])


@op("EyeLike")
def eye_like(n: NodeOf, x: Value) -> Value:
    """Ones on a diagonal."""
    import onnx

    rows, columns = shape_of(x)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(n.get("dtype") or element_type(x))
    return F.eye(rows, columns, n["k"], dtype=dtype)


@op("Trilu")
def trilu(n: NodeOf, x: Value, k: Value = None) -> Value:
    """A triangle of each matrix."""
    t, by = as_tensor(x), ints(k)[0] if k is not None else 0
    return (F.triu if n["upper"] else F.tril)(t, by)


@op("OneHot")
def one_hot(n: NodeOf, index: Value, depth: Value, values: Value) -> Value:
    """on where the index is, off elsewhere and where the index is out of range."""
    at, d, ends = as_tensor(index), ints(depth)[0], as_tensor(values)
    at = at.astype("int64")
    axis = n["axis"] % (len(at.shape) + 1)
    place = F.arange(d, dtype="int64").reshape(*[d if a == axis else 1 for a in range(len(at.shape) + 1)])
    hit = F.equal(positive(F.expand_dims(at, axis), d), place)
    return F.where(hit, ends[1], ends[0])


@op("NonZero")
def nonzero(n: NodeOf, x: Value) -> Value:
    """The indices of what is not zero: (axes, count)."""
    if isinstance(x, np.ndarray):
        return np.array(np.nonzero(x), np.int64)
    t = as_tensor(x)
    if not t.ndim:  # (0, 1) or (0, 0)
        return as_tensor(np.zeros((0, int(known(t) != 0)), np.int64))
    found = F.nonzero(t)
    return F.stack([f.astype("int64") for f in found], 0)


@op("Compress")
def compress(n: NodeOf, x: Value, condition: Value) -> Value:
    """The slices where a vector of bools is true."""
    t, axis = as_tensor(x), n.get("axis")
    kept = np.flatnonzero(known(condition))
    return F.take(t.reshape(-1) if axis is None else t, as_tensor(kept), 0 if axis is None else axis)


@op("Unique")
def unique(n: NodeOf, x: Value) -> tuple[Value, ...]:
    """The distinct elements or slices, in rising order or in that of their first appearance."""
    axis, array = n.get("axis"), known(x)
    found, first, inverse, counts = np.unique(array, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not n["sorted"]:
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        found = np.take(found, order, 0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return tuple(
        v if v.dtype == object else as_tensor(v) for v in (found, *(a.astype(np.int64) for a in (first, inverse, counts)))
    )


@op("ReverseSequence")
def reverse_sequence(n: NodeOf, x: Value, lengths: Value) -> Value:
    """Turns the beginning of each example around, as much of it as is said."""
    t = as_tensor(x)
    batch, time = n["batch_axis"], n["time_axis"]
    steps = t.shape[time]
    place = F.arange(steps, dtype="int64").reshape(*[steps if a == time else 1 for a in range(len(t.shape))])
    much = as_tensor(lengths).astype("int64").reshape(*[t.shape[batch] if a == batch else 1 for a in range(len(t.shape))])
    along = F.where(F.less(place, much), much - 1 - place, place)
    places = grid_places(t, t.shape, time, along)
    return F.take(t.reshape(-1), places.reshape(-1)).reshape(t.shape)


@op("DepthToSpace")
def depth_to_space(n: NodeOf, x: Value) -> Value:
    """Channels become blocks of pixels."""
    t, b = as_tensor(x), n["blocksize"]
    batch, c, h, w = t.shape
    if n.get("mode", "DCR") == "DCR":
        return t.reshape(batch, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2).reshape(batch, c // (b * b), h * b, w * b)
    return t.reshape(batch, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(batch, c // (b * b), h * b, w * b)


@op("SpaceToDepth")
def space_to_depth(n: NodeOf, x: Value) -> Value:
    """Blocks of pixels become channels."""
    t, b = as_tensor(x), n["blocksize"]
    batch, c, h, w = t.shape
    if n.get("mode", "DCR") == "CRD":
        return t.reshape(batch, c, h // b, b, w // b, b).transpose(0, 1, 3, 5, 2, 4).reshape(batch, c * b * b, h // b, w // b)
    return t.reshape(batch, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(batch, c * b * b, h // b, w // b)


@op("Pad")
def pad(n: NodeOf, x: Value, pads: Value = None, value: Value = None, axes: Value = None) -> Value:
    """Negative numbers crop."""
    s = shape_of(x)
    widths = n["pads"] if n.since < 11 else ints(pads)
    fill = (
        n["value"] if n.since < 11 else known(value).reshape(-1)[0].item() if value is not None and np.size(known(value)) else 0
    )
    where = [a % len(s) for a in (ints(axes) if axes is not None else range(len(s)))]
    if len(widths) != 2 * len(where):
        raise ValueError(f"Pad has {len(widths)} widths for {len(where)} axes; it takes 2 for each axis")
    before, after = [0] * len(s), [0] * len(s)
    for i, a in enumerate(where):
        before[a], after[a] = widths[i], widths[i + len(where)]
    crop = tuple(slice(at_least_0(-lo), e - at_least_0(-hi)) for lo, hi, e in zip(before, after, s))
    amounts = [(at_least_0(lo), at_least_0(hi)) for lo, hi in zip(before, after)]
    mode = n.get("mode", "constant")
    if isinstance(x, np.ndarray) and product([e + lo + hi for e, lo, hi in zip(x[crop].shape, *zip(*amounts))] if amounts else []) <= KNOWN:
        return np.pad(x[crop], amounts, mode, **({"constant_values": fill} if mode == "constant" else {}))
    t = as_tensor(x)
    t = t[crop] if any(isinstance(v, Expr) or v < 0 for v in (*before, *after)) else t
    return padded(t, amounts, mode, fill)


def at_least_0(n: Any) -> Any:
    """A number, or an extent that is open, or 0 where it is below."""
    return maximum(n, 0) if isinstance(n, Expr) else max(0, n)


def padded(t: Tensor, amounts: list[tuple[int, int]], mode: str, fill: Any) -> Tensor:
    """Pads; reflections and circles of known extents may be wider than what they are of."""
    if mode == "constant":
        return F.pad(t, amounts, mode, fill)
    least = {"edge": 0, "reflect": 1, "wrap": 0}[mode]
    if mode == "edge" or all(not isinstance(e, int) or max(w) + least <= e for w, e in zip(amounts, t.shape)):
        return F.pad(t, amounts, mode)
    for a, (lo, hi) in enumerate(amounts):
        if lo or hi:
            modest(extent := int(t.shape[a]) + lo + hi)
            t = F.take(t, as_tensor(np.pad(np.arange(extent - lo - hi), (lo, hi), "wrap" if mode == "wrap" else "reflect")), a)
    return t


@op("CenterCropPad")
def center_crop_pad(n: NodeOf, x: Value, to: Value) -> Value:
    """The middle, or zeros around it."""
    s = shape_of(x)
    axes = [a % len(s) for a in (n.get("axes") or range(len(s)))]
    index, amounts = [slice(None)] * len(s), [(0, 0)] * len(s)
    for a, want in zip(axes, ints(to)):
        have = s[a]
        if want < have:
            index[a] = slice((have - want) // 2, (have - want) // 2 + want)
        else:
            amounts[a] = ((want - have) // 2, want - have - (want - have) // 2)
    at = tuple(index)
    wide = any(isinstance(e, int) and e > KNOWN for e in ints(to))
    return moving(x, lambda v: np.pad(v[at], amounts), lambda t: F.pad(t[at], amounts), ints(to), KNOWN + 1 if wide else 0)


@op("Hardmax")
def hardmax(n: NodeOf, x: Value) -> Value:
    """One at the first largest element, zero elsewhere."""
    t = as_tensor(x)
    if n.since < 13:
        s, axis = t.shape, n["axis"] % len(t.shape)
        flat = t.reshape(product(s[:axis]), product(s[axis:]))
        return F.one_hot(F.argmax(flat, 1), flat.shape[1]).astype(t.dtype).reshape(s)
    axis = n["axis"] % len(t.shape)
    place = F.arange(t.shape[axis], dtype="int32").reshape(*[t.shape[axis] if a == axis else 1 for a in range(len(t.shape))])
    return F.equal(F.argmax(t, axis, keepdims=True).astype("int32"), place).astype(t.dtype)
