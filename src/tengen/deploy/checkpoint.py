"""`save` and `load`: nested dicts, lists and tuples of tensors, arrays, numbers and texts as one file. Never pickle.

In: a state dict, an optimizer's state, a checkpoint. Out: a safetensors file whose tensors are named by their path
(`model.fc.weight`) and whose metadata holds the structure as JSON. Files of tensors that others wrote load as a dict of
tensors.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from tengen.base.dtype import dtype
from tengen.base.errors import FileFormatError
from tengen.base.files import File, name_of
from tengen.deploy.tensorfile import TensorFile, fail, read_tensors, write_tensors
from tengen.ir.plain_json import load_json, weigh
from tengen.ops.calls import with_line
from tengen.tensor import Parameter, Tensor, contiguous, from_numpy

FORMAT, VERSION = "tengen-checkpoint", "1"
DEPTH = 60
SMALL = 1 << 60  # what JSON readers everywhere take for an integer is less
MOST_BITS = 13_287  # of an integer: 4000 digits hold as many, and Python converts no more than 4300
# what else is saved: a class says by `saved_as` which, and the module named here has `pack(object) -> nest` and `unpack(nest) -> object`
KINDS = {"traced_module": "tengen.traced_module.saving"}
_TORN = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_INTEGER = re.compile(r"-?[0-9]{1,4000}")


def save(obj: Any, file: File) -> int:
    """Writes nested dicts (keys: texts or ints), lists and tuples of tensors, arrays, numbers, texts, bytes and None, and TracedModules.

    Args:
        file: a path, or a file that is open for writing bytes.

    Returns: the size in bytes. A file at a path is replaced whole or not at all, and keeps its mode.

    MegEngine's `f` is another name of `file`; `pickle_module` and `pickle_protocol` change nothing, as no file is a pickle.

    Errors: TypeError, naming the place, for any other object, and ValueError for one that `load` could not give back: integers of
    more than 4000 digits, and many millions of Python numbers, which an array holds better. OSError when the file cannot be written.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     _ = save({"step": 3, "w": Tensor([1.0, 2.0])}, os.path.join(d, "c"))
    ...     load(os.path.join(d, "c"))["w"].tolist()
    [1.0, 2.0]
    """
    arrays: dict[str, np.ndarray] = {}
    structure = _pack(obj, "", arrays, 0)
    text = json.dumps(structure, separators=(",", ":"), allow_nan=False)
    try:
        weigh(text, sum(a.nbytes for a in arrays.values()))
    except FileFormatError as e:
        raise ValueError(f"cannot save this: it could not be loaded again: {e}") from None
    return write_tensors(file, arrays, {"format": FORMAT, "version": VERSION, "structure": text})


def _pack(x: Any, where: str, arrays: dict[str, np.ndarray], depth: int) -> Any:
    """JSON for an object: plain values as they are, the rest as {tag: content}."""
    if depth > DEPTH:
        raise TypeError(f"cannot save {where[:60] or 'this'}: nested deeper than {DEPTH}, or inside itself")
    inner = lambda v, key: _pack(v, f"{where}.{key}" if where else str(key), arrays, depth + 1)
    if x is None or type(x) is bool:
        return x
    if type(x) is str:
        return _text(x, where)
    if type(x) is int:
        return x if abs(x) < SMALL else {"int": _digits(x, where)}
    if type(x) is float:
        return x if math.isfinite(x) else {"float": repr(x)}
    if type(x) is bytes:
        return {"bytes": base64.b64encode(x).decode()}
    if isinstance(x, Tensor):
        return {"parameter" if isinstance(x, Parameter) else "tensor": _keep(contiguous(x.detach()).numpy(), where, arrays)}
    if isinstance(x, (np.ndarray, np.generic)) and not isinstance(x, np.ma.MaskedArray):
        return {"array" if isinstance(x, np.ndarray) else "scalar": _keep(np.asarray(x), where, arrays)}
    if isinstance(x, tuple):
        return {"tuple": [inner(v, i) for i, v in enumerate(x)]}
    if isinstance(x, list):
        return {"list": [inner(v, i) for i, v in enumerate(x)]}
    if (kind := getattr(type(x), "saved_as", None)) in KINDS:
        return {"object": [kind, _pack(importlib.import_module(KINDS[kind]).pack(x), where, arrays, depth + 1)]}
    if isinstance(x, Mapping):
        if any(type(k) not in (str, int) for k in x):
            raise TypeError(f"cannot save {where or 'the dict'}: a key is neither a text nor an int")
        if any(type(k) is int and abs(k) >= SMALL for k in x):
            raise ValueError(f"cannot save {where or 'the dict'}: a key is an int of more than 60 bits")
        return {"dict": [[_text(k, where) if type(k) is str else k, inner(v, k)] for k, v in x.items()]}
    raise TypeError(f"cannot save {where or 'the object'}: it is a {type(x).__name__}; help: {_instead(x)}")


def _instead(x: Any) -> str:
    """What can be saved in the place of an object that can't be."""
    if hasattr(x, "state_dict"):
        return "save its state_dict()"
    if isinstance(x, (set, frozenset)):
        return "save a list of what is in it"
    if isinstance(x, np.ma.MaskedArray):
        return "save its data and its mask, two arrays"
    return "dicts, lists and tuples of tensors, arrays, numbers, texts and bytes can be saved"


def _text(x: str, where: str) -> str:
    if not x.isascii() and _TORN.search(x):  # JSON would join them
        raise ValueError(f"cannot save {where or 'the text'}: it holds two surrogates in a row; help: save its bytes")
    return x


