"""Python's cyclic garbage collector around work that makes many objects at once, most of which stay.

In: a block of such work. Out: the same, without the collector's looks at all objects that are there, again and again, while it makes them.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def young_objects() -> Iterator[None]:
    """The collector does not run in this block, which makes many objects and few cycles; what the block has made is then still
    young, and what of it is garbage is found without a look at all other objects of the process."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
