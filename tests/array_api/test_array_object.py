"""The array object that the array API standard describes: attributes, operators, indexing, and the special cases of its functions."""

import itertools
import math

import numpy as np
import pytest
from agreeing import DTYPES, REAL, sample

import tengen
import tengen.array_api as xp
from tengen import Tensor
from tengen.base.errors import AxisError, DTypeError

inf, nan = math.inf, math.nan


def test_the_namespace_holds_nothing_else():
    assert dir(xp) == sorted(xp.__all__) and len(set(xp.__all__)) == len(xp.__all__)
    assert not [
        n for n in vars(xp) if not n.startswith("_") and n not in xp.__all__ and n not in ("annotations", "fft", "linalg")
    ]
    assert xp.__array_api_version__ == "2024.12"
    x = Tensor([1.0])
    assert x.__array_namespace__() is xp is tengen.array_api
    assert all(x.__array_namespace__(api_version=v) is xp for v in (None, "2022.12", "2024.12"))
    with pytest.raises(ValueError, match="2024.12"):
        x.__array_namespace__(api_version="2077.01")


def test_every_function_says_what_it_does():
    for name in xp.__all__:
        value = getattr(xp, name)
        if callable(value) and not isinstance(value, type(xp.float32)):
            assert value.__doc__ and value.__name__ == name, name


def test_info():
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert info.default_device() == "cpu" and info.devices() == [info.default_device()]
    defaults = info.default_dtypes(device="cpu")
    assert defaults["real floating"] is xp.float32 and defaults["integral"] is defaults["indexing"] is xp.int64
    assert (
        xp.zeros(2).dtype is xp.asarray(1.5).dtype is xp.float32
        and xp.asarray(3).dtype is xp.argmax(xp.zeros(2)).dtype is xp.int64
    )
    assert {*info.dtypes(kind=("bool", "integral", "real floating", "complex floating"))} == {*DTYPES}
    assert info.dtypes(kind="real floating") == {"float32": xp.float32, "float64": xp.float64} and {*info.dtypes()} == {*DTYPES}
    with pytest.raises(ValueError, match="is no kind"):
        info.dtypes(kind="floats")


def test_attributes():
    x = xp.asarray(np.arange(6.0).reshape(2, 3))
    assert x.shape == (2, 3) and x.ndim == 2 and x.size == 6 and x.dtype is xp.float64 and x.device == "cpu"
    assert x.T.tolist() == x.mT.tolist() == [[0, 3], [1, 4], [2, 5]] and x[None].mT.shape == (1, 3, 2)
    assert x.to_device(x.device) is x and x.to_device("cpu", stream=None) is x
    for call, error in (
        (lambda: xp.asarray([1]).mT, ValueError),
        (lambda: x.to_device("cpu", stream=1), ValueError),
        (lambda: x.to_device("moon"), ValueError),
    ):
        with pytest.raises(error):
            call()
    assert (
        int(xp.asarray(3)) == 3
        and [0, 1, 2, 3][xp.asarray(3)] == 3
        and float(xp.asarray(2)) == 2.0
        and complex(xp.asarray(2.0)) == 2 + 0j
    )
    assert bool(xp.asarray(1)) and not bool(xp.asarray(0.0)) and len(x) == 2
    for wrong in (lambda: [1][xp.asarray(0.0)], lambda: [1][xp.asarray([0, 0])], lambda: hash(None) and {}[x]):
        with pytest.raises((TypeError, KeyError)):
            wrong()


OPERATORS = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "//": "floor_divide",
    "%": "remainder",
    "**": "pow",
    "&": "bitwise_and",
    "|": "bitwise_or",
    "^": "bitwise_xor",
    "<<": "bitwise_left_shift",
    ">>": "bitwise_right_shift",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "==": "equal",
    "!=": "not_equal",
}


@pytest.mark.parametrize("sign", OPERATORS)
def test_operators_are_the_functions(sign):
    """x op y, x op number, number op x and x op= y, with the dtype that the standard gives."""
    f = getattr(xp, OPERATORS[sign])
    for d in ("bool", "int8", "uint16", "float32"):
        x, y = xp.asarray(sample(d, (3,))), xp.asarray(np.abs(sample(d, (3,), 1)) if d != "bool" else sample(d, (3,), 1))
        number = {"bool": True, "float32": 1.5}.get(d, 2)
        for a, b in (
            (x, y),
            (x, number),
            (number, x) if "<" not in sign and ">" not in sign and sign != "**" else (x, x if sign != "**" else y),
        ):
            try:
                want = f(a, b)
            except TypeError:
                continue
            got = eval(f"a {sign} b")
            assert got.dtype is want.dtype and np.array_equal(got.numpy(), want.numpy(), equal_nan=d == "float32"), (d, a, b)
            if sign not in ("<", "<=", ">", ">=", "==", "!=") and isinstance(a, Tensor) and want.dtype is a.dtype:
                scope = {"a": Tensor(a), "b": b}
                exec(f"a {sign}= b", scope)
                assert np.array_equal(scope["a"].numpy(), want.numpy(), equal_nan=d == "float32")


