"""MegEngine's traced modules and dumped graphs, as `to_safetensors.py` writes them, become modules that run; traced ones train.

In: a safetensors file whose metadata holds the calls as JSON. Out: a Module. A file names Tengen's layers, functions and methods of
tensors out of lists; nothing else is looked up, and nothing executed.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

import tengen.functional as F
import tengen.module as M
from tengen.base.errors import FileFormatError
from tengen.base.files import File, name_of
from tengen.deploy.tensorfile import CONVERTER, read_tensors
from tengen.functional import vision
from tengen.interop.migrate.operators import OPERATORS, known_operator
from tengen.ir.plain_json import load_json
from tengen.tensor import Tensor

TEXT = "megengine"
LAYERS = frozenset(
    "Conv1d Conv2d Conv3d ConvTranspose2d ConvTranspose3d Linear BatchNorm1d BatchNorm2d LayerNorm GroupNorm InstanceNorm Embedding Dropout "
    "MaxPool2d AvgPool2d AdaptiveAvgPool2d AdaptiveMaxPool2d ReLU ReLU6 LeakyReLU PReLU GELU SiLU Sigmoid Softmax Identity Flatten Pad "
    "LocalResponseNorm PixelShuffle".split()
)
SIZES = ("in_channels", "out_channels", "in_features", "out_features", "num_features", "num_channels", "num_embeddings", "embedding_dim",
         "num_parameters", "normalized_shape")  # fmt: skip
METHODS = frozenset(
    "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ __mod__ __pow__ __rpow__ __matmul__ __neg__ "
    "__getitem__ __lt__ __le__ __gt__ __ge__ __eq__ __ne__ __and__ __or__ __invert__ reshape transpose flatten sum mean max min prod "
    "astype detach argmax argmin".split()
)
def script() -> Path:
    """The path of the file that runs in an old environment, with NumPy and the framework alone.

    >>> script().name
    'to_safetensors.py'
    """
    return Path(CONVERTER)


def load_megengine(file: File) -> M.Module:
    """A traced module or a dumped graph of MegEngine as a Module of Tengen, in evaluation.

    Args: file: what ``python to_safetensors.py megengine-graph traced.tm file`` or ``megengine-dump net.mge file`` wrote; see `script`.
    Returns: a Module. Of a traced module it has the layers, whose weights train; a dumped graph holds constants, into which MegEngine
        has folded batch norms.
    Errors: FileFormatError for another file, and for layers, functions, methods and operators that Tengen does not have, told all at once.
    Numerics: Tengen's own; MegEngine's results but for rounding.
    """
    found, where = read_tensors(file), name_of(file)
    if TEXT not in found.texts:
        raise FileFormatError(f"{where}: it holds no graph of MegEngine; help: write it by  python {script()} megengine-graph net.tm {where}")
    graph = load_json(found.texts[TEXT], found.bytes, "its graph")
    try:
        return TracedGraph(graph, {k: Tensor(a) for k, a in found.arrays.items()}).eval()
    except FileFormatError as e:
        raise FileFormatError(f"{where}: {e}") from e
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, RecursionError, OverflowError) as e:
        raise FileFormatError(f"{where}: its graph is damaged: {type(e).__name__}: {str(e)[:200]}") from e


class TracedGraph(M.Module):
    """The calls of a traced module, one after the other."""

    def __init__(self, graph: Mapping[str, Any], arrays: Mapping[str, Tensor]):
        super().__init__()
        self.layers, self.constants = {}, {k: a for k, a in arrays.items() if k.startswith("constant.")}
        self.inputs, self.outputs = ([_node(n) for n in graph[k]] for k in ("inputs", "outputs"))
        self.calls = [dict(call) for call in graph["calls"]]
        unknown = [text for call in self.calls if (text := _unknown(call))]
        unknown += [f"the layer {row['class']!r}" for row in graph["layers"].values() if row["class"] not in LAYERS]
        if unknown:
            _fail("Tengen does not know " + ", ".join(sorted(set(unknown))[:20]))
        for name, row in graph["layers"].items():
            own = {k[len(name) + 1 :]: a for k, a in arrays.items() if k.startswith(name + ".")}
            layer = _layer(row["class"], row["settings"], sum(a.size for a in own.values()))
            layer.load_state_dict(own)
            self.layers[name] = layer
        self._check()

    def _check(self) -> None:
        """Each node is made once, before it is used; layers and constants are there."""
        made = set(self.inputs)
        for call in self.calls:
            for n in _used([*call.get("args", ()), *call.get("kwargs", {}).values(), call.get("constant")], self.constants):
                if n not in made:
                    _fail(f"{call.get('name', '')!r:.80} uses the node {n} before it is made")
            if "layer" in call and call["layer"] not in self.layers:
                _fail(f"there is no layer {str(call['layer'])[:40]!r}")
            made.update(_node(n) for n in call["out"])
        if not made.issuperset(self.outputs):
            _fail("an output is not made")

    def forward(self, *inputs: Tensor) -> Any:
        if len(inputs) != len(self.inputs):
            raise TypeError(f"the traced module takes {len(self.inputs)} inputs, {len(inputs)} were given")
        values: dict[int, Any] = dict(zip(self.inputs, inputs))
        for call in self.calls:
            result = self._called(call, values)
            results = result if len(call["out"]) > 1 else (result,)
            values.update(zip(call["out"], results, strict=True))
        outputs = [values[n] for n in self.outputs]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _called(self, call: Mapping[str, Any], values: Mapping[int, Any]) -> Any:
        value = lambda x: _value(x, values, self.constants)
        if "layer" in call:
            return self.layers[call["layer"]]
        if "constant" in call:
            return value(call["constant"])
        args, kwargs = [value(a) for a in call["args"]], {k: value(v) for k, v in call["kwargs"].items()}
        if "operator" in call:
            return OPERATORS[call["operator"]](call["settings"], *args)
        if "function" in call:
            return _function(call["function"])(*args, **kwargs)
        if call["method"] == "__call__":
            return args[0](*args[1:], **kwargs)
        return getattr(args[0], call["method"])(*args[1:], **kwargs)


def _fail(message: str) -> NoReturn:
    raise FileFormatError(message)


def _node(x: Any) -> int:
    if type(x) is not int:
        _fail(f"{str(x)[:40]!r} is no node")
    return x


def _unknown(call: Mapping[str, Any]) -> str | None:
    """What of a call Tengen does not have."""
    if "layer" in call or "constant" in call:
        return None
    if "operator" in call:
        return known_operator(call["operator"], call["settings"])
    if "function" in call:
        return None if _function(call["function"]) is not None else f"the function {call['function']!r:.60}"
    return None if call["method"] == "__call__" or call["method"] in METHODS else f"the method {call['method']!r:.60}"


def _function(name: Any) -> Callable | None:
    """An operation of `functional` or `functional.vision`; None for another name, a module or a class."""
    if not isinstance(name, str) or name.startswith("_"):
        return None
    for home in (F, vision):
        found = getattr(home, name, None) if name in dir(home) else None
        if callable(found) and not inspect.isclass(found) and not inspect.ismodule(found):
            return found
    return None


def _layer(kind: str, settings: Mapping[str, Any], held: int) -> M.Module:
    """A layer of Tengen, made with those of MegEngine's settings that it takes. held: numbers that the file has for it, which bound
    what is allocated."""
    sizes = [n for k in SIZES if k in settings for n in np.ravel(settings[k]).tolist()]
    window = np.ravel(settings.get("kernel_size", 1)).tolist() if sizes else []
    groups = settings.get("groups", 1)
    if any(type(n) is not int or n < 1 for n in [*sizes, *window, groups]):
        _fail(f"a {kind} of {str(sizes)[:60]}, {str(groups)[:20]} groups and windows of {str(window)[:60]}")
    allocates = sizes and (kind.startswith("BatchNorm") or settings.get("affine") is not False)
    if groups > min(sizes, default=1):
        _fail(f"a {kind} of {sizes} has {groups} groups")
    if allocates and math.prod(sizes) * math.prod(window) > held * (groups if kind.startswith("Conv") else 1):
        _fail(f"a {kind} of {sizes} with windows of {window} has more than the {held} numbers that are there")
    build = getattr(M, kind)
    wanted = inspect.signature(build.__init__).parameters
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items() if k in wanted and k not in ("name", "self")}
    return build(**plain)


def _used(x: Any, constants: Mapping[str, Tensor], depth: int = 0) -> list[int]:
    """The nodes in an argument, which is checked. FileFormatError for what is none."""
    if depth > 20:
        _fail("arguments are nested too deeply")
    if isinstance(x, list):
        return [n for v in x for n in _used(v, constants, depth + 1)]
    if isinstance(x, dict):
        if len(x) != 1 or (key := next(iter(x))) not in ("node", "tuple", "list", "slice", "tensor", "ellipsis", "dtype", "ints"):
            _fail(f"the argument {str(x)[:60]!r} is not known")
        if key == "tensor" and x[key] not in constants:
            _fail(f"there is no constant {str(x[key])[:40]!r}")
        if key == "ints" and np.array(x[key], np.int32).size > 64:
            _fail("a list of small numbers has more than 64")
        return [_node(x[key])] if key == "node" else _used(x[key], constants, depth + 1) if isinstance(x[key], list) else []
    return []


def _value(x: Any, values: Mapping[int, Any], constants: Mapping[str, Tensor]) -> Any:
    if not isinstance(x, dict):
        return x
    ((key, v),) = x.items()
    if key == "node":
        return values[v]
    if key == "tensor":
        return constants[v]
    if key == "ellipsis":
        return ...
    if key == "dtype":
        return v
    if key == "ints":
        return np.array(v, np.int32)
    items: Sequence = [_value(part, values, constants) for part in v]
    return tuple(items) if key == "tuple" else slice(*items) if key == "slice" else items
