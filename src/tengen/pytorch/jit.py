"""`torch.jit`: Tengen's `trace` and `script` with PyTorch's arguments, and files of their programs.

>>> import io
>>> from tengen.pytorch import nn, ones
>>> net = nn.Linear(2, 1)
>>> file = io.BytesIO()
>>> save(trace(net, ones(1, 2)), file)
>>> _ = file.seek(0)
>>> bool((load(file)(ones(1, 2)) == net(ones(1, 2))).item())
True
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from tengen.base.errors import ArgumentError
from tengen.base.files import File
from tengen.base.lazy import NoSuchName
from tengen.deploy import load_graph
from tengen.ir.text import print_graph
from tengen.jit import ignore, unused
from tengen.jit.scripting import script as _script
from tengen.jit.trace import trace as _trace
from tengen.pytorch.exporting import Exported, model_of, structure_of
from tengen.pytorch.nn.module import Module
from tengen.tensor.recording import tracing


class ScriptModule(Module):
    """A module whose calls run as a program. It has the module's parameters, names and mode, and what the `trace` has, as `stats`.

    Args: module: whose. program: the `trace` or `script` of it.
    """

    def __init__(self, module: Any, program: Any):
        super().__init__()
        vars(self).update(_of=module, _program=program)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_of" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._of if hasattr(self._of, name) else self._program, name)

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        return self._of._attributes()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return (self._of if tracing.recorder is not None else self._program)(*args, **kwargs)

    @property
    def training(self) -> bool:
        """Whether the module trains."""
        return self._of.training

    @training.setter
    def training(self, mode: bool) -> None:
        self._of.training = mode

    def train(self, mode: bool = True, recursive: bool = True) -> Any:
        """Sets whether the module and those inside train; returns itself."""
        self._of.train(mode)
        return self

    @property
    def graph(self) -> Any:
        """The graph of the program that was used last. Errors: TraceError before a call"""
        return model_of(self._program).graph

    @property
    def code(self) -> str:
        """The graph as text."""
        return print_graph(self.graph)

    def save(self, f: File) -> None:
        """`torch.jit.save` of the module."""
        save(self, f)


def trace(func: Any, example_inputs: Any = None, **how: Any) -> Any:
    """A function or a module as a program for the shapes of its inputs: `tengen.trace`. check_trace, strict: accepted."""
    for name in ("check_trace", "strict", "check_inputs", "check_tolerance", "optimize"):
        how.pop(name, None)
    made = _trace(func, **how)
    made = ScriptModule(func, made) if isinstance(func, Module) else made
    if example_inputs is not None:
        made(*(example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)))
    return made


def script(obj: Any = None, **how: Any) -> Any:
    """A function or a module as a program whose loops and ifs over tensors stay loops and branches: `tengen.script`, with its arguments.
    example_inputs, optimize: accepted."""
    for name in ("example_inputs", "optimize"):
        how.pop(name, None)
    if obj is None:
        return lambda f: script(f, **how)
    if isinstance(obj, (ScriptModule, _trace)):
        return obj
    return ScriptModule(obj, _script(obj, **how)) if isinstance(obj, Module) else _script(obj, **how)


def save(m: Any, f: File, _extra_files: Any = None) -> None:
    """Writes the program of a traced or scripted module or function, with its weights, as `tengen.trace.dump` does: that of the call that was
    last, whose shapes it has but for extents in which calls differed.

    Args: f: a path, or a file that is open for writing bytes.
    Errors: ArgumentError for what was not traced, TraceError before a call
    """
    if _extra_files:
        raise ArgumentError("jit.save: _extra_files is not there; help: files of their own")
    if isinstance(m, (Frozen, Exported)):
        raise ArgumentError("jit.save: this program came from a file or was frozen; help: copy that file, or save what it was made of")
    program = m._program if isinstance(m, ScriptModule) else m
    if not isinstance(program, _trace):
        raise ArgumentError(f"jit.save: a {type(m).__name__} was not traced; help: torch.jit.trace(net, example)")
    program.dump(f)


def load(f: File, map_location: Any = None, _extra_files: Any = None) -> Exported:
    """The program that `save` has written, as a module that runs it; its weights are constants. map_location: the processor alone.

    Errors: FileFormatError for another file
    """
    return Exported(load_graph(f))


class Frozen(Exported):
    """What `freeze` makes."""


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Any:
    """The program of a traced or scripted module in evaluation mode, with its weights of now as constants: a module that takes the shapes of
    the last call. preserved_attrs, optimize_numerics: accepted; bits stay the same.

    Errors: ArgumentError for a module that trains, or that was not traced; TraceError before a call
    """
    if not isinstance(mod, ScriptModule):
        raise ArgumentError(f"jit.freeze: a {type(mod).__name__} was not traced; help: torch.jit.trace(net.eval(), example)")
    if mod.training:
        raise ArgumentError("jit.freeze: the module trains; help: net.eval() before it is traced")
    return Frozen(model_of(mod._program), structure_of(mod._program))


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    """`freeze`, of a module that is not frozen: programs are optimized as they are made."""
    return mod if isinstance(mod, Exported) else freeze(mod)


def script_if_tracing(fn: Callable) -> Callable:
    """The function as `script` compiles it, which records its loops and ifs where a trace calls it."""
    return _script(fn)


def is_tracing() -> bool:
    """False: programs are recorded from what Python runs."""
    return False


def is_scripting() -> bool:
    """False: Python runs the function."""
    return False


def export(fn: Any) -> Any:
    """The function itself."""
    return fn


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value."""
    return the_value


Final = Any
ScriptFunction = _trace

def __getattr__(name: str) -> Any:
    raise NoSuchName("tengen.pytorch.jit", name, lambda: dir(sys.modules[__name__]))


__all__ = [
    "Final", "ScriptFunction", "ScriptModule", "annotate", "export", "freeze", "ignore", "is_scripting", "is_tracing", "load",
    "optimize_for_inference", "save", "script", "script_if_tracing", "trace", "unused",
]  # fmt: skip
