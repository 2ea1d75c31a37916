"""The verifier refuses each kind of bad kernel, and says which kernel and which statement."""

import pytest
from each import each

from tengen.base.dtype import bfloat16, bool_, float32, int32, int64
from tengen.base.errors import VerifyError
from tengen.loops.lang import const, expr, ramp, splat, var
from tengen.loops.statements import Assign, Buffer, Declare, For, If, Kernel, Let, Load, Store
from tengen.loops.verify import typed, verify

X, Y, S = Buffer("x", float32), Buffer("y", float32, "out"), Buffer("s", float32, "scratch", 8)
N, PIECE = var("n"), var("piece")
ONE, V, A = const(1.0, float32), var("v", float32, 16), var("a")


def kernel(*body, **changes):
    parts = {"buffers": [X, Y], "ints": [N], "pieces": N + 1, "piece": PIECE, "scratch": [S], **changes}
    return Kernel("k", body=list(body), **parts)


def test_a_good_kernel_passes():
    m = var("m", float32, 16)
    verify(kernel(
        Load(V, X, PIECE * 16, N, const(0.0, float32)),
        Declare(m, V),
        For(A, const(0), N, 2, [If(A < N, [Assign(m, m + V)], [Store(S, A, ONE)])]),
        For(var("b"), const(0), N, 1, [Let(var("c"), var("b") + PIECE)]),
        Store(Y, ramp() + PIECE, m, N),
        Load(var("w", float32), Y, const(0)),
    ))  # fmt: skip


def raw(op, args, d=int64, lanes=1, attr=None):
    return expr(op, args, d, lanes, attr)


LET = lambda e: [Let(var("t", e.dtype, e.lanes), e)]
BAD = {
    "undefined variable": (LET(A), "kernel k: let t = a: variable a is not defined here"),
    "used before it is defined": ([Let(var("b"), A), Let(A, N)], "variable a is not defined"),
    "out of its block": ([If(N < 1, [Let(A, N)]), Let(var("b"), A)], "variable a is not defined"),
    "loop variable after the loop": ([For(A, N, N, 1), Let(var("b"), A)], "variable a is not defined"),
    "defined twice": ([Let(A, N), Let(A, N)], "the name a is given twice"),
    "a name in two branches": ([If(N < 1, [Let(A, N)], [Let(A, N)])], "the name a is given twice"),
    "named like a buffer": ([Let(var("x"), N)], "the name x is given twice"),
    "let of another type": ([Let(var("t", int32), N)], "the variable t is int32 x 1, its value int64 x 1"),
    "let of a vector": ([Let(A, ramp())], "its value int64 x 16"),
    "let to no variable": ([Let(N + 1, N)], "is not a variable"),
    "not an expression": ([Let(A, 3)], "3 is not an expression"),
    "unknown op": (LET(raw("frob", (N,))), "there is no op 'frob'"),
    "number of operands": (LET(raw("add", (N,))), "add takes 2 operands"),
    "mixed dtypes": (LET(raw("add", (N, const(1, int32)))), "operands of dtypes int64, int32"),
    "mixed lanes": (LET(raw("add", (ramp(), N), lanes=16)), "mixes scalars and vectors"),
    "op of another kind": (LET(raw("div", (N, N))), "div does not take int64"),
    "wrong result": (LET(raw("lt", (N, N))), "its operands give bool"),
    "arithmetic on storage": (LET(raw("add", (const(1.0, bfloat16),) * 2, bfloat16)), "for storage; help: cast to float32"),
    "literal of another dtype": (LET(raw("const", (), int32, 1, 1.5)), "literal 1.5 is not a value of int32"),
    "literal too large": (LET(raw("const", (), int32, 1, 1 << 31)), "is not a value of int32"),
    "bool literal": (LET(raw("const", (), bool_, 1, 1)), "literal 1 is not a value of bool"),
    "vector literal": (LET(raw("const", (), int64, 16, 1)), "a literal is a scalar"),
    "select by a number": (LET(raw("select", (N, N, N))), "select needs a predicate"),
    "bitcast to another width": (LET(raw("bitcast", (N,), int32, 1, int32)), "changes the width"),
    "cast to nothing": (LET(raw("cast", (N,))), "cast needs a dtype"),
    "splat of a vector": (LET(raw("splat", (ramp(),), lanes=16)), "splat takes a scalar"),
    "lane 16": (LET(raw("lane", (ramp(),), attr=16)), "lane 16 is not one of"),
    "shuffle of scalars": (LET(raw("shuffle", (N, N), attr="even_quads")), "shuffle takes a vector"),
    "shuffle left": (LET(raw("shuffle", (ramp(), ramp()), attr="left")), "shuffle 'left' is not one of"),
    "shuffle of two dtypes": (LET(raw("shuffle", (ramp(), splat(ONE)), attr="even_quads")), "shuffle"),
    "lane of a scalar": (LET(raw("lane", (N,), attr=1)), "lane takes a vector"),
    "fold by sub": (LET(raw("fold", (ramp(),), attr="sub")), "fold 'sub' is not one of"),
    "fold of floats by and": (LET(raw("fold", (splat(ONE),), float32, attr="and")), "and does not take float32"),
    "call of ints": (LET(raw("call", (N,), attr="exp")), "exp takes float32 or float64"),
    "assign to a let": ([Let(A, N), Assign(A, N)], "kernel k: set a = n: a is not a variable that was declared here"),
    "assign out of scope": ([If(N < 1, [Declare(A, N)]), Assign(A, N)], "not a variable that was declared here"),
    "assign of another type": ([Declare(A, N), Assign(A, ramp())], "the value has 16 lanes, not 1"),
    "assign to a parameter": ([Assign(N, N)], "not a variable that was declared here"),
    "float index": ([Store(Y, ONE, ONE)], "the index is float32, not int64"),
    "vector index, scalar value": ([Store(Y, ramp(), ONE)], "a vector index with a scalar value"),
    "vector index, scalar variable": ([Load(var("t", float32), X, ramp())], "a vector index with a scalar value"),
    "count of a scalar": ([Store(Y, N, ONE, N)], "`count` goes with vectors only"),
    "count without other": ([Load(V, X, N, N)], "`count` and `other` come together"),
    "other of another dtype": ([Load(V, X, N, N, N)], "`other` is int64, not float32"),
    "vector count": ([Store(Y, N, splat(ONE), ramp())], "the count has 16 lanes"),
    "store of another dtype": ([Store(Y, N, N)], r"store y\[n\] = n: the value is int64, not float32"),
    "store to an input": ([Store(X, N, ONE)], "buffer x is read only"),
    "a stranger's buffer": ([Load(V, Buffer("z", float32), N)], "the buffer z is not the kernel's"),
    "load of another dtype": ([Load(A, X, N)], "the variable a is int64 x 1, its value float32"),
    "step 0": ([For(A, N, N, 0)], "the step 0 is not a positive literal"),
    "step as an expression": ([For(A, N, N, const(1))], "is not a positive literal"),
    "float loop": ([For(A, ONE, N, 1)], "the start is float32"),
    "vector loop variable": ([For(var("i", int64, 16), N, N, 1)], "the loop variable i is int64 x 16"),
    "if of a number": ([If(N)], "the condition is int64, not bool"),
    "if of a vector": ([If(ramp() < 3)], "the condition has 16 lanes"),
    "no statement": (["pass"], "this is not a statement"),
    "no block": ([If(N < 1, None)], "None is not a list of statements"),
}


