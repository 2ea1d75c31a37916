"""Layers that learn from their first input how many features they take."""

import pytest

from tengen import functional as F
from tengen import module as M
from tengen import optimizer, random, trace
from tengen.base.errors import ArgumentError, ShapeError, TraceError

INPUTS = {1: (2, 4, 9), 2: (2, 4, 9, 9), 3: (2, 4, 5, 5, 5)}


@pytest.mark.parametrize("name", M.lazy.__all__)
def test_each_becomes_the_plain_layer(name):
    plain = getattr(M, name.removeprefix("Lazy"))
    args = (6,) if "Linear" in name else (6, 3) if "Conv" in name else ()
    x = F.ones(INPUTS[int(name[-2]) if name[-1] == "d" else 1])
    random.seed(3)
    lazy = getattr(M, name)(*args).eval()
    assert repr(lazy).startswith(f"{name}(") and name in repr(M.Sequential(lazy))
    y = lazy(x)
    random.seed(3)
    net = plain(x.shape[-1] if "Linear" in name else 4, *args).eval()
    assert type(lazy) is plain and lazy.training is False and repr(lazy) == repr(net)
    assert y.numpy().tobytes() == net(x).numpy().tobytes() == lazy(x).numpy().tobytes()
    assert [n for n, _ in lazy.named_tensors()] == [n for n, _ in net.named_tensors()]


def test_nothing_asks_for_parameters_too_early():
    net = M.Sequential(M.LazyConv2d(3, kernel_size=3, padding=1), M.LazyBatchNorm2d(), M.ReLU(), M.Flatten(), M.LazyLinear(2, bias=False))
    net.train().eval().train()
    for ask in (lambda: optimizer.SGD(net.parameters(), lr=0.1), net.state_dict, lambda: net.load_state_dict({}), lambda: net.to("float64")):
        with pytest.raises(ArgumentError, match="LazyConv2d has no parameters before its first call; help: call the network"):
            ask()
    x = F.ones((2, 1, 4, 4))
    with pytest.raises(TraceError, match="LazyConv2d"):
        trace(lambda x: net(x), symbolic=True)(x)
    assert net(x).shape == (2, 2) and len(list(net.parameters())) == 5 and net[0].in_channels == 1
    optimizer.SGD(net.parameters(), lr=0.1)
    for bad in (lambda: M.LazyLinear(), lambda: M.LazyConv2d(2)):
        with pytest.raises(TypeError):
            bad()
    with pytest.raises(ShapeError, match="no axis 1"):
        M.LazyConv1d(2, 1)(F.ones(3))
