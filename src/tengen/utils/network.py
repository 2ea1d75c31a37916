"""MegEngine's surgery on model files: `Network`, over `tengen.Graph`, which is the shorter way for new programs.

In: a file that `trace.dump` wrote. Out: variables and operators to look at, to extend by functions of tensors and to replace; a file
again. Every change is verified at once, with all types derived again; one that does not verify changes nothing.
"""

from __future__ import annotations

import collections.abc
import fnmatch
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tengen.base.errors import TraceError, VerifyError
from tengen.base.files import File
from tengen.deploy.dump import Dumped
from tengen.deploy.graphs import Graph, Node, TensorType, Value
from tengen.deploy.megengine_options import check_dump_options
from tengen.ir.editing import append
from tengen.ir.graph import copy_node
from tengen.logger import get_logger
from tengen.ops.calls import dispatch
from tengen.utils.comp_graph_tools import get_dep_vars, get_oprs_seq
from tengen.utils.network_node import Host2DeviceCopy, ImmutableTensor, NetworkNode, OpNode, VarNode, kind_of

__all__ = [
    "Network", "NodeFilter", "NodeFilterCheckType", "NodeFilterHasInput", "NodeFilterName", "NodeFilterNotType", "NodeFilterType",
    "as_oprnode", "as_varnode", "set_symbolic_shape",
]  # fmt: skip


