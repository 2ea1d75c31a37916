"""Tensor: making one, dtypes, promotion, ways in and out of NumPy, values that do not change under one's hands, errors."""

import copy
import operator
import pickle
import re

import numpy as np
import pytest

import tengen
import tengen.functional as F
from tengen import Parameter, Tensor, trace
from tengen.autodiff import GradManager
from tengen.base.dtype import ALL, bfloat16
from tengen.base.errors import ArgumentError, TraceError

NUMPY = [d.name for d in ALL if d is not bfloat16]


@pytest.mark.parametrize("data, name, shape", [
    (1, "int64", ()), (1.5, "float32", ()), (True, "bool", ()), ([1, 2], "int64", (2,)), ([[1.0], [2.0]], "float32", (2, 1)),
    ([], "float32", (0,)), ([True, False], "bool", (2,)), (np.float64(1), "float64", ()), (np.zeros((2, 0), np.int8), "int8", (2, 0)),
    (np.arange(3, dtype=np.uint32), "uint32", (3,)), (np.zeros(2, ">f4"), "float32", (2,)), (range(3), "int64", (3,)),
    (np.arange(6).reshape(2, 3)[:, ::-2], "int64", (2, 2)),
])  # fmt: skip
def test_construction(data, name, shape):
    t = Tensor(data)
    assert t.dtype == name and t.shape == shape and t.ndim == len(shape) and t.size == int(np.prod(shape))
    np.testing.assert_array_equal(t.numpy(), np.asarray(data))
    assert t.numpy().dtype == np.dtype(name)


def test_construction_from_tensors_and_dtypes():
    t = Tensor([1.0, 2.0], dtype="float64")
    assert t.dtype == np.float64 and Tensor(t).dtype == "float64" and Tensor(t, dtype="int32").tolist() == [1, 2]
    assert Tensor([1, 2], dtype=float).dtype == "float32"
    assert Tensor([Tensor(1.0), Tensor(2.0)]).tolist() == [1.0, 2.0]
    assert Tensor(2.5, dtype="bfloat16").item() == 2.5
    p = Parameter([1.0], name="w")
    assert isinstance(p, Tensor) and p.name == "w" and not isinstance(p.detach(), Parameter)
    assert tengen.tensor is Tensor


@pytest.mark.parametrize("data, dtype, error, message", [
    (None, None, TypeError, "needs data"), ("text", None, TypeError, "among the data is text"), ([1, "a"], None, TypeError, "is text"),
    (np.zeros(1, "clongdouble"), None, TypeError, "complex256"),
    ([1], "float31", TypeError, "float31"), ([[1], [1, 2]], None, ValueError, "different lengths"),
])  # fmt: skip
def test_construction_errors(data, dtype, error, message):
    with pytest.raises(error, match=message):
        Tensor(data, dtype=dtype)


@pytest.mark.parametrize("a", NUMPY)
def test_promotion_of_pairs_is_numpy_s_but_for_floats_beside_integers(a):
    for b in NUMPY:
        want = np.add(np.ones(2, a), np.ones(2, b)).dtype
        if floats := [d for d in (a, b) if np.dtype(d).kind == "f"]:
            want = np.result_type(*floats)
        got = Tensor(np.ones(2, a)) + Tensor(np.ones(2, b))
        assert got.dtype == want, f"{a} + {b}"


@pytest.mark.parametrize("a", NUMPY)
def test_python_numbers_are_weak(a):
    x = np.ones(2, a)
    for value in (True, 1, 1.5):
        if a == "bool" and value is True:
            continue
        want = np.multiply(x, value).dtype
        if want == np.float64 and a != "float64":
            want = np.dtype(np.float32)  # the default float is float32
        for got in (Tensor(x) * value, value * Tensor(x)):
            assert got.dtype == want, f"{a} * {value!r}"


def test_numpy_scalars_and_arrays_are_strong():
    x = Tensor(np.ones(2, np.float16))
    assert (x + np.float32(1)).dtype == "float32" and (x + np.ones(2, np.float64)).dtype == "float64"
    assert type(np.ones(2, np.float32) + x) is Tensor and (np.ones(2, np.float32) - x).tolist() == [0, 0]
    assert type(np.float32(2) * x) is Tensor


def test_bfloat16_promotes():
    b = Tensor([1.0], dtype="bfloat16")
    assert (b + 1.5).dtype == "bfloat16" and (b + Tensor([1])).dtype == "bfloat16"
    assert (b + Tensor([1.0], dtype="float16")).dtype == "float32" and (b + Tensor([1.0])).dtype == "float32"


