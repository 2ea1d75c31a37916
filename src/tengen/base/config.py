"""Every knob, in one table. This is the only reader of the environment.

Set a knob by its environment variable, by `config.name = value`, or for a while with `config.scope(name=value)`. A value is read in all
three as the variable's text is: ``config.cache = "off"`` switches it off.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tengen.base.errors import ConfigError, UsageWarning, warn_once


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


def home() -> str | None:
    """The user's home: HOME, or where it is empty or no absolute path, what the system's list of users says; None without either."""
    if os.path.isabs(found := os.environ.get("HOME", "")):
        return found
    import pwd

    try:
        found = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None
    return found if os.path.isabs(found) else None


def cache_home() -> str | None:
    """Where this user's caches are: XDG_CACHE_HOME if it is an absolute path, else ~/.cache; None for a user without a home."""
    if os.path.isabs(found := os.environ.get("XDG_CACHE_HOME", "")):
        return found
    own = home()
    return None if own is None else os.path.join(own, ".cache")


def expand_home(path: str) -> str:
    """The path, with the user's home for a `~` at its front."""
    if path != "~" and not path.startswith("~/"):
        return os.path.expanduser(path)
    found = home()
    return path if found is None else found + path[1:]


def _short_or_full(text: str) -> str:
    if text not in ("short", "full"):
        raise ValueError("short or full")
    return text


def _whole(least: int, text: str) -> int:
    if not text.isdecimal() or int(text) < least:
        raise ValueError(f"a whole number, at least {least}")
    return int(text)


def _switch(text: str) -> bool:
    if text.lower() not in (words := {"0": False, "off": False, "false": False, "no": False, "1": True, "on": True, "true": True, "yes": True}):
        raise ValueError(f"one of {', '.join(words)}")
    return words[text.lower()]


def _switch_or_only(text: str) -> bool | str:
    try:
        return text if text == "only" else _switch(text)
    except ValueError as e:
        raise ValueError(f"{e}, only") from None


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not found > 0:
        raise ValueError("a number of seconds above 0")
    return found


_positive = functools.partial(_whole, 1)

# name -> (environment variable, parser, default, meaning); a parser's ValueError says what is legal; an empty variable is as none
KNOBS: dict[str, tuple[str, Callable[[str], Any], Any, str]] = {
    "debug": ("TENGEN_DEBUG", functools.partial(_whole, 0), 0, "1 programs and timings, 2 graphs, 3 kernels, 4 LLVM IR, 5 assembly"),
    "check": ("TENGEN_CHECK", _switch, False, "verify every graph and kernel between passes, and the checksum of a file each time"),
    "threads": ("TENGEN_NUM_THREADS", _positive, 0, "threads of a program, at most what the machine allows; set_threads() may go beyond"),
    "cache_dir": ("TENGEN_CACHE_DIR", str, None, "where compiled kernels are kept; default: tengen in $XDG_CACHE_HOME or ~/.cache"),
    "cache_bytes": ("TENGEN_CACHE_BYTES", _positive, 512 << 20, "size at which the oldest cached kernels are removed"),
    "cache": ("TENGEN_CACHE", _switch, True, "keep compiled kernels on disk"),
    "pack": ("TENGEN_PACK", _switch, True, "use the programs that were compiled when Tengen was packaged"),
    "quick_compile": ("TENGEN_QUICK_COMPILE", _switch_or_only, True, "quick code first, good code later; 0: good at once; only: no good code"),
    "finish": ("TENGEN_FINISH", _switch, True, "make good code of what a short process has run in the background, after it has ended"),
    "kept_seconds": ("TENGEN_KEPT_SECONDS", _seconds, 10.0, "seconds after which memory that nobody took for a tensor goes back to the system"),
    "jit": ("TENGEN_JIT", _switch, True, "0: traced and scripted functions run as plain Python, op by op"),
    "progress": ("TENGEN_PROGRESS", _switch, True, "on a terminal, a line that says what is compiled, after a second of it"),
    "traceback": ("TENGEN_TRACEBACK", _short_or_full, "short", "short: Tengen's errors show the user's lines alone; full: all"),
    "distributed_timeout": ("TENGEN_DISTRIBUTED_TIMEOUT", _seconds, 600.0, "seconds after which a process that waits for others gives up"),
    "winograd": ("TENGEN_WINOGRAD", _switch, True, "0: convolutions never by Winograd (changes bits)"),
    "tpu_mlir": ("TENGEN_TPU_MLIR", str, None, "the environment of TPU-MLIR, as tengen.backends.tpu_mlir_environment makes it"),
    "target": ("TENGEN_TARGET", str, "native", "the instruction set that this process compiles for"),
    "processor": ("TENGEN_PROCESSOR", str, "native", "what this machine is taken for, at most what it is: nothing else is run; for tests"),
}


