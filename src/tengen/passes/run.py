"""Passes: what they are, how a list of them is run, and how one looks on.

In: something to compile, and passes in order. Out: what the last one makes. The list from a graph to its program is `passes` of
`compiler/driver.py`; who prints, verifies or measures what passes do is an observer.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tengen.base.config import config
from tengen.base.record import record


@record(frozen=True)
class Form:
    """A form that a program has on its way from graph to machine code.

    Attributes:
        level: it is printed from this value of TENGEN_DEBUG on. text: what is printed. verify: raises VerifyError for what
            breaks the form's rules.
    """

    level: int
    text: Callable[[Any], str]
    verify: Callable[[Any], None] = lambda x: None


@record(frozen=True)
class Pass:
    """A step on the way from graph to machine code: a function that takes one form of the program and makes another, or the
    same form anew. What it was given stays as it was.

    Attributes:
        name: unique in a list, but for cleaning up twice. run: what it does. form: of what it makes.
    """

    name: str
    run: Callable[[Any], Any]
    form: Form


Observer = Callable[[Pass, Any, Any, float], None]  # what ran, what it was given, what it made, and its seconds

_observers: list[Observer] = []


@contextlib.contextmanager
def observing(*observers: Observer) -> Iterator[None]:
    """In the block, observers are told of each pass that has run, in any thread: observer(pass, before, after, seconds). A
    program that is compiled within a pass (to fold constants) is told of before that pass."""
    _observers.extend(observers)
    try:
        yield
    finally:
        for o in observers:
            del _observers[next(i for i, x in enumerate(_observers) if x is o)]


def run_passes(x: Any, passes: Iterable[Pass], *observers: Observer) -> Any:
    """What the last pass makes of x. TENGEN_CHECK=1 verifies what each has made, TENGEN_DEBUG prints it, from the level of its
    form on; `observers`, and those of `observing`, are told after that."""
    for p in passes:
        start = time.perf_counter()
        made = p.run(x)
        seconds = time.perf_counter() - start
        for told in (_check, _print, *_observers, *observers):
            told(p, x, made, seconds)
        x = made
    return x


def _check(p: Pass, before: Any, after: Any, seconds: float) -> None:
    if config.check:
        p.form.verify(after)


def _print(p: Pass, before: Any, after: Any, seconds: float) -> None:
    if config.debug >= p.form.level:
        print(f"# after {p.name}\n{p.form.text(after)}")
