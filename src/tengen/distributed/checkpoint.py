"""Checkpoints that several processes write together, and that any number of processes reads.

A checkpoint is a folder. What is in it are whole, logical values: of all large arrays, one after another, process r writes the r-th of R parts,
and rank 0 the rest, with a manifest that tells of each file whether it is the one that was written. So most arrays are one process's alone: the
others need not keep what they hold of them while theirs is written.

    run.tgc/manifest.json   version, number of processes, files with sizes and hashes of their headers, which have the SHA-256 of the whole
    run.tgc/values          what `tengen.save` writes: states with a `_Piece` for each large array
    run.tgc/arrays-0 ...    the pieces of each process, by the number of the array

The folder is written beside the one that it replaces and takes its name in one step when it is whole, so that a process that is killed at any
moment leaves the old checkpoint or the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tengen.base.errors import DistributedError, FileFormatError, UsageWarning, warn_once
from tengen.base.files import read_regular, replace_folder, replacing
from tengen.compiler.arrays import stays
from tengen.distributed.data_parallel import sample
from tengen.serialization import load, restore, save, states_of
from tengen.tensor import Tensor
from tengen.transport.group import WORLD, Group

VERSION = 2  # 1: its hashes are of whole files
HEADER = 100 << 20  # bytes of a header at most
NICENESS = 10  # of the thread that writes beside the training, whose steps go before it
LARGE = 4096  # bytes from which an array is written in pieces
_MARK = "tengen_piece"
_removing: list[threading.Thread] = []  # what removes folders that were replaced


def _hash(path: Path, version: int = VERSION) -> str:
    """What tells one file from another: the BLAKE2b of its header, which has the SHA-256 of all of it, and which `load` compares."""
    with path.open("rb") as f:
        if version == 1:
            return hashlib.file_digest(f, "blake2b").hexdigest()
        first = f.read(8)
        return hashlib.blake2b(first + f.read(min(int.from_bytes(first, "little"), HEADER))).hexdigest()


def _without_arrays(value: Any, found: dict[str, np.ndarray], copies: bool, path: str = "") -> Any:
    """The value with a mark in place of each large array, which is added to `found` under what leads to it. copies: whether small arrays that
    the program may change are copied."""
    if isinstance(value, Tensor):
        value = value.numpy()
    if isinstance(value, np.ndarray) and value.nbytes >= LARGE:
        found[path] = value
        return {_MARK: len(found) - 1, "shape": list(value.shape), "dtype": value.dtype.name}
    if isinstance(value, dict):
        return {k: _without_arrays(v, found, copies, f"{path}.{k}" if path else str(k)) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_without_arrays(v, found, copies, f"{path}[{i}]") for i, v in enumerate(value)]
        return parts if isinstance(value, list) else tuple(parts)
    return value.copy() if copies and isinstance(value, np.ndarray) and not stays(value) else value


def _with_arrays(value: Any, array: Callable[[dict], np.ndarray]) -> Any:
    """The value with the arrays that marks stand for."""
    if isinstance(value, dict):
        return array(value) if _MARK in value else {k: _with_arrays(v, array) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_with_arrays(v, array) for v in value]
        return parts if isinstance(value, list) else tuple(parts)
    return value


class Saving:
    """A checkpoint that is being written in a thread.

    Args: run: writes this process's part. finish: what is left to do then, together with the other processes, given the error that
        `run` raised or None.
    """

    def __init__(self, run: Callable[[], None], finish: Callable[[BaseException | None], None], name: str):
        self._error: BaseException | None = None
        self._finish, self._name, self._waited = finish, name, False

        def guarded() -> None:
            try:
                if sys.platform == "linux":  # where a thread has a niceness of its own
                    with contextlib.suppress(OSError):  # a sandbox may refuse it
                        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
                run()
            except BaseException as e:
                self._error = e

        self._thread = threading.Thread(target=guarded, name="checkpoint", daemon=False)
        self._thread.start()

    def done(self) -> bool:
        """Whether this process has written its part."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Returns once the checkpoint is whole; all processes call it together. Errors: OSError for a full disk and the like, in every
        process."""
        self._thread.join()
        self._waited = True
        self._finish(self._error)

    def __del__(self) -> None:
        if not self._waited:
            warn_once(f"the checkpoint {self._name} was not finished, and is no checkpoint; help: call wait() of what began it", UsageWarning)


def _part(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.part")


def save_checkpoint(folder: str | os.PathLike, /, *, group: Group = WORLD, **parts: Any) -> None:
    """Writes the state of a training run, which `load_checkpoint` gives back to any number of processes, also to one.

    Args: folder: where; all processes see it. It is replaced whole. group: the processes that write. parts: what
        `tengen.serialization.save_checkpoint` takes, the same in all processes; the states of generators are written too.
    Errors: OSError in every process where one of them could not write; the checkpoint that was there stays.

    >>> import os, tempfile
    >>> from tengen import distributed as dist, module as M
    >>> net = M.Linear(64, 64)
    >>> folder = os.path.join(tempfile.mkdtemp(), "run.tgc")
    >>> dist.save_checkpoint(folder, net=net, epoch=3)
    >>> dist.load_checkpoint(folder, net=net)
    {'epoch': 3}
    """
    _Writer(Path(folder), group, parts).write()


def save_checkpoint_async(folder: str | os.PathLike, /, *, group: Group = WORLD, **parts: Any) -> Saving:
    """`save_checkpoint` of the values of this moment, in a thread beside the training.

    The values of this moment are held before it returns, without a copy where they are in tensors' own memory: the next step that would write
    there takes other memory, so that values are there twice until the file is written, as with a copy. All processes call `wait` before
    the next checkpoint, together: there they learn whether all parts are there, and the folder gets its name.
    """
    writer = _Writer(Path(folder), group, parts, copies=True)
    return Saving(writer.write_own, writer.finish, str(folder))


def _compare(named: Mapping[str, np.ndarray], group: Group) -> None:
    """Errors: DistributedError where an array, of which each process writes a piece, has another value in one of them, by 64 elements."""
    mine = np.array([sample(a) for a in named.values()], "S16").view(np.uint8)
    if not mine.size:
        return
    every = group.channel.all_gather(mine, [mine.size] * group.size, "digests of arrays").reshape(group.size, len(named), -1)
    for i, name in enumerate(named):
        if (every[:, i] != every[0, i]).any():
            raise DistributedError(
                f"save_checkpoint: {name} has another value in each process, of which a checkpoint holds one; help: "
                "dist.bcast_list_(list(net.tensors())), net.states_of(opt) of a pipeline, or save it in one process"
            )


def _shares(arrays: Sequence[np.ndarray], group: Group) -> list[slice]:
    """The elements of each array that this process writes: of the bytes of all, one after another, its part, cut between elements."""
    total, before, found = sum(a.nbytes for a in arrays), 0, []
    for a in arrays:
        at = [min(max(total * r // group.size - before, 0), a.nbytes) // a.itemsize for r in (group.rank, group.rank + 1)]
        found.append(slice(*at))
        before += a.nbytes
    return found


class _Writer:
    """One process's part of a checkpoint."""

    def __init__(self, folder: Path, group: Group, parts: Mapping[str, Any], copies: bool = False):
        self.folder, self.group, self.rank = folder, group, group.rank
        self.part, self.beside = _part(folder), copies
        named: dict[str, np.ndarray] = {}
        self.values = _without_arrays(states_of(parts), named, copies)
        arrays = list(named.values())
        self.own = {}
        self.rows: dict[str, dict[str, Any]] = {}  # of the files, for the manifest
        for i, (a, own) in enumerate(zip(arrays, _shares(arrays, group))):
            piece = np.ascontiguousarray(a).reshape(-1)[own] if own.start < own.stop else np.empty(0, a.dtype)  # which holds nothing
            self.own[str(i)] = piece.copy() if copies and not stays(piece) else piece
        if group.size > 1:
            group.channel.agree_on(f"checkpoint {folder.name}", [f"{name}: {a.dtype.name}{list(a.shape)}" for name, a in named.items()])
            _compare(named, group)
        self._together(self._begin)

    def _together(self, work: Callable[[], None] | None, error: BaseException | None = None) -> None:
        """Rank 0 does something, then all go on, or all raise."""
        if error is None and work is not None and self.rank == 0:
            try:
                work()
            except Exception as e:  # the others wait to hear of it
                error = e
        self._all_well(error)

    def _all_well(self, error: BaseException | None) -> None:
        """Raises in every process where one has an error."""
        if self.group.size > 1:
            failed = self.group.channel.all_gather(np.array([error is not None], np.uint8), [1] * self.group.size, "how a checkpoint went")
            if failed.any() and error is None:
                who = self.group.proc_ranks[int(failed.argmax())]
                error = OSError(f"the checkpoint {self.folder} was not written: rank {who} failed; the one before stays")
        if error is not None:
            raise error

    def _begin(self) -> None:
        while _removing:
            _removing.pop().join()
        if self.part.exists():  # of a process that was killed
            shutil.rmtree(self.part)
        self.part.mkdir(parents=True)

    def write_own(self) -> None:
        """Writes this process's files, and notes what is in them."""
        for name, content in {f"arrays-{self.rank}": self.own, **({"values": self.values} if self.rank == 0 else {})}.items():
            path = self.part / name
            save(content, path)
            self.rows[name] = {"bytes": path.stat().st_size, "blake2b": _hash(path)}

    def write(self) -> None:
        """Writes it all, together with the other processes."""
        error: BaseException | None = None
        try:
            self.write_own()
        except BaseException as e:
            error = e
        self.finish(error)

    def finish(self, error: BaseException | None) -> None:
        """Gives the folder its name, once all processes have written their files. Where one could not, their files are removed: the disk may
        be full."""
        try:
            self._all_well(error)
        except BaseException:
            if self.rank == 0:
                shutil.rmtree(self.part, ignore_errors=True)
            raise
        self._join_rows()
        self._together(self._publish)

    def _join_rows(self) -> None:
        """All processes know what is in every process's file of arrays."""
        size, name = self.group.size, f"arrays-{self.rank}"
        if size > 1:
            row = self.rows[name]
            mine = np.frombuffer(row["bytes"].to_bytes(8, "little") + bytes.fromhex(row["blake2b"]), np.uint8)
            every = self.group.channel.all_gather(mine, [mine.size] * size, "files of a checkpoint").reshape(size, -1)
            for r, one in enumerate(map(bytes, every)):
                self.rows[f"arrays-{r}"] = {"bytes": int.from_bytes(one[:8], "little"), "blake2b": one[8:].hex()}

    def _publish(self) -> None:
        manifest = {"version": VERSION, "processes": self.group.size, "files": dict(sorted(self.rows.items()))}
        with replacing(self.part / "manifest.json") as f:  # its name is on the disk before the folder's is
            f.write(json.dumps(manifest, indent=1).encode())
        replace_folder(str(self.part), str(self.folder), self._remove_beside if self.beside else None)

    def _remove_beside(self, path: str) -> None:
        """Removes the folder that was replaced, in a thread: that takes .2 s for 1 GB."""
        work = threading.Thread(target=shutil.rmtree, args=(path, True), name="old checkpoint")
        _removing.append(work)
        work.start()


