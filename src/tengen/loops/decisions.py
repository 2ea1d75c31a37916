"""Who answers what the extents of a run decide, such as whether one is larger than another, while a kernel or a graph is written.

In: functions from a condition, an expression of `lang.py`, to its truth, for a block. Out: `decisions`, which `bool(expression)` and ops ask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tengen.loops.lang import Expr


class Decisions(threading.local):
    """Who answers in this thread, while a graph is recorded or a program is made, what the extents of a run decide.

    Attributes:
        decide: from a condition to its truth for the numbers of the call at hand, on which the recording or the program then
            depends; None: there are no such numbers, and who asks is told `Undecided`.
        equal: whether two extents are equal, asked by ops that need them to be, where the program is to depend on the answer;
            None: who asks is told `Undecided`, with the two extents, and a recorder takes it for granted.
    """

    decide: Callable[[Expr], bool] | None = None
    equal: Callable[[Expr], bool] | None = None

    @contextmanager
    def answered(self, decide: Callable[[Expr], bool] | None, equal: Callable[[Expr], bool] | None = None) -> Iterator[None]:
        """A block in which these answer."""
        before = self.decide, self.equal
        self.decide, self.equal = decide, equal
        try:
            yield
        finally:
            self.decide, self.equal = before


decisions = Decisions()
