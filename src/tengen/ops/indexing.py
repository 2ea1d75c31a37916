"""Reading and writing at computed places: gather, scatter, take, one_hot; what x[key] and x[key] = v are made of.

Indices are integers; negative ones count from the end. One out of range is IndexOutOfRange: an eager call looks before it runs,
a compiled program brings it into range, so that memory is safe whatever it is, and says so afterwards.
Where places coincide, updates are applied in logical order.
Masks: `masks.py`. How a key is read: `keys.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from tengen import kernels
from tengen.base.dtype import bool_, dtype, int64, promote
from tengen.base.errors import DTypeError, GradientError, IndexOutOfRange, ShapeError
from tengen.ir.types import Dim, TensorType
from tengen.kernels.axes import memory_order
from tengen.kernels.lowering import product
from tengen.kernels.source import Leaf, broadcast
from tengen.loops.lang import as_int
from tengen.ops.attributes import Count, DTypeLike, Extent, Step
from tengen.ops.define import Case, Violation, broadcast_shapes, composite, dispatch, lookup, primitive, shorthand
from tengen.ops.elementwise import astype, where
from tengen.ops.logic import equal, greater_equal, less, logical_and, logical_or
from tengen.ops.shape import broadcast_to, normalize_axis, reshape, slice_type, slice_view, strided_slice

if TYPE_CHECKING:
    from tengen.tensor import Tensor

_dtype = dtype


@composite
def outside(index: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Whether any index is below `low`, or not below `high` (0-d int64 tensors)."""
    i = astype(index, int64)
    return lookup("any")(logical_or(less(i, low), greater_equal(i, high)))


outside.no_vjp("a truth value is not differentiable")
outside.reference(lambda index, low, high: np.any((index < low) | (index >= high)))
outside.cases(Case(lambda r: (r.integers(-3, 3, (4, 17)), np.int64(-3), np.int64(2)), grad=False))


def outside_range(op: str, index: Tensor, extent: int, axis: int, low: int | None = None) -> Iterator[Violation]:
    """An index outside [low, extent) (low: -extent)."""
    if as_int(index.size) == 0:
        return
    high = dispatch.scalar(extent, int64)
    opened = low is None and not isinstance(extent, int)
    low = -extent if low is None else low
    bad = outside(index, lookup("neg")(high) if opened else dispatch.scalar(low, int64), high)

    def found() -> str:
        values = index.numpy()
        first = values[(values < low) | (values >= extent)].flat[0]
        return f"{op}: index {first} is out of range for axis {axis} of extent {extent}"

    yield Violation(bad, IndexOutOfRange, f"{op}: an index is out of range for axis {axis} of extent {extent}", found)


def broadcasts_to(shape: Sequence[Dim], target: Sequence[Dim]) -> bool:
    """Whether a tensor of `shape` can be seen with the shape `target`."""
    try:
        return broadcast_shapes(target, shape) == tuple(target)
    except ShapeError:
        return False


def _numbers(x: TensorType, mode: str) -> None:
    if mode != "set" and x.dtype is bool_:
        raise DTypeError(f"mode {mode!r} does not take bool; help: cast it, for example with .astype('int32')")


def _integers(t: TensorType, what: str = "indices") -> None:
    if not t.dtype.is_int:
        raise DTypeError(f"{what} must be integers, got {t.dtype}; help: cast them, for example with .astype('int64')")


# ---- along one axis --------------------------------------------------------------------------------------------------


@primitive(functional="tensor", methods="gather", own=(1,))
def gather(inp: Tensor, axis: int, index: Tensor) -> Tensor:
    """out[..., i, ...] = inp[..., index[..., i, ...], ...] along `axis` (NumPy's take_along_axis, PyTorch's gather).

    Shapes: index has as many axes as inp; off `axis` its extents are at most inp's. The result has index's shape.

    >>> from tengen import Tensor, functional as F
    >>> F.gather(Tensor([[1, 2], [3, 4]]), 1, Tensor([[1], [0]])).tolist()
    [[2], [3]]
    """


