"""The array API's extension `linalg`: the functions of `tengen.linalg` for the dtypes that the standard lets them take."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tengen.linalg as ours
from tengen.arrays.rules import array, common
from tengen.arrays.shapes import matmul, matrix_transpose, tensordot, vecdot
from tengen.tensor import Tensor

FLOATS, NUMBERS = "floating-point", "numeric"
TAKES = {  # function -> category of dtypes
    "cholesky": FLOATS, "det": FLOATS, "diagonal": "all", "eigh": FLOATS, "eigvalsh": FLOATS, "inv": FLOATS, "matrix_norm": FLOATS,
    "matrix_power": FLOATS, "matrix_rank": FLOATS, "pinv": FLOATS, "qr": FLOATS, "slogdet": FLOATS, "svd": FLOATS, "svdvals": FLOATS,
    "trace": NUMBERS, "vector_norm": FLOATS,
}  # fmt: skip
OF_TWO = {"cross": NUMBERS, "outer": NUMBERS, "solve": FLOATS}


def _one(name: str, category: str) -> Callable:
    call = getattr(ours, name)

    @functools.wraps(call)
    def f(x: Tensor, /, *args: Any, **kwargs: Any) -> Any:
        return call(array(name, x, category), *args, **kwargs)

    return f


def _two(name: str, category: str) -> Callable:
    call = getattr(ours, name)

    @functools.wraps(call)
    def f(x1: Tensor, x2: Tensor, /, **kwargs: Any) -> Tensor:
        common(name, array(name, x1, category).dtype, array(name, x2, category).dtype)
        return call(x1, x2, **kwargs)

    return f


globals().update({name: _one(name, category) for name, category in TAKES.items()})
globals().update({name: _two(name, category) for name, category in OF_TWO.items()})
__all__ = [*TAKES, *OF_TWO, "matmul", "matrix_transpose", "tensordot", "vecdot"]


def __dir__() -> list[str]:
    return sorted(__all__)
