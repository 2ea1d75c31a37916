"""Ints, shapes and axes in any form that a user may have them: NumPy's numbers and arrays, lists, Tensors. What is computed,
eagerly and traced, is what plain ints give."""

from __future__ import annotations

import warnings

import every_op
import numpy as np
import pytest
from checking import bits, call, outputs, samples, tensors
from exhaustive import but

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, random, tensor, trace
from tengen.base.errors import ArgumentError, TengenError, TraceError, TraceWarning
from tengen.ir.text import print_graph
from tengen.ops.define import REGISTRY
from tengen.tensor.recorder import Recorder

# ---- every op, from its samples ----------------------------------------------------------------------------------------


def forms(value, kind):
    """Other forms of a plain value, by name."""
    if kind is None or value is None:
        return {}
    if type(value) is bool:
        return {"np.bool_": np.bool_(value), "0-d array": np.array(value)}
    if type(value) is int and kind.counts:
        found = {"np.int64": np.int64(value), "np.int16": np.int16(value), "0-d array": np.array(value), "Tensor": tensor(value)}
        return found | ({"1-d array": np.array([value])} if kind.shape else {})
    if isinstance(value, (tuple, list)) and kind.counts and value and "x" not in value:
        deep = isinstance(value[0], tuple)
        array = np.array(value)
        found = {"list": [list(v) if deep else np.int32(v) for v in value], "array": array, "Tensor": tensor(array)}
        return found | ({} if deep else {"of Tensors": tuple(map(tensor, value)), "iterator": iter(value)})
    return {}


CASES = [
    pytest.param(op, case, name, id=f"{op.name}-{i}-{name}")
    for op in every_op.ops() for i, case in enumerate(op.samples) for name in case.attrs
    if forms(case.attrs[name], op.kinds.get(name))
]  # fmt: skip


def recorded(op, arrays, attrs) -> str:
    """The graph of a call."""
    xs = tensors(arrays)
    with Recorder("call", lines=False) as rec:
        args = [None if x is None else rec.argument(f"x{i}", x) for i, x in enumerate(xs)]
        out = outputs(call(op, args, attrs))
    return print_graph(rec.finish([(f"y{i}", t) for i, t in enumerate(out)]))


@but(first_of="op")
@pytest.mark.parametrize("op, case, name", CASES)
def test_every_form_is_the_plain_one(op, case, name):
    arrays = samples(case)
    want = [bits(t) for t in outputs(call(op, tensors(arrays), case.attrs))]
    counted = op.name in every_op.COUNTED
    graph = None if counted else recorded(op, arrays, case.attrs)
    for what in forms(case.attrs[name], op.kinds[name]):
        make = lambda what=what: case.attrs | {name: forms(case.attrs[name], op.kinds[name])[what]}  # an iterator is used up
        assert [bits(t) for t in outputs(call(op, tensors(arrays), make()))] == want, what
        if not counted:
            assert recorded(op, arrays, make()) == graph, f"traced, {what}"


def test_the_cases_are_many():
    assert len({p.values[0].name for p in CASES}) > 50


# ---- functions and methods ---------------------------------------------------------------------------------------------

X = np.arange(12, dtype=np.float32).reshape(2, 6)
IMAGE = np.arange(72, dtype=np.float32).reshape(1, 2, 6, 6)
N = (np.int64, np.array, tensor, lambda v: np.array(v, np.int8))  # forms of an int
S = (np.array, tensor, lambda v: [np.int64(d) for d in v], lambda v: tuple(map(tensor, v)), list)  # of ints

