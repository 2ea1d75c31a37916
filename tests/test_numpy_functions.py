"""NumPy's functions on Tensors, and Python's `format` and `round`."""

import math
import warnings

import numpy as np
import pytest

from tengen import Tensor, trace
from tengen.autodiff import GradManager
from tengen.base.errors import ArgumentError, TraceError, TraceWarning, UsageWarning
from tengen.tensor.numpy_functions import FUNCTIONS

X = np.linspace(0.1, 0.9, 12).reshape(3, 4)
CALLS = {
    "sum": lambda np, x: np.sum(x),
    "sum of an axis": lambda np, x: np.sum(x, axis=1),
    "sum, kept": lambda np, x: np.sum(x, 0, keepdims=True),
    "prod": lambda np, x: np.prod(x, axis=0),
    "mean": lambda np, x: np.mean(x, axis=(0, 1)),
    "std": lambda np, x: np.std(x),
    "var": lambda np, x: np.var(x, axis=0),
    "std of a sample": lambda np, x: np.std(x, axis=1, ddof=1, keepdims=True),
    "var of a sample": lambda np, x: np.var(x, ddof=1),
    "divmod": lambda np, x: divmod(x, 0.2)[0] + divmod(0.7, x)[1],
    "max": lambda np, x: np.max(x, axis=1),
    "amin": lambda np, x: np.amin(x),
    "amax": lambda np, x: np.amax(x),
    "min": lambda np, x: np.min(x),
    "all": lambda np, x: np.all(x > 0.2, axis=0),
    "any": lambda np, x: np.any(x > 0.2),
    "argmax": lambda np, x: np.argmax(x, axis=1),
    "argmin": lambda np, x: np.argmin(x),
    "cumsum": lambda np, x: np.cumsum(x, axis=1),
    "cumsum of all": lambda np, x: np.cumsum(x),
    "cumprod": lambda np, x: np.cumprod(x, axis=0),
    "concatenate": lambda np, x: np.concatenate([x, x], axis=1),
    "stack": lambda np, x: np.stack((x, x)),
    "where": lambda np, x: np.where(x > 0.5, x, -x),
    "round": lambda np, x: np.round(x, 1),
    "around": lambda np, x: np.around(10 * x),
    "clip": lambda np, x: np.clip(x, 0.2, 0.6),
    "reshape": lambda np, x: np.reshape(x, (4, -1)),
    "transpose": lambda np, x: np.transpose(x),
    "permute": lambda np, x: np.transpose(x, (1, 0)),
    "squeeze": lambda np, x: np.squeeze(x[:1], 0),
    "expand_dims": lambda np, x: np.expand_dims(x, 1),
    "swapaxes": lambda np, x: np.swapaxes(x, 0, 1),
    "flip": lambda np, x: np.flip(x, 1),
    "moveaxis": lambda np, x: np.moveaxis(x, 0, 1),
    "broadcast_to": lambda np, x: np.broadcast_to(x, (2, 3, 4)),
    "tile": lambda np, x: np.tile(x, (1, 2)),
    "repeat": lambda np, x: np.repeat(x, 2, axis=0),
    "real": lambda np, x: np.real(x),
    "imag": lambda np, x: np.imag(x),
    "angle": lambda np, x: np.angle(x),
    "tril": lambda np, x: np.tril(x),
    "triu": lambda np, x: np.triu(x, 1),
    "zeros_like": lambda np, x: np.zeros_like(x),
    "ones_like": lambda np, x: np.ones_like(x),
    "full_like": lambda np, x: np.full_like(x, 3.0),
    "copy": lambda np, x: np.copy(x),
    "sin": lambda np, x: np.sin(x),
    "arctan2": lambda np, x: np.arctan2(x, 1.0),
    "add": lambda np, x: np.add(1.0, x),
    "absolute": lambda np, x: np.absolute(-x),
    "rint": lambda np, x: np.rint(3 * x),
    "power": lambda np, x: np.power(x, 2.0),
    "isnan": lambda np, x: np.isnan(x),
    "true_divide": lambda np, x: np.true_divide(x, 3.0),
    "greater": lambda np, x: np.greater(x, 0.3),
    "array * x": lambda np, x: X * x,
    "array - x": lambda np, x: X - x,
    "array <= x": lambda np, x: X <= x,
    "array @ x": lambda np, x: X.T @ x,
    "a NumPy number * x": lambda np, x: np.float64(2.0) * x,
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_that_tengen_has_give_tensors(name):
    call = CALLS[name]
    want = call(np, X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)  # of X, whose contents are recorded
        traced = trace(lambda x: call(np, x))(Tensor(X))
    for got in (call(np, Tensor(X)), traced):
        assert type(got) is Tensor and got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)


