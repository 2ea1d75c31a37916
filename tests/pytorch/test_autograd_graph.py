"""`torch.autograd.graph` and `forward_ad`; and what is told of tensors after a walk to the leaves has passed them."""

import numpy as np
import pytest

import tengen.pytorch as torch
from tengen.base.errors import GradientError
from tengen.pytorch import nn
from tengen.pytorch.autograd import forward_ad as fwAD
from tengen.pytorch.autograd import graph


def some(*shape, seed=0):
    return torch.tensor(np.random.default_rng(seed).normal(size=shape))


def net():
    made = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    with torch.no_grad():
        for i, p in enumerate(made.parameters()):
            p.copy_(some(*p.shape, seed=i))
    return made


def gradients(of):
    return [p.grad.numpy().tobytes() for p in of.parameters()]


def test_what_is_saved_goes_through_the_hooks_and_changes_no_bit():
    a, b, kept = net(), net(), {}
    (a(some(5, 3)) ** 2).sum().backward()

    def pack(x):
        assert not x.requires_grad
        kept[len(kept)] = x.numpy().copy()
        return len(kept) - 1

    opened = []

    def unpack(key):
        opened.append(key)
        return torch.from_numpy(kept[key].copy())

    with graph.saved_tensors_hooks(pack, unpack):
        loss = (b(some(5, 3)) ** 2).sum()
    n = len(kept)
    assert n > 4 and not opened
    loss.backward(retain_graph=True)
    assert gradients(a) == gradients(b) and len(opened) >= 4
    before = len(opened)
    loss.backward()
    assert len(opened) == 2 * before and len(kept) == n  # packed once, made again by each walk


def test_hooks_that_compress_and_custom_functions():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    w = torch.full((3,), 1.1, requires_grad=True)
    with graph.saved_tensors_hooks(lambda x: x.half(), lambda x: x.float()):
        loss = Square.apply(w).sum() + (w * w).sum()
    loss.backward()
    assert (w.grad == 4 * float(np.float16(1.1))).all()
    with graph.saved_tensors_hooks(lambda x: x, lambda x: x[:1]):
        loss = (w * w).sum()
    with pytest.raises(RuntimeError, match=r"f32\[3\] was packed, and unpack gave f32\[1\]"):
        loss.backward()
    with graph.disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError, match="not here"):
        with graph.saved_tensors_hooks(lambda x: x, lambda x: x):
            pass
    with graph.save_on_cpu(pin_memory=True), graph.allow_mutation_on_saved_tensors():
        (w * w).sum().backward()


def test_nodes_and_hooks_of_several_gradients():
    w = torch.ones(2, requires_grad=True)
    h = w * 3
    y = h.exp().sum()
    names = []
    node = y.grad_fn
    while node is not None:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    assert names == ["SumBackward0", "ExpBackward0", "MulBackward0", "AccumulateGrad"]
    last = h.grad_fn.next_functions[0][0]
    assert last.variable is w and h.grad_fn.next_functions[1] == (None, 0) and h.grad_fn == y.grad_fn.next_functions[0][0].next_functions[0][0]
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
    seen = []
    graph.register_multi_grad_hook([w, h], lambda grads: seen.append([g[0].item() for g in grads]))
    first = []
    with graph.register_multi_grad_hook((w, h), lambda g: first.append(g[0].item()), mode="any"):
        y.backward()
    e = 2 * np.exp(np.float32(3))
    np.testing.assert_allclose(seen, [[3 * e, e]], rtol=1e-6)
    np.testing.assert_allclose(first, [e], rtol=1e-6)


