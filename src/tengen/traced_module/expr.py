"""The expressions of a traced module: an input, an attribute, a call of a module or function, a constant.

An expression has arguments, nests whose leaves are nodes and constants, and makes nodes. `interpret` runs it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tengen.ir.graph import Graph
from tengen.loops.extents import Numbers
from tengen.loops.lang import Expr as Extent
from tengen.loops.rewriting import substitute
from tengen.ops.calls import dispatch
from tengen.ops.define import Op
from tengen.passes.extents import at_extents
from tengen.tensor import Tensor
from tengen.traced_module.nest import leaves, rebuild
from tengen.traced_module.node import InGraph, ModuleNode, Node

if TYPE_CHECKING:
    from tengen.traced_module.graph import InternalGraph

__all__ = [
    "Apply", "CallFunction", "CallMethod", "Constant", "Expr", "GetAttr", "Input", "is_call_function", "is_call_module", "is_constant",
    "is_getattr", "is_input",
]  # fmt: skip


class Expr(InGraph):
    """A step of a traced module.

    Attributes:
        args, kwargs: what it is given: nests of nodes and constants. inputs, outputs: the nodes it reads and makes. return_val: what it
            gives, a nest of nodes and constants. top_graph: the graph that it is in. id: its number.
    """

    def __init__(self, graph: InternalGraph, args: tuple = (), kwargs: dict[str, Any] | None = None):
        self.graph, self.args, self.kwargs = graph, args, kwargs or {}
        self.outputs: list[Any] = []
        self.return_val: Any = None
        self._id, self._kept = graph.ids.expr(), False

    @property
    def inputs(self) -> list[Node]:
        return list({id(n): n for n in leaves((self.args, self.kwargs)) if isinstance(n, Node)}.values())

    def replace_inputs(self, repl_dict: dict[Node, Node]) -> None:
        """Reads other nodes instead."""
        table = {id(a): b for a, b in repl_dict.items()}
        self.args, self.kwargs = rebuild((self.args, self.kwargs), lambda n: table.get(id(n), n))
        self.graph.changed()

    def disable_remove(self) -> None:
        """`compile` leaves it where nobody reads what it makes."""
        self._kept = True

    def enable_remove(self) -> None:
        """`compile` removes it where nobody reads what it makes."""
        self._kept = False

    def run(self, values: dict[int, Any], env: Numbers | None) -> None:
        """Puts what it makes into `values`, by the ids of nodes. env: the numbers of open extents."""
        args, kwargs = rebuild((self.args, self.kwargs), lambda x: _value(x, values, env))
        made = self.interpret(*args, **kwargs)
        for n, v in zip(leaves(self.return_val), leaves(made), strict=True):
            if isinstance(n, Node):
                values[id(n)] = v

    def interpret(self, *args: Any, **kwargs: Any) -> Any:
        """What it gives for these values."""
        raise NotImplementedError(f"{type(self).__name__} needs interpret()")

    def told(self) -> str:
        """The right side of its line."""
        raise NotImplementedError(f"{type(self).__name__} needs told()")

    def __repr__(self) -> str:
        made = ", ".join(map(repr, self.outputs))
        return f"%{self._id}:\t{made + ' = ' if made else ''}{self.told()}"

    def _arguments(self, skip: int = 0) -> str:
        kwargs = {k: v for k, v in self.kwargs.items()}
        return "".join([*(f"{_shown(a)}, " for a in self.args[skip:]), *(f"{k}={_shown(v)}, " for k, v in kwargs.items())])


def _value(x: Any, values: dict[int, Any], env: Numbers | None) -> Any:
    if isinstance(x, Node):
        return values[id(x)]
    if isinstance(x, Extent):
        if env is None or any(isinstance(n, Extent) for n in env.env.values()):
            return substitute(x, {} if env is None else env.env)
        return env(x)
    if isinstance(x, Graph) and env is not None and all(type(n) is int for n in env.env.values()):
        return _body_at(x, tuple((str(d.attr), n) for d, n in env.env.items()))
    return Tensor(x) if isinstance(x, np.ndarray) else x


@functools.lru_cache(256)  # a call with the same body finds its plan
def _body_at(body: Graph, extents: tuple[tuple[str, int], ...]) -> Graph:
    """The body of a loop or a branch for these numbers of open extents."""
    return at_extents(body, dict(extents))


def _shown(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return repr(x.item()) if x.ndim == 0 else f"<{x.dtype}{list(x.shape)}>"
    if isinstance(x, (tuple, list)):
        inner = ", ".join(map(_shown, x))
        return f"[{inner}]" if isinstance(x, list) else f"({inner},)" if len(x) == 1 else f"({inner})"
    if isinstance(x, dict):
        return f"{{{', '.join(f'{k!r}: {_shown(v)}' for k, v in x.items())}}}"
    return str(x) if isinstance(x, (Node, Extent)) or not isinstance(x, str) else repr(x)


class Input(Expr):
    """An argument of the module, or the module itself."""

    def told(self) -> str:
        return "Input()"


class GetAttr(Expr):
    """A tensor or module that the module has: `name`, a path from it."""

    def __init__(self, graph: InternalGraph, name: str):
        super().__init__(graph, (graph.inputs[0],))
        self.name = name

    def interpret(self, module: Any) -> Any:
        return reach(module, self.name)

    def told(self) -> str:
        what = type(self.outputs[0].owner).__name__ if isinstance(self.outputs[0], ModuleNode) else "Tensor"
        return f'getattr({self.inputs[0]!r}, "{self.name}") -> ({what})'


class CallMethod(Expr):
    """A call of a module: `args` begins with its node. method: "__call__"."""

    method = "__call__"

    def interpret(self, module: Any, *args: Any, **kwargs: Any) -> Any:
        return module(*args, **kwargs)

    @property
    def graph_of_module(self) -> InternalGraph | None:
        """The graph of the module that is called; None of a builtin one."""
        return getattr(self.args[0].owner, "graph", None)

    def told(self) -> str:
        return f"{self.args[0]!r}({self._arguments(1)})"


class CallFunction(Expr):
    """A call of an op, or of a function that `wrap` registered.

    Attributes: func: the function that users call. name: the op's, or the function's "module:name".
    """

    def __init__(self, graph: InternalGraph, called: Op | Callable, args: tuple, kwargs: dict[str, Any]):
        super().__init__(graph, args, kwargs)
        self.called = called

    @property
    def func(self) -> Callable:
        return self.called.call if isinstance(self.called, Op) else self.called

    @property
    def name(self) -> str:
        return self.called.name if isinstance(self.called, Op) else function_name(self.called)

    def interpret(self, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self.called, Op):
            return dispatch.run(self.called, args, tuple(kwargs[k] for k in self.called.attrs))
        return self.called(*args, **kwargs)

    def told(self) -> str:
        return f"{self.name.rpartition(':')[2]}({self._arguments()})"


class Apply(CallFunction):
    """A call of an op that has no function of its own for users."""


class Constant(Expr):
    """A tensor that was made while tracing: `value`, an array."""

    def __init__(self, graph: InternalGraph, value: np.ndarray):
        super().__init__(graph)
        self.value = value

    def interpret(self) -> Any:
        return Tensor(self.value)

    def told(self) -> str:
        return f"Constant({_shown(self.value)})"


def function_name(f: Callable) -> str:
    """The name under which a wrapped function stands in files."""
    return f"{f.__module__}:{f.__qualname__}"


def reach(x: Any, path: str) -> Any:
    """What a module has at a path: attributes, and places in lists and dicts. Errors: AttributeError."""
    for part in path.split(".") if path else ():
        if isinstance(x, (list, tuple)):
            x = x[int(part)]
        else:
            x = x[part] if isinstance(x, dict) else getattr(x, part)
    return x


def is_call_module(expr: Expr, module_cls: type | None = None) -> bool:
    """Whether an expression calls a module, of this class if one is given."""
    return isinstance(expr, CallMethod) and (module_cls is None or isinstance(expr.args[0].owner, module_cls))


def is_call_function(expr: Expr, func: Any = None) -> bool:
    """Whether an expression calls a function, this one (or one of these) if given."""
    wanted = func if isinstance(func, (list, tuple, set)) else None if func is None else [func]
    return isinstance(expr, CallFunction) and (wanted is None or any(same_function(expr.called, f) for f in wanted))


def same_function(called: Any, f: Any) -> bool:
    """Whether what an expression calls is a function of users', or a method of tensors of this name."""
    if isinstance(called, Op):
        return f is called or getattr(f, "op", None) is called or f == called.name
    return called is f or getattr(f, "__wrapped__", None) is called


def is_constant(expr: Expr) -> bool:
    """Whether an expression is a constant."""
    return isinstance(expr, Constant)


def is_getattr(expr: Expr) -> bool:
    """Whether an expression is an attribute."""
    return isinstance(expr, GetAttr)


def is_input(expr: Expr) -> bool:
    """Whether an expression is an input."""
    return isinstance(expr, Input)
