"""Graph in, `Program` out, by `passes`, the one list of all passes in order. `ready.py` asks the cache before.

In: a graph, and for an eager call the layouts of its inputs. Out: a `Program`, and the arrays of its outputs. Nothing here
knows tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tengen.base.config import config
from tengen.base.device import Device, cpu
from tengen.codegen.targets import Target
from tengen.compiler.budget import within
from tengen.compiler.building import EMIT, MEMORY, Planned
from tengen.compiler.memory_plan import Budget
from tengen.compiler.program import Folded, Program, target_of
from tengen.compiler.program_record import Made
from tengen.compiler.ready import compute
from tengen.compiler.schedules import tuned_schedules
from tengen.ir.graph import Graph, Value
from tengen.kernels.lowering import Array
from tengen.kernels.schedule import Schedules
from tengen.loops.lang import Expr
from tengen.passes.constants import Evaluate
from tengen.passes.hoist import hoisted
from tengen.passes.lower import lowering_passes
from tengen.passes.lowered import LOWERED, Lowered
from tengen.passes.pipeline import graph_passes
from tengen.passes.run import Pass, run_passes

GraphPasses = Callable[[Evaluate | None], Sequence[Pass]]


def passes(
    target: Target,
    names: Sequence[Expr] = (),
    given: Mapping[str, Array] | None = None,
    schedules: Schedules | None = None,
    row_major: bool = False,
    evaluate: Evaluate | None = None,
    name: str = "",
    device: Device = cpu,
    log_launches: bool = False,
    of_graphs: GraphPasses = graph_passes,
    budget: Budget | None = None,
) -> list[Pass]:
    """All passes from a graph to its `Program`, in order; arguments as `compile_graph` and `lowering_passes` have them. With
    `evaluate`, which computes small graphs now, what depends on constants alone is computed once. With a budget one pass searches for
    the launches and the memory plan that keep to it; it runs the passes in whose place it stands."""
    how = (target, names, given, schedules, row_major, name, device, log_launches)
    hoist = [] if evaluate is None else [hoisting(device)]
    to_memory = [*lowering_passes(*how), *hoist, MEMORY]
    if budget is not None:
        frugal = [*lowering_passes(*how, frugal=True), *hoist, MEMORY]
        at = next(i for i, p in enumerate(to_memory) if p.name == "launches")
        search = partial(within, budget=budget, placing=to_memory[:at], lowering=to_memory[at:], frugal=frugal, name=name)
        to_memory = [Pass("within_budget", search, MEMORY.form)]
    return [*of_graphs(evaluate), *to_memory, EMIT]


def lowered(graph: Graph, schedules: Schedules, device: Device = cpu) -> Lowered:
    """The launches of a graph that has been through the passes for graphs: what tuning takes apart."""
    return run_passes(graph, lowering_passes(target_of(device), schedules=schedules, device=device))


def hoisting(device: Device, sizes: Mapping[Hashable, int] | None = None) -> Pass:
    """The pass that makes a set-up of launches that depend on constants alone; sizes: as `hoisted` has them."""
    return Pass("hoist", partial(hoisted, target=target_of(device), sizes=sizes), LOWERED)


def program_of_launches(x: Lowered, sizes: Mapping[Hashable, int]) -> Program:
    """The program of launches that were written without a graph. What depends on `x.constants` alone, whose sizes in bytes are
    given, is its set-up. Nothing is compiled yet."""
    return run_passes(x, [hoisting(x.device, sizes), MEMORY, EMIT])


def evaluate(graph: Graph) -> list[np.ndarray]:
    """The outputs of a graph without inputs, computed here."""
    return _folded(graph, [])


def _folded(graph: Graph, programs: list[Folded]) -> list[np.ndarray]:
    """The same; the program that computed them is appended to `programs`."""
    program, arrays = compile_graph(graph, None, [], graph.name)
    values = compute((program, arrays), list(program.data.values()))
    programs.append(Folded(program, arrays, [], values))
    return values


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
    device: Device = cpu,
    budget: Budget | None = None,
    of_graphs: GraphPasses = graph_passes,
) -> Made:
    """Runs `passes`. Returns the program and the arrays of its outputs. The program's buffers are the inputs, the states and
    `program.constants`; then the outputs, and the results of the graph's checks, if it has any.

    Args:
        placed: the arrays of the inputs; None: all are dense. names: the program's integer parameters. name: of the program.
        target: default: what this machine's programs for the device are compiled for.
        fold: whether what depends on constants alone is computed once: small nodes now, launches by `program.setup`.
        log_launches: see `building.build`.
        schedules: what tuning found; default: what this user's cache has for the target.
        row_major: whether outputs have to be dense in logical order.
        device: where the program runs.
        budget: what memory it may need, for a graph whose extents are numbers: what is not kept then is computed again. Errors:
            BudgetError where that is too little. of_graphs: the passes from graph to graph.
    """
    folded: list[Folded] = []
    folding = (lambda g: _folded(g, folded)) if fold else None
    given = {v.name: a for v, a in (placed or {}).items()}
    seen = _Seen()
    every = passes(
        target or target_of(device), names, given, schedules or tuned_schedules(target), row_major, folding, name, device, log_launches,
        of_graphs, budget,
    )  # fmt: skip
    program: Program = run_passes(graph, every, seen)
    planned: Planned = seen.last_input
    _finish(program, planned.lowered, folded)
    if config.debug >= 1:
        print(f"tengen: {name}: {seen.report()}")
    return program, list(planned.lowered.arrays)


class _Seen:
    """An observer: what the passes of a list took, and what the last one was given."""

    def __init__(self) -> None:
        self.times: list[tuple[str, float]] = []
        self.last_input: Any = None

    def __call__(self, p: Pass, before: Any, after: Any, seconds: float) -> None:
        self.times.append((p.name, seconds))
        self.last_input = before

    def report(self) -> str:
        """How long passes took, the slowest first; those below a twentieth of the whole are left out."""
        whole = sum(seconds for _, seconds in self.times)
        slow = sorted((x for x in self.times if x[1] >= whole / 20), key=lambda x: -x[1])
        return f"{len(self.times)} passes in {1e3 * whole:.1f} ms: " + ", ".join(f"{n} {1e3 * seconds:.1f}" for n, seconds in slow)


def _finish(program: Program, made: Lowered, folded: list[Folded]) -> None:
    """Fills in what a program has of the graph that it was made of."""
    assert made.graph is not None
    constants, lo = made.graph.constants.values(), made.lo
    program.updates = any(s.written is not None for s in made.graph.states.values())
    read = {*made.constants, *(made.setup.constants if made.setup else ())}
    program.data = {("const", c.name): c.data for c in constants if ("const", c.name) in read}
    program.asked = sorted({*lo.choices, *(folded[0].program.asked if folded else ())})
    if folded:
        name_of = {id(c.data): c.name for c in constants}
        program.folded = replace(folded[0], names=[name_of.get(id(a)) for a in folded[0].values])
    if lo.schedules is not None:
        program.schedules = {lo.schedules.key(c.problem_key): c.taken for c in lo.choices.values() if c.taken != c.rule}
