"""What starting costs, in fresh processes: importing, the first operation with a warm cache, what a second process compiles.

Each figure is a process of its own, timed from outside from its creation until it says that it has done its work; the
processes of a round take turns. The cost of `import tengen` beyond `import numpy` is the difference within a round.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

import compare
import numpy as np
from compare import Row

FIRST = "import tengen; x = tengen.Tensor([1.0, 2.0, 3.0]); (x + x).numpy()"
PROGRAMS = {
    "python": "pass",
    "import numpy": "import numpy",
    "import tengen": "import numpy, tengen",
    "first operation": FIRST,
    "import torch": "import torch",
    "torch's first operation": "import torch; x = torch.tensor([1.0, 2.0, 3.0]); (x + x).numpy()",
    "import jax": "import jax",
    "jax's first operation": "import numpy, jax.numpy as j; x = j.asarray([1.0, 2.0, 3.0]); numpy.asarray(x + x)",
    "import onnxruntime": "import onnxruntime",
    "import openvino": "import openvino",
}
DONE = "\nimport time; print(time.process_time(), flush=True)"
COUNT = "\ntengen.jit.wait_for_compilation(); from tengen.runtime import compile as c; print(c.compilations)"


def process(code: str, cache: str, after: str = "") -> tuple[float, float, str]:
    """(seconds from creating a process until it has run this code, its processor time until then, what `after` printed)."""
    env = {**os.environ, "TENGEN_CACHE_DIR": f"{cache}/kernels", "PYTHONPYCACHEPREFIX": f"{cache}/bytecode"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", code + DONE + after], env=env, stdout=subprocess.PIPE, text=True) as child:
        spent = child.stdout.readline()
        seconds = time.perf_counter() - start
        rest = child.stdout.read()
    if child.returncode:
        raise RuntimeError(f"a process with {code!r} ended with status {child.returncode}")
    return seconds, float(spent), rest


def line(name: str, times, goal_s: float | None = None) -> Row:
    """A row for one duration."""
    low, mid, high = (float(q) for q in np.percentile(times, [25, 50, 75]))
    row = Row(name, value=f"{compare.duration(mid)} ({compare.duration(low)} - {compare.duration(high)})")
    row.seconds = {"tengen": mid}
    if goal_s is not None:
        row.goal, row.reached = {"text": f"< {compare.duration(goal_s)}"}, mid < goal_s
    return row


def main() -> None:
    args = compare.arguments("start")
    load = os.getloadavg()
    missing = [name for name in compare.PEERS if compare.peer(name) is None]
    programs = {k: v for k, v in PROGRAMS.items() if not any(name in k for name in missing)}
    times: dict[str, list[float]] = {k: [] for k in programs}
    with tempfile.TemporaryDirectory() as cache:
        *_, first = process(FIRST, cache, COUNT)
        *_, second = process(FIRST, cache, COUNT)
        for code in programs.values():  # byte code, page cache
            process(code, cache)
        names = list(programs)
        for r in range(args.rounds):
            turn = r % len(names)
            for name in names[turn:] + names[:turn]:
                seconds, spent, _ = process(programs[name], cache)
                times[name].append(seconds if compare.THREADS > 1 else spent)
    beyond = np.array(times["import tengen"]) - np.array(times["import numpy"])
    rows = [
        line("import tengen, beyond import numpy", beyond, 0.1),
        line("first operation, from the start of the process", times["first operation"], 0.2),
        Row("modules compiled by a first process for one operation", value=first.strip()),
        Row("modules compiled by a second process", value=second.strip(), goal={"text": "0"}, reached=int(second) == 0),
        *(line(f"process: {name}", t) for name, t in times.items() if name != "first operation"),
    ]
    compare.finish("start", "Starting: fresh processes", rows, load, args)


if __name__ == "__main__":
    main()
