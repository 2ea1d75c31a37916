"""The program of a graph, from the cache if it was made before. What makes one, which is all passes (`driver.py`), is loaded when it is
needed.

In: a graph. Out: a `Program`, and the arrays of its outputs. Nothing here knows tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tengen import compiler
from tengen.base.device import Device, cpu
from tengen.base.record import NamedTuple
from tengen.compiler import program_cache
from tengen.compiler.arrays import array_over, dense, new_buffer
from tengen.compiler.memory_plan import Budget
from tengen.compiler.plans import Layout, finish_plan
from tengen.compiler.program_record import Made
from tengen.compiler.schedules import tuned_schedules
from tengen.ir.graph import Graph, Value
from tengen.kernels.lowering import Array
from tengen.kernels.schedule import Schedules
from tengen.loops.lang import Expr
from tengen.ops.define import lookup
from tengen.runtime import tiers


def compute(made: Made, constants: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a program whose only inputs are constants."""
    program, outs = made
    layouts = [Layout(a.shape, a.dtype, a.strides) for a in outs]
    with tiers.postponing(False):
        plan = finish_plan(program, len(constants), layouts, [])
    r = plan.call(*(new_buffer(dense(a)[0]) for a in constants))
    return [np.array(array_over(d, a)) for d, a in zip((r,) if len(outs) == 1 else r, layouts)]


class Ahead(NamedTuple):
    """A program that was read before somebody wants it. key: that it was found by, of all that decides it."""

    key: str
    made: Made


def ready_program(
    graph: Graph, placed: dict[Value, Array] | None, names: list[Expr], name: str, fold: bool = False,
    schedules: Schedules | None = None, device: Device = cpu, budget: Budget | None = None, ahead: Ahead | None = None,
) -> Made:  # fmt: skip
    """What `compile_graph` makes for a device of this machine: read from the program cache, or made now and stored in it. ahead: what
    `read_ahead` has given for this graph; it is taken if nothing that decides the program has changed since."""
    schedules = schedules or tuned_schedules()
    by_rule = program_cache.identity(graph, placed, names, name, fold, device, budget)
    if by_rule is None:
        return compiler.driver.compile_graph(
            graph, placed, names, name, fold=fold, schedules=schedules, device=device, budget=budget
        )
    tuned = program_cache.tuned(by_rule, schedules)
    found = ahead.made if ahead is not None and ahead.key == tuned else _kept(by_rule, tuned, graph, schedules, device)
    if found is None:
        found = compiler.driver.compile_graph(
            graph, placed, names, name, fold=fold, schedules=schedules, device=device, budget=budget
        )
        program_cache.keep(tuned if schedules.concern(found[0].asked) else by_rule, graph, *found)
    found[0].folded = None
    return found


def read_ahead(graph: Graph, names: list[Expr], name: str, schedules: Schedules) -> Ahead | None:
    """The program that `ready_program` will give for a graph with dense inputs on the processor, if the cache has it."""
    by_rule = program_cache.identity(graph, None, names, name, True)
    if by_rule is None:
        return None
    tuned = program_cache.tuned(by_rule, schedules)
    found = _kept(by_rule, tuned, graph, schedules, cpu)
    return None if found is None else Ahead(tuned, found)


def _kept(by_rule: str, tuned: str, graph: Graph, schedules: Schedules, device: Device) -> Made | None:
    """The program in the cache for these schedules: that by the rule, where they do not concern it."""
    found = program_cache.find(by_rule, graph, compute, device)
    if found is None or schedules.concern(found[0].asked):
        found = program_cache.find(tuned, graph, compute, device) if schedules.entries else None
    return found


def may_stop(graph: Graph) -> bool:
    """Whether an exception may end a run: a loop looks at signals, or Python is called."""
    return any(n.op == "while_loop" or (n.op != "fused" and lookup(n.op).rules.effect) for g in graph.graphs() for n in g.nodes)
