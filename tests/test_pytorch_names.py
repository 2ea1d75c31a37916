"""Methods of Tensor under PyTorch's names, beside NumPy."""

import numpy as np
import pytest

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
    assert METHODS.keys() - CALLS.keys() == {"backward", "bfloat16", "cuda", "detach_", "dim", "numel", "register_hook"}
    x = Tensor(X)
    assert x.bfloat16().dtype == "bfloat16" and x.dim() == 3 and x.numel() == 24


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
        (GradientError, r"a tensor has no backward\(\); help: gm = GradManager", lambda: x.backward()),
        (DeviceError, "there is no device", lambda: x.cuda()), (DeviceError, "cuda:1", lambda: x.cuda(1)),
        (ShapeError, "at most two axes", lambda: x.t()), (AxisError, r"chunk\(dim=3\)", lambda: x.chunk(2, 3)),
        (ShapeError, "at least 1", lambda: x.chunk(0)), (AxisError, r"split\(dim=-4\)", lambda: x.split(2, -4)),
        (ShapeError, "at least 1", lambda: x.split(0)), (ShapeError, "the parts have 4 elements, axis 1 has 3", lambda: x.split([1, 3], 1)),
        (ShapeError, "not there", lambda: x.expand(-1, 2, 3, 4)),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            call()
