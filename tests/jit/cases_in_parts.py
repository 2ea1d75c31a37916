"""Functions that ask for values of tensors, with their arguments and states, for the tests of traces in parts. CASES is the list of them."""

import contextlib
import io
import random

import numpy as np

import tengen
import tengen.functional as F
import tengen.module as M
from tengen import Tensor, autodiff
from tengen.amp import GradScaler, autocast
from tengen.autodiff import GradManager
from tengen.base.errors import IndexOutOfRange
from tengen.jit import exclude_from_trace
from tengen.optimizer import LBFGS, SGD, Adam, clip_grad_norm

CALLS = 6


def data(i, *shape):
    return Tensor(np.random.default_rng(i).normal(size=shape or (4, 6)).astype("float32"))


class Case:
    """A function with all that it reads and changes: `state` is compared after each call. args: of call i."""

    def __init__(self, f, args=lambda i: (data(i),), state=lambda: ()):
        self.f, self.args, self.state = f, args, state


def a_number():
    return Case(lambda x: x * (x * x).sum().item())


def a_branch():
    def f(x):
        y = F.exp(x) - 1
        if y.mean() > 0.6:
            return y * 2
        if (y.max() > 3).item():
            y = y + 1
        return y / 3

    return Case(f)


def in_one_branch_only():
    log = []

    def f(x, often):
        y = F.tanh(x @ x.T)
        if often:
            log.append(float(y.sum()))
        return y * y

    return Case(f, lambda i: (data(i), i % 3 == 0), lambda: log)


def a_mask():
    return Case(lambda x: F.exp(x[x > 0.3]).sum() * x[x <= 0.3])


def a_mask_that_is_written():
    def f(x):
        y = x * 2
        y[y > 1] = 0
        if y.sum() > 0:
            y[0, y[0] < 0] = y.max()
        return y, y[y != 0]

    return Case(f)


def positions():
    def f(x):
        rows, columns = F.nonzero(x > 0.5)
        return rows + columns, F.topk(x, int((x > 0).sum().item() % 4) + 1)

    return Case(f)


def printing():
    out = io.StringIO()

    def f(x):
        y = x.sum(1)
        with contextlib.redirect_stdout(out):
            print(y, f"{y[0]:.3f}", f"{y}")
        return y + 1

    return Case(f, state=out.getvalue)


def a_shape():
    def f(x, n):
        rows = (n * 2).sum()
        return x.reshape(int(rows), -1) + F.zeros((int(rows), 1))

    return Case(f, lambda i: (data(i), Tensor([1 + i % 2, 0, 0])))


def a_loop_that_stops_early():
    def f(a):
        x = F.ones((6,))
        steps = 0
        while True:
            new = F.tanh(a @ x)[:6] * 0.9
            error = F.abs(new - x).max()
            x = new
            steps += 1
            if error.item() < 0.05 or steps > 12:
                return x, steps

    return Case(f, lambda i: (data(i, 6, 6) * 0.3,))


def python_between():
    counts = {"calls": 0, "sum": 0.0, "seen": []}
    chance = random.Random(5)

    def f(x):
        counts["calls"] += 1
        y = x * chance.random()
        counts["sum"] += y.sum().item()
        z = y * counts["calls"]
        counts["seen"].append(z.detach())
        return z + counts["sum"]

    return Case(f, state=lambda: (counts["calls"], counts["sum"], [t.numpy().tobytes() for t in counts["seen"]]))


def network(*extents, opt=SGD, **options):
    layers = [layer for i, o in zip(extents, extents[1:]) for layer in (M.Linear(i, o), M.ReLU())]
    net = M.Sequential(*layers[:-1])
    rng = np.random.default_rng(0)
    for p in net.parameters():
        p._reset(Tensor((rng.normal(size=p.shape) * 0.5).astype("float32")))
    return net, GradManager().attach(net.parameters()), opt(net.parameters(), **({"lr": 0.1} | options))


def values(net, opt=None):
    there = [p.numpy() for p in net.parameters()] + [b.numpy() for b in net.buffers()]
    grads = [None if p.grad is None else p.grad.numpy().tobytes() for p in net.parameters()]
    return [x.tobytes() for x in there], grads


def batch(i):
    return data(i, 8, 6), Tensor(np.random.default_rng(i).integers(0, 3, 8).astype("int32"))


