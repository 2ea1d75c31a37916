"""What is asked of a program's memory (`Budget`), and what it then needs and computes again (`MemoryPlan`).

In: numbers of bytes. Out: records that `budget.py` fills in, caches keep and `trace.stats()` shows.
"""

from __future__ import annotations

from typing import Any

from tengen.base.record import record
from tengen.base.sizes import in_words


@record(frozen=True)
class Budget:
    """What a program may need.

    Attributes:
        bytes: at most; None: the least for which no more is computed again than a forward pass, about. least: where `bytes` is None, fewer
            than these are of no use. soft: where it cannot be met, the smallest program is taken instead of an error. offload: a folder, in
            whose files values may lie meanwhile.
    """

    bytes: int | None = None
    least: int = 0
    soft: bool = False
    offload: str | None = None


@record(frozen=True)
class Recomputed:
    """Values that one line of the user's computes, and the program computes again.

    Attributes:
        op: what computes them. where: the user's line. runs: how often they are computed again, in all. bytes: of one. flops: in all.
    """

    op: str
    where: str | None
    runs: int
    bytes: int
    flops: int


@record(frozen=True)
class MemoryPlan:
    """What a program with a budget needs, in bytes, and what it computes for that.

    Attributes:
        budget: what was asked for; None: the least memory at the cost of about a forward pass. arena, states, results, constants: what
            it needs. without: what it would need, about, if nothing was computed again. lower_bound: no plan for these kernels needs less.
        flops: operations of a run, counted from extents, without those of values that are computed again; recomputed_flops: those.
        recomputed: what is computed again, the most bytes first. written, read: bytes to and from files, in a run.
    """

    budget: int | None
    arena: int
    states: int
    results: int
    constants: int
    without: int
    lower_bound: int
    flops: int
    recomputed_flops: int
    recomputed: tuple[Recomputed, ...]
    written: int = 0
    read: int = 0

    @property
    def bytes(self) -> int:
        """The peak."""
        return self.arena + self.states + self.results + self.constants

    def __str__(self) -> str:
        share = self.recomputed_flops / max(self.flops, 1)
        runs = sum(r.runs for r in self.recomputed)
        return (
            f"{in_words(self.bytes)} (about {in_words(self.without)} without recomputing, at least {in_words(self.lower_bound)}); "
            f"{runs} values are computed again, {share:.1%} more operations"
            + (f"; {in_words(self.written)} are written to files, {in_words(self.read)} read" if self.written else "")
        )

    def to_data(self) -> dict[str, Any]:
        """It as plain data."""
        return {**vars(self), "recomputed": [list(vars(r).values()) for r in self.recomputed]}

    @staticmethod
    def of_data(data: dict[str, Any]) -> MemoryPlan:
        """That of `to_data`."""
        return MemoryPlan(**{**data, "recomputed": tuple(Recomputed(*r) for r in data["recomputed"])})
