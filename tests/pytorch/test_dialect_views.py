"""Views of PyTorch's dialect: what is written to them is written to the tensor that they are of."""

import copy
import random
import weakref

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


PICKED = {
    "diagonal of others": (lambda x: x.diagonal(-1, 0, 2), lambda a: np.diagonal(a, -1, 0, 2)),
    "torch.diagonal": (lambda x: torch.diagonal(x, dim1=1, dim2=0), lambda a: np.diagonal(a, 0, 1, 0)),
    "linalg.diagonal": (lambda x: torch.linalg.diagonal(x), lambda a: np.diagonal(a, 0, 1, 2)),
    "unfold": (lambda x: x.unfold(2, 2, 2), lambda a: a.reshape(2, 3, 2, 2)),
    "windows apart": (lambda x: x.unfold(0, 1, 2), lambda a: a[:1, ..., None]),
    "as_strided": (lambda x: x.as_strided((2, 3), (4, 1), 2), lambda a: np.lib.stride_tricks.as_strided(a.reshape(-1)[2:], (2, 3), (16, 4))),
    "as_strided of a view": (lambda x: x.view(6, 4)[1:].as_strided((2, 2), (4, 1)), lambda a: a.reshape(6, 4)[1:3, :2]),
    "as_strided in its memory": (lambda x: x.view(4, 6).as_strided((2, 2), (4, 1), 1), lambda a: a.reshape(6, 4)[:2, 1:3]),
    "hsplit": (lambda x: torch.hsplit(x, 3)[1], lambda a: a[:, 1:2]), "dsplit": (lambda x: x.dsplit([1, 3])[1], lambda a: a[..., 1:3]),
    "split_with_sizes": (lambda x: x.split_with_sizes([1, 2], 1)[1], lambda a: a[:, 1:]), "mH": (lambda x: x.mH, lambda a: a.swapaxes(1, 2)),
    "adjoint": (lambda x: x.adjoint(), lambda a: a.swapaxes(1, 2)), "broadcast_to": (lambda x: x.broadcast_to((2, 3, 4)), lambda a: a),
    "broadcast_tensors": (lambda x: torch.broadcast_tensors(x, torch.zeros(4))[0], lambda a: a), "atleast_3d": (torch.atleast_3d, lambda a: a),
    "narrow": (lambda x: x.narrow(2, torch.tensor(1), 2), lambda a: a[..., 1:3]), "float": (lambda x: x.float(), lambda a: a),
    "detach": (lambda x: x.detach(), lambda a: a), "detached views": (lambda x: x.detach()[1].data.t(), lambda a: a[1].T),
    "strides that fit": (lambda x: x[:, 1].reshape(2, 2, 2), lambda a: np.lib.stride_tricks.as_strided(a[:, 1], (2, 2, 2), (48, 8, 4))),
    "view of a column": (lambda x: x[0].t()[1].view(-1), lambda a: a[0, :, 1]),
}  # fmt: skip


@pytest.mark.parametrize("name", PICKED)
def test_views_of_any_elements_are_written(name):
    view, of_numpy = PICKED[name]
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    x = torch.tensor(a)
    for part, whole in ((view(x), x), (of_numpy(a), a)):
        part = part if isinstance(part, torch.Tensor) else _writeable(part)
        part += 5
        whole *= 2
        part[0] = -1
    view(x).mul_(3)
    _writeable(of_numpy(a))[...] *= 3
    assert np.array_equal(x.numpy(), a)


def _writeable(a):
    if not a.flags.writeable:  # np.diagonal's
        a.flags.writeable = True
    return a


def test_parts_of_complex_numbers_are_written():
    a = (np.arange(6) + 1j).reshape(2, 3).astype(np.complex64)
    x = torch.tensor(a)
    for z, pairs in ((x, torch.view_as_real(x)), (a, a.view(np.float32).reshape(2, 3, 2))):
        z.real[0] = 7
        z.imag += 2
        pairs[1, 1, 0] = 9
        z.real = z.imag * 2
    torch.conj(x)[0, 0] = 3 + 4j
    a[0, 0] = 3 - 4j
    x.H[2, 1] = 5j
    a[1, 2] = -5j
    assert np.array_equal(x.numpy(), a)
    y = torch.zeros(3, 2)
    torch.view_as_complex(y)[1] = 1 + 2j
    assert y.tolist() == [[0, 0], [1, 2], [0, 0]]


