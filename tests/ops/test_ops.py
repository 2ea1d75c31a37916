"""Every op that is not elementwise, from its own sample inputs: values, dtypes, layouts, traces, gradients, gradients of gradients."""

import numpy as np
import pytest
from checking import (
    EPS,
    FLOATS,
    INTEGERS,
    accepts,
    bits,
    call,
    differentiable,
    float_outputs,
    in_dtype,
    outputs,
    pulled,
    reference,
    samples,
    slope,
    strange_layout,
    tensors,
    traced_call,
)  # fmt: skip

import tengen  # noqa: F401
from tengen.base.dtype import dtype
from tengen.ops.define import REGISTRY, Op

FAMILIES = (
    "contract", "conv", "creation", "elementwise", "indexing", "joining", "keys", "nn", "ordering", "pool", "reduce", "rng", "shape",
    "update", "views",
)  # fmt: skip


def mine(op: Op) -> bool:
    module = getattr(op.fn, "__module__", "") or ""
    return op.kind != "elementwise" and "." not in op.name and module.rpartition(".")[2] in FAMILIES


CASES = [
    pytest.param(op, case, id=f"{name}-{i}") for name, op in REGISTRY.items() if mine(op) for i, case in enumerate(op.samples)
]
COUNTED = {"nonzero", "cond_take"}  # how large their results are is known when they run, so they are not traced
# second derivatives that are not there, or not smooth
NOT_TWICE = {"max": "piecewise linear", "min": "piecewise linear"}


def close(got, want, name, case):
    got = np.asarray(got)
    assert got.shape == np.shape(want)
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, np.asarray(want).astype(got.dtype))
        return
    # an output can be float32 although the inputs were wider or integers
    eps = EPS[name] if name in EPS else EPS["float32"]
    eps = max(eps, EPS[dtype(got.dtype).name], case.rtol if name == "float32" else 0)
    scale = max(1.0, float(np.max(np.abs(want[np.isfinite(want)]), initial=0)))
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=eps, atol=eps * scale)


@pytest.mark.parametrize("op, case", CASES)
def test_values_in_every_dtype(op, case):
    arrays = samples(case)
    any_float = any(a is not None and np.asarray(a).dtype == np.float64 for a in arrays)
    for name in (*FLOATS, *INTEGERS, "bool") if any_float else ("as is",):
        if name not in (*FLOATS, "as is") and not all(a is None or np.isfinite(a).all() for a in arrays):
            continue
        cast = in_dtype(arrays, name) if any_float else arrays
        if name not in FLOATS and not accepts(op, cast, case.attrs):
            continue
        if name not in FLOATS and op.rules["reference"].__module__.endswith((".nn", ".update")):
            continue  # references in float64 only
        got = outputs(call(op, tensors(cast), case.attrs))
        want = reference(op, cast, case.attrs)
        assert len(got) == len(want)
        for g, w in zip(got, want):
            close(g.numpy(), w, name, case)
            if name in FLOATS and w.dtype.kind == "f" and op.kind != "composite" and "dtype" not in case.attrs:
                assert g.dtype.name == name or not any_float


@pytest.mark.parametrize("op, case", CASES)
def test_layout_and_trace_change_no_bit(op, case):
    for name in ("float32", "bfloat16"):
        arrays = in_dtype(samples(case), name)
        xs = tensors(arrays)
        want = [bits(t) for t in outputs(call(op, xs, case.attrs))]
        odd = [None if a is None else strange_layout(a) for a in arrays]
        assert [bits(t) for t in outputs(call(op, odd, case.attrs))] == want, "another layout"
        if name == "float32" and op.name not in COUNTED:
            assert [bits(t) for t in traced_call(op, xs, case.attrs)] == want, "traced"
            assert [bits(t) for t in traced_call(op, odd, case.attrs)] == want, "traced, another layout"


GRADIENTS = [p for p in CASES if p.values[1].grad and p.values[0].why_no_vjp is None]
GRADIENTS = [p for p in GRADIENTS if p.values[0].name != "prod" or "cumprod" in REGISTRY]


@pytest.mark.parametrize("op, case", GRADIENTS)
def test_gradient_against_finite_differences(op, case):
    rng = np.random.default_rng(5)
    arrays = samples(case)
    wrt = differentiable(op, case, arrays)
    base = reference(op, arrays, case.attrs)
    which = float_outputs(base)
    if not wrt:
        return
    weights = [rng.uniform(0.5, 1.5, base[i].shape) for i in which]
    found = pulled(op, arrays, case.attrs, wrt, weights, which)

    def value(moved):
        out = reference(op, moved, case.attrs)
        return sum(float((out[i] * w).sum()) for i, w in zip(which, weights))

    for i, g in zip(wrt, found):
        assert g.shape == np.shape(arrays[i]) and g.dtype.name == "float64"
        for _ in range(2):
            d = rng.uniform(-1, 1, np.shape(arrays[i]))
            np.testing.assert_allclose(
                (g.numpy() * d).sum(), slope(value, arrays, i, d), rtol=1e-6, atol=1e-7, err_msg=f"input {i}"
            )


