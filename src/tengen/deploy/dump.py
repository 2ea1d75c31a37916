"""Writes a recorded graph with its weights as one file.

In: a graph, the data of its states, and names. Out: a safetensors file (`tensorfile.py`) whose metadata holds the graph as
JSON. States that the program only reads become constants, under the same names: the weights. States that it writes stay
states and are kept with the values they have now. What no output and no written state needs is left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from tengen.base.errors import TengenError, TraceError
from tengen.base.files import File, name_of
from tengen.base.record import record
from tengen.compiler.schedules import to_text
from tengen.deploy.model import FORMAT, VERSION, Model, Port, port
from tengen.deploy.tensorfile import write_tensors
from tengen.ir.graph import Check, Constant, Graph, State
from tengen.ir.jsonform import to_json
from tengen.ir.plain_json import weigh
from tengen.ir.rewrite import live_nodes
from tengen.ir.text import constant_data
from tengen.ir.verify import OP_ERRORS
from tengen.kernels.schedule import Schedule
from tengen.ops.define import lookup
from tengen.passes.cleanup import remove_dead_code


@record(frozen=True)
class Dumped:
    """What was written. n_nodes: of the graph. bytes: of the file. inputs, outputs: what the model takes and gives."""

    file: str
    n_nodes: int
    bytes: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def dump(
    graph: Graph,
    data: Mapping[str, np.ndarray],
    file: File,
    *,
    arg_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    names: Mapping[str, str] | None = None,
    n_outputs: int | None = None,
    schedules: Mapping[str, Schedule] | None = None,
) -> Dumped:
    """Writes a model file; `load_graph` reads it.

    Args:
        file: a path, or a file that is open for writing bytes.
        graph: as recorded; it is not changed. data: the values of its states now, by their names in the graph.
        arg_names, output_names: new names of inputs and outputs, one for each. names: new names of states and constants.
        n_outputs: how many outputs to keep, from the first; default: all. schedules: what tuning found, by key.

    Errors: ValueError for names that do not fit, OSError when the file cannot be written (the old one is then as it was).
    """
    g, arrays = portable(graph, data, arg_names, output_names, names or {}, n_outputs)
    try:
        text = to_json(g)
        weigh(text, sum(a.nbytes for a in arrays.values()))
    except TengenError as e:
        raise ValueError(f"the graph of {graph.name} cannot be written down: {e}") from e
    texts = {"format": FORMAT, "version": VERSION, "graph": text}
    if schedules:
        texts["schedules"] = to_text(schedules)
    size = write_tensors(file, arrays, texts)
    ins = tuple(port(v.name, v.type) for v in g.inputs)
    outs = tuple(port(name, v.type) for name, v in zip(g.output_names, g.outputs))
    return Dumped(name_of(file), len(g.nodes), size, ins, outs)


def dump_model(model: Model, file: File) -> Dumped:
    """Writes a loaded model to a file (a path, or one that is open for writing bytes), with what `tengen.tune` found for it; states
    keep the values they have now.

    Errors: OSError when the file cannot be written (the old one is then as it was).
    """
    states = {name: t.numpy() for name, t in model.states.items()} if model.graph.states else {}
    return dump(model.graph, states, file, schedules=model.schedules)


def portable(graph: Graph, data: Mapping[str, np.ndarray], arg_names=None, output_names=None, names=None, n_outputs=None):
    """The graph as a file keeps it (weights as constants, names given, nothing of the machine that recorded it), and the data
    of its constants and states by name."""
    for n in (n for g in graph.graphs() for n in g.nodes if n.op != "fused" and lookup(n.op).rules.effect):
        raise TraceError(f"{n.where}: {graph.name} calls Python, and a file holds no Python; help: leave the call out")
    g = graph.copy()
    if n_outputs is not None:
        g.outputs, g.output_names = g.outputs[:n_outputs], g.output_names[:n_outputs]
    ins = [v.name for v in g.inputs] if arg_names is None else list(arg_names)
    outs = g.output_names if output_names is None else list(output_names)
    _check_names("input", ins, len(g.inputs))
    _check_names("output", outs, len(g.outputs))
    g.output_names = outs
    taken = set(ins)
    for v, name in zip(g.inputs, ins):
        v.name = name
    old_constants, old_states = list(g.constants.values()), list(g.states.values())
    g.constants, g.states = {}, {}
    arrays: dict[str, np.ndarray] = {}
    for s in old_states:
        name = s.read.name = _free((names or {}).get(s.name, s.name), taken)
        if s.written is None or s.written is s.read:
            g.constants[name] = Constant(name, s.read, np.ascontiguousarray(data[s.name]).reshape(s.read.type.shape))
        else:
            g.states[name] = State(name, s.read, s.written)
            arrays[name] = np.ascontiguousarray(data[s.name]).reshape(s.read.type.shape)
    for c in old_constants:
        name = c.value.name = _free((names or {}).get(c.name, c.name), taken)
        g.constants[name] = Constant(name, c.value, c.data)
    for n in (n for own in g.graphs() for n in own.nodes):
        n.where = _short(n.where)
    for c in g.checks:
        c.where = _short(c.where)
    g.checks = _needed_checks(g)
    g = remove_dead_code(g)
    return g, {**constant_data(g), **arrays}


def _short(where: str | None) -> str | None:
    """A file shows no paths of the machine it comes from."""
    return None if where is None else os.path.basename(where)


def _needed_checks(g: Graph) -> list[Check]:
    """The checks of operands that something else of the graph reads, and of what a call says of itself beside its results: a loss that is
    left out needs no label in range. What a user's function raises, and what a loop has found, is needed always."""
    checks, g.checks = g.checks, []
    live = live_nodes(g)
    read = {v for n in live for v in n.inputs}
    found = []
    for c in checks:
        looked_at, stack = set(), [c.bad]
        while stack:  # back from the truth value to what it is made of and others know
            v = stack.pop()
            if v in read or v.node is None or v.node in live:
                looked_at.add(v)
            else:
                stack.extend(x for x in v.node.inputs if x is not None)
        told = (v for v in looked_at if v.node in live and len(v.node.outputs) > 1 and v not in g.outputs)  # a code beside results
        if looked_at & read or any(told) or c.bad.node in live or c.error not in OP_ERRORS:
            found.append(c)
    return found


def _free(name: str, taken: set[str]) -> str:
    base, i = name, 0
    while name in taken or name.startswith("__"):
        i += 1
        name = f"{base.lstrip('_')}_{i}"
    taken.add(name)
    return name


def _check_names(what: str, names: Sequence[str], n: int) -> None:
    if len(names) != n:
        raise ValueError(f"{len(names)} {what} names {names} for {n} {what}s")
    if len(set(names)) != n or not all(isinstance(s, str) and s.isprintable() and s and "`" not in s for s in names):
        raise ValueError(f"the {what} names {names} are not {n} different printable texts")