def test_what_is_written_past_the_tape_keeps_the_gradient():
    w = torch.ones(3, requires_grad=True)
    y = w * 2
    y.data.mul_(3)
    y.detach()[1] = 7
    y[2].data.zero_()
    assert y.tolist() == [6, 7, 0]
    (y * y).sum().backward()
    assert w.grad.tolist() == [24, 28, 0]
    p = torch.nn.Parameter(torch.ones(2))
    late = p.data
    with torch.no_grad():
        p.add_(1)
    late.add_(1)  # of what is there now
    assert p.tolist() == late.tolist() == [3, 3]
    p.data, kept = torch.zeros(2), p.data
    kept += 1  # of the memory that p had
    assert p.tolist() == [0, 0]
    p.data = kept
    assert p.tolist() == [4, 4]
    copied = copy.deepcopy(p.data)
    copied.zero_()
    assert p.tolist() == [4, 4]


def test_a_detached_tensor_does_not_keep_what_it_was_computed_from():
    w = torch.ones(4, requires_grad=True)
    h = w * 2
    row = h[1:].detach()
    gone = weakref.ref(h)
    del h
    assert gone() is None
    row += 1
    assert row.tolist() == [3, 3, 3]


def test_out_takes_results_of_views_too():
    x = torch.arange(12.0).reshape(3, 4)
    assert torch.add(x[1], 1, out=x[0]).tolist() == [5, 6, 7, 8] == x[0].tolist()
    best, where = torch.zeros(3), torch.zeros(3, dtype=torch.int64)
    assert torch.max(x, 1, out=(best, where)).indices is where and best.tolist() == [8, 7, 11] and where.tolist() == [3, 3, 3]
    grown = torch.empty(0)
    torch.exp(x[0] * 0, out=grown)
    assert grown.tolist() == [1, 1, 1, 1]
    with pytest.warns(UserWarning, match=r"out f32\[3\] takes the shape of the result, f32\[4\]"):
        assert torch.exp(x[0] * 0, out=best).shape == best.shape == (4,)
    with pytest.raises(RuntimeError, match=r"of i64\[3\] would give float32, which it cannot hold"):
        torch.exp(torch.zeros(3), out=where)
    torch.clamp_(x[2], max=9)
    torch.nn.init.ones_(x[1, :2])
    assert x[1:].tolist() == [[1, 1, 6, 7], [8, 9, 9, 9]]


def test_what_is_written_to_a_tensor_of_an_array_is_written_to_the_array():
    a = np.zeros((2, 3), np.float32)
    x = torch.from_numpy(a)
    x[0] = 1
    a[1, 1] = 4
    torch.as_tensor(a).t()[2] += 2
    x.add_(1)
    assert a.tolist() == x.tolist() == [[2, 2, 4], [1, 5, 3]]
    for part in (lambda a: a[1], lambda a: a.T[::2], lambda a: np.asfortranarray(a)[1:], lambda a: a[::-1, 1:]):
        b = np.zeros((2, 3))
        whole = part(b)
        torch.from_numpy(part(b) if np.shares_memory(whole, b) else whole)[0] = 5
        assert (whole[0] == 5).all() and b.sum() == (whole.sum() if np.shares_memory(whole, b) else 0)
    held = np.ones(3)
    y, gone = torch.from_numpy(held), weakref.ref(held)
    del held
    assert gone() is None and y.add_(1).tolist() == [2, 2, 2]  # the array is not kept
    with pytest.raises(RuntimeError, match="NumPy array"):
        trace(lambda: torch.from_numpy(a).add_(1), symbolic=True)()
    traced = trace(lambda y: torch.from_numpy(a).add_(1) + y)
    assert [traced(torch.zeros(3))[0, 0].item() for _ in range(3)] == [3, 4, 5] and a[0, 0] == 5


def test_flipped_tensors_are_copies_and_others_refuse_what_they_cannot_write():
    x = torch.arange(4.0)
    assert x.flip(0).add_(1).tolist() == [4, 3, 2, 1] and x.tolist() == [0, 1, 2, 3]
    for view in (lambda: x.unfold(0, 2, 1), lambda: x.expand(2, 4), lambda: torch.meshgrid(x, x, indexing="ij")[0],
                 lambda: torch.einsum("ij->ji", x[None])):  # fmt: skip
        with pytest.raises(RuntimeError, match="is not written to x"):
            view()[0] = 1
    with pytest.raises(TypeError, match="another dtype"):
        x.view(torch.int32)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_an_optimizer_of_a_view_writes_its_tensor(optimizer):
    w, x = torch.zeros(4), torch.ones(2)
    ends, held = w[2:].requires_grad_(), x.detach().requires_grad_()
    by = optimizer([ends, held], lr=0.5)
    w += 1
    ((ends - 3) ** 2 + held * 2).sum().backward()
    by.step()
    assert w[2:].tolist() == ends.tolist() and w[:2].tolist() == [1, 1] and x.tolist() == held.tolist() != [1, 1] and ends.is_leaf