def _warn_of_unknown(environ: Mapping[str, str]) -> None:
    """One warning for each variable that looks like a knob's and is none: somebody else's, or a slip. Worker processes, which have
    their parent's variables, say nothing."""
    known = [row[0] for row in KNOBS.values()]
    unknown = [key for key in environ if key.startswith("TENGEN_") and key not in known]
    processes = sys.modules.get("multiprocessing.process")
    if not unknown or (processes is not None and processes.parent_process() is not None):
        return
    import difflib  # here, because it is slow to import

    for key in unknown:
        near = difflib.get_close_matches(key, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        warnings.warn(f"the environment variable {key} is none of Tengen's and is ignored; {hint}", RuntimeWarning, stacklevel=2)


def _unknown(name: str) -> ConfigError:
    return ConfigError(f"no knob named {name!r}; help: one of {', '.join(KNOBS)}")


# Settings of MegEngine's runtime -> how it is here, always
MEGENGINE = {
    "async_level": 0, "benchmark_kernel": False, "benchmark_with_subprocess": False, "deterministic_kernel": True,
    "disable_memory_forwarding": False,
}  # fmt: skip


def _read(name: str, value: Any) -> Any:
    """A knob's value from a text, a path, or what Python has for it. Errors: ValueError, whose text is what is legal."""
    _, parse, default, _ = KNOBS[name]
    if value is None and default is None:
        return None
    if parse is str and not isinstance(value, (str, os.PathLike)):
        raise ValueError("a text")
    return parse(os.fspath(value) if isinstance(value, os.PathLike) else str(value))


class Config:
    """The knobs as attributes; see `KNOBS` for the table. MegEngine's settings may be set, and say once where they change nothing."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    else:
        locals().update(MEGENGINE)

    def __init__(self, environ=os.environ):
        _warn_of_unknown(environ)
        for name, (var, parse, default, meaning) in KNOBS.items():
            try:
                value = parse(environ[var]) if environ.get(var) else default
            except ValueError as e:
                raise ConfigError(f"the environment variable {var}={environ[var]!r} is not {e}: {meaning}") from None
            object.__setattr__(self, name, value)
        omp = environ.get("OMP_NUM_THREADS", "").split(",")[0]
        asked = [n for n in (self.threads, int(omp) if omp.isdecimal() else 0) if n]
        object.__setattr__(self, "threads", min([_cpu_limit(), *asked]))
        object.__setattr__(self, "_owners", {})

    def owned(self, name: str, take: Callable[[Any], Any]) -> None:
        """From now on `take(value)` is called with what a knob is set to, and gives the value that it has then: for a part of Tengen that
        keeps the value elsewhere too, or that took it once and for all."""
        self._owners[name] = take

    def __setattr__(self, name, value):
        if name in MEGENGINE:
            if value != MEGENGINE[name]:
                warn_once(f"config.{name} = {value!r} changes nothing: it is {MEGENGINE[name]!r} here", UsageWarning)
            return
        if name not in KNOBS:
            raise _unknown(name)
        try:
            value = _read(name, value)
        except ValueError as e:
            raise ConfigError(f"config.{name} = {value!r} is not {e}: {KNOBS[name][3]}") from None
        object.__setattr__(self, name, self._owners[name](value) if name in self._owners else value)

    @contextlib.contextmanager
    def scope(self, **values):
        """Set knobs for the length of a `with` block."""
        if unknown := [k for k in values if k not in KNOBS and k not in MEGENGINE]:
            raise _unknown(unknown[0])
        old = {k: getattr(self, k) for k in values}
        try:
            for k, v in values.items():
                setattr(self, k, v)
            yield self
        finally:
            for k, v in old.items():
                setattr(self, k, v)


config = Config()