CALLS = [
    (lambda x, v: F.broadcast_to(x, v), (3, 2, 6), S), (lambda x, v: F.reshape(x, v), (4, -1), S),
    (lambda x, v: x.reshape(v), (3, 4), S), (lambda x, v: x.reshape(v, -1), 3, N), (lambda x, v: x.reshape(v), 12, N),
    (lambda x, v: x.transpose(v), (1, 0), S), (lambda x, v: F.sum(x, axis=v), (0, 1), S), (lambda x, v: F.sum(x, v), 1, N),
    (lambda x, v: x.mean(v), -1, N), (lambda x, v: F.arange(v), 6, N), (lambda x, v: F.arange(1, v, 2), 6, N),
    (lambda x, v: F.arange(v, 0.5), -1.5, (np.float64, np.array, tensor)), (lambda x, v: F.ones(v), 3, N),
    (lambda x, v: F.zeros(v), (2, 3), S), (lambda x, v: F.full(v, 2.5), (2, 3), S), (lambda x, v: F.eye(v), 3, N),
    (lambda x, v: F.eye(2, v), 3, N), (lambda x, v: F.linspace(0, 1, v), 5, N), (lambda x, v: F.repeat(x, v), 2, N),
    (lambda x, v: F.repeat(x, v, 0), (2, 1), S), (lambda x, v: F.repeat(x, 2, v), 1, N),
    (lambda x, v: F.tile(x, v), (2, 2), S), (lambda x, v: F.tile(x, v), 2, N), (lambda x, v: F.split(x, v, 1), 3, N),
    (lambda x, v: F.split(x, v, 1), (2, 3), S), (lambda x, v: F.split(x, 2, v), 1, N), (lambda x, v: F.roll(x, v), 2, N),
    (lambda x, v: F.roll(x, v, (0, 1)), (1, 2), S), (lambda x, v: F.flip(x, v), 1, N), (lambda x, v: F.flip(x, v), (0, 1), S),
    (lambda x, v: F.expand_dims(x, v), (0, 2), S), (lambda x, v: F.squeeze(F.expand_dims(x, 0), v), 0, N),
    (lambda x, v: F.flatten(x, v), 1, N), (lambda x, v: x.flatten(v), 1, N), (lambda x, v: F.moveaxis(x, v, 0), 1, N),
    (lambda x, v: F.transpose(x, v), (1, 0), S), (lambda x, v: F.swapaxes(x, v, 1), 0, N),
    (lambda x, v: F.concat([x, x], v), 1, N), (lambda x, v: F.stack([x, x], v), 1, N), (lambda x, v: F.pad(x, v), (1, 2), S),
    (lambda x, v: F.pad(x, v), 1, N), (lambda x, v: F.pad(x, v), ((1, 2), (0, 1)), (np.array, tensor)),
    (lambda x, v: F.topk(x, v)[0], 2, N), (lambda x, v: F.topk(x, 1, axis=v)[1], 0, N),
    (lambda x, v: F.sort(x, axis=v)[0], 0, N), (lambda x, v: F.cumsum(x, v), 1, N), (lambda x, v: F.softmax(x, v), 0, N),
    (lambda x, v: F.logsumexp(x, v), (0, 1), S), (lambda x, v: F.norm(x, axis=v), (0, 1), S),
    (lambda x, v: F.one_hot(x.astype("int32"), v), 12, N), (lambda x, v: F.tril(x, v), 1, N),
    (lambda x, v: F.diag(x, v), 1, N), (lambda x, v: F.gather(x, v, F.zeros((2, 1), "int32")), 1, N),
    (lambda x, v: F.layer_norm(x, v), 6, N), (lambda x, v: F.layer_norm(x, v), (2, 6), S),
    (lambda x, v: F.general_norm(x, v), (0, 1), S), (lambda x, v: F.cross_entropy(x, F.zeros((2,), "int32"), v), 1, N),
    (lambda x, v: x.astype("int32")[v], 1, N),
]  # fmt: skip
IMAGES = [
    (lambda x, v: F.conv2d(x, F.ones((2, 2, 3, 3)), padding=v), (1, 2), S),
    (lambda x, v: F.conv2d(x, F.ones((2, 2, 3, 3)), None, v), 2, N),
    (lambda x, v: F.conv2d(x, F.ones((2, 1, 1, 3, 3)), groups=v), 2, N),
    (lambda x, v: F.conv_transpose2d(x, F.ones((2, 2, 2, 2)), stride=v), (2, 2), S),
    (lambda x, v: F.max_pool2d(x, v), (2, 3), S), (lambda x, v: F.avg_pool2d(x, 2, v), 1, N),
    (lambda x, v: F.adaptive_avg_pool2d(x, v), (2, 3), S), (lambda x, v: F.adaptive_max_pool2d(x, v), 2, N),
    (lambda x, v: F.pixel_shuffle(F.concat([x, x], 1), v), 2, N), (lambda x, v: F.unfold(x, v), (2, 2), S),
    (lambda x, v: F.sliding_window(x, 2, v), 1, N), (lambda x, v: F.group_norm(x, v), 2, N),
    (lambda x, v: M.AdaptiveAvgPool2d(v)(x), 2, N),
]  # fmt: skip


