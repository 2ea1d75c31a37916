"""Every knob, in one table. This is the only reader of the environment.

Set a knob by its environment variable, by `config.name = value`, or for a while with `config.scope(name=value)`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tengen.base.errors import ConfigError


def _cpu_limit() -> int:
    """The processors this process may use: the smaller of its affinity and its cgroup's quota."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    try:
        quota, period = _text("/sys/fs/cgroup/cpu.max").split()
        if quota != "max":
            n = min(n, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        try:
            q = int(_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"))
            p = int(_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us"))
            if q > 0:
                n = min(n, max(1, q // p))
        except (OSError, ValueError):
            pass
    return n


def _text(file: str) -> str:
    with open(file) as f:
        return f.read()


def _positive(text: str) -> int:
    n = int(text)
    if n < 1:
        raise ValueError
    return n


# name -> (environment variable, parser, default, meaning)
KNOBS: dict[str, tuple[str, Callable[[str], Any], Any, str]] = {
    "debug": ("TENGEN_DEBUG", int, 0, "1 programs and timings, 2 graphs, 3 kernels, 4 LLVM IR, 5 assembly"),
    "check": ("TENGEN_CHECK", lambda s: s not in ("", "0"), False, "verify every graph and kernel between passes"),
    "threads": ("TENGEN_NUM_THREADS", _positive, None, "threads of a program, at most what the machine allows; set_threads() may go beyond"),
    "cache_dir": ("TENGEN_CACHE_DIR", str, None, "where compiled kernels are kept; default: ~/.cache/tengen"),
    "cache_bytes": ("TENGEN_CACHE_BYTES", _positive, 512 << 20, "size at which the oldest cached kernels are removed"),
    "cache": ("TENGEN_CACHE", lambda s: s not in ("", "0"), True, "keep compiled kernels on disk"),
    "winograd": ("TENGEN_WINOGRAD", lambda s: s not in ("", "0"), True, "0: convolutions never by Winograd (changes bits)"),
    "target": ("TENGEN_TARGET", str, "native", "the instruction set that this process compiles for"),
    "processor": ("TENGEN_PROCESSOR", str, "native", "what this machine is taken for, at most what it is: nothing else is run; for tests"),
}


class Config:
    """The knobs as attributes; see `KNOBS` for the table."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, environ=os.environ):
        known = {row[0]: name for name, row in KNOBS.items()}
        for key in environ:
            if key.startswith("TENGEN_") and key not in known:
                import difflib  # here, because it is slow to import

                near = difflib.get_close_matches(key, known, 1)
                hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"
                raise ConfigError(f"unknown environment variable {key}{hint}")
        for name, (var, parse, default, _) in KNOBS.items():
            try:
                value = parse(environ[var]) if var in environ else default
            except ValueError:
                raise ConfigError(f"{var}={environ[var]!r} is not a valid value: {KNOBS[name][3]}") from None
            object.__setattr__(self, name, value)
        omp = environ.get("OMP_NUM_THREADS", "").split(",")[0]
        asked = [n for n in (self.threads, int(omp) if omp.isdigit() else 0) if n]
        object.__setattr__(self, "threads", min([_cpu_limit(), *asked]))

    def __setattr__(self, name, value):
        if name not in KNOBS:
            raise ConfigError(f"no knob named {name!r}; help: one of {', '.join(KNOBS)}")
        object.__setattr__(self, name, value)

    @contextlib.contextmanager
    def scope(self, **values):
        """Set knobs for the length of a `with` block."""
        old = {k: getattr(self, k) for k in values}
        for k, v in values.items():
            setattr(self, k, v)
        try:
            yield self
        finally:
            for k, v in old.items():
                setattr(self, k, v)


config = Config()
