"""Selections by a mask: how many elements they have depends on values, so they are counted before anything is computed.

A trace cannot do that and says so; `where` and `x[mask] = value` of one value need no counting and are fine in it, and so is most of what is
computed of `x[mask]` (`selections.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tengen.base.dtype import int64
from tengen.base.errors import ShapeError, TraceError
from tengen.loops.lang import as_int
from tengen.ops.define import Case, dispatch, lookup, shorthand
from tengen.ops.elementwise import astype
from tengen.ops.indexing import index, searchsorted
from tengen.ops.logic import not_equal
from tengen.ops.shape import reshape, strided_slice

if TYPE_CHECKING:
    from tengen.tensor import Tensor


def true_positions(mask: Tensor) -> Tensor:
    """The positions of true elements in the flattened mask, int64. Not in a trace: they must be counted first."""
    if as_int(mask.size) != 0 and not is_concrete(mask):
        raise TraceError(
            "a selection by a mask inside a trace: how many elements it has is known only when the program runs; "
            "help: use where(mask, x, 0), or compute the mask outside"
        )
    if not mask.size:
        return lookup("zeros")((0,), "int64")
    flat = reshape(mask if mask.dtype.kind == "b" else not_equal(mask, 0), (-1,))
    counts = lookup("cumsum")(astype(flat, int64), 0)
    total = strided_slice(counts, (flat.size - 1,), (1,), (1,)).item()
    return searchsorted(counts, lookup("arange")(1, total + 1, 1, "int64"))


def is_concrete(x: Tensor) -> bool:
    """Whether a tensor has values now, and not only when the program that is being recorded runs."""
    try:
        x.numpy()
    except TraceError:
        return False
    return True


@shorthand(functional="tensor")
def nonzero(inp: Tensor) -> tuple[Tensor, ...]:
    """The int64 positions of true (not zero) elements, one vector for each axis, in logical order. Not inside a trace.

    Errors: ShapeError for a number

    >>> from tengen import Tensor, functional as F
    >>> [i.tolist() for i in F.nonzero(Tensor([[0, 5], [6, 0]]))]
    [[0, 1], [1, 0]]
    """
    x = dispatch.tensor(inp)
    if not x.ndim:
        raise ShapeError("nonzero of a 0-d tensor is not defined; help: reshape it to (1,)")
    left = true_positions(x)
    coords = []
    for d in reversed(x.shape[1:]):
        coords.append(lookup("mod")(left, d))
        left = lookup("floor_div")(left, d)
    return (left, *reversed(coords))


nonzero.reference(np.nonzero)
nonzero.cases(
    Case(lambda r: (r.integers(0, 2, (5, 17)),), grad=False),
    Case(lambda r: (np.zeros((3, 4)),), grad=False),
    Case(lambda r: (np.zeros((3, 0)),), grad=False),
)


@shorthand(functional="tensor")
def non_zero(condition: Tensor, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The int64 positions of true (not zero) elements: a row for each, a column for each axis; with `as_tuple` what `nonzero` gives.
    Not inside a trace.

    >>> from tengen import Tensor, functional as F
    >>> F.non_zero(Tensor([[0, 5], [6, 0]])).tolist()
    [[0, 1], [1, 0]]
    """
    found = lookup("nonzero")(condition)
    return found if as_tuple else lookup("stack")(found, 1)


non_zero.reference(lambda condition, as_tuple=False: np.nonzero(condition) if as_tuple else np.argwhere(condition))
non_zero.cases(Case(lambda r: (r.integers(0, 2, (5, 7)),), grad=False), Case(lambda r: (r.integers(0, 2, 9),), {"as_tuple": True}, grad=False))


@shorthand(functional="tensor")
def cond_take(mask: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The elements where the mask is true, as a vector, and their positions in the flattened tensor. Not inside a trace.

    Errors: ShapeError where mask and x differ in shape
    """
    m, values = dispatch.tensor(mask), dispatch.tensor(x)
    if tuple(m.shape) != tuple(values.shape):
        raise ShapeError(f"cond_take: a mask of shape {tuple(m.shape)} for a tensor of shape {tuple(values.shape)}")
    at = true_positions(m)
    return index([at], reshape(values, (-1,)), (0,), 0), at


cond_take.reference(lambda mask, x: (x[mask], np.flatnonzero(mask)))
cond_take.cases(Case(lambda r: (r.integers(0, 2, (4, 9)) > 0, r.uniform(-1, 1, (4, 9)))))


@shorthand(functional="tensor", methods="masked_fill")
def masked_fill(inp: Tensor, mask: Tensor, value: float) -> Tensor:
    """`where`: the value where the mask is true, else inp's element; in inp's dtype.

    Errors: ShapeError for a value of several axes

    >>> from tengen import Tensor, functional as F
    >>> F.masked_fill(Tensor([1.0, 2.0]), Tensor([True, False]), 0.0).tolist()
    [0.0, 2.0]
    """
    x = dispatch.tensor(inp)
    if getattr(value, "ndim", 0):
        raise ShapeError(f"masked_fill: the value must be one number, got an array of shape {tuple(value.shape)}; help: where(mask, value, x)")
    return lookup("astype")(lookup("where")(mask, value, x), x.dtype)
