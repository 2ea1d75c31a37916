"""`InternalGraph`: the expressions of one traced module, to be looked at, edited and run.

In: expressions that `tracer.py` recorded, or that are inserted. Out: values, or text.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import itertools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError, DTypeError, ShapeError, TraceError
from tengen.deploy.deriving import as_extent, recorded
from tengen.ir.types import TensorType
from tengen.loops.extents import Numbers
from tengen.loops.lang import Expr as Extent
from tengen.loops.lang import var
from tengen.module import Module
from tengen.ops.calls import dispatch
from tengen.ops.define import Op
from tengen.tensor import Tensor
from tengen.traced_module.expr import (
    Apply,
    CallFunction,
    CallMethod,
    Constant,
    Expr,
    GetAttr,
    Input,
    is_call_function,
    is_call_module,
    reach,
)
from tengen.traced_module.nest import leaves, rebuild, same_form
from tengen.traced_module.node import ModuleNode, Node, TensorNode

BATCH = var("batch")  # the open extent of all graphs of a traced module
_running = threading.local()  # .env: the numbers of open extents of the outermost module that runs in a thread


class Ids:
    """Numbers for the nodes and expressions of a traced module and those inside of it."""

    def __init__(self, nodes: int = 0, exprs: int = 0):
        self._nodes, self._exprs = itertools.count(nodes), itertools.count(exprs)

    def node(self) -> int:
        return next(self._nodes)

    def expr(self) -> int:
        return next(self._exprs)


class InternalGraph:
    """The expressions of a traced module, in the order in which they run.

    Attributes: inputs: nodes: the module itself, then its tensors. outputs: the nodes that it gives. name, qualname: of its module.

    `exprs()` and `nodes()` and the functions `get_...` give filters: `as_list()`, `as_unique()`, `as_dict()`, `as_count()`.
    """

    def __init__(self, module: Any, name: str, qualname: str, ids: Ids):
        self.module, self.name, self.qualname, self.ids = module, name, qualname, ids
        self._exprs: list[Expr] = []
        self._names: set[str] = set()
        self.inputs: list[Any] = []
        self.bound: Any = ((), {})  # the nest (args, kwargs) of a call, with nodes for its tensors
        self._grown = False
        self.result: Any = None  # the nest that it gives, with nodes
        self._new: list[Expr] | None = None  # what is inserted, inside of `insert_exprs`
        self.watched: dict[Node, Any] = {}
        self.ends: list[Node] = []
        self._order: list[tuple[Expr, list[int]]] | None = None  # expressions, and the ids of nodes that nobody reads behind them

    # -- building --------------------------------------------------------------------------------------------------------
    def free_name(self, name: str) -> str:
        found, i = name, 0
        while found in self._names:
            i += 1
            found = f"{name}_{i}"
        self._names.add(found)
        return found

    def reach(self, path: str) -> Any:
        return reach(self.module, path)

    def changed(self) -> None:
        """An expression or a result is another one: the next run looks anew."""
        self._order = None
        if self.module.__dict__.get("graph") is self:
            self.module.revision = self.module.revision + 1  # so that recordings of `trace` hear of it

    def add(self, expr: Expr) -> Expr:
        self.changed()
        (self._exprs if self._new is None else self._new).append(expr)
        return expr

    def add_input(self, name: str, type_: TensorType | None) -> Any:
        """A node for an argument; without a type for the module."""
        expr = Input(self)
        n: Any = ModuleNode(self, expr, name, "") if type_ is None else TensorNode(self, expr, name, type_)
        expr.outputs, expr.return_val = [n], n
        self._exprs.insert(len(self.inputs), expr)
        self.inputs.append(n)
        return n

    def finish(self, expr: Expr, made: Any, name: str) -> Any:
        """Gives an expression nodes for the tensors in what it gives, and adds it. made: a nest with types in place of tensors."""

        def node(leaf: Any) -> Any:
            return TensorNode(self, expr, name, leaf) if isinstance(leaf, TensorType) else leaf

        expr.return_val = rebuild(made, node)
        expr.outputs = [n for n in leaves(expr.return_val) if isinstance(n, Node)]
        self.add(expr)
        return expr.return_val

    def attribute(self, path: str) -> Any:
        """The node of a tensor or module that the module has; the one that is there already, if it is."""
        for e in [*self._exprs, *(self._new or ())]:
            if isinstance(e, GetAttr) and e.name == path:
                return e.outputs[0]
        value, expr = self.reach(path), GetAttr(self, path)
        name = path.replace(".", "_")
        n: Any = ModuleNode(self, expr, name, path) if isinstance(value, Module) else TensorNode(self, expr, name, value._layout.type)
        expr.outputs, expr.return_val = [n], n
        self.add(expr)
        return n

    # -- looking ---------------------------------------------------------------------------------------------------------
    def __repr__(self) -> str:
        lines = [f"\t{e!r}" for e in self._exprs if not isinstance(e, Input)]
        ins, outs = (", ".join(map(repr, ns)) for ns in (self.inputs, self.outputs))
        return "\n".join([f"{self.name}.Graph ({ins}) {{", *lines, f"\treturn {outs}", "}"])

    @property
    def outputs(self) -> list[Node]:
        return [n for n in leaves(self.result) if isinstance(n, Node)]

    @property
    def top_graph(self) -> InternalGraph | None:
        """None: graphs do not know those that call their modules."""
        return None

    def exprs(self, recursive: bool = True) -> ExprFilter:
        """The expressions; recursive: with those of modules that are called, behind the call."""
        return ExprFilter(self._walk(recursive, set()))

    def _walk(self, recursive: bool, seen: set[int]) -> Iterator[Expr]:
        seen.add(id(self))
        for e in list(self._exprs):
            yield e
            if recursive and isinstance(e, CallMethod) and (g := e.graph_of_module) is not None and id(g) not in seen:
                yield from g._walk(recursive, seen)

    def nodes(self, recursive: bool = True) -> NodeFilter:
        """The nodes, in the order in which they are made."""
        return NodeFilter(n for e in self.exprs(recursive) for n in e.outputs)

    def get_function_by_type(self, func: Any = None, recursive: bool = True) -> ExprFilter:
        """The calls of a function (`functional.relu`), or of all."""
        return ExprFilter(e for e in self.exprs(recursive) if is_call_function(e, func))

    def get_method_by_type(self, method: str | None = None, recursive: bool = True) -> ExprFilter:
        """Calls of modules ("__call__"), or of the op that a method of tensors of this name is; without a name calls of modules."""
        if method in (None, "__call__"):
            return ExprFilter(e for e in self.exprs(recursive) if is_call_module(e))
        plain = str(method).strip("_")
        ops = lambda e: isinstance(e, CallFunction) and isinstance(e.called, Op) and (plain in e.called.methods or plain == e.called.operator)
        return ExprFilter(e for e in self.exprs(recursive) if ops(e))

    def get_module_by_type(self, module_cls: type, recursive: bool = True) -> NodeFilter:
        """The nodes of modules of a class."""
        if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
            raise ArgumentError(f"get_module_by_type() takes a class of modules, got {module_cls!r}")
        return NodeFilter(n for n in self.nodes(recursive) if isinstance(n, ModuleNode) and isinstance(n.owner, module_cls))

    def get_expr_by_id(self, expr_id: int | Sequence[int] = (), recursive: bool = True) -> ExprFilter:
        """The expressions of these numbers."""
        wanted = {expr_id} if isinstance(expr_id, int) else set(expr_id)
        return ExprFilter(e for e in self.exprs(recursive) if e.id in wanted)

    def get_node_by_id(self, node_id: int | Sequence[int] = (), recursive: bool = True) -> NodeFilter:
        """The nodes of these numbers."""
        wanted = {node_id} if isinstance(node_id, int) else set(node_id)
        return NodeFilter(n for n in self.nodes(recursive) if n.id in wanted)

    def get_node_by_name(self, name: str, ignorecase: bool = True, recursive: bool = True) -> NodeFilter:
        """The nodes whose name fits a pattern, in which ``*`` and ``?`` stand for anything; MegEngine's name of a node begins with its
        graph's: ``Net_conv1``."""
        fits = re.compile(fnmatch.translate(name), re.IGNORECASE if ignorecase else 0).match
        return NodeFilter(n for n in self.nodes(recursive) if fits(n.name) or fits(f"{n.graph.name}_{n.name}"))

    def get_dep_exprs(self, nodes: Node | Sequence[Node]) -> list[Expr]:
        """The expressions that nodes depend on, in order."""
        stack = [nodes] if isinstance(nodes, Node) else list(nodes)
        found: set[int] = set()
        while stack:
            e = stack.pop().expr
            if id(e) not in found:
                found.add(id(e))
                stack.extend(e.inputs)
        return [e for e in [*self._exprs, *(self._new or ())] if id(e) in found]

    # -- editing ---------------------------------------------------------------------------------------------------------
    def _own(self, *nodes: Any) -> None:
        for n in nodes:
            if not isinstance(n, Node) or n.graph is not self:
                raise ArgumentError(f"{n!r} is no node of {self.name}.Graph")

    @contextlib.contextmanager
    def insert_exprs(self, expr: Expr | None = None) -> Iterator[InternalGraph]:
        """A block in which functions of tensors that are called with nodes of this graph, and calls of its module nodes, become
        expressions: behind `expr`, else as soon as they can. Nothing is inserted where the block raises. What is computed there of tensors
        alone is a constant; the module's own tensors are nodes too: `graph.inputs[0].weight`.

        >>> from tengen import Tensor, functional as F, module as M
        >>> from tengen.traced_module import trace_module
        >>> net = trace_module(M.Sequential(M.ReLU()), Tensor([-1.0, 2.0]))
        >>> with net.graph.insert_exprs():
        ...     more = F.exp(net.graph.outputs[0]) * 2
        >>> net.graph.replace_node({net.graph.outputs[0]: more})
        >>> net(Tensor([-1.0])).tolist()
        [2.0]
        """
        if expr is not None and not any(e is expr for e in self._exprs):
            raise ArgumentError(f"{expr!r} is no expression of {self.name}.Graph")
        if self._new is not None:
            raise TraceError("insert_exprs() inside of insert_exprs() of the same graph")
        self._new, names = [], set(self._names)
        try:
            yield self
        except BaseException:
            self._names = names
            raise
        else:
            made = {id(e) for e in self._new}
            after = [n.expr for e in self._new for n in e.inputs if id(n.expr) not in made] + ([] if expr is None else [expr])
            at = max((i for i, e in enumerate(self._exprs) if any(e is x for x in after)), default=len(self.inputs) - 1) + 1
            self._exprs[at:at] = self._new
            self.changed()
        finally:
            self._new = None

    def _inserting(self) -> None:
        if self._new is None:
            raise TraceError(f"a node of {self.name}.Graph was used outside of its insert_exprs(); help: with graph.insert_exprs(): ...")

    def record(self, op: Op, inputs: tuple, attrs: tuple) -> Any:
        """A call of an op with nodes among its operands: an expression (`tensor/elsewhere.py`)."""
        self._inserting()
        operands = tuple(self._operand(x) for x in inputs)
        given = [x for x in operands if isinstance(x, TensorNode)]

        def call(*stand_ins: Any) -> Any:
            rest = iter(stand_ins)
            filled = (next(rest) if isinstance(x, TensorNode) else Tensor(x) if isinstance(x, np.ndarray) else x for x in operands)
            return dispatch.run(op, tuple(filled), attrs)

        types = [v.type for v in recorded(call, [n._layout.type for n in given]).outputs]
        expr = call_of(self, op, operands, dict(zip(op.attrs, attrs)))
        return self.finish(expr, types[0] if len(types) == 1 else tuple(types), f"{op.name}_out")

    def _operand(self, x: Any) -> Any:
        if isinstance(x, Node):
            self._own(x)
        elif isinstance(x, Tensor):
            path = next((p for p, t in self.module.named_tensors() if t is x), None)
            return x.numpy().copy() if path is None else self.attribute(path)
        return x

    def insert_attribute(self, of: ModuleNode, name: str) -> Any:
        path = f"{of.path}.{name}" if of.path else name
        value = self.reach(path)
        if not isinstance(value, (Tensor, Module)):
            return value
        self._inserting()
        return self.attribute(path)

    def insert_call(self, of: ModuleNode, args: tuple, kwargs: dict[str, Any]) -> Any:
        self._inserting()
        args, kwargs = rebuild((args, kwargs), self._operand)
        nodes = [n for n in leaves((args, kwargs)) if isinstance(n, TensorNode)]
        shape: list[Any] = []

        def call(*stand_ins: Any) -> Any:
            rest = iter(stand_ins)
            filled = rebuild((args, kwargs), lambda x: next(rest) if isinstance(x, TensorNode) else x)
            made = of.owner(*filled[0], **filled[1])
            shape.append(rebuild(made, lambda t: t._layout.type if isinstance(t, Tensor) else t))
            return made

        recorded(call, [n._layout.type for n in nodes], states=True)
        return self.finish(CallMethod(self, (of, *args), kwargs), shape[0], f"{of.name}_out")

    def replace_node(self, repl_dict: dict[Node, Node]) -> None:
        """Expressions behind the new node, and results, read it in place of the old one; what the new one is made of does not."""
        for old, new in repl_dict.items():
            self._own(old, new)
            if isinstance(old, TensorNode) is not isinstance(new, TensorNode):
                raise ArgumentError(f"replace_node(): {old!r} is a {type(old).__name__}, {new!r} a {type(new).__name__}")
            at = next(i for i, e in enumerate(self._exprs) if e is new.expr)
            for e in self._exprs[at + 1 :]:
                e.replace_inputs({old: new})
            self.result = rebuild(self.result, lambda n, old=old, new=new: new if n is old else n)
        self.changed()

    def add_input_node(self, shape: Sequence[Any], dtype: Any = "float32", name: str = "args") -> TensorNode:
        """One more argument of calls, behind the others. A text as an extent is open: its name ("batch" is that of the example)."""
        n = self.add_input(name, TensorType(tuple(map(as_extent, shape)), dtype))
        self.bound = ((*self.bound[0], n), self.bound[1])
        return n

    def reset_inputs(self, *args: Any, **kwargs: Any) -> list[TensorNode]:
        """Other arguments of calls: nested as these, with a node for each tensor among them.

        Returns: these nodes, in order. `replace_node({old: new})` puts them in the place of the old ones. An extent stays open that was open in
        the old argument of the same position and rank; of more arguments than there were, where it is that of the first argument's axis.

        Errors: TraceError in a run, for an old argument that is still read.
        """
        old, self.inputs = self.inputs[1:], self.inputs[:1]
        gone = {id(n.expr) for n in old}
        self._exprs = [e for e in self._exprs if id(e) not in gone]

        first: list[tuple[int, Any]] = []  # extents of the first argument: in the example, and here

        def node(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            at, shape = len(self.inputs) - 1, list(x.shape)
            if at < len(old) and old[at].ndim == x.ndim:
                shape = [b if isinstance(b, Extent) else d for b, d in zip(old[at]._layout.type.shape, shape)]
            elif at >= len(old):
                shape = [mine if d == n else d for d, (n, mine) in zip(shape, first)] + shape[len(first) :]
            if not first:
                first.extend(zip(x.shape, shape))
            return self.add_input("args", TensorType(tuple(shape), x.dtype))

        self.bound, self._grown = rebuild((args, kwargs), node), False
        self.changed()
        return self.inputs[1:]

    def add_output_node(self, node: TensorNode) -> None:
        """One more result: a tuple of what was given and the node; a tuple that was made so grows."""
        self._own(node)
        self.result = (*self.result, node) if self._grown else (self.result, node)
        self._grown = True
        self.changed()

    def reset_outputs(self, outputs: Any) -> None:
        """Gives another nest of nodes and constants."""
        self._own(*(n for n in leaves(outputs) if isinstance(n, (Tensor, Node))))
        self.result, self._grown = outputs, False
        self.changed()

    def compile(self) -> None:
        """Removes expressions that no result needs, but for inputs and those with `disable_remove`."""
        kept = [n for e in self._exprs if e._kept for n in e.outputs]
        needed = {id(e) for e in self.get_dep_exprs([*self.outputs, *kept, *self.watched, *self.ends])}
        self._exprs = [e for e in self._exprs if id(e) in needed or isinstance(e, Input)]
        self.changed()

    # -- running ---------------------------------------------------------------------------------------------------------
    def eval(self, *inputs: Tensor) -> list[Any]:
        """The outputs as a list, for the tensors of `inputs[1:]`."""
        if len(inputs) != len(self.inputs) - 1:
            raise TypeError(f"{self.name}.Graph takes {len(self.inputs) - 1} tensors, got {len(inputs)}")
        values = self._run(list(inputs))
        return [values[id(n)] for n in self.outputs]

    def call(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """What the module gives for these arguments. Errors: TypeError where they are not nested as those of the example."""
        if not same_form((args, kwargs), self.bound, lambda x: isinstance(x, (Tensor, Node))):
            wanted = rebuild(self.bound, lambda n: n.name if isinstance(n, Node) else n)
            raise TypeError(f"{self.name} was traced with the arguments {wanted[0]}, {wanted[1]}; tensors and constants are to be as there")
        tensors = {id(n): t for n, t in zip(leaves(self.bound), leaves((args, kwargs))) if isinstance(n, Node)}
        values = self._run([tensors[id(n)] for n in self.inputs[1:]])
        if self.ends:
            return [values[id(n)] for n in self.ends]
        return rebuild(self.result, lambda n: values[id(n)] if isinstance(n, Node) else n)

    def _run(self, tensors: list[Any]) -> dict[int, Any]:
        values: dict[int, Any] = {id(self.inputs[0]): self.module}
        outer = getattr(_running, "env", None)
        _running.env = env = self._env(tensors, outer)
        try:
            for n, t in zip(self.inputs[1:], tensors):
                values[id(n)] = t
            for e, unread in self._steps():
                e.run(values, env)
                for i in unread:
                    values.pop(i, None)
        finally:
            _running.env = outer
        for n in self.watched:
            self.watched[n] = values[id(n)]
        return values

    def _steps(self) -> list[tuple[Expr, list[int]]]:
        if self._order is None:
            last: dict[int, int] = {}
            steps, given = [e for e in self._exprs if not isinstance(e, Input)], {id(n) for n in self.inputs}
            for n in (*(n for e in steps for n in e.inputs), *self.outputs):
                if isinstance(n.expr, Input) and id(n) not in given:
                    help = f"help: graph.replace_node({{{n.name}: a new one}})"
                    raise TraceError(f"{self.name} reads {n.name}, which is no argument any more; {help}")
            for i, e in enumerate(steps):
                last.update((id(n), i) for n in (*e.inputs, *e.outputs))
            kept = {id(n) for n in (*self.outputs, *self.watched, *self.ends)}
            self._order = [(e, [n for n, at in last.items() if at == i and n not in kept]) for i, e in enumerate(steps)]
        return self._order

    def _env(self, tensors: list[Any], outer: Numbers | None) -> Numbers | None:
        """The numbers of the open extents in arguments, and of those around. Errors: ShapeError, DTypeError for other arguments."""
        found: dict[Any, Any] = {}
        for n, t in zip(self.inputs[1:], tensors):
            wanted = n._layout.type
            if t.dtype is not n.dtype:
                raise DTypeError(f"{self.name}: the argument {n.name} is {wanted!r}, it was given {t._layout.type!r}")
            if t.ndim != wanted.ndim or not all(map(functools.partial(_fits, found), wanted.shape, t.shape)):
                help = "what has a name may be another number, the same one everywhere; trace_module() with another example fixes others"
                raise ShapeError(f"{self.name}: the argument {n.name} is {wanted!r}, it was given {t._layout.type!r}; help: {help}")
        if not found:
            return outer
        return Numbers({**(outer.env if outer is not None else {}), **found})

    def copied(self, module: Any, ids: Ids) -> InternalGraph:
        """The same expressions for another module with the same attributes."""
        g = InternalGraph(module, self.name, self.qualname, ids)
        table: dict[int, Any] = {}
        for n in self.inputs:
            table[id(n)] = g.add_input(n.name, n._layout.type if isinstance(n, TensorNode) else None)
        g.inline(self, table, "")
        g.bound, g.result = (rebuild(x, lambda n: table.get(id(n), n)) for x in (self.bound, self.result))
        return g

    def inline(self, other: InternalGraph, table: dict[int, Any], prefix: str, flat: bool = False) -> None:
        """Adds another graph's expressions. table: by the id of each node there the node here; grows. prefix: of paths, which are there from
        the other's module. flat: modules with graphs of their own are inlined instead of called."""
        for e in other._exprs:
            if isinstance(e, Input):
                continue
            args, kwargs = rebuild((e.args, e.kwargs), lambda n: table.get(id(n), n) if isinstance(n, Node) else n)
            if isinstance(e, GetAttr):
                table[id(e.outputs[0])] = self.attribute(prefix + e.name)
                continue
            if flat and isinstance(e, CallMethod) and (inner := e.graph_of_module) is not None:
                within = {id(inner.inputs[0]): self.inputs[0]}
                nodes = zip(leaves(inner.bound), leaves((args[1:], kwargs)))
                within.update((id(a), b) for a, b in nodes if isinstance(a, Node))
                self.inline(inner, within, f"{prefix}{e.args[0].path}.", True)
                made = rebuild(inner.result, lambda n, within=within: within[id(n)] if isinstance(n, Node) else n)
                table.update((id(a), b) for a, b in zip(leaves(e.return_val), leaves(made)) if isinstance(a, Node))
                continue
            new: Expr
            if isinstance(e, CallMethod):
                new = CallMethod(self, args, kwargs)
            elif isinstance(e, CallFunction):
                new = type(e)(self, e.called, args, kwargs)
            else:
                assert isinstance(e, Constant)
                new = Constant(self, e.value)
            new._kept = e._kept
            types = rebuild(e.return_val, lambda n: n._layout.type if isinstance(n, TensorNode) else n)
            made = self.finish(new, types, "out")
            for a, b in zip(leaves(e.return_val), leaves(made)):
                if isinstance(a, Node):
                    table[id(a)] = b
                    self._names.discard(b._name)
                    b._name = self.free_name(a._name)


def _fits(found: dict[Any, Any], d: Any, size: Any) -> bool:
    """Whether an extent is as a type says, where `found` has the numbers of names so far, and gets more."""
    if not isinstance(d, Extent):
        return d == size
    return d.op != "var" or found.setdefault(d, size) == size


def call_of(graph: InternalGraph, called: Op | Callable, args: tuple, kwargs: dict[str, Any]) -> CallFunction:
    """A call of an op or a wrapped function; of an op that users have no function of, an `Apply`."""
    hidden = isinstance(called, Op) and not (called.functional or called.methods or called.operator)
    return (Apply if hidden else CallFunction)(graph, called, args, kwargs)


class _Filter:
    """Expressions or nodes that a search has found."""

    def __init__(self, found: Iterable[Any]):
        self._found = list(found)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._found)

    def as_list(self) -> list[Any]:
        return list(self._found)

    def as_dict(self) -> dict[int, Any]:
        """By their numbers."""
        return {x.id: x for x in self._found}

    def as_unique(self) -> Any:
        """The only one. Errors: ValueError where there is not one."""
        if len(self._found) != 1:
            raise ValueError(f"{len(self._found)} were found, one is wanted")
        return self._found[0]

    def as_count(self) -> int:
        return len(self._found)


class ExprFilter(_Filter):
    """Expressions."""


class NodeFilter(_Filter):
    """Nodes."""

    def type(self, owner_type: type) -> NodeFilter:
        """Those of tensors (`Tensor`), or of modules of a class."""
        fits = lambda n: isinstance(n.owner, owner_type) if isinstance(n, ModuleNode) else issubclass(owner_type, Tensor)
        return NodeFilter(n for n in self._found if fits(n))
