"""GPT: a pre-norm decoder with learned positions, and text from it with a cache of keys and values.

Source: Radford et al., 2019 (GPT-2).
"""

from __future__ import annotations

import tengen.functional as F
import tengen.module as M
from tengen.models.build import network
from tengen.models.generation import LanguageModel
from tengen.models.transformer import Block, Cache, initialise
from tengen.tensor import Tensor


class GPT(LanguageModel):
    """Token ids (N, T) -> logits of the next token (N, T, vocabulary).

    Args:
        context: T at most. tied: whether the head's weights are the embedding's. eps: of the norms. hidden: features between the
            perceptrons' layers, default 4 * width. activation: "gelu", "gelu_tanh" (the published weights'), "relu" or "silu".

    >>> import tengen
    >>> net = tengen.models.gpt(layers=1, width=16, heads=2, context=8, vocabulary=11).eval()
    >>> net(tengen.Tensor([[1, 2, 3]], dtype="int32")).shape
    (1, 3, 11)
    """

    def __init__(
        self, vocabulary: int = 50257, layers: int = 12, width: int = 768, heads: int = 12, context: int = 1024, tied: bool = False,
        drop_prob: float = 0.0, eps: float = 1e-5, hidden: int | None = None, activation: str = "gelu",
    ):  # fmt: skip
        super().__init__()
        self.activation, self.vocabulary, self.context = activation, vocabulary, context
        self.tokens, self.positions, self.dropout = (
            M.Embedding(vocabulary, width),
            M.Embedding(context, width),
            M.Dropout(drop_prob),
        )
        self.blocks = [Block(width, heads, True, 4, drop_prob, 0.0, eps, hidden, activation) for _ in range(layers)]
        self.norm, self.head = M.LayerNorm(width, eps), None if tied else M.Linear(width, vocabulary, bias=False)
        initialise(self)

    def _states(self, tokens: Tensor, caches: list[Cache] | None) -> tuple[Tensor, list[Cache]]:
        x = self._embedded(tokens, 0 if caches is None else caches[0][0].shape[2])
        longer: list[Cache] = []
        for i, block in enumerate(self.blocks):
            if caches is None:
                x = block(x)
            else:
                x, cache = block(x, None, caches[i])
                longer.append(cache)
        return x, longer

    def _decoded(self, tokens: Tensor, at: Tensor, seen: Tensor, caches: list[Cache]) -> Tensor:
        n = at.shape[0]
        x = self.dropout(self.tokens(tokens) + self.positions(at).reshape(n, 1, -1))
        mask = (seen <= at.reshape(n, 1)).reshape(n, 1, 1, seen.shape[0])
        for block, cache in zip(self.blocks, caches):
            x, _ = block(x, mask, cache, at)
        return x

    def _embedded(self, tokens: Tensor, start: int) -> Tensor:
        t = tokens.shape[1]
        if isinstance(t, int) and start + t > self.context:  # where it is open, each run looks at the slice below
            raise ValueError(f"{start + t} tokens do not fit a context of {self.context}")
        if hasattr(self.positions, "grouped"):  # a table of integers, of which these rows alone become float32
            places = self.positions(F.arange(start, start + t, dtype="int32"))
        else:
            places = self.positions.weight[start : start + t]
        return self.dropout(self.tokens(tokens) + places)

    def _logits(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return self._by_table(x) if self.head is None else self.head(x)

    def _empty(self, n: int) -> list[Cache]:
        heads, width = self.blocks[0].attn.heads, self.positions.embedding_dim
        nothing = F.zeros((n, heads, 0, width // heads), dtype=self.norm.weight.dtype)
        return [(nothing, nothing) for _ in self.blocks]


@network
def gpt(layers: int = 12, width: int = 768, heads: int = 12, context: int = 1024, vocabulary: int = 50257, **options) -> GPT:
    """A GPT of any size; the defaults are GPT-2's smallest."""
    return GPT(vocabulary, layers, width, heads, context, **options)
