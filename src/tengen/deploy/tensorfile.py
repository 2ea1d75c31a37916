"""Files of named tensors in the safetensors format, written safely and read strictly.

In: arrays by name and a table of texts. Out: one file, or its content again. The format is 8 bytes with the header's length, a
JSON header (name -> dtype, shape, begin and end of the data), and the data without holes. The header is written here and not by
the safetensors library, which aligns tensors to 8 bytes and needs a second copy of all data; what the library reads is the
same. Here tensors begin on 64 bytes: between them lie U8 tensors named ``__padding.N``.

The checksum is SHA-256 over the whole file with 64 zeros in its own place. Reading maps the file: arrays show the file's bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from tengen.base.dtype import DType, bool_, dtype
from tengen.base.errors import FileFormatError
from tengen.base.version import VERSION
from tengen.ir.jsonform import load_json
from tengen.runtime import mapped

ALIGN = 64
HEADER_LIMIT = 100_000_000  # bytes, as in the safetensors library
PADDING = "__padding."
NO_SUM = "0" * 64
CODES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
    "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
NAMES = {name: code for code, name in CODES.items()}


# ---- writing -----------------------------------------------------------------------------------------------------------


def write_tensors(file: str | os.PathLike, arrays: Mapping[str, np.ndarray], texts: Mapping[str, str]) -> int:
    """Writes a file of tensors; returns its size in bytes.

    It is written beside, flushed to the disk and renamed, so that `file` is the old one or the new one, never half of one.

    Args:
        texts: go into the header; `tengen` (the version) and `checksum` are added.
    Errors: OSError (disk full, no permission), with the old file as it was. ValueError for names that cannot be kept.
    """
    header = _header(arrays, texts)
    digest = hashlib.sha256(header)
    for part in _data(arrays):
        digest.update(part)
    header = header.replace(f'"{NO_SUM}"'.encode(), f'"{digest.hexdigest()}"'.encode())
    with replacing(file) as f:
        f.write(header)
        for part in _data(arrays):
            f.write(part)
        return f.tell()


def _header(arrays: Mapping[str, np.ndarray], texts: Mapping[str, str]) -> bytes:
    if "checksum" in texts or NO_SUM in texts.values():
        raise ValueError("`checksum` is not a text to be given")
    table: dict[str, Any] = {"__metadata__": {**texts, "tengen": VERSION, "checksum": NO_SUM}}
    at = 0
    for i, (name, a) in enumerate(arrays.items()):
        if name.startswith("__"):
            raise ValueError(f"a tensor cannot be named {name!r}: names that begin with __ belong to the format")
        table[name] = {"dtype": NAMES[dtype(a.dtype).name], "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
        if gap := -at % ALIGN:
            table[f"{PADDING}{i}"] = {"dtype": "U8", "shape": [gap], "data_offsets": [at, at + gap]}
            at += gap
    text = json.dumps(table, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-(8 + len(text)) % ALIGN)
    if len(text) > HEADER_LIMIT:
        raise ValueError(f"the file's header would have {len(text)} bytes, the format allows {HEADER_LIMIT}")
    return len(text).to_bytes(8, "little") + text


def _data(arrays: Mapping[str, np.ndarray]) -> Iterator[memoryview | bytes]:
    for a in arrays.values():
        yield memoryview(np.ascontiguousarray(a).reshape(-1).view(np.uint8))
        yield bytes(-a.nbytes % ALIGN)


@contextlib.contextmanager
def replacing(file: str | os.PathLike):
    """A new binary file that takes the place of `file` when the block ends without an error, and vanishes when it does not."""
    path = os.fspath(file)
    if os.path.isdir(path):
        raise IsADirectoryError(f"cannot write {path}: it is a directory")
    folder, name = os.path.split(os.path.abspath(path))
    try:
        fd, part = tempfile.mkstemp(prefix=f".{name[:100]}.", suffix=".part", dir=folder)
    except OSError as e:
        raise _cannot(e, path) from e
    try:
        with open(fd, "wb") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(part, 0o666 & ~mask)
        os.replace(part, path)
    except BaseException as e:
        with contextlib.suppress(OSError):
            os.unlink(part)
        if isinstance(e, OSError):
            raise _cannot(e, path) from e
        raise
    with contextlib.suppress(OSError):  # the name itself; some file systems cannot
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _cannot(e: OSError, path: str) -> OSError:
    """The error with the file in the message; the class follows the number."""
    return OSError(e.errno, f"cannot write {path}: {e.strerror or e}; what was there is as it was")


# ---- reading -----------------------------------------------------------------------------------------------------------


@dataclass
class TensorFile:
    """A file of tensors that has been checked. arrays: by name, read-only, over the mapped file. texts: of its header."""

    arrays: dict[str, np.ndarray]
    texts: dict[str, str]
    bytes: int


def fail(message: str) -> NoReturn:
    """FileFormatError."""
    raise FileFormatError(message)


def read_tensors(file: str | os.PathLike) -> TensorFile:
    """Maps and checks a file of tensors. Nothing else is opened, and nothing is executed.

    A checksum, where there is one, is verified. The file must not change while its arrays are in use (files that Tengen writes
    are replaced, never changed).

    Errors: FileFormatError for any file that is not exactly such a file; OSError where it cannot be read.
    """
    path = os.fspath(file)
    try:
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            if size < 8:
                fail(f"it has {size} bytes; the shortest file of tensors has 10")
            memory = mapped.map_file(f)
    except FileFormatError as e:
        raise FileFormatError(f"{path}: {e}") from None
    except ValueError as e:  # a path with a zero byte, a file that cannot be mapped
        raise OSError(f"cannot read {path}: {e}") from e
    try:
        found = parse_tensors(memory)
    except FileFormatError as e:
        raise FileFormatError(f"{path}: {e}") from e
    mapped.trim()  # the checksum has read all of it
    return found


def parse_tensors(memory) -> TensorFile:
    """The tensors in a mapped file, or in bytes. FileFormatError for anything else."""
    size = len(memory)
    if size < 8:
        fail(f"it has {size} bytes; the shortest file of tensors has 10")
    n = int.from_bytes(memory[:8], "little")
    if n > HEADER_LIMIT or n > size - 8:
        fail(f"its header says that it has {n} bytes, the file has {size}; it is truncated, or of another kind")
    raw = bytes(memory[8 : 8 + n])
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        fail("its header is not UTF-8; it is damaged, or of another kind")
    if not text.startswith("{"):
        fail("its header is not a JSON object; it is damaged, or of another kind")
    table = load_json(text)
    texts = _texts(table.pop("__metadata__", {}))
    _verify_sum(memory, raw, texts)
    arrays = _arrays(memory, 8 + n, table)
    return TensorFile(arrays, texts, size)


def _texts(x: Any) -> dict[str, str]:
    if not isinstance(x, dict) or any(not isinstance(v, str) for v in x.values()):
        fail("its metadata is not a table of texts")
    return x


def _verify_sum(memory, raw: bytes, texts: Mapping[str, str]) -> None:
    if "checksum" not in texts:
        return
    mine = f'"{texts["checksum"]}"'.encode(errors="replace")
    if len(mine) != 66 or raw.count(mine) != 1:
        fail("its checksum is not one; it is damaged")
    digest = hashlib.sha256(memory[:8])
    digest.update(raw.replace(mine, f'"{NO_SUM}"'.encode()))
    digest.update(memoryview(memory)[8 + len(raw) :])
    if digest.hexdigest() != texts["checksum"]:
        fail("its checksum does not fit its content; it is damaged")


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
        return bytes_.view(d.numpy).reshape(shape)
    except ValueError as e:
        fail(f"its tensor {name[:60]!r}: {e}")