class Network:
    """A model file taken apart.

    Attributes: graph: the `tengen.Graph` beneath, which may be edited too. input_vars, output_vars (`dest_vars`): variables.

    >>> import os, tempfile, tengen
    >>> from tengen import Tensor, functional as F
    >>> path = os.path.join(tempfile.mkdtemp(), "f.tgn")
    >>> _ = tengen.trace(lambda x: F.exp(x) + 1, example_input=Tensor([0.0])).dump(path, arg_names=["x"], output_names=["y"])
    >>> net = Network.load(path)
    >>> exp = net.opr_filter.type(OpNode).name("v0").as_unique().outputs[0]
    >>> net.replace_vars({exp: F.relu(net.input_vars[0])})
    >>> net.reset_batch_size(3)
    >>> _ = net.dump(path)
    >>> tengen.load_graph(path)([-1.0, 0.0, 1.0]).tolist()
    [1.0, 1.0, 2.0]
    """

    def __init__(self) -> None:
        self.graph = Graph("network")
        self._vars: dict[Value, VarNode] = {}
        self._oprs: dict[Node | Value, OpNode] = {}

    @classmethod
    def load(cls, model_path: File, outspec: Sequence[str] | None = None) -> Network:
        """The network in a file. outspec: names of variables; only what they need is loaded, and they are the outputs."""
        self = cls()
        self.graph = Graph.load(model_path)
        taken = set(self.graph.labels().values())
        with self.graph.edits():
            for name, v in zip(self.graph.output_names, self.graph.outputs):
                if v.node is not None and not v.name and name not in taken:
                    v.name = name  # a variable that is an output has the output's name
        if outspec is not None:
            outs = [(name, self.graph.value(name)) for name in outspec]
            with self.graph.edits():
                self.graph.outputs, self.graph.output_names = [v for _, v in outs], [name for name, _ in outs]
            self.graph.prune()
        return self

    # -- variables and operators ---------------------------------------------------------------------------------------
    def var_of(self, v: Value) -> VarNode:
        """The variable of a value of the graph."""
        found = self._vars.get(v)
        if found is None:
            found = self._vars[v] = VarNode(self, v)
        elif found._layout.type is not v.type:
            found._bind(self, v)
        return found

    def owner_of(self, v: Value) -> OpNode:
        """The operator that makes a value."""
        of: Node | Value = v if v.node is None else v.node
        if of not in self._oprs:
            self._oprs[of] = kind_of(self, of)(self, of)
        return self._oprs[of]

    def name_of(self, v: Value) -> str:
        return self.graph.labels()[v]

    def rename(self, v: Value, name: str) -> None:
        with self.graph.edits():
            for i, o in enumerate(self.graph.outputs):
                if o is v and self.graph.output_names[i] == self.name_of(v):
                    self.graph.output_names[i] = name
            self.graph.rename(v, name)

    def retype(self, var: VarNode, shape: Sequence[Any]) -> None:
        self.graph.set_input(var._data, shape)

    def data_of(self, v: Value) -> np.ndarray:
        """The values of a constant or state."""
        if v.name in self.graph.constants and self.graph.constants[v.name].value is v:
            data = self.graph.constants[v.name].data
        elif v.name in self.graph.states and self.graph.states[v.name].read is v:
            data = self.graph.initial[v.name]
        else:
            raise TraceError(f"VarNode:{self.name_of(v)} has no value before a run; help: GraphInference runs a network")
        view = np.asarray(data).view()
        view.flags.writeable = False
        return view

    def set_data(self, var: VarNode, data: Any) -> None:
        array = np.asarray(data, None if isinstance(data, np.ndarray) else var.dtype.numpy)
        name = var._data.name
        if name in self.graph.constants:
            return self.graph.set_constant(name, array)
        if array.shape != self.graph.initial[name].shape:
            raise VerifyError(f"the state {name!r} has the shape {self.graph.initial[name].shape}, it was given {array.shape}")
        with self.graph.edits():
            self.graph.initial[name] = np.array(array, var.dtype.numpy)

    def record(self, op: Any, inputs: tuple, attrs: tuple) -> Any:
        """A call of an op with variables among its operands: nodes of the graph (`tensor/elsewhere.py`)."""
        vars_ = [x for x in inputs if isinstance(x, VarNode)]
        for v in vars_:
            self._take(v.network)

        def call(*stand_ins: Any) -> Any:
            rest = iter(stand_ins)
            return dispatch.run(op, tuple(next(rest) if isinstance(x, VarNode) else x for x in inputs), attrs)

        made = self.graph.apply(call, *(v._data for v in vars_))
        return tuple(map(self.var_of, made)) if isinstance(made, tuple) else self.var_of(made)

    def _take(self, other: Network) -> Callable[[], None]:
        """Makes all of another network part of this one; its variables are this one's from now on, and it is empty. Returns a function that
        undoes this, but for the graph, whose edits undo themselves."""
        if other is self:
            return lambda: None
        whole = other.graph, other._vars, other._oprs
        with self.graph.edits():
            mapping = append(self.graph, other.graph, {})
            for s in other.graph.states.values():
                self.graph.initial[mapping[s.read].name] = other.graph.initial[s.name]
        for v, var in other._vars.items():
            self._vars[mapping[v]] = var
            var._bind(self, mapping[v])
        nodes = {a.node: b.node for a, b in mapping.items() if a.node is not None}
        for of, opr in other._oprs.items():
            opr.network, opr.of = self, nodes[of] if isinstance(of, Node) else mapping[of]
            self._oprs[opr.of] = opr
        other.__init__()  # as new: what it had is elsewhere

        def give_back() -> None:
            other.graph, other._vars, other._oprs = whole
            for v, var in other._vars.items():
                self._vars.pop(mapping[v], None)
                var._bind(other, v)
            for of, opr in other._oprs.items():
                self._oprs.pop(opr.of, None)
                opr.network, opr.of = other, of

        return give_back

    def copied(self, outputs: Sequence[Value], table: dict[Value, Value]) -> list[Value]:
        """Values like `outputs`, with others in place of some that they depend on."""
        with self.graph.edits():
            mapping = dict(table)
            for n in list(self.graph.nodes):
                if any(v in mapping for v in n.inputs) and not all(v in mapping for v in n.outputs):
                    whole = {v: mapping.get(v, v) for v in n.inputs if v is not None}
                    made = copy_node(self.graph, n, whole)
                    mapping = {**dict(zip(n.outputs, made.outputs)), **mapping}
        return [mapping.get(v, v) for v in outputs]

    @property
    def input_vars(self) -> list[VarNode]:
        return [self.var_of(v) for v in self.graph.inputs]

    @property
    def output_vars(self) -> list[VarNode]:
        return [self.var_of(v) for v in self.graph.outputs]

    dest_vars = output_vars

    @property
    def metadata(self) -> None:
        """What MegEngine's files say of how they were made; these say nothing of it."""
        return None

    @property
    def all_oprs(self) -> list[OpNode]:
        """The operators that the outputs depend on, each after those that it reads."""
        return get_oprs_seq(self.output_vars, False, False)

    @property
    def all_vars(self) -> list[VarNode]:
        """The variables that the outputs depend on, these first."""
        return get_dep_vars(self.output_vars)

    @property
    def all_vars_dict(self) -> OrderedDict[str, Any]:
        return self.var_filter.as_dict()

    @property
    def all_oprs_dict(self) -> OrderedDict[str, Any]:
        return self.opr_filter.as_dict()

    @property
    def opr_filter(self) -> NodeFilter:
        """All operators, to be filtered."""
        return NodeFilter(self.all_oprs)

    @property
    def var_filter(self) -> NodeFilter:
        """All variables, to be filtered."""
        return NodeFilter(self.all_vars)

    @property
    def params_filter(self) -> NodeFilter:
        """The constants' operators."""
        return self.opr_filter.param_provider()

    @property
    def data_providers_filter(self) -> NodeFilter:
        """The inputs' operators."""
        return self.opr_filter.data_provider()

    def get_opr_by_type(self, oprcls: type[OpNode], unique: bool = True) -> Any:
        """The operators of a class; with `unique` the only one. Errors: ValueError where there is not one; TypeError for no class."""
        if not (isinstance(oprcls, type) and issubclass(oprcls, OpNode)):
            raise TypeError(f"get_opr_by_type() takes a class of operators, as network_node.Elemwise, got {oprcls!r}")
        return _one(self.opr_filter.type(oprcls).as_list(), f"operators of type {oprcls.__name__}", unique)

    def get_opr_by_name(self, name: str, unique: bool = True) -> Any:
        """The operators of a name (``*`` and ``?`` stand for anything); with `unique` the only one."""
        return _one(self.opr_filter.name(name).as_list(), f"operators named {name!r}", unique)

    def get_var_by_name(self, name: str, unique: bool = True) -> Any:
        """The variables of a name; with `unique` the only one."""
        return _one(self.var_filter.name(name).as_list(), f"variables named {name!r}", unique)

    def get_var_receive_oprs(self, var: VarNode) -> list[OpNode]:
        """The operators that read a variable."""
        return self.opr_filter.has_input(var).as_list()

    def get_dep_oprs(self, var: VarNode) -> list[OpNode]:
        """The operators that a variable depends on."""
        return get_oprs_seq(var, False, False)

    # -- changing ------------------------------------------------------------------------------------------------------
    def make_const(self, data: Any, name: str | None = None, device: Any = None) -> VarNode:
        """A variable with these values. Python's numbers and float64 arrays are taken as float32, int64 as int32, as in MegEngine."""
        array = np.asarray(data)
        narrow = {np.dtype(np.float64): np.float32, np.dtype(np.int64): np.int32}
        return self.var_of(self.graph.add_constant(name or self.free_name("const"), array.astype(narrow.get(array.dtype, array.dtype))))

    def make_input_node(self, shape: Sequence[Any], dtype: Any, name: str | None = None, device: Any = None) -> VarNode:
        """A new input. One that no output depends on is left out by `dump`."""
        return self.var_of(self.graph.add_input(name or self.free_name("input"), TensorType(tuple(shape), dtype)))

    def free_name(self, name: str) -> str:
        """A name that begins so, and that no variable has."""
        taken, i = set(self.graph.labels().values()), 0
        while f"{name}{i}" in taken:
            i += 1
        return f"{name}{i}"

    def add_output(self, *vars: VarNode) -> None:
        """More outputs, under the variables' names."""
        for v in map(as_varnode, vars):
            self._take(v.network)
            if v._data not in self.graph.outputs:
                self.graph.add_output(v.name, v._data)

    def remove_output(self, *vars: VarNode) -> None:
        """Takes outputs away; what else is computed stays at hand."""
        for v in map(as_varnode, vars):
            if v._data not in self.graph.outputs:
                get_logger().warning("Failed to remove %s: it is no output", v)
                continue
            with self.graph.edits():
                at = self.graph.outputs.index(v._data)
                del self.graph.outputs[at], self.graph.output_names[at]

    def add_dep_oprs(self, *vars: VarNode) -> list[VarNode]:
        """Makes the network that variables are of part of this one. Returns the variables (default: the outputs)."""
        if wrong := next((v for v in vars if not isinstance(v, VarNode)), None):
            raise TypeError(f"add_dep_oprs() takes variables, got a {type(wrong).__name__}")
        for v in vars:
            self._take(v.network)
        return list(vars or self.output_vars)

    def replace_vars(self, repl_dict: Mapping[VarNode, VarNode]) -> None:
        """Who read a variable reads another one, outputs too; what the other is made of goes on reading the first.

        Errors: VerifyError where types do not fit; nothing is changed then.
        """
        self._check_replaced(repl_dict, VarNode)
        taken: list[Callable[[], None]] = []
        try:
            with self.graph.edits():
                for new in repl_dict.values():
                    taken.append(self._take(new.network))
                self._redirect(repl_dict)
        except BaseException:
            for give_back in reversed(taken):
                give_back()
            raise

    def _redirect(self, repl_dict: Mapping[VarNode, VarNode]) -> None:
        """Replaces variables, as `replace_vars` does, which looked at them."""
        with self.graph.edits():
            kept = {v.owner.of for new in repl_dict.values() for v in get_dep_vars(new)}
            table = {a._data: b._data for a, b in repl_dict.items()}
            for n in self.graph.nodes:
                if n not in kept:
                    n.inputs = [None if v is None else table.get(v, v) for v in n.inputs]
            self.graph.redirect_results(table)

    def _check_replaced(self, repl_dict: Any, kind: type) -> None:
        """TypeError unless a table has such nodes alone; VerifyError unless those that are replaced are of this network."""
        if not isinstance(repl_dict, Mapping):
            raise TypeError(f"a dict of what is replaced and what takes its place is needed, got a {type(repl_dict).__name__}")
        for x in (*repl_dict, *repl_dict.values()):
            if not isinstance(x, kind):
                help_ = "variable.owner is an OpNode, operator.outputs are VarNodes"
                if kind is VarNode and not isinstance(x, NetworkNode):
                    help_ = "network.make_const(values) makes a variable"
                raise TypeError(f"what is replaced is of {kind.__name__}, got {type(x).__name__}; help: {help_}")
        strange = next((x for x in repl_dict if x.network is not self), None)
        if strange is not None:
            raise VerifyError(f"{strange!r} is of another network; help: replace what this one has, as get_var_by_name() finds it")

    def replace_oprs(self, repl_dict: Mapping[OpNode, OpNode]) -> None:
        """Who read an operator's results reads those of another one. Errors: VerifyError where their number or types do not fit."""
        self._check_replaced(repl_dict, OpNode)
        for a, b in repl_dict.items():
            if len(a.outputs) != len(b.outputs):
                raise VerifyError(f"{a!r} has {len(a.outputs)} results, and {b!r}, which takes its place, has {len(b.outputs)}")
        pairs = [(a.outputs, b.outputs) for a, b in repl_dict.items()]
        self.replace_vars({a: b for old, new in pairs for a, b in zip(old, new)})

    def modify_opr_names(self, modifier: str | Callable[[str], str]) -> None:
        """Other names for all operators: a text is put before each with a dot, a function maps the old to the new."""
        f = modifier if callable(modifier) else lambda name: f"{modifier}.{name}"
        with self.graph.edits():
            wanted = [(o.outputs[0]._data, f(o.name)) for o in self.all_oprs]
            given = {id(v): name for v, name in wanted}
            own = self.graph.labels()
            pairs = zip(self.graph.output_names, self.graph.outputs)
            self.graph.output_names = [given.get(id(v), k) if own[v] == k else k for k, v in pairs]
            for i, (v, _) in enumerate(wanted):  # out of the way: a new name may be another's old one
                if v.node is None:
                    self.graph.rename(v, f"\N{MIDDLE DOT}{i}")
            for v, name in wanted:
                if v.node is None:
                    self.graph.rename(v, name)
                v.name = name

    def reset_batch_size(self, batchsize: Any, *, blacklist: Iterable[str] = ()) -> None:
        """Another first extent of all inputs but those named: a number, or a text, the name of an open extent.

        Errors: ValueError for a name in `blacklist` that no input has; VerifyError where the inputs differ, or the network does not work
        with another one.
        """
        names = [v.name for v in self.graph.inputs]
        if unknown := [n for n in blacklist if n not in names]:
            raise ValueError(f"reset_batch_size(): no input is named {unknown[0]!r}, they are {', '.join(names)}")
        self.graph.set_batch(batchsize, [n for n in names if n not in set(blacklist)])

    def optimize_for_inference(self, dest_vars: Any, **kwargs: Any) -> list[VarNode]:
        """The variables as they are: a program is optimised when it is compiled, and changes no bit by it."""
        return [dest_vars] if isinstance(dest_vars, VarNode) else list(dest_vars)

    def dump(self, file: File, **megengine_options: Any) -> Dumped:
        """Writes the network as a model file, with the operators and inputs that its outputs depend on.

        Args: file: a path or a file. Others are MegEngine's; all names are kept, and what they ask for is done when a file is compiled.
        Errors: ConfigError with `user_info` or `append`, which no file keeps; TypeError for an option that there is not; ValueError
        without outputs.
        """
        check_dump_options("Network.dump()", megengine_options)
        if not self.graph.outputs:
            raise ValueError("Network.dump(): there is no output; help: network.add_output(var)")
        g = self.graph.copy()
        g.prune()
        read = {v for n in g.nodes for v in n.inputs} | set(g.results())
        with g.edits():
            g.inputs = [v for v in g.inputs if v in read]
        return g.save(file)


