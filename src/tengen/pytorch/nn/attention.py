"""`MultiheadAttention` with PyTorch's parameters and arguments, and transformers that are built of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from tengen import functional as F
from tengen import module as M
from tengen.base.errors import ArgumentError
from tengen.module.init import xavier_uniform_
from tengen.module.transformer import visible
from tengen.pytorch.nn.layers import Linear
from tengen.pytorch.nn.module import Module, ModuleList, finished
from tengen.pytorch.nn.norms import LayerNorm
from tengen.tensor import Parameter, Tensor


class SDPBackend(Enum):
    """Ways to compute attention that PyTorch tells apart. Here there is one, which reads keys and values in blocks."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """A block in which PyTorch computes attention in these ways; here it changes nothing.

    Errors: ArgumentError for what is no `SDPBackend`, nor a list of them
    """
    given = [backends] if isinstance(backends, SDPBackend) else list(backends)
    if not given or not all(isinstance(b, SDPBackend) for b in given):
        raise ArgumentError(f"sdpa_kernel: {backends!r} must be a SDPBackend, or a list of them")
    yield


class MultiheadAttention(Module):
    """Attention of `num_heads` heads between linear maps, with PyTorch's parameters: in_proj_weight, in_proj_bias, out_proj.

    Shapes: query (T, N, E), key and value (S, N, E); with batch_first (N, T, E), (N, S, E) -> the query's, and the weights (N, T, S),
    or (N, heads, T, S) with average_attn_weights=False; None with need_weights=False.
    Args: attn_mask, key_padding_mask: of bools True hides; floats are added.
        add_bias_kv: one more key and value for all, the parameters bias_k and bias_v. add_zero_attn: one more of zeros.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False, add_zero_attn: bool = False,
        kdim: int | None = None, vdim: int | None = None, batch_first: bool = False, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        if embed_dim % num_heads:
            raise ArgumentError(f"MultiheadAttention: {embed_dim} features cannot be shared out to {num_heads} heads")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = Parameter(F.zeros((3 * embed_dim, embed_dim)))
        else:
            self.q_proj_weight = Parameter(F.zeros((embed_dim, embed_dim)))
            self.k_proj_weight = Parameter(F.zeros((embed_dim, self.kdim)))
            self.v_proj_weight = Parameter(F.zeros((embed_dim, self.vdim)))
            self.in_proj_weight = None
        self.in_proj_bias = Parameter(F.zeros((3 * embed_dim,))) if bias else None
        self.bias_k = Parameter(F.zeros((1, 1, embed_dim))) if add_bias_kv else None
        self.bias_v = Parameter(F.zeros((1, 1, embed_dim))) if add_bias_kv else None
        self.add_zero_attn = add_zero_attn
        self.out_proj = Linear(embed_dim, embed_dim, bias)
        self._reset_parameters()
        finished(self, device, dtype)

    def _reset_parameters(self) -> None:
        for p in self._weights():
            M.init.xavier_uniform_(p)
        for p in (self.in_proj_bias, self.out_proj.bias):
            if p is not None:
                M.init.zeros_(p)
        for p in (self.bias_k, self.bias_v):
            if p is not None:
                M.init.xavier_normal_(p)

    def _weights(self) -> list[Parameter]:
        whole = self.in_proj_weight
        return [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight] if whole is None else [whole]

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """Queries, keys and values, (N, heads, T, E / heads)."""
        weights = self._weights()
        if query is key is value and len(weights) == 1:
            made = F.split(F.linear(query, weights[0], self.in_proj_bias), 3, -1)
        else:
            weights = F.split(weights[0], 3, 0) if len(weights) == 1 else weights
            biases = [None] * 3 if self.in_proj_bias is None else F.split(self.in_proj_bias, 3, 0)
            made = [F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases)]
        return [self._heads(x) for x in made]

    def _heads(self, x: Tensor) -> Tensor:
        return F.permute(x.reshape((*x.shape[:2], self.num_heads, -1)), (0, 2, 1, 3))

    def _further(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int]:
        """Keys and values with those that all queries see besides, and how many these are."""
        before = k.shape[2]
        if self.bias_k is not None and self.bias_v is not None:
            more = [F.broadcast_to(self._heads(b), (k.shape[0], self.num_heads, 1, k.shape[3])) for b in (self.bias_k, self.bias_v)]
            k, v = (F.concat([x, m], 2) for x, m in zip((k, v), more))
        if self.add_zero_attn:
            k, v = (F.concat([x, F.zeros((*x.shape[:2], 1, x.shape[3]), x.dtype)], 2) for x in (k, v))
        return k, v, k.shape[2] - before

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = True,
        attn_mask: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        single = query.ndim == 2
        if not self.batch_first or single:
            same = query is key is value
            query, key, value = (F.expand_dims(x, 0) if single else F.swapaxes(x, 0, 1) for x in (query, key, value))
            key, value = (query, query) if same else (key, value)
        if key_padding_mask is not None and single:
            key_padding_mask = F.expand_dims(key_padding_mask, 0)
        q, k, v = self._projected(query, key, value)
        k, v, further = self._further(k, v)
        if further:
            attn_mask, key_padding_mask = (_longer(m, further) for m in (attn_mask, key_padding_mask))
        seen = visible(attn_mask, key_padding_mask, self.num_heads, q.dtype)
        share = self.dropout if self.training else 0.0
        if need_weights:
            w = F.softmax(_scores(q, k, seen), -1)
            y = F.matmul(F.dropout(w, share) if share else w, v)
            weights = F.mean(w, 1) if average_attn_weights else w
        else:
            y, weights = F.scaled_dot_product_attention(q, k, v, seen, is_causal and attn_mask is None, dropout=share), None
        y = self.out_proj(F.permute(y, (0, 2, 1, 3)).reshape((q.shape[0], q.shape[2], self.embed_dim)))
        if single:
            return y[0], None if weights is None else weights[0]
        return (y if self.batch_first else F.swapaxes(y, 0, 1)), weights


