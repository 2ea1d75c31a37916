"""Linear algebra beside NumPy's LAPACK (OpenBLAS): factorisations, solutions, eigenvalues, singular values.

Matrices of 16, 128 and 512 rows in float32 and float64, and a stack of a thousand small ones. Each is an eager call. Residuals decide
whether results agree, since vectors have other signs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import compare
import numpy as np
from compare import Case, Cell, Goal

from tengen import Tensor, linalg

# name -> (kind of matrix, Tengen's call, NumPy's call)
CALLS: dict[str, tuple[str, Callable, Callable]] = {
    "cholesky": ("positive", linalg.cholesky, np.linalg.cholesky),
    "solve": ("plain", lambda a: linalg.solve(a, a), lambda a: np.linalg.solve(a, a)),
    "inv": ("plain", linalg.inv, np.linalg.inv),
    "det": ("plain", linalg.slogdet, np.linalg.slogdet),
    "qr": ("plain", linalg.qr, np.linalg.qr),
    "eigh": ("symmetric", linalg.eigh, np.linalg.eigh),
    "eigvalsh": ("symmetric", linalg.eigvalsh, np.linalg.eigvalsh),
    "svd": ("plain", partial(linalg.svd, full_matrices=False), partial(np.linalg.svd, full_matrices=False)),
    "svdvals": ("plain", linalg.svdvals, partial(np.linalg.svd, compute_uv=False)),
}
SHAPES = {"16 x 16": (16, 16), "128 x 128": (128, 128), "512 x 512": (512, 512), "1000 of 16 x 16": (1000, 16, 16)}


def matrix(kind: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Matrices far from singular, so that inverses agree."""
    n = shape[-1]
    a = np.random.default_rng(0).standard_normal(shape) / n**0.5
    if kind == "plain":
        a = a + 3 * np.eye(n)
    elif kind == "symmetric":
        a = a + np.swapaxes(a, -1, -2)
    else:
        a = a @ np.swapaxes(a, -1, -2) + np.eye(n)
    return a.astype(dtype)


def residual(name: str, a: np.ndarray, results) -> float:
    """How far the factors are from the matrix, or the values from those of float64."""
    a = a.astype("float64")
    several = results if isinstance(results, tuple) else (results,)
    found = [np.asarray(r.numpy() if isinstance(r, Tensor) else r, "float64") for r in several]
    t = lambda x: np.swapaxes(x, -1, -2)
    made = {
        "cholesky": lambda c: c @ t(c) - a, "solve": lambda x: a @ x - a, "inv": lambda x: a @ x - np.eye(a.shape[-1]),
        "det": lambda s, x: x - np.linalg.slogdet(a)[1], "qr": lambda q, r: q @ r - a, "eigh": lambda w, v: a @ v - v * w[..., None, :],
        "eigvalsh": lambda w: w - np.linalg.eigvalsh(a), "svd": lambda u, s, v: (u * s[..., None, :]) @ v - a,
        "svdvals": lambda s: s - np.linalg.svd(a, compute_uv=False),
    }  # fmt: skip
    return float(np.abs(made[name](*found)).max())


def case(name: str, size: str, dtype: str) -> Case:
    kind, mine, theirs = CALLS[name]
    a = matrix(kind, SHAPES[size], dtype)
    x = Tensor(a)

    def check() -> None:
        bound = 40 * a.shape[-1] * float(np.finfo(dtype).eps)
        for who, results in (("tengen", mine(x)), ("numpy", theirs(a))):
            assert residual(name, a, tuple(results) if isinstance(results, tuple) else results) <= bound, who

    return Case(f"{name}, {size}, {dtype}", {"tengen": lambda: mine(x), "numpy": lambda: theirs(a)}, Goal(1.0, "numpy"), check=check)


if __name__ == "__main__":
    cells = [
        Cell(f"{name}, {size}, {dtype}", partial(case, name, size, dtype), quick=size == "16 x 16" and dtype == "float32")
        for name in CALLS for size in SHAPES for dtype in ("float32", "float64")
    ]  # fmt: skip
    compare.main("linalg", "Linear algebra beside NumPy's LAPACK", cells)
