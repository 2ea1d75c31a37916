"""Two processes beside one with two threads, and beside PyTorch's DistributedDataParallel over gloo; sums of gradients beside MPI's
own and gloo's; the start of two processes; ZeRO's stage 3 beside PyTorch's FSDP, in time and memory; how long a step waits for a checkpoint.

All contenders of a table run in one job of two processes, in turns: those of one process while the other one waits. Steps train on the
same 16 or 64 pictures or 8 texts: one process with two threads on all of them, two processes with a thread each on a half each. `--processes 8`
takes eight for the sums and steps, with a thread each, and as many samples for each.

    python benchmarks/bench_distributed.py [--rounds 7] [--only ResNet-18] [--processes 2]

`--only` takes part of a table's name: start, sums, step of ResNet-18, step of GPT, pipeline, stage 3, memory, checkpoint. Tables that were
measured before stay in the file of results.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import compare
import numpy as np
from child import forget_peak, resident
from networks import NETWORKS, Trainer

import tengen
from tengen import distributed as dist
from tengen import functional as F
from tengen import module as M
from tengen.autodiff import GradManager
from tengen.optimizer import SGD, Adam

SMALL = (3, 112, 112)
STEPS = {  # network, samples for each process, the shape of one
    "ResNet-18": ("ResNet-18", 8, SMALL), "ResNet-18, 32 each": ("ResNet-18", 32, SMALL), "GPT": ("GPT", 4, None),
}  # fmt: skip
BYTES = (1 << 10, 32 << 10, 1 << 20, 10 << 20, 100 << 20)


def seconds(call: Callable, together: bool, rank: int) -> float:
    """What a call takes, from when both processes are there until both have ended; of rank 0 alone unless `together`."""
    dist.group_barrier()
    start = time.perf_counter()
    if together or rank == 0:
        call()
    dist.group_barrier()
    return time.perf_counter() - start


def in_turns(contenders: dict[str, tuple[Callable, bool]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each contender in each round, after one that does not count."""
    rank, found = dist.get_rank(), {name: [] for name in contenders}
    for i in range(rounds + 1):
        for name, (call, together) in contenders.items():
            t = seconds(call, together, rank)
            if i:
                found[name].append(t)
    return found


def torch_in_the_job() -> object | None:
    """PyTorch with its own group of the processes, or None where it is not installed."""
    torch = compare.peer("torch")
    if torch is None:
        return None
    note = np.zeros(256, np.uint8)
    if dist.get_rank() == 0:
        said = tempfile.mktemp(prefix="tengen-gloo-").encode()
        note[: len(said)] = np.frombuffer(said, np.uint8)
    file = bytes(F.distributed.broadcast(tengen.Tensor(note)).numpy()).rstrip(b"\0").decode()
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=dist.get_rank(), world_size=dist.get_world_size())
    return torch


