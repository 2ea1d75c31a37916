"""Records: dataclasses that cost little to define, and tuples with names that do.

`dataclasses.dataclass` compiles up to six methods of a class from text, and `typing.NamedTuple` the annotation of each field: together a
fifth of the instructions of `import tengen`. Of a record only `__init__` is compiled, when the first record of the class is made; its other
methods are functions over the names of its fields.
"""

from __future__ import annotations

import dataclasses
import operator
from collections import namedtuple
from collections.abc import Callable
from functools import cached_property
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as record
    from typing import NamedTuple as NamedTuple
else:

    class _TupleMeta(type):
        """Makes of the body of a class what `typing.NamedTuple` does."""

        def __new__(meta, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(meta, name, bases, body)
            names = body.pop("__annotations__", {})
            defaults = [body.pop(n) for n in names if n in body]
            made = namedtuple(name, names, defaults=defaults, module=body["__module__"])
            for key, value in body.items():
                if key not in ("__module__", "__qualname__", "__classcell__"):
                    setattr(made, key, value)
            made.__annotations__ = names
            return made

    class NamedTuple(metaclass=_TupleMeta):
        """`typing.NamedTuple`, whose annotations are left as they are written.

        >>> class Point(NamedTuple):
        ...     x: int
        ...     y: int = 0
        >>> Point(1), Point(1)._replace(y=2) == (1, 2)
        (Point(x=1, y=0), True)
        """

    def record(cls: type | None = None, /, *, eq: bool = True, repr: bool = True, frozen: bool = False, slots: bool = False) -> Any:
        """`dataclasses.dataclass` with these arguments: a class with the same methods, which `dataclasses.fields`, `replace` and `match` take
        for one.

        >>> @record(frozen=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(1) == Point(1, 0), Point(2)
        (True, Point(x=2, y=0))
        """
        make = lambda cls: _made(cls, eq, repr, frozen, slots)
        return make if cls is None else make(cls)


def _made(cls: Any, eq: bool, repr: bool, frozen: bool, slots: bool) -> Any:
    """The class with what a dataclass has, where it does not define that itself."""
    own = cls.__annotations__  # those of the class itself
    given = {name: vars(cls)[name] for name in own if name in vars(cls)}
    if slots:
        body = {k: v for k, v in vars(cls).items() if k not in own and k not in ("__dict__", "__weakref__")}
        cls = type(cls)(cls.__name__, cls.__bases__, {**body, "__slots__": tuple(own), "__qualname__": cls.__qualname__})
    else:
        for name, default in given.items():
            if isinstance(default, dataclasses.Field):
                if default.default is dataclasses.MISSING:
                    delattr(cls, name)
                else:
                    setattr(cls, name, default.default)
    form = _Form(cls, own, given, {"eq": eq, "repr": repr, "frozen": frozen})
    made: dict[str, Any] = {"__repr__": _repr(form)} if repr else {}
    made |= {"__eq__": _eq(form)} if eq else {}
    explicit_hash = vars(cls).get("__hash__") is not None
    if frozen:
        made |= {"__setattr__": _refusing(form, "assign to"), "__delattr__": _refusing(form, "delete")}
        if slots:
            made["__setstate__"] = _set_state
    for name, value in made.items():
        if name not in vars(cls):
            setattr(cls, name, value)
    if eq and not explicit_hash:
        cls.__hash__ = _hash(form) if frozen else None
    if "__init__" not in vars(cls):
        cls.__init__ = _FirstInit(form)
    cls.__record__ = form
    for name, later in _LATER.items():
        setattr(cls, name, later)
    return cls


class _Form:
    """What a record class is.

    Attributes: cls: the class. own: the annotations of its own fields, by name. given: what stands for them in the class. how: the arguments
        of `record`.
    """

    def __init__(self, cls: Any, own: dict[str, Any], given: dict[str, Any], how: dict[str, bool]):
        self.cls, self.own, self.given, self.how = cls, own, given, how

    @cached_property
    def fields(self) -> dict[str, dataclasses.Field]:
        """All fields in order, those of the classes that it derives from first."""
        found: dict[str, dataclasses.Field] = {}
        for base in self.cls.__mro__[:0:-1]:
            form = vars(base).get("__record__")
            found |= form.fields if form is not None else vars(base).get("__dataclass_fields__", {})
        for name, note in self.own.items():
            if not (isinstance(note, str) and note.startswith(("ClassVar", "typing.ClassVar"))):
                given = self.given.get(name, dataclasses.MISSING)
                f: Any = given if isinstance(given, dataclasses.Field) else dataclasses.field(default=given)
                f.name, f.type = name, note
                if f.default.__class__.__hash__ is None:
                    raise ValueError(f"mutable default {type(f.default)} for field {name} is not allowed: use default_factory")
                found[name] = f
        return found

    @cached_property
    def as_dataclass(self) -> Any:
        """A dataclass of the same fields, from which the module `dataclasses` learns them."""
        fields = self.fields
        body = {"__annotations__": {k: f.type for k, f in fields.items()}, "__doc__": "fields", **fields}
        return dataclasses.dataclass(init=False, repr=False, eq=False)(type(self.cls.__name__, (), body))

    @cached_property
    def compared(self) -> Callable[[Any], tuple]:
        """The values of a record that are compared."""
        names = [name for name, f in self.fields.items() if f.compare]
        if len(names) > 1:
            return operator.attrgetter(*names)
        return lambda x: tuple([getattr(x, name) for name in names])


class _Later:
    """An attribute of all record classes that is computed from the form of each."""

    def __init__(self, find: Callable[[_Form], Any]):
        self._find = find

    def __get__(self, _: Any, cls: Any) -> Any:
        return self._find(cls.__record__)


def _parameters(form: _Form) -> Any:
    made: Any = dataclasses.dataclass(**form.how)(type("", (), {"__doc__": "arguments"}))
    return made.__dataclass_params__


_LATER = {
    "__dataclass_fields__": _Later(lambda form: form.as_dataclass.__dataclass_fields__),
    "__dataclass_params__": _Later(_parameters),
    "__match_args__": _Later(lambda form: tuple([name for name, f in form.fields.items() if f.init and f.kw_only is not True])),
}


def _repr(form: _Form) -> Callable[[Any], str]:
    @recursive_repr("...")
    def __repr__(self: Any) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name, f in form.fields.items() if f.repr]
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

    return __repr__


