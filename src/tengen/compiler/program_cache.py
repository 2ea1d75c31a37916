"""The program cache: what passes, lowering and memory plan made of a graph, on disk beside the machine code. Programs
of eager calls are found by other keys: `pattern_cache.py`.

In: a graph, and everything else that decides which program it becomes. Out: the same `Program` in a later process, which reads
its machine code and compiles nothing. An entry is JSON and names the object files of the cache; it is trusted, and limited in
number and size, like them. What passes have computed from constants (folding, set-ups) is not in it: the programs that did so
are in the cache too, and run when they are loaded, so that other weights need no other entry. Only small constants, whose
values become part of kernels, belong to the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tengen.base.config import config
from tengen.base.device import Device, cpu
from tengen.base.digest import blake2b
from tengen.compiler.memory_plan import Budget, MemoryPlan
from tengen.compiler.program import Program, target_of
from tengen.compiler.program_record import UNREADABLE, Made, from_bytes, program_of, record, to_bytes
from tengen.ir.graph import Graph, UnreadGraph, Value, map_attr
from tengen.kernels.lowering import Array
from tengen.kernels.schedule import Schedules
from tengen.loops.lang import Expr
from tengen.ops.define import Op, lookup
from tengen.runtime import cache, environment

SMALL = 64  # elements: passes look at the values of no larger constant

Compute = Callable[[Made, list[np.ndarray]], list[np.ndarray]]  # runs a program of constants alone


# ---- the key ---------------------------------------------------------------------------------------------------------


def identity(
    graph: Graph,
    placed: Mapping[Value, Array] | None,
    names: Sequence[Expr],
    name: str,
    fold: bool,
    device: Device = cpu,
    budget: Budget | None = None,
) -> str | None:
    """The key of the program that a graph becomes by the rule's schedules: two graphs that may become different programs have different
    keys. None if
    the program is not to be cached: while passes are printed or checked, or if an op is defined outside of the sources
    whose digest is in the key (`environment.FLOORS`), where it may change although that does not.

    Args: as those of `driver.compile_graph`.
    """
    known = digest_of(graph)
    if known is None:
        return None
    where = {} if placed is None else {v.name: (a.id, a.shape, a.strides, a.offset) for v, a in placed.items()}
    facts = (name, fold, list(names), where, device, known, *([] if budget is None else [repr(budget)]))
    digest = blake2b(repr(facts).encode(), digest_size=32).hexdigest()
    return f"{environment.environment(target_of(device), environment.knobs())} program {digest}"


def digest_of(graph: Graph) -> str | None:
    """A digest of everything about a graph that decides its program; None where `identity` has no key for it."""
    if not config.cache or not in_use():
        return None
    if isinstance(graph, UnreadGraph) and (known := graph.digest) is not None:
        return known
    if not all(is_ours(lookup(name)) for name in _ops(graph)):
        return None
    return blake2b(repr(_facts(graph)).encode(), digest_size=32).hexdigest()


def tuned(by_rule: str, schedules: Schedules) -> str:
    """The key of a program with tuned schedules, from its key by the rule's."""
    return f"{by_rule} tuned {blake2b(repr(schedules.told()).encode(), digest_size=32).hexdigest()}"


def in_use() -> bool:
    """Whether programs may be read back at all: not while passes are printed or checked, nor where nobody can read the sources that
    decide what they are."""
    return not config.check and config.debug < 2 and bool(environment.sources())


def _ops(graph: Graph) -> set[str]:
    return {n.op for g in graph.graphs() for n in g.nodes} - {"fused"}


def is_ours(op: Op) -> bool:
    """Whether sources whose digest is in the key say what the op means: its function, and every rule that decides a program."""
    while op.name.endswith((".vjp", ".complex")):  # the gradient of a composite's body, and an op's rule for complex numbers
        op = lookup(op.name.rpartition(".")[0])
    return all(environment.covers(getattr(f, "__module__", None)) for f in (op.fn, *op.rules.of_programs()))


def _facts(graph: Graph) -> tuple:
    """Everything about a graph that decides its program, as plain data whose `repr` is complete. Values are numbered; the
    user's lines are left out."""
    number: dict[Value | None, int] = {None: -1}
    for v in graph.sources():
        number[v] = len(number)
    attribute = lambda a: _facts(a) if isinstance(a, Graph) else a
    nodes = []
    for n in graph.nodes:
        attrs = [(k, map_attr(a, attribute) if isinstance(a, (tuple, Graph)) else a) for k, a in n.attrs.items()]
        nodes.append((n.op, [number[v] for v in n.inputs], attrs, [v.type for v in n.outputs]))
        for v in n.outputs:
            number[v] = len(number)
    return (
        [(v.name, v.type) for v in graph.inputs],
        [(c.name, c.value.type, _value(c.data)) for c in graph.constants.values()],
        [(s.name, s.read.type, number[s.written]) for s in graph.states.values()],
        nodes,
        [number[v] for v in graph.outputs],
        [(number[c.bad], c.error, c.message) for c in graph.checks],
    )


