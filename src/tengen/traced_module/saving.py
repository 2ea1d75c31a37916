"""Traced modules as plain data and back, for `tengen.save` and `tengen.load`. Nothing is executed, and no name of a file is imported.

In: a `TracedModule`. Out: tables of tensors, modules and graphs that name one another by number. A module is a class of Tengen's, or one that
`register_as_builtin` registered, with attributes that are plain data; an expression calls an op of Tengen's, or a function that `wrap`
registered. What is not exactly so is a FileFormatError.
"""

from __future__ import annotations

import copyreg
from typing import Any

import numpy as np

from tengen.base.dtype import BY_SHORT, DType
from tengen.base.errors import FileFormatError, TengenError
from tengen.deploy.loader import derived_types
from tengen.ir.graph import Graph
from tengen.ir.jsonform import from_json, to_json
from tengen.ir.text import constant_data
from tengen.ir.types import parse_type
from tengen.ir.verify import verify
from tengen.loops.lang import Expr as Extent
from tengen.loops.parse import parse_expr
from tengen.loops.text import print_expr
from tengen.module import Module
from tengen.module.module import HOOKS
from tengen.ops.define import REGISTRY, Op
from tengen.tensor import Parameter, Tensor
from tengen.traced_module.expr import CallFunction, CallMethod, Constant, Expr, GetAttr, Input
from tengen.traced_module.graph import Ids, InternalGraph, call_of
from tengen.traced_module.nest import leaves
from tengen.traced_module.node import ModuleNode, Node, TensorNode
from tengen.traced_module.traced_module import TracedModule
from tengen.traced_module.tracer import class_name, is_builtin, own_class, registered, wrapped

VERSION = 1


# ---- writing ---------------------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self) -> None:
        self.tensors: list[Any] = []
        self.modules: list[Any] = []
        self._numbers: dict[int, int] = {}

    def value(self, x: Any, where: str, nodes: dict[int, int] | None = None) -> Any:
        """A nest as tagged lists: ["n", 3] is a node, ["m", 0] a module, ["t", 1] a tensor."""
        inner = lambda v: self.value(v, where, nodes)
        if nodes is not None and isinstance(x, Node):
            return ["n", nodes[id(x)]]
        if isinstance(x, Module):
            return ["m", self.module(x, where)]
        if isinstance(x, Tensor):
            return ["t", self.tensor(x)]
        if isinstance(x, np.ndarray):
            return ["a", x]
        if x is None or type(x) in (bool, int, float, str):
            return ["v", x]
        if isinstance(x, DType):
            return ["dtype", x.short]
        if isinstance(x, Extent):
            return ["extent", print_expr(x)]
        if isinstance(x, Graph):
            return ["graph", to_json(x), dict(constant_data(x))]
        op = x if isinstance(x, Op) else getattr(x, "op", None)
        if isinstance(op, Op):
            return ["op", op.name]
        if isinstance(x, list) or (isinstance(x, tuple) and not hasattr(x, "_fields")):
            return ["list" if isinstance(x, list) else "tuple", [inner(v) for v in x]]
        if isinstance(x, dict) and all(type(k) in (str, int) for k in x):
            return ["dict", [[k, inner(v)] for k, v in x.items()]]
        raise TypeError(f"cannot save {where}: it is a {type(x).__name__}; help: a number, text, tensor, module or op, or a nest of these")

    def tensor(self, t: Tensor) -> int:
        if id(t) not in self._numbers:
            self._numbers[id(t)] = len(self.tensors)
            about = {"name": t.name, "spatial": t.spatial} if isinstance(t, Parameter) else None
            self.tensors.append([t.detach(), about])
        return self._numbers[id(t)]

    def module(self, m: Module, where: str) -> int:
        if id(m) in self._numbers:
            return self._numbers[id(m)]
        if any(m.__dict__.get(h) for h in HOOKS):
            raise TypeError(f"cannot save {where}: it has hooks, which are code; help: remove them first")
        if not isinstance(m, TracedModule) and not is_builtin(m) and class_name(type(m)) not in _containers():
            raise TypeError(f"cannot save {where}: {type(m).__name__} is no traced or builtin module; help: register_as_builtin(class)")
        row: dict[str, Any] = {"class": None if isinstance(m, TracedModule) else class_name(type(m))}
        self._numbers[id(m)] = len(self.modules)
        self.modules.append(row)
        skip = {*HOOKS, "graph", "_name", "_not_saved", "_plain"}
        row["attributes"] = [[k, self.value(v, f"{where}.{k}")] for k, v in m.__dict__.items() if k not in skip]
        row["not_saved"] = sorted(m.__dict__.get("_not_saved", ()))
        row["graph"] = self.graph(m.graph, where) if isinstance(m, TracedModule) and m.graph is not None else None
        return self._numbers[id(m)]

    def graph(self, g: InternalGraph, where: str) -> dict[str, Any]:
        nodes: dict[int, int] = {}
        rows = []
        for e in g._exprs:
            args = self.value((e.args, e.kwargs), f"{where}: {e!r}", nodes)
            for n in e.outputs:
                nodes[id(n)] = len(nodes)
            made = [[n.name, repr(n._layout.type) if isinstance(n, TensorNode) else None] for n in e.outputs]
            rows.append([_kind(e), args, made, self.value(e.return_val, where, nodes), e._kept])
        about = [self.value(x, where, nodes) for x in (g.bound, g.result)]
        return {"name": g.name, "qualname": g.qualname, "exprs": rows, "bound": about[0], "result": about[1], "grown": g._grown}


