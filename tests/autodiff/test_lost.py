"""Ways on which a gradient could be lost in silence: each gives it, the same eagerly and traced, or says why not."""

import contextlib
import copy
import gc
import weakref

import numpy as np
import pytest

from tengen import Parameter, Tensor, amp, trace
from tengen import functional as F
from tengen.autodiff import Function, GradManager, grad, value_and_grad, vjp
from tengen.base.errors import GradientError, TraceError, TraceWarning, UsageWarning
from tengen.optimizer import SGD
from tengen.runtime.process import memory_statistics


def t(*v, dtype="float64"):
    return Tensor(np.array(v if len(v) != 1 else v[0], dtype))


def held(w, buffer):
    buffer[...] = w * 3.0
    return buffer * w


def assigned(w, buffer):
    buffer[0:1] = w[1:2]
    buffer += w * w
    return buffer


def reset(w, buffer):
    buffer._reset(buffer * w)
    buffer._reset(F.sin(buffer) * w)
    return buffer


WAYS = {
    "a closure": lambda w, b: grad(lambda y: (w * w * y).sum())(b),
    "a closure of a closure": lambda w, b: grad(lambda y: (grad(lambda z: (w * z * z * y).sum())(b) * y).sum())(b),
    "the value of a closure": lambda w, b: value_and_grad(lambda y: (w * w * y).sum())(b)[0],
    "a pullback": lambda w, b: vjp(lambda y: F.exp(y) * w, b)[1](w)[0],
    "the value of a pullback": lambda w, b: vjp(lambda y: F.exp(y) * w, b)[0],
    "a composite": lambda w, b: grad(lambda y: (F.softmax(y * w) * w * y).sum())(b),
    "a buffer of results": lambda w, b: held(w, b * 1.0),
    "assigned elements": lambda w, b: assigned(w, b * 1.0),
    "given another value": lambda w, b: reset(w, b * 1.0),
    "a buffer around": held,
    "elements of a buffer around": assigned,
    "a buffer around that is given another value": reset,
    "a copy": lambda w, b: copy.copy(w * b) * b,
    "a deep copy": lambda w, b: copy.deepcopy([w * b])[0] * b,
    "the constructor": lambda w, b: Tensor(w * b) * b,
    "the constructor with a dtype": lambda w, b: Tensor(w * b, dtype="float32") * b,
    "dtypes": lambda w, b: (w.astype("float32") * b.astype("float32")).astype("float64"),
    "views": lambda w, b: w.reshape(1, 2).T[::-1, 0] * b,
    "parts": lambda w, b: F.concat(list(F.split(w * b, 2)))[::-1] * w,
    "a manager": lambda w, b: managed(lambda y: (w * w * y * y).sum(), b * 1.0),
    "a manager's gradient of w itself": lambda w, b: managed(lambda y: (y * y * y).sum(), w * 1.0),
}  # fmt: skip


def managed(f, y):
    gm = GradManager().attach(y)
    with gm:
        gm.backward(f(y))
    return y.grad


@pytest.mark.filterwarnings("ignore:.* runs op by op while a gradient is recorded:tengen.base.errors.TraceWarning")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("traced", [False, True, "inside"])
def test_ways(way, traced):
    start = np.array([0.7, -0.4]), np.array([0.3, 1.1])
    scale = t(1.0, 2.0)

    def value(w):
        return float((WAYS[way](Tensor(w), Tensor(start[1])) * scale).sum().item())

    w, b = (Tensor(a) for a in start)
    gm = GradManager().attach(w)

    def step(f):
        with gm:
            y = (f() * scale).sum()
            gm.backward(y)
        return y

    f = lambda: WAYS[way](w, b)
    run = trace(lambda: step(f)) if traced is True else lambda: step(trace(f) if traced else f)
    run()
    h = 1e-3 if "with a dtype" in way or way == "dtypes" else 1e-5
    for i in range(2):
        d = h * np.eye(2)[i]
        v = [value(start[0] + k * d) for k in (1, -1, 2, -2)]
        np.testing.assert_allclose(w.grad.numpy()[i], (8 * (v[0] - v[1]) - (v[2] - v[3])) / (12 * h), rtol=1e-3 if h > 1e-4 else 1e-7)
    assert w._node is None
    if traced:
        again, w.grad = w.grad, None
        w2, b._data = w, Tensor(start[1])._data
        with gm:
            gm.backward((WAYS[way](w2, b) * scale).sum())
        assert w.grad.numpy().tobytes() == again.numpy().tobytes()


