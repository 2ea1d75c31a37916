"""Whether gradients are recorded and numbers are cast, under PyTorch's names."""

from __future__ import annotations

from threading import get_ident
from typing import Any

from tengen import amp
from tengen.autodiff import enable_grad, no_grad
from tengen.base.arguments import flags_of_functions
from tengen.base.dtype import DType, bfloat16, float16
from tengen.tensor.nodes import limits, new_limit


def is_grad_enabled() -> bool:
    """Whether what this thread computes is recorded for gradients.

    >>> with no_grad():
    ...     is_grad_enabled()
    False
    """
    return get_ident() not in limits


def _record(mode: bool) -> int | None:
    """Sets whether this thread records; returns what was set before."""
    before = limits.get(get_ident())
    if mode:
        limits.pop(get_ident(), None)
    elif before is None:
        limits[get_ident()] = new_limit()
    return before


class set_grad_enabled:
    """Sets at once whether gradients are recorded; as a context manager, until the end of the block.

    >>> with set_grad_enabled(False):
    ...     is_grad_enabled()
    False
    """

    def __init__(self, mode: bool):
        self.mode = bool(mode)
        self._before = _record(self.mode)

    def __enter__(self) -> None:
        """The mode is set already."""

    def __exit__(self, *exc: object) -> None:
        _record(self._before is None)


def inference_mode(mode: Any = True) -> Any:
    """`no_grad`, as a block or a decorator; with mode=False a block that changes nothing."""
    if callable(mode):
        return no_grad(mode)
    return no_grad() if mode else enable_grad()


def is_inference_mode_enabled() -> bool:
    """Whether nothing is recorded: here as `is_grad_enabled` says."""
    return not is_grad_enabled()


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether the calling thread is inside of `autocast` for a device: the processor, "cpu", or False.

    >>> is_autocast_enabled("cpu"), is_autocast_enabled()
    (False, False)
    """
    return device_type == "cpu" and amp.current()[0]


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled("cpu")`."""
    return is_autocast_enabled("cpu")


def get_autocast_dtype(device_type: str) -> DType:
    """The dtype that `autocast` takes for a device: bfloat16 on the processor, unless the block that is entered says otherwise."""
    return (amp.current()[1] if is_autocast_enabled(device_type) else None) or (bfloat16 if device_type == "cpu" else float16)


def get_autocast_cpu_dtype() -> DType:
    """`get_autocast_dtype("cpu")`."""
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> DType:
    """`get_autocast_dtype("cuda")`."""
    return get_autocast_dtype("cuda")


__all__ = [
    "enable_grad", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype", "inference_mode", "is_autocast_cpu_enabled",
    "is_autocast_enabled", "is_grad_enabled", "is_inference_mode_enabled", "no_grad", "set_grad_enabled",
]  # fmt: skip
flags_of_functions(globals(), __all__)
