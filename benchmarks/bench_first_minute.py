"""The first minute: seconds from the start of a process until a first result, with empty caches and with warm ones.

Each figure is a process of its own (`first.py`), timed from outside from its creation until it says that its task is done: the
interpreter and the imports are in it, byte code is there, as `pip` leaves it. With empty caches means those of Tengen's kernels, of
torch.compile and of JAX; the next process has those that the first has filled. What a further size of a batch or a text costs is
timed inside of a process that has done a step already. The processes of a round take turns. Ratios are of a round; a library that
is not installed, or has no definition of a network, is skipped aloud.

Where Tengen is installed from a wheel that carries packs of kernels (`make wheel`), the rows with empty caches show it with them and,
as a contender of its own, without them, as an installation from sources runs. A traced step is one program, which no pack has.

One more process of Tengen's for each row is watched, and says what its time was spent on: the stacked picture.

    python benchmarks/bench_first_minute.py                                  # everything: about an hour
    python benchmarks/bench_first_minute.py --folder DIR --minutes 8         # what fits; the next such call goes on from there
    python benchmarks/bench_first_minute.py --folder DIR --rows gpt,resnet18 --rounds 3
    python benchmarks/bench_first_minute.py --megengine PYTHON               # a Python 3.10 that has MegEngine

The samples of each round are written into the folder when it is over. When all rows have their rounds, the results, README.md here and
its pictures are written.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import compare
import numpy as np
import report
from compare import Row

SCRIPT = str(Path(__file__).parent / "first.py")
PATIENCE_S = 600
ROUNDS = 5
COMPILERS = {"torch": "torch.compile"}  # what a library's compiled task is called in the table
SESSIONS = ("onnxruntime", "openvino")
EAGER, COMPILED = ("torch", "MegEngine"), ("torch", "jax", "MegEngine")
NO_PACKS = "tengen without packs"


@dataclass(frozen=True)
class Task:
    """A task of `first.py`, and how long it may take.

    Attributes:
        name: its line in the table. peers: who else does it. cold, warm: seconds to stay below, None where nothing is asked.
        most: of a peer's time, at most so much: its name -> ratio, with empty caches. compiled: peers compile it.
        further: it is timed by itself, in a process that has warmed up. opens: it may compile, which a further size should not.
        quick: it is among the few of --quick. packs: its programs are among those that packs are made of.
    """

    method: str
    name: str
    peers: tuple[str, ...]
    cold: float | None = None
    warm: float | None = None
    most: tuple[tuple[str, float], ...] = ()
    compiled: bool = False
    further: bool = False
    opens: bool = False
    quick: bool = False
    packs: bool = False


FASTER = (("torch.compile", 1.0), ("jax", 1.0))
OPENS = {"compiled": True, "further": True, "opens": True}
TASKS = [
    Task("imported", "import, beyond NumPy's", (*COMPILED, *SESSIONS), 0.1, 0.08, quick=True),
    Task("operation", "first operation", COMPILED, None, 0.2, quick=True, packs=True),
    Task("operations", "20 common ops", COMPILED, 0.45, 0.35, quick=True, packs=True),
    Task("resnet18", "ResNet-18, training step, eager", EAGER, 3.0, 1.2, (("torch", 0.6),), packs=True),
    Task("resnet18_compiled", "ResNet-18, training step, traced", COMPILED, 5.0, 0.7, FASTER, compiled=True),
    Task("efficientnet", "EfficientNet-B0, two eager and two traced steps", COMPILED, 10.0, 2.5, FASTER, compiled=True, packs=True),
    Task("gpt", "GPT of two layers, training step, eager", EAGER, 2.0, 0.8, (("torch", 0.6),), packs=True),
    Task("gpt_compiled", "GPT of two layers, training step, traced", COMPILED, 3.0, 0.6, FASTER, compiled=True),
    # not JAX: op by op it compiles each op for each length, which takes minutes
    Task("generation", "GPT of two layers, 40 tokens, each of the whole text", ("torch",), packs=True),
    Task("generation_with_caches", "GPT of two layers, 40 tokens by `generate`", (), 1.2, 0.8, packs=True),
    Task("lenet_compiled", "LeNet, training step, traced", COMPILED, most=FASTER, compiled=True, quick=True),
    Task("resnet50_compiled", "ResNet-50, training step, traced", COMPILED, most=FASTER, compiled=True),
    Task("resnet50_from_a_file", "ResNet-50, first answer from a file", ("torch", *SESSIONS), 1.5, 0.2, packs=True),
    Task("resnet18_further", "ResNet-18, a second batch size, eager", EAGER, further=True),
    # what has met a second size compiles for all sizes, as torch.compile does
    Task("resnet18_second_compiled", "ResNet-18, a second batch size, traced", COMPILED, most=FASTER, **OPENS),
    Task("resnet18_further_compiled", "ResNet-18, a third batch size, traced", COMPILED, compiled=True, further=True),
    Task("gpt_second_compiled", "GPT of two layers, a second length, traced", COMPILED, most=FASTER, **OPENS),
    Task("gpt_further_compiled", "GPT of two layers, a third length, traced", COMPILED, compiled=True, further=True),
]


class Refused(RuntimeError):
    """A library does not do a task here."""


def process(who: str, method: str, folder: str, cache: str, watched: bool = False) -> tuple[float, dict]:
    """(seconds from creating a process until its task is done, what it says).

    Args:
        folder: of files that all share. cache: of caches; those that nobody has filled are empty. watched: split Tengen's time.
    Errors: Refused, with the last line of what it printed.
    """
    python = os.environ["MEGENGINE_PYTHON"] if who == "MegEngine" else sys.executable
    env = {
        **os.environ, "TENGEN_CACHE_DIR": f"{cache}/tengen", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        "TRITON_CACHE_DIR": f"{cache}/triton", "JAX_COMPILATION_CACHE_DIR": f"{cache}/jax",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "PYTHONPYCACHEPREFIX": f"{folder}/bytecode", "PYTHONWARNINGS": "ignore",
    }  # fmt: skip
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    if who == NO_PACKS:
        who, env["TENGEN_PACK"] = "tengen", "0"
    command = [python, SCRIPT, who, method, folder, str(compare.THREADS), *(["causes"] if watched else [])]
    start = time.perf_counter()
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=errors, text=True) as child,
    ):
        patience = threading.Timer(PATIENCE_S, child.kill)
        patience.start()
        said = next((line for line in child.stdout if line.startswith("{")), "")  # others print there, too
        seconds = time.perf_counter() - start
        child.stdout.read()
        patience.cancel()
        if child.wait() or not said:
            errors.seek(0)
            raise Refused(f"{who}: {(errors.read().strip().splitlines() or [f'no answer in {seconds:.0f} s'])[-1][:200]}")
    return seconds, json.loads(said)


def packs() -> bool:
    """Whether Tengen has a pack of kernels for this processor, said aloud where it has none."""
    from tengen.codegen.targets import Target
    from tengen.runtime import pack

    found = pack.current(Target.host()) is not None
    if not found:
        print("no pack of kernels is here: figures are those of an installation from sources", flush=True)
    return found


def installed(who: str) -> bool:
    """Whether a peer is there, said aloud where it is not."""
    if who == "MegEngine":
        if "MEGENGINE_PYTHON" not in os.environ:
            print("skipped: MegEngine; --megengine PYTHON names a Python 3.10 that has it", flush=True)
        return "MEGENGINE_PYTHON" in os.environ
    return compare.peer(who) is not None


@dataclass
class Samples:
    """What the rounds of a task have given so far.

    Attributes:
        names: who does it, "tengen" first; None: nobody was tried yet. seconds, modules: by contender, and those that Tengen has
            compiled, with empty caches (0) and with warm ones (1). causes: what Tengen's time was spent on, likewise.
        round_s: seconds that the next round may take: what the last one took.
    """

    names: list[str] | None = None
    seconds: tuple[dict[str, list[float]], dict[str, list[float]]] = field(default_factory=lambda: ({}, {}))
    modules: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    causes: list[dict[str, float]] = field(default_factory=list)
    round_s: float = 0.0

    @property
    def rounds(self) -> int:
        """How many are over."""
        return len(self.modules[0])


class Kept:
    """The samples of all tasks, in a file of a folder that later calls go on from. Samples of another machine are not mixed in.

    Args: folder: where the file is, and is looked for.
    """

    def __init__(self, folder: Path):
        self.file = folder / "samples.json"
        self.machine = compare.machine()["processor"]
        found = json.loads(self.file.read_text()) if self.file.exists() else {"machine": self.machine, "tasks": {}}
        if found["machine"] != self.machine:
            sys.exit(f"{self.file} has samples of {found['machine']}, this is {self.machine}; help: another --folder")
        self.tasks = {name: Samples(**s) for name, s in found["tasks"].items()}

    def of(self, task: Task) -> Samples:
        """Those of a task."""
        return self.tasks.setdefault(task.method, Samples())

    def write(self) -> None:
        """Writes them, whole or not at all."""
        data = {"machine": self.machine, "tasks": {name: asdict(s) for name, s in self.tasks.items()}}
        beside = self.file.with_suffix(".new")
        beside.write_text(json.dumps(data, indent=1) + "\n")
        beside.replace(self.file)


def contenders(task: Task, folder: str, quick: bool) -> list[str]:
    """Who does it; "tengen" first. Each is tried, which leaves byte code for the processes that are timed."""
    found = []
    for who in ("tengen", *task.peers):
        if quick and task.compiled and who in COMPILERS:
            print(f"skipped: {task.name}: {COMPILERS[who]} compiles for a minute, and this is --quick", flush=True)
            continue
        try:
            with tempfile.TemporaryDirectory() as cache:
                process(who, task.method, folder, cache)
            found.append(who)
        except Refused as e:
            if who == "tengen":
                raise
            print(f"skipped: {task.name}: {e}", flush=True)
    return found


def figure(task: Task, who: str, folder: str, cache: str) -> tuple[float, int]:
    """(seconds of a process, or of the part that the task times; modules that Tengen compiled in it)."""
    seconds, said = process(who, task.method, folder, cache)
    if task.method == "imported":
        seconds -= process("numpy", task.method, folder, cache)[0]
    return said["seconds"] if task.further else seconds, said["modules"] or 0


def add_round(task: Task, samples: Samples, folder: str) -> None:
    """Runs every contender with empty caches and again with what that has left in them, in turns."""
    names = samples.names
    start, turn = time.perf_counter(), samples.rounds % len(names)
    seconds: tuple[dict[str, float], dict[str, float]] = ({}, {})
    modules = [0, 0]
    for who in names[turn:] + names[:turn]:
        with tempfile.TemporaryDirectory() as cache:
            for state in (0, 1) if not task.further else (0,):
                seconds[state][who], compiled = figure(task, who, folder, cache)
                modules[state] = compiled if who == "tengen" else modules[state]
    for state in (0, 1):  # a round counts when all of it is there
        for who, t in seconds[state].items():
            samples.seconds[state].setdefault(who, []).append(t)
        samples.modules[state].append(modules[state])
    samples.round_s = time.perf_counter() - start


def row(task: Task, title: str, times: dict[str, list[float]], limit: float | None, most: tuple[tuple[str, float], ...]) -> Row:
    """A line of the table."""
    times = {COMPILERS.get(who, who) if task.compiled else who: t for who, t in times.items()}
    found = Row(title, seconds={who: float(np.median(t)) for who, t in times.items()}, rounds=len(times["tengen"]))
    for who in times.keys() - {"tengen", NO_PACKS}:
        quartiles = np.percentile(np.array(times["tengen"]) / np.array(times[who]), [25, 50, 75])
        found.ratios[who] = tuple(float(q) for q in quartiles)
    asked = [f"< {compare.duration(limit)}"] if limit else []
    reached = [found.seconds["tengen"] < limit] if limit else []
    for who, ratio in most:
        if who in found.ratios:
            asked.append(f"<= {ratio:.2f} of {who}")
            reached.append(found.ratios[who][1] <= ratio)
    if asked:
        found.goal, found.reached = {"text": ", ".join(asked)}, all(reached)
    return found


def count(title: str, modules: list[int]) -> Row:
    """A line for modules that should not have been compiled."""
    return Row(title, value=str(max(modules)), goal={"text": "0"}, reached=not max(modules))


def causes(task: Task, folder: str) -> list[dict[str, float]]:
    """What Tengen's time is spent on, with empty caches and with warm ones, in two processes that are watched."""
    with tempfile.TemporaryDirectory() as cache:
        return [process("tengen", task.method, folder, cache, watched=True)[1]["causes"] for _ in range(2)]


