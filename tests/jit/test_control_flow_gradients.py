"""Gradients through `cond`, `while_loop`, `scan` and `fori_loop`, and functions with gradients of their own in bodies."""

import numpy as np
import pytest
from control_flow_cases import T, U, W, cell, close, equal

from tengen import Tensor, load_graph, random, trace
from tengen import functional as F
from tengen.autodiff import Function, GradManager, checkpoint, enable_grad, grad, hessian, jvp, no_grad, vmap
from tengen.base.errors import GradientError
from tengen.deploy import compile_model
from tengen.deploy.verify import verify
from tengen.module import Linear
from tengen.optimizer import SGD


def test_gradients():
    xs = T(4, 3, 6)

    def loss(scan):
        def f(xs, h, W, U):
            some = lambda s, x: cell(s, x, W, U)
            if scan:
                (h, c), y = F.scan(some, (h, F.zeros_like(h)), xs)
                return (y["h"] ** 2).sum() + (h * c).sum()
            state, total = (h, F.zeros_like(h)), 0
            for x in xs:
                state, y = some(state, x)
                total = total + (y["h"] ** 2).sum()
            return total + (state[0] * state[1]).sum()

        return f

    args = (xs, T(3, 4), W, U)
    mine, python = (grad(loss(b), (0, 1, 2, 3)) for b in (True, False))
    got = mine(*args)
    for a, b in zip(got, python(*args)):
        close(a, b.numpy(), 2e-5)
    for a, b in zip(trace(mine)(*args), got):
        equal(a, b)
    assert grad(loss(True), 3)(*args).shape == U.shape  # of some operands alone


def test_gradients_of_branches_and_unknown_lengths():
    x, w = Tensor(1.0, dtype="float64"), Tensor(1.5, dtype="float64")
    f = lambda x, w: F.while_loop(lambda s: s < 100.0, lambda s: s * w, x, max_iterations=20)
    for run in (lambda f: f, trace):
        gx, gw = run(grad(f, (0, 1)))(x, w)
        close(gx, 1.5**12), close(gw, 12 * 1.5**11)
        close(run(grad(lambda w: grad(f, 1)(x, w)))(w), 132 * 1.5**10)
    c = lambda p, x: F.cond(p, lambda x: F.sin(x) * w, lambda x: x**3, x).sum()
    v = T(3, dtype="float64")
    close(grad(c, 1)(Tensor(True), v), np.cos(v.numpy()) * 1.5), close(grad(c, 1)(Tensor(False), v), 3 * v.numpy() ** 2)
    close(hessian(lambda v: c(Tensor(False), v))(v), np.diag(6 * v.numpy()))
    close(jvp(lambda v: c(Tensor(True), v), [v], [F.ones_like(v)])[1], (np.cos(v.numpy()) * 1.5).sum())


def test_gradients_of_a_while_loop_without_a_bound(tmp_path):
    """The gradients of a loop that keeps all its states are the reference, to the last bit."""
    w = Tensor(np.array([1.02, 0.3, -0.7]))

    def f(x, stop, w=w, n=None):
        body = lambda s, i: (F.sin(s * w) + F.where(s > 0.4, s, 0.3), i + 1)
        return F.while_loop(lambda s, i: i < stop, body, x, Tensor(0), max_iterations=n)[0]

    both = lambda n: lambda x, stop: grad(lambda x, w: f(x, stop, w, n).sum(), (0, 1))(x, w)
    mine, x = trace(both(None)), Tensor(np.array([0.1, 0.5, 0.9]))
    for steps in (0, 1, 2, 63, 64, 65, 66, 300, 2500):  # all fit the 64 places, just do, do not, by far do not
        for a, b in zip(mine(x, Tensor(steps)), both(max(steps, 1))(x, Tensor(steps))):
            equal(a, b)
    for a, b in zip(mine(x, Tensor(66)), both(None)(x, Tensor(66))):
        equal(a, b)
    assert len(mine.stats()) == 1
    mine.dump(tmp_path / "back.tgn", arg_names=["x", "stop"])
    for a, b in zip(load_graph(tmp_path / "back.tgn")(x, Tensor(66)), mine(x, Tensor(66))):
        equal(a, b)
    compile_model(tmp_path / "back.tgn", out_dir=tmp_path)
    assert verify(tmp_path / "back.tgn", tmp_path, [{"x": x, "stop": Tensor(66)}]).differing == 0

    def inside(xs, n=None):  # of a number of iterations that each slice has its own of; `break` by a value
        def body(s, x):
            t = F.while_loop(lambda t, u: t < 10.0, lambda t, u: (t * 1.3 + u * w[0], u * 0.9), x, s, max_iterations=n)[0]
            return s * 0.5 + t, None

        return F.scan(body, Tensor(0.5, dtype="float64"), xs)[0]

    xs = Tensor(np.linspace(0.2, 1, 4))
    equal(trace(grad(inside))(xs), grad(lambda xs: inside(xs, 50))(xs))
    power = lambda w: F.while_loop(lambda s: s < 100.0, lambda s: s * w, Tensor(1.0, dtype="float64"))
    w = Tensor(1.5, dtype="float64")
    assert grad(grad(power))(w).item() == 132 * 1.5**10
    equal(vmap(grad(power))(F.stack([w, w * 2])), F.stack([grad(power)(w), grad(power)(w * 2)]))
    close(jvp(power, [w], [F.ones_like(w)])[1], 12 * 1.5**11)
    turns = lambda n: grad(lambda x: F.fori_loop(0, n, lambda i, s: F.sin(s) * (i + 1), x))(w)
    equal(turns(Tensor(5)), turns(5))


