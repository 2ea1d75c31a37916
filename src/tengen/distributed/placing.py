"""Along which axes an op can be computed in parts, and what each process then computes.

In: an op, the types of its operands, attributes. Out: `Way`s. Most follow from the op's own rule "parts" (`ops/rules.py`), which says along
which axis of the results a part needs only the same part of an operand: elementwise ops, reductions along other axes, views, rows of
products, convolutions, heads of attention. What no op says is stated in `STATED`. An op without any is computed whole by every process.

A product whose summed axis is cut gives the sums of its chunks, which are added in their order by whoever needs them. A chunk is what the
numerics contract says, 256 terms; so the bits are those of one process where the processes' pieces are whole chunks, and an axis that
cannot be cut so is gathered. Sums of floats along a cut axis are gathered too: their chunks have 4,096 elements in lanes of 16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tengen.base.record import NamedTuple
from tengen.ir.types import TensorType
from tengen.kernels.numerics import CHUNK_TERMS
from tengen.ops.define import REGISTRY, Op, same_axes
from tengen.tensor import Tensor

Types = Sequence[TensorType | None]


class Way(NamedTuple):
    """How an op is computed in parts.

    Attributes: axes: of each operand the axis that is cut; None: each process has all of it. out: the axis of the results that is
        cut then; None: it is not. combine: "" for results that are parts; "chunks": each process has some chunks of a sum; "max" or "min":
        each has the greatest or least of its part.
    """

    axes: tuple[int | None, ...]
    out: int | None
    combine: str = ""


def ways(op: Op, types: Types, attrs: dict[str, Any], outs: Sequence[TensorType], size: int) -> Iterator[Way]:
    """The ways to compute a call in `size` equal parts, along each axis where that is possible."""
    fits = lambda shape, i: isinstance(shape[i], int) and shape[i] > 0 and shape[i] % size == 0
    maps = STATED[op.name](types, attrs) if op.name in STATED else [op.axes_of_parts(types, attrs) or ()]
    for rows in maps:
        for j in sorted({a for row in rows for a in row if a is not None}):
            cut = tuple(next((i for i, a in enumerate(row) if a == j), None) for row in rows)
            whole = all(j < t.ndim and fits(t.shape, j) for t in outs)
            if whole and all(i is None or fits(t.shape, i) for i, t in zip(cut, types) if t is not None):
                yield Way(cut, j)
    if op.name in ("max", "min") and not attrs["keepdims"] and types[0] is not None:
        yield from (Way((i,), None, op.name) for i in attrs["axes"] if fits(types[0].shape, i))
    if op.name == "matmul" and (way := _summed(types, attrs, size)) is not None:
        yield way


def _summed(types: Types, attrs: dict[str, Any], size: int) -> Way | None:
    """A product of which each process adds whole chunks."""
    x, y = types
    if x is None or y is None or min(x.ndim, y.ndim) < 2 or x.dtype is not y.dtype or x.dtype.compute is not x.dtype:
        return None
    i, j = x.ndim - (2 if attrs["transpose_a"] else 1), y.ndim - (1 if attrs["transpose_b"] else 2)
    if not isinstance(x.shape[i], int) or not x.shape[i] or x.shape[i] % (size * CHUNK_TERMS):
        return None
    return Way((i, j), None, "chunks")


def attributes(op: Op, attrs: dict[str, Any], way: Way, size: int) -> dict[str, Any]:
    """The attributes of a part's call."""
    names = {"strided_slice": "sizes"}
    name = names.get(op.name, "shape")
    if way.out is None or name not in attrs:
        return attrs
    extents = list(attrs[name])
    extents[way.out] //= size
    return attrs | {name: tuple(extents)}


def chunk_sums(x: Tensor, y: Tensor, attrs: dict[str, Any]) -> Tensor:
    """The sums of the chunks of a product's part, along a new first axis: (..., M, K), (..., K, N) -> (K / 256, ..., M, N)."""
    x = REGISTRY["swapaxes"](x, -1, -2) if attrs["transpose_a"] else x
    y = REGISTRY["swapaxes"](y, -1, -2) if attrs["transpose_b"] else y
    n, k = max(x.ndim, y.ndim), x.shape[-1] // CHUNK_TERMS
    x = x.reshape((*[1] * (n - x.ndim), *x.shape[:-1], k, CHUNK_TERMS))
    y = y.reshape((*[1] * (n - y.ndim), *y.shape[:-2], k, CHUNK_TERMS, y.shape[-1]))
    a = REGISTRY["permute"](x, (n - 1, *range(n - 1), n))
    b = REGISTRY["permute"](y, (n - 2, *range(n - 2), n - 1, n))
    return REGISTRY["matmul"](a, b, False, False, attrs["precision"])


# ---- what ops do not say --------------------------------------------------------------------------------------------------------


def _same(types: Types, attrs: dict[str, Any]) -> list:
    return [[[] if t is None else list(range(t.ndim)) for t in types]]


def _matmul(types: Types, attrs: dict[str, Any]) -> list:
    """Beside batches and rows, which the op says: columns of the second operand."""
    said = REGISTRY["matmul"].axes_of_parts(types, attrs) or []
    x, y = types
    if x is None or y is None or min(x.ndim, y.ndim) < 2:
        return [said]
    last = max(x.ndim, y.ndim) - 1
    columns: list[int | None] = [None] * y.ndim
    columns[-2 if attrs["transpose_b"] else -1] = last
    return [said, [[None] * x.ndim, columns]]


def _reshape(types: Types, attrs: dict[str, Any]) -> list:
    """Axes that are joined or cut: the outermost of those joined is the outermost of those that they become."""
    old, new = types[0].shape, attrs["shape"]
    axes: list[int | None] = [None] * len(old)
    i = j = 0
    while 0 not in old and i < len(old) and j < len(new):
        first, a, b = (i, j), old[i], new[j]
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a, i = a * old[i], i + 1
            else:
                b, j = b * new[j], j + 1
        cut = next((k for k in range(first[0], i) if old[k] != 1), None)
        if cut is not None:
            axes[cut] = next(k for k in range(first[1], j) if new[k] != 1)
    return [[axes]]


def _leading(types: Types, attrs: dict[str, Any]) -> list:
    """Batches and heads of attention's gradient, where all have the same."""
    lead = types[6].shape[:-2]
    axes = lambda t, tail: [*same_axes(t.shape[: t.ndim - tail], lead), *[None] * tail]
    return [[[] if t is None else axes(t, 1 if i in (1, 7) else 2) for i, t in enumerate(types)]]


def _concat(types: Types, attrs: dict[str, Any]) -> list:
    return [[[None if i == attrs["axis"] % t.ndim else i for i in range(t.ndim)] for t in types]]


def _slice(types: Types, attrs: dict[str, Any]) -> list:
    whole = lambda i: attrs["starts"][i] == 0 and attrs["steps"][i] == 1 and attrs["sizes"][i] == types[0].shape[i]
    return [[[i if whole(i) else None for i in range(types[0].ndim)]]]


def _slice_grad(types: Types, attrs: dict[str, Any]) -> list:
    whole = lambda i: attrs["starts"][i] == 0 and attrs["steps"][i] == 1 and attrs["shape"][i] == types[0].shape[i]
    return [[[i if whole(i) else None for i in range(types[0].ndim)]]]


STATED: dict[str, Callable[[Types, dict[str, Any]], list]] = {
    "matmul": _matmul, "reshape": _reshape, "astype": _same, "copy": _same, "stop_gradient": _same, "concat": _concat,
    "strided_slice": _slice, "slice_grad": _slice_grad, "attention_grad": _leading,
}  # fmt: skip
