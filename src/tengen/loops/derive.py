"""Symbolic differentiation of expressions (interim)."""
from __future__ import annotations
from tengen.loops.lang import Expr, const, select, is_const, cast, unary, splat
from tengen.loops.math import FUNCTIONS
def derive(e: Expr, wrt: Expr) -> Expr | None:
    memo: dict = {}
    def times(a, b):
        if a is None: return None
        if is_const(a, 1.0): return b
        if is_const(b, 1.0): return a
        return a * b
    def plus(a, b):
        return b if a is None else a if b is None else a + b
    def d(x):
        if x in memo: return memo[x]
        memo[x] = r = rule(x)
        return r
    def rule(x):
        if x is wrt: return const(1.0, x.dtype)
        if not x.args or not x.dtype.is_float: return None
        a = x.args
        match x.op:
            case "add": return plus(d(a[0]), d(a[1]))
            case "sub":
                q = d(a[1])
                return plus(d(a[0]), None if q is None else -q)
            case "mul": return plus(times(d(a[0]), a[1]), times(d(a[1]), a[0]))
            case "div":
                p, q = d(a[0]), d(a[1])
                return plus(None if p is None else p / a[1], None if q is None else -(times(q, x) / a[1]))
            case "neg": 
                p = d(a[0]); return None if p is None else -p
            case "max" | "min":
                from tengen.loops.lang import not_equal
                p, q = d(a[0]), d(a[1])
                win = ((a[0] > a[1]) if x.op == "max" else (a[0] < a[1])) | not_equal(a[0], a[0])
                z = const(0.0, x.dtype)
                return None if p is None and q is None else select(win, p if p is not None else z, q if q is not None else z)
            case "select":
                p, q = d(a[1]), d(a[2]); z = const(0.0, x.dtype)
                return None if p is None and q is None else select(a[0], p if p is not None else z, q if q is not None else z)
            case "sqrt":
                p = d(a[0]); return None if p is None else p / (x * 2.0)
            case "call":
                total = None
                for i, arg in enumerate(a):
                    p = d(arg)
                    if p is not None:
                        total = plus(total, times(p, FUNCTIONS[x.attr].derivatives[i](a, x)))
                return total
            case "fma": return plus(plus(times(d(a[0]), a[1]), times(d(a[1]), a[0])), d(a[2]))
            case "cast": 
                p = d(a[0]); return None if p is None else cast(p, x.dtype)
            case "splat":
                p = d(a[0]); return None if p is None else splat(p)
        return None
    return d(e)
