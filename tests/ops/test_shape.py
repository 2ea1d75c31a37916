"""Indexing against NumPy, by examples and by chance; ranges, errors and gradients of shape ops. Their values: test_ops.py."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tengen import Tensor, autodiff, trace
from tengen import functional as F
from tengen.base.errors import ArgumentError, AxisError, DTypeError, GradientError, IndexOutOfRange, ShapeError, TraceError
from tengen.ops.define import REGISTRY

X = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
MASK = X > 50
KEYS = [
    0, -1, (1, 2), slice(None), (slice(None), 1), (..., 2), (None, 0, ..., None), (slice(None, None, -1), slice(1, 3)), [0, 1],
    ([0, 1, 1], [2, 0, 1]), (slice(None), [0, 2], [1, 1]), ([0, 1], slice(None), [1, 2]), (0, slice(None), [1, 2]),
    (slice(None), 0, [1, 2]), (slice(None), [[0], [1]], slice(None), [3, 4]), MASK, (slice(None), MASK[0, :, :, 0]),
    (MASK[:, :, 0, 0], slice(None), 2), ([0], None, slice(None), [1]), ([0, 1], ..., [1, 2]), (..., [0, 1]),
    (slice(None), slice(None), [0, 1], ..., [1, 2]), True, False, (0, True), (np.array(1), slice(None)), slice(5, 2), [],
    (slice(None), np.zeros((0, 2), int)), (1, [0, 2], None, [1, 3], slice(0, 5, 2)), (-1, -1, -1, -1), slice(-1, None, -2),
    (None, [0, 1], None, [1, 1]), (np.int32(1), ..., np.uint8(2)), slice(0, 0),
]  # fmt: skip


def as_tensors(key):
    if isinstance(key, tuple):
        return tuple(map(as_tensors, key))
    return Tensor(key) if isinstance(key, np.ndarray) else key


def check_key(x, key):
    want = x[key]
    t = Tensor(x)
    got = t[as_tensors(key)].numpy()
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)
    for value in (np.float32(7), -np.arange(want.size, dtype=np.float32).reshape(want.shape)):
        changed, s = x.copy(), Tensor(x)
        before = s[...]
        changed[key] = value
        s[as_tensors(key)] = value if value.ndim else float(value)
        np.testing.assert_array_equal(s.numpy(), changed)
        np.testing.assert_array_equal(before.numpy(), x)


@pytest.mark.parametrize("key", KEYS, ids=lambda k: str(k)[:40].replace("\n", ""))
def test_keys(key):
    check_key(X, key)


@st.composite
def shape_and_key(draw):
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=4)))
    together = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    items, axis = [], 0
    while axis < len(shape):
        d = shape[axis]
        kinds = ["slice", "slice", "none", "stop", "dots"] + (["int", "array", "array"] if d else []) + ["mask"]
        kind = draw(st.sampled_from(kinds))
        if kind == "stop":
            break
        if kind == "dots":
            if not any(i is ... for i in items):
                items.append(...)
                axis += draw(st.integers(0, len(shape) - axis))
            continue
        if kind == "none":
            if len(items) < 7:
                items.append(None)
            continue
        if kind == "slice":
            bound = st.none() | st.integers(-7, 7)
            items.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, -1, -3]))))
        elif kind == "int":
            items.append(draw(st.integers(-d, d - 1)))
        elif kind == "array":
            part = tuple(draw(st.sampled_from([n, 1])) for n in together)
            items.append(
                np.array(
                    draw(st.lists(st.integers(-d, d - 1), min_size=int(np.prod(part)), max_size=int(np.prod(part))))
                ).reshape(part)
            )
        elif not any(isinstance(i, np.ndarray) for i in items):  # one mask: several must have as many true elements
            items.append(np.array(draw(st.lists(st.booleans(), min_size=d, max_size=d)), bool))
        else:
            continue
        axis += 1
    return shape, tuple(items)


@settings(max_examples=150, deadline=None)
@given(shape_and_key())
def test_random_keys(case):
    shape, key = case
    x = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    try:
        x[key]
    except IndexError:  # a key that NumPy refuses too (arrays that do not broadcast, too many indices)
        with pytest.raises((IndexError, ValueError)):
            Tensor(x)[as_tensors(key)]
        return
    try:
        check_key(x, key)
    except IndexOutOfRange:  # NumPy looks at neither a mask's extents nor indices where nothing is taken
        if x.size:
            raise


BAD_KEYS = [
    (2, IndexOutOfRange, "index 2 is out of range for axis 0 of extent 2"),
    ((0, -4), IndexOutOfRange, "index -4 is out of range for axis 1 of extent 3"),
    ([0, 2], IndexOutOfRange, "index 2 is out of range for axis 0 of extent 2"),
    ((slice(None), [[-4]]), IndexOutOfRange, "index -4 is out of range for axis 1 of extent 3"),
    ("a", DTypeError, "'a' is no index"),
    (1.5, DTypeError, "1.5 is no index"),
    ([0.5], DTypeError, "a tensor of float32 is no index"),
    ((0,) * 5, IndexOutOfRange, "a key of 5 indices for a tensor of shape"),
    ((..., ...), IndexOutOfRange, "at most one ..."),
    (np.ones(3, bool), IndexOutOfRange, "a mask of shape"),
    (([0, 1], [0, 1, 2]), ShapeError, "extents 2 and 3"),
]


@pytest.mark.parametrize("key, kind, message", BAD_KEYS)
def test_bad_keys(key, kind, message):
    t = Tensor(X)
    for f in (lambda: t[key], lambda: t.__setitem__(key, 0.0)):
        with pytest.raises(kind) as e:
            f()
        assert message in str(e.value)
    np.testing.assert_array_equal(t.numpy(), X)


def test_values_that_do_not_fit():
    t = Tensor(X)
    for key in (0, [0, 1], (slice(None), slice(None), 1)):
        with pytest.raises(ShapeError, match="broadcast"):
            t[key] = np.zeros((7,), np.float32)
    t[0] = np.zeros((1, 1, 3, 4, 5), np.float32)  # leading unit axes may be dropped, as in NumPy
    assert t.numpy()[0].sum() == 0


def test_numbers_are_cast_to_the_tensor():
    t = Tensor(np.zeros(3, np.int8))
    t[1] = 3.7
    t[[2]] = Tensor([300])
    assert t.dtype == "int8" and t.tolist() == [0, 3, 44]


OUT_OF_RANGE = [
    ("gather", lambda x, i: F.gather(x, 1, i)),
    ("scatter", lambda x, i: F.scatter(x, 1, i, 1.0)),
    ("index", lambda x, i: F.take(x, i, 1)),
    ("one_hot", lambda x, i: F.one_hot(i, 3)),
]


@pytest.mark.parametrize("name, f", OUT_OF_RANGE)
def test_indices_out_of_range(name, f):
    x = Tensor(np.ones((2, 3), np.float32))
    for bad in (3, -4, 2**40, -(2**40)):
        i = Tensor(np.array([[0, 1, bad]]))
        with pytest.raises(IndexOutOfRange) as e:
            f(x, i)
        assert name in str(e.value) and f"index {bad} is out of range" in str(e.value) and "extent 3" in str(e.value)
        with pytest.raises(IndexOutOfRange) as e:
            trace(f)(x, i)  # looked at when the run has ended; it stays inside the tensor
        assert name in str(e.value) and "an index is out of range" in str(e.value) and "extent 3" in str(e.value)


def test_what_is_counted_first_is_refused_in_a_trace():
    x = Tensor([1.0, 0.0, 2.0])
    for f in (lambda x: x[x > 0], lambda x: F.nonzero(x)[0], lambda x: F.cond_take(x > 0, x)[0]):
        with pytest.raises(TraceError, match="mask inside a trace"):
            trace(f, symbolic=True)(x)


def test_masked_assignment_in_a_trace():
    @trace
    def f(x):
        y = x + 0
        y[x < 0] = 0.0
        y[1:3] = y[1:3] * 2
        return y

    for _ in range(3):
        assert f(Tensor([-1.0, 2.0, -3.0, 4.0])).tolist() == [0.0, 4.0, 0.0, 4.0]


def test_gradients_of_keys():
    x = np.random.default_rng(0).standard_normal((4, 5))
    for key in (1, (slice(None, None, -2), None), ([0, 0, 3], slice(1, 3)), ([1, 1], [2, 2]), x > 0):
        g = autodiff.grad(lambda t, key=key: (t[as_tensors(key)] * t[as_tensors(key)]).sum())(Tensor(x))
        want = np.zeros_like(x)
        np.add.at(want, key, 2 * x[key])
        np.testing.assert_allclose(g.numpy(), want, rtol=1e-12)


def test_gradients_of_assignment():
    x, v = np.random.default_rng(0).standard_normal((2, 4, 5))
    for key in ((slice(None), 2), ([0, 3], slice(1, 3)), (x > 0,)):

        def f(a, b, key=key):
            y = a * 1.0
            y[as_tensors(key)] = b[as_tensors(key)] * 3.0 if not isinstance(key[0], np.ndarray) else 0.0
            return (y * y).sum()

        ga, gb = autodiff.grad(f, (0, 1))(Tensor(x), Tensor(v))
        keep = np.ones_like(x)
        keep[key] = 0
        np.testing.assert_allclose(ga.numpy(), 2 * x * keep, rtol=1e-12)
        want = 18 * v * (1 - keep) if not isinstance(key[0], np.ndarray) else 0 * v
        np.testing.assert_allclose(gb.numpy(), want, rtol=1e-12)


def test_gradients_go_to_the_update_that_stayed():
    weights = Tensor(np.array([1.0, 10.0, 100.0]))

    def assigned(x, v):
        y = x + 0
        y[[0, 1, 0, -3]] = v
        return (y * weights).sum()

    x, ones = Tensor(np.ones(3)), Tensor(np.array([1.0, 1.0, 0.0]))
    for f in (autodiff.grad(assigned, (0, 1)), trace(lambda x, v: autodiff.grad(assigned, (0, 1))(x, v))):
        gx, gv = f(x, Tensor(np.ones(4)))
        assert (gx.tolist(), gv.tolist()) == ([0, 0, 100], [0, 10, 0, 1])
    assert autodiff.grad(assigned, 1)(x, Tensor(np.float64(1))).item() == 11  # broadcast: both that stayed
    third = 1 / 3  # equal ones share
    wants = {"set": ([0, 0, 100], [0, 1, 10]), "max": ([third, 10, 100], [third, third, 0]), "min": ([third, 0, 100], [third, third, 10])}
    for mode, want in wants.items():
        f = lambda x, v, m=mode: (F.scatter(x, 0, Tensor([0, 0, 1]), v, m) * weights).sum()
        gx, gv = autodiff.grad(f, (0, 1))(x, ones)
        np.testing.assert_allclose([*gx.tolist(), *gv.tolist()], [*want[0], *want[1]], rtol=1e-15, err_msg=mode)
    with pytest.raises(GradientError, match="mode 'mul'.*help: "):
        autodiff.grad(lambda x: F.scatter(x, 0, Tensor([0]), x[:1], "mul").sum())(x)


@pytest.mark.parametrize("mode", ["set", "max"])
def test_gradients_without_updates(mode):
    f = lambda x, v: F.scatter(x, 0, Tensor(np.zeros((0, 2), int)), v, mode).sum()
    gx, gv = autodiff.grad(f, (0, 1))(Tensor(np.ones((3, 2))), Tensor(np.ones((0, 2))))
    assert gx.tolist() == [[1, 1]] * 3 and gv.shape == (0, 2)


def test_gradient_of_products_with_zeros():
    x = np.array([2.0, 0.0, 3.0, 0.0, 4.0])
    g = autodiff.grad(lambda t: (F.cumprod(t, 0) * Tensor([1.0, 2.0, 3.0, 4.0, 5.0])).sum())(Tensor(x))
    np.testing.assert_allclose(g.numpy(), [1.0, 2 * 2 + 3 * 2 * 3, 0, 0, 0])
    g = autodiff.grad(lambda t: F.prod(t))(Tensor(np.array([2.0, 0.0, 3.0])))
    np.testing.assert_allclose(g.numpy(), [0, 6, 0])


def test_meshgrid():
    a, b, c = np.arange(3), np.arange(4), np.arange(2)
    for vectors in ((a,), (a, b), (a, b, c)):
        for indexing in ("xy", "ij"):
            got = F.meshgrid(*map(Tensor, vectors), indexing=indexing)
            for g, w in zip(got, np.meshgrid(*vectors, indexing=indexing), strict=True):
                np.testing.assert_array_equal(g.numpy(), w)


@pytest.mark.parametrize(
    "width", [2, (1, 3), [0, 2], (1,), ((1,), (2,), (0,), (0,)), ((1, 2), (0, 1), (2, 0), (1, 1)), np.int64(1)]
)
def test_pad_takes_what_numpy_takes(width):
    want = [(w[0], w[-1]) for w in width] if isinstance(width, tuple) and isinstance(width[0], tuple) else width
    np.testing.assert_array_equal(F.pad(Tensor(X), width).numpy(), np.pad(X, want))


def test_pad_of_some_axes():
    np.testing.assert_array_equal(F.pad(Tensor(X), ((1, 3),)).numpy(), np.pad(X, ((1, 3), (0, 0), (0, 0), (0, 0))))
    assert F.pad(Tensor(X), ()).shape == X.shape
    assert F.pad(Tensor(3.0), 1).item() == F.pad(Tensor(3.0), ()).item() == 3.0


def test_views_share_memory():
    x = Tensor(X)
    for f in (
        lambda: F.expand_dims(x, 0), lambda: F.squeeze(x[:1], 0), lambda: F.flatten(x), lambda: F.swapaxes(x, 0, 1), lambda: F.flip(x),
        lambda: REGISTRY["diagonal"](x), lambda: REGISTRY["sliding_window"](x, 2), lambda: F.split(x, 2)[1], lambda: x[1, ..., ::2],
    ):  # fmt: skip
        assert np.shares_memory(f().numpy(), x.numpy())
    assert not np.shares_memory(x[[0]].numpy(), x.numpy())


ERRORS = [
    (lambda x: F.expand_dims(x, 7), AxisError, "axis 7 is out of range"),
    (lambda x: F.squeeze(x, 0), ShapeError, "axis 0 has extent 2"),
    (lambda x: F.flatten(x, 2, 1), AxisError, "lies behind"),
    (lambda x: F.moveaxis(x, (0, 0), (1, 2)), AxisError, "distinct"),
    (lambda x: F.concat([x, x[0]]), ShapeError, "tensor 1 has shape (3, 4, 5)"),
    (lambda x: F.concat([]), ShapeError, "no tensors"),
    (lambda x: F.stack([x, x[:1]]), ShapeError, "tensor 1 has shape"),
    (lambda x: F.split(x, 4, 1), ShapeError, "3 elements of axis 1 cannot be cut in 4 parts"),
    (lambda x: F.pad(x, ((0, 0), (3, 0)), "reflect"), ShapeError, "axis 1 of extent 3 cannot be padded by (3, 0)"),
    (lambda x: F.pad(x, ((-1, 0),)), ShapeError, "pad_width must be an int >= 0"),
    (lambda x: F.pad(x, (1, 2, 3, 4)), ShapeError, "for every axis or one for each of at most 4 axes"),
    (lambda x: F.pad(x, ((1, 2),) * 5), ShapeError, "a pair of numbers"),
    (lambda x: F.pad(x, (1, (2, 3))), ShapeError, "a pair of numbers"),
    (lambda x: F.pad(x, 1.5), ArgumentError, "pad_width must be an int >= 0"),
    (lambda x: F.repeat(x, [1, 2, 3], 0), ShapeError, "3 numbers for the 2 positions of axis 0"),
    (lambda x: F.zeros((2, -1)), ShapeError, "shape must be an int >= 0 or a sequence of them, got (2, -1)"),
    (lambda x: F.topk(x, 9), ShapeError, "axis 3 of extent 5 has no 9 elements"),
    (lambda x: F.diag(x), ShapeError, "a vector or a matrix is expected"),
    (lambda x: F.gather(x, 0, x), DTypeError, "indices must be integers"),
    (lambda x: F.one_hot(x, 3), DTypeError, "indices must be integers"),
    (lambda x: F.arange(0, 3, 0), ValueError, "the step must not be 0"),
]


@pytest.mark.parametrize("f, kind, message", ERRORS)
def test_errors(f, kind, message):
    with pytest.raises(kind) as e:
        f(Tensor(X))
    assert message in str(e.value)


def test_places_of_as_strided_are_checked():
    """Nothing outside of a tensor is read, whatever strides say; a written view is a tensor of its own."""
    x = Tensor(np.arange(30.0).reshape(5, 6))
    for size, stride, offset, words in (
        ((3, 3), (20, 1), 0, "30 elements have no places from 0 to 42"), ((2,), (-1,), 0, "places from -1 to 0"),
        ((2,), (1,), 29, "places from 29 to 30"), ((3,), (1, 1), 0, "a stride for each of 1 axes, got 2"), ((-1,), (1,), 0, "an int >= 0"),
    ):  # fmt: skip
        for call in (lambda t, a=(size, stride, offset): t.as_strided(*a), trace(lambda t, a=(size, stride, offset): F.as_strided(t, *a))):
            with pytest.raises((ShapeError, ArgumentError), match=words):
                call(x)
    assert x.as_strided((2, 0), (99, 99), 99).shape == (2, 0) and F.as_strided(x, 3, 7).tolist() == [0.0, 7.0, 14.0]
    assert F.as_strided(x.T, (2,), (1,)).tolist() == [0.0, 6.0]  # the elements of x.T, however they lie in memory
    view = x.as_strided((2, 2), (1, 1))
    view[0, 1] = 50.0
    assert view.tolist() == [[0.0, 50.0], [1.0, 2.0]] and x[0, 1].item() == 1.0
