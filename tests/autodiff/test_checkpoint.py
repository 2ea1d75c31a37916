"""`checkpoint`: the bits of the function without it, in less memory; what cannot be computed again is an error."""

import gc
import warnings

import numpy as np
import pytest
from exhaustive import but

from tengen import Parameter, Tensor, random, trace
from tengen import functional as F
from tengen import module as M
from tengen.amp import autocast
from tengen.autodiff import GradManager, checkpoint, grad, hessian, jvp, no_grad, value_and_grad, vjp, vmap
from tengen.base.errors import GradientError
from tengen.optimizer import SGD
from tengen.runtime.process import memory_statistics, reset_peak

RNG = np.random.default_rng(3)


class Block(M.Module):
    def __init__(self, width):
        super().__init__()
        self.fc, self.norm, self.drop = M.Linear(width, width), M.BatchNorm1d(width), M.Dropout(0.3)

    def forward(self, x):
        return x + F.gelu(self.drop(self.norm(self.fc(x))))


class Net(M.Module):
    """Blocks, each of which, or each pair of which, or all of which are checkpointed."""

    def __init__(self, how, width=6, blocks=4):
        super().__init__()
        self.blocks, self.how = [Block(width) for _ in range(blocks)], how

    def forward(self, x):
        if self.how == "nested":
            return checkpoint(lambda x: self.run(x, "each"), x)
        return self.run(x, self.how)

    def run(self, x, how):
        for b in self.blocks:
            x = checkpoint(b, x) if how == "each" else checkpoint(lambda v, b=b: b(v["x"]), {"x": x}) if how == "closure" else b(x)
        return x


def trained(how, traced):
    random.seed(5)
    net, x = Net(how), Tensor(np.random.default_rng(1).standard_normal((8, 6)).astype("f4"))
    rng = np.random.default_rng(2)
    for p in net.parameters():
        p._reset(Tensor(rng.standard_normal(p.shape).astype("f4") * 0.3))
    gm, opt = GradManager().attach([*net.parameters(), x]), SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step():
        with gm:
            loss = (net(x) ** 2).mean()
            gm.backward(loss)
        opt.step().clear_grad()
        return loss

    run = trace(step) if traced else step
    out = [run().numpy().tobytes() for _ in range(3)]
    return [*out, *(v.tobytes() for v in net.state_dict().values()), x.grad.numpy().tobytes(), random.get_state().tobytes()]


@but(every=2)
@pytest.mark.parametrize("traced", [False, True])
def test_training_has_the_same_bits(traced):
    """With dropout, running statistics, and parameters that the function uses."""
    want = trained("no", traced)
    for how in ("each", "closure", "nested"):
        assert trained(how, traced) == want, how


def f(x):
    return F.sin(x) * F.exp(x * 0.5) + F.softmax(x)


TRANSFORMED = {
    "grad": lambda f: lambda x: grad(lambda x: f(x).sum())(x),
    "a gradient of a gradient": lambda f: lambda x: grad(lambda x: grad(lambda x: f(x).sum())(x).sum())(x),
    "vjp": lambda f: lambda x: vjp(f, x)[1](x)[0], "jvp": lambda f: lambda x: jvp(f, [x], [x])[1],
    "hessian": lambda f: hessian(lambda x: f(x).sum()),
    "the value": lambda f: lambda x: value_and_grad(lambda x: f(x).sum())(x)[0], "no_grad": lambda f: no_grad(f), "nothing": lambda f: f,
    "vmap": lambda f: lambda x: vmap(f)(F.stack([x, x * 2.0])),
    "vmap of grad": lambda f: lambda x: vmap(grad(lambda x: f(x).sum()))(F.stack([x, x * 2.0])),
    "grad of vmap": lambda f: lambda x: grad(lambda x: vmap(f)(F.stack([x, x * 2.0])).sum())(x),
}  # fmt: skip


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_it_composes(name, traced):
    x = Tensor(RNG.standard_normal(5).astype("f4"))
    run = (lambda g: trace(g)) if traced else (lambda g: g)
    got, want = (run(TRANSFORMED[name](g))(x) for g in (lambda x: checkpoint(f, x), f))
    assert got.numpy().tobytes() == want.numpy().tobytes()


SHARED = {  # one weight that is used inside of checkpoints, between them and around them, in every order
    "inside": lambda net, w, x: w(checkpoint(net, net(w(x)))),
    "several": lambda net, w, x: checkpoint(w, checkpoint(net, checkpoint(net, w(x)))),
    "nested": lambda net, w, x: checkpoint(lambda x: w(checkpoint(net, checkpoint(net, checkpoint(w, x)))), x),
    "before": lambda net, w, x: w(net(checkpoint(net, checkpoint(w, x)))),
}  # fmt: skip


