"""Mixed precision: `autocast` chooses dtypes, `GradScaler` keeps small gradients from vanishing. MegEngine's interface, and
PyTorch's.

`tengen.amp.enabled`, `low_prec_dtype` and `high_prec_dtype` tell what the calling thread is in; they can be set, as MegEngine's can.
"""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any

from tengen.amp.autocast import Switch, autocast, current
from tengen.amp.scaler import GradScaler

__all__ = ["GradScaler", "autocast"]


class _Switches(threading.local):
    def __init__(self) -> None:
        self.mine = Switch()


_switches = _Switches()


class _Settable(ModuleType):
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
