"""The search for schedules of one executable: the kernels that cost most beyond what the machine's roof needs come first.

In: an `Executable`, buffers to run it on, and seconds. Out: the schedules that made it faster, alone and in the whole program,
and a `Report`. The bits of every candidate are compared with those of the schedule it would replace.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from statistics import median
from typing import Any

import numpy as np

from tengen.base.config import config
from tengen.base.errors import CompileError
from tengen.base.record import record
from tengen.kernels.schedule import Choice, Schedule
from tengen.loops.cost import cost
from tengen.profiling.profiler import profile
from tengen.profiling.roof import roof
from tengen.runtime import native
from tengen.tensor import Tensor
from tengen.tensor.executable import Executable
from tengen.tuning.trial import Bench, Trial, faster, same_nans

LEAST_SHARE = 0.005  # of a program's time: kernels below it are left alone
HEADROOM = 0.05  # of its time a kernel may always gain: the roof is a rule of thumb
LAST = 0.2  # of the seconds are for the whole program


@record(frozen=True)
class TunedKernel:
    """One tuned choice of a program.

    Attributes:
        name: of its kernel. where: the user's line. launches: how often a run has it. before, after: seconds of a run that its
            nodes take, in the program. old, new: its schedules.
    """

    name: str
    where: str | None
    launches: int
    before: float
    after: float
    old: Schedule
    new: Schedule


@record(frozen=True)
class Report:
    """What tuning did.

    Attributes:
        program: its name. before, after: seconds of a run. seconds: how long it was tuned. tried: candidates that were
            measured. kernels: those with a new schedule, most time saved first. differing: candidates whose bits were others,
            which were thrown away: none, unless a kernel's generator is wrong.
    """

    program: str
    before: float
    after: float
    seconds: float
    tried: int
    kernels: tuple[TunedKernel, ...] = ()
    differing: int = 0

    def __repr__(self) -> str:
        gain = self.before / self.after if self.after else 1.0
        head = f"{self.program}: {_time(self.before)} -> {_time(self.after)} ({gain:.2f} times as fast)"
        if not self.tried:
            return f"{head}; no kernel that takes at least {100 * LEAST_SHARE:.1f} % of the time has another schedule to try"
        head += f"; {self.tried} schedules tried in {self.seconds:.0f} s, {len(self.kernels)} kernels changed"
        if not self.kernels:
            return head
        table = [["kernel", "calls", "before", "after", "gain", "schedule"]]
        for k in self.kernels:
            times = _time(k.before), _time(k.after), f"{k.before / (k.after or 1):.2f}"
            table.append([k.name, str(k.launches), *times, _changed(k)])
        widths = [max(len(r[i]) for r in table) for i in range(6)]
        line = lambda r: "  ".join(c.ljust(w) if i in (0, 5) else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths)))
        return "\n".join([*(line(r).rstrip() for r in table), head])


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.1f} us"


def _changed(k: TunedKernel) -> str:
    """The fields that are no longer what they were."""
    old, new = k.old.numbers(), k.new.numbers()
    return ", ".join(f"{name} {old[name]} -> {new[name]}" for name in new if new[name] != old[name])


@record
class _Task:
    """The search for one choice. now: the best schedule so far. weight: seconds of a run that its nodes take. could: how many
    of them it may gain. spent: seconds of search. order: what to try next."""

    key: str
    choice: Choice
    node: int
    name: str
    weight: float
    could: float
    now: Schedule
    spent: float = 0.0
    seen: set[Schedule] = field(default_factory=set)
    trial: Trial | None = None
    order: Iterator[Schedule] = iter(())


class Search:
    """Tunes one executable. found: the schedules that helped, by key.

    Args:
        exe: what is tuned; it is not changed. run: runs an executable once, on states of its own. seconds: to spend on trying
            schedules, about; preparing (compiling what is profiled, measuring the machine's roof) comes before. tick: is told the
            seconds that have passed and a word.
    """

    def __init__(self, exe: Executable, run: Run, seconds: float, tick: Callable[[float, str], None] = lambda s, text: None):
        self.exe, self.run, self.seconds, self.tick = exe, run, seconds, tick
        self.start = time.perf_counter()
        self.tried = self.differing = 0
        self.bench = Bench(exe.graph, exe.schedules, exe.device)
        self.found: dict[str, Schedule] = {}

    @property
    def passed(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.start

    def tune(self) -> tuple[Executable, Report]:
        """The tuned executable (`exe` itself if nothing helped) and what was done."""
        tasks = self._tasks()
        self.start = time.perf_counter()
        while (tasks := [t for t in tasks if t.could > 0]) and self.passed < self.seconds * (1 - LAST):
            t = max(tasks, key=lambda t: t.could / (t.spent + 0.1))
            self.tick(self.passed, t.name)
            begin = time.perf_counter()
            self._step(t)
            t.spent += time.perf_counter() - begin
        new, kernels = self._confirmed()
        before, after = self._compared(new)
        if new is not self.exe and after >= before:
            new, kernels, after, self.found = self.exe, [], before, {}
        self.tick(self.passed, "done")
        return new, Report(self.exe.name, before, after, self.passed, self.tried, tuple(kernels), self.differing)

    # ---- which

    def _tasks(self) -> list[_Task]:
        """One for each choice whose kernels run, with what it may gain."""
        self.tick(self.passed, "profile")
        times = _node_times([self.exe], self.run, 0.1 * self.seconds)[0]
        total, top = sum(times.values()), roof(config.threads)
        known = self.exe.schedules
        least: dict[int, float] = {}
        first: dict[int, Any] = {}
        for launch in self.bench.lo.launches:
            if launch.node in self.bench.hot and times.get(launch.node, 0) > LEAST_SHARE * total:
                c = cost(launch.kernel)
                least[launch.node] = least.get(launch.node, 0.0) + max(c.flops / top.flops, c.bytes / top.bytes)
                first[launch.node] = launch
        tasks = []
        for c in self.bench.lo.choices.values():
            nodes = [n for n in c.nodes if n in first]
            if not nodes:
                continue
            weight = sum(times[n] for n in nodes)
            could = sum(max(times[n] - least[n], HEADROOM * times[n]) for n in nodes)
            node = max(nodes, key=lambda n: times[n])
            t = _Task(known.key(c.problem_key), c, node, first[node].kernel.name, weight, could, c.taken, seen={c.taken})
            t.order = c.worth_a_try(c.taken)
            tasks.append(t)
        return tasks

    # ---- trying

    def _trial(self, t: _Task, s: Schedule) -> Trial:
        return self.bench.trial(t.node, self.exe.schedules.also({**self.found, t.key: s}))

    def _step(self, t: _Task) -> None:
        """Tries the next schedule of a task; where there is none, the task has ended."""
        s = next((s for s in t.order if s not in t.seen), None)
        if s is None:
            t.could = 0.0
            return
        t.seen.add(s)
        if t.trial is None:
            t.trial = self._trial(t, t.now)
        try:
            new = self._trial(t, s)
        except CompileError:
            return
        self.tried += 1
        if new.bits() != t.trial.bits():
            self.differing += 1
            text = f"{t.name}: {s} gives other bits than {t.now}; it is not used, please report it"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
            return
        gain = faster(t.trial, new)
        if gain > 1:
            saved = t.weight * (1 - 1 / gain)
            t.weight, t.could = t.weight - saved, max(t.could - saved, HEADROOM * t.weight)
            t.now, t.trial, self.found[t.key] = s, new, s
            t.order = t.choice.worth_a_try(s)

    # ---- the whole program

    def _confirmed(self) -> tuple[Executable, list[TunedKernel]]:
        """The executable with those of the schedules that also help inside of the program."""
        if not self.found:
            return self.exe, []
        self.tick(self.passed, "whole program")
        known = self.exe.schedules
        new = self.exe.retuned(known.also(self.found))
        old_times, new_times = _node_times([self.exe, new], self.run, LAST / 2 * self.seconds)
        choices = {known.key(c.problem_key): c for c in self.bench.lo.choices.values()}
        kernels, kept, tried = [], {}, len(self.found)
        for key, s in self.found.items():
            nodes = [n for n in choices[key].nodes if n in old_times and n in new_times]
            before, after = (sum(times[n] for n in nodes) for times in (old_times, new_times))
            if after < 0.99 * before:
                launch = next(x for x in reversed(self.bench.lo.launches) if x.node in nodes)
                kernels.append(TunedKernel(launch.kernel.name, launch.where, len(nodes), before, after, choices[key].taken, s))
                kept[key] = s
        self.found = kept
        if not kept:
            return self.exe, []
        if len(kept) < tried:
            new = self.exe.retuned(known.also(kept))
        return new, sorted(kernels, key=lambda k: k.after - k.before)

    def _compared(self, new: Executable) -> tuple[float, float]:
        """Seconds of a run, now and with the new schedules, in turn. Their bits are compared first."""
        self.run.restart()
        if new is not self.exe and _bits(self.run(self.exe)) != _bits(self.run(new)):
            self.differing += 1
            text = f"{self.exe.name}: the tuned program gives other bits; it is not used, please report it"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
            return 0.0, 0.0
        times: dict[Executable, list[float]] = {self.exe: [], new: []}
        begin = time.perf_counter()
        while len(times[new]) < 5 or (time.perf_counter() - begin < LAST / 2 * self.seconds and len(times[new]) < 500):
            for e in [self.exe, new][:: 1 if len(times[new]) % 2 else -1]:
                start = time.perf_counter()
                kept = self.run(e)
                times[e].append(time.perf_counter() - start)
                del kept
        return median(times[self.exe]), median(times[new])


def _bits(made: Sequence[Tensor]) -> list[bytes]:
    return [same_nans(np.asarray(t.numpy())) for t in made]


def _node_times(exes: Sequence[Executable], run: Run, seconds: float) -> list[dict[int, float]]:
    """For each executable, the median time of every node's launches in a run, by the node's position. They run in turn."""
    for e in exes:
        run(e)
    runs = 0
    with profile() as p:
        for e in exes:
            run(e)  # compiles what records
        begin = time.perf_counter()
        while runs < 3 or (time.perf_counter() - begin < seconds and runs < 100):
            for e in exes:
                run(e)
            runs += 1
    found = []
    launches, entries = p.launches, p._log.entries
    whole = launches.share == 0
    for e in exes:
        number = e._recorded[()][1].number
        mine = whole & (launches.plan == number)
        each: dict[int, np.ndarray] = {}
        for i, leaf in enumerate(entries[number].program.launches):
            took = (launches.end - launches.begin)[mine & (launches.launch == i)][-runs:]
            node = leaf.launch.node
            if node is not None and len(took) == runs:
                each[node] = each.get(node, 0.0) + took
        found.append({node: float(np.median(t)) for node, t in each.items()})
    return found


class Run:
    """Runs an executable on buffers of its inputs and copies of those of its states, which each executable has for itself."""

    def __init__(self, buffers: Sequence[Any], sizes: Sequence[int], n_inputs: int):
        self._inputs = list(buffers[:n_inputs])
        self._states = list(zip(buffers[n_inputs:], sizes[n_inputs:]))
        self._copies: dict[int, tuple[Executable, list]] = {}

    def __call__(self, e: Executable) -> list[Tensor]:
        """The outputs of one run more."""
        if id(e) not in self._copies:
            self._copies[id(e)] = e, [native.copy(b, n) for b, n in self._states]
        return e([*self._inputs, *self._copies[id(e)][1]])

    def restart(self) -> None:
        """Gives every executable the states of the beginning: they have run some more often than others."""
        self._copies.clear()
