"""Transformers of encoder and decoder layers, under PyTorch's names and with its conventions.

In: sequences (T, N, E), or (N, T, E) with `batch_first`. Masks are PyTorch's: of a bool mask, True hides; a float mask is added to
the scores. (`functional.scaled_dot_product_attention` and `MultiHeadAttention` take bool masks of what is seen.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np

from tengen import functional as F
from tengen.module.attention import MultiHeadAttention
from tengen.module.containers import ModuleList
from tengen.module.dropout import Dropout
from tengen.module.linear import Linear
from tengen.module.module import Module
from tengen.module.norm import LayerNorm
from tengen.module.settings import Configured
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor

_Masks = tuple[Tensor | None, Tensor | None]  # of scores, and of keys


def _activation(m: Module, activation: str | Callable) -> Callable:
    if isinstance(activation, str) and activation not in ("relu", "gelu"):
        raise ValueError(f"activation={activation!r} must be 'relu', 'gelu' or a function")
    return REGISTRY[activation] if isinstance(activation, str) else activation


def _dropout(m: Module, dropout: Module) -> Module:
    if not callable(dropout):
        raise TypeError(f"{type(m).__name__}.dropout is a module, it cannot be {dropout!r}; help: set the `drop_prob` of its Dropouts")
    return dropout


class _Layer(Configured):
    """What both layers have: attentions, two linear maps with an activation between them, and a norm for each of these parts."""

    attentions: tuple[str, ...] = ("self_attn",)
    _fixed = ("d_model", "nhead", "dim_feedforward", "layer_norm_eps", "bias")
    _checked = {"activation": _activation, "dropout": _dropout}

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: str | Callable = "relu",
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.d_model, self.nhead, self.dim_feedforward = d_model, nhead, dim_feedforward
        self.layer_norm_eps, self.bias, self.activation = layer_norm_eps, bias, activation
        self.batch_first, self.norm_first = batch_first, norm_first
        for name in self.attentions:
            setattr(self, name, MultiHeadAttention(d_model, nhead, dropout, bias=bias))
        self.linear1, self.linear2 = Linear(d_model, dim_feedforward, bias), Linear(dim_feedforward, d_model, bias)
        self.dropout = Dropout(dropout)
        for i in range(1, len(self.attentions) + 2):
            norm = LayerNorm(d_model, layer_norm_eps)
            if not bias:
                norm.bias = None
            setattr(self, f"norm{i}", norm)
            setattr(self, f"dropout{i}", Dropout(dropout))

    def _around(self, x: Tensor, part: Callable[[Tensor], Tensor], number: int) -> Tensor:
        """A part with a shortcut around it and its norm: before the part, or after the sum."""
        norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
        return x + dropout(part(norm(x))) if self.norm_first else norm(x + dropout(part(x)))

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    def _attend(self, attention: MultiHeadAttention, x: Tensor, memory: Tensor | None, masks: _Masks, is_causal: bool) -> Tensor:
        return attention(x, memory, memory, visible(*masks, self.nhead, x.dtype), is_causal)

    def _turned(self, x: Tensor) -> Tensor:
        return x if self.batch_first else x.transpose(1, 0, 2)


def visible(mask: Tensor | None, padding: Tensor | None, heads: int, dtype) -> Tensor | None:
    """PyTorch's mask of scores, (T, S) or (N heads, T, S), and of keys, (N, S), as one: bool of what is seen, or floats to add."""
    mask, padding = (Tensor(m) if isinstance(m, np.ndarray) else m for m in (mask, padding))
    if mask is not None and mask.ndim == 3:
        mask = mask.reshape(-1, heads, *mask.shape[1:])
    if padding is not None:
        padding = padding.reshape(padding.shape[0], 1, 1, padding.shape[1])
    found = [m for m in (mask, padding) if m is not None]
    if not found:
        return None
    if all(m.dtype.name == "bool" for m in found):
        hidden = found[0] if len(found) == 1 else F.logical_or(*found)
        return F.logical_not(hidden)
    floats = [F.where(m, float("-inf"), 0.0).astype(dtype) if m.dtype.name == "bool" else m for m in found]
    return floats[0] if len(floats) == 1 else floats[0] + floats[1]