def rows_of(task: Task, samples: Samples) -> list[Row]:
    """All lines of a task."""
    if not samples.rounds:
        return []
    if task.further:
        timed = row(task, task.name, samples.seconds[0], None, task.most)
        return [timed] if task.opens else [timed, count(f"{task.name}: modules compiled for it", samples.modules[0])]
    rows = [
        row(task, f"{task.name}, empty caches", samples.seconds[0], task.cold, task.most),
        row(task, f"{task.name}, warm caches", samples.seconds[1], task.warm, ()),
    ]
    for r, shares in zip(rows, samples.causes):
        r.causes = shares
    return [*rows, count(f"{task.name}: modules that a second process compiled", samples.modules[1])]


def measure(task: Task, samples: Samples, folder: str, rounds: int, quick: bool, left: Callable[[float], bool], write: Callable) -> bool:
    """Adds what a task lacks, as long as there is time `left` for a round; whether it has everything now."""
    if samples.names is None:
        if not left(0.0):
            return False
        start = time.perf_counter()
        samples.names = contenders(task, folder, quick)
        samples.round_s = 2 * (time.perf_counter() - start)  # a round has each twice, the second time with warm caches
        write()
    while samples.rounds < rounds:
        if not left(samples.round_s):
            return False
        add_round(task, samples, folder)
        write()
    if not samples.causes and not task.further:
        if not left(samples.round_s):
            return False
        samples.causes = causes(task, folder)
        write()
    return True