# -- what cannot be had is an error ----------------------------------------------------------------------------------------------


class Scaled(Function):
    def __init__(self, w):
        self.w = w

    def forward(self, x):
        return x * self.w

    def backward(self, g):
        return g * self.w


@pytest.mark.parametrize("f", [
    lambda w: Scaled(w)(t(2.0)), lambda w: Scaled(w)(w * 2.0), lambda w: Tensor([w, w]).sum(), lambda w: F.leaky_relu(t(-1.0), w),
    lambda w: Tensor([[1.0], [w]]).sum(), lambda w: F.stack([t(1.0), t(2.0)]).sum() + F.full((2,), [w, 1.0]).sum(),
])  # fmt: skip
def test_what_would_be_lost(f):
    with pytest.raises(GradientError, match="would be lost; help: "):
        grad(f)(t(3.0))
    w = t(3.0)
    gm = GradManager().attach(w)
    with gm, pytest.raises(GradientError, match="would be lost; help: "):
        f(w)
    if not isinstance(f(w), Tensor):
        raise AssertionError


def test_arguments_and_results_that_have_no_gradient():
    for f, what in (
        (lambda: grad(lambda x: x.sum())(Tensor([1])), "argument 0 is not a float tensor.*i64"),
        (lambda: grad(lambda x: x)(1.0), "argument 0 is not a float tensor.* a float"),
        (lambda: grad(lambda x: x, argnums=1)(t(1.0)), "no argument 1.*1 were given"),
        (lambda: grad(lambda x: 1.0)(t(1.0)), "result is a float"),
        (lambda: grad(lambda x: (x, x))(t(1.0)), "result is a tuple"),
        (lambda: grad(lambda x: x.astype("int32"))(t(1.0)), "i32.* has no gradient"),
        (lambda: vjp(lambda x: x, t(1.0))[1]((t(1.0), t(1.0))), "1 outputs and 2 gradients"),
        (lambda: vjp(lambda x: x, t(1.0))[1](t(1.0, 2.0)), r"f64\[\] is given as f64\[2\]"),
    ):
        with pytest.raises(GradientError, match=what):
            f()

    class Odd(Function):
        def forward(self, x, y):
            return x * y

        def backward(self, g):
            return g, g, g

    with pytest.raises(GradientError, match="Odd.backward.. gave 3 gradients for 2 inputs"):
        grad(lambda x: Odd()(x, x))(t(1.0))


# -- managers --------------------------------------------------------------------------------------------------------------------


def test_backward_of_several_elements_seeds_ones():
    x = t(1.0, 2.0)
    gm = GradManager().attach(x)
    for run in (lambda f: f(), lambda f: trace(f)()):
        x.grad = None

        def step():
            with gm:
                gm.backward([x * x, F.exp(x).reshape(2, 1)])

        run(step)
        np.testing.assert_allclose(x.grad.numpy(), 2 * x.numpy() + np.exp(x.numpy()), rtol=1e-15)


def test_attached_tensors_are_held_weakly():
    gm = GradManager()
    x = t(1.0, 2.0)
    seen = []
    with gm:
        gm.attach(x)
        for _ in range(5):
            y = x * x
            gm.attach(y, callbacks=lambda t, g: seen.append(g.tolist()))
            watch = weakref.ref(y)
            gm.backward(y * y)
            gm.record()
    assert len(gm._attached) == 2 and seen == [[2.0, 8.0]] * 5
    del y
    gc.collect()
    assert watch() is None and gm.attached_tensors() == [x]
    del x
    gc.collect()
    assert gm.attached_tensors() == [] and not gm._attached
    manager = weakref.ref(gm)
    del gm
    gc.collect()
    assert manager() is None


