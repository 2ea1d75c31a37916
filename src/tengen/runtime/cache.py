"""The disk cache of compiled code.

In: IR text and a target. Out: the object file, from disk if any process of this user compiled it before. Only this user's own
files are believed: the directory and the entries must belong to the user and be closed to others, and each entry carries a
keyed hash of its name and content, under a random key that never leaves the directory. Whatever does not fit counts as absent
and is written again. Entries are written beside and renamed, so processes never see halves of one.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import stat
import sys
import time
import warnings
from _operator import _compare_digest as compare_digest  # of `hmac`, which loads OpenSSL
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tengen.base.config import cache_home, config, expand_home
from tengen.base.digest import blake2b, sha256
from tengen.base.files import new_part
from tengen.base.record import record
from tengen.base.version import VERSION
from tengen.codegen.targets import Target, processor
from tengen.runtime import llvm
from tengen.runtime.compile import compile_object
from tengen.runtime.parallel_compile import Build
from tengen.runtime.progress import progress
from tengen.runtime.provenance import CACHE, provenance

if TYPE_CHECKING:
    from pathlib import Path

_HASH_BYTES = 32
_KEY, _LOCK = "key", "lock"
_SUFFIX = ".o"
SCHEDULES = ".s"  # suffix of the files that hold what tuning found
PROGRAMS = ".p"  # of those that hold programs: `compiler/program_record.py`
FACTS = ".t"  # of those that hold what LLVM says of this machine
_LOOKS = 64  # looks at the size of the whole cache, on average, while processes write as many bytes as it may have
TEXTS = ".l"  # of those that hold the text of a program whose good code is not there yet: `tiers.py`

MODELS = ".m"  # of those that hold the path of a model file whose program is not there yet: `deploy/unfinished.py`

_keys: dict[str, bytes] = {}  # of directories
_unusable: set[str] = set()


@record(frozen=True)
class Info:
    """What the cache holds.

    Attributes:
        path: its directory. entries, bytes: of compiled code. limit: bytes that the whole cache may have.
        schedules: files of what tuning found, one for each target and number of threads.
        programs: entries of the program cache.
    """

    path: Path
    entries: int
    bytes: int
    limit: int
    schedules: int = 0
    programs: int = 0


def directory() -> Path:
    """Where the cache is: the knob `cache_dir`, else ``tengen`` in the user's directory of caches, else one of this user in the
    system's directory of temporary files."""
    from pathlib import Path  # it loads much, and what reads the cache needs none of it

    return Path(directory_name())


def directory_name() -> str:
    """The same as a text."""
    return next((path for path, _ in _places() if path not in _unusable), "") or next(_places())[0]


def _places() -> Iterator[tuple[str, Callable[[str], os.stat_result]]]:
    """Where the cache may be, the best place first, and how to look at it. What a user names has no substitute."""
    if config.cache_dir:
        yield expand_home(config.cache_dir), os.stat
        return
    home = cache_home()
    if home is not None:
        yield f"{home}/tengen", os.stat
    yield _temporary(), os.lstat  # anybody can make a link among temporary files


@functools.cache
def _temporary() -> str:
    import tempfile  # here, because only users without a home need it

    try:
        return f"{tempfile.gettempdir()}/tengen-{os.getuid()}"
    except OSError:
        return "/tmp/tengen"  # no directory can be written: this one neither


def _private(st: os.stat_result, kind: int) -> bool:
    """Whether it is ours, of this kind, and closed to everybody else."""
    return stat.S_IFMT(st.st_mode) == kind and st.st_uid == os.getuid() and not st.st_mode & 0o077


def _ready() -> tuple[str, bytes] | None:
    """The directory and its key, made on first use; None when there can be none. What failed is said once."""
    if not config.cache:
        return None
    failed = []
    for path, look in _places():
        if path in _unusable:
            continue
        try:
            if path not in _keys:
                _make(path)
            if not _private(look(path), stat.S_IFDIR):
                raise PermissionError("it is not this user's alone (mode 0700 is needed)")
            if path not in _keys:
                _keys[path] = _load_key(path)
            place = path, _keys[path]
            break
        except (OSError, RuntimeError) as e:
            _unusable.add(path)
            failed.append(f"the cache {path} cannot be used: {e}")
    else:
        place = None
    if failed:
        instead = "kernels are compiled anew" if place is None else f"kernels are kept in {place[0]}"
        warnings.warn(f"{'; '.join(failed)}; {instead}; help: set TENGEN_CACHE_DIR", RuntimeWarning, stacklevel=3)
    return place


