"""Names that programs import from PyTorch's packages, and functions that few programs use, against NumPy."""

import importlib

import numpy as np
import pytest

import tengen.pytorch as torch
from tengen.base.errors import ArgumentError, AxisError, LinAlgError, ShapeError
from tengen.pytorch import nn

A = np.array([[4.0, 1.0], [1.0, 3.0]])


def test_places_of_names():
    for place, names in {
        "nn.modules.loss": "_Loss _WeightedLoss CrossEntropyLoss", "nn.modules.activation": "ReLU MultiheadAttention",
        "nn.modules.utils": "_pair", "optim.optimizer": "Optimizer required", "optim.swa_utils": "AveragedModel SWALR update_bn",
        "utils.data.dataloader": "DataLoader default_collate", "nn.attention": "SDPBackend sdpa_kernel",
        "autograd.profiler": "profile record_function",
        "nn.utils.clip_grad": "clip_grad_norm_ get_total_norm", "nn.utils.fusion": "fuse_conv_bn_eval",
    }.items():  # fmt: skip
        module = importlib.import_module(f"tengen.pytorch.{place}")
        assert all(hasattr(module, name) for name in names.split()), place


def test_a_loss_of_ones_own():
    from tengen.pytorch.nn.modules.loss import _WeightedLoss

    class Focal(_WeightedLoss):
        def forward(self, x, y):
            ce = nn.functional.cross_entropy(x, y, weight=self.weight, reduction="none")
            each = (1 - torch.exp(-ce)) ** 2 * ce
            return each.mean() if self.reduction == "mean" else each

    x, y = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])
    ce = np.array([np.log1p(np.exp(-2.0)), 1 + np.log1p(np.exp(-1.0))])
    want = (1 - np.exp(-ce)) ** 2 * ce
    np.testing.assert_allclose(Focal(reduction="none")(x, y).numpy(), want, rtol=1e-5)
    np.testing.assert_allclose(Focal()(x, y).item(), want.mean(), rtol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_layers_fused_with_batch_norms(bias):
    torch.manual_seed(0)
    turned = lambda a, b: nn.utils.fuse_conv_bn_eval(a, b, transpose=True)
    for layer, norm, shape, fuse in (
        (nn.Conv2d(2, 3, 2, bias=bias), nn.BatchNorm2d(3), (2, 2, 3, 3), nn.utils.fuse_conv_bn_eval),
        (nn.ConvTranspose2d(2, 3, 2, bias=bias), nn.BatchNorm2d(3), (2, 2, 3, 3), turned),
        (nn.Linear(2, 3, bias=bias), nn.BatchNorm1d(3), (4, 2), nn.utils.fuse_linear_bn_eval),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=r"are fused for evaluation; help: call eval\(\)"):
            fuse(layer, norm)
        layer.eval(), norm.eval()
        norm.running_mean.uniform_(-1, 1), norm.running_var.uniform_(0.5, 2)
        with torch.no_grad():
            norm.weight.uniform_(0.5, 2), norm.bias.uniform_(-1, 1)
        x = torch.randn(*shape)
        np.testing.assert_allclose(fuse(layer, norm)(x).detach().numpy(), norm(layer(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_norms_of_gradients():
    w, v = nn.Parameter(torch.tensor([3.0])), nn.Parameter(torch.tensor([4.0, 0.0]))
    (w.square().sum() / 2 + v.square().sum() / 2).backward()
    total = nn.utils.get_total_norm([w.grad, v.grad])
    nn.utils.clip_grads_with_norm_([w, v], 1.0, total)
    assert total.item() == 5.0 and nn.utils.get_total_norm([], 2.0).item() == 0.0
    np.testing.assert_allclose([w.grad.item(), *v.grad.tolist()], [0.6, 0.8, 0.0], rtol=1e-5)
    with pytest.raises(RuntimeError, match="the norm of 1 tensors is inf"):
        nn.utils.get_total_norm(torch.tensor([float("inf")]), error_if_nonfinite=True)
    assert nn.utils.skip_init(nn.Linear, 2, 3).weight.shape == (3, 2)


def test_linear_algebra_that_says_whether_it_succeeded():
    both = torch.tensor(np.stack([A, -A]))
    factor, info = torch.linalg.cholesky_ex(both)
    np.testing.assert_allclose(factor[0].numpy(), np.linalg.cholesky(A))
    assert info.tolist() == [0, 1] and np.isnan(factor[1].numpy()).all()
    inverse, info = torch.linalg.inv_ex(torch.tensor(np.stack([A * 0, A])))
    np.testing.assert_allclose(inverse[1].numpy(), np.linalg.inv(A))
    assert info.tolist() == [1, 0] and np.isnan(inverse[0].numpy()).all()
    assert torch.linalg.inv_ex(torch.tensor(A * 0)).info.item() == 1 and torch.linalg.cholesky_ex(torch.tensor(A)).info.item() == 0
    x, info = torch.linalg.solve_ex(torch.tensor(np.stack([A * 0, A])), torch.tensor([[1.0], [2.0]], dtype=torch.float64))
    np.testing.assert_allclose(x[1].numpy(), np.linalg.solve(A, [[1.0], [2.0]]))
    assert info.tolist() == [1, 0] and np.isnan(x[0].numpy()).all()
    assert torch.linalg.solve_ex(torch.tensor(A), torch.tensor(A), left=False).info.item() == 0
    for call in (lambda: torch.linalg.cholesky_ex(both, check_errors=True), lambda: torch.linalg.inv_ex(both * 0, check_errors=True)):
        with pytest.raises(torch.linalg.LinAlgError):
            call()
    assert issubclass(LinAlgError, RuntimeError)  # as programs catch it


def test_systems_of_factors_and_of_more_axes():
    rng = np.random.default_rng(0)
    b, L = rng.normal(size=(2, 3)), np.linalg.cholesky(A)
    for factor, upper in ((L, False), (L.T, True)):
        np.testing.assert_allclose(torch.cholesky_solve(torch.tensor(b), torch.tensor(factor.copy()), upper).numpy(), np.linalg.solve(A, b))
        np.testing.assert_allclose(torch.cholesky_inverse(torch.tensor(factor.copy()), upper).numpy(), np.linalg.inv(A))
    a, b = rng.normal(size=(2, 3, 6)), rng.normal(size=(2, 3))
    np.testing.assert_allclose(torch.linalg.tensorsolve(torch.tensor(a), torch.tensor(b)).numpy(), np.linalg.tensorsolve(a, b))
    turned = np.moveaxis(a, 2, 0).copy()
    np.testing.assert_allclose(torch.linalg.tensorsolve(torch.tensor(turned), torch.tensor(b), dims=(0,)).numpy(), np.linalg.tensorsolve(a, b))
    np.testing.assert_allclose(torch.linalg.tensorinv(torch.tensor(a), ind=2).numpy(), np.linalg.tensorinv(a, 2))
    for call in (lambda: torch.linalg.tensorinv(torch.tensor(a), 1), lambda: torch.linalg.tensorsolve(torch.tensor(a), torch.tensor(b[0]))):
        with pytest.raises(ShapeError, match="elements"):
            call()


def test_a_block_that_names_ways_of_attention():
    q = torch.ones(1, 1, 2, 4)
    with nn.attention.sdpa_kernel([nn.attention.SDPBackend.MATH, nn.attention.SDPBackend.FLASH_ATTENTION]):
        assert nn.functional.scaled_dot_product_attention(q, q, q).tolist() == q.tolist()
    for wrong in ([], ["math"]):
        with pytest.raises(ArgumentError, match="must be a SDPBackend, or a list of them"), nn.attention.sdpa_kernel(wrong):
            pass


def test_mistakes_are_the_errors_that_programs_catch():
    x = torch.ones(2, 2)
    with pytest.raises(AxisError, match=r"squeeze\(dim=5\).*\(2, 2\)"):
        x.squeeze(5)
    for call in (lambda: bool(x), x.item):
        with pytest.raises(RuntimeError):
            call()
        with pytest.raises(ValueError):
            call()
