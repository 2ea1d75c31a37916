"""NumPy's functions of linear algebra for Tensors: ``np.linalg.inv(t)``. What is imported for the first such call
(`tengen.tensor.numpy_functions`).

Arguments have NumPy's names. One that asks for what is not here (`svd(hermitian=True)`) is an error by NumPy's rule for arguments that
a function does not take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError
from tengen.linalg import products, spectra, systems
from tengen.linalg.parts import as_tensor
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor
from tengen.tensor.numpy_functions import FUNCTIONS


def _plain(f: Callable) -> Callable:
    return lambda a: f(a)


def _norm(x: Tensor, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    """NumPy's norm: of all elements as one vector by default; of a matrix where two axes are given, or it has two and `ord` is given."""
    if ord is None and axis is None:
        return products.vector_norm(x, keepdims=keepdims)
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    if len(axes) == 1:
        return products.vector_norm(x, axis=axes[0], keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise ArgumentError(f"np.linalg.norm() of {x._layout.type!r}: one axis or two, got {axes}")
    y = products.matrix_norm(REGISTRY["moveaxis"](x, axes, (-2, -1)), ord="fro" if ord is None else ord, keepdims=keepdims)
    return REGISTRY["moveaxis"](y, (-2, -1), axes) if keepdims else y


def _eigh(a: Tensor, UPLO: str = "L") -> spectra.EighResult:
    return spectra.eigh(_lower(a, UPLO))


def _lower(a: Tensor, triangle: str) -> Tensor:
    if triangle not in ("L", "U"):
        raise ArgumentError(f"UPLO={triangle!r} must be 'L' or 'U'")
    return a if triangle == "L" else REGISTRY["conj"](REGISTRY["swapaxes"](as_tensor(a), -1, -2))


def _svd(a: Tensor, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    return spectra.svd(a, full_matrices=full_matrices) if compute_uv else spectra.svdvals(a)


def _relative(rcond: Any, rtol: Any) -> Any:
    if rcond is not None and rtol is not None:
        raise ArgumentError("rcond and rtol are two names of one argument: give one of them")
    return rtol if rcond is None else rcond


FUNCTIONS.update({
    **{getattr(np.linalg, name): _plain(getattr(systems, name)) for name in ("inv", "det", "slogdet")},
    np.linalg.cholesky: lambda a, *, upper=False: systems.cholesky(a, upper=upper),
    np.linalg.solve: lambda a, b: systems.solve(a, b),
    np.linalg.matrix_power: lambda a, n: systems.matrix_power(a, n),
    np.linalg.qr: lambda a, mode="reduced": spectra.qr(a, mode=mode),
    np.linalg.eigh: _eigh,
    np.linalg.eigvalsh: lambda a, UPLO="L": spectra.eigvalsh(_lower(a, UPLO)),
    np.linalg.svd: _svd,
    np.linalg.pinv: lambda a, rcond=None, *, rtol=None: spectra.pinv(a, rtol=_relative(rcond, rtol)),
    np.linalg.matrix_rank: lambda A, tol=None, *, rtol=None: spectra.matrix_rank(A, rtol=rtol) if tol is None else _rank(A, tol),
    np.linalg.norm: _norm,
})  # fmt: skip
FUNCTIONS.update({f: ours for name in (
    "svdvals", "vector_norm", "matrix_norm", "matrix_transpose", "vecdot", "cross", "outer", "diagonal", "trace", "tensordot",
) if (f := getattr(np.linalg, name, None)) and (ours := getattr(products, name, None) or getattr(spectra, name))})  # fmt: skip


def _rank(a: Tensor, tol: Any) -> Tensor:
    """How many singular values exceed `tol` itself."""
    return REGISTRY["sum"](REGISTRY["astype"](REGISTRY["greater"](spectra.svdvals(a), tol), "int64"), -1)
