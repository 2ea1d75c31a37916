"""`tengen.tune`: a program's kernels get faster by measuring, and keep every bit.

In: a traced function, a loaded model or an executable. Out: the same object, which now runs faster kernels, and a `Report`.
What is found is kept in the cache for every later program with the same kernels, and goes into the file when the program is
dumped. Read next: `tuning/search.py`, `kernels/schedule.py`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

from tengen.base.config import config
from tengen.base.errors import ConfigError, TraceError
from tengen.compiler.schedules import keep
from tengen.deploy.model import Model
from tengen.jit.recording import Recording
from tengen.jit.trace import trace
from tengen.kernels.schedule import Schedules
from tengen.runtime import native
from tengen.runtime.tiers import wait_for_compilation
from tengen.tensor import contiguous, tracing
from tengen.tensor.executable import Executable
from tengen.tuning.search import Report, Run, Search
from tengen.tuning.trial import fill


def tune(
    program: trace | Model | Executable, seconds: float = 30.0, *, inputs: Sequence | None = None, progress: bool = True
) -> Report:
    """Makes a program's kernels faster by measuring, without changing a bit of what they compute.

    What may change are tiles, unrolling, the order of loops, packing and how work is shared out: never the order of a sum. The
    kernels with most to gain against the machine's roof come first. A schedule is taken when it was faster again and again,
    alone and inside of the program. Results are kept in the cache (`tengen cache info`) for every later compile of the same
    kernels with the same number of threads, and `trace.dump` writes them into the file.

    Args:
        program: a traced function that was called (the signature used last is tuned), or a loaded model, or an `Executable`.
        seconds: how long to try schedules, about; preparing and compiling the tuned program come on top. inputs: a tuple of
            arguments to measure with; default: floats from 1/4 to 1, zeros for integers. States are copied: tuning changes none.
            progress: show a bar on a terminal, where tqdm is installed.

    Returns: what was done; print it.

    Errors: TraceError inside a traced function, a profile, or where nothing was traced yet; TypeError for another kind of
        program; ValueError for seconds that are not positive; ConfigError for a program with open extents.

    Numerics: the bits stay, of every output; each candidate's are compared.

    >>> import tengen
    >>> from tengen import Tensor
    >>> f = tengen.trace(lambda x: (x @ x).sum(), example_input=Tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> report = tengen.tune(f, seconds=0.1)
    >>> report.after <= report.before
    True
    """
    if tracing.recorder is not None:
        raise TraceError("tune was called inside a traced function; help: tune the traced function after its first call")
    if not seconds > 0:
        raise ValueError(f"seconds={seconds}: how long to tune must be more than 0")
    exe, buffers = _program(program, inputs)
    if exe.extents:
        how = f"a schedule is for numbers: tune model.at({exe.extents[0]}=8), or a trace without dynamic_axes"
        raise ConfigError(f"{exe.name} has the open extents {', '.join(exe.extents)}; help: {how}")
    g = exe.graph
    values = [*g.inputs, *(s.read for s in g.states.values())]
    sizes = [prod(v.type.shape) * v.type.dtype.size for v in values]
    for i, v in enumerate(values):
        if buffers[i] is None:
            buffers[i] = native.new_buffer(sizes[i])
            native.write(buffers[i], fill(v.type.dtype, prod(v.type.shape), i))
    wait_for_compilation()  # what is measured is good code
    with _bar(exe.name, seconds, progress) as tick, config.scope(quick_compile=False):
        search = Search(exe, Run(buffers, sizes, len(g.inputs)), seconds, tick)
        new, report = search.tune()
    if new is not exe:
        keep(Schedules(new.schedules.target, new.schedules.threads, search.found))
        exe.take(new)
        if isinstance(program, Model):
            program.schedules.update(search.found)
    return report


def _program(program: Any, inputs: Sequence | None) -> tuple[Executable, list[Any]]:
    """What is tuned, and the buffers of its inputs and states; None for those that nobody gave."""
    if isinstance(program, Executable):
        if inputs is not None:
            raise TypeError("an Executable is tuned without inputs; help: tune the traced function or the model")
        return program, [None] * (len(program.graph.inputs) + len(program.graph.states))
    if isinstance(program, Model):
        return _of_model(program, inputs)
    if isinstance(program, trace):
        return _of_trace(program, inputs)
    raise TypeError(
        f"tune takes a traced function or a loaded model, not {type(program).__name__}; help: tengen.trace(function)"
    )


def _of_model(model: Model, inputs: Sequence | None) -> tuple[Executable, list[Any]]:
    given: list[Any] = [None] * len(model.inputs)
    if inputs is not None:
        given = [model.argument(p, x)._data for p, x in zip(model.inputs, model.ordered(tuple(inputs), {}))]
    with model._lock:
        model._prepare()
        assert model._executable is not None
        return model._executable, [*given, *model._states]


def _of_trace(f: trace, inputs: Sequence | None) -> tuple[Executable, list[Any]]:
    leaves: list | None = None
    r: Recording | None = None if f._last is None else f._now()
    if inputs is not None:
        r, leaves, _ = f._find(tuple(inputs), {})
    if r is None:
        raise TraceError(f"{f.name} has not been traced; help: call it with example arguments first, or give inputs=")
    if r.run is None:
        raise TraceError(
            f"{f.name} runs eagerly, because a GradManager outside records its gradient; help: trace the whole step"
        )
    states: list[Any] = []
    for i in range(len(r.states)):
        known = leaves is not None or not isinstance(r.owners.get(i), int)
        states.append(contiguous(r.state(i, leaves or ()).detach())._data if known else None)
    given = [None] * len(r.graph.inputs) if leaves is None else [contiguous(x.detach())._data for x in leaves]
    assert f._used is not None
    run = r.run if r.pattern is None else r.run.alone(f._used.extents)  # what opened by itself is tuned for the numbers of that call
    return run, [*given, *states]


@contextlib.contextmanager
def _bar(name: str, seconds: float, wanted: bool) -> Iterator[Callable[[float, str], None]]:
    """A function that shows how far the tuning is."""
    if not wanted or not sys.stderr.isatty() or importlib.util.find_spec("tqdm") is None:
        yield lambda passed, text: None
        return
    from tqdm import tqdm

    with tqdm(total=seconds, desc=name, bar_format="{l_bar}{bar}| {n:.0f}/{total:.0f} s {postfix}") as bar:

        def tick(passed: float, text: str) -> None:
            bar.n = min(passed, seconds)
            bar.set_postfix_str(text)

        yield tick
