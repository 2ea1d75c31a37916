"""Methods that PyTorch understands otherwise mean PyTorch's in a file of its dialect, NumPy's with NumPy's words, and are refused elsewhere."""

import types

import numpy as np
import pytest

import tengen.pytorch as torch
from tengen import Tensor, trace
from tengen.base.errors import ArgumentError, AxisError, GradientError, ShapeError, UsageWarning

X = np.array([[1.0, 7.0, 7.0], [5.0, 0.0, 9.0], [2.0, 2.0, 4.0]], np.float32)
U = np.linalg.svd(X.astype(np.float64))
# a call -> what PyTorch gives for it, by NumPy
CALLS = {
    "x.max(1).values": X.max(1), "x.max(dim=1)[1]": X.argmax(1), "x.min(0, keepdim=True).indices": X.argmin(0)[None],
    "x.max(y)": np.maximum(X, X.T), "x.median()": np.float32(4.0), "x.median(1).values": np.median(X, 1), "x.median(dim=0).indices": [2, 2, 0],
    "x.std()": X.std(ddof=1), "x.var(1)": X.var(1, ddof=1), "x.var(dim=0, keepdim=True)": X.var(0, ddof=1, keepdims=True),
    "x.std(0, False)": X.std(0), "x.repeat(2, 1)": np.tile(X, (2, 1)), "x.repeat((2, 1, 2))": np.tile(X, (2, 1, 2)),
    "x.where(x > 4, -y)": np.where(X > 4, X, -X.T), "x.transpose(0, 1)": X.T, "x.transpose(dim0=1, dim1=0)": X.T,
    "x.sort(1, True).values": -np.sort(-X, 1), "x.sort(0).indices": X.argsort(0, kind="stable"),
    "x.argsort(dim=0)": X.argsort(0, kind="stable"),
    "x.topk(2, dim=1).values": -np.sort(-X, 1)[:, :2], "x.topk(1, 0, False).indices": X.argmin(0)[None],
    "x.kthvalue(2, 0).values": np.sort(X, 0)[1],
    "x.cummax(1).values": np.maximum.accumulate(X, 1), "x.mode(1).values": [7.0, 0.0, 2.0], "x.squeeze(1)": X, "x[:1].squeeze(0)": X[0],
    "x.split(2)[1]": X[2:], "x.chunk(2, dim=1)[0]": X[:, :2], "x.sum(dtype=torch.float64)": X.sum(dtype="f8"),
    "x.sum(1, dtype=torch.float64)": X.sum(1, dtype="f8"), "x.mean(dim=0, dtype=torch.float64)": X.mean(0, dtype="f8"),
    "x.prod(dtype=torch.float64)": X.prod(dtype="f8"), "x.cumsum(0, dtype=torch.float64)": X.cumsum(0, dtype="f8"),
    "x.softmax(1, dtype=torch.float64).sum()": np.float64(3.0), "x.log_softmax(dim=0, dtype=torch.float64).exp().sum(0)": np.ones(3),
    "x.svd()[1]": U[1], "(lambda u, s, v: u @ torch.diag(s) @ v.t())(*x.svd())": X, "x.std(unbiased=False)": X.std(), "x.max()": X.max(),
    "x.max(axis=1)": X.max(1), "x.repeat(2, axis=0)": X.repeat(2, 0), "x.median(axis=0)": np.median(X, 0), "x.transpose()": X.T,
    "x.var(axis=0)": X.var(0), "x.sort(descending=True, axis=0)[0]": -np.sort(-X, 0),
}  # fmt: skip


def run(call: str, **names):
    return eval(call, {"__name__": "somebodys", **names}, {"x": Tensor(X), "y": Tensor(X.T)})


@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_pytorchs(call):
    found, want = run(call, torch=torch), np.asarray(CALLS[call])
    assert found.shape == want.shape and (found.dtype == want.dtype or want.dtype == np.float64)
    assert found.dtype == "float64" or "dtype" not in call
    np.testing.assert_allclose(found.numpy(), want, rtol=2e-6, atol=2e-6)


def test_parts_are_tuples_and_extremes_have_names():
    x = torch.tensor(X)
    assert type(x.split(1)) is type(x.chunk(2)) is tuple and x.topk(1)._fields == x.sort()._fields == ("values", "indices")


@pytest.mark.parametrize(
    "call",
    ["x.max(1)", "x.min(dim=1)", "x.std()", "x.var(1)", "x.repeat(2, 1)", "x.repeat(2)", "x.median()", "x.transpose(0, 1)",
     "x.where(x > 0, x)"],
)  # fmt: skip
def test_a_file_without_the_dialect_is_told_both_spellings(call):
    with pytest.raises((ArgumentError, AxisError), match=r"PyTorch means|torch\.transpose"):
        run(call, np=np)


