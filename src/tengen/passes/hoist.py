"""Hoisting: launches that depend on constants alone leave the program, and run once, when it is loaded.

In: a lowering. Out: the same with fewer launches, and a second lowering whose results it reads: weights packed for the
contractions that use them, transformed filters. No bit changes, only the time at which something is computed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from tengen.ir.graph import Graph
from tengen.kernels.lowering import Lowering, product
from tengen.kernels.steps import If, Launch, Step, buffers, written
from tengen.loops.lang import as_int
from tengen.passes.lowered import Lowered

MOST_GROWTH = 9  # the results of a launch may be this many times as large as the constants that they are computed from: filters of
# integers, of which 9 bytes become 36 points of 2 bytes, and some more between points


def hoist(lo: Lowering, constants: Mapping[Hashable, int]) -> tuple[Lowering, list[Hashable]]:
    """Moves launches out of `lo`, which changes.

    Args:
        constants: buffers that are the same in every run, and their sizes in bytes.

    Returns: the lowering of the launches that were moved, and the buffers of it that `lo` now reads.
    """
    moved = _constant_launches(lo, constants)
    known = {id(step) for step in moved}
    setup = Lowering(lo.target, lo.ints)
    setup.steps = moved
    lo.steps = _without(lo.steps, known)
    read = set().union(*map(buffers, lo.steps))
    made = set().union(*map(written, setup.steps))
    setup.temps = {id: t for id, t in lo.temps.items() if id in made and id not in read}
    prepared = [id for id in lo.temps if id in made and id in read]
    return setup, prepared


def _without(steps: Sequence[Step], moved: set[int]) -> list[Step]:
    """The steps without those that were moved, also in branches."""
    some: list[Step] = []
    for step in steps:
        if isinstance(step, If):
            then, otherwise = (tuple(_without(block, moved)) for block in (step.then, step.otherwise))
            step = replace(step, then=then, otherwise=otherwise)
        if id(step) not in moved:
            some.append(step)
    return some


def _in_branches(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps that run at most once: those of the program, and those in its branches."""
    for step in steps:
        if isinstance(step, If):
            yield from _in_branches(step.then)
            yield from _in_branches(step.otherwise)
        else:
            yield step


def _constant_launches(lo: Lowering, constants: Mapping[Hashable, int]) -> list[Step]:
    """The launches to move: they read only constants and results of other launches to move, and what they write is a temporary
    that no other step writes. Launches in loops stay there; those in branches are moved, since what they compute harms nobody
    where the other branch is taken."""
    candidates = list(_in_branches(lo.steps))
    writers: dict[Hashable, list[int]] = {}
    for i, step in enumerate(candidates):
        for id in written(step):
            writers.setdefault(id, []).append(i)
    bytes_of = dict(constants)  # buffers that depend on constants alone -> bytes of the constants that they are computed from
    found: list[Step] = []
    for i, step in enumerate(candidates):
        outs = written(step)
        sources = [bytes_of.get(id) for id in step.ids if id not in outs] if isinstance(step, Launch) else []
        if not sources or None in sources or not all(id in lo.temps and writers[id] == [i] for id in outs):
            continue
        size = sum(s or 0 for s in sources)
        made = [(as_int(n), dtype.size) for dtype, n in (lo.temps[id] for id in outs)]
        if all(n is not None for n, _ in made) and sum(n * each for n, each in made) <= MOST_GROWTH * size:
            found.append(step)
            bytes_of.update(dict.fromkeys(outs, size))
    return found


def constant_sizes(graph: Graph) -> dict[Hashable, int]:
    """The buffers of a graph's constants, and their sizes in bytes."""
    types = {("const", c.name): c.value.type for c in graph.constants.values()}
    return {id: (as_int(product(t.shape)) or 0) * t.dtype.size for id, t in types.items()}


def hoisted(x: Lowered, target, sizes: Mapping[Hashable, int] | None = None) -> Lowered:
    """The same, whose launches that depend on constants alone are a set-up. That runs on this machine, whose target is given,
    whatever machine the others are for.

    Args:
        sizes: `x.constants` and their sizes in bytes; default: the constants of its graph.
    """
    if sizes is None:
        assert x.graph is not None
        sizes = constant_sizes(x.graph)
    lo = x.lo.copied()
    first, prepared = hoist(lo, sizes)
    read, needed = (set().union(*map(buffers, some.steps)) for some in (lo, first))
    constants = tuple(id for id in sizes if id in read)
    setup: Lowered | None = None
    if prepared:
        first.target = target
        output_bytes = tuple((as_int(n) or 0) * dtype.size for dtype, n in map(lo.temps.pop, prepared))
        given = tuple(id for id in sizes if id in needed)
        setup = Lowered(f"{x.name} (constants)", first, (*given, *prepared), (), x.device, constants=given, output_bytes=output_bytes)
        constants = (*constants, *prepared)
    inputs = (*x.inputs[: len(x.inputs) - len(x.constants)], *constants)
    return replace(x, lo=lo, inputs=inputs, constants=constants, setup=setup)
