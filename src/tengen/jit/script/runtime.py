"""What the code of a script calls: `__script__` in it is this module.

`fn(f)` is what is called in place of a function: a function of the user's as it is recorded, a built-in one that means something for
tensors too, anything else as it is.
"""

from __future__ import annotations

import builtins
import functools
import operator
import random
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tengen.base.dtype import bool_, float64
from tengen.base.errors import ScriptError, TraceError, user_line
from tengen.base.users import is_users
from tengen.jit.script.aliases import twins
from tengen.jit.script.checks import error
from tengen.jit.script.checks import exception as exception_of
from tengen.jit.script.convert import NoSource, converted, is_converted
from tengen.jit.script.flow import after, choose, for_, if_, value, while_
from tengen.jit.script.lanes import Stacked, backwards, counted, enumerated, mapped_over, unknown, zipped
from tengen.jit.script.lanes import pieces as pieces_of
from tengen.jit.script.liveness import MUTATORS
from tengen.jit.script.numbers import Number, Truth, resolved, strong, to_int
from tengen.jit.script.python_calls import printed
from tengen.jit.script.signals import BREAK, NEXT, returned
from tengen.jit.script.texts import Text, formatted, joined, modulo, shown, text
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor, tracing
from tengen.tensor.control import decision
from tengen.tensor.structure import fields

__all__ = [
    "BREAK", "NEXT", "after", "and_", "at", "augmented", "chain", "choose", "element", "error", "exception", "fn", "for_", "if_", "in_",
    "is_", "known", "matched", "matching", "method", "modulo", "not_", "or_", "own", "owner", "pieces", "put_back", "returned", "text",
    "value", "while_",
]  # fmt: skip

REGIONS = frozenset({"cond", "scan", "while_loop"})
DRAWING = (random.Random, np.random.RandomState, np.random.Generator)


# ---- expressions -----------------------------------------------------------------------------------------------------


def and_(a: Any, b: Callable[[], Any], simple: bool) -> Any:
    """``a and b()``. simple: b has no effect, and no error, where a is false."""
    if not unknown(a):
        return a and b()
    if simple and unknown(other := b()) and _is_bool(a) and _is_bool(other):
        return REGISTRY["logical_and"].call(a, other)
    return choose(a, b, lambda: a, "the value of `and`")


def or_(a: Any, b: Callable[[], Any], simple: bool) -> Any:
    """``a or b()``."""
    if not unknown(a):
        return a or b()
    if simple and unknown(other := b()) and _is_bool(a) and _is_bool(other):
        return REGISTRY["logical_or"].call(a, other)
    return choose(a, lambda: a, b, "the value of `or`")


def _is_bool(x: Tensor) -> bool:
    return x.dtype is bool_ and x.ndim == 0


def not_(a: Any) -> Any:
    """``not a``"""
    return Truth.of(REGISTRY["logical_not"].call(decision("what `not` is asked of", a))) if unknown(a) else not a


def chain(a: Any, b: Any, compares: tuple[Callable, ...], rest: tuple[Callable, ...]) -> Any:
    """``a < b < rest[0]() < ...``"""
    made = compares[0](a, b)
    if len(compares) == 1:
        return made
    return and_(made, lambda: chain(b, rest[0](), compares[1:], rest[1:]), False)


def owner(x: Any) -> Any:
    """What an attribute or an element is set of. Errors: ScriptError inside of a region, unless it is a tensor."""
    if not isinstance(x, Tensor):
        _refuse_in_region(f"a {type(x).__name__} is changed")
    return x


def own(x: Any) -> Any:
    """What an element of a variable of the function is set of. Errors: ScriptError for a list or dict that may be one with another one."""
    if type(x) in (list, dict):
        twins().changes(x)
    return x


_SET_BEHIND = "keep the value in a local variable, and set it behind the `if` or the loop"
_DRAWN = "tengen.random, or a function with jit.ignore, which draws in every run"