def test_a_hook_of_a_call_sees_both_sides_of_it():
    """The figures are PyTorch 2.13's."""
    lists = lambda gs: [None if g is None else g.tolist() for g in gs]
    w, v = torch.ones(2, requires_grad=True), torch.full((2,), 2.0, requires_grad=True)
    y, seen = w * v * w, []
    y.grad_fn.register_hook(lambda below, above: seen.append((lists(below), lists(above))))
    with y.grad_fn.register_hook(lambda below, above: tuple(2 * g for g in below)):
        y.sum().backward()
    assert seen == [([[1.0, 1.0], [2.0, 2.0]], [[1.0, 1.0]])] and w.grad.tolist() == [8.0, 8.0] and v.grad.tolist() == [2.0, 2.0]
    w.grad = None
    y = w * w  # one operand twice
    y.grad_fn.register_hook(lambda below, above: seen.append(lists(below)))
    y.sum().backward()
    assert seen[1] == [[1.0, 1.0], [1.0, 1.0]] and w.grad.tolist() == [2.0, 2.0]
    w.grad = None
    y = w[0:1] * 2  # a part, and a number without a gradient
    y.grad_fn.register_hook(lambda below, above: seen.append(lists(below)))
    y.grad_fn.next_functions[0][0].register_hook(lambda below, above: (below[0] * 10, *below[1:]))
    y.sum().backward()
    assert seen[2][0] == [2.0] and w.grad.tolist() == [20.0, 0.0]
    w.grad = None
    y = w * 3
    y.grad_fn.next_functions[0][0].register_hook(lambda below, above: seen.append((below, lists(above))))
    y.sum().backward()
    assert seen[3] == ((), [[3.0, 3.0]])
    for new, words in ((lambda below, above: below * 5, "returned a tuple of 10; help: a tuple of 2"), (lambda *_: 1, "returned a int"),
                       (lambda below, above: (below[0][:1], None), r"f32\[1\] of the gradient f32\[2\]")):  # fmt: skip
        y = w * 3
        y.grad_fn.register_hook(new)
        with pytest.raises(GradientError, match=words):
            y.sum().backward()
    with pytest.raises(GradientError, match="which is no leaf"):
        y.register_post_accumulate_grad_hook(print)


