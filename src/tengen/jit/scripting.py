"""`script`: a function's source is compiled, so that its loops and ifs over tensors stay loops and branches of the program.

It is a `trace` of a function that `script/` has made of the user's: recordings, guards, open extents, files and artifacts are those of
`trace`. See docs/script.md.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import types
from collections.abc import Iterator
from threading import get_ident
from typing import Any

from tengen.base.config import config
from tengen.base.errors import ScriptError, TengenError, TraceError
from tengen.jit.recording import Recording
from tengen.jit.room import warn
from tengen.jit.script import python_calls, runtime
from tengen.jit.script.aliases import Twins
from tengen.jit.script.checks import Raised
from tengen.jit.script.convert import converted, innermost, with_source
from tengen.jit.script.loops import memo
from tengen.jit.script.python_calls import CallsPython
from tengen.jit.script.texts import with_lists
from tengen.jit.trace import trace
from tengen.tensor import tracing


@contextlib.contextmanager
def _scripting(name: str) -> Iterator[None]:
    """In this block, modules that are called run their `forward` as a script records it."""
    me = get_ident()
    before = tracing.scripts.get(me)
    tracing.scripts[me] = runtime.fn
    if before is None:
        memo.begin()
        tracing.writes[me] = Twins()
    try:
        yield
    except Raised as e:
        if before is not None:
            raise  # a branch of the script around tells what becomes of it
        raise e.error from None
    except TengenError as e:
        if before is None and not isinstance(e, CallsPython):
            with_source(e)
        raise
    except RecursionError as e:
        if before is not None:
            raise
        at = innermost(e)
        line = "" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}: "
        endless = ScriptError(
            f"{line}{name} calls itself without end while it is recorded: where a condition is a tensor, both branches are; help: a while "
            "loop. Or a tensor decides about leaving a loop over a long list; help: a loop over a tensor"
        ).with_traceback(e.__traceback__)
        with_source(endless)
        raise endless.with_traceback(None) from None
    finally:
        if before is None:
            memo.end()
            del tracing.scripts[me], tracing.writes[me]


class script(trace):
    """Makes a function a static program by its source: loops and ifs over tensors are kept.

    Use it as ``@script``, ``@script(dynamic_axes=...)`` or ``script(module)``: of a function, a method, or a Module, whose `forward` is
    compiled with all that it calls.

    Args:
        function: a function with a source, or a Module. The others are those of `trace`.

    A condition that is a tensor becomes a branch of the program, a loop over a tensor, over ``x.split(1)`` or over a range whose bound is
    a tensor, and a `while` of which a tensor decides, become loops. What is known when the function is recorded (numbers, shapes,
    lists, modules) is decided then. Where ``trace.enabled`` is false, or TENGEN_JIT is 0, the function runs as plain Python.

    Errors: ScriptError for what script does not take, with the line, and what to write instead; ShapeError, DTypeError or ScriptError
        where branches, or iterations, give a variable other types. Errors that the function raises where a tensor decides are
        raised when the run has ended.

    Numerics: the bits of plain Python. A gradient to which several iterations of a loop add is summed by the loop, and may differ by
        roundings.

    >>> from tengen import Tensor, script
    >>> @script
    ... def collatz(n):
    ...     steps = 0
    ...     while n != 1:
    ...         if n % 2 == 0:
    ...             n = n // 2
    ...         else:
    ...             n = 3 * n + 1
    ...         steps += 1
    ...     return steps
    >>> collatz(Tensor(27)).item()
    111
    """

    def __init__(self, function: Any, **options: Any):
        self.plain: Any = function.plain if isinstance(function, script) else function
        example = options.pop("example_input", None)
        self._code()  # what script does not take is an error now
        super().__init__(self.plain, **{"symbolic": True} | options)
        if example is not None:
            self.trace(*(example if isinstance(example, tuple) else (example,)))

    def _code(self) -> Any:
        """The function as it is now, rewritten: it may have got other defaults, or another code."""
        f = self.plain
        if isinstance(f, types.FunctionType):
            return converted(f, runtime)
        if isinstance(f, types.MethodType) and isinstance(f.__func__, types.FunctionType):
            return types.MethodType(converted(f.__func__, runtime), f.__self__)
        if isinstance(f, type) or not callable(f):
            raise TypeError(f"script() takes a function, a method or a module, got {f!r}")
        return f

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (trace.enabled and config.jit):
            return self.plain(*args, **kwargs)
        if tracing.active is not None and tracing.recorder is not None:
            outermost = get_ident() not in tracing.scripts
            with _scripting(self.name):
                made = self._code()(*args, **kwargs)
                return with_lists(made) if outermost else made
        before = python_calls.learned
        made = super().__call__(*args, **kwargs)
        if python_calls.learned > before:  # it ran op by op, and what it called has shown what it returns
            self.drop(lambda r: r.open)
        elif self.calls_python and "python" not in self._told:
            self._told.add("python")
            warn(
                f"{self.name} runs op by op: it calls Python ({self.calls_python}), and what that returns, or its gradient, is not known when "
                "the script is recorded; help: annotate its result (None, bool, int, float), or call it outside"
            )
        return made

    def _called(self, args: Any, kwargs: Any) -> Any:
        self.calls_python = ""
        try:
            with _scripting(self.name):
                return with_lists(self._code()(*args, **kwargs))
        except CallsPython as e:
            self.calls_python = f"{e.what} at {e.where}"
        return None

    def _now(self) -> Recording:
        r = super()._now()
        if self.calls_python:
            raise TraceError(
                f"{self.name} calls Python ({self.calls_python}), and a graph or a file holds no Python; help: leave the call out, or make the "
                "function jit.unused where a script does not need it"
            )
        return r

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A scripted method: one set of recordings for each instance."""
        if instance is None:
            return self
        bound = self._again(self.plain.__get__(instance, owner))
        setattr(instance, self.plain.__name__, bound)
        return bound

    def _again(self, function: Any) -> script:
        return script(function, **self._options())

    def __copy__(self) -> script:
        return self._again(self.plain)

    def __deepcopy__(self, memo: Any) -> script:
        return self._again(copy.deepcopy(self.plain, memo))

    def __reduce__(self) -> Any:
        name = getattr(self.plain, "__qualname__", None)
        if name and getattr(sys.modules.get(self.plain.__module__), name, None) is self:
            return name
        return functools.partial(script, **self._options()), (self.plain,)

    def __repr__(self) -> str:
        return super().__repr__().replace("<trace of", "<script of", 1)
