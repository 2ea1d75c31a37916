"""Every graph that runs compiles ahead of time, for every target, whatever its outputs are, and gives the bits of the eager run.

Artifacts are good code, and eager runs here quick code: so each of these tests compares the two as well. What is decided before code is made
(what outputs are, what two ops have in common) is the same for all targets, and the kernels of each op are run as quick code for both targets
by `test_each_op.py`: here each model is compiled for one of two targets, and `.ci/run`, which sets EVERY_TARGET, compiles all for both."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from exhaustive import but, exhaustive
from test_each_op import SEED, SHIPPED, SHIPPED_FOR, TARGETS
from whole import Whole, failures, gradients, pairs, singles, whole

import tengen
import tengen.functional as F
import tengen.module as M
import tengen.random
from tengen import Tensor
from tengen.base.dtype import dtype

PARTS = 4  # an even number: all of a part are for one target
PAIRS = 40


def f32(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def agrees(wholes: Iterable[Whole], folder: Path, least: int = 1, targets: Sequence[str] | None = None) -> None:
    """Every model, recorded and run eagerly once, gives its eager bits as an artifact: for each of some targets; default: the models in turn
    for the one or the other target, or all for both where EVERY_TARGET asks for it."""
    made, skipped = list(wholes), []
    every = targets or (TARGETS if os.environ.get("EVERY_TARGET") else ())
    for i, target in enumerate(every or TARGETS):
        n, wrong, why = failures(made if every else made[i :: len(TARGETS)], target, folder)
        assert not wrong, "\n".join([target, *wrong])
        assert n >= (least if every else least // len(TARGETS))
        skipped += [f"{target}: {why}"] if why else []
    if skipped:
        pytest.skip("; ".join(skipped))


@but(every=4)
@pytest.mark.parametrize("part", range(PARTS))
def test_single_ops(part, tmp_path):
    """Every op, on one of its samples."""
    some = SHIPPED[part::PARTS]
    agrees(singles(tmp_path, SEED, some), tmp_path, 50, SHIPPED_FOR[some[0].id])


def test_derivatives(tmp_path):
    agrees(gradients(tmp_path), tmp_path, 5)


@exhaustive
def test_pairs_of_ops(tmp_path):
    agrees(pairs(tmp_path, SEED, PAIRS), tmp_path, PAIRS)


# ---- graphs whose outputs are something else than what a node has just computed in order -----------------------------------

IMAGE, ROW = f32(2, 3, 8, 6), f32(4)
W8, W3 = Tensor(f32(8, 3, 3, 3, seed=1)), Tensor(f32(8, 8, 1, 1, seed=2))
picture = lambda x: F.conv2d(x, W8, padding=1)  # it lies channels-last
NUMBERS = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")

# name -> (function, inputs)
STATELESS: dict[str, tuple[Callable, list[np.ndarray]]] = {
    "an input": (lambda x: x, [ROW]),
    "inputs, exchanged": (lambda x, y: (y, x), [ROW, IMAGE]),
    "an input twice": (lambda x: (x, x), [ROW]),
    "views of an input": (lambda x: (x.transpose(0, 2, 3, 1), x[:, 1:], x[0], x.reshape(3, -1), x[:, :, ::-2]), [IMAGE]),
    "an input broadcast": (lambda x: F.broadcast_to(x, (3, 4)), [ROW]),
    "an input, unread": (lambda x, y: y + 1.0, [IMAGE, ROW]),
    "a constant": (lambda x: W8, [ROW]),
    "a constant and views of it": (lambda x: (W8, W8[1], W8.transpose(1, 2, 3, 0), x * 2.0, W8), [ROW]),
    "of constants alone": (lambda x: (F.exp(W8) * 2.0, F.ones((2, 3)), F.arange(5)), [ROW]),
    "no inputs": (lambda: F.arange(7) * 2, []),
    "no inputs, a constant": (lambda: (W8, W8 + 1.0), []),
    "a value twice": (lambda x: (y := F.exp(x), y, y), [ROW]),
    "values that alias": (lambda x: (y := F.exp(x), y.reshape(2, 2), y[1:], y[0], y.reshape(2, 2).T), [ROW]),
    "a picture": (picture, [IMAGE]),
    "a picture twice": (lambda x: (y := picture(x), y), [IMAGE]),
    "a picture in both orders": (lambda x: (y := picture(x), y.transpose(0, 2, 3, 1), y.reshape(2, -1)), [IMAGE]),
    "a picture and what reads it": (lambda x: (y := picture(x), F.relu(y), F.mean(y), F.conv2d(y, W3)), [IMAGE]),
    "pictures, pointwise": (lambda x: (y := F.max_pool2d(picture(x), 2), F.exp(y) * 2.0), [IMAGE]),
    "a pooled picture": (lambda x: F.max_pool2d(F.relu(picture(x)), 2), [IMAGE]),
    "a part of a picture": (lambda x: (y := picture(x), y[:, 2:5], y[:, :, 1:]), [IMAGE]),
    "a picture's classes": (lambda x: (y := F.conv2d(picture(x), W3), F.softmax(y, 1), F.argmax(y, 1)), [IMAGE]),
    "pictures joined": (lambda x: F.concat([picture(x), F.exp(x)], 1), [IMAGE]),
    "an array turned": (lambda x: F.exp(x).transpose(3, 1, 0, 2), [IMAGE]),
    "a row of convolution": (lambda x: F.conv1d(x, Tensor(f32(8, 3, 3))), [f32(2, 3, 9)]),
    "a number": (lambda x: F.sum(x), [ROW]),
    "of a number": (lambda x: (x, F.exp(x), x.reshape(1, 1)), [np.array(0.5, np.float32)]),
    "nothing": (lambda x: (x, x * 2.0, x.T), [np.zeros((0, 3), np.float32)]),
    "nothing, of something": (lambda x: (x[4:], x[2:2].reshape(0, 5), x + 1.0), [ROW]),
    "something, of nothing": (lambda x: F.sum(x, 0), [np.zeros((0, 3), np.float32)]),
    "a picture of nothing": (lambda x: picture(x), [np.zeros((0, 3, 8, 6), np.float32)]),
    "to other numbers": (lambda x: tuple(x.astype(d) for d in NUMBERS), [IMAGE]),
    "a picture of other numbers": (lambda x: tuple(picture(x).astype(d) for d in NUMBERS), [IMAGE]),
    "other numbers": (
        lambda *x: tuple(z for y in x for z in (y.astype("float32"), y, y.T)), [f32(3, 5).astype(dtype(d).numpy) for d in NUMBERS],
    ),
    "truth": (lambda x: (x > 0.0, F.isnan(x), picture(x) > 0.0), [IMAGE]),
}  # fmt: skip


class Segments(M.Module):
    """Convolution, batch norm and ReLU, pooled."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.pool = M.Conv2d(3, 8, 3), M.BatchNorm2d(8), M.MaxPool2d(2, 2)

    def forward(self, x):
        return self.pool(F.relu(self.norm(self.conv(x))))


