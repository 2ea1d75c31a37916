"""Llama: a pre-norm decoder with rotary positions, grouped keys and values, RMS norms and gated perceptrons. Mistral and Phi-3 (a sliding
window), Qwen2 (biases of queries, keys and values), Qwen3 (norms of queries and keys) and Gemma (gelu, norms whose weights count from 1, an
embedding that is scaled) are the same network with other arguments.

Sources: Touvron et al., arXiv 2302.13971; Su et al., arXiv 2104.09864 (positions); Ainslie et al., arXiv 2305.13245 (groups); Shazeer,
arXiv 2002.05202 (SwiGLU); Jiang et al., arXiv 2310.06825 (window).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

import tengen.functional as F
import tengen.module as M
from tengen.models.build import network
from tengen.models.generation import LanguageModel
from tengen.models.transformer import Cache, initialise
from tengen.tensor import Tensor

Turns = tuple[Tensor, Tensor]  # cosines and sines of positions, (T or N, features of a head / 2)


def frequencies(features: int, base: float = 10000.0, scaling: Mapping[str, float] | None = None) -> np.ndarray:
    """By how many radians each pair of features turns from one position to the next.

    Args:
        scaling: None; {"factor"}, which stretches all positions (linear); or Llama 3's {"factor", "low", "high", "context"}: waves
            longer than context / low are stretched, those shorter than context / high are not, with a ramp between them; or YaRN's
            {"factor", "fast", "slow", "context", "attention"} (Peng et al., arXiv 2309.00071): a ramp over the pairs, between those that turn
            `fast` times in the context and those that turn `slow` times. "attention", the factor of cosines and sines, has no say here.
    Returns: (features / 2,), float32, rounded from float64
    """
    turn = base ** -(np.arange(0, features, 2) / features)
    if scaling is None:
        return turn.astype(np.float32)
    if "fast" in scaling:
        pair = lambda times: features * math.log(scaling["context"] / (times * 2 * math.pi)) / (2 * math.log(base))
        first, last = max(math.floor(pair(scaling["fast"])), 0), min(math.ceil(pair(scaling["slow"])), features - 1)
        stretched = np.clip((np.arange(features // 2) - first) / max(last - first, 1e-3), 0, 1)
        return ((1 - stretched) * turn + stretched * turn / scaling["factor"]).astype(np.float32)
    if "low" not in scaling:
        return (turn / scaling["factor"]).astype(np.float32)
    waves = scaling["context"] * turn / (2 * math.pi)  # in the context that was trained with
    ramp = np.clip((waves - scaling["low"]) / (scaling["high"] - scaling["low"]), 0, 1)
    return ((1 - ramp) * turn / scaling["factor"] + ramp * turn).astype(np.float32)


def turned(x: Tensor, turns: Turns) -> Tensor:
    """(..., T, D) with each pair of features i, i + D / 2 turned by its position's angle; the cosines' shape broadcasts to (..., T, D / 2)."""
    cos, sin = turns
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return F.concat([a * cos - b * sin, b * cos + a * sin], -1)


class OffsetRMSNorm(M.RMSNorm):
    """An RMS norm whose factor is 1 + weight, Gemma's."""

    def __init__(self, normalized_shape: int, eps: float = 1e-6):
        super().__init__(normalized_shape, eps)
        self.weight[...] = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: (..., normalized_shape) -> the same."""
        return F.rms_norm(x, self.normalized_shape, self.weight + 1.0, self.eps)


class GroupedAttention(M.Module):
    """Causal attention whose queries share keys and values in groups.

    Shapes: (N, T, width) -> (N, T, width)
    Args:
        heads, groups: of queries; of keys and values. features: of a head. bias: of queries, keys and values; out_bias: of the last map.
        window: keys that a query sees, its own among them; None for all before it. norm: eps of RMS norms of each query and key over its
            features; None for none.
    """

    def __init__(
        self, width: int, heads: int, groups: int, features: int, bias: bool, out_bias: bool, window: int | None, norm: float | None = None
    ):
        super().__init__()
        if heads % groups:
            raise ValueError(f"{heads} heads cannot share {groups} keys and values evenly")
        self.heads, self.groups, self.features, self.window = heads, groups, features, window
        self.qkv = M.Linear(width, (heads + 2 * groups) * features, bias)
        self.qkv.parts = (heads * features, groups * features, groups * features)
        self.proj = M.Linear(heads * features, width, out_bias)
        self.q_norm, self.k_norm = (None, None) if norm is None else (M.RMSNorm(features, norm), M.RMSNorm(features, norm))

    def forward(self, x: Tensor, turns: Turns, cache: Cache | None, at: Tensor | None = None, seen: Tensor | None = None):
        """x follows what the cache holds, if there is one, and the longer cache is returned too. With `at`, each row's place, x of one
        token is put into the cache, in place, and sees of its places `seen` those up to it."""
        n, t, _ = x.shape
        q, k, v = self._heads(x)
        q, k = turned(q, turns), turned(k, turns)
        shared = self.heads // self.groups
        if cache is not None and at is not None and seen is not None:
            rows = F.arange(n).astype("int32")
            for held, new in zip(cache, (k, v)):
                held[rows, :, at] = new[:, :, 0]
            s = seen.shape[0]
            k, v = (held[:, :, :s] for held in cache)
            mask = self._seen(at.reshape(n, 1), seen).reshape(n, 1, 1, s)
            y = F.scaled_dot_product_attention(q.reshape(n, self.groups, shared, self.features), k, v, mask)
        else:
            if cache is not None:
                k, v = F.concat([cache[0], k], 2), F.concat([cache[1], v], 2)
            cache, s = (k, v), k.shape[2]
            mask, causal = None, True
            if self.window is not None and not (isinstance(s, int) and s <= self.window):
                mask, causal = self._seen((F.arange(t).astype("int32") + (s - t)).reshape(t, 1), F.arange(s).astype("int32")), False
            q = q.reshape(n, self.groups, shared, t, self.features)
            k, v = (h.reshape(n, self.groups, 1, s, self.features) for h in (k, v))
            y = F.scaled_dot_product_attention(q, k, v, mask, "lower_right" if causal else False)
        y = y.reshape(n, self.heads, t, self.features).transpose(0, 2, 1, 3).reshape(n, t, self.heads * self.features)
        return self.proj(y), cache

    def _heads(self, x: Tensor) -> list[Tensor]:
        n, t, _ = x.shape
        y = self.qkv(x).reshape(n, t, self.heads + 2 * self.groups, self.features).transpose(0, 2, 1, 3)
        first, second = self.heads, self.heads + self.groups
        q, k, v = y[:, :first], y[:, first:second], y[:, second:]
        return [q, k, v] if self.q_norm is None or self.k_norm is None else [self.q_norm(q), self.k_norm(k), v]

    def _seen(self, at: Tensor, keys: Tensor) -> Tensor:
        """Which keys queries at these places see."""
        mask = keys <= at
        return mask if self.window is None else F.logical_and(mask, keys > at - self.window)


class LlamaBlock(M.Module):
    """Attention and a gated perceptron, each with an RMS norm before it and a shortcut around it.

    Shapes: (N, T, width) -> (N, T, width)
    Args: norm: the class of the norms. activation: of the gates, "silu" or "gelu_tanh".
    """

    def __init__(
        self, attn: GroupedAttention, width: int, hidden: int, eps: float, bias: bool, norm: type[M.RMSNorm] = M.RMSNorm,
        activation: str = "silu",
    ):  # fmt: skip
        super().__init__()
        self.norm1, self.attn, self.norm2 = norm(width, eps), attn, norm(width, eps)
        self.gate_up, self.down = M.Linear(width, 2 * hidden, bias), M.Linear(hidden, width, bias)
        self.hidden, self.activation = hidden, activation

    def forward(self, x: Tensor, turns: Turns, cache: Cache | None = None, at: Tensor | None = None, seen: Tensor | None = None):
        y, cache = self.attn(self.norm1(x), turns, cache, at, seen)
        x = x + y
        y = self.gate_up(self.norm2(x))
        gates = y[..., : self.hidden]
        gates = F.silu(gates) if self.activation == "silu" else F.gelu(gates, "tanh")
        return x + self.down(gates * y[..., self.hidden :]), cache


class Llama(LanguageModel):
    """Token ids (N, T) -> logits of the next token (N, T, vocabulary).

    Args:
        groups: heads of keys and values; default: as many as heads. hidden: features of the perceptrons. features: of a head; default:
            width / heads. context: T at most. base, scaling: of the positions' `frequencies`. eps: of the norms. tied: whether the head's
            weights are the embedding's. qkv_bias: Qwen2's. bias: of the attention's last map; mlp_bias: of the perceptrons.
        window: keys that a query sees, Mistral's; or for each layer a number or None. qk_norm: whether queries and keys have norms, Qwen3's.
        Gemma's: activation: of the gates, "silu" or "gelu_tanh"; norm_offset: whether weights of norms count from 1; scale: of the embedding.
    Numerics: angles are products of a position and a frequency, in float32.

    >>> import tengen
    >>> net = tengen.models.llama(layers=1, width=16, heads=4, groups=2, hidden=24, context=8, vocabulary=11).eval()
    >>> net(tengen.Tensor([[1, 2, 3]], dtype="int32")).shape
    (1, 3, 11)
    >>> net.generate([[1, 2, 3]], 2).shape
    (1, 5)
    """

    def __init__(
        self, vocabulary: int = 32000, layers: int = 32, width: int = 4096, heads: int = 32, groups: int | None = None,
        hidden: int = 11008, features: int | None = None, context: int = 2048, base: float = 10000.0,
        scaling: Mapping[str, float] | None = None, eps: float = 1e-6, tied: bool = False, qkv_bias: bool = False, bias: bool = False,
        mlp_bias: bool = False, window: int | None | Sequence[int | None] = None, qk_norm: bool = False, activation: str = "silu",
        norm_offset: bool = False, scale: float = 1.0,
    ):  # fmt: skip
        super().__init__()
        if features is None and width % heads:
            raise ValueError(f"{width} features cannot be shared out to {heads} heads")
        features = features or width // heads
        if features % 2:
            raise ValueError(f"heads of {features} features have no pairs to turn")
        if activation not in ("silu", "gelu_tanh"):
            raise ValueError(f"activation={activation!r} of a gated perceptron is 'silu' or 'gelu_tanh'")
        self.vocabulary, self.context, self.scale = vocabulary, context, scale
        self.base, self.scaling = base, dict(scaling) if scaling else None
        windows = list(window) if isinstance(window, Sequence) else [window] * layers
        if len(windows) != layers or any(w is not None and w < 1 for w in windows):
            raise ValueError(f"window={window} is no number above 0, nor one or None for each of {layers} layers")
        self.tokens, self.turns = M.Embedding(vocabulary, width), frequencies(features, base, scaling).tolist()
        norm, of_heads = OffsetRMSNorm if norm_offset else M.RMSNorm, eps if qk_norm else None
        attention = [GroupedAttention(width, heads, groups or heads, features, qkv_bias, bias, w, of_heads) for w in windows]
        self.blocks = [LlamaBlock(attn, width, hidden, eps, mlp_bias, norm, activation) for attn in attention]
        self.norm, self.head = norm(width, eps), None if tied else M.Linear(width, vocabulary, bias=False)
        initialise(self)

    def _states(self, tokens: Tensor, caches: list[Cache] | None) -> tuple[Tensor, list[Cache]]:
        t, start = tokens.shape[1], 0 if caches is None else caches[0][0].shape[2]
        if isinstance(t, int) and isinstance(start, int) and start + t > self.context:
            raise ValueError(f"{start + t} tokens do not fit a context of {self.context}")
        turns = self._turns(F.arange(t).astype("int32") + start)
        x, longer = self._embedded(tokens), []
        for i, block in enumerate(self.blocks):
            x, cache = block(x, turns, None if caches is None else caches[i])
            longer.append(cache)
        return x, longer

    def _decoded(self, tokens: Tensor, at: Tensor, seen: Tensor, caches: list[Cache]) -> Tensor:
        cos, sin = (turn.reshape(at.shape[0], 1, 1, -1) for turn in self._turns(at))
        x = self._embedded(tokens)
        for block, cache in zip(self.blocks, caches):
            x, _ = block(x, (cos, sin), cache, at, seen)
        return x

    def _embedded(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        return x if self.scale == 1.0 else x * self.scale

    def _turns(self, at: Tensor) -> Turns:
        angles = at.astype("float32").reshape(-1, 1) * Tensor(np.array(self.turns, np.float32))
        dtype, factor = self.tokens.weight.dtype, (self.scaling or {}).get("attention", 1.0)
        found = (F.cos(angles), F.sin(angles))
        cos, sin = found if factor == 1.0 else (turn * factor for turn in found)
        return cos.astype(dtype), sin.astype(dtype)

    def _logits(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return self._by_table(x) if self.head is None else self.head(x)

    def _empty(self, n: int) -> list[Cache]:
        attn = self.blocks[0].attn
        nothing = F.zeros((n, attn.groups, 0, attn.features), dtype=self.tokens.weight.dtype)
        return [(nothing, nothing) for _ in self.blocks]


@network
def llama(layers: int = 32, width: int = 4096, heads: int = 32, hidden: int = 11008, vocabulary: int = 32000, **options) -> Llama:
    """A Llama of any size; the defaults are those of the first with 7 billion parameters.

    Shapes: (N, T) -> (N, T, vocabulary)
    Args:
        options: those of `Llama`: groups, features, context=2048, base=10000.0, scaling, eps=1e-6, tied, qkv_bias, bias, window,
            qk_norm, activation ...
    Source: Touvron et al., arXiv 2302.13971

    >>> import tengen
    >>> net = tengen.models.llama(1, 16, 4, 24, 11, groups=2, context=8, window=4, qkv_bias=True).eval()
    >>> net(tengen.Tensor([[1, 2, 3]], dtype="int32")).shape
    (1, 3, 11)
    """
    return Llama(vocabulary, layers, width, heads, hidden=hidden, **options)
