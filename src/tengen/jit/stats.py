"""What a trace has recorded: `trace.stats()`.

In: recordings. Out: for each what it was specialised on, which extents are open, why and for which line it was made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tengen.base.record import record
from tengen.compiler.memory_plan import MemoryPlan
from tengen.jit.dynamic import parameter_of_each
from tengen.jit.parts import Parts, PartStats
from tengen.jit.recording import Recording

MOST_CHARACTERS = 80  # of a condition that is printed


@record(frozen=True)
class RecordingStats:
    """One recording of a traced function.

    Attributes:
        signature: the arguments that it is for: types of tensors, with names for open extents, and values of all others. cause:
            why it was made. where: the line of the call that it was made for. extents: name of an open extent -> its number in
            that call. programs: how many were compiled for it: one, and one for each set of numbers that has one of its own.
        conditions: on open extents, as Python code asked for them: the recording serves numbers that fulfil them.
        fixed: why extents that calls differed in are numbers here, or "". memory: what its program needs and computes again, where
            a budget was given.
    """

    signature: str
    cause: str
    where: str | None
    extents: dict[str, int]
    programs: int
    conditions: tuple[str, ...] = ()
    fixed: str = ""
    memory: MemoryPlan | None = None

    def __str__(self) -> str:
        at = "" if self.where is None else f" at {self.where}"
        more = f"; {self.programs} programs" if self.programs > 1 else ""
        short = (c if len(c) < MOST_CHARACTERS else f"{c[:MOST_CHARACTERS]}..." for c in self.conditions)
        more = (f"; if {' and '.join(short)}" if self.conditions else "") + more
        more += f"; not open: {self.fixed}" if self.fixed else ""
        return f"({self.signature}): {self.cause}{at}{more}" + ("" if self.memory is None else f"; memory: {self.memory}")


class TraceStats(tuple[RecordingStats, ...]):
    """The recordings that a trace keeps, in the order of their signatures.

    Attributes:
        name: of the traced function. programs: how many programs were compiled for them. parts: of a function that asks for values,
            in the order in which they were met. cuts: the lines that asked -> how often they did.
    """

    name: str
    parts: tuple[PartStats, ...] = ()
    cuts: Mapping[str, int] = {}
    effects: tuple[str, ...] = ()

    @property
    def programs(self) -> int:
        return sum(r.programs for r in self)

    def __repr__(self) -> str:
        count = lambda n, what: f"{n} {what}{'' if n == 1 else 's'}"
        first = f"{self.name}: {count(len(self), 'recording')}, {count(self.programs, 'program')}"
        if self.parts:
            first += f", {count(len(self.parts), 'part')} with {count(sum(p.programs for p in self.parts), 'program')}"
        asked = (f"asks for values at {where}: {count(n, 'time')}" for where, n in self.cuts.items())
        done = (f"does at {where} what its program would not repeat" for where in self.effects)
        return "\n  ".join([first, *map(str, self), *map(str, self.parts), *asked, *done])


def stats_of(name: str, parameters: Sequence[str], recordings: Sequence[Recording], parts: Parts) -> TraceStats:
    """What these recordings of a function, and its parts, are."""
    made = TraceStats(
        RecordingStats(
            signature(r.key, parameters), r.cause, r.where, dict(r.numbers), 0 if r.run is None else r.run.programs,
            r.told_conditions(), r.fixed,
            None if r.run is None or r.run.program is None else r.run.program.memory,
        )
        for r in recordings
    )
    made.name, made.parts, made.cuts = name, parts.stats(), {str(where): n for where, n in parts.cuts.items()}
    made.effects = tuple(parts.effects)
    return made


def signature(key: Any, parameters: Sequence[str]) -> str:
    """The arguments of a signature in words."""
    structure, types, casts, _ = key
    left = iter(types)
    each = ", ".join(f"{name}: {_said(k, left)}" for name, k in parameter_of_each(structure, parameters))
    return f"{each} under autocast" if casts else each


def _said(k: Any, types: Iterator) -> str:
    match k[0]:
        case "T": return repr(next(types))  # fmt: skip
        case "V": return repr(k[2])  # fmt: skip
        case "O": return f"a {type(k[1].object).__name__}"  # fmt: skip
        case "N": return f"{k[1].__name__}({', '.join(_said(v, types) for v in k[2])})"  # fmt: skip
        case "D": return f"{k[1].__name__}({', '.join(f'{n}={_said(v, types)}' for n, v in k[2])})"  # fmt: skip
        case "dict": return f"{{{', '.join(f'{name!r}: {_said(v, types)}' for name, v in k[1])}}}"  # fmt: skip
    inside = ", ".join(_said(v, types) for v in k[1])
    return f"[{inside}]" if k[0] == "list" else f"({inside})"