def _one(found: list, what: str, unique: bool) -> Any:
    if unique and len(found) != 1:
        raise ValueError(f"{len(found)} {what} found, one is wanted")
    return found[0] if unique else found


_symbolic = False


def set_symbolic_shape(option: bool) -> bool:
    """Takes MegEngine's call, and returns what was set before: whether shapes are variables. Here they are numbers, or arithmetic over
    open extents, and `reset_batch_size` changes the shapes that nodes hold."""
    global _symbolic
    old, _symbolic = _symbolic, bool(option)
    return old


def as_varnode(obj: Any) -> VarNode:
    """A variable: itself, the only result of an operator, or what is the only element of an iterable. Errors: TypeError, ValueError."""
    if isinstance(obj, VarNode):
        return obj
    return as_varnode(_single(obj.outputs if isinstance(obj, OpNode) else obj, "VarNode"))


def as_oprnode(obj: Any) -> OpNode:
    """An operator: itself, the one that makes a variable, or what is the only element of an iterable. Errors: TypeError, ValueError."""
    if isinstance(obj, OpNode):
        return obj
    return obj.owner if isinstance(obj, VarNode) else as_oprnode(_single(obj, "OpNode"))


def _single(obj: Any, what: str) -> Any:
    if not isinstance(obj, collections.abc.Iterable) or isinstance(obj, str):
        raise TypeError(f"a {type(obj).__name__} is no {what}")
    found = list(obj)
    if len(found) != 1:
        raise ValueError(f"{len(found)} of them are no {what}, one is")
    return found[0]


