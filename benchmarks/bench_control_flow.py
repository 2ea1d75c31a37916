"""Loops that stay loops: a recurrent cell over 256 steps by `functional.scan`, a search by `while_loop`, and a branch.

Tengen's rows: traced, and called eagerly. Beside them the same cell in a Python loop that `script` compiles, in one that a trace unrolls (a
program that grows with the steps), by the op `lstm`, which multiplies all inputs by their weight at once, and the loops of the peers:
PyTorch's Python loop, `torch.jit.script`, `torch.compile` of the cell, `jax.lax.scan`. Compile times of 16 and of 256 steps stand below.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import compare
import numpy as np
from compare import Case, Cell, Goal, Row

import tengen
import tengen.functional as F
from tengen import Tensor
from tengen.autodiff import grad
from tengen.ops.define import REGISTRY

torch, jax = compare.peer("torch"), compare.peer("jax")
STEPS, BATCH, WIDTH = 256, 32, 256


def arrays(steps: int) -> tuple[np.ndarray, ...]:
    """Inputs (steps, batch, width), the first state, both weights (width, 4 width)."""
    rng = np.random.default_rng(0)
    noise = lambda *shape: rng.standard_normal(shape, np.float32)
    return noise(steps, BATCH, WIDTH), np.zeros((BATCH, WIDTH), np.float32), noise(WIDTH, 4 * WIDTH) / 16, noise(WIDTH, 4 * WIDTH) / 16


def cell(x, h, c, w, u):
    """An LSTM's."""
    i, f, g, o = F.split(x @ w + h @ u, 4, axis=1)
    c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
    return F.sigmoid(o) * F.tanh(c), c


def scanned(xs, h, w, u):
    """The last state, by `scan`."""
    return F.scan(lambda s, x: (cell(x, *s, w, u), None), (h, h), xs)[0][0]


def unrolled(xs, h, w, u):
    """The same by a Python loop."""
    c = h
    for x in xs:
        h, c = cell(x, h, c, w, u)
    return h


def by_op(xs, h, w, u):
    """The same by the op `lstm`."""
    hs, _, _ = REGISTRY["lstm"](xs @ w, F.transpose(u, (1, 0)), h, h)
    return hs[-1]


def torch_loop(xs, h, w, u):
    """The same for PyTorch; `torch.jit.script` takes its source."""
    c = h
    for x in xs.unbind(0):
        i, f, g, o = (x @ w + h @ u).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return h


def torch_cell(x, h, c, w, u):
    """One step for PyTorch; `torch.compile` takes it."""
    i, f, g, o = (x @ w + h @ u).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def torch_compiled() -> Callable:
    """PyTorch's loop over a compiled cell: of the whole loop it compiles 256 copies."""
    step = torch.compile(torch_cell)

    def loop(xs, h, w, u):
        c = h
        for x in xs.unbind(0):
            h, c = step(x, h, c, w, u)
        return h

    return loop


def jax_scan(xs, h, w, u):
    """The same for JAX."""

    def step(s, x):
        i, f, g, o = jax.numpy.split(x @ w + s[0] @ u, 4, 1)
        c = jax.nn.sigmoid(f) * s[1] + jax.nn.sigmoid(i) * jax.numpy.tanh(g)
        return (jax.nn.sigmoid(o) * jax.numpy.tanh(c), c), None

    return jax.lax.scan(step, (h, h), xs)[0][0]