@but(every=4)
@pytest.mark.parametrize("number", range(len(CALLS) + len(IMAGES)))
def test_functions(number):
    f, plain, others = (CALLS + IMAGES)[number]
    x = Tensor(X if number < len(CALLS) else IMAGE)
    want = [bits(t) for t in outputs(f(x, plain))]
    assert [bits(t) for t in outputs(trace(lambda x: f(x, plain))(x))] == want
    for form in others:
        assert [bits(t) for t in outputs(f(x, form(plain)))] == want, "eager"
    for form in others[:3]:
        outside = form(plain)
        with warnings.catch_warnings():  # of contents that a recording cannot look at
            warnings.simplefilter("ignore", TraceWarning)
            assert [bits(t) for t in outputs(trace(lambda x, v=outside: f(x, v))(x))] == want, "traced, made outside"
    assert [bits(t) for t in outputs(trace(lambda x: f(x, tensor(np.array(plain))))(x))] == want, "traced, made inside"


@pytest.mark.parametrize("form", S)
def test_random_numbers(form):
    rng = lambda: random.RNG(3)
    want = [rng().uniform(size=(2, 3)).tolist(), rng().normal(size=5).tolist(), rng().randint(9, size=4).tolist()]
    assert rng().uniform(size=form((2, 3))).tolist() == want[0]
    for n in N:
        assert rng().normal(size=n(5)).tolist() == want[1]
        assert rng().randint(n(9), size=n(4)).tolist() == want[2]


# ---- what is no such form ----------------------------------------------------------------------------------------------

BAD = [
    lambda x: F.sum(x, 1.0), lambda x: F.sum(x, np.array([0.0])), lambda x: F.sum(x, True), lambda x: F.sum(x, "0"),
    lambda x: F.sum(x, (0, (1,))), lambda x: F.sum(x, np.array([[0, 1]])), lambda x: F.zeros(2.0), lambda x: F.zeros((2, 3.0)),
    lambda x: F.zeros("ab"), lambda x: F.zeros(None), lambda x: F.zeros(np.array([1.5, 2])),
    lambda x: F.zeros(tensor([1.0, 2.0])), lambda x: F.repeat(x, 1.5), lambda x: F.topk(x, 2.0), lambda x: F.split(x, 2.0),
    lambda x: F.tril(x, 0.5), lambda x: F.eye(True), lambda x: F.one_hot(x.astype("int32"), 3.5), lambda x: F.sum(x, {0: 1}),
    lambda x: F.sum(x, 0, 2), lambda x: F.sum(x, 0, "yes"), lambda x: F.cumsum(x, 0, None), lambda x: F.pad(x, 1, mode="edgy"),
    lambda x: F.astype(x, 3), lambda x: F.arange("6"), lambda x: F.arange(None, 3), lambda x: F.broadcast_to(x, object()),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BAD)))
def test_other_kinds_are_refused(number):
    for run in (BAD[number], trace(BAD[number])):
        with pytest.raises((TypeError, ValueError)) as e:
            run(Tensor(X[:, :5]))  # of a shape that no other call has: 1.0 would find the plan of 1
        assert isinstance(e.value, TengenError) and "must be" in str(e.value) or "is not a dtype" in str(e.value)


COMPUTED = [
    lambda x, n: F.ones(n), lambda x, n: F.reshape(x, (n, -1)), lambda x, n: F.sum(x, n), lambda x, n: F.arange(n),
    lambda x, n: F.repeat(x, n), lambda x, n: F.topk(x, n), lambda x, n: random.uniform(size=n),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(COMPUTED)))
def test_what_only_a_run_knows_is_no_extent(number):
    with pytest.raises(TraceError, match="must be known while the program is recorded.*help: pass numbers"):
        trace(lambda x: COMPUTED[number](x, F.sum(x).astype("int32")), symbolic=True)(Tensor(X))


def test_a_plan_is_found_by_numpys_numbers_too():
    """A call with np.int64 is the plan of the call with ints: nothing is converted."""
    x = Tensor(X)
    want = F.sum(x, (0, 1), True)
    from tengen.ops.attributes import Kind

    plain, Kind._plain = Kind._plain, None  # would be called
    try:
        assert F.sum(x, (np.int64(0), np.int64(1)), True).tolist() == want.tolist()
        assert REGISTRY["sum"](x, (0, 1), True).tolist() == want.tolist()
    finally:
        Kind._plain = plain


def test_errors_are_short():
    with pytest.raises(ArgumentError) as e:
        F.sum(Tensor(X), tuple(range(100000)) + (1.5,))
    assert len(str(e.value)) < 600
