"""The program cache: what passes, lowering and memory plan made of a graph, on disk beside the machine code.

In: a graph, and everything else that decides which program it becomes. Out: the same `Program` in a later process, which reads
its machine code and compiles nothing. An entry is JSON and names the object files of the cache; it is trusted, and limited in
number and size, like them. What passes have computed from constants (folding, set-ups) is not in it: the programs that did so
are in the cache too, and run when they are loaded, so that other weights need no other entry. Only small constants, whose
values become part of kernels, belong to the key.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from tengen.base.config import config
from tengen.base.device import Device, cpu
from tengen.base.digest import blake2b
from tengen.base.dtype import DType, dtype
from tengen.base.errors import TengenError
from tengen.base.version import VERSION
from tengen.compiler.arena import Temporaries
from tengen.compiler.program import Program, target_of
from tengen.compiler.schedules import parsed
from tengen.ir.graph import Graph, Value, map_attr
from tengen.ir.types import read_dim
from tengen.kernels.lowering import Array
from tengen.kernels.schedule import Schedules
from tengen.loops.lang import Expr, Index
from tengen.loops.parse import split_lines
from tengen.loops.text import print_expr
from tengen.ops.define import lookup
from tengen.runtime import cache

SMALL = 64  # elements: passes look at the values of no larger constant

# Floors whose code decides which program a graph becomes; and knobs that do not decide it, or are in the key in another form.
_DECIDE = ("base", "loops", "ir", "kernels", "ops", "passes", "codegen", "runtime", "compiler")
_MOOT = {"debug", "check", "threads", "quick_compile", "progress", "cache_dir", "cache_bytes", "cache", "target", "processor"}

Made = tuple[Program, list[Array]]  # a program, and the arrays of its outputs


Compute = Callable[[Made, list[np.ndarray]], list[np.ndarray]]  # runs a program of constants alone


# ---- the key ---------------------------------------------------------------------------------------------------------


def identity(
    graph: Graph,
    placed: Mapping[Value, Array] | None,
    names: Sequence[Expr],
    name: str,
    fold: bool,
    schedules: Schedules,
    device: Device = cpu,
) -> str | None:
    """The key of the program that a graph becomes: two graphs that may become different programs have different keys. None if
    the program is not to be cached: while passes are printed or checked, or if an op is defined outside of Tengen, where it may
    change although Tengen's version does not.

    Args: as those of `driver.compile_graph`.
    """
    if not config.cache or config.check or config.debug >= 2 or not all(_is_ours(op) for op in _ops(graph)):
        return None
    where = {} if placed is None else {v.name: (a.id, a.shape, a.strides, a.offset) for v, a in placed.items()}
    tuned = [schedules.threads, schedules.strict, *sorted((k, str(s)) for k, s in schedules.entries.items())]
    knobs = [(k, getattr(config, k)) for k in vars(config) if k not in _MOOT]
    facts = (name, fold, list(names), where, knobs, tuned, device, target_of(device), _facts(graph))
    digest = blake2b(repr(facts).encode(), digest_size=32).hexdigest()
    return f"tengen {VERSION} {_sources()} program {digest}"


@functools.cache
def _sources() -> str:
    """A digest of the code that makes programs of graphs: after a change of Tengen itself, older programs are not found."""
    h = blake2b(digest_size=16)
    from pathlib import Path

    root = Path(__file__).parent.parent
    for file in sorted(f for floor in _DECIDE for f in (root / floor).rglob("*.py")):
        h.update(file.read_bytes())
    return h.hexdigest()


def _ops(graph: Graph) -> set[str]:
    return {n.op for g in graph.graphs() for n in g.nodes} - {"fused"}


def _is_ours(name: str) -> bool:
    op = lookup(name)
    return all((getattr(f, "__module__", None) or "").startswith("tengen.") for f in (op.fn, *op.rules.of_programs()))


def _facts(graph: Graph) -> tuple:
    """Everything about a graph that decides its program, as plain data whose `repr` is complete. Values are numbered; the
    user's lines are left out."""
    number: dict[Value | None, int] = {None: -1}
    for v in graph.sources():
        number[v] = len(number)
    attribute = lambda a: _facts(a) if isinstance(a, Graph) else a
    nodes = []
    for n in graph.nodes:
        attrs = [(k, map_attr(a, attribute) if type(a) in (tuple, Graph) else a) for k, a in n.attrs.items()]
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
    """Stores the program of a graph, and the arrays of its outputs, under a key."""
    f = program.folded
    told = [(c.error, c.message, c.where) for c in graph.checks]
    entry: dict[str, Any] = {
        **_program(program),
        "arrays": list(map(_array, arrays)),
        "checks": [told.index((c.error, c.message, c.where)) for c in program.checks],
        "data": [id[1] for id in program.data],  # type: ignore[index]
        "setup": None if program.setup is None else _program(program.setup),
        "folded": f and {
            **_program(f.program), "arrays": list(map(_array, f.arrays)), "data": [id[1] for id in f.program.data],  # type: ignore[index]
            "names": f.names, "seen": _seen(f.values),
        },
    }  # fmt: skip
    import json

    cache.put(key, json.dumps(entry, separators=(",", ":")).encode(), cache.PROGRAMS)