def sums(rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of a sum over all processes, by its bytes."""
    from mpi4py import MPI

    torch, found = torch_in_the_job(), {}
    for n in BYTES:
        a = np.random.default_rng(dist.get_rank()).standard_normal(n // 4).astype(np.float32)
        x, out = tengen.Tensor(a), np.empty_like(a)
        times = max(1, min(50, (4 << 20) // n))

        def repeated(call: Callable, times: int = times) -> Callable:
            return lambda: [call() for _ in range(times)]

        contenders = {
            "tengen": (repeated(lambda x=x: F.distributed.all_reduce_sum(x)), True),
            "MPI": (repeated(lambda a=a, out=out: MPI.COMM_WORLD.Allreduce(a, out)), True),
        }
        if torch is not None:
            t = torch.from_numpy(a.copy())
            contenders["gloo"] = (repeated(lambda t=t: torch.distributed.all_reduce(t)), True)
        found[f"{n >> 10} KiB"] = {k: [s / times for s in v] for k, v in in_turns(contenders, rounds).items()}
    return found


def steps(name: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of a training step."""
    of, share, shape = STEPS[name]
    rank, processes = dist.get_rank(), dist.get_world_size()
    network, batch = NETWORKS[of], share * processes
    data, labels = network.data(batch, shape=shape), network.labels(batch, shape=shape)
    tengen.set_threads(processes)
    whole = Trainer(network, batch, traced=True, shape=shape)

    def one_process() -> None:
        tengen.set_threads(processes)
        whole.step()

    net = dist.DataParallel(network.tengen(training=True))
    gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=1e-3)

    @tengen.trace(symbolic=True)
    def train(x, y):
        with gm:
            loss = F.loss.cross_entropy(F.reshape(net(x), (-1, network.classes)), F.flatten(y))
            gm.backward(loss)
        return loss

    update = tengen.trace(lambda: opt.step(), symbolic=True)
    x, y = tengen.Tensor(data), tengen.Tensor(labels)

    def each_a_share() -> None:
        tengen.set_threads(1)
        for xb, yb in net.micro_batches(x, y):
            train(xb, yb)
        update()
        opt.clear_grad()

    contenders = {f"one, {processes} threads": (one_process, False), f"{processes}, a thread each": (each_a_share, True)}
    torch = torch_in_the_job()
    if torch is not None:
        torch.set_num_threads(1)
        theirs = torch.nn.parallel.DistributedDataParallel(network.torch(whole.net).train())
        sgd = torch.optim.SGD(theirs.parameters(), lr=1e-3)
        tx = torch.from_numpy(data[rank * share : (rank + 1) * share].copy())
        ty = torch.from_numpy(labels[rank * share : (rank + 1) * share].copy()).long().flatten()

        def ddp() -> None:
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(theirs(tx).reshape(-1, network.classes), ty).backward()
            sgd.step()

        contenders["PyTorch DDP"] = (ddp, True)
    return in_turns(contenders, rounds)


def pipelines(rounds: int) -> dict[str, list[float]]:
    """Seconds of a step of eight blocks of a transformer's two linear layers, of 512 and 2,048 numbers, over 1,024 rows in 8 micro-batches."""
    def blocks() -> M.Sequential:
        layers = [M.Sequential(M.LayerNorm(512), M.Linear(512, 2048), M.GELU(), M.Linear(2048, 512)) for _ in range(8)]
        return M.Sequential(*layers)

    def loss(y: tengen.Tensor, t: tengen.Tensor) -> tengen.Tensor:
        return ((y - t) ** 2).mean()

    rng = np.random.default_rng(0)
    x, t = (rng.standard_normal((1024, 512)).astype(np.float32) for _ in "xt")
    alone = dist.DataParallel(blocks(), group=dist.new_group([dist.get_rank()]), micro_batches=8)
    gm = GradManager().attach(list(alone.parameters()))

    def one_process() -> None:
        tengen.set_threads(2)
        for xb, tb in alone.micro_batches(x, t):
            with gm:
                gm.backward(loss(alone(tengen.Tensor(xb)), tengen.Tensor(tb)))
        for p in alone.parameters():
            p.grad = None

    def two_stages(pipe: dist.Pipeline) -> None:
        tengen.set_threads(1)
        tengen.random.seed(0)  # one process alone has moved its generator
        pipe.step(x, t)
        for p in pipe.parameters():
            p.grad = None

    contenders: dict[str, tuple[Callable, bool]] = {"one, two threads": (one_process, False)}
    for name in ("1f1b", "gpipe"):
        pipe = dist.Pipeline(blocks(), loss, micro_batches=8, schedule=name)
        contenders[f"two stages, {name}"] = (lambda pipe=pipe: two_stages(pipe), True)
    return in_turns(contenders, rounds)


