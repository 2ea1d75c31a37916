"""Tracing a module: its forward runs once with stand-ins, and each call of a builtin module, an op or a wrapped function becomes an
expression of the module it was made in. Modules that are not builtin are traced too, and called by their parents' expressions.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import numpy as np

from tengen import module as builtin_modules
from tengen.base.errors import TengenError, TraceError
from tengen.ir.graph import Graph, Value, graph_key
from tengen.ir.types import TensorType
from tengen.loops.lang import var
from tengen.module import Module
from tengen.ops.define import Op
from tengen.passes.cleanup import remove_dead_code
from tengen.tensor import Parameter, Tensor
from tengen.tensor.nodes import limits, new_limit
from tengen.tensor.recorder import Recorder, traced
from tengen.tensor.recording import tracing
from tengen.traced_module.expr import CallFunction, CallMethod, Constant
from tengen.traced_module.graph import BATCH, Ids, InternalGraph, call_of
from tengen.traced_module.nest import leaves, rebuild
from tengen.traced_module.node import TensorNode
from tengen.traced_module.traced_module import TracedModule, traced_like

__all__ = ["disable_default_checker", "enable_expr_checker", "register_as_builtin", "trace_module", "wrap"]

CONTAINERS = (builtin_modules.Sequential, builtin_modules.ModuleList, builtin_modules.ModuleDict)
registered: dict[str, type] = {}  # "module:name" of a class that is not looked into -> the class
wrapped: dict[str, Callable] = {}  # "module:name" of a function that is not looked into -> the function
_checks = {"default": True, "values": False}


def register_as_builtin(mod_cls: type[Module]) -> None:
    """Modules of this class are called as they are, and not looked into. A file names the class, and is loaded where it is registered
    again; what a file keeps of it are plain attributes, tensors and modules."""
    if not (isinstance(mod_cls, type) and issubclass(mod_cls, Module)):
        raise TypeError(f"register_as_builtin() takes a class of modules, got {mod_cls!r}")
    registered[class_name(mod_cls)] = mod_cls


def class_name(kind: type) -> str:
    """How files name a class of modules: Tengen's own by their names, others with their module's."""
    return kind.__name__ if own_class(kind.__name__) is kind else f"{kind.__module__}:{kind.__qualname__}"


def own_class(name: str) -> type | None:
    """Tengen's class of modules of this name."""
    kind = getattr(builtin_modules, name) if name in builtin_modules.__all__ else None
    return kind if isinstance(kind, type) and issubclass(kind, Module) else None


def is_builtin(m: Module) -> bool:
    """Whether a module is called as it is."""
    kind = type(m)
    return class_name(kind) in registered or (own_class(kind.__name__) is kind and not isinstance(m, CONTAINERS))


def wrap(func: Callable) -> Callable:
    """A decorator: calls of the function are expressions, and are not looked into. A file names it, and is loaded where a function of
    the same module and name is wrapped.

    Errors: TypeError for what is no function.
    """
    if not inspect.isfunction(func):
        raise TypeError(f"wrap() takes a function, got a {type(func).__name__}")

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder = tracing.recorder
        if isinstance(recorder, ModuleRecorder) and recorder.scopes and not recorder.inside:
            return recorder.call(call, args, kwargs, func)
        node = next((x for x in leaves((args, kwargs)) if isinstance(x, TensorNode)), None)
        return func(*args, **kwargs) if node is None else _insert(node.graph, call, args, kwargs, func)

    wrapped[f"{func.__module__}:{func.__qualname__}"] = call
    return call


def _insert(graph: InternalGraph, call: Callable, args: tuple, kwargs: dict[str, Any], func: Callable) -> Any:
    graph._inserting()
    types: list[Any] = []
    nodes = [x for x in leaves((args, kwargs)) if isinstance(x, TensorNode)]
    with Recorder("piece") as recorder:
        stand_ins = iter([traced(recorder.graph.add_input(f"x{i}", n._layout.type)) for i, n in enumerate(nodes)])
        filled = rebuild((args, kwargs), lambda x: next(stand_ins) if isinstance(x, TensorNode) else x)
        made = func(*filled[0], **filled[1])
        types.append(rebuild(made, lambda t: t._layout.type if isinstance(t, Tensor) else t))
    args, kwargs = rebuild((args, kwargs), graph._operand)
    return graph.finish(CallFunction(graph, call, args, kwargs), types[0], f"{func.__name__}_out")