def _standing(folder: Path) -> Path:
    """The folder, or the one before it where a process was killed between two renames."""
    old = folder.with_name(f"{folder.name}.old")
    return old if not folder.exists() and old.exists() else folder


def has_checkpoint(folder: str | os.PathLike) -> bool:
    """Whether `load_checkpoint` finds one there: under its own name, or, on file systems that cannot exchange two names in one step, under
    `<name>.old`, where a process was killed between two renames.

    >>> from tengen import distributed as dist
    >>> dist.has_checkpoint("no such folder")
    False
    """
    return (_standing(Path(folder)) / "manifest.json").exists()


def _manifest(folder: Path) -> dict[str, Any]:
    """What the manifest says, after a look at all files' headers. Errors: FileFormatError."""
    try:
        said = json.loads(read_regular(folder / "manifest.json"))
        version, ranks, files = said["version"], said["processes"], said["files"]
        fits = version in (1, VERSION) and isinstance(ranks, int) and len(files) == ranks + 1
        if not fits or set(files) != {"values", *(f"arrays-{r}" for r in range(ranks))} or ranks < 1:
            raise ValueError(f"version {version!r} with the files {sorted(files)[:4]}")
        for name, row in files.items():
            path = folder / name
            if path.is_symlink() or path.stat().st_size != row["bytes"] or _hash(path, version) != row["blake2b"]:
                raise ValueError(f"{name} is not what was written")
    except FileNotFoundError as e:
        raise FileFormatError(f"{folder}: it is no whole checkpoint of several processes: {e.filename} is not there") from e
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise FileFormatError(f"{folder}: its manifest does not fit: {e}") from e
    return said


def load_checkpoint(folder: str | os.PathLike, /, *, random_state: bool = True, **parts: Any) -> dict[str, Any]:
    """Gives objects the states that `save_checkpoint` wrote, whatever the number of processes then and now.

    Returns: by name, the plain values, and the states of objects that were not given.
    Errors: those of `tengen.serialization.load_checkpoint`; FileFormatError for a folder with files that are missing, or not what was
        written.
    """
    where = _standing(Path(folder))
    said = _manifest(where)
    stored = [load(where / f"arrays-{r}") for r in range(said["processes"])]

    def array(mark: dict) -> np.ndarray:
        try:
            rows = [part[str(mark[_MARK])] for part in stored]
            found = np.concatenate([r.numpy() if isinstance(r, Tensor) else r for r in rows]).reshape(mark["shape"])
            if found.dtype.name != mark["dtype"]:
                raise ValueError(f"it is of {found.dtype}, not of {mark['dtype']}")
            return found
        except (KeyError, ValueError, TypeError) as e:
            raise FileFormatError(f"{where}: array {mark.get(_MARK)!r} does not fit: {e}") from e

    return restore(str(where), _with_arrays(load(where / "values"), array), random_state, parts)
