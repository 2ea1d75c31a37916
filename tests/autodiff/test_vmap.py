"""`vmap` nests with itself, with gradients, with traces and with the user's own functions, and keeps every example's bits; what
cannot be done for all examples at once is an error. (Every op: `tests/ops/test_batching.py`.)"""

import numpy as np
import pytest

from tengen import Tensor, random, trace
from tengen import functional as F
from tengen.autodiff import Function, GradManager, grad, hessian, hvp, jacobian, jvp, value_and_grad, vjp, vmap
from tengen.base.errors import ArgumentError, AxisError, GradientError, IndexOutOfRange, ShapeError, VmapError
from tengen.module import Conv2d, Linear, ReLU, Sequential
from tengen.ops.define import dispatch

RNG = np.random.default_rng(7)


def T(*shape, dtype="float32"):
    return Tensor(RNG.standard_normal(shape).astype(dtype))


def equal(a, b):
    assert a.shape == b.shape and a.dtype is b.dtype
    assert a.numpy().tobytes() == b.numpy().tobytes(), np.abs(a.numpy() - b.numpy()).max()


def layer(w, x):
    return F.softmax(F.relu(x @ w), -1)


def test_axes_and_nests():
    x, w = T(4, 5, 3), T(3, 6)
    want = F.stack([layer(w, x[:, i]) for i in range(5)])
    equal(vmap(layer, in_axes=(None, 1))(w, x), want)
    equal(vmap(layer, in_axes=(None, -2), out_axes=-1)(w, x), F.moveaxis(want, 0, -1))
    got = vmap(lambda d, k: {"y": [layer(d["w"], d["x"][0]), d["w"]]}, ({"w": None, "x": [1]}, 0), {"y": [1, None]})({"w": w, "x": [x]}, x[0])
    equal(got["y"][0], F.moveaxis(want, 0, 1))
    assert got["y"][1] is w
    equal(vmap(lambda x: w)(x), F.stack([w] * 4))  # the same for all
    assert vmap(lambda x, scale: x * scale, (0, None))(x, 2).shape == x.shape


def test_it_nests_with_itself():
    a, b = T(4, 3), T(5, 3)
    got = vmap(lambda u: vmap(lambda v: (u * v).sum())(b))(a)
    equal(got, F.stack([F.stack([(a[i] * b[j]).sum() for j in range(5)]) for i in range(4)]))
    got = vmap(lambda u: vmap(lambda v: F.sort(u * v)[0])(b), out_axes=1)(a)
    equal(got, F.stack([F.stack([F.sort(a[i] * b[j])[0] for j in range(5)]) for i in range(4)], 1))


def test_gradients_inside_and_outside():
    x, w = T(4, 2, 3), T(3, 6)
    loss = lambda w, x: (layer(w, x) ** 2).sum()
    each = [value_and_grad(loss)(w, x[i]) for i in range(4)]
    values, grads = vmap(value_and_grad(loss), (None, 0))(w, x)
    equal(values, F.stack([v for v, _ in each]))
    equal(grads, F.stack([g for _, g in each]))
    outer = grad(lambda w: vmap(loss, (None, 0))(w, x).sum())(w)
    np.testing.assert_allclose(outer.numpy(), grads.numpy().sum(0), rtol=1e-5, atol=1e-6)
    # the gradient of the norm of the gradients of all examples, which needs both levels
    norm = lambda w: (vmap(grad(loss), (None, 0))(w, x) ** 2).sum()
    slow = lambda w: sum((grad(loss)(w, x[i]) ** 2).sum() for i in range(4))
    np.testing.assert_allclose(grad(norm)(w).numpy(), grad(slow)(w).numpy(), rtol=2e-5, atol=1e-6)


def test_detach_holds_around_a_vmap_too():
    x = T(3)
    got = grad(lambda x: vmap(lambda v: v * v.detach())(x).sum())(x)
    equal(got, x)


