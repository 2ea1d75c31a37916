"""Training steps of PyTorch's dialect, against the same steps written out in NumPy's float64."""

import warnings

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


def test_gradients_of_gradients_of_a_function_of_ones_own():
    """Saved inputs and outputs are on the tape while a gradient of the gradient is recorded."""

    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale, other):
            out = torch.exp(x) * other
            ctx.scale = scale
            ctx.save_for_backward(out, other, x)
            return out * 1.0, out

        @staticmethod
        def backward(ctx, d, dy):
            out, other, x = ctx.saved_tensors
            return dy * out, None, dy * torch.exp(x)

    def steps(f):
        x, y = torch.tensor([0.5, -1.0], dtype=torch.float64, requires_grad=True), torch.tensor([3.0, 2.0], dtype=torch.float64)
        y.requires_grad_()
        first = torch.autograd.grad((f(x * 2, y) ** 2).sum(), [x, y], create_graph=True)
        return [*first, *torch.autograd.grad(first[0].sum() + first[1].square().sum(), [x, y])]

    for got, want in zip(steps(lambda x, y: Exp.apply(x, 1.0, y)[1]), steps(lambda x, y: torch.exp(x) * y)):
        np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-14)


class Descent(torch.optim.Optimizer):
    """A program's own optimizer, as programs write it."""

    def __init__(self, params, lr=0.1, beta=0.9):
        super().__init__(params, dict(lr=lr, beta=beta))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group.setdefault("calls", 0)
            group["calls"] += 1
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["step"], state["buf"] = 0, torch.zeros_like(p)
                state["step"] += 1
                state["buf"].mul_(group["beta"]).add_(p.grad)
                p.add_(state["buf"], alpha=-group["lr"])


def test_an_optimizer_of_ones_own():
    w, v = nn.Parameter(torch.tensor([1.0, -2.0])), nn.Parameter(torch.tensor([3.0]))
    opt, seen = Descent([{"params": [w], "decay": "none"}, {"params": [v], "lr": 0.5}]), []
    assert isinstance(opt, torch.optim.Optimizer) and isinstance(torch.optim.Adam([v]), torch.optim.Optimizer)
    assert len(opt.state) == 0 and w not in opt.state
    opt.register_step_post_hook(lambda *a: seen.append(1))
    schedule = torch.optim.lr_scheduler.StepLR(opt, 1.0, gamma=0.5)
    x, buf, lr = np.array([1.0, -2.0], "f4"), 0.0, 0.1
    for _ in range(3):
        opt.zero_grad()
        (w**2).sum().backward()
        opt.step()
        schedule.step()
        buf, x, lr = 0.9 * buf + 2 * x, x - lr * (0.9 * buf + 2 * x), lr / 2
    np.testing.assert_allclose(w.detach().numpy(), x, rtol=1e-6)
    assert v.tolist() == [3.0] and list(opt.state) == [w] and opt.state[w]["step"] == 3 and seen == [1, 1, 1]
    assert opt.param_groups[0]["calls"] == 3 and opt.param_groups[0]["decay"] == "none"
    saved = opt.state_dict()
    other = Descent([{"params": [w]}, {"params": [v]}])
    other.load_state_dict(saved)
    assert other.state[w]["step"] == 3 and other.state[w]["buf"].tolist() == opt.state[w]["buf"].tolist()
    assert other.param_groups[1]["lr"] == opt.param_groups[1]["lr"]
    with pytest.raises(ValueError, match=r"groups of \[1, 1\] parameters do not fit groups of \[1\]"):
        Descent([w]).load_state_dict(saved)


