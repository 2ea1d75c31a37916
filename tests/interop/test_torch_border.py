"""Tensors over the same memory, and gradients that cross between PyTorch and Tengen."""

import numpy as np
import pytest

import tengen.functional as F
import tengen.module as M
from tengen import Parameter, Tensor, autodiff, random, trace
from tengen.base.errors import ArgumentError, TraceError
from tengen.interop.torch import as_torch_function, from_torch, from_torch_function, to_torch

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
DTYPES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex64 complex128".split()


@pytest.mark.parametrize("name", DTYPES)
def test_memory_is_shared(name):
    t = torch.arange(24).reshape(4, 6).to(getattr(torch, name))[1:, ::2].T
    x = from_torch(t)
    back = to_torch(x)
    assert x.dtype.name == name and x.shape == (3, 3) and back.dtype == t.dtype
    assert back.data_ptr() == t.data_ptr() and back.stride() == t.stride()
    before = x.copy() if hasattr(x, "copy") else F.copy(x)
    if name.startswith(("float", "int")):
        t += 1  # what PyTorch writes is seen
        assert (x.numpy() == before.numpy() + 1).all()
    x[0] = 0  # Tengen copies before it writes
    assert bool((t[0] != 0).any()) or name == "bool"


def test_nests_and_what_cannot_be_shared():
    state = torch.nn.Linear(2, 3).state_dict()
    mine = from_torch(state)
    assert list(mine) == ["weight", "bias"] and mine["weight"].shape == (3, 2)
    back = to_torch({"state": (mine, [np.arange(3), 5])})
    assert back["state"][0]["weight"].data_ptr() == state["weight"].data_ptr() and back["state"][1][1] == 5
    array = np.arange(3.0)
    assert to_torch(array).data_ptr() == array.ctypes.data
    array.flags.writeable = False
    assert to_torch(array).tolist() == [0.0, 1.0, 2.0]
    leaf = torch.ones(2, requires_grad=True)
    assert from_torch(leaf).tolist() == [1.0, 1.0] and from_torch(torch.nn.Parameter(leaf * 2)).tolist() == [2.0, 2.0]
    assert from_torch(torch.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]
    assert from_torch(torch.zeros(0, 3)).shape == (0, 3) and from_torch(torch.tensor(5)).item() == 5
    for bad, why in (
        (torch.zeros(2).to(torch.float8_e4m3fn), "is no dtype of Tengen"),
        (torch.eye(2).to_sparse(), "only dense tensors"),
        (torch.zeros(2, device="meta"), "is on meta; help: t.cpu"),
    ):
        with pytest.raises(ArgumentError, match=why):
            from_torch(bad)


def several(x, y, i):
    """Several outputs, one of integers, one of a part."""
    return F.matmul(x, y) * 2, F.argmax(x, 1), x[i] * F.sin(x[i])


def test_a_tengen_function_in_a_pytorch_model():
    f = as_torch_function(several)
    g = torch.Generator().manual_seed(0)
    x, y = (torch.randn(s, dtype=torch.float64, generator=g, requires_grad=True) for s in ((3, 4), (5, 4)))
    i = torch.tensor([0, 2, 0])
    a, b, c = f(x, y.T, i)  # y.T is not contiguous
    assert a.requires_grad and c.requires_grad and not b.requires_grad and b.tolist() == x.argmax(1).tolist()
    (a.sum() * 2 + (c**2).sum()).backward()
    gx, gy = x.grad, y.grad
    x.grad = y.grad = None
    (4 * (x @ y.T).sum() + ((x[i] * x[i].sin()) ** 2).sum()).backward()
    torch.testing.assert_close(gx, x.grad)
    torch.testing.assert_close(gy, y.grad)
    assert torch.autograd.gradcheck(lambda x, y: f(x, y.T, i)[0::2], (x, y))
    with torch.no_grad():
        assert not f(x, y.T, i)[0].requires_grad
    assert not f(x.detach(), y.detach().T, i)[0].requires_grad
    once = f(x, y.T, i)[0].sum()
    once.backward(retain_graph=True)
    once.backward()  # twice over one call
    same = as_torch_function(lambda x: x)(x)
    assert same.data_ptr() != x.data_ptr() and same.requires_grad  # nobody writes into x by it


def test_writing_in_between_is_pytorchs_error():
    f = as_torch_function(lambda x: x * x)
    x = torch.ones(3, requires_grad=True)
    y = f(x)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with pytest.raises(ArgumentError, match="must return a tensor or a tuple of tensors, not a float"):
        as_torch_function(lambda x: 1.0)(x)


