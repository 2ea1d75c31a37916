"""Indices in a traced program are checked: the run that meets a bad one raises, with the op and the user's line."""

import numpy as np
import pytest

import tengen
from tengen import Tensor
from tengen import functional as F
from tengen.base.errors import IndexOutOfRange

TABLE = Tensor(np.arange(12, dtype=np.float32).reshape(4, 3))


@pytest.mark.parametrize("constants", [False, True])
def test_an_index_out_of_range(constants):
    f = tengen.trace(lambda i: TABLE[i] * 2, capture_as_const=constants)
    assert f(Tensor([3, -4])).tolist() == [[18, 20, 22], [0, 2, 4]]
    with pytest.raises(IndexOutOfRange, match="index: an index is out of range for axis 0 of extent 4.*test_checks.py"):
        f(Tensor([0, 4]))
    with pytest.raises(IndexOutOfRange):
        f(Tensor([-5, 0]))
    assert f(Tensor([1, 1])).tolist() == [[6, 8, 10], [6, 8, 10]], "the program goes on"


def test_labels_and_gathers():
    loss = tengen.trace(lambda x, y: F.loss.cross_entropy(x, y))
    x = Tensor(np.zeros((2, 10), np.float32))
    assert abs(loss(x, Tensor([0, 9])).item() - np.log(10)) < 1e-6
    with pytest.raises(IndexOutOfRange, match="cross_entropy: a label is outside the 10 classes"):
        loss(x, Tensor([0, 10]))
    g = tengen.trace(lambda t, i: F.gather(t, 1, i))
    with pytest.raises(IndexOutOfRange, match="gather"):
        g(TABLE, Tensor([[3], [0], [0], [0]]))


def test_results_keep_their_structure(tmp_path):
    f = tengen.trace(lambda i: {"row": TABLE[i], "twice": TABLE[i] * 2})
    assert sorted(f(Tensor([1]))) == ["row", "twice"]
    f.dump(tmp_path / "m.tgn", arg_names=["i"])
    row, twice = tengen.load_graph(tmp_path / "m.tgn")(Tensor([1]))
    assert twice.tolist() == [[6, 8, 10]] and row.tolist() == [[3, 4, 5]]
