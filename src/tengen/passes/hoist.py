"""Hoisting: launches that depend on constants alone leave the program and run once, when it is loaded.

In: a lowering. Out: the same with fewer launches, and a second lowering whose outputs it reads: weights packed for the
contractions that use them, transformed filters. Nothing here changes a bit, only when something is computed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from tengen.kernels.lowering import Lowering
from tengen.kernels.steps import Launch, buffers, written
from tengen.loops.lang import as_int

MOST_GROWTH = 5  # what a launch prepares may be this many times as large as the constants that it is made of


def hoist(lo: Lowering, constants: Mapping[Hashable, int]) -> tuple[Lowering, list[Hashable]]:
    """Moves launches out of `lo`, which changes.

    Args:
        constants: buffers that are the same in every run, and their bytes.

    Returns: the lowering of what was moved, and which of its buffers `lo` now reads instead of computing them.
    """
    moved = _known(lo, constants)
    setup = Lowering(lo.target, lo.ints)
    setup.steps = [step for i, step in enumerate(lo.steps) if i in moved]
    lo.steps = [step for i, step in enumerate(lo.steps) if i not in moved]
    read = set().union(*map(buffers, lo.steps))
    made = set().union(*map(written, setup.steps))
    setup.temps = {id: t for id, t in lo.temps.items() if id in made and id not in read}
    prepared = [id for id in lo.temps if id in made and id in read]
    return setup, prepared


def _known(lo: Lowering, constants: Mapping[Hashable, int]) -> set[int]:
    """The positions of the launches to move: what they read is known, what they write is a temporary of theirs alone. A launch
    in a loop or a branch stays there."""
    writers: dict[Hashable, list[int]] = {}
    for i, step in enumerate(lo.steps):
        for id in written(step):
            writers.setdefault(id, []).append(i)
    bytes_of = dict(constants)  # known buffers, and the bytes of the constants that they are made of
    found: set[int] = set()
    for i, step in enumerate(lo.steps):
        outs = written(step)
        sources = [bytes_of.get(id) for id in step.ids if id not in outs] if isinstance(step, Launch) else []
        if not sources or None in sources or not all(id in lo.temps and writers[id] == [i] for id in outs):
            continue
        size = sum(s or 0 for s in sources)
        made = [(as_int(n), dtype.size) for dtype, n in (lo.temps[id] for id in outs)]
        if all(n is not None for n, _ in made) and sum(n * each for n, each in made) <= MOST_GROWTH * size:  # type: ignore[operator]
            found.add(i)
            bytes_of.update(dict.fromkeys(outs, size))
    return found
