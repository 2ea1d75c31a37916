"""Texts of values that come when the program runs: f-strings of tensors, in messages and in what a script prints.

`text(...)` is what an f-string of a script becomes. With a tensor in it that is being recorded, it is a `Text`, which `print`, functions with
`jit.ignore` and errors take. `taken` takes the tensors out of what such a function is called with, `given` puts values in their places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tengen.base.dtype import int64
from tengen.base.errors import ScriptError, user_line
from tengen.base.record import NamedTuple
from tengen.jit.script.lanes import Stacked
from tengen.jit.script.numbers import DTYPES, Number, strong
from tengen.loops.lang import Expr
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor, tracing
from tengen.tensor.structure import over_fields


class Part(NamedTuple):
    """``{value!conversion:spec}``, written as `source`."""

    value: Any
    conversion: int
    spec: Any
    source: str

    def shown(self) -> str:
        """Its text. The value is known."""
        value = {-1: lambda x: x, 115: str, 114: repr, 97: ascii}[self.conversion](self.value)
        return format(value, "" if self.spec is None else str(self.spec))


class Formatted(NamedTuple):
    """``template % value``, and ``template.format(*args, **keywords)`` whose value is (args, keywords)."""

    template: str
    value: Any
    is_method: bool

    @property
    def source(self) -> str:
        """What stands for it in a message that is known now."""
        return self.template

    def shown(self) -> str:
        """Its text. The value is known."""
        return self.template.format(*self.value[0], **self.value[1]) if self.is_method else self.template % self.value


class Text:
    """A text with values that come when the program runs."""

    def __init__(self, parts: tuple[Any, ...]):
        self.parts = parts

    def __add__(self, other: Any) -> Text:
        if not isinstance(other, (str, Text)):
            return NotImplemented
        return Text((*self.parts, *(other.parts if isinstance(other, Text) else (other,))))

    def __radd__(self, other: Any) -> Text:
        return Text((other, *self.parts)) if isinstance(other, str) else NotImplemented

    def __str__(self, *_: Any) -> Any:
        raise ScriptError(
            f"{user_line()}: a text with the value of a tensor is known when the program runs; help: print it, raise an error with it, or "
            "pass it to a function with jit.ignore"
        )

    __repr__ = __format__ = __eq__ = __ne__ = __len__ = __contains__ = __getitem__ = __iter__ = __bool__ = __hash__ = __mod__ = __str__

    def source(self) -> str:
        """The text, with the source of what is not known."""
        return "".join(p if isinstance(p, str) else p.source if _comes(p.value) else p.shown() for p in self.parts)


COMING = (Tensor, Text, Expr, Stacked)  # what has its value when the program runs, while it is recorded


def _comes(x: Any) -> bool:
    """Whether a value comes when the program runs, or holds one that does."""
    if isinstance(x, (list, tuple, set)):
        return any(map(_comes, x))
    return any(map(_comes, x.values())) if isinstance(x, dict) else isinstance(x, COMING)


def waits(x: Any) -> bool:
    """The same, while a program is recorded."""
    recorder = tracing.recorder
    return recorder is not None and not recorder.answers and _comes(x)


def shown(x: Any, conversion: int = -1, spec: Any = None) -> Any:
    """The text of a value, as `str`, `repr` and `format` have it."""
    return text((x, conversion, spec, "a tensor"))


def modulo(a: Any, b: Any) -> Any:
    """``a % b``, which is a text where a is one."""
    return Text((Formatted(a, b, False),)) if isinstance(a, str) and waits(b) else a % b


def formatted(template: str, *args: Any, **keywords: Any) -> Any:
    """``template.format(...)``"""
    value = (args, keywords)
    return Text((Formatted(template, value, True),)) if waits(value) else template.format(*args, **keywords)


def joined(separator: str, texts: Any) -> Any:
    """``separator.join(texts)``"""
    found = list(texts)
    if not any(isinstance(t, Text) for t in found):
        return separator.join(found)
    return Text(tuple(p for i, t in enumerate(found) for p in ([separator] * (i > 0) + list(t.parts if isinstance(t, Text) else (t,)))))


def text(*parts: Any) -> Any:
    """An f-string: texts, and ``(value, conversion, spec, source)``."""
    found = tuple(p if isinstance(p, str) else Part(*p) for p in parts)
    if any(waits(v) for p in found if isinstance(p, Part) for v in (p.value, p.spec)):
        return Text(found)
    return "".join(p if isinstance(p, str) else p.shown() for p in found)


def static(x: Any) -> Any:
    """What stands for a value in a message that is known now: of a `Text` its source."""
    return x.source() if isinstance(x, Text) else x


class Place(NamedTuple):
    """The place of a tensor. number: it is a Python number."""

    index: int
    number: bool


def taken(x: Any, tensors: list[Tensor], numbers: bool = False) -> Any:
    """A value, nested in any way, with places for its tensors, which are appended to `tensors`. numbers: Python's numbers are tensors, too."""
    inside = lambda v: taken(v, tensors, numbers)
    if numbers and type(x) in DTYPES:
        tensors.append(Tensor(x, dtype=DTYPES[type(x)]))
        return Place(len(tensors) - 1, True)
    match x:
        case Tensor() | Expr():
            tensors.append(strong(x) if isinstance(x, Tensor) else REGISTRY["extent_op"].call(x, int64))
            return Place(len(tensors) - 1, isinstance(x, (Number, Expr)))
        case Text():
            return Text(tuple(inside(p) for p in x.parts))
        case Stacked():
            return [inside(v) for v in x]
        case tuple() if hasattr(x, "_fields"):
            return type(x)(*(inside(v) for v in x))
        case list() | tuple() | set() if type(x) in (list, tuple, set):
            return type(x)(inside(v) for v in x)
        case dict() if type(x) is dict:
            return {k: inside(v) for k, v in x.items()}
    return over_fields(x, inside, frozen=False)


def placed(x: Any, tensors: Sequence[Tensor]) -> Any:
    """What `taken` made, with tensors in the places; those of numbers are numbers of the program."""
    return _filled(x, lambda p: Number.of(tensors[p.index]) if p.number else tensors[p.index])


def given(x: Any, values: Sequence[Tensor]) -> Any:
    """The same with values: numbers and texts are Python's."""
    return _filled(x, lambda p: values[p.index].item() if p.number else values[p.index])


def _filled(x: Any, of: Callable[[Place], Any]) -> Any:
    inside = lambda v: _filled(v, of)
    match x:
        case Place():
            return of(x)
        case Text():
            return "".join(p if isinstance(p, str) else inside(p).shown() for p in x.parts)
        case tuple() if hasattr(x, "_fields"):
            return type(x)(*map(inside, x))
        case list() | tuple() | set() if type(x) in (list, tuple, set):
            return type(x)(map(inside, x))
        case dict() if type(x) is dict:
            return {k: inside(v) for k, v in x.items()}
    return over_fields(x, inside, frozen=False)


def with_lists(x: Any) -> Any:
    """What a script returns: lists for what loops have filled, nested in any way. Errors: ScriptError for a text that is not known."""
    if isinstance(x, Stacked):
        return list(x)
    if isinstance(x, Text):
        str(x)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*map(with_lists, x))
    if type(x) in (tuple, list):
        return type(x)(map(with_lists, x))
    if type(x) is dict:
        return {k: with_lists(v) for k, v in x.items()}
    return over_fields(x, with_lists, frozen=False)