def test_a_manager_around_and_inside():
    x, w = T(4, 3), T(3)
    gm = GradManager().attach([w])
    with gm:
        gm.backward(vmap(lambda v: (v * w).sum())(x).sum())
    np.testing.assert_allclose(w.grad.numpy(), x.numpy().sum(0), rtol=1e-6)

    def inside(v):
        with GradManager().attach([w]) as gm:
            gm.backward((v * w).sum())

    with pytest.raises(VmapError, match="is the same for all examples is given a value"):
        vmap(inside)(x)


def test_per_example_gradients_of_a_convolution_are_one_call():
    """Filters of each example are groups, so the number of calls does not grow with the examples."""
    x, w = T(6, 1, 3, 9, 9), T(8, 3, 3, 3)
    loss = lambda w, x: (F.relu(F.conv2d(x, w, padding=1)) ** 2).sum()
    calls = []

    def counting(run):
        def go(op, inputs, attrs):
            calls.append(op.name)
            return run(op, inputs, attrs)

        return go

    def count(n):
        calls.clear()
        dispatch.add_filter(counting)
        try:
            got = vmap(grad(loss), (None, 0))(w, x[:n])
        finally:
            dispatch.remove_filter(counting)
        return got, len(calls)

    (_, few), (got, many) = count(2), count(6)
    assert few == many and "stack" not in calls
    equal(got, F.stack([grad(loss)(w, x[i]) for i in range(6)]))


def test_networks_and_traces():
    net = Sequential(Conv2d(2, 4, 3), ReLU(), Conv2d(4, 4, 3, groups=2))
    x = T(3, 2, 2, 8, 8)
    want = F.stack([net(x[i]) for i in range(3)])
    f = vmap(net)
    equal(f(x), want)
    traced = trace(f)
    equal(traced(x), want)
    equal(traced(x), want)
    equal(vmap(trace(net))(x), want)
    linear = Linear(3, 2)
    g = trace(vmap(grad(lambda v: (linear(v) ** 2).sum())))
    y = T(5, 3)
    equal(g(y), F.stack([grad(lambda v: (linear(v) ** 2).sum())(y[i]) for i in range(5)]))


class Clipped(Function):
    """A gradient that is not that of the forward pass."""

    def forward(self, x, w):
        self.w = w
        return x * w

    def backward(self, dy):
        return dy * 100, dy * self.w * 10


def test_functions_with_gradients_of_their_own():
    x, w = T(4, 3), T(3)
    f = lambda x, w: Clipped()(x, w).sum()
    equal(vmap(grad(f), (0, None))(x, w), F.full((4, 3), 100.0))  # inside
    equal(grad(lambda x: vmap(f, (0, None))(x, w).sum())(x), F.full((4, 3), 100.0))  # around
    np.testing.assert_allclose(grad(lambda w: vmap(f, (0, None))(x, w).sum())(w).numpy(), 40 * w.numpy(), rtol=1e-6)  # the same in all
    equal(vmap(grad(f, 1), (0, None))(x, w), F.stack([w * 10] * 4))
    nested = grad(lambda x: vmap(lambda v: grad(f)(v, w) * v)(x).sum())(x)
    equal(nested, F.full((4, 3), 100.0))

    with pytest.raises(GradientError, match="not among its inputs"):
        grad(lambda w_: vmap(lambda v: _closed(w_)(v).sum())(x).sum())(w)


def _closed(w):
    class Closed(Function):
        def forward(self, x):
            return x * w

        def backward(self, dy):
            return dy

    return Closed()