def test_outputs_that_have_no_gradient():
    class Split(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            places, marked, whole = x.argsort(), x.floor(), x * 2.0
            ctx.mark_non_differentiable(marked)
            return places, marked, whole

        @staticmethod
        def backward(ctx, of_places, of_marked, of_whole):
            return of_whole * 5.0

    x = torch.tensor([2.5, 1.5], requires_grad=True)
    places, marked, whole = Split.apply(x)
    assert [t.requires_grad for t in (places, marked, whole)] == [False, False, True]
    (whole * marked).sum().backward()
    assert x.grad.tolist() == [10.0, 5.0]


def test_a_tensor_that_a_walk_has_passed_stays_computed_and_is_not_walked_again():
    w = torch.ones(3, requires_grad=True)
    y = w * 2
    z = (y * y).sum()
    z.backward()
    assert z.requires_grad and not z.is_leaf and z.grad_fn is not None and y.requires_grad
    for late in (z, (y * 3).sum(), (w + y).sum()):  # a part of the gradient would be missing
        with pytest.raises(RuntimeError, match="backward\\(\\) has passed already.*retain_graph=True"):
            late.backward()
    with pytest.raises(RuntimeError, match="passed already"):
        torch.autograd.grad((y * w).sum(), w)
    assert torch.autograd.grad((y * w).sum(), y)[0].tolist() == [1, 1, 1]
    assert torch.tensor([z, z]).tolist() == [12, 12]
    w.grad = None
    (y.detach() * w).sum().backward()
    assert w.grad.tolist() == [2, 2, 2]


def test_a_leaf_that_nobody_holds():
    (torch.ones(3, requires_grad=True) * 2).sum().backward()
    h = torch.ones(3, requires_grad=True) * 2
    h.retain_grad()
    (h * h).sum().backward()
    assert h.grad.tolist() == [4, 4, 4]


def test_forward_derivatives():
    of = net()
    params = dict(of.named_parameters())
    along = {name: some(*p.shape, seed=9) for name, p in params.items()}
    x = some(5, 3)

    def run(values):
        return torch.func.functional_call(of, values, x)

    with fwAD.dual_level():
        out = run({name: fwAD.make_dual(p, along[name]) for name, p in params.items()})
        value, slope = fwAD.unpack_dual(out)
        dual = fwAD.make_dual(x, some(5, 3, seed=3))
        assert fwAD.unpack_dual(dual).tangent.tolist() == some(5, 3, seed=3).tolist()
        assert fwAD.unpack_dual(x).tangent is None and fwAD.unpack_dual(x > 0).tangent is None
        assert fwAD.unpack_dual(dual.detach()).tangent is None
    h = 1e-6
    ends = [run({name: p.detach() + s * along[name] for name, p in params.items()}).detach().numpy() for s in (h, -h)]
    np.testing.assert_allclose(slope.detach().numpy(), (ends[0] - ends[1]) / (2 * h), rtol=1e-6, atol=1e-8)
    assert value.tolist() == run({}).tolist()
    with pytest.raises(RuntimeError, match="outside of a level"):
        fwAD.make_dual(x, x)
    with fwAD.dual_level():
        with pytest.raises(ValueError, match="tangent has the shape"):
            fwAD.make_dual(x, x[:1])
        with pytest.raises(RuntimeError, match="inside of another"):
            fwAD.enter_dual_level()


def test_hooks_that_are_always_called():
    class Fails(nn.Module):
        def forward(self, x, *, fail):
            if fail:
                raise ZeroDivisionError
            return x

    m, seen = Fails(), []
    m.register_forward_hook(lambda m, i, out: seen.append(out is None), always_call=True)
    m.register_forward_hook(lambda m, i, k, out: seen.append((k["fail"], out is None)), always_call=True, with_kwargs=True, prepend=True)
    m.register_forward_hook(lambda m, i, out: seen.append("not always"))
    m(torch.ones(1), fail=False)
    assert seen == [(False, False), False, "not always"]
    seen.clear()
    with pytest.raises(ZeroDivisionError):
        m(torch.ones(1), fail=True)
    assert seen == [(True, True), True]
    order = []
    m.register_full_backward_hook(lambda *a: order.append(1))
    m.register_full_backward_hook(lambda *a: order.append(0), prepend=True)
    m(torch.ones(1, requires_grad=True), fail=False).sum().backward()
    assert order == [0, 1]


def test_hooks_of_parameters_see_gradients_that_are_asked_for():
    p = nn.Parameter(torch.ones(3))
    p.register_hook(lambda g: g * torch.tensor([1.0, 0.0, 2.0]))
    assert torch.autograd.grad((p * 3).sum(), p)[0].tolist() == [3, 0, 6]
    (p * 3).sum().backward()
    assert p.grad.tolist() == [3, 0, 6]


def test_jacobians_of_tensors_in_dicts():
    f = lambda p, x: {"y": p["w"] * x[0], "z": (p["w"] ** 3).sum() + x[0].sum()}
    args = {"w": torch.tensor([1.0, 2.0])}, (torch.tensor([3.0, 4.0]),)
    found = torch.func.jacrev(f)(*args)
    assert found["y"]["w"].tolist() == [[3, 0], [0, 4]] and found["z"]["w"].tolist() == [3, 12]
    by_p, (by_x,) = torch.func.jacrev(f, (0, 1))(*args)["y"]
    assert by_p["w"].tolist() == [[3, 0], [0, 4]] and by_x.tolist() == [[1, 0], [0, 2]]
    made, aux = torch.func.jacfwd(lambda x: (x * x, x + 1), has_aux=True)(torch.tensor([5.0]))
    assert made.tolist() == [[10]] and aux.tolist() == [6]
    bend = torch.func.hessian(lambda p: (p["w"] ** 3).sum())(args[0])
    assert bend["w"]["w"].tolist() == [[6, 0], [0, 12]]


def test_views_of_leaves_may_be_walked_through_again():
    """A view's gradient needs no values: one that is made once, outside of the loop, serves every step."""
    for view in (lambda w: w.t(), lambda w: w.view(-1), lambda w: w[1:, ::2], lambda w: w.chunk(2, 1)[1], lambda w: w[:1].expand(3, 4),
                 lambda w: w.diagonal(), lambda w: w.t()[1].reshape(3)):  # fmt: skip
        w = torch.arange(12.0).reshape(3, 4).requires_grad_()
        made, found = view(w), []
        for i in range(3):
            w.grad = None
            (made * made * (i + 1)).sum().backward()
            found.append(w.grad.numpy() / (i + 1))
        w.grad = None
        view(w).pow(2).sum().backward()
        assert all(np.array_equal(g, w.grad.numpy()) for g in found)
