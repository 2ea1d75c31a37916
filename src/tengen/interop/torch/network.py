"""A network that came from PyTorch: a Module that runs the nodes of its exported graphs in their order.

In: what `reader.read` gives, for evaluation and for training. Out: a `Module` with PyTorch's names of parameters and buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError, DTypeError, ShapeError, TengenError
from tengen.base.record import record
from tengen.interop.torch.ops import OPS
from tengen.interop.torch.reader import GraphOf, InputOf, Multiple, NodeOf, Program, Ref
from tengen.interop.torch.registry import SCOPED
from tengen.loops.lang import as_int
from tengen.module import LoadedKeys, Module
from tengen.tensor import Parameter, Tensor, from_numpy

DENSE = (
    "sparse tensors have no meaning here; help: keep the tensor dense (t.to_dense(), torch.mm), or keep what it lists, places and values, as "
    "tensors of their own, and sum with index_add: y.index_add(0, rows, values[:, None] * x[columns]) for a matrix times x"
)


class TorchPart(Module):
    """A module inside of an imported network: it holds parameters and buffers under PyTorch's names, and computes nothing by itself."""


@record(frozen=True)
class Weight:
    """A tensor of the state. trained: it is a parameter. saved: it belongs to state dicts. same: the name of the tensor that it is too."""

    value: np.ndarray
    trained: bool
    saved: bool = True
    same: str | None = None


@record(frozen=True)
class Exported:
    """What a network runs: for training mode (True) and evaluation mode (False) a program and its constants. A walk over a module does not
    look inside. why_not: what is said of a mode that has no program of its own; without an entry it runs the other one's."""

    programs: dict[bool, Program]
    constants: dict[bool, dict[str, Tensor]]
    why_not: dict[bool, str]


class TorchState(Module):
    """The parameters and buffers of a PyTorch network, under its names: `state_dict` has PyTorch's names, order and shapes. A parameter that
    PyTorch does not train (``requires_grad=False``) is a buffer."""

    def __init__(self, state: Mapping[str, Weight]):
        super().__init__()
        self._same = _Names({name: w.same for name, w in state.items() if w.same}, [n for n, w in state.items() if w.saved])
        made: dict[str, Tensor] = {}
        for name, w in state.items():
            value = from_numpy(w.value, copy=False)
            t = made[w.same] if w.same else Parameter(value) if w.trained else value
            made[name] = t
            *path, last = name.split(".")
            owner: Module = self
            for part in path:
                inside = owner.__dict__.get(part)
                if inside is None:
                    inside = TorchPart()
                    owner.add_module(part, inside)
                owner = inside
            if isinstance(t, Parameter):
                owner.register_parameter(last, t)
            else:
                owner.register_buffer(last, t, w.saved)

    def tensor(self, name: str) -> Tensor:
        """The parameter or buffer of this dotted name."""
        found: Any = self
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def state_dict(self, rst=None, prefix: str = "", keep_var: bool = False) -> dict[str, Any]:
        """All saved tensors by PyTorch's names and in its order, as NumPy arrays (as Tensors with keep_var); a tensor with two names is there
        twice, as in PyTorch."""
        found = super().state_dict(None, "", keep_var)
        out = {} if rst is None else rst
        for name in self._same.order:
            t = self.tensor(name)
            out[prefix + name] = found[name] if name in found else t if keep_var else t.numpy().copy()
        return out

    def load_state_dict(self, state_dict: Any, strict: bool = True) -> LoadedKeys:
        """As `Module.load_state_dict`; a tensor with two names takes the value under the first one that is given."""
        if isinstance(state_dict, Mapping):
            given, owned = dict(state_dict), {name for name, _, _ in self._owned_tensors()}
            for name, first in self._same.second.items():
                mine, other = (name, first) if name in owned else (first, name)
                if other in given:
                    given.setdefault(mine, given[other])
                    del given[other]
            state_dict = given
        return super().load_state_dict(state_dict, strict)


