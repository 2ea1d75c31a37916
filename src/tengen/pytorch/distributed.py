"""`torch.distributed`: collective operations, by `tengen.distributed`.

A process that was started alone is rank 0 of 1. Several are started by ``tengen run -n 4 train.py``, mpiexec or srun, and then
`init_process_group` finds them. Operations write their tensors in place, as PyTorch's do; those with ``async_op=True`` are done
when they return.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from typing import Any

from tengen import distributed as D
from tengen import functional as F
from tengen.base.errors import DistributedError
from tengen.base.lazy import NoSuchName
from tengen.tensor import Tensor
from tengen.transport.group import world

WORLD = D.WORLD
_joined: list[Any] = []  # the worlds that were joined: a process's, or in tests a thread's


class ReduceOp(Enum):
    """How `all_reduce` and `reduce` combine."""

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"


class Work:
    """An operation that is done."""

    def wait(self, timeout: Any = None) -> bool:
        """True."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """Whether `init_process_group` was called, and `destroy_process_group` was not."""
    return any(w is world() for w in _joined)


def is_nccl_available() -> bool:
    """False: there is no GPU here."""
    return False


def is_gloo_available() -> bool:
    """True: "gloo" is accepted as the name of what is used here, MPI."""
    return True


def is_mpi_available() -> bool:
    """True."""
    return True


def is_torchelastic_launched() -> bool:
    """False."""
    return False


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: Any = None, world_size: int = -1, rank: int = -1, store: Any = None,
    group_name: str = "", pg_options: Any = None, device_id: Any = None,
) -> None:  # fmt: skip
    """Joins the other processes, which the launcher has started.

    Args: world_size, rank: what this process expects to be; -1: what the launcher says. The others are accepted.
    Errors: DistributedError where the launcher has started other processes than these; RuntimeError for a second call
    """
    if is_initialized():
        raise RuntimeError("init_process_group() was called before; help: destroy_process_group() first")
    D.init_process_group(world_size=None if world_size < 0 else world_size, rank=None if rank < 0 else rank)
    _joined.append(world())


def destroy_process_group(group: Any = None) -> None:
    """Leaves the others."""
    if group is None or group is WORLD:
        _joined[:] = [w for w in _joined if w is not world()]


def _group(group: Any) -> Any:
    if not is_initialized():
        raise DistributedError("there is no process group; help: torch.distributed.init_process_group('gloo') first")
    return WORLD if group is None else group


def get_rank(group: Any = None) -> int:
    """This process's number. Errors: DistributedError before `init_process_group`"""
    return D.get_rank() if _group(group) is WORLD else group.rank


def get_world_size(group: Any = None) -> int:
    """How many processes there are. Errors: DistributedError before `init_process_group`"""
    return D.get_world_size() if _group(group) is WORLD else group.size


def get_backend(group: Any = None) -> str:
    """The name of what carries the bytes: "mpi"."""
    _group(group)
    return "mpi"


def new_group(ranks: Sequence[int] | None = None, timeout: Any = None, backend: str | None = None, pg_options: Any = None) -> Any:
    """A group of some of the processes; all of them have to ask for it."""
    return WORLD if ranks is None else D.new_group(ranks)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Waits for the others."""
    D.group_barrier(_group(group))
    return _done(async_op)


def _done(async_op: bool) -> Work | None:
    return Work() if async_op else None


def _all(tensor: Tensor, group: Any) -> Tensor:
    """(ranks, *shape): the tensors of all of them."""
    return D.functional.all_gather(F.expand_dims(tensor.detach(), 0), _group(group), axis=0)


def _combined(tensor: Tensor, op: ReduceOp, group: Any) -> Tensor:
    x = tensor.detach()
    if op is ReduceOp.PRODUCT:
        return F.prod(_all(x, group), 0)
    one = {ReduceOp.MAX: D.functional.all_reduce_max, ReduceOp.MIN: D.functional.all_reduce_min}.get(op, D.functional.all_reduce_sum)
    found = one(x, _group(group))
    return found / get_world_size(group) if op is ReduceOp.AVG else found


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Gives the tensor the combination of all processes' tensors."""
    tensor.data.copy_(_combined(tensor, op, group))
    return _done(async_op)


def reduce(tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """The same in one process alone; the others' tensors stay."""
    found = _combined(tensor, op, group)
    if get_rank(group) == dst:
        tensor.data.copy_(found)
    return _done(async_op)


def broadcast(tensor: Tensor, src: int, group: Any = None, async_op: bool = False) -> Work | None:
    """Gives the tensor the value that it has in process src."""
    tensor.data.copy_(_all(tensor, group)[src])
    return _done(async_op)


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Gives the tensors of a list the values of each process's tensor."""
    for into, value in zip(tensor_list, _all(tensor, group)):
        into.data.copy_(value)
    return _done(async_op)


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """The tensors of all processes in one, along the first axis."""
    output_tensor.data.copy_(_all(input_tensor, group).reshape(output_tensor.shape))
    return _done(async_op)


def gather(tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int = 0, group: Any = None, async_op: bool = False) -> Work | None:
    """`all_gather` for one process alone."""
    found = _all(tensor, group)
    if get_rank(group) == dst:
        for into, value in zip(gather_list or (), found):
            into.data.copy_(value)
    return _done(async_op)


def scatter(tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int = 0, group: Any = None, async_op: bool = False) -> Work | None:
    """Gives each process's tensor its item of a list that process src has."""
    n, rank = get_world_size(group), get_rank(group)
    mine = F.stack([t.detach() for t in scatter_list], 0) if rank == src and scatter_list else F.zeros((n, *tensor.shape), tensor.dtype)
    tensor.data.copy_(_all(mine, group)[src, rank])
    return _done(async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """This process's part, along the first axis, of the combination."""
    whole = _combined(input, op, group).reshape((get_world_size(group), *output.shape))
    output.data.copy_(whole[get_rank(group)])
    return _done(async_op)


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Each process's object, which travels by pickle. Errors: NotImplementedError for several processes"""
    if get_world_size(group) != 1:
        raise NotImplementedError("all_gather_object among several processes is not there; help: all_gather of tensors")
    object_list[0] = obj


def broadcast_object_list(object_list: list[Any], src: int = 0, group: Any = None) -> None:
    """The objects of process src. Errors: NotImplementedError for several processes"""
    if get_world_size(group) != 1:
        raise NotImplementedError("broadcast_object_list among several processes is not there; help: broadcast of tensors")


def __getattr__(name: str) -> object:
    raise NoSuchName("tengen.pytorch.distributed", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    "ReduceOp", "WORLD", "Work", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "barrier", "broadcast",
    "broadcast_object_list", "destroy_process_group", "gather", "get_backend", "get_rank", "get_world_size", "init_process_group",
    "is_available", "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "new_group",
    "reduce", "reduce_scatter_tensor", "scatter",
]  # fmt: skip
