"""`torch.testing`: whether tensors are close."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tengen.tensor import Tensor

_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}
_TOLERANCES |= {"complex64": _TOLERANCES["float32"], "complex128": _TOLERANCES["float64"]}


def assert_close(
    actual: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None, equal_nan: bool = False, check_dtype: bool = True,
    check_device: bool = True, msg: Any = None, **how: Any,
) -> None:  # fmt: skip
    """Raises where shapes or dtypes differ, or |actual - expected| > atol + rtol |expected|; default tolerances are PyTorch's of the dtype.

    Errors: AssertionError with the largest difference.
    """
    if isinstance(expected, Mapping):
        if actual.keys() != expected.keys():
            raise AssertionError(f"the keys differ: {sorted(actual)} and {sorted(expected)}")
        pairs = [(actual[k], v) for k, v in expected.items()]
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        if len(actual) != len(expected):
            raise AssertionError(f"the lengths differ: {len(actual)} and {len(expected)}")
        pairs = list(zip(actual, expected))
    else:
        return _close(actual, expected, rtol, atol, equal_nan, check_dtype, msg)
    for a, e in pairs:
        assert_close(a, e, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=check_dtype, msg=msg)


def _close(actual: Any, expected: Any, rtol: Any, atol: Any, equal_nan: bool, check_dtype: bool, msg: Any) -> None:
    a, e = (x if isinstance(x, Tensor) else Tensor(x) for x in (actual, expected))
    if a.shape != e.shape:
        raise AssertionError(msg or f"the shapes differ: {a.shape} and {e.shape}")
    if check_dtype and a.dtype is not e.dtype:
        raise AssertionError(msg or f"the dtypes differ: {a.dtype} and {e.dtype}; help: check_dtype=False")
    most = [_TOLERANCES.get(x.dtype.name, (0.0, 0.0)) for x in (a, e)]
    rtol = max(t[0] for t in most) if rtol is None else rtol
    atol = max(t[1] for t in most) if atol is None else atol
    x, y = (t.detach().astype("complex128" if t.dtype.is_complex else "float64").numpy() for t in (a, e))
    near = np.isclose(x, y, rtol, atol, equal_nan)
    if not near.all():
        gap = np.abs(x - y)[~near]
        raise AssertionError(msg or f"{gap.size} of {x.size} elements are not close; the largest difference is {gap.max()}")


__all__ = ["assert_close"]
