"""Gradients, errors and writes that PyTorch's own samples of its operators (`pytorch_samples.py`) found to differ, by definitions."""

import numpy as np
import pytest

import tengen.pytorch as torch
from tengen.base.errors import ArgumentError, AxisError, DTypeError, GradientError, ShapeError
from tengen.pytorch import nn

F, ONE = nn.functional, torch.eye(2, dtype=torch.float64)


def test_out_takes_the_result_and_its_shape():
    x = torch.tensor([1.0, 4.0])
    z = torch.zeros(0)
    assert torch.sqrt(x, out=z) is z and z.tolist() == [1.0, 2.0]
    whole = torch.zeros(2, 2)
    torch.add(x, 1, out=whole[1])
    assert whole.tolist() == [[0.0, 0.0], [2.0, 5.0]]
    wide = torch.zeros(2, dtype=torch.float64)
    assert torch.neg(x, out=wide).dtype == torch.float64 and wide.tolist() == [-1.0, -4.0]
    values, places = torch.empty(0), torch.empty(0, dtype=torch.int64)
    torch.max(torch.tensor([[1.0, 3.0]]), 1, out=(values, places))
    assert (values.tolist(), places.tolist()) == ([3.0], [1])
    with pytest.raises(DTypeError, match="would give float32, which it cannot hold"):
        torch.sqrt(x, out=torch.zeros(2, dtype=torch.int64))
    with pytest.raises(GradientError, match=r"sqrt\(out=...\): no gradient flows through out="):
        torch.sqrt(x.clone().requires_grad_(), out=z)
    with pytest.raises(ArgumentError, match="a tuple of 2 tensors"):
        torch.max(x, 0, out=z)
    with pytest.raises(ArgumentError, match="takes a tensor, got a list"):
        torch.sqrt(x, out=[0.0, 0.0])
    with pytest.raises(ShapeError, match="would give the shape"):
        torch.sqrt(x, out=torch.zeros(4)[1:])


def test_what_is_written_along_the_axis_of_a_number():
    """A tensor without axes counts as one element along an axis, in place too; the values are PyTorch 2.13's."""
    at, five = torch.tensor(0), torch.tensor(5.0)
    for write, want in (
        (lambda x: x.index_add_(0, at, five), 8.0), (lambda x: x.index_copy_(0, at.reshape(1), five), 5.0),
        (lambda x: x.index_fill_(-1, at, 7.0), 7.0), (lambda x: x.scatter_(0, at, five), 5.0), (lambda x: x.scatter_(0, at, 6.0), 6.0),
        (lambda x: x.scatter_add_(0, at, five), 8.0), (lambda x: x.scatter_reduce_(0, at, five, reduce="amax"), 5.0),
        (lambda x: x.index_reduce_(0, at, five, "prod"), 15.0),
    ):  # fmt: skip
        x = torch.tensor(3.0)
        assert write(x) is x and x.shape == () and x.item() == want
    with pytest.raises(AxisError):
        torch.tensor(3.0).scatter_(1, at, five)
    mask = torch.tensor([True, False])
    assert mask.sign_() is mask and mask.tolist() == [True, False]


def numerical(f, x, h=1e-6):
    """Central differences of a scalar function of a float64 array."""
    slope = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = h
        slope[i] = (f(x + step) - f(x - step)) / (2 * h)
    return slope


@pytest.mark.parametrize("f", [
    lambda x: torch.frexp(x).mantissa.sum(),
    lambda x: F.interpolate(x[None, None], scale_factor=1.7, mode="linear").square().sum(),
    lambda x: F.interpolate(x.reshape(1, 1, 2, 3), scale_factor=1.4, mode="bicubic").square().sum(),
    lambda x: F.softplus(x, beta=3.0, threshold=0.5).square().sum(),
    lambda x: torch.linalg.lu_solve(*torch.linalg.lu_factor(x.reshape(2, 3)[:, :2] + 3 * ONE), ONE).square().sum(),
    lambda x: nn.InstanceNorm1d(2).double()(x.reshape(2, 3)).pow(3).sum(),
], ids=["frexp", "linear", "bicubic", "softplus", "lu_solve", "instance norm"])  # fmt: skip
def test_gradients_by_differences(f):
    start = np.array([0.3, -0.7, 1.2, 0.9, -0.4, 0.55])
    x = torch.tensor(start, requires_grad=True)
    f(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), numerical(lambda a: f(torch.tensor(a)).item(), start), rtol=1e-5, atol=1e-7)


