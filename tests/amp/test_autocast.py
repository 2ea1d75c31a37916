"""autocast: which dtype an op is computed in, gradients of parameters, and that a trace, a file and a compiled program keep it."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from ml_dtypes import bfloat16

import tengen.functional as F
import tengen.module as M
from tengen import Parameter, Tensor, amp, load_graph, trace
from tengen.autodiff import GradManager, no_grad
from tengen.base.errors import DTypeError
from tengen.deploy import CannotRun, compile_model, run_artifact
from tengen.ops.define import REGISTRY

LOW = ["float16", "bfloat16"]


def some(*shape, dtype="float32", seed=0):
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).astype(dtype)


def bits(t):
    a = np.ascontiguousarray(t.numpy())
    return str(a.dtype), a.shape, a.tobytes()


def small():
    net = M.Sequential(M.Conv2d(1, 4, 3), M.BatchNorm2d(4), M.ReLU(), M.Flatten(), M.Linear(4 * 36, 5))
    for i, (_, p) in enumerate(sorted(net.named_parameters())):
        p._reset(some(*p.shape, seed=i) * 0.2)
    return net


def test_contractions_are_low_and_long_sums_high():
    """Ops whose products have a precision to choose are those that autocast computes in the low one, but for gradients."""
    chosen = {name for name, op in REGISTRY.items() if "precision" in op.attrs and not name.endswith("grad")}
    assert chosen <= {name for name, op in REGISTRY.items() if op.autocast == "low"}
    assert all(REGISTRY[name].autocast == "high" for name in ("sum", "cumsum", "softmax", "layer_norm", "exp", "pow"))


@pytest.mark.parametrize("low", LOW)
def test_dtypes(low):
    x, w = some(4, 6), some(6, 3)
    with amp.autocast(low_prec_dtype=low):
        y = F.matmul(x, w)
        assert y.dtype == low
        assert F.conv2d(some(1, 2, 5, 5), some(3, 2, 3, 3)).dtype == low
        assert F.softmax(y).dtype == F.exp(y).dtype == y.sum().dtype == "float32"
        assert (y + x[:, :3]).dtype == "float32" and F.relu(y).dtype == (y + 1).dtype == low
        assert F.matmul(x.astype("float64"), w).dtype == "float64"
        assert F.matmul(Tensor([[1, 2]]), Tensor([[1], [2]])).dtype == "int64"
        with amp.autocast(enabled=False):
            assert F.matmul(x, w).dtype == "float32"
        assert F.matmul(x, w).dtype == low
    assert F.matmul(x, w).dtype == "float32"


@pytest.mark.parametrize("low", LOW)
def test_results_are_those_of_the_casts(low):
    """Nothing but casts is added: the block's bits are those of the same casts by hand."""
    x, w = some(5, 33), some(33, 7)
    with amp.autocast(dtype=low):
        got = F.softmax(F.matmul(x, w), axis=1)
    want = F.softmax(F.matmul(x.astype(low), w.astype(low)).astype("float32"), axis=1)
    assert bits(got) == bits(want)
    exact = x.astype(low).numpy().astype(np.float64) @ w.astype(low).numpy().astype(np.float64)
    unit = 2.0**-11 if low == "float16" else 2.0**-8
    found = F.matmul(x.astype(low), w.astype(low)).numpy().astype(np.float64)
    assert np.abs(found - exact).max() <= unit * np.abs(exact).max() * 1.01  # summed in float32, rounded once


def test_a_decorator_and_a_thread():
    @amp.autocast(dtype="bfloat16")
    def product(x):
        return F.matmul(x, x)

    x, seen = some(3, 3), []
    assert product(x).dtype == "bfloat16" and product.__name__ == "product"
    with amp.autocast():
        other = threading.Thread(target=lambda: seen.append(F.matmul(x, x).dtype))
        other.start()
        other.join()
    assert seen == ["float32"]


def test_settings_of_the_module():
    x = some(2, 2)
    assert amp.enabled is False and amp.low_prec_dtype == "float16" and amp.high_prec_dtype == "float32"
    try:
        amp.low_prec_dtype = "bfloat16"
        amp.enabled = True
        assert amp.enabled and F.matmul(x, x).dtype == "bfloat16"
        with amp.autocast(), pytest.raises(RuntimeError, match="inside an autocast block"):
            amp.enabled = False
    finally:
        amp.enabled = False
        amp.low_prec_dtype = "float16"
    assert F.matmul(x, x).dtype == "float32"


def test_bad_arguments():
    with pytest.raises(TypeError, match="first argument is `enabled`"):
        amp.autocast("bfloat16")
    with pytest.raises(DTypeError, match="float32 must be one of float16, bfloat16"):
        amp.autocast(low_prec_dtype="float32")
    with pytest.raises(ZeroDivisionError), amp.autocast():
        raise ZeroDivisionError
    assert not amp.enabled


