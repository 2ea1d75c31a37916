"""Every op that is not elementwise, from its own sample inputs: values, dtypes, layouts, traces, gradients, gradients of
gradients."""

import every_op
import numpy as np
import pytest
from checking import (
    check_gradient_against_finite_differences,
    check_gradient_of_gradient,
    check_layout_and_trace_change_no_bit,
    check_values_in_every_dtype,
    samples,
    tensors,
    traced_call,
)
from exhaustive import but

import tengen
from tengen.base.errors import TraceError
from tengen.ops.define import REGISTRY

CASES = every_op.cases(where=lambda op: op.kind != "elementwise")  # those are in test_elementwise.py


@but(first_of="op")
@pytest.mark.parametrize("op, case", CASES)
def test_values_in_every_dtype(op, case):
    check_values_in_every_dtype(op, case)


@but(first_of="op", every=2)
@pytest.mark.parametrize("op, case", CASES)
def test_layout_and_trace_change_no_bit(op, case):
    check_layout_and_trace_change_no_bit(op, case)


GRADIENTS = [p for p in CASES if p.values[1].grad and p.values[0].why_no_vjp is None]


@but(first_of="op", every=2)
@pytest.mark.parametrize("op, case", GRADIENTS)
def test_gradient_against_finite_differences(op, case):
    check_gradient_against_finite_differences(op, case)


@but(first_of="op", every=3)
@pytest.mark.parametrize("op, case", GRADIENTS)
def test_gradient_of_gradient(op, case):
    check_gradient_of_gradient(op, case)


@pytest.mark.parametrize("name", every_op.COUNTED)
def test_what_is_counted_cannot_be_traced(name):
    op = REGISTRY[name]
    with pytest.raises(TraceError, match="known only when the program runs"):
        traced_call(op, tensors(samples(op.samples[0])), {})


WITHOUT_CASES = {
    "meshgrid": "any number of operands; see test_shape.py",
    "getitem": "its key is no attribute; see test_shape.py",
    "setitem": "its key is no attribute; see test_shape.py",
    # of `ops/statistics.py`, made of other ops: tests/ops/test_statistics.py
    **dict.fromkeys("allclose count_nonzero isclose lerp masked_fill nan_to_num scatter_add take_along_axis".split(), "see test_statistics.py"),
}


def test_every_op_has_a_reference_and_samples():
    bare = {op.name for op in every_op.ops() if op.rules.reference is None or not (op.samples or op.kind == "elementwise")}
    assert bare == {*WITHOUT_CASES}, "ops without .reference or .cases, or that have them by now"


ERRORS = [
    ("matmul", ((3, 4), (3, 4)), {}, "matmul(f32[3,4], f32[3,4], transpose_a=False, transpose_b=False, precision='highest'): "
     "the inner extents 4 and 3 differ; help: transpose_b=True contracts the last axis of both"),
    ("matmul", ((), (3,)), {}, "an operand is 0-d; help: use * for a product with a number"),
    ("matmul", ((2, 3, 4), (3, 4, 5)), {}, "axis -1 has extents 2 and 3"),
    ("conv", ((2, 3, 8, 8), (4, 5, 3, 3)), {}, "the image has 3 channels, the filter takes 5"),
    ("conv", ((2, 3, 8, 8), (4, 3, 9, 9)), {}, "a filter of extent 9 (dilation 1) does not fit an image of extent 8 with padding 0"),
    ("conv", ((2, 3), (4, 3)), {}, "at least 3 axes"),
    ("conv", ((2, 3, 8, 8), (4, 3, 3, 3)), {"stride": 0}, "stride must be a positive int or a sequence of them, got 0"),
    ("conv", ((2, 3, 8, 8), (4, 3, 3, 3)), {"stride": (1, 2, 3)}, "stride=(1, 2, 3) must be an int or 2 ints"),
    ("max_pool", ((2, 3, 8, 8),), {"kernel_size": 3, "padding": 2}, "padding must be at most half the kernel"),
    ("max_pool", ((2, 3, 2, 2),), {"kernel_size": 3}, "does not fit an image of extent 2"),
    ("avg_pool", ((2, 3, 8, 8),), {"kernel_size": 3, "mode": "mean"},
     "mode must be one of 'average', 'average_count_exclude_padding', got 'mean'"),
    ("sum", ((2, 3),), {"axis": 2}, "sum(f32[2,3], axis=2, keepdims=False): axis 2 is out of range for a tensor of 2 axes"),
    ("sum", ((2, 3),), {"axis": (0, 0)}, "name an axis twice"),
    ("sum", ((2, 3),), {"axis": 1.5}, "axis must be an int or a sequence of them or None, got 1.5"),
    ("max", ((2, 0),), {"axis": 1}, "max(f32[2,0], axes=(1,), keepdims=False): the max of no elements is not defined"),
    ("argmax", ((0,),), {}, "the argmax of no elements is not defined"),
    ("group_norm", ((2, 5, 3),), {"num_groups": 2, "weight": None, "bias": None}, "5 channels cannot be shared out to 2 groups"),
]  # fmt: skip


