"""`tengen.memory`: what a program needs, when and for what; what the pool holds; budgets for eager steps.

In: functions and their arguments, numbers of bytes. Out: tables and pictures of a program's memory, figures of the pool.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tengen.base.files import replacing
from tengen.base.record import NamedTuple, record
from tengen.base.sizes import byte_size, in_words
from tengen.compiler.budget import fixed_bytes
from tengen.compiler.building import Planned
from tengen.compiler.driver import compile_graph
from tengen.compiler.memory_plan import MemoryPlan
from tengen.device import (
    coalesce_free_memory,
    get_allocated_memory,
    get_max_allocated_memory,
    get_max_reserved_memory,
    get_reserved_memory,
    reset_max_memory_stats,
)
from tengen.jit.trace import trace
from tengen.kernels.steps import every_leaf
from tengen.passes.lower import lowering_passes
from tengen.passes.run import observing, run_passes
from tengen.passes.units import least, units_of
from tengen.runtime.paging import folder_of
from tengen.tensor import eviction

__all__ = [
    "Alive", "Program", "Statistics", "budget", "get_allocated_memory", "get_max_allocated_memory", "get_max_reserved_memory",
    "get_reserved_memory", "plan", "reset_max_memory_stats", "stats", "trim",
]  # fmt: skip

ROWS, WIDTH = 24, 48  # of the picture as text


class Statistics(NamedTuple):
    """Bytes of the processor's memory pool, and of the process.

    Attributes:
        allocated: what tensors and running programs hold. reserved: that, and what is kept for the next ones. max_allocated,
            max_reserved: the most there ever was of each, or since `reset_max_memory_stats`. resident: what the process has of the
            machine's memory now, with everything.
    """

    allocated: int
    reserved: int
    max_allocated: int
    max_reserved: int
    resident: int


def stats() -> Statistics:
    """Figures of the memory pool now.

    >>> from tengen import functional as F
    >>> x = F.ones((1000,))
    >>> s = stats()
    >>> 4000 <= s.allocated <= s.max_allocated <= s.max_reserved
    True
    """
    with open("/proc/self/statm") as f:
        resident = int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    figures = get_allocated_memory(), get_reserved_memory(), get_max_allocated_memory(), get_max_reserved_memory()
    return Statistics(*figures, resident)


def trim() -> int:
    """Gives back to the system what the pool keeps for the next tensors. Returns how many bytes that were.

    >>> trim() >= 0
    True
    """
    before = get_reserved_memory()
    coalesce_free_memory()
    return before - get_reserved_memory()


# ---- eager steps -------------------------------------------------------------------------------------------------------


class budget:
    """A number of bytes that tensors of eager steps are kept below, as far as that can be: values that only the tape holds, for a
    gradient that is still to be computed, are let go of, and computed again when the gradient needs them. Bits are the same.

    It is in force from the call on, until another budget or `budget(None)`; as a context manager until the block ends: then the one before
    it is in force again.

    Args:
        bytes: an int, or a text as "400MB"; None: no budget. It is compared with `get_allocated_memory()`: what parameters, states
            and the user's own variables hold counts, and cannot go. A call's results come on top for a moment.
        smallest: values with fewer bytes stay.
        offload: a folder, or "disk" for that of temporary files: values are written there and read again where that is possible, in place
            of being computed again.

    Attributes: evicted, restored: how many values went, and came back. computed_again: how many calls were run for that. needed: the
        most bytes that tensors held when nothing more could go, where that was above the budget; 0 where it was kept. The smallest budget
        that can be met is so many, give or take one value, since what goes depends on the budget.

    A budget that cannot be kept warns once (`UsageWarning`), with the bytes that tensors hold when nothing more can go: an eager step is not
    known beforehand, and an error in the middle of it would lose it.

    A traced step has a budget of its own: `trace(memory_budget=...)`, which knows the whole program and plans it.

    Errors: ValueError for a size that is none, or an `offload` that is no folder; `BudgetError` where the disk is full.
    Source: Kirisame et al., arXiv 2006.09616

    >>> from tengen import autodiff, functional as F, Tensor
    >>> x = Tensor([1.0, 2.0])
    >>> gm = autodiff.GradManager().attach([x])
    >>> with budget("4GB", smallest=1), gm:
    ...     gm.backward(F.exp(F.exp(x)).sum())
    >>> x.grad.shape
    (2,)
    """

    def __init__(self, bytes: int | str | None, *, smallest: int | str = 64 << 10, offload: str | os.PathLike | None = None):
        self._keeper: eviction.Keeper | None = None
        if bytes is not None:
            folder = None if offload is None else folder_of(offload)
            self._keeper = eviction.Keeper(byte_size(bytes, "budget"), byte_size(smallest, "smallest"), folder)
        self._before = eviction.set_keeper(self._keeper)

    @property
    def evicted(self) -> int:
        return 0 if self._keeper is None else self._keeper.evicted

    @property
    def restored(self) -> int:
        return 0 if self._keeper is None else self._keeper.restored

    @property
    def computed_again(self) -> int:
        return 0 if self._keeper is None else self._keeper.computed_again

    @property
    def needed(self) -> int:
        return 0 if self._keeper is None else self._keeper.needed

    def __enter__(self) -> budget:
        return self

    def __exit__(self, *exc: object) -> None:
        eviction.set_keeper(self._before)


# ---- a program's memory ------------------------------------------------------------------------------------------------


class Alive(NamedTuple):
    """Memory of the arena that holds something at the peak.

    Attributes:
        bytes: its size. what: the node that computes it, as op: type. where: the user's line. first, last: the launches between which
            it holds something.
    """

    bytes: int
    what: str
    where: str | None
    first: int
    last: int


@record(frozen=True)
class Program:
    """A program's memory, launch by launch. Print it, or `save` a picture.

    Attributes:
        name: of the function. held: for each launch the bytes of the arena that hold something. kernels, lines: of each launch its
            kernel's name and the user's line. alive: what there is at the peak, the largest first. arena, states, results, constants:
            bytes. lower_bound: of the whole: the operands and results of one node are there at the same time, so no plan for these
            kernels needs less. recomputed: what a budget asked for; None without one.
    """

    name: str
    held: tuple[int, ...]
    kernels: tuple[str, ...]
    lines: tuple[str | None, ...]
    alive: tuple[Alive, ...]
    arena: int
    states: int
    results: int
    constants: int
    lower_bound: int
    recomputed: MemoryPlan | None = None

    @property
    def bytes(self) -> int:
        """What a run needs: arena, states, results and constants."""
        return self.arena + self.states + self.results + self.constants

    @property
    def peak(self) -> int:
        """The launch at which most is held."""
        return max(range(len(self.held)), key=self.held.__getitem__, default=0)

    def __str__(self) -> str:
        parts = ", ".join(f"{what} {in_words(getattr(self, what))}" for what in ("arena", "states", "results", "constants"))
        rows = [f"{self.name}: {in_words(self.bytes)} ({parts}); no plan for these kernels needs less than {in_words(self.lower_bound)}"]
        if self.recomputed is not None:
            rows.append(f"budget: {self.recomputed}")
        return "\n".join([*rows, "", *self._picture(), "", *self._table()])

    __repr__ = __str__

    def _picture(self) -> list[str]:
        """Bars: the most bytes held in each part of the program."""
        n, most = len(self.held), max(self.held, default=0) or 1
        rows = ["  launches      held"]
        for i in range(min(ROWS, n)):
            a, b = i * n // min(ROWS, n), (i + 1) * n // min(ROWS, n)
            held = max(self.held[a:b])
            mark = " peak" if a <= self.peak < b else ""
            rows.append(f"{a:5}-{b - 1:<5} {in_words(held):>12} {'#' * round(WIDTH * held / most)}{mark}")
        return rows

    def _table(self, most: int = 20) -> list[str]:
        """What is alive at the peak."""
        if not self.held:
            return ["nothing is held"]
        at = self.peak
        rows = [f"at the peak, launch {at} ({self.kernels[at]}, {self.lines[at] or 'no line'}), {len(self.alive)} buffers are held:"]
        rows += [f"{in_words(a.bytes):>12}  {a.what}, launches {a.first}-{a.last}  {a.where or ''}".rstrip() for a in self.alive[:most]]
        if len(self.alive) > most:
            rest = self.alive[most:]
            rows.append(f"{in_words(sum(a.bytes for a in rest)):>12}  {len(rest)} more")
        return rows

    def save(self, path: str | os.PathLike) -> None:
        """Draws bytes held against launches as a picture (by its suffix: .png, .svg, .pdf), which needs matplotlib; with the suffix
        .txt the text of `print` is written.

        Args:
            path: of the file, which is replaced.

        Errors: ImportError where there is no matplotlib.
        """
        suffix = os.path.splitext(os.fspath(path))[1][1:]
        if suffix == "txt":
            with replacing(path) as f:
                f.write(f"{self}\n".encode())
            return
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 4), layout="constrained")
        axes = figure.add_subplot()
        mib = [n / (1 << 20) for n in self.held]
        axes.fill_between(range(len(mib)), mib, step="mid", alpha=0.4)
        axes.axhline(self.arena / (1 << 20), color="C1", label=f"arena, {in_words(self.arena)}")
        floor = max(self.lower_bound - self.states - self.results - self.constants, 0)
        axes.axhline(floor / (1 << 20), color="C2", linestyle="--", label=f"lower bound, {in_words(floor)}")
        axes.set(xlabel="launch", ylabel="MiB", title=f"{self.name}: temporaries")
        axes.legend()
        with replacing(path) as f:
            figure.savefig(f, dpi=120, format=suffix or "png")


def plan(function: Callable, *args: Any, **kwargs: Any) -> Program:
    """What a traced function's program for these arguments needs of memory, when and for what. It is recorded and planned, not
    compiled and not run.

    Args:
        function: a function, or a `trace` of one, whose budget counts. args, kwargs: its arguments.

    Errors: as those of a call of the trace.

    >>> from tengen import functional as F
    >>> def step(x):
    ...     a = F.exp(x @ x)
    ...     b = a @ a
    ...     return b @ a
    >>> p = plan(step, F.ones((64, 64)))
    >>> p.arena, p.results, len(p.held), [a.bytes for a in p.alive]
    (32768, 16384, 3, [16384, 16384])
    >>> print(p)  # doctest: +ELLIPSIS
    step: 48.00 KiB (arena 32.00 KiB, states 0 bytes, results 16.00 KiB, constants 0 bytes); ...
    """
    traced = function if isinstance(function, trace) else trace(function)
    graph, device = traced.graph_of_call(*args, **kwargs)
    seen: list[Planned] = []

    def look(p: Any, before: Any, after: Any, seconds: float) -> None:
        if p.name == "memory" and after.lowered.name == traced.name:
            seen.append(after)

    with observing(look):
        made, _ = compile_graph(graph, None, [], traced.name, fold=True, device=device, budget=traced.budget)
    return _program(traced.name, seen[-1], made.memory)


def _program(name: str, planned: Planned, recomputed: MemoryPlan | None) -> Program:
    x, temps = planned.lowered, planned.temps
    assert x.graph is not None
    leaves = [leaf.launch for leaf in every_leaf(x.lo.steps)]
    n = max((life[-1][1] + 1 for life in temps.lives), default=0)
    if len(leaves) < n:  # a loop's condition has a place of its own
        leaves += leaves[-1:] * (n - len(leaves))
    n = max(n, len(leaves))
    change = [0] * (n + 1)
    sizes = [int(s) for s in temps.sizes]
    for size, life in zip(sizes, temps.lives):
        for first, last in life:
            change[first] += size
            change[last + 1] -= size
    held, total = [], 0
    for at in range(n):
        total += change[at]
        held.append(total)
    top = max(range(n), key=held.__getitem__, default=0)
    makers: dict[Any, int] = {}
    for at, launch in enumerate(leaves):
        for id in launch.writes:
            makers.setdefault(id, at)
    alive = []
    for id, size, life in zip(temps.ids, sizes, temps.lives):
        if any(first <= top <= last for first, last in life):
            maker = leaves[makers[id]] if id in makers else leaves[life[0][0]]
            alive.append(Alive(size, maker.kernel.name, maker.where, life[0][0], life[-1][1]))
    bytes = fixed_bytes(x.graph)
    setup = 0 if x.setup is None else sum(x.setup.output_bytes)
    bound = least(units_of(run_passes(x.graph, lowering_passes(x.lo.target)[:-1])))
    return Program(
        name, tuple(held), tuple(l.kernel.name for l in leaves[:n]), tuple(l.where for l in leaves[:n]),
        tuple(sorted(alive, key=lambda a: -a.bytes)), temps.place(temps.sizes)[1], bytes["states"], bytes["results"],
        bytes["constants"] + setup, bound + sum(bytes.values()) + setup, recomputed,
    )  # fmt: skip
