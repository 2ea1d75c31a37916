"""Tensors of PyTorch's and Tengen's over the same memory, by DLPack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError
from tengen.interop.torch.load import package, refuse_files
from tengen.tensor import Tensor
from tengen.tensor.dlpack import from_dlpack


def _each(x: Any, kind: Any, f: Callable[[Any], Any]) -> Any:
    """A nest of dicts, lists and tuples with f of what it holds of some kind; the rest stays."""
    if isinstance(x, kind):
        return f(x)
    if isinstance(x, Mapping):
        return {k: _each(v, kind, f) for k, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(_each(v, kind, f) for v in x))
    return type(x)(_each(v, kind, f) for v in x) if isinstance(x, (list, tuple)) else x


def from_torch(x: Any) -> Any:
    """PyTorch tensors as Tengen's, over the same memory: a tensor, or a nest of dicts (a ``state_dict()``), lists and tuples of them.

    No element is copied. What PyTorch writes into the memory later, the Tengen tensor shows; Tengen copies before it writes. The history of
    a tensor that requires a gradient stays behind: `as_torch_function` carries gradients.

    | PyTorch | Tengen |
    | --- | --- |
    | float64, float32, float16, bfloat16 | the same |
    | complex128, complex64 | the same |
    | int64, int32, int16, int8, uint8, uint16, uint32, uint64, bool | the same |
    | complex32, float8, quantised, sparse | none: an error |

    Errors: ArgumentError for a tensor on another device, or whose layout or dtype Tengen does not have.

    >>> import torch
    >>> from tengen.interop.torch import from_torch
    >>> t = torch.tensor([1.0, 2.0])
    >>> x = from_torch(t)
    >>> _ = t.add_(1)
    >>> x.tolist()
    [2.0, 3.0]
    """
    refuse_files(x)
    torch = package()
    return _each(x, torch.Tensor, lambda t: _in(torch, t))


def _in(torch: Any, t: Any) -> Tensor:
    said = f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}"
    if t.device.type != "cpu":
        raise ArgumentError(f"from_torch({said}): the tensor is on {t.device}; help: t.cpu()")
    if t.layout != torch.strided or t.is_quantized:
        raise ArgumentError(
            f"from_torch({said}): only dense tensors have their elements in strides; help: t.to_dense(), t.dequantize()"
        )
    t = t.detach().resolve_conj().resolve_neg()
    try:
        return from_dlpack(t)
    except (TypeError, BufferError, RuntimeError) as e:
        raise ArgumentError(f"from_torch({said}): {e}; help: cast it, for example with t.float()") from None


def to_torch(x: Any) -> Any:
    """Tengen tensors (and NumPy arrays) as PyTorch's, over the same memory: a tensor, or a nest of dicts (a ``state_dict()``), lists and
    tuples.

    No element is copied, but those of arrays that are read-only. A Tengen tensor is a value: whoever writes into the PyTorch tensor (``add_``)
    changes it, so ``clone()`` what is to be written. Tengen copies before it writes. Gradients do not cross: `from_torch_function` and
    `as_torch_function` carry them.

    Errors: TraceError for a tensor inside of a trace, which has no memory.

    >>> from tengen import Tensor
    >>> from tengen.interop.torch import to_torch
    >>> to_torch({"weight": Tensor([1.0, 2.0])})
    {'weight': tensor([1., 2.])}
    """
    torch = package()
    return _each(x, (Tensor, np.ndarray), lambda t: _out(torch, t))


def _out(torch: Any, t: Tensor | np.ndarray) -> Any:
    if isinstance(t, np.ndarray):
        return torch.from_numpy(t if t.flags.writeable else t.copy())
    return torch.from_dlpack(t.detach())
