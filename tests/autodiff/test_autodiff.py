"""GradManager, grad, value_and_grad, vjp, Function: against closed forms and finite differences."""

import gc
import weakref

import numpy as np
import pytest

from tengen import Parameter, Tensor
from tengen import functional as F
from tengen.autodiff import Function, GradManager, grad, value_and_grad, vjp
from tengen.base.errors import GradientError, UsageWarning
from tengen.ops.define import REGISTRY
from tengen.runtime.process import memory_statistics


def t(*v, dtype="float64"):
    return Tensor(np.array(v, dtype))


# -- GradManager -------------------------------------------------------------------------------------------------------------


def test_backward_accumulates_and_release_forgets():
    x = t(1.0, 2.0)
    gm = GradManager().attach([x])
    assert x.grad is None and gm.attached_tensors() == [x]
    for k in (1, 2):
        with gm:
            gm.backward((x * x).sum())
        assert x.grad.tolist() == [2 * k, 4 * k]
    gm.record()
    y = (x * 3).sum()
    gm.release()
    assert x._node is None
    with pytest.raises(GradientError, match="nothing is being recorded; help: "):
        gm.backward(y)
    assert x.grad.tolist() == [4, 8]
    x.grad = None
    gm.record()
    gm.backward((x * 3).sum())
    assert x.grad.tolist() == [3, 3]


def test_seeds_and_several_outputs():
    x, w = t(1.0, 2.0), t(3.0, 4.0)
    gm = GradManager().attach(x).attach([w])
    with gm:
        gm.backward(x * w, dy=t(10.0, 100.0))
    assert x.grad.tolist() == [30, 400] and w.grad.tolist() == [10, 200]
    x.grad = w.grad = None
    with gm:
        gm.backward([(x * x).sum(), x * w], [None, t(1.0, 1.0)])
    assert x.grad.tolist() == [2 + 3, 4 + 4] and w.grad.tolist() == [1, 2]
    with gm, pytest.raises(GradientError, match=r"f64\[2\] is given as f64\[3,2\]; help: dy is a float tensor of its shape"):
        gm.backward(x * w, dy=Tensor(np.ones((3, 2))))
    with gm, pytest.raises(GradientError, match=r"i64\[2\] has no gradient; help: "):
        gm.backward(Tensor([1, 2]))
    with gm, pytest.raises(GradientError, match="1 outputs and 2 gradients"):
        gm.backward(x.sum(), [None, None])
    assert x._node is None


def test_callbacks_see_and_change_gradients():
    x, seen = t(1.0, 2.0), []
    gm = GradManager().attach(x, callbacks=[lambda p, g: seen.append((p is x, g.tolist())), lambda p, g: g * 2])
    with gm:
        gm.backward((x * x).sum())
    assert seen == [(True, [2, 4])] and x.grad.tolist() == [4, 8]


def test_unused_and_late_tensors():
    x, unused, late = t(1.0), t(1.0), t(2.0)
    gm = GradManager().attach([x, unused])
    with gm:
        gm.attach(late)
        gm.backward((x * late).sum())
    assert unused.grad is None and x.grad.item() == 2 and late.grad.item() == 1
    with gm, pytest.warns(UsageWarning, match="added no gradient"):
        gm.backward(t(5.0).sum())  # depends on nothing
    assert x.grad.item() == 2


def test_managers_side_by_side():
    x, y = t(2.0), t(3.0)
    a, b = GradManager().attach(x), GradManager().attach(y)
    with a, b:
        z = x * y * y
        b.backward(z)
        a.backward(z)
    assert x.grad.item() == 9 and y.grad.item() == 12


def test_nested_managers_give_second_derivatives():
    x = t(2.0)
    outer, inner = GradManager().attach(x), GradManager().attach(x)
    with outer:
        with inner:
            inner.backward((x * x * x).sum())
        first = x.grad
        x.grad = None
        outer.backward(first.sum())
    assert abs(first.item() - 12) < 1e-9 and abs(x.grad.item() - 12) < 1e-9


def test_manager_errors():
    with pytest.raises(TypeError, match="attach.. takes tensors, got a list"):
        GradManager().attach([[1.0]])
    with pytest.raises(GradientError, match="int64 has no gradient"):
        GradManager().attach(Tensor([1]))
    gm = GradManager().attach(t(1.0)).record()
    with pytest.raises(GradientError, match="records already"):
        gm.record()
    gm.release()
    gm.release()


