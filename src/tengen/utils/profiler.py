"""MegEngine's names for profiles, over `tengen.profile`: timelines of what a block ran, as files.

In: a block or a function. Out: ``PATH/RUN.chrome_timeline.json`` for ui.perfetto.dev or chrome://tracing.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tengen.base.errors import FileFormatError, UsageWarning, warn_once
from tengen.base.files import read_regular, replacing
from tengen.profiling.profiler import profile as _profile
from tengen.runtime import launch_log

__all__ = ["Profiler", "is_profiling", "merge_trace_events", "profile", "scope"]

TIMELINE = "chrome_timeline.json"
_IGNORED = {"with_backtrace", "with_scopes", "sample_rate", "profile_device", "num_tensor_watch", "enable_cupti"}


class Profiler:
    """Records a block, or a function that it decorates, and writes a timeline for each run of it.

    Args: path: the folder of the timelines. format, formats: "chrome_timeline.json". Others are MegEngine's: each launch has the
        user's line already, and there is no other device to watch.
    Attributes: result: the last run's `tengen.profile`, with rows and a table.
    Errors: ValueError for another format, TraceError inside of another profile.

    >>> import tempfile
    >>> from tengen import functional as F
    >>> folder = tempfile.mkdtemp()
    >>> with Profiler(folder) as p:
    ...     y = F.ones(3) + 1
    >>> p.result.rows[0].calls, len(os.listdir(folder))
    (1, 1)
    """

    def __init__(self, path: str = "profile", format: str = TIMELINE, formats: list[str] | None = None, **options: Any):
        for f in formats or [format]:
            if f != TIMELINE:
                raise ValueError(f"Profiler: format {f!r} is not written; help: {TIMELINE!r}, or `with tengen.profile() as p: ... p.table()`")
        if unknown := options.keys() - _IGNORED:
            raise TypeError(f"Profiler() has no option {min(unknown)!r}")
        if any(options.values()):
            warn_once(f"Profiler({', '.join(sorted(options))}): these options change nothing here", UsageWarning)
        self.path, self.result = Path(path), None

    def __enter__(self) -> Profiler:
        self._running = _profile().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._running.__exit__(*exc)
        self.result = self._running
        self.path.mkdir(parents=True, exist_ok=True)
        runs = sum(1 for _ in self.path.glob(f"{os.getpid()}-*.{TIMELINE}"))
        self.result.save(self.path / f"{os.getpid()}-{runs}.{TIMELINE}")

    def __call__(self, func: Callable) -> Callable:
        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return call


def profile(*args: Any, **options: Any) -> Any:
    """A decorator: `Profiler` of a function, with options or without."""
    if len(args) == 1 and callable(args[0]) and not options:
        return Profiler()(args[0])
    return Profiler(*args, **options)


def is_profiling() -> bool:
    """Whether a profile is recording now."""
    return launch_log.active is not None


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """A named block. Names of blocks are not part of a timeline: launches have the lines that asked for them."""
    if is_profiling():
        warn_once(f"scope({name!r}): a timeline shows each launch's line, and no names of blocks", UsageWarning)
    yield


def merge_trace_events(directory: str) -> Path:
    """Joins the timelines in a folder, one process each in what is shown.

    Returns: the path of ``merge.chrome_timeline.json`` in it.
    Errors: FileFormatError for a file that is no timeline; ValueError where there is none.
    """
    folder = Path(directory)
    files = sorted(p for p in folder.glob(f"*{TIMELINE}") if p.name != f"merge.{TIMELINE}")
    if not files:
        raise ValueError(f"{directory}: there is no *.{TIMELINE}")
    events = []
    for i, p in enumerate(files):
        try:
            found = json.loads(read_regular(p))["traceEvents"]
            events += [{**e, "pid": i} for e in found]
        except (ValueError, KeyError, TypeError) as e:
            raise FileFormatError(f"{p}: it is no timeline ({type(e).__name__}: {e})") from e
    target = folder / f"merge.{TIMELINE}"
    with replacing(target) as f:
        f.write(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}).encode())
    return target