class TransformerEncoderLayer(_Layer):
    """Self-attention and a two-layer perceptron, each with a shortcut around it and a layer norm.

    Shapes: src (T, N, d_model), or (N, T, d_model) with batch_first -> the same
    Args:
        nhead: heads. dim_feedforward: features inside the perceptron. dropout: of the attention's weights, its result, the
            activations and the perceptron's result. activation: "relu", "gelu" or a function. norm_first: norms before
            attention and perceptron instead of after the sums. bias: of linear maps and norms.
        forward's src_mask: (T, T) or (N nhead, T, T); src_key_padding_mask: (N, T); bool (True hides) or float (added).
            is_causal: positions see only what is before them, whatever the mask says besides.
    Source: Vaswani et al., arXiv 1706.03762

    >>> from tengen import functional as F, module as M
    >>> layer = M.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True).eval()
    >>> layer(F.ones((3, 5, 8)), is_causal=True).shape
    (3, 5, 8)
    """

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        masks = src_mask, src_key_padding_mask
        x = self._around(self._turned(src), lambda x: self._attend(self.self_attn, x, None, masks, is_causal), 1)
        return self._turned(self._around(x, self._feed_forward, 2))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to an encoder's result (`memory`), and a perceptron, each with a shortcut and a layer norm.

    Shapes: tgt (T, N, d_model), memory (S, N, d_model), or batches first with batch_first -> the shape of tgt
    Args:
        see `TransformerEncoderLayer`. forward's tgt_mask: (T, T) or (N nhead, T, T); memory_mask: (T, S) or (N nhead, T, S);
            tgt_key_padding_mask: (N, T); memory_key_padding_mask: (N, S).

    >>> from tengen import functional as F, module as M
    >>> layer = M.TransformerDecoderLayer(8, 2, dim_feedforward=16).eval()
    >>> layer(F.ones((5, 3, 8)), F.ones((4, 3, 8)), tgt_is_causal=True).shape
    (5, 3, 8)
    """

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        own, other = (tgt_mask, tgt_key_padding_mask), (memory_mask, memory_key_padding_mask)
        seen = self._turned(memory)
        x = self._around(self._turned(tgt), lambda x: self._attend(self.self_attn, x, None, own, tgt_is_causal), 1)
        x = self._around(x, lambda x: self._attend(self.multihead_attn, x, seen, other, memory_is_causal), 2)
        return self._turned(self._around(x, self._feed_forward, 3))


class TransformerEncoder(Configured):
    """Copies of an encoder layer, one after another, and a norm after them if there is one. As in PyTorch, all copies begin with
    the layer's values.

    >>> from tengen import functional as F, module as M
    >>> M.TransformerEncoder(M.TransformerEncoderLayer(8, 2, 16), 3, M.LayerNorm(8)).eval()(F.ones((5, 3, 8))).shape
    (5, 3, 8)
    """

    _fixed = ("num_layers",)

    def __init__(self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Module | None = None):
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.norm, self.num_layers = norm, num_layers

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Configured):
    """Copies of a decoder layer, one after another, and a norm after them if there is one. forward takes what the layers' does.

    >>> from tengen import functional as F, module as M
    >>> M.TransformerDecoder(M.TransformerDecoderLayer(8, 2, 16), 2).eval()(F.ones((5, 3, 8)), F.ones((4, 3, 8))).shape
    (5, 3, 8)
    """

    _fixed = ("num_layers",)

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None):
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(decoder_layer) for _ in range(num_layers))
        self.norm, self.num_layers = norm, num_layers

    def forward(self, tgt: Tensor, memory: Tensor, *masks: Tensor | None, **more) -> Tensor:
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, **more)
        return tgt if self.norm is None else self.norm(tgt)
