"""autocast(precision="bfloat16"): products of pairs of bfloat16, named in the graph; the same bits eager, traced, from a file,
through the interpreter and on other targets; gradients; the error against float64."""

from __future__ import annotations

import numpy as np
import pytest

import tengen.functional as F
import tengen.module as M
from tengen import Tensor, amp, autodiff, load_graph, trace
from tengen.base.errors import ArgumentError, DTypeError
from tengen.deploy import CannotRun, compile_model, run_artifact
from tengen.ir.text import print_graph
from tengen.ops.contract import matmul
from tengen.ops.conv import conv


def some(*shape, seed=0):
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def block():
    return amp.autocast(dtype="bfloat16", precision="bfloat16")


def bits(t):
    a = np.ascontiguousarray(t.numpy())
    return str(a.dtype), a.shape, a.tobytes()


def network():
    net = M.Sequential(M.Conv2d(3, 6, 3), M.ReLU(), M.Conv2d(6, 6, 3, groups=6), M.Flatten(), M.Linear(6 * 16, 5))
    for i, (_, p) in enumerate(sorted(net.named_parameters())):
        p._reset(some(*p.shape, seed=i) * 0.2)
    return net


def test_the_graph_names_it_and_bits_are_the_same_everywhere(tmp_path):
    net, x = network(), some(3, 3, 8, 8, seed=9)

    def predict(x):
        with block():
            return net(x)

    want = predict(x)
    assert want.dtype == "bfloat16"
    f = trace(predict, capture_as_const=True)
    assert bits(f(x)) == bits(want)
    f.dump(tmp_path / "m.tgn", arg_names=["x"], output_names=["y"])
    model = load_graph(tmp_path / "m.tgn")
    assert bits(model(x=x)) == bits(want)
    text = print_graph(model.graph)
    assert text.count('precision="bfloat16"') == 2 and 'groups=6, algorithm="direct", precision="highest"' in text
    for target in ("x86-64-v3", "aarch64"):
        built = compile_model(model, target=target, out_dir=tmp_path, name="m")
        try:
            (got,) = run_artifact(built, [x])
        except CannotRun:
            continue
        assert got.tobytes() == want.numpy().tobytes(), target


def test_gradients_have_the_precision_of_the_product():
    x, w, g = some(9, 33), some(33, 20, seed=1), some(9, 20, seed=2).astype("bfloat16")
    low = lambda t: t.astype("bfloat16")
    for dt in ("bfloat16", "float32"):
        x, w = x.astype(dt), w.astype(dt)
        with block():
            y, pull = autodiff.vjp(F.matmul, x, w)
        gx, gw = pull(g)
        assert bits(y) == bits(matmul(low(x), low(w), precision="bfloat16"))
        assert bits(gx) == bits(matmul(g, low(w), False, True, "bfloat16").astype(dt))
        assert bits(gw) == bits(matmul(low(x), g, True, False, "bfloat16").astype(dt))
    image, filters = some(2, 4, 7, 6), some(5, 4, 3, 3, seed=1)
    with block():
        y, pull = autodiff.vjp(lambda x, w: F.conv2d(x, w, padding=1), image, filters)
    step = trace(lambda x, w, g: autodiff.vjp(lambda x, w: conv(low(x), low(w), 1, 1, precision="bfloat16"), x, w)[1](g))
    g = some(*y.shape, seed=3).astype("bfloat16")
    for a, b in zip(pull(g), step(image, filters, g)):
        assert bits(a) == bits(b)


def test_the_error_is_that_of_sums_in_float32():
    """Operands are rounded to bfloat16 before, so against float64 sums of those only the sum's rounding is left."""
    x, w = some(20, 1000).astype("bfloat16"), some(1000, 30, seed=1).astype("bfloat16")
    wide = lambda t: t.numpy().astype(np.float64)
    exact, size = wide(x) @ wide(w), np.abs(wide(x)) @ np.abs(wide(w))
    for precision in ("highest", "bfloat16"):
        got = matmul(x.astype("float32"), w.astype("float32"), precision=precision).numpy()
        assert (np.abs(got - exact) / size).max() < 2.0**-22, precision
    rounded = matmul(some(20, 1000), some(1000, 30, seed=1), precision="bfloat16")  # of float32: rounded inside
    assert bits(rounded) == bits(matmul(x.astype("float32"), w.astype("float32"), precision="bfloat16"))


def test_any_batch_has_the_same_bits():
    x, w = some(37, 300), some(300, 40, seed=1)
    with block():
        whole = F.matmul(x, w).numpy()
        for rows in (slice(0, 1), slice(3, 9), slice(36, 37)):
            assert F.matmul(x[rows], w).numpy().tobytes() == whole[rows].tobytes()
            assert F.matmul(w.transpose(1, 0), x[rows].transpose(1, 0)).numpy().T.tobytes() == whole[rows].tobytes()


def test_what_has_no_choice_is_as_always():
    x, w = some(4, 5), some(5, 6, seed=1)
    for dt in ("float64", "int32"):
        a, b = x.astype(dt), w.astype(dt)
        assert bits(matmul(a, b, precision="bfloat16")) == bits(matmul(a, b))
    image, filters = some(1, 4, 9, 9), some(4, 1, 1, 3, 3, seed=1)
    assert bits(conv(image, filters, groups=4, precision="bfloat16")) == bits(conv(image, filters, groups=4))
    filters = some(20, 4, 3, 3, seed=1)
    assert bits(conv(image, filters, algorithm="winograd2", precision="bfloat16")) == bits(conv(image, filters, algorithm="winograd2"))
    with block(), amp.autocast(enabled=False):
        assert bits(F.matmul(x, w)) == bits(matmul(x, w))
    with amp.autocast(dtype="bfloat16"):
        assert bits(F.matmul(x, w)) == bits(matmul(x.astype("bfloat16"), w.astype("bfloat16")))


def test_what_cannot_be_asked_for():
    with pytest.raises(ArgumentError, match="precision='medium' must be one of highest, bfloat16"):
        amp.autocast(dtype="bfloat16", precision="medium")
    with pytest.raises(DTypeError, match="goes with dtype='bfloat16', not float16"):
        amp.autocast(precision="bfloat16")
    with pytest.raises(ArgumentError, match="precision='low'"):
        matmul(some(2, 2), some(2, 2), precision="low")
