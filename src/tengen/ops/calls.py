"""How functions are called: what their signatures say, and the functions that users see, which are made from them.

In: plain functions with annotated parameters. Out: callables that hand an op's call over to `dispatch`, or that give a function
of the package its ints and shapes in plain form (`attributes.py`) and complete its errors with the user's line.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import copysign
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from tengen.base.arguments import FLAGS, check_flag
from tengen.base.device import Device
from tengen.base.errors import tell
from tengen.base.record import NamedTuple
from tengen.ops.attributes import Kind, kind

if TYPE_CHECKING:
    from tengen.ops.define import Op


Run = Callable[["Op", tuple, tuple], Any]  # op, operands, attributes -> results


class Dispatch:
    """What ops need of tensors, which stand on a floor above: `tensor/methods.py` owns these functions and installs them, once.
    Nobody else sets an attribute; `add_filter` puts a function before `run` and `slow` for a while.

    Attributes:
        run: runs, records or traces a call of an op. slow: the same without a look at the table of plans. tensor: a Tensor of
            whatever a user may pass for one, on a device if one is given. scalar: a number as a 0-d tensor of a dtype, on a device
            (None: the default one); a constant inside a trace. known: a tensor's values as a NumPy array; TraceError where only a
            run knows them. set_item: x[key] = value. by_mask: x[mask], or x with a value there, in a trace; None where what is selected
            must be counted.
    """

    run: Run
    slow: Run
    tensor: Callable[..., Any]
    scalar: Callable[..., Any]
    known: Callable[[Any], Any]
    set_item: Callable[[Any, Any, Any], None]
    by_mask: Callable[..., Any]

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._filters: dict[Callable[[Run], Run], int] = {}  # how often each was added, by all threads, and not yet removed

    def install(
        self,
        *,
        run: Run,
        slow: Run,
        tensor: Callable[..., Any],
        scalar: Callable[..., Any],
        known: Callable[[Any], Any],
        set_item: Callable[[Any, Any, Any], None],
        by_mask: Callable[..., Any],
    ) -> None:
        """Installs the functions. Errors: RuntimeError when they are there already."""
        if hasattr(self, "run"):
            raise RuntimeError("the functions that run ops are installed already, by tengen/tensor/methods.py")
        self.run, self.slow, self.tensor, self.scalar, self.known = run, slow, tensor, scalar, known
        self.set_item, self.by_mask = set_item, by_mask
        self._own = run, slow

    def add_filter(self, around: Callable[[Run], Run]) -> None:
        """Calls of all threads go to `around(run)` and `around(slow)` until `remove_filter` has been called as often as this. Of several
        filters the one that was added first is the innermost. While there is none, calls take no time for it."""
        with self._lock:
            self._filters[around] = self._filters.get(around, 0) + 1
            if self._filters[around] == 1:
                self._compose()

    def remove_filter(self, around: Callable[[Run], Run]) -> None:
        """Takes back one `add_filter`."""
        with self._lock:
            self._filters[around] -= 1
            if not self._filters[around]:
                del self._filters[around]
                self._compose()

    def _compose(self) -> None:
        run, slow = self._own
        for around in self._filters:
            run, slow = around(run), around(slow)
        self.run, self.slow = run, slow


dispatch = Dispatch()


class Parameter(NamedTuple):
    """What a signature says of one parameter. kind: "", "*" (several), "**" (named ones) or "named" (by its name alone). note: its
    annotation as text."""

    name: str
    kind: str
    default: Any
    note: str


_NONE = inspect.Parameter.empty


def signature_of(fn: Callable) -> list[Parameter]:
    """The parameters of a plain function; what `inspect.signature` says, which would take longer than all else that an op is. A function
    around another one that has its parameters says so by `body`."""
    fn = getattr(fn, "body", fn)
    code, notes = fn.__code__, fn.__annotations__
    names = code.co_varnames[: code.co_argcount]
    defaults = dict(zip(reversed(names), reversed(fn.__defaults__ or ())))
    named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    rest = iter(code.co_varnames[code.co_argcount + code.co_kwonlyargcount :])
    found = [(name, "", defaults.get(name, _NONE)) for name in names]
    found += [(next(rest), "*", _NONE)] if code.co_flags & inspect.CO_VARARGS else []
    found += [(name, "named", (fn.__kwdefaults__ or {}).get(name, _NONE)) for name in named]
    found += [(next(rest), "**", _NONE)] if code.co_flags & inspect.CO_VARKEYWORDS else []
    return [Parameter(name, kind, default, _text(notes.get(name, ""))) for name, kind, default in found]


def _text(note: Any) -> str:
    """An annotation as it was written, whether or not it was evaluated."""
    return note.__name__ if isinstance(note, type) else str(note).replace("collections.abc.", "").replace("typing.", "")


def tensors_and_attributes(
    parameters: Sequence[Parameter], kind: str
) -> tuple[tuple[str, ...], tuple[str, ...], bool, frozenset[str]]:
    tensors, attrs, variadic = [], [], False
    optional = set()
    for p in parameters:
        is_tensor = "Tensor" in p.note or (kind == "elementwise" and not p.note)
        variadic |= "list[Tensor]" in p.note or "Sequence[Tensor]" in p.note
        (tensors if is_tensor else attrs).append(p.name)
        if is_tensor and ("None" in p.note or "Optional" in p.note):
            optional.add(p.name)
    return tuple(tensors), tuple(attrs), variadic, frozenset(optional)


def negative_zero(a: Any) -> bool:
    """Whether a is -0.0, which equals 0.0 and is not the same."""
    return isinstance(a, float) and a == 0 and copysign(1.0, a) < 0


def odd_number(v: Any) -> bool:
    """Whether v equals a number as a key and is not the same: a bool or -0.0, or a tuple with one of them."""
    if isinstance(v, tuple):
        return any(map(odd_number, v))
    return v.__class__ is bool or negative_zero(v)


def odd_int(v: Any) -> bool:
    """Whether v, or an element of the tuple v, may equal an int as a key and is none: a bool, a float."""
    if isinstance(v, tuple):
        for d in v:
            if d.__class__ is not int and odd_int(d):
                return True
        return False
    return v.__class__ is bool or not (v is None or isinstance(v, (int, str, np.integer)))


def _odd(p: Parameter) -> str:
    """The condition, as text, under which a call goes the slow way, which checks its attributes, because this one may equal an attribute
    of another call without being the same: the table of plans would answer 1.0 and True with the plan of 1, and -0.0 with that of 0.0.
    "" where it cannot."""
    k = kind(p.note)
    if p.note in FLAGS or p.note == "Flag":
        return f"{p.name}.__class__ is not bool" + f" and {p.name} is not None" * (k is not None and k.none)
    if k is not None and k.counts and "Number" not in p.note:
        return f"{p.name}.__class__ is not int and {p.name} is not None and _odd_int({p.name})"
    return f"_odd_number({p.name})" if "float" in p.note or isinstance(p.default, float) else ""


# What PyTorch calls parameters -> what they are called here. An op's `aliases` are its own: MegEngine's, where they differ. "" is what
# changes no number here, and is accepted: `inplace`, `device` of functions whose operands have one.
SPELLINGS = {"dim": "axis", "keepdim": "keepdims", "start_dim": "start_axis", "end_dim": "end_axis", "p": "drop_prob"}


Alias = str | Callable[[Any, Any, str], Any]


def aliases_of(parameters: Sequence[Parameter], own: Mapping[str, Alias]) -> dict[str, Alias]:
    """Other names of a function's parameters: {another name: the parameter's}, and names of what is done with the result: {name: function of
    the result, of what was given, and of the function's name}. Functions that take any name have none, and those that take any number of
    arguments none of the latter."""
    names, kinds = {p.name for p in parameters}, {p.kind for p in parameters}
    if "**" in kinds:
        return {}
    given = {k: v for k, v in (SPELLINGS | dict(own)).items() if k not in names}
    return {other: name for other, name in given.items() if ("*" not in kinds if callable(name) else name in {*names, ""})}


_PLACES = ("device", "map_location")  # of the names that change nothing, those that a device must be


class _Absent:
    """What stands for an argument that was not given."""

    def __repr__(self) -> str:
        return "<not given>"


ABSENT: Any = _Absent()


def respelled(
    call: Callable, aliases: Mapping[str, Alias], given: dict[str, Any], other: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Any:
    """The call with its arguments under their own names. `given`: values of parameters; `other`: of their other names, None
    where one was not used.

    Errors: TypeError for an argument that is given twice or not at all, and for too many.
    """
    finish: list[tuple[Any, Any]] = []
    try:
        for name, value in other.items():
            if value is not None:
                if name == "_end":
                    if aliases.get("device") == "" and other["device"] is None and isinstance(value, (str, Device)):
                        Device.named(value)  # MegEngine's `copy(inp, device)`, where a device is the last parameter
                        continue
                    raise TypeError(f"{call.__name__}() takes {len(given)} arguments by their places, and more were given")
                own = aliases[name]
                if callable(own):
                    finish.append((own, value))
                    continue
                if not own:
                    if name in _PLACES and isinstance(value, (str, Device)):
                        Device.named(value)
                    continue
                if given[own] is not defaults[own]:
                    raise TypeError(f"{call.__name__}() got {own!r} twice, as {name!r} too")
                given[own] = value
        for name, value in given.items():
            if value is ABSENT:
                raise TypeError(f"{call.__name__}() misses the argument {name!r}")
    except TypeError as e:
        tell(e)
        raise
    made = call(**given)
    for done, value in finish:
        made = done(made, value, call.__name__)
    return made


def _default_dtypes(parameters: Sequence[Parameter]) -> list[str]:
    """The line of a generated function that makes a `dtype` of None the function's default, where that is another one."""
    some = any(p.name == "dtype" and p.default not in (None, _NONE) for p in parameters)
    return ["if dtype is None: dtype = _default_dtype"] * some


def make_call(op: Op, fn: Callable, parameters: Sequence[Parameter], aliases: Mapping[str, Alias] | None = None) -> Callable:
    """The user's function: binds arguments by a compiled signature (ten times faster than inspect.Signature.bind). A `dtype` of None
    is the op's default; what another attribute of None is may be a matter of the first operand (`Op.unsaid`). aliases: other names of
    parameters; those of the op unless they are given."""
    aliases = op.aliases if aliases is None else aliases

    def written() -> Callable:
        tensors = f"(*{op.tensors[0]},{','.join(op.tensors[1:])})" if op.variadic else f"({''.join(t + ',' for t in op.tensors)})"
        attrs = f"({''.join(a + ',' for a in op.attrs)})"
        odd = " or ".join(filter(None, [_odd(p) for p in parameters if p.name in op.attrs]))
        lines = _default_dtypes(parameters)
        for a, found in op.unsaid.items():
            x = op.tensors[0]
            scope[f"_unsaid_{a}"] = found
            lines.append(f"if {a} is None: {x} = _dispatch.tensor({x}); {a} = _unsaid_{a}(_op.name, {x})")
        run = f"(_dispatch.slow if {odd} else _dispatch.run)" if odd else "_dispatch.run"
        lines += [f"return {run}(_op, {tensors}, {attrs})"]  # one line, which tracebacks show as that of the definition
        scope.update(_op=op, _dispatch=dispatch, _odd_number=odd_number, _odd_int=odd_int)
        return _compiled(parameters, lines, scope, aliases_of(parameters, aliases))

    call, scope = _compiled_later(fn, written)
    call.__doc__, call.__wrapped__, call.__module__, call.op = fn.__doc__, fn, fn.__module__, op
    call.__name__ = call.__qualname__ = op.name
    call.aliases = aliases
    return call


_FIRST = (lambda *args, **kwargs: _first(*args, **kwargs)).__code__  # type: ignore[name-defined]  # noqa: F821  (a global of the function)


def _compiled_later(fn: Callable, written: Callable[[], Callable]) -> tuple[Any, dict[str, Any]]:
    """(a function, its globals). Its code is compiled when it is first called, since a process calls few of the functions that are
    there: the code and the defaults become those of what `written` returns.

    For tracebacks it stands where `fn` does, of which it is made. A search for the user's line passes over it, as its globals have no
    `__name__`.
    """

    def first(*args: Any, **kwargs: Any) -> Any:
        made, at = written(), getattr(fn, "__code__", None)
        code = made.__code__ if at is None else made.__code__.replace(co_filename=at.co_filename, co_firstlineno=at.co_firstlineno)
        # in this order: another thread may call it in between, and the code of a first call has no parameters for defaults
        call.__defaults__, call.__kwdefaults__ = made.__defaults__, made.__kwdefaults__
        call.__code__ = code
        return call(*args, **kwargs)

    scope: dict[str, Any] = {"_first": first}
    call = FunctionType(_FIRST, scope, "call")
    scope["call"] = call
    return call, scope


def _compiled(
    parameters: Sequence[Parameter], lines: Sequence[str], scope: dict[str, Any], aliases: Mapping[str, Alias] | None = None
) -> Callable:
    """A function with these parameters and lines, whose globals are `scope`. `aliases` are other names of some parameters, which may be
    given in their place: those are looked for under both names, and the arguments handed to the global `call`."""
    parts, star, absent = [], False, []
    for p in parameters:
        if p.kind == "named" and not star:
            parts.append("*")
        star = star or p.kind in ("named", "*")
        if aliases and p.default is _NONE and p.kind == "" and (absent or p.name in aliases.values()):
            absent.append(p.name)
            p = p._replace(default=ABSENT)
        scope[f"_default_{p.name}"] = p.default
        parts.append(("" if p.kind == "named" else p.kind) + p.name + ("" if p.default is _NONE else f"=_default_{p.name}"))
    if aliases:
        # not behind a "*": Python calls functions whose parameters all have places faster. One argument too many is `_end`
        others = [*([] if star else ["_end"]), *aliases]
        parts += [f"{other}=None" for other in others]
        own = [p.name for p in parameters if p.kind != "*"]
        scope |= {"_respelled": respelled, "_aliases": aliases, "_ABSENT": ABSENT}
        scope["_defaults"] = {n: scope[f"_default_{n}"] for n in own}
        test = " or ".join([*(f"{other} is not None" for other in others), *(f"{n} is _ABSENT" for n in absent)])
        values, more = ("{" + ", ".join(f"{n!r}: {n}" for n in names) + "}" for names in (own, others))
        lines = [f"if {test}: return _respelled(call, _aliases, {values}, {more}, _defaults)", *lines]
    made: dict[str, Any] = {}
    exec(_code("\n    ".join([f"def call({', '.join(parts)}):", *lines])), scope, made)
    return made["call"]


@functools.cache  # many ops have the same parameters
def _code(text: str) -> CodeType:
    return compile(text, __file__, "exec")


def with_line(fn: Callable, aliases: Mapping[str, Alias] | None = None) -> Callable:
    """The function, whose errors name the user's line, as those of ops do: for what checks its arguments before it calls ops.
    `aliases` are other names of its parameters. Its ints, shapes and axes may be whatever ops take for them: it gets them plain. A bool
    must be one (`check_flag`). A `dtype` of None is the function's default."""

    def written() -> Callable:
        parameters = signature_of(fn)
        given = [f"{p.name}={p.name}" if p.kind == "named" else p.kind + p.name for p in parameters]
        scope.update(_fn=fn, _tell=tell)
        lines = ["try:", *(f"    {line}" for line in _default_dtypes(parameters))]
        scope["_check_flag"] = check_flag
        for p in parameters:
            if p.note in FLAGS:
                none = f" and {p.name} is not None" * (p.note != "bool")
                lines.append(f"    if {p.name}.__class__ is not bool{none}: _check_flag({fn.__name__.rstrip('_')!r}, {p.name!r}, {p.name})")
        for p in parameters:
            k = kind(p.note) if p.kind in ("", "named") else None
            if k is not None and k.counts:
                scope[f"_types_{p.name}"] = k.simple
                scope[f"_plain_{p.name}"] = _plain_one(k, f"{fn.__name__.rstrip('_')}: {p.name}")
                lines.append(f"    if {p.name}.__class__ not in _types_{p.name}: {p.name} = _plain_{p.name}({p.name})")
        lines += [f"    return _fn({', '.join(given)})", "except Exception as e:", "    _tell(e)", "    raise"]
        return _compiled(parameters, lines, scope, aliases_of(parameters, aliases or {}))

    call, scope = _compiled_later(fn, written)
    call = functools.update_wrapper(call, fn)
    call.aliases = dict(aliases or {})
    return call


def _plain_one(k: Kind, name: str) -> Callable[[Any], Any]:
    flat = k.several is not None and k.several.several is None

    def plain(v: Any) -> Any:
        if flat and v.__class__ is tuple:  # as most are; ranges are looked at by the op that is called
            for d in v:
                if d.__class__ is not int:
                    break
            else:
                return v
        return k.plain(v, name, dispatch.known)

    return plain


def also_called(f: Callable, words: Iterable[tuple[str, Alias]]) -> Callable:
    """The function with further names of its parameters: those of `words`, pairs of another name and an own one, that fit it. Itself where
    none fits. For a function in the place of an own name see `aliases_of`."""
    fn = getattr(f, "__wrapped__", f)
    if not inspect.isfunction(fn) or not hasattr(f, "aliases"):
        return f
    parameters = signature_of(fn)
    names = {p.name for p in parameters}
    more: dict[str, Alias] = {}
    for other, own in words:
        if (callable(own) or own in names) and other not in names and other not in f.aliases:
            more.setdefault(other, own)
    if not more:
        return f
    aliases = {**f.aliases, **more}
    op = getattr(f, "op", None)
    if op is not None and op.kind != "shorthand":
        return make_call(op, fn, parameters, aliases)
    call = with_line(fn, aliases)
    if op is not None:
        call.op = op
    return call


def all_with_line(scope: dict[str, Any], names: Iterable[str], aliases: Mapping[str, Alias] | None = None) -> None:
    """`with_line` for the functions among a module's names that are written in it. aliases: other names of parameters of all of them."""
    for name in names:
        f = scope.get(name)  # an op's function stands in other modules, too, once it was asked for
        if inspect.isfunction(f) and f.__module__ == scope["__name__"] and not hasattr(f, "op"):
            scope[name] = with_line(f, {**(aliases or {}), **getattr(f, "aliases", {})})
