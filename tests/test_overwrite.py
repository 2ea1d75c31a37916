"""x[key] = value in place: when the memory stays x's own, and that nobody else ever sees the write."""

import copy

import numpy as np
import pytest

import tengen
from tengen import Parameter, Tensor, from_dlpack, trace
from tengen import functional as F
from tengen.autodiff import GradManager, grad
from tengen.base.errors import IndexOutOfRange, ShapeError
from tengen.compiler import plans
from tengen.ops.define import REGISTRY
from tengen.runtime import native

X = np.arange(60, dtype="float32").reshape(3, 4, 5)
WRITES = [
    (1, 7.0),
    ((slice(None), 2), np.arange(5, dtype="float32")),
    ((slice(None, None, -2), ..., slice(1, 4)), np.full((2, 1, 3), -1.0, "float32")),
    ((0, 1, 2), 9),
    ([2, 0, 2], np.stack([X[0] + i for i in range(3)])),
    ((slice(1, 3), [0, 3]), 5.0),
    ((1, [0, 3], slice(1, 4)), np.ones((2, 3), "float32")),
    (X % 3 == 0, -2.0),
    (X % 3 == 0, np.arange(20, dtype="float32")),
    (X[:, :, 0] > 20, 4.0),
    (..., X[::-1].copy()),
    ((slice(2, 2),), 1.0),
    ([], 1.0),
    (None, 3.0),
]
IDS = [str(i) for i in range(len(WRITES))]


def place(t):
    return native.address(t._data)


def own_memory(values=X):
    return Tensor(np.array(values))


def written(values, key, value):
    out = np.array(values)
    out[key] = value
    return out


@pytest.mark.parametrize("key, value", WRITES, ids=IDS)
def test_memory_of_its_own_is_written_in_place(key, value):
    t = own_memory()
    before = place(t)
    t[key] = value
    assert place(t) == before
    np.testing.assert_array_equal(t.numpy(), written(X, key, value))


