"""What passes do to a program on its way from graph to machine code, for those who look on."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Iterator
from typing import Any

from tengen.base.config import config
from tengen.base.record import record
from tengen.passes.run import Pass, observing


@record(eq=False, frozen=True)
class PassRun:
    """One pass that has run.

    Attributes:
        name: of the pass. before, after: what it was given, and what it made: graphs (`ir/graph.py`) at first, launches and memory later,
            at last a program. seconds: what it took. form: how what it made is printed.
    """

    name: str
    before: Any
    after: Any
    seconds: float
    form: Any

    def text(self) -> str:
        """What the pass made, as text."""
        return self.form.text(self.after)

    def __repr__(self) -> str:
        return f"{self.name}: {_told(self.before)} -> {_told(self.after)}, {1e3 * self.seconds:.3f} ms"


def _told(x: Any) -> str:
    nodes = getattr(x, "nodes", None)
    return f"{type(x).__name__} of {len(nodes)} nodes" if isinstance(nodes, list) else type(x).__name__


class PassRuns(list):
    """The passes that have run, in order; prints as a table."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self))

    def _repr_html_(self) -> str:
        """A table for notebooks; each row opens to show what the pass made."""
        row = "<details><summary><code>{}</code></summary><pre>{}</pre></details>"
        return "".join(row.format(html.escape(repr(r)), html.escape(r.text())) for r in self)


@contextlib.contextmanager
def observe_passes(*observers: Callable[[PassRun], Any]) -> Iterator[PassRuns]:
    """A block in which each pass that runs, in any thread, is noted: what it was given, what it made, and its time. Programs are made anew
    in it instead of read from the cache on disk; what was compiled before in this process is not compiled again.

    Args: observers: are called with each `PassRun` when it has ended, say to print it.
    Returns: a list that grows, of `PassRun`s.

    Numerics: looking on changes nothing.

    >>> import tengen
    >>> from tengen import Tensor
    >>> with tengen.jit.observe_passes() as seen:
    ...     y = tengen.trace(lambda x: (x + 1) * 2 - x)(Tensor([1.0, 2.0]))
    >>> fuse = next(run for run in seen if run.name == "fuse")
    >>> [n.op for n in fuse.before.nodes], [n.op for n in fuse.after.nodes]
    (['add', 'mul', 'sub'], ['fused'])
    >>> seen[-1].name, seen[-1].seconds > 0
    ('emit', True)
    """
    runs = PassRuns()

    def note(p: Pass, before: Any, after: Any, seconds: float) -> None:
        run = PassRun(p.name, before, after, seconds, p.form)
        runs.append(run)
        for tell in observers:
            tell(run)

    with config.scope(cache=False), observing(note):
        yield runs


__all__ = ["PassRun", "PassRuns", "observe_passes"]
