"""What `tengen.tune` gains: programs with tuned schedules beside the same programs with the rule's, bit by bit the same
results.

The tuning itself, half a minute for each program, is not timed. Schedules go to a cache of this benchmark's own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

import compare
import numpy as np
from compare import Case, Cell, Goal

import tengen
import tengen.functional as F
from tengen import Tensor
from tengen.base.config import config

SECONDS = 30.0
NO_SLOWER = 1.02  # where the rule's schedule stays, both are one program, whose ratio is 1 give or take what the machine does


def data(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).standard_normal(shape).astype("f4"))


def case(name: str, seconds: float, f: Callable, *args: Tensor) -> Case:
    """A program as the rule has it, and as tuning leaves it."""
    plain, tuned = (tengen.trace(f, capture_as_const=isinstance(f, tengen.module.Module), example_input=args) for _ in range(2))
    want = plain(*args).numpy().tobytes()
    print(tengen.tune(tuned, seconds, inputs=args), flush=True)
    assert tuned(*args).numpy().tobytes() == want
    return Case(name, {"tengen": lambda: tuned(*args), "by rule": lambda: plain(*args)}, Goal(NO_SLOWER, "by rule"))


def cells(seconds: float) -> list[Cell]:
    """Two products, the convolutions of a ResNet's first stage, and a network."""

    def one(name: str, f: Callable, *shapes: tuple[int, ...], quick: bool = False) -> Cell:
        return Cell(name, lambda: case(name, seconds, f, *(data(*s) for s in shapes)), quick)

    return [
        one("matmul 512 x 512 x 512", lambda a, b: a @ b, (512, 512), (512, 512), quick=True),
        one("matmul 64 x 512 x 2048", lambda a, b: a @ b, (64, 512), (512, 2048)),
        one("conv 3x3, 64 to 64, 56 x 56", lambda x, w: F.conv2d(x, w, padding=1), (1, 64, 56, 56), (64, 64, 3, 3)),
        one("conv 1x1, 256 to 64, 56 x 56", lambda x, w: F.conv2d(x, w), (1, 256, 56, 56), (64, 256, 1, 1)),
        one("ResNet-18, batch 1, 64 x 64", tengen.models.resnet18().eval(), (1, 3, 64, 64)),
        one("ResNet-18, batch 1, 224 x 224", tengen.models.resnet18().eval(), (1, 3, 224, 224)),
    ]


def main() -> None:
    args = compare.arguments("tune")
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder, config.scope(cache_dir=os.path.join(folder, "cache")):
        compare.main("tune", "What tuning gains", cells(2.0 if args.quick else SECONDS), load=load, args=args)


if __name__ == "__main__":
    main()
