"""`tengen.Graph`: the static graph of a function, a network or a file, to be looked at, taken apart, put together, run and saved.

In: a function with examples, a model or a file. Out: a graph whose every edit is verified at once, with all types derived again by the
ops' own rules; one that fails leaves it as it was. The language of graphs, without the edits, is in `ir/graph.py`.
"""

from __future__ import annotations

import contextlib
import fnmatch
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError, VerifyError
from tengen.base.files import File
from tengen.deploy.deriving import PROBE, as_extent, as_plain, attributes_of, check_complete, derive, follow_batch, recorded
from tengen.deploy.dump import Dumped, dump, portable
from tengen.deploy.loader import derived_types, load_graph
from tengen.deploy.model import Model
from tengen.ir import drawing, editing
from tengen.ir.graph import Graph as Plain
from tengen.ir.graph import Node, Value, attr_graphs, map_attr
from tengen.ir.text import labels, print_graph
from tengen.ir.types import TensorType
from tengen.ir.verify import verify
from tengen.tensor import Tensor, contiguous
from tengen.tensor.recorder import Recorder
from tengen.tensor.structure import flatten


class Graph(Plain):
    """A program as a graph of ops: read it, change it, run it, save it.

    `Graph.of` makes one; `print(graph)` shows it as text, `graph.svg()` draws it. Values and nodes are held by what `find`, `node` and
    `value` give, and stay the same objects while the graph around them changes. Every edit verifies the whole graph and derives the types
    of what follows from it; one that fails raises VerifyError, which names the node and the reason, and changes nothing. `edits()` makes
    one edit of several. Loops and branches hold graphs of their own (`regions`), whose edits are verified with the outermost graph.

    Attributes:
        inputs, constants, states, nodes, outputs, output_names, checks: see `docs/graphs.md`. initial: the states' values, by name.

    >>> import tengen
    >>> from tengen import Tensor, functional as F
    >>> g = tengen.Graph.of(lambda x: F.exp(x) * 2, Tensor([0.0, 1.0]), names=["x"], outputs=["y"])
    >>> print(g)  # doctest: +ELLIPSIS
    graph main(x: f32[2]):
        const k.0: f32[]
        v0: f32[2] = exp(x) @ ...
        v1: f32[2] = mul(v0, k.0) @ ...
        return y = v1
    <BLANKLINE>
    >>> g.replace(g.node("exp"), F.relu)
    >>> g(Tensor([-1.0, 3.0])).tolist()
    [0.0, 6.0]
    """

    def __init__(self, name: str = "main"):
        super().__init__(name)
        self.initial: dict[str, np.ndarray] = {}
        self._parent: Graph | None = None
        self._model: Model | None = None
        self._open = False
        self._labels: dict[Value, str] | None = None  # until the next edit

    # -- making --------------------------------------------------------------------------------------------------------
    @classmethod
    def of(
        cls, source: Any, *examples: Any, names: Sequence[str] | None = None, outputs: Sequence[str] | None = None, name: str | None = None,
    ) -> Graph:  # fmt: skip
        """The graph of a loaded model, of another graph, or of a function or module, which is called once with stand-ins for `examples`.

        Args:
            source: what `tengen.load_graph` gave; a graph; or a function of tensors. A copy is made: a model runs on as it is.
            examples: of a function: Tensors or arrays, whose values do not count. names, outputs: of inputs and outputs (default: arg0,
                ..., output0, ...). name: of the graph (default: the source's, or "main").

        Tensors that a function only reads become constants, under their dotted names where it is a module; those that it changes become
        states, with their values of now.

        Errors: TypeError for any other source; TraceError for a function that asks for a tensor's value.
        """
        if isinstance(source, Model):
            states = {k: np.array(t.numpy()) for k, t in source.states.items()} if source.graph.states else {}
            return cls._from(source.graph.copy(), states, name)
        if isinstance(source, Plain):
            return cls._from(source.copy(), getattr(source, "initial", {}), name)
        if not callable(source):
            raise TypeError(f"Graph.of() takes a model, a graph or a function, got a {type(source).__name__}")
        given = [x if isinstance(x, Tensor) else Tensor(x) for x in examples]
        called = getattr(source, "__name__", type(source).__name__)
        recorder = Recorder(name or (called if called.isidentifier() else "main"))
        with recorder:
            made = source(*(recorder.argument(f"arg{i}", x) for i, x in enumerate(given)))
            results: list[Tensor] = []
            flatten(made, results)
            graph = recorder.finish([(f"output{i}", t) for i, t in enumerate(results)])
        data = {s: contiguous(t.detach()).numpy() for s, t in zip(graph.states, recorder.captured)}
        known = {id(t): n for n, t in getattr(source, "named_tensors", dict)()} if hasattr(source, "named_tensors") else {}
        renamed = {s: known[id(t)] for s, t in zip(graph.states, recorder.captured) if id(t) in known}
        g, arrays = portable(graph, data, names, outputs, renamed)
        return cls._from(g, {s: np.array(arrays[s]) for s in g.states})

    @classmethod
    def load(cls, file: File) -> Graph:
        """The graph in a file that `save` or `trace.dump` wrote. Errors: as `tengen.load_graph`."""
        return cls.of(load_graph(file))

    @classmethod
    def _from(cls, g: Plain, initial: Mapping[str, np.ndarray], name: str | None = None) -> Graph:
        """An editable graph of a plain one, whose parts it takes; graphs in attributes become editable, too."""
        made = cls(name or g.name)
        for field in ("inputs", "constants", "states", "nodes", "outputs", "output_names", "checks"):
            setattr(made, field, getattr(g, field))
        made.initial = dict(initial)
        for n in made.nodes:
            made._adopt(n)
        return made

    def _adopt(self, n: Node) -> None:
        for k, a in n.attrs.items():
            n.attrs[k] = map_attr(a, self._editable)

    def _editable(self, a: Any) -> Any:
        if isinstance(a, Plain):
            a = a if isinstance(a, Graph) else Graph._from(a, {})
            a._parent = self
        return a

    def copy(self, mapping: dict[Value, Value] | None = None) -> Graph:
        """An equal graph that shares nothing that may change. mapping: is filled with the new value for each old one."""
        return Graph._from(super().copy(mapping), {k: a.copy() for k, a in self.initial.items()})

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        file = io.BytesIO()
        self.save(file)
        return _unpickled, (file.getvalue(),)

    # -- looking -------------------------------------------------------------------------------------------------------
    def __str__(self) -> str:
        return print_graph(self)

    def __repr__(self) -> str:
        ins = ", ".join(f"{v.name}: {v.type}" for v in self.inputs)
        outs = ", ".join(f"{k}: {v.type}" for k, v in zip(self.output_names, self.outputs))
        return f"<graph {self.name}({ins}) -> ({outs}): {len(self.nodes)} nodes>"

    def _repr_html_(self) -> str:
        """The drawing, for notebooks."""
        return self.svg() if len(self.nodes) <= drawing.MOST_NODES else f"<pre>{drawing.escape(str(self))}</pre>"

    def svg(self) -> str:
        """A drawing as SVG: inputs above, each op below what it reads, with its constants, attributes and results' types; graphs of loops
        and branches are drawn below the graph."""
        return drawing.svg(self)

    def dot(self) -> str:
        """The graph in Graphviz's language, for its layouts and formats: ``dot -Tpdf``."""
        return drawing.dot(self)

    def walk(self, regions: bool = True) -> Iterator[Node]:
        """Every node in the order in which they run; regions: with those of loops and branches, before the node that holds them."""
        for n in list(self.nodes):
            for g in attr_graphs(n.attrs) if regions else ():
                yield from Graph.walk(g)
            yield n

    def find(
        self, op: str | None = None, name: str | None = None, where: str | None = None, test: Callable[[Node], Any] | None = None,
        regions: bool = True,
    ) -> list[Node]:  # fmt: skip
        """The nodes of which all that is given is true, in the order in which they run.

        Args:
            op: a pattern of the op's name (``"conv*"``). name: of a result's label, as `print` shows it. where: of the user's
                "file:line". test: node -> bool. regions: look into loops and branches (default).
        Errors: ArgumentError for a pattern that is no text, and for a test that cannot be called.
        """
        for what, given in (("op", op), ("name", name), ("where", where)):
            if given is not None and not isinstance(given, str):
                help_ = "; help: find(test=...) takes a function of a node" if callable(given) else ""
                raise ArgumentError(f"find: {what} is a pattern of text, got {type(given).__name__}{help_}")
        if test is not None and not callable(test):
            raise ArgumentError(f"find: test is a function of a node, got {type(test).__name__}")
        found = []
        table = {v: label for g in self.graphs() for v, label in labels(g).items()} if name is not None else {}
        for n in self.walk(regions):
            if op is not None and not fnmatch.fnmatchcase(n.op, op):
                continue
            if where is not None and not fnmatch.fnmatch(n.where or "", where):
                continue
            if name is not None and not any(fnmatch.fnmatchcase(table[v], name) for v in n.outputs):
                continue
            if test is None or test(n):
                found.append(n)
        return found

    def node(self, op: str | None = None, name: str | None = None, where: str | None = None, test: Callable | None = None) -> Node:
        """The only node that `find` finds. Errors: VerifyError where there is none, or more than one."""
        found = self.find(op, name, where, test)
        if len(found) != 1:
            given = ", ".join(f"{k}={v!r}" for k, v in (("op", op), ("name", name), ("where", where), ("test", test)) if v is not None)
            ops = ", ".join(sorted({n.op for n in self.walk()}))
            raise VerifyError(f"graph {self.name}: {len(found)} nodes with {given or 'no condition'}, one is wanted; its ops are {ops}")
        return found[0]

    def value(self, name: str) -> Value:
        """The value that `print` shows under this label, or the output of this name. Errors: VerifyError where there is none."""
        table = {label: v for v, label in self.labels().items()}
        table = {**dict(zip(self.output_names, self.outputs)), **table}
        if name not in table:
            raise VerifyError(f"graph {self.name}: no value is named {name!r}; it has {', '.join(list(table)[:20])}")
        return table[name]

    def labels(self) -> dict[Value, str]:
        """The label of each value, as `print` shows it: its own name where that is free, else with a number."""
        if self._root()._open:  # in an edit names change
            return labels(self)
        if self._labels is None:
            self._labels = labels(self)
        return self._labels

    def regions(self) -> list[Graph]:
        """The graphs of loops and branches directly in this one."""
        return [g for n in self.nodes for g in attr_graphs(n.attrs)]

    # -- editing -------------------------------------------------------------------------------------------------------
    def _root(self) -> Graph:
        return self if self._parent is None else self._parent._root()

    @contextlib.contextmanager
    def edits(self) -> Iterator[Graph]:
        """A block of several edits that are verified together at its end, and undone together on any error: for what does not
        verify in between. Blocks within it are part of it."""
        root = self._root()
        if root._open:
            yield self
            return
        root._open, values = True, dict(root.initial)
        for g in root.graphs():
            if isinstance(g, Graph):
                g._labels = None
        try:
            with editing.editing(root, derive, derived_types):
                yield self
                root._settle_states()
                check_complete(root)
        except BaseException:
            root.initial = values
            raise
        finally:
            root._open = False
        root._model = None

    def _settle_states(self) -> None:
        self.initial = {k: a for k, a in self.initial.items() if k in self.states}
        lost = sorted(self.states.keys() - self.initial.keys())
        if lost:
            raise VerifyError(f"graph {self.name}: the state {lost[0]!r} has no value; help: set graph.initial[{lost[0]!r}] in edits()")

    def _value(self, x: Any) -> Value:
        """A value that an edit is given, which may be its label. Errors: VerifyError for anything else."""
        if isinstance(x, Value):
            return x
        if isinstance(x, str):
            return self.value(x)
        told = f"the node {x!r}; help: node.outputs are its values" if isinstance(x, Node) else f"a {type(x).__name__}"
        also = "; help: graph.add_constant(name, data) makes a value of data" if isinstance(x, (Tensor, np.ndarray, float, int)) else ""
        raise VerifyError(f"graph {self.name}: a value of the graph, or its label, is needed, got {told}{also}")

    def _place(self, n: Node, before: Node | None, after: Node | None) -> None:
        at = before or after
        if at is None:
            return
        if at not in self.nodes:
            raise VerifyError(f"graph {self.name}: the place given is not in it")
        self.nodes.remove(n)
        self.nodes.insert(self.nodes.index(at) + (before is None), n)

    def insert(
        self, op: str, inputs: Sequence[Value | str | None], before: Node | None = None, after: Node | None = None,
        names: Sequence[str] = (), where: str | None = None, **attrs: Any,
    ) -> Node:  # fmt: skip
        """A new node of an op, whose results nobody reads yet; `.outputs` are its values.

        Args:
            op: its name in graphs. inputs: values, or their labels. before, after: a node beside which it runs (default: as soon as it
                can). names: of its results.
            attrs: its attributes in any form that a call takes; those that are missing have the call's defaults.
        Errors: VerifyError for an op that is not known, or whose types do not fit.

        Functions that are no ops of graphs, or several at once: `apply`.
        """
        with self.edits():
            given = attributes_of(self, op, attrs)
            values = [None if v is None else self._value(v) for v in inputs]
            attributes, types = derive(op, [None if v is None else v.type for v in values], given)
            n = self.add_node(op, values, attributes, types, where, names)
            self._place(n, before, after)
        return n

    def apply(self, function: Callable[..., Any], *values: Value | str, before: Node | None = None, name: str = "") -> Any:
        """What a function of tensors makes of values of the graph: its calls become nodes. Nobody reads the results yet.

        Args:
            function: of as many tensors as there are values (or labels of values); what it reads besides becomes constants. before: a
                node before which they stand. name: of the result, if it is one.
        Returns: a Value, or a tuple of them where the function returns several tensors.
        """
        if not callable(function):
            told = f"apply() takes a function of tensors, got {function!r}; help: insert() takes the name of an op"
            raise VerifyError(f"graph {self.name}: {told}")
        given = [self._value(v) for v in values]
        piece = recorded(function, [v.type for v in given])
        with self.edits():
            old = len(self.nodes)
            mapping = editing.append(self, piece, dict(zip(piece.inputs, given)))
            for n in self.nodes[old:]:
                self._place(n, before, None)
            made = tuple(mapping[v] for v in piece.outputs)
            if name and len(made) == 1:
                made[0].name = name
        return made[0] if len(made) == 1 else made

    def replace(self, old: Node | Value | str, new: Any) -> None:
        """Everybody who read `old` reads `new` instead; what nobody needs any more goes.

        Args:
            old: a value, or its label; or a node for all of its results.
            new: a value, or its label, or as many as the node has, or a node for its results; or a function of tensors,
                which gets what the node read (of a value, the value itself), as `apply` runs it.
        Errors: VerifyError where types do not fit, or where the graph would read itself.
        """
        old = old if isinstance(old, Node) else self._value(old)
        g = editing.owner(self, old)
        if g is not self:
            return g.replace(old, new)
        with self.edits():
            unneeded = editing.dead(self)
            olds = old.outputs if isinstance(old, Node) else [old]
            readers = {n: list(n.inputs) for n in self.nodes}
            if callable(new):
                given = [v for v in old.inputs if v is not None] if isinstance(old, Node) else [old]
                new = self.apply(new, *given, before=old if isinstance(old, Node) else None)
            many = new.outputs if isinstance(new, Node) else new if isinstance(new, (list, tuple)) else [new]
            news = [self._value(v) for v in many]
            if len(news) != len(olds):
                raise VerifyError(f"graph {self.name}: {len(news)} values for {len(olds)} results of {old!r}")
            table = dict(zip(olds, news))
            for n in readers:
                n.inputs = [table.get(v, v) if v is not None else None for v in n.inputs]
            self.redirect_results(table)
            editing.remove(self, editing.dead(self) - unneeded)

    def delete(self, node: Node, use: Value | str | None = None) -> None:
        """Removes a node.

        Args: use: what those who read its only result read instead, say the node's own input (default: nobody may read it).
        Errors: VerifyError that names the readers.
        """
        if not isinstance(node, Node):
            told = f"delete() takes a node, got {node!r}; help: graph.node(...) finds one, value.node makes a value"
            raise VerifyError(f"graph {self.name}: {told}")
        g = editing.owner(self, node)
        if g is not self:
            return g.delete(node, use)
        if use is not None:
            return self.replace(node, use)
        with self.edits():
            for v in node.outputs:
                if found := editing.readers(self, v):
                    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
                    raise VerifyError(
                        f"graph {self.name}: {node!r} cannot go, its result is read by {found[0]}{more}; help: delete(node, "
                        "use=value) says what they read instead"
                    )
            self.nodes.remove(node)

    def prune(self) -> int:
        """Removes nodes, constants and states that no output, state or check needs. Returns how many."""
        with self.edits():
            gone = editing.dead(self)
            editing.remove(self, gone)
        return len(gone)

    def rename(self, what: Value | str, name: str) -> None:
        """Another name for a value; a text names an input, constant, state or output."""
        with self.edits():
            if isinstance(what, str) and what in self.output_names:
                self.output_names[self.output_names.index(what)] = name
                return
            v = self.value(what) if isinstance(what, str) else what
            editing.owner(self, v)
            old, v.name = v.name, name
            if old in self.constants and self.constants[old].value is v:
                self.constants[old].name = name
                self.constants = editing.by_name(self.constants.values())
            elif old in self.states and self.states[old].read is v:
                self.states[old].name = name
                self.states = editing.by_name(self.states.values())
                self.initial = {name if k == old else k: a for k, a in self.initial.items()}

    def set(self, node: Node, inputs: Sequence[Value | str | None] | None = None, op: str | None = None, **attrs: Any) -> None:
        """Other inputs, another op or other attributes for a node; its results keep their readers, and get new types."""
        with self.edits():
            editing.owner(self, node)
            node.op = op or node.op
            node.inputs = node.inputs if inputs is None else [None if v is None else self._value(v) for v in inputs]
            node.attrs = attributes_of(self, node.op, attrs, node.attrs if op is None else {})
            self._adopt(node)

    def set_input(self, value: Value | str, shape: Sequence[Any] | None = None, dtype: Any = None) -> None:
        """Another shape or dtype for an input; all types that follow from it are derived again. A text as an extent is open: its name."""
        with self.edits():
            v = self._value(value)
            if v not in self.inputs:
                raise VerifyError(f"graph {self.name}: {v!r} is no input of it")
            if not isinstance(shape, (tuple, list, type(None))):
                raise VerifyError(f"graph {self.name}: a shape is a tuple of extents, got {shape!r}")
            extents = v.type.shape if shape is None else tuple(map(as_extent, shape))
            v.type = TensorType(extents, v.type.dtype if dtype is None else dtype)

    def set_batch(self, size: Any, inputs: Sequence[str] | None = None) -> None:
        """Another extent for the first axis of inputs, and of what is made of them: shapes that nodes hold as attributes (of `reshape`)
        follow, where their first extent is a multiple of the old one, as do slices that take all of it, and what is made of constants and
        repeated for each example.

        Args: size: a number, or a text: the name of an open extent. inputs: which (default: all).
        Errors: VerifyError where the inputs differ in their first extent, or the graph does not work with another one.
        """
        with self.edits():
            chosen = [self.value(k) for k in inputs] if inputs is not None else list(self.inputs)
            old = {v.type.shape[0] if v.type.ndim else None for v in chosen}
            if len(old) != 1 or (b := next(iter(old))) is None:
                told = ", ".join(f"{v.name}: {v.type}" for v in chosen) or "no inputs"
                raise VerifyError(f"graph {self.name}: its inputs have no batch in common: {told}; help: set_batch(n, inputs=[...])")
            new = as_extent(size)
            # what has to follow an open extent is found for a number, since what does not fit one is seen in a run only
            for n in (PROBE, new) if isinstance(b, int) and not isinstance(new, int) else (new,):
                before = {v: v.type for v in chosen}
                for v in chosen:
                    v.type = TensorType((n, *v.type.shape[1:]), v.type.dtype)
                follow_batch(self, b, n, before)
                b = n
            for g in self.graphs():
                for node in g.nodes:
                    if isinstance(g, Graph):
                        g._adopt(node)

    def set_constant(self, name: str, data: Any) -> None:
        """Other data for a constant, of any shape that fits those who read it."""
        with self.edits():
            if name not in self.constants:
                raise VerifyError(f"graph {self.name}: no constant is named {name!r}; it has {', '.join(list(self.constants)[:20])}")
            c = self.constants[name]
            c.data = np.ascontiguousarray(data.numpy() if isinstance(data, Tensor) else data)
            if c.data.dtype == np.float64 and c.value.type.dtype.numpy != np.float64:
                c.data = c.data.astype(c.value.type.dtype.numpy)
            c.value.type = TensorType(c.data.shape, c.data.dtype)

    def add_input(self, name: str, type: TensorType) -> Value:
        """A new input. Errors: VerifyError when the name is taken."""
        if not isinstance(type, TensorType):
            raise VerifyError(f"graph {self.name}: the type of an input is a TensorType(shape, dtype), got {type!r}")
        with self.edits():
            return super().add_input(name, type)

    def add_constant(self, name: str, data: Any, type: TensorType | None = None) -> Value:
        """A new constant with the values of an array, a Tensor or a number."""
        with self.edits():
            return super().add_constant(name, np.array(data.numpy() if isinstance(data, Tensor) else data), type)

    def add_state(self, name: str, type: TensorType, value: Any = None) -> Value:
        """A new state, which begins with `value` (default: zeros); returns its value at the start of a run. `set_state` says what it
        becomes."""
        with self.edits():
            self.initial[name] = np.zeros(type.shape, type.dtype.numpy) if value is None else np.array(value, type.dtype.numpy)
            return super().add_state(name, type)

    def set_state(self, name: str, value: Value | str | None) -> None:
        """The value that a state has after a run; None: it stays as it is."""
        if name not in self.states:
            raise VerifyError(f"graph {self.name}: no state is named {name!r}; it has {', '.join(self.states) or 'none'}")
        with self.edits():
            super().set_state(name, None if value is None else self._value(value))

    def add_node(
        self, op: str, inputs: Sequence[Value | None], attrs: Mapping[str, Any], out_types: Sequence[TensorType],
        where: str | None = None, names: Sequence[str] = (), before: Node | None = None,
    ) -> Node:  # fmt: skip
        """A new node whose types are given, for what reads graphs from elsewhere; `insert` derives them."""
        with self.edits():
            n = super().add_node(op, inputs, attrs, out_types, where, names, before)
            self._adopt(n)
        return n

    def replace_value(self, old: Value, new: Value) -> None:
        """Every reader of `old`, and every result that it is, reads `new` instead; nothing else changes."""
        with self.edits():
            super().replace_value(old, new)

    def add_output(self, name: str, value: Value | str) -> None:
        """A new output; one value may be given out under several names."""
        with self.edits():
            super().add_output(name, self._value(value))

    def remove_output(self, name: str) -> None:
        """Takes an output away, and what is computed for it alone."""
        with self.edits():
            if name not in self.output_names:
                raise VerifyError(f"graph {self.name}: no output is named {name!r}; it has {', '.join(self.output_names)}")
            unneeded = editing.dead(self)
            at = self.output_names.index(name)
            del self.outputs[at], self.output_names[at]
            editing.remove(self, editing.dead(self) - unneeded)

    # -- parts ---------------------------------------------------------------------------------------------------------
    def extract(self, inputs: Iterable[Value | str], outputs: Iterable[Value | str], name: str = "part") -> Graph:
        """A new graph that computes `outputs` from `inputs`: values or their labels, anywhere in this graph, which stays as it is.

        Errors: VerifyError where more inputs of this graph are needed.
        """
        ins, table = [self._value(v) for v in inputs], self.labels()
        outs = [(v if isinstance(v, str) else "", self._value(v)) for v in outputs]
        if not outs:
            raise VerifyError(f"graph {self.name}: a part has an output at least")
        if odd := next((v for v in [*ins, *(v for _, v in outs)] if v not in table), None):
            raise VerifyError(f"graph {self.name}: {odd!r} is not in it; help: values() gives its values, value(name) one")
        outs = [(name or table[v], v) for name, v in outs]
        part = editing.between(self, ins, outs, name)
        made = Graph._from(part.copy(), {k: a.copy() for k, a in self.initial.items() if k in part.states})
        made.verify()
        return made

    def join(self, other: Plain, inputs: Mapping[str, Value | str] | None = None) -> dict[Value, Value]:
        """Adds another graph behind this one; the outputs that it reads are outputs no longer, and its own are.

        Args: inputs: for each input of the other its value here, or the name of an output or value (default: the inputs that have
            the name of an output here, or its only input is the only output). Others become inputs of this graph.
        Returns: the value here for each value of the other.
        Errors: VerifyError where types do not fit, or names of outputs are taken.
        """
        if not isinstance(other, Plain):
            raise VerifyError(f"graph {self.name}: join() takes a graph, got {other!r}; help: Graph.of(model), Graph.load(file)")
        other = other.copy() if other is self else other
        if inputs is None:
            alone = len(other.inputs) == len(self.outputs) == 1
            both = [v.name for v in other.inputs if v.name in self.output_names]
            inputs = {other.inputs[0].name: self.output_names[0]} if alone else {k: k for k in both}
        names = {v.name: v for v in other.inputs}
        if odd := inputs.keys() - names.keys():
            raise VerifyError(f"graph {other.name} has no input {min(odd)!r}, only {', '.join(names)}")
        with self.edits():
            fed = {names[k]: self._value(v) for k, v in inputs.items()}
            for a, b in fed.items():
                if a.type is not b.type and all(isinstance(d, int) for d in a.type.shape):
                    raise VerifyError(f"graph {other.name}: its input {a.name!r} is {a.type}, it was given {b!r}")
            mapping = editing.append(self, other, fed)
            for s in other.states.values():
                self.initial[mapping[s.read].name] = np.array(getattr(other, "initial", {})[s.name])
            kept = [(k, v) for k, v in zip(self.output_names, self.outputs) if v not in fed.values()]
            new = [*kept, *((k, mapping[v]) for k, v in zip(other.output_names, other.outputs))]
            self.output_names, self.outputs = [k for k, _ in new], [v for _, v in new]
        return mapping

    # -- running -------------------------------------------------------------------------------------------------------
    def verify(self) -> None:
        """Every rule of graphs, and every type by its op's rule. Errors: VerifyError. Edits do this by themselves."""
        verify(self, derived_types)
        check_complete(self)

    def model(self) -> Model:
        """The graph as it is now as a `Model`, which is compiled at its first call."""
        self.verify()
        return Model(as_plain(self), {k: a.copy() for k, a in self.initial.items()})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the graph once, as a loaded model is run. States begin with `initial` after each edit, and go on from call to call."""
        if self._model is None:
            self._model = self.model()
        return self._model(*args, **kwargs)

    def save(self, file: File) -> Dumped:
        """Writes the graph with its constants and initial states; `Graph.load` and `tengen.load_graph` read it, `tengen compile` makes an
        artifact of it. Errors: OSError when the file cannot be written."""
        self.verify()
        return dump(as_plain(self), self.initial, file)


def _unpickled(data: bytes) -> Graph:
    return Graph.load(io.BytesIO(data))


__all__ = ["Graph", "Node", "TensorType", "Value"]
