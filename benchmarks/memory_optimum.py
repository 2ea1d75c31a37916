"""How far the planner of memory budgets is from the optimum: small programs, whose best plan a mixed integer program finds.

    python benchmarks/memory_optimum.py [--seconds S]

The optimum is that of Checkmate (Jain et al., arXiv 1910.02653): in stage t unit t runs for the first time, and any before it once more;
what is kept from stage to stage, and what runs, are bools; memory after each unit of each stage is a linear function of them and of
what is freed there. The order of the units, their bytes and costs are the planner's own (`passes/units.py`), so both solve one problem.
`scipy.optimize.milp` (HiGHS) solves it, or gives the best plan that it has found after some seconds, and a bound.

Out: for each network and budget the costs of both, beside that of a program without a budget, and the gap.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from recorded import graph_of

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor
from tengen.autodiff import GradManager
from tengen.compiler.budget import FAR, SEGMENTS
from tengen.passes.lower import lowering_passes
from tengen.passes.pipeline import optimize
from tengen.passes.recompute import Short, plan, segments
from tengen.passes.run import run_passes
from tengen.passes.units import Units, freeing_order, least, peak, pruned, units_of
from tengen.runtime import native

SHARES = (0.85, 0.7, 0.55, 0.4, 0.25)  # of what lies between the lower bound and what is needed without a budget


class Problem:
    """A mixed integer program: variables are numbered as they are asked for."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.whole: list[int] = []
        self.rows: list[tuple[dict[int, float], float, float]] = []

    def variable(self, low: float, high: float, cost: float = 0.0, whole: bool = True) -> int:
        """A new variable."""
        self.cost.append(cost)
        self.low.append(low)
        self.high.append(high)
        self.whole.append(int(whole))
        return len(self.cost) - 1

    def bound(self, terms: dict[int, float], low: float, high: float) -> None:
        """low <= sum of terms <= high"""
        self.rows.append((terms, low, high))

    def solved(self, seconds: float) -> tuple[float, float] | None:
        """(the least cost that was found, a lower bound of it); None where nothing fits."""
        at = [(i, j, x) for i, (terms, _, _) in enumerate(self.rows) for j, x in terms.items()]
        rows, columns, values = (np.array(a) for a in zip(*at))
        matrix = csr_array((values, (rows, columns)), (len(self.rows), len(self.cost)))
        limits = LinearConstraint(matrix, [r[1] for r in self.rows], [r[2] for r in self.rows])
        found = milp(
            self.cost, integrality=self.whole, bounds=Bounds(self.low, self.high), constraints=limits,
            options={"time_limit": seconds, "mip_rel_gap": 1e-4},
        )  # fmt: skip
        return None if found.x is None else (float(found.fun), float(found.mip_dual_bound))


def optimum(u: Units, order: Sequence[int], limit: int, seconds: float) -> tuple[float, float] | None:
    """(cost, a lower bound of it) of the best plan within a limit in bytes; None where none was found."""
    n, p = len(order), Problem()
    at = {i: k for k, i in enumerate(order)}
    unit = 1.0 / max(max(u.size), 1)
    made = {v: at[u.maker[v]] for v in range(len(u.values))}
    readers = {v: sorted({at[i] for i in u.readers[v]}) for v in made}
    runs = {(t, k): p.variable(float(t == k), 1.0, u.cost[order[k]]) for t in range(n) for k in range(t + 1)}
    kept = {(t, v): p.variable(0.0, 1.0) for t in range(1, n) for v, k in made.items() if k < t}
    for t in range(n):
        memory: dict[int, float] = {kept[t, v]: u.size[v] * unit for v in made if (t, v) in kept and u.size[v]}
        for v, k in made.items():
            if (t + 1, v) in kept:  # it is kept behind the stage only if it was before, or is made in it
                p.bound({kept[t + 1, v]: 1, runs[t, k]: -1} | ({kept[t, v]: -1} if (t, v) in kept else {}), -np.inf, 0)
            if u.held[v] and (t, v) in kept:
                p.bound({kept[t, v]: 1}, 1, 1)
        for k in range(t + 1):
            i = order[k]
            for v in u.ins[i]:  # operands are kept, or made in this stage
                p.bound({runs[t, k]: 1, runs[t, made[v]]: -1} | ({kept[t, v]: -1} if (t, v) in kept else {}), -np.inf, 0)
            for gone in u.overwritten[i]:
                for j in range(n):  # what was computed of a state cannot be computed again behind its update
                    if t > k and gone in u.needs[u.outs[order[j]][0]][1] and j != k and (t, j) in runs and j < t:
                        p.bound({runs[t, j]: 1}, 0, 0)
            if t > k and u.overwritten[i]:
                p.bound({runs[t, k]: 1}, 0, 0)
            memory = dict(memory)
            memory[runs[t, k]] = memory.get(runs[t, k], 0.0) + sum(u.size[v] for v in u.outs[i]) * unit
            while_it_runs = dict(memory)
            for v in {*u.ins[i], *u.outs[i]}:
                if u.held[v] or not u.size[v]:
                    continue
                free = p.variable(0.0, 1.0)
                p.bound({free: 1, runs[t, k]: -1}, -np.inf, 0)
                if (t + 1, v) in kept:
                    p.bound({free: 1, kept[t + 1, v]: 1}, -np.inf, 1)
                for j in readers[v]:
                    if k < j <= t:
                        p.bound({free: 1, runs[t, j]: 1}, -np.inf, 1)
                memory[free] = memory.get(free, 0.0) - u.size[v] * unit
                if u.over.get(i) == v:  # the result lies over it
                    while_it_runs[free] = -u.size[v] * unit
            p.bound(while_it_runs, -np.inf, limit * unit - u.work[i] * unit)
    return p.solved(seconds)


