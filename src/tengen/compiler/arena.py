"""Where the temporaries of a program lie: offsets in one arena, by lifetime and best fit.

In: a lowering's temporaries with their sizes and the steps that use them. Out: their offsets and the arena's bytes. Sizes
may depend on the program's parameters; they are then placed when a plan is made, for the numbers of that plan: nothing is
compiled for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field

import numpy as np

from tengen.base.record import record
from tengen.kernels.lowering import Lowering
from tengen.kernels.steps import Interval, lifetimes
from tengen.loops.lang import Index, as_int, var

ALIGN = 64  # bytes; temporaries start on a cache line


@record(frozen=True)
class Temporaries:
    """The temporaries that some launch uses, in order of first use.

    Attributes:
        ids: their buffers. sizes: in bytes, multiples of `ALIGN`; numbers, or expressions over the program's parameters.
        lives: the intervals in which each holds something (`steps.lifetimes`).
    """

    ids: tuple[Hashable, ...] = ()
    sizes: tuple[Index, ...] = ()
    lives: tuple[tuple[Interval, ...], ...] = ()
    _placed: dict = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def of(lo: Lowering) -> Temporaries:
        """The temporaries of a lowering."""
        lives = lifetimes(lo.steps, lo.temps)
        sizes = [(n * dt.size + (ALIGN - 1)) // ALIGN * ALIGN for dt, n in (lo.temps[id] for id in lives)]
        numbers = tuple(s if (n := as_int(s)) is None else n for s in sizes)
        return Temporaries(tuple(lives), numbers, tuple(lives.values()))

    @property
    def sizes_known(self) -> bool:
        """Whether all sizes are numbers."""
        return all(isinstance(s, int) for s in self.sizes)

    def offsets(self) -> list[Index]:
        """The offset of each: a number, or the variable that stands for it in a program."""
        if self.sizes_known:
            return list(self.place(self.sizes)[0])
        return [var(f"offset.{i}") for i in range(len(self.ids))]

    def place(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """(offset in bytes of each, bytes of the arena) for these sizes. Temporaries are placed one after another, each in the
        smallest gap that it fits, among those that are alive at the same time (best fit). That is done in two orders, the
        largest first and by first use, and the smaller arena is taken."""
        key = tuple(sizes)
        if key not in self._placed:
            if len(self._placed) > 256:
                self._placed.clear()
            every = range(len(key))
            orders = sorted(every, key=lambda i: -key[i]), sorted(every, key=lambda i: self.lives[i][0][0])
            self._placed[key] = min((_place(key, self.lives, order) for order in orders), key=lambda p: p[1])
        return self._placed[key]


def meet(a: Sequence[Interval], b: Sequence[Interval]) -> bool:
    """Whether two temporaries hold something at the same time."""
    return any(f <= last and first <= l for f, l in a for first, last in b)


def _place(sizes: Sequence[int], lives: Sequence[Sequence[Interval]], order: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """(offsets, bytes of the arena) if temporaries are placed in this order, by best fit."""
    count = len(sizes)
    firsts, lasts = (np.array([life[end][side] for life in lives], np.int64) for end, side in ((0, 0), (-1, 1)))
    single = np.array([len(life) == 1 for life in lives], bool)
    starts, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
    placed = np.zeros(count, bool)
    for i in order:
        size, life = max(sizes[i], ALIGN), lives[i]
        near = np.flatnonzero(placed & (firsts <= lasts[i]) & (firsts[i] <= lasts))  # alive at the same time, by their ends
        if not (single[i] and single[near].all()):
            near = near[[bool(single[i] and single[j]) or meet(life, lives[j]) for j in near.tolist()]]
        by_place = near[np.lexsort((ends[near], starts[near]))]
        best, best_gap, at = None, None, 0
        for o, e in zip(starts[by_place].tolist(), ends[by_place].tolist()):
            if o - at >= size and (best_gap is None or o - at < best_gap):
                best, best_gap = at, o - at
            if e > at:
                at = e
        starts[i] = at if best is None else best
        ends[i] = starts[i] + size
        placed[i] = True
    return tuple(starts.tolist()), int(ends.max(initial=0))
