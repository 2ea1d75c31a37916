"""Calls of the math functions that `lang.call` names. Their table, `math.py`, is loaded at the first call that is looked at: a process
whose kernels have none, or are in the cache, does without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tengen.base.dtype import float32, float64
from tengen.base.errors import VerifyError
from tengen.loops.lang import Expr
from tengen.loops.rewriting import map_expr, rebuild

if TYPE_CHECKING:
    from tengen.loops.math import Function


def function(name: str, operands: int) -> Function:
    """The function of that name, checked to take that many operands; VerifyError where there is none."""
    from tengen.loops.math import FUNCTIONS

    f = FUNCTIONS.get(name)
    if f is None:
        raise VerifyError(f"call of {name!r}, which is no function; help: one of {', '.join(sorted(FUNCTIONS))}")
    if f.operands != operands:
        raise VerifyError(f"call of {name} with {operands} operands instead of {f.operands}")
    return f


def expand(e: Expr, memo: dict[Expr, Expr] | None = None) -> Expr:
    """`e` with every call replaced by the function's body. `memo` may be shared between expressions of one kernel."""
    return map_expr(e, _expanded, {} if memo is None else memo)


def _expanded(e: Expr, args: tuple[Expr, ...]) -> Expr:
    if e.op != "call":
        return rebuild(e, args)
    if e.dtype not in (float32, float64):
        raise VerifyError(f"call of {e.attr} in {e.dtype}; help: compute in float32 and cast the result")
    return function(str(e.attr), len(args)).body(*args)
