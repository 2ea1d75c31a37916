"""Whether calls are recorded now: dispatch, the tape and the ways out of a tensor ask it."""

from __future__ import annotations

from threading import get_ident
from typing import Any


class _Tracing:
    """Which trace is being recorded, and by which thread; other threads go on computing."""

    active: Any = None
    thread: int = 0

    @property
    def recorder(self) -> Any:
        """The recorder of the calling thread, if it is recording."""
        return self.active if self.active is not None and self.thread == get_ident() else None

    @recorder.setter
    def recorder(self, r: Any) -> None:
        self.active, self.thread = r, get_ident()


tracing = _Tracing()
