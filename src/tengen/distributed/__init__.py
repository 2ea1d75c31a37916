"""`tengen.distributed`: MegEngine's names for training with several processes, true for the one process that there is.

Rank 0 of 1: collective operations give what they are given, callbacks and barriers pass, the launcher calls its function. What
asks for more is a `DistributedError`; several processes are planned.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

from tengen.base.errors import DistributedError
from tengen.device import get_device_count
from tengen.functional import distributed as functional
from tengen.tensor import Tensor

__all__ = [
    "Group", "WORLD", "backend", "bcast_list_", "functional", "get_backend", "get_local_device_id", "get_rank", "get_world_size",
    "group_barrier", "group_end", "group_start", "init_process_group", "is_distributed", "launcher", "make_allreduce_cb", "new_group",
    "override_backend", "synchronized",
]  # fmt: skip

BACKENDS = ("auto", "nccl", "rccl", "cncl", "hccl", "ucx")  # what MegEngine calls its ways to talk; one process uses none
backend = "auto"


class Group:
    """Processes that take part in a collective operation.

    Attributes: proc_ranks: their ranks. size: how many they are. rank: this process's place among them. key: a text that tells
        groups apart. is_single_machine: whether all are on this machine.

    Errors: DistributedError for ranks that are not there.
    """

    def __init__(self, proc_ranks: Iterable[int]):
        self.proc_ranks = list(proc_ranks)
        if self.proc_ranks != [0]:
            raise DistributedError(f"a group of the ranks {self.proc_ranks}: there is one process, of rank 0")

    @property
    def size(self) -> int:
        """How many processes it has."""
        return len(self.proc_ranks)

    @property
    def rank(self) -> int:
        """This process's place in it."""
        return self.proc_ranks.index(get_rank())

    @property
    def key(self) -> str:
        """A text that tells groups apart."""
        return ",".join(map(str, self.proc_ranks))

    @property
    def is_single_machine(self) -> bool:
        """Whether all of its processes are on this machine."""
        return True

    def __repr__(self) -> str:
        return f"Group({self.proc_ranks})"


WORLD = Group([0])


def get_rank() -> int:
    """This process's number: 0."""
    return 0


def get_world_size() -> int:
    """How many processes there are: 1."""
    return 1


def get_local_device_id() -> int:
    """The number of this process's device on this machine: 0."""
    return 0


def is_distributed() -> bool:
    """Whether there are several processes: False."""
    return False


def get_backend() -> str:
    """The name that `init_process_group` or `override_backend` was given; "auto" at first."""
    return backend


def new_group(proc_ranks: Iterable[int]) -> Group:
    """A group of these ranks. Errors: DistributedError for ranks that are not there."""
    return Group(proc_ranks)


def group_barrier(group: Group = WORLD) -> None:
    """Returns when all processes of the group have come here."""


def group_start() -> None:
    """Begins operations that are sent together, up to `group_end`."""


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
    master_ip: str = "localhost", port: int = 0, world_size: int = 1, rank: int = 0, device: int = 0, backend: str | None = "auto",
    device_type: str = "xpu",
) -> None:  # fmt: skip
    """Makes this process one of `world_size`. Errors: DistributedError for more than one."""
    if world_size != 1 or rank != 0:
        raise _several(f"init_process_group(world_size={world_size}, rank={rank})")
    globals()["backend"] = _check_backend(backend or "auto")


def _several(what: str) -> DistributedError:
    return DistributedError(
        f"{what}: there is one process so far, of rank 0; help: n_gpus=1. Several processes are planned; the processor's cores work "
        "together in one (tengen.set_threads)"
    )


def launcher(
    func: Callable | None = None, n_gpus: int | None = None, world_size: int | None = None, rank_start: int = 0,
    master_ip: str = "localhost", port: int = 0, device_type: str = "xpu", backend: str = "auto",
) -> Callable:  # fmt: skip
    """A decorator: calls the function in `n_gpus` processes. With one, which is the default where a machine has one device, in this
    process.

    Returns: a function that gives a list with what the function returned in each process, as MegEngine's does.
    Errors: DistributedError for more than one process.

    >>> launcher(lambda x: x + 1, n_gpus=1)(2)
    [3]
    """
    if func is None:
        return functools.partial(
            launcher, n_gpus=n_gpus, world_size=world_size, rank_start=rank_start, master_ip=master_ip, port=port,
            device_type=device_type, backend=backend,
        )  # fmt: skip
    here = get_device_count(device_type) if n_gpus is None else n_gpus
    if here != 1 or (world_size or 1) != 1 or rank_start != 0:
        raise _several(f"launcher(n_gpus={here}, world_size={here if world_size is None else world_size}, rank_start={rank_start})")
    _check_backend(backend)

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> list[Any]:
        return [func(*args, **kwargs)]

    return call


def bcast_list_(inps: Sequence[Tensor], group: Group = WORLD) -> None:
    """Gives each tensor the value that it has in rank 0."""
    for t in inps:
        t._reset(functional.broadcast(t, group))


def make_allreduce_cb(reduce_method: str, group: Group = WORLD, backend: str | None = None) -> Callable:
    """A callback for `GradManager.attach`, which makes a gradient the sum or the mean of all processes' gradients.

    Args: reduce_method: "sum" or "mean".

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
    mean = reduce_method.lower() == "mean"

    def callback(param: Tensor, grad: Tensor) -> Tensor:
        total = functional.all_reduce_sum(grad, group)
        return total / group.size if mean and group.size > 1 else total

    return callback
