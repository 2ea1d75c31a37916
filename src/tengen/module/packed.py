"""Sequences of different lengths, packed: the elements of all, step by step, without padding. PyTorch's names and forms.

In: padded sequences (T, N, ...) and their lengths. Out: a `PackedSequence`, which recurrent layers take and give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tengen.base.errors import ArgumentError, ShapeError
from tengen.base.record import NamedTuple
from tengen.ops.calls import all_with_line
from tengen.ops.define import REGISTRY, dispatch
from tengen.tensor import Tensor


class PackedSequence(NamedTuple):
    """Sequences of different lengths, the longest first: the first elements of all, then the second ones of those that have one, ...

    Attributes: data: (sum of the lengths, ...). batch_sizes: how many sequences have an element at each step, int64 (T,).
        sorted_indices, unsorted_indices: the order from the longest on, and the way back; None where they came in that order.

    >>> from tengen import Tensor, module as M
    >>> packed = M.utils.rnn.pack_sequence([Tensor([1, 2, 3]), Tensor([4])])
    >>> packed.data.tolist(), packed.batch_sizes.tolist()
    ([1, 4, 2, 3], [2, 1, 1])
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    @property
    def lengths(self) -> np.ndarray:
        """The lengths, the longest first."""
        sizes = dispatch.known(self.batch_sizes)
        return (sizes[None, :] > np.arange(int(sizes[0]))[:, None]).sum(1)

    def with_data(self, data: Tensor) -> PackedSequence:
        """Other elements of the same sequences."""
        return self._replace(data=data)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same sequences with their elements as `Tensor.to` makes them: another dtype, say."""
        return self.with_data(self.data.to(*args, **kwargs))

    def cpu(self) -> PackedSequence:
        """The same sequences."""
        return self

    @property
    def is_cuda(self) -> bool:
        """False: the processor is the only device."""
        return False


def places(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(step, sequence) of each packed element, for lengths in descending order."""
    steps, rows = np.nonzero(np.arange(int(lengths[0]))[:, None] < lengths[None, :])
    return steps, rows


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs padded sequences (T, N, ...), or (N, T, ...) with batch_first.

    Args: lengths: of the sequences, known numbers, at least 1. enforce_sorted: they must be in descending order; without it they are
        brought into that order, and recurrent layers give states in the order in which the sequences came.
    Errors: ArgumentError for lengths that are no such numbers; ShapeError for others than one for each sequence, or beyond T

    >>> from tengen import Tensor, module as M
    >>> M.utils.rnn.pack_padded_sequence(Tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True).data.tolist()
    [1, 3, 2]
    """
    x = REGISTRY["swapaxes"](input, 0, 1) if batch_first else input
    known = np.asarray(dispatch.known(lengths) if isinstance(lengths, Tensor) else [int(n) for n in lengths], np.int64)
    if known.shape != x.shape[1:2] or not known.size or known.max() > x.shape[0]:
        raise ShapeError(f"pack_padded_sequence: lengths {known.tolist()} do not fit sequences of shape {input.shape}")
    if known.min() < 1:
        raise ArgumentError(f"pack_padded_sequence: lengths {known.tolist()} must be at least 1")
    order = back = None
    if not enforce_sorted:
        by_length = np.argsort(-known, kind="stable")
        order, back, known = Tensor(by_length), Tensor(np.argsort(by_length)), known[by_length]
        x = REGISTRY["take"](x, order, 1)
    elif (np.diff(known) > 0).any():
        raise ArgumentError(f"pack_padded_sequence: lengths {known.tolist()} are not in descending order; help: enforce_sorted=False")
    steps, rows = places(known)
    return PackedSequence(x[Tensor(steps), Tensor(rows)], Tensor(np.bincount(steps)), order, back)


def padded_in_order(sequence: PackedSequence, padding_value: float = 0.0, total_length: int | None = None) -> Tensor:
    """The sequences padded to (T, N, ...), the longest first."""
    lengths, data = sequence.lengths, sequence.data
    longest = int(lengths[0]) if total_length is None else total_length
    if longest < lengths[0]:
        raise ShapeError(f"pad_packed_sequence: total_length={total_length} is less than the longest sequence, {lengths[0]}")
    steps, rows = places(lengths)
    place = np.full((longest, len(lengths)), -1)
    place[steps, rows] = np.arange(len(steps))
    taken = REGISTRY["take"](data, Tensor(np.maximum(place, 0)), 0)
    there = Tensor((place >= 0).reshape(*place.shape, *(1,) * (data.ndim - 1)))
    return REGISTRY["where"](there, taken, REGISTRY["full"]((), padding_value, data.dtype))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """(padded sequences (T, N, ...), or (N, T, ...) with batch_first; their lengths, int64), in the order in which they came.

    Args: total_length: T, where it is to be more than the longest length.
    Errors: ShapeError for a total_length below that

    >>> from tengen import Tensor, module as M
    >>> rnn = M.utils.rnn
    >>> padded, lengths = rnn.pad_packed_sequence(rnn.pack_sequence([Tensor([1, 2]), Tensor([3])]), batch_first=True)
    >>> padded.tolist(), lengths.tolist()
    ([[1, 2], [3, 0]], [2, 1])
    """
    x, lengths = padded_in_order(sequence, padding_value, total_length), Tensor(sequence.lengths)
    if sequence.unsorted_indices is not None:
        x, lengths = REGISTRY["take"](x, sequence.unsorted_indices, 1), REGISTRY["take"](lengths, sequence.unsorted_indices, 0)
    return (REGISTRY["swapaxes"](x, 0, 1) if batch_first else x), lengths


def reversal(lengths: np.ndarray) -> tuple[Tensor, Tensor]:
    """The index (T, N) that turns each of some padded sequences round within its length."""
    t = np.arange(int(lengths[0]))[:, None]
    return Tensor(np.where(t < lengths, lengths - 1 - t, t)), Tensor(np.broadcast_to(np.arange(len(lengths)), (len(t), len(lengths))).copy())


__all__ = ["PackedSequence", "pack_padded_sequence", "pad_packed_sequence"]
all_with_line(globals(), ["pack_padded_sequence", "pad_packed_sequence"])
