"""What decides all code that Tengen makes, whatever is asked for: its version and sources, the compiler, the target, and knobs.
The key of every kept program has it, and a pack of programs is of one.

The sources are those of the floors below, as they lie on the disk. Reading 2 MB in each process would take longer than the
look-ups that it serves, so their digest is kept in the cache, under what the system says of the files: name, size, inode, time
of the last change of content, and time of the last change of any kind (ctime), which no program can set back. A file that
changed within the last seconds may change once more within one tick of a coarse clock, so what was read then is not kept.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from tengen.base.config import KNOBS, config
from tengen.base.digest import blake2b
from tengen.base.version import VERSION
from tengen.codegen.targets import Target
from tengen.runtime import cache

FLOORS = ("base", "loops", "ir", "kernels", "ops", "passes", "codegen", "runtime", "compiler", "tensor")
SETTLED_S = 10  # since the last change of a file, from which on its times tell it from any later one
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


# Knobs that do not decide what code is made, or are in a key in another form.
_MOOT = {
    "debug", "check", "threads", "progress", "quick_compile", "finish", "traceback", "cache_dir", "cache_bytes", "cache", "target", "processor",
    "pack", "kept_seconds",
}  # fmt: skip


def knobs() -> tuple[tuple[str, Any], ...]:
    """The knobs that may decide what code is made, with their values. Which tier of code comes first decides nothing that is kept;
    that there is no other does."""
    only = [("quick_compile", "only")] if config.quick_compile == "only" else []
    return (*[(k, getattr(config, k)) for k in KNOBS if k not in _MOOT], *only)


def compiler() -> str:
    """Which LLVM makes machine code."""
    import llvmlite

    return f"llvmlite {llvmlite.__version__}"


@functools.cache
def environment(target: Target, knobs: tuple[tuple[str, Any], ...]) -> str:
    """All of it as a text, for code that is compiled for a target; "" where nobody can read the sources: nothing is kept then."""
    if not sources():
        return ""
    facts = blake2b(repr((target, knobs, compiler())).encode(), digest_size=16).hexdigest()
    return f"tengen {VERSION} {sources()} {facts}"


@functools.cache
def sources() -> str:
    """The digest of this installation's sources; "" where there are no files to read, as in an archive."""
    return digest_of(list(_files(ROOT)))


@functools.cache
def covers(module: str | None) -> bool:
    """Whether the digest of the sources covers a module: it lies on one of the floors below, as the system knows it."""
    top, _, rest = (module or "").partition(".")
    if top != "tengen" or rest.partition(".")[0] not in FLOORS:
        return False
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return file.startswith(ROOT + os.sep)


def digest_of(files: list[tuple[str, os.stat_result]]) -> str:
    """The digest of some sources: read from the cache where they have not changed since it was made, else computed."""
    if not files:
        return ""
    stamps = [(path[len(ROOT) :], s.st_size, s.st_ino, s.st_mtime_ns, s.st_ctime_ns) for path, s in files]
    key = f"tengen sources {ROOT} {blake2b(repr(stamps).encode(), digest_size=32).hexdigest()}"
    settled = max(s.st_ctime for _, s in files) < time.time() - SETTLED_S
    found = cache.get(key, cache.FACTS) if settled else None
    if found is not None:
        return found.decode()
    h = blake2b(digest_size=16)
    try:
        for path, _ in files:
            with open(path, "rb") as f:
                data = f.read()
            h.update(f"{os.path.relpath(path, ROOT)} {len(data)}\n".encode() + data)
    except OSError:
        return ""
    if settled:
        cache.put(key, h.hexdigest().encode(), cache.FACTS)
    return h.hexdigest()


def _files(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """(path, what the system says of it) of every source of the floors, in order of paths."""
    for floor in sorted(FLOORS):
        yield from _below(os.path.join(root, floor))


def _below(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda e: e.name)
    except OSError:
        return
    for e in entries:
        if e.is_dir():
            if e.name != "__pycache__":
                yield from _below(e.path)
        elif e.name.endswith(".py"):
            yield e.path, e.stat()
