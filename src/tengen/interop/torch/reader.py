"""A program of `torch.export` as a plain description: nodes with PyTorch's ops, and no object of PyTorch's.

In: an ``ExportedProgram``. Out: a `Program`. Arguments of nodes are values, `Ref`s to what other nodes made, `GraphOf`s, and nests of
these in lists and dicts; dtypes are names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError
from tengen.base.record import record

IGNORED = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "implicit", "sparse_grad")


@record(frozen=True)
class Ref:
    """What the node of this name made."""

    name: str


@record(frozen=True)
class NodeOf:
    """A call. op: as in the table of ops. wanted: the numbers of the outputs that are used. where: the user's line. last: names that nothing
    reads after this node."""

    name: str
    op: str
    args: tuple
    kwargs: dict[str, Any]
    wanted: frozenset[int]
    where: str
    last: tuple[str, ...] = ()


@record(frozen=True)
class Multiple:
    """The extent factor * name + more."""

    factor: int
    name: str
    more: int

    def __str__(self) -> str:
        return f"{self.factor}*{self.name}" + (f"{self.more:+}" if self.more else "")


Extent = int | str | Multiple | None


@record(frozen=True)
class InputOf:
    """An input. kind: "parameter", "buffer", "constant", "input" or "number" (which the program does not read). target: the name of the
    parameter, buffer or constant. shape: ints and, for open extents, their names or `Multiple`s; None for what is no tensor; dtype: its
    name."""

    name: str
    kind: str
    target: str | None = None
    shape: tuple[Extent, ...] | None = None
    dtype: str | None = None
    value: Any = None


@record(frozen=True)
class GraphOf:
    """Nodes in their order. outputs: a nest of `Ref`s and values."""

    inputs: tuple[InputOf, ...]
    nodes: tuple[NodeOf, ...]
    outputs: Any


@record(frozen=True)
class Constants:
    """Arrays by name that no state dict has. buffers: those that are buffers of modules."""

    arrays: dict[str, np.ndarray]
    buffers: frozenset[str]


@record(frozen=True)
class Program:
    """A program.

    Attributes:
        buffers: (the number of an output, the buffer that takes its value). inputs: (the number of an output, that of the argument that
            takes its value). outputs: the numbers of the outputs that the caller gets.
        form: the nest of these, with numbers in the order of its leaves. takes: the same of the arguments by position, and by name.
        bounds: the least and the greatest value of each open extent.
    """

    graph: GraphOf
    buffers: tuple[tuple[int, str], ...]
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[int, ...]
    form: Any
    takes: tuple[Any, Any]
    bounds: dict[str, tuple[int, int | None]]


def read(program: Any) -> tuple[Program, dict[str, Any], Constants]:
    """(The description, the state by name as PyTorch's tensors, the constants) of an ExportedProgram that is decomposed."""
    signature = program.graph_signature
    kinds = {"PARAMETER": "parameter", "BUFFER": "buffer", "CONSTANT_TENSOR": "constant", "USER_INPUT": "input"}
    inputs: list[InputOf] = []
    constants: dict[str, np.ndarray] = {}
    state, unsaved = dict(program.state_dict), set()
    nodes = {n.name: n for n in program.graph.nodes}
    for spec in signature.input_specs:
        kind = kinds.get(spec.kind.name)
        name = getattr(spec.arg, "name", "")
        if kind is None:
            raise ArgumentError(f"the input {name} of the program is a {spec.kind.name}, which has no meaning here")
        if kind == "constant" or (kind == "buffer" and spec.target not in state):
            constants[spec.target] = array_of(program.constants[spec.target])
            if kind == "buffer":
                unsaved.add(spec.target)
        inputs.append(_input(nodes, spec, kind, name))
    graph = _graph(program.graph_module, tuple(inputs))
    buffers, changed, outs = [], [], []
    positions = {i.name: k for k, i in enumerate(j for j in inputs if j.kind == "input")}
    for i, spec in enumerate(signature.output_specs):
        match spec.kind.name:
            case "BUFFER_MUTATION" | "PARAMETER_MUTATION": buffers.append((i, spec.target))  # fmt: skip
            case "USER_INPUT_MUTATION": changed.append((i, positions[spec.target]))  # fmt: skip
            case "USER_OUTPUT": outs.append(i)  # fmt: skip
            case other: raise ArgumentError(f"an output of the program is a {other}, which has no meaning here")  # fmt: skip
    (takes, by_name), made = _forms(program)
    bounds = {str(s): (_bound(r.lower), _bound(r.upper)) for s, r in program.range_constraints.items()}
    source = Program(graph, tuple(buffers), tuple(changed), tuple(outs), made, (takes, by_name), bounds)
    return source, state, Constants(constants, frozenset(unsaved))


def _bound(x: Any) -> int | None:
    """A bound of an extent; None where there is none."""
    try:
        return int(x) if abs(int(x)) < 1 << 62 else None
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None


def _forms(program: Any) -> tuple[tuple[Any, Any], Any]:
    """The nests of the arguments (by position, by name) and of the outputs, with numbers in the order of the leaves."""
    args, kwargs = _nest(program.call_spec.in_spec, itertools.count())
    return (args, kwargs), _nest(program.call_spec.out_spec, itertools.count())


def _nest(spec: Any, numbers: Iterator[int]) -> Any:
    """A nest as lists, tuples and dicts. What has fields, as transformers' outputs and caches, is a dict; other containers are tuples."""
    children = spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs
    if spec.type is None:
        return next(numbers)
    made = [_nest(c, numbers) for c in children]
    names = spec.context
    if isinstance(names, (tuple, list)) and names and isinstance(names[0], (tuple, list)):
        names = list(names[0])  # beside something else
    if isinstance(names, list) and len(names) == len(made) and all(isinstance(n, str) for n in names):
        return dict(zip(names, made))
    return spec.type(*made) if hasattr(spec.type, "_fields") else made if spec.type is list else tuple(made)


def _input(nodes: Mapping[str, Any], spec: Any, kind: str, name: str) -> InputOf:
    if not name or name not in nodes or type(spec.arg).__name__ != "TensorArgument":
        value = getattr(spec.arg, "value", None)
        dynamic = type(spec.arg).__name__ != "ConstantArgument"
        return InputOf(name, "number" if kind == "input" and not dynamic else kind, spec.target, value=value)
    return _port(nodes[name], kind, spec.target)


def _port(n: Any, kind: str, target: str | None = None) -> InputOf:
    val = n.meta.get("val")
    if not hasattr(val, "dtype"):
        return InputOf(n.name, kind, target)
    return InputOf(n.name, kind, target, tuple(map(_extent, val.shape)), dtype_name(val.dtype))


def _extent(d: Any) -> Extent:
    """A number; the name of an open extent; a multiple of one; None for another function of such."""
    if isinstance(d, int):
        return d
    expr = d.node.expr
    if expr.is_number or expr.is_symbol:
        return int(expr) if expr.is_number else str(expr)
    if len(expr.free_symbols) != 1:
        return None
    (symbol,) = expr.free_symbols
    factor, more = expr.coeff(symbol, 1), expr.coeff(symbol, 0)
    whole = factor.is_integer and more.is_integer and factor > 0 and expr.equals(factor * symbol + more)
    return Multiple(int(factor), str(symbol), int(more)) if whole else None


def _graph(module: Any, inputs: tuple[InputOf, ...] | None) -> GraphOf:
    """The graph of a GraphModule; inputs: None for one inside of another, whose inputs are its own."""
    ports, nodes, output = [], [], None
    for n in module.graph.nodes:
        match n.op:
            case "placeholder": ports.append(_port(n, "input"))  # fmt: skip
            case "output": output = plain(module, n.args[0])  # fmt: skip
            case "get_attr": pass  # fmt: skip
            case _: nodes.append(_node(module, n))  # fmt: skip
    names = {p.name: p for p in inputs or ()}
    ports = [names.get(p.name, p) for p in ports] if inputs is None else list(inputs)
    return GraphOf(tuple(ports), _with_last(nodes, output), output)


def _with_last(nodes: list[NodeOf], outputs: Any) -> tuple[NodeOf, ...]:
    """The nodes with the names that nothing reads after them."""
    live, found = {r.name for r in refs(outputs)}, []
    for n in reversed(nodes):
        names = {n.name} | {r.name for r in refs((n.args, n.kwargs))}
        dead = tuple(sorted(names - live))
        found.append(NodeOf(n.name, n.op, n.args, n.kwargs, n.wanted, n.where, dead))
        live |= names
    return tuple(reversed(found))


def refs(v: Any) -> Iterator[Ref]:
    """What a nest of arguments reads; a graph inside reads its operands alone."""
    if isinstance(v, Ref):
        yield v
    elif isinstance(v, (list, tuple)):
        for e in v:
            yield from refs(e)
    elif isinstance(v, dict):
        for e in v.values():
            yield from refs(e)


def bound(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call as functions of the table take them: by position what the op's schema takes so, with its defaults."""
    args, kwargs = list(args), {k: v for k, v in kwargs.items() if k not in IGNORED}
    if not hasattr(target, "_schema"):
        return args, kwargs
    places = [a for a in target._schema.arguments if not a.kwarg_only]
    for a in places[len(args) :]:
        if a.name in kwargs:
            args.append(kwargs.pop(a.name))
        elif a.has_default_value():
            args.append(a.default_value)
    return [v for a, v in zip(places, args) if a.name not in IGNORED], kwargs


def _node(module: Any, n: Any) -> NodeOf:
    target = n.target
    args, kwargs = bound(target, n.args, n.kwargs)
    args, kwargs = [plain(module, v) for v in args], {k: plain(module, v) for k, v in kwargs.items()}
    used = set()
    for user in n.users:
        is_item = getattr(user.target, "__name__", "") == "getitem" and user.op == "call_function" and user.args[0] is n
        used |= {user.args[1]} if is_item and isinstance(user.args[1], int) else set(range(8))
    name = op_name(target)
    if name.startswith("aten.as_strided") and not n.args[0].meta["val"].is_contiguous():
        name += " of a tensor that is not dense"
    return NodeOf(n.name, name, tuple(args), kwargs, frozenset(used), place(n))


def op_name(target: Any) -> str:
    """The name under which an op stands in the table."""
    if hasattr(target, "_schema"):
        text = str(target)
        return text.removesuffix(".default")
    if type(target).__module__.startswith("torch._higher_order_ops") or type(target).__name__ == "HigherOrderOperator":
        return f"higher_order.{target.name()}"
    owner = getattr(target, "__module__", "").lstrip("_")
    return f"{owner}.{getattr(target, '__name__', target)}"


def place(n: Any) -> str:
    """The line of the user's that a node comes from: the last one outside of PyTorch."""
    lines = re.findall(r'File "(.+?)", line (\d+), in (\S+)\n\s*(.*)', n.meta.get("stack_trace") or "")
    own = [m for m in lines if "/torch/" not in m[0]] or lines
    return f"{own[-1][0]}:{own[-1][1]}: {own[-1][3]}" if own else ""


def plain(module: Any, v: Any) -> Any:
    """An argument without PyTorch's objects."""
    import torch

    if isinstance(v, torch.fx.Node):
        if v.op == "get_attr":
            found = module
            for part in v.target.split("."):
                found = getattr(found, part)
            return _graph(found, None) if isinstance(found, torch.fx.GraphModule) else array_of(found)
        return Ref(v.name)
    if isinstance(v, (list, tuple)) or type(v).__name__ == "immutable_list":
        return [plain(module, e) for e in v]
    if isinstance(v, dict):
        return {k: plain(module, e) for k, e in v.items()}
    if isinstance(v, torch.dtype):
        return dtype_name(v)
    if isinstance(v, slice):
        return slice(*(plain(module, e) for e in (v.start, v.stop, v.step)))
    if isinstance(v, (torch.device, torch.layout, torch.memory_format)):
        return None
    if isinstance(v, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return v.node.maybe_as_int() if isinstance(v, torch.SymInt) else None
    return v


def dtype_name(d: Any) -> str:
    """Tengen's name of a dtype of PyTorch's. Where there is none, PyTorch's, which no op takes."""
    return str(d).removeprefix("torch.")


def array_of(t: Any) -> np.ndarray:
    """A copy of a PyTorch tensor as an array."""
    t = t.detach().cpu().contiguous()
    if dtype_name(t.dtype) == "bfloat16":
        import ml_dtypes
        import torch

        return t.view(torch.uint16).numpy().copy().view(ml_dtypes.bfloat16)
    return t.resolve_conj().resolve_neg().numpy().copy()