def test_numbers_that_do_not_fit():
    with pytest.raises(OverflowError, match="Python integer 300 is out of bounds for uint8"):
        Tensor(np.ones(2, np.uint8)) + 300
    with pytest.raises(OverflowError, match="-1 is out of bounds"):
        Tensor(np.ones(2, np.uint8)) + -1


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.truediv])
def test_operators_with_strangers(op):
    x = Tensor([1.0])
    for other in ("a", None, object(), {}):
        with pytest.raises(TypeError):
            op(x, other)
        with pytest.raises(TypeError):
            op(other, x)
    with pytest.raises(ValueError, match=r"\(f32\[2\], f32\[3\]\): axis -1 has extents 2 and 3"):
        op(Tensor([1.0, 2.0]), Tensor([1.0, 2.0, 3.0]))


def test_repr():
    assert repr(Tensor([[1.0, 2.5]])) == "Tensor([[1. , 2.5]], dtype=float32)"
    assert repr(Tensor(3)) == "Tensor(3, dtype=int64)"
    assert repr(Tensor(np.zeros((0, 2)))) == "Tensor([], shape=(0, 2), dtype=float64)"
    assert repr(Parameter([1.0])) == "Parameter([1.], dtype=float32)"
    assert "..." in repr(Tensor(np.zeros(1000)))
    assert "bfloat16" in repr(Tensor([1.0], dtype="bfloat16"))


def test_numpy_shares_memory_and_never_changes():
    x = Tensor([1.0, 2.0, 3.0])
    a, b = x.numpy(), x.numpy()
    assert np.shares_memory(a, b) and not a.flags.writeable
    with pytest.raises(ValueError):
        a[0] = 5
    y = x.detach()
    x += 1
    assert a.tolist() == [1, 2, 3] and x.tolist() == [2, 3, 4] and y.tolist() == [1, 2, 3]
    f = trace(lambda t=x: t._reset(t * 2))  # a program that updates its state in place
    c = x.numpy()
    f()
    f()
    assert x.tolist() == [8, 12, 16] and c.tolist() == [2, 3, 4]
    del x, y
    assert a.tolist() == [1, 2, 3], "the array keeps the memory"


def test_data_is_copied_in():
    a = np.ones(3)
    x = Tensor(a)
    a[0] = 7
    assert x.tolist() == [1, 1, 1]


def test_array_protocol():
    x = Tensor([1.0, 2.0])
    assert np.asarray(x).dtype == np.float32 and np.asarray(x, dtype=np.float64).dtype == np.float64
    c = np.array(x)
    c[0] = 9
    assert x.tolist() == [1, 2]
    assert np.shares_memory(np.asarray(x), x.numpy())
    assert np.sum(np.asarray(x)) == 3 and np.allclose(x, [1, 2])
    with pytest.raises(ValueError, match="copy"):
        np.array(x, dtype=np.float64, copy=False)


def test_views_export_their_strides():
    x = Tensor(np.arange(6.0).reshape(2, 3))
    assert x.T.numpy().tolist() == np.arange(6.0).reshape(2, 3).T.tolist()
    assert np.shares_memory(x.T.numpy(), x.numpy())
    y = tengen.functional.broadcast_to(x, (4, 2, 3))
    assert y.numpy().shape == (4, 2, 3) and y.numpy().strides[0] == 0


@pytest.mark.parametrize("name", [n for n in NUMPY])
def test_dlpack_to_numpy_and_back(name):
    a = np.arange(6).reshape(2, 3).astype(name)
    x = Tensor(a)
    b = np.from_dlpack(x)
    assert b.dtype == a.dtype and np.array_equal(a, b) and np.shares_memory(b, x.numpy())
    y = tengen.from_dlpack(a)
    assert y.dtype == name and np.array_equal(y.numpy(), a) and np.shares_memory(y.numpy(), a)
    assert (y == x).numpy().all()
    z = tengen.from_dlpack(x)
    assert np.shares_memory(z.numpy(), x.numpy())


def test_dlpack_never_changes_what_was_shared():
    x = Tensor([1.0, 2.0])
    b = np.from_dlpack(x)
    x += 1
    assert b.tolist() == [1, 2] and x.tolist() == [2, 3]
    a = np.array([1.0, 2.0])
    y = tengen.from_dlpack(a)
    y += 1
    assert a.tolist() == [1, 2] and y.tolist() == [2, 3]
    w = Parameter(tengen.from_dlpack(a))
    trace(lambda: w._reset(w * 3))()
    assert a.tolist() == [1, 2] and w.tolist() == [3, 6]