def test_gradients_of_gradients_of_a_tengen_function():
    """By PyTorch's walk, of the second and third order, through several outputs of which one is of integers."""
    f = as_torch_function(several)
    g = torch.Generator().manual_seed(0)
    x, y = (torch.randn(s, dtype=torch.float64, generator=g, requires_grad=True) for s in ((3, 4), (5, 4)))
    i = torch.tensor([0, 2, 0])
    assert torch.autograd.gradgradcheck(lambda x, y: f(x, y.T, i)[0::2], (x, y))
    assert torch.autograd.gradgradcheck(lambda y: f(x.detach(), y.T, i)[0], (y,))
    t = torch.tensor([0.7, -1.2], dtype=torch.float64, requires_grad=True)
    value = as_torch_function(lambda x: F.sin(x) * x * x)(t).sum()
    twin = (t.sin() * t * t).sum()
    for _ in range(3):
        (value,), (twin,) = (torch.autograd.grad(v.sum(), t, create_graph=True) for v in (value, twin))
        torch.testing.assert_close(value, twin)
    penalty = (torch.autograd.grad(f(x, y.T, i)[2].sum(), x, create_graph=True)[0] ** 2).sum()
    (have,) = torch.autograd.grad(penalty, x)
    twin = (torch.autograd.grad((x[i] * x[i].sin()).sum(), x, create_graph=True)[0] ** 2).sum()
    torch.testing.assert_close(have, torch.autograd.grad(twin, x)[0])


