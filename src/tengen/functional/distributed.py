"""Collective operations among the processes of a group. There is one process so far, so each gives what it is given.

In: a tensor; `group`, `device` and the axes as MegEngine takes them. Out: the tensor, on the tape.
"""

from __future__ import annotations

from typing import Any

from tengen.base.device import Device
from tengen.base.errors import AxisError, DeviceError, DistributedError
from tengen.ops.calls import all_with_line
from tengen.tensor import Tensor

MODES = (
    "all_gather", "all_reduce_max", "all_reduce_min", "all_reduce_sum", "all_to_all", "broadcast", "gather", "reduce_scatter_sum",
    "reduce_sum", "scatter",
)  # fmt: skip


def collective_comm(inp: Tensor, mode: str, group: Any = None, device: Any = None) -> Tensor:
    """The collective operation of a name, as "all_reduce_sum".

    Args: mode: its name. group: a `tengen.distributed.Group`; None is all processes. device: where the result shall lie.
    Errors: ValueError for another mode, DeviceError for a device that is not here, DistributedError for a group of more processes
        than there are.
    """
    mode = str(mode).lower()
    if mode not in MODES:
        raise ValueError(f"collective_comm: mode={mode!r} must be one of {', '.join(MODES)}")
    if group is not None and group.size != 1:
        raise DistributedError(f"{mode}: a group of {group.size} processes; there is one process, help: leave `group` out")
    if device not in (None, "") and (there := Device.named(device)) is not inp.device:
        raise DeviceError(f"{mode}: a tensor on {inp.device} cannot be brought to {there}")
    return Tensor(inp)


def _along(name: str, inp: Tensor, *axes: int) -> None:
    for axis in axes:
        if not -inp.ndim <= axis < inp.ndim:
            raise AxisError(f"{name}: there is no axis {axis} in a tensor of shape {inp.shape}")


def all_reduce_sum(inp: Tensor, group: Any = None, device: Any = None) -> Tensor:
    """The sum of all processes' tensors, for each of them.

    >>> from tengen import functional as F
    >>> F.distributed.all_reduce_sum(F.ones(2)).tolist()
    [1.0, 1.0]
    """
    return collective_comm(inp, "all_reduce_sum", group, device)


def all_reduce_max(inp: Tensor, group: Any = None, device: Any = None) -> Tensor:
    """The greatest of all processes' elements, for each of them."""
    return collective_comm(inp, "all_reduce_max", group, device)


def all_reduce_min(inp: Tensor, group: Any = None, device: Any = None) -> Tensor:
    """The least of all processes' elements, for each of them."""
    return collective_comm(inp, "all_reduce_min", group, device)


def reduce_sum(inp: Tensor, group: Any = None, device: Any = None) -> Tensor:
    """The sum of all processes' tensors, for rank 0."""
    return collective_comm(inp, "reduce_sum", group, device)


def broadcast(inp: Tensor, group: Any = None, device: Any = None) -> Tensor:
    """Rank 0's tensor, for each process."""
    return collective_comm(inp, "broadcast", group, device)


def all_gather(inp: Tensor, group: Any = None, device: Any = None, axis: int = 0) -> Tensor:
    """All processes' tensors joined along an axis, for each of them."""
    _along("all_gather", inp, axis)
    return collective_comm(inp, "all_gather", group, device)


def gather(inp: Tensor, group: Any = None, device: Any = None, axis: int = 0) -> Tensor:
    """All processes' tensors joined along an axis, for rank 0."""
    _along("gather", inp, axis)
    return collective_comm(inp, "gather", group, device)


def scatter(inp: Tensor, group: Any = None, device: Any = None, axis: int = 0) -> Tensor:
    """Rank 0's tensor cut along an axis, a part for each process."""
    _along("scatter", inp, axis)
    return collective_comm(inp, "scatter", group, device)


def reduce_scatter_sum(inp: Tensor, group: Any = None, device: Any = None, axis: int = 0) -> Tensor:
    """The sum of all processes' tensors cut along an axis, a part for each process."""
    _along("reduce_scatter_sum", inp, axis)
    return collective_comm(inp, "reduce_scatter_sum", group, device)


def all_to_all(inp: Tensor, group: Any = None, device: Any = None, split_axis: int = 0, concat_axis: int = 0) -> Tensor:
    """Each process's tensor cut along one axis, part i for process i, which joins what it gets along the other axis."""
    _along("all_to_all", inp, split_axis, concat_axis)
    return collective_comm(inp, "all_to_all", group, device)


def remote_send(inp: Tensor, dest_rank: int) -> Tensor:
    """Errors: DistributedError always: there is no other process to send to."""
    raise DistributedError(f"remote_send to rank {dest_rank}: there is one process, of rank 0")


def remote_recv(src_rank: int, device: Any = None, inp: Tensor | None = None) -> Tensor:
    """Errors: DistributedError always: there is no other process to receive from."""
    raise DistributedError(f"remote_recv from rank {src_rank}: there is one process, of rank 0")


__all__ = [*MODES, "collective_comm", "remote_recv", "remote_send"]
all_with_line(globals(), __all__)
