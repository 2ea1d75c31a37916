"""Tengen beside its peers, in one process: what every `bench_*.py` here shares. Import it before anything that computes.

In: cells, each a name and what makes its case: one callable per contender. Out: a text table, and a JSON file. Before a case is
timed, all contenders run once and their results are compared. Then rounds: in each, every contender runs a batch of calls, the
order turning from round to round, so that what disturbs the machine disturbs all of them. A round gives one ratio of times;
the median of the ratios is the figure, and their quartiles say how far it can be trusted. A cell has as many rounds as fit its
time, within bounds. Contenders whose names begin with "tengen" are judged, each in a row of its own; the others are peers.

What holds for every contender alike (threads, warm-up, rest, spinning) is here and in `peers.py`, and in README.md as a table.

The number of threads is 2, or that of the environment variable BENCH_THREADS. With one, processor time is taken instead of the
clock's, which other programs on the machine disturb least. With BENCH_ISA=AVX2 all take this processor for one without AVX-512, each
by its own switch; who has none is left out. README.md's tables are made of
`results/<machine>/<bench>.<threads>.json`: what another machine has measured stays beside.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import gc
import getpass
import importlib
import importlib.metadata
import json
import os
import platform
import re
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

THREADS = int(os.environ.get("BENCH_THREADS", "2"))
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TENGEN_NUM_THREADS", "NPROC"):
    os.environ[_name] = str(THREADS)  # before numpy, torch, tengen and JAX (NPROC) read them

os.environ["TENGEN_FINISH"] = "0"  # what runs after a process does not share the machine with what that has left
os.environ["JAX_PLATFORMS"] = "cpu"  # where there is a GPU, JAX would take it, and no other contender does
ISA = os.environ.get("BENCH_ISA", "")  # "AVX2", or "": whatever the processor has
SWITCHES = {  # of libraries that can be told to stop at AVX2: read when they are loaded
    "TENGEN_PROCESSOR": "x86-64-v3", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}  # fmt: skip
WITHOUT_SWITCH = ("onnxruntime", "jax", "MegEngine", "llama_cpp")  # or whose products do not heed it
if ISA not in ("", "AVX2"):
    sys.exit(f"BENCH_ISA={ISA!r} must be AVX2, or not be set")
# torch.compile's kernels hold an array for each thread of the process that compiled them, and its cache does not tell them apart by that:
# with more threads such a kernel writes beside it, and the process ends with a broken heap.
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(tempfile.gettempdir()) / f"torchinductor-{getpass.getuser()}-{THREADS}{ISA}")
if ISA:
    os.environ.update(SWITCHES)
    os.environ.pop("MEGENGINE_PYTHON", None)

import numpy as np  # noqa: E402  (after the environment is set)

RESULTS = Path(__file__).parent / "results"
PEERS = ("torch", "onnxruntime", "openvino", "jax")
QUIET = 0.5  # load average
FEWEST, QUICK = 5, 3  # rounds of a cell that has no time for more, and of any cell with --quick
clock = time.perf_counter if THREADS > 1 else time.process_time
BATCH_S = 0.02  # of a contender in a round, at least
WARM_CALLS, WARM_S = 30, 0.08  # every contender warms up for so many calls and so long, whichever takes longer; --quick: one call
MOST_WARM_S = 2.0  # of calls, at most: of those that draw a text, some take seconds
PAUSE_S = 0.002  # between contenders, at least
REST_S = 2.0  # at most


@dataclass
class Goal:
    """What the figure should reach: at most this `ratio` of the peer's time, and this share of the case's roof. The peer
    "fastest" is the fastest of them, and "torch, best" the fastest whose name begins with torch."""

    ratio: float
    peer: str = "torch"
    roof: float | None = None


@dataclass
class Case:
    """One comparison.

    Attributes:
        name: its line in the table. contenders: name -> a call; "tengen" first. goal: what to reach, or None.
        goals: the same for contenders such as "tengen eager", whose rows are named "<name>, eager".
        work: floating-point operations or bytes of one call; unit: "FLOP" or "B".
        tolerance: (relative, absolute) within which the results agree; the scale of the relative part is the largest result.
        check: agreement in another way than by comparing results; raises AssertionError.
        roof: measures the work that the machine can do in a second at most, and is asked before and after every round: two processors of a
            virtual machine may share one core for a while;
        intensity: operations for each byte that must move.
        torch_block: makes what PyTorch's turns run in, entered once for a turn (`torch.inference_mode` where nothing is
            differentiated).
    """

    name: str
    contenders: dict[str, Callable[[], object]]
    goal: Goal | None = None
    work: float | None = None
    unit: str = "FLOP"
    tolerance: tuple[float, float] = (1e-5, 0.0)
    check: Callable[[], None] | None = None
    roof: Callable[[], float] | None = None
    intensity: float | None = None
    goals: dict[str, Goal] = field(default_factory=dict)
    torch_block: Callable = contextlib.nullcontext

    def block(self, who: str):
        """What a contender's turn runs in."""
        return self.torch_block() if who.startswith("torch") else contextlib.nullcontext()