@pytest.mark.parametrize("name, shapes, attrs, message", ERRORS, ids=lambda v: v if isinstance(v, str) and len(v) < 12 else "")
def test_errors_name_the_op_and_its_arguments(name, shapes, attrs, message):
    op = REGISTRY[name]
    xs = [tengen.Tensor(np.zeros(s, np.float32)) for s in shapes]
    for run in (op.call, tengen.trace(op.call)):
        with pytest.raises((ValueError, TypeError, IndexError)) as e:
            run(*xs, **attrs)
        assert message in str(e.value)
        assert name in str(e.value) and "f32[" in str(e.value)


def test_bool_operands_are_refused_where_they_mean_nothing():
    t = tengen.Tensor(np.ones((2, 2), bool))
    for f in (lambda: REGISTRY["matmul"](t, t), lambda: REGISTRY["max_pool"](tengen.Tensor(np.ones((1, 1, 2, 2), bool)), 2)):
        with pytest.raises(TypeError, match="does not take bool"):
            f()


@pytest.mark.parametrize("dtype_name", ["float32", "float64", "float16"])
def test_nan_and_infinity(dtype_name):
    def t(*v):
        return tengen.Tensor(np.array(v, dtype_name))

    nan, inf = float("nan"), float("inf")
    for name, values, want in [
        ("max", (1, nan, 2), nan), ("min", (1, nan, 2), nan), ("sum", (inf, 1), inf), ("sum", (inf, -inf), nan), ("max", (-inf, -inf), -inf),
        ("argmax", (1, nan, 2, nan), 1), ("argmin", (1, nan, -2), 1), ("logsumexp", (-inf, -inf), -inf), ("logsumexp", (inf, 0), inf),
        ("prod", (0, inf), nan), ("mean", (), nan),
    ]:  # fmt: skip
        np.testing.assert_equal(float(REGISTRY[name](t(*values)).item()), float(want), err_msg=f"{name}{values}")
    x = t(*range(40))
    assert REGISTRY["argmax"](x * 0).item() == 0


def test_labels_outside_the_classes():
    from tengen import functional as F
    from tengen.base.errors import IndexOutOfRange

    scores = tengen.Tensor(np.zeros((2, 3), np.float32))
    for bad in ([0, 3], [-1, 0]):
        with pytest.raises(IndexOutOfRange, match="outside the 3 classes of axis 1"):
            F.loss.cross_entropy(scores, tengen.Tensor(bad))
    with pytest.raises(ValueError, match="do not fit scores"):
        F.loss.cross_entropy(scores, tengen.Tensor([0, 1, 2]))
    with pytest.raises(TypeError, match="labels must be integers"):
        F.loss.cross_entropy(scores, tengen.Tensor([0.0, 1.0]))