def _digits(x: int, where: str) -> str:
    if x.bit_length() > MOST_BITS:
        raise ValueError(f"cannot save {where or 'the int'}: an integer of {x.bit_length()} bits, at most {MOST_BITS} can be loaded")
    return str(x)


def _keep(a: np.ndarray, where: str, arrays: dict[str, np.ndarray]) -> str:
    try:
        dtype(a.dtype)
    except TypeError as e:
        raise TypeError(f"cannot save {where or 'the array'}: {e}") from None
    base = name = where.lstrip("_") or "value"
    i = 0
    while name in arrays:
        i += 1
        name = f"{base}#{i}"
    arrays[name] = a if a.dtype.isnative else a.astype(a.dtype.newbyteorder("="))
    return name


def load(file: File, mmap: bool = False) -> Any:
    """What `save` wrote; from other safetensors files, a dict of tensors. Nothing is executed.

    Args:
        file: a path, or a file that is open for reading bytes, which is read to its end.
        mmap: tensors and arrays are the mapped file instead of copies of it (default: False). Loading and `load_state_dict` then
            copy nothing, and processes that load one file share its memory. Tensors copy before their first write, which the file
            never sees; arrays are read-only. A program whose constants are packed, as `trace(capture_as_const=True)` makes it,
            gives the memory back that reading them took, so that the weights are in memory once, not twice. Until all of it
            is gone, nobody may write or shorten the file itself: values would change, and reading past its new end kills the
            process (SIGBUS). To replace it (as `save` does) or to delete it is safe.

    MegEngine's `f` is another name of `file`; `map_location` must be a device that is here, a dict or a function, and maps nothing, as
    files name no devices; `pickle_module` changes nothing.

    Errors: FileFormatError for anything else; OSError where it cannot be read; DeviceError for a device that is not here.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as d:
    ...     _ = save({"w": Tensor([1.0, 2.0])}, os.path.join(d, "c"))
    ...     w = load(os.path.join(d, "c"), mmap=True)["w"]
    >>> w[0] = 5.0
    >>> w.tolist()
    [5.0, 2.0]
    """
    content = read_tensors(file)
    try:
        if content.texts.get("format") == FORMAT:
            return _unpacked(content, mmap)
        return {name: from_numpy(a, copy=not mmap) for name, a in content.arrays.items()}
    except FileFormatError as e:
        raise FileFormatError(f"{name_of(file)}: {e}") from e


def _unpacked(content: TensorFile, mmap: bool) -> Any:
    if content.texts.get("version") != VERSION or "structure" not in content.texts:
        fail(f"it has version {content.texts.get('version', 'none')[:20]} of the format, this Tengen reads {VERSION}")
    left = dict(content.arrays)
    out = _unpack(load_json(content.texts.pop("structure"), content.bytes, "its structure"), left, mmap, 0)
    if left:
        fail(f"the tensor {next(iter(left))[:60]!r} has no place")
    return out


def _unpack(x: Any, left: dict[str, np.ndarray], mmap: bool, depth: int) -> Any:
    if depth > DEPTH + 1:
        fail("nested too deeply")
    if x is None or type(x) in (bool, int, float, str):
        return x
    if not isinstance(x, dict) or len(x) != 1:
        fail("its structure is not one that `save` writes")
    ((tag, v),) = x.items()
    if tag in ("tensor", "parameter", "array", "scalar"):
        if type(v) is not str or v not in left:
            fail(f"the tensor {str(v)[:60]!r} is missing or used twice")
        a = left.pop(v)
        if tag == "scalar" and a.ndim:
            fail(f"{v[:60]!r} is no scalar")
        if tag == "scalar":
            return a[()]
        if tag == "array":
            return a if mmap else a.copy()
        t = from_numpy(a, copy=not mmap)
        return Parameter(t) if tag == "parameter" else t
    if tag in ("tuple", "list") and isinstance(v, list):
        items = [_unpack(y, left, mmap, depth + 1) for y in v]
        return tuple(items) if tag == "tuple" else items
    if tag == "dict" and isinstance(v, list):
        if not all(isinstance(r, list) and len(r) == 2 and type(r[0]) in (str, int) for r in v):
            fail("a dict that is not one")
        out = {k: _unpack(y, left, mmap, depth + 1) for k, y in v}
        if len(out) != len(v):
            fail("a key stands twice in one dict")
        return out
    if tag == "object" and isinstance(v, list) and len(v) == 2 and type(v[0]) is str and v[0] in KINDS:
        nest = _unpack(v[1], left, mmap, depth + 1)
        return importlib.import_module(KINDS[v[0]]).unpack(nest)
    return _unpack_text(tag, v)


def _unpack_text(tag: str, v: Any) -> Any:
    if tag == "float" and v in ("nan", "inf", "-inf"):
        return float(v)
    if tag == "int" and type(v) is str and _INTEGER.fullmatch(v):
        try:
            return int(v)
        except ValueError as e:  # the interpreter was told to take fewer digits
            fail(str(e))
    if tag == "bytes" and type(v) is str:
        try:
            return base64.b64decode(v, validate=True)
        except ValueError:
            fail("bytes that are not base64")
    fail(f"its structure has the tag {tag[:40]!r}")


_NOTHING = {"map_location": "", "pickle_module": "", "pickle_protocol": ""}
save, load = (with_line(f, {"f": "file"} | _NOTHING) for f in (save, load))
