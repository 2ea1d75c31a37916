"""What a profile found: kernels with their times, arithmetic, memory traffic and the user's line.

In: a closed `Log` (`launch_log.py`) and the machine's roof. Out: rows, a table, a timeline for Perfetto or chrome://tracing, a
picture. What a kernel computes is counted from its loops (`loops/cost.py`), when somebody asks.
"""

from __future__ import annotations

import functools
import json
import os

import numpy as np

from tengen.base.config import config
from tengen.base.files import replacing
from tengen.base.record import record
from tengen.compiler.program import value_of
from tengen.kernels.steps import Loop
from tengen.loops.cost import Cost, cost
from tengen.profiling.roof import Roof, roof
from tengen.runtime.launch_log import Entry, Log

SORTS = ("time", "flops", "bytes", "calls")
TRANSFERS = 1 << 20  # number of the first track of transfers, behind those of threads


@record(frozen=True)
class Row:
    """One kernel of one program, over all its launches.

    Attributes:
        kernel, program: their names. where: the user's line, "file:line"; None where no line asked for it (a state that is
            written back). calls: launches. time: seconds of all of them; least, most: of one. busy: seconds of work of all threads
            together. flops, bytes: of one launch (`loops.cost.Cost`). exact: whether those are exact.
    """

    kernel: str
    program: str
    where: str | None
    calls: int
    time: float
    least: float
    most: float
    busy: float
    flops: int
    bytes: int
    exact: bool

    @property
    def gflops(self) -> float:
        """10^9 operations on floats a second, on average."""
        return self.flops * self.calls / self.time / 1e9 if self.time else 0.0

    @property
    def gbytes(self) -> float:
        """10^9 bytes a second, read and written once each, on average."""
        return self.bytes * self.calls / self.time / 1e9 if self.time else 0.0

    def share_of(self, roof: Roof) -> float:
        """Of what the machine could do: the larger of its share of arithmetic and of memory traffic. More than 1 means that the data
        came from cache, or that it was float16."""
        return max(self.gflops * 1e9 / roof.flops, self.gbytes * 1e9 / roof.bytes)


@record(frozen=True)
class Launches:
    """Records as columns: plan, launch, share (0: the whole launch, 1: what one thread did of it), thread (0: the first seen),
    begin and end in seconds since the profile began."""

    plan: np.ndarray
    launch: np.ndarray
    share: np.ndarray
    thread: np.ndarray
    begin: np.ndarray
    end: np.ndarray


