"""What training in many processes would take: time of a step, memory, and the mesh that is best, without running it.

In: a network's counts (`work_of`), a machine and a network of machines (`Network`). Out: `Plan`s. A step's time is that of its operations, at
the rate that the network reaches in one process, and of its exchanges, each by latency and bandwidth:

    time of an exchange = messages one after another * latency + bytes through one process / bandwidth

Of P processes, data x tensor x pipeline. With M micro-batches in each copy of the network, a step is M + pipeline - 1 times the work of a stage
for one micro-batch, then the gradients. Nothing is assumed to overlap. Bytes are those that `DataParallel`, `shard` and `Pipeline` move.

Sources: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH", 2005 (ring, tree); P. Sanders,
J. Speck, J. Traff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009; D. Narayanan and others, arXiv 2104.04473.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from math import ceil, inf, log2
from typing import Any

import numpy as np

from tengen.autodiff import GradManager
from tengen.base.errors import DistributedError
from tengen.base.record import NamedTuple, record
from tengen.distributed.data_parallel import DataParallel
from tengen.kernels.numerics import CHUNK_TERMS
from tengen.module import Linear, Module
from tengen.tensor import Tensor
from tengen.transport.group import Group, world
from tengen.utils.summary import summary

ALGORITHMS = ("all-to-all", "ring", "tree", "double tree")


@record(frozen=True)
class Link:
    """latency: seconds of a message. bandwidth: bytes a second, of one process in one direction."""

    latency: float
    bandwidth: float

    def exchange(self, n: int, nbytes: float) -> float:
        """Seconds of an all-gather or an all-to-all among n processes: of `nbytes` in all, each gets all parts but its own."""
        return 0.0 if n == 1 else (n - 1) * self.latency + nbytes * (n - 1) / n / self.bandwidth

    def all_reduce(self, n: int, nbytes: float, algorithm: str = "all-to-all") -> float:
        """Seconds until each of n processes has the sum of arrays of `nbytes`. "all-to-all": Tengen's, shards to whoever adds them, in the
        order of the ranks, then gathered. The others add in an order of their own. Errors: ValueError for another algorithm."""
        if algorithm not in ALGORITHMS:
            raise ValueError(f"all_reduce: algorithm={algorithm!r} must be one of {', '.join(ALGORITHMS)}")
        if n == 1:
            return 0.0
        depth = ceil(log2(n))
        if algorithm == "tree":
            return 2 * depth * (self.latency + nbytes / self.bandwidth)
        if algorithm == "double tree":
            return 2 * depth * self.latency + 2 * nbytes / self.bandwidth
        return 2 * self.exchange(n, nbytes)


@record(frozen=True)
class Network:
    """Machines with `node` processes each. inside: the link within a machine, outside: between two, of which its processes have a share."""

    node: int
    inside: Link
    outside: Link

    def among(self, n: int, apart: int = 1) -> Link:
        """The link of a group of n processes whose numbers are `apart`: that between machines where they are on several."""
        return self.inside if (n - 1) * apart < self.node else self.outside


NETWORKS = {
    "machine": Network(1 << 30, Link(2e-6, 8e9), Link(2e-6, 8e9)), "ethernet-10g": Network(8, Link(2e-6, 8e9), Link(3e-5, 1.1e9 / 8)),
    "ethernet-100g": Network(8, Link(2e-6, 8e9), Link(1e-5, 11e9 / 8)), "infiniband-hdr": Network(8, Link(2e-6, 8e9), Link(2e-6, 23e9 / 8)),
    "infiniband-ndr": Network(8, Link(2e-6, 8e9), Link(2e-6, 46e9 / 8)),
}  # fmt: skip


class Layer(NamedTuple):
    """A layer's counts for one sample: multiplications with their additions, parameters, bytes of its result; of a linear layer
    the extents of its weight, which tensor parallelism cuts: other layers are computed whole."""

    operations: float
    parameters: int
    bytes: float
    widths: tuple[int, ...]


@record(frozen=True)
class Work:
    """What a network computes: its layers, and the bytes that one of its parameters takes."""

    layers: tuple[Layer, ...]
    itemsize: int = 4

    @property
    def parameters(self) -> int:
        """Numbers that are trained."""
        return sum(a.parameters for a in self.layers)

    @property
    def operations(self) -> float:
        """Of one sample's forward."""
        return sum(a.operations for a in self.layers)


