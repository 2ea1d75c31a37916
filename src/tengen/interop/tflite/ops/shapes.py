"""What moves elements and what asks for shapes: known arrays stay known, so that a shape computed from shapes is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tengen.functional as F
from tengen.interop.networks.places import flat_places, grid_places, modest, positive, product
from tengen.interop.networks.values import as_tensor, ints, known, shape_array
from tengen.interop.tflite.ops.elementwise import all_known, fused
from tengen.interop.tflite.reader import OpOf
from tengen.interop.tflite.registry import op
from tengen.loops.lang import Expr
from tengen.tensor import Tensor


def moving(
    v: Any, array: Callable[[np.ndarray], np.ndarray], tensor: Callable[[Tensor], Tensor], extents: Sequence[Any] = ()
) -> Any:
    """A value whose elements are moved: a known array stays one unless it takes an open extent."""
    fixed = isinstance(v, np.ndarray) and not any(isinstance(e, Expr) for e in extents)
    return np.asarray(array(v)) if fixed else tensor(as_tensor(v))




def typed(n: OpOf, a: np.ndarray) -> np.ndarray:
    """A known array in the dtype of the operator's output; open extents stay."""
    return a if a.dtype == object or n.out().dtype is None else a.astype(n.out().dtype)


@op("SHAPE")
def shape(n: OpOf, x: Any) -> np.ndarray:
    """Of any value."""
    return typed(n, shape_array(x.shape))


@op("RANK")
def rank(n: OpOf, x: Any) -> np.ndarray:
    """The number of axes."""
    return np.array(len(x.shape), np.int32)


@op("RESHAPE")
def reshape(n: OpOf, x: Any, to: Any = None) -> Any:
    """To a shape that is an input, or an option; -1 is what is left."""
    wanted = ints(to) if to is not None else [int(d) for d in n["NewShape"]]
    if to is not None and not isinstance(to, np.ndarray) and len(to.shape) != 1:
        raise ValueError(f"a shape of {len(to.shape)} axes")
    if all(isinstance(d, int) for d in (*wanted, *x.shape)) and wanted == list(x.shape):
        return x
    return moving(x, lambda a: a.reshape(wanted), lambda t: t.reshape(tuple(wanted)))


@op("SQUEEZE")
def squeeze(n: OpOf, x: Any) -> Any:
    """Without axes of extent 1: some, or all."""
    axes = [int(a) % len(x.shape) for a in n.get("SqueezeDims", ())] or [
        i for i, e in enumerate(x.shape) if isinstance(e, int) and e == 1
    ]
    if any(isinstance(x.shape[a], int) and x.shape[a] != 1 for a in axes):
        raise ValueError(f"axes {axes} of {tuple(x.shape)} are not all of extent 1")
    left = tuple(e for i, e in enumerate(x.shape) if i not in axes)
    return moving(x, lambda a: a.reshape(left), lambda t: t.reshape(left))


@op("EXPAND_DIMS")
def expand_dims(n: OpOf, x: Any, axis: Any) -> Any:
    """With one more axis."""
    at = ints(axis)[0]
    at += (len(x.shape) + 1) * (at < 0)
    wide = (*x.shape[:at], 1, *x.shape[at:])
    return moving(x, lambda a: a.reshape(wide), lambda t: t.reshape(wide))


@op("TRANSPOSE")
def transpose(n: OpOf, x: Any, order: Any) -> Any:
    """Axes in another order."""
    axes = ints(order)
    return moving(x, lambda a: a.transpose(axes), lambda t: F.transpose(t, axes) if axes else t)


@op("CONCATENATION")
def concatenation(n: OpOf, *parts: Any) -> Any:
    """One after the other."""
    axis = n.get("Axis", 0)
    if all_known(*parts):
        return np.concatenate(parts, axis)
    return fused(n, F.concat([as_tensor(p) for p in parts], axis))


@op("PACK")
def pack(n: OpOf, *parts: Any) -> Any:
    """Side by side along a new axis."""
    axis = n.get("Axis", 0)
    if all_known(*parts):
        return np.stack(parts, axis)
    return F.stack([as_tensor(p) for p in parts], axis)