def test_random_numbers():
    x = T(4, 3)
    random.manual_seed(3)
    got = vmap(lambda v: v * 0 + random.normal(size=(3,)), randomness="same")(x)
    random.manual_seed(3)
    equal(got, F.stack([random.normal(size=(3,))] * 4))
    random.manual_seed(3)
    got = vmap(lambda v: random.normal(size=(3,)), randomness="different")(x)
    random.manual_seed(3)
    equal(got, random.normal(size=(4, 3)))
    rate = F.abs(x) + 1
    random.manual_seed(3)
    got = vmap(lambda v: random.gamma(v), randomness="different")(rate)
    random.manual_seed(3)
    equal(got, random.gamma(rate))
    got = vmap(lambda v: vmap(lambda u: random.uniform(size=()), randomness="same")(v), randomness="different")(x).numpy()
    assert len(np.unique(got)) == 4 and (got == got[:, :1]).all()
    assert len(np.unique(vmap(lambda v: F.dropout(F.ones((50,)), 0.5) + v[0] * 0, randomness="different")(x).numpy().sum(1))) > 1
    with pytest.raises(VmapError, match="randomness='different'"):
        vmap(lambda v: v + random.normal(size=(3,)))(x)


def test_writing_in_place():
    x = T(4, 3)

    def own(v):
        y = v * 0
        y[1] = v[0]
        y[0:1] = 5.0
        return y

    equal(vmap(own)(x), F.stack([own(x[i]) for i in range(4)]))
    outside = F.zeros((3,))

    def write(v):
        outside[0] = v[0]
        return v

    with pytest.raises(VmapError, match="same for all examples is given a value that differs"):
        vmap(write)(x)
    assert outside.tolist() == [0, 0, 0]


def test_what_cannot_be():
    x = T(4, 3)
    with pytest.raises(VmapError, match="asked for inside of vmap"):
        vmap(lambda v: v if v.sum() > 0 else -v)(x)
    with pytest.raises(ShapeError, match="has 5 examples along axis 0, an argument before it has 4"):
        vmap(lambda a, b: a)(x, T(5, 3))
    with pytest.raises(AxisError):
        vmap(lambda a: a, in_axes=2)(x)
    with pytest.raises(AxisError):
        vmap(lambda a: a, out_axes=2)(x)
    with pytest.raises(ArgumentError, match="no argument has an axis"):
        vmap(lambda a: a, in_axes=None)(x)
    with pytest.raises(ArgumentError, match="in_axes has 1 entries for 2"):
        vmap(lambda a, b: a, in_axes=(0,))(x, x)
    with pytest.raises(ArgumentError, match="out_axes is None for a result"):
        vmap(lambda a: a, out_axes=None)(x)
    with pytest.raises(ArgumentError, match="returned a float"):
        vmap(lambda a: 1.0)(x)
    with pytest.raises(ArgumentError, match="randomness='often'"):
        vmap(lambda a: a, randomness="often")
    with pytest.raises(ShapeError, match=r"matmul\(f32\[3\], f32\[2\]"):
        vmap(lambda a: a @ F.ones((2,)))(x)
    with pytest.raises(IndexOutOfRange):
        vmap(lambda i: x[i])(Tensor([0, 9]))
    kept = []
    vmap(lambda a: kept.append(a) or a)(x)
    with pytest.raises(VmapError, match="vmap that has ended"):
        kept[0] + 1


def test_no_examples():
    assert vmap(lambda v: layer(T(3, 6), v))(F.zeros((0, 2, 3))).shape == (0, 2, 6)


# ---- derivatives ---------------------------------------------------------------------------------------------------------


def composed(x):
    return F.tanh(x @ Tensor(np.arange(12, dtype=np.float64).reshape(4, 3) / 7)) * F.exp(-x[:3])


def numeric(f, x, eps=1e-6):
    """Central differences along each element, appended as axes."""
    rows = []
    for i in range(x.size):
        e = np.zeros(x.size)
        e[i] = eps
        e = e.reshape(x.shape)
        rows.append((f(Tensor(x + e)).numpy() - f(Tensor(x - e)).numpy()) / (2 * eps))
    return np.moveaxis(np.stack(rows), 0, -1).reshape(*rows[0].shape, *x.shape)


