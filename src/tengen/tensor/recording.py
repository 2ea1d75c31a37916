"""Whether calls are recorded now: dispatch, the tape and the ways out of a tensor ask it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, get_ident
from typing import Any


class _Tracing:
    """Which recorders record the calls of which threads; other threads go on computing.

    Attributes:
        active: a recorder of any thread; None where no thread records.
        scripts: of each thread that records a script, by its id: what is called in the place of a module's `forward`.
        writes: of each such thread, what is told of a tensor that is about to be written.
    """

    def __init__(self) -> None:
        self.active: Any = None
        self.scripts: dict[int, Callable[[Any], Any]] = {}
        self.writes: dict[int, Callable[[Any], None]] = {}
        self._of: dict[int, Any] = {}
        self._lock = Lock()

    @property
    def recorder(self) -> Any:
        """The recorder of the calling thread, if it is recording."""
        return None if self.active is None else self._of.get(get_ident())

    @recorder.setter
    def recorder(self, r: Any) -> None:
        with self._lock:
            if r is None:
                self._of.pop(get_ident(), None)
            else:
                self._of[get_ident()] = r
            self.active = r if r is not None else next(iter(self._of.values()), None)

    def in_place(self, forward: Any) -> Any:
        """What is called in the place of a module's `forward` now."""
        script = self.scripts.get(get_ident())
        return forward if script is None else script(forward)


tracing = _Tracing()
