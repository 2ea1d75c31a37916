"""Inference of whole networks at batch 1 and 8, float32: Tengen traced with its weights as constants, and eager.

The peers run the independent PyTorch definition with the same weights: onnxruntime and OpenVINO as an ONNX file exported from
it, torch.compile with freezing, PyTorch eager channels-last. Outputs are compared before anything is timed.
"""

from __future__ import annotations

from functools import partial

import compare
import peers
from compare import Case, Cell, Goal
from networks import NETWORKS, Inference
from roof import roof

# The speed to reach, in that of the fastest peer, at batch 1 and 8
AIMS = {
    "ResNet-18": (1.3, 1.5), "ResNet-50": (1.15, 1.3), "MobileNetV2": (1.15, 1.2), "ViT-Tiny": (1.15, 1.2), "GPT": (1.1, 1.1),
}  # fmt: skip


def inference(name: str, batch: int, only: tuple[str, ...] = peers.INFERENCE) -> Case:
    """One network at one batch size."""
    network = NETWORKS[name]
    mine = Inference(network, batch)
    contenders = {"tengen": mine.traced, "tengen eager": mine.eager}
    peers.forget()
    for who in only:
        contenders |= compare.attempt(who, partial(peers.inference, network, mine.net, mine.data, who))
    aim = AIMS[name][batch > 1]
    work = 1e9 * network.forward * batch
    return Case(
        f"{name}, batch {batch}", contenders, Goal(1 / aim, "fastest"), work, tolerance=(2e-4, 1e-5), roof=roof("FLOP")
    )


def cells(quick: bool) -> list[Cell]:
    """The row's cells; quickly, without the peer that compiles for a minute."""
    only = tuple(who for who in peers.INFERENCE if not quick or who != "torch.compile")
    fast = {("MobileNetV2", 1), ("GPT", 1)}
    return [
        Cell(f"{name}, batch {batch}", partial(inference, name, batch, only), (name, batch) in fast)
        for batch in (1, 8)
        for name in AIMS
    ]


if __name__ == "__main__":
    args = compare.arguments("inference", 20.0)
    compare.main("inference", "Inference of whole networks, float32", cells(args.quick), args=args)