def _a_view(r, x):
    """A view by a method and its like in NumPy: the functions that take a tensor and an array to it."""
    n, shape = x.ndim, x.shape
    d, e = r.randrange(n), r.randrange(n)
    order = r.sample(range(n), n)
    half = shape[d] // 2
    key = (*[slice(None)] * d, slice(half, None))
    windows = lambda a: np.moveaxis(np.moveaxis(np.lib.stride_tricks.sliding_window_view(
        a, half, d, writeable=True), d, 0)[::half], 0, d)  # fmt: skip
    return r.choice([
        (lambda t: t.transpose(d, e), lambda a: a.swapaxes(d, e)), (lambda t: t.permute(*order), lambda a: a.transpose(order)),
        (lambda t: t[0], lambda a: a[0]) if n > 1 else (lambda t: t[None], lambda a: a[None]),
        (lambda t: t.narrow(d, half, shape[d] - half), lambda a: a[key]), (lambda t: t[..., ::2], lambda a: a[..., ::2]),
        (lambda t: t.reshape(-1), lambda a: a.reshape(-1)), (lambda t: t.detach(), lambda a: a), (lambda t: t.data, lambda a: a),
        (lambda t: t.unsqueeze(d), lambda a: np.expand_dims(a, d)), (lambda t: t.unbind(d)[-1], lambda a: np.moveaxis(a, d, 0)[-1])
        if n > 1 else (lambda t: t.float(), lambda a: a), (lambda t: t.unfold(d, half, half), windows) if half else (
        lambda t: t.view(t.shape), lambda a: a),
    ])  # fmt: skip


def test_chains_of_views_and_writes_leave_what_numpy_leaves():
    for seed in range(25):
        r = random.Random(seed)
        a = np.arange(48, dtype=np.float32).reshape(r.choice([(6, 8), (2, 3, 8), (48,), (2, 2, 3, 4)]))
        x = torch.tensor(a)
        pairs = [(x, a)]
        for _ in range(r.randrange(3, 9)):
            t, b = r.choice(pairs[-3:])
            if r.random() < 0.55:
                of_tensor, of_array = _a_view(r, b)
                t.mul_(1)  # a part takes what is there now before it is written, and a copy of it is one of that
                pairs.append((of_tensor(t), of_array(b)))
            else:
                number = r.randrange(1, 5)
                t += number
                b += number
                t.mul_(2)
                b *= 2
        assert np.array_equal(x.numpy(), a), seed


def test_a_view_that_takes_another_shape_in_place_stays_a_view():
    """The numbers are PyTorch's."""
    x = torch.arange(6.0).reshape(2, 3)
    y = x[:, 1:]
    assert y.transpose_(0, 1) is y
    y[0] = 9
    assert y.tolist() == [[9.0, 9.0], [2.0, 5.0]] and x.tolist() == [[0.0, 9.0, 2.0], [3.0, 9.0, 5.0]]
    z = x.view(-1)
    z.unsqueeze_(0)
    z[0, 0] = 5
    z.add_(1)
    z.squeeze_(0)
    z[1] = 0
    assert x.tolist() == [[6.0, 0.0, 3.0], [4.0, 10.0, 6.0]] and z.tolist() == [6.0, 0.0, 3.0, 4.0, 10.0, 6.0]
    x.detach().t_()[0, 1] = 7
    assert x.tolist() == [[6.0, 0.0, 3.0], [7.0, 10.0, 6.0]]
    a = np.arange(4, dtype="f4").reshape(2, 2)
    torch.from_numpy(a).t_()[0, 1] = 8
    assert a.tolist() == [[0.0, 1.0], [8.0, 3.0]]
    w = torch.ones(2, 3, requires_grad=True)
    v = (w * 2)[0]
    v.unsqueeze_(1)
    (v * v).sum().backward()
    assert v.shape == (3, 1) and w.grad.tolist() == [[8.0] * 3, [0.0] * 3]
