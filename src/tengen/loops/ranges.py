"""Between which numbers the integers of a kernel lie, as far as its statements show without being run.

In: a `Kernel`. Out: for an expression of it the least and the greatest number that it may be. An infinity is the bound of an index, which
does not wrap; what is computed from data has the bounds of its dtype, which it has too where it may wrap. Conditions are not looked at,
nor what holds of two variables together, but for a loop's and its start: of ``min(n, i + 16) - i`` nothing is known where nothing is of n.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import inf, isinf
from typing import Any

from tengen.base.dtype import bool_, int64
from tengen.loops.lang import LANES, Expr, const
from tengen.loops.statements import Assign, Declare, For, If, Kernel, Let

Range = tuple[Any, Any]  # ints or infinities
ANY: Range = (-inf, inf)


def of_dtype(e: Expr) -> Range:
    """All numbers that an expression of this dtype can be."""
    if e.dtype is bool_:
        return 0, 1
    if not e.dtype.is_int:
        return ANY
    return (0, (1 << e.dtype.bits) - 1) if e.dtype.kind == "u" else (-1 << e.dtype.bits - 1, (1 << e.dtype.bits - 1) - 1)


def of_operation(e: Expr, args: Sequence[Range]) -> Range:
    """The range of an expression that is no variable, from those of its operands."""
    least, most = whole = of_dtype(e)
    found = _of_number(e, args) if e.dtype.is_int else None
    if found is None:
        return whole
    low, high = found
    index = e.dtype is int64
    return found if (low >= least or index and isinf(low)) and (high <= most or index and isinf(high)) else whole


def _of_number(e: Expr, args: Sequence[Range]) -> Range | None:
    """The same for an integer, if nothing wrapped; None where nothing is known."""
    match e.op:
        case "const":
            return e.attr, e.attr
        case "ramp":
            return 0, LANES - 1
        case "cast":
            return args[0] if e.args[0].dtype.is_int or e.args[0].dtype is bool_ else None
        case "splat" | "lane":
            return args[0]
        case "select":
            return min(args[1][0], args[2][0]), max(args[1][1], args[2][1])
        case "neg":
            return -args[0][1], -args[0][0]
    return _of_two(e.op, *args) if len(args) == 2 else None


def _of_two(op: str, a: Range, b: Range) -> Range | None:
    match op:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            corners = [x * y if x and y else 0 for x in a for y in b]
            return min(corners), max(corners)
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case "quo":  # the divisor is at least 1
            least, most = max(b[0], 1), max(b[1], 1)
            return _quotient(a[0], most if a[0] >= 0 else least), _quotient(a[1], least if a[1] >= 0 else most)
        case "rem":
            return 0, min(a[1], b[1] - 1) if a[0] >= 0 else b[1] - 1
        case "floordiv" if a[0] >= 0 and b[0] >= 0:
            return 0, a[1]
        case "floormod" if b[0] > 0:
            return 0, b[1] - 1
        case "shr" if a[0] >= 0:
            return 0, a[1]
        case "and" if a[0] >= 0 or b[0] >= 0:
            return 0, min(x[1] for x in (a, b) if x[0] >= 0)
    return None


def _quotient(a: Any, b: Any) -> Any:
    """a / b rounded down, b at least 1."""
    if isinf(a):
        return a
    return (0 if a >= 0 else -1) if isinf(b) else a // b


class Ranges:
    """Says the range of an expression of a kernel, whose integer parameters may be any numbers. Only what is asked for is computed."""

    def __init__(self, kernel: Kernel):
        self._kernel = kernel
        self._known: dict[Expr, Range] = dict.fromkeys(kernel.ints, ANY)

    @functools.cached_property
    def _made_of(self) -> dict[Expr, tuple[Expr, ...]]:
        """What bounds a variable that is not assigned: its value, or the start and the stop of its loop."""
        found: dict[Expr, tuple[Expr, ...]] = {self._kernel.piece: (const(0), self._kernel.pieces)}
        assigned, bodies = set(), [self._kernel.body]
        while bodies:
            for s in bodies.pop():
                match s:
                    case Let() | Declare():
                        found[s.var] = (s.value,)
                    case Assign():
                        assigned.add(s.var)
                    case For():
                        found[s.var] = (s.start, s.stop)
                        bodies.append(s.body)
                    case If():
                        bodies += [s.body, s.orelse]
        return {v: parts for v, parts in found.items() if v not in assigned}

    def __call__(self, e: Expr) -> Range:
        """The range of an expression."""
        known, stack = self._known, [e]
        while stack:
            x = stack[-1]
            parts = self._made_of.get(x, ()) if x.op == "var" else x.args
            todo = [] if x in known else [a for a in parts if a not in known]
            stack += todo
            if not todo:
                stack.pop()
                if x not in known:
                    ranges = [known[a] for a in parts]
                    known[x] = _of_variable(x, ranges) if x.op == "var" else of_operation(x, ranges)
                    if x.op == "sub" and self._made_of.get(x.args[0], ())[:-1] == x.args[1:]:  # a loop's variable less where it starts
                        known[x] = max(known[x][0], 0), known[x][1]
        return known[e]


def _of_variable(v: Expr, ranges: Sequence[Range]) -> Range:
    if not ranges:
        return of_dtype(v)
    (low, high), stop = ranges[0], ranges[-1]
    return (low, max(low, stop[1] - 1)) if len(ranges) == 2 else (low, high)
