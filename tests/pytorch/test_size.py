"""`x.shape` and `x.size()` while PyTorch's dialect is loaded: tuples that count elements, wherever a tuple of extents is taken."""

import copy
import io
import json
import pickle

import numpy as np
import pytest

import tengen.functional as F
import tengen.pytorch as torch
from tengen import trace
from tengen.pytorch import nn


def test_it_is_a_tuple_that_counts():
    """As PyTorch 2.13 has it: type, text, equality, hash, slices, sums, multiples, copies."""
    s = torch.zeros(2, 3, 4).shape
    assert type(s) is type(torch.zeros(1).size()) is torch.Size and isinstance(s, tuple) and not isinstance((2, 3), torch.Size)
    assert s == (2, 3, 4) == s and hash(s) == hash((2, 3, 4)) and {s: 1}[2, 3, 4] == 1 and repr(s) == f"{s}" == "torch.Size([2, 3, 4])"
    assert s.numel() == 24 and s[1:].numel() == 12 and s[:0].numel() == 1 and s[-1] == torch.zeros(2, 3, 4).size(-1) == 4
    for made, want in ((s + (1,), (2, 3, 4, 1)), ((1,) + s, (1, 2, 3, 4)), (s[:1] * 2, (2, 2)), (2 * s[1:2], (3, 3)), (s[::-1], (4, 3, 2))):
        assert type(made) is torch.Size and made == want
    for made in (pickle.loads(pickle.dumps(s)), copy.deepcopy(s), torch.Size([2, 3, 4]), torch.broadcast_shapes((2, 1, 4), (3, 1))):
        assert type(made) is torch.Size and made == s
    assert json.dumps(s) == "[2, 3, 4]" and torch.Size() == () and torch.Size([np.int64(3)]) == (3,)
    for wrong in ([2.5], ["a"], 3):
        with pytest.raises(TypeError):
            torch.Size(wrong)
    file = io.BytesIO()
    torch.save({"shape": s}, file)
    file.seek(0)
    assert torch.load(file)["shape"] == (2, 3, 4)


def test_ops_take_it_and_have_one_plan_for_it():
    x = torch.arange(24.0).reshape(2, 3, 4)
    s = x.shape
    makers = [
        torch.zeros(s), x.reshape(s), x.view(x.size()), x[:1].expand(s), torch.rand(s), torch.normal(0.0, 1.0, size=s), x.new_ones(s),
        torch.randint(0, 5, s), nn.Parameter(torch.empty(s)), nn.LayerNorm(s[1:])(x), F.broadcast_to(x[:1], s), x.as_strided(s, (12, 4, 1)),
    ]  # fmt: skip
    assert all(made.shape == s for made in makers)
    assert x[torch.Size([1, 2])].tolist() == [20, 21, 22, 23] and x.sum(torch.Size([0, 1])).tolist() == [60, 66, 72, 78]
    assert torch.tensor(s).tolist() == [2, 3, 4] and x.permute(torch.Size([2, 0, 1])).shape == (4, 2, 3)


def test_compiled_and_traced_functions_take_and_give_it():
    """Equal ones are one argument, in a program that is there."""

    def f(x, shape):
        return x.reshape(shape) + shape.numel(), x.shape, shape

    compiled = torch.compile(f)
    for made in (compiled, trace(f)):
        for _ in range(3):
            y, got, given = made(torch.zeros(2, 3, 4), torch.Size([6, 4]))
            assert type(got) is type(given) is torch.Size and got == (2, 3, 4) and given == y.shape == (6, 4) and y.max().item() == 24
        assert made is compiled or made.stats().programs == 1
        assert made(torch.zeros(2, 3, 4), torch.Size([3, 8]))[0].shape == (3, 8)


def test_tensors_of_one_layout_have_one_size():
    """It is made once, not each time that it is asked for, and does not depend on who asked first."""
    x, y, f = torch.zeros(5, 3, 7), torch.ones(5, 3, 7), F.zeros((5, 3, 7))
    assert x.shape is x.shape is y.shape is f.shape is x.size() and x.size is y.size and type(x.shape) is torch.Size
    assert torch.zeros(3, 5, 7).shape == (3, 5, 7) and x.T.shape == (7, 3, 5) and torch.zeros(5, 3, 7, dtype=torch.int32).shape == x.shape
    assert torch.zeros(()).shape == () and torch.zeros(0, 2).size() == (0, 2) and torch.zeros(0, 2).size == 0


def test_who_asks_decides():
    """Tengen's own files have plain tuples, all others PyTorch's, whatever their names are, and whether they have any."""
    x = torch.zeros(11, 3)
    for name in ("__main__", "tengen", "tengens.own", "net", "", 3, None, []):
        got = {"x": x, "__name__": name}
        exec("s, n = x.shape, x.size()", got)
        assert type(got["s"]) is type(got["n"]) is torch.Size, name
    nameless = {"x": x}
    exec("del __name__\ns = x.shape", nameless | {"__name__": "a"}), exec("s, n = x.shape, x.size()", nameless)
    assert type(nameless["s"]) is type(nameless["n"]) is torch.Size
    for name in ("tengen.functional.nn", "tengen.pytorch.functions.shaping"):
        got = {"x": x, "__name__": name}
        exec("s, n = x.shape, x.size()", got)
        assert type(got["s"]) is type(got["n"]) is tuple, name


def test_open_extents_count_too():
    f = trace(lambda x: x.reshape(x.shape.numel()) * x.shape[1:].numel(), dynamic_axes={0: "n"})
    for n in (2, 3, 5):
        assert f(torch.ones(n, 3, 4)).tolist() == [12.0] * (12 * n)


@torch.jit.script
def grown(x):
    shape = x.shape
    for i in range(3):
        x = x.view(shape) + i
        shape = x.shape
    return x


def test_a_scripts_loop_keeps_it():
    assert grown(torch.zeros(2, 3)).tolist() == [[3.0] * 3] * 2
