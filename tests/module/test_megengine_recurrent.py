"""State dicts of MegEngine's recurrent networks, whose one parameter holds those of all cells."""

import numpy as np
import pytest

from tengen import Tensor
from tengen import module as M
from tengen.base.errors import ShapeError

# of MegEngine 1.13: the last output of four steps of two inputs, cos(0), cos(1), ..., with `_flatten_weights` of 0.5 sin(1.7 k)
SAVED = {
    "LSTM": (lambda: M.LSTM(2, 3, num_layers=2, bidirectional=True), (12, 36), [
        0.041357215493917465, -0.2015037089586258, -0.11465627700090408, 0.1382700502872467, 0.06635608524084091, -0.16035205125808716]),
    "RNN": (lambda: M.RNN(2, 3), (3, 7), [0.1619282066822052, 0.145626962184906, 0.3614138960838318]),
}  # fmt: skip


@pytest.mark.parametrize("name", SAVED)
def test_a_state_dict_of_megengine(name):
    make, shape, last = SAVED[name]
    flat = (0.5 * np.sin(np.arange(np.prod(shape)) * 1.7)).astype("f4").reshape(shape)
    net = M.Sequential(make())
    unread = {k: np.full_like(v, np.nan) for k, v in net.state_dict().items()}  # MegEngine's cells keep what they were made with
    assert net.load_state_dict({**unread, "0._flatten_weights": flat}) == ([], [])
    x = Tensor(np.cos(np.arange(8)).astype("f4").reshape(4, 1, 2))
    np.testing.assert_allclose(net(x)[0][-1].numpy().ravel(), last, rtol=1e-5, atol=1e-7)
    with pytest.raises(ShapeError, match="_flatten_weights has 5 elements, and the cells have"):
        make().load_state_dict({"_flatten_weights": Tensor(np.ones(5))})
