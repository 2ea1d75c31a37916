"""Multi-head attention."""

from __future__ import annotations

from tengen import functional as F
from tengen.module.linear import Linear
from tengen.module.settings import Configured, counts
from tengen.tensor import Tensor


def _heads(m: MultiHeadAttention, heads: int) -> int:
    if heads < 1 or m.embed_dim % heads:
        raise ValueError(f"MultiHeadAttention: {m.embed_dim} features cannot be shared out to {heads} heads; help: a divisor of embed_dim")
    return heads


class MultiHeadAttention(Configured):
    """softmax(q k^T / sqrt(d)) v in `num_heads` heads, between linear maps.

    Shapes: query (N, T, E), key and value (N, S, E) -> (N, T, E)
    Args:
        attn_dropout: probability with which a weight of the softmax is zeroed in training; out_dropout: an element of the result.
        add_bias_kv, add_zero_attn: MegEngine's; they must be False.
        forward's attn_mask and is_causal: see `functional.scaled_dot_product_attention`.
    Source: Vaswani et al., arXiv 1706.03762
    Errors: ValueError for `add_bias_kv` and `add_zero_attn`
    """

    _fixed = ("embed_dim", "bias", "kdim", "vdim", "add_bias_kv", "add_zero_attn")
    _checked = counts("embed_dim") | {"num_heads": _heads}

    def __init__(
        self, embed_dim: int, num_heads: int, attn_dropout: float = 0.0, out_dropout: float = 0.0, bias: bool = True,
        add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, **kwargs,
    ):  # fmt: skip
        super().__init__(**kwargs)
        self.embed_dim, self.bias, self.kdim, self.vdim = embed_dim, bias, kdim or embed_dim, vdim or embed_dim
        self.num_heads = num_heads
        for what, wanted in (("add_bias_kv", add_bias_kv), ("add_zero_attn", add_zero_attn)):
            if wanted:
                raise ValueError(f"MultiHeadAttention: {what}={wanted!r} must be False; help: concat the rows to key and value yourself")
        self.add_bias_kv = self.add_zero_attn = False
        self.attn_dropout, self.out_dropout = attn_dropout, out_dropout
        self.query_map = Linear(embed_dim, embed_dim, bias)
        self.key_map = Linear(self.kdim, embed_dim, bias)
        self.value_map = Linear(self.vdim, embed_dim, bias)
        self.out_map = Linear(embed_dim, embed_dim, bias)

    def reset_parameters(self) -> None:
        """Draws the weights of its maps anew; their biases become 0."""
        for m in (self.query_map, self.key_map, self.value_map, self.out_map):
            m.reset_parameters()

    def forward(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, attn_mask=None, is_causal: bool = False
    ):
        key = query if key is None else key
        value = key if value is None else value
        n, t, e = query.shape
        q, k, v = (self._heads(m(x)) for m, x in ((self.query_map, query), (self.key_map, key), (self.value_map, value)))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask, is_causal, dropout=self.attn_dropout if self.training else 0.0)
        y = self.out_map(y.transpose(0, 2, 1, 3).reshape(n, t, e))
        return F.dropout(y, self.out_dropout, self.training)

    def _heads(self, x: Tensor) -> Tensor:
        n, t, e = x.shape
        return x.reshape(n, t, self.num_heads, e // self.num_heads).transpose(0, 2, 1, 3)
