"""Errors of functions and methods that check before they call ops name the user's line, once."""

import inspect
import pickle
import re

import numpy as np
import pytest

from tengen import Tensor, trace
from tengen import functional as F
from tengen.base.errors import TengenError, TraceError
from tengen.ops.calls import with_line
from tengen.ops.define import REGISTRY

X = Tensor(np.zeros((4, 5), "float32"))
WRONG = {
    "x[9]": lambda: X[9],
    "x[9] = 1": lambda: X.__setitem__(9, 1),
    "x[[9]] = 1": lambda: X.__setitem__([9], 1),
    "x[0] = too many": lambda: X.__setitem__(0, np.zeros(7)),
    "squeeze": lambda: F.squeeze(X, 0),
    "split": lambda: F.split(X, 99),
    "cond_take": lambda: F.cond_take(X, X[0]),
    "take": lambda: F.take(X, Tensor([1]), 7),
    "dot": lambda: F.dot(X, X),
    "dropout": lambda: F.dropout(X, 3.0),
    "conv2d": lambda: F.conv2d(X, X),
    "layer_norm": lambda: F.layer_norm(X, 3),
    "embedding": lambda: F.embedding(X, X, padding_idx=1),
    "a loss": lambda: F.loss.square_loss(X, X, "most"),
    "flatten": lambda: X.flatten(1, 0),
    "reshape": lambda: X.reshape(3, 3),
    "matmul": lambda: F.matmul(X, X),
    "add": lambda: X + Tensor([1.0, 2.0]),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_the_line_is_named_once(call):
    line = f"{__file__}:{call.__code__.co_firstlineno}"
    with pytest.raises((TengenError, ValueError)) as e:
        call()
    assert str(e.value).count("[at ") == 1 and str(e.value).endswith(f"[at {line}]")
    with pytest.raises((TengenError, ValueError)) as e:
        trace(lambda x: call())(X)
    assert str(e.value).count("[at ") <= 1 and str(e.value).count(line) == 1


def test_a_message_that_names_the_line_is_left_alone():
    def f(x):
        return F.dropout(x, x.sum())

    with pytest.raises(TraceError) as e:
        trace(f, symbolic=True)(X)
    assert str(e.value).count(f"{__file__}:{f.__code__.co_firstlineno + 1}") == 1 and "[at" not in str(e.value)


def test_errors_of_others_are_left_alone():
    class Odd:
        def __array__(self, dtype=None, copy=None):
            raise KeyError("mine")

    with pytest.raises(KeyError) as e:
        F.squeeze(Odd())
    assert e.value.args == ("mine",)


def test_signatures_stay():
    def f(a, b=2, *rest, c, d=4, **more):
        """Says."""
        return a, b, rest, c, d, more

    g = with_line(f)
    assert inspect.signature(g) == inspect.signature(f) and g.__doc__ == "Says." and g.__name__ == "f"
    assert g(1, c=3) == f(1, c=3) and g(1, 2, 3, 4, c=5, d=6, e=7) == f(1, 2, 3, 4, c=5, d=6, e=7)
    assert "axis" in inspect.signature(F.take).parameters and F.take is REGISTRY["take"].call


def test_functions_are_found_by_name():
    for f in (F.dot, F.conv2d, F.loss.square_loss, F.dropout):
        assert pickle.loads(pickle.dumps(f)) is f
    assert re.fullmatch(r"tengen\.functional\.\w+", F.dropout.__module__)