def find(key: str, graph: Graph, compute: Compute, device: Device = cpu) -> Made | None:
    """The program that is stored under a key, with its machine code; None if there is none, or a part of it is gone.

    Args:
        graph, device: those that the key was made for. compute: runs a program that folds constants.
    """
    import json

    data = cache.get(key, cache.PROGRAMS)
    if data is None:
        return None
    try:
        return _read(json.loads(data), graph, compute, device)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, TengenError):
        return None  # an entry that cannot be read, of another version perhaps: the program is made and stored again


def _read(entry: dict, graph: Graph, compute: Compute, device: Device) -> Made | None:
    program = _parsed(entry, device)
    if program is None:
        return None
    known = {c.name: c.data for c in graph.constants.values()}
    if entry["folded"] is not None:
        f = entry["folded"]
        inner = _parsed(f, cpu)
        if inner is None:
            return None
        made = compute((inner, list(map(_read_array, f["arrays"]))), [known[name] for name in f["data"]])  # type: ignore[misc]
        if _seen(made) != f["seen"]:
            return None  # folding gave other small constants, from other weights, than those that are part of the kernels
        known.update(zip(f["names"], made))
    if entry["setup"] is not None:
        program.setup = _parsed(entry["setup"], device)
        if program.setup is None:
            return None
    program.data = {("const", name): known[name] for name in entry["data"]}  # type: ignore[misc]
    program.checks = [graph.checks[i] for i in entry["checks"]]
    return program, list(map(_read_array, entry["arrays"]))


def _seen(values: Sequence[np.ndarray]) -> str:
    return blake2b(repr([_value(a) for a in values]).encode(), digest_size=16).hexdigest()


def _program(p: Program) -> dict[str, Any]:
    temps = p.temps
    return {
        "name": p.name, "object": p.object, "buffers": [p.n_inputs, p.n_outputs], "params": list(map(_dim, p.params)),
        "derived": list(map(_dim, p.derived)), "kernels": p.kernels, "sizes": list(map(_dim, temps.sizes)),
        "lives": temps.lives, "placed": temps.place(temps.sizes) if temps.sizes_known else None,  # type: ignore[arg-type]
        "constants": p.constants, "output_bytes": p.output_bytes, "schedules": {k: str(s) for k, s in p.schedules.items()},
    }  # fmt: skip


def _parsed(e: dict[str, Any], device: Device) -> Program | None:
    """The program of an entry, without what belongs to its graph; None if its machine code is gone."""
    code = cache.get_named(e["object"])
    if code is None:
        return None
    sizes = tuple(map(_read_dim, e["sizes"]))
    lives = tuple(tuple((first, last) for first, last in life) for life in e["lives"])
    temps = Temporaries(tuple(range(len(sizes))), sizes, lives)
    if e["placed"] is not None:
        offsets, size = e["placed"]
        temps._placed[sizes] = tuple(offsets), size
    n_inputs, n_outputs = e["buffers"]
    params, derived = list(map(_read_dim, e["params"])), list(map(_read_dim, e["derived"]))
    return Program(
        e["name"], "", target_of(device), n_inputs, n_outputs, params, derived,  # type: ignore[arg-type]
        temps, e["kernels"], device, constants=list(map(_id, e["constants"])), output_bytes=e["output_bytes"],
        schedules=parsed(e["schedules"]), object=e["object"], code=code,
    )  # fmt: skip


def _array(a: Array) -> list:
    return [a.id, a.dtype.name, list(map(_dim, a.shape)), list(map(_dim, a.strides)), _dim(a.offset)]


def _read_array(e: list) -> Array:
    id, d, shape, strides, offset = e
    return Array(_id(id), _dtype(d), tuple(map(_read_dim, shape)), tuple(map(_read_dim, strides)), _read_dim(offset))


def _dtype(name: str) -> DType:
    return dtype(name)


def _id(e: Any) -> Hashable:
    return tuple(map(_id, e)) if isinstance(e, list) else e


def _dim(d: Index) -> int | str:
    return print_expr(d) if isinstance(d, Expr) else int(d)


def _read_dim(d: int | str) -> Index:
    return d if isinstance(d, int) else read_dim(split_lines(d)[0])