@dataclass
class Cell:
    """A case that is made when its turn comes. `quick`: it is among the few of --quick."""

    name: str
    make: Callable[[], Case]
    quick: bool = False


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
    roof: float | None = None  # work per second that the machine can do at most
    intensity: float | None = None  # operations for each byte that must move
    rounds: int = 0
    causes: dict[str, float] = field(default_factory=dict)  # seconds of Tengen's by what they were spent on
    cell: str = ""  # the name of the cell that measured it, by which `--resume` knows it, where that is another


@functools.cache
def peer(name: str):
    """The peer's module with its threads set, or None, said aloud, where it is not installed, or cannot be lowered to AVX2."""
    if ISA and name in WITHOUT_SWITCH:
        print(f"skipped: {name} has no switch that keeps it from AVX-512", flush=True)
        return None
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
    x = np.asarray(x.numpy() if hasattr(x, "numpy") else x)
    return [x.astype(np.float64) if x.dtype.kind == "f" else x]


def agree(case: Case) -> None:
    """Runs every contender once. Errors: AssertionError where results differ from Tengen's by more than the tolerance."""
    if case.check is not None:
        return case.check()
    results = {}
    for who, call in case.contenders.items():
        with case.block(who):
            results[who] = as_arrays(call())
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
    """Seconds per call over n calls: one by one, or by the method `many` of a contender in another process."""
    many = getattr(call, "many", None)
    start = clock()
    if many is not None:
        many(n)
        return (clock() - start) / n
    for _ in range(n):
        call()
    return (clock() - start) / n


def calls_per_batch(call: Callable, target_s: float, quick: bool) -> tuple[int, float]:
    """Warms up, so that clocks, pools and caches settle, Tengen's code is the good one, and eager kernels of Tengen that take a
    millisecond have programs for their numbers alone; (how many calls take about target_s, seconds of one)."""
    call()
    if compiled():  # the first calls ask for programs, which later ones have
        _warm_up(call, target_s, quick)
        compiled()
    return _warm_up(call, target_s, quick)


def compiled() -> bool:
    """Waits until Tengen has compiled everything well, where it is in use; whether it is."""
    tengen = sys.modules.get("tengen")
    return tengen is not None and tengen.jit.wait_for_compilation()


def _warm_up(call: Callable, target_s: float, quick: bool) -> tuple[int, float]:
    n, calls, spent, one = 1, 0, 0.0, 0.0
    while spent < MOST_WARM_S and (spent < (target_s if quick else WARM_S) or calls < (1 if quick else WARM_CALLS)):
        one = batch(call, n)
        spent, calls = spent + one * n, calls + n
        n = max(1, min(1_000_000, int(target_s / max(one, 1e-8))))
    return n, one


def rest() -> float:
    """Waits until no thread of this process computes any more; the seconds that took. Idle workers spin, as every library has it by
    default: Tengen's for 100 us, onnxruntime's for up to a second. The next contender is not to share the processors with them."""
    start = time.perf_counter()
    time.sleep(PAUSE_S)
    while _others_run() and time.perf_counter() - start < REST_S:
        time.sleep(PAUSE_S)
    return time.perf_counter() - start


def _others_run() -> bool:
    """Whether another thread of this process runs, or waits for a processor."""
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if int(task.name) != threading.get_native_id() and (task / "stat").read_text().rpartition(")")[2].split()[0] == "R":
                return True
    return False


