"""Fourier transforms: against NumPy's and mpmath's, their bits, gradients, vmap and traces."""

import math

import numpy as np
import pytest

import tengen
from tengen import Tensor, fft, trace
from tengen import functional as F
from tengen.autodiff import jvp, vjp, vmap
from tengen.base.errors import ArgumentError, ShapeError
from tengen.kernels.fourier import factors
from tengen.kernels.roots import roots_of_unity

RNG = np.random.default_rng(5)
X = RNG.normal(size=(3, 6, 5))
Z = X + 1j * RNG.normal(size=X.shape)


def close(got, want, eps=1e-12):
    assert got.shape == want.shape and got.dtype == want.dtype, (got, want.dtype)
    np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=eps * max(1.0, np.abs(want).max()))


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
def test_one_axis(norm):
    for name, x in (("fft", Z), ("ifft", Z), ("irfft", Z), ("hfft", Z), ("fft", X), ("rfft", X), ("ihfft", X)):
        for n, axis in ((None, -1), (4, 0), (7, 1), (17, -1), (34, 2), (1, 0)):
            close(getattr(fft, name)(Tensor(x), n, axis, norm), getattr(np.fft, name)(x, n, axis, norm))


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"])
def test_several_axes(name):
    x = X if name.startswith("r") else Z
    for more in ({}, {"s": (4, 3), "axes": (0, 2)}, {"axes": (1, 0), "norm": "ortho"}, {"norm": "forward"}):
        close(getattr(fft, name)(Tensor(x), **more), getattr(np.fft, name)(x, **more))


def test_frequencies_and_shifts():
    for n in (1, 2, 5, 8):
        close(fft.fftfreq(n, 0.3, "float64"), np.fft.fftfreq(n, 0.3))
        close(fft.rfftfreq(n, 0.3, "float64"), np.fft.rfftfreq(n, 0.3))
    assert fft.fftfreq(3).dtype == "float32"
    for axes in (None, 1, (0, -1)):
        close(fft.fftshift(Tensor(X), axes), np.fft.fftshift(X, axes))
        close(fft.ifftshift(fft.fftshift(Tensor(X), axes), axes), X, 0)


def test_dtypes():
    x = np.array([1, 2, 3, 4])
    for name, want in (
        ("int32", "complex64"),
        ("float16", "complex64"),
        ("float32", "complex64"),
        ("float64", "complex128"),
        ("bool", "complex64"),
    ):
        assert fft.fft(Tensor(x.astype(name))).dtype == want
    assert (
        fft.irfft(Tensor(x.astype("complex64"))).dtype == "float32"
        and fft.fft(Tensor(x.astype("complex128"))).dtype == "complex128"
    )


def test_roots_are_rounded_correctly():
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workprec(200):
        for n in (1, 3, 7, 12, 64, 97, 360):
            got = roots_of_unity(n)
            for k in range(n):
                turn = 2 * mpmath.pi * k / n
                for a, want in ((got[0, k], mpmath.cos(turn)), (got[1, k], -mpmath.sin(turn))):
                    assert a == (0.0 if abs(want) < 1e-40 else float(want)), (n, k)


@pytest.mark.parametrize("n", [16, 60, 61, 77, 81])
def test_errors_are_a_few_units(n):
    """Against sums of 150 bits; relative to the root of the mean square of the results."""
    mpmath = pytest.importorskip("mpmath")
    assert (factors(n) is None) == (n == 61)
    for d, bound in (("float32", 3.0), ("float64", 3.0)):
        x = (RNG.normal(size=n) + 1j * RNG.normal(size=n)).astype("complex64" if d == "float32" else "complex128")
        with mpmath.workprec(150):
            w = [mpmath.expjpi(mpmath.mpf(-2 * k) / n) for k in range(n)]
            exact = [mpmath.fsum(mpmath.mpc(complex(x[k])) * w[j * k % n] for k in range(n)) for j in range(n)]
            size = math.sqrt(sum(float(abs(v)) ** 2 for v in exact) / n)
            off = max(float(abs(v - mpmath.mpc(complex(g)))) for v, g in zip(exact, fft.fft(Tensor(x)).numpy()))
        assert off / size / np.finfo(d).eps < bound * (2 if n == 61 else 1)


