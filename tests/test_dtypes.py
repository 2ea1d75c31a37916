"""A dtype compares with anything, and NumPy takes it for one of its own."""

import copy
import inspect
import pickle

import numpy as np
import pytest
from exhaustive import but

import tengen.functional as F
from tengen import Tensor, trace
from tengen.base.dtype import ALL, DType, dtype

# None of these names a dtype; NumPy raises TypeError, ValueError or SyntaxError for some, or warns.
STRANGERS = [
    None, "", "x y", "f4,,", "f4,f4", "(2,)f4", ">f4", "O", "U3", "a", "M8[s]", "no" * 1000, b"f4", 0, 1.5, True, (), (1, 2), [1],
    {}, {"a": 1}, {"names": ["x"], "formats": ["f4"]}, {1}, object, object(), Tensor, DType, np.dtype("M8[s]"),
    np.dtype([("x", "f4")]), np.dtype(">i2"), np.zeros(3), np.zeros((), "f4"), np.float32(1), Tensor([1.0, 2.0]), Ellipsis, len,
]  # fmt: skip


@but(every=4)
@pytest.mark.parametrize("d", ALL, ids=str)
def test_comparing_never_raises(d):
    for stranger in STRANGERS:
        assert (d == stranger) is False and (d != stranger) is True, stranger
    for raises in (Raises(), type("Odd", (), {"dtype": property(lambda self: 1 / 0)})()):
        assert (d == raises) is False and (d != raises) is True


class Raises:
    def __eq__(self, other):
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]  # says that it has none


@pytest.mark.parametrize("d", ALL, ids=str)
def test_equal_to_whatever_names_it(d):
    names = [d.name, d.numpy, d.numpy.type, d.numpy.str if d.name != "bfloat16" else "bf16", *([d.short] if d.short[1:] != "8" else [])]
    for name in names:
        assert d == name and dtype(name) is d, name
        assert not any(other == name for other in ALL if other is not d), name
    assert d == d.numpy and d.numpy == d and not any(other.numpy == d for other in ALL if other is not d)
    for other in ALL:
        assert (d == other) is (d is other) and (hash(d) == hash(other)) is (d is other)
    assert hash(d) == hash(d.name) and {d.name: 1}[d] == 1
    assert copy.deepcopy(d) is d and pickle.loads(pickle.dumps(d)) is d


@pytest.mark.parametrize("d", ALL, ids=str)
def test_numpy_takes_it(d):
    x = F.zeros((2, 3), dtype=d.name)
    a = np.arange(6).reshape(2, 3)
    for array in (
        np.zeros(3, x.dtype), np.array([1, 0], dtype=x.dtype), a.astype(x.dtype), np.empty_like(a, dtype=x.dtype), np.eye(2, dtype=x.dtype),
        np.full(2, 1, x.dtype), np.asarray(x, x.dtype), a.astype(d.numpy).view(x.dtype), np.frombuffer(bytes(16), x.dtype),
    ):  # fmt: skip
        assert array.dtype == d.numpy == np.dtype(x.dtype) and array.dtype == x.dtype and Tensor(array).dtype is d
    assert np.array_equal(a.astype(x.dtype), a.astype(d.numpy)) and np.result_type(x.dtype) == d.numpy


def test_codes_mean_what_they_mean_in_numpy():
    """NumPy counts bytes: its i8 is int64. Only printed IR counts bits."""
    for code in np.typecodes["AllInteger"] + "?efd":
        assert dtype(code).numpy == np.dtype(code)
    for kind in "iu":
        for size in (1, 2, 4, 8):
            assert dtype(f"{kind}{size}").numpy == np.dtype(f"{kind}{size}")
    assert Tensor([300]).astype("i8").tolist() == [300]


@pytest.mark.parametrize("name", [None, "x y", "f4,,", "complex256", {"a": 1}, object()])
def test_what_names_none(name):
    with pytest.raises(TypeError, match="is not a dtype of Tengen; help: one of float64"):
        dtype(name)


X = Tensor(np.array([[0, 1], [2, 1]], np.int16))
ARGUMENTS = {  # of every function that takes a dtype
    "arange": (3,), "eye": (2,), "full": ((2,), 1.5), "full_like": (X, 2), "linspace": (0, 1, 5), "logspace": (0, 1, 5), "one_hot": (X, 3),
    "ones": (3,), "ones_like": (X,), "zeros": ((2, 3),), "zeros_like": (X,), "quantize_linear": (Tensor([1.0, -3.0]), Tensor(0.5)),
    "requantize_linear": (Tensor([100, -300], "int32"), Tensor(0.05)),
    **{f"{kind}_window": (5,) for kind in ("bartlett", "blackman", "hamming", "hann", "kaiser")},
}  # fmt: skip


def test_a_dtype_of_none_is_the_default():
    taking = {name for name, f in inspect.getmembers(F, inspect.isfunction) if "dtype" in inspect.signature(f).parameters}
    assert taking - {"astype"} == set(ARGUMENTS)
    with pytest.raises(TypeError, match="dtype must be a dtype, got None"):
        F.astype(X, None)
    like = {name for name in taking if name.endswith("_like")}
    for name, args in ARGUMENTS.items():
        f = getattr(F, name)
        want = f(*args)
        assert want.dtype == ("int16" if name in like or name == "one_hot" else "int8" if "quantize" in name else "float32")
        for got in (f(*args, dtype=None), trace(lambda f=f, args=args: f(*args, dtype=None))()):
            assert got.dtype is want.dtype and np.array_equal(got.numpy(), want.numpy())
    assert Tensor([1], dtype=None).dtype == "int64" and Tensor([1.5], None).dtype == "float32"


def test_the_class_of_scalars_is_numpys():
    assert all(d.type is d.numpy.type and isinstance(np.ones(1, d)[0], d.type) for d in ALL)
