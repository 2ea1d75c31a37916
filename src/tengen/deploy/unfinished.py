"""Models that have given their first answer without a program of their own: who makes it later.

In: such models, with the paths of their files. Out: their programs, in the cache: made when they are called again, by
`wait_for_compilation`, or after this process has ended by the one that makes good code (`runtime/finishing.py`), which reads the files
again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import ref

from tengen.base.errors import TengenError
from tengen.runtime import cache, tiers
from tengen.runtime.workers import MUCH

if TYPE_CHECKING:
    from tengen.deploy.model import Model

    Read = Callable[[str], Model]

_models: dict[str, tuple[ref[Model], Read]] = {}  # by the path of the file


def add(path: str, model: Model, read: Read) -> None:
    """The program of a model is to be made later. read: reads its file."""
    _models[path] = ref(model), read


def discard(model: Model) -> None:
    """Its program is made now."""
    for path, (other, _) in list(_models.items()):
        if other() is model:
            _models.pop(path, None)


def make_all() -> None:
    """Makes the programs, also of models that nobody has any more: later processes need them."""
    while _models:
        path, (model, read) = _models.popitem()
        _make(path, read, model())


def leave() -> int:
    """Leaves the paths in the cache, for `make_left` of another process. Returns the characters of the texts that it will compile, at least."""
    for path in _models:
        cache.put(path, os.fsencode(path), cache.MODELS)
    return MUCH * len(_models)


def make_left(read: Read) -> None:
    """Makes the programs of all models that processes have left. A file that is gone or another is none of them any more."""
    for name in cache.names(cache.MODELS):
        data = cache.get_named(name)
        cache.discard_named(name)  # before: what kills this process kills no second one
        if data is not None:
            _make(os.fsdecode(data), read)


def _make(path: str, read: Read, model: Model | None = None) -> None:
    with contextlib.suppress(TengenError, OSError):  # who calls the model is told
        (model or read(path)).prepare()


tiers.outstanding.append(tiers.Outstanding(make_all, leave))