def test_jacobians_and_hessians():
    x = RNG.standard_normal(4)
    np.testing.assert_allclose(jacobian(composed)(Tensor(x)).numpy(), numeric(composed, x), rtol=1e-7, atol=1e-9)
    scalar = lambda x: (composed(x) ** 2).sum()
    want = numeric(grad(scalar), x)
    got = hessian(scalar)(Tensor(x)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)
    v = RNG.standard_normal(4)
    value, (along,) = hvp(scalar, [Tensor(x)], [Tensor(v)])
    np.testing.assert_allclose(along.numpy(), got @ v, rtol=1e-12)
    np.testing.assert_allclose(value.item(), scalar(Tensor(x)).item())
    several = jacobian(lambda a, b: (a * b, a.sum()), (0, 1))(T(3, dtype="float64"), T(3, dtype="float64"))
    assert [[j.shape for j in js] for js in several] == [[(3, 3), (3, 3)], [(3,), (3,)]]
    third = jacobian(hessian(lambda x: (x**3).sum()))(Tensor(x)).numpy()
    np.testing.assert_allclose(third, numeric(hessian(lambda x: (x**3).sum()), x), atol=1e-7)
    each = vmap(hessian(scalar))(Tensor(np.stack([x, 2 * x]))).numpy()
    np.testing.assert_allclose(each[0], got, rtol=1e-12)
    np.testing.assert_array_equal(trace(hessian(scalar))(Tensor(x)).numpy(), got)


def test_jvp():
    x, v = RNG.standard_normal(4), RNG.standard_normal(4)
    value, along = jvp(composed, [Tensor(x)], [Tensor(v)])
    np.testing.assert_array_equal(value.numpy(), composed(Tensor(x)).numpy())
    np.testing.assert_allclose(along.numpy(), numeric(composed, x) @ v, rtol=1e-7)
    (y, z), (dy, dz) = jvp(lambda a, b: (a * b, a.sum()), [Tensor(x), Tensor(v)], [Tensor(v), Tensor(x)])
    np.testing.assert_allclose(dy.numpy(), v * v + x * x, rtol=1e-12)
    np.testing.assert_allclose(dz.numpy(), v.sum(), rtol=1e-12)
    second = jvp(lambda x: jvp(composed, [x], [Tensor(v)])[1], [Tensor(x)], [Tensor(v)])[1]
    np.testing.assert_allclose(second.numpy(), numeric(lambda x: jvp(composed, [x], [Tensor(v)])[1], x) @ v, rtol=1e-6)
    pushed = vmap(lambda v: jvp(composed, [Tensor(x)], [v])[1])(Tensor(np.eye(4))).numpy()
    np.testing.assert_allclose(pushed.T, jacobian(composed)(Tensor(x)).numpy(), rtol=1e-12)
    with pytest.raises(ShapeError, match="tangent 0 has the shape"):
        jvp(composed, [Tensor(x)], [Tensor(v[:2])])
    calls = {
        "arguments": lambda: jvp(composed, Tensor(x[None]), [Tensor(v)]), "tangents": lambda: hvp(composed, [Tensor(x)], Tensor(v)),
    }  # fmt: skip
    for what, call in calls.items():
        with pytest.raises(GradientError, match=f"the {what} are one tensor, .*a list"):  # whose rows are no arguments
            call()
    with pytest.raises(GradientError, match="1 arguments and 2 tangents"):
        jvp(composed, [Tensor(x)], [Tensor(v), Tensor(v)])
    with pytest.raises(GradientError, match="argument 0 is"):
        jvp(lambda x: x, [Tensor([1])], [Tensor([1])])


def test_pulling_many_gradients_at_once():
    x, w = T(3, 4), T(4, 2)
    y, pull = vjp(lambda x: F.relu(x @ w), x)
    many = T(5, 3, 2)
    equal(vmap(lambda g: pull(g)[0])(many), F.stack([pull(many[i])[0] for i in range(5)]))


