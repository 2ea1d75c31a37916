"""Methods of Tensor under PyTorch's names, beside NumPy."""

import copy
import pickle
import re

import numpy as np
import pytest
import test_pytorch_calls

import tengen.functional as F
from tengen import Tensor, trace
from tengen.autodiff import GradManager
from tengen.base.errors import AxisError, DeviceError, GradientError, ShapeError
from tengen.tensor.pytorch_names import CASTS, METHODS

X = np.arange(24.0).reshape(2, 3, 4)
CALLS = {
    "view": (lambda x: x.view(6, -1), X.reshape(6, 4)),
    "view_as": (lambda x: x.view_as(F.ones((4, 6))), X.reshape(4, 6)),
    "permute": (lambda x: x.permute(2, 0, 1), X.transpose(2, 0, 1)),
    "t": (lambda x: x[0].t(), X[0].T),
    "unsqueeze": (lambda x: x.unsqueeze(-1), X[..., None]),
    "expand": (lambda x: x[:, :1].expand(5, -1, 3, -1), np.broadcast_to(X[:, :1], (5, 2, 3, 4))),
    "expand_as": (lambda x: x[:1].expand_as(x), np.broadcast_to(X[:1], X.shape)),
    "chunk": (lambda x: x.chunk(3, dim=2)[1], X[:, :, 2:4]),
    "split": (lambda x: x.split(3, dim=2)[1], X[:, :, 3:]),
    "masked_fill": (lambda x: x.masked_fill(x > 5, -1.0), np.where(X > 5, -1.0, X)),
    "clone": (lambda x: x.clone(), X),
    "contiguous": (lambda x: x.transpose().contiguous(), X.T),
    "type_as": (lambda x: x.type_as(F.ones(1, dtype="int32")), X.astype("int32")),
    "narrow": (lambda x: x.narrow(2, -3, 2), X[:, :, 1:3]),
    "select": (lambda x: x.select(-1, 2), X[..., 2]),
    "unbind": (lambda x: x.unbind(1)[2], X[:, 2]),
    "unflatten": (lambda x: x.unflatten(-1, (2, -1)), X.reshape(2, 3, 2, 2)),
    "new_full": (lambda x: x.new_full((2, 1), 3), np.full((2, 1), 3.0)),
    "new_zeros": (lambda x: x.new_zeros(2, 3), np.zeros((2, 3))),
    "new_ones": (lambda x: x.new_ones((2, 3), dtype="int8"), np.ones((2, 3), "int8")),
    "new_tensor": (lambda x: x.new_tensor([1, 2]), np.array([1.0, 2.0])),
    "eq": (lambda x: x.eq(5.0), X == 5), "ne": (lambda x: x.ne(5.0), X != 5), "lt": (lambda x: x.lt(5.0), X < 5),
    "le": (lambda x: x.le(5.0), X <= 5), "gt": (lambda x: x.gt(5.0), X > 5), "ge": (lambda x: x.ge(5.0), X >= 5),
    **{name: (lambda x, name=name: getattr(x[0], name)(x[1].t()), X[0] @ X[1].T) for name in ("mm", "bmm")},
    "mv": (lambda x: x[0].mv(x[1, 0]), X[0] @ X[1, 0]),
    "mul": (lambda x: x.mul(2), X * 2), "add": (lambda x: x.add(2), X + 2), "sub": (lambda x: x.sub(2), X - 2),
    "div": (lambda x: x.div(2), X / 2), "neg": (lambda x: x.neg(), -X), "clamp": (lambda x: x.clamp(2, 9), X.clip(2, 9)),

    "log_softmax": (lambda x: x.log_softmax(-1).round(6), np.round(X - X.max(-1, keepdims=True) - np.log(np.exp([-3, -2, -1, 0.0]).sum()), 6)),
    "movedim": (lambda x: x.movedim(0, 2), np.moveaxis(X, 0, 2)), "swapdims": (lambda x: x.swapdims(0, 1), X.swapaxes(0, 1)),
    "cumprod": (lambda x: x.cumprod(1), X.cumprod(1)), "diag": (lambda x: x[0].diag(), np.diag(X[0])),
    "diagonal": (lambda x: x.diagonal(0, 1, 2), np.diagonal(X, 0, 1, 2)),
    "index_select": (lambda x: x.index_select(2, Tensor([3, 0])), X[:, :, [3, 0]]),
    "isnan": (lambda x: (0.0 / (x - 3)).isnan(), X == 3), "isinf": (lambda x: (1.0 / (x - 3)).isinf(), X == 3),
    "isfinite": (lambda x: (1.0 / (x - 3)).isfinite(), X != 3),
    "lerp": (lambda x: x.lerp(x + 2.0, 0.5), X + 1), "reciprocal": (lambda x: (x + 1).reciprocal(), 1 / (X + 1)),
    "logsumexp": (lambda x: x[:, :, :1].logsumexp(dim=-1), X[:, :, 0]), "roll": (lambda x: x.roll(1, 2), np.roll(X, 1, 2)),
    "take": (lambda x: x.take(Tensor([3, 20])), X.reshape(-1)[[3, 20]]),
    "trunc": (lambda x: (x - 2.5).trunc(), np.trunc(X - 2.5)),
    "tril": (lambda x: x.tril(), np.tril(X)), "triu": (lambda x: x.triu(1), np.triu(X, 1)),

    **{name: (lambda x, name=name: getattr(x, name)(), X.astype(dtype)) for name, dtype in CASTS.items() if dtype != "bfloat16"},
}


