"""`parametrizations.orthogonal`: weights that stay orthogonal, beside the definitions of the three maps, PyTorch's where it is installed, and
finite differences."""

import itertools

import numpy as np
import pytest
from each import each

import tengen.pytorch as torch
from tengen.pytorch import nn
from tengen.pytorch.nn.utils import parametrizations, parametrize

SHAPES = [(4, 4), (6, 3), (3, 6), (1, 4), (4, 1), (2, 5, 3)]
CASES = list(itertools.product(SHAPES, ("matrix_exp", "cayley", "householder")))


def sample(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape)


def exponential(a):
    w, u = np.linalg.eigh(1j * a)  # of a skew-symmetric matrix
    return ((u * np.exp(-1j * w)) @ u.conj().T).real


def defined(x, how):
    """What a map makes of a matrix with at least as many rows as columns."""
    n, k = x.shape
    if how == "householder":
        q = np.eye(n)
        for j in range(k):
            v = np.r_[np.zeros(j), 1.0, x[j + 1 :, j]]
            q = q @ (np.eye(n) - 2 * np.outer(v, v) / (v @ v))
        return q[:, :k] * np.trunc(np.diagonal(x))
    low = np.zeros((n, n))
    low[:, :k] = np.tril(x)
    a = low - low.T
    q = exponential(a) if how == "matrix_exp" else np.linalg.solve(np.eye(n) - a / 2, np.eye(n) + a / 2)
    return q[:, :k]


def of_each(f, x):
    """f of each tall matrix."""
    if x.ndim > 2:
        return np.stack([of_each(f, m) for m in x])
    return f(x) if x.shape[0] >= x.shape[1] else f(x.T).T


def gram(q):
    wide = q if q.shape[-2] <= q.shape[-1] else np.swapaxes(q, -1, -2)
    return wide @ np.swapaxes(wide, -1, -2) - np.eye(wide.shape[-2])


def layer_of(shape, **how):
    layer = nn.Module()
    layer.weight = nn.Parameter(torch.tensor(sample(shape, 0)))
    return parametrizations.orthogonal(layer, **how)


@each("shape, how", CASES)
def test_the_maps_and_their_gradients(shape, how):
    x, w = sample(shape, 1) * 2, sample(shape, 2)
    made = parametrizations._Orthogonal(shape, how, False)
    np.testing.assert_allclose(made(torch.tensor(x)).numpy(), of_each(lambda m: defined(m, how), x), atol=1e-12)
    free = torch.tensor(x, requires_grad=True)
    (made(free) * torch.tensor(w)).sum().backward()
    step = sample(shape, 3)
    ends = [(of_each(lambda m: defined(m, how), x + e * step) * w).sum() for e in (1e-6, -1e-6)]
    if np.array_equal(np.trunc(x + 1e-6 * step), np.trunc(x - 1e-6 * step)):
        np.testing.assert_allclose((free.grad.numpy() * step).sum(), (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-7)


@each("shape, how", CASES)
def test_weights_begin_as_the_orthogonal_factor_and_stay_orthogonal(shape, how):
    def factor(m):
        q, r = np.linalg.qr(m)
        return q * np.sign(np.diagonal(r))

    layer = layer_of(shape, orthogonal_map=how)
    np.testing.assert_allclose(layer.weight.detach().numpy(), of_each(factor, sample(shape, 0)), atol=1e-12)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        (layer.weight * torch.tensor(sample(shape, 4))).sum().backward()
        optimizer.step()
    moved = layer.weight.detach().numpy()
    np.testing.assert_allclose(gram(moved), 0 * gram(moved), atol=1e-12)
    if moved.size > min(shape):  # of one column and row there is nothing to turn
        assert np.abs(moved - of_each(factor, sample(shape, 0))).max() > 1e-2
    other = layer_of(shape, orthogonal_map=how)
    other.load_state_dict(layer.state_dict())
    assert other.weight.detach().numpy().tobytes() == moved.tobytes()
    layer.weight = torch.tensor(of_each(factor, sample(shape, 5)))
    np.testing.assert_allclose(layer.weight.detach().numpy(), of_each(factor, sample(shape, 5)), atol=1e-12)


@each("shape", SHAPES)
def test_reflections_are_found_for_a_weight(shape):
    """Without a constant factor: `householder` takes any orthogonal matrix, also one that has no reflection to do."""
    q = of_each(lambda m: np.linalg.qr(m)[0], sample(shape, 0))
    for value in (q, of_each(lambda m: np.eye(*m.shape), q), of_each(lambda m: -np.eye(*m.shape), q)):
        layer = layer_of(shape, orthogonal_map="householder", use_trivialization=False)
        layer.weight = torch.tensor(value)
        np.testing.assert_allclose(layer.weight.detach().numpy(), value, atol=1e-12)


def test_names_defaults_and_errors():
    layer = parametrizations.orthogonal(nn.Linear(5, 3))
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original", "parametrizations.weight.0.base"]
    assert layer.parametrizations.weight[0].orthogonal_map == "householder"
    assert parametrizations.orthogonal(nn.Linear(3, 3)).parametrizations.weight[0].orthogonal_map == "matrix_exp"
    want = layer(torch.ones(2, 5)).detach().numpy()
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and layer(torch.ones(2, 5)).detach().numpy().tobytes() == want.tobytes()
    for call, words in (
        (lambda: parametrizations.orthogonal(nn.Linear(3, 3), "bias"), "a matrix of floats"),
        (lambda: parametrizations.orthogonal(nn.Linear(3, 3), "wieght"), "no parameter or buffer 'wieght'"),
        (lambda: parametrizations.orthogonal(nn.Linear(3, 3), orthogonal_map="qr"), "'matrix_exp', 'cayley', 'householder'"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(NotImplementedError, match="use_trivialization=True"):
        layer_of((3, 3), orthogonal_map="cayley", use_trivialization=False)


@each("shape, how", CASES)
def test_as_pytorch(shape, how):
    theirs = pytest.importorskip("torch")
    named = theirs.nn.utils.parametrizations
    x, w = sample(shape, 1), sample(shape, 2)
    made = named._Orthogonal(theirs.tensor(x), getattr(named._OrthMaps, how), use_trivialization=False)
    free, own = theirs.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    (made(free) * theirs.tensor(w)).sum().backward()
    ours = parametrizations._Orthogonal(shape, how, False)
    (ours(own) * torch.tensor(w)).sum().backward()
    np.testing.assert_allclose(own.grad.numpy(), free.grad.numpy(), atol=1e-10)