class NodeFilter:
    """Nodes of a network, filtered: conditions are chained, and `as_list`, `as_unique`, `as_dict` and `as_count` end the chain.

    Args: node_iter: an iterable of nodes; or a variable or operator, for the operators that it depends on.
    """

    def __init__(self, node_iter: Any):
        if isinstance(node_iter, (VarNode, OpNode)):
            own = as_oprnode(node_iter)
            starts = [node_iter] if isinstance(node_iter, VarNode) else node_iter.inputs
            node_iter = [o for o in get_oprs_seq(starts, False, False) if o is not own]
        if not isinstance(node_iter, collections.abc.Iterable):
            raise TypeError(f"NodeFilter() takes nodes of a network, got a {type(node_iter).__name__}")
        self._iter = node_iter if isinstance(node_iter, NodeFilter) else _checked(node_iter, NetworkNode)

    @classmethod
    def make_all_deps(cls, *dest_vars: VarNode) -> NodeFilter:
        """All operators that variables depend on."""
        return cls(get_oprs_seq(dest_vars, False, False))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._iter)

    def type(self, node_type: type) -> NodeFilter:
        """Those of a class."""
        return NodeFilterType(self, node_type)

    def not_type(self, node_type: type) -> NodeFilter:
        """Those of no such class."""
        return NodeFilterNotType(self, node_type)

    def check_type(self, node_type: type) -> NodeFilter:
        """All; TypeError for one that is not of a class."""
        return NodeFilterCheckType(self, node_type)

    def param_provider(self) -> NodeFilter:
        """Constants."""
        return self.type(ImmutableTensor)

    def data_provider(self) -> NodeFilter:
        """Inputs."""
        return self.type(Host2DeviceCopy)

    def name(self, pattern: str, ignorecase: bool = True) -> NodeFilter:
        """Those whose name fits a pattern, in which ``*`` and ``?`` stand for anything."""
        return NodeFilterName(self, pattern, ignorecase)

    def has_input(self, var: Any) -> NodeFilter:
        """Operators that read a variable."""
        return NodeFilterHasInput(self, var)

    def as_list(self) -> list:
        return list(self)

    def as_unique(self) -> Any:
        """The only one. Errors: ValueError where there is not one."""
        return _one(list(self), "nodes", True)

    def as_dict(self) -> OrderedDict[str, Any]:
        """By name."""
        return OrderedDict((n.name, n) for n in self)

    def as_count(self) -> int:
        return sum(1 for _ in self)