class FirstGradient(Descent):
    """What it keeps begins with the first gradient, and a number of Python counts its steps."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                if "buf" not in state:
                    state["buf"] = torch.clone(p.grad)
                else:
                    state["buf"].mul_(group["beta"]).add_(p.grad)
                p.add_(state["buf"], alpha=-group["lr"] / state["step"])


@pytest.mark.parametrize("kind", [Descent, FirstGradient])
def test_an_optimizer_of_ones_own_in_a_compiled_step(kind):
    """Its steps are those of the same function that is not compiled, from the first on."""

    def run(compiled):
        w = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
        opt, seen = kind([w]), []
        opt.register_step_post_hook(lambda *a: seen.append(1))

        def step(x):
            opt.zero_grad()
            loss = ((w * x) ** 2).sum()
            loss.backward()
            opt.step()
            return loss

        f = torch.compile(step) if compiled else step
        losses = [f(torch.tensor([1.0, 0.5, float(i)])).item() for i in range(4)]
        return losses, w.tolist(), opt.state[w]["step"], opt.state[w]["buf"].tolist(), len(seen)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(True) == run(False)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_dampened_velocity(decay):
    w = nn.Parameter(torch.tensor([1.0, -2.0]))
    opt = torch.optim.SGD([w], lr=0.1, momentum=0.9, dampening=0.3, weight_decay=decay)
    x, v = np.array([1.0, -2.0]), None
    for _ in range(3):
        opt.zero_grad()
        (w**3).sum().backward()
        opt.step()
        g = 3 * x**2 + decay * x
        v = g if v is None else 0.9 * v + 0.7 * g
        x = x - 0.1 * v
    np.testing.assert_allclose(w.detach().numpy(), x, rtol=1e-5)
    again = torch.optim.SGD([w], lr=0.5, momentum=0.9, dampening=0.3)
    again.load_state_dict(opt.state_dict())
    assert again.state[w]["step"].item() == 3 and again.param_groups[0]["dampening"] == 0.3


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_norms_over_neighbouring_channels(size):
    a = np.random.default_rng(0).normal(size=(2, 3, 8))
    low = lambda c: max(c - size // 2, 0)
    sums = np.stack([(a[:, low(c) : c + (size - 1) // 2 + 1] ** 2).sum(1) for c in range(3)], 1)
    want = a / (2.0 + 0.5 / size * sums) ** 0.75
    for shape in ((2, 3, 8), (2, 3, 2, 4), (2, 3, 2, 2, 2)):
        got = nn.LocalResponseNorm(size, alpha=0.5, k=2.0)(torch.tensor(a.reshape(shape)))
        np.testing.assert_allclose(got.numpy(), want.reshape(shape), rtol=1e-12)
    with pytest.raises(ValueError, match=r"local_response_norm: \(2, 3\) has no axes behind the channels"):
        nn.LocalResponseNorm(size)(torch.ones(2, 3))


def test_statistics_computed_anew():
    """The dialect's momentum is the share that is taken, and Tengen's the share that is kept."""
    net = nn.Sequential(nn.BatchNorm1d(2)).eval()
    batches = [torch.tensor([[1.0, 2.0], [3.0, 6.0]]), torch.tensor([[5.0, 0.0], [7.0, 4.0]])]
    torch.optim.swa_utils.update_bn(batches, net)
    assert net[0].running_mean.tolist() == [4.0, 3.0] and net[0].running_var.tolist() == [2.0, 8.0] and net[0].momentum == 0.1


def test_numpys_words():
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    assert torch.cumprod(x, axis=0).tolist() == [[1.0, 2.0], [3.0, 10.0]] and torch.sum(x, axis=1, keepdims=True).tolist() == [[3.0], [8.0]]
    assert torch.cat([x, x], axis=1).shape == (2, 4) and torch.argmax(x, axis=0).tolist() == [1, 1]
    with pytest.raises(TypeError, match="dim"):
        torch.cumsum(x, dim=0, axis=0)


def test_pytorchs_words():
    """Names of parameters of functions that are Tengen's own, and of methods."""
    x, i = torch.tensor([[1.0, 2.0, 4.0], [3.0, 5.0, 6.0]]), torch.tensor([[0, 2], [1, 1]])
    a = x.numpy()
    for got, want in (
        (torch.stack(tensors=[x, x], dim=1), np.stack([a, a], 1)), (torch.matmul(input=x, other=x.t()), a @ a.T),
        (torch.mul(input=x, other=2.0), a * 2), (torch.pow(x, exponent=2), a**2), (torch.exp(input=x * 0), a * 0 + 1),
        (torch.max(x, other=x.flip(0, 1)), np.maximum(a, a[::-1, ::-1])), (torch.swapaxes(x, axis0=0, axis1=1), a.T),
        (x.tile(2, 1), np.tile(a, (2, 1))), (x.tile(dims=(1, 2)), np.tile(a, (1, 2))),
        (x.add(x, alpha=2), 3 * a), (x.sub(other=1.0), a - 1), (x.div(2, rounding_mode="floor"), a // 2), (x.mul(other=x), a * a),
        (x.pow(exponent=2), a**2), (x.mm(mat2=x.t()), a @ a.T), (x.permute(dims=(1, 0)), a.T), (x.tile(dims=(2, 1)), np.tile(a, (2, 1))),
        (x.expand(size=(1, 2, 3)), a[None]), (x.split(split_size=1, dim=0)[1], a[1:]), (x.reshape(shape=(3, 2)), a.reshape(3, 2)),
        (x.scatter(dim=1, index=i, value=0.0), [[0, 2, 0], [3, 0, 6]]), (x.diagonal(dim1=1, dim2=0), np.diagonal(a)),
        (x.clone(memory_format=torch.preserve_format).scatter_(1, i[:, :1], 1.0, reduce="add"), [[2, 2, 4], [3, 6, 6]]),
        ((-x).div_(2, rounding_mode="trunc"), np.trunc(-a / 2)), (x.new_zeros(2, device="cpu"), [0, 0]), (x.to(other=x), a),
        (x.to(torch.float32, memory_format=torch.channels_last), a), (torch.einsum(x, [0, 1], x, [2, 1], [0, 2]), a @ a.T),
        (torch.einsum(x, [..., 27]), a), (x.sum_to_size(1, 3), a.sum(0, keepdims=True)),
        (x.clone().put_(torch.tensor([0, -1]), torch.tensor([9.0, 8.0])), [[9, 2, 4], [3, 5, 8]]),
        (x.clone().put_(torch.tensor([0, 0]), torch.tensor([9.0, 8.0]), accumulate=True), [[18, 2, 4], [3, 5, 6]]),
        (x.clone().map_(x, lambda u, v: u * v).apply_(lambda u: u + 1), a * a + 1),
    ):  # fmt: skip
        np.testing.assert_array_equal(got.numpy(), np.asarray(want, "f4"))
    assert x.get_device() == -1 and x.storage_offset() == 0 and x.is_same_size(x * 2) and not x.is_set_to(x * 2)
    assert x.new_full((1,), 2.0, requires_grad=True).requires_grad and torch.mul is not torch.matmul
    for wrong in (lambda: x.new_zeros(2, devise="cpu"), lambda: torch.mul(x, input=x), lambda: x.div_(2, rounding_mode="up")):
        with pytest.raises((TypeError, ArgumentError), match="devise|input|rounding_mode='up'"):
            wrong()


def test_numbers_drawn_in_place():
    x, g = torch.empty(1000), torch.Generator().manual_seed(1)
    first = x.normal_(mean=2.0, std=0.01, generator=g).tolist()
    assert 1.9 < min(first) and max(first) < 2.1 and x.normal_(2.0, std=0.01, generator=g.manual_seed(1)).tolist() == first
    assert x.uniform_(to=0.5).max().item() < 0.5 <= x.uniform_(0.5, 1.0).min().item() and x.exponential_(lambd=100.0).mean().item() < 0.1
    assert set(x.random_(2, 4, generator=g).tolist()) == set(x.random_(to=4, **{"from": 2}).tolist()) == {2.0, 3.0}
    assert x.geometric_(1.0 - 1e-7).tolist() == [1.0] * 1000 and 3 < x.geometric_(0.25, generator=g).mean().item() < 5
    assert 1.8 < x.cauchy_(2.0, 0.5).median().item() < 2.2 and 0.9 < x.log_normal_(0.0, 0.5).median().item() < 1.1
    with pytest.raises(ArgumentError, match="geometric_: p=1.0 must be above 0 and below 1"):
        x.geometric_(1.0)
    with pytest.raises(TypeError, match=r"normal_\(\) takes mean, std, each once, and generator; got \(1.0,\) and {'mean': 2.0}"):
        x.normal_(1.0, mean=2.0)


def test_sequences_without_a_batch():
    x = torch.tensor(np.random.default_rng(0).normal(size=(4, 3)).astype("f4"))
    for make, cell in ((nn.LSTM, nn.LSTMCell), (nn.GRU, nn.GRUCell), (nn.RNN, nn.RNNCell)):
        for first in (False, True):
            net = make(3, 2, 2, bidirectional=True, batch_first=first)
            (y, h), (ys, hs) = net(x), net(x.unsqueeze(0 if first else 1))
            assert y.tolist() == ys.squeeze(0 if first else 1).tolist()
            for one, many in zip(*((s if isinstance(s, tuple) else (s,)) for s in (h, hs))):
                assert one.shape == (4, 2) and one.tolist() == many.squeeze(1).tolist()
            assert net(x, h)[0].shape == (4, 4)
        c = cell(3, 2)
        state = c(x[0])
        again = c(x[1], state)
        many = c(x[1:2], tuple(s.unsqueeze(0) for s in state) if isinstance(state, tuple) else state.unsqueeze(0))
        for one, batch in zip(*((s if isinstance(s, tuple) else (s,)) for s in (again, many))):
            assert one.shape == (2,) and one.tolist() == batch[0].tolist()


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
    with pytest.raises(ValueError, match="nesterov needs a momentum and no dampening"):
        torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1, momentum=0.5, dampening=0.5, nesterov=True)
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0