def _kind(e: Expr) -> list[Any]:
    if isinstance(e, CallFunction):
        return ["op" if isinstance(e.called, Op) else "function", e.name]
    if isinstance(e, GetAttr):
        return ["attribute", e.name]
    return ["constant", e.value] if isinstance(e, Constant) else ["input" if isinstance(e, Input) else "call"]


def pack(m: TracedModule) -> dict[str, Any]:
    """A traced module as plain data. Errors: TypeError, which names the place, for what is none."""
    w = _Writer()
    top = w.module(m, m.class_name or "the module")
    return {"version": VERSION, "top": top, "tensors": w.tensors, "modules": w.modules}


# ---- reading ---------------------------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, data: dict[str, Any]):
        self.tensors = [self._tensor(*row) for row in data["tensors"]]
        self.rows = data["modules"]
        self.modules: list[Module] = [self._class(r["class"]).__new__(self._class(r["class"])) for r in self.rows]
        self.ids = Ids()

    def _tensor(self, t: Any, about: Any) -> Tensor:
        _need(isinstance(t, Tensor) and (about is None or isinstance(about, dict)))
        if about is None:
            return t
        p = Parameter(t, name=about["name"])
        _need(isinstance(p.name, (str, type(None))) and isinstance(about["spatial"], (int, type(None))))
        if about["spatial"] is not None:
            p.spatial = about["spatial"]
        return p

    def _class(self, name: Any) -> type:
        if name is None:
            return TracedModule
        kind = registered.get(name) or own_class(str(name))
        if kind is None:
            help = "register_as_builtin(class) before the file is loaded" if ":" in str(name) else "a newer Tengen"
            raise FileFormatError(f"it needs the module class {str(name)[:80]!r}, which is not here; help: {help}")
        return kind

    def value(self, x: Any, nodes: list[Any] | None = None) -> Any:
        tag, v, *more = x
        inner = lambda y: self.value(y, nodes)
        match tag:
            case "v" if v is None or type(v) in (bool, int, float, str): return v
            case "n" if nodes is not None: return nodes[_index(v, nodes)]
            case "m": return self.modules[_index(v, self.modules)]
            case "t": return self.tensors[_index(v, self.tensors)]
            case "a" if isinstance(v, np.ndarray): return v
            case "dtype": return BY_SHORT[v]
            case "extent" if len(v) < 2000: return parse_expr(v)
            case "graph": return _verified(from_json(v, more[0]))
            case "op": return _op(v).call
            case "tuple": return tuple(map(inner, v))
            case "list": return list(map(inner, v))
            case "dict": return {k: inner(y) for k, y in v if type(k) in (str, int)}
        raise FileFormatError(f"a traced module has a value with the tag {str(tag)[:40]!r}")  # fmt: skip

    def fill(self) -> None:
        for m, row in zip(self.modules, self.rows):
            for name, v in row["attributes"]:
                known = getattr(type(m), name, None) if type(name) is str else None
                _need(type(name) is str and not name.startswith("__") and name not in (*HOOKS, "graph"))
                _need(not callable(known) and not isinstance(known, property))
                m.__dict__[name] = self.value(v)
            _need(type(m.__dict__.get("training")) is bool)
            if row["not_saved"]:
                m.__dict__["_not_saved"] = frozenset(map(str, row["not_saved"]))
            if isinstance(m, TracedModule):
                m.__dict__["graph"] = None
        for m in self.modules:
            _no_circles(m, set(), set())
        for m, row in zip(self.modules, self.rows):
            if isinstance(m, TracedModule) and row["graph"] is not None:
                m.__dict__["graph"] = self.graph(m, row["graph"])

    def graph(self, m: TracedModule, row: dict[str, Any]) -> InternalGraph:
        _need(all(type(row[k]) is str for k in ("name", "qualname")))
        g = InternalGraph(m, row["name"], row["qualname"], self.ids)
        nodes: list[Any] = []
        for kind, args, made, result, kept in row["exprs"]:
            args, kwargs = self.value(args, nodes)
            _need(isinstance(args, tuple) and isinstance(kwargs, dict))
            if kind[0] == "input":
                ((name, type_),) = made
                _need(type(name) is str and (type_ is None) is not bool(g.inputs))
                nodes.append(g.add_input(name, None if type_ is None else parse_type(type_)))
                continue
            _need(bool(g.inputs))
            e = self.expr(g, kind, args, kwargs)
            for name, type_ in made:
                _need(type(name) is str)
                if type_ is None:
                    _need(isinstance(e, GetAttr) and isinstance(g.reach(e.name), Module))
                    nodes.append(ModuleNode(g, e, name, e.name))
                else:
                    nodes.append(TensorNode(g, e, name, parse_type(type_)))
            e.outputs = nodes[len(nodes) - len(made) :] if made else []
            e.return_val, e._kept = self.value(result, nodes), kept is True
            _need([*map(id, _nodes(e))] == [*map(id, e.outputs)])
            g._exprs.append(e)
        g.bound, g.result, g._grown = self.value(row["bound"], nodes), self.value(row["result"], nodes), row["grown"] is True
        _need(isinstance(g.bound, tuple) and len(g.bound) == 2 and isinstance(g.bound[0], tuple) and isinstance(g.bound[1], dict))
        return g

    def expr(self, g: InternalGraph, kind: Any, args: tuple, kwargs: dict[str, Any]) -> Expr:
        what, *name = kind
        if what == "op":
            op = _op(name[0])
            _need(tuple(kwargs) == op.attrs)
            return call_of(g, op, args, kwargs)
        if what == "function":
            if name[0] not in wrapped:
                help = "import what defines it, with @tengen.traced_module.wrap, before the file is loaded"
                raise FileFormatError(f"it needs the function {str(name[0])[:80]!r}, which is not registered; help: {help}")
            return CallFunction(g, wrapped[name[0]], args, kwargs)
        if what == "attribute":
            path = name[0]
            _need(type(path) is str and isinstance(_safely(g, path), (Tensor, Module)))
            return GetAttr(g, path)
        if what == "call":
            _need(bool(args) and isinstance(args[0], ModuleNode))
            return CallMethod(g, args, kwargs)
        _need(what == "constant" and isinstance(name[0], np.ndarray))
        return Constant(g, name[0])


