"""What edits of graphs ask of ops: attributes from what a user gives, types again, and the nodes of a function's calls.

In: names of ops, types, functions of tensors. Out: attributes in canonical form, types, graphs; a VerifyError, whatever the reason.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tengen.base.errors import TengenError, VerifyError
from tengen.ir.graph import Graph as Plain
from tengen.ir.graph import Value, map_attr
from tengen.ir.types import Dim, TensorType
from tengen.ir.verify import describe
from tengen.loops.lang import Expr, const, substitute, var
from tengen.ops.calls import signature_of
from tengen.ops.define import lookup
from tengen.passes.extents import check_symbols
from tengen.tensor import Tensor
from tengen.tensor.recorder import Recorder, traced
from tengen.tensor.structure import flatten


def as_plain(g: Plain) -> Plain:
    """A copy without the edits, as passes take it."""
    made = Plain.copy(g)
    for n in made.nodes:
        for k, a in n.attrs.items():
            n.attrs[k] = map_attr(a, lambda x: as_plain(x) if isinstance(x, Plain) else x)
    return made


def recorded(function: Callable[..., Any], types: Sequence[TensorType], states: bool = False) -> Plain:
    """The graph of a function's calls for operands of these types; tensors that it reads besides are constants, or states."""
    recorder = Recorder("piece", constants=not states)
    with recorder:
        stand_ins = [traced(recorder.graph.add_input(f"x{i}", t)) for i, t in enumerate(types)]
        results: list[Tensor] = []
        flatten(function(*stand_ins), results)
        if not results:
            raise VerifyError("the function returned no tensor")
        return recorder.finish([(f"y{i}", t) for i, t in enumerate(results)])


def derive(op: str, types: list[TensorType | None], attrs: dict[str, Any]) -> tuple[dict[str, Any], Sequence[TensorType]]:
    """The attributes in canonical form and the types of the results; VerifyError, whatever the reason."""
    try:
        known = lookup(op)
        attributes = known.canonical(types, tuple(attrs.values()))
        return attributes, known.infer_types(types, attributes)
    except TengenError as e:
        raise VerifyError(str(e)) from e


def attributes_of(g: Plain, op: str, given: Mapping[str, Any], now: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All attributes of a node in the order of its op's: those given, else those it has now, else the defaults of a call. Nodes may hold
    them under other names than calls (`axes` for `axis`); both are taken."""
    try:
        known = lookup(op) if isinstance(op, str) else None
    except TengenError:
        known = None
    if known is None:
        raise VerifyError(f"graph {g.name}: no op is named {op!r}; help: names of ops are those that print(graph) shows")
    if known.rules.infer is None:
        raise VerifyError(f"graph {g.name}: {op} is computed by other ops; help: graph.apply(functional.{op}, value)")
    defaults = {p.name: p.default for p in signature_of(known.fn)}
    names = dict(zip(now or {}, known.attrs))
    chosen = {names.get(k, k): a for k, a in given.items()}
    if odd := chosen.keys() - {*known.attrs}:
        raise VerifyError(f"graph {g.name}: {op} has no attribute {min(odd)!r}, only {known.attrs}")
    have = dict(zip(known.attrs, (now or {}).values()))
    whole = {k: chosen[k] if k in chosen else have[k] if k in have else defaults[k] for k in known.attrs}
    if lacking := [k for k, a in whole.items() if a is inspect.Parameter.empty]:
        raise VerifyError(f"graph {g.name}: {op} needs the attribute {lacking[0]!r}")
    try:
        return dict(zip(known.attrs, known.plain(list(whole.values()))))
    except TengenError as e:
        raise VerifyError(f"graph {g.name}: {op}: {e}") from e


def as_extent(d: Any) -> Dim:
    """An extent: a number, an expression, or the name of an open one."""
    if isinstance(d, str):
        return var(d)
    if isinstance(d, Expr) or (isinstance(d, (int, np.integer)) and not isinstance(d, bool)):
        return d if isinstance(d, Expr) else int(d)
    raise VerifyError(f"an extent is an int, or the name of one that is open, got {d!r}")


def scale_batch(g: Plain, old: Dim, new: Dim, changed: dict[Value, TensorType]) -> None:
    """Derives the types of what is made of `changed`, values with the types that they had. Attributes that are shapes get a first extent of
    `new` in place of `old` where that of an operand has changed so; where it has not, and the op then fits no more, that is an error."""

    def scaled(d: Dim) -> Dim:
        if isinstance(old, Expr):
            return substitute(d, {old: new if isinstance(new, Expr) else const(new)}) if isinstance(d, Expr) else d
        return d // old * new if isinstance(d, int) and old and d % old == 0 else d

    for n in g.nodes:
        read = [v for v in n.inputs if v is not None and v in changed]
        if not read:
            continue
        if any(_other_first_extent(v.type, changed[v]) for v in read):
            for k in (k for k, note in lookup(n.op).notes.items() if "Shape" in note):
                shape = n.attrs[k]
                if isinstance(shape, tuple) and shape:
                    rest = map(scaled, shape[1:]) if isinstance(old, Expr) else shape[1:]
                    n.attrs = {**n.attrs, k: (scaled(shape[0]), *rest)}
        try:
            n.attrs, types = derive(n.op, [None if v is None else v.type for v in n.inputs], n.attrs)
        except VerifyError as e:
            raise VerifyError(f"graph {g.name}, {describe(n)}: {e}") from e
        for v, t in zip(n.outputs, types):
            if v.type is not t:
                changed[v], v.type = v.type, t


def _other_first_extent(t: TensorType, before: TensorType) -> bool:
    if not t.ndim or not before.ndim or t.shape[0] is before.shape[0]:
        return False
    return isinstance(t.shape[0], Expr) or isinstance(before.shape[0], Expr) or t.shape[0] != before.shape[0]


def check_complete(g: Plain) -> None:
    check_symbols(g)
    for inner in g.graphs():
        for c in inner.constants.values():
            if c.data is None:
                raise VerifyError(f"graph {inner.name}: the constant {c.name!r} has no data")
