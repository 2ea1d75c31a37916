"""`torch.utils.benchmark`: how long a statement takes."""

from __future__ import annotations

import statistics
import timeit as _timeit
from collections.abc import Sequence
from typing import Any

from tengen.base.record import record


@record(frozen=True)
class Measurement:
    """What a `Timer` measured: seconds of one run of the statement, in each block of number_per_run runs."""

    number_per_run: int
    raw_times: Sequence[float]
    title: str

    @property
    def times(self) -> list[float]:
        """Seconds of one run, for each block."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def mean(self) -> float:
        """Their mean."""
        return statistics.mean(self.times)

    @property
    def median(self) -> float:
        """Their median."""
        return statistics.median(self.times)

    def __str__(self) -> str:
        return f"{self.title}: {1e6 * self.median:.2f} us, the median of {len(self.raw_times)} blocks of {self.number_per_run} runs"

    __repr__ = __str__


class Timer:
    """Times a statement in Python, as the module timeit does, after one run that compiles what it needs.

    Args: stmt, setup: Python. globals: the names that they see. label, sub_label, description: texts for the result. num_threads, env:
        accepted; see `torch.set_num_threads`.

    >>> Timer("a + 1", globals={"a": 1}).timeit(10).number_per_run
    10
    """

    def __init__(
        self, stmt: str = "pass", setup: str = "pass", globals: dict[str, Any] | None = None, label: str | None = None,
        sub_label: str | None = None, description: str | None = None, env: str | None = None, num_threads: int = 1,
    ):  # fmt: skip
        self._title = " ".join(t for t in (label or stmt, sub_label, description) if t)
        self._timer = _timeit.Timer(stmt, setup, globals=globals)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One block of so many runs."""
        self._timer.timeit(1)
        return Measurement(number, [self._timer.timeit(number)], self._title)

    def blocked_autorange(self, min_run_time: float = 0.2) -> Measurement:
        """Blocks of equal length, for so many seconds in all."""
        self._timer.timeit(1)
        number, taken = self._timer.autorange()
        times = [taken]
        while sum(times) < min_run_time:
            times.append(self._timer.timeit(number))
        return Measurement(number, times, self._title)


__all__ = ["Measurement", "Timer"]
