"""The tensors of a safetensors file, of a folder of shards with an index, or of a dict; nothing else is opened, and nothing executed.

In: a path or a mapping. Out: arrays by name. A shard lies in the folder of its index, by its plain name; a link that leads out of the
folder is refused, except into the blobs of the cache that huggingface_hub keeps.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tengen.base.errors import FileFormatError
from tengen.base.files import read_regular
from tengen.deploy.tensorfile import line_that_converts, read_tensors
from tengen.ir.plain_json import load_json
from tengen.tensor import Tensor
from tengen.tensor.dlpack import from_dlpack

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
JSON_LIMIT = 64 << 20  # bytes of an index or a config
SHARDS = 10_000
_PICKLES = {
    ".pt": "torch", ".pth": "torch", ".bin": "torch", ".ckpt": "torch", ".pkl": "megengine",
    ".pdparams": "paddle", ".h5": "keras", ".keras": "keras", ".msgpack": "flax", ".params": "mxnet",
}  # fmt: skip


def fail(message: str) -> NoReturn:
    """FileFormatError."""
    raise FileFormatError(message)


def read_state(source: Any) -> dict[str, np.ndarray]:
    """Arrays by name.

    Args: source: a dict of arrays or tensors, a file or an open file in the safetensors format, an index of shards, or a folder with
        one of ``model.safetensors`` and ``model.safetensors.index.json``.
    Errors: FileFormatError for a file of another kind, with the line that converts it where there is one; OSError where it cannot be
        read; TypeError for another object.
    """
    if isinstance(source, Mapping):
        return {str(name): _array(x) for name, x in source.items()}
    if not isinstance(source, str | os.PathLike):
        return read_tensors(source).arrays
    path = Path(source)
    if path.is_dir():
        return _read_folder(path)
    if path.suffix in _PICKLES:
        line = line_that_converts(path, _PICKLES[path.suffix])
        fail(f"{path}: {path.suffix} files can hold programs and are not read; help: where you trust it, convert it by  {line}")
    if path.suffix in (".npz", ".npy"):
        fail(f"{path}: NumPy's files are not read; help: give their arrays by name, dict(numpy.load({path.name!r}))")
    return _read_index(path) if path.name.endswith(".json") else read_tensors(path).arrays


def _array(x: Any) -> np.ndarray:
    """What a dict holds; PyTorch's parameters and bfloat16, which NumPy does not take, by DLPack."""
    if hasattr(x, "detach") and hasattr(x, "__dlpack__") and not isinstance(x, Tensor):
        x = from_dlpack(x.detach())
    return x.numpy() if isinstance(x, Tensor) else np.asarray(x)


def _read_folder(folder: Path) -> dict[str, np.ndarray]:
    if (folder / WEIGHTS).exists():
        return read_tensors(inside(folder, WEIGHTS)).arrays
    if (folder / INDEX).exists():
        return _read_index(inside(folder, INDEX))
    others = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".h5", ".msgpack", ".pt", ".pth"))
    fail(f"{folder}: it has neither {WEIGHTS} nor {INDEX}" + (f"; help: convert {others[0]} to safetensors" if others else ""))


def inside(folder: Path, name: Any) -> Path:
    """The path of a file of this folder. FileFormatError for a name that is no plain one, and for a link that leads elsewhere."""
    if not isinstance(name, str) or not name or len(name) > 255 or name in (".", "..") or any(c in name for c in "/\\\0"):
        fail(f"{folder}: {str(name)[:80]!r} is no name of a file beside it")
    path = folder / name
    target, own = path.resolve(), folder.resolve()
    roots = [own] + ([own.parent.parent / "blobs"] if own.parent.name == "snapshots" else [])
    if target.parent not in roots:
        fail(f"{path}: it is a link out of its folder, to {target}")
    return path


def read_json(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds. FileFormatError for anything else."""
    raw = read_regular(path)
    if len(raw) > JSON_LIMIT:
        fail(f"{path}: it has {len(raw)} bytes, at most {JSON_LIMIT} are read")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        fail(f"{path}: it is not UTF-8")
    try:
        found = load_json(text, len(raw), str(path.name))
    except FileFormatError as e:
        fail(f"{path}: {e}")
    if not isinstance(found, dict):
        fail(f"{path}: it is a {type(found).__name__}, not a JSON object")
    return found


def _read_index(path: Path) -> dict[str, np.ndarray]:
    table = read_json(path).get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(x, str) for x in table.values()):
        fail(f"{path}: it has no weight_map from names of tensors to files")
    files = sorted(set(table.values()))
    if len(files) > SHARDS:
        fail(f"{path}: it names {len(files)} files, at most {SHARDS} are read")
    arrays: dict[str, np.ndarray] = {}
    shards = {file: inside(path.parent, file) for file in files}
    if absent := [file for file, shard in shards.items() if not shard.exists()]:
        fail(f"{path}: {absent[0]!r}, which it names, is not there")
    for file, shard in shards.items():
        found = read_tensors(shard).arrays
        if strange := sorted(name for name in found if table.get(name) != file):
            fail(f"{path}: {file} has {strange[0][:60]!r}, which the index does not place there")
        arrays.update(found)
    if lacking := sorted(table.keys() - arrays.keys()):
        fail(f"{path}: {lacking[0][:60]!r} is not in {table[lacking[0]]}, where the index places it")
    return arrays
