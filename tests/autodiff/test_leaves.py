"""Tensors that require gradients by themselves, and `backward` of their results, beside managers and finite differences."""

import copy
import gc
import weakref

import numpy as np
import pytest

import tengen.functional as F
from tengen import Parameter, Tensor, trace
from tengen import module as M
from tengen import optimizer as optim
from tengen.autodiff import GradManager, enable_grad, no_grad, vmap
from tengen.autodiff import grad as gradient_of
from tengen.base.errors import GradientError, TraceError
from tengen.tensor.backward import grad
from tengen.tensor.nodes import leaf_of

R = np.random.default_rng(7)
X, Y = R.normal(size=(12, 4)).astype(np.float32), R.integers(0, 3, 12)


def _net():
    net = M.Sequential(M.Linear(4, 8), M.BatchNorm1d(8), M.Dropout(0.2), M.Linear(8, 3))
    for i, p in enumerate(net.parameters()):
        p[...] = np.random.default_rng(i).normal(size=p.shape).astype(np.float32)
    return net


def _steps(traced):
    """A network that trains by `backward`, and its equal that a manager trains."""
    nets = _net(), _net().requires_grad_()
    gm, opts = GradManager().attach(nets[0].parameters()), [optim.AdamW(n.parameters(), lr=0.01) for n in nets]

    def by_manager(x, y):
        with gm:
            loss = F.loss.cross_entropy(nets[0](x), y)
            gm.backward(loss)
        opts[0].step().clear_grad()
        return loss

    def by_leaves(x, y):
        opts[1].zero_grad()
        loss = F.loss.cross_entropy(nets[1](x), y)
        loss.backward()
        opts[1].step()
        return loss

    return nets, [trace(f) if traced else f for f in (by_manager, by_leaves)]


@pytest.mark.parametrize("traced", [False, True])
def test_a_training_has_the_bits_of_a_managers(traced):
    import tengen

    nets, steps = _steps(traced)
    for _ in range(4):
        losses = []
        for step in steps:
            tengen.random.seed(3)
            losses.append(step(Tensor(X), Tensor(Y)).numpy().tobytes())
        assert losses[0] == losses[1]
    for a, b in zip(nets[0].tensors(), nets[1].tensors()):
        assert a.numpy().tobytes() == b.numpy().tobytes()
    assert all(leaf_of(p) is not None for p in nets[1].parameters()) and all(b._node is None for b in nets[1].buffers())
    if traced:
        assert [s.stats().programs for s in steps] == [1, 1]


def test_beside_finite_differences():
    a, b = Tensor(R.normal(size=(3, 4))).requires_grad_(), Tensor(R.normal(size=(4, 2))).requires_grad_()
    f = lambda a, b: ((a @ b).tanh() * (a @ b).exp()).sum()
    f(a, b).backward()
    for t, of in ((a, lambda v: f(Tensor(v), b)), (b, lambda v: f(a, Tensor(v)))):
        v, eps = t.numpy(), 1e-6
        for i in np.ndindex(v.shape):
            up, down = v.copy(), v.copy()
            up[i] += eps
            down[i] -= eps
            assert abs(t.grad.numpy()[i] - (of(up).item() - of(down).item()) / (2 * eps)) < 1e-7
    assert np.array_equal(gradient_of(f)(a.detach(), b.detach()).numpy(), a.grad.numpy())


def test_gradients_add_up_and_graphs_are_walked_once():
    w = Parameter([1.0, 2.0]).requires_grad_()
    y = (w * w).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert w.grad.tolist() == [4.0, 8.0]
    with pytest.raises(GradientError, match="backward.* has passed already, which let go .*retain_graph=True"):
        y.backward()
    (w * Tensor([5.0, 1.0])).backward(Tensor([1.0, 3.0]))
    assert w.grad.tolist() == [9.0, 11.0]
    w.grad = None
    z = w * 2.0
    (z * z).sum().backward(inputs=[w])
    assert w.grad.tolist() == [8.0, 16.0] and z.grad is None


def test_what_is_kept_is_let_go():
    w = Parameter(np.ones(4, np.float32)).requires_grad_()
    h = w * 2.0
    kept = weakref.ref(h)
    y = (h.exp()).sum()
    del h
    y.backward()
    gc.collect()
    assert kept() is None and y.requires_grad and not y._node.saved and y._node.outputs is None
    running = Tensor(np.zeros((), np.float32))
    for _ in range(3):
        loss = (w * w).sum()
        loss.backward()
        running = running + loss
    assert running.requires_grad and not running._node.saved


def test_second_gradients_as_penalties_take_them():
    net = M.Sequential(M.Linear(3, 4), M.Tanh(), M.Linear(4, 1)).to("float64")
    for i, p in enumerate(net.parameters()):
        p[...] = np.random.default_rng(i).normal(size=p.shape)
    x = Tensor(R.normal(size=(5, 3)))
    gm = GradManager().attach(net.parameters())
    with gm:
        gm.backward(((gradient_of(lambda v: net(v).sum())(x) ** 2).sum(1) - 1.0).square().mean())
    want = [p.grad.numpy().copy() for p in net.parameters() if p.grad is not None]
    net.zero_grad()
    net.requires_grad_()
    v = Tensor(x.numpy()).requires_grad_()
    (g,) = grad(net(v).sum(), v, create_graph=True)
    ((g**2).sum(1) - 1.0).square().mean().backward()
    for a, b in zip(want, [p.grad.numpy() for p in net.parameters() if p.grad is not None], strict=False):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_grad_of_results():
    x = Tensor([2.0, 3.0]).requires_grad_()
    h = x * x
    y = h.sum() * 3.0
    assert [g.tolist() for g in grad(y, [h, x])] == [[3.0, 3.0], [12.0, 18.0]] and x.grad is None
    other = Tensor([1.0]).requires_grad_()
    assert grad((x * x).sum(), [x, other], allow_unused=True)[1] is None
    with pytest.raises(GradientError, match="no output depends on the input at position 1; help: allow_unused=True"):
        grad((x * x).sum(), [x, other])
    with pytest.raises(GradientError, match=r"the input f32\[1\] requires no gradient"):
        grad((x * x).sum(), Tensor([1.0]))