def test_an_exception_ends_recording():
    x = t(1.0)
    gm = GradManager().attach(x)
    with pytest.raises(KeyError), gm:
        raise KeyError
    assert x._node is None and x.grad is None
    with gm:
        gm.backward(x * 2)
    assert x.grad.item() == 2


def test_the_tape_is_dropped_with_its_tensors():
    x = Parameter(np.ones(4))
    gm = GradManager().attach(x)
    gc.disable()
    try:
        with gm:
            y = F.softmax(x * 2) * x
            watch = weakref.ref(y)
            gm.backward(y.sum())
        del y
        assert watch() is None, "no circle keeps the tape alive"
    finally:
        gc.enable()


def test_in_place_updates_are_recorded():
    x = t(3.0)
    with GradManager().attach(x) as gm:
        y = x * 1
        y *= x
        y += 1
        gm.backward(y)
    assert x.grad.item() == 6


# -- functions ---------------------------------------------------------------------------------------------------------------


def test_grad_and_value_and_grad():
    f = lambda x, k: (x * x * k).sum()
    value, g = value_and_grad(f)(t(1.0, 2.0), 3.0)
    assert value.item() == 15 and g.tolist() == [6, 12] and value._node is None and g._node is None
    assert [x.tolist() for x in grad(f, argnums=(0, 1))(t(1.0, 2.0), t(3.0))] == [[6, 12], [5]]
    assert [x.tolist() for x in grad(lambda x, y: x.sum(), argnums=(0, 1))(t(1.0), t(2.0))] == [[1], [0]]
    third = grad(grad(grad(lambda x: x * x * x * x)))
    assert third(t(2.0).sum()).item() == 48
    mixed = grad(lambda x, y: grad(lambda x, y: x * x * y)(x, y), argnums=1)
    assert mixed(t(3.0).sum(), t(5.0).sum()).item() == 6
    with pytest.raises(GradientError, match="argument 0 is not a float tensor"):
        grad(lambda x: x)(Tensor([1]))
    with pytest.raises(GradientError, match=r"result is f64\[2\], and only a tensor of one element.*help: "):
        grad(lambda x: x * x)(t(1.0, 2.0))


def test_vjp():
    value, pull = vjp(lambda a, b: (a * b, a.sum()), t(1.0, 2.0), t(3.0, 4.0))
    assert [v.tolist() for v in value] == [[3, 8], 3]
    for _ in range(2):
        assert [g.tolist() for g in pull((t(1.0, 10.0), t(100.0).sum()))] == [[103, 140], [1, 20]]


def test_a_function_of_one_s_own():
    class Cube(Function):
        def forward(self, x, y):
            self.x = x
            return x * x * x, y

        def backward(self, gx, gy):
            return gx * self.x * self.x * 3 * 100, gy  # 100: to be told from the derived one

    def f(x, y):
        a, b = Cube()(x, y)
        return (a + b).sum()

    gx, gy = grad(f, argnums=(0, 1))(t(2.0), t(1.0))
    assert gx.item() == 1200 and gy.item() == 1


# -- through layouts and dtypes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("f", [
    lambda x: x.T * t(1.0, 2.0), lambda x: x.reshape(3, 2) * x.T, lambda x: F.broadcast_to(x, (4, 2, 3)) * 2,
    lambda x: x + x.sum(0), lambda x: x.sum(1, keepdims=True) * x, lambda x: x.astype("float32") * 1.5,
    lambda x: (x * 2).detach() * x, lambda x: x.max(1) * x.min(0).sum(), lambda x: x / x.mean(), lambda x: F.softmax(x, 0) * x,
    lambda x: F.flatten(x) @ F.flatten(x), lambda x: x @ x.T,
])  # fmt: skip
def test_views_broadcasts_and_casts(f):
    r = np.random.default_rng(2)
    a = r.uniform(0.5, 2, (2, 3))
    d = r.uniform(-1, 1, (2, 3))
    x = Tensor(a)
    g = grad(lambda x: (f(x) * f(x)).sum())(x)
    assert g.dtype is x.dtype and g.shape == x.shape
    h = 1e-5
    if f(x).dtype == "float32":  # no differences of what is rounded so: the gradient of (1.5 x)^2 is 4.5 x
        np.testing.assert_allclose(g.numpy(), 4.5 * a, rtol=4 * 2.0**-24)
        return
    if "detach" in f.__code__.co_names:
        want = (16 * a**3 * d / 2 * 1).sum()  # d/dx (2c x)^2 with c = x held: 8 c^2 x
        np.testing.assert_allclose((g.numpy() * d).sum(), want, rtol=1e-9)
        return

    def value(s):
        y = f(Tensor(a + s * h * d))
        return float((y * y).sum().item())

    slope = (8 * (value(1) - value(-1)) - (value(2) - value(-2))) / (12 * h)
    np.testing.assert_allclose((g.numpy() * d).sum(), slope, rtol=1e-7)


