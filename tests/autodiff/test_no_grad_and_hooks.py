"""`no_grad`, and hooks on tensors, parameters and modules: eagerly, traced, nested, in other threads."""

import copy
import pickle
import threading

import numpy as np
import pytest

from tengen import Parameter, Tensor, trace
from tengen import functional as F
from tengen import module as M
from tengen.autodiff import Function, GradManager, enable_grad, grad, jvp, no_grad, value_and_grad, vjp, vmap
from tengen.base.errors import GradientError
from tengen.runtime.process import memory_statistics


def t(*v):
    return Tensor(np.array(v if len(v) != 1 else v[0], "float64"))


@no_grad
def square(x):
    return x * x


class Twice(Function):
    def forward(self, x):
        return x * 2.0

    def backward(self, g):
        return g * 2.0


CONSTANTS = {  # a function of x: what it computes counts as a number
    "a block": lambda x: square(x),
    "a method": lambda x: no_grad()(lambda: x.exp() if hasattr(x, "exp") else F.exp(x))(),
    "a composite": no_grad()(lambda x: F.softmax(F.stack([x, x * 2.0]))[0]),
    "several results": no_grad(lambda x: F.sort(F.stack([x, x * 2.0]))[0][1]),
    "a copy": no_grad(lambda x: Tensor(x)),
    "a list": no_grad(lambda x: Tensor([x, x]).sum() if x._data.__class__.__name__ == "PyCapsule" else x * 2.0),
    "a function": no_grad(lambda x: Twice()(x)),
    "a value of a gradient inside": no_grad(lambda x: value_and_grad(lambda y: y * y * x)(x)[0]),
    "a gradient inside": no_grad(lambda x: grad(lambda y: y * y * x)(x)),
    "a pullback inside": no_grad(lambda x: vjp(lambda y: y * y * x, x)[1](x)[0]),
    "a tangent inside": no_grad(lambda x: jvp(lambda y: y * y * x, [x], [x])[1]),
    "vmap inside": no_grad(lambda x: vmap(lambda a: a * x)(F.stack([x, x])).sum()),
    "a trace inside": no_grad(lambda x: trace(lambda y: y * x)(x)),
    "a manager inside": no_grad(lambda x: managed(x)),
}  # fmt: skip


def managed(x):
    y = x.detach()
    with GradManager().attach(y) as gm:
        gm.backward(y * y * x)
    return y.grad


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("name", CONSTANTS)
def test_what_is_computed_inside_is_a_number(name, traced):
    if traced and name in ("a trace inside", "a list"):
        return
    f, x = CONSTANTS[name], t(3.0)
    run = (lambda g: trace(g)) if traced else (lambda g: g)
    value = f(x).item()
    assert run(lambda x: grad(lambda x: f(x) * x)(x))(x).item() == pytest.approx(value)
    with GradManager().attach(x) as gm:
        y = f(x)
        assert y._node is None
        gm.backward(x * y)
    assert x.grad.item() == pytest.approx(value) and x._node is None


def test_modes_nest_and_end():
    def f(x):
        with no_grad():
            a = x * x
            with enable_grad():
                b = x * a
                with no_grad():
                    c = b * x
                b = b * c
            d = b * x
        return b + d + (x * 1.0)

    assert grad(f)(t(2.0)).item() == 4 * 16 + 1  # of b = x a c the first factor counts
    with pytest.raises(ZeroDivisionError), no_grad():
        raise ZeroDivisionError
    assert grad(lambda x: x * x)(t(2.0)).item() == 4


def test_an_attached_tensor_that_is_written_stays_attached():
    for write in (lambda w: w.__setitem__(0, 5.0), lambda w: w._reset(w * 1.0 + t([4.0, 0.0])), lambda w: w.__iadd__(t([4.0, 0.0]))):
        w = Parameter(np.array([1.0, 2.0]))
        with GradManager().attach(w) as gm:
            before = (w * w).sum()
            with no_grad():
                write(w)
            gm.backward(before + (w * w).sum())
        assert w.tolist() == [5, 2] and w.grad.tolist() == [12, 8]