KEYS = [
    (),
    ...,
    None,
    0,
    -1,
    slice(None, None, -1),
    slice(1, None),
    (0, 1),
    (..., 0),
    (slice(None), None, 1),
    (None, ..., slice(0, 2)),
    (slice(5, 9),),
    "mask",
    "row mask",
    "ints",
    ("ints", 0),
    ("ints", "ints"),
    (slice(None), "ints"),
    ("ints", slice(1, 3)),
    (0, "ints"),
    (..., "ints"),
    "0-d",
]


def made_key(key, make):
    named = {
        "mask": np.arange(12).reshape(3, 4) % 3 == 0,
        "row mask": np.array([True, False, True]),
        "ints": np.array([[0, 2], [-1, 1]]),
        "0-d": np.array(1),
    }
    if isinstance(key, tuple):
        return tuple(made_key(k, make) for k in key)
    return make(named[key]) if isinstance(key, str) else key


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_indexing(key):
    a = np.arange(12.0).reshape(3, 4)
    got, want = xp.asarray(a)[made_key(key, xp.asarray)], a[made_key(key, np.asarray)]
    assert got.shape == want.shape and got.dtype is xp.float64 and np.array_equal(got.numpy(), want)
    b, t = a.copy(), xp.asarray(a)
    b[made_key(key, np.asarray)] = -5.0
    t[made_key(key, xp.asarray)] = -5.0
    assert np.array_equal(t.numpy(), b) and np.array_equal(a, np.arange(12.0).reshape(3, 4))


def test_keys_that_are_none():
    x = xp.asarray(np.zeros((3, 4)))
    for key in (3, (0, 0, 0), xp.asarray([0, 9]), xp.asarray([True, False]), xp.asarray([0.5]), "a"):
        with pytest.raises((IndexError, TypeError, ValueError)):
            x[key]


# The standard's lists of special cases, as far as they are more than C99's functions of infinities and NaNs that
# test_against_strict.py compares: (function, operands, result). Zeros are compared with their signs.
SPECIAL = [
    ("atan2", (0.0, -0.0), math.pi),
    ("atan2", (-0.0, 0.0), -0.0),
    ("atan2", (inf, -inf), 3 * math.pi / 4),
    ("atan2", (-1.0, inf), -0.0),
    ("pow", (nan, 0.0), 1.0),
    ("pow", (1.0, nan), 1.0),
    ("pow", (-1.0, inf), 1.0),
    ("pow", (-0.0, -3.0), -inf),
    ("pow", (-0.0, 2.0), 0.0),
    ("pow", (-inf, 3.0), -inf),
    ("pow", (-2.0, 0.5), nan),
    ("pow", (0.5, -inf), inf),
    ("logaddexp", (inf, -inf), inf),
    ("logaddexp", (-inf, -inf), -inf),
    ("logaddexp", (nan, 1.0), nan),
    ("hypot", (inf, nan), inf),
    ("hypot", (nan, -inf), inf),
    ("hypot", (0.0, -0.0), 0.0),
    ("hypot", (nan, 1.0), nan),
    ("copysign", (nan, -1.0), nan),
    ("copysign", (2.0, -0.0), -2.0),
    ("nextafter", (nan, 1.0), nan),
    ("nextafter", (-0.0, 0.0), 0.0),
    ("nextafter", (0.0, -1.0), -5e-324),
    ("signbit", (-0.0,), True),
    ("round", (-0.5,), -0.0),
    ("round", (2.5,), 2.0),
    ("trunc", (-0.7,), -0.0),
    ("ceil", (-0.7,), -0.0),
    ("sign", (-0.0,), 0.0),
    ("sign", (nan,), nan),
    ("sqrt", (-0.0,), -0.0),
    ("reciprocal", (-0.0,), -inf),
    ("expm1", (-0.0,), -0.0),
    ("log1p", (-1.0,), -inf),
    ("log1p", (-0.0,), -0.0),
    ("asinh", (-0.0,), -0.0),
    ("tanh", (-inf,), -1.0),
    ("maximum", (nan, 1.0), nan),
    ("minimum", (1.0, nan), nan),
    ("floor_divide", (-1.0, 3.0), -1.0),
    ("remainder", (-1.0, 3.0), 2.0),
    ("remainder", (1.0, inf), 1.0),
    ("remainder", (0.0, -3.0), -0.0),
    ("remainder", (inf, 1.0), nan),
]