def test_errors_grow_as_the_logarithm():
    for n, d in ((4096, "float32"), (1 << 15, "float32"), (3**8, "float32"), (10007, "float32")):
        x = RNG.normal(size=n).astype(d)
        want = np.fft.fft(x.astype("float64"))
        off = np.abs(fft.fft(Tensor(x)).numpy() - want).max() / np.sqrt((np.abs(want) ** 2).mean())
        assert off < (2.5 if n == 10007 else 1.0) * np.finfo(d).eps * math.log2(n)


def test_bits_do_not_depend_on_what_is_beside_nor_on_threads():
    for n in (48, 19):
        x = Tensor((RNG.normal(size=(300, n)) + 1j * RNG.normal(size=(300, n))).astype("complex64"))
        whole = fft.fft(x).numpy().tobytes()
        assert b"".join(fft.fft(x[i : i + 1]).numpy().tobytes() for i in range(0, 300, 50)) == b"".join(
            whole[8 * n * i : 8 * n * (i + 1)] for i in range(0, 300, 50)
        )
        try:
            tengen.set_threads(1)
            assert fft.fft(x).numpy().tobytes() == whole
        finally:
            tengen.set_threads(2)
        turned = Tensor(np.ascontiguousarray(x.numpy().T)).T
        assert fft.fft(turned).numpy().tobytes() == whole
        assert trace(lambda x: fft.fft(x))(x).numpy().tobytes() == whole


def test_gradients():
    """Of a real loss, by central differences of real and imaginary parts; two of them nested by `jvp`."""
    for name, n in (("fft", 6), ("fft", 17), ("ifft", 4), ("irfft", 7), ("rfft", 5), ("fftn", None), ("irfftn", None)):
        x = RNG.normal(size=(2, 4)) + (0 if name == "rfft" else 1j * RNG.normal(size=(2, 4)))
        call = getattr(fft, name)
        f = lambda v, call=call, n=n: call(v) if n is None else call(v, n)
        y, pull = vjp(f, Tensor(x))
        seed = RNG.normal(size=y.shape) + (1j * RNG.normal(size=y.shape) if y.dtype.is_complex else 0)
        (got,) = pull(Tensor(seed.astype(y.dtype.numpy)))
        loss = lambda v, f=f, seed=seed: np.sum((f(Tensor(v)).numpy() * np.conj(seed)).real)
        want, h = np.zeros_like(x), 1e-6
        for at in np.ndindex(*x.shape):
            for unit in (1, 1j) if np.iscomplexobj(x) else (1,):
                e = np.zeros_like(x)
                e[at] = h * unit
                want[at] += unit * (loss(x + e) - loss(x - e)) / (2 * h)
        np.testing.assert_allclose(got.numpy(), want, atol=1e-7)
    t = Tensor(np.ones(6))
    _, moved = jvp(lambda v: fft.irfft(fft.rfft(v) * 2.0), (t,), (t * 3.0,))
    np.testing.assert_allclose(moved.numpy(), np.full(6, 6.0), atol=1e-12)


def test_vmap():
    for n in (6, 11, 17):
        x = Tensor(RNG.normal(size=(4, 3, n)) + 1j * RNG.normal(size=(4, 3, n)))
        alone = np.stack([fft.fft(x[i], axis=-1).numpy() for i in range(4)])
        assert vmap(lambda v: fft.fft(v, axis=-1))(x).numpy().tobytes() == alone.tobytes()