def _eq(form: _Form) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:
        return form.compared(self) == form.compared(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(form: _Form) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(form.compared(self))

    return __hash__


def _refusing(form: _Form, what: str) -> Callable:
    """A `__setattr__` or `__delattr__` of a frozen record."""

    def refuse(self: Any, name: str, *value: Any) -> None:
        if type(self) is form.cls or name in form.fields:
            raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")
        (object.__setattr__ if value else object.__delattr__)(self, name, *value)

    return refuse


def _set_state(self: Any, state: Any) -> None:
    """Unpickles a frozen record with slots."""
    for values in state if isinstance(state, tuple) else (state,):  # of `__dict__`, and of slots
        for name, value in (values or {}).items():
            object.__setattr__(self, name, value)


class _FirstInit:
    """An `__init__` that puts a compiled one in its place when somebody asks for it: to make a record, or to see what it takes."""

    def __init__(self, form: _Form):
        self._form = form

    def __get__(self, made: Any, cls: Any) -> Any:
        form = self._form
        if vars(form.cls)["__init__"] is self:
            form.cls.__init__ = _compiled_init(form)
        return vars(form.cls)["__init__"].__get__(made, cls)


class _Factory:
    """What stands for a default that is made anew for each record."""

    def __repr__(self) -> str:
        return "<factory>"


def _compiled_init(form: _Form) -> Callable:
    """The `__init__` of the fields of a class: defaults and what makes them anew are globals of it, under the numbers of the fields."""
    scope: dict[str, Any] = {"__name__": form.cls.__module__, "__set": object.__setattr__, "__new": _Factory()}
    parameters, named, lines = ["self"], ["*"], []
    for i, (name, f) in enumerate(form.fields.items()):
        value = name
        default = ""
        if f.default_factory is not dataclasses.MISSING:
            scope[f"__new_{i}"], default = f.default_factory, "=__new"
            value = f"__new_{i}() if {name} is __new else {name}" if f.init else f"__new_{i}()"
        elif f.default is not dataclasses.MISSING:
            scope[f"__default_{i}"], default = f.default, f"=__default_{i}"
            value = name if f.init else f"__default_{i}"
        elif not f.init:
            continue
        if f.init:
            (named if f.kw_only is True else parameters).append(name + default)
        lines.append(f"__set(self, {name!r}, {value})" if form.how["frozen"] else f"self.{name} = {value}")
    if hasattr(form.cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters += named if len(named) > 1 else []
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"]), scope)
    made = scope["__init__"]
    made.__qualname__ = f"{form.cls.__qualname__}.__init__"
    made.__annotations__ = {name: f.type for name, f in form.fields.items() if f.init} | {"return": None}
    return made