def _stage_3() -> Callable:
    """A step of eight blocks of two linear layers of 1,024 and 4,096 numbers over 64 rows for each of two processes, with Adam: 67 million
    parameters, of which each process keeps half."""
    net = dist.DataParallel(M.Sequential(*[M.Sequential(M.Linear(1024, 4096), M.GELU(), M.Linear(4096, 1024)) for _ in range(8)]))
    opt, gm = dist.shard(net, Adam(net.parameters(), lr=1e-4), stage=3), GradManager().attach(list(net.parameters()))
    x = np.random.default_rng(0).standard_normal((128, 1024)).astype(np.float32)

    def step() -> None:
        tengen.set_threads(1)
        for (xb,) in net.micro_batches(x):
            with gm:
                gm.backward((net(tengen.Tensor(xb)) ** 2).mean())
        opt.step().clear_grad()

    return step


def _fsdp(torch: Any) -> Callable:
    """The same step of PyTorch's FSDP, each block a unit of its own."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    nn, mesh = torch.nn, init_device_mesh("cpu", (2,))
    torch.set_num_threads(1)
    net = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(8)])
    for block in net:
        fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh)
    opt = torch.optim.Adam(net.parameters(), lr=1e-4)
    x = torch.from_numpy(np.random.default_rng(dist.get_rank()).standard_normal((64, 1024)).astype(np.float32))

    def step() -> None:
        opt.zero_grad()
        (net(x) ** 2).mean().backward()
        opt.step()

    return step


def shared_out(rounds: int) -> dict[str, list[float]]:
    """Seconds of a step at stage 3, and of FSDP's."""
    contenders = {"Tengen, stage 3": (_stage_3(), True)}
    if (torch := torch_in_the_job()) is not None:
        contenders["PyTorch FSDP"] = (_fsdp(torch), True)
    return in_turns(contenders, rounds)


def memory(name: str) -> dict[str, int] | None:
    """Bytes that are resident in this process above those before the network was made: behind a step, and the most during one, of the
    third; None where there is no such contender."""
    torch = torch_in_the_job() if name == "PyTorch FSDP" else None
    if torch is None and name == "PyTorch FSDP":
        return None
    dist.group_barrier()
    base = resident("VmRSS")
    step = _stage_3() if torch is None else _fsdp(torch)
    for _ in range(2):
        step()
    forget_peak()
    step()
    return {"peak": resident("VmHWM") - base, "behind a step": resident("VmRSS") - base}


