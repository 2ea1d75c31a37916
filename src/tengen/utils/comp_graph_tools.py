"""MegEngine's functions over the variables of a `Network`, and `GraphInference`, which runs a model file.

In: `VarNode`s and `OpNode`s. Out: others that they depend on, in an order in which they run; or other variables, with parts replaced.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tengen.base.files import File
from tengen.deploy.graphs import Graph
from tengen.tensor import Tensor
from tengen.utils.network_node import OpNode, VarNode

__all__ = [
    "GraphInference", "InputNode", "OutputNode", "convert_inputs", "convert_outputs", "embed_inputs",
    "find_vars_by_name", "get_dep_vars", "get_opr_type", "get_oprs_seq", "get_owner_opr_inputs", "get_owner_opr_type",
    "graph_traversal", "load_and_inference", "replace_oprs", "replace_vars", "set_priority_to_id",
]  # fmt: skip

Vars = VarNode | Iterable[VarNode]


def _list(var: Vars) -> list[VarNode]:
    return [var] if isinstance(var, VarNode) else list(var)


def get_owner_opr_inputs(var: VarNode) -> list[VarNode]:
    """What the operator reads that makes a variable."""
    return var.owner.inputs


def get_owner_opr_type(var: VarNode) -> str:
    """The type of the operator that makes a variable."""
    return var.owner.type


def get_opr_type(opr: OpNode) -> str:
    """The type of an operator."""
    return opr.type


def get_dep_vars(var: Vars, var_type: str | Sequence[str] | None = None) -> list[VarNode]:
    """The variables that some depend on, these first; of these types of operators alone, if given."""
    kinds = [var_type] if isinstance(var_type, str) else var_type
    queue, found = _list(var), []
    seen: set[int] = set()
    for v in queue:  # it grows
        if id(v) in seen:
            continue
        seen.add(id(v))
        queue.extend(v.owner.inputs)
        if kinds is None or v.owner.type in kinds:
            found.append(v)
    return found


def get_oprs_seq(outputs: Vars, prune_reshape: bool = False, prune_immtensor: bool = True) -> list[OpNode]:
    """The operators that variables depend on, each after those that it reads, inputs and constants just before their first reader.

    Args: prune_reshape: taken and without effect: no operator computes a shape. prune_immtensor: leave constants out (default).
    """
    found: list[OpNode] = []
    seen: set[int] = set()
    stack = [(v.owner, False) for v in reversed(_list(outputs))]
    while stack:
        o, ready = stack.pop()
        if ready:
            found.append(o)
        elif id(o) not in seen:
            seen.add(id(o))
            stack.append((o, True))
            stack.extend((v.owner, False) for v in reversed(o.inputs))
    return [o for o in found if not (prune_immtensor and o.type == "ImmutableTensor")]


def graph_traversal(outputs: Vars) -> tuple[dict, dict, dict, dict, dict, dict]:
    """(map_oprs, map_vars, var2oprs, opr2receivers, indegree2opr, opr2indegree) of what variables depend on: operators and variables
    by id; of each variable the pairs (operator, position) that read it; of each operator those behind it, and how many inputs it has."""
    oprs = get_oprs_seq(outputs, prune_immtensor=False)
    map_oprs, map_vars = {o.id: o for o in oprs}, {v.id: v for o in oprs for v in o.inputs}
    var2oprs, opr2receivers, indegree2opr = defaultdict(list), defaultdict(list), defaultdict(set)
    for o in oprs:
        for i, v in enumerate(o.inputs):
            var2oprs[v.id].append((o.id, i))
            opr2receivers[v.owner.id].append(o.id)
        indegree2opr[len(o.inputs)].add(o.id)
    return map_oprs, map_vars, var2oprs, opr2receivers, indegree2opr, {o.id: len(o.inputs) for o in oprs}


def find_vars_by_name(dst: Vars, names: Sequence[str]) -> list[VarNode]:
    """The variables of these names among those that some depend on. Errors: ValueError where one is missing."""
    known = {v.name: v for v in reversed(get_dep_vars(dst))}
    if missing := [n for n in names if n not in known]:
        raise ValueError(f"the network has no variable named {missing[0]!r}; it has {', '.join(list(known)[:20])}")
    return [known[n] for n in names]


def _pairs(table: Any) -> list[tuple[Any, Any]]:
    return list(table.items() if isinstance(table, Mapping) else table)


def replace_vars(dst: Vars, varmap: Any) -> list[VarNode]:
    """Variables like `dst` in which those that the map names are replaced; `dst` and what it depends on stay as they are.

    Args: varmap: {variable: what takes its place}, or pairs.
    """
    outs = _list(dst)
    if not outs:
        return []
    network = outs[0].network
    made = network.copied([v._data for v in outs], {a._data: b._data for a, b in _pairs(varmap)})
    return [network.var_of(v) for v in made]


def replace_oprs(dst: Vars, oprmap: Any) -> list[VarNode]:
    """`replace_vars` for all results of operators."""
    return replace_vars(dst, [pair for a, b in _pairs(oprmap) for pair in zip(a.outputs, b.outputs, strict=True)])


def set_priority_to_id(dest_vars: Any) -> None:
    """Takes MegEngine's call; a graph's order is the order in which its operators were made already."""


class InputNode:
    """An input that is given a value before variables are computed from it; `convert_inputs` makes it.

    Attributes: name, shape, dtype, device: of the input. outputs: its variable.
    """

    device = "cpu0"

    def __init__(self, var: VarNode):
        self.outputs = [var]

    name = property(lambda self: self.outputs[0].name)
    shape = property(lambda self: self.outputs[0].shape)
    dtype = property(lambda self: self.outputs[0].dtype)

    def set_value(self, value: Any) -> None:
        """Gives it a value, a tensor or an array, whose shape and dtype are checked when something is computed."""
        self.outputs[0].given = value

    def reset(self) -> None:
        """Takes the value away."""
        self.outputs[0].given = None


class OutputNode:
    """A variable whose value is asked for; `convert_outputs` makes it. Attributes: outputs: the variable. name: its name."""

    def __init__(self, var: VarNode):
        self.outputs = [var]

    name = property(lambda self: self.outputs[0].name)

    def get_value(self) -> Tensor:
        """Its value for what its inputs were given; what it needs is compiled and run in each call.

        Errors: ValueError for an input that has no value; else as of a call of a model.
        """
        var = self.outputs[0]
        inputs = _inputs_of([var])
        if missing := [v.name for v in inputs if v.given is None]:
            help = f"convert_inputs(vars)[1][{missing[0]!r}].set_value(x)"
            raise ValueError(f"{var.name} depends on the input {missing[0]}, which has no value; help: {help}")
        part = var.network.graph.extract([v._data for v in inputs], [var._data])
        return part(*(v.given if isinstance(v.given, Tensor) else np.asarray(v.given) for v in inputs))


def _inputs_of(dst: Vars) -> list[VarNode]:
    return list(OrderedDict.fromkeys(get_dep_vars(dst, "Host2DeviceCopy")))


def _in_place_of_inputs(dst: Vars, inputs: Vars | None, make: Any) -> tuple[list[VarNode], OrderedDict[str, VarNode]]:
    """`dst`, made of other variables than its inputs; and these by the inputs' names."""
    found = OrderedDict((v.name, (v, make(i, v))) for i, v in enumerate(_inputs_of(dst) if inputs is None else _list(inputs)))
    return replace_vars(dst, list(found.values())), OrderedDict((name, new) for name, (_, new) in found.items())