class ModuleRecorder(Recorder):
    """Records a module's forward as a graph, and what its modules do as expressions.

    Attributes: scopes: the graphs of the modules that are being called, outermost first. inside: of how many calls that are one expression.
    """

    of_a_body = True  # what is hidden from gradients is part of what is recorded

    def __init__(self, name: str):
        super().__init__(name)
        self.scopes: list[InternalGraph] = []
        self.nodes: list[dict[Any, Any]] = []  # of each scope: a value of the graph, or the id of a tensor -> its node
        self.inside, self.begun, self.function = 0, new_limit(), ""

    def record(self, op: Op, inputs: tuple, attrs: tuple) -> Any:
        if self.inside or not self.scopes:
            return super().record(op, inputs, attrs)
        operands = tuple(None if x is None else self.operand(x) for x in inputs)
        with self._within():
            out = super().record(op, inputs, attrs)
        out = self._noted(call_of(self.scopes[-1], op, operands, dict(zip(op.attrs, attrs))), out, f"{op.name}_out")
        if op.why_no_vjp is None and limits.get(get_ident(), 0) > self.begun:  # in a `no_grad` of the module
            return rebuild(out, lambda t: t.detach())
        if self.function:
            raise TraceError(f"{self.scopes[-1].name} calls the Function {self.function}, whose gradient no expression holds; help: wrap it")
        return out

    def assign(self, target: Tensor, value: Tensor) -> bool:
        if self.scopes and not self.inside and not isinstance(target._data, Value):
            raise TraceError(
                f"{self.scopes[-1].name} changes a tensor {target._layout.type!r} in place, which no expression says; help: "
                "tengen.traced_module.register_as_builtin(class) leaves such a module as it is"
            )
        return super().assign(target, value)

    @contextlib.contextmanager
    def _within(self) -> Iterator[None]:
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    def call(self, called: Any, args: tuple, kwargs: dict[str, Any], run: Callable) -> Any:
        """A call that is one expression: of a builtin module, or of a wrapped function."""
        given, named = rebuild((args, kwargs), self.operand)
        with self._within():
            out = run(*args, **kwargs)
        graph = self.scopes[-1]
        if isinstance(called, Module):
            n = self.module(called)
            return self._noted(CallMethod(graph, (n, *given), named), out, f"{n.name}_out")
        return self._noted(CallFunction(graph, called, given, named), out, f"{called.__name__}_out")

    def _noted(self, expr: Any, out: Any, name: str) -> Any:
        """Adds an expression that gave this, whose tensors get nodes."""
        types = rebuild(out, lambda t: self.value(t).type if isinstance(t, Tensor) else t)
        made = self.scopes[-1].finish(expr, types, name)
        for t, n in zip(leaves(out), leaves(made)):
            if isinstance(t, Tensor):
                self.nodes[-1][self.value(t)] = n
        return out

    def operand(self, x: Any) -> Any:
        """The node of a tensor in the module that is being called; what is no tensor is a constant."""
        if not isinstance(x, Tensor):
            return x
        graph, nodes = self.scopes[-1], self.nodes[-1]
        v = x._data if isinstance(x._data, Value) else id(x)
        if v in nodes:
            return nodes[v]
        if isinstance(v, Value):
            data = self.known_data(x)
            if data is not None and data.ndim == 0:
                return data  # a number
            if data is not None:
                nodes[v] = graph.finish(Constant(graph, np.array(data)), x._layout.type, "const")
                return nodes[v]
            raise TraceError(
                f"{graph.name} uses a tensor {x._layout.type!r} that was computed outside of it and is no argument; help: pass it on"
            )
        path = next((p for p, t in self.module_of(graph).named_tensors() if t is x), None)
        if path is not None:
            nodes[v] = graph.attribute(path)
        elif isinstance(x, Parameter):
            raise TraceError(f"{graph.name} uses a Parameter {x._layout.type!r} that is none of its own; help: make it an attribute of it")
        else:
            expr = Constant(graph, x.numpy().copy())
            nodes[v] = graph.finish(expr, x._layout.type, "const")
        self._keep.append(x)
        return nodes[v]

    def module_of(self, graph: InternalGraph) -> Module:
        return graph.module

    def module(self, m: Module) -> Any:
        """The node of a module that the one being called has."""
        graph = self.scopes[-1]
        own = graph.module
        path = next((p for p, x in own.named_modules() if x is m), None)
        if path is None:
            raise TraceError(f"{graph.name} calls a {type(m).__name__} that is none of its own; help: make it an attribute of it")
        return graph.attribute(path)