def work_of(net: Module, *inputs: Any) -> Work:
    """The counts of a network, by `tengen.summary`: of its innermost modules, in the order of their calls, for each sample of its
    inputs' axis 0.

    >>> from tengen import functional as F, module as M
    >>> work_of(M.Sequential(M.Linear(4, 3), M.ReLU()), F.ones((2, 4))).parameters
    15
    """
    found, modules = summary(net, *inputs), dict(net.named_modules())
    samples = len(inputs[0])
    parents = {r.path.rpartition(".")[0] for r in found.rows if r.path}
    layers = []
    for r in found.rows:
        m = modules.get(r.path)
        if r.path not in parents and (r.path or len(found.rows) == 1) and r.calls:
            widths = (m.weight.shape[0], m.weight.shape[1]) if isinstance(m, Linear) else ()
            layers.append(Layer(r.operations / samples, r.parameters, r.bytes / samples, widths))
    missing = found.parameters - sum(a.parameters for a in layers)  # that a module with others inside has itself
    return Work((*layers, Layer(0.0, missing, 0.0, ())) if missing > 0 else tuple(layers))


def measured_rate(net: Module, *inputs: Any, repeat: int = 3, clock: Callable[[], float] = time.perf_counter) -> float:
    """Floating-point operations a second that steps of a network reach in this process: three times the forward's, by the shortest of
    `repeat` steps. The last result is summed in place of a loss. clock: gives seconds; `time.process_time` for those of the processor."""
    work = work_of(net, *inputs)
    gm = GradManager().attach(net.parameters())
    tensors = [x if isinstance(x, Tensor) else Tensor(x) for x in inputs]
    best = inf
    for _ in range(repeat + 1):  # the first one compiles
        start = clock()
        with gm:
            gm.backward(net(*tensors).sum())
        best = min(best, clock() - start)
        for p in net.parameters():
            p.grad = None
    return 6 * work.operations * len(tensors[0]) / best


def measured_handling(net: Module, *inputs: Any, repeat: int = 3, clock: Callable[[], float] = time.perf_counter) -> float:
    """Bytes of a network's gradients a second that `DataParallel` packs and adds in this process: by the shortest of `repeat` steps of two
    micro-batches, whose gradients are there already. clock: as of `measured_rate`."""
    gm = GradManager().attach(net.parameters())
    with gm:
        gm.backward(net(*(x if isinstance(x, Tensor) else Tensor(x) for x in inputs)).sum())
    there = [(p, p.grad) for p in net.parameters()]
    alone, best = DataParallel(net, Group([world().rank]), micro_batches=2), inf
    for _ in range(repeat + 1):
        start = clock()
        for _ in alone.micro_batches(np.zeros(2, np.float32)):
            for p, g in there:
                p.grad = g
        best = min(best, clock() - start)
        for p, _ in there:
            p.grad = None
    return 2 * sum(g.size * g.dtype.size for _, g in there if g is not None) / best


@record(frozen=True)
class Plan:
    """One way to train on P processes.

    Attributes: data, tensor, pipeline: the mesh. stage: of ZeRO; 0: nothing is shared out. micro_batches: of each copy. seconds: of a
        step; of which compute, waiting (for other stages), exchange (with what packs and adds gradients). memory: bytes of a process.
        received: bytes that exchanges bring to a process in a step. again: the share of the micro-batches whose forward is computed once more
        in the backward, in place of being kept (`Pipeline(memory_budget=)`).
    """

    data: int
    tensor: int
    pipeline: int
    stage: int
    micro_batches: int
    compute: float
    waiting: float
    exchange: float
    memory: float
    received: float
    again: float = 0.0

    @property
    def ranks(self) -> int:
        """How many processes."""
        return self.data * self.tensor * self.pipeline

    @property
    def seconds(self) -> float:
        """Of a step."""
        return self.compute + self.waiting + self.exchange


