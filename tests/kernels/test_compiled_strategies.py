"""Each strategy of this folder as machine code against the interpreter, as bits."""

from __future__ import annotations

import numpy as np
import pytest
from launching import Symbols, array_of, compile_and_run, run
from test_reduce import data, same

from tengen.codegen.targets import Target
from tengen.kernels.indexing.gather import take
from tengen.kernels.indexing.scatter import index_put, scatter
from tengen.kernels.indexing.sort import sort, topk
from tengen.kernels.lowering import Lowering
from tengen.kernels.pointwise import pointwise
from tengen.kernels.reduction.arg import arg_reduce
from tengen.kernels.reduction.reduce import Reduced, reduce
from tengen.kernels.reduction.rows import rowwise
from tengen.kernels.reduction.scan import scan
from tengen.kernels.source import Elementwise, Leaf, broadcast
from tengen.loops.lang import call

X = data((9, 70))
I = np.random.default_rng(0).integers(-9, 9, (40,))


def softmax(lo, x, o):
    s = Leaf(x)
    wide = lambda r: broadcast(r, s.shape)
    e = Elementwise(lambda a, b: call("exp", a - b), [s, wide(Reduced("max", s, (1,)))], s.shape, s.dtype)
    rowwise(lo, [Elementwise(lambda a, b: a / b, [e, wide(Reduced("add", e, (1,)))], s.shape, s.dtype)], [o], (1,))


CASES = {
    "sum_along": ([X], (9,), lambda lo, x, o: reduce(lo, "add", Leaf(x), o, (1,))),
    "sum_across": ([X], (70,), lambda lo, x, o: reduce(lo, "add", Leaf(x), o, (0,))),
    "sum_long": ([data((2, 20001))], (2,), lambda lo, x, o: reduce(lo, "add", Leaf(x), o, (1,))),
    "max_runs": ([data((8, 3, 37))], (3,), lambda lo, x, o: reduce(lo, "max", Leaf(x), o, (0, 2))),
    "argmin": ([X], (70,), lambda lo, x, o: arg_reduce(lo, "min", Leaf(x), o, (0,))),
    "softmax": ([X], (9, 70), softmax),
    "softmax_columns": ([X.T.copy().T], (9, 70), softmax),
    "scan": ([X], (9, 70), lambda lo, x, o: scan(lo, "add", Leaf(x), o, 0, True)),
    "sort": ([X], (9, 70), lambda lo, x, o: sort(lo, Leaf(x), o, None, 1)),
    "topk": ([X], (9, 4), lambda lo, x, o: topk(lo, Leaf(x), o, None, 1)),
    "take": ([X, I], (40, 70), lambda lo, x, i, o: pointwise(lo, [take(Leaf(x), Leaf(i), 0)], [o])),
    "index_put": ([data((40, 70)), I], (9, 70), lambda lo, u, i, o: index_put(lo, None, {0: Leaf(i)}, 0, Leaf(u), o)),
    "scatter": ([data((40,)), I], (9,), lambda lo, u, i, o: scatter(lo, None, Leaf(i), Leaf(u), o, 0)),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("case", list(CASES))
def test_machine_code_has_the_bits_of_the_interpreter(case, symbolic):
    arrays, shape, lower = CASES[case]
    results = []
    for how in (run, compile_and_run):
        named = [array_of(a, i) for i, a in enumerate(arrays)]
        out = np.full(shape, 55, np.int64 if case == "argmin" else np.float32)
        o, om = array_of(out, "out")
        sym = Symbols()
        views = [sym.array(a) if symbolic and case != "topk" else a for a in [*(a for a, _ in named), o]]
        lo = Lowering(Target.host(), list(sym.values))
        lower(lo, *views)
        how(lo, {**{i: m for i, (_, m) in enumerate(named)}, "out": om}, sym.values)
        results.append(out)
    assert same(*results)
