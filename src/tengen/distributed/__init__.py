"""`tengen.distributed`: training with several processes, under MegEngine's names and with more behind them.

Start a program with ``tengen run -n 4 train.py`` (or with ``mpiexec``, ``srun``), or a function with `launcher`. A process that was
started alone is rank 0 of 1, where collective operations give what they are given and callbacks and barriers pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from tengen.base.errors import DistributedError
from tengen.distributed.checkpoint import load_checkpoint, save_checkpoint, save_checkpoint_async
from tengen.distributed.data_parallel import DataParallel, broadcast_tensors
from tengen.distributed.launch import launcher
from tengen.distributed.pipeline import Pipeline, balanced
from tengen.distributed.sharding import shard
from tengen.functional import distributed as functional
from tengen.tensor import Tensor
from tengen.transport.group import WORLD, Group, world

__all__ = [
    "DataParallel", "DistributedError", "Group", "Pipeline", "WORLD", "backend", "balanced", "bcast_list_", "functional",
    "get_backend",
    "get_local_device_id", "get_rank", "get_world_size", "group_barrier", "group_end", "group_start", "init_process_group",
    "is_distributed", "launcher", "load_checkpoint", "make_allreduce_cb", "new_group", "override_backend", "save_checkpoint",
    "save_checkpoint_async", "shard", "synchronized",
]  # fmt: skip

BACKENDS = ("auto", "mpi", "threads", "nccl", "rccl", "cncl", "hccl", "ucx")  # MegEngine's names among them, which all mean MPI here
backend = "auto"


def get_rank() -> int:
    """This process's number, from 0."""
    return world().rank


def get_world_size() -> int:
    """How many processes there are."""
    return world().size


def get_local_device_id() -> int:
    """The number of this process's device on this machine: 0, since a machine has one processor."""
    return 0


def is_distributed() -> bool:
    """Whether there are several processes."""
    return world().size > 1


def get_backend() -> str:
    """The name that `init_process_group` or `override_backend` was given; "auto" at first."""
    return backend


def new_group(proc_ranks: Iterable[int]) -> Group:
    """A group of these ranks. Errors: DistributedError for ranks that are not there."""
    return Group(proc_ranks)


def group_barrier(group: Group = WORLD) -> None:
    """Returns when all processes of the group have come here. Errors: DistributedError that names those who do not come in time."""
    if group.size > 1:
        group.channel.barrier()


def group_start() -> None:
    """Begins operations that are sent together, up to `group_end`. Here each is sent at once."""


def group_end() -> None:
    """Ends what `group_start` began."""


def synchronized(func: Callable) -> Callable:
    """A decorator: all processes leave the function together."""

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        group_barrier()
        return result

    return call


def _check_backend(name: str) -> str:
    if name not in BACKENDS:
        raise ValueError(f"backend={name!r} must be one of {', '.join(BACKENDS)}")
    return name


@contextmanager
def override_backend(new_backend: str):
    """A block in which `get_backend` says another name."""
    global backend
    old, backend = backend, _check_backend(new_backend)
    try:
        yield
    finally:
        backend = old


def init_process_group(
    master_ip: str = "localhost", port: int = 0, world_size: int | None = None, rank: int | None = None, device: int = 0,
    backend: str | None = "auto", device_type: str = "xpu",
) -> None:  # fmt: skip
    """Joins the other processes, which a launcher of MPI has started; that happens by itself when a rank is first asked for.

    Args: world_size, rank: what this process expects to be; the launcher decides. master_ip, port, device, device_type: MegEngine's,
        for which MPI has no use.
    Errors: DistributedError where the launcher has started other processes than these.
    """
    there = world()
    if (world_size if world_size is not None else there.size, rank if rank is not None else there.rank) != (there.size, there.rank):
        raise DistributedError(
            f"init_process_group(world_size={world_size}, rank={rank}): this process is rank {there.rank} of {there.size}; help: start "
            f"all with `tengen run -n {world_size or 2} program.py`, or mpiexec, or srun"
        )
    globals()["backend"] = _check_backend(backend or "auto")


def bcast_list_(inps: Sequence[Tensor], group: Group = WORLD) -> None:
    """Gives each tensor the value that it has in the group's first process.

    Errors: DistributedError where the processes' tensors differ in number, shape or dtype.
    """
    broadcast_tensors(inps, group)


def make_allreduce_cb(reduce_method: str, group: Group = WORLD, backend: str | None = None) -> Callable:
    """A callback for `GradManager.attach`, which makes a gradient the sum or the mean of all processes' gradients.

    Args: reduce_method: "sum" or "mean". group: the processes. backend: MegEngine's; it is checked, and nothing depends on it.
    Numerics: added in the order of the ranks, and for the mean divided by their number then.
    Errors: ValueError for another method or backend.

    >>> from tengen import Parameter
    >>> from tengen.autodiff import GradManager
    >>> w = Parameter([2.0])
    >>> gm = GradManager().attach([w], callbacks=[make_allreduce_cb("mean")])
    >>> with gm:
    ...     gm.backward((w * w).sum())
    >>> w.grad.tolist()
    [4.0]
    """
    if reduce_method.lower() not in ("sum", "mean"):
        raise ValueError(f"make_allreduce_cb: reduce_method={reduce_method!r} must be 'sum' or 'mean'")
    if backend is not None:
        _check_backend(backend)
    mean = reduce_method.lower() == "mean"

    def callback(param: Tensor, grad: Tensor) -> Tensor:
        total = functional.all_reduce_sum(grad, group)
        return total / group.size if mean and group.size > 1 else total

    return callback