def _refuse_in_region(what: str, instead: str = _SET_BEHIND) -> None:
    recorder = tracing.recorder
    if recorder is not None and recorder.of_a_body:
        raise ScriptError(
            f"{user_line()}: {what} where a condition is a tensor, or in a loop over tensors, and the program cannot do that; help: {instead}"
        )


def at(x: Any, i: Any) -> Any:
    """``x[i]``: an element of a list or a tuple, of which a tensor may say which."""
    if type(x) not in (list, tuple) or not unknown(i):
        return x[i]
    types_ = {v._layout.type if isinstance(v, Tensor) else type(v) for v in x}
    if len(types_) != 1 or not all(isinstance(v, (Tensor, int, float)) for v in x):
        have = ", ".join(sorted(map(repr, types_))) or "nothing"
        raise ScriptError(
            f"{user_line()}: a tensor says which element of a {type(x).__name__} is read, which has {have}; help: elements of one type, "
            "or a chain of ifs"
        )
    numbers = not isinstance(x[0], Tensor) or any(isinstance(v, Number) for v in x)
    found = REGISTRY["stack"].call([strong(v) if isinstance(v, Tensor) else strong(Number.of(v)) for v in x])[strong(i)]
    return Number.of(found) if numbers else found


def is_(a: Any, b: Any) -> bool:
    """``a is b``. Errors: ScriptError of two tensors of which a branch or a loop has made one: it may stand for the other, as values decide."""
    if a is not b and unknown(a) and unknown(b) and not (isinstance(a, Number) or isinstance(b, Number)):
        recorder = tracing.recorder
        for v in (a._data, b._data):
            in_a_body = recorder is not None and recorder.of_a_body and getattr(v, "node", a) is None
            if in_a_body or getattr(getattr(v, "node", None), "op", "") in REGIONS:
                raise ScriptError(
                    f"{user_line()}: whether two tensors are one is asked, and one of them comes from a branch or a loop, which makes another "
                    "tensor whatever it stands for; help: a bool that says so, set where the tensor is"
                )
    return a is b


def in_(a: Any, b: Any) -> Any:
    """``a in b``, where a tensor may be a or an element of b."""
    if type(b) not in (list, tuple, set) or not (unknown(a) or any(map(unknown, b))):
        return a in b
    return _BUILTIN[any]([x == a for x in b])


def known(condition: Any, of: str = "comprehension") -> Any:
    """The condition of a comprehension, of `filter`, or of a case of `match`."""
    if unknown(condition):
        what, instead = _DECIDED[of]
        raise ScriptError(f"{user_line()}: a tensor decides {what}; help: {instead}")
    return condition


_DECIDED = {
    "comprehension": (
        "which elements a comprehension has, or filter() gives, and so how many",
        "F.where and a sum of what counts, or a mask, as x[mask] outside of the script",
    ),
    "case": ("whether a case of match is taken", "an `if` inside of the case, or if, elif and else in place of match"),
}


def augmented(x: Any, name: str, operator_: str, other: Callable[[], Any]) -> None:
    """``x.name += other()`` and its like: a tensor is changed in place, in a region, too."""
    old = getattr(x, name)
    new = getattr(operator, operator_)(old, other())
    setattr(x if new is old else owner(x), name, new)


class _Absent:
    """Stands for an element that is no list yet, or in another kind of dict: it is looked for when something is appended."""

    def __init__(self, x: Any, keys: tuple):
        self.x, self.keys = x, keys

    def append(self, value: Any) -> None:
        found = functools.reduce(operator.getitem, self.keys, self.x)
        _refuse_in_region(f"a {type(found).__name__} in a {type(self.x).__name__} is changed")
        found.append(value)


def element(x: Any, keys: tuple) -> Any:
    """What a loop appends to in place of ``x[keys[0]][keys[1]]...``."""
    found = x
    for k in keys:
        is_there = k in found if type(found) is dict else type(found) in (list, tuple) and isinstance(k, int) and -len(found) <= k < len(found)
        if not is_there:
            return _Absent(x, keys)
        found = found[k]
    return found if type(found) is list or isinstance(found, Stacked) else _Absent(x, keys)


