"""The Open Inference Protocol, version 2: requests and responses as bytes, and the arrays in them.

In: the body of a request for a model, which is JSON, or JSON and behind it the raw elements of tensors (the extension for binary data).
Out: arrays by the names of the model's inputs; the other way round for its outputs. A body is a stranger's: anything in it that is not
as the protocol says is a `RequestError`, which says what was wrong.

Source: https://github.com/kserve/open-inference-protocol, and Triton's extension for binary data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tengen.base.errors import ConfigError, TengenError
from tengen.base.record import record
from tengen.deploy.model import Model, Port
from tengen.loops.lang import Expr

DATATYPES = {  # names of dtypes here and in the protocol
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8", "int16": "INT16",
    "int32": "INT32", "int64": "INT64", "float16": "FP16", "bfloat16": "BF16", "float32": "FP32", "float64": "FP64",
}  # fmt: skip


class RequestError(TengenError):
    """A request that is not as the protocol says, or not for this model."""


@record
class Request:
    """What a request asks. arrays: by the names of inputs. outputs: (name, whether its elements are wanted as bytes). timeout: seconds."""

    id: str | None
    arrays: dict[str, np.ndarray]
    outputs: list[tuple[str, bool]]
    timeout: float | None


def datatype(p: Port) -> str:
    """The protocol's name of a port's dtype. Errors: ConfigError where it has none."""
    name = str(p.dtype)
    if name not in DATATYPES:
        raise ConfigError(f"the protocol has no datatype for {p!r}; help: a model that takes and gives real and imaginary parts")
    return DATATYPES[name]


def metadata(name: str, model: Model) -> dict[str, Any]:
    """What the protocol tells of a model; an open extent is -1."""
    shape = lambda p: [-1 if isinstance(d, Expr) else d for d in p.shape]
    tensors = lambda ports: [{"name": p.name, "datatype": datatype(p), "shape": shape(p)} for p in ports]
    return {"name": name, "versions": ["1"], "platform": "tengen", "inputs": tensors(model.inputs), "outputs": tensors(model.outputs)}


def parse(body: bytes, json_size: int | None, model: Model) -> Request:
    """What a request's body asks of a model.

    Args: json_size: bytes of the JSON text at its beginning; None where it is all of the body.
    """
    if json_size is not None and not 0 <= json_size <= len(body):
        raise RequestError(f"the JSON text is said to have {json_size} bytes, the body has {len(body)}")
    asked = _parse_json(body[:json_size])
    _check_keys("the request", asked, ("id", "parameters", "inputs", "outputs"))
    options = _parameters("the request", asked, {"binary_data_output": bool, "timeout": int})
    rest = memoryview(body)[len(body) if json_size is None else json_size :]
    arrays: dict[str, np.ndarray] = {}
    ports = {p.name: p for p in model.inputs}
    for entry in _entries(asked, "inputs", ports, ("shape", "datatype", "data")):
        port = ports[entry["name"]]
        arrays[port.name], rest = _array(entry, port, rest)
    if len(rest):
        raise RequestError(f"{len(rest)} bytes of the body belong to no input; help: binary_data_size says how many belong to which")
    if missing := [p for p in model.inputs if p.name not in arrays]:
        raise RequestError(f"inputs are missing: {', '.join(map(repr, missing))}")
    outputs = [(p.name, options.get("binary_data_output", False)) for p in model.outputs]
    if "outputs" in asked:
        known = [p.name for p in model.outputs]
        chosen = [(e, _parameters(f"output {e['name']}", e, {"binary_data": bool})) for e in _entries(asked, "outputs", known, ())]
        outputs = [(e["name"], given.get("binary_data", options.get("binary_data_output", False))) for e, given in chosen]
    identifier = asked.get("id")
    if identifier is not None and not isinstance(identifier, str):
        raise RequestError(f"id is {_shown(identifier)}, a text is wanted")
    timeout = options.get("timeout")
    if timeout is not None and timeout < 0:
        raise RequestError(f"timeout is {timeout}: a number of microseconds, at least 0, is wanted")
    return Request(identifier, arrays, outputs, timeout / 1e6 if timeout else None)


def response(name: str, model: Model, request: Request, results: Any) -> tuple[bytes, int | None]:
    """(The body of the answer, bytes of the JSON text at its beginning if there is more behind it).

    Errors: `RequestError` for a NaN or an infinity in an output that was not asked for as bytes: JSON has none.
    """
    made = dict(zip((p.name for p in model.outputs), results if isinstance(results, tuple) else (results,)))
    ports = {p.name: p for p in model.outputs}
    entries, binary = [], []
    for output, as_bytes in request.outputs:
        a = np.ascontiguousarray(made[output])
        entry: dict[str, Any] = {"name": output, "datatype": datatype(ports[output]), "shape": list(made[output].shape)}
        if as_bytes:
            binary.append(a.reshape(-1).view(np.uint8).data if a.size else memoryview(b""))
            entry["parameters"] = {"binary_data_size": a.nbytes}
        else:
            entry["data"] = _numbers(output, a)
        entries.append(entry)
    answer = {"model_name": name, "model_version": "1", "outputs": entries}
    if request.id is not None:
        answer["id"] = request.id
    text = json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()
    return (text, None) if not binary else (b"".join([text, *binary]), len(text))


def _numbers(output: str, a: np.ndarray) -> list:
    """The elements for JSON, one after another; each float is written so that it is read back with the same bits."""
    if a.dtype.kind not in "biu":
        a = a.astype(np.float64)
        if not np.isfinite(a).all():
            raise RequestError(f"output {output} has a NaN or an infinity, which JSON can't write; help: ask for it with binary_data")
    return a.reshape(-1).tolist()


# -- reading ---------------------------------------------------------------------------------------------------------------


def _parse_json(text: bytes) -> dict:
    def refuse(word: str) -> None:
        raise RequestError(f"{word} is no JSON; help: send the tensor as bytes, with binary_data_size")

    try:
        asked = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as e:
        raise RequestError(f"the request is no JSON: {e}") from None
    if not isinstance(asked, dict):
        raise RequestError(f"the request is {_shown(asked)}, an object with inputs is wanted")
    return asked


def _entries(asked: dict, key: str, known: Iterable[str], others: Sequence[str]) -> list[dict]:
    """The objects of `inputs` or `outputs`: of names that the model has, none twice."""
    found = asked.get(key)
    if not isinstance(found, list):
        raise RequestError(f"{key} is {_shown(found)}, a list of objects is wanted")
    names = set()
    for entry in found:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or name not in known:
            raise RequestError(f"{key} has {_shown(entry)}; the model's are {', '.join(known)}")
        if name in names:
            raise RequestError(f"{key} has {name} twice")
        _check_keys(f"{key[:-1]} {name}", entry, ("name", "parameters", *others))
        names.add(name)
    return found


def _check_keys(whose: str, entry: Mapping, known: Sequence[str]) -> None:
    if odd := [k for k in entry if k not in known]:
        raise RequestError(f"{whose} has {_shown(odd[0])}, which means nothing here; known are {', '.join(known)}")


def _parameters(whose: str, entry: Mapping, known: Mapping[str, type]) -> dict[str, Any]:
    """The parameters of a request, an input or an output. One that is not known is an error: it might ask for something."""
    given = entry.get("parameters", {})
    if not isinstance(given, dict):
        raise RequestError(f"parameters of {whose} are {_shown(given)}, an object is wanted")
    for k, value in given.items():
        if k not in known:
            raise RequestError(f"{whose} has the parameter {_shown(k)}, which is not supported; known: {', '.join(known) or 'none'}")
        if type(value) is not known[k]:
            raise RequestError(f"{k} of {whose} is {_shown(value)}, {known[k].__name__} is wanted")
    return given


def _array(entry: dict, port: Port, rest: memoryview) -> tuple[np.ndarray, memoryview]:
    """(An input's array, the bytes that are left for others)."""
    whose, wanted, shape = f"input {port.name}", datatype(port), entry.get("shape")
    if not isinstance(shape, list) or any(type(n) is not int or n < 0 for n in shape):
        raise RequestError(f"shape of {whose} is {_shown(shape)}, a list of numbers of at least 0 is wanted")
    if entry.get("datatype") != wanted:
        raise RequestError(f"datatype of {whose} is {_shown(entry.get('datatype'))}, the model takes {wanted}")
    size = _parameters(whose, entry, {"binary_data_size": int}).get("binary_data_size")
    if (size is None) == ("data" not in entry):
        raise RequestError(f"{whose} needs either data or binary_data_size")
    if size is None:
        return _of_numbers(whose, entry["data"], shape, port), rest
    if size != prod(shape) * port.dtype.size:
        raise RequestError(f"{whose} of shape {tuple(shape)} has {prod(shape) * port.dtype.size} bytes, binary_data_size says {size}")
    if size > len(rest):
        raise RequestError(f"{whose} has {size} bytes, {len(rest)} are left in the body")
    array = np.frombuffer(rest[:size], np.uint8).copy().view(port.dtype.numpy)  # copied, to be aligned
    if port.dtype.numpy == np.bool_ and (array.view(np.uint8) > 1).any():
        raise RequestError(f"{whose} is BOOL and has bytes other than 0 and 1")
    return _shaped(whose, array, shape), rest[size:]


def _of_numbers(whose: str, data: Any, shape: list[int], port: Port) -> np.ndarray:
    """The array of numbers in JSON, flat or nested. No number changes but by the rounding of a decimal fraction to a float."""
    try:
        found = np.array(data)
    except ValueError:
        raise RequestError(f"data of {whose} is a list of lists that differ in length, or of something else than numbers") from None
    if found.size != prod(shape) or found.ndim == 0 or (found.ndim > 1 and found.shape != tuple(shape)):
        raise RequestError(f"data of {whose} has shape {found.shape}; {tuple(shape)} is said, flat that is {prod(shape)} numbers")
    kind = port.dtype.numpy.kind
    if str(port.dtype) == "bfloat16":
        raise RequestError(f"{whose} is BF16, which is sent as bytes alone; help: binary_data_size")
    if found.size and found.dtype.kind not in ("b" if kind == "b" else "iu" if kind in "iu" else "iuf"):
        raise RequestError(f"data of {whose} are no numbers of {DATATYPES[str(port.dtype)]}, as in {_shown(data)}")
    with np.errstate(over="ignore"):
        array = found.astype(port.dtype.numpy)
    fits = np.isfinite(array) if kind == "f" else array == found
    if not fits.all():
        raise RequestError(f"data of {whose} has a number beyond the range of {DATATYPES[str(port.dtype)]}")
    return _shaped(whose, array, shape)


def _shaped(whose: str, array: np.ndarray, shape: list[int]) -> np.ndarray:
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError):  # no elements, and extents that NumPy has no number for
        raise RequestError(f"shape of {whose} is {_shown(shape)}, which no array has") from None


def _shown(value: Any) -> str:
    """A stranger's value in a message, cut where it is long."""
    text = "missing" if value is None else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