def _along_axis(x: TensorType, axis: int, index: TensorType) -> None:
    _integers(index)
    fits = index.ndim == x.ndim and all(
        i == axis or not (isinstance(a, int) and isinstance(b, int)) or a <= b
        for i, (a, b) in enumerate(zip(index.shape, x.shape))
    )
    if not fits:
        raise ShapeError(f"an index of shape {index.shape} does not fit {x}; help: only axis {axis} may be longer")
    if as_int(x.shape[axis]) == 0 and all(as_int(d) != 0 for d in index.shape):
        raise ShapeError(f"axis {axis} has no elements")


gather.canon(lambda types, axis: {"axis": normalize_axis(axis, types[0].ndim)})


@gather.infer
def _(x, index, axis):
    _along_axis(x, axis, index)
    return TensorType(index.shape, x.dtype)


@gather.source
def _(ins, out, axis):
    return kernels.indexing.gather.TakeAlong(ins[0], ins[1], axis)


@gather.check
def _(inputs, axis):
    return outside_range("gather", inputs[1], inputs[0].shape[axis], axis)


@gather.vjp
def _(g, x, index, axis):
    return (lambda: scatter(lookup("zeros_like")(x), axis, index, g, "add")), None


gather.reference(lambda x, index, axis: _np_along(x, axis, index))


def _np_along(x, axis, index):
    part = tuple(slice(None) if i == axis % x.ndim else slice(d) for i, d in enumerate(index.shape))
    return np.take_along_axis(x[part], index, axis)


gather.cases(
    Case(lambda r: (r.uniform(-1, 1, (5, 17)), r.integers(-5, 5, (9, 17))), {"axis": 0}),
    Case(lambda r: (r.uniform(-1, 1, (3, 4, 5)), r.integers(0, 5, (2, 4, 33))), {"axis": -1}),
)


@primitive(functional="tensor", own=(1,))
def scatter(inp: Tensor, axis: int, index: Tensor, source: Tensor, mode: Literal["set", "add", "mul", "max", "min"] = "set") -> Tensor:
    """A copy of inp in which [..., index[..., i, ...], ...] along `axis` takes source[..., i, ...].

    Args:
        source: broadcasts to index's shape.
        mode: "set" (where places coincide the last update stays), "add", "mul", "max" or "min".
    Gradient: in modes "set", "max" and "min" of the one whose value stayed: of equal ones the last update, and an update before
        inp. "mul" has none.

    >>> from tengen import Tensor, functional as F
    >>> F.scatter(Tensor([0.0, 0.0, 0.0]), 0, Tensor([2, 0]), Tensor([5.0, 6.0])).tolist()
    [6.0, 0.0, 5.0]
    """




scatter.canon(lambda types, axis, mode: {"axis": normalize_axis(axis, types[0].ndim), "mode": mode})


@scatter.infer
def _(x, index, source, axis, mode):
    _along_axis(x, axis, index)
    _numbers(x, mode)
    if not broadcasts_to(source.shape, index.shape):
        raise ShapeError(f"a source of shape {source.shape} does not broadcast to an index of shape {index.shape}")
    if promote(x.dtype, source.dtype) is not x.dtype:
        raise DTypeError(f"{source.dtype} does not fit into {x.dtype}; help: cast one of them")
    return x


@scatter.lower
def _(lo, ins, outs, axis, mode):
    base, index, source = (Leaf(a) for a in ins)
    kernels.indexing.scatter.scatter(lo, base, index, source, outs[0], axis, mode)


scatter.over({0: 0})


@scatter.check
def _(inputs, axis, mode):
    return outside_range("scatter", inputs[1], inputs[0].shape[axis], axis)


@scatter.vjp
def _(g, x, index, source, axis, mode):
    if mode == "add":
        return g, None, (lambda: gather(g, axis, index))
    if mode == "mul":
        raise GradientError(
            "scatter has no gradient in mode 'mul': that of an update is the product of all others at its place, which no "
            "quotient gives where one is 0; help: scatter logarithms in mode 'add' and take exp()"
        )
    if mode != "set":  # those that are the extremum share the gradient alike, as of `max`
        out = scatter(x, axis, index, source, mode)
        kept, met = equal(x, out), equal(source, gather(out, axis, index))
        share = lookup("div")(g, scatter(lookup("astype")(kept, g.dtype), axis, index, lookup("astype")(met, g.dtype), "add"))
        return (lambda: where(kept, share, 0)), None, (lambda: where(met, gather(share, axis, index), 0))
    steps = [index.shape[axis] if i == axis else 1 for i in range(index.ndim)]
    turn = broadcast_to(reshape(_turns(steps[axis]), steps), index.shape)
    last = scatter(lookup("full")(x.shape, -1, int64), axis, index, turn, "max")
    won = logical_and(greater_equal(turn, 0), equal(gather(last, axis, index), turn))
    return (lambda: where(less(last, 0), g, 0)), None, (lambda: where(won, gather(g, axis, index), 0))


