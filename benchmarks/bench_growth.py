"""How the cost grows: batch, resolution, sequence, width, depth. Time for a unit of work should stay flat or fall.

Each point is traced inference (or a traced training step) beside PyTorch's, eager and channels-last where there are
convolutions. Work is counted from the sizes: images, pixels, or operations. Out: a table, and plots/growth.png.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import compare
import numpy as np
import peers
from compare import Case, Row
from networks import NETWORKS, VOCABULARY, Network, Trainer

import tengen
import tengen.functional as F
import tengen.module as M

FLAT = 1.1  # times the least time of a unit so far
torch = compare.peer("torch")


@dataclass
class Sweep:
    """One quantity that grows.

    Attributes:
        name: what grows, of what. unit: what is counted. points: its values; few: those of --quick.
        work: units at a value. case: the contenders at a value.
    """

    name: str
    unit: str
    points: tuple[int, ...]
    few: tuple[int, ...]
    work: Callable[[int], float]
    case: Callable[[int], dict[str, Callable]]


def pair(network: Network, batch: int, shape: tuple[int, ...] | None = None, **options) -> dict[str, Callable]:
    """Traced inference of a network, and PyTorch's."""
    net, data = network.tengen(**options), network.data(batch, shape=shape)
    run, x = tengen.trace(net, capture_as_const=True), tengen.Tensor(data)
    found: dict[str, Callable] = {"tengen": lambda: run(x)}
    if torch:
        found |= compare.attempt("torch", lambda: peers.torch_call(network.torch(net, **options), network, data, False))
    return found


def steps(network: Network, batch: int) -> dict[str, Callable]:
    """A traced training step, and PyTorch's."""
    mine = Trainer(network, batch, traced=True)
    found: dict[str, Callable] = {"tengen": mine.step}
    if torch:
        style = "channels-last" if network.convolutions else "eager"
        found |= compare.attempt("torch", lambda: peers.TorchTrainer(network, mine.net, batch, style).step)
    return found


def plain(width: int, depth: int, rows: int = 64) -> dict[str, Callable]:
    """`depth` linear maps of one width with GELU between them."""
    tengen.random.seed(1)
    maps = [M.Linear(width, width) for _ in range(depth)]
    data = np.random.default_rng(0).standard_normal((rows, width), np.float32)

    def forward(x):
        for m in maps:
            x = F.gelu(m(x))
        return x

    run, x = tengen.trace(forward, capture_as_const=True), tengen.Tensor(data)
    found: dict[str, Callable] = {"tengen": lambda: run(x)}
    if torch:
        pairs = [[torch.from_numpy(np.array(t.numpy())) for t in (m.weight, m.bias)] for m in maps]

        def theirs(x=torch.from_numpy(data)):
            with torch.inference_mode():
                for w, b in pairs:
                    x = torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b))
                return x

        found["torch"] = theirs
    return found


def gpt_work(tokens: int, layers: int = 6, width: int = 384) -> float:
    """Operations of a GPT's forward pass: products with weights, causal attention (half of the square), the head."""
    return 2.0 * tokens * (12 * layers * width**2 + layers * tokens * width + width * VOCABULARY)


def sweeps() -> list[Sweep]:
    """All of them."""
    resnet, mobile, gpt, lenet = (NETWORKS[n] for n in ("ResNet-18", "MobileNetV2", "GPT", "LeNet"))
    small = {"layers": 2, "width": 128, "heads": 2}
    return [
        Sweep("batch, MobileNetV2", "image", (1, 2, 4, 8, 16, 32, 64), (1, 4), float, lambda n: pair(mobile, n)),
        Sweep("batch, training step of LeNet", "image", (1, 4, 16, 64), (1, 4), float, lambda n: steps(lenet, n)),
        Sweep(
            "resolution, ResNet-18", "pixel", (64, 96, 128, 224, 384, 512), (64, 96), lambda n: float(n * n),
            lambda n: pair(resnet, 1, (3, n, n)),
        ),
        Sweep(
            "sequence, GPT 2 x 128", "operation", (64, 128, 256, 512, 1024, 2048, 4096), (64, 128),
            lambda n: gpt_work(n, 2, 128), lambda n: pair(gpt, 1, (n,), context=n, **small),
        ),
        Sweep(
            "width, 4 linear maps", "operation", (64, 128, 256, 512, 1024, 2048), (64, 128), lambda n: 8.0 * 64 * n * n,
            lambda n: plain(n, 4),
        ),
        Sweep("depth, linear maps of 256", "layer", (1, 2, 4, 8, 16, 32, 64), (1, 2), float, lambda n: plain(256, n)),
        Sweep(
            "depth, GPT", "layer", (1, 2, 4, 8, 12), (1, 2), float,
            lambda n: pair(gpt, 1, (64,), layers=n, width=128, heads=2),
        ),
    ]  # fmt: skip


def measured(sweep: Sweep, args) -> list[Row]:
    """A row for each point: its time beside the peer's, and whether a unit of work takes at most FLAT times as long as at a smaller
    one. That is asked of rounds in which all points take turns: minutes apart, a machine with neighbours differs by more."""
    rows, calls = {}, {}
    for n in sweep.few if args.quick else sweep.points:
        name = f"{sweep.name}: {n}"
        try:
            case = Case(name, sweep.case(n), tolerance=(5e-4, 1e-5))
            if "training" not in sweep.name:
                compare.agree(case)
            rows[n] = compare.measure(case, args)[0]
            rows[n].work, rows[n].unit = sweep.work(n), sweep.unit
            rows[n].goal = {"text": f"each {sweep.unit} <= {FLAT:g} of the least before"}
            calls[n] = case.contenders["tengen"]
        except Exception as e:
            rows[n] = Row(name, error=f"{type(e).__name__}: {' '.join(str(e).split())[:160]}")
    times, _ = compare.run_rounds(Case(sweep.name, {str(n): call for n, call in calls.items()}), args)
    each = {n: np.array(times[str(n)]) / rows[n].work for n in calls}
    least = None
    for n, mine in each.items():
        rows[n].seconds["tengen"] = float(np.median(times[str(n)]))
        rows[n].reached = least is None or bool(np.median(mine / each[least]) <= FLAT)
        if least is None or np.median(mine / each[least]) < 1:
            least = n
    print(compare.format_rows(list(rows.values())), flush=True)
    return list(rows.values())


def main() -> None:
    args = compare.arguments("growth", 1.5)
    load, rows = os.getloadavg(), []
    for sweep in compare.progress([s for s in sweeps() if args.only in s.name], "growth"):
        rows += measured(sweep, args)
    compare.finish("growth", "How the cost grows", rows, load, args)


if __name__ == "__main__":
    main()