def _longer(mask: Tensor | None, n: int) -> Tensor | None:
    """A mask with n more keys, which are seen."""
    return None if mask is None else F.concat([mask, F.zeros((*mask.shape[:-1], n), mask.dtype)], -1)


def _scores(q: Tensor, k: Tensor, seen: Tensor | None) -> Tensor:
    """The scaled products of queries and keys, with the mask: bools of what is seen, or floats that are added."""
    scores = F.matmul(q * (1 / math.sqrt(q.shape[-1])), F.swapaxes(k, -1, -2))
    if seen is None:
        return scores
    return F.where(seen, scores, float("-inf")) if seen.dtype.kind == "b" else scores + seen


class _Attention(MultiheadAttention):
    """The same as Tengen's transformer layers call it: (N, T, E), with one mask of what is seen."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True):
        super().__init__(embed_dim, num_heads, dropout, bias, batch_first=True)

    def forward(  # type: ignore[override]  # Tengen's transformer layers call it so
        self, query: Tensor, key: Any = None, value: Any = None, attn_mask: Any = None, is_causal: Any = False
    ) -> Any:
        key = query if key is None else key
        q, k, v = self._projected(query, key, key if value is None else value)
        share = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask, is_causal, dropout=share)
        return self.out_proj(F.permute(y, (0, 2, 1, 3)).reshape(query.shape))


def _in_pytorch_s_way(layer: Any, d_model: int, nhead: int, dropout: float, bias: bool) -> None:
    """Gives a layer attentions and linear maps with PyTorch's parameters and first draws."""
    for name in layer.attentions:
        setattr(layer, name, _Attention(d_model, nhead, dropout, bias))
    for i in range(1, len(layer.attentions) + 2):
        setattr(layer, f"norm{i}", LayerNorm(d_model, layer.layer_norm_eps, bias=bias))
    hidden = layer.dim_feedforward
    layer.linear1, layer.linear2 = Linear(d_model, hidden, bias), Linear(hidden, d_model, bias)