def plan(
    work: Work, network: Network, rate: float, batch: int, data: int = 1, tensor: int = 1, pipeline: int = 1, stage: int = 0,
    micro_batches: int = 1, states: int = 2, algorithm: str = "all-to-all", handling: float = inf, again: int = 0,
) -> Plan:  # fmt: skip
    """What one mesh takes.

    Args: rate: floating-point operations a second of a process. batch: samples of a step, in all. micro_batches: of each copy of the
        network. states: numbers that the optimizer keeps for each parameter; Adam: 2. algorithm: of tensor parallel's sums.
        handling: bytes of gradients a second that a process packs and adds (`measured_handling`), which are a part of the exchange. again: how
        many of the micro-batches that a process holds at once are not kept, but for what some runs of layers are given, and computed again.
    """
    part = lambda field: sum(getattr(a, field) / (tensor if a.widths else 1) for a in work.layers) / pipeline  # what a process has of all
    n, b = part("parameters") * work.itemsize, batch / data / micro_batches  # bytes; samples of a micro-batch
    live = min(micro_batches, pipeline)  # micro-batches that a process holds at once
    share = again / live
    each, rows = (6 + 2 * share) * part("operations") * b / rate, [a for a in work.layers if a.widths]
    # Megatron: the second product of each pair is a sum, whose addends are this process's chunks, and so is the gradient of the first one's
    # operand; the sums' parts are gathered for what follows, and the first one's operand again for its weight's gradient
    sums = [(a.bytes * b, a.widths[1] / (CHUNK_TERMS * tensor)) for a in rows[1::2]]
    link = network.among(tensor)
    tengens = lambda s, chunks: 2 * link.exchange(tensor, chunks * s) + 3 * link.exchange(tensor, s)
    others = lambda s, chunks: 2 * link.all_reduce(tensor, s, algorithm)
    each_tensor = (1 + share / 2) * sum((tengens if algorithm == "all-to-all" else others)(s, chunks) for s, chunks in sums) / pipeline
    passed = max((a.bytes for a in work.layers), default=0.0) * b / tensor
    each_passed = 0.0 if pipeline == 1 else 2 * (network.among(2, tensor * data).latency + passed / network.among(2, tensor * data).bandwidth)
    among = network.among(data, tensor)
    scatter, gather = among.exchange(data, n), among.exchange(data, n)
    gathers = {0: 1.0, 1: 2.0, 2: 1.0, 3: 2.0 * micro_batches}[stage]  # of gradients; and of parameters; of these alone; ahead of each use
    exchange = micro_batches * (scatter + n / handling) + gathers * gather
    other = (data - 1) / data
    received = (micro_batches + gathers) * n * other + micro_batches * (
        (1 + share / 2) * sum((2 * chunks + 3) * s * (tensor - 1) / tensor for s, chunks in sums) / pipeline
        + (2 * passed if pipeline > 1 else 0.0)
    )
    kept = [1.0 if data == 1 or stage < s else 1 / data for s in (3, 2, 1)]  # of parameters, gradients, states
    layer = max((a.parameters / (tensor if a.widths else 1) for a in work.layers), default=0) * work.itemsize
    whole = (2 if pipeline == 1 else 3) * layer if stage == 3 and data > 1 else 0.0  # what is used, what is on its way, and was used before
    activations = _activations(part("bytes") * b, passed, live, again, ceil(len(work.layers) / pipeline))
    return Plan(
        data, tensor, pipeline, stage, micro_batches, micro_batches * each, (pipeline - 1) * (each + each_tensor + each_passed),
        micro_batches * (each_tensor + each_passed) + exchange, n * (kept[0] + kept[1] + states * kept[2]) + whole + activations, received,
        share,
    )  # fmt: skip


