"""Graph in, `Program` out: from the cache if it was made before, else by passes, lowering and memory plan.

In: a graph, and for an eager call the layouts of its inputs. Out: a `Program`, and the arrays of its outputs. Nothing here
knows tensors.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from tengen.codegen.targets import Target
from tengen.compiler import program_cache
from tengen.compiler.arrays import array_over, dense, new_buffer
from tengen.compiler.plans import Layout, finish_plan
from tengen.compiler.program import Folded, Program, build
from tengen.compiler.program_cache import Made
from tengen.compiler.schedules import tuned_schedules
from tengen.ir.graph import Graph, Value
from tengen.kernels.lowering import Array, Lowering, product
from tengen.kernels.schedule import Schedules
from tengen.kernels.steps import buffers
from tengen.loops.lang import Expr, as_int
from tengen.passes.hoist import hoist
from tengen.passes.inplace import CHECKS
from tengen.passes.lower import lower
from tengen.passes.pipeline import optimize
from tengen.runtime import native


def evaluate(graph: Graph) -> list[np.ndarray]:
    """The outputs of a graph without inputs, computed here."""
    return _folded(graph, [])


def _folded(graph: Graph, programs: list[Folded]) -> list[np.ndarray]:
    """The same; the program that computed them is appended to `programs`."""
    program, arrays = compile_graph(graph, None, [], graph.name)
    values = compute((program, arrays), list(program.data.values()))
    programs.append(Folded(program, arrays, [], values))
    return values


def compute(made: Made, constants: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a program whose only inputs are constants."""
    program, outs = made
    layouts = [Layout(a.shape, a.dtype, a.strides) for a in outs]  # type: ignore[arg-type]
    plan = finish_plan(program, len(constants), layouts, [])
    r = plan.call(*(new_buffer(dense(a)[0]) for a in constants))
    return [np.array(array_over(d, a)) for d, a in zip((r,) if len(outs) == 1 else r, layouts)]


def ready_program(
    graph: Graph, placed: dict[Value, Array] | None, names: list[Expr], name: str, fold: bool = False,
    schedules: Schedules | None = None,
) -> Made:  # fmt: skip
    """What `compile_graph` makes for this machine: read from the program cache, or made now and stored in it. Arguments as
    there."""
    schedules = schedules or tuned_schedules()
    key = program_cache.identity(graph, placed, names, name, fold, schedules)
    if key is None:
        return compile_graph(graph, placed, names, name, fold=fold, schedules=schedules)
    found = program_cache.find(key, graph, compute)
    if found is None:
        found = compile_graph(graph, placed, names, name, fold=fold, schedules=schedules)
        program_cache.keep(key, graph, *found)
    found[0].folded = None
    return found


def compile_graph(
    graph: Graph,
    placed: dict[Value, Array] | None,
    names: list[Expr],
    name: str,
    target: Target | None = None,
    fold: bool = False,
    log_launches: bool = False,
    schedules: Schedules | None = None,
    row_major: bool = False,
) -> Made:
    """Runs passes, lowering and memory plan. Returns the program and the arrays of its outputs. The program's buffers are the
    inputs, the states and `program.constants`; then the outputs, and the results of the graph's checks, if it has any.

    Args:
        placed: the arrays of the inputs; None: all are dense. names: the program's integer parameters. name: of the program.
        fold: whether what depends on constants alone is computed once: small nodes now, launches by `program.setup`.
        log_launches: see `program.build`.
        schedules: what tuning found; default: what this user's cache has for the target.
        row_major: whether outputs have to be dense in logical order.
    """
    order = {v.name: a for v, a in (placed or {}).items()}
    folded: list[Folded] = []
    graph = optimize(graph, (lambda g: _folded(g, folded)) if fold else None)
    schedules = schedules or tuned_schedules(target)
    arrays = {v: order[v.name] for v in graph.inputs if v.name in order}
    lo, outs = lower(graph, target or native.TARGET, names, arrays, schedules, row_major)
    constants: list[Hashable] = [("const", name) for name in graph.constants]
    setup = None
    if fold:
        constants, setup = _set_up(lo, graph, name)
    ids: list[Hashable] = [order[v.name].id if v.name in order else ("in", i) for i, v in enumerate(graph.inputs)]
    ids += [*(("state", name) for name in graph.states), *constants]
    results = [*(("out", i) for i in range(len(outs))), *([CHECKS] if graph.checks else [])]
    program = build(lo, ids, results, name, log_launches)
    program.constants, program.setup, program.checks = constants, setup, graph.checks
    read = {*constants, *(setup.constants if setup else [])}
    program.data = {("const", c.name): c.data for c in graph.constants.values() if ("const", c.name) in read}  # type: ignore[misc]
    if folded:
        name_of = {id(c.data): c.name for c in graph.constants.values()}
        program.folded = replace(folded[0], names=[name_of.get(id(a)) for a in folded[0].values])
    program.schedules = {schedules.key(c.problem_key): c.taken for c in lo.choices.values() if c.taken != c.rule}
    return program, [outs[i] for i in range(len(outs))]


def _set_up(lo: Lowering, graph: Graph, name: str) -> tuple[list[Hashable], Program | None]:
    """Moves the launches that depend on constants alone to a program that runs once (`passes/hoist.py`).

    Returns (the constants that the rest of the lowering reads: some of the graph's, then the results of that program; that
    program, or None where there are no such launches). It is compiled for this machine, whatever target the lowering has."""
    sizes = {("const", c.name): product(c.value.type.shape) * c.value.type.dtype.size for c in graph.constants.values()}
    first, prepared = hoist(lo, sizes)  # type: ignore[arg-type]
    read, needed = (set().union(*map(buffers, x.steps)) for x in (lo, first))
    constants: list[Hashable] = [id for id in sizes if id in read]
    if not prepared:
        return constants, None
    made = [lo.temps.pop(id) for id in prepared]
    first.target = native.TARGET
    given = [id for id in sizes if id in needed]
    setup = build(first, [*given, *prepared], [], f"{name} (constants)")
    setup.constants = given
    setup.output_bytes = [as_int(n) * dtype.size for dtype, n in made]  # type: ignore[arg-type]
    return [*constants, *prepared], setup