def run_rounds(case: Case, args: argparse.Namespace) -> tuple[dict[str, list[float]], list[float]]:
    """(seconds of one call in each round, by contender; the roof of each round, if there is one: the higher of that before the
    round and that after it)."""
    contenders, roof = case.contenders, case.roof
    names, found, once = list(contenders), {}, 0.0
    for who in names:
        with case.block(who):
            found[who], one = calls_per_batch(contenders[who], args.batch, args.quick)
        once += (found[who] + 1) * one + rest()
    rounds = min(args.rounds, max(FEWEST, int(args.seconds / once)))
    times: dict[str, list[float]] = {who: [] for who in names}
    roofs = [roof()] if roof else []
    gc.collect()
    gc.disable()
    try:
        for r in range(rounds):
            turn = r % len(names)
            for who in names[turn:] + names[:turn]:
                rest()
                call = contenders[who]
                with case.block(who):
                    call()  # wakes its workers and refills its caches
                    times[who].append(batch(call, found[who]))
            if roof:
                rest()
                roofs.append(roof())
    finally:
        gc.enable()
    return times, [max(pair) for pair in zip(roofs, roofs[1:])]


def judge(case: Case, who: str, times: dict[str, list[float]], roofs: list[float], goal: Goal | None) -> Row:
    """The row of one of Tengen's contenders beside the peers. Its share of the roof is, like its ratios, the median of the rounds'."""
    peers = [name for name in times if not name.startswith("tengen")]
    name = case.name + who.replace("tengen", "", 1).replace(" ", ", ", 1)
    row = Row(name, work=case.work, unit=case.unit, intensity=case.intensity, rounds=len(times[who]))
    medians = {name: float(np.median(t)) for name, t in times.items()}
    share = None
    if case.work and roofs:
        share = float(np.median(case.work / np.array(times[who]) / np.array(roofs)))
        row.roof = case.work / medians[who] / share
    row.seconds = {"tengen": medians[who]} | {name: medians[name] for name in peers}
    for name in peers:
        quartiles = np.percentile(np.array(times[who]) / np.array(times[name]), [25, 50, 75])
        row.ratios[name] = tuple(float(q) for q in quartiles)
    if goal:
        among = [
            p for p in peers if goal.peer == "fastest" or p == goal.peer or (goal.peer == "torch, best" and p[:5] == "torch")
        ]
        row.goal = asdict(goal) | {"against": min(among, key=medians.__getitem__, default=None)}
        if among:
            row.reached = row.ratios[row.goal["against"]][1] <= goal.ratio
        if goal.roof and share is not None:
            row.reached = share >= goal.roof and row.reached is not False
    return row


def measure(case: Case, args: argparse.Namespace) -> list[Row]:
    """Times a case whose results agree: a row for each of Tengen's contenders."""
    times, roofs = run_rounds(case, args)
    goals = {"tengen": case.goal} | case.goals
    return [judge(case, who, times, roofs, goals.get(who)) for who in times if who.startswith("tengen")]


def arguments(
    bench: str, seconds: float = 2.0, more: Callable[[argparse.ArgumentParser], None] = lambda parser: None
) -> argparse.Namespace:
    """The command line that every benchmark has; `seconds`: how long a case takes, unless it says otherwise; `more` adds options."""
    parser = argparse.ArgumentParser(description=f"measure: {bench}")
    parser.add_argument("--quick", action="store_true", help=f"a few cases, {QUICK} rounds: to try it out")
    parser.add_argument("--rounds", type=int, help="rounds of a case at most (default 25)")
    parser.add_argument("--seconds", type=float, default=seconds, help=f"time of a case, which has {FEWEST} rounds at least")
    parser.add_argument("--batch", type=float, help="seconds that a contender's batch in a round takes at least (default 0.02)")
    parser.add_argument("--only", default="", help="the cases whose name contains this; results of the others stay")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no case, or round of one, that would end later")
    parser.add_argument("--resume", action="store_true", help="measure the cases that the results do not have yet")
    parser.add_argument(
        "--results", type=Path, help="folder for this machine's folder of JSON files; default: results/, and none for --quick, --only"
    )
    more(parser)
    args = parser.parse_args()
    args.rounds = args.rounds or (QUICK if args.quick else 25)
    args.batch = args.batch or (0.002 if args.quick else BATCH_S)
    if args.results is None and not (args.quick or args.only):
        args.results = RESULTS
    return args


def chosen(cells: Iterable[Cell], args: argparse.Namespace) -> list[Cell]:
    """The cells that the command line asks for."""
    return [c for c in cells if args.only in c.name and (c.quick or not args.quick or args.only)]