def test_other_threads_go_on_recording():
    inside, done = threading.Event(), threading.Event()

    def hold():
        with no_grad():
            inside.set()
            done.wait(10)

    other = threading.Thread(target=hold)
    other.start()
    inside.wait(10)
    found = grad(lambda x: x * x + F.exp(x))(t(1.0)).item()
    done.set()
    other.join()
    assert found == pytest.approx(2 + np.e)


def test_it_keeps_nothing():
    w = Parameter(np.full(1 << 16, 0.5, "f4"))
    with GradManager().attach(w) as gm:
        before = memory_statistics().in_use
        with no_grad():
            y = w
            for _ in range(8):
                y = F.tanh(y * 0.5)
        assert memory_statistics().in_use <= before + 4 * w.size + 4096
        gm.backward((w * y).sum())


# -- hooks ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("traced", [False, True])
def test_hooks_of_results(traced):
    seen = []

    def step(x):
        with GradManager().attach(x) as gm:
            y = x * x
            first, second = F.split(F.concat([y, y * 3.0]), 2)
            second.register_hook(lambda g: g * 10.0)
            with y.register_hook(lambda g: seen.append(1)):
                pass  # taken off again
            y.register_hook(lambda g: seen.append(g.shape))
            gm.backward(first.sum() + second.sum())
        return x.grad

    x = t(1.0, 2.0)
    g = (trace(step) if traced else step)(x)
    assert g.tolist() == [62, 124] and seen == [(2,)]


def test_hooks_of_parameters_outlast_traces():
    w, v = Parameter(np.array([2.0])), Parameter(np.array([3.0]))
    gm = GradManager().attach([w, v], callbacks=lambda p, g: g + 1.0)

    @trace
    def step(x):
        with gm:
            gm.backward(w * v * x)

    step(t([1.0]))
    handle = w.register_hook(lambda g: g * 10.0)
    for _ in range(2):
        w.grad = v.grad = None
        step(t([1.0]))
        assert w.grad.item() == 40 and v.grad.item() == 3
    handle.remove()
    w.grad = None
    step(t([1.0]))
    assert w.grad.item() == 4
    w.register_hook(lambda g: None)
    for other in (copy.copy(w), copy.deepcopy(w), pickle.loads(pickle.dumps(w))):
        assert not hasattr(other, "_hooks")


def test_hooks_in_nested_gradients():
    def f(x):
        y = x * x
        y.register_hook(lambda g: g * x)  # so that the gradient of sum(y) is 2 x^2
        return y.sum()

    assert grad(f)(t(3.0)).item() == 18
    assert grad(grad(f))(t(3.0)).item() == 4 * 3


@pytest.mark.parametrize("call, words", [
    (lambda x: x.register_hook(lambda g: g), r"register_hook\(\) of f64\[2\]: no gradient is being recorded.*callbacks"),
    (lambda x: grad(lambda x: hooked(x, lambda g: 1.0).sum())(x), r"a hook made a float of the gradient f64\[2\]"),
    (lambda x: grad(lambda x: hooked(x, lambda g: g[0]).sum())(x), r"a hook made f64\[\] of the gradient f64\[2\]; help: the same shape"),
])  # fmt: skip
def test_hooks_that_cannot_be(call, words):
    with pytest.raises(GradientError, match=words):
        call(t(1.0, 2.0))


def hooked(x, hook):
    y = x * 2.0
    y.register_hook(hook)
    return y


