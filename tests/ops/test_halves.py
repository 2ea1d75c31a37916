"""Functions of several ops over float16 and bfloat16: computed in float32 and rounded once, also where squares leave float16's range."""

import numpy as np
from each import each

import tengen.pytorch as torch
from tengen import Tensor, linalg, trace
from tengen import functional as F
from tengen.autodiff import grad
from tengen.ops.define import REGISTRY

STEP = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # half a step of a number, over the number: what one rounding may be off by
X = np.random.default_rng(3).normal(size=(6, 5)) * 400  # squares of which float16 does not hold


def _normed(x, axes):
    d = x - x.mean(axes, keepdims=True)
    return d / np.sqrt((d * d).mean(axes, keepdims=True) + 1e-5)


CASES = {  # name: (the function, the same of float64 arrays, numbers)
    "layer_norm": (lambda x: F.layer_norm(x, (5,)), lambda x: _normed(x, (1,)), X),
    "group_norm": (lambda x: F.group_norm(x.reshape(3, 2, 5), 1), lambda x: _normed(x.reshape(3, 2, 5), (1, 2)), X),
    "batch_norm": (lambda x: F.batch_norm(x, training=True), lambda x: _normed(x, (0,)), X),
    "rms_norm": (lambda x: F.rms_norm(x, (5,), eps=0.0), lambda x: x / np.sqrt((x * x).mean(1, keepdims=True)), X),
    "local_response_norm": (lambda x: F.local_response_norm(x.reshape(1, 6, 5, 1), 1, 1.0, 1e-4, 0.5),
                            lambda x: (x / np.sqrt(1 + 1e-4 * x * x)).reshape(1, 6, 5, 1), X),
    "var": (lambda x: F.var(x, 1), lambda x: x.var(1), X / 4), "std": (lambda x: F.std(x), lambda x: x.std(), X),
    "norm": (lambda x: F.norm(x), np.linalg.norm, X),
    "norm of order 3": (lambda x: F.norm(x, 3.0), lambda x: (abs(x) ** 3).sum() ** (1 / 3), X),
    "vector_norm": (lambda x: linalg.vector_norm(x, ord=6), lambda x: (x**6).sum() ** (1 / 6), X),
    "normalize": (lambda x: F.normalize(x, axis=1), lambda x: x / np.sqrt((x * x).sum(1, keepdims=True)), X),
    "cosine_similarity": (lambda x: F.cosine_similarity(x, x), lambda x: np.ones(6), X),
    "sinc": (F.sinc, np.sinc, X / 100), "logit": (F.logit, lambda x: np.log(x / (1 - x)), np.linspace(0.02, 0.98, 30)),
    "softmax": (lambda x: F.softmax(x, 1), lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True), X / 200),
    "softmax of many": (lambda x: F.softmax(x, 0), lambda x: np.full(70000, 1 / 70000), np.zeros(70000)),
    "logsoftmax": (lambda x: F.logsoftmax(x, 1), lambda x: x - np.log(np.exp(x).sum(1, keepdims=True)), X / 200),
    "logsumexp": (lambda x: F.logsumexp(x, 1), lambda x: np.log(np.exp(x).sum(1)), X / 200),
    "cross entropy of scores that are far apart": (
        lambda x: F.loss.cross_entropy(x, Tensor([4] * 6), reduction="none"),
        lambda x: np.log1p(np.exp(x[:, :4] - x[:, 4:]).sum(1)), np.sort(X / 200, 1) + 20),
    "interpolate": (lambda x: F.vision.interpolate(x.reshape(1, 6, 5), 11, mode="linear"),
                    lambda x: np.stack([np.interp((np.arange(11) + 0.5) * 5 / 11 - 0.5, np.arange(5), row) for row in x])[None], X),
    "addcmul": (lambda x: F.addcmul(x[0], x[1], x[2], 3.14), lambda x: x[0] + 3.14 * x[1] * x[2], X / 20),
    "addcdiv": (lambda x: F.addcdiv(x[0], x[1], x[2], 3.14), lambda x: x[0] + 3.14 * x[1] / x[2], X),
    "addmm": (lambda x: F.addmm(x[:5], x[:5], x[1:]), lambda x: x[:5] + x[:5] @ x[1:], X / 100),
    "lerp": (lambda x: F.lerp(x[0], x[1], 0.3), lambda x: x[0] + 0.3 * (x[1] - x[0]), X),
    "xlogy": (lambda x: F.xlogy(x, abs(x)), lambda x: x * np.log(abs(x)), X / 100),
    "logaddexp2": (lambda x: F.logaddexp2(x[0], x[1]), lambda x: np.logaddexp2(x[0], x[1]), X / 100),
    "cross": (lambda x: F.cross(x[:, :3], x[:, 2:]), lambda x: np.cross(x[:, :3], x[:, 2:]), X / 100),
    "cdist": (lambda x: F.cdist(x, x), lambda x: np.sqrt(((x[:, None] - x) ** 2).sum(-1)), X),
    "trapezoid": (lambda x: F.trapezoid(x), lambda x: np.trapezoid(x), X), "tanhshrink": (F.tanhshrink, lambda x: x - np.tanh(x), X / 1000),
    "softplus with beta": (lambda x: F.softplus(x, 3.0), lambda x: np.log1p(np.exp(3 * x)) / 3, X / 1000),
    "kl_div": (lambda x: F.loss.kl_div(x, abs(x), reduction="none"), lambda x: abs(x) * (np.log(abs(x)) - x), X / 1000),
    "mse_loss": (lambda x: F.loss.square_loss(x[0], x[1], reduction="none"), lambda x: (x[0] - x[1]) ** 2, X / 100),
    "bce of scores": (lambda x: F.loss.binary_cross_entropy_with_logits(x, abs(x) / 1000, reduction="none"),
                      lambda x: np.logaddexp(0, x) - x * abs(x) / 1000, X / 200),
    "gaussian_nll_loss": (lambda x: F.loss.gaussian_nll_loss(x[0], x[1], abs(x[2]), reduction="none"),
                          lambda x: 0.5 * (np.log(abs(x[2])) + (x[0] - x[1]) ** 2 / abs(x[2])), X / 100),
    "batch_norm by statistics": (lambda x: F.batch_norm(x, x[0] / 2, abs(x[1]), x[2], x[3]),
                                 lambda x: (x - x[0] / 2) / np.sqrt(abs(x[1]) + 1e-5) * x[2] + x[3], X / 100),
    "group_norm with weights": (lambda x: F.group_norm(x.reshape(6, 5, 1), 1, True, x[0], x[1]),
                                lambda x: _normed(x.reshape(6, 5, 1), (1, 2)) * x[0][:, None] + x[1][:, None], X / 100),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x.reshape(1, 1, 6, 5), (2, 1)),
                            lambda x: x.reshape(1, 1, 2, 3, 5).mean((3, 4), keepdims=True)[..., 0], X),
    "affine_grid": (lambda x: F.vision.affine_grid(x[:2, :3].reshape(1, 2, 3), (1, 1, 2, 2)),
                    lambda x: np.stack([[(np.array([i, j, 1]) @ x[:2, :3].T) for i in (-0.5, 0.5)] for j in (-0.5, 0.5)])[None], X),
    "correlation": (lambda x: F.vision.correlation(*[x.reshape(1, 6, 1, 5)] * 2, max_displacement=0),
                    lambda x: (x * x).mean(0).reshape(1, 1, 1, 5), X / 10),
    "gradient of softmax": (lambda x: REGISTRY["softmax_grad"](x, abs(x), 1),
                            lambda x: abs(x) * (x - (abs(x) * x).sum(1, keepdims=True)), X / 400),
}  # fmt: skip


