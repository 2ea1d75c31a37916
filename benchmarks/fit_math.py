"""Fits the polynomials of `tengen.loops.polynomials` and writes that file. Run: python benchmarks/fit_math.py

Each function is interpolated at Chebyshev nodes in 60 digits (within a small factor of the minimax error) and the
coefficients are rounded once. "f32" and "f64" tables serve arithmetic of that dtype, "wide" tables are short ones for
float32 results computed in float64. The printed error is the largest on the interval, relative to `weight`.
"""

from __future__ import annotations

import pathlib

import mpmath as mp
import numpy as np

mp.mp.dps = 60
SQRT2 = mp.sqrt(2)
QUARTER_PI = mp.pi / 4 * mp.mpf("1.01")


def series(f, lead, order):
    """(f(x) - lead(x)) / x^order, by Taylor's series near 0 where the difference cancels."""
    taylor = mp.taylor(lambda x: f(x) - lead(x), 0, order + 24)[order:]

    def g(x):
        return mp.polyval(taylor[::-1], x) if abs(x) < mp.mpf("0.02") else (f(x) - lead(x)) / x**order

    return g


def even(f, lead, order):
    """The same as a function of z = x^2."""
    g = series(f, lead, order)
    return lambda z: g(mp.sqrt(z))


def erfcx(x):
    """exp(x^2) erfc(x)."""
    return mp.exp(x * x) * mp.erfc(x)


def erfc_of_t(shift):
    """(1 + 2 x) erfcx(x) as a function of t = (x - shift) / (x + shift)."""
    return lambda t: (1 + 2 * shift * (1 + t) / (1 - t)) * erfcx(shift * (1 + t) / (1 - t))


def stirling(f):
    """A function of x as one of w = 1 / x^2."""
    return lambda w: f(1 / mp.sqrt(w))


# name -> (function, interval, {table: number of coefficients})
TAIL = (0, mp.mpf(1) / 64)
HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.01")
FITS = {
    # fmt: off
    # exp r = 1 + r + r^2 p(r); 2^r = 1 + r p(r)
    "exp": (series(mp.exp, lambda r: 1 + r, 2), (-HALF_LN2, HALF_LN2), {"f32": 5, "f64": 11, "wide": 7}),
    "exp2": (series(lambda r: mp.power(2, r), lambda r: 1, 1), (-0.5, 0.5), {"f32": 7, "f64": 13}),
    # log(1 + f) = f - f^2/2 + f^3 p(f); atanh s = s + s^3 p(s^2); the same beginning one term later
    "log": (series(mp.log1p, lambda f: f - f * f / 2, 3), (1 / SQRT2 - 1, SQRT2 - 1), {"f32": 9}),
    "atanh": (even(mp.atanh, lambda s: s, 3), (0, mp.mpf("0.0296")), {"f64": 8, "wide": 5}),
    "atanh5": (even(mp.atanh, lambda s: s + s**3 / 3, 5), (0, mp.mpf("0.0296")), {"f64": 10}),
    # x + x^3 p(x^2)
    "sin": (even(mp.sin, lambda x: x, 3), (0, QUARTER_PI**2), {"f32": 4, "f64": 7}),
    "tan": (even(mp.tan, lambda x: x, 3), (0, QUARTER_PI**2), {"f64": 16, "wide": 9}),
    "asin": (even(mp.asin, lambda x: x, 3), (0, mp.mpf("0.2501")), {"f32": 7, "f64": 15}),
    "atan": (even(mp.atan, lambda x: x, 3), (0, 1), {"f32": 10, "f64": 22}),
    "sinh": (even(mp.sinh, lambda x: x, 3), (0, 1), {"f32": 4, "f64": 8}),
    "tanh": (even(mp.tanh, lambda x: x, 3), (0, mp.mpf("0.5")), {"f32": 6, "f64": 13}),
    # cos x = 1 - x^2/2 + x^4 p(x^2); erf x = x + x p(x^2)
    "cos": (even(mp.cos, lambda x: 1 - x * x / 2, 4), (0, QUARTER_PI**2), {"f32": 4, "f64": 7}),
    "erf": (even(mp.erf, lambda x: x, 1), (0, 1), {"f32": 8, "f64": 14}),
    # log(erfc x); (1 + 2 x) exp(x^2) erfc x in t = (x - 4) / (x + 4) or (x - 2) / (x + 2)
    "log_erfc": (lambda x: mp.log(mp.erfc(x)), (1, 4), {"f32": 9}),
    # log2(2 Phi(-x)) / x: beyond the interval, where Phi is small, the polynomial goes on well enough, and to -inf
    "log_normal": (lambda x: mp.log(mp.erfc(x / SQRT2), 2) / x, (0, mp.mpf("3.1")), {"f32": 8}),
    "erfcx": (erfc_of_t(mp.mpf(2)), (-1, mp.mpf("0.68")), {"wide": 12}),
    "erfcx4": (erfc_of_t(mp.mpf(4)), (-1, mp.mpf("0.75")), {"f64": 24}),
    "cbrt": (mp.cbrt, (mp.mpf("0.7"), mp.mpf("5.7")), {"f64": 5, "wide": 8}),
    # lgamma(2 + t) = t p(t), digamma(2 + t) = p(t); Stirling's tails as functions of w = 1 / x^2, x >= 8:
    # lgamma(x) - (x - 1/2) (log x - 1) - constant = p(w) / x, log x - 1 / (2 x) - digamma(x) = w p(w)
    "lgamma": (lambda t: mp.loggamma(2 + t) / t if t else mp.digamma(2), (-0.5, 0.5), {"f64": 20, "wide": 12}),
    "digamma": (lambda t: mp.digamma(2 + t), (-0.5, 0.5), {"f64": 20, "wide": 12}),
    "lgamma_tail": (stirling(lambda x: x * (mp.loggamma(x) - (x - 0.5) * mp.log(x) + x - mp.log(2 * mp.pi) / 2)), TAIL, {"f64": 8, "wide": 4}),
    "digamma_tail": (stirling(lambda x: x * x * (mp.log(x) - 1 / (2 * x) - mp.digamma(x))), TAIL, {"f64": 8, "wide": 4}),
    # sin(pi r) = r p(r^2), cos(pi r) = p(r^2)
    "sinpi": (lambda w: mp.sinpi(mp.sqrt(w)) / mp.sqrt(w), (0, 0.25), {"f64": 10, "wide": 7}),
    "cospi": (lambda w: mp.cospi(mp.sqrt(w)), (0, 0.25), {"f64": 10, "wide": 7}),
    # fmt: on
}


