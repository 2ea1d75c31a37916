"""What edits of graphs ask of ops: attributes from what a user gives, types again, and the nodes of a function's calls.

In: names of ops, types, functions of tensors. Out: attributes in canonical form, types, graphs; a VerifyError, whatever the reason.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tengen.base.errors import TengenError, VerifyError
from tengen.ir.graph import Constant, Node, Value, map_attr
from tengen.ir.graph import Graph as Plain
from tengen.ir.types import Dim, TensorType
from tengen.ir.verify import describe
from tengen.loops.lang import Expr, as_int, const, var
from tengen.loops.rewriting import substitute
from tengen.ops.calls import signature_of
from tengen.ops.define import lookup
from tengen.passes.extents import check_symbols
from tengen.tensor import Tensor
from tengen.tensor.recorder import Recorder, traced
from tengen.tensor.structure import flatten

PROBE = 7919  # a prime number, of which no other extent is a multiple
SPREAD = frozenset({"broadcast_to", "fill", "full", "ones", "zeros"})  # ops of which a shape says how often something is repeated


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


def derive(
    op: str, types: Sequence[TensorType | None], attrs: dict[str, Any], before: Sequence[TensorType | None] | None = None
) -> tuple[dict[str, Any], Sequence[TensorType]]:  # fmt: skip
    """The attributes in canonical form and the types of the results; VerifyError, whatever the reason. before: the types that the attributes
    were made for."""
    try:
        if op in FOLLOWED and before and types[0] is not None and before[0] is not None and before[0].ndim == types[0].ndim:
            attrs = FOLLOWED[op](before[0].shape, types[0].shape, attrs)
        known = lookup(op)
        attributes = known.canonical(types, tuple(attrs.values()))
        return attributes, known.infer_types(types, attributes)
    except TengenError as e:
        raise VerifyError(str(e)) from e


def _sliced(before: Sequence[Dim], now: Sequence[Dim], attrs: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a slice whose operand has other extents than it was made for: what took all of an axis takes all of it, and one
    element that is not the last stays. Errors: VerifyError for other parts of an axis: they may be counted from either end, or be shares."""
    starts, sizes = list(attrs["starts"]), list(attrs["sizes"])
    for i, (d, e, step) in enumerate(zip(before, now, attrs["steps"])):
        a, n = starts[i], sizes[i]
        if same_extent(d, e) or same_extent(n, 0):
            continue
        if same_extent(a, 0) and step > 0 and same_extent(n, (d + step - 1) // step):
            sizes[i] = (e + step - 1) // step
        elif step == -1 and same_extent(a, d - 1) and same_extent(n, d):
            starts[i], sizes[i] = e - 1, e
        elif not same_extent(n, 1) or same_extent(a, d - 1):
            raise VerifyError(
                f"it takes {n} of {d} elements of axis {i}, from {a}, and that axis has {e} of them now: they may be counted from either end; "
                "help: set(node, starts=..., sizes=...) in the same edits()"
            )
    return {**attrs, "starts": tuple(starts), "sizes": tuple(sizes)}


def _pooled(before: Sequence[Dim], now: Sequence[Dim], attrs: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a pool: a window over all of an axis is over all of it."""
    sizes, n = list(attrs["kernel_size"]), len(attrs["kernel_size"])
    for i, (d, e, padding) in enumerate(zip(before[-n:], now[-n:], attrs["padding"])):
        if not same_extent(d, e) and padding == 0 and same_extent(sizes[i], d):
            sizes[i] = e
    return {**attrs, "kernel_size": tuple(sizes)}


FOLLOWED = {"strided_slice": _sliced, "set_slice": _sliced, "avg_pool": _pooled, "max_pool": _pooled}  # attributes that follow an operand


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


def follow_batch(g: Plain, old: Dim, new: Dim, changed: dict[Value, TensorType]) -> None:
    """Makes a graph follow inputs whose first extent has changed from `old` to `new`. changed: these inputs, with the types that they had."""
    if isinstance(old, Expr) and not any(holds(d, old) for v in g.inputs for d in v.type.shape):
        put_in_place(g, old, new)
    else:
        scale_batch(g, old, new, changed)


def _rescale(n: Node, old: Dim, new: Dim, ahead: int = 1) -> None:
    """Puts `new` in place of the batch `old` in a node's attributes that are shapes. ahead: how many elements lie before the batch along the
    axes in front of it."""

    def scaled(d: Dim) -> Dim:
        if isinstance(old, Expr):
            return substitute(d, {old: new if isinstance(new, Expr) else const(new)}) if isinstance(d, Expr) else d
        return d // old * new if isinstance(d, int) and old and d % old == 0 else d

    for k in (k for k, note in lookup(n.op).notes.items() if "Shape" in note):
        shape = n.attrs[k]
        if not isinstance(shape, tuple) or not shape:
            continue
        places = range(len(shape))
        if not isinstance(old, Expr) and old != PROBE:
            fits = (j for j in places if math.prod(shape[:j]) == ahead and not same_extent(scaled(shape[j]), shape[j]))
            places = range(j := next(fits, 0), j + 1)
        n.attrs = {**n.attrs, k: tuple(scaled(d) if j in places else d for j, d in enumerate(shape))}


def scale_batch(g: Plain, old: Dim, new: Dim, changed: dict[Value, TensorType]) -> None:
    """Derives the types of what is made of `changed`, values with the types that they had. Attributes that are shapes get a first extent of
    `new` in place of `old` where that of an operand has changed so. Where the op then fits no more, what it reads besides becomes `new` of what
    it was `old` equal ones of, or that is an error."""

    def settle(n: Node) -> None:
        n.attrs = {**n.attrs, **_bodies(n, old, new)}
        before = [None if v is None else changed.get(v, v.type) for v in n.inputs]
        n.attrs, types = derive(n.op, [None if v is None else v.type for v in n.inputs], n.attrs, before)
        for v, t in zip(n.outputs, types):
            if v.type is not t:
                changed[v], v.type = v.type, t

    def widened(v: Value) -> bool:
        """Whether a value of `old` equal parts is one of `new` now."""
        if v in changed or not v.type.ndim or not same_extent(v.type.shape[0], old):
            return v in changed
        n = v.node
        if n is None:
            return _repeated(g, v, new, changed)
        if n.op in SPREAD:
            x = next((v for v in n.inputs if v is not None), None)
            if x is None or x.type.ndim < v.type.ndim or same_extent(x.type.shape[0], 1):
                _rescale(n, old, new)
        if n.op not in SPREAD or same_extent(n.attrs["shape"][0], old):
            if not any([widened(x) for x in n.inputs if x is not None]):
                return False
            _rescale(n, old, new)
        settle(n)
        return v in changed

    for n in list(g.nodes):
        read = [v for v in n.inputs if v is not None and v in changed]
        if not read and not (old == PROBE and n.op in SPREAD):
            continue
        ahead = next((a for v in read if (a := _ahead_of_change(v.type, changed[v])) is not None), None if read else 1)
        if ahead is not None:
            _rescale(n, old, new, ahead)
        try:
            try:
                settle(n)
            except VerifyError:
                if not any([widened(v) for v in n.inputs if v is not None and v not in changed]):
                    raise
                settle(n)
        except VerifyError as e:
            raise VerifyError(f"graph {g.name}, {describe(n)}: {e}") from e
        if old == PROBE and any(isinstance(d, int) and d and d % PROBE == 0 for v in n.outputs for d in v.type.shape):
            raise VerifyError(f"graph {g.name}, {describe(n)}: its extents cannot follow a batch that is open; help: a number")


def holds(d: Dim, symbol: Expr) -> bool:
    """Whether an extent is a symbol, or is computed from it."""
    return isinstance(d, Expr) and (d is symbol or any(holds(a, symbol) for a in d.args))


def put_in_place(g: Plain, old: Expr, new: Dim) -> None:
    """Another extent for a symbol that no input has any more, in all types and attributes: those of zeros for each example, of sizes as
    numbers. VerifyError where an op does not fit it."""
    to = {old: new if isinstance(new, Expr) else const(new)}

    def other(d: Any) -> Any:
        if not (isinstance(d, Expr) and holds(d, old)):
            return d
        e = substitute(d, to)
        return e if (n := as_int(e)) is None else n

    for inner in g.graphs():
        for v in inner.values():
            if any(isinstance(d, Expr) for d in v.type.shape):
                v.type = TensorType(tuple(map(other, v.type.shape)), v.type.dtype)
        for n in inner.nodes:
            n.attrs = {k: map_attr(a, other) for k, a in n.attrs.items()}
    for inner in g.graphs():
        for n in inner.nodes:
            try:
                n.attrs, types = derive(n.op, [None if v is None else v.type for v in n.inputs], n.attrs)
            except VerifyError as e:
                raise VerifyError(f"graph {inner.name}, {describe(n)}: {e}") from e
            for v, t in zip(n.outputs, types):
                v.type = t


def _bodies(n: Node, old: Dim, new: Dim) -> dict[str, Any]:
    """The attributes of a loop or a branch that follow its operands: bodies that take their types, and how many slices there are."""
    if n.op not in ("scan", "while_loop", "cond"):
        return {}
    types, made = [v.type for v in n.inputs if v is not None], {}
    if n.op == "cond":
        types = types[1:]
    if n.op == "scan":
        at, end = n.attrs["carries"], n.attrs["carries"] + n.attrs["slices"]
        if at < end and types[at].ndim:
            made["length"] = types[at].shape[0]
        types[at:end] = [TensorType(t.shape[1:], t.dtype) for t in types[at:end]]
    for k, a in n.attrs.items():
        if isinstance(a, Plain) and any(v.type is not t for v, t in zip(a.inputs, types)):
            body = made[k] = a.copy()
            changed = {v: v.type for v, t in zip(body.inputs, types) if v.type is not t}
            for v, t in zip(body.inputs, types):
                v.type = t
            scale_batch(body, old, new, changed)
    return made


def _repeated(g: Plain, v: Value, new: Dim, changed: dict[Value, TensorType]) -> bool:
    """Makes a constant whose parts along the first axis are all equal one part that is repeated; whether it is such a one."""
    c = next((c for c in g.constants.values() if c.value is v), None)
    if c is None or c.data is None or not len(c.data) or any(part.tobytes() != c.data[0].tobytes() for part in c.data[1:]):
        return False
    one = Constant(c.name, Value(TensorType((1, *c.data.shape[1:]), v.type.dtype), c.name), np.ascontiguousarray(c.data[:1]))
    g.constants[c.name] = one
    shape = (new, *v.type.shape[1:])
    n = g.add_node("broadcast_to", [one.value], {"shape": shape}, [TensorType(shape, v.type.dtype)])
    g.nodes.remove(n)
    g.nodes.insert(0, n)
    g.replace_value(v, n.outputs[0])
    changed[n.outputs[0]] = v.type
    return True


def same_extent(a: Any, b: Any) -> bool:
    """Whether two extents are one for all numbers."""
    return a is b if isinstance(a, Expr) or isinstance(b, Expr) else a == b


def _ahead_of_change(t: TensorType, before: TensorType) -> int | None:
    """How many elements lie along the axes before the first one whose extent has changed; None where none has, or these are open."""
    if t.ndim != before.ndim:
        return None
    at = next((i for i, (d, e) in enumerate(zip(t.shape, before.shape)) if not same_extent(d, e)), None)
    return None if at is None or any(isinstance(d, Expr) for d in t.shape[:at]) else math.prod(t.shape[:at])


def check_complete(g: Plain) -> None:
    check_symbols(g)
    for inner in g.graphs():
        for c in inner.constants.values():
            if c.data is None:
                raise VerifyError(f"graph {inner.name}: the constant {c.name!r} has no data")
