"""Networks and optimizers as plain functions of JAX: of a dictionary of weights by Tengen's names. Nothing of Tengen is imported."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

with contextlib.suppress(ImportError):  # who asks for a function has looked whether JAX is there
    import jax
    import jax.numpy as jnp


def linear(w: dict, name: str, x):
    """A linear map by its name."""
    y = x @ w[f"{name}.weight"].T
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def mlp(w: dict, x):
    """Linear maps with ReLU between them."""
    *inner, last = sorted({k.rsplit(".", 1)[0] for k in w})
    for name in inner:
        x = jnp.maximum(linear(w, name, x), 0)
    return linear(w, last, x)


def lenet(w: dict, x):
    """Two convolutions with pooling, three linear maps."""
    for name in ("conv0", "conv1"):
        x = jax.lax.conv_general_dilated(x, w[f"{name}.weight"], (1, 1), "VALID") + w[f"{name}.bias"].reshape(1, -1, 1, 1)
        x = jax.lax.reduce_window(jnp.maximum(x, 0), -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = x.reshape(len(x), -1)
    for name in ("fc0", "fc1"):
        x = jnp.maximum(linear(w, name, x), 0)
    return linear(w, "classifier", x)


def lstm(w: dict, tokens):
    """An LSTM over embedded tokens, its last state classified."""
    x = w["embedding.weight"][tokens].swapaxes(0, 1) @ w["lstm.cells.0.0.weight_ih"].T
    x = x + (w["lstm.cells.0.0.bias_ih"] + w["lstm.cells.0.0.bias_hh"])
    recurrent = w["lstm.cells.0.0.weight_hh"].T

    def cell(state, projected):
        h, c = state
        i, f, g, o = jnp.split(projected + h @ recurrent, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    zero = jnp.zeros((x.shape[1], len(recurrent)), x.dtype)
    (h, _), _ = jax.lax.scan(cell, (zero, zero), x)
    return linear(w, "head", h)


def norm(w: dict, name: str, x, eps: float):
    """Layer normalization over the last axis."""
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + eps) * w[f"{name}.weight"] + w[f"{name}.bias"]


def blocks(w: dict, x, heads: int, causal: bool, eps: float):
    """Pre-norm transformer blocks."""
    for b in range(sum(k.endswith("attn.qkv.weight") for k in w)):
        at = f"blocks.{b}."
        n, t, width = x.shape
        q, k, v = jnp.split(linear(w, at + "attn.qkv", norm(w, at + "norm1", x, eps)), 3, axis=2)
        q, k, v = (a.reshape(n, t, heads, width // heads) for a in (q, k, v))
        y = jax.nn.dot_product_attention(q, k, v, is_causal=causal).reshape(n, t, width)
        x = x + linear(w, at + "attn.proj", y)
        y = linear(w, at + "fc1", norm(w, at + "norm2", x, eps))
        x = x + linear(w, at + "fc2", jax.nn.gelu(y, approximate=False))
    return x


def gpt(w: dict, tokens):
    """Embeddings, causal blocks, a head."""
    x = w["tokens.weight"][tokens] + w["positions.weight"][: tokens.shape[1]]
    return linear(w, "head", norm(w, "norm", blocks(w, x, 6, True, 1e-5), 1e-5))


FORWARD: dict[str, Callable] = {"MLP": mlp, "LeNet": lenet, "LSTM": lstm, "GPT": gpt}


def sgd(w, g, state, lr: float, momentum: float):
    """SGD with momentum; the state is the velocities."""
    v = {k: momentum * state[k] + g[k] for k in w}
    return {k: w[k] - lr * v[k] for k in w}, v


def adamw(w, g, state, lr: float, weight_decay: float):
    """AdamW; the state is (step, first moments, second moments)."""
    t, m, v = state
    t = t + 1
    m = {k: 0.9 * m[k] + 0.1 * g[k] for k in w}
    v = {k: 0.999 * v[k] + 0.001 * g[k] ** 2 for k in w}

    def new(k):
        update = m[k] / (1 - 0.9**t) / (jnp.sqrt(v[k] / (1 - 0.999**t)) + 1e-8)
        return w[k] * (1 - lr * weight_decay) - lr * update

    return {k: new(k) for k in w}, (t, m, v)