def test_a_row_that_is_named_twice_gets_half_of_its_gradient():
    net = nn.Embedding(4, 2, scale_grad_by_freq=True)
    net(torch.tensor([1, 1, 3])).sum().backward()
    assert net.weight.grad.tolist() == [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
    table = torch.tensor([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]])
    F.embedding(torch.tensor([0, 1]), table, max_norm=1.0)
    np.testing.assert_allclose(table.numpy(), [[0.6, 0.8], [0.3, 0.4], [6.0, 8.0]], rtol=1e-6)


def test_what_has_no_meaning_is_an_error():
    x = torch.ones(2, 4, 4)
    for call in (
        lambda: torch.arange(0, -3), lambda: torch.isclose(x, x, -1.0), lambda: torch.trace(x), lambda: F.max_pool2d(x, 2, 2, 2),
        lambda: F.max_pool2d(x, 2, dilation=0),
        lambda: torch.complex(x, x.double()), lambda: F.prelu(x, torch.ones(3)), lambda: F.triplet_margin_loss(x, x, x, margin=-1.0),
        lambda: torch.linalg.cross(torch.ones(2, 3), torch.ones(3)), lambda: F.embedding(torch.tensor([0]), torch.ones(3)),
        lambda: F.cross_entropy(x[0], torch.tensor([0, 1, 2, 3]), label_smoothing=1.5), lambda: torch.diff(x, -1),
        lambda: torch.zeros(3).uniform_(2, 1), lambda: torch.zeros(3).exponential_(0), lambda: torch.zeros(3).cauchy_(0, 0),
        lambda: torch.masked_fill(x, x > 0, torch.ones(1)), lambda: torch.roll(x, ()), lambda: torch.renorm(x[0, 0, 0], 2, 0, 1.0),
        lambda: F.multi_margin_loss(x[0], torch.tensor([0, 1, 2, 3]), reduction="all"), lambda: torch.arange(0, 3, 0),
        lambda: F.multilabel_margin_loss(x[0, 0, :0], torch.zeros(0, dtype=torch.long)), lambda: F.huber_loss(x, x, delta=0),
        lambda: F.gaussian_nll_loss(x[0], x[0], torch.ones(3)), lambda: torch.multinomial(x, 1),
        lambda: torch.quantile(x, torch.tensor(0.5, requires_grad=True)),
        lambda: torch.take_along_dim(x, torch.zeros(2, 2, dtype=torch.int64), 1),
        lambda: torch.gather(torch.complex(x, x)[0], 0, torch.zeros(2, 9, dtype=torch.int64)),
    ):  # fmt: skip
        with pytest.raises((RuntimeError, ValueError)):
            call()
    for tensors in (x, [x, None], (x, 1.0)):
        with pytest.raises(TypeError, match="cat takes a list or a tuple of tensors, got a"):
            torch.cat(tensors)