def test_quotients_are_cut_off_before_they_are_rounded():
    """A quotient just below a whole number may round to it, and is the number before it."""
    for dtype in STEP:
        x = Tensor(np.arange(1, 400) * 1.25).astype(dtype)
        y = Tensor(np.linspace(1.001, 3.2, 399)).astype(dtype)
        want = np.trunc(x.astype("float64").numpy() / y.astype("float64").numpy())
        got = (torch.div(x, y, rounding_mode="trunc"), x.clone().div_(y, rounding_mode="trunc"))
        for z in got:
            assert z.dtype == dtype and (z.astype("float64").numpy() == Tensor(want).astype(dtype).astype("float64").numpy()).all()


def test_operands_of_several_dtypes():
    """A factor beside a bfloat16 operand is not rounded to it where the result is float32."""
    x, half = Tensor(X.astype("f4")), Tensor(X).astype("bfloat16")
    want = x.numpy() + 3.14 * half.astype("float64").numpy() * x.numpy()
    np.testing.assert_allclose(F.addcmul(x, half, x, 3.14).numpy(), want, rtol=1e-6, atol=1e-6 * abs(want).max())
    rois = Tensor([[0.0, 0.0, 0.0, 3.0, 3.0]])
    assert F.vision.roi_align(half.reshape(1, 1, 6, 5), rois, 2).dtype == "bfloat16"  # regions say nothing of the picture's dtype


@each("name, dtype", [(name, dtype) for name in CASES for dtype in STEP])
def test_one_rounding(name, dtype):
    f, exact, numbers = CASES[name]
    x = Tensor(numbers).astype(dtype)
    y = f(x)
    assert y.dtype == dtype
    want = exact(x.astype("float64").numpy())
    # and what float32 makes of 30 numbers, whose sums may cancel; float16's steps below 2^-14 are 2^-24
    np.testing.assert_allclose(y.astype("float64").numpy(), want, rtol=STEP[dtype] * 1.01, atol=max(1e-5 * abs(want).max(), 2.0**-25))
    if name in ("layer_norm", "sinc"):
        assert trace(f)(x).numpy().tobytes() == y.numpy().tobytes()


def test_gradients_are_finite_and_those_of_float32():
    """Of norms whose statistics float16 does not hold."""
    weights = Tensor(np.random.default_rng(4).normal(size=(6, 5)).astype("float32"))
    for f in (lambda x: F.layer_norm(x, (5,)), lambda x: F.batch_norm(x, training=True), lambda x: F.normalize(x, axis=1) * 100):
        loss = lambda x, f=f: (f(x).astype("float32") * weights).sum()
        x = Tensor(X).astype("float16")
        half, whole = grad(loss)(x), grad(loss)(x.astype("float32"))
        assert half.dtype == "float16" and abs(whole.numpy()).max() > 1e-3
        np.testing.assert_allclose(half.astype("float32").numpy(), whole.numpy(), rtol=4e-3, atol=2e-3 * abs(whole.numpy()).max())