class Result:
    """What `tengen.profile` gives once its block has ended.

    Attributes:
        seconds: how long the block took. threads: how many programs could use. lost: records that did not fit (the first million
            are kept).
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.threads = config.threads
        self.lost = 0
        self._log = Log()
        self._start = 0

    def _close(self, log: Log, start_ns: int, end_ns: int) -> None:
        self._log, self._start, self.lost = log, start_ns, log.lost
        self.seconds = (end_ns - start_ns) / 1e9

    # -- data
    @functools.cached_property
    def rows(self) -> list[Row]:
        """One `Row` for each kernel, the longest time first."""
        r = self.launches
        order = np.lexsort((r.launch, r.plan))
        plans, launches = r.plan[order], r.launch[order]
        cuts = np.flatnonzero((np.diff(plans) != 0) | (np.diff(launches) != 0)) + 1
        found: dict[tuple, list[np.ndarray]] = {}
        for mine in np.split(order, cuts) if len(order) else ():
            plan, launch = int(r.plan[mine[0]]), int(r.launch[mine[0]])
            entry = self._log.entries[plan]
            one = entry.program.launches[launch].launch
            c = _cost(entry, launch)
            key = (one.kernel.name, entry.program.name, one.where or entry.where, c.flops, c.bytes, c.exact)
            found.setdefault(key, []).append(np.stack([r.end[mine] - r.begin[mine], r.share[mine]]))
        rows = []
        for (kernel, program, where, flops, moved, exact), parts in found.items():
            took, share = np.concatenate(parts, 1)
            t = took[share == 0]
            if not len(t):  # the profile ended while it ran
                continue
            busy = float(took[share == 1].sum())
            rows.append(Row(kernel, program, where, len(t), float(t.sum()), float(t.min()), float(t.max()), busy, flops, moved, exact))
        return sorted(rows, key=lambda x: -x.time)

    @functools.cached_property
    def launches(self) -> Launches:
        """Everything that was recorded, in order of time."""
        r = self._log.records
        r = r[np.argsort(r[:, 4], kind="stable")]
        numbers: dict[int, int] = {}
        threads = [numbers.setdefault(t, len(numbers)) for t in r[:, 3].tolist()]
        begin, end = ((r[:, i] - self._start) / 1e9 for i in (4, 5))
        return Launches(r[:, 0], r[:, 1], r[:, 2], np.array(threads, np.int64), begin, end)

    @property
    def transfers(self) -> list[tuple[str, float, float]]:
        """(What is moved between processes, begin, end) in seconds since the profile began, in order of time. Transfers may overlap with
        kernels and with one another."""
        return sorted(((name, (a - self._start) / 1e9, (b - self._start) / 1e9) for name, a, b in self._log.spans), key=lambda s: s[1])

    @property
    def kernel_seconds(self) -> float:
        """Time in kernels; the rest of `seconds` is Python's, or nobody's."""
        return sum(r.time for r in self.rows)

    @functools.cached_property
    def roof(self) -> Roof:
        """What this machine can do with so many threads."""
        return roof(self.threads)

    def sorted(self, sort: str = "time") -> list[Row]:
        """The rows, largest first: by "time", "flops", "bytes" (of all launches) or "calls".

        Errors: ValueError for another name.
        """
        if sort not in SORTS:
            raise ValueError(f"cannot sort by {sort!r}; help: one of {', '.join(SORTS)}")
        value = {"time": lambda r: r.time, "calls": lambda r: r.calls, "flops": lambda r: r.flops * r.calls}
        return sorted(self.rows, key=value.get(sort, lambda r: r.bytes * r.calls), reverse=True)

    # -- text
    def cells(self, sort: str = "time", limit: int | None = 40) -> tuple[list[str], list[list[str]]]:
        """The table's head and its rows as text."""
        rows = self.sorted(sort)
        total = self.kernel_seconds or 1.0
        head = ["kernel", "calls", "time", "share", "each", "GFLOP/s", "GB/s", "roof", "line"]
        body = []
        for r in rows[:limit]:
            about = "" if r.exact else "~"
            body.append([
                r.kernel if r.kernel.startswith(r.program) else f"{r.program}: {r.kernel}", str(r.calls), _time(r.time),
                f"{r.time / total:.1%}", _time(r.time / r.calls), f"{about}{r.gflops:.1f}", f"{about}{r.gbytes:.1f}",
                f"{about}{r.share_of(self.roof):.0%}", _place(r.where),
            ])  # fmt: skip
        return head, body

    def summary(self, limit: int | None = 40) -> str:
        """One line: how long, in how many kernels, on what."""
        inside = self.kernel_seconds
        rest = f" ({len(self.rows) - limit} more kernels)" if limit is not None and len(self.rows) > limit else ""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        text = (
            f"{sum(r.calls for r in self.rows)} launches of {len(self.rows)} kernels: {_time(inside)} of {_time(self.seconds)}"
            f" ({inside / self.seconds if self.seconds else 0:.0%}){rest}; roof with {threads}:"
            f" {self.roof.flops / 1e9:.0f} GFLOP/s, {self.roof.bytes / 1e9:.1f} GB/s"
        )
        return text + (f"; {self.lost} records did not fit" if self.lost else "")

    def table(self, sort: str = "time", limit: int | None = 40) -> str:
        """The kernels as plain text, one a line.

        Args:
            sort: see `sorted`. limit: how many at most; None for all.
        """
        head, body = self.cells(sort, limit)
        left = {0, len(head) - 1}
        widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
        lines = ["  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))) for row in [head, *body]]
        return "\n".join(line.rstrip() for line in [*lines, self.summary(limit)])

    def __str__(self) -> str:
        return self.table()

    # -- files
    def save(self, path: str | os.PathLike) -> None:
        """Writes the timeline as JSON for ui.perfetto.dev or chrome://tracing: a track for launches, one for each thread's shares, and one for
        transfers between processes."""
        with replacing(path) as f:
            f.write(json.dumps({"traceEvents": self._events(), "displayTimeUnit": "ns"}).encode())

    def _events(self) -> list[dict]:
        r = self.launches
        named = lambda tid, name: {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": name}}
        threads = sorted(set(r.thread.tolist()))
        events = [named(2 * t, f"launches of thread {t}") for t in sorted(set(r.thread[r.share == 0].tolist()))]
        events += [named(2 * t + 1, f"thread {t}") for t in threads]
        columns = zip(*(c.tolist() for c in (r.plan, r.launch, r.share, r.thread, r.begin, r.end)))
        for plan, launch, share, thread, begin, end in columns:
            entry = self._log.entries[plan]
            one = entry.program.launches[launch].launch
            event = {
                "ph": "X", "pid": 1, "tid": 2 * thread + share, "name": one.kernel.name, "cat": entry.program.name,
                "ts": 1e6 * begin, "dur": 1e6 * (end - begin),
            }  # fmt: skip
            if not share:
                c = _cost(entry, launch)
                event["args"] = {"line": one.where or entry.where, "flops": c.flops, "bytes": c.bytes}
            events.append(event)
        return events + self._transfer_events()

    def _tracks(self) -> list[list[tuple[str, float, float]]]:
        """Transfers on tracks, as many as are on their way at once."""
        tracks: list[list[tuple[str, float, float]]] = []
        for one in self.transfers:
            free = next((t for t in tracks if t[-1][2] <= one[1]), None)
            if free is None:
                tracks.append(free := [])
            free.append(one)
        return tracks

    def _transfer_events(self) -> list[dict]:
        events = []
        for i, track in enumerate(self._tracks(), TRANSFERS):
            events.append({"ph": "M", "pid": 1, "tid": i, "name": "thread_name", "args": {"name": "transfers"}})
            for name, begin, end in track:
                times = {"ts": 1e6 * begin, "dur": 1e6 * (end - begin)}
                events.append({"ph": "X", "pid": 1, "tid": i, "name": name, "cat": "transfer", **times})
        return events

    def plot(self, path: str | os.PathLike, kinds: int = 9) -> None:
        """Draws what each thread did when, as a picture (by its suffix: .png, .svg, .pdf); needs matplotlib.

        Args:
            kinds: so many kernels, those of the longest time, have colours of their own.
        """
        from matplotlib.collections import PolyCollection
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch

        r = self.launches
        on = r.share == 1
        name_of = {(p, n): self._log.entries[p].program.launches[n].launch.kernel.name for p, n in set(zip(r.plan.tolist(), r.launch.tolist()))}
        names = np.array([name_of[p, n] for p, n in zip(r.plan[on].tolist(), r.launch[on].tolist())], object)
        top = list(dict.fromkeys(row.kernel for row in self.rows))[:kinds]
        n_threads = int(r.thread.max()) + 1 if len(r.thread) else 1
        figure = Figure(figsize=(12, 1.8 + 0.5 * n_threads), layout="constrained")
        axes = figure.add_subplot()
        for i, name in enumerate([*top, None]):
            chosen = names == name if name is not None else np.array([x not in top for x in names], bool)
            if not chosen.any():
                continue
            x0, x1, y = 1e3 * r.begin[on][chosen], 1e3 * r.end[on][chosen], r.thread[on][chosen]
            corners = [np.stack([x0, y - 0.4], 1), np.stack([x0, y + 0.4], 1), np.stack([x1, y + 0.4], 1), np.stack([x1, y - 0.4], 1)]
            colour = f"C{i}" if name is not None else "lightgrey"
            axes.add_collection(PolyCollection(np.stack(corners, 1), facecolors=colour, label=name or "others"))
        tracks = self._tracks()
        for y, track in enumerate(tracks, n_threads):
            boxes = [[(1e3 * a, y - 0.2), (1e3 * a, y + 0.2), (1e3 * b, y + 0.2), (1e3 * b, y - 0.2)] for _, a, b in track]
            axes.add_collection(PolyCollection(boxes, facecolors="white", edgecolors="black"))
        ticks, rows = [*range(n_threads), *(["transfers"] * len(tracks))], n_threads + len(tracks)
        handles = [Patch(color=c.get_facecolor()[0], label=c.get_label()) for c in axes.collections[: len(axes.collections) - len(tracks)]]
        axes.set(xlim=(0, 1e3 * self.seconds or 1), ylim=(rows - 0.4, -0.6), xlabel="ms", ylabel="thread")
        axes.set_yticks(range(rows), labels=ticks)
        if handles:
            figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize="small")
        with replacing(path) as f:
            figure.savefig(f, dpi=120, format=os.path.splitext(os.fspath(path))[1][1:] or "png")


def _cost(entry: Entry, launch: int) -> Cost:
    """What a launch costs, counted once for a kernel and the program's parameters."""
    known = entry.program.costs
    key = launch, entry.values
    if key not in known:
        leaf = entry.program.launches[launch]
        counts = (loop.count if isinstance(loop, Loop) else loop.limit or 0 for loop in leaf.loops)
        # An iteration in the middle: the first may have less to do than the others.
        middle = (value_of(count, entry.program.params, entry.values) // 2 for count in counts)
        known[key] = cost(leaf.launch.kernel, (*entry.values, *middle))
    return known[key]


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}" if seconds < 1000 * scale else f"{seconds / scale:.0f} {unit}"
    return f"{seconds / 1e-6:.1f} us"


def _place(where: str | None) -> str:
    """A line's file without its folders."""
    return "" if where is None else os.path.basename(where)