def _nodes(e: Expr) -> list[Any]:
    return [n for n in leaves(e.return_val) if isinstance(n, Node)]


def _safely(g: InternalGraph, path: str) -> Any:
    """What stands at a path of tensors and modules, and nothing else that Python's attributes reach."""
    found = dict(g.module.named_modules()) | dict(g.module.named_tensors())
    if path not in found:  # a tensor or module with two names has the first alone
        parts = path.split(".")
        _need(all(p and not p.startswith("__") for p in parts))
        return g.reach(path)
    return found[path]


def _no_circles(m: Module, above: set[int], done: set[int]) -> None:
    if id(m) in done:
        return
    _need(id(m) not in above and len(above) < 200)
    for c in m.children():
        _no_circles(c, above | {id(m)}, done)
    done.add(id(m))


def _verified(g: Graph) -> Graph:
    """The body of a loop or a branch, with every type derived again, as of a model file's graph."""
    verify(g, derived_types)
    _need(all(c.data is not None for x in g.graphs() for c in x.constants.values()) and not g.states)
    return g


def _index(i: Any, table: list[Any]) -> int:
    _need(type(i) is int and 0 <= i < len(table))
    return i


def _op(name: Any) -> Op:
    op = REGISTRY.get(name) if type(name) is str else None
    if op is None or op.kind == "shorthand":
        raise FileFormatError(f"it needs the op {str(name)[:80]!r}, which is not here")
    return op


def _containers() -> set[str]:
    return {"Sequential", "ModuleList", "ModuleDict"}


def _wrong() -> FileFormatError:
    return FileFormatError("a traced module that is not one")


def _need(true: bool) -> None:
    if not true:
        raise _wrong()


def unpack(data: Any) -> TracedModule:
    """The traced module that `pack` wrote. Errors: FileFormatError for anything else."""
    try:
        if data["version"] != VERSION:
            raise FileFormatError(f"a traced module of version {str(data['version'])[:20]}, this Tengen reads {VERSION}")
        reader = _Reader(data)
        reader.fill()
        top = reader.modules[_index(data["top"], reader.modules)]
        _need(isinstance(top, TracedModule))
        return top
    except FileFormatError:
        raise
    except (TengenError, TypeError, ValueError, LookupError, AttributeError, RecursionError, ArithmeticError, MemoryError) as e:
        raise FileFormatError(f"a traced module that is not one ({type(e).__name__}: {str(e)[:200]})") from e


def _reduced(m: TracedModule) -> tuple[Any, tuple[Any, ...]]:
    """For pickles and copies of other objects: what `tengen.save` writes of it."""
    return unpack, (pack(m),)


copyreg.pickle(TracedModule, _reduced)