def test_every_function_has_a_case():
    called = set()

    class Spy:
        def __getattr__(self, name):
            called.add(getattr(np, name))
            return getattr(np, name)

    for call in CALLS.values():
        call(Spy(), Tensor(X))
    here = {f for f in FUNCTIONS if f.__module__ not in ("numpy.linalg", "numpy.fft")}
    assert here - called == {np.shape, np.ndim, np.size}


def test_facts():
    x = Tensor(X)
    assert np.shape(x) == (3, 4) and np.ndim(x) == 2 and np.size(x) == 12 and np.size(x, 1) == 4
    assert trace(lambda x: x * np.shape(x)[1])(x).tolist() == (x * 4).tolist()


def test_a_gradient_flows_through():
    x = Tensor(X)
    gm = GradManager().attach(x)
    with gm:
        gm.backward(np.sum(np.exp(np.concatenate([x, 2 * x])), axis=None) + (X * x).sum())
    np.testing.assert_allclose(x.grad.numpy(), np.exp(X) + 2 * np.exp(2 * X) + X, rtol=1e-12)


def test_other_functions_compute_on_arrays():
    x = Tensor(X)
    for call in (lambda x: np.percentile(x, 30), np.linalg.cond, lambda x: np.histogram(x)[0], lambda x: np.add.reduce(x),
                 lambda x: np.spacing(x), lambda x: np.where(x > 0.5)[0], lambda x: np.vstack([x, X])):  # fmt: skip
        got, want = call(x), call(X)
        assert not isinstance(got, Tensor) and np.array_equal(got, want)
    assert np.allclose(x, X) and np.array_equal(x, X)
    np.testing.assert_array_equal(x, X)


def test_out_is_numpys():
    a = X.copy()
    a += Tensor(X)
    assert np.array_equal(a, 2 * X)
    assert np.sum(Tensor(X), axis=0, out=(b := np.empty(4))) is b and np.array_equal(b, X.sum(0))
    with pytest.raises(ArgumentError, match="cannot write to a Tensor"):
        np.add(X, X, out=Tensor(X))


def test_dtype_is_what_it_computes_in():
    x = Tensor(np.full(3, 100, "int8"))
    assert np.sum(x, dtype="int32").item() == 300 and np.sum(x, dtype="int32").dtype == "int32"
    assert np.mean(x, dtype="float64").dtype == "float64"


def test_arguments_that_tengen_has_not():
    with pytest.raises(ArgumentError, match=r"np\.sum\(\) of a Tensor: .*'where'.*t\.numpy"):
        np.sum(Tensor(X), where=X > 0.5)
    with pytest.raises(ArgumentError, match=r"np\.std.*mean"):
        np.std(Tensor(X), mean=X.mean())


def test_a_lost_gradient_is_said():
    x = Tensor(X)
    gm = GradManager().attach(x)
    with gm, pytest.warns(UsageWarning, match=r"np\.percentile.*no gradient flows"):
        np.percentile(x * 2, 3)


def test_values_do_not_exist_in_a_trace():
    with pytest.raises(TraceError, match="inside a trace"):
        trace(lambda x: np.percentile(x, 3), symbolic=True)(Tensor(X))