def test_no_grad_hides_leaves():
    w = Parameter([1.0, 2.0]).requires_grad_()
    with no_grad():
        y, late = w * w, Parameter([3.0]).requires_grad_()
        z = late * 2.0
        with enable_grad():
            seen = w * 2.0
        w -= 0.5
    assert not y.requires_grad and not z.requires_grad and seen.requires_grad and w.requires_grad and w.tolist() == [0.5, 1.5]
    (w * late).sum().backward()
    assert w.grad.tolist() == [3.0, 3.0] and late.grad.tolist() == [2.0]


def test_a_leaf_is_not_given_what_was_computed_from_leaves():
    w, v = Parameter([1.0, 2.0]).requires_grad_(), Parameter([5.0, 6.0]).requires_grad_()
    for write in (lambda: w.add_(v), lambda: w.__setitem__(0, v[0]), lambda: w._reset(w * 2.0)):
        with pytest.raises(GradientError, match=r"test_leaves.py:\d+: f32\[2\], which requires a gradient, .*help: with no_grad"):
            write()
    assert w.tolist() == [1.0, 2.0]
    w.data.mul_(2.0)
    w.set_value(np.array([4.0, 4.0], np.float32))
    (w * w).sum().backward()
    assert w.grad.tolist() == [8.0, 8.0]


def test_frozen_parameters_are_left_out():
    net = _net().eval()
    net[0].requires_grad_(False)
    assert [p.requires_grad for p in net.parameters()] == [False] * 2 + [True] * 4
    gm = GradManager().attach(net.parameters())
    with gm:
        gm.backward(net(Tensor(X)).sum())
    by_manager = [p.grad is not None for p in net.parameters()]
    net.zero_grad()
    for p in net.parameters():
        p.requires_grad = p.requires_grad  # those that are not frozen become leaves
    net(Tensor(X)).sum().backward()
    assert by_manager == [p.grad is not None for p in net.parameters()] == [False] * 2 + [True] * 4

    @trace
    def step(x):
        with gm:
            y = net(x).sum()
            gm.backward(y)
        return y

    for frozen in (True, False, True):
        net[0].requires_grad_(not frozen)
        for _ in range(3):
            net.zero_grad()
            step(Tensor(X))
            assert (net[0].weight.grad is None) is frozen and net[3].weight.grad is not None


def test_copies_are_leaves_of_their_own():
    w = Parameter([1.0, 2.0]).requires_grad_()
    c, x = copy.deepcopy(w), Tensor([1.0]).requires_grad_()
    (c * c).sum().backward()
    assert c.grad.tolist() == [2.0, 4.0] and w.grad is None and c.is_leaf and not copy.copy(x).requires_grad


def test_hooks_and_gradients_of_results():
    w = Parameter([1.0, 2.0]).requires_grad_()
    w.register_hook(lambda g: g * 10.0)
    h = w * 3.0
    h.retain_grad()
    assert h.grad_fn is not None and w.grad_fn is None and w.is_leaf and not h.is_leaf
    (h * h).sum().backward()
    assert h.grad.tolist() == [6.0, 12.0] and w.grad.tolist() == [180.0, 360.0]
    with pytest.raises(GradientError, match="for which no gradient is recorded"):
        Tensor([1.0]).retain_grad()


def test_managers_and_transforms_around_leaves():
    w = Parameter([1.0, 2.0]).requires_grad_()
    with GradManager().attach(w) as gm:
        gm.backward((w * w).sum())
    assert w.grad.tolist() == [2.0, 4.0] and w.grad._node is None and leaf_of(w) is not None
    w.grad = None
    inner = lambda v, k: v - gradient_of(lambda u: (u * u * k).sum())(v)  # a step of one gradient, whose gradient is taken
    vmap(inner, in_axes=(None, 0))(w, Tensor([0.25, 1.0])).sum().backward()
    assert w.grad.tolist() == [-0.5, -0.5]


def test_errors():
    x = Tensor([1.0, 2.0]).requires_grad_()
    with pytest.raises(GradientError, match=r"backward\(\) of f32\[2\], which has more than one element; help: y.sum\(\), or gradient="):
        (x * x).backward()
    with pytest.raises(GradientError, match="only tensors of floats"):
        Tensor([1]).requires_grad_()
    with pytest.raises(GradientError, match=r"was computed from tensors that require gradients; help: t = t.detach\(\)"):
        (x * x).requires_grad_(False)
    w = Parameter([1.0])
    with GradManager().attach(w):
        with pytest.raises(GradientError, match=r"from tensors of a GradManager alone; help: gm.backward\(loss\)"):
            (w * w).sum().backward()
    before = x.exp()
    with pytest.raises(TraceError, match="goes back into what was calculated before the traced function"):
        trace(lambda: (before * 2.0).sum().backward())()
