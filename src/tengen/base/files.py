"""The one way in which this house opens a file that a user names, to read it, and the one in which it writes one.

Reading takes regular files alone: a FIFO would block for ever, a device may do anything when it is opened. Writing goes to a
part beside, which takes the file's place when it is complete and on the disk; several files that belong together take their places so that
nobody finds some of the old among the new ones. Both take an open binary file in place of a path.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Union

from tengen.base.digest import sha256
from tengen.base.errors import FileFormatError

File = Union[str, "os.PathLike[str]", BinaryIO]
_KINDS = {
    stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip
AS_IT_WAS = "what was there is as it was"
LONGEST_NAME = 200  # bytes of a file's name that stand in the name of its part: the system's limit is 255 for all


def name_of(file: Any) -> str:
    """What messages call a path or an open file."""
    if isinstance(file, (str, bytes, os.PathLike)):
        return os.fsdecode(file)
    name = getattr(file, "name", None)
    return name if isinstance(name, str) else f"<{type(file).__name__}>"


def is_open(file: Any, method: str) -> bool:
    """Whether it is an open file, and not a path. TypeError for what is neither, or is open for text or for the other direction."""
    if isinstance(file, (str, bytes, os.PathLike)):
        return False
    if not callable(getattr(file, method, None)):
        raise TypeError(f"a path or an open binary file is needed, got a {type(file).__name__}")
    if hasattr(file, "encoding"):
        raise TypeError(f"{name_of(file)} is open as text; help: open it with 'rb' or 'wb', or take an io.BytesIO")
    return True


def _kind(st: os.stat_result) -> str:
    """What is no regular file; "" for one."""
    return "" if stat.S_ISREG(st.st_mode) else _KINDS.get(stat.S_IFMT(st.st_mode), "no regular file")


# ---- reading -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_regular(path: str | bytes | os.PathLike) -> Iterator[int]:
    """The descriptor of a regular file, open for reading while the block runs. It is looked at before it is opened and again when it
    is open, and never waited for.

    Errors: FileFormatError, which names its kind, for anything else that stands there; OSError where it cannot be read.
    """
    name = os.fspath(path)
    try:
        if kind := _kind(os.stat(name)):
            raise FileFormatError(f"{name_of(name)}: it is {kind}; only regular files are read")
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except FileFormatError:
        raise
    except ValueError as e:  # a zero byte
        raise OSError(errno.EINVAL, f"cannot read {name_of(name)!r}: {e}") from e
    try:
        if kind := _kind(os.fstat(fd)):  # another has taken its place
            raise FileFormatError(f"{name_of(name)}: it is {kind}; only regular files are read")
        yield fd
    finally:
        os.close(fd)


def read_regular(path: str | bytes | os.PathLike) -> bytes:
    """The content of a regular file; errors as `open_regular`."""
    with open_regular(path) as fd, open(fd, "rb", closefd=False) as f:
        return f.read()


# ---- writing -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def replacing(file: str | bytes | os.PathLike) -> Iterator[BinaryIO]:
    """A new binary file that takes the place of `file` when the block ends without an error, and vanishes when it does not.

    What stands there keeps its mode, owner and group; where it is a symbolic link, the file that it leads to is replaced and the
    link stays. A new file's mode follows the umask. Parts of the same file that a killed process has left are removed.

    Errors: OSError, with what was there as it was: also for what is no regular file, and where the owner cannot be kept.
    """
    part = _Part(file)
    try:
        with part.file:  # the lock on it ends when it is closed
            yield part.file
            part.complete()
            part.rename()
    except BaseException as e:
        part.discard()
        if isinstance(e, OSError):
            raise _cannot(e, part.given) from e
        raise
    _sync_names(part.folder)


@contextlib.contextmanager
def replacing_set(entry: str | bytes | os.PathLike) -> Iterator[FileSet]:
    """New files that belong together and take their places together, when the block ends without an error.

    Readers come to the others by way of one of them, the entry: the header of an object file, the index of shards. All are written beside
    first. Then the old entry is removed, the others take their places, and the new entry comes last. So where the process is killed or the
    machine stops, whoever reads finds the old files, or the new ones, or no entry, which is an error of any reader; never an entry
    with files that are not its own. A reader that opened the old entry before may still find new files.

    Args:
        entry: the path of the entry, which the block writes like the others.
    Errors: as `replacing`, with all that was there as it was. Where files cannot be renamed after they were written, the entry may be
        gone; the message says so.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with replacing_set(f"{folder}/net.h") as files:
    ...     _ = files.new(f"{folder}/net.o").write(b"code")
    ...     _ = files.new(f"{folder}/net.h").write(b"int net(void);")
    >>> sorted(os.listdir(folder))
    ['net.h', 'net.o']
    """
    files = FileSet(entry)
    try:
        yield files
        files._publish()
    except OSError as e:
        if (e.strerror or "").startswith("cannot write "):
            raise
        raise _cannot(e, name_of(entry)) from e
    finally:
        files._close()


class FileSet:
    """What `replacing_set` gives: files that are being written."""

    def __init__(self, entry: str | bytes | os.PathLike):
        self._entry = os.path.realpath(os.fsdecode(entry))
        self._parts: list[_Part] = []
        self._old: list[str] = []

    def new(self, file: str | bytes | os.PathLike) -> BinaryIO:
        """A new binary file that is to take the place of `file`. It is closed with the set."""
        self._parts.append(_Part(file))
        return self._parts[-1].file

    def remove(self, file: str | bytes | os.PathLike) -> None:
        """Has a file that belongs to the old set alone removed, when the old entry is gone; one that is not there is none."""
        self._old.append(os.path.abspath(os.fsdecode(file)))

    def _publish(self) -> None:
        """Has all files on the disk, and then under their names."""
        others = [p for p in self._parts if p.path != self._entry]
        entries = [p for p in self._parts if p.path == self._entry]
        if len(entries) != 1:
            raise ValueError(f"the set of files has no entry {self._entry}")
        for part in self._parts:
            try:
                part.complete()
            except OSError as e:
                raise _cannot(e, part.given) from e
        with _alone_in(entries[0].folder):
            try:
                self._rename(entries[0], others)
            except OSError as e:
                gone = not os.path.exists(self._entry) and (others or self._old)
                left = f"{self._entry} was removed before; help: write all again" if gone else AS_IT_WAS
                raise _cannot(e, self._entry, left) from e

    def _rename(self, entry: _Part, others: Sequence[_Part]) -> None:
        if others or self._old:
            _remove(self._entry)
            _sync_names(entry.folder)  # no other name is on the disk before this one is gone from it
        for file in self._old:
            _remove(file)
        for part in others:
            part.rename()
        for folder in sorted({p.folder for p in others}):
            _sync_names(folder)
        entry.rename()
        _sync_names(entry.folder)

    def _close(self) -> None:
        """Removes what has not taken its place, and closes all."""
        for part in self._parts:
            part.discard()


class _Part:
    """A new file beside the one whose place it is to take, locked until it is closed.

    Attributes:
        given: the other one, as messages call it. path: where it is, behind symbolic links. folder: that of both. file: the new one, open.
    """

    def __init__(self, file: str | bytes | os.PathLike):
        self.given = name_of(file)
        try:
            self.path = os.path.realpath(os.fsdecode(file))
            self.folder, name = os.path.split(self.path)
            self._old = _standing(self.path)
            _remove_dead_parts(self.folder, name)
            fd, part = new_part(self.folder, name, 0o666 if self._old is None else 0o600)
        except (OSError, ValueError) as e:
            raise _cannot(e, self.given) from e
        self._part: str | None = part
        self.file: BinaryIO = open(fd, "wb")

    def complete(self) -> None:
        """Has all of it on the disk, with the mode and owner of the other one."""
        self.file.flush()
        if self._old is not None:
            _keep_owner_and_mode(self.file.fileno(), self._old)
        os.fsync(self.file.fileno())

    def rename(self) -> None:
        assert self._part is not None
        os.replace(self._part, self.path)
        self._part = None

    def discard(self) -> None:
        """Closes it, and removes it where it has not taken the other one's place."""
        with contextlib.suppress(OSError):  # of what could not be written
            self.file.close()
        if self._part is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._part)
            self._part = None


