"""`torch.distributed`: collective operations, by `tengen.distributed`.

A process that was started alone is rank 0 of 1. Several are started by ``tengen run -n 4 train.py``, mpiexec or srun, and then
`init_process_group` finds them. Operations write their tensors in place, as PyTorch's do; those with ``async_op=True`` are done
when they return.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from enum import Enum
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from tengen import distributed as D
from tengen import functional as F
from tengen.base.errors import DistributedError
from tengen.base.lazy import NoSuchName
from tengen.serialization import load, save
from tengen.tensor import Tensor
from tengen.transport.channel import Sending
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
        for key in [key for key in _Awaited.open if key[0] == D.get_rank()]:
            del _Awaited.open[key]


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
    group = _group(group)
    if group.size > 1:
        row = D.functional.as_row(tensor.detach())
        row = row if D.get_rank() == src else np.empty_like(row)
        group.channel.broadcast(row, _place(group, src), f"broadcast of {tensor._layout.type!r}")
        tensor.data.copy_(D.functional.tensor_over_row(row, tensor.shape))
    return _done(async_op)


def _place(group: Any, rank: int) -> int:
    """Where in a group a process is. Errors: ValueError for one that is not there."""
    if rank not in group.proc_ranks:
        raise ValueError(f"rank {rank} is none of {group!r}")
    return group.proc_ranks.index(rank)


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


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """This process's item of the combination of all processes' lists."""
    return reduce_scatter_tensor(output, F.stack([t.detach() for t in input_list], 0), op, group, async_op)


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """Gives item i of the first list the item that process i has for this one."""
    group = _group(group)
    send = [D.functional.as_row(t.detach()) for t in input_tensor_list]
    whole, receives = D.functional.packed(send), [t.size for t in output_tensor_list]
    if group.size > 1:
        whole = group.channel.all_to_all(whole, [row.size for row in send], receives, f"all_to_all of {whole.dtype}")
    at = 0
    for t in output_tensor_list:
        t.data.copy_(D.functional.tensor_over_row(whole[at : at + t.size], t.shape))
        at += t.size
    return _done(async_op)


def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: list[int] | None = None, input_split_sizes: list[int] | None = None,
    group: Any = None, async_op: bool = False,
) -> Work | None:  # fmt: skip
    """The same of one tensor, cut along the first axis into parts, equal ones where no sizes are given."""
    n = get_world_size(group)
    parts = [
        list(F.split(t.detach(), list(accumulate(sizes))[:-1] if sizes else n, 0)) for t, sizes in ((input, input_split_sizes),
        (output, output_split_sizes))
    ]  # fmt: skip
    all_to_all(parts[1], parts[0], group)
    output.data.copy_(F.concat(parts[1], 0))
    return _done(async_op)


# ---- from one process to another ----------------------------------------------------------------------------------------------


class _Sent(Work):
    """A tensor that is on its way to another process."""

    def __init__(self, sending: Sending):
        self._sending = sending

    def wait(self, timeout: Any = None) -> bool:
        WORLD.channel.sent(self._sending)
        return True

    def is_completed(self) -> bool:
        return all(request.test() for request in self._sending.requests)


class _Awaited(Work):
    """A tensor that another process sends. Those of one process come in the order in which they were asked for."""

    open: ClassVar[dict[tuple[int, int], list[_Awaited]]] = {}  # by the ranks of both

    def __init__(self, tensor: Tensor, src: int):
        self._tensor, self._src = tensor, src
        self._queue = self.open.setdefault((D.get_rank(), src), [])
        self._queue.append(self)

    def wait(self, timeout: Any = None) -> bool:
        while self in self._queue:
            first = self._queue.pop(0)
            found, _ = D.functional._recv(first._src)
            if (found.shape, found.dtype) != (first._tensor.shape, first._tensor.dtype):
                raise DistributedError(
                    f"recv: rank {first._src} has sent {found._layout.type!r}, and the tensor for it is {first._tensor._layout.type!r}"
                )
            first._tensor.data.copy_(found)
        return True

    def is_completed(self) -> bool:
        return self not in self._queue


def _peer(name: str, rank: int | None, tag: int) -> int:
    """Another process's rank. Errors: ValueError for a tag, and for the rank of anybody."""
    _group(None)
    if tag or rank is None:
        raise ValueError(f"{name}(rank={rank}, tag={tag}): messages of one process come in their order; help: its rank, and tag=0")
    return D.functional._peer(name, rank)


def isend(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> Work:
    """Begins to send a tensor to process dst; its value of now. `wait` returns when it has it."""
    x = tensor.detach()
    text = f"{x.dtype.name} {','.join(map(str, x.shape))} 0"
    return _Sent(WORLD.channel.start_send(D.functional.as_row(x).copy(), _peer("isend to", dst, tag), text))


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> Work:
    """`wait` gives the tensor the value that process src sends. Errors: ValueError for a tag, or without src; of `wait` DistributedError for
    another shape or dtype."""
    return _Awaited(tensor, _peer("irecv from", src, tag))


def send(tensor: Tensor, dst: int, group: Any = None, tag: int = 0) -> None:
    """Sends a tensor to process dst, which calls `recv`."""
    isend(tensor, dst, group, tag).wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0) -> int:
    """Gives the tensor the value that process src sends; returns src. Errors: those of `irecv`"""
    irecv(tensor, src, group, tag).wait()
    assert src is not None
    return src


# ---- objects --------------------------------------------------------------------------------------------------------------------


def _bytes_of(obj: Any) -> Tensor:
    file = io.BytesIO()
    save(obj, file)
    return Tensor(np.frombuffer(file.getvalue(), np.uint8).copy())


def _object_of(t: Tensor) -> Any:
    return load(io.BytesIO(t.numpy().tobytes()))


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Each process's object, in all of them. They travel as `tengen.save` writes them, and nothing is unpickled: numbers, texts, bytes,
    arrays, tensors, and lists, tuples and dicts of them. Errors: those of `tengen.save`"""
    group = _group(group)
    mine = D.functional.as_row(_bytes_of(obj))
    sizes = [mine.size]
    if group.size > 1:
        sizes = group.channel.all_gather(np.array([mine.size]), [1] * group.size, "sizes of objects").tolist()
        mine = group.channel.all_gather(mine, sizes, "objects")
    ends = list(accumulate(sizes))
    object_list[:] = [_object_of(Tensor(mine[end - n : end])) for n, end in zip(sizes, ends)]


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int = 0, group: Any = None) -> None:
    """`all_gather_object` for one process alone."""
    found: list[Any] = []
    all_gather_object(found, obj, group)
    if object_gather_list is not None and D.get_rank() == dst:
        object_gather_list[:] = found


def broadcast_object_list(object_list: list[Any], src: int = 0, group: Any = None, device: Any = None) -> None:
    """The objects of process src, in all of them, sent as by `all_gather_object`."""
    found: list[Any] = []
    all_gather_object(found, object_list if D.get_rank() == src else None, group)
    object_list[:] = found[_place(_group(group), src)]


def __getattr__(name: str) -> object:
    raise NoSuchName("tengen.pytorch.distributed", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    "ReduceOp", "WORLD", "Work", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "all_to_all_single",
    "barrier", "broadcast", "broadcast_object_list", "destroy_process_group", "gather", "gather_object", "get_backend", "get_rank",
    "get_world_size", "init_process_group", "irecv", "is_available", "is_gloo_available", "is_initialized", "is_mpi_available",
    "is_nccl_available", "is_torchelastic_launched", "isend", "new_group", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "scatter", "send",
]  # fmt: skip
