"""The first minute: seconds from the start of a process until a first result, with empty caches and with warm ones.

Each figure is a process of its own (`first.py`), timed from outside from its creation until it says that its task is done: the
interpreter and the imports are in it, byte code is there, as `pip` leaves it. With empty caches means those of Tengen's kernels, of
torch.compile and of JAX; the next process has those that the first has filled. What a further size of a batch or a text costs is
timed inside of a process that has done a step already. The processes of a round take turns. Ratios are of a round; a library that
is not installed, or has no definition of a network, is skipped aloud.

One more process of Tengen's for each row is watched, and says what its time was spent on: the stacked picture.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import compare
import numpy as np
from compare import Row

SCRIPT = str(Path(__file__).parent / "first.py")
PATIENCE_S = 600
ROUNDS = 5
COMPILERS = {"torch": "torch.compile"}  # what a library's compiled task is called in the table
SESSIONS = ("onnxruntime", "openvino")
EAGER, COMPILED = ("torch", "MegEngine"), ("torch", "jax", "MegEngine")


@dataclass(frozen=True)
class Task:
    """A task of `first.py`, and how long it may take.

    Attributes:
        name: its line in the table. peers: who else does it. cold, warm: seconds to stay below, None where nothing is asked.
        most: of a peer's time, at most so much: its name -> ratio, with empty caches. compiled: peers compile it.
        further: it is timed by itself, in a process that has warmed up, and should compile nothing.
        quick: it is among the few of --quick.
    """

    method: str
    name: str
    peers: tuple[str, ...]
    cold: float | None = None
    warm: float | None = None
    most: tuple[tuple[str, float], ...] = ()
    compiled: bool = False
    further: bool = False
    quick: bool = False


FASTER = (("torch.compile", 1.0), ("jax", 1.0))
TASKS = [
    Task("imported", "import, beyond NumPy's", (*COMPILED, *SESSIONS), 0.1, 0.08, quick=True),
    Task("operation", "first operation", COMPILED, None, 0.2, quick=True),
    Task("operations", "20 common ops", COMPILED, 0.45, 0.35, quick=True),
    Task("resnet18", "ResNet-18, training step, eager", EAGER, 3.0, 1.2, (("torch", 0.6),)),
    Task("resnet18_compiled", "ResNet-18, training step, traced", COMPILED, 5.0, 0.7, FASTER, compiled=True),
    Task("efficientnet", "EfficientNet-B0, two eager and two traced steps", COMPILED, 10.0, 2.5, FASTER, compiled=True),
    Task("gpt", "GPT of two layers, training step, eager", EAGER, 2.0, 0.8, (("torch", 0.6),)),
    Task("gpt_compiled", "GPT of two layers, training step, traced", COMPILED, 3.0, 0.6, FASTER, compiled=True),
    # not JAX: op by op it compiles each op for each length, which takes minutes
    Task("generation", "GPT of two layers, 40 tokens, each of the whole text", ("torch",)),
    Task("generation_with_caches", "GPT of two layers, 40 tokens by `generate`", (), 1.2, 0.8),
    Task("lenet_compiled", "LeNet, training step, traced", COMPILED, most=FASTER, compiled=True, quick=True),
    Task("resnet50_compiled", "ResNet-50, training step, traced", COMPILED, most=FASTER, compiled=True),
    Task("resnet50_from_a_file", "ResNet-50, first answer from a file", ("torch", *SESSIONS), 1.5, 0.2),
    Task("resnet18_further", "ResNet-18, a further batch size, eager", EAGER, further=True),
    Task("resnet18_further_compiled", "ResNet-18, a further batch size, traced", COMPILED, compiled=True, further=True),
    Task("gpt_further_compiled", "GPT of two layers, a further length, traced", COMPILED, compiled=True, further=True),
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


def installed(who: str) -> bool:
    """Whether a peer is there, said aloud where it is not."""
    if who == "MegEngine":
        if "MEGENGINE_PYTHON" not in os.environ:
            print("skipped: MegEngine; set MEGENGINE_PYTHON to a Python 3.10 that has it", flush=True)
        return "MEGENGINE_PYTHON" in os.environ
    return compare.peer(who) is not None


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


@dataclass
class Found:
    """What the rounds of a task gave: seconds by contender, and Tengen's modules, with empty caches (0) and with warm ones (1)."""

    seconds: tuple[dict[str, list[float]], dict[str, list[float]]]
    modules: tuple[list[int], list[int]]


def rounds_of(task: Task, folder: str, rounds: int, quick: bool) -> Found:
    """Runs every contender with empty caches and again with what that has left in them, in turns."""
    names = contenders(task, folder, quick)
    found = Found(({who: [] for who in names}, {who: [] for who in names}), ([], []))
    for r in range(rounds):
        turn = r % len(names)
        for who in names[turn:] + names[:turn]:
            with tempfile.TemporaryDirectory() as cache:
                for state in (0, 1) if not task.further else (0,):
                    seconds, modules = figure(task, who, folder, cache)
                    found.seconds[state][who].append(seconds)
                    if who == "tengen":
                        found.modules[state].append(modules)
    return found


def row(task: Task, title: str, times: dict[str, list[float]], limit: float | None, most: tuple[tuple[str, float], ...]) -> Row:
    """A line of the table."""
    times = {COMPILERS.get(who, who) if task.compiled else who: t for who, t in times.items()}
    found = Row(title, seconds={who: float(np.median(t)) for who, t in times.items()}, rounds=len(times["tengen"]))
    for who in times.keys() - {"tengen"}:
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


def causes(task: Task, folder: str, cache: str) -> dict[str, float]:
    """What Tengen's time is spent on, in a process that is watched."""
    return process("tengen", task.method, folder, cache, watched=True)[1]["causes"]


def rows_of(task: Task, folder: str, rounds: int, quick: bool) -> list[Row]:
    """All lines of a task."""
    found = rounds_of(task, folder, rounds, quick)
    if task.further:
        return [row(task, task.name, found.seconds[0], None, ()), count(f"{task.name}: modules compiled for it", found.modules[0])]
    rows = [
        row(task, f"{task.name}, empty caches", found.seconds[0], task.cold, task.most),
        row(task, f"{task.name}, warm caches", found.seconds[1], task.warm, ()),
    ]
    with tempfile.TemporaryDirectory() as cache:
        for r in rows:
            r.causes = causes(task, folder, cache)
    return [*rows, count(f"{task.name}: modules that a second process compiled", found.modules[1])]


def main() -> None:
    args = compare.arguments("first_minute")
    load, rows = os.getloadavg(), []
    missing = {who for who in (*COMPILED, *SESSIONS) if not installed(who)}
    tasks = [t for t in TASKS if args.only in t.name and (t.quick or args.only or not args.quick)]
    with tempfile.TemporaryDirectory() as folder:
        if any(t.method == "resnet50_from_a_file" for t in tasks):
            for who in {"tengen", "torch"} - missing:
                process(who, "write", folder, f"{folder}/written")
        for task in compare.progress(tasks, "first_minute"):
            task = replace(task, peers=tuple(who for who in task.peers if who not in missing))
            try:
                new = rows_of(task, folder, 1 if args.quick else min(args.rounds, ROUNDS), args.quick)
            except Exception as e:
                new = [Row(task.name, error=f"{type(e).__name__}: {' '.join(str(e).split())[:160]}")]
            print(compare.format_rows(new), flush=True)
            rows += new
    compare.finish("first_minute", "The first minute: from the start of a process to a first result", rows, load, args)


if __name__ == "__main__":
    main()