def test_what_makes_a_file_speak():
    assert run("x.max(1)", nn=torch.nn)[1].tolist() == run("x.max(1)", Layer=torch.nn.Linear).indices.tolist() == [1, 2, 2]
    assert eval("x.max(1)", {"__name__": "somebodys"}, {"x": Tensor(X), "torch": torch}).values.tolist() == [7.0, 9.0, 4.0]
    with pytest.raises(ArgumentError):
        run("x.max(1)", torch=types.ModuleType("torch"))
    with pytest.raises(ShapeError, match=r"repeat\(2,\) of a tensor of shape \(3, 3\)"):
        run("x.repeat(2)", torch=torch)


def test_in_a_trace_and_with_gradients():
    x = torch.tensor(X, requires_grad=True)
    x.max(1).values.sum().backward()
    assert x.grad.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1]]
    assert trace(lambda x: x.max(1).indices + x.repeat(2, 1).shape[0])(Tensor(X)).tolist() == [7, 8, 8]


# ---- views: the same statements with NumPy's arrays, whose views share memory ---------------------------------------------------

WRITES = [
    "x[0][1] = 5", "x[1][0] += 2", "x[2][:2] = x[0][1:] * 3", "x[0, 1:][1] -= 1",
    "row = x[1]; row[2] = 4; row += 10",
    "x[1][1:][0] = -1",
    "for r in x: r[0] = 9",
    "a = x[:, 1]; x[2, 2] = 50; a[0] = 8; a *= 2", "a = x[1:]; b = a[0]; b[0] = 3; a[1][1] = 6", "x[..., 0][None][0] = 2",
    "y = x[0]; y = y + 1; y[0] = 3", "x[::2][1] /= 2", "x[0][0] = x[0][0] + 1; x[:0][...] = 3",
]  # fmt: skip


@pytest.mark.parametrize("code", WRITES)
def test_what_is_written_to_a_view_is_written_to_the_tensor(code):
    want, x = X.copy(), Tensor(X)
    exec(code, {"x": want})
    exec(code, {"__name__": "somebodys", "torch": torch, "x": x})
    assert x.tolist() == want.tolist()


@pytest.mark.parametrize("code, want", [
    ("x[0].fill_(7)", np.where(np.arange(3)[:, None] == 0, 7, X)), ("x[:, 1].add_(1)[0] = 3", X + [[0, -4, 0], [0, 1, 0], [0, 1, 0]]),
    ("t = torch.tensor(1); x[t][t] = 3", X + [[0, 0, 0], [0, 3, 0], [0, 0, 0]]), ("x[1][:2].zero_()", X * [[1, 1, 1], [0, 0, 1], [1, 1, 1]]),
    ("x.data[2][1:].mul_(2)", X * [[1, 1, 1], [1, 1, 1], [1, 2, 2]]), ("x[2].copy_(x[0])", X[[0, 1, 0]]),
])  # fmt: skip
def test_methods_that_write_a_view(code, want):
    x = Tensor(X)
    exec(code, {"__name__": "somebodys", "torch": torch, "x": x})
    assert x.tolist() == want.tolist()


@pytest.mark.parametrize("code", ["x[[0, 1]][0] = 5", "x[x > 1][0] = 7"])
def test_what_is_written_to_a_copy_is_lost_with_a_warning(code):
    x = Tensor(X)
    with pytest.warns(UsageWarning, match="nothing else holds"):
        exec(code, {"__name__": "somebodys", "torch": torch, "x": x})
    assert x.tolist() == X.tolist()


def test_views_in_other_files_keep_their_own_values():
    x = Tensor(X)
    exec("row = x[0]; row[1] = 5; row += 1\nfor r in x: r[0] = 9", {"x": x})
    assert x.tolist() == X.tolist()


def test_gradients_and_traces_of_written_views():
    x = torch.tensor(X, requires_grad=True)
    y = x * 2
    y[0][1] = 0.0
    y[1].mul_(3.0)
    y.sum().backward()
    assert x.grad.tolist() == [[2, 0, 2], [6, 6, 6], [2, 2, 2]]
    with pytest.raises(GradientError):
        x[0][1] = 1.0
    with torch.no_grad():
        x[0][1] = 1.0
    assert x[0, 1].item() == 1.0 and x.requires_grad

    @trace
    def f(x):
        y = x + 0
        y[0][1] = 5
        row = y[2]
        row += 1
        return y

    want = X.copy()
    want[0, 1], want[2] = 5, X[2] + 1
    assert f(Tensor(X)).tolist() == want.tolist()