def progress(things: Sequence, what: str) -> Iterable:
    """The things one by one, with a bar on a terminal where tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return things
    return tqdm(things, desc=what, unit="case", disable=None, leave=False)


def attempt(who: str, make: Callable[[], Callable]) -> dict[str, Callable]:
    """A peer as a contender, or none, said aloud, where it cannot run this."""
    try:
        return {who: make()}
    except Exception as e:
        print(f"skipped: {who}: {type(e).__name__}: {' '.join(str(e).split())[:200]}", flush=True)
        return {}


def main(bench: str, title: str, cells: Iterable[Cell], more: Sequence[Row] = (), load=(), args=None) -> None:
    """Checks and times each case (made when its turn comes, and dropped after), prints the table, writes the JSON file after each.

    `more`: rows measured in another way; `load`: the machine's load before they were, now by default."""
    args = args or arguments(bench)
    end = time.monotonic() + 60 * args.minutes
    rows = earlier(bench, args)
    load = load or os.getloadavg()
    if load[0] > QUIET and THREADS > 1:
        print(f"warning: the load average is {load[0]:.2f}; other programs disturb this, and PyTorch more than Tengen")
    there = {name for r in rows for name in (r.name, r.cell)}
    todo = [c for c in chosen(cells, args) if c.name not in there]
    for i, cell in enumerate(progress(todo, bench)):
        if time.monotonic() > end:
            print(f"{len(todo) - i} cases are left: call this again with --resume", flush=True)
            break
        try:
            case = cell.make()
            agree(case)
            new = measure(case, args)
        except Exception as e:  # one that fails takes nothing from the others
            traceback.print_exc()
            new = [Row(cell.name, error=f"{type(e).__name__}: {' '.join(str(e).split())[:160]}")]
        for r in new:
            r.cell = cell.name if r.name != cell.name else ""
        rows += new
        print(format_rows(new), flush=True)
        if args.resume or args.minutes < float("inf"):
            write(bench, title, rows, load, args)
        case = None
        gc.collect()
    finish(bench, title, [*rows, *(r for r in more if r.name not in there)], load, args)


def results_of(bench: str, args: argparse.Namespace) -> Path:
    """The file of a benchmark's results on this machine."""
    return args.results / folder_of(machine()["processor"]) / f"{bench}.{THREADS}.json"


def earlier(bench: str, args: argparse.Namespace, part: bool = False) -> list[Row]:
    """The rows of an earlier call that this one keeps: with `--resume` those that did not fail, with `--only` those of the other cases.
    part: some cases are chosen otherwise: all rows, of which the caller replaces those that it has measured."""
    if not (args.resume or args.only or part) or args.results is None or not results_of(bench, args).exists():
        return []
    found = [Row(**r) for r in json.loads(results_of(bench, args).read_text())["rows"]]
    return [r for r in found if part or (not r.error if args.resume else args.only not in (r.cell or r.name))]


def write(bench: str, title: str, rows: Sequence[Row], load: Sequence[float], args: argparse.Namespace) -> None:
    """Writes the JSON file, where results are kept."""
    if args.results:
        data = {"title": title, "machine": machine(), "rounds": args.rounds, "load_before": list(load)}
        data["rows"] = [asdict(r) for r in rows]
        file = results_of(bench, args)
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(json.dumps(data, indent=1) + "\n")


def finish(bench: str, title: str, rows: Sequence[Row], load: Sequence[float], args: argparse.Namespace) -> None:
    """Prints the whole table, writes the JSON file, and ends with status 1 where a case failed."""
    print(f"\n{title}\n{format_rows(rows)}\n")
    write(bench, title, rows, load, args)
    if bad := [r.name for r in rows if r.error]:
        sys.exit(f"failed: {', '.join(bad)}")


# ---- words ----------------------------------------------------------------------------------------------------------------


def duration(s: float) -> str:
    """Seconds for people. A difference of two measurements may be negative."""
    if s < 0:
        return f"-{duration(-s)}"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if s >= scale:
            return f"{s / scale:.3g} {unit}" if s < 1000 * scale else f"{s / scale:.0f} {unit}"
    return f"{s * 1e12:.3g} ps"


def sizes(b: float) -> str:
    """Bytes for people."""
    return f"{b / 2**20:.3g} MiB" if b >= 2**20 else f"{b / 2**10:.3g} KiB"