def test_what_is_refused():
    x = Tensor([1.0, 2.0])
    for call, error, words in (
        (lambda: fft.fft(x, 0), ValueError, "at least 1"),
        (lambda: fft.fft(Tensor(1.0)), ValueError, "0-d"),
        (lambda: fft.fft(x, axis=3), IndexError, "axis"),
        (lambda: fft.fft(x, norm="none"), ValueError, "ortho"),
        (lambda: fft.rfft(Tensor([1j])), TypeError, "real numbers"),
        (lambda: fft.fftn(x, s=(2, 2), axes=(0,)), ValueError, "for each axis"),
        (lambda: fft.fft(Tensor(np.zeros((3, 0)))), ValueError, "at least 1"),
        (lambda: fft.fftfreq(0), ValueError, "at least 1"),
        (lambda: fft.fftfreq(3, dtype="int32"), TypeError, "floats"),
    ):
        with pytest.raises(error, match=words):
            call()
    assert fft.fft(Tensor(np.zeros((0, 4)))).shape == (0, 4)


# ---- over time -----------------------------------------------------------------------------------------------------------

SIGNAL = RNG.normal(size=(2, 101))
FORMS = [
    {"n_fft": 16}, {"n_fft": 16, "hop_length": 5, "win_length": 12, "window": 12},
    {"n_fft": 15, "hop_length": 3, "window": 15, "normalized": True}, {"n_fft": 16, "hop_length": 4, "window": 16, "onesided": False},
    {"n_fft": 20, "hop_length": 20, "center": False, "win_length": 20},
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:A window was not provided")
@pytest.mark.parametrize("how", FORMS)
def test_short_time_transforms_beside_pytorch(how):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    w = how.get("window")
    for x in (SIGNAL, SIGNAL[0]):
        ours = {**how, "window": None if w is None else F.hamming_window(w, dtype="float64")}
        theirs = {**how, "window": None if w is None else torch.hamming_window(w, dtype=torch.float64)}
        y, want = fft.stft(Tensor(x), **ours), torch.stft(torch.tensor(x), **theirs, return_complex=True)
        close(y, want.numpy())
        back = {k: v for k, v in ours.items() if k != "pad_mode"}
        for length in (None, 100):
            if length is None or how.get("center", True):
                close(fft.istft(y, **back, length=length), torch.istft(want, **theirs, length=length).numpy(), 1e-11)
    hann = F.hann_window(16, dtype="float64")
    gradient = tengen.autodiff.grad(lambda x: F.abs(fft.stft(x, 16, 4, window=hann)).sum())(Tensor(SIGNAL)).numpy()
    x = torch.tensor(SIGNAL, requires_grad=True)
    torch.stft(x, 16, 4, window=torch.hann_window(16, dtype=torch.float64), return_complex=True).abs().sum().backward()
    np.testing.assert_allclose(gradient, x.grad.numpy(), atol=1e-10)


def test_short_time_transforms_refuse():
    x = Tensor(SIGNAL)
    y = fft.stft(x, 16)
    assert fft.stft(x, 16, return_complex=False).shape == (*y.shape, 2) and x.stft(16).numpy().tobytes() == y.numpy().tobytes()
    for bad, error, words in (
        (lambda: fft.stft(x[None], 8), ShapeError, "takes"), (lambda: fft.stft(x, 16, window=F.hann_window(8)), ShapeError, "do not fit"),
        (lambda: fft.stft(x, 300, center=False), ShapeError, "no windows"), (lambda: fft.istft(x, 16), ShapeError, "complex"),
        (lambda: fft.istft(y, 18), ShapeError, "frequencies"), (lambda: F.hann_window(-1), ArgumentError, "negative"),
        (lambda: fft.istft(y, 16, 16, window=F.hann_window(16)), ArgumentError, "leave points"),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            bad()


@pytest.mark.parametrize("name", ["bartlett", "blackman", "hamming", "hann", "kaiser"])
def test_windows_are_scipys(name):
    signal = pytest.importorskip("scipy.signal", reason="scipy is not installed")
    for n in (0, 1, 2, 7, 8):
        for periodic in (True, False):
            kind = ("kaiser", 12.0) if name == "kaiser" else name
            want = signal.get_window(kind, n, fftbins=periodic) if n else np.zeros(0)
            np.testing.assert_allclose(getattr(F, f"{name}_window")(n, periodic, dtype="float64").numpy(), want, atol=1e-15)