def _make(path: str) -> None:
    """The directory, and those above it, where they are missing."""
    if path.startswith("~"):
        raise RuntimeError("nobody knows this user's home")
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def _load_key(path: str) -> bytes:
    """The key of this cache. The first process to link its key into place decides; the rest read it."""
    for _ in range(3):
        there = os.path.lexists(f"{path}/{_KEY}")  # asked before reading: a key that appears in between is whole
        key = _read(f"{path}/{_KEY}")
        if key is not None and len(key) == _HASH_BYTES:
            return key
        if there:  # not ours, or damaged: entries under it are lost
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{path}/{_KEY}")
        part = _write_beside(path, _KEY, os.urandom(_HASH_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(part, f"{path}/{_KEY}")
        os.unlink(part)
    raise OSError("its key cannot be read back")


def _read(file: str) -> bytes | None:
    """A file's bytes, if it is a plain private file of this user's."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    with open(fd, "rb") as f:
        if not _private(os.fstat(fd), stat.S_IFREG):
            return None
        try:
            return f.read()
        except OSError:
            return None


def _write_beside(path: str, name: str, data: bytes) -> str:
    """A new private file in the directory, complete, that is to become `name`."""
    fd, part = new_part(path, name, 0o600)
    try:
        with open(fd, "wb") as f:
            f.write(data)
    except BaseException:
        os.unlink(part)
        raise
    return part


def _seal(key: bytes, name: str, data: bytes) -> bytes:
    return blake2b(name.encode() + b"\0" + data, digest_size=_HASH_BYTES, key=key).digest()


def _name(key_text: str, suffix: str = _SUFFIX) -> str:
    return sha256(key_text.encode()).hexdigest() + suffix


def stamp(key_text: str, suffix: str = _SUFFIX) -> tuple[int, ...] | None:
    """A value that changes when another entry is put under a key; None if there is no entry. It does not say whether the entry
    can be trusted, which `get` checks."""
    if not config.cache:
        return None
    try:
        st = os.stat(f"{directory_name()}/{_name(key_text, suffix)}", follow_symlinks=False)
    except OSError:
        return None
    return st.st_ino, st.st_mtime_ns, st.st_size


@contextlib.contextmanager
def locked():
    """No other process is in this block at the same time, where the cache can be used."""
    place = _ready()
    if place is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            fd = os.open(f"{place[0]}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def alone(name: str) -> Iterator[bool]:
    """Whether no other process is in such a block with this name now; False as well where the cache cannot be used."""
    place = _ready()
    with contextlib.ExitStack() as stack:
        mine = False
        with contextlib.suppress(OSError):
            if place is not None:
                fd = os.open(f"{place[0]}/{name}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                stack.callback(os.close, fd)
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mine = True
        yield mine


def get(key_text: str, suffix: str = _SUFFIX) -> bytes | None:
    """The data stored under a key, or None. Reading an entry makes it the most recently used one."""
    return get_named(_name(key_text, suffix))


def get_named(name: str) -> bytes | None:
    """The data of an entry by its file's name, such as `object_name` gives, or None. Reading it makes it the most recently used
    one."""
    place = _ready()
    if place is None:
        return None
    path, key = place
    raw = _read(f"{path}/{name}")
    if raw is None or len(raw) < _HASH_BYTES:
        return None
    data = raw[_HASH_BYTES:]
    if not compare_digest(raw[:_HASH_BYTES], _seal(key, name, data)):
        return None
    with contextlib.suppress(OSError):
        os.utime(f"{path}/{name}")
    return data


def put(key_text: str, data: bytes, suffix: str = _SUFFIX) -> None:
    """Stores data under a key. A disk that is full or gone is no error: the data is then not stored."""
    put_named(_name(key_text, suffix), data)


def put_named(name: str, data: bytes) -> None:
    """The same under an entry's file name."""
    place = _ready()
    if place is None:
        return
    path, key = place
    try:
        part = _write_beside(path, name, _seal(key, name, data) + data)
        try:
            os.replace(part, f"{path}/{name}")
        except FileNotFoundError:  # another process has emptied the cache meanwhile
            return
        except OSError:
            os.unlink(part)
            raise
    except OSError as e:
        _unusable.add(path)
        warnings.warn(f"the cache {path} cannot be written: {e}", RuntimeWarning, stacklevel=2)
        return
    if _looks(name, len(data)):
        _prune(path)


def _looks(name: str, n: int) -> bool:
    """Whether this write of n bytes looks at the size of the whole cache, which takes the longer the more entries there are: a part of
    the writes in proportion to their bytes, chosen by the entries' names, which are hashes. So what is written between two looks
    is bounded on average, however many processes write it, and a small write looks rarely."""
    return _LOOKS * n > config.cache_bytes * (int(name[:8], 16) / 2**32)


def _entries(path: str) -> list[tuple[float, int, str]]:
    """(last use, bytes, file) of every entry, and of every incomplete file that a killed process has left."""
    found = []
    with contextlib.suppress(OSError), os.scandir(path) as files:
        for f in files:
            if f.name.endswith((_SUFFIX, SCHEDULES, PROGRAMS, FACTS, TEXTS, MODELS)) or (f.name.startswith(".") and f.name.endswith(".part")):
                with contextlib.suppress(OSError):
                    st = f.stat(follow_symlinks=False)
                    found.append((st.st_mtime, st.st_size, f.path))
    return found


def _prune(path: str) -> None:
    """Removes the least recently used entries while the cache is larger than it may be."""
    found = sorted(_entries(path))
    size = sum(n for _, n, _ in found)
    for _, n, file in found:
        if size <= config.cache_bytes:
            break
        with contextlib.suppress(OSError):
            os.unlink(file)
        size -= n


def info() -> Info:
    """What the cache holds now."""
    every = _entries(directory_name())
    found = [e for e in every if e[2].endswith(_SUFFIX)]
    schedules = sum(e[2].endswith(SCHEDULES) for e in every)
    programs = sum(e[2].endswith(PROGRAMS) for e in every)
    return Info(directory(), len(found), sum(n for _, n, _ in found), config.cache_bytes, schedules, programs)


def clear() -> int:
    """Removes every entry; returns how many bytes that were. The key stays."""
    size = 0
    for _, n, file in _entries(directory_name()):
        with contextlib.suppress(OSError):
            os.unlink(file)
            size += n
    return size


def _object_key(ir_text: str, target: Target, level: int, parts: bool = True) -> str:
    import llvmlite

    made_by = [f"tengen {VERSION}", f"llvmlite {llvmlite.__version__}", target.key, str(level) if parts else f"{level} whole"]
    return "\n".join([*made_by, _digest(ir_text)])


@functools.lru_cache(maxsize=4)  # a program's text, which is asked for several times when it is made
def _digest(ir_text: str) -> str:
    return blake2b(ir_text.encode(), digest_size=32).hexdigest()


def object_name(ir_text: str, target: Target, level: int = 1) -> str:
    """The name of the entry that `compiled` makes."""
    return _name(_object_key(ir_text, target, level))


def found(ir_text: str, target: Target, level: int = 1) -> bytes | None:
    """What `compiled` has put into the cache; None if there is nothing."""
    return get(_object_key(ir_text, target, level))


def put_object(ir_text: str, target: Target, level: int, data: bytes) -> None:
    """Stores what another process has compiled, as `compiled` does."""
    put(_object_key(ir_text, target, level), data)


def text_name(object_name: str) -> str:
    """The name of the entry that has the text of which an object file is to be made."""
    return object_name.removesuffix(_SUFFIX) + TEXTS


def names(suffix: str) -> list[str]:
    """The names of all entries of a kind, the newest first."""
    found = [(used, os.path.basename(file)) for used, _, file in _entries(directory_name())]
    return [name for _, name in sorted(found, reverse=True) if name.endswith(suffix) and not name.startswith(".")]


def texts() -> list[str]:
    """The names of all entries that have the text of a program whose good code is not there yet, the newest first."""
    return names(TEXTS)


def discard(ir_text: str, target: Target, level: int) -> None:
    """Removes an entry that `compiled` has made, if it is there."""
    discard_named(object_name(ir_text, target, level))


def discard_named(name: str) -> None:
    """Removes an entry by its file's name, if it is there."""
    if config.cache:
        with contextlib.suppress(OSError):
            os.unlink(f"{directory_name()}/{name}")


def compiled(ir_text: str, target: Target, level: int = 1, parts: bool = True) -> bytes:
    """The object file of a module: from the cache, or compiled and kept.

    Args:
        parts: whether it may be several objects in one, which this process loads and no linker reads. See `Build`.
    """
    key_text = _object_key(ir_text, target, level, parts)
    data = get(key_text)
    if data is None:
        start = time.perf_counter()
        with progress.compiling(ir_text) as part_done:
            if parts:
                data = Build(ir_text, target, level, sys.modules[__name__]).finish(part_done)
            else:
                data = compile_object(ir_text, target, level)
                put(key_text, data)
        provenance.compiled(time.perf_counter() - start, "compiled quickly" if level == llvm.QUICK else "compiled")
    else:
        provenance.found(CACHE)
    return data


def _recall(identity: str, ask: Callable[[], list[str]]) -> list[str]:
    """The answer for this identity that is in the cache; if there is none, `ask` gives it, and it is stored."""
    found = get(identity, FACTS) if identity else None
    if found is not None:
        return found.decode().split("\n")
    answer = ask()
    if identity:
        put(identity, "\n".join(answer).encode(), FACTS)
    return answer


processor.answers.install(_recall)
