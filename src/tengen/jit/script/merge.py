"""Values of both branches become one: tensors and numbers become results of the branch, what is equal in both stays what it is.

In: what a variable is behind each of two branches. Out: a template of both, and the pairs of tensors that the branch returns.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from tengen.base.dtype import DType, bool_, float64
from tengen.base.errors import DTypeError, ScriptError, ShapeError
from tengen.base.record import record
from tengen.ir.types import TensorType
from tengen.jit.script.numbers import NUMBERS, Number, strong
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor
from tengen.tensor.structure import fields, over_fields, with_fields
from tengen.tensor.tensor import as_tensor


class _Unset:
    """What a variable is that has no value."""

    def __repr__(self) -> str:
        return "not set"


UNSET = _Unset()
OF_ITS_OWN = "of an object only one that stays the same; a NamedTuple, or a dataclass with frozen=True, may be another one"
Path = tuple[str, int, int]  # the name of a variable, and the lines that set it


def described(x: Any) -> str:
    """A value for a message."""
    if isinstance(x, Tensor):
        number = "a float" if x.dtype.is_float else "an int"
        return number if isinstance(x, Number) else f"a tensor {x._layout.type!r}"
    if x is None or x is UNSET or isinstance(x, NUMBERS) or (isinstance(x, str) and len(x) < 40):
        return repr(x)
    if isinstance(x, types.FunctionType):
        return f"the function {x.__name__}"
    return f"a {type(x).__name__} of {len(x)}" if isinstance(x, (tuple, list, dict)) else f"a {type(x).__name__}"


def zeros(t: TensorType) -> Tensor:
    """A tensor that stands where nothing is read."""
    return REGISTRY["broadcast_to"](Tensor(0, dtype=t.dtype), t.shape)


def same(a: Any, b: Any) -> bool:
    """Whether two values are one object, or equal plain values."""
    if a is b:
        return True
    if isinstance(a, (bool, int, float, str, bytes)):
        return type(a) is type(b) and repr(a) == repr(b)
    return False


@record
class Leaf:
    """A tensor of the branch: which of its results, and whether it is a number."""

    index: int
    number: bool


@record
class Merge:
    """Puts values together.

    Attributes:
        pairs: for each result of the branch a function of each side that makes it.
    """

    where: str  # "file:line" of the branch
    pairs: list[tuple[Callable[[], Tensor], Callable[[], Tensor]]] = field(default_factory=list)

    def both(self, a: Any, b: Any, name: str, lines: tuple[Any, Any]) -> Any:
        """The template of two values of a variable."""
        if same(a, b):
            return a
        if isinstance(a, (Tensor, *NUMBERS)) and isinstance(b, (Tensor, *NUMBERS)):
            return self._leaf(a, b, name, lines)
        if type(a) is type(b) and isinstance(a, (tuple, list)) and len(a) == len(b):
            parts = [self.both(x, y, f"{name}[{i}]", lines) for i, (x, y) in enumerate(zip(a, b))]
            return type(a)(*parts) if hasattr(a, "_fields") else type(a)(parts)
        if isinstance(a, dict) and isinstance(b, dict) and list(a) == list(b):
            return {k: self.both(a[k], b[k], f"{name}[{k!r}]", lines) for k in a}
        if type(a) is type(b) and (parts := fields(a)) and (others := fields(b)):
            return with_fields(type(a), ((n, self.both(v, others[n], f"{name}.{n}", lines)) for n, v in parts.items()))
        raise self._differ(ScriptError, described(a), described(b), name, lines)

    def either(self, a: Any, b: Any, name: str, lines: tuple[Any, Any]) -> Any:
        """The same of values of which one may be missing, and is then read by nobody."""
        if a is UNSET or b is UNSET:
            return self._beside(b, 1) if a is UNSET else self._beside(a, 0)
        return self.both(a, b, name, lines)

    def _beside(self, x: Any, side: int) -> Any:
        """The template of a value that one side has, and nobody reads of the other."""
        if isinstance(x, Tensor):
            mine, other = (lambda: strong(x)), (lambda: zeros(x._layout.type))
            return self._add(other if side else mine, mine if side else other, isinstance(x, Number))
        if isinstance(x, (tuple, list)):
            parts = [self._beside(v, side) for v in x]
            return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
        if isinstance(x, dict):
            return {k: self._beside(v, side) for k, v in x.items()}
        return over_fields(x, lambda v: self._beside(v, side))

    def _leaf(self, a: Any, b: Any, name: str, lines: tuple[Any, Any]) -> Leaf:
        weak = [not isinstance(x, Tensor) or isinstance(x, Number) for x in (a, b)]
        if all(weak):
            kinds = [x.dtype if isinstance(x, Tensor) else None for x in (a, b)]
            is_bool = [isinstance(x, bool) or k is bool_ for x, k in zip((a, b), kinds)]
            if all(is_bool):
                return self._add(lambda: as_tensor(a), lambda: as_tensor(b), False)
            if not any(is_bool) and len({_is_float(x) for x in (a, b)}) == 1:
                return self._add(lambda: strong(Number.of(a)), lambda: strong(Number.of(b)), True)
            raise self._differ(DTypeError, described(a), described(b), name, lines)
        types = [x._layout.type if isinstance(x, Tensor) and not w else None for x, w in zip((a, b), weak)]
        wanted = types[0] or types[1]
        assert wanted is not None
        for t, x in zip(types, (a, b)):
            if (
                (t is None and wanted.shape != ())
                or (t is None and not _fits(x, wanted.dtype))
                or (t is not None and t != wanted)
            ):
                shapes = [() if t is None else t.shape for t in types]
                raise self._differ(
                    ShapeError if shapes[0] != shapes[1] else DTypeError, described(a), described(b), name, lines
                )
        d = wanted.dtype
        return self._add(lambda: _cast(a, d), lambda: _cast(b, d), False)

    def _add(self, a: Callable[[], Tensor], b: Callable[[], Tensor], number: bool) -> Leaf:
        self.pairs.append((a, b))
        return Leaf(len(self.pairs) - 1, number)

    def _differ(self, kind: type[Exception], a: str, b: str, name: str, lines: tuple[Any, Any]) -> Exception:
        at = [f" (line {line})" if line else "" for line in lines]
        what = "what is returned" if name.startswith("return") else f"`{name}`"
        instead = "set it before the `if`, or cast one of them"
        if a == b:
            instead = OF_ITS_OWN
        if "None" in (a, b):
            instead = "a tensor of that type in the place of None, and a bool that says whether it is one"
        return kind(
            f"{self.where}: {what} is {a} where the condition is true{at[0]} and {b} where it is false{at[1]}; help: both branches of a "
            f"condition that is a tensor give the same structure, shapes and dtypes: {instead}"
        )


def _is_float(x: Any) -> bool:
    return isinstance(x, float) or (isinstance(x, Tensor) and x.dtype is float64)


def _fits(x: Any, d: DType) -> bool:
    """Whether a number takes a dtype without a change of kind."""
    if isinstance(x, bool) or (isinstance(x, Tensor) and x.dtype is bool_):
        return d is bool_
    return d.is_float or (d.is_int and not _is_float(x))


def _cast(x: Any, d: DType) -> Tensor:
    if isinstance(x, Tensor):
        return strong(x) if x.dtype is d else strong(x).astype(d)
    return Tensor(x, dtype=d)


def built(template: Any, made: Sequence[Tensor]) -> Any:
    """The value of a template, of the results of the branch."""
    match template:
        case Leaf(index, is_number):
            return Number.of(made[index]) if is_number else made[index]
        case tuple() | list():
            parts = [built(x, made) for x in template]
            return type(template)(*parts) if hasattr(template, "_fields") else type(template)(parts)
        case dict():
            return {k: built(v, made) for k, v in template.items()}
    return over_fields(template, lambda v: built(v, made))
