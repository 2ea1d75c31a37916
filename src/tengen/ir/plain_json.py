"""JSON from files of strangers: read strictly, in time and memory that are proportional to the file.

In: text. Out: plain Python data, or a FileFormatError. Two bytes of JSON can ask for a hundred of memory (``{},{},...``), so the
text is weighed before anything is made of it. Writers weigh what they write, so that it is read again.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable
from typing import Any, NoReturn

from tengen.base.errors import FileFormatError

DIGITS = 20  # of an integer
FLOAT_DIGITS = 400  # characters of any other number
OVERHEAD = 40 << 20  # bytes of memory beyond the texts themselves, for any file; and a quarter of its size

# a string, to its end or that of the text; and what makes it a key. Possessive: no text makes it go back
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:("\s*+:)|"|\\?\Z)', re.DOTALL)
_WIDE = re.compile(r'"[^"\\]*+(?:\\[^u][^"\\]*+)*+\\u', re.DOTALL)  # a string, to its first escape of a character by number
_COSTS = {"{": 128, "[": 96, ",": 40}  # bytes that an object, a list, and one more value take in CPython, about
_TEXT, _PAIR = 56, 48  # beside its characters, and beside its key and value
LIGHT = OVERHEAD // max(_COSTS.values())  # characters of a text that no values make too heavy


def _fail(message: str) -> NoReturn:
    raise FileFormatError(message)


def weigh(text: str, size: int | None = None) -> int:
    """How many pairs of keys and values stand in a JSON text.

    Args:
        size: bytes of the file that the text is in; default: of the text.
    Errors: FileFormatError where reading it would take memory out of proportion to the file. It is found before the memory is
        taken, and in time proportional to the limit.
    """
    left = OVERHEAD + max(size or 0, len(text)) // 4
    pairs = at = 0
    keys: set[str] = set()
    for m in _STRING.finditer(text):
        begin, end = m.span()
        left -= _between(text, at, begin)
        left -= 0 if end - begin < 100 else _widened(text, begin, end)
        at = end
        if m[1] is None:
            left -= _TEXT
        else:
            pairs += 1
            left -= _PAIR
            if m[0] not in keys:  # a key that comes again is the same object
                left -= _TEXT
                keys.add(m[0])
        if left < 0:
            break
    if left < _between(text, at, len(text)):
        _fail(
            f"a text of {len(text)} characters holds too many values for a file of {max(size or 0, len(text))} bytes; "
            "help: many numbers are kept in an array, and long texts in ASCII"
        )
    return pairs


def _between(text: str, begin: int, end: int) -> int:
    """Bytes that what stands between two strings takes."""
    return _cost(text[begin:end]) if end - begin < 16 else sum([text.count(c, begin, end) * n for c, n in _COSTS.items()])


@functools.lru_cache(1024)
def _cost(text: str) -> int:
    """Of a few characters: the same ones stand between most strings of a text."""
    return sum(text.count(c) * n for c, n in _COSTS.items())


def _widened(text: str, begin: int, end: int) -> int:
    """Bytes that a string takes beyond its text: one character that needs four bytes makes all take four."""
    if text.find("\\u", begin, end) < 0 or _WIDE.match(text, begin, end) is None:  # the search is quick, and finds few
        return 0
    escapes = text.count("\\u", begin, end) - text.count("\\\\u", begin, end)  # at least so many
    return max(0, 4 * (end - begin - 5 * max(0, escapes)) - (end - begin))


def _integer(text: str) -> int:
    if len(text) > DIGITS:
        _fail(f"the integer {text[:DIGITS]}... is too large")
    return int(text)


def _float(text: str) -> float:
    if len(text) > FLOAT_DIGITS or not math.isfinite(x := float(text)):
        _fail(f"the number {text[:DIGITS]}... is too large, or too long")
    return x


def load_json(text: object, size: int | None = None, what: str = "the JSON") -> Any:
    """JSON without duplicate keys, NaN, huge numbers, nesting that endangers the stack, or more values than a file of this size
    may hold (see `weigh`). FileFormatError, which begins with `what` it is, otherwise."""
    try:
        return _load(text, size)
    except FileFormatError as e:
        raise FileFormatError(f"{what}: {e}") from None


def _load(text: object, size: int | None) -> Any:
    if not isinstance(text, str):
        _fail(f"expected text, got {type(text).__name__}")
    heavy = len(text) > LIGHT
    pairs, found = weigh(text, size) if heavy else 0, 0

    def count(x: dict) -> dict:
        nonlocal found
        found += len(x)
        return x

    def distinct(x: list[tuple[str, Any]]) -> dict:
        nonlocal found
        made = dict(x)
        found += len(made) - len(x)
        return made

    objects: dict[str, Callable] = {"object_hook": count} if heavy else {"object_pairs_hook": distinct}  # the quicker one takes memory
    try:
        data = json.loads(
            text, parse_int=_integer, parse_float=_float, parse_constant=lambda name: _fail(f"{name} is not JSON"), **objects
        )
    except RecursionError:
        _fail("nested too deeply")
    except json.JSONDecodeError as e:
        _fail(f"line {e.lineno}, column {e.colno}: {e.msg}")
    if found != pairs:
        _fail("a key stands twice in one object")
    return data


def depth(data: Any) -> int:
    """How deeply lists and objects are nested; what is in none has depth 1."""
    levels, level = 0, [data]
    while level:
        levels += 1
        level = [y for x in level if isinstance(x, (dict, list)) for y in (x.values() if isinstance(x, dict) else x)]
    return levels