@op("UNPACK")
def unpack(n: OpOf, x: Any) -> tuple:
    """Slices along an axis."""
    axis = n.get("Axis", 0) % len(x.shape)
    cut = lambda i: (slice(None),) * axis + (i,)
    return tuple(moving(x, lambda a, i=i: a[cut(i)], lambda t, i=i: t[cut(i)]) for i in range(len(n.outputs)))


def parts_of(x: Any, axis: int, sizes: Sequence) -> tuple:
    """Pieces along an axis."""
    starts = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    cut = lambda a, b: (slice(None),) * axis + (slice(a, b),)
    return tuple(moving(x, lambda v, c=cut(a, b): v[c], lambda t, c=cut(a, b): t[c]) for a, b in zip(starts, starts[1:]))


@op("SPLIT")
def split(n: OpOf, axis: Any, x: Any) -> tuple:
    """Equal pieces."""
    at, count = ints(axis)[0] % len(x.shape), len(n.outputs)
    if isinstance(x.shape[at], int) and x.shape[at] % count:
        raise ValueError(f"{count} equal pieces of {x.shape[at]}")
    return parts_of(x, at, [x.shape[at] // count] * count)


@op("SPLIT_V")
def split_v(n: OpOf, x: Any, sizes: Any, axis: Any) -> tuple:
    """Pieces of given sizes, of which one may be what is left."""
    at, wanted = ints(axis)[0] % len(x.shape), ints(sizes)
    rest = x.shape[at] - sum(s for s in wanted if s >= 0)
    return parts_of(x, at, [rest if isinstance(s, int) and s < 0 else s for s in wanted])


@op("SLICE")
def slice_(n: OpOf, x: Any, begin: Any, size: Any) -> Any:
    """From a corner on; a size of -1 is all that is left."""
    at = tuple(slice(b, None if isinstance(s, int) and s < 0 else b + s) for b, s in zip(ints(begin), ints(size)))
    if len(at) != len(x.shape) or any(isinstance(c.start, int) and c.start < 0 for c in at):
        raise ValueError(f"a slice that begins at {ints(begin)} of {tuple(x.shape)}")
    for c, e in zip(at, x.shape):
        if isinstance(e, int) and isinstance(c.stop, int) and c.stop > e:
            raise ValueError(f"a slice that ends at {c.stop} of {e}")
    return moving(x, lambda a: a[at], lambda t: t[at])


@op("STRIDED_SLICE")
def strided_slice(n: OpOf, x: Any, begin: Any, end: Any, strides: Any) -> Any:
    """Like Python's slices, with bits that say where one is absent, an axis is new, or goes."""
    lo, hi, by = ints(begin), ints(end), ints(strides)
    bit = lambda name, i: bool(n.get(name, 0) >> i & 1)
    if n.get("Offset", False):
        hi = [a + b for a, b in zip(lo, hi)]
    index: list[Any] = []
    for i in range(len(lo)):
        if bit("EllipsisMask", i):
            index.append(...)
        elif bit("NewAxisMask", i):
            index.append(None)
        elif bit("ShrinkAxisMask", i):
            index.append(lo[i])
        else:
            stop = None if bit("EndMask", i) else hi[i]
            extent = x.shape[i] if not any(v is None or v is ... for v in index) and i < len(x.shape) else None
            if by[i] < 0 and isinstance(stop, int) and isinstance(extent, int) and stop < -extent:
                stop = None
            index.append(slice(None if bit("BeginMask", i) else lo[i], stop, by[i]))
    at = tuple(index)
    return moving(x, lambda a: a[at], lambda t: t[at])


@op("GATHER")
def gather(n: OpOf, x: Any, index: Any) -> Any:
    """Slices along an axis by indices, batch by batch along the first axes."""
    axis, batch = n.get("Axis", 0) % len(x.shape), n.get("BatchDims", 0)
    batch += len(index.shape) * (batch < 0)
    if all_known(x, index) and not batch:
        return np.asarray(np.take(x, index.astype(np.int64), axis))
    t, at = as_tensor(x), as_tensor(index)
    if not batch:
        return F.take(t, positive(at, t.shape[axis]), axis)
    lead, inner = t.shape[:batch], t.shape[batch:axis]
    extent, rest = t.shape[axis], t.shape[axis + 1 :]
    order = [*range(batch), axis, *(a for a in range(batch, len(t.shape)) if a != axis)]
    rows = F.transpose(t, order).reshape(product(lead) * extent, *inner, *rest)
    offset = F.arange(product(lead), dtype="int64").reshape(*lead, *[1] * (len(at.shape) - batch)) * extent
    found = F.take(rows, (positive(at.astype("int64"), extent) + offset).reshape(-1), 0).reshape(*at.shape, *inner, *rest)
    wide, k = len(at.shape), len(inner)  # lead, index, inner, rest -> lead, inner, index, rest
    back = [*range(batch), *range(wide, wide + k), *range(batch, wide), *range(wide + k, wide + k + len(rest))]
    return F.transpose(found, back)


@op("GATHER_ND")
def gather_nd(n: OpOf, x: Any, index: Any) -> Tensor:
    """Slices by the vectors in the index's last axis."""
    t, at = as_tensor(x), as_tensor(index)
    depth = int(at.shape[-1])
    places = flat_places(at, t.shape).reshape(-1)
    rest = t.shape[depth:]
    return F.take(t.reshape(product(t.shape[:depth]), *rest), places, 0).reshape(*at.shape[:-1], *rest)


@op("SCATTER_ND")
def scatter_nd(n: OpOf, index: Any, updates: Any, shape: Any) -> Tensor:
    """Slices added into zeros at the places of an index."""
    at, new, extents = as_tensor(index), as_tensor(updates), ints(shape)
    depth = int(at.shape[-1])
    width = product(extents[depth:])
    places = flat_places(at, extents).reshape(-1, 1) * width + F.arange(width, dtype="int64").reshape(1, -1)
    return F.scatter(F.zeros((product(extents),), new.dtype), 0, places.reshape(-1), new.reshape(-1), "add").reshape(
        tuple(extents)
    )


@op("EMBEDDING_LOOKUP")
def embedding_lookup(n: OpOf, index: Any, table: Any) -> Tensor:
    """Rows of a table."""
    return F.take(as_tensor(table), as_tensor(index), 0)


@op("ONE_HOT")
def one_hot(n: OpOf, index: Any, depth: Any, on: Any, off: Any) -> Tensor:
    """on where the index is, off elsewhere and for indices out of range."""
    at, d = as_tensor(index).astype("int64"), ints(depth)[0]
    axis = n.get("Axis", -1)
    axis += (len(at.shape) + 1) * (axis < 0)
    place = F.arange(d, dtype="int64").reshape(*[d if a == axis else 1 for a in range(len(at.shape) + 1)])
    return F.where(F.equal(F.expand_dims(at, axis), place), as_tensor(on).reshape(()), as_tensor(off).reshape(()))


@op("PAD", "PADV2")
def pad(n: OpOf, x: Any, widths: Any, fill: Any = None) -> Any:
    """Surrounded by one value: of integers with scales by default the one that stands for 0."""
    pairs = known(widths).reshape(-1, 2).tolist()
    if isinstance(x, np.ndarray):
        modest(product([e + a + b for e, (a, b) in zip(x.shape, pairs)]))
    quant = n.of(0).quant
    value = known(fill).reshape(-1)[0].item() if fill is not None else quant.zero if quant is not None else 0
    return moving(
        x, lambda a: np.pad(a, pairs, constant_values=value), lambda t: F.pad(t, [(a, b) for a, b in pairs], "constant", value)
    )


@op("MIRROR_PAD")
def mirror_pad(n: OpOf, x: Any, widths: Any) -> Tensor:
    """Surrounded by its mirror image, with its border or without it."""
    t, mode = as_tensor(x), "symmetric" if n.get("Mode", 0) == 1 else "reflect"
    for axis, (lo, hi) in enumerate(known(widths).reshape(-1, 2).tolist()):
        if lo or hi:
            modest(t.shape[axis] + lo + hi)
            t = F.take(t, as_tensor(np.pad(np.arange(int(t.shape[axis])), (lo, hi), mode)), axis)
    return t


@op("TILE")
def tile(n: OpOf, x: Any, count: Any) -> Any:
    """Repeated along each axis."""
    if isinstance(x, np.ndarray):
        modest(product([*x.shape, *ints(count)]))
    return moving(x, lambda a: np.tile(a, ints(count)), lambda t: F.tile(t, ints(count)), ints(count))


def widened(x: Any, target: Sequence) -> Any:
    """Broadcast to a shape."""
    have = (1,) * (len(target) - len(x.shape)) + tuple(x.shape)
    if isinstance(x, np.ndarray):
        modest(product(target))
    return moving(x, lambda a: np.broadcast_to(a, target), lambda t: F.broadcast_to(t.reshape(have), tuple(target)), target)


@op("BROADCAST_TO")
def broadcast_to(n: OpOf, x: Any, to: Any) -> Any:
    """To a shape."""
    return widened(x, ints(to))


@op("BROADCAST_ARGS")
def broadcast_args(n: OpOf, x: Any, y: Any) -> np.ndarray:
    """The shape to which two shapes broadcast."""
    a, b = ints(x), ints(y)
    width = max(len(a), len(b))
    a, b = [1] * (width - len(a)) + a, [1] * (width - len(b)) + b
    return typed(n, shape_array([q if isinstance(p, int) and p == 1 else p for p, q in zip(a, b)]))


@op("FILL")
def fill(n: OpOf, to: Any, value: Any) -> Any:
    """One value everywhere."""
    extents = ints(to)
    if all_known(value) and all(isinstance(e, int) for e in extents) and product(extents) <= 4096 and value.dtype.kind in "iub":
        return np.full(extents, value.reshape(()))
    return F.broadcast_to(as_tensor(value).reshape([1] * len(extents)), tuple(extents))


@op("RANGE")
def range_(n: OpOf, start: Any, limit: Any, delta: Any) -> Any:
    """From start on, by delta, before limit."""
    ends = [known(v).reshape(-1)[0] for v in (start, limit, delta)]
    dtype = n.out().dtype
    if all(isinstance(e, (np.number, int, float)) for e in ends):
        modest(int((ends[1] - ends[0]) / ends[2]))
        made = np.arange(*ends).astype(dtype)
        return made if dtype.kind in "iu" and made.size <= 4096 else as_tensor(made)
    return F.arange(*ends, dtype=dtype)


@op("REVERSE_V2")
def reverse(n: OpOf, x: Any, axes: Any) -> Any:
    """Backwards along axes."""
    turned = {a % len(x.shape) for a in ints(axes)}
    at = tuple(slice(None, None, -1) if a in turned else slice(None) for a in range(len(x.shape)))
    return moving(x, lambda a: a[at], lambda t: t[at])


@op("REVERSE_SEQUENCE")
def reverse_sequence(n: OpOf, x: Any, lengths: Any) -> Tensor:
    """The beginning of each example backwards, as much of it as is said."""
    t, batch, time = as_tensor(x), n.get("BatchDim", 0), n.get("SeqDim", 0)
    along = lambda v, axis: v.reshape(*[t.shape[axis] if a == axis else 1 for a in range(len(t.shape))])
    place = along(F.arange(t.shape[time], dtype="int64"), time)
    much = along(as_tensor(lengths).astype("int64"), batch)
    places = grid_places(t, t.shape, time, F.where(F.less(place, much), much - 1 - place, place))
    return F.take(t.reshape(-1), places.reshape(-1)).reshape(t.shape)


@op("SPACE_TO_DEPTH")
def space_to_depth(n: OpOf, x: Any) -> Tensor:
    """Blocks of pixels become channels."""
    t, b = as_tensor(x), n["BlockSize"]
    batch, h, w, c = t.shape
    return t.reshape(batch, h // b, b, w // b, b, c).transpose(0, 1, 3, 2, 4, 5).reshape(batch, h // b, w // b, b * b * c)


@op("DEPTH_TO_SPACE")
def depth_to_space(n: OpOf, x: Any) -> Tensor:
    """Channels become blocks of pixels."""
    t, b = as_tensor(x), n["BlockSize"]
    batch, h, w, c = t.shape
    return t.reshape(batch, h, w, b, b, c // (b * b)).transpose(0, 1, 3, 2, 4, 5).reshape(batch, h * b, w * b, c // (b * b))


@op("SPACE_TO_BATCH_ND")
def space_to_batch(n: OpOf, x: Any, block: Any, widths: Any) -> Tensor:
    """Every b-th pixel becomes an example of its own."""
    t, blocks, quant = as_tensor(x), ints(block), n.of(0).quant
    pairs = [(0, 0), *map(tuple, known(widths).reshape(-1, 2).tolist())]
    pairs += [(0, 0)] * (len(t.shape) - len(pairs))
    t = F.pad(t, pairs, "constant", 0 if quant is None else quant.zero) if any(a or b for a, b in pairs) else t
    batch, space, rest = t.shape[0], t.shape[1 : 1 + len(blocks)], t.shape[1 + len(blocks) :]
    t = t.reshape(batch, *(v for e, b in zip(space, blocks) for v in (e // b, b)), *rest)
    k = len(blocks)
    order = [*(2 + 2 * i for i in range(k)), 0, *(1 + 2 * i for i in range(k)), *range(1 + 2 * k, len(t.shape))]
    return F.transpose(t, order).reshape(batch * product(blocks), *(e // b for e, b in zip(space, blocks)), *rest)


@op("BATCH_TO_SPACE_ND")
def batch_to_space(n: OpOf, x: Any, block: Any, crops: Any) -> Tensor:
    """The way back, with a border cut off."""
    t, blocks, k = as_tensor(x), ints(block), len(ints(block))
    batch, space, rest = t.shape[0] // product(blocks), t.shape[1 : 1 + k], t.shape[1 + k :]
    t = t.reshape(*blocks, batch, *space, *rest)
    order = [k, *(v for i in range(k) for v in (k + 1 + i, i)), *range(2 * k + 1, len(t.shape))]
    t = F.transpose(t, order).reshape(batch, *(e * b for e, b in zip(space, blocks)), *rest)
    cut = [slice(lo, e - hi) for (lo, hi), e in zip(known(crops).reshape(-1, 2).tolist(), t.shape[1:])]
    return t[(slice(None), *cut)]


@op("MATRIX_DIAG")
def matrix_diag(n: OpOf, x: Any) -> Tensor:
    """Matrices with these diagonals."""
    t = as_tensor(x)
    return F.where(F.eye(t.shape[-1], dtype="bool"), F.expand_dims(t, -1), F.zeros((), t.dtype))


@op("MATRIX_SET_DIAG")
def matrix_set_diag(n: OpOf, x: Any, diagonal: Any) -> Tensor:
    """Matrices with other diagonals."""
    t, d = as_tensor(x), as_tensor(diagonal)
    rows, columns = t.shape[-2:]
    if rows > columns:
        d = F.pad(d, [(0, 0)] * (len(d.shape) - 1) + [(0, rows - columns)])
    return F.where(F.eye(rows, columns, dtype="bool"), F.expand_dims(d, -1), t)


@op("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(n: OpOf, x: Any, update: Any, start: Any) -> Tensor:
    """A tensor with a part of it replaced, from a corner on that is moved so that the part fits."""
    t, new, at = as_tensor(x), as_tensor(update), as_tensor(start).astype("int64")
    if not t.shape:
        return new
    places: Any = 0
    for axis, (e, k) in enumerate(zip(t.shape, new.shape)):
        first = F.clip(at[axis], 0, e - k)
        along = F.arange(k, dtype="int64").reshape(*[k if a == axis else 1 for a in range(len(t.shape))]) + first
        places = places * e + along
    places = F.broadcast_to(places, new.shape).reshape(-1)
    return F.scatter(t.reshape(-1), 0, places, new.reshape(-1)).reshape(t.shape)


@op("SPARSE_TO_DENSE")
def sparse_to_dense(n: OpOf, index: Any, shape: Any, values: Any, default: Any) -> Tensor:
    """A value everywhere but at some places."""
    at, extents, new = as_tensor(index), ints(shape), as_tensor(values)
    at = at.reshape(-1, 1) if len(at.shape) < 2 else at
    places = flat_places(at, extents)
    ground = F.broadcast_to(as_tensor(default).reshape(1), (product(extents),)).astype(new.dtype)
    return F.scatter(ground, 0, places, F.broadcast_to(new.reshape(-1), places.shape)).reshape(tuple(extents))
