"""Python numbers as operands: a call that was made before finds its plan as one of tensors alone does, with the same bits and errors."""

from __future__ import annotations

import numpy as np
import pytest

import tengen.functional as F
from tengen import Tensor, autodiff
from tengen.tensor import eager

X = np.array([-1.5, -0.0, 0.0, 0.25, np.inf, np.nan, 2.0, 1.0], "float32")
CALLS = {
    "greater": (lambda x, n: x > n, lambda x, n: x > n),
    "equal": (lambda x, n: F.equal(x, n), lambda x, n: x == n),
    "maximum": (lambda x, n: F.maximum(x, n), lambda x, n: np.maximum(x, n)),
    "add": (lambda x, n: x + n, lambda x, n: x + x.dtype.type(n)),
    "divided": (lambda x, n: n / x, lambda x, n: x.dtype.type(n) / x),
    "where": (lambda x, n: F.where(x > 0.5, n, x), lambda x, n: np.where(x > 0.5, x.dtype.type(n), x)),
    "copysign": (lambda x, n: F.copysign(x, n), lambda x, n: np.copysign(x, x.dtype.type(n))),
}


@pytest.fixture
def slow(monkeypatch):
    """Calls that took the slow way."""
    calls, before = [], eager.run_slow
    monkeypatch.setattr(eager, "run_slow", lambda op, *args: (calls.append(op.name), before(op, *args))[1])
    return calls


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("number", [2, 0.5, True, 0.0, -0.0, 0])
def test_a_second_call_finds_its_plan(name, number, slow):
    ours, numpys = CALLS[name]
    x = Tensor(X)
    ours(x, number)
    slow.clear()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(ours(x, number).numpy(), numpys(X, number))
        assert ours(x, number).numpy().tobytes() == ours(x, Tensor(number, dtype="float32")).numpy().tobytes()
    assert not slow


def test_zeros_keep_their_signs():
    x = Tensor([1.0])
    for n in (0.0, -0.0, 0.0, -0.0):
        assert np.signbit(F.copysign(x, n).numpy()[0]) == np.signbit(n)


def test_numbers_that_change_the_dtype(slow):
    """They take the slow way each time, and promote as ever."""
    for _ in range(2):
        assert (Tensor([1, 2]) > 1.5).tolist() == [False, True]
        assert F.maximum(Tensor([1, 2]), 1.5).dtype == np.float32
        assert (Tensor([True, False]) + 1).dtype == np.int64
        with pytest.raises(OverflowError, match=r"maximum\("):
            F.maximum(Tensor(np.array([1], "int8")), 1000)
    assert slow


def test_gradients_with_numbers():
    x = Tensor(X[3:4])
    for _ in range(2):
        with autodiff.GradManager() as gm:
            gm.attach([x])
            y = F.maximum(x * 3.0, 0.5) + F.where(x > 0.0, x, 2.0)
            gm.backward(y.sum())
        assert x.grad.tolist() == [4.0]
        x.grad = None
