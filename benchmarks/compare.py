"""Tengen beside its peers, in one process: what every `bench_*.py` here shares. Import it before anything that computes.

In: cases, each a name and one callable per contender. Out: a text table, and a JSON file. Before a case is timed,
all contenders run once and their results are compared. Then rounds: in each, every contender runs a batch of calls, the order
turning from round to round, so that what disturbs the machine disturbs all of them. A round gives one ratio of times; the
median of the ratios is the figure, and their quartiles say how far it can be trusted.

The number of threads is 2, or that of the environment variable BENCH_THREADS. With one, processor time is taken instead of the
clock's, which other programs on the machine disturb least. README.md's tables are made of `results/<bench>.<threads>.json`.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import gc
import importlib
import importlib.metadata
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

THREADS = int(os.environ.get("BENCH_THREADS", "2"))
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TENGEN_NUM_THREADS"):
    os.environ[_name] = str(THREADS)  # before numpy, torch and tengen read them

import numpy as np  # noqa: E402

RESULTS = Path(__file__).parent / "results"
QUIET = 0.5  # load average
WARM_UP_S = 0.3  # long enough for clocks, pools and caches to settle
clock = time.perf_counter if THREADS > 1 else time.process_time
PAUSE_S = 0.002  # between contenders: idle workers of both stop spinning


@dataclass
class Goal:
    """What the figure should reach: at most this `ratio` of the peer's time."""

    ratio: float
    peer: str = "torch"


@dataclass
class Case:
    """One comparison.

    Attributes:
        name: its line in the table. contenders: name -> a call; "tengen" first. goal: what to reach, or None.
        work: floating-point operations or bytes of one call; unit: "FLOP" or "B".
        tolerance: (relative, absolute) within which the results agree; the scale of the relative part is the largest result.
        check: agreement in another way than by comparing results; raises AssertionError.
    """

    name: str
    contenders: dict[str, Callable[[], object]]
    goal: Goal | None = None
    work: float | None = None
    unit: str = "FLOP"
    tolerance: tuple[float, float] = (1e-5, 0.0)
    check: Callable[[], None] | None = None


@dataclass
class Row:
    """A line of the table, as the JSON file has it: seconds by contender, and for each peer (lower quartile, median, upper
    quartile) of Tengen's time over its time. `error` says why there are no figures."""

    name: str
    seconds: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    goal: dict | None = None
    work: float | None = None
    unit: str = "FLOP"
    error: str | None = None
    value: str | None = None  # for figures that are no ratio
    reached: bool | None = None


@functools.cache
def peer(name: str):
    """The peer's module with its threads set, or None, said aloud, where it is not installed."""
    try:
        module = importlib.import_module(name)
    except ImportError as e:
        print(f"skipped: {name} cannot be imported here ({e}); its columns are left out", flush=True)
        return None
    if name == "torch":
        module.set_num_threads(THREADS)
        module.manual_seed(0)
    return module


def as_arrays(x) -> list[np.ndarray]:
    """A result, whatever holds it, as float64 arrays."""
    if isinstance(x, (tuple, list)):
        return [a for v in x for a in as_arrays(v)]
    x = x.detach() if hasattr(x, "detach") else x
    return [np.asarray(x.numpy() if hasattr(x, "numpy") else x)]


def agree(case: Case) -> None:
    """Runs every contender once. Errors: AssertionError where results differ from Tengen's by more than the tolerance."""
    if case.check is not None:
        return case.check()
    results = {who: as_arrays(call()) for who, call in case.contenders.items()}
    mine = results["tengen"]
    rtol, atol = case.tolerance
    for who, theirs in results.items():
        assert len(mine) == len(theirs), f"{len(mine)} results, {who} has {len(theirs)}"
        for a, b in zip(mine, theirs):
            assert a.shape == b.shape, f"shape {a.shape}, {who} has {b.shape}"
            scale = float(np.abs(b).max()) if b.size else 0.0
            worst = float(np.abs(a - b).max()) if b.size else 0.0
            assert worst <= rtol * scale + atol, f"differs from {who} by {worst:.3g}, where the largest value is {scale:.3g}"


def batch(call: Callable, n: int) -> float:
    """Seconds per call over n calls."""
    start = clock()
    for _ in range(n):
        call()
    return (clock() - start) / n


def calls_per_batch(call: Callable, target_s: float) -> int:
    """Warms up, and finds how many calls take about target_s."""
    call()
    n, spent, one = 1, 0.0, 0.0
    while spent < WARM_UP_S:
        one = batch(call, n)
        spent += one * n
        n = max(1, min(1_000_000, int(target_s / max(one, 1e-8))))
    return n


def measure(case: Case, rounds: int, batch_s: float) -> Row:
    """Times a case whose results agree."""
    row = Row(case.name, goal=asdict(case.goal) if case.goal else None, work=case.work, unit=case.unit)
    names = list(case.contenders)
    counts = {who: calls_per_batch(case.contenders[who], batch_s) for who in names}
    times: dict[str, list[float]] = {who: [] for who in names}
    gc.collect()
    gc.disable()
    try:
        for r in range(rounds):
            turn = r % len(names)
            for who in names[turn:] + names[:turn]:
                time.sleep(PAUSE_S)
                call = case.contenders[who]
                call()  # wakes its workers and refills its caches
                times[who].append(batch(call, counts[who]))
    finally:
        gc.enable()
    row.seconds = {who: float(np.median(t)) for who, t in times.items()}
    mine = np.array(times["tengen"])
    for who in names[1:]:
        row.ratios[who] = tuple(float(q) for q in np.percentile(mine / np.array(times[who]), [25, 50, 75]))
    if case.goal and case.goal.peer in row.ratios:
        row.reached = row.ratios[case.goal.peer][1] <= case.goal.ratio
    return row