def convert_inputs(dst: Vars, inputs: Vars | None = None) -> tuple[list[VarNode], OrderedDict[str, InputNode]]:
    """Variables like `dst` whose inputs are `InputNode`s, which are given values; and these by name.

    Args: inputs: which inputs (default: all).

    >>> import tengen, tempfile, os
    >>> from tengen import Tensor
    >>> from tengen.utils.network import Network
    >>> path = os.path.join(tempfile.mkdtemp(), "f.tgn")
    >>> _ = tengen.trace(lambda x: x * 2 + 1, example_input=Tensor([1.0])).dump(path, arg_names=["x"], output_names=["y"])
    >>> vars, inputs = convert_inputs(Network.load(path).output_vars)
    >>> vars, outputs = convert_outputs(vars)
    >>> inputs["x"].set_value(np.float32([3.0]))
    >>> [o.get_value().tolist() for o in outputs.values()]
    [[7.0]]
    """
    fresh = lambda i, v: v.network.make_input_node(v.shape, v.dtype, v.network.free_name(v.name))
    made, found = _in_place_of_inputs(dst, inputs, fresh)
    return made, OrderedDict((name, InputNode(v)) for name, v in found.items())


def convert_outputs(dst: Vars) -> tuple[list[VarNode], OrderedDict[str, OutputNode]]:
    """The variables, and for each an `OutputNode` by its name, which says its value."""
    return _list(dst), OrderedDict((v.name, OutputNode(v)) for v in _list(dst))