def test_dlpack_of_strided_empty_and_zero_d():
    a = np.arange(24.0).reshape(2, 3, 4)
    for v in (a[:, ::2, 1:3], a.transpose(2, 0, 1), a[1, 2, 3:4].reshape(()), a[:0], a[:, :, ::-1]):
        x = tengen.from_dlpack(v)
        assert x.shape == v.shape and np.array_equal(x.numpy(), v)
        assert np.array_equal((x + 1).numpy(), v + 1)
        assert np.array_equal(np.from_dlpack(x), v)


def test_dlpack_arguments_and_errors():
    x = Tensor([1.0])
    assert x.__dlpack_device__() == (1, 0)
    assert not np.shares_memory(np.from_dlpack(x, copy=True), x.numpy())
    capsule = x.__dlpack__(max_version=(1, 0))
    assert "dltensor_versioned" in repr(capsule)
    assert '"dltensor"' in repr(x.__dlpack__())
    with pytest.raises(BufferError, match="stream"):
        x.__dlpack__(stream=3)
    with pytest.raises(BufferError, match="device"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(TypeError, match="__dlpack__"):
        tengen.from_dlpack([1.0])
    assert tengen.from_dlpack(np.full(2, 1j, np.complex64)).tolist() == [1j, 1j]


def test_dlpack_memory_lives_as_long_as_it_is_used():
    def make():
        a = np.arange(1000.0)
        return tengen.from_dlpack(a)

    xs = [make() for _ in range(50)]
    assert all(x.numpy()[-1] == 999 for x in xs)
    bs = [np.from_dlpack(Tensor(np.arange(1000.0))) for _ in range(50)]
    junk = [np.zeros(1000) for _ in range(100)]
    assert all(b[-1] == 999 for b in bs) and len(junk) == 100


def test_dlpack_with_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: memory is not shared with it here (with NumPy it is)")
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    t = torch.from_dlpack(x)
    assert t.tolist() == x.tolist() and t.data_ptr() == x.numpy().__array_interface__["data"][0]
    y = tengen.from_dlpack(torch.arange(4, dtype=torch.bfloat16))
    assert y.dtype == "bfloat16" and y.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "again", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"]
)
def test_copies(again):
    for x in (Tensor([1.0, 2.0], dtype="bfloat16"), Parameter([1.5, 2.5], name="w"), Tensor(np.zeros((0, 3)))):
        y = again(x)
        assert type(y) is type(x) and y.dtype is x.dtype and np.array_equal(x.numpy(), y.numpy())
        assert getattr(y, "name", None) == getattr(x, "name", None)
        before = y.tolist()
        x += 1
        assert y.tolist() == before
    x = Tensor([1.0])
    a, b = again([x, x])
    assert a is b or again is copy.copy