class _Tracer:
    """One trace of a module and those inside of it."""

    def __init__(self, top: Module):
        self.top, self.ids = top, Ids()
        self.known: dict[int, Any] = {}
        for m in reversed(list(top.modules())):  # those inside come first
            self._stand_in(m)
        self.path = {id(m): p for p, m in top.named_modules()}
        self.traced: TracedModule = self.known[id(top)]

    def _stand_in(self, m: Module) -> None:
        if id(m) in self.known:
            return
        if is_builtin(m):
            self.known[id(m)] = m
            return
        for c in m.children():
            self._stand_in(c)
        traced_like(m, self.known)

    def run(self, recorder: ModuleRecorder, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The result of the module, whose calls are recorded. Every module's `forward` is another one meanwhile."""
        changed: list[tuple[Module, Any]] = []
        leaf_inside: set[int] = set()
        for m in self.top.modules():
            if is_builtin(m):
                leaf_inside |= {id(x) for x in m.modules() if x is not m}
        try:
            for m in self.top.modules():
                if id(m) not in leaf_inside:
                    changed.append((m, m.__dict__.get("forward")))
                    own = m.forward
                    through = self._leaf if is_builtin(m) else self._module
                    m.__dict__["forward"] = functools.partial(through, recorder, m, own)  # not noticed by traces of users
            return self.top(*args, **kwargs)
        finally:
            for m, before in changed:
                m.__dict__.pop("forward", None)
                if before is not None:
                    m.__dict__["forward"] = before

    def _leaf(self, recorder: ModuleRecorder, m: Module, own: Callable, *args: Any, **kwargs: Any) -> Any:
        if recorder.inside or tracing.recorder is not recorder or not recorder.scopes:
            return own(*args, **kwargs)
        return recorder.call(m, args, kwargs, own)

    def _module(self, recorder: ModuleRecorder, m: Module, own: Callable, *args: Any, **kwargs: Any) -> Any:
        if recorder.inside or tracing.recorder is not recorder:
            return own(*args, **kwargs)
        stand_in = self.known[id(m)]
        path = self.path[id(m)]
        name = f"{type(self.top).__name__}_{path.replace('.', '_')}" if path else type(self.top).__name__
        graph = InternalGraph(m, name, f"{type(self.top).__name__}.{path}" if path else type(self.top).__name__, self.ids)
        if recorder.scopes:
            node = recorder.module(m)
            given, named = rebuild((args, kwargs), recorder.operand)
        graph.add_input("self", None)
        nodes: dict[Any, Any] = {}
        graph.bound = self._arguments(graph, recorder, own, args, kwargs, nodes)
        recorder.scopes.append(graph)
        recorder.nodes.append(nodes)
        try:
            out = own(*args, **kwargs)
            graph.result = rebuild(out, recorder.operand)
        finally:
            recorder.scopes.pop()
            recorder.nodes.pop()
        before = stand_in.graph
        if before is not None and _text(before) != _text(graph):
            raise TraceError(
                f"{graph.name} is called twice and does not compute the same both times; help: register_as_builtin(type) leaves it as it is"
            )
        graph.module = stand_in
        stand_in.__dict__["graph"] = graph if before is None else before
        if recorder.scopes:
            recorder._noted(CallMethod(recorder.scopes[-1], (node, *given), named), out, f"{node.name}_out")
        return out

    def _arguments(self, graph: InternalGraph, recorder: ModuleRecorder, own: Callable, args: tuple, kwargs: dict, nodes: dict) -> Any:
        """The nest of a call's arguments, with nodes named as the parameters of `forward`."""
        try:
            names = iter(inspect.signature(own).bind(*args, **kwargs).arguments.items())
            table = {id(t): k for k, v in names for t in leaves(v) if isinstance(t, Tensor)}
        except TypeError:
            table = {}

        def node(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            n = graph.add_input(table.get(id(x), "args"), recorder.value(x).type)
            nodes[recorder.value(x) if isinstance(x._data, Value) else id(x)] = n
            return n

        return rebuild((args, kwargs), node)


def _text(graph: InternalGraph) -> str:
    """What a graph computes, without the numbers of its expressions."""
    return "\n".join(f"{e.outputs!r} {e.told()}" for e in graph._exprs) + repr((graph.bound, graph.result))


def _open(t: TensorType, name: str, size: Any, how: str) -> TensorType:
    """A type whose extents are names: all of them, or the first where it is that of the first argument ("batch"), or none."""
    extents: list[Any] = list(t.shape)
    if how == "all":
        extents = [n if n == 1 else var(f"{name}_{i}") for i, n in enumerate(extents)]
    if how != "none" and extents and t.shape[0] == size:
        extents[0] = BATCH
    return TensorType(tuple(extents), t.dtype)


def trace_module(mod: Module, *args: Any, **kwargs: Any) -> TracedModule:
    """A `TracedModule` that computes what a module does: its `forward` is called once with stand-ins for the tensors among the arguments.

    Modules that Tengen has stay as they are, shared with `mod`, as its parameters are; others become TracedModules with graphs of their
    own. Extents of the arguments stay open where the module's code allows it: all of them, else the batch, their first one. What
    Python decides while tracing is decided for good: `if` and loops over numbers, `training` where the module's own code asks for it.

    Returns: a module that runs eagerly, trains and traces with the bits of `mod`, can be edited (`graph`), and is saved by `tengen.save`
        without any code.
    Errors: TypeError for what is no module; TraceError where a value is asked for, a tensor is changed in place, or results differ from
        the module's (`disable_default_checker`).

    >>> from tengen import Tensor, functional as F, module as M
    >>> class Net(M.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.fc = M.Linear(4, 3)
    ...     def forward(self, x):
    ...         return F.relu(self.fc(x)) * 2
    >>> net = Net()
    >>> traced = trace_module(net, F.ones((2, 4)))
    >>> print(str(traced.graph).expandtabs(4))
    Net.Graph (self, x) {
        %2: fc = getattr(self, "fc") -> (Linear)
        %3: fc_out = fc(x, )
        %4: relu_out = relu(fc_out, )
        %5: mul_out = mul(relu_out, 2.0, )
        return mul_out
    }
    >>> x = F.ones((5, 4))
    >>> traced(x).numpy().tobytes() == net(x).numpy().tobytes()
    True
    """
    if not isinstance(mod, Module):
        raise TypeError(f"trace_module() takes a module, got a {type(mod).__name__}")
    if is_builtin(mod):
        raise TypeError(f"trace_module(): {type(mod).__name__} is a builtin module, and has nothing to look into; help: Sequential(module)")
    for how in ("all", "batch", "none"):
        try:
            made, whole = _traced(mod, args, kwargs, how)
            break
        except (TengenError, TypeError, ValueError):  # also what the module's code makes of an extent that is no number
            if how == "none":
                raise
    if _checks["default"]:
        _check(mod, made, whole, how, args, kwargs)
    return made


def _stand_ins(recorder: Recorder, args: tuple, kwargs: dict[str, Any], how: str) -> Any:
    """The arguments with stand-ins in place of tensors."""
    count = iter(range(1 << 30))
    size = next((t.shape[0] for t in leaves((args, kwargs)) if isinstance(t, Tensor) and t.ndim), None)

    def stand_in(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        name = f"arg{next(count)}"
        return recorder.argument(name, x, _open(x._layout.type, name, size, how))

    return rebuild((args, kwargs), stand_in)


def _recorded(recorder: ModuleRecorder, run: Callable, args: tuple, kwargs: dict[str, Any], how: str) -> Graph:
    with recorder:
        given, named = _stand_ins(recorder, args, kwargs, how)
        out = run(given, named)
        return recorder.finish([(f"y{i}", t) for i, t in enumerate(x for x in leaves(out) if isinstance(x, Tensor))])


def _traced(mod: Module, args: tuple, kwargs: dict[str, Any], how: str) -> tuple[TracedModule, Graph]:
    tracer, recorder = _Tracer(mod), ModuleRecorder(type(mod).__name__)
    graph = _recorded(recorder, functools.partial(tracer.run, recorder), args, kwargs, how)
    for g in {id(m.graph): m.graph for m in tracer.known.values() if isinstance(m, TracedModule) and m.graph is not None}.values():
        g.changed()
    return tracer.traced, graph


def _check(mod: Module, made: TracedModule, whole: Graph, how: str, args: tuple, kwargs: dict[str, Any]) -> None:
    """TraceError unless the traced module computes the same: its own graph has the same nodes. With `enable_expr_checker` both run, and
    their results are compared, too."""
    recorder = ModuleRecorder(type(mod).__name__)
    graph = _recorded(recorder, lambda a, k: made(*a, **k), args, kwargs, how)
    if graph_key(remove_dead_code(whole)) != graph_key(remove_dead_code(graph)):
        raise TraceError(f"the traced {type(mod).__name__} does not compute what the module does; help: report this, with the module")
    if _checks["values"]:
        pairs = zip(leaves(mod(*args, **kwargs)), leaves(made(*args, **kwargs)), strict=True)
        if any(isinstance(x, Tensor) and x.numpy().tobytes() != y.numpy().tobytes() for x, y in pairs):
            raise TraceError(f"results of the traced {type(mod).__name__} differ from the module's")


def enable_expr_checker() -> None:
    """From now on `trace_module` runs the module and the traced one on the example, and compares all bits of their results."""
    _checks["values"] = True


def disable_default_checker() -> None:
    """From now on `trace_module` does not look whether the traced module computes the same nodes as the module."""
    _checks["default"] = False