def _activations(full: float, given: float, live: int, again: int, layers: int) -> float:
    """Bytes of activations of `live` micro-batches of `full` bytes, of which some are computed again, in the number of runs of layers that
    takes the least memory; given: bytes of what a run is given."""
    if not again:
        return live * full
    return (live - again) * full + min(runs * again * given + full / runs for runs in range(1, layers + 1))


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def plans(
    work: Work, network: Network, rate: float, batch: int, ranks: int, memory: float = inf, states: int = 2, algorithm: str = "all-to-all",
    handling: float = inf,
) -> Iterator[Plan]:  # fmt: skip
    """Every mesh of so many processes that fits: each copy has a sample at least, each stage a layer, each part of a sum whole chunks of
    the numerics contract, and a process no more than `memory` bytes; with the least stage of ZeRO that does without computing anything again,
    and those below it that do with as little of that as they need."""
    layers = sum(1 for a in work.layers if a.parameters)
    rows = [a.widths for a in work.layers if a.widths]
    summed = [w[0] for w in rows[::2]] + [w[1] for w in rows[1::2]]
    for tensor in _divisors(ranks):
        if tensor > 1 and (len(rows) < 2 or any(w % (CHUNK_TERMS * tensor) for w in summed)):
            continue
        for pipeline in _divisors(ranks // tensor):
            data = ranks // tensor // pipeline
            if pipeline > max(layers, 1) or data > batch:
                continue
            most = batch // data
            counts = sorted({m for k in range(most.bit_length()) for m in (1 << k, pipeline << k) if m <= most})
            for m in counts:
                for stage in (0,) if data == 1 else (0, 1, 2, 3):
                    every = (
                        plan(work, network, rate, batch, data, tensor, pipeline, stage, m, states, algorithm, handling, again)
                        for again in (range(min(m, pipeline) + 1) if stage < 3 else (0,))  # at stage 3 nothing is computed again
                    )
                    found = next((p for p in every if p.memory <= memory), None)
                    if found is not None:
                        yield found
                        if not found.again:
                            break


def best(*args: Any, **kwargs: Any) -> Plan:
    """The plan of `plans` whose step is shortest. Errors: DistributedError where none fits."""
    found = min(plans(*args, **kwargs), key=lambda p: (p.seconds, p.stage, p.tensor, p.pipeline), default=None)
    if found is None:
        raise DistributedError("no mesh fits: there are fewer samples, layers or bytes than it would take; help: a larger batch, more memory")
    return found


class Point(NamedTuple):
    """ranks, and a strategy's step with them; None where it does not fit."""

    ranks: int
    plan: Plan | None


STRATEGIES = {
    "data": lambda p: p.tensor == p.pipeline == 1, "tensor": lambda p: p.data == p.pipeline == 1,
    "pipeline": lambda p: p.data == p.tensor == 1, "best": lambda p: True,
}  # fmt: skip


def curves(work: Work, network: Network, rate: float, batch: int, ranks: int, memory: float = inf, **kwargs: Any) -> dict[str, list[Point]]:
    """Each strategy's fastest step with 1, 2, 4 ... processes, up to `ranks`."""
    found: dict[str, list[Point]] = {name: [] for name in STRATEGIES}
    n = 1
    while n <= ranks:
        every = list(plans(work, network, rate, batch, n, memory, **kwargs))
        for name, fits in STRATEGIES.items():
            found[name].append(Point(n, min((p for p in every if fits(p)), key=lambda p: p.seconds, default=None)))
        n *= 2
    return found


def stops(points: Sequence[Point], gain: float = 1.1) -> int | None:
    """The number of processes from which on twice as many do not make a step `gain` times as fast; None where it never stops, 0 where it
    does not fit one process and no other number."""
    there = [p for p in points if p.plan is not None]
    if not there:
        return 0
    for a, b in zip(points, points[1:]):
        if a.plan is not None and (b.plan is None or a.plan.seconds < gain * b.plan.seconds):
            return a.ranks
    return None


def all_reduce_table(network: Network, nbytes: float, ranks: int) -> list[tuple[int, dict[str, float]]]:
    """Seconds of an all-reduce by each algorithm, with 2, 4, 8 ... processes."""
    sizes = 2 ** np.arange(1, max(1, int(log2(max(ranks, 2)))) + 1)
    return [(int(n), {a: network.among(int(n)).all_reduce(int(n), nbytes, a) for a in ALGORITHMS}) for n in sizes]


def picture(points: dict[str, list[Point]]) -> str:
    """An SVG file: seconds of a step over the number of processes, both logarithmic, a line for each strategy."""
    wide, high, edge = 640, 400, 60
    there = [(p.ranks, p.plan.seconds) for row in points.values() for p in row if p.plan is not None]
    last, (low, top) = max(max(n for n, _ in there), 2), (min(s for _, s in there), max(s for _, s in there))
    x = lambda n: edge + (wide - 2 * edge) * log2(n) / log2(last)
    y = lambda s: high - edge - (high - 2 * edge) * (log2(s / low) / log2(top / low) if top > low else 0.5)
    colours = dict(zip(points, ("#1f77b4", "#ff7f0e", "#2ca02c", "#000000")))
    text = lambda a, b, words, more="": f'<text x="{a:.1f}" y="{b:.1f}" font-family="sans-serif" font-size="12" {more}>{words}</text>'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}"><rect width="100%" height="100%" fill="white"/>']
    for n in sorted({n for n, _ in there}):
        parts.append(text(x(n), high - edge + 18, n, 'text-anchor="middle"'))
    for s in (low, top):
        parts.append(text(edge - 6, y(s) + 4, f"{s:.3g} s", 'text-anchor="end"'))
    for i, (name, row) in enumerate(points.items()):
        line = " ".join(f"{x(p.ranks):.1f},{y(p.plan.seconds):.1f}" for p in row if p.plan is not None)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colours[name]}" stroke-width="2"/>')
        parts.append(text(edge + 8, edge + 16 * i, name, f'fill="{colours[name]}"'))
    parts.append(text(wide / 2, high - 12, "processes", 'text-anchor="middle"'))
    return "\n".join([*parts, "</svg>\n"])
