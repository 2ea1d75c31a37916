"""Every op on 0-d and empty operands and on those of one element, made from its samples: what an op takes has its
reference's values, and values and gradients are the same eagerly and traced, byte for byte. What it does not take is
refused both ways."""

import warnings

import every_op
import numpy as np
import pytest
from checking import bits, call, close, outputs, reference, samples, tensors
from exhaustive import but

from tengen import trace
from tengen.autodiff import vjp
from tengen.base.errors import TengenError
from tengen.functional import ones_like


def shrunk(a, change):
    """An array with other extents: as many of its elements as there is room for."""
    a = np.asarray(a)
    shape = tuple(change.get(d, d) for d in a.shape)
    small = np.resize(a, shape).astype(a.dtype) if a.size else np.ones(shape, a.dtype)
    return small * 0 if a.dtype.kind in "iu" and shape != a.shape else small  # an index is in range as long as there is one


def variants(op):
    """(operands, attributes) of an op's first sample with one extent made 0, or all 1, and of its second, which has other attributes or
    other operands that are absent, with all made 1; of both also 0-d operands."""
    seen = set()
    for number, case in enumerate(op.samples[:2]):
        arrays = samples(case)
        extents = sorted({d for a in arrays if a is not None for d in np.shape(a)})
        changes = [*({e: 0} for e in extents if number == 0), dict.fromkeys(extents, 1)]
        made = [tuple(None if a is None else shrunk(a, c) for a in arrays) for c in changes]
        made.append(tuple(None if a is None else np.asarray(a).ravel()[:1].reshape(()) for a in arrays if a is None or np.size(a)))
        for m in made:
            key = (tuple(None if a is None else (a.shape, str(a.dtype)) for a in m), str(case.attrs))
            if len(m) == len(arrays) and key not in seen and sum(a.size for a in m if a is not None) < 2000:
                seen.add(key)
                yield m, case.attrs


def run(op, inputs, attrs):
    """The results, and the gradients of the float operands by the sum of the float results."""
    results = outputs(call(op, inputs, attrs))
    wrt = [i for i, x in enumerate(inputs) if x is not None and x.dtype.is_float]
    if op.why_no_vjp is not None or not wrt or not any(r.dtype.is_float for r in results):
        return results, ()

    def f(*xs):
        full = list(inputs)
        for i, x in zip(wrt, xs):
            full[i] = x
        return tuple(r for r in outputs(call(op, full, attrs)) if r.dtype.is_float)

    values, pull = vjp(f, *(inputs[i] for i in wrt))
    return results, pull(tuple(ones_like(v) for v in values))


def present(xs):
    return [x for x in xs if x is not None]


def refilled(xs, ys):
    rest = iter(ys)
    return tuple(None if x is None else next(rest) for x in xs)


def tried(f):
    try:
        return f(), None
    except (TengenError, TypeError, ValueError, IndexError, ArithmeticError) as e:
        return None, e


OPS = every_op.ops(every_op.COUNTED, lambda op: op.rules.reference is not None and bool(op.samples))


@but(every=8)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_small_operands(op):
    taken = []
    for arrays, attrs in variants(op):
        xs = tensors(arrays)
        made, error = tried(lambda xs=xs, attrs=attrs: run(op, xs, attrs))
        if error is not None:
            again, words = tried(lambda xs=xs, attrs=attrs: trace(lambda *ys: run(op, refilled(xs, ys), attrs))(*present(xs)))
            assert again is None and words is not None, (arrays, attrs, error)
            continue
        taken.append((xs, attrs, made))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                want = reference(op, arrays, attrs)
            except (ValueError, IndexError, ZeroDivisionError):  # NumPy has no such thing
                continue
        along = ("sort", "argsort", "cumsum", "cumprod", "running_max", "running_min")
        lines = op.name in along and not arrays[0].ndim  # of one element, here 0-d
        assert lines or [g.shape for g in made[0]] == [w.shape for w in want], (arrays, attrs)
        for g, w in zip(made[0], want):
            close(np.reshape(g.numpy(), w.shape), w, g.dtype.name, op.samples[0])
        for i, x in enumerate(x for x in xs if x is not None and x.dtype.is_float):
            assert not made[1] or made[1][i].shape == x.shape
    if not taken:
        return

    def everything(operands):
        return [run(op, xs, attrs) for xs, (_, attrs, _) in zip(operands, taken)]

    traced = trace(everything)([list(xs) for xs, _, _ in taken])
    for (xs, attrs, made), got in zip(taken, traced):
        shapes = [None if x is None else x.shape for x in xs]
        for a, b in zip(made, got):
            assert [bits(t) for t in a] == [bits(t) for t in b], (shapes, attrs)