def test_backward_hooks_of_modules():
    net = M.Sequential(M.Linear(2, 3), M.Linear(3, 1))
    x, seen = F.ones((4, 2)), []
    first = net[0].register_full_backward_hook(lambda m, gi, go: seen.append(("first", gi, go[0].shape)))
    net[1].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2.0,))
    gm = GradManager().attach(net.parameters())

    def step(x):
        with gm:
            gm.backward(net(x).sum())
        return net[0].weight.grad

    doubled = step(x)
    assert seen == [("first", (None,), (4, 3))]
    want = 2 * net[1].weight.numpy().T @ x.numpy().sum(0, keepdims=True)
    np.testing.assert_allclose(doubled.numpy(), want, rtol=1e-6)
    net.zero_grad()
    first.remove()
    assert trace(step)(x).numpy().tobytes() == doubled.numpy().tobytes() and len(seen) == 1
    attached = GradManager().attach(x)
    net[0].register_full_backward_hook(lambda m, gi, go: seen.append(gi[0].tolist()))
    with attached:
        attached.backward(net(x).sum())
    assert seen[-1] == x.grad.tolist()
    net[1].register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))
    with pytest.raises(GradientError, match=r"a backward hook of Linear made \(f32\[4,3\], f32\[4,3\]\) of the gradients \(f32\[4,3\]\)"):
        step(x)
    assert not copy.deepcopy(M.Linear(1, 1))._backward_hooks
    with no_grad():
        assert net(x).shape == (4, 1)


def test_hooks_before_a_module_s_gradients():
    net, seen = M.Sequential(M.Linear(2, 3), M.Linear(3, 1)), []
    net[1].register_full_backward_hook(lambda m, gi, go: seen.append(go[0].tolist()))
    first = net[1].register_full_backward_pre_hook(lambda m, go: (go[0] * 2.0,))
    net[1].register_full_backward_pre_hook(lambda m, go: seen.append(go[0].tolist()), prepend=True)
    gm = GradManager().attach(net.parameters())
    with gm:
        gm.backward(net(F.ones((1, 2))).sum())
    assert seen == [[[1.0]], [[2.0]]] and net[1].bias.grad.item() == 2.0
    np.testing.assert_allclose(net[0].bias.grad.numpy(), 2 * net[1].weight.numpy()[0], rtol=1e-6)
    first.remove()
    net[1].register_full_backward_pre_hook(lambda m, go: go[0].sum())
    with pytest.raises(GradientError, match=r"a backward hook of Linear made \(f32\[\]\) of the gradients \(f32\[1,1\]\)"), gm:
        gm.backward(net(F.ones((1, 2))).sum())


def test_detach_in_place():
    def f(x):
        y = x * x
        z = y * 3.0
        return (z + y.detach_() * x).sum()

    assert grad(f)(t(2.0)).item() == 3 * 2 * 2 + 4


@pytest.mark.parametrize("leaves", [False, True])
def test_gradients_arrive_while_the_walk_goes_on(leaves):
    """A hook that comes after takes the gradient of a later layer away before that of an earlier one is there; sums and bits are those
    without hooks, also of a parameter that is used twice and of slices."""
    def grads(hooked):
        ws = [Parameter(np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3) * (i + 1)) for i in range(3)]
        unused, seen, taken = Parameter(np.ones(3, np.float32)), [], {}

        def after(i):
            def take(p):
                seen.append((i, [j for j in range(3) if ws[j].grad is not None]))
                taken[i] = p.grad.numpy().tobytes()
                p.grad = None
            return take

        for i, w in enumerate(ws):
            w.register_hook(lambda g: g * 2)
            if hooked:
                w.register_post_accumulate_grad_hook(after(i))
        gm = None if leaves else GradManager().attach([*ws, unused])
        if leaves:
            for w in ws:
                w.requires_grad_()
        else:
            gm.record()
        y = F.tanh(Tensor(np.ones((2, 3), np.float32)) @ ws[0]) * ws[0][0]
        y = F.tanh(F.tanh(y @ ws[1]) @ ws[1]) @ ws[2]
        y = (y * ws[2][:2, 1:2]).sum() + (y * ws[2][:2, 0:1]).sum()
        y.backward() if leaves else gm.backward(y)
        return [taken[i] for i in range(3)] if hooked else [w.grad.numpy().tobytes() for w in ws], seen

    plain, _ = grads(False)
    found, seen = grads(True)
    assert found == plain
    assert seen == [(2, [2]), (1, [1]), (0, [0])]
