"""`tengen.distributed`: training with several processes, under MegEngine's names and with more behind them.

Start a program with ``tengen run -n 4 train.py`` (or with ``mpiexec``, ``srun``), or a function with `launcher`. A process that was
started alone is rank 0 of 1, where collective operations give what they are given and callbacks and barriers pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tengen.base.errors import DistributedError
from tengen.distributed import helper
from tengen.distributed.checkpoint import has_checkpoint, load_checkpoint, save_checkpoint, save_checkpoint_async
from tengen.distributed.data_parallel import DataParallel, broadcast_tensors, check_parts
from tengen.distributed.embedding import EmbeddingTable
from tengen.distributed.launch import launcher
from tengen.distributed.mesh import Broadcast, Mesh, Partial, Split
from tengen.distributed.pipeline import Pipeline
from tengen.distributed.schedules import balanced
from tengen.distributed.server import Client, Server
from tengen.distributed.sharding import shard
from tengen.functional import distributed as functional
from tengen.tensor import Tensor
from tengen.transport.group import WORLD, Group, world

__all__ = [
    "Broadcast", "Client", "DataParallel", "DistributedError", "EmbeddingTable", "Group", "Mesh", "Partial", "Pipeline",
    "Server", "Split", "WORLD", "backend", "balanced", "bcast_list_", "functional", "get_backend", "get_client",
    "get_local_device_id", "get_mm_server_addr", "get_py_server_addr", "get_rank", "get_world_size", "group_barrier",
    "group_end", "group_start", "has_checkpoint", "helper",
    "init_process_group", "is_distributed", "launcher", "load_checkpoint", "make_allreduce_cb",
    "new_group", "override_backend", "save_checkpoint", "save_checkpoint_async", "shard", "synchronized",
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

    Rank 0 then listens for `Client`s.

    Args: world_size, rank: what this process expects to be; the launcher decides. master_ip, port: where rank 0 listens; 0 is any port.
        device, device_type: MegEngine's, for which MPI has no use.
    Errors: DistributedError where the launcher has started other processes than these.
    """
    there = world()
    if (world_size if world_size is not None else there.size, rank if rank is not None else there.rank) != (there.size, there.rank):
        raise DistributedError(
            f"init_process_group(world_size={world_size}, rank={rank}): this process is rank {there.rank} of {there.size}; help: start "
            f"all with `tengen run -n {world_size or 2} program.py`, or mpiexec, or srun"
        )
    globals()["backend"] = _check_backend(backend or "auto")
    if there.size > 1:
        _serve(master_ip, port)


_servers: dict[int, Server] = {}  # that this process has started, by its rank: threads may be ranks
_clients: dict[int, Client] = {}


def _serve(master_ip: str, port: int) -> None:
    """Rank 0 listens, and all know where."""
    rank = get_rank()
    if rank == 0 and 0 not in _servers:
        _servers[0] = Server(port, master_ip)
    where = np.array([_servers[0].py_server_port if rank == 0 else 0], np.int64)
    WORLD.channel.broadcast(where, 0, "where the server listens")
    _clients[rank] = Client(master_ip, int(where[0]))


def get_client() -> Client:
    """What talks to the server that `init_process_group` has started. A process that is alone starts one when it is first asked for.

    Errors: DistributedError where there are several processes, and `init_process_group` was not called.
    """
    rank = get_rank()
    if rank not in _clients:
        if is_distributed():
            raise DistributedError("get_client(): no server was started; help: distributed.init_process_group() in all processes, first")
        _servers[rank] = Server()
        _clients[rank] = Client("localhost", _servers[rank].py_server_port)
    return _clients[rank]


def get_py_server_addr() -> tuple[str, int]:
    """(Address, port) at which the server listens. Errors: those of `get_client`."""
    client = get_client()
    return client.master_ip, client.port


def get_mm_server_addr() -> tuple[str, int]:
    """The same: MegEngine's second server, which joins its devices, is not needed."""
    return get_py_server_addr()


def bcast_list_(inps: Sequence[Tensor], group: Group = WORLD) -> None:
    """Gives each tensor the value that it has in the group's first process.

    Errors: DistributedError where the processes' tensors differ in number, shape or dtype.
    """
    broadcast_tensors(inps, group)


def make_allreduce_cb(
    reduce_method: str, group: Group = WORLD, backend: str | None = None, reduction: str = "ranks"
) -> Callable:  # fmt: skip
    """A callback for `GradManager.attach`, which makes a gradient the sum or the mean of all processes' gradients.

    Args: reduce_method: "sum" or "mean". group: the processes. backend: MegEngine's; it is checked, and nothing depends on it.
        reduction: "ranks", or "library": MPI's own sum, whose bits are not those of one process (`functional.all_reduce_sum`).
    Numerics: added in the order of the ranks, and for the mean divided by their number then.
    Errors: ValueError for another method or backend; DistributedError where the processes have different parts of a placed parameter.

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
    functional.check_reduction("make_allreduce_cb", reduction)
    mean = reduce_method.lower() == "mean"

    def callback(param: Tensor, grad: Tensor) -> Tensor:
        check_parts(param.name or "a parameter", param, group)
        total = functional.all_reduce_sum(grad, group, reduction=reduction)
        return total / group.size if mean and group.size > 1 else total

    return callback
