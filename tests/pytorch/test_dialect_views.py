"""Views of PyTorch's dialect: what is written to them is written to the tensor that they are of."""

import numpy as np
import pytest

import tengen.pytorch as torch
from tengen import trace

VIEWS = {
    "view": lambda x: x.view(-1), "t": lambda x: x.t(), "T": lambda x: x.T, "mT": lambda x: x.mT, "transpose": lambda x: x.transpose(0, 1),
    "permute": lambda x: x.view(3, 2, 2).permute(2, 0, 1), "movedim": lambda x: x.view(3, 2, 2).movedim(0, 2),
    "unsqueeze": lambda x: x.unsqueeze(1), "squeeze": lambda x: x[None].squeeze(), "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(1, (2, 2)), "chunk": lambda x: x.chunk(2, dim=1)[1], "split": lambda x: x.split([1, 2])[1],
    "unbind": lambda x: x.unbind(1)[2], "select": lambda x: x.select(1, -1), "narrow": lambda x: x.narrow(1, 1, 2),
    "diagonal": lambda x: x.diagonal(1), "a function": lambda x: torch.chunk(x, 2)[0], "another": lambda x: torch.transpose(x, 0, 1),
    "NumPy's transpose": lambda x: x.view(3, 2, 2).transpose(1, 2, 0), "views of views": lambda x: x.view(2, 6)[1].view(3, 2).t(),
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_what_is_written_to_a_view_is_written_to_its_tensor(name):
    """As NumPy's views of one memory: by index, by an operator and by a method, and after the tensor has changed."""
    of_numpy = {
        "view": lambda a: a.reshape(-1), "t": lambda a: a.T, "T": lambda a: a.T, "mT": lambda a: a.T, "transpose": lambda a: a.T,
        "permute": lambda a: a.reshape(3, 2, 2).transpose(2, 0, 1), "movedim": lambda a: np.moveaxis(a.reshape(3, 2, 2), 0, 2),
        "unsqueeze": lambda a: a[:, None], "squeeze": lambda a: a, "flatten": lambda a: a.reshape(-1),
        "unflatten": lambda a: a.reshape(3, 2, 2), "chunk": lambda a: a[:, 2:], "split": lambda a: a[1:], "unbind": lambda a: a[:, 2],
        "select": lambda a: a[:, -1], "narrow": lambda a: a[:, 1:3], "diagonal": lambda a: a.reshape(-1)[1::5], "a function": lambda a: a[:2],
        "another": lambda a: a.T, "NumPy's transpose": lambda a: a.reshape(3, 2, 2).transpose(1, 2, 0),
        "views of views": lambda a: a.reshape(2, 6)[1].reshape(3, 2).T,
    }[name]  # fmt: skip
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = torch.from_numpy(a.copy())
    for view, whole in ((VIEWS[name](x), x), (of_numpy(a), a)):
        view[0] = 100
        whole[2] = 7
        view *= 3
    VIEWS[name](x).add_(1)
    of_numpy(a)[...] += 1
    assert np.array_equal(x.numpy(), a)


def test_a_view_that_is_written_has_the_gradient_of_its_tensor_and_a_trace_its_bits():
    w = torch.ones(2, 3, requires_grad=True)
    h = w * 2
    flat = h.view(-1)
    flat[1] = 5
    h.sum().backward()
    assert w.grad.tolist() == [[2, 0, 2], [2, 2, 2]]

    def fills(x):
        x = x.clone()
        x.diagonal().fill_(9)
        x.view(-1)[3] = 4
        row = x.t()[1]
        row += 1
        return x

    wanted = [[9, 1, 0], [4, 10, 0], [0, 1, 9]]
    assert fills(torch.zeros(3, 3)).tolist() == trace(fills)(torch.zeros(3, 3)).tolist() == wanted
    with pytest.raises(RuntimeError, match=r"x.expand\(\) is not written to x, of f32"):
        torch.ones(1, 3).expand(2, 3)[0] = 1
    with pytest.raises(RuntimeError, match=r"x.tensor_split\(\) is not written to x"):
        torch.ones(4).tensor_split((3, 1))[2][0] = 1
    x = torch.zeros(2, 3)
    x.expand(2, 3)[0] = 1
    assert x.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert torch.ones(2, 3).t().reshape(-1).add_(1).shape == (6,)  # of its own, as PyTorch's copy