@but(every=2)
@pytest.mark.parametrize("cast", [False, True])
def test_a_shared_weight_and_autocast_have_the_same_bits(cast):
    """The gradient's addends are added in the same order; autocast is in force the second time, although the block has ended, and its casts
    of weights are the same tensors."""
    w = M.Linear(8, 8)
    net = M.Sequential(w, M.GELU(), w, M.Linear(8, 8), M.Dropout(0.3))
    for p in net.parameters():
        p._reset(np.random.default_rng(p.size).standard_normal(p.shape).astype("f4"))
    gm, x = GradManager().attach(net.parameters()), Tensor(np.random.default_rng(0).standard_normal((4, 8)).astype("f4"))

    def gradients(f, inside, how):
        random.seed(3)

        def loss(x):
            with autocast(cast, "bfloat16"):
                return (f(net, w, x) ** 2).sum()

        def step(x):
            with gm, autocast(cast and inside, "bfloat16"):
                gm.backward(loss(x))

        if how == "outside":
            run = trace(loss)
            with gm:
                gm.backward(run(x))
        else:
            (trace(step) if how else step)(x)
        found = [p.grad.numpy().tobytes() for p in net.parameters()]
        for p in net.parameters():
            p.grad = None
        return found

    want = gradients(lambda net, w, x: w(net(net(w(x)))), False, "")
    assert gradients(lambda net, w, x: w(net(net(w(x)))), False, "traced") == want
    for name, f in SHARED.items():
        for inside, how in ((False, ""), (True, ""), (False, "traced")):
            assert gradients(f, inside, how) == want, (name, inside, how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it runs op by op
        assert gradients(SHARED["nested"], False, "outside") == want


def test_what_goes_in_and_out():
    w = Parameter(np.array([2.0, 3.0], "f4"))

    def g(pair, n, scale, label):
        a, b = pair
        return {"a": [a * w * scale, n], "b": (b + w, label, F.argmax(a)), "w": w}

    def loss(x, call):
        r = call(g, (x, x * 2.0), 7, scale=3.0, label=Tensor([1, 2]))
        assert r["a"][1] == 7 and r["b"][1].tolist() == [1, 2] and r["b"][2].item() == 1
        return (r["a"][0] * r["b"][0] * r["w"]).sum()

    x = Tensor([0.5, 1.5])
    for of in (lambda call: lambda x: loss(x, call), lambda call: lambda x: grad(lambda y: loss(y, call) * y.sum())(x).sum()):
        grads = []
        for call in (checkpoint, lambda f, *a, **k: f(*a, **k)):
            with GradManager().attach([w, x]) as gm:
                gm.backward(of(call)(x))
            grads.append((w.grad.tolist(), x.grad.tolist()))
            w.grad = x.grad = None
        assert grads[0] == grads[1]


def test_two_managers_around_it():
    def gradients(call):
        w, v = Parameter(np.array([2.0])), Parameter(np.array([3.0]))
        outer, inner = GradManager().attach([w, v]), GradManager().attach(w)
        with outer:
            with inner:
                inner.backward(call(lambda x: x * w * w * v, v).sum())
            outer.backward((w.grad * w.grad).sum() + call(lambda x: x * v, w).sum())
        return w.grad.item(), v.grad.item()

    assert gradients(checkpoint) == gradients(lambda f, *a: f(*a))


def test_a_chain_needs_less_memory():
    x = Tensor(np.full((256, 256), 0.5, "f4"))
    ws = [Parameter(np.eye(256, dtype="f4")) for _ in range(6)]
    gm = GradManager().attach(ws)

    def block(x, w):
        for _ in range(6):
            x = F.tanh(F.exp(x @ w * 0.1))
        return x

    def kept(call):
        """Bytes that are held behind the forward, and the most in the backward."""
        gc.collect()
        with gm:
            before = memory_statistics().in_use
            y = x
            for w in ws:
                y = call(block, y, w)
            used = memory_statistics().in_use - before
            reset_peak()
            gm.backward(y.sum())
        return used, memory_statistics().peak - before

    whole, most = kept(lambda f, *a: f(*a))
    for call in (checkpoint, lambda f, x, w: checkpoint(lambda x: f(x, w), x)):
        used, at_once = kept(call)
        assert used < whole / 5 and at_once < most / 2, (used, whole, at_once, most)


def test_a_trace_needs_less_memory():
    ws = [Parameter(np.eye(64, dtype="f4")) for _ in range(6)]

    def block(x, w):
        for _ in range(6):
            x = F.tanh(F.exp(x @ w * 0.1))
        return x

    def step(call):
        gm = GradManager().attach(ws)

        def run(x):
            with gm:
                for w in ws:
                    x = call(block, x, w)
                gm.backward(x.sum())
            return x

        return trace(run)

    x, arenas, grads = Tensor(np.full((256, 64), 0.5, "f4")), [], []
    for call in (checkpoint, lambda f, *a: f(*a)):
        run = step(call)
        for w in ws:
            w.grad = None
        run(x)
        grads.append([w.grad.numpy().tobytes() for w in ws])
        arenas.append(run._last.run.program.arena_bytes(()))
    assert grads[0] == grads[1] and arenas[0] < arenas[1] / 2, arenas


def other_tensors():
    ws = [*(kept := [Parameter([2.0]), Parameter([3.0])])]
    with GradManager().attach(kept) as gm:
        gm.backward(checkpoint(lambda x: x * ws.pop(), Tensor([1.0])))


def changed_between():
    w = Parameter([2.0])
    with GradManager().attach(w) as gm:
        y = checkpoint(lambda x: x * w * w, w)
        with no_grad():
            w[...] = 5.0
        gm.backward(y)


def other_results():
    calls = []

    def f(x):
        calls.append(1)
        return x * 2.0 if len(calls) == 1 else F.concat([x, x])

    grad(lambda x: checkpoint(f, x).sum())(Tensor([1.0]))


@pytest.mark.parametrize("mistake, words", [
    (other_tensors, "used 1 tensors around it.*or others, when it was called again; help: "),
    (changed_between, r"a tensor f32\[1\].*was changed before"),
    (other_results, r"returned \[f32\[1\]\], and \[f32\[2\]\] when it was called again"),
])  # fmt: skip
def test_what_cannot_be_computed_again(mistake, words):
    with pytest.raises(GradientError, match=words):
        mistake()
