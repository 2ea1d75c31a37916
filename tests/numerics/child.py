"""Runs programs by chance in this process and keeps their results: python child.py out.npz seed..."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np

for folder in ("..", "../kernels", "../codegen"):
    sys.path.append(str(Path(__file__).resolve().parent / folder))

from programs import draw  # noqa: E402  (after the path is set)
from training import steps  # noqa: E402  (after the path is set)
from ways import eager, traced  # noqa: E402  (after the path is set)


def results(seeds) -> dict[str, np.ndarray]:
    """All results of all programs, eager and traced, and of two training steps; by name."""
    found = {}
    for seed in seeds:
        p = draw(random.Random(seed))
        for i, a in enumerate(eager(p.call, p.inputs)):
            found[f"eager {seed} {i}"] = a
        for i, a in enumerate(traced(p.call, p.inputs)[1]):
            found[f"traced {seed} {i}"] = a
    for kind in ("lenet", "mlp"):
        found |= {f"{kind} {name}": a for name, a in steps(kind, as_trace=True).items()}
    return found


if __name__ == "__main__":
    np.savez(sys.argv[1], **results(map(int, sys.argv[2:])))
