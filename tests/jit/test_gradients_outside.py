"""Traced functions whose gradient is asked for outside of them: each call is one node of the caller's tape, and values and gradients have
the bits of the calls one by one."""

import warnings

import numpy as np
import pytest

from tengen import Tensor, amp, random, trace
from tengen import functional as F
from tengen import module as M
from tengen.autodiff import Function, GradManager, checkpoint, no_grad, vjp
from tengen.base.errors import GradientError, TraceWarning
from tengen.optimizer import SGD
from tengen.tensor.nodes import own_levels


def bits(x):
    return None if x is None else np.asarray(x.numpy()).tobytes()


def data(*shape, seed=0):
    return np.random.RandomState(seed).randn(*shape).astype("float32")


def leaf(a):
    t = Tensor(a)
    t.requires_grad = True
    return t


def runs(f):
    """How many times a function's Python code has run, and a trace of it."""
    count = []

    def counted(*args):
        count.append(1)
        return f(*args)

    return count, trace(counted)


def compare(f, *arrays, loss=None, calls=3):
    """The bits of results and gradients of a function, traced and not; the trace's Python code has run once."""
    loss = loss or (lambda y: sum((t * t).sum() for t in (y if isinstance(y, tuple) else (y,))))
    count, traced = runs(f)
    for _ in range(calls):
        found = []
        for g in (f, traced):
            xs = [leaf(a) for a in arrays]
            y = g(*xs)
            loss(y).backward()
            found.append(([bits(t.detach()) for t in (y if isinstance(y, tuple) else (y,))], [bits(x.grad) for x in xs]))
        assert found[0] == found[1]
    assert len(count) == 1
    return traced


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.drop, self.out = M.Conv2d(3, 8, 3, padding=1), M.BatchNorm2d(8), M.Dropout(0.3), M.Linear(8 * 25, 4)

    def forward(self, x):
        x = F.relu(self.bn(self.conv(x)))
        return self.out(self.drop(F.flatten(x, 1)))


def a_net(traced, batches, manager):
    """Parameters, buffers, losses and gradients of some steps of a network, whose trace is the network's call."""
    random.seed(3)
    net = Net()
    call = trace(net) if traced else net
    if manager:
        gm = GradManager().attach(net.parameters())
    else:
        net.requires_grad_()
    found = []
    for i, n in enumerate(batches):
        x, label = Tensor(data(n, 3, 5, 5, seed=i)), Tensor(np.arange(n) % 4)
        if manager:
            with gm:
                loss = F.cross_entropy(call(x), label)
                gm.backward(loss)
        else:
            loss = F.cross_entropy(call(x), label)
            loss.backward()
        found += [bits(loss.detach()), *(bits(p.grad) for p in net.parameters()), *(bits(b) for b in net.buffers())]
        for p in net.parameters():
            p._reset(p.detach() - 0.1 * p.grad)
            p.grad = None
        if not manager:
            net.requires_grad_()
    return found, call


@pytest.mark.parametrize("manager", [True, False])
def test_a_network_with_statistics_and_dropout(manager):
    """Steps of three sizes: running statistics, random counters and parameters are updated between, and the batch is open."""
    batches = [4, 4, 5, 6, 4]
    expected, _ = a_net(False, batches, manager)
    found, call = a_net(True, batches, manager)
    assert expected == found
    assert sum(s.programs for s in call.stats()) == 2  # that of the first size, and the open one


def test_several_results():
    """Gradients of both, of one alone, and results that are arguments, or one another."""

    def f(x, w):
        y = F.tanh(x @ w)
        return y, (y * y).sum()

    compare(f, data(3, 4), data(4, 5))
    compare(f, data(3, 4), data(4, 5), loss=lambda y: y[1])
    compare(f, data(3, 4), data(4, 5), loss=lambda y: (y[0] * 2).sum())
    compare(lambda x, w: (x, w * 2, x), data(3), data(3))
    compare(lambda x: (F.exp(x),) * 2, data(3))
    compare(lambda x: (F.exp(x), F.exp(x).detach()), data(3), loss=lambda y: (y[0] * y[1]).sum())


def test_a_result_on_no_tape_and_integers():
    compare(lambda x: (x * 2, F.argmax(x)), data(5), loss=lambda y: y[0].sum())


def test_places_in_order():
    """Gradients that arrive in several terms are added in the order in which eager calls add them."""
    a, b = 1e8 * data(40), data(40, seed=1)
    compare(lambda x, y: x * y + F.sin(x) - x / (y * y + 1), a, b)

    def inside_and_outside(g):
        x = leaf(a)
        y = x * 3.0
        z = g(x, y) + F.cos(x)
        (z * y).sum().backward()
        return bits(z.detach()), bits(x.grad)

    f = lambda x, y: x * F.tanh(y) + y * y
    count, traced = runs(f)
    assert inside_and_outside(f) == inside_and_outside(traced) == inside_and_outside(traced)
    assert len(count) == 1