def _value(data: np.ndarray | None) -> bytes | bool:
    """What passes may look at of a constant: its values if it is small, else whether it has data."""
    return data is not None if data is None or data.size > SMALL else data.tobytes()


# ---- to disk and back ------------------------------------------------------------------------------------------------


def keep(key: str, graph: Graph, program: Program, arrays: list[Array]) -> None:
    """Stores the program of a graph, and the arrays of its outputs, under a key. Not stored is a program whose constants cannot be
    told apart for another graph with this key: two bodies that have one array may have two there."""
    f = program.folded
    inner = _inner_places(graph, program, () if f is None else f.names)
    if inner is None:
        return
    told = [(c.error, c.message, c.where) for c in graph.checks]
    entry: dict[str, Any] = {
        **record(program, arrays),
        "checks": [told.index((c.error, c.message, c.where)) for c in program.checks],
        "data": [id[1] for id in program.data],
        "inner": inner,
        "memory": program.memory and program.memory.to_data(),
        "setup": None if program.setup is None else record(program.setup, None),
        "folded": f and {
            **record(f.program, f.arrays), "data": [id[1] for id in f.program.data],
            "names": f.names, "seen": _seen(f.values),
        },
    }  # fmt: skip
    cache.put(key, to_bytes(entry), cache.PROGRAMS)


def find(key: str, graph: Graph, compute: Compute, device: Device = cpu) -> Made | None:
    """The program that is stored under a key, with its machine code; None if there is none, or a part of it is gone.

    Args:
        graph, device: those that the key was made for. compute: runs a program that folds constants.
    """
    data = cache.get(key, cache.PROGRAMS)
    if data is None:
        return None
    try:
        return _read(from_bytes(data), graph, compute, device)
    except UNREADABLE:
        return None  # an entry that cannot be read, of another version perhaps: the program is made and stored again


def _read(entry: dict, graph: Graph, compute: Compute, device: Device) -> Made | None:
    found = program_of(entry, device)
    if found is None:
        return None
    program, arrays = found
    known = {c.name: c.data for c in graph.constants.values()}
    if entry["folded"] is not None:
        f = entry["folded"]
        inner = program_of(f, cpu)
        if inner is None:
            return None
        made = compute(inner, [known[name] for name in f["data"]])
        if _seen(made) != f["seen"]:
            return None  # folding gave other small constants, from other weights, than those that are part of the kernels
        known.update(zip(f["names"], made))
    if entry["inner"]:
        data = _inner_data(graph)
        known.update((name, data[i]) for name, i in entry["inner"].items())
    if entry["setup"] is not None:
        setup = program_of(entry["setup"], device)
        if setup is None:
            return None
        program.setup = setup[0]
    program.data = {("const", name): known[name] for name in entry["data"]}
    if entry.get("memory") is not None:
        program.memory = MemoryPlan.of_data(entry["memory"])
    program.checks = [graph.checks[i] for i in entry["checks"]]
    return program, arrays


def _inner_data(graph: Graph) -> list[np.ndarray | None]:
    """The constants of the bodies of loops and branches, in the order of `_facts`."""
    return [c.data for g in graph.graphs() if g is not graph for c in g.constants.values()]


def _inner_places(graph: Graph, program: Program, folded: Sequence[str | None]) -> dict[str, int] | None:
    """The program's constants that passes took out of bodies, under names of their own: the place of each in `_inner_data`. None if one
    has no place, or more than one, or is a constant of the graph as well."""
    names = [id[1] for id in program.data if id[1] not in graph.constants and id[1] not in folded]
    if not names:
        return {}
    places: dict[int, list[int]] = {id(c.data): [-1] for c in graph.constants.values()}
    for i, a in enumerate(_inner_data(graph)):
        places.setdefault(id(a), []).append(i)
    found = {name: places.get(id(program.data["const", name]), []) for name in names}
    return {name: at[0] for name, at in found.items()} if all(len(at) == 1 and at[0] >= 0 for at in found.values()) else None


def _seen(values: Sequence[np.ndarray]) -> str:
    return blake2b(repr([_value(a) for a in values]).encode(), digest_size=16).hexdigest()
