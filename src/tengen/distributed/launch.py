"""`launcher`: calls a function in several processes, which MPI's own `mpiexec` starts, or in threads."""

from __future__ import annotations

import functools
import pickle
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tengen.base.errors import DistributedError
from tengen.device import get_device_count
from tengen.random import get_state
from tengen.random.state import own_stream
from tengen.transport.group import run_as_rank, started_by_launcher, world
from tengen.transport.mpiexec import command, environment
from tengen.transport.threads import transports


def _in_processes(func: Callable, ranks: int, args: tuple, kwargs: dict) -> list[Any]:
    """What a function returns in each of several new processes. The function travels in a folder that only this user can read."""
    try:
        import cloudpickle
    except ImportError as e:
        raise DistributedError(f"launcher: a function is sent to its processes with cloudpickle ({e}); help: pip install 'tengen[dist]'") from e
    with tempfile.TemporaryDirectory(prefix="tengen-ranks-") as folder:
        Path(folder, "call").write_bytes(cloudpickle.dumps((func, args, kwargs)))
        code = subprocess.run(command(ranks, ["--call", folder]), env=environment(ranks), stdin=subprocess.DEVNULL, check=False).returncode
        failed = sorted(Path(folder).glob("error-*"), key=lambda p: p.stat().st_mtime_ns)
        if failed:
            rank = failed[0].name.removeprefix("error-")
            raise DistributedError(f"launcher: rank {rank} of {ranks} failed:\n{failed[0].read_text()}")
        results = [Path(folder, f"result-{r}") for r in range(ranks)]
        gone = [r for r, path in enumerate(results) if not path.is_file()]
        if code or gone:
            raise DistributedError(f"launcher: the processes ended with code {code}; of {ranks} ranks, {gone or 'none'} returned nothing")
        return [pickle.loads(path.read_bytes()) for path in results]  # written by our own children, in our own folder


def _in_threads(func: Callable, ranks: int, args: tuple, kwargs: dict) -> list[Any]:
    """What a function returns in each of several threads, each a rank."""
    results: list[Any] = [None] * ranks
    errors: list[tuple[int, BaseException]] = []
    ends, stream = transports(ranks), get_state()

    def run(rank: int) -> None:
        try:
            run_as_rank(ends[rank])
            own_stream(stream)
            results[rank] = func(*args, **kwargs)
        except BaseException as e:
            errors.append((rank, e))
            ends[rank].abort(1)

    workers = [threading.Thread(target=run, args=(r,), name=f"rank {r}", daemon=True) for r in range(ranks)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    if errors:
        rank, first = errors[0]
        first.add_note(f"in rank {rank} of {ranks}, a thread")
        raise first
    return results


def launcher(
    func: Callable | None = None, n_gpus: int | None = None, world_size: int | None = None, rank_start: int = 0,
    master_ip: str = "localhost", port: int = 0, device_type: str = "xpu", backend: str = "auto",
) -> Callable:  # fmt: skip
    """A decorator: calls the function in `n_gpus` processes on this machine. With one, which is the default where a machine has one
    device, and where the processes run already (`tengen run`), it is called in this process.

    The function, its arguments and its results are sent by pickle, the function with what it refers to by cloudpickle.

    Args: n_gpus: how many processes. backend: "threads" makes the ranks threads of this process, for tests; all other names mean MPI.
        world_size, rank_start, master_ip, port, device_type: MegEngine's, for several machines, which MPI's launcher starts.
    Returns: a function that gives a list with what the function returned in each process.
    Errors: DistributedError for several machines, without MPI, and with the traceback of the first process that failed.

    >>> launcher(lambda x: x + 1, n_gpus=1)(2)
    [3]
    """
    if func is None:
        return functools.partial(
            launcher, n_gpus=n_gpus, world_size=world_size, rank_start=rank_start, master_ip=master_ip, port=port,
            device_type=device_type, backend=backend,
        )  # fmt: skip
    here = get_device_count(device_type) if n_gpus is None else n_gpus
    if rank_start != 0 or (world_size or here) != here:
        raise DistributedError(
            f"launcher(n_gpus={here}, world_size={world_size}, rank_start={rank_start}): it starts the processes of one machine; help: for "
            "several, `mpiexec` or `srun` with a list of machines"
        )

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> list[Any]:
        if here == 1 or (started_by_launcher() and world().size == here):
            return [func(*args, **kwargs)]
        if started_by_launcher():
            raise DistributedError(f"launcher(n_gpus={here}): this program runs in {world().size} processes already; help: leave n_gpus out")
        return (_in_threads if backend == "threads" else _in_processes)(func, here, args, kwargs)

    return call
