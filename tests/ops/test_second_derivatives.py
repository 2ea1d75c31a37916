"""Forward derivatives and second derivatives of every op with a gradient, from its samples, against central differences."""

import every_op
import numpy as np
import pytest
from checking import call, in_dtype, outputs, samples, tensors
from exhaustive import but

from tengen import Tensor
from tengen.autodiff import jvp, vjp

EPS = 1e-6  # of a step, in float64: the difference's error is about 1e-10 for values around 1
# what ends in _grad is the gradient of another op, and differentiated once as that one is twice
OPS = every_op.ops(
    every_op.COUNTED, lambda op: op.why_no_vjp is None and any(c.grad for c in op.samples) and not op.name.endswith("_grad")
)


@but(every=8)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_derivatives_along_a_direction(op):
    case = next(c for c in op.samples if c.grad)
    rng = np.random.default_rng(11)
    xs = tensors(in_dtype(samples(case), "float64"))
    wrt = [i for i, x in enumerate(xs) if x is not None and x.dtype.is_float]

    def f(*some):
        full = list(xs)
        for i, x in zip(wrt, some):
            full[i] = x
        return tuple(r for r in outputs(call(op, full, case.attrs)) if r.dtype.is_float)

    at = [xs[i].numpy() for i in wrt]
    v = [rng.standard_normal(a.shape) for a in at]
    weights = [Tensor(rng.standard_normal(o.shape)) for o in f(*map(Tensor, at))]

    def gradients(*some):
        return vjp(f, *some)[1](tuple(weights))

    def along(g):
        there, back = (g(*(Tensor(a + e * b) for a, b in zip(at, v))) for e in (EPS, -EPS))
        return [(p.numpy() - q.numpy()) / (2 * EPS) for p, q in zip(there, back)]

    for g in (f, gradients):
        _, got = jvp(g, [Tensor(a) for a in at], [Tensor(b) for b in v])
        for have, want in zip(got, along(g)):
            scale = max(1.0, float(np.max(np.abs(want), initial=0)))
            np.testing.assert_allclose(have.numpy(), want, rtol=1e-5, atol=1e-6 * scale)
