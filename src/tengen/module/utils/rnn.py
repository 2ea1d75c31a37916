"""Sequences of different lengths as one tensor, under PyTorch's names: padded, or packed (`module/packed.py`), as recurrent layers take
them."""

from __future__ import annotations

from collections.abc import Sequence

from tengen.base.errors import ShapeError
from tengen.module.packed import PackedSequence, pack_padded_sequence, pad_packed_sequence
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


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs sequences (L, ...) of different lengths. See `pack_padded_sequence`.

    >>> from tengen import Tensor, module as M
    >>> M.utils.rnn.pack_sequence([Tensor([1]), Tensor([2, 3])], enforce_sorted=False).data.tolist()
    [2, 1, 3]
    """
    return pack_padded_sequence(pad_sequence(sequences), [x.shape[0] for x in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that `pack_sequence` has packed, each of its length."""
    padded, lengths = pad_packed_sequence(packed_sequences)
    return unpad_sequence(padded, lengths.tolist())


__all__ = [
    "PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence", "unpack_sequence", "unpad_sequence",
]  # fmt: skip
all_with_line(globals(), ["pack_sequence", "pad_sequence", "unpack_sequence", "unpad_sequence"])