def memories() -> dict[str, dict[str, int]]:
    """What the fuller of two processes holds, by contender, each in a job of its own; and what ZeRO's formula says."""
    n = 8 * (2 * 1024 * 4096 + 1024 + 4096)
    found = {"ZeRO's formula": {"peak": 16 * n // 2, "behind a step": 16 * n // 2}}  # parameters, gradients, two states of Adam
    for name in ("Tengen, stage 3", "PyTorch FSDP"):
        ranks = dist.launcher(memory, n_gpus=2)(name)
        if ranks[0] is not None:
            found[name] = {k: max(r[k] for r in ranks) for k in ranks[0]}
    return found


def checkpoints(rounds: int) -> dict[str, list[float]]:
    """Seconds of a step on 1 GB of parameters, and for how long a checkpoint holds it up: with Tengen's, and with PyTorch's `async_save`."""
    net = M.Sequential(*[M.Linear(8192, 8192, bias=False) for _ in range(4)])
    opt = SGD(net.parameters(), lr=1e-3)
    for p in net.parameters():
        p.grad = tengen.Tensor(np.full(p.shape, 1e-3, np.float32))
    update = tengen.trace(lambda: opt.step(), symbolic=True)
    found: dict[str, list[float]] = {}
    torch = torch_in_the_job()

    def timed(name: str, call: Callable, counts: bool) -> Any:
        dist.group_barrier()
        start = time.perf_counter()
        result = call()
        if counts:
            found.setdefault(name, []).append(time.perf_counter() - start)
        return result

    folder = tempfile.mkdtemp(prefix="tengen-checkpoint-") if dist.get_rank() == 0 else ""
    folder = bytes(F.distributed.broadcast(tengen.Tensor(np.frombuffer(folder.encode().ljust(256, b"\0"), np.uint8).copy())).numpy())
    path = Path(folder.rstrip(b"\0").decode())
    for i in range(rounds + 1):
        timed("a step", update, i > 0)
        saving = timed("save_checkpoint_async", lambda: dist.save_checkpoint_async(path / "run.tgc", net=net), i > 0)
        timed("the step behind it", update, i > 0)
        while not saving.done():
            time.sleep(0.01)
        timed("its wait, once it is written", saving.wait, i > 0)
        timed("save_checkpoint", lambda: dist.save_checkpoint(path / "run.tgc", net=net), i > 0)
        if torch is not None:
            import torch.distributed.checkpoint as theirs

            state = {name: torch.from_numpy(a) for name, a in net.state_dict().items()}
            saving = timed("PyTorch async_save", lambda state=state: theirs.async_save(state, checkpoint_id=path / "torch"), i > 0)
            saving.result()
    dist.group_barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(path)
    return found


def starts(rounds: int) -> dict[str, list[float]]:
    """Seconds from the start of a program to its end, which adds one number over its processes."""
    text = "from tengen import distributed as d, functional as F, Tensor; F.distributed.all_reduce_sum(Tensor([1.0])).numpy()"
    found: dict[str, list[float]] = {"one process": [], "two processes": []}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(text)
        for i in range(rounds + 1):
            for name, command in (("one process", [str(program)]), ("two processes", ["-m", "tengen", "run", "-n", "2", str(program)])):
                start = time.perf_counter()
                subprocess.run([sys.executable, *command], check=True, env=os.environ)
                if i:
                    found[name].append(time.perf_counter() - start)
    return found


def show(title: str, rows: dict[str, list[float]]) -> None:
    """Medians, and each one's ratio to the first with its spread over the rounds."""
    print(f"\n{title}")
    first = next(iter(rows.values()))
    for name, times in rows.items():
        ratios = sorted(t / f for t, f in zip(times, first))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"  {name:22} {compare.duration(statistics.median(times)):>10}   {spread} of {next(iter(rows))}")


def show_memory(title: str, rows: dict[str, dict[str, int]]) -> None:
    """Bytes of each contender."""
    print(f"\n{title}")
    for name, row in rows.items():
        print(f"  {name:22} " + "   ".join(f"{kind}: {n / 2**20:,.0f} MiB" for kind, n in row.items()))


def main() -> None:
    """Measures all, prints it, and writes it beside the other results of this processor."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default 7)")
    parser.add_argument("--only", default="", help="only tables with this text in their names")
    parser.add_argument("--processes", type=int, default=2, help="of the sums and steps (default 2)")
    args = parser.parse_args()
    more = "" if args.processes == 2 else f", {args.processes} processes"
    jobs: dict[str, Callable[[], dict]] = {"start": lambda: {"start": starts(args.rounds)}}
    jobs["sums"] = lambda: {f"sum of {k}{more}": v for k, v in dist.launcher(sums, n_gpus=args.processes)(args.rounds)[0].items()}
    for name in STEPS:
        jobs[f"step of {name}"] = lambda name=name: {f"step of {name}{more}": dist.launcher(steps, n_gpus=args.processes)(name, args.rounds)[0]}
    jobs["pipeline"] = lambda: {"pipeline": dist.launcher(pipelines, n_gpus=2)(args.rounds)[0]}
    jobs["stage 3"] = lambda: {"stage 3": dist.launcher(shared_out, n_gpus=2)(args.rounds)[0]}
    jobs["memory"] = lambda: {"memory at stage 3": memories()}
    jobs["checkpoint"] = lambda: {"checkpoint of 1 GB": dist.launcher(checkpoints, n_gpus=2)(args.rounds)[0]}
    found: dict[str, dict] = {}
    for job in (j for name, j in jobs.items() if args.only in name):
        for title, rows in job().items():
            (show_memory if title.startswith("memory") else show)(title, rows)
            found[title] = rows
    file = compare.RESULTS / compare.folder_of(compare.machine()["processor"]) / "distributed.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(file.read_text())["tables"] if file.exists() else {}
    file.write_text(json.dumps({"machine": compare.machine(), "tables": before | found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