def test_slices():
    """Gradients of slices are joined where they tile a tensor, inside and outside of the trace."""

    def gates(x):
        a, b, c, d = F.split(x, 4)
        return F.sigmoid(a) * F.tanh(b) + c * d

    compare(gates, data(8, 3))
    compare(lambda x: gates(x) + x[2:4], data(8, 3))


def test_one_tensor_twice():
    """An argument that is given twice, and a network that is called twice in a step."""
    f = lambda x, y: x * y + F.exp(y)
    traced, found = trace(f), []
    for g in (f, traced, traced):
        x = leaf(data(4))
        g(x, x).sum().backward()
        found.append(bits(x.grad))
    assert found[0] == found[1] == found[2]
    net = M.Linear(4, 4)
    call, found = trace(net), []
    for g in (net, call, call):
        net.requires_grad_()
        for p in net.parameters():
            p.grad = None
        y = g(F.relu(g(Tensor(data(3, 4))))) + Tensor(data(3, 4)) @ net.weight
        (y * y).sum().backward()
        found.append([bits(p.grad) for p in net.parameters()])
    assert found[0] == found[1] == found[2]


def test_other_places_than_recorded():
    """One place for two arguments, where there were two, and the other way round."""
    f = lambda x, y: F.sin(x) * y
    for order in ((False, True), (True, False)):
        traced = trace(f)
        for alike in order:
            x = leaf(data(4))
            y = x if alike else leaf(data(4, seed=1))
            traced(x, y).sum().backward()
            p = leaf(data(4))
            q = p if alike else leaf(data(4, seed=1))
            f(p, q).sum().backward()
            assert (bits(x.grad), bits(y.grad)) == (bits(p.grad), bits(q.grad))


def test_strides_and_channels_last():
    x = data(2, 6, 7, 3)

    def f(x, w):
        y = F.conv2d(x.transpose(0, 3, 1, 2), w, padding=1)
        return F.max_pool2d(F.relu(y), 2, 2)

    compare(f, x, data(4, 3, 3, 3))
    g = lambda x, w: F.relu(F.conv2d(x, w, padding=1))
    traced, found = trace(g), []
    for h in (g, traced, traced):
        a, w = leaf(x), leaf(data(4, 3, 3, 3))
        y = h(a.transpose(0, 3, 1, 2), w)
        (y * y).sum().backward()
        found.append((bits(y.detach()), bits(a.grad), bits(w.grad)))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("shape", [(0,), (1,), (17,), (3, 0)])
def test_extents_at_the_edge(shape):
    compare(lambda x: F.exp(x) * F.tanh(x) + x.sum(), data(*shape))


def test_special_values():
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3e38], "float32")
    compare(lambda x: F.exp(x) * x + F.sqrt(x), x)


def test_dtypes():
    compare(lambda x: F.exp(x) * x, data(5).astype("float64"))
    compare(lambda x: (x.astype("float16") * 3).astype("float32"), data(5))


def test_loops_and_branches():
    def f(x, w):
        _, ys = F.scan(lambda h, x_t: (F.tanh(h @ w + x_t),) * 2, x[0], x)
        return F.cond(ys.sum() > 0, lambda y: y * 2, lambda y: y * 3, ys)

    compare(f, data(6, 2, 4), data(4, 4))


def test_checkpoints_and_functions_of_ones_own():
    class Cube(Function):
        def forward(self, x):
            self.x = x
            return x * x * x

        def backward(self, dy):
            return dy * 3 * self.x * self.x

    compare(lambda x: checkpoint(lambda t: F.exp(F.sin(t)), x) * x, data(5))
    compare(lambda x: Cube()(F.sin(x)) * x, data(5))


def test_a_gradient_inside_and_one_outside():
    """A function that differentiates by itself, and whose result is differentiated outside, runs op by op where gradients are nested."""

    def slope(x):
        t = leaf(x.detach())
        (t * t * t).sum().backward()
        return t.grad * x

    for g in (slope, trace(slope)):
        x = leaf(data(4))
        g(x).sum().backward()
        assert np.allclose(x.grad.numpy(), 3 * data(4) ** 2, rtol=1e-6)


