"""Every op that has a meaning for complex numbers, made from its own samples: against its NumPy reference, and its gradient against
finite differences over real and imaginary parts."""

import every_op
import numpy as np
import pytest
from checking import (
    bits,
    call,
    check_gradient_against_finite_differences,
    check_values_in_every_dtype,
    is_complex,
    outputs,
    samples,
    tensors,
    traced_call,
)  # fmt: skip
from exhaustive import but

from tengen.ir.types import TensorType
from tengen.ops.define import REGISTRY, Case

NO_REFERENCE = {  # NumPy's function, or the reference in Tengen's tests, is for real numbers
    "div": lambda x, y: x / y, "abs": np.abs, "sign": lambda x: x / np.abs(x), "rsqrt": lambda x: x**-0.5, "pow": np.power,
    "mean": lambda x, axes=None, keepdims=False, axis=None: np.mean(x, axis if axes is None else axes, keepdims=keepdims),
}  # fmt: skip
NOT_HERE = {
    "astype": "tested in test_complex.py", "extent_op": "takes no tensor", "even_steps": "its ends are float64 by the rule of linspace",
    "round": "NumPy rounds parts, and has no derivative", "fma": "rounds once, for real numbers alone",
    "conjugate": "complex already", "argument": "complex already", "index_grad": "no reference of its own",
}  # fmt: skip


def ruled():
    there = every_op.ops(where=lambda op: op.rules.complex is not None)
    return [op for op in there if op.name not in NOT_HERE]


def complex_case(op, case):
    """The case with imaginary parts beside the floats of its inputs, away from the axes, where branch cuts are."""
    own = op.own

    def inputs(r):
        given, at, found = case.inputs(r), 0, []
        for x in given:
            several = [x] if not isinstance(x, list) else x
            made = []
            for a in several:
                if a is not None and np.asarray(a).dtype == np.float64 and at not in own:
                    a = np.asarray(a) + 1j * np.random.default_rng(at).uniform(0.3, 0.8, np.shape(a))
                made.append(a)
                at += 1
            found.append(made if isinstance(x, list) else made[0])
        return tuple(found)

    return Case(inputs, case.attrs, case.grad, max(case.rtol, 1e-5), case.atol)


def sampled(op):
    """A case of an elementwise op, whose domain says where it is sampled."""
    domains = op.domain if isinstance(op.domain, list) else [op.domain] * len(op.tensors)
    grad = op.rules.infer(*[TensorType((), "float32")] * len(op.tensors)).dtype.is_float

    def inputs(r):
        xs = [r.uniform(low, high, (3, 17)) for low, high in domains]
        return tuple(x > 0 if i in op.own else x for i, x in enumerate(xs))

    return Case(inputs, {}, grad)


def cases():
    found = []
    for op in ruled():
        for i, c in enumerate(op.samples or [sampled(op)]):
            made = complex_case(op, c)
            taken = "dtype" not in c.attrs and c.attrs.get("mode", "set") in ("set", "add", "constant", "edge")
            if taken and any(map(is_complex, samples(made))):
                found.append(pytest.param(op, made, id=f"{op.name}-{i}"))
                break  # strategies are those of the parts, which other tests look at
    return found


@but(first_of="op", every=4)
@pytest.mark.parametrize(("op", "case"), cases())
def test_values_gradient_and_trace(op, case, monkeypatch):
    if op.name in NO_REFERENCE:
        monkeypatch.setattr(op.rules, "reference", NO_REFERENCE[op.name])
    check_values_in_every_dtype(op, case)
    arrays = samples(case)
    xs = tensors(arrays)
    assert [bits(t) for t in traced_call(op, xs, case.attrs)] == [bits(t) for t in outputs(call(op, xs, case.attrs))]
    if case.grad and op.why_no_vjp is None:
        check_gradient_against_finite_differences(op, case)


def test_nothing_is_left_out():
    assert NOT_HERE.keys() <= {op.name for op in REGISTRY.values()}
    tested = {p.values[0].name for p in cases()}
    assert not {op.name for op in ruled()} - tested
