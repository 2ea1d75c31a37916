"""Functions of `torch.special`, against mpmath, and their gradients against differences."""

import math

import mpmath
import numpy as np
import pytest
from each import each
from exhaustive import but

import tengen.pytorch as torch
from tengen import trace
from tengen.base.errors import ArgumentError

X = [1e-6, 0.3, 1.0, 2.5, 7.75, 29.9, 30.1, 120.0]
CASES = {
    "ndtri": (torch.special.ndtri, lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1), [1e-5, 0.02, 0.3, 0.4375, 0.7, 0.999]),
    "erfinv": (torch.special.erfinv, mpmath.erfinv, [-0.9999, -0.5, 1e-9, 1e-3, 0.4, 0.99]),
    "erfcx": (torch.special.erfcx, lambda x: mpmath.exp(x * x) * mpmath.erfc(x), [-3.0, 0.0, 1.0, 4.9, 5.0, 5.1, 20.0, 1e5]),
    "log_ndtr": (torch.special.log_ndtr, lambda x: mpmath.log(mpmath.ncdf(x)), [-30.0, -5.0, -1.01, -1.0, -0.99, 0.0, 3.0]),
    "bessel_j0": (torch.special.bessel_j0, lambda x: mpmath.besselj(0, x), [-3.0, 0.0, 1.0, 10.0, 24.9, 25.1, 100.0]),
    "bessel_j1": (torch.special.bessel_j1, lambda x: mpmath.besselj(1, x), [-3.0, 0.1, 1.0, 9.0, 24.0, 26.0, 100.0]),
    "bessel_y0": (torch.special.bessel_y0, lambda x: mpmath.bessely(0, x), [1e-5, 0.5, 1.0, 10.0, 24.9, 25.1, 100.0]),
    "bessel_y1": (torch.special.bessel_y1, lambda x: mpmath.bessely(1, x), [1e-5, 0.5, 1.0, 10.0, 24.9, 25.1, 100.0]),
    "airy_ai": (torch.special.airy_ai, mpmath.airyai, [-20.0, -11.3, -10.8, -5.0, -1.0, 0.0, 1e-9, 1.0, 1.399, 1.401, 8.0, 50.0]),
    "gammainc": (lambda x: torch.special.gammainc(x * 0 + 3.5, x), lambda x: mpmath.gammainc(3.5, 0, x, True), [0.1, 3.0, 4.6, 20.0]),
    "gammaincc": (lambda x: torch.special.gammaincc(x * 0 + 3.5, x), lambda x: mpmath.gammainc(3.5, x, mpmath.inf, True), [0.1, 3.0, 4.6]),
    "k0": (torch.special.modified_bessel_k0, lambda x: mpmath.besselk(0, x), [*X, 0.99, 1.01, 600.0]),
    "k1": (torch.special.modified_bessel_k1, lambda x: mpmath.besselk(1, x), [*X, 0.99, 1.01, 600.0]),
    "scaled k0": (torch.special.scaled_modified_bessel_k0, lambda x: mpmath.besselk(0, x) * mpmath.exp(x), [*X, 1e5]),
    "scaled k1": (torch.special.scaled_modified_bessel_k1, lambda x: mpmath.besselk(1, x) * mpmath.exp(x), [*X, 1e5]),
    "spherical_bessel_j0": (torch.special.spherical_bessel_j0, mpmath.sinc, [0.0, 1e-9, 0.1, 0.499, 0.501, -1.0, 12.0, 300.0]),
    "entr": (torch.special.entr, lambda x: -x * mpmath.log(x), X),
    "ndtr": (torch.special.ndtr, mpmath.ncdf, [-30.0, -8.0, -1.5, 0.0, 0.5, 3.0]),
    "i0": (torch.special.i0, lambda x: mpmath.besseli(0, x), [-3.0, 0.0, *X]),
    "i1": (torch.special.i1, lambda x: mpmath.besseli(1, x), [-3.0, 0.0, *X]),
    "i0e": (torch.special.i0e, lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)), [-700.0, *X, 1e5]),
    "i1e": (torch.special.i1e, lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)), [-700.0, *X, 1e5]),
    "zeta": (lambda x: torch.special.zeta(torch.full_like(x, 2.5), x), lambda x: mpmath.zeta(2.5, x), X),
    "polygamma": (lambda x: torch.special.polygamma(1, x), lambda x: mpmath.polygamma(1, x), X),
    "polygamma of 3": (lambda x: torch.special.polygamma(3, x), lambda x: mpmath.polygamma(3, x), X[1:]),
    "multigammaln": (lambda x: torch.special.multigammaln(x, 3), lambda x: mpmath.log(mpmath.pi) * 1.5 + sum(
        mpmath.loggamma(x - i / 2) for i in range(3)), [1.25, 2.0, 30.0]),
    "xlog1py": (lambda x: torch.special.xlog1py(x, x), lambda x: x * mpmath.log1p(x), [0.0, *X]),
}  # fmt: skip