def test_a_vjp_that_waits_is_no_gradient_around():
    """Its function has been computed: a call behind it is one node of the tape, and so is one inside of the next `vjp`."""
    count, g = runs(lambda x: F.sin(x) * x)
    plain = lambda x: F.sin(x) * x
    x, dy = Tensor(data(5)), Tensor(data(5, seed=1))
    waiting = [vjp(g, x) for _ in range(3)]
    y = leaf(data(5))
    for _ in range(3):
        y.grad = None
        g(y).sum().backward()
    assert len(count) == 1 and g.stats().programs
    for out, pull in waiting:
        assert bits(out) == bits(plain(x)) and bits(pull(dy)[0]) == bits(vjp(plain, x)[1](dy)[0])
    z = leaf(data(5))
    plain(z).sum().backward()
    assert bits(y.grad) == bits(z.grad)


def test_a_gradient_of_a_gradient():
    """By nested managers it is whole; where the tape of one gradient is to be differentiated once more, that is said."""

    def second(f):
        x = Tensor(data(5))
        with GradManager().attach(x) as outer:
            with GradManager().attach(x) as inner:
                inner.backward(f(x).sum())
            slope = x.grad
            x.grad = None
            outer.backward(slope.sum())
        return bits(x.grad)

    f = lambda x: F.sin(x) * x * x
    traced = trace(f)
    with pytest.warns(TraceWarning, match="op by op while .*: several gradients are recorded around it"):
        assert second(f) == second(traced)
    assert second(f) == second(traced)
    x = leaf(data(5))
    traced(x).sum().backward()  # now it has a recording that is one node
    y = traced(x)
    with pytest.raises(GradientError, match="gradient of a gradient"):
        y.sum().backward(create_graph=True)


def test_backward_twice():
    f = trace(lambda x: F.exp(x) * x)
    x = leaf(data(4))
    y = f(x).sum()
    y.backward(retain_graph=True)
    once = x.grad.numpy().copy()
    y.backward()
    assert np.array_equal(x.grad.numpy(), once + once)
    with pytest.raises(GradientError):
        y.backward()


def test_parameters_that_change_before_backward():
    """What a call keeps is what it read, whatever is written after it."""
    w = Tensor(data(4, 4))
    f = lambda x: F.tanh(x @ w) @ w
    found = []
    for g in (f, trace(f)):
        w._reset(data(4, 4))
        x = leaf(data(3, 4))
        y = g(x)
        if g is not f:
            w[...] = 0.0
        y.sum().backward()
        found.append(bits(x.grad))
    assert found[0] == found[1]


def test_no_gradient_asked_for():
    """The same function without a tape is another recording, which keeps nothing."""
    f = trace(lambda x: F.exp(x) * F.sin(x))
    x = leaf(data(6))
    f(x).sum().backward()
    with no_grad():
        y = f(x)
    assert y._node is None and np.array_equal(y.numpy(), f(x).detach().numpy())
    assert len(f.stats()) == 2


def test_states_that_are_written():
    """A function that counts its calls, and whose result has a gradient."""
    count = Tensor(np.float32(0))

    def f(x):
        count._reset(count + 1)
        return x * count

    traced = trace(f)
    for i in range(1, 4):
        x = leaf(data(3))
        traced(x).sum().backward()
        assert count.item() == i and np.array_equal(x.grad.numpy(), np.full(3, i, "float32"))


def test_hooks():
    """A hook on a result or an argument sees the gradient that it would see in eager calls."""
    f = lambda x: F.exp(x) * 2
    found = []
    for g in (f, trace(f)):
        x, seen = leaf(data(3)), []

        def doubled(d, seen=seen):
            seen.append(bits(d))
            return d * 2

        x.register_hook(lambda d, seen=seen: seen.append(bits(d)))
        y = g(x * 3)
        y.register_hook(doubled)
        (y * y).sum().backward()
        found.append((seen, bits(x.grad)))
    assert found[0] == found[1]


