"""Layers whose weights alone are integers: of 8, 4 or 2 bits, with a scale for each group of input features; activations are
float32, or become integers of 8 bits inside of the product.

A weight is w[o, k] = scale[o, k // group] q[o, k] with q from -127 to 127, from -8 to 7, or from -2 to 1; two of 4 bits lie in a byte, four of
2 bits, the first in its lowest bits, as q + 8 or q + 2. It is turned into float32 where it is used, by the rules of docs/numerics.md: in
registers for a few rows.
"""

from __future__ import annotations

import functools

import numpy as np

from tengen import functional as F
from tengen.kernels.contraction.grouped_weights import COLUMNS, fits
from tengen.kernels.lowering import product
from tengen.loops.lang import as_int
from tengen.module.module import Module
from tengen.ops.grouped_weights import rows_of_tiles, taken_apart, tiles_of_codes, tiles_of_rows
from tengen.tensor import Tensor
from tengen.tensor.casting import casting

FEW_ROWS = 128  # rows of float32, at most, that are multiplied by integers as they lie in memory
LIMITS = {8: (-127, 127), 4: (-8, 7), 2: (-2, 1)}  # bits -> the smallest and the largest integer


class GroupedWeight(Module):
    """A matrix as integers.

    Args:
        codes: int8, (rows, columns); columns are filled up to whole groups with zeros. scale: float32 or float16, (rows, groups).
        bits: 8, 4 or 2. group: columns that share a scale. activations: what products are made of, "float32" or "int8": see
            `linear_grouped`.

    Attributes:
        codes, scale: the bytes, (rows, bytes of a row), and the scales. From 64 rows on, and where `linear_grouped` takes the group, both
            lie in tiles of 64 rows, (tiles, bytes of a row / 4, 64, 4) and (tiles, groups, 64), as products read them: nothing is packed
            when they run. tiled: whether they do.

    >>> import numpy as np
    >>> from tengen.module.quantized.weights import GroupedWeight
    >>> w = GroupedWeight(np.array([[7, -8, 1]], "int8"), np.array([[0.5, 2.0]], "float32"), 4, 2)
    >>> w.values().tolist(), w.codes.shape
    ([[3.5, -4.0, 2.0]], (1, 2))
    """

    def __init__(self, codes: np.ndarray, scale: np.ndarray, bits: int, group: int, activations: str = "float32"):
        super().__init__()
        self.bits, self.group, self.shape, self.activations = bits, group, codes.shape, activations
        each = 8 // bits  # integers in a byte
        columns = -(-codes.shape[1] // group) * group
        missing = columns + -columns % each - codes.shape[1]
        whole = np.pad(codes, ((0, 0), (0, missing))) if missing else codes
        if each > 1:
            whole = (whole + (1 << bits - 1)).view(np.uint8)
            whole = functools.reduce(np.bitwise_or, [whole[:, i::each] << bits * i for i in range(each)])
        self.tiled = len(codes) >= COLUMNS and fits(group)
        scale = np.asarray(scale)
        scale = scale if scale.dtype == np.float16 else scale.astype(np.float32, copy=False)
        self.codes, self.scale = map(Tensor, (tiles_of_codes(whole), tiles_of_rows(scale)) if self.tiled else (whole, scale))

    def values(self, rows: Tensor | None = None) -> Tensor:
        """The matrix in float32, or some rows of it."""
        q, scale = (self._rows(t, rows) for t in (self.codes, self.scale))
        if self.bits < 8:
            q = taken_apart(q, self.bits)
        groups = scale.shape[-1]
        q = q[..., : groups * self.group].reshape(*scale.shape, self.group)
        w = F.dequantize_linear(q, scale.reshape(*scale.shape, 1).astype("float32"))
        return w.reshape(*q.shape[:-2], -1)[..., : self.shape[1]]

    def _rows(self, t: Tensor, rows: Tensor | None) -> Tensor:
        """Rows of the codes or the scales; None: all."""
        if rows is None:
            return rows_of_tiles(t, self.shape[0]) if self.tiled else t
        if not self.tiled:
            return t[rows]
        rows = self._counted(rows)
        t = t[rows // COLUMNS, :, rows % COLUMNS]
        return t.reshape(*rows.shape, -1) if t.ndim > rows.ndim + 1 else t

    def _counted(self, rows: Tensor) -> Tensor:
        """Rows, int32, those below 0 counted from the end. What is no row is refused: the last tile is filled up."""
        n, numbers = self.shape[0], rows.astype("int32")
        nothing = F.broadcast_to(F.zeros((1,), dtype="int32"), (n,))[rows]  # one number in memory, whatever n is
        return F.where(numbers < 0, numbers + n, numbers) + nothing

    def product(self, x: Tensor) -> Tensor:
        """x times the transposed matrix. Of float32, rows up to `FEW_ROWS`, or of an open number, take the integers as they are; for more, the
        matrix in float32 costs less than making numbers of the integers for every four rows. Both have the same bits."""
        rows = as_int(product(x.shape[:-1]))
        few = (rows is None or rows <= FEW_ROWS) and x.dtype == "float32" and casting.rule is None and fits(self.group)
        if not few and self.activations == "float32":
            return F.linear(x, self.values())
        features = self.shape[0] if self.tiled else None
        return F.linear_grouped(x.astype("float32"), self.codes, self.scale, self.bits, self.group, features, self.activations)

    @property
    def bytes(self) -> int:
        """Of the integers and their scales."""
        return self.codes.size + self.scale.dtype.itemsize * self.scale.size


class _WeightOnly(Module):
    def __init__(self, grouped: GroupedWeight):
        super().__init__()
        self.grouped = grouped

    @property
    def weight(self) -> Tensor:
        """The weight in float32, for those who read it: it is made of the integers each time."""
        return self.grouped.values()


class WeightOnlyLinear(_WeightOnly):
    """`Linear` whose weight is integers, `grouped`. Shapes: (..., in) -> (..., out).

    Args: factors: (in,), what input features are multiplied by, because the integers stand for weights divided by it; None: nothing.
    """

    def __init__(self, weight: GroupedWeight, bias: Tensor | None, factors: np.ndarray | None = None):
        super().__init__(weight)
        self.out_features, self.in_features = weight.shape
        self.bias = None if bias is None else Tensor(bias.detach().numpy())
        self.factors = None if factors is None else Tensor(np.asarray(factors, np.float32))

    @property
    def weight(self) -> Tensor:
        """The weight in float32, for those who read it: it is made of the integers each time."""
        return self.grouped.values() if self.factors is None else self.grouped.values() * self.factors

    def forward(self, x: Tensor) -> Tensor:
        y = self.grouped.product(x if self.factors is None else x * self.factors)
        return y if self.bias is None else y + self.bias


class WeightOnlyEmbedding(_WeightOnly):
    """`Embedding` whose table is integers, `grouped`: only the rows that are looked up become float32."""

    def __init__(self, weight: GroupedWeight):
        super().__init__(weight)
        self.num_embeddings, self.embedding_dim = weight.shape

    def forward(self, inputs: Tensor) -> Tensor:
        return self.grouped.values(inputs)
