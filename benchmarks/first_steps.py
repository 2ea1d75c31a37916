"""What quick code saves and costs, in seconds from the start of a process until its N-th training step, with empty caches.

Variants take turns, each figure is a process of its own (`first.py` has the tasks): all code good at once, quick code first, and quick code
first with another share of the compile time that it may run (`tiers.SHARE`). The last column is a process that finds what the
one before has left. For a quiet machine:

    python benchmarks/first_steps.py [ROUNDS] [TASK ...]     a task: lenet:traced, resnet18:eager, gpt:traced, ...
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

STEPS = {"lenet": 300, "resnet18": 50, "gpt": 100, "mobilenet_v2": 20}
MARKS = (1, 2, 3, 10, 50, 100, 300)
VARIANTS = {
    "good at once": ("0", ""),
    "quick first": ("1", ""),
    "quick, always waits": ("1", "0"),
    "quick, never waits": ("1", "inf"),
}


def child(name: str, mode: str) -> None:
    """Trains, and prints the seconds since the process began at each mark."""
    start = time.clock_gettime(time.CLOCK_BOOTTIME) - float(sys.argv[4])
    sys.argv[1:] = ["tengen", "", "", "2"]
    before = time.perf_counter() - start
    import first

    from tengen.runtime import tiers

    if share := os.environ.get("SHARE"):
        tiers.SHARE = float(share)
    step = first.Tengen().trainer(name, mode == "traced")
    shapes = {"gpt": lambda: first.texts(first.TOKENS), "lenet": lambda: first.images(64, 10, (1, 32, 32))}
    batch, marks = shapes.get(name, lambda: first.images(first.BATCH))(), {}
    for i in range(1, STEPS[name] + 1):
        step(*batch)
        if i in MARKS:
            marks[i] = time.perf_counter() - before
    print(json.dumps(marks))


def marks_of(name: str, mode: str, variant: str, cache: str) -> dict[int, float]:
    """Seconds by number of steps, of one process."""
    knob, share = VARIANTS[variant]
    env = {**os.environ, "TENGEN_QUICK_COMPILE": knob, "SHARE": share, "TENGEN_CACHE_DIR": cache, "TENGEN_NUM_THREADS": "2"}
    now = str(time.clock_gettime(time.CLOCK_BOOTTIME))
    done = subprocess.run(
        [sys.executable, __file__, "child", name, mode, now], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    return {int(k): v for k, v in json.loads(done.stdout.splitlines()[-1]).items()}


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for task in sys.argv[2:] or ("lenet:traced", "resnet18:traced", "resnet18:eager", "gpt:traced", "gpt:eager"):
        name, mode = task.split(":")
        found: dict[str, list[dict[int, float]]] = {v: [] for v in VARIANTS}
        for r in range(rounds):
            for variant in list(VARIANTS)[:: 1 if r % 2 else -1]:
                with tempfile.TemporaryDirectory() as folder:
                    cold = marks_of(name, mode, variant, str(Path(folder) / "cache"))
                    found[variant].append({**cold, 0: marks_of(name, mode, variant, str(Path(folder) / "cache"))[1]})
        for variant, times in found.items():
            middle = {n: float(np.median([t[n] for t in times])) for n in times[0]}
            told = ", ".join(f"{n}: {s:.2f}" for n, s in middle.items() if n)
            print(f"{task:18s} {variant:20s} {told}; first step of the next process {middle[0]:.2f}", flush=True)


if __name__ == "__main__":
    child(sys.argv[2], sys.argv[3]) if sys.argv[1:2] == ["child"] else main()
