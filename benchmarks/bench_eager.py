"""The overhead of eager calls: small operands, where what counts is the way to the kernel and back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import compare
import numpy as np
from compare import Case, Cell, Goal

import tengen
import tengen.functional as F
from tengen.autodiff import GradManager

torch = compare.peer("torch")

# name -> (shapes of the operands, Tengen's call, PyTorch's call)
OPS: dict[str, tuple[list[tuple[int, ...]], Callable, Callable | None]] = {
    "a + b, 10 elements": ([(10,), (10,)], lambda a, b: a + b, lambda a, b: a + b),
    "a * 2, 10 elements": ([(10,)], lambda a: a * 2.0, lambda a: a * 2.0),
    "a + b, (8, 16) + (16,)": ([(8, 16), (16,)], lambda a, b: a + b, lambda a, b: a + b),
    "relu, 10 elements": ([(10,)], F.relu, torch and torch.relu),
    "exp, 100 elements": ([(100,)], F.exp, torch and torch.exp),
    "matmul, (4, 4) by (4, 4)": ([(4, 4), (4, 4)], F.matmul, torch and torch.matmul),
    "sum, 100 elements": ([(100,)], F.sum, torch and torch.sum),
    "sum of axis 1, (8, 16)": ([(8, 16)], lambda a: F.sum(a, 1), lambda a: torch.sum(a, 1)),
    "softmax of axis 1, (8, 16)": ([(8, 16)], lambda a: F.softmax(a, 1), lambda a: torch.softmax(a, 1)),
    "a[3], (10, 10)": ([(10, 10)], lambda a: a[3], lambda a: a[3]),
    "a[1:5, 2], (10, 10)": ([(10, 10)], lambda a: a[1:5, 2], lambda a: a[1:5, 2]),
    "reshape, (10, 10) to (100,)": ([(10, 10)], lambda a: a.reshape(100), lambda a: a.reshape(100)),
}


def plain(name: str) -> Case:
    """Off the tape."""
    shapes, mine, theirs = OPS[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s, np.float32) for s in shapes]
    ours = [tengen.Tensor(a) for a in arrays]
    contenders = {"tengen": lambda: mine(*ours)}
    if torch:
        others = [torch.tensor(a) for a in arrays]
        contenders["torch"] = lambda: theirs(*others)
    if name.startswith("a + b, 10"):
        a, b = arrays
        contenders["numpy"] = lambda: a + b
    aim = Goal(0.6) if name.startswith("a + b, 10") else None
    return Case(name, contenders, aim, torch_block=torch.inference_mode if torch else contextlib.nullcontext)


def taped(name: str) -> Case:
    """With a gradient being recorded. The manager stays open: nothing is differentiated, the records die with their results."""
    shapes, mine, theirs = OPS[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s, np.float32) for s in shapes]
    ours = [tengen.Tensor(a) for a in arrays]
    GradManager().attach(ours).record()
    contenders = {"tengen": lambda: mine(*ours)}
    if torch:
        others = [torch.tensor(a, requires_grad=True) for a in arrays]
        contenders["torch"] = lambda: theirs(*others)
    return Case(f"{name}, recording", contenders, Goal(0.6) if name.startswith("a + b, 10") else None)


def forward_and_backward() -> Case:
    """A whole tape of three small operations, made and walked."""
    array = np.linspace(-1, 1, 10, dtype=np.float32)
    x = tengen.Tensor(array)
    gm = GradManager().attach([x])

    def mine():
        x.grad = None
        with gm:
            gm.backward(F.sum(F.relu(x * x)))
        return x.grad

    contenders = {"tengen": mine}
    if torch:
        y = torch.tensor(array, requires_grad=True)

        def theirs():
            y.grad = None
            torch.relu(y * y).sum().backward()
            return y.grad

        contenders["torch"] = theirs
    return Case("relu(x * x).sum() and its gradient, 10 elements", contenders)


CELLS = [
    *(Cell(name, partial(plain, name), quick="a + b" in name) for name in OPS),
    *(Cell(f"{name}, recording", partial(taped, name)) for name in OPS if name.split(",")[0] in ("a + b", "relu", "matmul")),
    Cell("relu(x * x).sum() and its gradient, 10 elements", forward_and_backward),
]

if __name__ == "__main__":
    compare.main("eager", "Eager calls on small tensors", CELLS)
