"""`Node`: one step of a `Graph`, and what uses its result."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tengen.base.errors import ArgumentError

if TYPE_CHECKING:
    from tengen.pytorch.fx.graph import Graph

OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """A copy of nested tuples, lists, dicts and slices with fn of each of their leaves."""
    if isinstance(a, tuple):
        found = [map_aggregate(v, fn) for v in a]
        return type(a)(*found) if hasattr(a, "_fields") else tuple(found)
    if isinstance(a, list):
        return [map_aggregate(v, fn) for v in a]
    if isinstance(a, Mapping):
        return {k: map_aggregate(v, fn) for k, v in a.items()}
    if isinstance(a, slice):
        return slice(*(map_aggregate(v, fn) for v in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """`map_aggregate` with fn of the nodes alone."""
    return map_aggregate(a, lambda v: fn(v) if isinstance(v, Node) else v)


class Node:
    """A step.

    Attributes:
        op: "placeholder" (an argument: its name is `target`), "get_attr" (a tensor of the module, by its dotted name), "call_function" (of the
            function `target`), "call_method" (of that name, of the first of `args`), "call_module" (a module by its dotted name), or "output",
            whose first argument is the result. args, kwargs: what it is called with; nodes stand for their results. users: the nodes that
            use the result, as the keys of a dict. meta: a dict for whoever wants to note something. graph: whose step it is.
    """

    def __init__(
        self, graph: Graph, name: str, op: str, target: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None, type: Any = None
    ):
        if op not in OPS:
            raise ArgumentError(f"a node of fx is one of {', '.join(OPS)}, not {op!r}")
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._inputs: dict[Node, None] = {}
        self._args: tuple = ()
        self._kwargs: dict[str, Any] = {}
        self._take(args, dict(kwargs or {}))

    def _take(self, args: tuple, kwargs: dict[str, Any]) -> None:
        for n in self._inputs:
            n.users.pop(self, None)
        self._args, self._kwargs, self._inputs = args, kwargs, {}
        map_arg((args, kwargs), lambda n: self._inputs.setdefault(n))
        for n in self._inputs:
            n.users[self] = None

    @property
    def args(self) -> tuple:
        """The arguments by position."""
        return self._args

    @args.setter
    def args(self, value: Any) -> None:
        self._take(tuple(value), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments by name."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: Mapping[str, Any]) -> None:
        self._take(self._args, dict(value))

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes whose results it uses, each once."""
        return list(self._inputs)

    @property
    def next(self) -> Node:
        """The step behind it."""
        return self.graph._beside(self, 1)

    @property
    def prev(self) -> Node:
        """The step before it."""
        return self.graph._beside(self, -1)

    def append(self, x: Node) -> None:
        """Moves x behind this step."""
        self.graph._move(x, self, 1)

    def prepend(self, x: Node) -> None:
        """Moves x before this step."""
        self.graph._move(x, self, 0)

    def update_arg(self, idx: int, arg: Any) -> None:
        """Gives the argument at a position another value."""
        self.args = (*self._args[:idx], arg, *self._args[idx + 1 :])

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Gives the argument of a name another value."""
        self.kwargs = {**self._kwargs, key: arg}

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Puts an argument before the one at a position."""
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Uses another node in the place of one."""
        swap = lambda n: new_input if n is old_input else n
        self._take(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True, *, propagate_meta: bool = False
    ) -> list[Node]:
        """Lets all users, or those for which delete_user_cb is true, use another node. Returns them. propagate_meta: it gets `meta`, too."""
        if propagate_meta:
            replace_with.meta.update(self.meta)
        changed = [user for user in list(self.users) if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def is_impure(self) -> bool:
        """Whether the step stays though nobody uses its result: arguments, results, and what writes in place."""
        if self.op in ("placeholder", "output"):
            return True
        named = self.target if isinstance(self.target, str) else getattr(self.target, "__name__", "")
        writes = self.op in ("call_method", "call_function") and named.endswith("_") and not named.endswith("__")
        if self.op == "call_module":
            return _writes(self.graph, self.target)
        return writes or self.target is operator.setitem or "out" in self._kwargs

    def format_node(self) -> str:
        """The step as a line."""
        args, kwargs = map_arg((self._args, self._kwargs), _Shown)
        called = f"{self.op}[target={named_target(self)}](args = {args}, kwargs = {kwargs})"
        return f"%{self.name} : [num_users={len(self.users)}] = {called}"

    def __repr__(self) -> str:
        return self.name


class _Shown:
    """A node as `format_node` writes it."""

    def __init__(self, node: Node):
        self.node = node

    def __repr__(self) -> str:
        return f"%{self.node.name}"


def _writes(graph: Graph, target: str) -> bool:
    module = graph.owning_module
    try:
        return module is not None and bool(getattr(module.get_submodule(target), "inplace", False))
    except AttributeError:
        return False


def named_target(node: Node) -> str:
    """The target as text: of a function its module and name."""
    t = node.target
    if isinstance(t, str):
        return t
    module = getattr(t, "__module__", None)
    name = getattr(t, "__name__", repr(t))
    return name if module in (None, builtins.__name__) else f"{module.replace('_operator', 'operator')}.{name}"
