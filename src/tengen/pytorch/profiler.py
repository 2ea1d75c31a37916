"""`torch.profiler`: which kernels ran in a block, and what they took, by `tengen.profile`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

from tengen.base.errors import ArgumentError
from tengen.profiling.profiler import profile as _profile

_SORTS = {"time": "time", "flops": "flops", "count": "calls", "calls": "calls", "memory": "bytes", "bytes": "bytes"}


class ProfilerActivity(Enum):
    """What is recorded: kernels on the processor. CUDA and XPU are accepted, and record nothing."""

    CPU = "cpu"
    CUDA = "cuda"
    XPU = "xpu"


class ProfilerAction(Enum):
    """What a step of a schedule does."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0) -> Callable[[int], ProfilerAction]:
    """A function from a step's number to what it does: of each wait + warmup + active steps the last ones are recorded.

    Args: repeat: how many such cycles; 0: without end. skip_first: steps before the first.

    >>> [schedule(wait=1, warmup=1, active=2)(i).name for i in range(4)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE']
    """

    def action(step: int) -> ProfilerAction:
        cycle, at = divmod(step - skip_first, wait + warmup + active)
        if step < skip_first or (repeat and cycle >= repeat) or at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if at == wait + warmup + active - 1 else ProfilerAction.RECORD

    return action


class _Averages(list):
    """The kernels, each with its launches; `table` is their text."""

    def __init__(self, result: _profile):
        super().__init__(result.rows)
        self._result = result

    def table(self, sort_by: str | None = None, row_limit: int = 100, **how: Any) -> str:
        """The kernels as text, one a line.

        Args: sort_by: PyTorch's names of columns, of which those of times, of memory, flops and count are told apart. row_limit: how many
            at most; -1 for all.
        """
        words = (sort_by or "time").split("_")
        found = next((_SORTS[w] for w in words if w in _SORTS), "time")
        return self._result.table(found, None if row_limit < 0 else row_limit)

    def total_average(self) -> Any:
        """The kernel that took longest."""
        return self._result.sorted("time")[0]


class profile:
    """A block in which kernels are recorded; with a `schedule`, from the steps of it that say so.

    Args: schedule: see `schedule`; call `step` after each. on_trace_ready: called with the profile when a cycle of it has ended, or the
        block. activities, record_shapes, profile_memory, with_stack, with_flops, with_modules: accepted; kernels have their flops and
        bytes, and the line that asked for them, in any case.
    """

    def __init__(
        self, *, activities: Any = None, schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None, record_shapes: bool = False, profile_memory: bool = False,
        with_stack: bool = False, with_flops: bool = False, with_modules: bool = False, experimental_config: Any = None,
        use_cuda: bool | None = None,
    ):  # fmt: skip
        self._schedule, self._ready, self.step_num = schedule, on_trace_ready, 0
        self._now: _profile | None = None
        self._last: _profile | None = None

    def _follow(self) -> None:
        wanted = self._schedule is None or self._schedule(self.step_num) in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if wanted and self._now is None:
            self._now = _profile().__enter__()

    def _end(self) -> None:
        if self._now is not None:
            self._now.__exit__(None, None, None)
            self._last, self._now = self._now, None
            if self._ready is not None:
                self._ready(self)

    def start(self) -> None:
        """Begins; the same as to enter the block."""
        self._follow()

    def stop(self) -> None:
        """Ends; the same as to leave the block."""
        self._end()

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.stop()

    def step(self) -> None:
        """Says that a step of the program has ended."""
        if self._schedule is not None and self._schedule(self.step_num) is ProfilerAction.RECORD_AND_SAVE:
            self._end()
        self.step_num += 1
        self._follow()

    def _result(self) -> _profile:
        if self._last is None:
            raise ArgumentError("nothing was recorded yet; help: leave the block first, and let the schedule reach an active step")
        return self._last

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> _Averages:
        """The kernels with what they took, and `table`. Errors: ArgumentError before anything was recorded"""
        return _Averages(self._result())

    def events(self) -> _Averages:
        """The same. Errors: ArgumentError before anything was recorded"""
        return self.key_averages()

    def export_chrome_trace(self, path: str) -> None:
        """Writes the timeline as JSON for ui.perfetto.dev. Errors: ArgumentError before anything was recorded"""
        self._result().save(path)


@contextmanager
def record_function(name: str, args: str | None = None) -> Any:
    """A block with a name, which PyTorch shows; here a kernel has the line that asked for it."""
    yield


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False) -> Callable[[profile], None]:
    """An `on_trace_ready` that writes each timeline to a file of a folder, which is made."""

    def write(p: profile) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        p.export_chrome_trace(str(folder / f"{worker_name or 'worker'}.{p.step_num}.pt.trace.json"))

    return write


__all__ = [
    "ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule", "tensorboard_trace_handler",
]  # fmt: skip
