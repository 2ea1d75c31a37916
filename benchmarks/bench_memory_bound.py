"""Operations on 64 MiB that are limited by memory: eager calls, each with a fresh result, as a user writes them.

The rate counts the bytes that must move: every input read once, every result written once.
"""

from __future__ import annotations

from functools import partial

import compare
import numpy as np
from compare import Case, Goal

import tengen
import tengen.functional as F

torch = compare.peer("torch")
ROWS, COLUMNS = 4096, 4096
ARRAY = ROWS * COLUMNS * 4  # bytes: 64 MiB


def pair(*arrays: np.ndarray) -> tuple[list, list]:
    """The arrays as Tengen's tensors and as PyTorch's."""
    return [tengen.Tensor(a) for a in arrays], [torch.from_numpy(a) for a in arrays] if torch else []


def noise(*shape: int) -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(0).standard_normal(shape, np.float32)


# name -> (Tengen's call, PyTorch's, number of operands, 64 MiB arrays that move, goal, relative tolerance)
OPS = {
    "softmax of axis 1": (lambda x: F.softmax(x, 1), lambda x: torch.softmax(x, 1), 1, 2, Goal(0.5), 1e-5),
    "layer norm": (
        lambda x: F.layer_norm(x, COLUMNS, affine=False),
        lambda x: torch.nn.functional.layer_norm(x, (COLUMNS,)), 1, 2, None, 1e-5,
    ),
    "chain of 4 adds": (lambda a, b: a + b + a + b + a, lambda a, b: a + b + a + b + a, 2, 12, Goal(0.5), 1e-6),
    "relu": (F.relu, lambda x: torch.relu(x), 1, 2, None, 0.0),
    "exp": (F.exp, lambda x: torch.exp(x), 1, 2, None, 1e-6),
    "sum of everything": (lambda x: F.sum(x), lambda x: torch.sum(x), 1, 1, None, 1e-3),
    "sum of axis 0": (lambda x: F.sum(x, 0), lambda x: torch.sum(x, 0), 1, 1, None, 1e-5),
    "sum of axis 1": (lambda x: F.sum(x, 1), lambda x: torch.sum(x, 1), 1, 1, None, 1e-5),
    "copy": (lambda x: F.copy(x), lambda x: x.clone(), 1, 2, None, 0.0),
    "transpose to dense": (lambda x: F.copy(x.T), lambda x: x.T.contiguous(), 1, 2, None, 0.0),
}  # fmt: skip


def case(name: str) -> Case:
    """One operation on (4096, 4096) float32."""
    mine, theirs, operands, arrays, goal, rtol = OPS[name]
    ours, others = pair(*(noise(ROWS, COLUMNS) for _ in range(operands)))
    contenders = {"tengen": lambda: mine(*ours)}
    if torch:
        contenders["torch"] = lambda: theirs(*others)
    return Case(name, contenders, goal, arrays * ARRAY, "B", (rtol, 0.0))


if __name__ == "__main__":
    compare.main("memory_bound", "Eager operations on 64 MiB, float32 (4096, 4096)", [partial(case, name=name) for name in OPS])
