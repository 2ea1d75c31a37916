"""Which source files are the user's."""

from __future__ import annotations

import functools
import sysconfig

from tengen.base.errors import PACKAGE

_LIBRARIES = tuple({p for name, p in sysconfig.get_paths().items() if name in ("stdlib", "platstdlib", "purelib", "platlib")})
_INSTALLED = ("/site-packages/", "/dist-packages/")


@functools.lru_cache(4096)
def is_users(file: str) -> bool:
    """Whether a source file is neither Tengen's nor a library's."""
    if file.startswith((PACKAGE, "<frozen ", *(f"{p}/" for p in _LIBRARIES))):
        return False
    return not any(part in file for part in _INSTALLED)