def test_norms_without_a_bias_and_with_running_statistics():
    for net, x in ((nn.GroupNorm(1, 2, bias=False), torch.ones(2, 2, 3)), (nn.BatchNorm1d(2, bias=False), torch.ones(3, 2)),
                   (nn.InstanceNorm1d(2, affine=True, bias=False), torch.ones(2, 3))):  # fmt: skip
        net.weight.data.fill_(5.0)
        net.reset_parameters()
        assert net.bias is None and net.weight.tolist() == [1.0, 1.0] and net(x).abs().max().item() < 1e-6
    net = nn.InstanceNorm1d(2, momentum=0.5, track_running_stats=True)
    x = torch.tensor([[[1.0, 3.0], [2.0, 6.0]], [[3.0, 5.0], [0.0, 0.0]]])
    net(x)  # means 2 and 4, 4 and 0; variances 2 and 2, 8 and 0
    assert (net.running_mean.tolist(), net.running_var.tolist()) == ([1.5, 1.0], [1.5, 2.5])
    net.eval()
    np.testing.assert_allclose(net(x)[0, 0].numpy(), (np.array([1.0, 3.0]) - 1.5) / np.sqrt(1.5 + 1e-5), rtol=1e-6)
    assert list(net.state_dict()) == ["running_mean", "running_var"] and nn.LayerNorm((2, 3)).state_dict()["weight"].shape == (2, 3)


def test_sums_of_unsigned_integers_are_int64():
    """With int64 beside them NumPy's uint64 would be float64."""
    x = torch.tensor([[200, 100], [7, 1]], dtype=torch.uint8)
    made = [
        torch.sum(x), x.sum(), x.sum(0), x.prod(), torch.prod(x, 0), x.cumsum(0), x.cumprod(0), x.nansum(), torch.nansum(x), x.trace(),
        torch.trace(x), torch.einsum("ij->", x), x.sum_to_size(1, 2), torch.tensor([True, True]).sum_to_size(1),
    ]  # fmt: skip
    assert {str(m.dtype) for m in made} == {"int64"} and [m.tolist() for m in made[:4]] == [308, 308, [207, 101], 140000]
    assert made[-2].tolist() == [[207, 101]] and made[-1].tolist() == [2] and (x.sum() + torch.tensor(1)).dtype == torch.int64
    assert x.all().dtype == torch.any(x, 0).dtype == torch.uint8 and x.any().item() == 1
    assert torch.sum(x, dtype=torch.uint8).item() == 52
    assert torch.add(x, x, alpha=-1).tolist() == [[0, 0], [0, 0]]
    assert torch.index_add(x[0], 0, torch.tensor([1]), x[1, :1], alpha=-1).tolist() == [200, 93]
    assert F.hardtanh(torch.tensor([-3, 0, 3])).tolist() == [-1, 0, 1] and F.hardtanh(torch.tensor([-3, 3]), -0.5, 2.5).tolist() == [0, 2]
    assert F.hardtanh(torch.tensor([-3.0, 3.0]), 0.0, 0.0).tolist() == [0.0, 0.0]


def test_tensors_without_axes_are_indexed_along_one():
    x, first = torch.tensor(3.0, requires_grad=True), torch.tensor([0])
    assert torch.gather(x, 0, first).shape == (1,) and torch.gather(x, 0, first[0]).shape == x.gather(-1, first[0]).shape == ()
    assert torch.index_select(x, 0, first).shape == x.index_select(0, first).shape == ()
    assert torch.gather(torch.ones(5), 0, torch.zeros(2, 0, dtype=torch.int64)).shape == (2, 0)
    made = [
        torch.index_add(x, 0, first, torch.tensor(2.0), alpha=2), x.index_copy(0, first, torch.tensor(5.0)), torch.index_fill(x, 0, first, 6.0),
        torch.index_reduce(x, 0, first, torch.tensor(4.0), "prod"), torch.scatter(x, 0, first[0], 8.0),
        torch.scatter_add(x, 0, first[0], torch.tensor(1.0)), x.scatter_reduce(0, first[0], torch.tensor(9.0), "amax"),
    ]  # fmt: skip
    assert [(m.shape, m.item()) for m in made] == [((), v) for v in (7.0, 5.0, 6.0, 12.0, 8.0, 4.0, 9.0)]
    made[0].backward()
    assert x.grad.item() == 1.0
    assert torch.argwhere(x).shape == x.argwhere().shape == (1, 0)
    assert torch.fft.fftn(torch.ones(2, 3), dim=0).real.tolist() == [[2.0] * 3, [0.0] * 3]
    with pytest.raises(IndexError, match="needs an axis"):
        torch.fft.fft2(x, dim=0)
