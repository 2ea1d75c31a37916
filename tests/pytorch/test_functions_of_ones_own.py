"""`torch.autograd.Function` that writes its input, and `torch.func` over nested results."""

import re

import pytest

import tengen.pytorch as torch


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.mark_dirty(x)
        x.mul_(k)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2, None


@pytest.mark.parametrize("compiled", [False, True])
def test_an_input_that_is_marked_dirty_is_the_result(compiled):
    def f(w):
        z = w * 3
        y = _Scaled.apply(z, 2.0)
        assert y is z
        return (z * y).sum()

    w = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = (torch.compile(f) if compiled else f)(w)  # (6 w)^2, whose gradient is 72 w
    loss.backward()
    assert loss.item() == 180.0 and w.grad.tolist() == [72.0, 144.0]


def test_a_part_and_a_leaf_that_are_marked_dirty():
    a, w = torch.ones(4), torch.ones(2, requires_grad=True)
    _Scaled.apply(a[:2], 5.0)
    assert a.tolist() == [5.0, 5.0, 1.0, 1.0]
    with pytest.raises(RuntimeError, match=re.escape("f32[2], which requires a gradient, is given a value")):
        _Scaled.apply(w, 2.0)
    with torch.no_grad():
        _Scaled.apply(w, 2.0)
    assert w.tolist() == [2.0, 2.0]


def test_what_is_marked_dirty_has_to_be_returned():
    class Lost(_Scaled):
        @staticmethod
        def forward(ctx, x, k):
            ctx.mark_dirty(x)
            return x * k

    with pytest.raises(RuntimeError, match=re.escape("Lost: forward() has to return what it gives to ctx.mark_dirty")):
        Lost.apply(torch.ones(2), 2.0)


def test_axes_of_nested_results_of_vmap():
    x = torch.arange(6.0).view(2, 3)
    nested = lambda v: ({"a": v, "b": [v * 2, v * 3]}, v.sum())
    both, total = torch.func.vmap(nested, out_dims=(1, 0))(x)
    assert both["a"].tolist() == x.T.tolist() and both["b"][1].tolist() == (3 * x.T).tolist() and total.tolist() == [3.0, 12.0]
    both, _ = torch.func.vmap(nested, out_dims=({"a": 1, "b": (0, 1)}, 0))(x)
    assert both["b"][0].tolist() == (2 * x).tolist() and both["b"][1].tolist() == (3 * x.T).tolist()
    grads, values = torch.func.vmap(torch.func.grad_and_value(lambda v: (v * v).sum()), out_dims=(0, 0))(x)
    assert grads.tolist() == (2 * x).tolist() and values.tolist() == [5.0, 50.0]
    y, along = torch.func.linearize(lambda v: (v**3).sum(), x[0])
    assert y.item() == 9.0 and along(torch.ones(3)).item() == 15.0


def test_gradients_of_many_rows_at_once():
    x, w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True), torch.ones(1, requires_grad=True)
    y = x**2
    rows = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]])
    (g,) = torch.autograd.grad(y, x, rows, retain_graph=True, create_graph=True, is_grads_batched=True)
    assert g.tolist() == [[2.0, 0.0, 0.0], [0.0, 4.0, 12.0]]
    assert torch.autograd.grad(g.sum(), x, retain_graph=True)[0].tolist() == [2.0, 2.0, 4.0]
    found = torch.autograd.grad([y, y.sum()], [x, w], [rows, torch.ones(2)], is_grads_batched=True, allow_unused=True)
    assert found[0].tolist() == [[4.0, 4.0, 6.0], [2.0, 8.0, 18.0]] and found[1] is None
    with pytest.raises(ValueError, match="needs grad_outputs with a first axis"):
        torch.autograd.grad(x.sum(), x, is_grads_batched=True)
