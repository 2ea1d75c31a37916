"""`Graph`: the steps of a function in order, which are edited; and the Python that says them."""

from __future__ import annotations

import builtins
import keyword
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tengen.base.errors import ArgumentError, VerifyError
from tengen.base.record import NamedTuple
from tengen.pytorch.fx.node import Node, map_arg

INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//", operator.mod: "%",
    operator.pow: "**", operator.matmul: "@", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "==",
    operator.ne: "!=", operator.and_: "&", operator.or_: "|", operator.xor: "^", operator.lshift: "<<", operator.rshift: ">>",
}  # fmt: skip
PREFIX = {operator.neg: "-", operator.invert: "~", operator.pos: "+"}
HOMES = ("tengen.pytorch", "tengen.pytorch.nn.functional", "tengen.pytorch.special", "tengen.pytorch.linalg", "tengen.pytorch.fft")


class _Names(dict):
    """The names that a function's text uses. Args: taken: those of its variables."""

    def __init__(self, taken: set[str]):
        super().__init__(torch=sys.modules["tengen.pytorch"])
        self.taken = taken


class PythonCode(NamedTuple):
    """src: the text of `forward`. globals: the names that it uses."""

    src: str
    globals: dict[str, Any]


class Graph:
    """Steps, each behind those whose results it uses.

    Args: owning_module: the module whose attributes they name. tracer_cls: accepted.

    >>> from tengen.pytorch import relu
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> _ = graph.output(graph.call_function(relu, (x,)))
    >>> print(graph.python_code("self").src)
    def forward(self, x):
        relu = torch.relu(x);  x = None
        return relu
    <BLANKLINE>
    """

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None):
        self.owning_module = owning_module
        self._nodes: list[Node] = []
        self._names: set[str] = set()
        self._at: int | None = None  # where new steps come; None: at the end

    # -- looking ---------------------------------------------------------------------------------------------------------
    @property
    def nodes(self) -> Sequence[Node]:
        """The steps in order, as they are now: loops over them may change the graph."""
        return tuple(self._nodes)

    def output_node(self) -> Node:
        """The step that has the result."""
        return next(n for n in reversed(self._nodes) if n.op == "output")

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The steps of a kind, and of a target."""
        return [n for n in self._nodes if n.op == op and (target is None or n.target == target)]

    def __str__(self) -> str:
        return "graph():\n" + "\n".join(
            f"    return {n.args[0]}" if n.op == "output" else f"    {n.format_node()}" for n in self._nodes
        )

    def print_tabular(self) -> None:
        """Prints a line for each step: opcode, name, target, args, kwargs."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [(n.op, n.name, str(n.target), str(n.args), str(n.kwargs)) for n in self._nodes]
        widths = [max(len(r[i]) for r in rows) for i in range(5)]
        for i, row in enumerate(rows):
            print("  ".join(text.ljust(w) for text, w in zip(row, widths)).rstrip())
            if not i:
                print("  ".join("-" * w for w in widths))

    def lint(self) -> None:
        """Looks whether the steps are in order.

        Errors: VerifyError for one that uses a later step, or one of another graph, for two of one name, and for an attribute that the module
            does not have
        """
        seen: set[Node] = set()
        names: set[str] = set()
        for n in self._nodes:
            if odd := [m for m in n.all_input_nodes if m not in seen]:
                raise VerifyError(f"{n.name} uses {odd[0].name}, which is not before it in this graph")
            if n.name in names:
                raise VerifyError(f"two steps have the name {n.name!r}")
            names.add(n.name)
            seen.add(n)
            if n.op in ("call_module", "get_attr") and self.owning_module is not None:
                try:
                    operator.attrgetter(n.target)(self.owning_module)
                except AttributeError:
                    raise VerifyError(f"{n.name}: {type(self.owning_module).__name__} has no attribute {n.target!r}") from None

    # -- making ------------------------------------------------------------------------------------------------------------
    def create_node(
        self, op: str, target: Any, args: tuple | None = None, kwargs: Mapping[str, Any] | None = None, name: str | None = None,
        type_expr: Any = None,
    ) -> Node:  # fmt: skip
        """Adds a step: at the end, or where `inserting_before` or `inserting_after` says."""
        node = Node(self, self._name(name or _said(op, target)), op, target, tuple(args or ()), kwargs, type_expr)
        if self._at is None:
            self._nodes.append(node)
        else:
            self._nodes.insert(self._at, node)
            self._at += 1
        return node

    def _name(self, wanted: str) -> str:
        base = re.sub(r"\W", "_", wanted)
        base = base if base and not base[0].isdigit() and not keyword.iskeyword(base) and base not in ("self", "torch") else f"_{base}"
        stem, number = re.fullmatch(r"(.*?)(?:_(\d+))?", base).groups()
        found, i = base, int(number or 0)
        while found in self._names or hasattr(builtins, found):
            i += 1
            found = f"{stem}_{i}"
        self._names.add(found)
        return found

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """An argument, with a default if one is given."""
        return self.create_node("placeholder", name, () if default_value is ... else (default_value,), name=name.lstrip("*"))

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """A tensor of the module."""
        return self.create_node("get_attr", qualified_name)

    def call_module(
        self, module_name: str, args: tuple | None = None, kwargs: Mapping[str, Any] | None = None, type_expr: Any = None
    ) -> Node:
        """A call of a module inside."""
        return self.create_node("call_module", module_name, args, kwargs)

    def call_method(
        self, method_name: str, args: tuple | None = None, kwargs: Mapping[str, Any] | None = None, type_expr: Any = None
    ) -> Node:
        """A call of a method of args[0]."""
        return self.create_node("call_method", method_name, args, kwargs)

    def call_function(
        self, the_function: Callable, args: tuple | None = None, kwargs: Mapping[str, Any] | None = None, type_expr: Any = None
    ) -> Node:
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """The result."""
        return self.create_node("output", "output", (result,))

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda n: n) -> Node:
        """Adds a copy of a step of another graph; arg_transform: the node here that stands for one there."""
        made = self.create_node(
            node.op, node.target, map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform), node.name, node.type
        )
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Adds copies of another graph's steps; val_map: what stands for them, to which they are added. Returns what stands for the result."""
        for node in g._nodes:
            if node in val_map:
                continue
            if node.op == "output":
                return map_arg(node.args[0], lambda n: val_map[n])
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    # -- changing --------------------------------------------------------------------------------------------------------
    def erase_node(self, to_erase: Node) -> None:
        """Takes a step out. Errors: ArgumentError where its result is used"""
        if to_erase.users:
            raise ArgumentError(f"{to_erase.name} is used by {', '.join(n.name for n in to_erase.users)}; help: replace_all_uses_with first")
        at = self._nodes.index(to_erase)
        if self._at is not None and at < self._at:
            self._at -= 1
        del self._nodes[at]
        to_erase._take((), {})

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Takes out the steps whose results nobody uses, but for those that write in place. Returns whether there were any."""
        impure = is_impure_node or Node.is_impure
        dead = False
        for n in reversed(self.nodes):
            if not n.users and not impure(n):
                self.erase_node(n)
                dead = True
        return dead

    @contextmanager
    def _inserting(self, at: int) -> Iterator[None]:
        before, size = self._at, len(self._nodes)
        self._at = at
        try:
            yield
        finally:
            grown = len(self._nodes) - size
            self._at = before if before is None or before < at else before + grown

    def inserting_before(self, n: Node | None = None) -> Any:
        """A block whose new steps come before n, or before all."""
        return self._inserting(0 if n is None else self._nodes.index(n))

    def inserting_after(self, n: Node | None = None) -> Any:
        """A block whose new steps come behind n, or behind all."""
        return self._inserting(len(self._nodes) if n is None else self._nodes.index(n) + 1)

    def _beside(self, n: Node, step: int) -> Node:
        return self._nodes[(self._nodes.index(n) + step) % len(self._nodes)]

    def _move(self, x: Node, beside: Node, behind: int) -> None:
        if x is beside:
            return
        if x.graph is not self:
            raise ArgumentError(f"{x.name} is a step of another graph; help: node_copy")
        self._nodes.remove(x)
        self._nodes.insert(self._nodes.index(beside) + behind, x)

    # -- as Python ---------------------------------------------------------------------------------------------------------
    def python_code(self, root_module: str = "self", **how: Any) -> PythonCode:
        """The graph as a function `forward`, whose first parameter is `root_module`."""
        names = _Names(self._names)
        lines, parameters, last = [], [root_module], {m: n for n in self._nodes for m in n.all_input_nodes}
        spent: dict[Node, list[str]] = {}
        for m, n in last.items():
            spent.setdefault(n, []).append(m.name)
        for n in self._nodes:
            if n.op == "placeholder":
                parameters.append(f"{'*' * str(n.target).count('*')}{n.name}" + (f" = {_text(n.args[0], names)}" if n.args else ""))
                continue
            if n.op == "output":
                lines.append(f"return {_text(n.args[0], names)}")
                continue
            free = "".join(f";  {name} = None" for name in spent.get(n, ()))
            lines.append(f"{n.name} = {_call(n, root_module, names)}{free}" if n.users else f"{_call(n, root_module, names)}{free}")
        body = "\n".join(f"    {line}" for line in lines or ["pass"])
        return PythonCode(f"def forward({', '.join(parameters)}):\n{body}\n", names)


def _said(op: str, target: Any) -> str:
    """What a step is called by: the function's, the method's or the module's name."""
    if op == "output":
        return "output"
    name = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
    name = re.sub(r"\W", "_", name if op == "get_attr" else name.strip("_")) or "node"
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() if not isinstance(target, str) else name.lower()