def peers(steps: int, training: bool) -> dict[str, Callable]:
    """The peers' loops."""
    found: dict[str, Callable] = {}
    if torch:
        args = [torch.from_numpy(a) for a in arrays(steps)]
        weights = [a.requires_grad_(training) for a in args[2:]]

        def run(f: Callable) -> Callable:
            def call():
                with torch.set_grad_enabled(training):
                    h = f(*args)
                    return torch.autograd.grad(h.square().sum(), weights) if training else h

            return call

        found["torch"] = run(torch_loop)
        found |= compare.attempt("torch.jit.script", lambda: run(torch.jit.script(torch_loop)))
        found |= compare.attempt("torch.compile", lambda: run(torch_compiled()))
    if jax:
        given = [jax.numpy.asarray(a) for a in arrays(steps)]
        loss = lambda xs, h, w, u: (jax_scan(xs, h, w, u) ** 2).sum()
        f = jax.jit(jax.grad(loss, (2, 3)) if training else jax_scan)
        found["jax"] = lambda: jax.block_until_ready(f(*given))
    return found


def recurrence(training: bool) -> Case:
    """The cell over all steps, or its gradients by both weights."""
    args = [Tensor(a) for a in arrays(STEPS)]

    def of(f: Callable) -> Callable:
        return grad(lambda *xs: F.square(f(*xs)).sum(), (2, 3)) if training else f

    scan, loop, op = (tengen.trace(of(f)) for f in (scanned, unrolled, by_op))
    scripted = tengen.trace(of(tengen.script(unrolled)))
    mine = {
        "tengen": lambda: scan(*args), "tengen script": lambda: scripted(*args), "tengen lstm op": lambda: op(*args),
        "tengen eager": lambda: of(scanned)(*args), "tengen unrolled": lambda: loop(*args),
    }  # fmt: skip
    goals = {"tengen": Goal(1.0, "fastest"), "tengen script": Goal(1.0, "fastest")}
    work = 2.0 * STEPS * BATCH * WIDTH * 8 * WIDTH * (4 if training else 1)  # the body is computed once more for the gradient
    name = f"LSTM cell, {STEPS} steps of {BATCH} x {WIDTH}{', gradients' if training else ''}"
    return Case(name, {**mine, **peers(STEPS, training)}, work=work, goals=goals, tolerance=(2e-4, 1e-5))


def search() -> Case:
    """Newton's iteration for a square root, 20 times for a vector: launches and the test of the condition."""
    a = np.random.default_rng(1).uniform(1, 2, 1000).astype(np.float32)
    f = tengen.trace(lambda a: F.while_loop(lambda x, i: i < 20, lambda x, i: ((x + a / x) / 2, i + 1), a, 0)[0])
    x = Tensor(a)
    found: dict[str, Callable] = {"tengen": lambda: f(x)}
    if jax:
        np_ = jax.numpy
        g = jax.jit(lambda a: jax.lax.while_loop(lambda s: s[1] < 20, lambda s: ((s[0] + a / s[0]) / 2, s[1] + 1), (a, 0))[0])
        y = np_.asarray(a)
        found["jax"] = lambda: jax.block_until_ready(g(y))
    if torch:
        t = torch.from_numpy(a)

        def newton(a):
            x, i = a, 0
            while i < 20:
                x, i = (x + a / x) / 2, i + 1
            return x

        found["torch"] = lambda: newton(t)
    return Case("Newton's iteration, 20 times 1,000", found, Goal(1.0, "fastest"))


def compile_times() -> list[Row]:
    """Seconds of the first call of a traced scan and of a script, by steps: one program whatever the number."""
    rows = []
    for what, make in (("", lambda: tengen.trace(scanned)), (" of a script", lambda: tengen.script(unrolled))):
        for steps in (16, 256):
            args = [Tensor(a) for a in arrays(steps)]
            f = make()
            start = time.perf_counter()
            with tengen.config.scope(cache=False):
                f(*args)
            rows.append(Row(f"first call{what}, {steps} steps", value=f"{time.perf_counter() - start:.2f} s"))
    return rows


if __name__ == "__main__":
    args = compare.arguments("control_flow", 4.0)
    cells = [
        Cell("search", search, True),
        Cell("recurrence", lambda: recurrence(False)),
        Cell("recurrence, gradients", lambda: recurrence(True)),
    ]
    compare.main("control_flow", "loops and branches", cells, more=compile_times(), args=args)
