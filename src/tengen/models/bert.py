"""BERT: a post-norm encoder of token sequences. Source: Devlin et al., arXiv 1810.04805."""

from __future__ import annotations

import tengen.functional as F
import tengen.module as M
from tengen.models.build import network
from tengen.models.transformer import ACTIVATIONS, SelfAttention, checked_activation, initialise
from tengen.tensor import Tensor


class EncoderLayer(M.Module):
    """Attention and a two-layer perceptron, each with a shortcut around it and a norm after that."""

    def __init__(
        self, width: int, heads: int, drop_prob: float = 0.1, eps: float = 1e-12, hidden: int | None = None, activation: str = "gelu",
    ):  # fmt: skip
        super().__init__()
        hidden, self.activation = hidden or 4 * width, checked_activation(activation)
        self.attn, self.norm1 = SelfAttention(width, heads, False, drop_prob), M.LayerNorm(width, eps)
        self.fc1, self.fc2, self.norm2 = M.Linear(width, hidden), M.Linear(hidden, width), M.LayerNorm(width, eps)
        self.dropout = M.Dropout(drop_prob)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.attn(x, mask))
        return self.norm2(x + self.dropout(self.fc2(ACTIVATIONS[self.activation](self.fc1(x)))))


class BERT(M.Module):
    """Token ids (N, T), and segments and a mask of the same shape -> ((N, T, width) states, (N, width) of the first token).

    Args:
        context: positions at most. segments: kinds of segments. eps: of the norms. hidden: features between
            the perceptrons' layers, default 4 * width. activation: "gelu", "gelu_tanh" (MegEngine's), "relu" or "silu".
    """

    def __init__(
        self, vocabulary: int = 30522, width: int = 768, heads: int = 12, depth: int = 12, context: int = 512, segments: int = 2,
        drop_prob: float = 0.1, eps: float = 1e-12, hidden: int | None = None, activation: str = "gelu",
    ):  # fmt: skip
        super().__init__()
        self.activation = activation
        self.tokens, self.positions, self.segments = (M.Embedding(n, width) for n in (vocabulary, context, segments))
        self.norm, self.dropout = M.LayerNorm(width, eps), M.Dropout(drop_prob)
        self.layers = [EncoderLayer(width, heads, drop_prob, eps, hidden, activation) for _ in range(depth)]
        self.pooler = M.Linear(width, width)
        initialise(self)

    def forward(self, tokens: Tensor, segments: Tensor | None = None, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`mask`: 1 where there is a token, 0 for padding; default: everywhere."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        x = self.dropout(self.norm(x))
        if mask is not None:
            n, t = mask.shape
            mask = ((1.0 - mask.astype(x.dtype)) * -1e9).reshape(n, 1, 1, t)
        for layer in self.layers:
            x = layer(x, mask)
        return x, F.tanh(self.pooler(x[:, 0]))


@network
def bert_base(**options) -> BERT:
    """BERT-base: 12 layers of width 768, 109.5 million parameters."""
    return BERT(**options)
