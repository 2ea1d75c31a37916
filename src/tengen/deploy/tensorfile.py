"""Files of named tensors in the safetensors format, written safely and read strictly.

In: arrays by name and a table of texts. Out: one file, or its content again. The format is 8 bytes with the header's length, a
JSON header (name -> dtype, shape, begin and end of the data), and the data without holes. The header is written here and not by
the safetensors library, which aligns tensors to 8 bytes and needs a second copy of all data; what the library reads is the
same. Here tensors begin on 64 bytes: between them lie U8 tensors named ``__padding.N``. The format has no complex128: those are F64 with an
axis of pairs behind, and their names stand in the text ``tengen.complex128``, a JSON list.

The checksum is SHA-256 over the whole file with 64 zeros in its own place. Reading maps the file: arrays show the file's bytes.
Of a long file that has passed, the cache keeps the checksum, under what the system says of the file: device, inode, size, time of the last
change of content, and time of the last change of any kind (ctime), which no program can set back. As long as all of that is the same, this
user's later processes do not compute it again; the knob `check` has it computed each time.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar, overload

import numpy as np

from tengen.base.config import config
from tengen.base.digest import sha256_of_much
from tengen.base.dtype import DType, bool_, complex128, dtype
from tengen.base.errors import FileFormatError, SizeError
from tengen.base.files import File, is_open, name_of, open_regular, writing
from tengen.base.record import record
from tengen.base.version import VERSION
from tengen.ir.plain_json import load_json, weigh
from tengen.ir.types import check_size
from tengen.runtime import cache, mapped
from tengen.runtime.environment import SETTLED_S

ALIGN = 64
PIECE = 64 << 20  # bytes whose checksum is computed before their pages are given back, for which the thread waits for the interpreter
HEADER_LIMIT = 100_000_000  # bytes, as in the safetensors library
WIDE_LIMIT = 8_000_000  # bytes of one that is not ASCII
PADDING = "__padding."
NO_SUM = "0" * 64
LONG = 4 << 20  # bytes of a file whose checksum is worth a thread: SHA-256 of them takes 2 to 10 ms
PAIRS = "tengen.complex128"  # the text that names tensors of complex128
CODES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
    "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool", "C64": "complex64",
}  # fmt: skip
# runs in the other framework's environment
CONVERTER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "interop", "migrate", "to_safetensors.py")
NAMES = {name: code for code, name in CODES.items()}
T = TypeVar("T")
Sum = tuple[bool, threading.Thread | None, Callable[[], None]]


# ---- writing -----------------------------------------------------------------------------------------------------------


def write_tensors(file: File, arrays: Mapping[str, np.ndarray], texts: Mapping[str, str], padded: bool = True) -> int:
    """Writes a file of tensors; returns its size in bytes.

    It is written beside, flushed to the disk and renamed, so that `file` is the old one or the new one, never half of one.

    Args:
        file: a path, or a file that is open for writing bytes. texts: go into the header; `tengen` (the version) and `checksum` are added.
            padded: each tensor begins on 64 bytes; without, there are no tensors of padding between them, which others would read.
    Errors: OSError (disk full, no permission), with the old file as it was. ValueError for names that cannot be kept, and for
    what would not be read again.
    """
    header = _header(arrays, texts, padded)
    digest = sha256_of_much(header)
    for part in _data(arrays, padded):
        digest.update(part)
    header = header.replace(f'"{NO_SUM}"'.encode(), f'"{digest.hexdigest()}"'.encode(), 1)  # a tensor may be called so
    with writing(file) as f:
        f.write(header)
        for part in _data(arrays, padded):
            f.write(part)
        return f.bytes


def _header(arrays: Mapping[str, np.ndarray], texts: Mapping[str, str], padded: bool) -> bytes:
    for own in ("checksum", PAIRS):
        if own in texts:
            raise ValueError(f"`{own}` is not a text to be given")
    wide = [name for name, a in arrays.items() if a.dtype == np.complex128]
    pairs = {PAIRS: json.dumps(wide)} if wide else {}
    table: dict[str, Any] = {"__metadata__": {"checksum": NO_SUM, **texts, **pairs, "tengen": VERSION}}
    at = 0
    for i, (name, a) in enumerate(arrays.items()):
        if name.startswith("__"):
            raise ValueError(f"a tensor cannot be named {name!r}: names that begin with __ belong to the format")
        d = dtype(a.dtype)
        check_size(a.shape, d)
        code, shape = ("F64", [*a.shape, 2]) if d is complex128 else (NAMES[d.name], list(a.shape))
        table[name] = {"dtype": code, "shape": shape, "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
        if padded and (gap := -at % ALIGN):
            table[f"{PADDING}{i}"] = {"dtype": "U8", "shape": [gap], "data_offsets": [at, at + gap]}
            at += gap
    text = json.dumps(table, separators=(",", ":"), allow_nan=False)
    if len(text) > HEADER_LIMIT - ALIGN:
        raise ValueError(f"the file's header would have {len(text)} bytes, the format allows {HEADER_LIMIT}")
    try:
        weigh(text, at)
    except FileFormatError as e:
        raise ValueError(f"the file could not be read again: {e}") from None
    raw = text.encode()
    raw += b" " * (-(8 + len(raw)) % ALIGN)
    return len(raw).to_bytes(8, "little") + raw


def _data(arrays: Mapping[str, np.ndarray], padded: bool) -> Iterator[memoryview | bytes]:
    for a in arrays.values():
        raw = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
        yield memoryview(raw if a.dtype != np.bool_ or not raw.size or raw.max() < 2 else raw != 0).cast("B")  # NumPy's true is any
        yield bytes(-a.nbytes % ALIGN if padded else 0)


# ---- reading -----------------------------------------------------------------------------------------------------------


@record
class TensorFile:
    """A file of tensors that has been checked. arrays: by name, read-only, over the mapped file. texts: of its header. fits: whether the
    checksum is known to fit by now. waits: whether a thread still computes it, which will be waited for."""

    arrays: dict[str, np.ndarray]
    texts: dict[str, str]
    bytes: int
    fits: bool = False
    waits: bool = False


def fail(message: str) -> NoReturn:
    """FileFormatError."""
    raise FileFormatError(message)


@overload
def read_tensors(file: File) -> TensorFile: ...
@overload
def read_tensors(file: File, use: Callable[[TensorFile], T]) -> T: ...
def read_tensors(file: File, use: Callable[[TensorFile], Any] | None = None) -> Any:
    """Maps and checks a file of tensors. Nothing else is opened, and nothing is executed.

    A checksum, where there is one, is verified; of a long file that has not changed since this user's cache knows that it fits, not again.
    The file must not change while its arrays are in use (files that Tengen writes are replaced, never changed).

    Args:
        file: a path, or a file that is open for reading bytes: it is read from where it stands to its end.
        use: makes of the content what is returned, while a thread computes the checksum. Default: the content itself. It must bear a
            damaged file: where the checksum does not fit, that is the error, whatever `use` did.

    Errors: FileFormatError for any file that is not exactly such a file; OSError where it cannot be read.
    """
    memory: mmap.mmap | bytes
    state = None
    if is_open(file, "read"):
        memory = _content(file)
    else:
        with open_regular(file) as fd:
            try:
                state = _state(fd)
                memory = mapped.map_file(fd)
            except ValueError:  # an empty file
                memory = b""
            except OSError as e:
                raise OSError(e.errno, f"cannot read {name_of(file)}: {e.strerror}") from e
    try:
        found = parse_tensors(memory, use, state)
    except FileFormatError as e:
        raise FileFormatError(f"{name_of(file)}: {e}") from e
    return found


def _content(file: Any) -> mmap.mmap | bytes:
    """All that an open file still has, in memory of its own that begins on a page."""
    data = file.read()
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"{name_of(file)} gives {type(data).__name__}, not bytes; help: open it with 'rb'")
    if not data:
        return b""
    memory = mmap.mmap(-1, len(data))
    memory.write(data)
    return memory


def line_that_converts(path: str | os.PathLike, framework: str = "torch") -> str:
    """The command that makes a file in the safetensors format of another framework's file of weights, in an environment that has the
    framework: it may unpickle what the file holds, which Tengen does not."""
    import shlex  # which compiles a pattern: few files need the line

    return shlex.join(["python", CONVERTER, framework, str(path), os.path.splitext(path)[0] + ".safetensors"])


def parse_tensors(memory: mmap.mmap | bytes, use: Callable[[TensorFile], Any] | None = None, state: str | None = None) -> Any:
    """The tensors in a mapped file, or in bytes; with `use`, what that makes of them. state: of the file, as `_state` gives it.
    FileFormatError for anything else."""
    size = len(memory)
    if size < 8:
        fail(f"it has {size} bytes; the shortest file of tensors has 10")
    n = int.from_bytes(memory[:8], "little")
    if n > HEADER_LIMIT or n > size - 8:
        if (other := _other_kind(memory[:300])) is not None:
            fail(other)
        fail(f"its header says that it has {n} bytes, the file has {size}; it is truncated, or of another kind")
    table = load_json(_header_text(memory, n), size, "its header")
    texts = _texts(table.pop("__metadata__", {}))
    fits, thread, finish = _begin_sum(memory, 8 + n, texts, state)
    try:
        found = TensorFile(
            _paired(_arrays(memory, 8 + n, table), texts.pop(PAIRS, "[]")), texts, size, fits, thread is not None
        )
        return found if use is None else use(found)
    finally:
        finish()


def _other_kind(begin: bytes) -> str | None:
    """What a file that begins so is, where that is known, and what reads it."""
    pickled = begin[:1] == b"\x80" and begin[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    archive = begin[:4] == b"PK\x03\x04"
    if begin[:6] == b"\x93NUMPY" or (archive and b".npy" in begin):
        return "it is a file of NumPy's; help: numpy.load(file)"
    if begin[4:8] == b"TFL3":
        return "it is a TFLite file; help: tengen.interop.tflite.load(file)"
    if begin[:1] == b"\x08" and begin[1:2] < b"\x20" and begin[2:3] in (b"\x12", b"\x1a", b"\x3a", b"\x42"):  # a version, a field
        return "it may be an ONNX file; help: tengen.interop.onnx.load(file)"
    if pickled or archive:  # a zip of PyTorch's, or a pickle, as of its older versions
        return f"it may be of torch.save, a pickle, which is not read here; help: convert a state dict once\n{line_that_converts('file.pt')}"
    return None


def _header_text(memory: mmap.mmap | bytes, n: int) -> str:
    raw = memory[8 : 8 + n]
    if n > WIDE_LIMIT and not raw.isascii():  # as text it may need four bytes for each
        fail(f"its header has {n} bytes and is not ASCII; at most {WIDE_LIMIT} may be")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        fail("its header is not UTF-8; it is damaged, or of another kind")
    if not text.startswith("{"):
        fail("its header is not a JSON object; it is damaged, or of another kind")
    return text


def _texts(x: Any) -> dict[str, str]:
    if not isinstance(x, dict) or any(not isinstance(v, str) for v in x.values()):
        fail("its metadata is not a table of texts")
    return x


def _state(fd: int) -> str | None:
    """What the system says of an open file, as a key of the cache; None for a short file, for one that may change once more within one tick
    of a coarse clock, and where all is to be checked."""
    st = os.fstat(fd)
    if st.st_size < LONG or st.st_ctime > time.time() - SETTLED_S or config.check:
        return None
    return f"checked file {st.st_dev} {st.st_ino} {st.st_size} {st.st_mtime_ns} {st.st_ctime_ns}"


def _begin_sum(memory: mmap.mmap | bytes, begin: int, texts: Mapping[str, str], state: str | None) -> Sum:
    """Begins to compute the checksum: whether it is known to fit, the thread that computes it, where that takes long, and the function that
    waits for it, and fails where it does not fit.

    begin: of the data, behind the header. state: of the file, from before its bytes were read: what has the same one later has these bytes.
    """
    if "checksum" not in texts:
        return False, None, lambda: None
    told = texts["checksum"]
    mine = f'"{told[:65]}"'.encode(errors="replace")
    at = memory.find(mine, 8, begin) + 1
    if len(mine) != 66 or not at or memory.find(mine, at, begin) >= 0:
        fail("its checksum is not one; it is damaged")
    if state is not None and cache.get(state, cache.FACTS) == told.encode():
        return True, None, lambda: None
    computed = []

    def compute() -> None:
        with memoryview(memory) as whole:
            digest = sha256_of_much(whole[:at])
            digest.update(NO_SUM.encode())
            for part in range(at + 64, len(whole), PIECE):
                digest.update(whole[part : part + PIECE])
                mapped.trim(memory)  # so that reading all of a mapped file takes memory for a piece
        computed.append(digest.hexdigest())

    def finish() -> None:
        if thread is not None:
            thread.join()
        if computed != [told]:
            fail("its checksum does not fit its content; it is damaged")
        if state is not None:
            cache.put(state, told.encode(), cache.FACTS)

    thread = threading.Thread(target=compute, daemon=True) if len(memory) >= LONG else None
    thread.start() if thread is not None else compute()
    return thread is None and computed == [told], thread, finish


def _arrays(memory, start: int, table: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The tensors, which fill the rest of the file without a hole."""
    spans: list[tuple[int, int]] = []
    arrays: dict[str, np.ndarray] = {}
    room = len(memory) - start
    for name, row in table.items():
        d, shape, begin, end = _row(name, row, room)
        spans.append((begin, end))
        if name.startswith("__"):
            continue
        arrays[name] = _array(memory, start, name, d, shape, begin, end)
    at = 0
    for begin, end in sorted(spans):
        if begin != at:
            fail(f"bytes {min(begin, at)} to {max(begin, at)} of its data belong to no tensor, or to two")
        at = end
    if at != room:
        fail(f"its tensors have {at} bytes, the file has {room} for them")
    return arrays


