"""`tengen.distributed.helper`: MegEngine's names for gradients that are packed into one tensor to be added, and unpacked again.

Out: what `make_allreduce_cb` and `bcast_list_` do is elsewhere; scripts that pack by themselves find these.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tengen.base.errors import ShapeError
from tengen.device import get_device_count
from tengen.functional.distributed import all_reduce_sum
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor
from tengen.transport.group import WORLD, Group


def get_offsets(shapes: Sequence[Sequence[int]]) -> list[int]:
    """Where arrays of these shapes begin and end, one after another: [begin0, end0, begin1, end1, ...].

    >>> get_offsets([(1,), (3, 3)])
    [0, 1, 1, 10]
    """
    found, at = [], 0
    for shape in shapes:
        found += [at, at := at + prod(shape)]
    return found


def param_pack_split(inp: Tensor, offsets: Sequence[int], shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    """Tensors of these shapes from the elements of one of one axis. offsets: as of `get_offsets`. Has a gradient.

    Errors: ShapeError for offsets that do not fit the shapes or the tensor.

    >>> from tengen import functional as F
    >>> [t.shape for t in param_pack_split(F.ones(10), [0, 1, 1, 10], [(1,), (3, 3)])]
    [(1,), (3, 3)]
    """
    pairs = list(zip(offsets[::2], offsets[1::2]))
    sizes = [prod(shape) for shape in shapes]
    outside = any(b - a != n or not 0 <= a <= b <= inp.size for (a, b), n in zip(pairs, sizes))
    if inp.ndim != 1 or len(offsets) != 2 * len(sizes) or outside:
        said = [tuple(shape) for shape in shapes]
        raise ShapeError(f"param_pack_split: offsets {list(offsets)} of a tensor {inp.shape} do not fit the shapes {said}")
    return [inp[a:b].reshape(tuple(shape) or (1,)) for (a, b), shape in zip(pairs, shapes)]


def param_pack_concat(inps: Sequence[Tensor], offsets: Any, offsets_val: Sequence[int]) -> Tensor:
    """The elements of tensors one after another. offsets, offsets_val: as of `get_offsets`, as a tensor and as numbers. Has a gradient.

    Errors: ShapeError for offsets that are not theirs.

    >>> from tengen import functional as F
    >>> param_pack_concat([F.ones(1), F.zeros((1, 2))], None, [0, 1, 1, 3]).tolist()
    [1.0, 0.0, 0.0]
    """
    if list(offsets_val) != get_offsets([t.shape for t in inps]):
        raise ShapeError(f"param_pack_concat: offsets {list(offsets_val)} are not those of the shapes {[t.shape for t in inps]}")
    return REGISTRY["concat"].call([t.reshape(-1) for t in inps], 0)


def pack_allreduce_split(
    pack_list: Sequence[Tensor], shapes: Sequence[Sequence[int]], group: Group = WORLD, reduce_method: str = "sum"
) -> list[Tensor]:
    """Tensors of one dtype, added over all processes in one exchange. reduce_method: "sum", or "mean": over the processes.

    Numerics: each element is added in the order of the ranks, as it would be alone.

    >>> from tengen import functional as F
    >>> [t.tolist() for t in pack_allreduce_split([F.ones(1), F.zeros(2)], [(1,), (2,)])]
    [[1.0], [0.0, 0.0]]
    """
    if reduce_method not in ("sum", "mean"):
        raise ValueError(f"pack_allreduce_split: reduce_method={reduce_method!r} must be 'sum' or 'mean'")
    offsets = get_offsets(shapes)
    total = all_reduce_sum(param_pack_concat(pack_list, None, offsets), group)
    return param_pack_split(total / group.size if reduce_method == "mean" else total, offsets, shapes)


def get_device_count_by_fork(device_type: str) -> int:
    """How many devices there are: `device.get_device_count`."""
    return get_device_count(device_type)
