"""Llama: a pre-norm decoder with rotary positions, grouped keys and values, RMS norms and gated perceptrons. Mistral and Phi-3 (a sliding
window), Qwen2 (biases of queries, keys and values), Qwen3 (norms of queries and keys) and Gemma (gelu, norms whose weights count from 1, an
embedding that is scaled) and SmolLM3 (layers without positions) are the same network with other arguments; `decoders.py` has those whose
blocks are built otherwise.

Sources: Touvron et al., arXiv 2302.13971; Su et al., arXiv 2104.09864 (positions); Ainslie et al., arXiv 2305.13245 (groups); Shazeer,
arXiv 2002.05202 (SwiGLU); Jiang et al., arXiv 2310.06825 (window).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import tengen.functional as F
import tengen.module as M
from tengen.models.build import network
from tengen.models.generation import LanguageModel
from tengen.models.transformer import Cache, initialise
from tengen.tensor import Tensor

NormKind = type[M.RMSNorm] | type[M.LayerNorm]
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
    """(..., T, D) with each pair of features i, i + R / 2 turned by its position's angle; features from R on stay. The cosines' shape
    broadcasts to (..., T, R / 2)."""
    cos, sin = turns
    half = cos.shape[-1]
    a, b = x[..., :half], x[..., half : 2 * half]
    rest = [x[..., 2 * half :]] if x.shape[-1] > 2 * half else []
    return F.concat([a * cos - b * sin, b * cos + a * sin, *rest], -1)


class OffsetRMSNorm(M.RMSNorm):
    """An RMS norm whose factor is 1 + weight, Gemma's."""

    def __init__(self, normalized_shape: int, eps: float = 1e-6):
        super().__init__(normalized_shape, eps)
        self.weight[...] = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: (..., normalized_shape) -> the same."""
        return F.rms_norm(x, self.normalized_shape, self.weight + 1.0, self.eps)


Position = tuple[float | None, dict[str, float] | None]  # base and scaling of a layer's frequencies


def _positions(base: Any, scaling: Any, layers: int) -> list[Position]:
    """Of each layer."""
    bases = list(base) if isinstance(base, Sequence) else [base] * layers
    scalings = list(scaling) if isinstance(scaling, Sequence) else [scaling] * layers
    if len(bases) != layers or len(scalings) != layers:
        raise ValueError(f"base={base} and scaling={scaling} are not one for all, nor one for each of {layers} layers")
    return [(b, dict(s) if s else None) for b, s in zip(bases, scalings)]


def _key(base: float | None, scaling: dict[str, float] | None) -> tuple:
    return base, *sorted((scaling or {}).items())


def _distinct(positions: list[Position]) -> list[Position]:
    """Each kind of positions once, in the order of the layers, without that of layers that have none."""
    return list({_key(*p): p for p in positions if p[0] is not None}.values())


class GroupedAttention(M.Module):
    """Causal attention whose queries share keys and values in groups.

    Shapes: (N, T, width) -> (N, T, width)
    Args:
        heads, groups: of queries; of keys and values. features: of a head. bias: of queries, keys and values; out_bias: of the last map.
        window: keys that a query sees, its own among them; None for all before it. norms: of queries and of keys: over the features of a
            head, or over those of all heads; None for none. scale: of the scores; default: 1 / sqrt(features). cap: scores x become
            cap * tanh(x / cap), which keeps a matrix of scores in memory; None: they stay.
    """

    def __init__(
        self, width: int, heads: int, groups: int, features: int, bias: bool, out_bias: bool, window: int | None,
        norms: tuple[M.Module, M.Module] | None = None, scale: float | None = None, cap: float | None = None,
    ):  # fmt: skip
        super().__init__()
        if heads % groups:
            raise ValueError(f"{heads} heads cannot share {groups} keys and values evenly")
        self.heads, self.groups, self.features, self.window = heads, groups, features, window
        self.qkv = M.Linear(width, (heads + 2 * groups) * features, bias)
        self.qkv.parts = (heads * features, groups * features, groups * features)
        self.proj = M.Linear(heads * features, width, out_bias)
        self.q_norm, self.k_norm = (None, None) if norms is None else norms
        self.scale, self.cap = features**-0.5 if scale is None else scale, cap

    def forward(self, x: Tensor, turns: Turns | None, cache: Cache | None, at: Tensor | None = None, seen: Tensor | None = None):
        """x follows what the cache holds, if there is one, and the longer cache is returned too. With `at`, each row's place, x of one
        token is put into the cache, in place, and sees of its places `seen` those up to it."""
        n, t, _ = x.shape
        q, k, v = self._heads(x)
        if turns is not None:
            q, k = turned(q, turns), turned(k, turns)
        shared = self.heads // self.groups
        if cache is not None and at is not None and seen is not None:
            rows = F.arange(n).astype("int32")
            for held, new in zip(cache, (k, v)):
                held[rows, :, at] = new[:, :, 0]
            s = seen.shape[0]
            k, v = (held[:, :, :s] for held in cache)
            mask = self._seen(at.reshape(n, 1), seen).reshape(n, 1, 1, s)
            y = self._attended(q.reshape(n, self.groups, shared, self.features), k, v, mask, False)
        else:
            if cache is not None:
                k, v = F.concat([cache[0], k], 2), F.concat([cache[1], v], 2)
            cache, s = (k, v), k.shape[2]
            mask, causal = None, True
            hidden = self.window is not None and not (isinstance(s, int) and s <= self.window)
            if hidden or self.cap is not None:
                mask, causal = self._seen((F.arange(t).astype("int32") + (s - t)).reshape(t, 1), F.arange(s).astype("int32")), False
            q = q.reshape(n, self.groups, shared, t, self.features)
            k, v = (h.reshape(n, self.groups, 1, s, self.features) for h in (k, v))
            y = self._attended(q, k, v, mask, "lower_right" if causal else False)
        y = y.reshape(n, self.heads, t, self.features).transpose(0, 2, 1, 3).reshape(n, t, self.heads * self.features)
        return self.proj(y), cache

    def _heads(self, x: Tensor) -> list[Tensor]:
        n, t, _ = x.shape
        y = self.qkv(x)
        whole = self.q_norm is not None and self.q_norm.normalized_shape != (self.features,)
        if whole:
            parts = F.split(y, np.cumsum(self.qkv.parts[:-1]).tolist(), axis=2)
            y = F.concat([self.q_norm(parts[0]), self.k_norm(parts[1]), parts[2]], 2)
        y = y.reshape(n, t, self.heads + 2 * self.groups, self.features).transpose(0, 2, 1, 3)
        first, second = self.heads, self.heads + self.groups
        q, k, v = y[:, :first], y[:, first:second], y[:, second:]
        return [q, k, v] if self.q_norm is None or whole else [self.q_norm(q), self.k_norm(k), v]

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool | str) -> Tensor:
        if self.cap is None:
            return F.scaled_dot_product_attention(q, k, v, mask, causal, self.scale)
        scores = F.tanh(F.matmul(q, k.swapaxes(-1, -2)) * (self.scale / self.cap)) * self.cap
        no_q, no_k = (F.zeros((*x.shape[:-1], 1), dtype=x.dtype) for x in (q, k))  # the scores come by the mask alone
        return F.scaled_dot_product_attention(no_q, no_k, v, F.where(mask, scores, -math.inf))

    def _seen(self, at: Tensor, keys: Tensor) -> Tensor:
        """Which keys queries at these places see."""
        mask = keys <= at
        return mask if self.window is None else F.logical_and(mask, keys > at - self.window)


class LlamaBlock(M.Module):
    """Attention and a gated perceptron, each with an RMS norm before it and a shortcut around it.

    Shapes: (N, T, width) -> (N, T, width)
    Args: norm: the class of the norms. activation: of the gates, "silu" or "gelu_tanh".
    """

    activations: tuple[str, ...] = ("silu", "gelu_tanh")

    def __init__(
        self, attn: GroupedAttention, width: int, hidden: int, eps: float, bias: bool, norm: NormKind = M.RMSNorm,
        activation: str = "silu",
    ):  # fmt: skip
        super().__init__()
        self.norm1, self.attn, self.norm2 = norm(width, eps), attn, norm(width, eps)
        self.gate_up, self.down = M.Linear(width, 2 * hidden, bias), M.Linear(hidden, width, bias)
        self.hidden, self.activation = hidden, activation

    def forward(self, x: Tensor, turns: Turns | None, cache: Cache | None = None, at: Tensor | None = None, seen: Tensor | None = None):
        y, cache = self.attn(self.norm1(x), turns, cache, at, seen)
        x = x + y
        return x + self._gated(self.norm2(x)), cache

    def _gated(self, x: Tensor) -> Tensor:
        y = self.gate_up(x)
        gates = y[..., : self.hidden]
        gates = F.silu(gates) if self.activation == "silu" else F.gelu(gates, "tanh")
        return self.down(gates * y[..., self.hidden :])


class Llama(LanguageModel):
    """Token ids (N, T) -> logits of the next token (N, T, vocabulary).

    Args:
        groups: heads of keys and values; default: as many as heads. hidden: features of the perceptrons. features: of a head; default:
            width / heads. context: T at most. base, scaling: of the positions' `frequencies`, or for each layer its own; a base of None is a
            layer without positions. eps: of the norms. tied: whether the head's weights are the embedding's. qkv_bias: Qwen2's. bias: of the
            attention's last map; mlp_bias: of the perceptrons.
        window: keys that a query sees, Mistral's; or for each layer a number or None. qk_norm: whether queries and keys have norms, Qwen3's.
        Gemma's: activation: of the gates, "silu" or "gelu_tanh"; norm_offset: whether weights of norms count from 1; scale: of the embedding.
        turning: features of a head that turn with the position; default: all.
        scores, cap: `GroupedAttention`'s scale and cap; logit_cap: the same cap of the logits. None for none.
    Numerics: angles are products of a position and a frequency, in float32.

    >>> import tengen
    >>> net = tengen.models.llama(layers=1, width=16, heads=4, groups=2, hidden=24, context=8, vocabulary=11).eval()
    >>> net(tengen.Tensor([[1, 2, 3]], dtype="int32")).shape
    (1, 3, 11)
    >>> net.generate([[1, 2, 3]], 2).shape
    (1, 5)
    """

    block: type[LlamaBlock] = LlamaBlock
    norms: NormKind = M.RMSNorm
    head_bias = False

    def __init__(
        self, vocabulary: int = 32000, layers: int = 32, width: int = 4096, heads: int = 32, groups: int | None = None,
        hidden: int = 11008, features: int | None = None, context: int = 2048, base: float | None | Sequence[float | None] = 10000.0,
        scaling: Mapping[str, float] | None | Sequence[Mapping[str, float] | None] = None, eps: float = 1e-6, tied: bool = False,
        qkv_bias: bool = False, bias: bool = False, mlp_bias: bool = False, window: int | None | Sequence[int | None] = None,
        qk_norm: bool = False, activation: str = "silu",
        norm_offset: bool = False, scale: float = 1.0, turning: int | None = None, scores: float | None = None, cap: float | None = None,
        logit_cap: float | None = None,
    ):  # fmt: skip
        super().__init__()
        if features is None and width % heads:
            raise ValueError(f"{width} features cannot be shared out to {heads} heads")
        features = features or width // heads
        turning, groups = turning or features, groups or heads
        if turning % 2 or turning > features:
            raise ValueError(f"heads of {features} features, of which {turning} turn, have no pairs to turn")
        if activation not in self.block.activations:
            raise ValueError(f"activation={activation!r} of {type(self).__name__} is one of {', '.join(self.block.activations)}")
        self.vocabulary, self.context, self.scale, self.logit_cap = vocabulary, context, scale, logit_cap
        windows = list(window) if isinstance(window, Sequence) else [window] * layers
        if len(windows) != layers or any(w is not None and w < 1 for w in windows):
            raise ValueError(f"window={window} is no number above 0, nor one or None for each of {layers} layers")
        self.positions = _positions(base, scaling, layers)
        self.tokens = M.Embedding(vocabulary, width)
        self.turns = [frequencies(turning, *p).tolist() for p in _distinct(self.positions)]
        norm = OffsetRMSNorm if norm_offset else self.norms
        self.blocks = []
        for w in windows:
            of_heads = self._norms_of_heads(norm, heads, groups, features, eps) if qk_norm else None
            attn = GroupedAttention(width, heads, groups, features, qkv_bias, bias, w, of_heads, scores, cap)
            self.blocks.append(self.block(attn, width, hidden, eps, mlp_bias, norm, activation))
        self.norm, self.head = norm(width, eps), None if tied else M.Linear(width, vocabulary, bias=self.head_bias)
        initialise(self)

    @staticmethod
    def _norms_of_heads(norm: NormKind, heads: int, groups: int, features: int, eps: float) -> tuple[M.Module, M.Module]:
        """The norms of queries and of keys: over the features of each head."""
        return norm(features, eps), norm(features, eps)

    def _states(self, tokens: Tensor, caches: list[Cache] | None) -> tuple[Tensor, list[Cache]]:
        t, start = tokens.shape[1], 0 if caches is None else caches[0][0].shape[2]
        if isinstance(t, int) and isinstance(start, int) and start + t > self.context:
            raise ValueError(f"{start + t} tokens do not fit a context of {self.context}")
        turns = self._turns(F.arange(t).astype("int32") + start)
        x, longer = self._embedded(tokens), []
        for i, (block, turn) in enumerate(zip(self.blocks, turns)):
            x, cache = block(x, turn, None if caches is None else caches[i])
            longer.append(cache)
        return x, longer

    def _decoded(self, tokens: Tensor, at: Tensor, seen: Tensor, caches: list[Cache]) -> Tensor:
        x = self._embedded(tokens)
        for block, turn, cache in zip(self.blocks, self._turns(at, (at.shape[0], 1, 1, -1)), caches):
            x, _ = block(x, turn, cache, at, seen)
        return x

    def _embedded(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        return x if self.scale == 1.0 else x * self.scale

    def _turns(self, at: Tensor, shape: tuple[int, ...] = ()) -> list[Turns | None]:
        """The turns of each layer at these places, in a shape, if one is given; None for layers without positions."""
        at, dtype, found = at.astype("float32").reshape(-1, 1), self.tokens.weight.dtype, {}
        for (base, scaling), turns in zip(_distinct(self.positions), self.turns):
            angles = at * Tensor(np.array(turns, np.float32))
            factor, pair = (scaling or {}).get("attention", 1.0), (F.cos(angles), F.sin(angles))
            cos, sin = (turn.astype(dtype) for turn in (pair if factor == 1.0 else (turn * factor for turn in pair)))
            found[_key(base, scaling)] = (cos.reshape(shape), sin.reshape(shape)) if shape else (cos, sin)
        return [None if base is None else found[_key(base, scaling)] for base, scaling in self.positions]

    def _logits(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        y = self._by_table(x) if self.head is None else self.head(x)
        return y if self.logit_cap is None else F.tanh(y * (1 / self.logit_cap)) * self.logit_cap

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
            qk_norm, activation, turning ...
    Source: Touvron et al., arXiv 2302.13971

    >>> import tengen
    >>> net = tengen.models.llama(1, 16, 4, 24, 11, groups=2, context=8, window=4, qkv_bias=True).eval()
    >>> net(tengen.Tensor([[1, 2, 3]], dtype="int32")).shape
    (1, 3, 11)
    """
    return Llama(vocabulary, layers, width, heads, hidden=hidden, **options)