class TorchNetwork(TorchState):
    """A PyTorch network as a module.

    It takes what the PyTorch module took when it was exported, with tensors (or arrays) in place of PyTorch's tensors, and returns what that
    returned; outputs with fields are dicts. In training mode it runs the graph that was exported in training mode, else the other one:
    dropout drops by Tengen's generator, batch norm takes the batch's statistics and moves the running ones. The mode of the whole network
    counts, not that of a module inside.
    """

    def __init__(self, exported: Exported, state: Mapping[str, Weight]):
        refuse_unknown(p.graph for p in exported.programs.values())
        super().__init__(state)
        self._exported = exported

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the outputs of the mode's graph, and gives buffers that it changes their new values."""
        held, training = self._exported, bool(self.training)
        if training not in held.programs:
            if training in held.why_not:
                raise ArgumentError(held.why_not[training])
            training = not training  # one graph for both modes
        program = held.programs[training]
        leaves = taken(program.takes, args, kwargs)
        check_inputs(program, leaves)
        values: list[Any] = []
        rest = iter(leaves)
        for p in program.graph.inputs:
            match p.kind:
                case "parameter" | "buffer": values.append(self.tensor(p.target))  # fmt: skip
                case "constant": values.append(held.constants[training][p.target])  # fmt: skip
                case _: values.append(next(rest))  # fmt: skip
        made = run(program.graph, values)
        for i, name in program.buffers:
            self.tensor(name)._reset(made[i].detach())
        for i, k in program.inputs:
            leaves[k]._reset(made[i])
        return filled(program.form, [made[i] for i in program.outputs])


@record(frozen=True)
class _Names:
    """second: names of tensors that have another one, with that. order: all names as PyTorch lists them."""

    second: dict[str, str]
    order: list[str]


# ---- arguments and results -----------------------------------------------------------------------------------------------


def taken(takes: tuple[Any, Any], args: tuple, kwargs: dict[str, Any]) -> list[Any]:
    """The leaves of the arguments, in the order of the program's inputs; arrays become tensors.

    Errors: ArgumentError for arguments of another structure than the module was exported with.
    """
    positional, by_name = takes
    names = [n for n in by_name if n not in kwargs]
    if 0 < len(args) - len(positional) <= len(names):  # given by position, exported by name
        kwargs = {**dict(zip(names, args[len(positional) :])), **kwargs}
        args = args[: len(positional)]
    found: dict[int, Any] = {}

    def match(form: Any, x: Any, where: str) -> None:
        if isinstance(form, int):
            found[form] = Tensor(x) if isinstance(x, np.ndarray) else x
        elif isinstance(form, Mapping):
            if not isinstance(x, Mapping) or set(x) != set(form):
                said = sorted(x) if isinstance(x, Mapping) else type(x).__name__
                raise ArgumentError(f"{where} must hold {sorted(form)}, as when the network was exported; got {said}")
            for k, v in form.items():
                match(v, x[k], f"{where}[{k!r}]")
        elif isinstance(form, (list, tuple)):
            if not isinstance(x, (list, tuple)) or len(x) != len(form):
                said = len(x) if isinstance(x, (list, tuple)) else type(x).__name__
                raise ArgumentError(f"{where} must hold {len(form)} values, as when the network was exported; got {said}")
            for i, (v, e) in enumerate(zip(form, x)):
                match(v, e, f"{where}[{i}]")

    match(positional, args, "the arguments")
    match(by_name, kwargs, "the arguments by name")
    return [found[i] for i in sorted(found)]


def filled(form: Any, leaves: list[Any]) -> Any:
    """The nest with leaves in place of their numbers."""
    if isinstance(form, bool) or form is None or isinstance(form, str):
        return form
    if isinstance(form, int):
        return leaves[form]
    if isinstance(form, Mapping):
        return {k: filled(v, leaves) for k, v in form.items()}
    if isinstance(form, tuple) and hasattr(form, "_fields"):
        return type(form)(*(filled(v, leaves) for v in form))
    return type(form)(filled(v, leaves) for v in form)


def check_inputs(program: Program, leaves: list[Any]) -> None:
    """Errors: ArgumentError, DTypeError or ShapeError for leaves that the program was not exported for: a fixed extent that is another one,
    an open extent outside of its bounds or with two values, another dtype, another number than the one that was exported."""
    bound: dict[str, int] = {}
    ports = [p for p in program.graph.inputs if p.kind in ("input", "number")]
    for p, x in zip(ports, leaves, strict=True):
        if p.kind == "number":
            if isinstance(x, Tensor) or x != p.value:
                raise ArgumentError(f"the argument {p.name} is {x!r}, and the network was exported for {p.value!r} alone")
            continue
        if p.shape is None:
            continue
        if not isinstance(x, Tensor):
            said = f"a {type(x).__name__}" + (
                " of PyTorch's; help: from_torch(x)" if type(x).__module__.startswith("torch") else ""
            )
            raise ArgumentError(f"the argument {p.name} must be a tensor {p.dtype} {_shown(p)}, got {said}")
        if x.dtype.name != p.dtype:
            raise DTypeError(
                f"the argument {p.name} must be {p.dtype}, as when it was exported; got {x.dtype}; help: .astype({p.dtype!r})"
            )
        if x.ndim != len(p.shape):
            raise ShapeError(f"the argument {p.name} must have {len(p.shape)} axes, {_shown(p)}; got the shape {x.shape}")
        for axis, (want, have) in enumerate(zip(p.shape, x.shape)):
            _check_extent(program, p, axis, want, as_int(have), bound)


