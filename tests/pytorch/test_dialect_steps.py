"""Training steps of PyTorch's dialect, against the same steps written out in NumPy's float64."""

import numpy as np
import pytest

import tengen.pytorch as torch
from tengen.base.errors import ArgumentError, DeviceError
from tengen.pytorch import nn


def test_an_adam_step_of_a_linear_map():
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    w, b = (p.detach().numpy().astype(np.float64) for p in (net.weight, net.bias))
    x, y = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 2.0]])
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    m, v = [0.0, 0.0], [0.0, 0.0]
    for t in range(1, 4):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(torch.tensor(x, dtype=torch.float32)), torch.tensor(y, dtype=torch.float32))
        loss.backward()
        optimizer.step()
        d = 2 * (x @ w.T + b - y) / y.size
        assert abs(loss.item() - ((x @ w.T + b - y) ** 2).mean()) < 1e-5
        for i, (p, g) in enumerate(((w, d.T @ x), (b, d.sum(0)))):
            m[i], v[i] = 0.9 * m[i] + 0.1 * g, 0.999 * v[i] + 0.001 * g * g
            p -= 0.1 * (m[i] / (1 - 0.9**t)) / (np.sqrt(v[i] / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(net.weight.detach().numpy(), w, atol=1e-5)
    np.testing.assert_allclose(net.bias.detach().numpy(), b, atol=1e-5)


@pytest.mark.parametrize("momentum", [0.1, 0.75])
def test_momentum_of_a_batch_norm_is_the_share_of_the_batch(momentum):
    norm = nn.BatchNorm1d(2, momentum=momentum)
    x = np.array([[1.0, 10.0], [3.0, 20.0], [8.0, 60.0]], np.float32)
    norm(torch.from_numpy(x))
    np.testing.assert_allclose(norm.running_mean.numpy(), momentum * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(norm.running_var.numpy(), (1 - momentum) + momentum * x.var(0, ddof=1), rtol=1e-5)
    assert norm.weight.shape == norm.running_mean.shape == (2,)


def test_spread_is_divided_by_one_less():
    x = np.array([[1.0, 4.0, 2.0], [5.0, 0.0, 9.0]], np.float32)
    t = torch.from_numpy(x)
    np.testing.assert_allclose(torch.std(t).item(), x.std(ddof=1), rtol=1e-6)
    np.testing.assert_allclose(torch.var(t, 1).numpy(), x.var(1, ddof=1), rtol=1e-6)
    np.testing.assert_allclose(torch.var(t, dim=0, unbiased=False).numpy(), x.var(0), rtol=1e-6)
    np.testing.assert_allclose(torch.std(t, False).item(), x.std(), rtol=1e-6)


def test_extremes_along_an_axis_come_with_indices():
    t = torch.tensor([[1.0, 7.0, 7.0], [5.0, 0.0, 9.0]])
    values, indices = torch.max(t, 1)
    assert values.tolist() == [7.0, 9.0] and indices.tolist() == [1, 2] and indices.dtype is torch.int64
    assert torch.min(t, dim=0, keepdim=True).indices.tolist() == [[0, 1, 0]]
    assert torch.median(torch.tensor([4.0, 1.0, 3.0, 2.0])).item() == 2.0
    assert torch.topk(t, 2, dim=1, largest=False).values.tolist() == [[1.0, 7.0], [0.0, 5.0]]


def test_ranges_and_dtypes_of_what_is_made():
    assert torch.arange(3).dtype is torch.int64 and torch.arange(0.0, 1.0, 0.5).dtype is torch.float32
    assert torch.tensor([1.5]).dtype is torch.float32 and torch.tensor(np.ones(2)).dtype is torch.float64
    assert torch.full((2,), 3).dtype is torch.int64 and torch.ones(2, dtype=torch.long).dtype is torch.int64
    assert torch.tensor([[torch.tensor(1.0), 2.0]]).shape == (1, 2)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.rand(2).dtype is torch.float64 and nn.Linear(2, 2).weight.dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_padding_begins_with_the_last_axis():
    x = np.arange(6.0, dtype=np.float32).reshape(1, 2, 3)
    got = nn.functional.pad(torch.from_numpy(x), (1, 2, 0, 1), value=9.0).numpy()
    np.testing.assert_array_equal(got, np.pad(x, ((0, 0), (0, 1), (1, 2)), constant_values=9.0))
    np.testing.assert_array_equal(nn.functional.pad(torch.from_numpy(x), (-1, 0)).numpy(), x[..., 1:])


def test_a_state_dict_is_written_through_and_a_shared_weight_has_two_names():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.z, self.a = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
            self.a.weight = self.z.weight

    net, other = Net(), Net()
    assert list(net.state_dict()) == ["z.weight", "a.weight"] and len(list(net.parameters())) == 1
    other.load_state_dict(net.state_dict())
    assert other.a.weight is other.z.weight and other.a.weight.tolist() == net.z.weight.tolist()
    net.state_dict()["z.weight"].fill_(3.0)
    assert net.a.weight.tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_a_function_of_ones_own():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, dy):
            (x,) = ctx.saved_tensors
            return dy * 3 * x**2 * 10

    x = torch.tensor([2.0], requires_grad=True)
    Cube.apply(x).sum().backward()
    assert x.grad.tolist() == [120.0]


def test_a_module_called_with_other_parameters():
    net = nn.Linear(2, 1)
    params = {n: p.detach() for n, p in net.named_parameters()}
    x = torch.tensor([[1.0, 2.0]])
    got = torch.func.grad(lambda ps: torch.func.functional_call(net, ps, (x,)).sum())(params)
    assert got["weight"].tolist() == [[1.0, 2.0]] and got["bias"].tolist() == [1.0]
    assert isinstance(net.weight, nn.Parameter) and net.weight.grad is None


def test_modes():
    assert torch.is_grad_enabled()
    with torch.no_grad():
        assert not torch.is_grad_enabled()
        with torch.set_grad_enabled(True):
            assert torch.is_grad_enabled()
        assert not torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    try:
        assert not (torch.ones(1, requires_grad=True) * 2).requires_grad
    finally:
        torch.set_grad_enabled(True)


def test_a_loader_gives_tensors_in_an_order_that_the_seed_says():
    data = torch.utils.data.TensorDataset(torch.arange(10), torch.arange(10) * 2.0)

    def order():
        torch.manual_seed(3)
        return [x.tolist() for x, _ in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)]

    first = order()
    assert first == order() and sorted(sum(first, [])) == list(range(10)) and [len(b) for b in first] == [4, 4, 2]
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    assert [x.tolist() for x, _ in loader] != [x.tolist() for x, _ in loader]
    x, y = next(iter(torch.utils.data.DataLoader(data, 3)))
    assert isinstance(x, torch.Tensor) and y.tolist() == [0.0, 2.0, 4.0]


def test_what_is_not_there_says_so():
    with pytest.raises(AttributeError, match="sofmax.*softmax"):
        torch.sofmax  # noqa: B018  (the name is asked for)
    with pytest.raises(DeviceError):
        torch.device("cuda")
    with pytest.raises(DeviceError):
        nn.Linear(2, 2, device="cuda")
    with pytest.raises(ArgumentError, match="dampening"):
        torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1, dampening=0.5)
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0


def test_a_method_whose_arguments_say_which_is_meant():
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    assert x.max().item() == 5.0 and x.max(axis=1).tolist() == [2.0, 5.0] and x.amax(1).tolist() == [2.0, 5.0]
    assert x.std(unbiased=True).item() == torch.std(x).item() and x.repeat(2, axis=0).shape == (4, 2)
    assert x.sort(dim=0)[0].tolist() == x.tolist() and x.sort(descending=True)[0].tolist() == [[2.0, 1.0], [5.0, 3.0]]
    assert x.topk(1, dim=0)[0].tolist() == [[3.0, 5.0]] and torch.ones(2, 3, 4).transpose(1, 2).shape == (2, 4, 3)