@pytest.mark.parametrize("name, operands, want", SPECIAL, ids=str)
def test_special_cases(name, operands, want):
    got = getattr(xp, name)(*(xp.asarray(v, dtype=xp.float64) for v in operands)).item()
    assert got == want and math.copysign(1, got) == math.copysign(1, want) or got != got and want != want, got


def test_hypot_is_exact_to_a_unit():
    rng = np.random.default_rng(0)
    for d in REAL:
        x, y = (rng.normal(size=4000) * 2.0 ** rng.integers(-70, 70, 4000) for _ in range(2))
        x, y = x.astype(d), (y * np.where(np.arange(4000) % 2, 1, x / y)).astype(d)
        got = xp.hypot(xp.asarray(x), xp.asarray(y)).numpy()
        want = np.hypot(x.astype(np.longdouble), y.astype(np.longdouble))
        assert np.max(np.abs(got - want) / np.spacing(np.abs(want).astype(d))) <= (0.6 if d == "float32" else 1.0)
    x, y = np.array([1e308, 3e-310, 1.7e308, 5e-324]), np.array([1e308, 4e-310, 1.0, 0.0])
    np.testing.assert_allclose(
        xp.hypot(xp.asarray(x), xp.asarray(y)).numpy(), [2**0.5 * 1e308, 5e-310, 1.7e308, 5e-324], rtol=1e-14
    )


def test_strict_where_the_operators_are_lenient():
    i, f, b = xp.asarray([1]), xp.asarray([1.0]), xp.asarray([True])
    for call in (
        lambda: xp.add(i, f),
        lambda: xp.add(b, i),
        lambda: xp.add(i, 1.5),
        lambda: xp.add(b, 1),
        lambda: xp.sin(i),
        lambda: xp.sin([1.0]),
        lambda: xp.sum(b),
        lambda: xp.add(f, np.ones(1)),
        lambda: xp.divide(i, i),
        lambda: xp.mean(i),
        lambda: xp.add(1.0, 2.0),
        lambda: xp.where(i, f, f),
        lambda: xp.concat([i, f]),
        lambda: xp.add(xp.asarray([1], dtype=xp.uint64), i),
        lambda: xp.add(f, np.float32(1)),
        lambda: xp.nextafter(f.astype("float16"), 1.0),
    ):
        with pytest.raises(DTypeError):
            call()
    assert (i + f).dtype is xp.float32 and (b + 1).dtype is xp.int64 and (i + 1.5).dtype is xp.float32
    with pytest.raises(TypeError):
        xp.add(x1=i, x2=i)
    with pytest.raises(OverflowError):
        xp.add(xp.asarray([1], dtype=xp.int8), 200)
    for call in (lambda: xp.sum(xp.asarray(1), axis=0), lambda: xp.sort(xp.asarray(1)), lambda: xp.unstack(xp.asarray(1))):
        with pytest.raises(AxisError):
            call()


def test_copies():
    x = xp.asarray([1.0, 2.0])
    y = xp.asarray(x, copy=True)
    y[0] = 9.0
    assert (
        x.tolist() == [1, 2]
        and xp.asarray(x) is x
        and xp.asarray(x, copy=False) is x
        and xp.astype(x, xp.float32, copy=False) is x
    )
    a = np.arange(4.0)
    shared = xp.asarray(a, copy=False)
    a[0] = 7
    assert shared[0].item() == 7 and shared.dtype is xp.float64
    assert xp.asarray(np.arange(3, dtype=">i4")).tolist() == [0, 1, 2] and xp.asarray(np.float64(2.5)).dtype is xp.float64
    with pytest.raises(ValueError, match="copy=False"):
        xp.asarray(np.arange(3, dtype=">i4"), copy=False)
    b = xp.asarray(memoryview(np.arange(3, dtype="int16")))
    assert b.dtype is xp.int16 and b.tolist() == [0, 1, 2]
    for call in (
        lambda: xp.asarray([1.0], copy=False),
        lambda: xp.asarray(x, dtype=xp.float64, copy=False),
        lambda: xp.asarray(1, copy=False),
    ):
        with pytest.raises(ValueError, match="copy"):
            call()


