"""Calls of Python by a script: `print`, and functions with `jit.ignore`.

Each becomes a node of the program, which calls Python in every run (`tensor/host.py`). What a function returns is known once it has run: where
that is not so, and no annotation says it, the call ends the recording (`CallsPython`), and the script runs as Python, op by op, this time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tengen.base.errors import TraceError, user_line
from tengen.ir.types import TensorType
from tengen.jit.script.checks import error
from tengen.jit.script.numbers import DTYPES, Number
from tengen.jit.script.texts import Place, given, placed, taken
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor, tracing
from tengen.tensor.host import record_call, runs_now
from tengen.tensor.nodes import on_tape
from tengen.tensor.regions import Region
from tengen.tensor.structure import flatten


class CallsPython(TraceError):
    """A function that is being recorded calls Python, and what that returns is not known. what: the call."""

    def __init__(self, what: str):
        self.what, self.where = what, user_line()
        super().__init__(
            f"{self.where}: {what} returns what is not known while the trace is recorded; help: annotate its result (None, bool, int, float), "
            "return tensors of the same types in all calls, or call it outside"
        )


def printed(*args: Any, **keywords: Any) -> None:
    """`print`, in every run."""
    if runs_now():
        print(*args, **keywords)
    else:
        _record("print()", lambda args, keywords: print(*args, **keywords), args, keywords, ())


def _record(what: str, function: Callable, args: tuple, keywords: dict[str, Any], like: Sequence[Tensor]) -> list[Tensor]:
    """The tensors that a function gives, in every run."""
    tensors: list[Tensor] = []
    inside = taken((args, keywords), tensors)
    if like and any(map(on_tape, tensors)):
        raise CallsPython(what)  # its gradient is that of the ops it calls, which a program does not know
    made = record_call(lambda *values: function(*given(inside, values)), tensors, like, what)
    if isinstance(tracing.recorder, Region) and any(x.dtype.is_inexact for x in made):
        tracing.recorder.function = what
    return made


learned = 0  # how often a result of a function with `jit.ignore` became known


class _Ignored:
    """A function with `jit.ignore`, and what it returns, by the types of the tensors that it is given: a structure with places for
    tensors, and their types."""

    def __init__(self, function: Callable):
        self.function, self.what = function, f"{function.__name__}(), a function with jit.ignore"
        self.results: dict[Any, tuple[Any, list[TensorType]]] = {}
        said = getattr(function, "__annotations__", {}).get("return", ...)
        self.said: tuple[Any, list[TensorType]] | None = None
        if said in (None, "None"):
            self.said = None, []
        for kind, t in DTYPES.items():
            if said in (kind, kind.__name__):
                self.said = Place(0, True), [TensorType((), t)]

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if runs_now():
            made = self.function(*args, **keywords)
            self._learn((args, keywords), made)
            return made
        structure, types = self._known((args, keywords))
        like = [REGISTRY["zeros"].call(t.shape, t.dtype) for t in types]

        def call(args: tuple, keywords: dict) -> list[Tensor]:
            tensors: list[Tensor] = []
            if taken(self.function(*args, **keywords), tensors, True) != structure:
                raise TraceError(f"{self.what} returned another structure than in the call before; help: the same one in all calls")
            return tensors

        return placed(structure, _record(self.what, call, args, keywords, like))

    def _types(self, given: Any) -> Any:
        tensors: list[Tensor] = []
        flatten(given, tensors)
        return tuple(x._layout.type for x in tensors if not isinstance(x, Number))  # a number of a loop is Python's elsewhere

    def _known(self, given: Any) -> tuple[Any, list[TensorType]]:
        found = self.said or self.results.get(self._types(given))
        if found is None:
            raise CallsPython(self.what)
        return found

    def _learn(self, given: Any, made: Any) -> None:
        global learned
        if self.said is not None or tracing.recorder is not None or (key := self._types(given)) in self.results:
            return
        tensors: list[Tensor] = []
        structure = taken(made, tensors, True)
        self.results[key] = structure, [x._layout.type for x in tensors]
        learned += 1


def ignore(function: Callable) -> Callable:
    """A function that `script` does not compile, but calls as Python in every run.

    A program with such a call cannot be dumped: files hold no Python. What the function returns (tensors, numbers, None, nested in any way) has
    the same structure and types in all calls with tensors of the same types: the first call shows them, and runs op by op, unless an
    annotation says None, bool, int or float. Its result has no gradient inside of a loop or a branch; elsewhere a script through which
    a gradient is taken runs op by op. As PyTorch's `torch.jit.ignore`.

    Errors: DTypeError, ShapeError or TraceError, from a run, where it returns another type than in the call before.

    >>> from tengen import Tensor, jit
    >>> seen = []
    >>> @jit.ignore
    ... def note(x) -> None:
    ...     seen.append(x.item())
    >>> note(Tensor(2.0)), seen
    (None, [2.0])
    """
    ignored = _Ignored(function)

    @functools.wraps(function, updated=())
    def call(*args: Any, **keywords: Any) -> Any:
        return ignored(*args, **keywords)

    return call


def unused(function: Callable) -> Callable:
    """A function that scripts have no use for: it is not compiled, and a script that calls it raises a `NotImplementedError`.

    Outside of scripts and traces it is what it was. As PyTorch's `torch.jit.unused`.

    >>> from tengen import jit
    >>> @jit.unused
    ... def report(x):
    ...     return str(x)
    >>> report(1)
    '1'
    """

    @functools.wraps(function, updated=())
    def call(*args: Any, **keywords: Any) -> Any:
        if tracing.recorder is not None:
            raise error(NotImplementedError(f"{function.__name__} has jit.unused, and a script has called it"))
        return function(*args, **keywords)

    return call
