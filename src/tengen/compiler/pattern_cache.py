"""The programs of patterns of eager calls: from the pack that comes with Tengen, from this user's cache, or made now.

In: a pattern, which is everything that decides the program but the environment (`runtime/environment.py`), and a function that
makes the program for a target. Out: the program. What was found is neither lowered nor emitted, and needs nothing that only
lowering needs. The records are those of the programs of graphs (`program_record.py`); in a pack the machine code follows the
record, in the cache it lies in a file of its own.

A pattern may have no program, since a decision in its op needs numbers: that is stored as well. Where the decision is a condition on
its symbols, that is what is stored, and each answer makes a pattern of its own (`Pattern.answers`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any

import numpy as np

from tengen.base.config import config
from tengen.base.device import Device
from tengen.base.dtype import dtype
from tengen.base.errors import ShapeError, Undecided
from tengen.base.record import record
from tengen.codegen.targets import Target
from tengen.compiler import program_cache
from tengen.compiler.program import Program, target_of
from tengen.compiler.program_record import UNREADABLE, Made, Nodes, from_bytes, program_of, reader, to_bytes
from tengen.compiler.program_record import record as recorded
from tengen.compiler.schedules import tuned_schedules
from tengen.ir.graph import Graph, map_attr
from tengen.kernels.lowering import Array
from tengen.loops.decisions import decisions
from tengen.loops.lang import Expr
from tengen.ops.define import Op, lookup
from tengen.runtime import cache, pack, tiers
from tengen.runtime.environment import environment, knobs

MOST_CONSTANT_BYTES = 4096  # of a program's constants, which are part of its record; with more it is made in each process

Make = Callable[[Target], Made]


@record(frozen=True, eq=False)
class Pattern:
    """A pattern of eager calls.

    Attributes:
        op, attrs: what is computed. how: what else decides it: which operand the result goes over, how it is stored.
        arrays: of the operands. orders: of the axes of the results. symbols: how many numbers a call fills in.
        alone: whether it stands for the numbers of one call, since its op or its user wanted that.
        extents: those symbols that stand for extents, which are at least 2.
        answers: conditions on the symbols that the op has asked for, in order, and their truth for all numbers of the pattern.
    """

    op: Op
    attrs: dict[str, Any]
    how: Any
    arrays: Sequence[Array | None]
    orders: Sequence[Any]
    symbols: int
    alone: bool = False
    extents: frozenset[Expr] = frozenset()
    answers: tuple[tuple[Expr, bool], ...] = ()

    def answering(self, make: Make) -> Make:
        """The function that makes the program: who asks in it for a condition on the symbols gets the pattern's answer. Where it has
        none, `Undecided` says what was asked. Only conditions that several numbers meet are asked for: one number is told by a
        pattern of its own."""
        known = dict(self.answers)

        def decide(condition: Expr) -> bool:
            truth = known.get(condition, _always(condition, self.extents))
            if truth is not None:
                return truth
            what = f"the condition {condition!r} has no value while a program is made for all numbers"
            raise Undecided(what, asked=None if _one_number(condition) else condition)

        def answered(target: Target) -> Made:
            with decisions.answered(decide, decide) if self.symbols else decisions.answered(None):
                return make(target)

        return answered

    def facts(self) -> str | None:
        """Everything that decides the program but the environment. None where a text cannot say it: for an op that is defined
        outside of Tengen, also inside of a body."""
        bodies: list[Graph] = []

        def told(a: Any) -> Any:
            if not isinstance(a, Graph):
                return a
            from tengen.ir.text import print_graph

            bodies.append(a)
            return print_graph(a), [None if c.data is None else c.data.tobytes() for g in a.graphs() for c in g.constants.values()]

        attrs = {k: map_attr(a, told) for k, a in self.attrs.items()}
        ops = {n.op for body in bodies for g in body.graphs() for n in g.nodes}
        if not all(map(program_cache.is_ours, (self.op, *map(lookup, sorted(ops))))):
            return None
        arrays = [None if a is None else (a.id, a.dtype, a.shape, a.strides, a.offset) for a in self.arrays]
        return repr((self.op.name, self.op.kind, attrs, self.how, arrays, self.orders, self.symbols, self.answers))


def _always(condition: Expr, extents: frozenset[Expr]) -> bool | None:
    """The truth of a condition that is the same for all numbers of at least 2 that `extents` may be; None: it depends."""
    if condition.op == "const":
        return bool(condition.attr)
    if condition.op not in ("eq", "ne", "lt", "ge", "gt", "le"):
        return None
    (low, high), (other_low, other_high) = (_range(a, extents) for a in condition.args)
    asked = {"ge": "lt", "le": "gt", "ne": "eq"}.get(condition.op, condition.op)
    above, below = low > other_high, high < other_low  # for all numbers
    yes, no = {"eq": (False, above or below), "lt": (below, low >= other_high), "gt": (above, high <= other_low)}[asked]
    return None if not (yes or no) else yes == (asked == condition.op)


def _range(e: Expr, extents: frozenset[Expr]) -> tuple[float, float]:
    """The least and the greatest value of an index, as far as sums of extents and constants say."""
    if e.op == "const":
        return e.attr, e.attr
    if e in extents:
        return LEAST, inf
    if e.op in ("add", "sub", "neg"):
        some = [_range(a, extents) for a in e.args]
        if e.op == "add":
            return some[0][0] + some[1][0], some[0][1] + some[1][1]
        first = (0, 0) if e.op == "neg" else some[0]
        return first[0] - some[-1][1], first[1] - some[-1][0]
    return -inf, inf


LEAST = 2  # of an extent with a name: 0 and 1 are calculated otherwise (broadcasting, `squeeze`, no elements)


def _one_number(condition: Expr) -> bool:
    """Whether a condition says that a symbol is one number, or is not."""
    return condition.op in ("eq", "ne") and {a.op for a in condition.args} == {"const", "var"}


Seen = Callable[[Pattern, Make], None]
_watchers: list[Seen] = []


@contextlib.contextmanager
def watching(seen: Seen) -> Iterator[None]:
    """Calls `seen(pattern, make)` whenever this process needs the program of another pattern, inside of the block."""
    _watchers.append(seen)
    try:
        yield
    finally:
        _watchers.remove(seen)


class NotThere(Exception):
    """Raised in a block of `as_found` where the program of a pattern would have to be made."""


_here = threading.local()


@contextlib.contextmanager
def as_found() -> Iterator[None]:
    """In the block, this thread makes no programs and compiles none: it takes those that the pack or the cache has. Errors: NotThere, and
    Postponed, at the first that they lack."""
    before = making()
    _here.makes = False
    try:
        with tiers.postponing():
            yield
    finally:
        _here.makes = before


def making() -> bool:
    """Whether this thread makes programs that are not there."""
    return getattr(_here, "makes", True)


def packed(pattern: Pattern, device: Device, make: Make) -> Made | None:
    """The program of a pattern, if the pack that this process uses has it. Arguments and errors: as those of `ready`; nothing is made."""
    target = target_of(device)
    if not program_cache.in_use() or pack.current(target) is None or (facts := pattern.facts()) is None:
        return None
    there = pack.find(pack.key(facts), target)
    if there is None:
        return None
    for seen in _watchers:
        seen(pattern, make)
    found = made_of(there[0], device, there[1])
    return None if found is None or tuned_schedules(target).concern(found[0].asked) else found


def ready(pattern: Pattern, device: Device, make: Make) -> Made:
    """The program of a pattern. It is kept for later processes where it is made now.

    Args:
        make: makes it for a target.

    Errors: what `make` raises: Undecided or ShapeError where it cannot be made without numbers.
    """
    found = packed(pattern, device, make)
    if found is not None:
        return found
    for seen in _watchers:
        seen(pattern, make)
    target = target_of(device)
    facts = pattern.facts() if program_cache.in_use() else None
    if facts is None and making():
        return make(target)
    if facts is None:
        raise NotThere(pattern.op.name)
    schedules = tuned_schedules(target)
    by_rule = f"{environment(target, knobs())} eager {device} {facts}"
    tuned = program_cache.tuned(by_rule, schedules)
    for key in (by_rule, tuned) if schedules.entries else (by_rule,):
        kept = cache.get(key, cache.PROGRAMS)
        found = None if kept is None else made_of(kept, device)
        if found is not None and (key is tuned or not schedules.concern(found[0].asked)):
            return found
    if not making():
        raise NotThere(pattern.op.name)
    try:
        made = make(target)
    except (Undecided, ShapeError) as e:
        if pattern.symbols:  # else the call is wrong; a program with parameters takes the rule's schedules
            cache.put(by_rule, to_bytes(undecided(e)), cache.PROGRAMS)
        raise
    if config.cache and (entry := entry_of(*made)) is not None:
        cache.put(tuned if schedules.concern(made[0].asked) else by_rule, to_bytes(entry), cache.PROGRAMS)
    return made


def undecided(e: Undecided | ShapeError) -> dict[str, Any]:
    """What is stored of a pattern that has no program, because of an error that numbers may answer."""
    nodes, asked = Nodes(), getattr(e, "asked", None)
    return {"undecided": [isinstance(e, ShapeError), str(e), asked if asked is None else nodes.index(asked), nodes.written]}


def entry_of(program: Program, arrays: Sequence[Array] | None) -> dict[str, Any] | None:
    """What is stored of a program and the arrays of its outputs; None where it cannot be."""
    values = {id[1]: a for id, a in program.data.items()}
    if program.setup is not None or program.checks or sum(a.nbytes for a in values.values()) > MOST_CONSTANT_BYTES:
        return None
    return {
        **recorded(program, arrays),
        "values": [[name, dtype(a.dtype).name, list(a.shape), np.ascontiguousarray(a).tobytes().hex()] for name, a in values.items()],
    }


def packed_entry(entry: dict[str, Any], code: bytes) -> bytes:
    """An entry of a pack: the record's bytes, the record, the machine code."""
    head = to_bytes({**entry, "object": ""} if "object" in entry else entry)
    return len(head).to_bytes(4, "little") + head + code


def made_of(data: bytes, device: Device, target: Target | None = None) -> Made | None:
    """What an entry says; None for one that cannot be read, or whose machine code is gone.

    Args:
        target: what a `packed_entry` was compiled for; None: the entry is one of the cache.

    Errors: Undecided or ShapeError where the entry says so.
    """
    try:
        code = None
        if target is not None:
            n = 4 + int.from_bytes(data[:4], "little")
            data, code = data[4:n], data[n:]
        entry = from_bytes(data)
        why = entry.get("undecided")
        if why is None:
            return _read(entry, device, code, target)
        of_shapes, text, asked, nodes = why
        condition = asked if asked is None else reader(nodes)(asked)
    except UNREADABLE:
        return None
    raise ShapeError(text) if of_shapes else Undecided(text, asked=condition)


def _read(entry: dict[str, Any], device: Device, code: bytes | None, target: Target | None) -> Made | None:
    found = program_of(entry, device, code, target)
    if found is not None:
        for name, d, shape, data in entry["values"]:
            found[0].data["const", name] = np.frombuffer(bytes.fromhex(data), dtype(d).numpy).reshape(shape)
    return found
