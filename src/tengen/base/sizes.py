"""Numbers of bytes as people write them: "400MB", "1.5 GiB", 4096.

In: ints and texts from users. Out: ints; and texts for messages.
"""

from __future__ import annotations

import re
from typing import Any

_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def byte_size(value: Any, what: str, kilo: int = 1000) -> int:
    """A size as a number of bytes.

    Args:
        value: an int, or a text: a number and a unit, B, bytes, KB, MB, GB, TB (powers of `kilo`) or KiB, MiB, GiB, TiB (powers of 1024).
        what: names it in an error.

    Errors: ValueError for anything else, and for less than 0.

    >>> byte_size("400MB", "budget"), byte_size("1.5 KiB", "budget"), byte_size(4096, "budget")
    (400000000, 1536, 4096)
    """
    if isinstance(value, str) and (found := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)(?:B|(?<![KMGTI])BYTES)?\s*", value.upper())):
        number, prefix, binary = found.groups()
        if prefix or not binary:
            return int(float(number) * (1024 if binary else kilo) ** _POWERS[prefix])
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError(f"{what}={value!r} is no size; help: a number of bytes, or a text as '400MB', '1.5GiB'")


def in_words(n: int) -> str:
    """Bytes for a message.

    >>> in_words(400), in_words(3 << 20)
    ('400 bytes', '3.00 MiB')
    """
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if n >= 1024**power:
            return f"{n / 1024**power:.2f} {unit}"
    return f"{n} bytes"
