"""How many programs a trace may make, and what is told of one that is too many."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Literal

from tengen.base.errors import TraceError, TraceWarning, user_line


def warn(text: str) -> None:
    """A `TraceWarning` at the user's line."""
    file, _, line = (user_line() or "unknown:0").rpartition(":")
    warnings.warn_explicit(text, TraceWarning, file, int(line))


class Room:
    """Room for so many recordings of a function, each with a program.

    Attributes:
        left: how many more programs there may be. causes: why the recordings were made, up to one more than there may be.
    """

    def __init__(self, name: str, most: int, on_excess: Literal["warn", "error"]):
        self.name, self.most, self.on_excess = name, most, on_excess
        self.left = most
        self.causes: list[str] = []

    def take(self) -> bool:
        """Whether there is room for one more program; if so, it is taken."""
        there = self.left > 0
        self.left -= there
        return there

    def check(self, cause: str) -> None:
        """Errors: TraceError where one more recording, made for this cause, is too many and `on_excess` is "error"."""
        if len(self.causes) >= self.most and self.on_excess == "error":
            raise TraceError(self._told(cause))

    def enter(self, cause: str) -> None:
        """Notes a recording that was made, and warns of the first that is too many."""
        if len(self.causes) == self.most:
            warn(self._told(cause))
        if len(self.causes) <= self.most:
            self.causes.append(cause)
        self.take()

    def _told(self, cause: str) -> str:
        """What is told of a recording that is one too many, and of those before."""
        causes = Counter([*self.causes[1:], cause])
        said = ", ".join(f"{why}{f' ({n} times)' if n > 1 else ''}" for why, n in causes.most_common(5))
        return (
            f"{self.name} is recorded and compiled more often than max_programs={self.most} times; after the first call: {said}; help: "
            "make what keeps changing a Tensor, which every run reads anew, or pass it as a Tensor; its stats() lists the recordings"
        )