def test_a_method_whose_arguments_say_which_is_meant():
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    assert x.max().item() == 5.0 and x.max(axis=1).tolist() == [2.0, 5.0] and x.amax(1).tolist() == [2.0, 5.0]
    assert x.std(unbiased=True).item() == torch.std(x).item() and x.repeat(2, axis=0).shape == (4, 2)
    assert x.sort(dim=0)[0].tolist() == x.tolist() and x.sort(descending=True)[0].tolist() == [[2.0, 1.0], [5.0, 3.0]]
    assert x.topk(1, dim=0)[0].tolist() == [[3.0, 5.0]] and torch.ones(2, 3, 4).transpose(1, 2).shape == (2, 4, 3)


def test_groups_keep_settings_that_an_optimizer_does_not_read():
    """As programs for PyTorch have them: a share of the rate for each layer. The warning names what was perhaps meant."""
    w = torch.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="AdamW: a group's 'lr_scale' is read by nothing of it"):
        opt = torch.optim.AdamW([{"params": [w], "lr_scale": 0.5}], lr=0.1, weight_decay=0.0)
    for group in opt.param_groups:
        group["lr"] = 0.2 * group["lr_scale"]
    w.sum().backward()
    opt.step()
    np.testing.assert_allclose(w.detach().numpy(), 0.9, rtol=1e-6)
    assert torch.optim.SGD(opt.param_groups, lr=0.3).param_groups[0]["lr_scale"] == 0.5 and "lr_scale" in opt.state_dict()["param_groups"][0]
