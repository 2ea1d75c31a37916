"""PyTorch's rules for dtypes of results.

A tensor with axes counts more than one without, and that more than a number; the kind (bool, integer, float, complex) of what counts less
has a say where it is the higher one. Source: PyTorch, "Tensor Attributes", torch.result_type.
"""

from __future__ import annotations

from typing import Any

from tengen.base.dtype import DType, bool_, complex64, complex128, dtype, float32, int64, promote
from tengen.base.errors import DTypeError
from tengen.functional import astype, full
from tengen.loops.lang import Expr
from tengen.ops.reduce import extent
from tengen.tensor import Tensor


def _kind(d: DType) -> int:
    return 3 if d.is_complex else 2 if d.is_float else 0 if d is bool_ else 1


def _of_number(x: Any) -> DType:
    return bool_ if isinstance(x, bool) else float32 if isinstance(x, float) else complex64 if isinstance(x, complex) else int64


def result_type(*xs: Any) -> DType:
    """The dtype of what is computed of tensors, numbers and extents together."""
    groups: list[DType | None] = [None, None, None]
    for x in xs:
        i = 2 if not isinstance(x, Tensor) else 0 if x.ndim else 1
        d = x.dtype if isinstance(x, Tensor) else _of_number(x)
        groups[i] = d if groups[i] is None else promote(groups[i], d)
    found = None
    for d in groups:
        if d is None:
            continue
        if found is None:
            found = d
        elif _kind(d) > _kind(found):
            found = complex128 if d.is_complex and found.name == "float64" else d
    assert found is not None
    return found


def named(name: str | DType | None, default: DType = float32) -> DType:
    """The dtype of this name of PyTorch's; of None the default.

    Errors: DTypeError for one that Tengen does not have.
    """
    try:
        return default if name is None else dtype(name)
    except TypeError as e:
        raise DTypeError(f"PyTorch's {name} is no dtype of Tengen's: {e}") from None


def of(x: Any, d: DType) -> Any:
    """A tensor or a number in this dtype: tensors are cast, extents become tensors; Python's numbers stay, with the kind of the dtype."""
    if isinstance(x, Tensor):
        return x if x.dtype is d else astype(x, d)
    if isinstance(x, Expr):
        return extent(x, d)
    return x if d.is_complex else bool(x) if d is bool_ else float(x) if d.is_float else int(x)


def alike(*xs: Any) -> list[Any]:
    """Tensors and numbers in the dtype of what is computed of them, at least one of them a tensor."""
    d = result_type(*xs)
    found = [of(x, d) for x in xs]
    return found if any(isinstance(x, Tensor) for x in found) else [full((), found[0], d), *found[1:]]


def tensor(x: Any, d: DType | None = None) -> Tensor:
    """A number as a tensor without axes."""
    if isinstance(x, Tensor):
        return x if d is None else of(x, d)
    d = _of_number(x) if d is None else d
    return of(x, d) if isinstance(x, Expr) else full((), of(x, d), d)


def floating(x: Tensor) -> Tensor:
    """x as it is, where it is no integer or bool, else as float32."""
    return x if x.dtype.is_inexact else astype(x, float32)