def planned(u: Units, order: Sequence[int], limit: int) -> float | None:
    """The cost of the plan that budgets take, before it is lowered; None where there is none."""
    found = []
    for keep, far in [((), f) for f in FAR] + [(segments(u, order, n), 1.0) for n in SEGMENTS if n * 4 < len(order)]:
        try:
            runs = pruned(u, plan(u, order, limit, keep, far))
        except Short:
            continue
        found.append(sum(u.cost[r.unit] for r in runs))
    return min(found, default=None)


# ---- networks ----------------------------------------------------------------------------------------------------------------


def _step(net: Callable, parameters: Sequence[Tensor]) -> Callable:
    gm = GradManager().attach(parameters)

    def step(x: Tensor) -> Tensor:
        with gm:
            loss = F.sum(net(x) ** 2)
            gm.backward(loss)
        grads = [p.grad for p in parameters]
        for p in parameters:
            p.grad = None
        return (loss, *grads)

    return step


def chain(depth: int) -> tuple[Callable, Tensor]:
    """Linear layers with relu."""
    net = M.Sequential(*(m for _ in range(depth) for m in (M.Linear(64, 64), M.ReLU())))
    return _step(net, list(net.parameters())), Tensor(np.ones((512, 64), "float32"))


def uneven() -> tuple[Callable, Tensor]:
    """Linear layers of several widths: some values are large and cheap, others small and dear."""
    widths = (64, 512, 64, 256, 32, 512, 16)
    net = M.Sequential(*(m for a, b in zip(widths, widths[1:]) for m in (M.Linear(a, b), M.Tanh())))
    return _step(net, list(net.parameters())), Tensor(np.ones((256, 64), "float32"))


def residual() -> tuple[Callable, Tensor]:
    """Convolutions with shortcuts."""
    convs = [M.Conv2d(16, 16, 3, padding=1) for _ in range(4)]

    def net(x: Tensor) -> Tensor:
        for a, b in zip(convs[::2], convs[1::2]):
            x = F.relu(x + b(F.relu(a(x))))
        return x

    return _step(net, [p for c in convs for p in c.parameters()]), Tensor(np.ones((4, 16, 16, 16), "float32"))


NETWORKS = {"chain of 4": lambda: chain(4), "chain of 6": lambda: chain(6), "uneven": uneven, "residual": residual}


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--seconds", type=float, default=30.0, help="of the solver, for each budget")
    args.add_argument("--only", default="", help="the networks whose name contains this")
    given = args.parse_args()
    tengen.random.seed(0)
    print(f"{'':14}{'budget, KiB':>12}{'planned':>9}{'optimum':>9}{'bound':>9}   cost beside that without a budget; gap")
    for name in (n for n in NETWORKS if given.only in n):
        step, x = NETWORKS[name]()
        graph = optimize(graph_of(step, x))
        u = units_of(run_passes(graph, lowering_passes(native.TARGET)[:-1]))
        order = freeing_order(u)
        whole, floor, plain = peak(u, [r for i in order for r in u.runs if r.unit == i]), least(u), sum(u.cost)
        for share in SHARES:
            limit = floor + int((whole - floor) * share)
            ours, best = planned(u, order, limit), optimum(u, order, limit, given.seconds)
            told = [f"{c / plain:9.3f}" if c is not None else f"{'none':>9}" for c in (ours, *(best or (None, None)))]
            gap = f"{ours / best[0] - 1:+.1%}" if ours is not None and best else ""
            print(f"{name:14}{limit / 1024:12.0f}{''.join(told)}   {gap}  ({len(order)} units)", flush=True)


if __name__ == "__main__":
    main()
