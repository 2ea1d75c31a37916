"""Axes of arrays: their order in memory, which neighbouring ones can be walked as one, coordinates of a flat position, and
stores at coordinates."""

from __future__ import annotations

from collections.abc import Sequence

from tengen.kernels.lowering import Array, KernelBuilder, product
from tengen.kernels.source import At
from tengen.loops.lang import Expr, Index, as_int, ramp

STREAMED_BYTES = 1 << 25  # bytes of results from which on stores go past the caches, which spares reading what is overwritten


def memory_order(a: Array) -> list[int]:
    """The axes from the outermost in memory to the innermost. Strides that are expressions cannot be compared, so if there are
    such, axes are ordered by the number of factors of their strides, or logically if no stride is known to be 1."""
    if all(as_int(s) is not None for s in a.strides):
        return sorted(range(a.ndim), key=lambda i: -abs(as_int(a.strides[i]) or 0))
    inner = [i for i in range(a.ndim) if as_int(a.strides[i]) == 1]
    if not inner:
        return list(range(a.ndim))
    # A symbolic stride that has more factors lies further out; a dense layout's strides are nested products.
    return sorted(range(a.ndim), key=lambda i: -_factors(a.strides[i]))


def _factors(stride: Index) -> int:
    """How many factors a stride has; 0 for the number 1."""
    if not isinstance(stride, Expr) or stride.op != "mul":
        return 0 if as_int(stride) == 1 else 1
    return sum(_factors(x) for x in stride.args) or 1


def merge_axes(shape: Sequence[Index], arrays: Sequence[Array]) -> list[list[int]]:
    """Groups of neighbouring axes that every array can walk as one axis: a step along the outer one is as long as the whole
    inner one. Axes of extent 1 are left out."""
    groups: list[list[int]] = []
    for axis in range(len(shape)):
        if as_int(shape[axis]) == 1:
            continue
        if groups and all(a.strides[groups[-1][-1]] == a.strides[axis] * shape[axis] for a in arrays):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def store_at(k: KernelBuilder, a: Array, at: At, value: Expr, stream: bool = False) -> None:
    """Stores `value` in `a` at `at`: a scalar, a vector store, or a scatter where the elements of the vector are not neighbours
    in memory. stream: see `statements.Store`."""
    index: Index = a.index(at.coords)
    if at.vec is None:
        k.store(k.write(a), index, value)
    elif as_int(a.strides[at.vec]) == 1:
        k.store(k.write(a), index, value, at.count, stream)
    else:
        k.store(k.write(a), ramp() * a.strides[at.vec] + index, value, at.count)


def unflatten(k: KernelBuilder, i: Index, shape: Sequence[Index]) -> list[Index]:
    """The coordinates of the element with flat position `i` in `shape`, the last axis innermost."""
    coords: list[Index] = []
    for d in reversed(shape[1:]):
        q = i // d
        coords.append(k.let(i % d) if isinstance(i, Expr) else i % d)
        i = k.let(q) if isinstance(q, Expr) else q
    if shape:
        coords.append(i)
    return coords[::-1]


def streams(outs: Sequence[Array]) -> bool:
    """Whether outputs are known to be so large that they are better stored past the caches."""
    sizes = [product(o.shape) for o in outs]
    return sum(n * o.dtype.size for n, o in zip(sizes, outs) if isinstance(n, int)) >= STREAMED_BYTES