OTHERS = {
    "a view": lambda t: t[...],
    "a part": lambda t: t[1:],
    "another order": lambda t: t.transpose(2, 0, 1),
    "a broadcast one": lambda t: F.broadcast_to(t, (2, 3, 4, 5)),
    "a detached one": lambda t: t.detach(),
    "a copy": copy.copy,
    "a deep copy": copy.deepcopy,
    "an array": lambda t: t.numpy(),
    "a part of an array": lambda t: t.numpy()[:, 1],
    "an exchanged array": lambda t: np.from_dlpack(t),
    "a tensor of it": Tensor,
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("key, value", WRITES[:9:2], ids=IDS[:9:2])
def test_who_sees_the_memory_sees_no_write(other, key, value):
    t = own_memory()
    seen = other(t)
    before = np.array(seen)
    t[key] = value
    np.testing.assert_array_equal(np.asarray(seen), before)
    np.testing.assert_array_equal(t.numpy(), written(X, key, value))


LAYOUTS = {
    "turned": lambda: Tensor(np.ascontiguousarray(X.transpose(2, 0, 1))).transpose(1, 2, 0),
    "every second": lambda: Tensor(np.repeat(X, 2, axis=2))[:, :, ::2],
    "backwards": lambda: Tensor(np.ascontiguousarray(X[::-1]))[::-1],
    "from inside": lambda: Tensor(np.concatenate([X, X]))[3:],
    "foreign": lambda: from_dlpack(np.array(X)),
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("key, value", WRITES[:9], ids=IDS[:9])
def test_layouts(make, key, value):
    t = make()
    t[key] = value
    np.testing.assert_array_equal(t.numpy(), written(X, key, value))


def test_one_value_for_many_elements():
    t = F.broadcast_to(Tensor([1.0]), (3, 4))
    t[1, 2] = 5.0
    np.testing.assert_array_equal(t.numpy(), written(np.ones((3, 4)), (1, 2), 5.0))


def test_foreign_memory_is_not_touched():
    a = np.array(X)
    t = from_dlpack(a)
    t[0] = 1.0
    np.testing.assert_array_equal(a, X)


def test_the_value_is_part_of_the_target():
    for key, part in (((slice(1, None),), slice(None, -1)), ((slice(None, -1),), slice(1, None)), (([0, 1],), [1, 2])):
        t = own_memory()
        t[key] = t[part]
        np.testing.assert_array_equal(t.numpy(), written(X, key, X[part]))
    t = own_memory()
    t[...] = t
    t[[0, 1, 2]] = t
    np.testing.assert_array_equal(t.numpy(), X)
    t = own_memory(X[0, :, :4])
    t[...] = t.T
    np.testing.assert_array_equal(t.numpy(), X[0, :, :4].T)


def test_the_key_is_the_target():
    i = Tensor(np.array([1, 2, 0, 3]))
    i[i] = 9
    assert i.tolist() == [9, 9, 9, 9]
    flags = Tensor(np.array([True, False, True]))
    flags[flags] = False
    assert flags.tolist() == [False, False, False]


@pytest.mark.parametrize("d", ["float16", "bfloat16", "float64", "int8", "uint8", "int64", "bool"])
def test_dtypes_agree_with_the_op(d):
    for value in (Tensor(X[0] - 30), 2.7, 1, True):
        for key in (1, [0, 2], Tensor(X > 7)):
            if isinstance(key, Tensor) and isinstance(value, Tensor):
                continue
            t = Tensor(X).astype(d)
            want = REGISTRY["setitem"](t, key, value)
            t[key] = value
            assert t.numpy().tobytes() == want.numpy().tobytes()


def test_a_number_is_rounded_once():
    t = Tensor(np.zeros(2))
    t[0], t[1:] = 0.1, 1e300
    assert t.tolist() == [0.1, 1e300]


def test_nothing_is_written_where_something_is_wrong():
    t = own_memory()
    for key, value, error in (
        ([0, 3], 1.0, IndexOutOfRange),
        (5, 1.0, IndexOutOfRange),
        (0, np.zeros((7,), "float32"), ShapeError),
        ([0, 1], np.zeros((3, 4, 5), "float32"), ShapeError),
    ):
        with pytest.raises(error):
            t[key] = value
        np.testing.assert_array_equal(t.numpy(), X)
    with pytest.raises(IndexOutOfRange, match=r"index 3 is out of range for axis 0 .*test_overwrite.py"):
        t[[0, 3]] = 1.0


def test_the_tape_keeps_what_it_saw():
    x, p = own_memory(), Parameter(np.array(2.0, "float32"))
    with GradManager().attach(p) as gm:
        y = (x * p * x).sum()
        x[0] = 100.0
        gm.backward(y)
    assert p.grad.item() == np.sum(X * X)


def test_what_is_on_the_tape_stays_on_it():
    def f(a, v):
        b = a * 2
        b[1] = v
        return (b * b).sum()

    for i, want in ((0, np.concatenate([8 * X[:1], 0 * X[:1], 8 * X[2:]])), (1, 2 * X[1])):
        args = [Tensor(X), Tensor(X[1])]
        got = grad(lambda t, i=i, args=args: f(*[*args[:i], t, *args[i + 1 :]]))(args[i])
        np.testing.assert_array_equal(got.numpy(), want)
    base = own_memory()  # off the tape itself
    v = Parameter(X[1])
    with GradManager().attach(v) as gm:
        base[1] = v
        gm.backward((base * base).sum())
    np.testing.assert_array_equal(v.grad.numpy(), 2 * X[1])


def test_states_of_a_trace():
    s = own_memory(X[0])

    @trace
    def f(x):
        s[1] = x
        return s + 1

    for i in range(3):
        f(Tensor(np.full(5, float(i), "float32")))
        s[0, i] = -1.0
        seen = s.numpy()
        s[2] = float(i)
        assert seen[2, 0] == (X[0, 2, 0] if i == 0 else i - 1)
    want = np.array(X[0])
    want[1], want[2], want[0, :3] = 2, 2, -1
    np.testing.assert_array_equal(s.numpy(), want)


def test_a_start_of_its_own_needs_no_program():
    t = Tensor(np.zeros((40, 3), "float32"))
    t[0], t[1:3] = 1.0, 2.0
    known = len(plans._programs)
    for i in range(40):
        t[i] = float(i)
        t[i, 1:] = -float(i)
    assert len(plans._programs) <= known + 2
    np.testing.assert_array_equal(t.numpy()[:, 0], np.arange(40))
    np.testing.assert_array_equal(t.numpy()[:, 2], -np.arange(40))


def test_a_profile_sees_the_writes():
    t = own_memory()
    t[1] = 2.0
    with tengen.profile() as p:
        t[2] = 3.0
    assert "astype" in str(p)
    np.testing.assert_array_equal(t.numpy(), written(written(X, 1, 2.0), 2, 3.0))


def test_a_state_is_not_written_over_what_is_read_at_other_places():
    """Its new value reads the old one through a view: transposed, reversed."""
    for view in (lambda x: x.T, lambda x: x[::-1], lambda x: x[:, ::-1].T):
        want = np.arange(16, dtype="float32").reshape(4, 4)
        x = Tensor(want)

        @trace
        def step(x=x, view=view):
            x._reset(view(x) + 1)
            return x.sum()

        for _ in range(3):
            step()
            want = view(want) + 1
            assert np.array_equal(x.numpy(), want)
