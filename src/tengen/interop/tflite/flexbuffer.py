"""The options of custom operators: a FlexBuffer whose root is a map of numbers and texts.

Every offset is looked at before it is followed; what is no number and no text is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tengen.base.errors import FileFormatError

MAP = 9
MOST_OPTIONS = 1000
INLINE = {1: "i", 2: "u", 3: "f", 26: "b"}  # the types that lie in place; 6, 7 and 8 are the same behind an offset
BEHIND = {6: "i", 7: "u", 8: "f"}
TEXTS = (4, 5)


class Flex:
    """Reads one."""

    def __init__(self, data: bytes):
        self.data = data

    def number(self, kind: str, at: int, width: int) -> Any:
        """A number of a width in bytes. Errors: FileFormatError where none lies."""
        if at < 0 or at + width > len(self.data) or width not in ((4, 8) if kind == "f" else (1, 2, 4, 8)):
            raise FileFormatError(f"options of an operator: a number of {width} bytes at byte {at} of {len(self.data)}")
        return np.frombuffer(self.data, f"<{'u' if kind == 'b' else kind}{width}", 1, at)[0].item()

    def behind(self, at: int, width: int) -> int:
        """Where an offset leads, which is always back."""
        return at - self.number("u", at, width)

    def text(self, at: int) -> str:
        """A text that ends with a zero byte."""
        end = self.data.find(b"\0", max(at, 0))
        if at < 0 or end < 0:
            raise FileFormatError("options of an operator: a name without an end")
        return self.data[at:end].decode("utf-8", "surrogateescape")


def flat_map(data: bytes) -> dict[str, Any]:
    """The numbers and texts of a map, by name.

    Errors: FileFormatError for anything that is no such map.
    """
    f = Flex(data)
    if len(data) < 3:
        raise FileFormatError(f"options of an operator are {len(data)} bytes long")
    width, kind = data[-1], data[-2]
    if kind >> 2 != MAP:
        raise FileFormatError(f"options of an operator are no map but of type {kind >> 2}")
    each = 1 << (kind & 3)
    start = f.behind(len(data) - 2 - width, width)
    count = f.number("u", start - each, each)
    keys, key_width = f.behind(start - 3 * each, each), f.number("u", start - 2 * each, each)
    if count > MOST_OPTIONS:
        raise FileFormatError(f"{count} options of an operator")
    found: dict[str, Any] = {}
    for i in range(count):
        name = f.text(f.behind(keys + i * key_width, key_width))
        packed, at = f.number("u", start + count * each + i, 1), start + i * each
        of, own = packed >> 2, 1 << (packed & 3)
        if of in INLINE:
            value = f.number(INLINE[of], at, each)
            found[name] = bool(value) if of == 26 else value
        elif of in BEHIND:
            found[name] = f.number(BEHIND[of], f.behind(at, each), own)
        elif of in TEXTS:
            found[name] = f.text(f.behind(at, each))
    return found
