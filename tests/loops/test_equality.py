"""`==` between expressions has one meaning, whoever asks: whether they are the same. Extents that users see have none yet."""

import numpy as np
import pytest

from tengen import Tensor, trace
from tengen.base.dtype import bool_, float32, int64
from tengen.base.errors import Undecided, VerifyError
from tengen.loops import lang
from tengen.loops.extents import OpenExtent, open_extent
from tengen.loops.lang import const, equal, not_equal, select, unguarded, var
from tengen.ops.define import REGISTRY, elementwise

N, M = var("n"), var("m")


@pytest.mark.parametrize("module", ["tengen.kernels.somewhere", "user", "__main__"])
def test_who_asks_does_not_matter(module):
    """The call stack once did: from outside of the package the same comparison was an error."""
    names = {"__name__": module, "n": N, "m": M, "x": var("x", float32), "same": var("n") + 0}
    ask = lambda text: eval(text, names)
    assert ask("n == same") is True and ask("n != same") is False and ask("n == m") is False and ask("n != m") is True
    assert ask("n == 3") is False and ask("x == 1.5") is False and ask("n == None") is False
    assert ask("(n, 4) == (same, 4)") is True and ask("(n, 4) == (m, 4)") is False


def test_containers():
    x, y, z = N + 1, N * 2, M + 1
    assert y in (x, y) and z not in [x, y] and [x, y].index(N * 2) == 1 and {x: 1, y: 2}[N + 1] == 1
    assert len({x, y, N + 1, M}) == 3 and {x, y} == {y, N + 1} and [x, y].count(N + 1) == 1
    assert (x, (y, 3)) == (N + 1, (N * 2, 3)) != (x, (y, 4))


def test_comparisons_of_values_are_functions():
    assert equal(N, M).dtype is bool_ and equal(N, M).op == "eq" and not_equal(N, M).op == "ne"
    assert equal(N, N + 0).op == "eq" and lang.as_int(equal(const(3), 3)) == 1


def misused():
    zero = lambda x: const(0.0, x.dtype)
    return {
        "returned": lambda x: x == 0,
        "chosen by": lambda x: select(x == 0, x, zero(x)),
        "multiplied": lambda x: x * (x == 0),
        "on the left": lambda x: (x != 0) * x,
        "combined": lambda x: select((x > 0) & (x != 1), x, zero(x)),
        "compared": lambda x: select(equal(x > 0, x == 1), x, zero(x)),
    }


@pytest.mark.parametrize("name", misused())
def test_a_comparison_by_the_operator_says_what_to_write(name):
    body = misused()[name]
    body.__name__ = body.__qualname__ = "misused_" + name.replace(" ", "_")
    op = elementwise(result="float")(body)
    try:
        with pytest.raises(VerifyError, match=r"equal\(a, b\) and not_equal\(a, b\) compare values"):
            op(Tensor([0.0, 1.0]))
    finally:
        REGISTRY.pop(body.__name__, None)


def test_extents_of_users_have_no_value_yet():
    n, m = open_extent(N), open_extent(M)
    assert open_extent(N) is n and unguarded(n) is N and open_extent(3) == 3 and open_extent(const(3)) == 3
    assert n == open_extent(var("n")) == N and (n, 4) == (N, 4) and n - n == 0
    for other in (3, m, M, n + 1, 3.0):
        for ask in (lambda a, b: a == b, lambda a, b: a != b, lambda a, b: (a, 1) == (b, 1), lambda a, b: b in [a]):
            with pytest.raises(Undecided, match="whether the extent"):
                ask(n, other)
    for ask in (hash, lambda n: n in {3, 4}, lambda n: {(3, 4): "a"}.get((n, 4))):
        with pytest.raises(Undecided, match="whether a set or a dict has the extent n"):
            ask(n)
    assert n != "batch" and n is not None
    results = (n + 1, 2 * n, n // 2, n % 3, -n, abs(n), 7 - n, n * m)
    assert all(type(r) is OpenExtent and type(r.expr) is lang.Expr for r in results)
    assert (n * 2 + 1).expr is N * 2 + 1 and (m * n).expr is (n * m).expr


def test_a_guard_never_gets_into_an_expression_a_type_or_a_graph():
    n = open_extent(N)
    for e in (lang.minimum(n, M), select(n < 3, n, M), lang.cast(n, "float32"), lang.splat(n), lang.binary("add", 1, n)):
        stack = [e]
        while stack:
            x = stack.pop()
            assert type(x) is lang.Expr
            stack.extend(x.args)
    seen = []

    def f(x):
        seen.append(x.shape)
        y = x.reshape(x.shape[0] * 2, -1) * x.shape[0]
        return y[: x.shape[0]], x.sum(0)

    run = trace(f, dynamic_axes={0: "batch"})
    run(Tensor(np.ones((2, 4), "float32")))
    assert type(seen[0][0]) is OpenExtent and seen[0][1] == 4
    dims = [d for v in run.graph.values() for d in v.type.shape]
    assert any(isinstance(d, lang.Expr) for d in dims) and not any(type(d) is OpenExtent for d in dims)
    for node in run.graph.nodes:
        assert "OpenExtent" not in repr([type(a) for v in node.attrs.values() for a in (v if isinstance(v, tuple) else (v,))])
    assert all(d.dtype is int64 for d in dims if isinstance(d, lang.Expr))