def put_back(filled: Any, x: Any, keys: tuple) -> None:
    """The element is what a loop has filled in its place."""
    if isinstance(filled, Stacked):
        functools.reduce(operator.getitem, keys[:-1], x)[keys[-1]] = filled


def matched(x: Any) -> Any:
    """What `match` looks at. Errors: ScriptError for what Python's patterns take for something else: numbers, bools and texts of the program,
    and lists that a loop has filled."""
    if isinstance(x, Stacked):
        return list(x)
    todo = [x]
    while todo:
        v = todo.pop()
        is_bool = unknown(v) and v.dtype is bool_ and not v.ndim  # in plain Python it may be a bool
        if is_bool or isinstance(v, (Number, Stacked, Text)):
            kinds = {Number: "a number that a branch or a loop has set", Text: "a text with the value of a tensor", Stacked: "a filled list"}
            what = kinds.get(type(v), "a bool that a tensor decides")
            raise ScriptError(f"{user_line()}: match looks at {what}, which is known when the program runs; help: if, elif and else")
        todo += v.values() if type(v) is dict else v if isinstance(v, (list, tuple)) else fields(v, frozen=False).values()
    return x


class matching:
    """Around a `match`. Errors: ScriptError where a pattern is compared with a tensor."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, e: Any, _: Any) -> None:
        if isinstance(e, TraceError) and not isinstance(e, ScriptError):
            raise ScriptError(
                f"{user_line()}: a pattern of match is compared with a tensor, whose value is known when the program runs; help: if, elif and "
                "else, which are branches of the program"
            ) from None


# ---- calls -----------------------------------------------------------------------------------------------------------


def fn(f: Any) -> Any:
    """What is called in place of f."""
    if isinstance(f, types.FunctionType):
        return _function(f)
    if isinstance(getattr(f, "__self__", None), DRAWING):
        _refuse_in_region(f"{f.__name__}() of Python's or NumPy's random numbers gives one number, when the script is recorded", _DRAWN)
    if isinstance(f, types.MethodType):
        return _method(f)
    if isinstance(f, types.BuiltinFunctionType) and isinstance(f.__self__, (list, dict, set)) and f.__name__ in MUTATORS:
        _refuse_in_region(f"a {type(f.__self__).__name__} that is no local variable is changed")
    if isinstance(f, types.BuiltinFunctionType) and isinstance(f.__self__, str) and f.__name__ in _OF_TEXTS:
        return functools.partial(_OF_TEXTS[f.__name__], f.__self__)
    if isinstance(f, functools.partial):
        return functools.partial(fn(f.func), *f.args, **f.keywords)
    try:
        known = _BUILTIN.get(f)
    except TypeError:  # it has no hash
        return f
    if known is not None:
        return known
    call = vars(type(f)).get("__call__")
    if isinstance(call, types.FunctionType) and not isinstance(f, type) and is_users(call.__code__.co_filename):
        return types.MethodType(_function(call), f)
    return f


def method(f: Any) -> Any:
    """The same for a method of a local variable, which may change it."""
    if isinstance(f, types.BuiltinFunctionType):
        own(f.__self__)
        return f
    return fn(f)


def _function(f: types.FunctionType) -> Callable:
    if is_converted(f):
        return f
    if f.__code__.co_filename.startswith("<") or not is_users(f.__code__.co_filename):
        return _of_library(f)
    if f.__name__ == "<lambda>":
        return f
    try:
        return converted(f, sys.modules[__name__])
    except NoSource:
        return f


def _method(f: types.MethodType) -> Callable:
    if isinstance(f.__func__, types.FunctionType) and is_users(f.__func__.__code__.co_filename):
        return types.MethodType(_function(f.__func__), f.__self__)
    if f.__func__ is Tensor.item and unknown(f.__self__):
        return functools.partial(_item, f.__self__)
    return _of_library(f) if isinstance(f.__self__, Tensor) else f


def _of_library(f: Callable) -> Callable:
    """A function of a library, with numbers and lists of the program as it knows them."""

    @functools.wraps(f, updated=())
    def call(*args: Any, **keywords: Any) -> Any:
        if args and isinstance(args[0], Stacked) and f in (REGISTRY["stack"].call, REGISTRY["concat"].call):
            return getattr(args[0], "stack" if f is REGISTRY["stack"].call else "concat")(*args[1:], **keywords)
        if any(isinstance(x, (Number, Stacked)) for x in (*args, *keywords.values())):
            given = resolved([list(x) if isinstance(x, Stacked) else x for x in (*args, *keywords.values())])
            args, keywords = tuple(given[: len(args)]), dict(zip(keywords, given[len(args) :]))
        return f(*map(_given, args), **{k: _given(x) for k, x in keywords.items()})

    return call


def _given(x: Any) -> Any:
    """An argument of a library's function: a user's function is the one that is recorded (`autodiff.grad(f)`)."""
    return fn(x) if type(x) in (types.FunctionType, types.MethodType) else x


def pieces(f: Any) -> Any:
    """What is called where a loop goes over the result: pieces of a tensor stay one tensor."""
    owner_, name = getattr(f, "__self__", None), getattr(f, "__name__", "")
    if tracing.recorder is None:
        return fn(f)
    if isinstance(owner_, Tensor) and name == "split":
        return lambda *args, **keywords: _split(f, owner_, *args, **keywords)
    if f is REGISTRY["split"].call:
        return _parts
    return fn(f)


def _split(f: Callable, x: Tensor, *args: Any, **keywords: Any) -> Any:
    size = args[0] if args else keywords.get("split_size_or_sections")
    if isinstance(size, int) and size > 0 and len(args) <= 2 and x.ndim:
        axis = args[1] if len(args) > 1 else keywords.get("dim", keywords.get("axis", 0))
        if isinstance(axis, int) and -x.ndim <= axis < x.ndim and (made := pieces_of(x, size, axis)) is not None:
            return made
    return f(*args, **keywords)


def _parts(inp: Any, nsplits_or_sections: Any, axis: int = 0) -> Any:
    n = inp.shape[axis] if isinstance(inp, Tensor) and -inp.ndim <= axis < inp.ndim else None
    if (
        isinstance(nsplits_or_sections, int)
        and isinstance(n, int)
        and nsplits_or_sections > 0
        and n % nsplits_or_sections == 0
        and n
    ):
        return pieces_of(inp, n // nsplits_or_sections, axis)
    return REGISTRY["split"].call(inp, nsplits_or_sections, axis)


def _item(x: Tensor) -> Any:
    """``x.item()``: the number that the program has."""
    if x.dtype.is_complex:
        raise ScriptError(f"{user_line()}: item() of {x._layout.type!r}, which is no number of a script; help: the tensor itself")
    return _to_bool(x) if x.dtype is bool_ else _to_float(x) if x.dtype.is_float else _to_int(x)


def _to_int(*args: Any, **keywords: Any) -> Any:
    return to_int(args[0]) if args and unknown(args[0]) else int(*args, **keywords)


def _to_float(*args: Any) -> Any:
    return Number.of(strong(args[0]).reshape(()).astype(float64)) if args and unknown(args[0]) else float(*args)


def _to_bool(*args: Any) -> Any:
    return Truth.of(decision("what bool() is asked of", args[0])) if args and unknown(args[0]) else bool(*args)


def _to_str(*args: Any, **keywords: Any) -> Any:
    return shown(args[0], ord("s")) if len(args) == 1 and not keywords else str(*args, **keywords)


def _extreme(f: Callable, better: Callable[[Any, Any], Any]) -> Callable:
    def call(*args: Any, key: Any = None, **keywords: Any) -> Any:
        xs = list(args) if len(args) > 1 else list(args[0]) if args else []
        keys = xs if key is None else list(map(fn(key), xs))
        if not xs or not any(map(unknown, keys)):
            return xs[f(range(len(xs)), key=keys.__getitem__)] if xs else f(xs, **keywords)
        best, most = xs[0], keys[0]
        for x, k in zip(xs[1:], keys[1:]):
            test, what = better(k, most), f"the value of {f.__name__}()"
            best = choose(test, lambda x=x: x, lambda best=best: best, what)
            most = best if keys is xs else choose(test, lambda k=k: k, lambda most=most: most, what)
        return best

    return call


def exception(f: Any, source: str) -> Any:
    """What is called in place of f in ``raise f(...)``."""
    return exception_of(f, source) if isinstance(f, type) and issubclass(f, BaseException) else fn(f)


def _over_all(f: Callable, together: Callable[[Any, Callable[[], Any], bool], Any]) -> Callable:
    """`any` and `all`: of tensors, a bool of the program."""

    def call(xs: Any) -> Any:
        xs = list(xs)
        if not any(map(unknown, xs)):
            return f(xs)
        made = _to_bool(xs[0])
        for x in xs[1:]:
            made = together(made, lambda x=x: _to_bool(x), True)
        return made

    return call


def _sorted(xs: Any, /, *, key: Any = None, reverse: bool = False) -> list:
    xs = list(xs)
    keys = xs if key is None else list(map(fn(key), xs))
    if any(map(unknown, keys)):
        raise ScriptError(
            f"{user_line()}: sorted() by tensors, whose order is known when the program runs; help: F.sort, F.argsort or F.topk of the "
            "F.stack of them"
        )
    return [xs[i] for i in sorted(range(len(xs)), key=keys.__getitem__, reverse=reverse)]


def _filter(f: Any, xs: Any) -> Any:
    condition = fn(f) if f is not None else lambda x: x
    return (x for x in iter(xs) if known(condition(x)))


def _reduce(f: Any, *args: Any) -> Any:
    return functools.reduce(fn(f), *args)


def _isinstance(x: Any, kinds: Any) -> bool:
    return issubclass(_type(x), kinds) if isinstance(x, (Number, Truth)) else isinstance(x, kinds)


def _type(*args: Any) -> Any:
    """`type`: a number of the program is a bool, an int or a float, as it is in plain Python."""
    if len(args) != 1 or not isinstance(args[0], (Number, Truth)):
        return type(*args)
    return bool if isinstance(args[0], Truth) else float if args[0].dtype.is_float else int


def _setattr(x: Any, name: str, value: Any) -> None:
    setattr(owner(x), name, value)


def _delattr(x: Any, name: str) -> None:
    delattr(owner(x), name)


def _len(x: Any) -> Any:
    """`len`: of a tensor or a list that a loop has filled, an extent that may be open."""
    return x.shape[0] if unknown(x) and x.ndim else x.length() if isinstance(x, Stacked) else len(x)


def _list(*args: Any) -> Any:
    return list(args[0]) if args and isinstance(args[0], Stacked) else list(*args)


def _refused(name: str) -> Callable:
    def call(*_: Any, **__: Any) -> Any:
        raise ScriptError(
            f"{user_line()}: {name}() is not a part of script, whose code is another than the one that is read; help: jit.ignore"
        )

    return call


_OF_TEXTS: dict[str, Callable] = {"format": formatted, "join": joined}
_BUILTIN: dict[Any, Callable] = {
    range: counted, enumerate: enumerated, zip: zipped, reversed: backwards, int: _to_int, float: _to_float, bool: _to_bool, list: _list,
    len: _len, any: _over_all(any, or_), all: _over_all(all, and_), str: _to_str, print: printed,
    map: lambda f, *xs: mapped_over(fn(f), *xs), filter: _filter, sorted: _sorted, functools.reduce: _reduce,
    repr: lambda x: shown(x, ord("r")), ascii: lambda x: shown(x, ord("a")), format: lambda x, spec="": shown(x, -1, spec),
    isinstance: _isinstance, type: _type, setattr: _setattr, delattr: _delattr,
    max: _extreme(max, lambda a, b: a > b), min: _extreme(min, lambda a, b: a < b),
    **{getattr(builtins, name): _refused(name) for name in ("locals", "eval", "exec", "globals", "input", "breakpoint")},
}  # fmt: skip