def test_promotion_gives_each_input_its_dtype():
    a, b, c = Tensor([1.0], dtype="float16"), Tensor([2.0], dtype="float32"), Tensor([3.0], dtype="float64")
    gm = GradManager().attach([a, b, c])
    with gm:
        gm.backward((a * b * c).sum())
    assert [x.grad.dtype.name for x in (a, b, c)] == ["float16", "float32", "float64"]
    assert [x.grad.item() for x in (a, b, c)] == [6, 3, 2]
    i = Tensor([2])
    with GradManager().attach(b) as gm:
        b.grad = None
        gm.backward((b * i + (b > 0)).sum())
    assert b.grad.item() == 2


def test_a_tensor_used_many_times():
    x = t(1.5)
    gm = GradManager().attach(x)
    with gm:
        y = x
        for _ in range(200):
            y = y + x * 0.5
        gm.backward(y)
    assert x.grad.item() == 101
    x.grad = None
    with gm:
        y = x
        for _ in range(3000):
            y = y * 1.0
        gm.backward(y)
    assert x.grad.item() == 1, "deep tapes need no recursion"


# -- composites --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, shapes, attrs", [
    ("var", [(3, 5)], {"axis": 1}), ("logsumexp", [(3, 5)], {"axis": 0}), ("layer_norm", [(3, 5), (5,), (5,)], {}),
    ("group_norm", [(2, 4, 3), (4,), (4,)], {"num_groups": 2}), ("linear", [(3, 5), (2, 5), (2,)], {}),
    ("softmax", [(3, 5)], {"axis": 1}), ("logsoftmax", [(3, 5)], {"axis": 0}), ("sum_to", [(3, 5)], {"shape": (1, 5)}),
    ("batch_norm_eval", [(4, 3), (1, 3), (1, 3), (1, 3), (1, 3)], {}),
])  # fmt: skip
def test_gradients_of_composites_are_those_of_their_bodies(name, shapes, attrs):
    op = REGISTRY[name]
    r = np.random.default_rng(4)
    xs = [Tensor(r.uniform(0.5, 2, s)) for s in shapes]
    seed = Tensor(r.uniform(-1, 1, op.call(**dict(zip(op.tensors, xs)), **attrs).shape))

    def run(call):
        def f(*xs):
            args = {
                **{a: p.default for a, p in __import__("inspect").signature(op.fn).parameters.items() if a in op.attrs},
                **attrs,
            }
            return call(**dict(zip(op.tensors, xs)), **args)

        return vjp(f, *xs)[1](seed)

    for a, b in zip(run(op.call), run(op.fn)):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-14)


def test_values_of_the_moment_are_differentiated():
    """Tensors that are changed in place after they were used: the tape keeps what they were."""
    x, w = t(2.0), Parameter(np.array([3.0]))
    gm = GradManager().attach(x)
    with gm:
        y = x * w
        w._reset(w * 100)
        z = y * y
        y += 1000
        gm.backward(z)
    assert x.grad.item() == 2 * 2 * 9
    layers = [Parameter(np.array([k])) for k in (2.0, 5.0)]
    gm = GradManager().attach(layers)
    with gm:
        out = layers[0] * layers[1]
        for p in layers:
            p._reset(p - 1)
        gm.backward(out)
    assert [p.grad.item() for p in layers] == [5, 2]


def test_backward_lets_go_of_what_was_kept():
    w = Parameter(np.full(1 << 16, 0.5, "f4"))
    gm = GradManager().attach(w)
    with gm:
        x = w
        for _ in range(8):
            x = F.tanh(x * 0.5)
        loss = x.sum()
        del x
        before = memory_statistics().in_use
        gm.backward(loss)
    assert memory_statistics().in_use <= before - 7 * 4 * w.size  # one gradient more, eight results less
    w.grad = None
    with gm:
        gm.backward((w * loss).sum())  # what is left of the record has no way to w
    assert (w.grad.numpy() == loss.item()).all()