def cells(row: Row, peers: Sequence[str]) -> list[str]:
    """A row's cells: case, Tengen's time, those of `peers`, rate, share of the roof, ratio with quartiles, goal, reached."""
    blank = [""] * len(peers)
    if row.error:
        return [row.name, f"failed: {row.error}", *blank, "", "", "", "", "no"]
    verdict = "" if row.reached is None else "yes" if row.reached else "no"
    if row.value is not None:
        return [row.name, row.value, *blank, "", "", "", row.goal["text"] if row.goal else "", verdict]
    word = sizes if row.unit == "peak" else duration
    times = [word(row.seconds[who]) if who in row.seconds else "" for who in ("tengen", *peers)]
    mine, best = row.seconds["tengen"], min((s for who, s in row.seconds.items() if who != "tengen"), default=None)
    rate = roof = ""
    if row.work and row.unit not in ("FLOP", "B"):
        rate = f"{duration(mine / row.work)} for each {row.unit}"
    elif row.work:
        rates = [f"{row.work / s / 1e9:.3g}" for s in (mine, best) if s]
        rate = ", ".join(rates) + (" GFLOP/s" if row.unit == "FLOP" else " GB/s")
    if row.work and row.roof:
        roof = f"{100 * row.work / mine / row.roof:.0f} %"
    against = (row.goal or {}).get("against") or min(row.ratios, key=row.seconds.__getitem__, default=None)
    ratio = ""
    if against:
        low, mid, high = row.ratios[against]
        ratio = f"{mid:.2f} ({low:.2f}-{high:.2f})" + (f" of {against}" if len(peers) > 1 else "")
    goal = (row.goal.get("text") or f"<= {row.goal['ratio']:.2f}") if row.goal else ""
    if row.goal and row.goal.get("roof"):
        goal += f", >= {100 * row.goal['roof']:.0f} %"
    if row.goal and row.reached is None:
        verdict = "no peer here" if row.goal["peer"] == "fastest" else f"no {row.goal['peer']} here"
    return [row.name, *times, rate, roof, ratio, goal, verdict]


def grid(rows: Sequence[Row]) -> list[list[str]]:
    """The rows and their head as cells, without the columns that are empty."""
    peers = list(dict.fromkeys(who for r in rows for who in r.seconds if who != "tengen"))
    mine = "tengen" if any(r.seconds for r in rows) else "figure"
    judged = ["rate (and the best peer's)", "of the roof", "over the best peer's (quartiles)", "goal", "reached"]
    table = [["case", mine, *peers, *judged]] + [cells(r, peers) for r in rows]
    used = [i for i in range(len(table[0])) if any(r[i] for r in table[1:])]
    return [[r[i] for i in used] for r in table]


def format_rows(rows: Sequence[Row]) -> str:
    """The rows as plain text."""
    table = grid(rows)
    widths = [max(len(r[i]) for r in table) for i in range(len(table[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in table)


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    head, *table = grid(rows)
    lines = ["| " + " | ".join(c.replace("|", "/") for c in r) + " |" for r in (head, *table)]
    return "\n".join([lines[0], "|" + " --- |" * len(head), *lines[1:]])


def machine() -> dict[str, str]:
    """What the figures belong to."""
    cpu: dict[str, str] = {}
    for text in _lines("/proc/cpuinfo"):
        key, _, value = text.partition(":")
        cpu.setdefault(key.strip(), value.strip())
    kind = f"{cpu.get('model name', platform.processor())}, family {cpu.get('cpu family', '?')} model {cpu.get('model', '?')}"
    kind += f", lowered to {ISA}" if ISA else ""
    vector = "AVX-512" if "avx512f" in cpu.get("flags", "") else "AVX2" if "avx2" in cpu.get("flags", "") else "no AVX2"
    found = {
        "date": datetime.date.today().isoformat(),
        "processor": f"{kind}, {len(os.sched_getaffinity(0))} processors, {vector}",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "python": platform.python_version(),
    }
    for name in ("tengen", "numpy", "llvmlite", *PEERS):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def kind_of(processor: str) -> str:
    """The part of `machine()["processor"]` that says what was measured, for people."""
    return re.sub(r"\(R\)|\(TM\)| Processor", "", re.sub(r", \d+ processors.*", "", processor))


def folder_of(processor: str) -> str:
    """The same as the name of a folder."""
    return re.sub(r"[^a-z0-9]+", "-", kind_of(processor).lower()).strip("-")


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