def test_format():
    x = Tensor(2.0 / 3)
    assert f"{x:.3f}" == "0.667" and f"{Tensor([3]):4d}" == "   3" and f"{x}" == format(x, "") == str(x.item())
    assert f"{Tensor([1.0, 2.0])}" == "Tensor([1., 2.], dtype=float32)"
    with pytest.raises(TypeError, match=r"one number.*f32\[2\]"):
        format(Tensor([1.0, 2.0]), ".3f")
    with pytest.raises(TraceError):
        trace(lambda x: print(f"{x:.3f}"), symbolic=True)(x)


@pytest.mark.parametrize("digits", [None, 0, 1, 2, -1, -2])
def test_round(digits):
    x = np.array([0.5, 1.5, -2.675, 1234.5678, 155.0, math.pi])
    got = round(Tensor(x)) if digits is None else round(Tensor(x), digits)
    np.testing.assert_allclose(got.numpy(), np.round(x, digits or 0), rtol=1e-14)
    n = np.array([14, 15, 25, -35, 1250], "int32")
    got = round(Tensor(n)) if digits is None else round(Tensor(n), digits)
    assert got.dtype == "int32" and got.tolist() == np.round(n, digits or 0).tolist()


S = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])
ABOVE = {
    "inv": lambda x: np.linalg.inv(x), "det": lambda x: np.linalg.det(x), "slogdet": lambda x: np.linalg.slogdet(x)[1],
    "cholesky": lambda x: np.linalg.cholesky(x), "solve": lambda x: np.linalg.solve(x, S[0]),
    "matrix_power": lambda x: np.linalg.matrix_power(x, 3), "qr": lambda x: np.linalg.qr(x)[1], "eigh": lambda x: np.linalg.eigh(x)[0],
    "eigh, upper": lambda x: np.linalg.eigh(x, UPLO="U").eigenvalues, "eigvalsh": lambda x: np.linalg.eigvalsh(x),
    "svd": lambda x: np.linalg.svd(x, compute_uv=False), "svd, parts": lambda x: np.linalg.svd(x)[1], "pinv": lambda x: np.linalg.pinv(x),
    "matrix_rank": lambda x: np.linalg.matrix_rank(x), "norm": lambda x: np.linalg.norm(x), "norm, rows": lambda x: np.linalg.norm(x, axis=1),
    "norm, nuclear": lambda x: np.linalg.norm(x, "nuc"), "norm, kept": lambda x: np.linalg.norm(x, 1, (1, 0), keepdims=True),
    "fft": lambda x: np.fft.fft(x), "irfft": lambda x: np.fft.irfft(np.fft.rfft(x, axis=0), 3, axis=0), "fft2": lambda x: np.fft.fft2(x),
    "fftshift": lambda x: np.fft.fftshift(x), "fftn": lambda x: np.fft.fftn(x, norm="ortho"),
}  # fmt: skip


@pytest.mark.parametrize("name", ABOVE)
def test_linear_algebra_and_fourier_transforms(name):
    call = ABOVE[name]
    want, x = call(S), Tensor(S)
    gm = GradManager().attach(x)
    with gm:
        got = call(x)
        assert type(got) is Tensor and got.shape == np.shape(want) and got.dtype == want.dtype
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-11, atol=1e-12)
        if got.dtype.is_float:
            gm.backward(got.sum())
            assert x.grad.shape == S.shape and np.isfinite(x.grad.numpy()).all()


def test_arguments_that_linear_algebra_has_not():
    for call in (lambda x: np.linalg.svd(x, hermitian=True), lambda x: np.linalg.eigh(x, "lower"),
                 lambda x: np.linalg.pinv(x, 1e-3, rtol=1e-3), lambda x: np.linalg.norm(np.ones((2, 1, 1)) * x, 2, (0, 1, 2))):  # fmt: skip
        with pytest.raises(ArgumentError):
            call(Tensor(S))
