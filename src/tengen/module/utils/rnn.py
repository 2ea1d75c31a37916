"""Sequences of different lengths as one tensor, under PyTorch's names. There are no packed sequences: recurrent layers take padded ones,
and what they give beyond a sequence's end is left out by a mask."""

from __future__ import annotations

from collections.abc import Sequence

from tengen.base.errors import ShapeError
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor


def pad_sequence(sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right") -> Tensor:
    """Joins sequences (L, ...) of different lengths to (T, B, ...), or (B, T, ...) with batch_first, where T is the longest length.

    Args: padding_value: what follows a shorter sequence; padding_side: or comes before it ("left").
    Errors: ShapeError for no sequences, and for those that differ in more than their lengths; ValueError for another side

    >>> from tengen import Tensor, module as M
    >>> M.utils.rnn.pad_sequence([Tensor([1, 2]), Tensor([3])], batch_first=True).tolist()
    [[1, 2], [3, 0]]
    """
    if padding_side not in ("left", "right"):
        raise ValueError(f"pad_sequence: padding_side={padding_side!r} must be 'left' or 'right'")
    if not len(sequences) or any(x.ndim == 0 or x.shape[1:] != sequences[0].shape[1:] for x in sequences):
        raise ShapeError(f"pad_sequence: shapes {[x.shape for x in sequences]}: they may differ in their first extent alone")
    longest = max(x.shape[0] for x in sequences)
    rows = []
    for x in sequences:
        more = longest - x.shape[0]
        ends = (more, 0) if padding_side == "left" else (0, more)
        rows.append(REGISTRY["pad"](x, (ends, *((0, 0),) * (x.ndim - 1)), "constant", padding_value) if more else x)
    return REGISTRY["stack"](rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Sequence[int], batch_first: bool = False) -> list[Tensor]:
    """The sequences that `pad_sequence` has joined, each of its length."""
    x = padded_sequences if batch_first else REGISTRY["swapaxes"](padded_sequences, 0, 1)
    return [x[i, : int(n)] for i, n in enumerate(lengths)]


__all__ = ["pad_sequence", "unpad_sequence"]
all_with_line(globals(), __all__)