@pytest.mark.parametrize("op, case", [p for p in GRADIENTS if p.values[0].name not in NOT_TWICE])
def test_gradient_of_gradient(op, case):
    rng = np.random.default_rng(6)
    arrays = samples(case)
    wrt = differentiable(op, case, arrays)
    base = reference(op, arrays, case.attrs)
    which = float_outputs(base)
    if not wrt or sum(np.size(a) for a in arrays if a is not None) > 2000:
        return
    weights = [rng.uniform(0.5, 1.5, base[i].shape) for i in which]
    seeds = [rng.uniform(0.5, 1.5, np.shape(arrays[i])) for i in wrt]

    def first(moved):
        gs = pulled(op, moved, case.attrs, wrt, weights, which)
        return sum(float((g.numpy() * s).sum()) for g, s in zip(gs, seeds))

    from tengen import Tensor
    from tengen.autodiff import vjp

    xs = tensors(arrays)

    def gradient(*wanted):
        full = list(xs)
        for i, t in zip(wrt, wanted):
            full[i] = t

        def inner(*again):
            mixed = list(full)
            for i, t in zip(wrt, again):
                mixed[i] = t
            out = outputs(call(op, mixed, case.attrs))
            return tuple(out[i] for i in which)

        return vjp(inner, *wanted)[1](tuple(Tensor(w, dtype="float64") for w in weights))

    _, pull = vjp(gradient, *(xs[i] for i in wrt))
    found = pull(tuple(Tensor(s, dtype="float64") for s in seeds))
    for i, g in zip(wrt, found):
        d = rng.uniform(-1, 1, np.shape(arrays[i]))
        np.testing.assert_allclose(
            (g.numpy() * d).sum(), slope(first, arrays, i, d), rtol=1e-5, atol=1e-6, err_msg=f"input {i}"
        )


WITHOUT_CASES = {
    "fused": "a node that fusion makes; its meaning is its body",
    "meshgrid": "any number of operands; see test_shape.py",
    "getitem": "its key is no attribute; see test_shape.py",
    "setitem": "its key is no attribute; see test_shape.py",
}


def test_every_op_has_a_reference_and_samples():
    bare = [n for n, op in REGISTRY.items() if mine(op) and n not in WITHOUT_CASES and
            ("reference" not in op.rules or not (op.samples or op.kind == "elementwise"))]  # fmt: skip
    assert not bare, f"ops without .reference or .cases: {bare}"


ERRORS = [
    ("matmul", ((3, 4), (3, 4)), {}, "matmul(f32[3,4], f32[3,4], transpose_a=False, transpose_b=False): the inner extents 4 and 3 differ; "
     "help: transpose_b=True contracts the last axis of both"),
    ("matmul", ((), (3,)), {}, "an operand is 0-d; help: use * for a product with a number"),
    ("matmul", ((2, 3, 4), (3, 4, 5)), {}, "axis -1 has extents 2 and 3"),
    ("conv", ((2, 3, 8, 8), (4, 5, 3, 3)), {}, "the image has 3 channels, the filter takes 5"),
    ("conv", ((2, 3, 8, 8), (4, 3, 9, 9)), {}, "a filter of extent 9 (dilation 1) does not fit an image of extent 8 with padding 0"),
    ("conv", ((2, 3), (4, 3)), {}, "at least 3 axes"),
    ("conv", ((2, 3, 8, 8), (4, 3, 3, 3)), {"stride": 0}, "stride, dilation and groups must be positive"),
    ("conv", ((2, 3, 8, 8), (4, 3, 3, 3)), {"stride": (1, 2, 3)}, "stride=(1, 2, 3) must be an int or 2 ints"),
    ("max_pool", ((2, 3, 8, 8),), {"kernel_size": 3, "padding": 2}, "padding at most half the kernel"),
    ("max_pool", ((2, 3, 2, 2),), {"kernel_size": 3}, "does not fit an image of extent 2"),
    ("avg_pool", ((2, 3, 8, 8),), {"kernel_size": 3, "mode": "mean"}, "mode='mean' must be 'average'"),
    ("sum", ((2, 3),), {"axis": 2}, "sum(f32[2,3], axis=2, keepdims=False): axis 2 is out of range for a tensor of 2 axes"),
    ("sum", ((2, 3),), {"axis": (0, 0)}, "name an axis twice"),
    ("sum", ((2, 3),), {"axis": 1.5}, "axis must be an int, got 1.5"),
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