def options(parser: argparse.ArgumentParser) -> None:
    """What this benchmark has beside what all have."""
    parser.add_argument("--folder", type=Path, help="keeps samples, byte code and files, for a later call to go on from")
    parser.add_argument("--rows", default="", help=f"the tasks to measure, of {', '.join(t.method for t in TASKS)}; results of the others stay")
    parser.add_argument("--megengine", metavar="PYTHON", help="a Python 3.10 that has MegEngine; default: $MEGENGINE_PYTHON")


def chosen(args: argparse.Namespace) -> list[Task]:
    """The tasks that the command line asks for."""
    wanted = [name for name in args.rows.split(",") if name]
    if unknown := {*wanted} - {t.method for t in TASKS}:
        sys.exit(f"no row named {', '.join(sorted(unknown))}; there are {', '.join(t.method for t in TASKS)}")
    some = [t for t in TASKS if args.only in t.name and (t.method in wanted or not wanted)]
    return [t for t in some if t.quick or args.only or wanted or not args.quick]


def files(tasks: list[Task], folder: str, missing: set[str]) -> None:
    """Writes the files that tasks read, where they are not there yet."""
    if any(t.method == "resnet50_from_a_file" for t in tasks) and not Path(folder, "written").exists():
        for who in {"tengen", "torch"} - missing:
            process(who, "write", folder, f"{folder}/written")


