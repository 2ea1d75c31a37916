"""Mixed precision: `autocast` chooses dtypes, `GradScaler` keeps small gradients from vanishing. MegEngine's interface, and
PyTorch's.

`tengen.amp.enabled`, `low_prec_dtype` and `high_prec_dtype` tell what the calling thread is in; they can be set, as MegEngine's can.
"""

from __future__ import annotations

import copy
import sys
import threading
from typing import Any

from tengen.amp.autocast import Switch, autocast, current
from tengen.amp.scaler import GradScaler
from tengen.base.arguments import flags
from tengen.base.errors import ShapeError, UsageWarning, warn_once
from tengen.base.lazy import PickledByName

__all__ = ["GradScaler", "autocast", "convert_module_format", "convert_tensor_format"]

_LAYOUT = "changes nothing: where elements lie in memory is chosen by the compiler, for each value of a program; help: leave it out"


@flags
def convert_tensor_format(x: Any, inplace: bool = True) -> Any:
    """Accepted, with a `UsageWarning`: MegEngine lets an image (N, C, H, W) lie as (N, H, W, C) from here on. Its shape stays as it is
    there, and so does every result.

    Returns: x, or with inplace=False a copy.
    Errors: ShapeError for another number of axes than four
    """
    if x.ndim != 4:
        raise ShapeError(f"convert_tensor_format takes an image (N, C, H, W), got {x.shape}")
    warn_once(f"convert_tensor_format() {_LAYOUT}", UsageWarning)
    return x if inplace else copy.deepcopy(x)


@flags
def convert_module_format(module: Any, inplace: bool = True) -> Any:
    """Accepted, with a `UsageWarning`: MegEngine lets the filters of a network lie as its images do (`convert_tensor_format`).

    Returns: the module, or with inplace=False a copy.
    """
    warn_once(f"convert_module_format() {_LAYOUT}", UsageWarning)
    return module if inplace else copy.deepcopy(module)


class _Switches(threading.local):
    def __init__(self) -> None:
        self.mine = Switch()


_switches = _Switches()


class _Settable(PickledByName):
    """This module's class: attributes that are settings."""

    @property
    def enabled(self) -> bool:
        """Whether the calling thread is inside autocast. Setting it opens or closes a block that lasts."""
        return current()[0]

    @enabled.setter
    def enabled(self, value: bool) -> None:
        _switches.mine.set(bool(value))

    @property
    def low_prec_dtype(self) -> str:
        """The name of the low dtype; "float16" at first."""
        return (current()[1] or _switches.mine.low).name

    @low_prec_dtype.setter
    def low_prec_dtype(self, value: Any) -> None:
        _switches.mine.set(self.enabled, low=value)

    @property
    def high_prec_dtype(self) -> str:
        """The name of the high dtype; "float32" at first."""
        return (current()[2] or _switches.mine.high).name

    @high_prec_dtype.setter
    def high_prec_dtype(self, value: Any) -> None:
        _switches.mine.set(self.enabled, high=value)


sys.modules[__name__].__class__ = _Settable
