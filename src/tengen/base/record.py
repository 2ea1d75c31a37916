"""Records: dataclasses whose methods are written when the first record of their class is made.

`dataclasses.dataclass` compiles up to six methods of a class from text, which took a quarter of the time of `import tengen`; of most
classes a process makes no record. `record` takes the same arguments and means the same.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

_completing = threading.RLock()  # two threads may make the first record of a class at once
_OWN = frozenset({"__dict__", "__weakref__", "__slots__", "__doc__", "__init__", "__setstate__", "_complete"})

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(cls: type | None = None, /, slots: bool = False, **how: bool) -> Any:
        """`dataclasses.dataclass(cls, slots=slots, **how)`, in force from the first record on, whether it is made or unpickled.

        >>> @record(frozen=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(1) == Point(1, 0), Point(2)
        (True, Point(x=2, y=0))
        """
        return _deferred(cls, slots, how) if cls is not None else lambda cls: _deferred(cls, slots, how)


def _deferred(cls: Any, slots: bool, how: dict[str, bool]) -> Any:
    """The class with an `__init__` and a `__setstate__` that complete it first."""
    defaults: dict[str, Any] = {}
    if slots:
        fields = tuple(cls.__annotations__)  # its own; Python 3.14 makes them when they are asked for
        defaults = {name: vars(cls)[name] for name in fields if name in vars(cls)}
        kept = {k: v for k, v in vars(cls).items() if k not in defaults and k not in ("__dict__", "__weakref__")}
        cls = type(cls)(cls.__name__, cls.__bases__, {**kept, "__slots__": fields, "__qualname__": cls.__qualname__})

    def complete() -> None:
        with _completing:
            if "_complete" in vars(cls):
                for base in cls.__mro__[:0:-1]:  # a dataclass looks at the fields of those that it derives from
                    if "_complete" in vars(base):
                        base._complete()
                _complete(cls, defaults, how)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        complete()
        cls.__init__(self, *args, **kwargs)

    def __setstate__(self: Any, state: Any) -> None:
        complete()
        for values in state if isinstance(state, tuple) else (state,):  # of `__dict__`, and of slots
            for name, value in (values or {}).items():
                object.__setattr__(self, name, value)

    cls._complete, cls.__init__, cls.__setstate__ = staticmethod(complete), __init__, __setstate__
    return cls


def _complete(cls: Any, defaults: dict[str, Any], how: dict[str, bool]) -> None:
    """Gives the class what `dataclass` makes of a copy of it, `__init__` last: other threads never see a class without one."""
    slots = vars(cls).get("__slots__", ())
    body = {k: v for k, v in vars(cls).items() if k not in _OWN and k not in slots}
    body["__doc__"] = "a copy"  # else `dataclass` would write one
    copy = dataclass(type(cls)(cls.__name__, cls.__bases__, body | defaults), **how)
    for name in body.keys() - vars(copy).keys():  # the `field` of a default that is made anew for each record
        delattr(cls, name)
    for name, value in vars(copy).items():
        if name not in _OWN and name not in slots and (name not in vars(cls) or vars(cls)[name] is not value):
            setattr(cls, name, value)
    cls.__init__ = copy.__init__
    del cls.__setstate__, cls._complete
