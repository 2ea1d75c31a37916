"""What it costs until a network runs: from the network and its data to the first result, in fresh processes.

Each figure is a process of its own (`child.py`), first with empty caches (Tengen's kernels, torch.compile's), then again with
those that the first has filled. Importing is not in it; `bench_start.py` measures that. The first result takes a run, too, and a
training step of ResNet-50 alone more than the goal of a warm start: what is judged is the time beyond that of a later run. The
last rows: modules that a second process compiles, and programs that are compiled for further batch sizes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import compare
import numpy as np
from compare import Row
from networks import NETWORKS

CHILD = str(Path(__file__).parent / "child.py")
# (network, batch, kind): the most seconds beyond a run, with empty caches and with warm ones
CASES = {
    ("ResNet-50", 1, "inference"): (5.0, 0.5),
    ("ResNet-50", 8, "training"): (12.0, 0.5),
    ("LeNet", 64, "training"): (2.0, 0.5),
}
QUICK = {"LeNet"}
PATIENCE_S = 600


def folders(cache: str | None) -> dict[str, str]:
    """The environment in which every cache lies below a folder; None: where it is used to lie."""
    if cache is None:
        return {**os.environ, "PYTHONWARNINGS": "ignore"}
    return {
        **os.environ, "TENGEN_CACHE_DIR": f"{cache}/tengen", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        "TRITON_CACHE_DIR": f"{cache}/triton", "PYTHONWARNINGS": "ignore",
    }  # fmt: skip


def child(who: str, name: str, batch: int, kind: str, cache: str | None, file: str = "") -> dict:
    """What `child.py` says of this contender. Errors: RuntimeError where it fails."""
    command = [sys.executable, CHILD, who, name, str(batch), kind, *([file] if file else [])]
    done = subprocess.run(command, env=folders(cache), capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode:
        raise RuntimeError(f"{who}, {name}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def export(name: str, batch: int, folder: str) -> str:
    """The network as an ONNX file; "" where it cannot be had."""
    if not all(map(compare.peer, ("torch", "onnx"))):
        return ""
    import peers

    network = NETWORKS[name]
    return peers.onnx_file(network.torch(None).eval(), network.data(batch), folder)


def contenders(name: str, kind: str, quick: bool) -> list[str]:
    """Who can do it; "tengen" first."""
    import jax_peer

    found = ["tengen"]
    if compare.peer("torch"):
        found += [] if quick else ["torch.compile"]
        if kind == "inference":
            found += [who for who in ("onnxruntime", "openvino") if compare.peer(who)]
        elif name in jax_peer.FORWARD and compare.peer("jax"):
            found.append("jax")
        else:
            print(f"skipped: jax: no definition of {name} for it here", flush=True)
    return found


def rows_of(key: tuple[str, int, str], limits: tuple[float, float], rounds: int, quick: bool) -> list[Row]:
    """Cold and warm seconds of all contenders, whole and beyond a run, and how many modules Tengen's second process compiled."""
    name, batch, kind = key
    title = f"{name}, batch {batch}, {kind}"
    rows = [Row(f"{title}, {caches} caches{what}") for what in ("", ": beyond a later run") for caches in ("empty", "warm")]
    again = 0
    with tempfile.TemporaryDirectory() as folder:
        file = export(name, batch, folder) if kind == "inference" else ""
        for who in contenders(name, kind, quick):
            times: list[list[float]] = [[] for _ in rows]
            for r in range(rounds):
                cache = f"{folder}/{who}{r}"
                try:
                    found = [
                        child(who, name, batch, kind, cache, file if who in ("onnxruntime", "openvino") else "") for _ in (0, 1)
                    ]
                except RuntimeError as e:
                    if who == "tengen":
                        raise
                    print(f"skipped: {e}", flush=True)
                    continue
                again = max(again, found[1]["modules"]) if who == "tengen" else again
                for i, f in enumerate(found):
                    times[i].append(f["ready"])
                    times[2 + i].append(f["ready"] - f["run"])
            for row, kept in zip(rows, times):
                if kept:
                    row.seconds[who] = float(np.median(kept))
    for row, limit in zip(rows[2:], limits):
        row.goal, row.reached = {"text": f"< {limit:g} s"}, row.seconds["tengen"] < limit
    modules = Row(f"{title}: modules that a second process compiled", value=str(again), goal={"text": "0"}, reached=again == 0)
    return [*rows, modules]


BATCHES = """
import sys
sys.path.insert(0, {here!r})
import compare, tengen
from networks import NETWORKS
from tengen.runtime import compile as compiler
network = NETWORKS[{name!r}]
run = tengen.trace(network.tengen(), capture_as_const=True, dynamic_axes={{0: "batch"}})
run(tengen.Tensor(network.data(3))).numpy()
before = compiler.compilations
for batch in (2, 5):
    run(tengen.Tensor(network.data(batch))).numpy()
print(compiler.compilations - before)
"""


def further_batches(name: str) -> Row:
    """Modules compiled for the second and third batch size of a network that is traced with its batch open."""
    with tempfile.TemporaryDirectory() as cache:
        code = BATCHES.format(here=str(Path(__file__).parent), name=name)
        done = subprocess.run([sys.executable, "-c", code], env=folders(cache), stdout=subprocess.PIPE, text=True, check=True)
    count = int(done.stdout.split()[-1])
    return Row(
        f"{name}: modules compiled for two further batch sizes", value=str(count), goal={"text": "0"}, reached=count == 0
    )


def main() -> None:
    args = compare.arguments("compile")
    load, rows = os.getloadavg(), []
    for key, limits in compare.progress(list(CASES.items()), "compile"):
        name = f"{key[0]}, {key[2]}"
        if args.only not in name or (args.quick and not args.only and key[0] not in QUICK):
            continue
        try:
            new = rows_of(key, limits, 1 if args.quick else 3, args.quick)
        except Exception as e:
            new = [Row(name, error=f"{type(e).__name__}: {' '.join(str(e).split())[:160]}")]
        print(compare.format_rows(new), flush=True)
        rows += new
    for name in ("LeNet", "ResNet-50"):
        if args.only in f"{name}: modules compiled for two further batch sizes" and (name in QUICK or not args.quick):
            rows.append(further_batches(name))
    compare.finish("compile", "From a network to its first result, in fresh processes", rows, load, args)


if __name__ == "__main__":
    main()