def test_functions_work_in_traces_and_have_gradients():
    from tengen import trace
    from tengen.autodiff import GradManager

    def f(x):
        return xp.sum(xp.hypot(x, xp.asarray(2.0, dtype=x.dtype)) * xp.copysign(x, -1.0))

    x = xp.asarray(np.array([0.5, -1.5, 3.0]))
    assert trace(f)(x).item() == f(x).item()
    gm = GradManager().attach(x)
    with gm:
        gm.backward(f(x))
    v, h = x.numpy(), 1e-6
    want = [(f(xp.asarray(v + h * e)).item() - f(xp.asarray(v - h * e)).item()) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-8)


def test_what_fills_an_array():
    three = xp.asarray(3)
    assert xp.full((2,), three).tolist() == [3, 3] and xp.full((2,), three).dtype == three.dtype
    assert xp.full(2, xp.asarray(2.5), dtype=xp.int32).tolist() == [2, 2] and xp.full_like(xp.ones(2), three).tolist() == [3.0, 3.0]
    assert xp.full((), np.float64(0.5)).tolist() == 0.5 and xp.full((0, 2), three).shape == (0, 2)
    for bad in (xp.ones(2), "3", None):
        with pytest.raises(DTypeError, match="a Python number, or an array without axes"):
            xp.full(2, bad)


def test_linspace_without_its_end_is_the_first_of_one_more():
    for start, stop, dtypes in ((1.0, 0.0, REAL), (-3, 7.5, REAL), (1j, 2 - 3j, ("complex64", "complex128"))):
        for d, n in itertools.product(dtypes, (0, 1, 2, 7, 34, 100)):
            whole = xp.linspace(start, stop, n + 1, dtype=getattr(xp, d))
            some = xp.linspace(start, stop, n, dtype=getattr(xp, d), endpoint=False)
            assert some.numpy().tobytes() == whole.numpy()[:n].tobytes(), (start, stop, d, n)
    assert xp.linspace(0, 1j, 3).dtype is xp.complex64
    with pytest.raises(DTypeError, match="complex64"):
        xp.linspace(0, 1j, 3, dtype=xp.float64)
    with pytest.raises(ValueError, match="-1"):
        xp.linspace(0, 1, -1, endpoint=False)


@pytest.mark.parametrize("far", [9, 2**40, 2**62 - 1, 2**62, 2**63, 10**30])
def test_diagonals_and_steps_beyond_an_array(far):
    """However far an offset is beyond the extents, its diagonal is empty; however long a step is, the first element is taken."""
    a = np.arange(12.0).reshape(3, 4)
    x = xp.asarray(a)
    for k in (far, -far):
        assert np.array_equal(xp.triu(x, k=k).numpy(), np.triu(a, 9 if k > 0 else -9))
        assert np.array_equal(xp.tril(x, k=k).numpy(), np.tril(a, 9 if k > 0 else -9))
        assert not xp.any(xp.eye(3, 4, k=k)) and xp.eye(3, 4, k=k).shape == (3, 4)
        assert xp.linalg.diagonal(x, offset=k).shape == (0,) and xp.linalg.trace(x, offset=k) == 0
    for s in (slice(None, None, far), slice(None, None, -far), slice(3, None, far), slice(2, 2, far), slice(far, -far, -1)):
        y = xp.arange(5)
        assert y[s].tolist() == list(range(5))[s]
        y[s] = 9
        assert y.tolist() == [9 if i in range(5)[s] else i for i in range(5)]


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0), (0, 0), (0, 5), (2, 0), (3, 1)])
def test_masks_without_elements(shape):
    """An extent of 0 in a mask is allowed beside any extent; another one has to be the array's. The reference is NumPy."""
    a, m = np.arange(12.0).reshape(3, 4), np.zeros(shape, bool)
    x, mask = xp.asarray(a.copy()), xp.asarray(m)
    try:
        want = a[m]
    except IndexError:
        with pytest.raises(IndexError):
            x[mask]
        with pytest.raises(IndexError):
            x[mask] = 1.0
        return
    assert x[mask].shape == want.shape
    x[mask] = 1.0
    assert np.array_equal(x.numpy(), a)


def test_numbers_of_repeats():
    """One for all positions, or one for each: none is right where there are no positions. The reference is NumPy."""
    for shape, axis, counts in itertools.product([(2, 3), (2, 0), (0, 3)], (None, 0, 1), ([], [2], [1, 2], [0, 2, 1])):
        a, n = np.arange(float(math.prod(shape))).reshape(shape), np.array(counts, np.int64)
        try:
            want = np.repeat(a, n, axis)
        except ValueError:
            with pytest.raises(ValueError):
                xp.repeat(xp.asarray(a), xp.asarray(n), axis=axis)
        else:
            got = xp.repeat(xp.asarray(a), xp.asarray(n), axis=axis).numpy()
            assert got.shape == want.shape and np.array_equal(got, want), (shape, axis, counts)