def embed_inputs(dst: Vars, data: Sequence[Any], inputs: Vars | None = None) -> tuple[list[VarNode], OrderedDict[str, VarNode]]:
    """Variables like `dst` with constants in the place of inputs; and these constants by the inputs' names.

    Args: data: a tensor or array for each input, in order. inputs: which inputs (default: all). Errors: ValueError for another number of
        them, VerifyError for other shapes or dtypes.
    """
    replaced = _inputs_of(dst) if inputs is None else _list(inputs)
    if len(data) != len(replaced):
        raise ValueError(f"embed_inputs(): {len(data)} arrays for the inputs {', '.join(v.name for v in replaced) or 'none'}")

    def constant(i: int, v: VarNode) -> VarNode:
        array = data[i].numpy() if isinstance(data[i], Tensor) else np.array(data[i])
        return v.network.var_of(v.network.graph.add_constant(v.network.free_name(v.name), array))

    return _in_place_of_inputs(dst, replaced, constant)


class GraphInference:
    """Runs a model file.

    Args: file: a path or a file. outputs: names of the variables to compute, inner ones too (default: the model's outputs). Others are
        MegEngine's, and change nothing.

    >>> import tengen, tempfile, os
    >>> from tengen import Tensor
    >>> path = os.path.join(tempfile.mkdtemp(), "f.tgn")
    >>> _ = tengen.trace(lambda x: x * 2 + 1, example_input=Tensor([1.0])).dump(path, arg_names=["x"], output_names=["y"])
    >>> GraphInference(path).run(np.float32([3.0]))["y"]
    array([7.], dtype=float32)
    """

    def __init__(
        self, file: File, outputs: Sequence[str] | None = None, profiling: bool = False, optimize_for_inference: bool = False, **kwargs: Any
    ):  # fmt: skip
        graph = Graph.load(file)
        if outputs is not None:
            graph = graph.extract(graph.inputs, list(outputs), graph.name)
        self._graph = graph

    def run(self, *inp_args: Any, inp_dict: Mapping[str, Any] | None = None) -> OrderedDict[str, np.ndarray]:
        """The outputs by name. Args: inp_args: inputs in order. inp_dict: by name. Errors: as of a call of a model."""
        plain = lambda x: x if isinstance(x, Tensor) else np.asarray(x)
        made = self._graph(*map(plain, inp_args), **{k: plain(x) for k, x in (inp_dict or {}).items()})
        return OrderedDict(zip(self._graph.output_names, (t.numpy() for t in (made if isinstance(made, tuple) else (made,)))))


def load_and_inference(file: File, inp_data_list: Sequence[Any]) -> list[np.ndarray]:
    """The outputs of a model file for inputs in order: MegEngine's call before 1.1, which has `GraphInference` since.

    Errors: as of a call of a model.

    >>> import tengen, tempfile, os
    >>> from tengen import Tensor
    >>> path = os.path.join(tempfile.mkdtemp(), "f.tgn")
    >>> _ = tengen.trace(lambda x: x * 2 + 1, example_input=Tensor([1.0])).dump(path)
    >>> load_and_inference(path, [np.float32([3.0])])
    [array([7.], dtype=float32)]
    """
    return list(GraphInference(file).run(*inp_data_list).values())