def _remove(file: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(file)


@contextlib.contextmanager
def _alone_in(folder: str) -> Iterator[None]:
    """No other set of files is put in its place in this folder meanwhile, where the file system has locks."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # one may write into a folder that one may not read
            fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            _lock(fd, wait=True)
        yield


def _sync_names(folder: str) -> None:
    """Has the names in a folder on the disk; some file systems cannot."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def replace_folder(part: str, folder: str, remove: Callable[[str], None] | None = None) -> None:
    """Gives a complete folder the name of another one, which is removed. remove: does so, given a path; default: at once.

    The two exchange their names in one step. Where the file system has none (NFS, say), the old folder is `<name>.old` for an instant before
    the new one has its name. Both stand in the same folder, whose names are on the disk afterwards.

    Errors: OSError, with the old folder under its name, or under `<name>.old`
    """
    import shutil  # which imports compressors: what `import tengen` needs does without them

    old = f"{folder}.old"
    if not os.path.isdir(folder):  # `old` may be all that there is
        os.rename(part, folder)
    elif not _exchange(part, folder):
        shutil.rmtree(old, ignore_errors=True)
        os.rename(folder, old)
        os.rename(part, folder)
    _sync_names(os.path.dirname(folder) or ".")
    for rest in (part, old):  # what cannot be removed now is removed next time: the new one has its name
        if remove is None:
            shutil.rmtree(rest, ignore_errors=True)
        elif os.path.isdir(rest):
            remove(rest)


def _exchange(one: str, other: str) -> bool:
    """Exchanges the names of two files or folders, with Linux's `renameat2`. Whether system and file system can."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), other)


def _standing(path: str) -> os.stat_result | None:
    """What `path` is now; None for nothing. OSError for what is no regular file."""
    try:
        st = os.stat(path)
    except FileNotFoundError:
        return None
    if kind := _kind(st):
        code = errno.EISDIR if stat.S_ISDIR(st.st_mode) else errno.EINVAL
        raise OSError(code, f"it is {kind}; only regular files are replaced")
    return st


def _keep_owner_and_mode(fd: int, old: os.stat_result) -> None:
    new = os.fstat(fd)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(fd, old.st_uid if new.st_uid != old.st_uid else -1, old.st_gid if new.st_gid != old.st_gid else -1)
        except PermissionError as e:
            whose = f"user {old.st_uid} and group {old.st_gid}"
            raise OSError(
                e.errno, f"it belongs to {whose}, which a new file cannot; help: remove it first, or take another name"
            ) from e
    os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o777)


def _cannot(e: OSError | ValueError, name: str, left: str = AS_IT_WAS) -> OSError:
    """The error with the file, and what is left, in the message; the class follows the number."""
    code = getattr(e, "errno", None) or errno.EINVAL
    return OSError(code, f"cannot write {name}: {getattr(e, 'strerror', None) or e}; {left}")


def new_part(folder: str, name: str, mode: int) -> tuple[int, str]:
    """A new, empty file in a folder, to be written and renamed to `name`: its descriptor, which holds a lock, and its path. `mode`
    is less what the umask says: the system takes that off for this file alone."""
    for _ in range(100):
        part = os.path.join(folder, f"{_prefix(name)}{os.urandom(8).hex()}.part")
        try:
            fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        except FileExistsError:
            continue
        _lock(fd, wait=True)
        if os.fstat(fd).st_nlink:  # nobody has taken it for dead before it was locked
            return fd, part
        os.close(fd)
    raise OSError(errno.EEXIST, "no name beside it is free")


def _prefix(name: str) -> str:
    """How the names of the parts of a file begin."""
    whole = os.fsencode(name)
    return f".{name}." if len(whole) <= LONGEST_NAME else f".{sha256(whole).hexdigest()}."


def _lock(fd: int, wait: bool) -> bool:
    """Locks a part, for as long as the descriptor is open: the system lets go of it when the process dies. Whether it could."""
    import fcntl  # only what writes needs it

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # held by another, or a file system without locks
        return False
    return True


def _remove_dead_parts(folder: str, name: str) -> None:
    """Removes the parts of a file that nobody holds a lock on: whoever wrote them is gone."""
    mine = re.compile(re.escape(_prefix(name)) + r"[0-9a-f]{16}\.part")
    entries: list[str] = []
    with contextlib.suppress(OSError):  # one may write into a folder that one may not list
        entries = [entry for entry in os.listdir(folder) if mine.fullmatch(entry)]
    for entry in entries:
        with contextlib.suppress(OSError):
            fd = os.open(os.path.join(folder, entry), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                if not _kind(os.fstat(fd)) and _lock(fd, wait=False):
                    os.unlink(os.path.join(folder, entry))
            finally:
                os.close(fd)


class Counted:
    """An open binary file to write to, that counts its bytes and writes all of what it is given."""

    def __init__(self, file: BinaryIO):
        self.file, self.bytes = file, 0

    def write(self, data: bytes | memoryview) -> None:
        """Writes all of it, in as many parts as the file takes. TypeError where the file takes text."""
        rest = memoryview(data).cast("B")
        while rest:
            try:
                n = self.file.write(rest)
            except TypeError as e:
                raise TypeError(
                    f"{name_of(self.file)} does not take bytes ({e}); help: open it with 'wb', or take an io.BytesIO"
                ) from e
            if n is None and isinstance(self.file, io.RawIOBase):
                raise BlockingIOError(errno.EAGAIN, f"cannot write {name_of(self.file)}: it takes no more now")
            if type(n) is int and not 0 < n <= len(rest):
                raise OSError(errno.EIO, f"cannot write {name_of(self.file)}: it took {n} of {len(rest)} bytes")
            done = n if type(n) is int else len(rest)  # some say nothing, and have written all
            self.bytes += done
            rest = rest[done:]


@contextlib.contextmanager
def writing(file: File) -> Iterator[Counted]:
    """What takes the bytes of a new file: one that replaces a path, or an open file from where it stands."""
    if is_open(file, "write"):
        yield Counted(file)  # type: ignore[arg-type]  # by is_open
    else:
        with replacing(file) as f:  # type: ignore[arg-type]  # by is_open
            yield Counted(f)
