"""Householder's reflectors: `geqrf` beside LAPACK's, and products of reflectors beside those of their definition."""

import numpy as np
import pytest

from tengen import Tensor, linalg
from tengen.autodiff import vjp, vmap
from tengen.base.errors import GradientError, ShapeError

RNG = np.random.default_rng(5)
SHAPES = ((5, 3), (3, 5), (1, 1), (2, 35, 33), (0, 3), (3, 0), (0, 4, 3))


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


def matrix(*shape, kind="f"):
    x = RNG.uniform(-1, 1, shape)
    return x + 1j * RNG.uniform(-1, 1, shape) if kind == "c" else x


def product(x, tau):
    """The product of all reflectors, by its definition."""
    m, k = x.shape[-2], tau.shape[-1]
    q = np.broadcast_to(np.eye(m, dtype=x.dtype), (*x.shape[:-2], m, m))
    for i in range(k):
        v = np.concatenate([np.zeros_like(x[..., :i, i]), np.ones_like(x[..., :1, i]), x[..., i + 1 :, i]], -1)[..., None]
        q = q - tau[..., i, None, None] * (q @ v @ adjoint(v))
    return q


@pytest.mark.parametrize("kind", "fc")
def test_reflectors_are_those_of_lapack(kind):
    for shape in SHAPES:
        a = matrix(*shape, kind=kind)
        h, tau = (x.numpy() for x in linalg.geqrf(Tensor(a)))
        assert h.shape == a.shape and tau.shape == (*shape[:-2], min(shape[-2:]))
        if a.size:
            want, scales = np.linalg.qr(a, "raw")
            assert abs(h - np.swapaxes(want, -1, -2)).max() < 1e-13 and abs(tau - scales).max() < 1e-13
            if shape[-2] >= shape[-1]:
                q = linalg.householder_product(h, tau).numpy()
                assert abs(q - linalg.qr(Tensor(a)).Q.numpy()).max() < 1e-14


@pytest.mark.parametrize("kind", "fc")
def test_products_are_those_of_the_definition(kind):
    for shape, k in (((5, 4), 2), ((2, 4, 4), 4), ((3, 3), 0), ((35, 33), 33), ((0, 4, 3), 3)):
        x, tau = matrix(*shape, kind=kind) / 4, matrix(*shape[:-2], k, kind=kind)  # no factors that make Q unitary
        q, c = product(x, tau), matrix(*shape[:-1], 3, kind=kind)
        size = max(abs(q).max(initial=0), 1.0) * 1e-12
        assert abs(linalg.householder_product(x, tau).numpy() - q[..., : shape[-1]]).max(initial=0) < size
        for transpose, of in ((False, q), (True, adjoint(q))):
            assert abs(linalg.ormqr(x, tau, c, transpose=transpose).numpy() - of @ c).max(initial=0) < 4 * size
            right = linalg.ormqr(x, tau, adjoint(c), left=False, transpose=transpose).numpy()
            assert abs(right - adjoint(c) @ of).max(initial=0) < 4 * size


def test_products_have_gradients_and_are_mapped():
    x, tau, c = matrix(4, 3), matrix(2), matrix(4, 3)
    step = 1e-6
    for f, args in ((linalg.householder_product, (x, tau)), (lambda *a: linalg.ormqr(*a, transpose=True), (x, tau, c))):
        given = [Tensor(a) for a in args]
        y, pull = vjp(f, *given)
        weight = RNG.uniform(-1, 1, y.shape)
        for k, (a, g) in enumerate(zip(args, pull(Tensor(weight)))):
            way = RNG.uniform(-1, 1, a.shape)
            moved = [f(*(Tensor(b + s * step * way) if j == k else Tensor(b) for j, b in enumerate(args))).numpy() for s in (1, -1)]
            assert (g.numpy() * way).sum() == pytest.approx((weight * (moved[0] - moved[1])).sum() / (2 * step), abs=1e-8)
    many = matrix(3, 4, 3)
    mapped = vmap(lambda a: linalg.householder_product(*linalg.geqrf(a)))(Tensor(many)).numpy()
    assert mapped.tobytes() == linalg.householder_product(*linalg.geqrf(Tensor(many))).numpy().tobytes()


def test_halves_are_computed_in_float32():
    a = matrix(4, 3).astype("float16")
    h, tau = linalg.geqrf(Tensor(a))
    wide = linalg.householder_product(Tensor(h.numpy().astype("float32")), Tensor(tau.numpy().astype("float32")))
    assert h.dtype == "float16" and linalg.householder_product(h, tau).tolist() == wide.astype("float16").tolist()


def test_what_cannot_be():
    x = Tensor(matrix(3, 2))
    for call, words in (
        (lambda: linalg.householder_product(x, Tensor(matrix(3))), r"tau of shape \(3,\)"),
        (lambda: linalg.householder_product(Tensor(matrix(2, 3)), Tensor(matrix(2))), "2 rows and 3 columns"),
        (lambda: linalg.ormqr(x, Tensor(matrix(2)), Tensor(matrix(2, 2))), "3 rows does not fit"),
        (lambda: linalg.geqrf(Tensor([1.0])), "geqrf: takes matrices"),
    ):
        with pytest.raises(ShapeError, match=words):
            call()
    y, pull = vjp(lambda a: linalg.geqrf(a)[0], x)
    with pytest.raises(GradientError, match="no gradient"):
        pull(y)