def module(make: Callable[[], M.Module]) -> Callable[[], Callable]:
    """The same network each time."""

    def again() -> Callable:
        tengen.random.seed(3)
        return make().eval()

    return again


def training() -> Callable:
    """Running statistics are states that are written; the picture is an output."""
    tengen.random.seed(3)
    net = Segments().train()
    return lambda x: net(x)


def states(step: Callable) -> Callable[[], Callable]:
    """A function of two states and its arguments, with states of its own each time."""

    def make() -> Callable:
        a, b = Tensor(f32(2, 8, 8, 6, seed=4)), Tensor(f32(2, 8, 8, 6, seed=5))
        return lambda *x: step(a, b, *x)

    return make


def set_and(t: Tensor, new: Tensor, *more):
    """Writes a state; what is left is returned."""
    t._reset(new)
    return more if len(more) > 1 else more[0]


def swapped(a, b, x):
    old = a * 1.0
    a._reset(b)
    b._reset(old)
    return a, b, x


def drawn() -> Callable:
    tengen.random.seed(9)
    return lambda x: x + tengen.random.normal(size=(4,))


STATEFUL: dict[str, tuple[Callable[[], Callable], list[np.ndarray]]] = {
    "a state before it is written": (states(lambda a, b, x: (a + 0.0, set_and(a, a + x, x))), [f32(2, 8, 8, 6)]),
    "a state, then written": (states(lambda a, b, x: (a.reshape(-1), a, set_and(a, a + x, x))), [f32(2, 8, 8, 6)]),
    "a state that was written": (states(lambda a, b, x: set_and(a, a + x, a, a, a[0])), [f32(2, 8, 8, 6)]),
    "a state that a picture is written to": (states(lambda a, b, x: set_and(a, y := picture(x), y, a)), [IMAGE]),
    "a state that an input is written to": (states(lambda a, b, x: set_and(a, x, a, x)), [f32(2, 8, 8, 6)]),
    "states alone": (states(lambda a, b, x: (a._reset(a + x), b._reset(picture(a[:, :3])))[2:]), [f32(2, 8, 8, 6)]),
    "two states, exchanged": (states(swapped), [ROW]),
    "a state that nothing writes": (states(lambda a, b, x: (a, b.transpose(0, 2, 3, 1), x)), [ROW]),
    "what batch norm keeps": (training, [IMAGE]),
    "random numbers": (drawn, [ROW]),
    "a convolution": (module(lambda: M.Conv2d(3, 8, 3)), [IMAGE]),
    "a convolution, a norm, a pooling": (module(Segments), [IMAGE]),
    "a U-Net": (module(lambda: tengen.models.unet(width=8, depth=2)), [f32(1, 3, 16, 16)]),
}


def test_unusual_outputs(tmp_path):
    made = {name: ((lambda f=f: f), inputs) for name, (f, inputs) in STATELESS.items()} | STATEFUL
    agrees((whole(name, tmp_path, make, inputs) for name, (make, inputs) in made.items()), tmp_path, len(made))