def a_step_that_stops_for_its_loss():
    net, gm, opt = network(6, 5, 3, momentum=0.9)
    seen = []

    def step(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            seen.append(loss.item())
            if loss > 1.2:
                loss = loss * 0.5
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return Case(step, batch, lambda: (values(net), seen))


def clipping_by_a_number():
    net, gm, opt = network(6, 5, 3, opt=Adam)

    def step(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            gm.backward(loss)
        norm = sum((p.grad**2).sum().item() for p in net.parameters()) ** 0.5
        if norm > 0.5:
            for p in net.parameters():
                p.grad = p.grad * (0.5 / norm)
        opt.step()
        opt.clear_grad()
        return loss, norm

    return Case(step, batch, lambda: values(net))


def clipping_kept_gradients():
    net, gm, opt = network(6, 5, 3)

    def step(x, y):
        opt.clear_grad()
        with gm:
            gm.backward(F.loss.cross_entropy(net(x), y))
        total = clip_grad_norm(net.parameters(), 0.3)
        if total.item() > 0.4:
            opt.step()
        return total

    return Case(step, batch, lambda: values(net))


def two_networks():
    g, gm_g, opt_g = network(4, 6, 6)
    d, gm_d, opt_d = network(6, 5, 1)
    log = []

    def step(noise, real):
        with gm_d:
            fake = g(noise)
            loss_d = F.relu(1 - d(real)).mean() + F.relu(1 + d(fake.detach())).mean()
            gm_d.backward(loss_d)
        opt_d.step().clear_grad()
        if loss_d.item() > 0.5:
            log.append(("d", loss_d.item()))
        with gm_g:
            loss_g = -d(g(noise)).mean()
            gm_g.backward(loss_g)
        opt_g.step().clear_grad()
        log.append(("g", float(loss_g)))
        return loss_d, loss_g

    return Case(step, lambda i: (data(i, 8, 4), data(i + 50, 8, 6)), lambda: (values(g), values(d), log))


def dropout_between():
    net = M.Sequential(M.Linear(6, 8), M.Dropout(0.5), M.Linear(8, 2))
    rng = np.random.default_rng(0)
    for p in net.parameters():
        p._reset(Tensor(rng.normal(size=p.shape).astype("float32")))

    def f(x):
        y = net(x)
        if y.sum().item() > 0:
            y = F.nn.dropout(y, 0.3)
        return net[1](y) + tengen.random.normal(size=(2,)) * y.mean().item()

    return Case(f)


def running_means():
    net = M.Sequential(M.Conv2d(2, 3, 3), M.BatchNorm2d(3), M.ReLU())

    def f(x):
        y = net(x)
        if net[1].running_mean.sum().item() > 0.001:
            y = net(x * 2)
        return y.sum((2, 3))

    return Case(f, lambda i: (data(i, 2, 2, 6, 6),), lambda: values(net))


def numbers_as_arguments():
    return Case(lambda x, s: (x * s).sum().item() + x * s + 0.5, lambda i: (data(i), 0.5 * i if i % 2 else -0.0))


def arguments_in_place():
    kept = [data(90, 6)]

    def f(x):
        if x.mean().item() > 0:
            x[0] = kept[0]
            x += 1
        kept[0] = kept[0] * x.max().item()
        x *= 2
        return x

    given = []

    def args(i):
        given[:] = [data(i)]
        return given

    return Case(f, args, lambda: [t.numpy().tobytes() for t in (*given, *kept)])


def views_before_a_write():
    buffer = data(91, 4, 6)

    def f(x):
        before = buffer[1:]
        buffer[1] = x[0]
        n = buffer.sum().item()
        buffer[2] = n
        return before + 0, buffer.T, before.sum()

    return Case(f, state=lambda: buffer.numpy().tobytes())


def exceptions_of_python():
    w, seen = Tensor(np.zeros(3, "float32")), []

    def f(x):
        try:
            w._reset(w + x.sum())
            if w.sum().item() > 1:
                w._reset(w * 0.5)
                raise KeyError("enough")
            w._reset(w + 1)
        except KeyError:
            seen.append(w.sum().item())
        return w * 2

    return Case(f, state=lambda: (w.numpy().tobytes(), seen))


def checks_that_are_caught():
    w, table = Tensor(np.zeros(3, "float32")), Tensor(np.arange(12, dtype="float32").reshape(4, 3))

    def f(i):
        w._reset(w + 1)
        try:
            rows = F.nn.embedding(i, table)
            return rows.sum().item() + w
        except IndexOutOfRange:
            return w * 100

    return Case(f, lambda i: (Tensor([i, 1]),), lambda: w.numpy().tobytes())


def excluded():
    seen = []

    def f(x):
        y = F.exp(x)
        with exclude_from_trace():
            z = y.sum(0) * len(seen)
            seen.append(z.numpy().tobytes())
        return y * z

    return Case(f, state=lambda: seen)


def hooks():
    w = tengen.Parameter(np.ones((6, 2), "float32"))
    gm, seen = GradManager().attach([w], callbacks=lambda p, g: seen.append(g.sum().item())), []

    def f(x):
        with gm:
            y = F.tanh(x @ w)
            y.register_hook(lambda g: g * 2 if g.max().item() > 0.1 else None)
            gm.backward(y.sum() * y.mean().item())
        w._reset(w - w.grad * 0.1)
        w.grad = None
        return y

    return Case(f, state=lambda: (w.numpy().tobytes(), seen))


def gradients_of_gradients():
    def f(x):
        slope = autodiff.grad(lambda t: (t**3).sum() * t.max().item())(x)
        return slope * 2, autodiff.grad(lambda t: autodiff.grad(lambda s: (s**4).sum())(t).sum())(x)

    return Case(f)


def under_autocast():
    net, gm, opt = network(6, 5, 3)

    def step(x, y):
        with autocast(), gm:
            scores = net(x)
            if scores.sum().item() > 0:
                scores = scores + net(x * 2)
            loss = F.loss.cross_entropy(scores, y)
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    return Case(step, batch, lambda: values(net))


def a_scaled_step():
    net, gm, opt = network(6, 5, 3)
    scaler = GradScaler(init_scale=4.0, growth_interval=2)

    def step(x, y):
        with gm:
            loss = F.loss.cross_entropy(net(x), y)
            scaler.backward(gm, loss)
        if loss.item() < 2:
            opt.step()
        opt.clear_grad()
        return loss

    return Case(step, batch, lambda: values(net))


def loops_of_the_graph():
    def f(x):
        total, _ = F.scan(lambda s, row: (s * 0.5 + row, None), F.zeros((6,)), x)
        if total.sum() > 0:
            total = F.cond(total[0] > 0, lambda t: t * 2, lambda t: t - 1, total)
        return total * total.max().item()

    return Case(f)


def examples_of_vmap():
    def f(x):
        y = autodiff.vmap(lambda row: row * row.sum())(x)
        k = y.mean().item()
        return autodiff.vmap(lambda row: F.exp(row * 0.1) * k)(y)

    return Case(f)


def other_structures():
    def f(d, *, extra):
        y = {"a": d["x"] * 2, "b": [d["x"], extra]}
        y["n"] = y["a"].sum().item()
        y["b"].append(y["a"] * y["n"])
        return y

    return Case(lambda d: f(d, extra=d["x"] + 1), lambda i: ({"x": data(i)},))


def steps_of_lbfgs():
    p = tengen.Parameter(np.array([3.0, -2.0], "float32"))
    gm, opt = GradManager().attach([p]), LBFGS([p], max_iter=2)

    def f(target):
        def closure():
            opt.clear_grad()
            with gm:
                loss = ((p * p - target) ** 2).sum()
                gm.backward(loss)
            return loss

        return opt.step(closure)

    return Case(f, lambda i: (data(1, 2),), lambda: p.numpy().tobytes())


CASES = [
    a_number, a_branch, in_one_branch_only, a_mask, a_mask_that_is_written, positions, printing, a_shape, a_loop_that_stops_early,
    python_between, a_step_that_stops_for_its_loss, clipping_by_a_number, clipping_kept_gradients, two_networks, dropout_between,
    running_means, numbers_as_arguments, other_structures, arguments_in_place, views_before_a_write, exceptions_of_python,
    checks_that_are_caught, excluded, steps_of_lbfgs,
    hooks, gradients_of_gradients, under_autocast, a_scaled_step, loops_of_the_graph, examples_of_vmap,
]  # fmt: skip