def test_results_of_the_block_may_be_attached():
    x = t(3.0)
    with GradManager().attach(x) as gm:
        y = x * x
        z = y * 2.0
        gm.attach(y)  # what was calculated of it already counts
        gm.backward(z * y)
    assert y.grad.item() == 4 * 9 and x.grad.item() == 4 * 9 * 6


@pytest.mark.parametrize("run", [lambda f: f(), lambda f: trace(f)()])
def test_an_update_leaves_parameters_attached(run):
    """An optimizer's step is not differentiated; what is attached stays so."""
    w = Parameter(np.array([2.0]))
    outer, inner, opt = GradManager().attach(w), GradManager().attach(w), SGD([w], lr=0.25)

    def step():
        with outer:
            with inner:
                inner.backward(w * w)
            opt.step().clear_grad()
            outer.backward(w * w * w)

    run(step)
    assert w.item() == 1 and w.grad.item() == 3 and w._node is None


def test_memory_is_let_go_of_where_nobody_else_needs_it():
    w, v = (Parameter(np.full(1 << 16, 0.5, "f4")) for _ in range(2))

    def chain(x):
        for _ in range(8):
            x = F.tanh(x * 0.5)
        return x.sum()

    outer, inner = GradManager().attach(v), GradManager().attach(w)
    for expression, kept in ((chain, False), (lambda x: chain(x * v), True)):
        w.grad = None
        with outer, inner:
            loss = expression(w)
            before = memory_statistics().in_use
            inner.backward(loss)
            now = memory_statistics().in_use
            assert (now > before + 4 * w.size) if kept else (now <= before - 7 * 4 * w.size)
        del loss
    w.grad = None
    before = memory_statistics().in_use
    value, g = value_and_grad(chain)(w)
    assert memory_statistics().in_use <= before + 4 * w.size + 4096 and value._node is None and g._node is None


def test_a_dead_tape_is_left():
    """Totals over steps that nobody took off the tape keep neither it nor what it had kept."""
    w, total = Parameter(np.full(1 << 12, 0.5, "f4")), Tensor(np.float32(0))
    gm = GradManager().attach(w)
    sizes = []
    for _ in range(6):
        w.grad = None
        with gm:
            loss = F.tanh(w).sum() + total * 0.0
            gm.backward(loss)
        total = total + loss
        sizes.append(memory_statistics().in_use)
    assert sizes[-1] <= sizes[2]
    run = trace(lambda x: x * 2.0)
    assert run(total).item() == (total * 2.0).item() and total._node is None and not run._last.open


# -- arguments of traced functions -------------------------------------------------------------------------------------------------


def test_attached_arguments_of_traced_functions():
    gm, w = GradManager(), t(3.0)
    calls = []

    @trace
    def f(x, k):
        calls.append(1)
        with gm:
            y = x * x * w
            gm.backward(y)
        return y * k

    x, other = t(2.0), t(5.0)
    with pytest.warns(UsageWarning, match="nothing is attached"):
        f(x, t(1.0))
    assert x.grad is None and len(calls) == 1
    gm.attach(x)  # after the first call
    for n in (1, 2):
        f(x, t(1.0))
        assert x.grad.item() == 12 * n
    assert len(calls) == 3, "a gradient that is there is added to"
    f(other, t(1.0))  # the first recording, in which nothing was attached
    assert other.grad is None and x.grad.item() == 24
    gm.attach([other, w])
    f(other, t(1.0))
    assert other.grad.item() == 30 and w.grad.item() == 25 and x.grad.item() == 24
    calls.clear()
    for _ in range(4):
        new = t(7.0)
        gm.attach(new)
        f(new, t(1.0))
        assert new.grad.item() == 42
    assert len(calls) <= 2, "one recording serves all attached tensors"


