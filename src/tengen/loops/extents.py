"""The values of extents, sizes and offsets, in integers without bounds: what would overflow an int64 is an error instead.

In: an int64 expression over named extents, numbers for the names. Out: its value, which fits 63 bits, or a SizeError that names
the expression and the numbers. Kernels compute with the same expressions in int64; a program runs only with numbers for
which nothing of what is asked here wraps.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Mapping
from numbers import Number
from typing import Any

from tengen.base.dtype import bool_, int64
from tengen.base.errors import SizeError, Undecided, VerifyError
from tengen.loops.decisions import decisions
from tengen.loops.lang import Expr, Index, as_int, equal, fits, unguarded
from tengen.loops.verify import brief

MOST_MESSAGE_CHARACTERS = 300  # characters of an expression in a message
TERMS = 256  # of an extent

_MEANING: dict[str, Callable] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "min": min, "max": max, "neg": operator.neg, "abs": abs,
    "quo": operator.floordiv, "rem": operator.mod, "floordiv": operator.floordiv, "floormod": operator.mod,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge, "select": lambda c, a, b: a if c else b,
}  # fmt: skip
EXTENT_OPS = frozenset(_MEANING) | {"const", "var", "not"}
_DIVISIONS = ("quo", "rem", "floordiv", "floormod")


def terms(e: Expr) -> int:
    """How many numbers, names and operations an expression has when it is written down; at most `TERMS` + 1 are counted. A
    shared subexpression counts each time that it is written, which may be exponentially often."""
    n, stack = 0, [e]
    while stack and n <= TERMS:
        n += 1
        stack.extend(stack.pop().args)
    return n


class Numbers:
    """Values of expressions in which variables have the given values. Each subexpression is computed once.

    Attributes:
        env: the values of the variables.
    """

    def __init__(self, env: Mapping[Expr, int]):
        self.env = dict(env)
        self._known: dict[Expr, int] = dict(env)

    def __call__(self, e: Index) -> int:
        """The value of an index expression.

        Errors: SizeError for a value, of it or of a part of it, that does not fit an int64, and for a division by zero or of a
        negative number; VerifyError for a variable without a value.
        """
        if isinstance(e, int):
            return e
        known, stack = self._known, [e]
        while stack:
            x = stack[-1]
            todo = [] if x in known else [a for a in x.args if a not in known]
            stack.extend(todo)
            if not todo:
                stack.pop()
                if x not in known:
                    known[x] = self._value(x)
        return known[e]

    def _value(self, x: Expr) -> int:
        if x.op == "const":
            return x.attr
        if x.op == "var" or x.op not in EXTENT_OPS or x.dtype not in (int64, bool_) or x.lanes != 1:
            what = "has no value" if x.op == "var" else "is no arithmetic of extents"
            raise VerifyError(f"{brief(x)} {what}")
        args = [self._known[a] for a in x.args]
        if x.op in _DIVISIONS and (args[1] <= 0 or (args[0] < 0 and x.op in ("quo", "rem"))):
            raise SizeError(f"the extent {self.told(x)} divides {args[0]} by {args[1]}")
        if x.op == "not":
            return not args[0] if x.dtype is bool_ else ~args[0]
        n = _MEANING[x.op](*args)
        if not fits(n):
            raise SizeError(f"the extent {self.told(x)} is {n}, which does not fit 63 bits")
        return n

    def told(self, e: Expr) -> str:
        """An expression for a message, with the numbers of its variables."""
        seen, stack = {e}, [e]
        while stack:
            more = [a for a in stack.pop().args if a not in seen]
            seen.update(more)
            stack += more
        text = brief(e)
        text = text if len(text) <= MOST_MESSAGE_CHARACTERS else text[:MOST_MESSAGE_CHARACTERS] + "..."
        numbers = ", ".join(f"{v.attr} = {self.env[v]}" for v in self.env if v in seen)
        return f"{text} (with {numbers})" if numbers else text


def never_negative(e: Index) -> bool:
    """Whether an expression of extents shows that it is at least 0, as it stands. A quotient that would be less has no value."""
    e = unguarded(e)
    if isinstance(e, int) or e.op == "const":
        return (e if isinstance(e, int) else e.attr) >= 0
    if e.op in ("add", "mul", "min"):
        return all(map(never_negative, e.args))
    return e.op in ("var", "quo", "rem", "abs") or e.op == "max" and any(map(never_negative, e.args))


class OpenExtent(Expr):
    """An extent that is known when a program runs, as users see it in `Tensor.shape` while a graph is recorded. It is an
    expression, but for `==`: between plain expressions that asks whether they are the same one; users ask for a value, which there
    is not yet. What takes extents from users takes the plain expression out (`lang.unguarded`).

    Attributes:
        expr: the plain expression.
    """

    __slots__ = ("expr",)
    expr: Expr

    def __eq__(self, o):
        other = unguarded(o)
        if other is self.expr:
            return True
        if not isinstance(other, (Expr, Number)):
            return NotImplemented
        if isinstance(other, int) and other < 0 and never_negative(self.expr):
            return False
        if decisions.decide is not None:
            return decisions.decide(equal(self.expr, other))
        raise Undecided(f"whether the extent {self.expr!r} is {other!r} is not known before the program runs")

    def __hash__(self):
        raise Undecided(f"whether a set or a dict has the extent {self.expr!r} is not known before the program runs")

    def __index__(self):
        raise Undecided(
            f"the extent {self.expr!r} has no value before the program runs, and int(), len(), range(), an index or a loop over a tensor "
            "asks for it"
        )

    __int__ = __float__ = __index__


_open: weakref.WeakValueDictionary[Expr, OpenExtent] = weakref.WeakValueDictionary()


def open_extent(d: Index) -> Index:
    """An extent for users: a number where it is known, else the one `OpenExtent` of the expression."""
    d = unguarded(d)
    known = as_int(d)
    if known is not None:
        return known
    found = _open.get(d)
    if found is None:
        found = OpenExtent()
        found.op, found.args, found.dtype, found.lanes, found.attr, found.expr = d.op, d.args, d.dtype, d.lanes, d.attr, d
        _open[d] = found
    return found


def _guarded(name: str) -> Callable:
    """An operator of `Expr` whose result is an extent for users again, where it is an index at all."""
    of_expr = getattr(Expr, name)

    def operator_(self, *others):
        r = of_expr(self.expr, *map(unguarded, others))
        return open_extent(r) if isinstance(r, Expr) and r.dtype is int64 else r

    return operator_


def _negated(a: Expr, b: Any) -> Expr | None:
    """x of a = -x, where x and b show that they are at least 0; else None. Index arithmetic divides no negative numbers."""
    x = a.args[0] if a.op == "neg" else None
    if a.op == "mul" and (n := as_int(a.args[1])) is not None and n < 0:
        x = a.args[0] * -n
    return x if x is not None and isinstance(b, (Expr, int)) and never_negative(x) and never_negative(b) else None


def _floor_divided(self, other):
    """``self // other``, rounded down also where self is -x: so ``-(-x // n)`` is x / n rounded up."""
    x, b = _negated(self.expr, other), unguarded(other)
    return _guarded("__floordiv__")(self, other) if x is None else open_extent(-((x + (b - 1)) // b))


def _modulo(self, other):
    """``self % other``, not negative also where self is -x: by how much x is filled up to a multiple."""
    x, b = _negated(self.expr, other), unguarded(other)
    return _guarded("__mod__")(self, other) if x is None else open_extent((b - x % b) % b)


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    setattr(OpenExtent, f"__{_name}__", _guarded(f"__{_name}__"))
    setattr(OpenExtent, f"__r{_name}__", _guarded(f"__r{_name}__"))
for _name in ("neg", "abs"):
    setattr(OpenExtent, f"__{_name}__", _guarded(f"__{_name}__"))
for _name, _f in (("floordiv", _floor_divided), ("mod", _modulo)):
    setattr(OpenExtent, f"__{_name}__", _f)
