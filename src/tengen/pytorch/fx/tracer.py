"""`Tracer`: runs a module's Python with proxies, and notes what it calls as a `Graph`.

While it runs, functions of `torch` (in its modules, in the files of the module's code, and among the module's attributes) and calls of modules
become steps where they are given a proxy.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any

from tengen import module as M
from tengen.base.errors import ArgumentError, TraceError
from tengen.pytorch.fx.graph import HOMES, Graph
from tengen.pytorch.fx.graph_module import GraphModule
from tengen.pytorch.fx.node import Node, map_aggregate
from tengen.pytorch.fx.proxy import Proxy
from tengen.pytorch.nn.module import Module
from tengen.tensor import Tensor

_wrapped: list[tuple[dict, str]] = []  # (globals of a file, the name of a function) that `wrap` was told
_lock = threading.RLock()  # tracing puts other functions in the place of those of modules, for all threads


def wrap(fn_or_name: Callable | str) -> Any:
    """Says, at the top of a file, that a function there is a leaf: given a proxy it becomes a step. Also of a name: ``wrap("len")``."""
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    _wrapped.append((sys._getframe(1).f_globals, name))
    return fn_or_name


class TracerBase:
    """What makes steps of what is done with proxies. Attributes: graph: of which they are steps."""

    graph: Graph

    def create_node(
        self, kind: str, target: Any, args: tuple, kwargs: Mapping[str, Any], name: str | None = None, type_expr: Any = None
    ) -> Node:
        """Adds a step."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """What stands for a step's result."""
        return Proxy(node, self)

    def create_proxy(
        self, kind: str, target: Any, args: tuple, kwargs: Mapping[str, Any], name: str | None = None, type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:  # fmt: skip
        """Adds a step of values and proxies; what stands for its result."""
        node = self.create_node(kind, target, self.create_arg(tuple(args)), self.create_arg(dict(kwargs)), name, type_expr)
        return (proxy_factory_fn or self.proxy)(node)

    def create_arg(self, a: Any) -> Any:
        """An argument as a graph holds it: nodes in the place of proxies."""
        return map_aggregate(a, self._leaf)

    def _leaf(self, a: Any) -> Any:
        return a.node if isinstance(a, Proxy) else a


class Tracer(TracerBase):
    """Traces a module or a function. Subclasses say otherwise by `is_leaf_module`.

    Args: autowrap_modules, autowrap_functions: functions, and modules of them, that become steps, too. param_shapes_constant: accepted.
    """

    def __init__(self, autowrap_modules: tuple = (), autowrap_functions: tuple = (), param_shapes_constant: bool = False):
        self._also = [f for m in autowrap_modules for f in vars(m).values() if inspect.isroutine(f)] + list(autowrap_functions)

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a call of a module is one step: of Tengen's own, but for Sequential."""
        return type(m).__module__.startswith("tengen.") and not isinstance(m, (M.Sequential, GraphModule))

    def path_of_module(self, mod: Module) -> str:
        """The dotted name of a module. Errors: TraceError for one that is not inside of what is traced"""
        if id(mod) not in self._paths:
            raise TraceError(f"symbolic_trace: a {type(mod).__name__} is called that is no part of the module; help: make it an attribute")
        return self._paths[id(mod)]

    def call_module(self, m: Module, forward: Callable, args: tuple, kwargs: dict) -> Any:
        """A call of a module: a step, or what its forward does."""
        path = self.path_of_module(m)
        return forward(*args, **kwargs) if not self.is_leaf_module(m, path) else self.create_proxy("call_module", path, args, kwargs)

    def _leaf(self, a: Any) -> Any:
        if not isinstance(a, Tensor):
            return super()._leaf(a)
        if id(a) not in self._tensors:  # a constant of the program's
            number = sum(name.startswith("_tensor_constant") for name in self._tensors.values())
            self._tensors[id(a)] = name = f"_tensor_constant{number}"
            self._constants.append(a)
            setattr(self.root, name, a)
        return self.graph.get_attr(self._tensors[id(a)])

    def trace(self, root: Module | Callable, concrete_args: Mapping[str, Any] | None = None) -> Graph:
        """The graph of a module's forward, or of a function. concrete_args: values of parameters that are no arguments of it.

        Errors: TraceError where the code decides by a value, or loops over one
        """
        self.root = root if isinstance(root, Module) else Module()
        forward = root.forward if isinstance(root, Module) else root
        self.graph, self._constants = Graph(self.root), []
        self._paths = {id(m): name for name, m in reversed(list(self.root.named_modules()))}
        self._tensors = {id(t): name for of in (self.root.named_parameters(), self.root.named_buffers()) for name, t in of}
        args, named, plain = self._arguments(forward, dict(concrete_args or {}))
        with _lock, self._watching(forward) as steps:
            result = steps.get(id(forward), plain)(*args, **named)
            self.graph.output(self.create_arg(result))
        return self.graph

    def _arguments(self, forward: Callable, given: dict[str, Any]) -> tuple[list[Any], dict[str, Any], Callable]:
        """What the function is called with: by position, by name; and the function. One with *args or **kwargs gets a proxy for each of these,
        and so what is called has them as its last parameters."""
        parameters = inspect.signature(forward).parameters.values()
        if odd := set(given) - {p.name for p in parameters}:
            raise ArgumentError(f"symbolic_trace: concrete_args has {min(odd)!r}, and there is no such parameter")
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"} if (p := next(iter(parameters), None)) else {}
        made: dict[str, Any] = {}
        for p in sorted(parameters, key=lambda p: p.kind in stars):
            default = ... if p.default is p.empty else p.default
            found = p.name in given
            made[p.name] = given[p.name] if found else self.proxy(self.graph.placeholder(stars.get(p.kind, "") + p.name, default_value=default))
        if any(p.kind in stars for p in parameters):
            return list(made.values()), {}, _without_stars(forward)
        named = {p.name: made.pop(p.name) for p in parameters if p.kind is p.KEYWORD_ONLY}
        return list(made.values()), named, forward

    def _step(self, f: Callable) -> Callable:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.create_proxy("call_function", f, args, kwargs) if has_proxy((args, kwargs)) else f(*args, **kwargs)

        return call

    @contextmanager
    def _watching(self, forward: Callable) -> Iterator[dict[int, Callable]]:
        """In this block functions and modules become steps. Gives what stands in the places of functions, by their ids."""
        plain = M.Module.__call__

        def called(mod: Module, *args: Any, **kwargs: Any) -> Any:
            return self.call_module(mod, lambda *a, **k: plain(mod, *a, **k), args, kwargs)

        scopes = [vars(sys.modules[home]) for home in HOMES if home in sys.modules]
        functions = {id(f): f for scope in scopes for name, f in scope.items() if not name.startswith("__") and _is_function(f)}
        functions |= {id(f): f for f in self._also}
        steps = {key: self._step(f) for key, f in functions.items()}
        files = {id(code.__globals__): code.__globals__ for code in _codes(self.root, forward)}
        scopes += [scope for key, scope in files.items()] + [vars(m) for m in self.root.modules()]
        before: list[tuple[dict, str, Any]] = []
        missing = object()
        try:
            M.Module.__call__ = called
            for scope in scopes:
                for name, f in list(scope.items()):
                    if id(f) in steps and functions[id(f)] is f:
                        before.append((scope, name, f))
                        dict.__setitem__(scope, name, steps[id(f)])
            for scope, name in _wrapped:
                f = scope.get(name, missing)
                own = f if f is not missing else vars(sys.modules["builtins"])[name]
                before.append((scope, name, f))
                scope[name] = self._step(own)
            yield steps
        finally:
            M.Module.__call__ = plain
            for scope, name, f in reversed(before):
                if f is missing:
                    del scope[name]
                else:
                    dict.__setitem__(scope, name, f)


def _without_stars(forward: Callable) -> Callable:
    """The function with *args and **kwargs as two parameters like others, behind all others. Errors: TraceError for what is not Python"""
    f = inspect.unwrap(getattr(forward, "__func__", forward))
    if not inspect.isfunction(f):
        raise TraceError(f"symbolic_trace: {forward!r} has *args and is no function of Python; help: a function of named parameters around it")
    code = f.__code__
    count = code.co_argcount + code.co_kwonlyargcount + sum(bool(code.co_flags & flag) for flag in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS))
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    plain = code.replace(co_flags=flags, co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0)
    made = FunctionType(plain, f.__globals__, f.__name__, None, f.__closure__)
    return MethodType(made, forward.__self__) if inspect.ismethod(forward) else made