@but(every=3)
@pytest.mark.parametrize("name", CASES)
def test_values_and_slopes(name):
    f, exact, points = CASES[name]
    x = torch.tensor(np.array(points), requires_grad=True)
    y = f(x)
    with mpmath.workdps(40):
        want = [float(exact(mpmath.mpf(p))) for p in points]
        slopes = [float(mpmath.diff(exact, mpmath.mpf(p))) for p in points]
    np.testing.assert_allclose(y.detach().numpy(), want, rtol=2e-13, atol=1e-290)
    y.sum().backward()
    inside = [i for i, p in enumerate(points) if p]
    np.testing.assert_allclose(x.grad.numpy()[inside], np.array(slopes)[inside], rtol=1e-10, atol=1e-14)
    low = f(torch.tensor(np.array(points, "f4"))).numpy()
    assert low.dtype == np.float32
    fine = [i for i, w in enumerate(want) if 1e-30 < abs(w) < 1e30]
    np.testing.assert_allclose(low[fine], np.array(want)[fine], rtol=3e-5)  # the argument's rounding, times up to 120


POLYNOMIALS = {
    "chebyshev_polynomial_t": mpmath.chebyt,
    "chebyshev_polynomial_u": lambda n, x: mpmath.sin((n + 1) * mpmath.acos(x)) / mpmath.sin(mpmath.acos(x)),
    "chebyshev_polynomial_v": lambda n, x: mpmath.cos((n + 0.5) * mpmath.acos(x)) / mpmath.cos(mpmath.acos(x) / 2),
    "chebyshev_polynomial_w": lambda n, x: mpmath.sin((n + 0.5) * mpmath.acos(x)) / mpmath.sin(mpmath.acos(x) / 2),
    "shifted_chebyshev_polynomial_t": lambda n, x: mpmath.chebyt(n, 2 * x - 1),
    "shifted_chebyshev_polynomial_u": lambda n, x: POLYNOMIALS["chebyshev_polynomial_u"](n, 2 * x - 1),
    "shifted_chebyshev_polynomial_v": lambda n, x: POLYNOMIALS["chebyshev_polynomial_v"](n, 2 * x - 1),
    "shifted_chebyshev_polynomial_w": lambda n, x: POLYNOMIALS["chebyshev_polynomial_w"](n, 2 * x - 1),
    "hermite_polynomial_h": mpmath.hermite,
    "hermite_polynomial_he": lambda n, x: mpmath.hermite(n, x / mpmath.sqrt(2)) * mpmath.mpf(2) ** (-n / 2),
    "laguerre_polynomial_l": lambda n, x: mpmath.laguerre(n, 0, x), "legendre_polynomial_p": mpmath.legendre,
}  # fmt: skip


@each("name", POLYNOMIALS)
def test_orthogonal_polynomials(name):
    f, exact = getattr(torch.special, name), POLYNOMIALS[name]
    points = np.array([0.01, 0.125, 0.5, 0.7, 0.999] if "shifted" in name else [-0.999, -0.3, 0.01, 0.5, 0.999])
    for n in (0, 1, 2, 3, 7, 30):
        x = torch.tensor(points, requires_grad=True)
        y = f(x, n)
        with mpmath.workdps(40):
            want = np.array([float(exact(n, mpmath.mpf(p))) for p in points])
            slopes = [float(mpmath.diff(lambda v, n=n: exact(n, v), mpmath.mpf(p))) for p in points]
        # W and U are large at the ends of the interval, where rounding of x counts n times
        np.testing.assert_allclose(y.detach().numpy(), want, rtol=0, atol=4 * (n + 1) * 2.3e-16 * max(np.abs(want).max(), 1.0))
        if n:
            y.sum().backward()
            np.testing.assert_allclose(x.grad.numpy(), slopes, rtol=1e-10, atol=1e-11 * max(np.abs(slopes).max(), 1.0))
    assert f(torch.tensor([0.5]), -1).tolist() == [0.0] and f(torch.tensor([1, 0]), 2).dtype == torch.float32
    degrees = torch.tensor([[3], [-1], [0], [7]])
    assert (f(torch.tensor(points), degrees).numpy() == np.stack([f(torch.tensor(points), n).numpy() for n in (3, -1, 0, 7)])).all()
    assert f(torch.tensor(points), degrees[:0]).shape == (0, 5)
    with pytest.raises(ArgumentError, match="n is an int or a tensor"):
        f(torch.tensor([0.5]), 1.5)
    with pytest.raises(ArgumentError, match="a degree is 1001, and a tensor's are at most 1000; help"):
        f(torch.tensor([0.5]), torch.tensor([1001]))


