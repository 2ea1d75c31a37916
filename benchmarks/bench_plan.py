"""What `tengen plan` says of a step beside what it takes, with 1, 2 and 4 processes of a thread each.

Everything is measured in one run: the rate of a network in each of as many processes (which share caches, memory, and the two threads of a
core), the link between two processes, and steps of `DataParallel` with as many samples for each process. Seconds are those of the
processor in each process, which other programs on the machine disturb least. They have in them what a process waits for the others, since it
asks MPI without a pause meanwhile; so what is measured is too long rather than too short where processes share a core.

    python benchmarks/bench_plan.py [--rounds 5] [--processes 1 2 4]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

os.environ["BENCH_THREADS"] = "1"

import compare
import numpy as np

import tengen
from tengen import distributed as dist
from tengen import functional as F
from tengen import models
from tengen import module as M
from tengen.autodiff import GradManager
from tengen.utils import planning

SIZES = (64 << 10, 16 << 20)  # bytes of the exchanges by which a link is measured
clock = time.process_time


def networks() -> dict[str, tuple[Callable[[], M.Module], tuple[int, ...]]]:
    """(What makes a network, a process's input), by name: one that mostly computes, and one of many parameters for its samples."""
    wide = lambda: M.Sequential(*[layer for _ in range(4) for layer in (M.Linear(1024, 1024), M.ReLU())])
    return {"ResNet-18": (models.resnet18, (8, 3, 64, 64)), "four layers of 1024 x 1024": (wide, (32, 1024))}


def rates(rounds: int) -> dict[str, list[tuple[float, float]]]:
    """(Operations, bytes of gradients that are packed and added) a second of this process, in each round, while the others compute the same."""
    tengen.set_threads(1)
    found: dict[str, list[tuple[float, float]]] = {}
    for name, (make, shape) in networks().items():
        net, x = make(), np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        found[name] = []
        for _ in range(rounds):
            dist.group_barrier()
            found[name].append((planning.measured_rate(net, x, repeat=2, clock=clock), planning.measured_handling(net, x, clock=clock)))
    return found


def links(rounds: int) -> list[tuple[float, float]]:
    """(latency, bandwidth) of two processes, by all-gathers of two sizes, in each round."""
    tengen.set_threads(1)
    found = []
    for _ in range(rounds):
        took = []
        for nbytes in SIZES:
            x, times = tengen.Tensor(np.ones(nbytes // 8, np.float32)), max(1, (8 << 20) // nbytes)
            F.distributed.all_gather(x)
            start = clock()
            for _ in range(times):
                F.distributed.all_gather(x)
            took.append((clock() - start) / times)
        per_byte = max((took[1] - took[0]) / (SIZES[1] / 2 - SIZES[0] / 2), 1e-12)
        found.append((max(took[0] - per_byte * SIZES[0] / 2, 1e-7), 1 / per_byte))
    return found


def steps(rounds: int) -> dict[str, list[float]]:
    """Seconds of a step of `DataParallel`, a micro-batch for each process, in each round."""
    tengen.set_threads(1)
    found: dict[str, list[float]] = {}
    for name, (make, shape) in networks().items():
        net = dist.DataParallel(make())
        gm, x = GradManager().attach(net.parameters()), np.ones((shape[0] * dist.get_world_size(), *shape[1:]), np.float32)
        found[name] = []
        for i in range(rounds + 1):
            dist.group_barrier()
            start = clock()
            for (xb,) in net.micro_batches(tengen.Tensor(x)):
                with gm:
                    gm.backward(net(xb).sum())
            if i:
                found[name].append(clock() - start)
            for p in net.parameters():
                p.grad = None
    return found


def main() -> None:
    """Measures, prints what the plan says and what was found, and writes both beside the other results of this processor."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (default 5)")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4], help="of which numbers steps are measured (default 1 2 4)")
    args = parser.parse_args()
    rounds, numbers, load = args.rounds, args.processes, os.getloadavg()[0]
    at_once = {n: dist.launcher(rates, n_gpus=n)(rounds) if n > 1 else [rates(rounds)] for n in numbers}
    pairs = dist.launcher(links, n_gpus=2)(rounds)[0]
    link = planning.Link(statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs))
    measured = {n: dist.launcher(steps, n_gpus=n)(rounds) if n > 1 else [steps(rounds)] for n in numbers}
    print(f"link: {1e6 * link.latency:.0f} us, {link.bandwidth / 1e9:.2f} GB/s; load {load:.1f} before, {os.getloadavg()[0]:.1f} behind")
    rows = []
    for name, (make, shape) in networks().items():
        work = planning.work_of(make(), np.zeros(shape, np.float32))
        for n in numbers:
            rate, handling = (statistics.median(r[i] for rank in at_once[n] for r in rank[name]) for i in (0, 1))
            said = planning.plan(work, planning.Network(1 << 30, link, link), rate, shape[0] * n, data=n, handling=handling)
            took = statistics.median(statistics.mean(rank[name][i] for rank in measured[n]) for i in range(rounds))
            rows.append({"network": name, "processes": n, "said": said.seconds, "exchange": said.exchange, "took": took})
            off = said.seconds / took - 1
            print(f"{name:28} {n}: said {1e3 * said.seconds:7.1f} ms (exchange {1e3 * said.exchange:6.1f}), took {1e3 * took:7.1f}: {off:+.0%}")
    file = compare.RESULTS / compare.folder_of(compare.machine()["processor"]) / "plan.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"machine": compare.machine(), "load": load, "link": link.__dict__, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
