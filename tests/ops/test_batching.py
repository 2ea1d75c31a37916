"""Batching rules: every op, from its samples, gives for all examples what it gives for each alone, byte for byte."""

import every_op
import numpy as np
import pytest
from checking import bits, call, outputs, samples, tensors
from exhaustive import but

from tengen.autodiff import vmap
from tengen.ops.batching import RULES

N = 3
ROWS = "an operand's rows begin with the number of an image, so other rows are not in its range"
EXCLUDED = {
    **every_op.COUNTED, "roi_align": ROWS, "roi_pooling": ROWS, "deformable_psroi_pooling": ROWS, "eye": "no operand",
    "arange": "no operand", "linspace": "no operand",
}  # fmt: skip


def rows(t, n=N):
    return [t[i] for i in range(n)]


def examples_of(arrays, rng):
    """Other operands like these, all in their range: integers are the same numbers in another order."""
    made = []
    for a in arrays:
        if a is None:
            made.append(None)
        elif np.asarray(a).dtype.kind == "f":
            made.append(np.stack([a, *(rng.permutation(np.ravel(a)).reshape(np.shape(a)) for _ in range(N - 1))]).astype(np.float32))
        else:
            made.append(np.stack([rng.permutation(np.ravel(a)).reshape(np.shape(a)) for _ in range(N)]))
    return made


def refilled(given, xs):
    rest = iter(xs)
    return tuple(None if g is None else next(rest) for g in given)


OPS = every_op.ops(EXCLUDED, lambda op: bool(op.samples) and bool(op.tensors) and not op.name.startswith("random_"))


@but(every=4)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_every_op_for_all_examples(op):
    """All operands differ by example; and each operand alone, the others being the same in all."""
    case = op.samples[0]
    arrays = examples_of(samples(case), np.random.default_rng(5))
    there = [a for a in arrays if a is not None]
    every = (0,) * len(there)
    one = [tuple(0 if i == j else None for j in range(len(there))) for i in range(len(there))] if 1 < len(there) < 4 else []
    f = lambda *xs: outputs(call(op, refilled(arrays, xs), case.attrs))
    for axes in (every, *one):
        xs = tensors([a if axis == 0 else a[0] for a, axis in zip(there, axes)])
        got = vmap(f, axes)(*xs)
        for i in range(N):
            want = f(*(x[i] if axis == 0 else x for x, axis in zip(xs, axes)))
            assert [g[i].shape for g in got] == [w.shape for w in want]
            assert [bits(g[i]) for g in got] == [bits(w) for w in want], (axes, i)


def test_which_ops_are_computed_one_after_the_other():
    """Every primitive has a rule, but for these, which would gain little."""
    without = {op.name for op in every_op.ops() if op.kind in ("primitive", "view")} - RULES.keys()
    assert {name for name in without if not name.startswith("random_")} == {
        "argmax", "argmin", "ctc", "ctc_grad", "extent_op", "iota", "linear_samples", "lstm_grad", "nms_keep", "running_max", "running_min",
        "tap_products", "tap_scatter", "tap_sum", "window_sums",
    }  # fmt: skip
