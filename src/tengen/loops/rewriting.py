"""Expressions made of other ones: walks over them, variables replaced, ops on other operands.

In: expressions of `lang.py`. Out: expressions, or whatever a function gives for each node of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tengen.base.errors import VerifyError
from tengen.loops.dots import dot
from tengen.loops.lang import (
    DOTS,
    OPS,
    Expr,
    binary,
    bitcast,
    call,
    cast,
    fma,
    fold,
    lane,
    lookup,
    select,
    shuffle,
    splat,
    swizzle,
    unary,
)

T = TypeVar("T")


def map_expr(e: Expr, f: Callable[[Expr, tuple[T, ...]], T], memo: dict[Expr, T]) -> T:
    """f(node, results of the node's operands) at `e`, once for each node below it, operands first and without recursion.

    Args:
        memo: results by node; those that it holds already are not computed. It may be shared between walks with the same f.
    """
    stack = [e]
    while stack:
        x = stack[-1]
        todo = [] if x in memo else [a for a in x.args if a not in memo]
        if todo:
            stack.extend(todo)
            continue
        stack.pop()
        if x not in memo:
            memo[x] = f(x, tuple([memo[a] for a in x.args]))
    return memo[e]


def substitute(e: Expr, values: dict[Expr, Expr]) -> Expr:
    """`e` with variables replaced. Vector values make vector expressions."""
    return map_expr(e, rebuild, dict(values))


def rebuild(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """The op of `e` on other operands, typed again."""
    if args == e.args:
        return e
    if e.op in OPS:
        n = OPS[e.op][0]
        return unary(e.op, *args) if n == 1 else binary(e.op, *args) if n == 2 else fma(*args)
    match e.op:
        case "select": return select(*args)  # fmt: skip
        case "cast": return cast(args[0], e.attr)  # fmt: skip
        case "bitcast": return bitcast(args[0], e.attr)  # fmt: skip
        case "call": return call(e.attr, *args) # fmt: skip
        case "splat": return splat(args[0])  # fmt: skip
        case "lane": return lane(args[0], e.attr) # fmt: skip
        case "fold": return fold(e.attr, args[0]) # fmt: skip
        case "shuffle": return shuffle(e.attr, *args) # fmt: skip
        case "swizzle": return swizzle(*args) # fmt: skip
        case "lookup": return lookup(*args) # fmt: skip
    if e.op in DOTS:
        return dot(e.op, *args)
    raise VerifyError(f"cannot rebuild {e.op}")