def test_values_that_are_asked_for():
    """A function that asks for a value runs op by op in parts, and its gradient is whole."""
    f = lambda x: x * 2 if x.sum().item() > 0 else x * 3
    traced = trace(f)
    for sign in (1, -1, 1):
        x = leaf(sign * np.abs(data(4)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced(x).sum().backward()
        assert np.array_equal(x.grad.numpy(), np.full(4, 2 if sign > 0 else 3, "float32"))


def test_a_trace_inside_of_a_traced_step():
    """Inside of another trace the function is a part of that program."""
    net = M.Linear(4, 2)
    inner = trace(net)
    gm = GradManager().attach(net.parameters())

    def step(x):
        with gm:
            loss = (inner(x) ** 2).mean()
            gm.backward(loss)
        return loss

    x = Tensor(data(3, 4))
    expected = [bits(step(x))] + [bits(p.grad) for p in net.parameters()]
    for p in net.parameters():
        p.grad = None
    traced = trace(step)
    assert [bits(traced(x))] + [bits(p.grad) for p in net.parameters()] == expected


def test_the_second_program_is_made_when_it_is_asked_for():
    f = trace(lambda x: F.exp(x))
    x = leaf(data(4))
    f(x)
    (recording,) = next(iter(f._recordings.values()))
    assert recording.gradient is not None and not recording.gradient._made
    f(x).sum().backward()
    assert len(recording.gradient._made) == 1


def test_autocast():
    def f(x, w):
        with amp.autocast(low_prec_dtype="bfloat16"):
            return F.relu(x @ w).astype("float32")

    compare(f, data(4, 8), data(8, 3))
    found = []
    for g in (lambda x, w: F.relu(x @ w), trace(lambda x, w: F.relu(x @ w))):
        x, w = leaf(data(4, 8)), leaf(data(8, 3))
        with amp.autocast(low_prec_dtype="bfloat16"):
            y = g(x, w)
        (y.astype("float32") ** 2).sum().backward()
        found.append((bits(y.detach()), bits(x.grad), bits(w.grad)))
    assert found[0] == found[1]


def test_open_extents_at_0_and_1():
    """Numbers that the open program does not serve have programs of their own."""
    w = leaf(data(3, 3))
    f = lambda x: F.tanh(x @ w)
    traced = trace(f)
    for n in (4, 5, 7, 1, 0, 2):
        found = []
        for g in (f, traced):
            w.grad = None
            x = leaf(data(n, 3))
            g(x).sum().backward()
            found.append((bits(x.grad), bits(w.grad)))
        assert found[0] == found[1]


def test_with_a_table_of_open_axes():
    f = lambda x, w: F.softmax(x @ w, axis=1)
    traced = trace(f, dynamic_axes={"x": {0: "n"}})
    for n in (4, 9, 1):
        found = []
        for g in (f, traced):
            x, w = leaf(data(n, 3)), leaf(data(3, 3))
            (g(x, w) ** 2).sum().backward()
            found.append((bits(x.grad), bits(w.grad)))
        assert found[0] == found[1]
    assert len(traced.stats()) == 1


class Squared(Function):
    def forward(self, x):
        self.x = x
        return x * x

    def backward(self, dy):
        return dy * 2 * F.conj(self.x)


@pytest.mark.parametrize("way", ["one by one", "checkpoint", "Function", "trace"])
def test_complex_numbers(way):
    """Through a call of a whole function: the gradient of re(z^2)^2 + im(z^2) by the two parts of z."""
    square = lambda z: z * z
    f = {"one by one": square, "checkpoint": lambda z: checkpoint(square, z), "Function": Squared(), "trace": trace(square)}[way]
    z = np.array([1 + 2j, 3 - 1j, -0.5 + 0.25j], "complex64")
    x, y = z.real.astype("float64"), z.imag.astype("float64")
    expected = 2 * (x * x - y * y) * 2 * x + 2 * y + 1j * (2 * (x * x - y * y) * -2 * y + 2 * x)
    for _ in range(2):
        t = leaf(z)
        s = f(t)
        (F.real(s) ** 2 + F.imag(s)).sum().backward()
        np.testing.assert_allclose(t.grad.numpy(), expected, rtol=1e-6)


def test_zero_grad_beside_a_manager_is_no_gradient_around():
    """`opt.zero_grad()` begins to record, as in MegEngine 1.0, only where no manager has the parameters: a traced network stays one node."""
    net = M.Linear(4, 3)
    opt, gm = SGD(net.parameters(), lr=0.1), GradManager().attach(net.parameters())
    count, run = runs(net)
    x = Tensor(data(5, 4))
    for _ in range(4):
        opt.zero_grad()
        with gm:
            gm.backward(run(x).sum())
        opt.step()
    assert len(count) == 1 and run.stats().programs and not [level for level in own_levels() if level.alone]
    other = M.Linear(4, 3)
    old = SGD(other.parameters(), lr=0.1)
    old.zero_grad()
    old.backward(other(x).sum())  # without a manager it does
    assert other.weight.grad is not None


def test_slices_of_an_argument_whose_extents_were_opened():
    """Gradients of slices are put together outside, in the shape of the call and not of the recording: also where a slice begins at an
    extent."""

    def f(x):
        return (x[:, 0] * x[:, 1]).sum() + (x[:, :2] * 2).sum() + (x[x.shape[0] - 2 :] ** 2).sum()

    traced = trace(f)
    for n in (10, 10, 12, 14, 9):
        found = []
        for g in (f, traced):
            x = leaf(data(n, 3))
            g(x).backward()
            found.append(bits(x.grad))
        assert found[0] == found[1]
    assert traced.stats().programs == 2, "that of the first size, and the open one"