def test_a_backward_is_inside_of_the_vmap_that_pulls_it():
    """The backward enters the run of `vmap` that its forward was in once more, now inside of another one, whose examples it uses."""
    scale = []

    class Scaled(Function):
        def forward(self, x, w):
            self.w = w
            return x * w

        def backward(self, dy):
            return scale[0] * (dy * scale[0]) * self.w, None

    x, w, many, scales = T(4, 3), T(4, 3), T(5, 4, 3), T(5, 3)
    _, pull = vjp(lambda x: vmap(lambda a, b: Scaled()(a, b))(x, w), x)

    def pulled(g, s):
        scale[:] = [s]
        return pull(g)[0]

    equal(vmap(pulled)(many, scales), F.stack([pulled(many[i], scales[i]) for i in range(5)]))
class Power(Function):
    """x^n w, with a rule for all examples that is wrong by a factor, so that it is seen to be used."""

    def __init__(self, n):
        self.n = n

    def forward(self, x, w):
        self.x, self.w = x, w
        return x**self.n * w

    def backward(self, g):
        return g * self.w * self.n * self.x ** (self.n - 1), g * self.x**self.n

    @staticmethod
    def vmap(size, in_axes, x, w):
        x = x if in_axes[0] == 0 else F.broadcast_to(x, (size, *x.shape))
        w = w if in_axes[1] == 0 else F.expand_dims(w, 0)
        return F.moveaxis(2.0 * x * x * w, 0, -1), -1


def test_functions_with_a_rule_of_their_own():
    x, w = T(4, 3), T(3)
    f = lambda x, w: Power(2)(x, w)
    want = 2.0 * x * x * w
    equal(vmap(f, (0, None))(x, w), want)
    each = vmap(grad(lambda x, w: f(x, w).sum(), (0, 1)), (0, None))(x, w)  # inside
    np.testing.assert_allclose(each[0].numpy(), (4.0 * x * w).numpy(), rtol=1e-6)
    np.testing.assert_allclose(each[1].numpy(), (2.0 * x * x).numpy(), rtol=1e-6)
    around = grad(lambda x, w: vmap(f, (0, None))(x, w).sum(), (0, 1))(x, w)
    np.testing.assert_allclose(around[0].numpy(), each[0].numpy(), rtol=1e-6)
    np.testing.assert_allclose(around[1].numpy(), each[1].numpy().sum(0), rtol=1e-5)
    _, moved = vmap(lambda x: jvp(lambda x: f(x, w), [x], [x]))(x)
    np.testing.assert_allclose(moved.numpy(), (4.0 * x * x * w).numpy(), rtol=1e-5)
    second = vmap(lambda x: grad(lambda x: grad(lambda x: f(x, w).sum())(x).sum())(x))(x)
    np.testing.assert_allclose(second.numpy(), np.broadcast_to(4.0 * w.numpy(), (4, 3)), rtol=1e-6)
    equal(vmap(lambda a: vmap(f, (0, None))(x * a, w))(F.ones(2))[1], want)
    equal(trace(vmap(f, (0, None)))(x, w), want)
    equal(f(x[0], w), x[0] ** 2 * w)


@pytest.mark.parametrize("made, words", [
    (lambda x: x, r"Odd\.vmap\(\) returned a Tensor; help: a pair"), (lambda x: (x, (0, 0)), r"gave 1 outputs and the axes \(0, 0\)"),
    (lambda x: (x[:2], 0), r"gave f32\[2,3\], which has not 4 examples along axis 0"), (lambda x: (1.0, None), "gave a float, which"),
])  # fmt: skip
def test_rules_that_are_none(made, words):
    class Odd(Function):
        def forward(self, x):
            return x

        @staticmethod
        def vmap(size, in_axes, x):
            return made(x)

    with pytest.raises(GradientError, match=words):
        vmap(Odd())(T(4, 3))