def _text(a: Any, names: _Names) -> str:
    """An argument as Python; what has no literal stands under a name of its own."""
    if isinstance(a, Node):
        return a.name
    if isinstance(a, tuple) and not hasattr(a, "_fields"):
        return f"({', '.join(_text(v, names) for v in a)}{',' * (len(a) == 1)})"
    if isinstance(a, list):
        return f"[{', '.join(_text(v, names) for v in a)}]"
    if isinstance(a, Mapping):
        return "{" + ", ".join(f"{_text(k, names)}: {_text(v, names)}" for k, v in a.items()) + "}"
    if isinstance(a, slice):
        return f"slice({', '.join(_text(v, names) for v in (a.start, a.stop, a.step))})"
    if a is None or a is Ellipsis or type(a) in (bool, int, str, bytes) or (type(a) is float and a - a == 0):
        return "..." if a is Ellipsis else repr(a)
    return _global(a, getattr(a, "__name__", type(a).__name__), names)


def _global(value: Any, wanted: str, names: _Names) -> str:
    base = found = re.sub(r"\W", "_", wanted)
    i = 0
    while found in names.taken or (found in names and names[found] is not value):
        i += 1
        found = f"{base}_{i}"
    names[found] = value
    return found


def _call(n: Node, root: str, names: _Names) -> str:
    args = [_text(a, names) for a in n.args]
    if n.op == "get_attr":
        return _attribute(root, n.target)
    if n.op == "call_function" and not n.kwargs:
        if n.target in INFIX and len(args) == 2:
            return f"{args[0]} {INFIX[n.target]} {args[1]}"
        if n.target in PREFIX and len(args) == 1:
            return f"{PREFIX[n.target]}{args[0]}"
        if n.target is operator.getitem:
            return f"{args[0]}[{args[1]}]"
        if n.target is getattr and len(n.args) == 2 and str(n.args[1]).isidentifier():
            return f"{args[0]}.{n.args[1]}"
    given = ", ".join([*(args[1:] if n.op == "call_method" else args), *(f"{k} = {_text(v, names)}" for k, v in n.kwargs.items())])
    if n.op == "call_method":
        return f"{args[0]}.{n.target}({given})"
    return f"{_attribute(root, n.target) if n.op == 'call_module' else _function(n.target, names)}({given})"


def _attribute(root: str, path: str) -> str:
    found = root
    for part in path.split("."):
        found = f"{found}.{part}" if part.isidentifier() and not keyword.iskeyword(part) else f'getattr({found}, "{part}")'
    return found


def _function(f: Any, names: _Names) -> str:
    """A function as Python: one of `torch` by its place there."""
    name = getattr(f, "__name__", "")
    for home in HOMES:
        module = sys.modules.get(home)
        if module is not None and vars(module).get(name) is f:
            return f"{home.replace('tengen.pytorch', 'torch')}.{name}"
    if getattr(operator, name, None) is f:
        names["operator"] = operator
        return f"operator.{name}"
    return _global(f, name or "function", names)
