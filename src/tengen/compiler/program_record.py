"""Programs as plain data, and back: the one format of what is kept of a program, beside its machine code.

In: a `Program`, and the arrays of its outputs. Out: a record, whose JSON the caches on disk and the packs hold, and from it the
same program in a later process, which neither parses nor checks anything again: records are trusted as machine code is.

    index      = a number, or [i] for the i-th of the record's nodes
    node       = [op, attribute, dtype, index of an operand...], an expression, its operands before it; each once
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from tengen.base.device import Device
from tengen.base.dtype import dtype
from tengen.base.errors import TengenError
from tengen.codegen.targets import Target
from tengen.compiler.arena import Temporaries
from tengen.compiler.program import Program, target_of
from tengen.compiler.schedules import parsed
from tengen.kernels.lowering import Array
from tengen.loops.lang import Expr, Index, expr
from tengen.runtime import cache, tiers
from tengen.runtime.provenance import CACHE, PACK

UNREADABLE = (ValueError, KeyError, IndexError, TypeError, AttributeError, TengenError)  # what reading a strange record raises
Made = tuple[Program, Any]  # a program, and the arrays of its outputs, where somebody wants them


def to_bytes(entry: dict[str, Any]) -> bytes:
    """An entry of a cache as JSON."""
    import json  # here: it is slow to import

    return json.dumps(entry, separators=(",", ":")).encode()


def from_bytes(data: bytes) -> Any:
    """The entry of `to_bytes`. Errors: ValueError for other bytes."""
    import json

    return json.loads(data)


def record(p: Program, arrays: Sequence[Array] | None) -> dict[str, Any]:
    """A program and the arrays of its outputs as plain data, without its machine code and what belongs to its graph."""
    temps, nodes = p.temps, Nodes()
    index, indices = nodes.index, lambda some: [nodes.index(i) for i in some]
    return {
        "name": p.name, "object": p.object, "buffers": [p.n_inputs, p.n_outputs], "params": indices(p.params),
        "derived": indices(p.derived), "kernels": p.kernels, "sizes": indices(temps.sizes),
        "lives": temps.lives, "placed": temps.place(temps.sizes) if temps.sizes_known else None,
        "asks": p.asks, "constants": p.constants, "output_bytes": p.output_bytes, "schedules": {k: str(s) for k, s in p.schedules.items()},
        "asked": p.asked,
        "arrays": arrays and [[a.id, a.dtype.name, indices(a.shape), indices(a.strides), index(a.offset)] for a in arrays],
        "nodes": nodes.written,
    }  # fmt: skip


def program_of(e: dict[str, Any], device: Device, code: bytes | None = None, target: Target | None = None) -> Made | None:
    """The program of a record, and the arrays of its outputs; None if its machine code is gone, and its text with it.

    Args:
        code: its machine code, where that is not in the cache. target: what it was compiled for, where that is another than this
            process compiles for.
    """
    origin, text = CACHE if code is None else PACK, ""
    if code is None and (code := cache.get_named(e["object"])) is None and (text := tiers.text_of(e["object"])) == "":
        return None
    read = reader(e["nodes"])
    sizes = tuple(map(read, e["sizes"]))
    lives = tuple(tuple((first, last) for first, last in life) for life in e["lives"])
    temps = Temporaries(tuple(range(len(sizes))), sizes, lives)
    if e["placed"] is not None:
        offsets, size = e["placed"]
        temps._placed[sizes] = tuple(offsets), size
    n_inputs, n_outputs = e["buffers"]
    params, derived = list(map(read, e["params"])), list(map(read, e["derived"]))
    program = Program(
        e["name"], text, target or target_of(device), n_inputs, n_outputs, params, derived,
        temps, e["kernels"], device, constants=list(map(_id, e["constants"])), output_bytes=e["output_bytes"],
        schedules=parsed(e["schedules"]) if e["schedules"] else {}, asked=e["asked"], asks=e["asks"],
        object=e["object"], code=code, origin=origin,
    )  # fmt: skip
    arrays = e["arrays"] and [
        Array(_id(id), dtype(d), tuple(map(read, shape)), tuple(map(read, strides)), read(offset))
        for id, d, shape, strides, offset in e["arrays"]
    ]
    return program, arrays


class Nodes:
    """The expressions of a record. written: the nodes, in order."""

    def __init__(self) -> None:
        self.written: list[list] = []
        self._places: dict[Expr, int] = {}

    def index(self, i: Index) -> int | list[int]:
        """How an index is written; its nodes are appended to `written`."""
        if not isinstance(i, Expr):
            return int(i)
        stack = [i]
        while stack:
            e = stack[-1]
            todo = [a for a in e.args if a not in self._places]
            stack.extend(todo)
            if not todo:
                stack.pop()
                if e not in self._places:
                    if e.lanes != 1 or not isinstance(e.attr, (int, str, type(None))):
                        raise TengenError(f"{e!r} is no index")
                    self._places[e] = len(self.written)
                    self.written.append([e.op, e.attr, e.dtype.name, *(self._places[a] for a in e.args)])
        return [self._places[i]]


def reader(nodes: Sequence[list]) -> Callable[[Any], Index]:
    """What reads an index of a record with these nodes."""
    made: list[Expr] = []
    for op, attr, d, *args in nodes:
        made.append(expr(op, tuple([made[a] for a in args]), dtype(d), attr=attr))
    return lambda i: i if isinstance(i, int) else made[i[0]]


def _id(e: Any) -> Hashable:
    return tuple(map(_id, e)) if isinstance(e, list) else e