def fit(g, interval, n):
    """Coefficients, constant first, of the polynomial through g at n Chebyshev nodes."""
    a, b = map(mp.mpf, interval)
    nodes = [(a + b) / 2 + (b - a) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * n)) for i in range(n)]
    matrix = mp.matrix(n, n)
    for i, x in enumerate(nodes):
        for j in range(n):
            matrix[i, j] = x**j
    return list(mp.lu_solve(matrix, mp.matrix([g(x) for x in nodes])))


def error(g, interval, coefficients):
    """log2 of the largest error of p relative to g's largest value."""
    a, b = map(mp.mpf, interval)
    xs = [a + (b - a) * i / 400 for i in range(1, 400)]
    values = [g(x) for x in xs]
    worst = max(abs(mp.polyval(coefficients[::-1], x) - v) for x, v in zip(xs, values))
    return float(mp.log(worst / max(map(abs, values)), 2))


def literal(c, table) -> str:
    """The shortest text that reads back, through float64, as the rounded coefficient."""
    if table != "f32":
        return repr(float(c))
    value = np.float32(float(c))
    text = str(value)
    return text if np.float32(float(text)) == value else repr(float(value))


HEADER = '''"""Polynomial coefficients, constant term first, as `benchmarks/fit_math.py` fits and writes them.
Table names: "f32" and "f64" for arithmetic of that dtype, "wide" for float32 results computed in float64."""

# fmt: off
POLYNOMIALS: dict[str, dict[str, tuple[float, ...]]] = {'''
FOOTER = """}

# floor(2 / pi * 2^1272): every bit that the largest float64 needs, and some more
TWO_OVER_PI = int("""


def main() -> None:
    lines = [HEADER]
    for name, (g, interval, tables) in FITS.items():
        lines.append(f'    "{name}": {{')
        for table, n in tables.items():
            coefficients = fit(g, interval, n)
            print(f"{name:10} {table:5} {n:3} terms, error 2^{error(g, interval, coefficients):.1f}", flush=True)
            lines.append(f'        "{table}": (')
            texts = [literal(c, table) for c in coefficients]
            width = 4 if table != "f32" else 6
            lines += ["            " + ", ".join(texts[i : i + width]) + "," for i in range(0, n, width)] + ["        ),"]
        lines.append("    },")
    with mp.workprec(1400):
        digits = f"{int(mp.floor(2 / mp.pi * mp.mpf(2) ** 1272)):0318x}"
    lines += [FOOTER, *(f'    "{digits[i : i + 106]}"' for i in range(0, len(digits), 106)), "    , 16)", "# fmt: on", ""]
    path = pathlib.Path(__file__).parents[1] / "src/tengen/loops/polynomials.py"
    path.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
