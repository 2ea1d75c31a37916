"""Which source files are the user's."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from contextlib import suppress

from tengen.base.errors import PACKAGE

_LIBRARIES = tuple({p for name, p in sysconfig.get_paths().items() if name in ("stdlib", "platstdlib", "purelib", "platlib")})
_INSTALLED = ("/site-packages/", "/dist-packages/")


@functools.lru_cache(4096)
def is_users(file: str) -> bool:
    """Whether a source file is neither Tengen's nor a library's."""
    if file.startswith((PACKAGE, "<frozen ", *(f"{p}/" for p in _LIBRARIES))) or any(part in file for part in _INSTALLED):
        return False
    return not any(file[len(p) + 1 :].partition("/")[0] in _installed(p) for p in sys.path if p and file.startswith(f"{p}/"))


@functools.lru_cache(256)
def _installed(folder: str) -> frozenset[str]:
    """What is installed in a folder of any name, as `pip install --target` does it; files of the user's own may stand beside it."""
    found: set[str] = set()
    with suppress(OSError):
        for distribution in os.listdir(folder):
            if distribution.endswith(".dist-info"):
                with suppress(OSError), open(f"{folder}/{distribution}/RECORD", encoding="utf-8", errors="replace") as f:
                    found |= {os.path.normpath(line.partition(",")[0]).partition("/")[0] for line in f}
    return frozenset(found)
