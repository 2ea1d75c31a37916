"""What transformers are made of: self-attention with one map for queries, keys and values, and pre-norm blocks."""

from __future__ import annotations

from collections.abc import Callable

import tengen.functional as F
import tengen.module as M
from tengen.models.layers import DropPath
from tengen.tensor import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, "tanh"), "relu": F.relu, "silu": F.silu,
}  # fmt: skip
Cache = tuple[Tensor, Tensor]  # keys and values of what came before, (N, heads, T, width / heads), or with room for more


class SelfAttention(M.Module):
    """Attention of a sequence to itself.

    Shapes: (N, T, width) -> (N, T, width)
    Args:
        causal: positions see only what is before them.
    Source: Vaswani et al., arXiv 1706.03762
    """

    def __init__(self, width: int, heads: int, causal: bool = False, drop_prob: float = 0.0):
        super().__init__()
        if width % heads:
            raise ValueError(f"{width} features cannot be shared out to {heads} heads")
        self.heads, self.causal = heads, causal
        self.qkv, self.proj, self.dropout = M.Linear(width, 3 * width), M.Linear(width, width), M.Dropout(drop_prob)

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: Cache | None = None, at: Tensor | None = None):
        """With a `cache`, x follows what the cache holds, and the longer cache is returned too. With `at`, each row's place,
        x of one token is put into the cache, in place, and `mask` (N, 1, 1, S) says which of the cache's first S places it sees."""
        n, t, width = x.shape
        q, k, v = (self._heads(part) for part in F.split(self.qkv(x), 3, axis=2))
        if cache is not None and at is not None:
            assert mask is not None
            for held, new in zip(cache, (k, v)):
                held[F.arange(n).astype("int32"), :, at] = new[:, :, 0]
            k, v = (held[:, :, : mask.shape[3]] for held in cache)
        elif cache is not None:
            cache = k, v = F.concat([cache[0], k], 2), F.concat([cache[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, mask, "lower_right" if self.causal and at is None else False)
        y = self.dropout(self.proj(y.transpose(0, 2, 1, 3).reshape(n, t, width)))
        return y if cache is None else (y, cache)

    def _heads(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        return x.reshape(n, t, self.heads, width // self.heads).transpose(0, 2, 1, 3)


class Block(M.Module):
    """Attention and a two-layer perceptron, each with a norm before it and a shortcut around it.

    Shapes: (N, T, width) -> (N, T, width)
    Args:
        hidden: features between the perceptron's layers; default: ratio * width. activation: a key of `ACTIVATIONS`.
    """

    def __init__(
        self, width: int, heads: int, causal: bool = False, ratio: int = 4, drop_prob: float = 0.0, drop_path: float = 0.0,
        eps: float = 1e-5, hidden: int | None = None, activation: str = "gelu",
    ):  # fmt: skip
        super().__init__()
        hidden, self.activation = hidden or ratio * width, checked_activation(activation)
        self.norm1, self.attn = M.LayerNorm(width, eps), SelfAttention(width, heads, causal, drop_prob)
        self.norm2, self.fc1, self.fc2 = M.LayerNorm(width, eps), M.Linear(width, hidden), M.Linear(hidden, width)
        self.dropout, self.drop_path = M.Dropout(drop_prob), DropPath(drop_path)

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: Cache | None = None, at: Tensor | None = None):
        y = self.attn(self.norm1(x), mask, cache, at)
        y, cache = y if cache is not None else (y, None)
        x = x + self.drop_path(y)
        x = x + self.drop_path(self.dropout(self.fc2(ACTIVATIONS[self.activation](self.fc1(self.norm2(x))))))
        return x if cache is None else (x, cache)


def checked_activation(name: str) -> str:
    """ValueError for a name that is not in `ACTIVATIONS`."""
    if name not in ACTIVATIONS:
        raise ValueError(f"there is no activation {name!r}; help: one of {', '.join(ACTIVATIONS)}")
    return name


def initialise(module: M.Module, std: float = 0.02) -> None:
    """Normal weights and zero biases of linear layers, normal embeddings."""
    for m in module.modules():
        if isinstance(m, (M.Linear, M.Embedding)):
            M.init.normal_(m.weight, 0, std)
        if isinstance(m, M.Linear) and m.bias is not None:
            M.init.zeros_(m.bias)
