"""Linear maps and embeddings."""

from __future__ import annotations

import math

import numpy as np

from tengen import functional as F
from tengen.autodiff import no_grad
from tengen.module import init
from tengen.module.settings import COMPUTE_MODE, PARAMETERS, Configured, counts
from tengen.tensor import Parameter, Tensor


class Linear(Configured):
    """y = x W^T + b. Parameters: weight (out, in), bias (out,). Initial: uniform in +-1/sqrt(in), bias 0."""

    weights_decay = True
    _fixed = ("in_features", "out_features", "compute_mode")
    _checked = PARAMETERS | COMPUTE_MODE | counts("in_features", "out_features")

    def __init__(self, in_features: int, out_features: int, bias: bool = True, compute_mode: str = "default", **kwargs):
        super().__init__(**kwargs)
        self.in_features, self.out_features, self.compute_mode = in_features, out_features, compute_mode
        self.weight = init.blank(out_features, in_features)
        self.bias = Parameter(np.zeros(out_features, np.float32)) if bias else None
        self._draw()

    def _draw(self) -> None:
        bound = math.sqrt(1.0 / self.in_features)
        init.uniform_(self.weight, -bound, bound)

    def reset_parameters(self) -> None:
        """Draws the weight anew; the bias becomes 0."""
        self._draw()
        if self.bias is not None:
            init.zeros_(self.bias)

    def calc_linear(self, inp: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """What `forward` computes, with another weight and bias: MegEngine's name for subclasses that change them first."""
        return F.linear(inp, weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.calc_linear(x, self.weight, self.bias)

    def _module_info_string(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Configured):
    """Rows of a table by index. Parameter: weight (num_embeddings, embedding_dim), normal at first.

    Args: padding_idx: a row that is 0 at first and gets no gradient, as in PyTorch.
    Errors: ValueError for a padding_idx that is no row, for max_norm or norm_type, and for initial weights of another shape
    """

    _fixed = ("num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type")
    _checked = PARAMETERS | counts("num_embeddings", "embedding_dim")

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx=None, max_norm=None, norm_type=None, initial_weight=None,
        freeze: bool = False, **kwargs,
    ):  # fmt: skip
        super().__init__(**kwargs)
        if max_norm is not None or norm_type is not None:
            raise ValueError("Embedding: max_norm and norm_type must be None (as in MegEngine)")
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(f"Embedding: padding_idx={padding_idx} is none of the {num_embeddings} rows")
        self.num_embeddings, self.embedding_dim, self.freeze = num_embeddings, embedding_dim, freeze
        self.max_norm = self.norm_type = None
        self.padding_idx = padding_idx
        shape = (num_embeddings, embedding_dim)
        if initial_weight is None:
            self.weight = init.blank(*shape)
            self.reset_parameters()
        else:
            if tuple(initial_weight.shape) != shape:
                raise ValueError(f"Embedding: initial_weight has shape {tuple(initial_weight.shape)}, {shape} is needed")
            self.weight = Parameter(initial_weight)

    def reset_parameters(self) -> None:
        """Draws the table anew; a padding row becomes 0."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None) -> Embedding:
        """An embedding of a table (V, D) that is there. Args: freeze: it gets no gradient, as in MegEngine and PyTorch by default.

        Errors: ValueError for what is no table

        >>> from tengen import Tensor, module as M
        >>> M.Embedding.from_pretrained(Tensor([[1.0], [2.0]]))(Tensor([1])).tolist()
        [[2.0]]
        """
        if len(embeddings.shape) != 2:
            raise ValueError(f"Embedding.from_pretrained: a table (V, D) is needed, got shape {tuple(embeddings.shape)}")
        return cls(*embeddings.shape, padding_idx=padding_idx, initial_weight=embeddings, freeze=freeze)

    def forward(self, inputs: Tensor) -> Tensor:
        return F.embedding(inputs, self.weight.detach() if self.freeze else self.weight, self.padding_idx)

    def _module_info_string(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"