def test_python_numbers_out():
    assert Tensor([[2.5]]).item() == 2.5 and float(Tensor(2.5)) == 2.5 and int(Tensor([7])) == 7 and bool(Tensor(0.0)) is False
    assert [10, 20, 30][Tensor(1)] == 20 and f"{Tensor(2.5):.2f}" == "2.50"
    assert f"{Tensor(2.5)} {Tensor(3)} {Tensor(True)}" == "2.5 3 True" and f"{Tensor([2.5])}" == str(Tensor([2.5]))
    assert len(Tensor([[1], [2]])) == 2
    for call, error, message in [
        (lambda: Tensor([1, 2]).item(), ValueError, r"item\(\) needs one element, this tensor is i64\[2\]"),
        (lambda: bool(Tensor([1, 2])), ValueError, "ambiguous"), (lambda: [1][Tensor(1.0)], TypeError, "index"),
        (lambda: len(Tensor(1)), TypeError, "0-d"), (lambda: iter(Tensor(1)), TypeError, "0-d"), (lambda: hash([Tensor(1)]), TypeError, "list"),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            call()
    assert len({Tensor(1), Tensor(1)}) == 2


@pytest.mark.parametrize("ask", [
    lambda x: x.numpy(), lambda x: bool(x), lambda x: x.item(), lambda x: float(x), lambda x: int(x), lambda x: x.tolist(),
    lambda x: np.asarray(x), lambda x: [0, 1][x.astype("int64")], lambda x: pickle.dumps(x), lambda x: np.from_dlpack(x),
], ids=["numpy", "bool", "item", "float", "int", "tolist", "array", "index", "pickle", "dlpack"])  # fmt: skip
def test_values_do_not_exist_inside_a_trace(ask):
    @trace(symbolic=True)
    def f(x):
        return ask(x * 2)

    with pytest.raises(TraceError, match="test_tensor.py:[0-9]+.*help: ") as e:
        f(Tensor(1.0))
    assert "[] are asked for" in str(e.value)
    assert (Tensor(1.0) + 1).item() == 2, "nothing is left behind"


@pytest.mark.skipif(not hasattr(Tensor, "__getitem__"), reason="indexing is not there")
def test_iteration():
    assert [t.tolist() for t in Tensor([[1], [2]])] == [[1], [2]]
    a, b = Tensor([1, 2])
    assert a.item() == 1 and b.item() == 2


def test_repr_and_types_inside_a_trace():
    seen = []

    @trace(symbolic=True)
    def f(x):
        y = x + 1
        seen.extend([repr(y), y.shape, y.dtype, y.ndim, y.size, len(y)])
        return y

    f(Tensor([1.0, 2.0]))
    assert seen == ["Tensor(f32[2], traced)", (2,), "float32", 1, 2, 2]


def test_devices():
    x = Tensor([1.0], device="cpu0")
    assert x.device == "cpu" and x.to("xpux") is x
    with pytest.raises(ValueError, match="gpu0"):
        x.to("gpu0")
    with pytest.raises(ValueError, match="gpu0"):
        Tensor([1.0], device="gpu0")


def test_gradients_tell_minus_zero_from_zero():
    for v in (0.0, -0.0, 0.0):
        x = Tensor([-1.0, 2.0])
        gm = GradManager().attach(x)
        with gm:
            gm.backward(F.leaky_relu(x, v))
        np.testing.assert_array_equal(np.signbit(x.grad.numpy()), np.signbit(np.array([v, 1.0])))


def test_what_equals_an_int_is_refused_after_the_int_too():
    """1 == 1.0 == True, as keys of the table of plans, too: each call is checked as the first one is."""
    x = Tensor(np.arange(6.0, dtype="float32").reshape(1, 1, 2, 3))
    calls = (
        (lambda v: F.sum(x, axis=v), 1), (lambda v: F.sum(x, (0, v)), 1), (lambda v: x.sum(v), 1), (lambda v: F.argmax(x, v), 1),
        (lambda v: x.reshape(6, v), 1), (lambda v: F.reshape(x, (v, 6)), 1), (lambda v: F.concat([x, x], v), 1),
        (lambda v: F.cumsum(x, v), 1), (lambda v: F.softmax(x, v), 1), (lambda v: F.max_pool2d(x, v), 1),
        (lambda v: F.max_pool2d(x, (1, v)), 1), (lambda v: F.swapaxes(x, v, 0), 1), (lambda v: F.flatten(x, v), 1),
        (lambda v: F.leaky_relu(x, v), 1.0), (lambda v: F.elu(x, v), 1.0), (lambda v: F.broadcast_to(x, (v, 1, 2, 3)), 1),
    )  # fmt: skip
    for number, (call, right) in enumerate(calls):
        for _ in range(2):
            call(right)
        for wrong in (True,) if isinstance(right, float) else (1.0, True, np.float64(1)):
            with pytest.raises(ArgumentError, match=f"{re.escape(repr(wrong))}"):
                call(wrong)
                pytest.fail(f"call {number} took {wrong!r}")
        assert call(np.int64(1)).numpy().tobytes() == call(right).numpy().tobytes()


def test_calls_tell_minus_zero_from_zero():
    """An attribute that is -0.0 equals 0.0 as a key, and is another number: calls alternate, and each gets its own bits."""
    x = Tensor([-1.0, 2.0])
    mask = Tensor([True, False])
    for _ in range(2):
        for v in (0.0, -0.0):
            want = np.signbit(np.float32(v))
            assert np.signbit(F.masked_fill(x, mask, v).numpy())[0] == want
            assert np.signbit(F.pad(x, [(1, 0)], "constant", v).numpy())[0] == want
            assert np.signbit(F.leaky_relu(x, v).numpy())[0] == np.signbit(np.float32(-1.0) * np.float32(v))
            assert np.signbit(F.full((2,), v).numpy()).all() == want


def test_a_range_is_an_index_as_in_numpy():
    a = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    x = Tensor(a.copy())
    for key in (range(2), (range(3), range(1, 4)), (slice(None), range(3, 0, -2)), (range(2), [0, 3]), range(0)):
        assert np.array_equal(x[key].numpy(), a[key])
    x[range(3), range(3)] = -1.0
    a[range(3), range(3)] = -1.0
    assert np.array_equal(x.numpy(), a)
