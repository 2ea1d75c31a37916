"""BERT: a post-norm encoder of token sequences. Source: Devlin et al., arXiv 1810.04805."""

from __future__ import annotations

import numpy as np

import tengen.functional as F
import tengen.module as M
from tengen.models.build import network
from tengen.models.transformer import ACTIVATIONS, SelfAttention, checked_activation, initialise
from tengen.tensor import Parameter, Tensor


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
    """Token ids (N, T), and segments and a mask of the same shape -> ((N, T, width) states, (N, width) of the first token, or None).

    Args:
        context: positions at most. segments: kinds of segments. eps: of the norms. hidden: features between
            the perceptrons' layers, default 4 * width. activation: "gelu", "gelu_tanh" (MegEngine's), "relu" or "silu". pooled: whether
            there is a second result, made of the first token's state by a linear layer and tanh.
    """

    def __init__(
        self, vocabulary: int = 30522, width: int = 768, heads: int = 12, depth: int = 12, context: int = 512, segments: int = 2,
        drop_prob: float = 0.1, eps: float = 1e-12, hidden: int | None = None, activation: str = "gelu", pooled: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.activation = activation
        self.tokens, self.positions, self.segments = (M.Embedding(n, width) for n in (vocabulary, context, segments))
        self.norm, self.dropout = M.LayerNorm(width, eps), M.Dropout(drop_prob)
        self.layers = [EncoderLayer(width, heads, drop_prob, eps, hidden, activation) for _ in range(depth)]
        self.pooler = M.Linear(width, width) if pooled else None
        initialise(self)

    def forward(self, tokens: Tensor, segments: Tensor | None = None, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """`mask`: 1 where there is a token, 0 for padding; default: everywhere."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        x = self.dropout(self.norm(x))
        if mask is not None:
            n, t = mask.shape
            mask = ((1.0 - mask.astype(x.dtype)) * -1e9).reshape(n, 1, 1, t)
        for layer in self.layers:
            x = layer(x, mask)
        return x, None if self.pooler is None else F.tanh(self.pooler(x[:, 0]))


class BERTMaskedLM(M.Module):
    """Token ids (N, T), and segments and a mask as of `BERT` -> logits of the token at each place (N, T, vocabulary): a layer, a norm, and
    the embedding's own weights with a bias.

    Args: options: those of `BERT`, but for pooled.

    >>> import tengen
    >>> net = tengen.models.BERTMaskedLM(vocabulary=11, width=8, heads=2, depth=1).eval()
    >>> net(tengen.Tensor([[1, 2, 3]], dtype="int32")).shape
    (1, 3, 11)
    """

    def __init__(self, **options):
        super().__init__()
        self.bert = BERT(**options, pooled=False)
        vocabulary, width = self.bert.tokens.weight.shape
        self.dense, self.norm = M.Linear(width, width), M.LayerNorm(width, self.bert.norm.eps)
        self.bias = Parameter(np.zeros(vocabulary, np.float32))
        initialise(self)

    def forward(self, tokens: Tensor, segments: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        x = self.norm(ACTIVATIONS[self.bert.activation](self.dense(self.bert(tokens, segments, mask)[0])))
        return F.linear(x, self.bert.tokens.weight, self.bias)


class BERTClassifier(M.Module):
    """Token ids (N, T), and segments and a mask as of `BERT` -> logits (N, num_classes), of the first token.

    Args: head_drop_prob: before the last layer; default: drop_prob. options: those of `BERT`, but for pooled.

    >>> import tengen
    >>> net = tengen.models.BERTClassifier(3, vocabulary=11, width=8, heads=2, depth=1).eval()
    >>> net(tengen.Tensor([[1, 2, 3]], dtype="int32")).shape
    (1, 3)
    """

    each_token = False

    def __init__(self, num_classes: int = 2, head_drop_prob: float | None = None, **options):
        super().__init__()
        self.bert = BERT(**options, pooled=not self.each_token)
        self.dropout = M.Dropout(self.bert.dropout.drop_prob if head_drop_prob is None else head_drop_prob)
        self.classifier = M.Linear(self.bert.tokens.weight.shape[1], num_classes)
        initialise(self)

    def forward(self, tokens: Tensor, segments: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        states, first = self.bert(tokens, segments, mask)
        return self.classifier(self.dropout(states if first is None else first))


class BERTTagger(BERTClassifier):
    """As `BERTClassifier`, with logits of each token: (N, T, num_classes)."""

    each_token = True


class BERTAnswers(M.Module):
    """Token ids (N, T), and segments and a mask as of `BERT` -> logits of where an answer begins (N, T), and of where it ends (N, T).

    Args: options: those of `BERT`, but for pooled.
    """

    def __init__(self, **options):
        super().__init__()
        self.bert = BERT(**options, pooled=False)
        self.ends = M.Linear(self.bert.tokens.weight.shape[1], 2)
        initialise(self)

    def forward(self, tokens: Tensor, segments: Tensor | None = None, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        y = self.ends(self.bert(tokens, segments, mask)[0])
        return y[:, :, 0], y[:, :, 1]


@network
def bert_base(**options) -> BERT:
    """BERT-base: 12 layers of width 768, 109.5 million parameters."""
    return BERT(**options)
