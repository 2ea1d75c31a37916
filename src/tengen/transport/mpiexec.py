"""Starts the processes of a job through MPI's own `mpiexec`, and says which one was lost.

Each process leaves word in a folder of the job: `pid-R` when it begins, `done-R` when its program has ended well, `error-R` when the
program has ended itself, with the reason, and `waited-R` when another process did not come.
"""

from __future__ import annotations

import importlib.util
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tengen.base.errors import DistributedError

JOB = "_TENGEN_JOB"  # the environment's name of the job's folder
GRACE = 3.0  # seconds in which mpiexec ends the others by itself when one is lost; of one that leaves with code 0 it sometimes does not
LOOK = 0.02  # seconds between two looks for processes that have begun, until all have

PF_EXITING = 4  # of the flags in /proc/PID/stat
UNKNOWN = -1  # the status of a process that somebody has waited for


def find_mpiexec() -> list[str]:
    """The command of MPI's launcher: the one beside this Python, else the first on the path; with what lets it start more processes
    than cores. Errors: DistributedError where there is none, or no mpi4py."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.is_file() else shutil.which("mpiexec")
    if found is None or importlib.util.find_spec("mpi4py") is None:
        missing = "mpiexec" if found is None else "mpi4py"
        raise DistributedError(f"several processes need MPI, and {missing} is not installed; help: pip install 'tengen[dist]'")
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    if "open mpi" in said.lower() or "prte" in said.lower() or "openrte" in said.lower():
        return [found, "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
    return [found]


def environment(ranks: int) -> dict[str, str]:
    """The environment of a rank: this process's modules can be imported, and the ranks share the cores."""
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    if "TENGEN_NUM_THREADS" not in env:
        env["TENGEN_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // ranks))
    return env


def command(ranks: int, arguments: Sequence[str]) -> list[str]:
    """The command that starts the ranks, each `tengen.distributed.rank` with these arguments."""
    if ranks < 1:
        raise DistributedError(f"{ranks} processes: at least one is needed")
    return [*find_mpiexec(), "-n", str(ranks), sys.executable, "-m", "tengen.distributed.rank", *arguments]


def run_program(program: str, arguments: Sequence[str], ranks: int, least: int | None = None) -> int:
    """Runs a program of Python in several processes. Returns: the exit code, 0 where all ended well.

    Args: least: where it is given, a job of which a process is lost is started again with one process less, down to this number; the
        program goes on from its last checkpoint. A job whose program ends with an error of its own is not started again.
    Errors: DistributedError without MPI, and for a `least` that is no number of processes; FileNotFoundError for a program that is not
        there.
    """
    if not Path(program).is_file():
        raise FileNotFoundError(2, "there is no such program", program)
    if least is not None and not 1 <= least <= ranks:
        raise DistributedError(f"an elastic job of {ranks} processes, at least {least}: a number from 1 to {ranks} is needed")
    while True:
        with tempfile.TemporaryDirectory(prefix="tengen-job-") as folder:
            process = subprocess.Popen(command(ranks, ["--program", program, *arguments]), env={**environment(ranks), JOB: folder})
            try:
                with _ended_by_sigterm():
                    lost = _first_lost(process.pid, Path(folder), ranks)
                    code = process.wait()
            except BaseException as e:
                _end(process, knows=isinstance(e, KeyboardInterrupt))  # from a terminal mpiexec gets an interrupt, too
                raise
            errors, waited = _said(Path(folder), "error"), _said(Path(folder), "waited")
        if code == 0 and not lost:
            return code
        code = code or 1  # of one that left the others by os._exit(0), mpiexec thinks well
        what = waited[0].partition(": ")[2] if waited else f"{_ranks(lost)} lost" if lost else "a process was lost"
        if least is None or errors or ranks == least:
            if least is not None:
                why = f"the program has ended itself ({errors[0]})" if errors else f"{what}, and {least} processes are the least"
                print(f"tengen run: the job ended with code {code}, and is not started again: {why}", file=sys.stderr, flush=True)
            elif not errors and not waited and lost:
                print(f"tengen run: {what} (code {code}): it was killed, has crashed, or has left by os._exit", file=sys.stderr, flush=True)
            return code
        ranks -= 1
        print(f"tengen run: {what} (code {code}); the job starts again with {ranks}", file=sys.stderr, flush=True)


def leave_word(kind: str, rank: int, text: str) -> None:
    """What a process of a job tells `run_program`."""
    if folder := os.environ.get(JOB):
        part = Path(folder, f".{kind}-{rank}")
        with suppress(OSError):  # the folder is gone: nobody listens
            part.write_text(text)
            part.rename(Path(folder, f"{kind}-{rank}"))


def _said(folder: Path, kind: str) -> list[str]:
    """The words of a kind, the first one first."""
    found = sorted(folder.glob(f"{kind}-*"), key=lambda p: p.stat().st_mtime_ns)
    return [f"rank {p.name.rpartition('-')[2]}: {p.read_text()}" for p in found]


def _ranks(lost: Sequence[int]) -> str:
    return f"rank {lost[0]} was" if len(lost) == 1 else f"one of the ranks {', '.join(map(str, lost))} was"


def _first_lost(pid: int, folder: Path, ranks: int) -> list[int]:
    """Waits until the process of mpiexec has ended. Returns: the ranks whose processes were the first to end without a word; mpiexec ends
    the others then, or is told to. Several where they ended at once."""
    try:
        job = os.pidfd_open(pid)
    except OSError:  # a kernel, or a container, that has no such call
        return []
    poll, lost = select.poll(), list[int]()
    rank_of: dict[int, int] = {}
    poll.register(job, select.POLLIN)
    ended, silent, seen = False, list[int](), set[int]()
    due = math.inf  # when mpiexec is told to end the others
    try:
        while True:
            gone = []
            for path in folder.glob("pid-*"):
                rank = int(path.name.removeprefix("pid-"))
                if rank in rank_of.values():
                    continue
                try:
                    fd = os.pidfd_open(int(path.read_text()))
                    poll.register(fd, select.POLLIN)
                except ProcessLookupError:
                    fd = -1 - rank  # it has ended already
                    gone.append(fd)
                rank_of[fd] = rank
            at_once = gone or ended or (silent and not lost)
            wait = 0 if at_once else LOOK if len(rank_of) < ranks else max(0.0, due - time.monotonic())
            ready = [fd for fd, _ in poll.poll(None if wait == math.inf else math.ceil(1000 * wait))]
            over = {*gone, *ready} - {job}
            for fd in over:
                if fd >= 0:
                    poll.unregister(fd)
            known = bool(silent) or len(rank_of) == ranks  # else one that is not known yet may have ended before: it looks once more
            if over and not silent:  # mpiexec sees closed files, and may end the others before the lost one has ended for good
                over |= {fd for fd, rank in rank_of.items() if fd not in seen and _exit_status(folder, rank) is not None}
            silent += [rank_of[fd] for fd in over - seen if not _has_word(folder, rank_of[fd])]
            seen |= over
            if len(silent) > 1 and not lost:  # one that has left by itself was not ended by mpiexec
                silent = [rank for rank in silent if _exit_status(folder, rank) not in (None, UNKNOWN, signal.SIGKILL)] or silent
            if not lost and silent and (known or ended):
                lost, due = sorted(silent), time.monotonic() + GRACE
            if time.monotonic() >= due and not ended and job not in ready:
                os.kill(pid, signal.SIGTERM)
                due = math.inf
            if ended:
                return lost
            ended = job in ready  # then once more, for what has begun and ended since the last look
    finally:
        for fd in [job, *(fd for fd in rank_of if fd >= 0)]:
            os.close(fd)


def _exit_status(folder: Path, rank: int) -> int | None:
    """The status, as of `wait`, of a rank's process that has ended or has begun to exit; UNKNOWN when nothing is left of it. None while it
    runs. The kernel closes a process's files before it tells anyone that the process has ended."""
    with suppress(OSError, ValueError, IndexError):
        stat = Path("/proc", Path(folder, f"pid-{rank}").read_text(), "stat").read_text().rpartition(")")[2].split()
        return int(stat[-1]) if int(stat[6]) & PF_EXITING else None
    return UNKNOWN


def _has_word(folder: Path, rank: int) -> bool:
    return any(Path(folder, f"{kind}-{rank}").exists() for kind in ("done", "error", "waited"))


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """A block that SIGTERM leaves with an exception, so that no rank outlives the command."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(process: subprocess.Popen, knows: bool) -> None:
    """Ends mpiexec, which ends the ranks. knows: whether it ends already, perhaps."""
    for end in (lambda: None, process.terminate, process.kill)[not knows :]:
        end()
        try:
            process.wait(2)
            return
        except subprocess.TimeoutExpired:
            continue