@pytest.mark.parametrize("inside", [True, False])
def test_parameters_get_gradients_of_their_dtype(inside):
    w = Parameter(some(6, 3))
    gm, x = GradManager().attach([w]), some(4, 6, seed=1)
    with gm:
        with amp.autocast(dtype="bfloat16"):
            loss = (F.matmul(x, w) + F.matmul(x, w)).sum()
            if inside:
                gm.backward(loss)
        if not inside:
            gm.backward(loss)
    assert w.grad.dtype == "float32"
    once = x.numpy().astype(bfloat16).astype(np.float64).sum(0).astype(bfloat16)  # both products' gradient, rounded once
    assert (w.grad.numpy() == np.tile(2 * once.astype(np.float32)[:, None], 3)).all()


def test_a_parameter_is_cast_once_in_a_block():
    w = Parameter(some(4, 4))
    with amp.autocast():
        a, b = (F.matmul(some(2, 4), w) for _ in range(2))
        w._reset(w.detach() * 2)
        c = F.matmul(some(2, 4), w)
    assert bits(a) == bits(b)
    assert c.numpy().tobytes() == (2 * a.numpy()).tobytes()  # twice the weights, and nothing is denormal: exactly twice


def test_a_cast_inside_of_no_grad_is_not_the_one_that_a_gradient_needs():
    net, x = M.Linear(4, 4), F.ones((2, 4))
    gm = GradManager().attach(net.parameters())
    with gm, amp.autocast(dtype="bfloat16"):
        with no_grad():
            net(x)
        gm.backward(net(x).sum())
    assert net.weight.grad is not None and (net.weight.grad.numpy() == 2).all()


def test_calls_of_a_block_share_a_cast_that_outlasts_the_first_backward():
    w = Parameter(np.full((4, 4), 0.5, "f4"))
    found = []
    for together in (False, True):
        w.requires_grad_()
        with amp.autocast(dtype="bfloat16"):
            if together:
                losses = [(F.full((2, 4), k) @ w).sum() for k in (1.0, 2.0)]
                for loss in losses:
                    loss.backward()
            else:
                for k in (1.0, 2.0):
                    (F.full((2, 4), k) @ w).sum().backward()
        found.append(w.grad.numpy().copy())
        w.grad = None
    assert (found[0] == 6).all() and (found[1] == 6).all()


def test_a_trace_adds_the_gradients_of_two_blocks_as_eager_calls_do():
    """Each block casts a parameter anew, so its gradients are added in float32."""
    net, x = M.Linear(64, 1, bias=False), Tensor(np.random.default_rng(0).standard_normal((8, 64)).astype("f4"))
    gm = GradManager().attach(net.parameters())

    def step(x):
        with gm:
            parts = []
            for k in (1.0, 0.37):
                with amp.autocast(dtype="bfloat16"):
                    parts.append(net(x * k).sum())
            gm.backward(parts[0] + parts[1])
        found, net.weight.grad = net.weight.grad, None
        return found

    assert step(x).numpy().tobytes() == trace(step)(x).numpy().tobytes()


@pytest.mark.parametrize("target", ["x86-64-v3", "aarch64"])
@pytest.mark.parametrize("low", LOW)
def test_a_trace_a_file_and_a_program_keep_it(low, target, tmp_path):
    net, x = small(), some(3, 1, 8, 8, seed=9)
    net.eval()

    def predict(x):
        with amp.autocast(dtype=low):
            return F.softmax(net(x), axis=1)

    want = predict(x)
    f = trace(predict, capture_as_const=True)
    assert bits(f(x)) == bits(want)
    f.dump(tmp_path / "m.tgn", arg_names=["x"], output_names=["y"])
    assert bits(load_graph(tmp_path / "m.tgn")(x=x)) == bits(want)
    built = compile_model(load_graph(tmp_path / "m.tgn"), target=target, out_dir=tmp_path, name="m")
    try:
        (got,) = run_artifact(built, [x])
    except CannotRun as e:
        pytest.skip(str(e))
    assert got.tobytes() == want.numpy().tobytes()


def test_a_trace_knows_the_block_that_it_is_called_in():
    f, x = trace(lambda x: F.matmul(x, x)), some(3, 3)
    assert f(x).dtype == "float32"
    with amp.autocast():
        assert f(x).dtype == "float16"
    assert f(x).dtype == "float32"


def test_half_storage_trains_with_masters_in_float32():
    """Parameters stay float32, and a step too small for bfloat16 is not lost."""
    w = Parameter(np.ones((1, 1), np.float32))
    gm = GradManager().attach([w])
    with gm, amp.autocast(dtype="bfloat16"):
        gm.backward(F.matmul(Tensor([[2.0**-10]]), w).sum())
    w._reset(w.detach() - w.grad.detach())
    assert w.item() == 1 - 2.0**-10