def _checked(nodes: Iterable[Any], kind: type) -> list[Any]:
    found = list(nodes)
    if wrong := [n for n in found if not isinstance(n, kind)]:
        raise TypeError(f"all nodes should be {kind.__name__}, got {wrong[0]!r}")
    return found


class NodeFilterType(NodeFilter):
    """See `NodeFilter.type`."""

    def __init__(self, node_iter: Any, node_type: type):
        if not isinstance(node_type, type) or not issubclass(node_type, NetworkNode):
            raise TypeError(f"{node_type!r} is no class of nodes")
        super().__init__(node_iter)
        self._node_type = node_type

    def __iter__(self) -> Iterator[Any]:
        return (n for n in self._iter if isinstance(n, self._node_type))


class NodeFilterNotType(NodeFilterType):
    """See `NodeFilter.not_type`."""

    def __iter__(self) -> Iterator[Any]:
        return (n for n in self._iter if not isinstance(n, self._node_type))


class NodeFilterCheckType(NodeFilterType):
    """See `NodeFilter.check_type`."""

    def __iter__(self) -> Iterator[Any]:
        return iter(_checked(self._iter, self._node_type))


class NodeFilterHasInput(NodeFilter):
    """See `NodeFilter.has_input`."""

    def __init__(self, node_iter: Any, var: Any):
        super().__init__(node_iter)
        self.var = as_varnode(var)

    def __iter__(self) -> Iterator[Any]:
        return (o for o in _checked(self._iter, OpNode) if any(v is self.var for v in o.inputs))


class NodeFilterName(NodeFilter):
    """See `NodeFilter.name`."""

    def __init__(self, node_iter: Any, pattern: str, ignorecase: bool = True):
        super().__init__(node_iter)
        self.pattern = pattern
        self._re = self.make_re(pattern, ignorecase)

    @classmethod
    def make_re(cls, pattern: str, ignorecase: bool = True) -> re.Pattern:
        """The pattern as a regular expression. Errors: TypeError for what is no text."""
        if not isinstance(pattern, str):
            raise TypeError(f"a name's pattern is a text, got a {type(pattern).__name__}")
        return re.compile(fnmatch.translate(pattern), re.IGNORECASE if ignorecase else 0)

    def __iter__(self) -> Iterator[Any]:
        return (n for n in self._iter if n.name == self.pattern or self._re.match(n.name))
