"""Whether calls are recorded now: dispatch, the tape and the ways out of a tensor ask it."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any


class _Tracing:
    """Which trace is being recorded, and by which thread; other threads go on computing.

    Attributes:
        scripts: of each thread that records a script, by its id: what is called in the place of a module's `forward`.
    """

    active: Any = None
    scripts: dict[int, Callable[[Any], Any]] = {}
    thread: int = 0

    @property
    def recorder(self) -> Any:
        """The recorder of the calling thread, if it is recording."""
        return self.active if self.active is not None and self.thread == get_ident() else None

    @recorder.setter
    def recorder(self, r: Any) -> None:
        self.active, self.thread = r, get_ident()

    def in_place(self, forward: Any) -> Any:
        """What is called in the place of a module's `forward` now."""
        script = self.scripts.get(get_ident())
        return forward if script is None else script(forward)


tracing = _Tracing()
