"""Functions of several ops over float16 and bfloat16: computed in float32 and rounded once, also where squares leave float16's range."""

import numpy as np
from each import each

from tengen import Tensor, linalg, trace
from tengen import functional as F
from tengen.autodiff import grad

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
}  # fmt: skip


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