def test_random_numbers_of_a_loop_that_is_run_again_are_the_same():
    def f(x, n):
        body = lambda s, i: (F.dropout(s * 1.01, 0.005, True) ** 1.01, i + 1)
        return F.while_loop(lambda s, i: i < 90, body, x, Tensor(0), max_iterations=n)[0].sum()

    found = []
    for n in (90, None):
        random.seed(3)
        found.append(grad(lambda x, n=n: f(x, n))(F.full((50,), 0.5)))
    equal(*found)
    assert 0 < (found[0] != 0).sum().item() < 50


def test_gradients_by_differences_in_nested_loops():
    def f(x):
        inner = lambda s, x: F.scan(lambda t, _: (t * x + F.sin(t), None), s, length=3)[0]
        return F.scan(lambda s, x: (s + F.cond(s > 0, lambda s: inner(s, x), lambda s: s * s, s), s * x), Tensor(0.5, dtype="float64"), x)

    def total(x):
        s, ys = f(x)
        return s + (ys**2).sum()

    x, e = T(4, dtype="float64"), 1e-6
    moved = [total(Tensor(x.numpy() + d)).item() - total(Tensor(x.numpy() - d)).item() for d in e * np.eye(4)]
    close(grad(total)(x), np.array(moved) / (2 * e), 1e-6)
    second = [(grad(total)(Tensor(x.numpy() + d)).numpy() - grad(total)(Tensor(x.numpy() - d)).numpy()) / (2 * e) for d in e * np.eye(4)]
    close(hessian(total)(x), np.stack(second), 1e-5)
    per_example = vmap(grad(total))(F.stack([x, x * 2]))
    equal(per_example[0], grad(total)(x))
    inside = F.scan(lambda s, x: (s, grad(lambda z: (z**3 * s).sum())(x)), Tensor(2.0, dtype="float64"), x)[1]  # a gradient in a body
    close(inside, 6 * x.numpy() ** 2)


def test_gradients_past_a_loop_and_a_branch_that_give_nothing():
    def f(x, y):
        F.scan(lambda s, row: ((), None), (), x)
        inner = lambda s, row: (F.cond(row.sum() > 0, lambda v: (), lambda v: (), row), (s + row.sum(), None))[1]
        return F.scan(inner, y.sum(), x)[0]

    x, y = T(3, 2), T(2)
    for way in (f, trace(f), trace(f, symbolic=True)):
        for got, wanted in zip(grad(way, argnums=(0, 1))(x, y), (F.ones((3, 2)), F.ones(2))):
            equal(got, wanted)


def test_training_through_a_loop():
    def step(net, x, y, gm, opt):
        with gm:
            h = F.scan(lambda h, x: (F.tanh(net(x + h)), None), F.zeros_like(x[0]), x)[0]
            loss = ((h - y) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    losses = []
    for traced in (False, True):
        random.seed(4)
        net = Linear(5, 5)
        gm, opt = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1)
        x, y = Tensor(np.linspace(-1, 1, 60, dtype="float32").reshape(4, 3, 5)), F.zeros((3, 5))
        f = trace(step) if traced else step
        losses.append([f(net, x, y, gm, opt).item() for _ in range(4)])
    assert losses[0] == losses[1] and losses[0][-1] < losses[0][0]


def test_what_a_body_hides_from_gradients_stays_hidden():
    """A body is differentiated as a graph: `detach` and `no_grad` are in it."""
    xs, w = T(5, 3, 4), T(4, 4)

    def loops(step):
        def python(w):
            h = F.zeros((3, 4))
            for x in xs:
                h = step(h, x, w)
            return h.sum()

        branch = lambda w: F.cond(Tensor(True), lambda w: step(xs[1], xs[0] @ w, w), lambda w: w[:3], w).sum()
        plain = lambda w: step(xs[1], xs[0] @ w, w).sum()
        return lambda w: F.scan(lambda h, x: (step(h, x, w), None), F.zeros((3, 4)), xs)[0].sum(), python, branch, plain

    def hidden(h, x, w):
        with no_grad():
            z = x @ w
            with enable_grad():
                z = z + h @ w * 0.5
        return F.tanh(z + h @ w)

    for step in (lambda h, x, w: F.tanh((x @ w).detach() + h @ w), hidden):
        a, b, branch, plain = loops(step)
        close(grad(a)(w), grad(b)(w).numpy()), close(hessian(a)(w), hessian(b)(w).numpy(), 1e-4)
        equal(trace(grad(a))(w), grad(a)(w))
        close(grad(branch)(w), grad(plain)(w).numpy())


