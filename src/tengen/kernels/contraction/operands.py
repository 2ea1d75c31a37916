"""How the operands of a contraction lie in memory: the questions that decide whether a copy of them is needed.

In: a `Problem`. Out: yes or no. An operand is *dense along* a role (m, n or k) if neighbouring positions of that role are
neighbours in memory. It can be *read where it lies* if it is dense along one side of a register tile, has one stride along the
other side, and is of the dtype that is computed in. `tile.py` and `plans.py` ask.
"""

from __future__ import annotations

from tengen.kernels.contraction.problem import Problem
from tengen.kernels.machine import L1_SET_BYTES
from tengen.loops.lang import LANES, as_int


def known(p: Problem) -> bool:
    """Whether all extents are numbers now."""
    return None not in (as_int(p.rows), as_int(p.columns), as_int(p.chunks.positions))


def at_one_distance(p: Problem, dense: str, operand: str) -> bool:
    """Whether an operand is dense along the role `dense`, and has one stride along its other role, which spreads its rows over
    the sets of the L1 cache."""
    inner, outer = p.walk(dense, operand), p.walk(({"n", "m", "k"} - {dense, "n" if operand == "a" else "m"}).pop(), operand)
    distance = as_int(outer.step)
    if len(inner.extents) != 1 or len(outer.extents) != 1 or as_int(inner.step) != 1 or distance is None:
        return False
    return distance * getattr(p, operand).dtype.size % L1_SET_BYTES != 0


# ---- a -----------------------------------------------------------------------------------------------------------------------


def along_k(p: Problem) -> bool:
    """Whether rows of `a` are read along k: where `a` is dense along k, or along neither k nor m."""
    k, m = p.walk("k", "a"), p.walk("m", "a")
    if as_int(m.step) != 1 or not m.extents:
        return True
    if as_int(k.step) != 1 or not k.extents:
        return False
    run_k, run_m = as_int(k.run), as_int(m.run)
    return run_k is None or run_m is None or run_k >= min(run_m, LANES)


def side_by_side(p: Problem) -> bool:
    """Whether rows of `a` lie side by side: it is dense along m, which is one axis of a known extent."""
    m = p.walk("m", "a")
    one = len(m.extents) == 1 and as_int(m.step) == 1 and as_int(p.rows) is not None
    return one and not along_k(p) and p.format.group == 1 and p.border is None


def readable_along_m(p: Problem) -> bool:
    """Whether rows of `a`, dense along m, can be read where they lie."""
    return not along_k(p) and p.border is None and p.format.group == 1 and _of_tile(p) and at_one_distance(p, "m", "a")


def readable_along_k(p: Problem) -> bool:
    """Whether rows of `a`, dense along k, can be read where they lie."""
    return along_k(p) and p.border is None and _of_tile(p) and at_one_distance(p, "k", "a")


def readable(p: Problem, rows_along_k: bool, narrow: bool) -> bool:
    """Whether a tile whose rows run along k (or along m) can read `a` where it lies, if it has exactly the rows there are.
    narrow: the last columns have a tile of one vector, which reads packed rows."""
    if not _of_tile(p) or (not rows_along_k and (p.format.group > 1 or not known(p))):
        return False
    return at_one_distance(p, "k" if rows_along_k else "m", "a") and not (rows_along_k and narrow)


def _of_tile(p: Problem) -> bool:
    """Whether elements of `a` are as a tile reads them: as they are stored, with nothing computed of them, in whole groups."""
    return p.prologue is None and p.a.dtype is p.format.storage and p.whole_groups


# ---- b -----------------------------------------------------------------------------------------------------------------------


def dense_columns(p: Problem) -> bool:
    """Whether b is dense along n, which is one axis of it."""
    n = p.walk("n", "b")
    return len(n.extents) == 1 and as_int(n.step) == 1


def transposable(p: Problem) -> bool:
    """Whether b is dense along k and its columns have one other stride, so that squares of it can be transposed in
    registers."""
    k, n = p.walk("k", "b"), p.walk("n", "b")
    return len(k.extents) == len(n.extents) == 1 and as_int(k.step) == 1 and as_int(n.step) != 1 and p.format.group == 1