def _check_extent(program: Program, p: InputOf, axis: int, want: Any, have: int | None, bound: dict[str, int]) -> None:
    if have is None or want is None:
        return
    if isinstance(want, int):
        if have != want:
            raise ShapeError(
                f"the argument {p.name} must have the shape {_shown(p)}, got {have} along axis {axis}; help: export it with dynamic_shapes"
            )
        return
    if isinstance(want, Multiple):
        if (have - want.more) % want.factor:
            raise ShapeError(f"the argument {p.name} must have the shape {_shown(p)}, got {have} along axis {axis}")
        have, want = (have - want.more) // want.factor, want.name
    low, high = program.bounds.get(want, (0, None))
    if have < (low or 0) or (high is not None and have > high):
        said = f"the argument {p.name} must have the shape {_shown(p)}, got {want} = {have} along axis {axis}"
        raise ShapeError(f"{said}; the network was exported for {low} {'and more' if high is None else f'to {high}'}")
    if bound.setdefault(want, have) != have:
        raise ShapeError(
            f"the argument {p.name}, {_shown(p)}, has {want} = {have} along axis {axis}; another argument has {bound[want]}"
        )


def _shown(p: InputOf) -> str:
    return f"({', '.join('*' if d is None else str(d) for d in p.shape)})"


# ---- running -------------------------------------------------------------------------------------------------------------


def run(graph: GraphOf, inputs: Iterable[Any]) -> Any:
    """The outputs of a graph, a nest like `graph.outputs`."""
    values: dict[str, Any] = {p.name: v for p, v in zip(graph.inputs, inputs)}
    for n in graph.nodes:
        values[n.name] = compute(n, values)
        for name in n.last:
            values.pop(name, None)
    return given(graph.outputs, values)


def given(v: Any, values: Mapping[str, Any]) -> Any:
    """A nest of arguments with values in place of references."""
    if isinstance(v, Ref):
        return values[v.name]
    if isinstance(v, (list, tuple)):
        return [given(e, values) for e in v]
    if isinstance(v, dict):
        return {k: given(e, values) for k, e in v.items()}
    if isinstance(v, slice):
        return slice(*(given(e, values) for e in (v.start, v.stop, v.step)))
    return Tensor(v) if isinstance(v, np.ndarray) else v


def compute(n: NodeOf, values: Mapping[str, Any]) -> Any:
    """What a node makes."""
    args, kwargs = given(n.args, values), given(n.kwargs, values)
    f = OPS[n.op]
    if f in SCOPED:
        kwargs["run"] = run
    if f.wants:
        kwargs["wanted"] = n.wanted
    try:
        return f(*args, **kwargs)
    except (TengenError, ValueError, TypeError, IndexError, KeyError, ZeroDivisionError) as e:
        e.add_note(
            f"in the node {n.name} of the PyTorch program: {n.op}({', '.join(map(_said, args))})"
            + (f"\n{n.where}" if n.where else "")
        )
        raise


def _said(v: Any) -> str:
    """An argument in a message."""
    if isinstance(v, Tensor):
        return f"{v.dtype}{list(v.shape)}"
    return f"[{', '.join(map(_said, v[:4]))}]" if isinstance(v, list) else "a graph" if isinstance(v, GraphOf) else repr(v)


def every_node(graph: GraphOf) -> Iterator[NodeOf]:
    """The nodes of a graph and of those inside of it."""
    for n in graph.nodes:
        yield n
        for a in (*n.args, *n.kwargs.values()):
            for g in a if isinstance(a, list) else [a]:
                if isinstance(g, GraphOf):
                    yield from every_node(g)


def refuse_unknown(graphs: Iterable[GraphOf]) -> None:
    """All nodes whose op has no meaning here, told at once.

    Errors: ArgumentError with a line for each of them: its name, its op, and the line of the user's that it comes from.
    """
    unknown = [n for g in graphs for n in every_node(g) if n.op not in OPS]
    lines = list(dict.fromkeys(f"  {n.name}: {n.op}" + (f"  ({n.where})" if n.where else "") for n in unknown))
    if lines:
        more = [] if len(lines) <= 40 else [f"  and {len(lines) - 40} more"]
        if any("sparse" in n.op or n.op == "aten._to_dense" for n in unknown):
            more.append(DENSE)
        raise ArgumentError(
            "\n".join([f"{len(lines)} nodes of the PyTorch program have no meaning here:", *lines[:40], *more,
            "help: write these lines with other operations, or enter their ops in tengen.interop.torch.registry.OPS"])
        )  # fmt: skip