class _Layer(Module):
    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = "relu",
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ):  # fmt: skip
        how = (dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        super().__init__(d_model, nhead, *how)  # type: ignore[call-arg]  # the layer beside it
        _in_pytorch_s_way(self, d_model, nhead, dropout, bias)
        finished(self, device, dtype)


    def _several(self, x: Tensor) -> Tensor:
        """One sequence (T, d_model) with the axis of sequences that the layer takes."""
        return F.expand_dims(x, 0 if self.batch_first else 1)

    def _one(self, x: Tensor) -> Tensor:
        return F.squeeze(x, 0 if self.batch_first else 1)


def _padding(mask: Tensor | None) -> Tensor | None:
    """The mask of one sequence's keys, (S,), as that of several."""
    return None if mask is None or mask.ndim != 1 else F.expand_dims(mask, 0)


class TransformerEncoderLayer(_Layer, M.TransformerEncoderLayer):
    """`tengen.module.TransformerEncoderLayer` with PyTorch's parameters, also of one sequence (T, d_model).

    >>> TransformerEncoderLayer(4, 2, 8).eval()(F.ones((3, 4))).shape
    (3, 4)
    """

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        if src.ndim != 2:
            return super().forward(src, src_mask, src_key_padding_mask, is_causal)
        return self._one(super().forward(self._several(src), src_mask, _padding(src_key_padding_mask), is_causal))


class TransformerDecoderLayer(_Layer, M.TransformerDecoderLayer):
    """`tengen.module.TransformerDecoderLayer` with PyTorch's parameters, also of one sequence (T, d_model)."""

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        masks, paddings, causal = (tgt_mask, memory_mask), (tgt_key_padding_mask, memory_key_padding_mask), (tgt_is_causal, memory_is_causal)
        if tgt.ndim != 2:
            return super().forward(tgt, memory, *masks, *paddings, *causal)
        own, other = map(_padding, paddings)
        return self._one(super().forward(self._several(tgt), self._several(memory), *masks, own, other, *causal))


class TransformerEncoder(Module, M.TransformerEncoder):
    """`tengen.module.TransformerEncoder`. enable_nested_tensor, mask_check: accepted; they change no number."""

    def __init__(
        self, encoder_layer: Any, num_layers: int, norm: Any = None, enable_nested_tensor: bool = True, mask_check: bool = True
    ):
        super().__init__(encoder_layer, num_layers, norm)
        self.layers = ModuleList(self.layers)

    def forward(self, src: Tensor, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool | None = None) -> Tensor:
        return super().forward(src, mask, src_key_padding_mask, bool(is_causal))


class TransformerDecoder(Module, M.TransformerDecoder):
    """`tengen.module.TransformerDecoder`."""

    def __init__(self, decoder_layer: Any, num_layers: int, norm: Any = None):
        super().__init__(decoder_layer, num_layers, norm)
        self.layers = ModuleList(self.layers)


class Transformer(Module, M.Transformer):
    """`tengen.module.Transformer` with PyTorch's parameters. custom_encoder, custom_decoder: modules in place of its own."""

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6, dim_feedforward: int = 2048,
        dropout: float = 0.1, activation: Any = "relu", custom_encoder: Any = None, custom_decoder: Any = None, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        M.Module.__init__(self)
        how = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        norms = [LayerNorm(d_model, layer_norm_eps, bias=bias) for _ in range(2)]
        self.encoder = custom_encoder or TransformerEncoder(TransformerEncoderLayer(*how), num_encoder_layers, norms[0])
        self.decoder = custom_decoder or TransformerDecoder(TransformerDecoderLayer(*how), num_decoder_layers, norms[1])
        for p in self.parameters():
            if p.ndim > 1:
                xavier_uniform_(p)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        finished(self, device, dtype)

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Any = None, tgt_mask: Any = None, memory_mask: Any = None,
        src_key_padding_mask: Any = None, tgt_key_padding_mask: Any = None, memory_key_padding_mask: Any = None,
        src_is_causal: bool | None = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        masks = (src_mask, tgt_mask, memory_mask, src_key_padding_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return M.Transformer.forward(self, src, tgt, *masks)
