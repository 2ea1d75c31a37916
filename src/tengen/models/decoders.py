"""Decoders with turning positions whose blocks are not Llama's: Gemma 2 and 3 and OLMo 2 have norms behind attention and perceptron; Phi
computes both of one norm's result, and adds both.

Sources: Gemma Team, arXiv 2408.00118 and 2503.19786; OLMo Team, arXiv 2501.00656; Li et al., arXiv 2309.05463 (Phi-1.5).
"""

from __future__ import annotations

import tengen.module as M
from tengen.models.llama import GroupedAttention, Llama, LlamaBlock, NormKind, Turns
from tengen.models.transformer import ACTIVATIONS, Cache
from tengen.tensor import Tensor


class SandwichBlock(LlamaBlock):
    """`LlamaBlock` with norms before and behind attention and perceptron.

    Shapes, Args: those of `LlamaBlock`
    """

    def __init__(
        self, attn: GroupedAttention, width: int, hidden: int, eps: float, bias: bool, norm: NormKind = M.RMSNorm,
        activation: str = "silu",
    ):  # fmt: skip
        super().__init__(attn, width, hidden, eps, bias, norm, activation)
        self.behind1, self.behind2 = norm(width, eps), norm(width, eps)

    def forward(self, x: Tensor, turns: Turns | None, cache: Cache | None = None, at: Tensor | None = None, seen: Tensor | None = None):
        y, cache = self.attn(self.norm1(x), turns, cache, at, seen)
        x = x + self.behind1(y)
        return x + self.behind2(self._gated(self.norm2(x))), cache


class Gemma2(Llama):
    """Gemma 2, and the texts of Gemma 3: `Llama` with norms before and behind.

    Shapes, Args: those of `Llama`
    """

    block = SandwichBlock


class PostNormBlock(LlamaBlock):
    """`LlamaBlock` with its norms behind attention and perceptron, before the shortcuts join.

    Shapes, Args: those of `LlamaBlock`
    """

    def forward(self, x: Tensor, turns: Turns | None, cache: Cache | None = None, at: Tensor | None = None, seen: Tensor | None = None):
        y, cache = self.attn(x, turns, cache, at, seen)
        x = x + self.norm1(y)
        return x + self.norm2(self._gated(x)), cache


class Olmo2(Llama):
    """OLMo 2 and 3: `Llama` with norms behind, and, where queries and keys have norms (`qk_norm`), over the features of all heads together.

    Shapes, Args: those of `Llama`
    """

    block = PostNormBlock

    @staticmethod
    def _norms_of_heads(norm: NormKind, heads: int, groups: int, features: int, eps: float) -> tuple[M.Module, M.Module]:
        return norm(heads * features, eps), norm(groups * features, eps)


class ParallelBlock(LlamaBlock):
    """Attention and a perceptron of two layers, both of the same norm's result, and a shortcut around both.

    Shapes: (N, T, width) -> (N, T, width)
    Args: those of `LlamaBlock`; activation: a key of `ACTIVATIONS`, between the perceptron's layers.
    """

    activations = tuple(ACTIVATIONS)

    def __init__(
        self, attn: GroupedAttention, width: int, hidden: int, eps: float, bias: bool, norm: NormKind = M.LayerNorm,
        activation: str = "gelu_tanh",
    ):  # fmt: skip
        M.Module.__init__(self)
        self.norm1, self.attn = norm(width, eps), attn
        self.fc1, self.fc2 = M.Linear(width, hidden, bias), M.Linear(hidden, width, bias)
        self.hidden, self.activation = hidden, activation

    def forward(self, x: Tensor, turns: Turns | None, cache: Cache | None = None, at: Tensor | None = None, seen: Tensor | None = None):
        same = self.norm1(x)
        y, cache = self.attn(same, turns, cache, at, seen)
        return y + self.fc2(ACTIVATIONS[self.activation](self.fc1(same))) + x, cache


class Phi(Llama):
    """Phi-1, Phi-1.5 and Phi-2: `Llama` with layer norms and parallel blocks, and a bias of the head.

    Shapes, Args: those of `Llama`; activation: a key of `ACTIVATIONS`
    """

    block = ParallelBlock
    norms = M.LayerNorm
    head_bias = True
