"""Fans against their definition, counted in gradients, and initial weights against fans."""

import copy
import math
import pickle

import numpy as np
import pytest

from tengen import Parameter, Tensor, random
from tengen import functional as F
from tengen import module as M
from tengen.autodiff import GradManager
from tengen.module import init

CONVS = [(M.Conv1d, 1), (M.Conv2d, 2), (M.Conv3d, 3), (M.ConvTranspose2d, 2)]
MAKERS = [lambda make=make, n=n, g=g: (make(4 * g, 6 * g, 3, groups=g), n) for make, n in CONVS for g in (1, 2, 3)]
MAKERS += [lambda: (M.Linear(5, 7), 0)]


def counted(net: M.Module, n: int) -> tuple[int, int]:
    """Of an element in the middle: how many inputs an output depends on, and how many outputs an input reaches."""
    channels = net.in_channels if n else net.in_features
    init.ones_(net.weight)
    x = Parameter(np.ones((1, channels, *(7,) * n), np.float32))
    with GradManager().attach(x) as gm:
        y = net(x)
        middle = (0, 0, *(d // 2 for d in y.shape[2:]))
        gm.backward(F.sum(y[middle]))
    moved = np.zeros(x.shape, np.float32)
    moved[(0, 0, *(3,) * n)] = 1
    change = net(Tensor(1 + moved)).numpy() - net(Tensor(np.ones(x.shape, np.float32))).numpy()
    return np.count_nonzero(x.grad.numpy()), np.count_nonzero(change)


@pytest.mark.parametrize("make", MAKERS)
def test_fans_are_what_they_count(make):
    net, n = make()
    for m in (net, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        fans = init.calculate_fan_in_and_fan_out(m.weight)
        if isinstance(m, M.ConvTranspose2d):  # PyTorch and MegEngine read its filters as those of the convolution it transposes
            fans = fans[::-1]
        assert fans == counted(m, n)


@pytest.mark.parametrize("make, groups", [(c, g) for c in CONVS for g in (1, 8)])
def test_initial_weights_have_the_variance_of_their_fan(make, groups):
    random.seed(3)
    cls, n = make
    net = cls(64, 64, {1: 9, 2: 5, 3: 3}[n], groups=groups)
    fan_in = net.in_channels // groups * math.prod(net.kernel_size)
    w = net.weight.numpy()
    error = 5 / math.sqrt(2 * w.size)  # five standard deviations of a standard deviation's estimate
    assert abs(w.std() * math.sqrt(fan_in) - 1) < error and not net.bias.numpy().any()
    if cls is not M.ConvTranspose2d:
        init.msra_normal_(net.weight, nonlinearity="relu")
        assert abs(net.weight.numpy().std() * math.sqrt(fan_in / 2) - 1) < error


def test_five_axes_without_a_module_are_a_grouped_filter_of_two_axes():
    assert init.calculate_fan_in_and_fan_out(Parameter(np.zeros((4, 3, 2, 5, 7), np.float32))) == (70, 105)
    with pytest.raises(ValueError, match=r"shape \(3,\) has no fans"):
        init.calculate_fan_in_and_fan_out(Parameter(np.zeros(3, np.float32)))