def test_one_tensor_on_two_ways_into_a_trace():
    x, w = t(2.0), t(3.0)
    gm = GradManager().attach(x)

    def f(a, b):
        with gm:
            gm.backward(a * a * b * x)  # x comes as an argument, perhaps two, and as itself
        return a.grad

    run = trace(f)
    for a, b in ((x, x), (x, w), (w, x), (w, w), (x, x), (w, x), (x, w)):
        got, x.grad = run(a, b), None
        found, x.grad = f(a, b), None
        assert (got is None) == (found is None) and (got is None or got.item() == found.item()), (a, b)


def test_callbacks_of_attached_arguments():
    x, y = t(2.0), t(4.0)
    gm = GradManager().attach(x, callbacks=lambda p, g: g * p)

    @trace
    def f(x):
        with gm:
            gm.backward(x * x)

    f(x)
    assert x.grad.item() == 8
    with pytest.warns(UsageWarning, match="added no gradient"):
        f(y)
    assert y.grad is None
    gm.attach(y, callbacks=[lambda p, g: g * 100.0])
    f(y)
    assert y.grad.item() == 800
    x.grad = None
    f(x)
    assert x.grad.item() == 8


def test_freezing_and_thawing_is_seen():
    a, b = Parameter(np.array([2.0])), Parameter(np.array([3.0]))
    gm = GradManager().attach(a)

    @trace
    def step(x):
        with gm:
            gm.backward(a * b * x)

    for _ in range(3):
        step(t([1.0]))
    assert a.grad.item() == 9 and b.grad is None
    gm.attach(b)
    step(t([1.0]))
    assert a.grad.item() == 12 and b.grad.item() == 2


def test_a_gradient_that_is_taken_around_a_traced_function():
    """Its own manager's gradients are on the tape of the one around it, though its result is not."""
    w, v = t(2.0), t(3.0)
    inner, outer = GradManager().attach(w), GradManager().attach(v)

    @trace
    def f(x):
        with inner:
            inner.backward(w * w * v)

    for said in (pytest.warns(TraceWarning, match="op by op while a gradient is recorded"), contextlib.nullcontext()):
        w.grad = v.grad = None
        with outer:
            with said:
                f(t(1.0))
            outer.backward(w.grad * w.grad)
        assert v.grad.item() == 2 * (4 * 3) * 4


def test_managers_that_do_not_end_where_they_began():
    x = t(2.0)
    gm = GradManager().attach(x)

    @trace
    def begins(x):
        gm.record()
        return x * x

    with pytest.raises(TraceError, match="began to record inside of the trace, and did not end there.*help: "):
        begins(x)
    assert x._node is None and not gm.level

    @trace
    def ends(y):
        gm.backward(y * x)

    gm.record()
    y = x * x
    with pytest.raises(TraceError, match="backward.. goes back into what was calculated before the traced function.*help: "):
        ends(y)
    gm.release()
    for n in (1, 2, 3):  # MegEngine 1.0's way
        gm.record()
        ends(t(5.0))
        assert x.grad.item() == 5 * n and not gm.level and x._node is None
    assert len(ends.stats()) == 2


def test_autocast_keeps_gradients():
    w = Parameter(np.array([0.5, 2.0], "f4"))

    def f(x):
        with amp.autocast():
            return (F.linear(x, w.reshape(1, 2)) ** 2).sum()

    x = t([[1.0, 2.0]], dtype="float32")
    mixed = grad(lambda y: (grad(f)(x) * y).sum())
    gm = GradManager().attach(w)
    with gm:
        gm.backward((grad(f)(x) * x).sum())
    s = 0.5 + 4.0  # x w; the gradient of f is 2 s w, its product with x is 2 s^2
    np.testing.assert_allclose(w.grad.numpy(), 4 * s * np.array([1.0, 2.0]), rtol=1e-2)
    assert mixed(x).shape == (1, 2)