def test_gradients_of_gradients_run_a_module_once_more():
    """Its parameters get the derivative of a gradient's penalty; running statistics are moved once, and dropout drops the same."""

    class Mine(M.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.norm, self.drop = M.Linear(4, 3), M.BatchNorm1d(3), M.Dropout(0.5)

        def forward(self, x):
            return self.drop(F.tanh(self.norm(self.linear(x))))

    mine = Mine().train()
    part, state = as_torch_function(mine), {n: v.copy() for n, v in mine.state_dict().items()}
    x = torch.randn(6, 4, requires_grad=True)
    y = part(x)
    kept, after, drawn = (y != 0).float() * 2, {n: v.copy() for n, v in mine.state_dict().items()}, random.get_state()
    (slope,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    (y.sum() + slope.square().sum()).backward()
    assert (random.get_state() == drawn).all() and 0 < kept.mean() < 2
    assert all((v == after[n]).all() for n, v in mine.state_dict().items()) and any((after[n] != v).any() for n, v in state.items())
    twin = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Tanh()).train()
    of_twin = lambda name: name.replace("linear", "0").replace("norm", "1")
    shapes = {n: p.shape for n, p in twin.named_parameters()}
    twin.load_state_dict({of_twin(n): to_torch(v).reshape(shapes[of_twin(n)]) for n, v in state.items() if of_twin(n) in shapes}, strict=False)
    z = x.detach().requires_grad_()
    want = twin(z) * kept
    (slope,) = torch.autograd.grad(want.square().sum(), z, create_graph=True)
    (want.sum() + slope.square().sum()).backward()
    torch.testing.assert_close(x.grad, z.grad, rtol=1e-3, atol=1e-4)
    theirs = dict(twin.named_parameters())
    for name, p in part.named_parameters():
        torch.testing.assert_close(p.grad.reshape(shapes[of_twin(name)]), theirs[of_twin(name)].grad, rtol=1e-3, atol=1e-3)


def test_gradients_of_gradients_of_a_pytorch_function():
    """By Tengen's walk, of the second and third order, with several outputs, an input of integers, and parameters of PyTorch's."""
    layer = torch.nn.Linear(3, 2).double()

    def outside(x, i, k):
        return torch.tanh(layer(x)) * k, (x[i] ** 3).sum(), i + 1

    f = from_torch_function(outside)
    x, i, k = Tensor(np.random.default_rng(0).standard_normal((4, 3))), Tensor([0, 2]), Tensor(np.float64(1.5))

    def loss(x, k):
        a, b, _ = f(x * x, i, k)
        return (a * a).sum() + b * k

    a, b = (torch.tensor(v.numpy(), requires_grad=True) for v in (x, k))

    def twin(a, b):
        p, q, _ = outside(a * a, torch.tensor([0, 2]), b)
        return (p * p).sum() + q * b

    def penalty(x, k):
        gx, gk = autodiff.grad(loss, (0, 1))(x, k)
        return (gx * gx).sum() + gk * gk * loss(x, k)

    layer.zero_grad()
    have = autodiff.grad(penalty, (0, 1))(x, k)
    mine = layer.weight.grad.clone()
    layer.zero_grad()
    value = twin(a, b)
    ga, gb = torch.autograd.grad(value, (a, b), create_graph=True)
    ((ga * ga).sum() + gb * gb * value).backward()
    for h, w in zip(have, (a.grad, b.grad)):
        np.testing.assert_allclose(h.numpy(), w.numpy(), rtol=1e-9)
    torch.testing.assert_close(mine, layer.weight.grad)
    cube = from_torch_function(lambda x: x**4)
    d = lambda g: autodiff.grad(lambda x: g(x).sum())
    np.testing.assert_allclose(d(d(d(cube)))(Tensor([2.0, -1.0])).numpy(), [48.0, -24.0])


def test_a_tengen_module_in_a_pytorch_model():
    """PyTorch trains its parameters: as a PyTorch twin, step by step."""
    mine = M.Sequential(M.Linear(4, 3), M.BatchNorm1d(3), M.ReLU(), M.Linear(3, 2))
    part = as_torch_function(mine)
    assert [n for n, _ in part.named_parameters()] == [n for n, _ in mine.named_parameters()]
    twin = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    twin.load_state_dict(to_torch(dict(mine.state_dict())), strict=False)
    models = [torch.nn.Sequential(part, torch.nn.Tanh()), torch.nn.Sequential(twin, torch.nn.Tanh())]
    before = {n: v.copy() for n, v in mine.state_dict().items()}
    g, losses = torch.Generator().manual_seed(1), [[], []]
    for _ in range(3):
        x = torch.randn(8, 4, generator=g)
        for model, found in zip(models, losses):
            loss = (model(x) ** 2).mean()
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
                    p.grad = None
            found.append(loss.item())
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert losses[0][2] < losses[0][0]
    assert all((v == mine.state_dict()[n]).all() for n, v in before.items() if "running" not in n)  # the module keeps its own
    mine.load_state_dict(from_torch(part.state_dict()), strict=False)
    part.eval()
    assert not mine.training
    np.testing.assert_allclose(mine(from_torch(x)).numpy(), twin.eval()(x).detach().numpy(), rtol=1e-4, atol=1e-6)
    assert part(x).detach().numpy().tobytes() == mine(from_torch(x)).numpy().tobytes()


def test_a_pytorch_function_in_a_tengen_model():
    layer = torch.nn.Linear(4, 3).double()
    calls = []

    def outside(x, k, *, scale):
        calls.append(torch.is_grad_enabled())
        return torch.tanh(layer(x)) * scale, x.sum() * k, x > 0

    f = from_torch_function(outside)
    x = Tensor(np.random.default_rng(2).standard_normal((6, 4)))[::2]  # not contiguous
    y, total, positive = f(x, 3, scale=Tensor(np.float64(2)))
    assert calls == [False] and positive.dtype == "bool"
    np.testing.assert_allclose(
        y.numpy(), 2 * np.tanh(x.numpy() @ layer.weight.detach().numpy().T + layer.bias.detach().numpy())
    )
    p = Parameter(Tensor(np.ones((3, 4))))

    def loss(x, p):
        y, total, _ = f(x * p, 3, scale=Tensor(np.float64(2)))
        return (y * y).sum() + total

    gx, gp = autodiff.grad(loss, (0, 1))(x, p)
    assert calls[-1]
    a, b = (torch.tensor(v.numpy(), requires_grad=True) for v in (x, p))
    kept = layer.weight.grad.clone()  # parameters of PyTorch's get their gradients too
    layer.weight.grad = None
    (((torch.tanh(layer(a * b)) * 2) ** 2).sum() + 3 * (a * b).sum()).backward()
    np.testing.assert_allclose(gx.numpy(), a.grad.numpy())
    np.testing.assert_allclose(gp.numpy(), b.grad.numpy())
    torch.testing.assert_close(kept, layer.weight.grad)
    with pytest.raises(TraceError, match="outside is a function of PyTorch's, which a program cannot call"):
        trace(lambda x: f(x, 1, scale=1.0)[0])(x)
    with pytest.raises(ArgumentError, match="must return a tensor or a tuple of tensors here, not a NoneType"):
        from_torch_function(lambda x: None)(x)
