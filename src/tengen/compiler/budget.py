"""Budgets: a program whose memory stays below a number of bytes, by computing values again.

In: a graph after fusion, and a budget. Out: the launches and the memory plan of a program that needs no more, and what it costs
(`MemoryPlan`). What is planned is a model of the program (`passes/units.py`), what is compared with the budget is the program's own
memory plan, to the byte: where that is larger, what kernels use besides is learned from it, and it is planned again.

The memory of a program: its arena, in which temporaries lie; the states that it is given, and its constants; its results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial

from tengen.base.errors import BudgetError
from tengen.base.sizes import in_words
from tengen.compiler.building import Planned
from tengen.compiler.memory_plan import Budget, MemoryPlan, Recomputed
from tengen.compiler.ready import may_stop
from tengen.ir.graph import Graph
from tengen.kernels.steps import every_leaf
from tengen.passes.cleanup import remove_dead_code
from tengen.passes.fuse import fuse
from tengen.passes.pipeline import GRAPH
from tengen.passes.recompute import Short, plan
from tengen.passes.recompute import segments as between
from tengen.passes.run import Pass, run_passes
from tengen.passes.units import Run, Units, bytes_of, freeing_order, least, peak, problem, pruned, units_of, written_out
from tengen.runtime.paging import key_of

ATTEMPTS = 4  # plans that are lowered before the smallest one is
STEPS = 7  # of a search by halving
SEGMENTS = (2, 3, 4, 6, 8, 11, 16, 23, 32, 45)  # into how many a program is cut
FAR = (1.0, 0.5, 0.25, 0.0)  # how much values go sooner that are used late: different plans, of which the best is taken
GOOD = 1.1  # times the cost without recomputing: no better plan is searched for
ONE_FORWARD = 0.4  # of the cost of a training step, at most: what a plan without a budget may compute again


def within(
    graph: Graph, budget: Budget, placing: Sequence[Pass], lowering: Sequence[Pass], frugal: Sequence[Pass], name: str
) -> Planned:
    """A program's launches and memory plan within a budget, which `Planned.within` tells of.

    Args:
        graph: after fusion; its extents are numbers. placing: the passes that say where values lie; lowering: those from there to
            launches; frugal: all of these for a program that computes again. name: of the program, for messages.

    Errors: BudgetError where it cannot be met.
    """
    planned, told = _Search(graph, budget, placing, lowering, frugal, name).found()
    return replace(planned, within=told)


class _Search:
    def __init__(self, graph: Graph, budget: Budget, placing: Sequence[Pass], lowering: Sequence[Pass], frugal: Sequence[Pass], name: str):
        self.graph, self.budget, self.placing, self.lowering, self.frugal, self.name = graph, budget, placing, lowering, frugal, name
        self.placed = run_passes(graph, placing)
        self.units = units_of(self.placed, None if budget.offload is None else key_of(budget.offload))
        self.order = freeing_order(self.units)
        self.plain = [Run(i, self.units.outs[i]) for i in self.order]
        self.fixed = fixed_bytes(graph)
        self.work: dict[Hashable, int] = {}
        self.kept: dict[int, set[int]] = {}  # by the number of segments

    def found(self) -> tuple[Planned, MemoryPlan]:
        wanted = self.budget.bytes
        if wanted is None:
            return self._least_that_pays()
        needed = sum(self.fixed.values())
        without = peak(self.units, self.units.runs) + needed
        if without <= wanted:
            planned = run_passes(self.placed, self.lowering)
            if _arena(planned) + needed <= wanted:
                return planned, self._told(planned, self.units.runs)
        margin = 0
        for _ in range(ATTEMPTS):
            try:
                runs = self._plan(wanted - needed - margin)
            except Short:
                break
            planned = self._lowered(runs)
            over = _arena(planned) + needed - wanted
            if over <= 0:
                return planned, self._told(planned, runs)
            self._learn(planned)
            gaps = _arena(planned) - peak(self.units, runs)  # that the memory plan leaves, and what was not learned
            margin = max(gaps + gaps // 8, 0)
        planned, runs = self._smallest()
        told = self._told(planned, runs)
        if told.bytes > wanted and not self.budget.soft:
            raise BudgetError(self._refusal(told))
        return planned, told

    def _refusal(self, told: MemoryPlan) -> str:
        parts = ", ".join(f"{in_words(n)} of {what}" for what, n in (("arena", told.arena), *self.fixed.items()) if n)
        more = told.recomputed_flops
        return (
            f"{self.name}: memory_budget={told.budget} bytes cannot be met; the smallest that can is {told.bytes} bytes ({parts}), for "
            f"{more:.3g} operations more, {more / max(told.flops, 1):.0%} of all; without recomputing it needs about {told.without} "
            f"bytes; help: memory_budget={told.bytes}, a smaller batch, or an optimizer with fewer states"
        )

    def _plan(self, limit: int) -> list[Run]:
        """The plan within a limit that computes the least again. Errors: Short where there is none."""
        found = [self._planned(limit, 0, far) for far in FAR]
        if not any(runs is not None and self._cost(runs) <= GOOD * self._cost(self.plain) for runs in found):
            found += (self._planned(limit, n) for n in self._counts())
        if not any(found):
            raise Short
        return min((runs for runs in found if runs is not None), key=self._cost)

    def _planned(self, limit: int, segments: int, far: float = 1.0) -> list[Run] | None:
        """The plan within a limit that keeps what lies between so many segments, 0: any value; None if there is none. far: as `plan` has
        it."""
        if segments and segments not in self.kept:
            self.kept[segments] = between(self.units, self.order, segments)
        try:
            return pruned(self.units, plan(self.units, self.order, limit, self.kept.get(segments, ()), far))
        except Short:
            return None

    def _counts(self) -> list[int]:
        """Numbers of segments that are worth a try."""
        return [n for n in SEGMENTS if n * 4 < len(self.order)]

    def _cost(self, runs: Sequence[Run]) -> int:
        return sum(self.units.cost[r.unit] for r in runs)

    def _lowered(self, runs: Sequence[Run]) -> Planned:
        again = Pass("recompute", partial(_again, units=self.units, runs=runs), GRAPH)
        clean = [Pass(f.__name__, f, GRAPH) for f in (remove_dead_code, fuse)]
        return run_passes(self.graph, [again, *clean, *self.frugal])

    def _learn(self, planned: Planned) -> None:
        """Takes over what kernels need besides the values of their node, from a program."""
        graph = planned.lowered.graph
        assert graph is not None
        for i, n in _scratch(planned).items():
            key = problem(graph.nodes[i])
            self.work[key] = max(self.work.get(key, 0), n)
        u = self.units
        u.work = [self.work.get(problem(n), 0) for n in u.nodes]

    def _smallest(self) -> tuple[Planned, list[Run]]:
        """The program that needs the least: the same whatever the budget, so that what an error names can be met."""
        self.units.work = [0] * len(self.units.nodes)
        runs = self._reduced(lambda runs: True)
        return self._lowered(runs), runs

    def _least_that_pays(self) -> tuple[Planned, MemoryPlan]:
        most, floor = (1 + ONE_FORWARD) * self._cost(self.plain), self.budget.least - sum(self.fixed.values())
        runs = self._reduced(lambda runs: self._cost(runs) <= most, floor)
        planned = self._lowered(runs)
        return planned, self._told(planned, runs)

    def _reduced(self, good: Callable[[list[Run]], bool], floor: int = 0) -> list[Run]:
        """The plan with the least limit that is found, and that is good: by halving, then with segments, by steps."""
        low, high, best = max(least(self.units), floor, 0), peak(self.units, self.plain), self.plain
        floor = low
        for _ in range(STEPS):
            limit = (low + high) // 2
            runs = self._planned(limit, 0)
            if runs is not None and good(runs):
                best, high = runs, limit
            else:
                low = limit
        for n in self._counts():
            while high > floor:
                limit = max(high - high // 10, floor)
                runs = self._planned(limit, n)
                if runs is None or not good(runs):
                    break
                best, high = runs, limit
        return best

    def _told(self, planned: Planned, runs: Sequence[Run]) -> MemoryPlan:
        u, needed = self.units, sum(self.fixed.values())
        counts = Counter(r.unit for r in runs)
        extra = Counter({i: n - 1 for i, n in counts.items() if n > 1 and i < u.own})
        moved = [sum(counts[pair[k]] * u.size[v] for v, pair in u.pages.items()) for k in (0, 1)]
        lines: dict[tuple, list[int]] = {}
        for i, n in extra.items():
            node = u.nodes[i]
            name = "+".join(dict.fromkeys(m.op for m in node.attrs["body"].nodes)) if node.op == "fused" else node.op
            key = name, node.where, sum(bytes_of(v) for v in node.outputs)
            runs_flops = lines.setdefault(key, [0, 0])
            runs_flops[0] += n
            runs_flops[1] += n * u.flops[i]
        told = sorted((Recomputed(op, where, n, size, f) for (op, where, size), (n, f) in lines.items()), key=lambda r: -r.runs * r.bytes)
        bound = least(units_of(run_passes(planned.lowered.graph, self.placing)))
        return MemoryPlan(
            self.budget.bytes, _arena(planned), *self.fixed.values(), without=peak(u, u.runs) + needed, lower_bound=bound + needed,
            flops=sum(u.flops[: u.own]), recomputed_flops=sum(n * u.flops[i] for i, n in extra.items()), recomputed=tuple(told),
            written=moved[0], read=moved[1],
        )  # fmt: skip


def _again(graph: Graph, units: Units, runs: Sequence[Run]) -> Graph:
    """Values that are needed late are computed again for that.

    before: ``%a = exp(%x); %b = sum(%a); %c = mul(%a, %b); return %c``
    after:  ``%a = exp(%x); %b = sum(%a); %d = exp(%x); %c = mul(%d, %b); return %c``
    """
    return written_out(units, runs)


def fixed_bytes(graph: Graph) -> dict[str, int]:
    """What a program needs besides its arena: states, results, constants. Of states that an exception may leave half written a run has
    a copy."""
    copied = [s.read for s in graph.states.values() if s.written is not None] if may_stop(graph) else []
    return {
        "states": sum(bytes_of(s.read) for s in graph.states.values()) + sum(map(bytes_of, copied)),
        "results": sum(bytes_of(v) for v in graph.outputs) + len(graph.checks),
        "constants": sum(bytes_of(c.value) for c in graph.constants.values()),
    }


def _arena(planned: Planned) -> int:
    """Bytes of the arena, and of constants that a set-up makes."""
    made = 0 if planned.lowered.setup is None else sum(planned.lowered.setup.output_bytes)
    return planned.temps.place(planned.temps.sizes)[1] + made


def _scratch(planned: Planned) -> dict[int, int]:
    """For nodes of a program's graph the bytes that their kernels alone use, besides the values that others read."""
    of: dict[Hashable, set] = {}
    for leaf in every_leaf(planned.lowered.lo.steps):
        for id in leaf.launch.ids:
            of.setdefault(id, set()).add(leaf.launch.node)
    size = dict(zip(planned.temps.ids, planned.temps.sizes))
    found: dict[int, int] = {}
    for id, nodes in of.items():
        if id in size and len(nodes) == 1 and (node := next(iter(nodes))) is not None:
            found[node] = found.get(node, 0) + int(size[id])
    return found
