"""`tengen.dtr`: MegEngine's names for dynamic tensor rematerialisation, which frees values of eager steps and computes them again.

Tengen has none yet: the settings are kept, and `enable` says that nothing is freed. A traced step's memory is planned.
"""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any

from tengen.base.errors import UsageWarning, warn_once

__all__ = ["disable", "enable"]

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_settings: dict[str, Any] = {"eviction_threshold": 0, "evictee_minimum_size": 1 << 20, "enable_sqrt_sampling": False}


def enable() -> None:
    """Accepted, with a `UsageWarning`: values of eager steps stay in memory until the gradient has been computed."""
    warn_once(
        "dtr.enable(): Tengen does not free values and compute them again; help: `@trace` the training step, whose memory is planned, "
        "or take a smaller batch",
        UsageWarning,
    )


def disable() -> None:
    """What is so."""


def _bytes(name: str, value: Any) -> int:
    """A size as a number of bytes: an int, or a text as "5GB", "512MB", "4096"."""
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?)B?\s*", value, re.IGNORECASE)
        if found is None:
            raise ValueError(f"dtr.{name}={value!r} is no size; help: a number of bytes, or as '5GB'")
        return int(float(found[1]) * _UNITS[found[2].upper()])
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"dtr.{name}={value!r} is no size; help: a number of bytes, or as '5GB'")
    return value


def _size(name: str, doc: str) -> property:
    return property(lambda _: _settings[name], lambda _, v: _settings.__setitem__(name, _bytes(name, v)), doc=doc)


class _Settable(ModuleType):
    """This module's class: attributes that are settings."""

    eviction_threshold = _size("eviction_threshold", "Bytes in use above which values would be freed; settable as '5GB'.")
    evictee_minimum_size = _size("evictee_minimum_size", "Bytes of the smallest value that would be freed; 1 MiB at first.")

    @property
    def enable_sqrt_sampling(self) -> bool:
        """Whether only a sample of the values would be looked at."""
        return _settings["enable_sqrt_sampling"]

    @enable_sqrt_sampling.setter
    def enable_sqrt_sampling(self, value: bool) -> None:
        _settings["enable_sqrt_sampling"] = bool(value)


sys.modules[__name__].__class__ = _Settable