@pytest.mark.parametrize("name", ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy_ai"])
def test_functions_that_oscillate(name):
    """The error beside the amplitude, zeros and the formulas' ends included; eager and traced bits."""
    f = getattr(torch.special, name)
    exact = mpmath.airyai if name == "airy_ai" else lambda v: getattr(mpmath, f"bessel{name[7]}")(int(name[-1]), v)
    x = np.random.default_rng(0).uniform(0.01, 60.0, 200)
    x = x / -2 if name == "airy_ai" else np.append(x, [1e5, 123456789.0])  # whose phase a subtraction of pi / 4 would round
    with mpmath.workdps(40):
        want = np.array([float(exact(mpmath.mpf(v))) for v in x])
    amplitude = np.maximum(np.abs(want), np.minimum(np.sqrt(2 / math.pi / np.abs(x)), 1.0))
    found = f(torch.tensor(x)).numpy()
    phase = np.maximum(1.0, 2 / 3 * np.abs(x) ** 1.5) if name == "airy_ai" else 1.0
    assert (np.abs(found - want) / amplitude / phase).max() < 5e-15
    assert trace(f)(torch.tensor(x)).numpy().tobytes() == found.tobytes()
    assert f(torch.zeros(0)).shape == (0,) and f(torch.tensor([2])).dtype is torch.float32


def test_ends_of_functions_that_oscillate():
    x = torch.tensor([0.0, -1.0, math.inf, math.nan, 1e30])
    for f in (torch.special.bessel_y0, torch.special.bessel_y1):
        y = f(x).tolist()
        assert y[0] == -math.inf and math.isnan(y[1]) and y[2] == 0.0 and math.isnan(y[3]) and abs(y[4]) < 1e-15
    y = torch.special.airy_ai(torch.tensor([math.inf, -math.inf, math.nan, 200.0, -1e30])).tolist()
    assert y[:2] == [0.0, 0.0] and math.isnan(y[2]) and y[3] == 0.0 and abs(y[4]) < 1e-7
    inside = torch.tensor([0.5, 30.0, 1e30], requires_grad=True)
    for f in (torch.special.bessel_y0, torch.special.bessel_y1, torch.special.airy_ai):
        f(inside).sum().backward()
    assert inside.grad.isfinite().all()


def test_modified_functions_near_0_and_at_infinity():
    tiny = torch.tensor(1e-300, dtype=torch.float64)
    np.testing.assert_allclose(torch.special.modified_bessel_k0(tiny).item(), float(mpmath.besselk(0, mpmath.mpf(1e-300))), rtol=1e-14)
    np.testing.assert_allclose(torch.special.modified_bessel_k1(tiny).item(), 1e300, rtol=1e-14)
    k0 = torch.special.modified_bessel_k0(torch.tensor([0.0, -1.0, math.inf, math.nan])).tolist()
    assert k0[0] == math.inf and math.isnan(k0[1]) and k0[2] == 0.0 and math.isnan(k0[3])
    assert torch.special.spherical_bessel_j0(torch.tensor([math.inf, 0.0])).tolist() == [0.0, 1.0]


def test_edges():
    x = torch.tensor([0.0, -1.0, math.inf, math.nan])
    assert torch.special.entr(x).tolist()[:3] == [0.0, -math.inf, -math.inf] and math.isnan(torch.special.entr(x)[3].item())
    assert torch.special.i0e(x).tolist()[2] == 0.0 and math.isnan(torch.special.i1(x)[3].item()) and torch.special.i1e(x)[0].item() == 0.0
    assert torch.special.xlog1py(torch.zeros(2), torch.tensor([-1.0, math.nan])).tolist()[0] == 0.0
    s, q = torch.tensor([1.0, 0.5, 2.0]), torch.tensor([2.0, 2.0, -1.0])
    assert torch.special.zeta(s, q)[0].item() == math.inf and torch.special.zeta(s, q).isnan().tolist() == [False, True, False]
    assert torch.special.i0(torch.zeros(0)).shape == (0,) and torch.special.i0(torch.tensor([2])).dtype is torch.float32
    with pytest.raises(ArgumentError, match="n=-1"):
        torch.special.polygamma(-1, x)
    with pytest.raises(AttributeError, match="i0"):
        torch.special.i0f  # noqa: B018  (the name is asked for)


def test_gradients_of_inverses_and_of_incomplete_gamma_functions():
    """Against the derivatives, also where a formula changes sides."""

    def slopes(f, *xs):
        ts = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in xs]
        f(*ts).sum().backward()
        return [t.grad.numpy() for t in ts]

    p = [0.01, 0.3, 0.5, 0.9]
    z = torch.special.ndtri(torch.tensor(p, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(slopes(torch.special.ndtri, p)[0], np.sqrt(2 * np.pi) * np.exp(z * z / 2), rtol=1e-12)
    p = [-0.9, 0.0, 1e-3, 0.5]
    z = torch.erfinv(torch.tensor(p, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(slopes(torch.erfinv, p)[0], np.sqrt(np.pi) / 2 * np.exp(z * z), rtol=1e-12)
    a, x = np.array([0.5, 3.0, 60.0]), np.array([0.2, 5.0, 55.0])
    of_a, of_x = slopes(torch.special.gammainc, a.tolist(), x.tolist())
    np.testing.assert_allclose(of_x, np.exp((a - 1) * np.log(x) - x - [math.lgamma(v) for v in a]), rtol=1e-12)
    near = [torch.special.gammainc(torch.tensor(a + h), torch.tensor(x)).numpy() for h in (1e-5, -1e-5)]
    np.testing.assert_allclose(of_a, (near[0] - near[1]) / 2e-5, rtol=1e-6)


def test_incomplete_gamma_functions_of_large_a():
    """By the expansion, which also ends for a of 1e20; mpmath's at points up to 30 deviations from a, and far from it."""
    a = np.array([1.0001e4] * 4 + [3e4] * 4 + [1e6] * 3 + [2e4] * 2)
    x = np.array([9e3, 1e4, 1.0001e4, 1.05e4, 2.9e4, 3e4 - 1e-3, 3.002e4, 3.4e4, 9.97e5, 1e6, 1.004e6, 1.4e4, 3.2e4])
    p, q = (f(torch.tensor(a), torch.tensor(x)).numpy() for f in (torch.special.gammainc, torch.special.gammaincc))
    with mpmath.workdps(40):
        upper = [mpmath.gammainc(mpmath.mpf(s), mpmath.mpf(t), mpmath.inf, regularized=True) for s, t in zip(a, x)]
        np.testing.assert_allclose(q, [float(u) for u in upper], rtol=2e-12, atol=1e-300)
        np.testing.assert_allclose(p, [float(1 - u) for u in upper], rtol=2e-12, atol=1e-38)
    huge = torch.tensor([1e12, 1e20, 3e38], dtype=torch.float64)
    np.testing.assert_allclose(torch.igamma(huge, huge).numpy(), 0.5 + 1 / (3 * np.sqrt(2 * np.pi * huge.numpy())), rtol=1e-14)
    s, t = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in ([2e4, 3e4], [2e4, 2.98e4]))
    torch.igamma(s, t).sum().backward()
    with mpmath.workdps(30):
        density = [float(mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a))) for a, x in ((2e4, 2e4), (3e4, mpmath.mpf(2.98e4)))]
    np.testing.assert_allclose(t.grad.numpy(), density, rtol=1e-10)
    near = [torch.igamma(s.detach() + h, t.detach()).numpy() for h in (1e-2, -1e-2)]
    np.testing.assert_allclose(s.grad.numpy(), (near[0] - near[1]) / 2e-2, rtol=1e-6)
    for a, x, want in ((math.inf, 1.0, 0.0), (1.0, math.inf, 1.0), (math.inf, math.inf, math.nan), (0.0, 0.0, math.nan), (0.0, 2.0, 1.0)):
        np.testing.assert_equal(torch.igamma(torch.tensor(a), torch.tensor(x)).item(), want)


def test_odd_functions_have_a_slope_at_0():
    x = torch.tensor([0.0, -0.0, 1.0], dtype=torch.float64, requires_grad=True)
    torch.special.i1(x).sum().backward()
    slope = float(mpmath.besseli(0, 1) - mpmath.besseli(1, 1))
    np.testing.assert_allclose(x.grad.numpy(), [0.5, 0.5, slope], rtol=1e-14)


def test_polygamma_below_0_is_that_of_mpmath():
    x = np.array([-9.7, -2.5, -0.1, 0.3, 20.0])
    for n in (1, 2, 5):
        want = [float(mpmath.polygamma(n, v)) for v in x]
        np.testing.assert_allclose(torch.polygamma(n, torch.tensor(x)).numpy(), want, rtol=1e-12)
    assert torch.polygamma(1, torch.tensor([0.0, -3.0])).tolist() == [math.inf, math.inf]
    assert math.isnan(torch.special.zeta(torch.tensor(2.5), torch.tensor(-0.5)).item())