def arguments(bench: str) -> argparse.Namespace:
    """The command line that every benchmark has."""
    parser = argparse.ArgumentParser(description=f"measure: {bench}")
    parser.add_argument("--rounds", type=int, default=25, help="rounds of a case (default 25; 3 to try it out)")
    parser.add_argument("--batch", type=float, default=0.02, help="seconds that a contender's batch in a round takes at least")
    parser.add_argument("--only", default="", help="the cases whose name contains this; results are then not kept")
    return parser.parse_args()


def main(bench: str, title: str, cases: Iterable[Callable[[], Case]], more: Sequence[Row] = (), load=()) -> None:
    """Checks and times each case (made when its turn comes, and dropped after), prints the table, writes the JSON file.

    `more`: rows measured in another way; `load`: the machine's load before they were, now by default."""
    args = arguments(bench)
    rows: list[Row] = []
    load = load or os.getloadavg()
    if load[0] > QUIET and THREADS > 1:
        print(f"warning: the load average is {load[0]:.2f}; other programs disturb this, and PyTorch more than Tengen")
    for make in cases:
        name = getattr(make, "keywords", {}).get("name") or getattr(make, "__name__", "")
        try:
            case = make()
            name = case.name
            if args.only not in name:
                continue
            agree(case)
            rows.append(measure(case, args.rounds, args.batch))
        except Exception as e:  # one that fails takes nothing from the others
            traceback.print_exc()
            rows.append(Row(name, error=f"{type(e).__name__}: {' '.join(str(e).split())[:160]}"))
        print(format_rows(rows[-1:]), flush=True)
        case = None
        gc.collect()
    finish(bench, title, [*rows, *more], load, args)


def finish(bench: str, title: str, rows: Sequence[Row], load: Sequence[float], args: argparse.Namespace) -> None:
    """Prints the whole table, writes the JSON file, and ends with status 1 where a case failed."""
    print(f"\n{title}\n{format_rows(rows)}\n")
    if not args.only:
        RESULTS.mkdir(exist_ok=True)
        data = {"title": title, "machine": machine(), "rounds": args.rounds, "load_before": list(load)}
        data["rows"] = [asdict(r) for r in rows]
        (RESULTS / f"{bench}.{THREADS}.json").write_text(json.dumps(data, indent=1) + "\n")
    if bad := [r.name for r in rows if r.error]:
        sys.exit(f"failed: {', '.join(bad)}")


# ---- words ----------------------------------------------------------------------------------------------------------------


def duration(s: float) -> str:
    """Seconds for people."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if s >= scale:
            return f"{s / scale:.3g} {unit}" if s < 1000 * scale else f"{s / scale:.0f} {unit}"
    return f"{s * 1e9:.0f} ns"


def cells(row: Row) -> list[str]:
    """A row's cells: case, times, rate, ratio with quartiles, goal, reached."""
    if row.error:
        return [row.name, f"failed: {row.error}", "", "", "", "no"]
    verdict = "" if row.reached is None else "yes" if row.reached else "no"
    if row.value is not None:
        return [row.name, row.value, "", "", row.goal["text"] if row.goal else "", verdict]
    times = ", ".join(f"{who} {duration(s)}" for who, s in row.seconds.items())
    rate = ""
    if row.work:
        rates = [f"{row.work / s / 1e9:.3g}" for s in row.seconds.values()]
        rate = ", ".join(rates) + (" GFLOP/s" if row.unit == "FLOP" else " GB/s")
    ratio = ", ".join(
        f"{mid:.2f} ({low:.2f}-{high:.2f})" + (f" of {who}" if len(row.ratios) > 1 else "")
        for who, (low, mid, high) in row.ratios.items()
    )
    goal = f"<= {row.goal['ratio']:.2f}" if row.goal else ""
    if row.goal and row.reached is None:
        verdict = f"no {row.goal['peer']} here"
    return [row.name, times, rate, ratio, goal, verdict]


HEAD = ["case", "median time of one call", "rate", "time over the peer's (quartiles)", "goal", "reached"]


def format_rows(rows: Sequence[Row]) -> str:
    """The rows as plain text."""
    table = [HEAD] + [cells(r) for r in rows] if len(rows) > 1 else [cells(r) for r in rows]
    widths = [max(len(r[i]) for r in table) for i in range(len(HEAD))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in table)


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, without the columns that are empty."""
    table = [HEAD] + [cells(r) for r in rows]
    used = [i for i in range(len(HEAD)) if any(r[i] for r in table[1:])]
    lines = ["| " + " | ".join(r[i].replace("|", "/") for i in used) + " |" for r in table]
    return "\n".join([lines[0], "|" + " --- |" * len(used), *lines[1:]])


def machine() -> dict[str, str]:
    """What the figures belong to."""
    cpu: dict[str, str] = {}
    for text in _lines("/proc/cpuinfo"):
        key, _, value = text.partition(":")
        cpu.setdefault(key.strip(), value.strip())
    kind = f"{cpu.get('model name', platform.processor())}, family {cpu.get('cpu family', '?')} model {cpu.get('model', '?')}"
    vector = "AVX-512" if "avx512f" in cpu.get("flags", "") else "AVX2" if "avx2" in cpu.get("flags", "") else "no AVX2"
    found = {
        "date": datetime.date.today().isoformat(),
        "processor": f"{kind}, {len(os.sched_getaffinity(0))} processors, {vector}",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": platform.python_version(),
    }
    for name in ("tengen", "numpy", "llvmlite", "torch"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
