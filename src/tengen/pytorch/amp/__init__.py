"""`torch.amp`: mixed precision on the processor; what asks for a GPU is switched off, as in PyTorch on a machine without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tengen import amp as _amp
from tengen.base.arguments import flags_of_functions
from tengen.base.dtype import bfloat16
from tengen.base.errors import UsageWarning, warn_once


def _here(device_type: str, what: str) -> bool:
    """Whether there is such a device; a warning where there is none."""
    if device_type == "cpu":
        return True
    warn_once(f"{what}: there is no device {device_type!r} here, so it is switched off", UsageWarning)
    return False


class autocast(_amp.autocast):
    """`tengen.amp.autocast`, in bfloat16 unless another dtype is given, as PyTorch's on the processor. cache_enabled: accepted."""

    def __init__(self, device_type: Any = "cpu", dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None):
        if isinstance(device_type, bool):  # torch.cuda.amp.autocast(enabled)
            device_type, enabled = "cuda", device_type
        on = enabled and _here(str(getattr(device_type, "type", device_type)).partition(":")[0], "autocast")
        super().__init__(on, dtype=bfloat16 if dtype is None else dtype)


class GradScaler(_amp.GradScaler):
    """`tengen.amp.GradScaler` with PyTorch's arguments. For a device that is not here it is switched off: `scale` gives the loss itself.

    >>> GradScaler("cpu").get_scale()
    65536.0
    """

    def __init__(
        self, device: Any = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ):  # fmt: skip
        if not isinstance(device, str) and isinstance(device, (int, float)) and not isinstance(device, bool):
            device, init_scale = "cuda", float(device)  # torch.cuda.amp.GradScaler(init_scale)
        on = enabled and _here(str(getattr(device, "type", device)).partition(":")[0], "GradScaler")
        super().__init__(init_scale, growth_factor, backoff_factor, growth_interval, enabled=on)
        self._on = on

    def is_enabled(self) -> bool:
        """Whether it scales."""
        return self._on


def custom_fwd(fwd: Callable | None = None, **how: Any) -> Any:
    """The function itself."""
    return fwd if fwd is not None else lambda f: f


def custom_bwd(bwd: Callable | None = None, **how: Any) -> Any:
    """The function itself."""
    return bwd if bwd is not None else lambda f: f


def is_autocast_available(device_type: str) -> bool:
    """Whether `autocast` does something for a device."""
    return device_type == "cpu"


__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
flags_of_functions(globals(), __all__)