def _is_function(f: Any) -> bool:
    return inspect.isfunction(f) and str(f.__module__).startswith("tengen.") and f is not wrap


def _codes(root: Module, forward: Callable) -> list[Any]:
    """The functions whose files are the module's code."""
    forwards = [forward, *(m.forward for m in root.modules())]
    plain = [getattr(f, "__func__", f) for f in forwards]
    return [f for f in plain if hasattr(f, "__globals__") and not _is_of_tengen(f.__globals__)]


def _is_of_tengen(scope: dict) -> bool:
    name = str(scope.get("__name__"))
    return name.startswith("tengen.") and name in sys.modules and vars(sys.modules[name]) is scope


def has_proxy(a: Any) -> bool:
    """Whether a proxy stands somewhere in nested arguments."""
    found: list[bool] = []
    map_aggregate(a, lambda v: found.append(True) if isinstance(v, Proxy) else None)
    return bool(found)


def symbolic_trace(root: Module | Callable, concrete_args: Mapping[str, Any] | None = None) -> GraphModule:
    """A module or a function as a `GraphModule`. See `Tracer.trace`.

    >>> from tengen.pytorch import nn, relu
    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.fc = nn.Linear(2, 3)
    ...     def forward(self, x):
    ...         return relu(self.fc(x)) + 1
    >>> [(n.op, n.name) for n in symbolic_trace(Net()).graph.nodes]
    [('placeholder', 'x'), ('call_module', 'fc'), ('call_function', 'relu'), ('call_function', 'add'), ('output', 'output')]
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