@pytest.mark.parametrize("name", CALLS)
def test_beside_numpy(name):
    call, want = CALLS[name]
    for got in (call(Tensor(X)), trace(lambda x: call(x))(Tensor(X))):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_array_equal(got.numpy(), want)


def test_every_name_is_tried():
    assert CALLS.keys() - METHODS.keys() == {"masked_fill"}
    elsewhere = {name for block in (test_pytorch_calls.SMOOTH, test_pytorch_calls.OTHERS) for name in re.findall(r"\.(\w+)\(", block)}
    plain = {n for n in METHODS if not n.endswith("_") or n == "detach_"} - elsewhere
    assert plain - CALLS.keys() == {
        "backward", "bfloat16", "cuda", "pinv", "qr", "svd", "detach_", "dim", "element_size", "is_complex", "is_contiguous",
        "is_floating_point", "is_signed", "istft", "stft",
        "masked_select", "nelement", "new", "nonzero", "numel", "register_hook", "retain_grad", "unique",
        "bernoulli", "stride", "type",  # tests/pytorch/test_dialect_places.py
        "register_post_accumulate_grad_hook",  # tests/pytorch/test_autograd_graph.py
    }  # fmt: skip
    x = Tensor(X)
    assert x.bfloat16().dtype == "bfloat16" and x.dim() == 3 and x.numel() == x.nelement() == 24
    assert x.is_floating_point() and not x.is_complex() and x.is_signed() and x.element_size() == 8
    c, u = Tensor([1j]), Tensor([1], dtype="uint8")
    assert c.is_complex() and not c.is_floating_point() and c.is_signed() and c.element_size() == 8
    assert not u.is_signed() and not u.is_floating_point() and u.element_size() == 1
    assert x.is_contiguous() and x[:, 1].contiguous().is_contiguous() and not x.transpose().is_contiguous()
    assert x.masked_select(x > 21).tolist() == [22.0, 23.0] and x.masked_select(x[:1, :1] > 2).tolist() == X[X % 4 > 2].tolist()
    assert x.new(2, 3).tolist() == [[0.0] * 3] * 2 and x.new([1, 2]).tolist() == [1.0, 2.0]
    assert x.new().shape == (0,) and x.new(2).dtype is x.dtype and x.new((3, 1)).shape == (3, 1)
    assert x.nonzero().tolist() == np.argwhere(X).tolist() and Tensor([2, 1, 2]).unique().tolist() == [1, 2]


