"""Open extents of an artifact: the range of each, and what the program's integers and sizes are as functions of them.

In: a program with integer parameters, and a range for each. Out: one kernel that computes all numbers that a run needs from the
extents, where temporaries lie among them, so that an artifact computes them itself.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Mapping, Sequence

from tengen.base.dtype import int64
from tengen.base.errors import ConfigError, ShapeError
from tengen.base.record import record
from tengen.compiler.arena import Temporaries, meet
from tengen.compiler.program import Program
from tengen.ir.graph import Graph
from tengen.loops.builder import Builder, as_expr
from tengen.loops.extents import Numbers
from tengen.loops.lang import Expr, Index, as_int, const, maximum, var
from tengen.loops.statements import Kernel
from tengen.passes.extents import at_extents, open_extents

MOST_TRIED = 512  # sets of extents with which shapes are looked at before an artifact is compiled


def parse_range(text: str) -> int | range:
    """A number, or a range as ``1..64``, or ``32..512:32`` with steps. Errors: ConfigError.

    >>> parse_range("8"), parse_range("1..64"), parse_range("32..512:32")
    (8, range(1, 65), range(32, 513, 32))
    """
    m = re.fullmatch(r"(\d+)(?:\.\.(\d+)(?::(\d+))?)?", text, re.A)
    if m is None:
        raise ConfigError(f"{text!r} is neither a number nor a range; help: 8, 1..64, or 32..512:32")
    return int(m[1]) if m[2] is None else range(int(m[1]), int(m[2]) + 1, max(1, int(m[3] or 1)))


def as_ranges(graph: Graph, given: Mapping[str, int | range]) -> dict[str, range]:
    """The range of each open extent, in the program's order; a number is a range of one.

    Errors: ConfigError for other names than the graph's, and for a range that is empty, or has numbers below 1.
    """
    names = [str(e.attr) for e in open_extents(graph)]
    if set(names) != set(given):
        have = f"{graph.name} has the open extents {', '.join(names)}"
        raise ConfigError(f"{have}, it was given {', '.join(given)}; help: a number or a range for each")
    found = {}
    for name in names:
        r = given[name]
        r = range(r, r + 1) if isinstance(r, int) else r
        if not isinstance(r, range) or not r or r.step < 1 or r[0] < 1 or r[-1] >= 1 << 31:
            raise ConfigError(f"{name}={given[name]!r}: a number, or a range of numbers from 1 to 2^31 - 1, such as range(1, 65) or 1..64")
        found[name] = r
    return found


def check_shapes(graph: Graph, ranges: Mapping[str, range]) -> None:
    """ShapeError where shapes do not fit with extents of these ranges, or a value has no elements: with all of them, or, where these
    are many, with the ends of all ranges and others that are drawn, among which are all that one range has, if it has few."""
    for numbers in _tried(list(ranges.values())):
        given = dict(zip(ranges, numbers))
        try:
            closed = at_extents(graph, given)
        except ShapeError as e:
            raise ShapeError(f"{e}; help: a range of extents that fit, with a step (32..512:32) where only multiples do") from None
        if any(d == 0 for v in closed.values() for d in v.type.shape):
            said = ", ".join(f"{k} = {n}" for k, n in given.items())
            raise ShapeError(f"with {said} a value of {graph.name} has no elements; help: a range that begins higher")


def _tried(ranges: Sequence[range]) -> list[tuple[int, ...]]:
    """Numbers of these ranges, at most about `MOST_TRIED` sets of them."""
    count = 1
    for r in ranges:
        count *= len(r)
    if count <= MOST_TRIED:
        return list(itertools.product(*ranges))
    rng = random.Random(0)
    found = dict.fromkeys(itertools.islice(itertools.product(*((r[0], r[-1]) for r in ranges)), MOST_TRIED))
    each = MOST_TRIED // len(ranges)
    for i, r in enumerate(ranges):
        for n in r if len(r) <= each else rng.sample(r, each):
            found[tuple(n if j == i else rng.choice(other) for j, other in enumerate(ranges))] = None
    return list(found)


@record(frozen=True)
class Computed:
    """What an artifact computes from its open extents.

    Attributes:
        ranges: of the extents, in the order of the program's parameters. integers: what follows the parameters in the program's
            `ints`. arena: bytes of scratch memory.
    """

    ranges: dict[str, range]
    integers: tuple[Expr, ...]
    arena: Index

    @staticmethod
    def of(program: Program, ranges: Mapping[str, range]) -> Computed:
        """Where temporaries have sizes that are open, those that never hold something at the same time share a slot of the arena, as
        large as the largest of them."""
        offsets, arena = _slots(program.temps, Numbers({var(name): r[-1] for name, r in ranges.items()}))
        return Computed(dict(ranges), tuple(as_expr(offsets.get(e, e)) for e in program.derived), arena)

    def kernel(self, name: str, sizes: Sequence[Index]) -> Kernel:
        """A kernel that takes the extents, and stores the integers, then these sizes."""
        k = Builder(name)
        for e in self.ranges:
            k.int(e)
        out = k.output("numbers", int64)
        k.split(1)
        for i, e in enumerate([*self.integers, *sizes]):
            k.store(out, i, k.let(as_expr(e)))
        return k.build()

    def at(self, size: Index, numbers: Sequence[int]) -> int:
        """The value of a size for these extents."""
        return Numbers(dict(zip(map(var, self.ranges), numbers)))(size)

    @property
    def largest(self) -> tuple[int, ...]:
        """The largest number of each extent."""
        return tuple(r[-1] for r in self.ranges.values())


def _slots(temps: Temporaries, number: Numbers) -> tuple[dict[Index, Index], Index]:
    """(the offset of each temporary, by the variable that stands for it; bytes of the arena). The largest come first."""
    if temps.sizes_known:
        return {}, temps.place(temps.sizes)[1]
    slots: list[list[int]] = []
    for i in sorted(range(len(temps.ids)), key=lambda i: -number(temps.sizes[i])):
        free = [s for s in slots if not any(meet(temps.lives[i], temps.lives[j]) for j in s)]
        if free:
            free[-1].append(i)  # the slots are sorted too: the smallest
        else:
            slots.append([i])
    found: dict[Index, Index] = {}
    at: Index = const(0)
    for s in slots:
        size = as_expr(temps.sizes[s[0]])
        for i in s:
            found[temps.offsets()[i]] = at
            size = size if temps.sizes[i] is size else maximum(size, as_expr(temps.sizes[i]))
        at = at + size
    return found, at if (n := as_int(at)) is None else n
