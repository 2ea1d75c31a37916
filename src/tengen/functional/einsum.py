"""`einsum`: sums of products of elements, named by Einstein's notation."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tengen.base.errors import ArgumentError, ShapeError
from tengen.loops.lang import as_int
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY, differ, same_extent
from tengen.tensor import Tensor

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def einsum(equation: str, *operands: Tensor) -> Tensor:
    """The sum over all indices that the result does not have, of products of the operands' elements.

    Args:
        equation: the operands' indices, one letter for each axis, as in ``"bij,bjk->bik"``. An index that occurs twice in one operand
            takes its diagonal; ``...`` stands for axes that are broadcast. Without ``->`` the result has, in alphabetical order, the
            indices that occur once. operands: tensors, or one list of them.

    Returns: a tensor with an axis for each index of the result, of the dtype that the operands promote to.

    Errors: ArgumentError for an equation that cannot be read, ShapeError for operands that do not fit it.

    Numerics: operands are multiplied from the left to the right, each pair as one `matmul` over the indices that nothing behind needs.

    >>> from tengen import Tensor, functional as F
    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> F.einsum("ij,kj->ik", x, x).tolist(), F.einsum("ii", x).item()
    ([[5.0, 11.0], [11.0, 25.0]], 5.0)
    """
    tensors = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else list(operands)
    names, result = _parse(equation, [t.shape for t in tensors])
    parts = [_diagonals(t, n) for t, n in zip(tensors, names)]
    _check_extents(equation, [(t.shape, n) for t, n in parts])
    x, own = parts[0]
    for i, (y, theirs) in enumerate(parts[1:], 1):
        needed = set(result).union(*(n for _, n in parts[i + 1 :]))
        x, own = _product(x, own, y, theirs, needed)
    x, own = _summed(x, own, set(result))
    return _ordered(x, own, result)


def _parse(equation: str, shapes: Sequence[tuple[int, ...]]) -> tuple[list[str], str]:
    """The letters of each operand's axes, and of the result's; axes that ... stands for get letters that are not used elsewhere."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    names = left.split(",")
    if len(names) != len(shapes) or not shapes:
        raise ArgumentError(f"einsum({equation!r}): {len(names)} operands are named, {len(shapes)} were given")
    if odd := set(text.replace("->", "", 1).replace("...", "")) - set(LETTERS + ","):
        raise ArgumentError(f"einsum({equation!r}): {''.join(sorted(odd))!r} cannot be an index; help: letters, ',', '...' and one '->'")
    free = [c for c in LETTERS if c not in text]
    behind = max((len(s) - len(n) + 3 for n, s in zip(names, shapes) if "..." in n), default=0)
    dots = "".join(free[:behind])
    full = []
    for n, s in zip(names, shapes):
        more = len(s) - len(n.replace("...", ""))
        if more < 0 or (more and "..." not in n) or n.count("...") > 1:
            raise ShapeError(f"einsum({equation!r}): {n!r} does not name the axes of an operand of shape {s}")
        full.append(n.replace("...", dots[len(dots) - more :] if more else ""))
    if not arrow:
        once = sorted(c for c in set("".join(full)) - set(dots) if "".join(full).count(c) == 1)
        return full, dots + "".join(once)
    result = right.replace("...", dots)
    if len(set(result)) != len(result) or set(result) - set("".join(full)):
        raise ArgumentError(f"einsum({equation!r}): the result's indices must be some of the operands', each once")
    return full, result


def _diagonals(x: Tensor, names: str) -> tuple[Tensor, str]:
    """An operand in which every index occurs once."""
    while twice := next((c for c in names if names.count(c) > 1), None):
        i = names.index(twice)
        j = names.index(twice, i + 1)
        if not same_extent(x.shape[i], x.shape[j]):
            raise ShapeError(f"einsum: index {twice!r} is of {x.shape[i]} and of {x.shape[j]} in an operand of shape {x.shape}")
        x = REGISTRY["diagonal"](x, 0, i, j)
        names = names[:i] + names[i + 1 : j] + names[j + 1 :] + twice
    return x, names


def _check_extents(equation: str, parts: Sequence[tuple[tuple[int, ...], str]]) -> None:
    extents: dict[str, int] = {}
    for shape, names in parts:
        for c, n in zip(names, shape):
            if as_int(n) != 1 and differ(extents.setdefault(c, n), n):
                raise ShapeError(f"einsum({equation!r}): index {c!r} is of {extents[c]} in one operand and of {n} in another")


def _summed(x: Tensor, names: str, needed: set[str]) -> tuple[Tensor, str]:
    """Sums over the indices that nothing needs."""
    axes = tuple(i for i, c in enumerate(names) if c not in needed)
    return (REGISTRY["sum"](x, axes) if axes else x), "".join(c for c in names if c in needed)


def _ordered(x: Tensor, names: str, order: str) -> Tensor:
    """The axes in another order."""
    return x if names == order else REGISTRY["permute"](x, tuple(names.index(c) for c in order))


def _product(x: Tensor, a: str, y: Tensor, b: str, needed: set[str]) -> tuple[Tensor, str]:
    """x and y multiplied and summed over the indices that only they have: as matrices (batch, rows, sum) and (batch, sum, columns)."""
    x, a = _summed(x, a, needed | set(b))
    y, b = _summed(y, b, needed | set(a))
    size = dict(zip(a, x.shape))
    for c, n in zip(b, y.shape):
        size[c] = n if as_int(size.get(c, 1)) == 1 else size[c]  # of two, the one that is not 1
    batch = "".join(c for c in a if c in b and c in needed)
    summed = "".join(c for c in a if c in b and c not in needed)
    rows, columns = "".join(c for c in a if c not in b), "".join(c for c in b if c not in a)
    x = _as_matrix(_ordered(x, a, batch + rows + summed), (batch, rows, summed), size)
    y = _as_matrix(_ordered(y, b, batch + summed + columns), (batch, summed, columns), size)
    z = REGISTRY["matmul"](x, y)
    names = batch + rows + columns
    return REGISTRY["reshape"](z, tuple(size[c] for c in names)), names


def _as_matrix(x: Tensor, groups: tuple[str, str, str], size: dict[str, int]) -> Tensor:
    """Axes joined by groups to a batch of matrices; those of extent 1 beside others are broadcast."""
    shape = tuple(size[c] for g in groups for c in g)
    if any(as_int(have) == 1 and as_int(want) != 1 for have, want in zip(x.shape, shape)):
        x = REGISTRY["broadcast_to"](x, shape)
    return REGISTRY["reshape"](x, tuple(prod(size[c] for c in g) for g in groups))


__all__ = ["einsum"]
all_with_line(globals(), __all__)