@each("name", BAD)
def test_bad_statements(name):
    body, message = BAD[name]
    with pytest.raises(VerifyError, match=message) as e:
        verify(kernel(*body))
    if "not a list" not in message:
        assert str(e.value).startswith("kernel k: ")


HEADS = {
    "pieces over the piece": ({"pieces": PIECE}, "variable piece is not defined here"),
    "pieces of floats": ({"pieces": ONE}, "the number of pieces is float32"),
    "int32 parameter": ({"ints": [var("n", int32)], "pieces": const(1)}, "the parameter n is int32"),
    "two parameters of one name": ({"ints": [N, N]}, "the name n is given twice"),
    "two buffers of one name": ({"buffers": [X, Buffer("x", int32)]}, "the name x is given twice"),
    "scratch among the buffers": ({"buffers": [S], "scratch": []}, "has role 'scratch', not in or out"),
    "input among the scratch": ({"scratch": [Buffer("z", float32, "in", 3)]}, "has role 'in', not scratch"),
    "scratch without size": ({"scratch": [Buffer("z", float32, "scratch")]}, "has size None"),
    "buffer without a name": ({"buffers": [Buffer("", float32)]}, "'' is not a name for a buffer"),
    "piece that is a literal": ({"piece": const(1)}, "1 is not a variable"),
}


@pytest.mark.parametrize("name", HEADS)
def test_bad_heads(name):
    changes, message = HEADS[name]
    with pytest.raises(VerifyError, match=f"kernel k: .*{message}"):
        verify(kernel(**changes))


def test_messages_about_large_expressions_are_short():
    e = var("nowhere", float32)
    for _ in range(300):
        e = typed("mul", (e, e))
    with pytest.raises(VerifyError) as caught:
        verify(kernel(Let(var("t", float32), e)))
    assert len(str(caught.value)) < 400