def test_round_to_decimals():
    x = np.array([0.125, -2.5, 12.345, 1e5])
    for decimals in (0, 2, -1):
        assert Tensor(x).round(decimals).tolist() == x.round(decimals).tolist()
        assert trace(lambda t, decimals=decimals: t.round(decimals=decimals))(Tensor(x)).tolist() == x.round(decimals).tolist()
    i = Tensor([14, 15, 26])
    assert i.round(1) is i and i.round(-1).tolist() == [10, 20, 30] and i.round(-1).dtype == "int64"
    assert Tensor([1.26 + 2.34j]).round(1).numpy().round(6).tolist() == np.array([1.3 + 2.3j], "complex64").round(6).tolist()


def test_gradients_flow():
    x = Tensor(X)
    gm = GradManager().attach(x)
    with gm:
        y = x.view(6, 4).unsqueeze(0).expand(2, -1, -1).clone().masked_fill(x.view(1, 6, 4) > 20, 0.0)
        gm.backward((y.chunk(2, 1)[1] * 3.0).sum())
    np.testing.assert_array_equal(x.grad.numpy(), np.where((X > 20) | (X < 12), 0.0, 6.0))


@pytest.mark.parametrize("n, chunks", [(5, 2), (5, 4), (6, 3), (3, 5), (1, 1), (0, 2)])
def test_chunk_cuts_as_pytorch(n, chunks):
    each = max(-(-n // chunks), 1)
    want = [list(range(i, min(i + each, n))) for i in range(0, max(n, 1), each)]
    assert [p.tolist() for p in F.arange(n).chunk(chunks)] == want


@pytest.mark.parametrize("n, size", [(5, 2), (5, 5), (6, 3), (3, 7), (1, 1), (0, 2), (5, [2, 3]), (5, [0, 5]), (0, [])])
def test_split_cuts_as_pytorch(n, size):
    each = size if isinstance(size, list) else [size] * (n // size) + [n % size] * (n % size > 0 or n == 0)
    ends = np.cumsum(each)
    want = [list(range(b - k, b)) for k, b in zip(each, ends)]
    assert [p.tolist() for p in F.arange(n).split(size)] == (want or [[]])


def test_errors():
    x = Tensor(X)
    for error, message, call in (
        (GradientError, r"was not computed from tensors that require gradients, .*gm.backward\(loss\)", lambda: x.sum().backward()),
        (DeviceError, "there is no device", lambda: x.cuda()), (DeviceError, "cuda:1", lambda: x.cuda(1)),
        (ShapeError, "at most two axes", lambda: x.t()), (AxisError, r"chunk\(dim=3\)", lambda: x.chunk(2, 3)),
        (ShapeError, r"narrow\(0, 1, 2\)", lambda: x.narrow(0, 1, 2)), (AxisError, "select: axis 3", lambda: x.select(3, 0)),
        (ShapeError, r"unflatten\(2, \(3, -1\)\)", lambda: x.unflatten(2, (3, -1))),
        (ShapeError, "at least 1", lambda: x.chunk(0)), (AxisError, r"split\(dim=-4\)", lambda: x.split(2, -4)),
        (ShapeError, "at least 1", lambda: x.split(0)), (ShapeError, "the parts have 4 elements, axis 1 has 3", lambda: x.split([1, 3], 1)),
        (ShapeError, "not there", lambda: x.expand(-1, 2, 3, 4)),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            call()


def test_size_is_a_number_and_a_method():
    x = F.zeros((2, 3, 4))
    assert x.size == 24 and x.size + 1 == 25 and isinstance(x.size, int) and x.size() == (2, 3, 4) and x.size(1) == x.size(dim=-2) == 3
    assert type(copy.deepcopy(x.size)) is int and type(pickle.loads(pickle.dumps(x.size))) is int and F.zeros(x.size).shape == (24,)
    assert F.zeros(()).size() == () and F.zeros((0, 3)).size == 0 and x.reshape(x.size(0), x.size // x.size(0)).shape == (2, 12)
    with pytest.raises(AxisError, match=r"size\(3\) of a tensor of shape \(2, 3, 4\)"):
        x.size(3)
    run = trace(lambda x: x.view(x.size(0), -1) * (x.size() == x.shape) + Tensor(1.0) * x.size, dynamic_axes={0: "batch"})
    for n in (2, 5):
        np.testing.assert_array_equal(run(F.ones((n, 3, 4))).numpy(), np.full((n, 12), 1.0 + n * 12, "f4"))
