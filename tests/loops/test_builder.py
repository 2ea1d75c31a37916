"""What the builder arranges: values that are made side by side."""

import numpy as np
import pytest

from tengen.base.dtype import float32
from tengen.loops.builder import Builder
from tengen.loops.interp import interpret
from tengen.loops.lang import LANES, call
from tengen.loops.text import parse_kernel, print_kernel
from tengen.loops.verify import verify


def kernel(abreast: bool, odd: bool = False):
    """y = f(x + 1), vector by vector or all of them side by side; the last one has a step more where `odd`."""
    k = Builder("k")
    x, y = k.input("x", float32), k.output("y", float32)
    k.split(1)

    def make(i: int):
        v = k.let(k.load(x, i * LANES, LANES) + 1.0)
        v = k.let(v * v) if odd and i == 2 else v
        return k.let(v * call("normal_cdf", v))

    makers = [lambda i=i: make(i) for i in range(3)]
    values = k.abreast(makers) if abreast else [m() for m in makers]
    for i, v in enumerate(values):
        k.store(y, i * LANES, v)
    return k.build()


@pytest.mark.parametrize("odd", [False, True])
def test_side_by_side_is_the_same(odd):
    x = np.linspace(-4, 4, 3 * LANES, dtype=np.float32)
    results = []
    for abreast in (False, True):
        made = kernel(abreast, odd)
        verify(made)
        assert print_kernel(parse_kernel(print_kernel(made))) == print_kernel(made)
        buffers = {"x": x, "y": np.zeros_like(x)}
        interpret(made, buffers, {})
        results.append(buffers["y"].tobytes())
    assert results[0] == results[1]


def test_each_step_of_all_comes_before_the_next_one():
    lines = [line.strip() for line in print_kernel(kernel(True)).splitlines()]
    added = [line.rpartition(", ")[2] for line in lines if "fma(" in line]  # a polynomial's coefficients
    assert len(added) > 30 and added[::3] == added[1::3] == added[2::3]
    assert sum("normal_cdf" in line for line in print_kernel(kernel(True, True)).splitlines()) == 3


def test_a_row_of_a_known_length_has_what_it_needs():
    """A loop over whole vectors where there is one, and a remainder where there is one."""
    for n, loops, remainders in ((0, 0, 0), (5, 0, 1), (16, 1, 0), (20, 1, 1)):
        k = Builder("k")
        x, y = k.input("x", float32), k.output("y", float32)
        k.split(1)
        for i, count in k.vector_loop(0, n):
            k.store(y, i, k.load(x, i, LANES, count) + 1.0, count)
        made = k.build()
        verify(made)
        text = print_kernel(made)
        assert (text.count("for "), text.count("load ")) == (loops, loops + remainders), text
        buffers = {"x": np.arange(n, dtype=np.float32), "y": np.zeros(n, np.float32)}
        interpret(made, buffers, {})
        assert (buffers["y"] == np.arange(1, n + 1)).all()