def test_a_loop_in_a_loop_that_is_differentiated_twice_for_many_examples():
    """The hessian replays for all examples a loop that has kept its states."""
    inner = lambda s, n: F.scan(lambda s, _: (F.sin(s) * s, None), s, length=n)[0]
    nested = lambda x: F.scan(lambda s, _: (inner(s, 2), None), x, length=2)[0].sum()
    x = Tensor([0.1, 0.5, 0.9])
    close(hessian(nested)(x), hessian(lambda x: inner(x, 4).sum())(x).numpy())


class Own(Function):
    """Several results, a kept result, a kept input, a tensor from outside; gradients that are no derivatives."""

    def __init__(self, k):
        self.k = k

    def forward(self, x, w, scale=1.0):
        self.y, self.x, self.w = F.exp(x * 0.1), x, w
        return self.y * w * self.k * scale, x, F.argmax(x)

    def backward(self, dy, dx, di):
        assert di is None
        return dy * self.y * self.w * 3 + dx * self.x, (dy * self.y * self.y).sum() * self.k.sum() * 7, None


def test_a_function_keeps_its_own_gradient_in_bodies():
    k = Tensor([1.0, 2.0, 3.0])

    def step(x, w):
        y, z, i = Own(k)(x, w, 2.0)
        return y + z + i * 0

    def python(x, w):
        for _ in range(3):
            x = step(x, w)
        return x.sum()

    loops = [
        lambda x, w: F.scan(lambda s, _: (step(s, w), None), x, length=3)[0].sum(),
        lambda x, w: F.while_loop(lambda s, i: i < 3, lambda s, i: (step(s, w), i + 1), x, Tensor(0), max_iterations=5)[0].sum(),
        lambda x, w: F.fori_loop(0, 3, lambda i, s: F.cond(i >= 0, lambda s: step(s, w), lambda s: s, s), x).sum(),
        lambda x, w: F.scan(lambda s, _: (F.scan(lambda s, _: (step(s, w), None), s, length=1)[0], None), x, length=3)[0].sum(),
    ]
    x, w = Tensor([0.1, 0.2, 0.3]), Tensor(0.5)
    for loop in loops:
        equal(loop(x, w), python(x, w))
        for which in (0, 1):
            equal(grad(loop, which)(x, w), grad(python, which)(x, w))
        close(hessian(lambda x, loop=loop: loop(x, w))(x), hessian(lambda x: python(x, w))(x).numpy())
        equal(trace(grad(loop))(x, w), grad(loop)(x, w))
    xs = Tensor(np.arange(6, dtype="float32").reshape(2, 3) / 10)
    equal(vmap(grad(loops[0]), (0, None))(xs, w), F.stack([grad(python)(x, w) for x in xs]))


def test_a_function_that_changes_states_and_one_that_is_wrong_in_bodies(tmp_path):
    count = Tensor([0.0])

    class Counted(Function):
        def forward(self, x):
            count._reset(count + 1)
            self.n = count + 0
            return x * 2

        def backward(self, dy):
            return dy * self.n

    f = lambda x: F.scan(lambda s, _: (Counted()(s), None), x, length=3)[0].sum()
    assert trace(grad(f))(Tensor([1.0])).tolist() == [1.0 * 2 * 3] and count.item() == 3.0
    trace(f).trace(Tensor([1.0])).dump(tmp_path / "f.tgn")
    assert load_graph(tmp_path / "f.tgn")(Tensor([1.0])).item() == 8.0

    class Wrong(Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            return (dy, dy)

    class Odd(Wrong):
        def backward(self, dy):
            return dy.sum()

    for kind, words in ((Wrong, r"Wrong.backward\(\) gave 2 gradients for 1 tensors"), (Odd, r"Odd.backward\(\) gave f32\[\] for f32\[3\]")):
        with pytest.raises(GradientError, match=words):
            F.scan(lambda s, _, kind=kind: (kind()(s), None), T(3), length=2)


def test_a_checkpoint_in_a_body():
    w, x = T(4, 4), T(3, 4)
    block = lambda x, w: F.tanh(x @ w)
    f = lambda w: F.scan(lambda s, _: (checkpoint(block, s, w), None), x, length=2)[0].sum()
    g = lambda w: F.scan(lambda s, _: (block(s, w), None), x, length=2)[0].sum()
    close(grad(f)(w), grad(g)(w).numpy())