def _turns(n: Dim) -> Tensor:
    """0, 1, ... n - 1: the order in which updates are applied."""
    return lookup("arange")(0, n, 1, int64)


def _np_scatter(x, index, source, axis, mode="set"):
    out = x.copy()
    update = {"set": lambda a, b: b, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[mode]
    source = np.broadcast_to(source, index.shape)
    for at in np.ndindex(*index.shape):
        to = list(at)
        to[axis] = index[at]
        out[tuple(to)] = update(out[tuple(to)], source[at])
    return out


scatter.reference(_np_scatter)


def _scattered(r):
    return r.uniform(-1, 1, (5, 17)), np.array([r.permutation(5)[:3] for _ in range(17)]).T, r.uniform(-1, 1, (3, 17))


scatter.cases(
    Case(_scattered, {"axis": 0}),
    Case(lambda r: (r.uniform(-1, 1, (5, 4)), r.integers(-4, 4, (5, 33)), r.uniform(-1, 1, 33)), {"axis": 1, "mode": "add"}),
    Case(
        lambda r: (r.uniform(-1, 1, (5, 4)), r.integers(-4, 4, (5, 9)), r.uniform(-1, 1, 9)),
        {"axis": 1, "mode": "mul"},
        grad=False,
    ),
    *(
        Case(lambda r: (r.uniform(-1, 1, (5, 4)), r.integers(-4, 4, (5, 9)), r.uniform(-1, 1, 9)), {"axis": 1, "mode": m})
        for m in ("set", "max", "min")
    ),
)

# ---- several axes ----------------------------------------------------------------------------------------------------
# `axes` says which axis each index belongs to; the indices' common shape stands at `position` among the axes that are left.


def indexed_shape(indices: Sequence[TensorType], x: TensorType, axes, position) -> tuple[Dim, ...]:
    for t in indices:
        _integers(t)
    common = broadcast_shapes(*(t.shape for t in indices))
    if not indices:
        raise ShapeError(f"no axis of {x} has an index")
    if len(axes) != len(indices) or len(set(axes)) != len(axes) or not all(0 <= a < x.ndim for a in axes):
        raise ShapeError(f"indices for the axes {axes} do not fit {x}")
    if any(as_int(x.shape[a]) == 0 for a in axes) and all(as_int(d) != 0 for d in common):
        raise ShapeError(f"an indexed axis of {x} has no elements")
    rest = [d for i, d in enumerate(x.shape) if i not in axes]
    if position > len(rest):
        raise ShapeError(f"the indices' axes cannot stand at position {position} of the {len(rest)} axes of {x} that are left")
    return (*rest[:position], *common, *rest[position:])


@primitive
def index(indices: list[Tensor], x: Tensor, axes: Sequence[int], position: Count) -> Tensor:
    """x read at integer indices of some axes (which broadcast together); other axes are kept whole: NumPy's advanced
    indexing."""


@index.infer
def _(*types, axes, position):
    return TensorType(indexed_shape(types[:-1], types[-1], axes, position), types[-1].dtype)


@index.source
def _(ins, out, axes, position):
    shape = broadcast_shapes(*(s.shape for s in ins[:-1]))
    return kernels.indexing.gather.Gather(ins[-1], dict(zip(axes, (broadcast(s, shape) for s in ins[:-1]))), position)


@index.check
def _(inputs, axes, position):
    for i, axis in zip(inputs, axes):
        yield from outside_range("index", i, inputs[-1].shape[axis], axis)


@index.vjp
def _(g, *inputs, axes, position):
    return *(None for _ in axes), (lambda: index_grad(list(inputs[:-1]), inputs[-1], g, axes, position))


@primitive
def index_put(
    indices: list[Tensor], x: Tensor, value: Tensor, axes: Sequence[int], position: Count, mode: Literal["set", "add"] = "set"
) -> Tensor:
    """A copy of x in which the elements that `index` would read take `value` (which broadcasts), or have it added (mode "add").
    Where places coincide, updates are applied in order, and the last one that was set has the gradient."""


@index_put.infer
def _(*types, axes, position, mode):
    x, value = types[-2:]
    _numbers(x, mode)
    shape = indexed_shape(types[:-2], x, axes, position)
    if not broadcasts_to(value.shape, shape):
        raise ShapeError(f"a value of shape {value.shape} does not broadcast to {shape}")
    if value.dtype is not x.dtype:
        raise DTypeError(f"a value of {value.dtype} for elements of {x.dtype}; help: cast it")
    return x


@index_put.lower
def _(lo, ins, outs, axes, position, mode):
    shape = broadcast_shapes(*(a.shape for a in ins[:-2]))
    indices = dict(zip(axes, (broadcast(Leaf(a), shape) for a in ins[:-2])))
    kernels.indexing.scatter.index_put(lo, Leaf(ins[-2]), indices, position, Leaf(ins[-1]), outs[0], mode)


index_put.over({0: -2})


@index_put.check
def _(inputs, axes, position, mode):
    for i, axis in zip(inputs, axes):
        yield from outside_range("index_put", i, inputs[-2].shape[axis], axis)


@index_put.vjp
def _(g, *inputs, axes, position, mode):
    indices = list(inputs[:-2])
    none = [None for _ in axes]
    if mode == "add":
        return *none, g, (lambda: index(indices, g, axes, position))
    kept = lambda: index_put(indices, g, dispatch.scalar(0, g.dtype), axes, position)
    return *none, kept, (lambda: where(_stays(indices, g, axes, position), index(indices, g, axes, position), 0))


@composite
def index_grad(indices: list[Tensor], x: Tensor, grad: Tensor, axes: Sequence[int], position: Count) -> Tensor:
    """The gradient of `index` with respect to x, of which only the shape is read: zeros to which grad is added, in order."""
    return index_put(indices, lookup("zeros_like")(x), grad, axes, position, "add")


def _np_index_grad(indices, x, grad, axes, position):
    return _np_index_put(indices, np.zeros_like(x), grad, axes, position, "add")


def _stays(indices: list[Tensor], x: Tensor, axes: Sequence[int], position: int) -> Tensor:
    """Which of the values that are set one after the other stay, in a shape that broadcasts to theirs."""
    common = broadcast_shapes(*(i.shape for i in indices))
    turn = reshape(_turns(product(common)), common)
    places, all_axes = lookup("full")([x.shape[a] for a in axes], -1, int64), tuple(range(len(axes)))
    last = index(indices, index_put(indices, places, turn, all_axes, 0), all_axes, 0)
    return reshape(equal(last, turn), (*common, *(1,) * (x.ndim - len(axes) - position)))


def _np_key(indices, x, axes, position):
    """x with the indexed axes in front, so that the indices' axes come first, and where they belong."""
    rest = [a for a in range(x.ndim) if a not in axes]
    return np.transpose(x, [*axes, *rest]), np.broadcast_arrays(*indices), np.ndim(np.broadcast_arrays(*indices)[0])


def _np_index(indices, x, axes, position):
    moved, together, n = _np_key(indices, x, axes, position)
    return np.moveaxis(moved[tuple(together)], range(n), range(position, position + n))


def _np_index_put(indices, x, value, axes, position, mode="set"):
    out = x.copy()
    moved, together, n = _np_key(indices, out, axes, position)
    shape = _np_index(indices, x, axes, position).shape
    value = np.moveaxis(np.broadcast_to(value, shape), range(position, position + n), range(n))
    for at in np.ndindex(*together[0].shape):
        to = tuple(i[at] for i in together)
        moved[to] = value[at] + (moved[to] if mode == "add" else 0)
    return out


index.reference(_np_index)
index_put.reference(_np_index_put)
index.cases(
    Case(lambda r: ([r.integers(-5, 5, (3, 2))], r.uniform(-1, 1, (5, 17))), {"axes": (0,), "position": 0}),
    Case(
        lambda r: ([r.integers(0, 4, (6, 1)), r.integers(-5, 5, 3)], r.uniform(-1, 1, (4, 16, 5))),
        {"axes": (0, 2), "position": 0},
    ),
    Case(lambda r: ([r.integers(0, 4, 33)], r.uniform(-1, 1, (3, 4))), {"axes": (1,), "position": 1}),
    Case(lambda r: ([np.zeros((0,), np.int64)], r.uniform(-1, 1, (3, 4))), {"axes": (1,), "position": 1}),
)
ROWS = {"axes": (0,), "position": 0}
index_grad.reference(_np_index_grad)
index_grad.cases(
    Case(lambda r: ([r.integers(-5, 5, (6, 3))], r.normal(size=(5, 17)), r.normal(size=(6, 3, 17))), ROWS),
    Case(lambda r: ([r.integers(0, 4, 3)], r.uniform(-1, 1, (2, 4)), r.uniform(-1, 1, (2, 3))), {"axes": (1,), "position": 1}),
    Case(lambda r: ([r.integers(0, 1, 0)], r.uniform(-1, 1, (2, 4)), r.uniform(-1, 1, (0, 4))), ROWS),
)
index_put.cases(
    Case(lambda r: ([r.permutation(5)[:3]], r.uniform(-1, 1, (5, 17)), r.uniform(-1, 1, 17)), {"axes": (0,), "position": 0}),
    Case(
        lambda r: (
            [r.integers(0, 4, (6, 1)), r.integers(-5, 5, 3)],
            r.uniform(-1, 1, (4, 16, 5)),
            r.uniform(-1, 1, (6, 3, 16)),
        ),
        {"axes": (0, 2), "position": 0, "mode": "add"},
    ),
    Case(
        lambda r: ([r.integers(-3, 3, (4, 1)), r.integers(0, 2, 3)], r.uniform(-1, 1, (5, 3, 2)), r.uniform(-1, 1, (5, 4, 3))),
        {"axes": (1, 2), "position": 1},
    ),
    Case(lambda r: ([r.integers(0, 3, 7)], r.uniform(-1, 1, (3, 5)), r.uniform(-1, 1, (7, 5))), {"axes": (0,), "position": 0}),
)


@primitive
def set_slice(
    x: Tensor, value: Tensor, starts: Sequence[Extent], sizes: Sequence[Extent], steps: Sequence[Step]
) -> Tensor:
    """A copy of x in which the elements that `strided_slice` would read take `value` (which broadcasts)."""


@set_slice.infer
def _(x, value, starts, sizes, steps):
    slice_type(x, starts, sizes, steps)
    if not broadcasts_to(value.shape, sizes):
        raise ShapeError(f"a value of shape {value.shape} does not broadcast to {tuple(sizes)}")
    if value.dtype is not x.dtype:
        raise DTypeError(f"a value of {value.dtype} for elements of {x.dtype}; help: cast it")
    return x


set_slice.over({0: 0})


@set_slice.layout
def _(arrays, out, **attrs):
    return memory_order(arrays[0])


@set_slice.lower
def _(lo, ins, outs, starts, sizes, steps):
    if ins[0] != outs[0]:
        kernels.pointwise.pointwise(lo, [Leaf(ins[0])], outs, "set_slice_base")
    if all(as_int(d) != 0 for d in sizes):
        inside = slice_view(outs[0], TensorType(sizes, outs[0].dtype), starts, sizes, steps)
        kernels.pointwise.pointwise(lo, [Leaf(ins[1])], [inside], "set_slice")


@set_slice.vjp
def _(g, x, value, starts, sizes, steps):
    zero = dispatch.scalar(0, g.dtype)
    return (lambda: set_slice(g, zero, starts, sizes, steps)), (lambda: strided_slice(g, starts, sizes, steps))


def _np_set_slice(x, value, starts, sizes, steps):
    out = x.copy()
    out[np.ix_(*(np.arange(n) * s + a for a, n, s in zip(starts, sizes, steps)))] = value
    return out


set_slice.reference(_np_set_slice)
set_slice.cases(
    Case(
        lambda r: (r.uniform(-1, 1, (5, 17)), r.uniform(-1, 1, (3, 1))), {"starts": (4, 0), "sizes": (3, 16), "steps": (-2, 1)}
    ),
    Case(lambda r: (r.uniform(-1, 1, 9), np.float64(2)), {"starts": (1,), "sizes": (0,), "steps": (1,)}),
)

# ---- forms of them ---------------------------------------------------------------------------------------------------


@shorthand(functional="tensor")
def take(inp: Tensor, indices: Tensor, axis: int | None = None) -> Tensor:
    """inp at integer indices of one axis (of the flattened tensor by default): the indices' axes take its place.

    >>> from tengen import Tensor, functional as F
    >>> F.take(Tensor([5.0, 6.0, 7.0]), Tensor([[2, 0]])).tolist()
    [[7.0, 5.0]]
    """
    x = dispatch.tensor(inp)
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    a = normalize_axis(axis, x.ndim)
    return index([dispatch.tensor(indices)], x, (a,), a)


take.reference(np.take)
take.cases(
    Case(lambda r: (r.uniform(-1, 1, (4, 5)), r.integers(0, 20, (3, 2)))),
    Case(lambda r: (r.uniform(-1, 1, (4, 5)), r.integers(-5, 5, (3, 2))), {"axis": 1}),
)


@shorthand(functional="tensor")
def index_select(inp: Tensor, axis: int, index: Tensor) -> Tensor:
    """inp at a vector of integer indices of one axis (PyTorch's order of arguments)."""
    return take(inp, index, axis)


index_select.reference(lambda x, index, axis: np.take(x, index, axis))
index_select.cases(Case(lambda r: (r.uniform(-1, 1, (4, 17)), r.integers(0, 4, 9)), {"axis": 0}))


@primitive(functional="tensor nn")
def one_hot(inp: Tensor, num_classes: Extent, dtype: DTypeLike | None = None) -> Tensor:
    """1 at each index, else 0, along a new last axis; of inp's dtype by default.

    Errors: IndexOutOfRange for an index outside [0, num_classes), in eager mode; a compiled program gives a row of zeros.

    >>> from tengen import Tensor, functional as F
    >>> F.one_hot(Tensor([2, 0]), 3).tolist()
    [[0, 0, 1], [1, 0, 0]]
    """


@one_hot.canon
def _(types, num_classes, dtype):
    return {"num_classes": num_classes, "dtype": types[0].dtype if dtype is None else dtype}


@one_hot.infer
def _(x, num_classes, dtype):
    _integers(x)
    return TensorType((*x.shape, num_classes), dtype)


@one_hot.source
def _(ins, out, num_classes, dtype):
    return kernels.indexing.gather.OneHot(ins[0], num_classes, dtype)


@one_hot.check
def _(inputs, num_classes, dtype):
    return outside_range("one_hot", inputs[0], num_classes, inputs[0].ndim, 0)


one_hot.no_vjp("an index is not differentiable")
one_hot.reference(lambda x, num_classes, dtype=None: np.eye(num_classes, dtype=dtype or x.dtype)[x])
one_hot.cases(
    Case(lambda r: (r.integers(0, 5, (3, 4)),), {"num_classes": 5}, grad=False),
    Case(lambda r: (r.integers(0, 17, 5),), {"num_classes": 33, "dtype": "float32"}, grad=False),
)


@primitive(functional="tensor")
def searchsorted(table: Tensor, values: Tensor, right: bool = False) -> Tensor:
    """For each value the first position in the ascending last axis of `table` that keeps it sorted (after equal elements with
    `right`); int64. NaNs are largest.

    Shapes: table (n) with any values, or (..., n) with values (..., m)
    """


@searchsorted.infer
def _(table, values, right):
    if table.ndim == 0 or (table.ndim > 1 and tuple(table.shape[:-1]) != tuple(values.shape[:-1])):
        raise ShapeError(f"values of shape {values.shape} cannot be looked up in {table}")
    if table.dtype is not values.dtype:
        raise DTypeError(f"the table has {table.dtype}, the values {values.dtype}; help: cast one of them")
    return TensorType(values.shape, int64)


@searchsorted.source
def _(ins, out, right):
    return kernels.indexing.gather.SearchSorted(ins[0], ins[1], right)


searchsorted.no_vjp("a position is not differentiable")
searchsorted.reference(lambda table, values, right=False: np.searchsorted(table, values, "right" if right else "left"))
searchsorted.cases(
    Case(lambda r: (np.sort(r.integers(0, 9, 17)), r.integers(-1, 10, (3, 33))), grad=False),
    Case(lambda r: (np.sort(r.integers(0, 9, 17)), r.integers(-1, 10, (3, 33))), {"right": True}, grad=False),
)
