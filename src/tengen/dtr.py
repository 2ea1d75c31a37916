"""`tengen.dtr`: MegEngine's names for dynamic tensor rematerialisation, which frees values of eager steps and computes them again.

It is `tengen.memory.budget` under those names. A traced step has a plan of its own: `trace(memory_budget=...)`.
"""

from __future__ import annotations

import sys
from typing import Any

from tengen.base.lazy import PickledByName
from tengen.base.sizes import byte_size
from tengen.device import get_mem_status_bytes
from tengen.tensor import eviction

__all__ = ["disable", "enable"]

OF_ALL = 0.9  # of the machine's memory: the threshold where none was set
_settings: dict[str, Any] = {"eviction_threshold": 0, "evictee_minimum_size": 1 << 20, "enable_sqrt_sampling": False}
_enabled: list[eviction.Keeper] = []


def enable() -> None:
    """From now on values that only the tape holds are freed while tensors hold more than `eviction_threshold` bytes, and computed
    again when a gradient needs them, with the same bits. Without a threshold it is nine tenths of the machine's memory.

    Source: Kirisame et al., arXiv 2006.09616

    >>> import tengen
    >>> tengen.dtr.eviction_threshold = "5GB"
    >>> tengen.dtr.enable()
    >>> tengen.dtr.disable()
    >>> tengen.dtr.eviction_threshold = 0
    """
    threshold = _settings["eviction_threshold"] or int(OF_ALL * get_mem_status_bytes()[0])
    _enabled[:] = [eviction.Keeper(threshold, _settings["evictee_minimum_size"], None)]
    eviction.set_keeper(_enabled[0])


def disable() -> None:
    """Values stay in memory until the gradient has been computed."""
    if _enabled and eviction.keeper is _enabled[0]:
        eviction.set_keeper(None)
    _enabled.clear()


def _set(name: str, value: Any) -> None:
    _settings[name] = byte_size(value, f"dtr.{name}", 1024)
    if _enabled:
        enable()


def _size(name: str, doc: str) -> property:
    return property(lambda _: _settings[name], lambda _, v: _set(name, v), doc=doc)


class _Settable(PickledByName):
    """This module's class: attributes that are settings."""

    eviction_threshold = _size("eviction_threshold", "Bytes in use above which values are freed; settable as '5GB', in powers of 1024.")
    evictee_minimum_size = _size("evictee_minimum_size", "Bytes of the smallest value that is freed; 1 MiB at first.")

    @property
    def enable_sqrt_sampling(self) -> bool:
        """Whether MegEngine looks at a sample of the values only. It is kept; Tengen looks at all."""
        return _settings["enable_sqrt_sampling"]

    @enable_sqrt_sampling.setter
    def enable_sqrt_sampling(self, value: bool) -> None:
        _settings["enable_sqrt_sampling"] = bool(value)


sys.modules[__name__].__class__ = _Settable
