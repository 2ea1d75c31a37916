"""Gradients that are derived from the bodies of ops: eager programs of open extents and traced ones of known extents give the same bits.

One trace computes all samples of an op, and its gradient is asked for outside, so each op takes two programs.
"""

import every_op
import numpy as np
import pytest
from checking import bits, call, differentiable, in_dtype, outputs, samples, tensors
from exhaustive import but

from tengen import Tensor, random, trace
from tengen.autodiff import GradManager

DERIVED = every_op.ops(
    every_op.COUNTED, lambda op: op.kind == "composite" and op.rules.vjp is None and op.why_no_vjp is None and any(c.grad for c in op.samples)
)


@but(every=3)
@pytest.mark.parametrize("op", DERIVED, ids=lambda op: op.name)
def test_eager_and_traced(op):
    cases = [c for c in op.samples if c.grad]
    arrays = [in_dtype(samples(c), "float32") for c in cases]
    wanted = [differentiable(op, c, samples(c)) for c in cases]
    present = [[a is not None for a in some] for some in arrays]

    def f(*given):
        left = iter(given)
        made = []
        for c, there in zip(cases, present):
            made += outputs(call(op, [next(left) if t else None for t in there], c.attrs))
        return made

    found = []
    for g in (f, trace(f, symbolic=True)):
        random.seed(5)
        xs = [tensors(some) for some in arrays]
        leaves = [t[i] for t, wrt in zip(xs, wanted) for i in wrt]
        manager = GradManager().attach(leaves)
        with manager:
            results = g(*(t for some in xs for t in some if t is not None))
            rng = np.random.default_rng(3)
            floats = [r for r in results if r.dtype.is_inexact and r._node is not None]
            manager.backward(floats, [Tensor(rng.standard_normal(r.shape), dtype=r.dtype) for r in floats])
        found.append(([bits(r.detach()) for r in results], [None if x.grad is None else bits(x.grad) for x in leaves]))
    assert found[0] == found[1]