def _paired(arrays: dict[str, np.ndarray], text: str) -> dict[str, np.ndarray]:
    """The arrays, those whose names a JSON list holds as complex128."""
    try:
        names = load_json(text, len(text), "its list of complex tensors")
    except FileFormatError:
        names = None
    if not isinstance(names, list) or any(not isinstance(name, str) for name in names) or len({*names}) != len(names):
        fail("its list of complex tensors is none")
    for name in names:
        a = arrays.get(name)
        if a is None or a.dtype != np.float64 or not a.ndim or a.shape[-1] != 2:
            fail(f"its tensor {name[:60]!r} is said to hold complex numbers, and does not")
        pairs = a.view(np.complex128) if a.size else np.empty((*a.shape[:-1], 1), np.complex128)
        arrays[name] = pairs.reshape(a.shape[:-1])
        arrays[name].flags.writeable = False
    return arrays


def _row(name: str, row: Any, room: int) -> tuple[DType, tuple[int, ...], int, int]:
    what = f"its tensor {name[:60]!r}"
    if not isinstance(row, dict) or set(row) != {"dtype", "shape", "data_offsets"}:
        fail(f"{what} needs dtype, shape and data_offsets")
    code, shape, span = row["dtype"], row["shape"], row["data_offsets"]
    if not isinstance(code, str) or code not in CODES:
        fail(f"{what} has the dtype {str(code)[:20]!r}, which Tengen does not know")
    if not isinstance(shape, list) or len(shape) > 64 or any(type(n) is not int or n < 0 for n in shape):
        fail(f"{what} has no proper shape")
    if not isinstance(span, list) or len(span) != 2 or any(type(n) is not int for n in span):
        fail(f"{what} has no proper data_offsets")
    d = dtype(CODES[code])
    n_bytes = d.size
    for extent in shape:
        n_bytes *= extent
    try:
        check_size(shape, d)
    except SizeError as e:
        fail(f"{what}: {e}")
    begin, end = span
    if not 0 <= begin <= end <= room or end - begin != n_bytes:
        fail(f"{what} promises {n_bytes} bytes at {begin} to {end}, the file has {room} bytes of data")
    return d, tuple(shape), begin, end


def _array(memory, start: int, name: str, d: DType, shape, begin: int, end: int) -> np.ndarray:
    try:
        if begin == end:
            return np.empty(shape, d.numpy)
        bytes_ = np.frombuffer(memory, np.uint8, end - begin, start + begin)
        if d is bool_ and bytes_.max() > 1:
            fail(f"its tensor {name[:60]!r} is bool and holds a byte that is neither 0 nor 1")
        if (start + begin) % d.size:
            bytes_ = bytes_.copy()
        bytes_.flags.writeable = False
        return bytes_.view(d.numpy).reshape(shape)
    except ValueError as e:
        fail(f"its tensor {name[:60]!r}: {e}")