def in_order(rows: list[Row]) -> list[Row]:
    """Rows of several calls, each behind the others of its task."""
    return sorted(rows, key=lambda r: [r.name.startswith((f"{t.name},", f"{t.name}:")) or r.name == t.name for t in TASKS].index(True))


def main() -> None:
    args = compare.arguments("first_minute", more=options)
    end, load = time.monotonic() + 60 * args.minutes, os.getloadavg()
    if args.megengine:
        os.environ["MEGENGINE_PYTHON"] = args.megengine
    missing = {who for who in dict.fromkeys((*COMPILED, *SESSIONS)) if not installed(who)}
    beside = (NO_PACKS,) if packs() else ()
    tasks = [
        replace(t, peers=(*(beside if t.packs else ()), *(who for who in t.peers if who not in missing))) for t in chosen(args)
    ]
    rounds = 1 if args.quick else min(args.rounds, ROUNDS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(exist_ok=True, parents=True)
        kept, failed, done = Kept(folder), [], True
        files(tasks, str(folder.resolve()), missing)
        for task in compare.progress(tasks, "first_minute"):
            samples = kept.of(task)
            try:
                done &= measure(
                    task, samples, str(folder.resolve()), rounds, args.quick, lambda s: time.monotonic() + s < end, kept.write
                )
                print(compare.format_rows(rows_of(task, samples) or [Row(task.name, value="no round yet")]), flush=True)
            except Exception as e:  # one that fails takes nothing from the others
                failed.append(Row(task.name, error=f"{type(e).__name__}: {' '.join(str(e).split())[:160]}"))
                print(compare.format_rows(failed[-1:]), flush=True)
        everything = [r for t in TASKS for r in rows_of(t, kept.of(t))]
    names = {r.name for r in [*everything, *failed]}
    before = compare.earlier("first_minute", args, part=bool(args.rows))
    everything = in_order([*(r for r in before if r.name not in names), *everything])
    if not done:
        print("not all rows have their rounds yet: call this again with the same --folder", flush=True)
    if args.results == compare.RESULTS and not done:
        args.results = None  # rows of fewer rounds would take the place of others
    try:
        compare.finish("first_minute", "The first minute: from the start of a process to a first result", [*everything, *failed], load, args)
    finally:
        if args.results == compare.RESULTS:
            report.write(args.results)


if __name__ == "__main__":
    main()
