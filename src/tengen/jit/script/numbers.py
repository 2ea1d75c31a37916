"""A number that a loop or a branch has changed: a tensor that takes the dtype of the others, as Python's numbers do.

``n += 1`` in a loop over tensors makes n a value of the program. It stays as weak as the int that it is in plain Python: an int64 or a
float64 with an operand dtype that is the other operand's, so the bits are those of plain Python.
"""

from __future__ import annotations

import operator
from typing import Any

from tengen.base.dtype import DType, bool_, float64, int64, promote_scalar
from tengen.base.errors import ScriptError, class_of_check, user_line
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor, tracing
from tengen.tensor.control import in_any_example
from tengen.tensor.tensor import number, tensor_over

NUMBERS = (bool, int, float)
DTYPES = {bool: bool_, int: int64, float: float64}


class Number(Tensor):
    """A weak tensor []."""

    @staticmethod
    def of(x: Any) -> Tensor:
        """A Python number or a tensor [] as a number; a bool as a tensor."""
        t = number(x, DTYPES[type(x)]) if not isinstance(x, Tensor) else x
        return t if t.dtype is bool_ else _weak(t)

    def beside(self, d: DType) -> Tensor:
        """What it is beside a tensor of this dtype."""
        return strong(self).astype(promote_scalar(d, 0.0 if self.dtype.is_float else 0))


def _weak(t: Tensor) -> Number:
    made = Number.__new__(Number)
    made._data, made._layout, made._node = t._data, t._layout, t._node
    return made


def strong(x: Any) -> Any:
    """A number as a plain tensor; anything else as it is."""
    if not isinstance(x, Number):
        return x
    t = tensor_over(x._data, x._layout)
    t._node = x._node
    return t


def resolved(args: list[Any]) -> list[Any]:
    """The operands of a call, numbers among them in the dtype that they have there."""
    if not any(isinstance(x, Number) for x in args):
        return args
    others = [x for x in args if isinstance(x, Tensor) and not isinstance(x, Number)]
    return [x.beside(others[0].dtype) if isinstance(x, Number) and others else strong(x) for x in args]


def _check(bad: Tensor, error: str, text: str) -> None:
    """The program raises this error where `bad` is true."""
    bad = in_any_example(bad)
    if tracing.recorder is not None:
        tracing.recorder.check(bad, error, text, user_line())
    elif bad.item():
        raise class_of_check(error)(text)


def _check_divisor(operation: str, a: Tensor, b: Tensor) -> None:
    """What Python raises where a number is divided by 0."""
    one, zero = (1.0 if x.dtype.is_float else 1 for x in (a, b))
    try:
        getattr(operator, operation)(one, zero * 0)
    except ZeroDivisionError as e:
        _check(strong(b) == 0, "ZeroDivisionError", str(e))


def _check_power(a: Tensor, b: Tensor, made: Tensor) -> None:
    """What Python raises for a power of floats, or makes a complex number of."""
    a, b, made = strong(a), strong(b), strong(made)
    _check(REGISTRY["logical_and"](a == 0, b < 0), "ZeroDivisionError", "0.0 cannot be raised to a negative power")
    is_complex = REGISTRY["logical_and"](a < 0, b != REGISTRY["floor"](b))
    _check(is_complex, "ValueError", "a negative number is raised to a fraction, which gives a complex number; help: complex tensors")
    finite = REGISTRY["logical_and"](REGISTRY["isfinite"](a), REGISTRY["isfinite"](b))
    _check(REGISTRY["logical_and"](finite, made.abs() == float("inf")), "OverflowError", "(34, 'Numerical result out of range')")


def to_int(x: Tensor) -> Tensor:
    """``int(x)`` of a tensor. The program raises what Python raises of NaN and inf, and an OverflowError where Python's int has more than 64
    bits."""
    t = strong(x).reshape(())
    if t.dtype.is_float:
        _check(REGISTRY["isnan"](t), "ValueError", "cannot convert float NaN to integer")
        _check(t.abs() == float("inf"), "OverflowError", "cannot convert float infinity to integer")
        _check(REGISTRY["logical_or"](t >= 2.0**63, t < -(2.0**63)), "OverflowError", "int() of a number beyond 64 bits; help: a float")
    return Number.of(t.astype(int64))


def _refuse(other: str) -> None:
    raise ScriptError(
        f"{user_line()}: a {other} and a number that a branch or a loop has set are combined; help: a number that is known when the script is "
        "recorded, or a tensor"
    )


def _operator(name: str) -> Any:
    plain = getattr(Tensor, name)
    operation = name.strip("_")
    operation = operation[1:] if name.startswith("__r") else operation

    def apply(self: Number, *others: Any) -> Any:
        other = others[0] if others else None
        if isinstance(other, Tensor) and not isinstance(other, Number):
            return plain(self.beside(other.dtype), other)
        if isinstance(other, (bool, int, float)):
            other = number(other, float64 if isinstance(other, float) or self.dtype.is_float else int64)
        if isinstance(other, (str, bytes, list, tuple)):
            return NotImplemented if operation in ("eq", "ne") else _refuse(type(other).__name__)
        a, b = (other, self) if name.startswith("__r") else (self, other)
        if isinstance(other, Tensor) and operation in ("truediv", "floordiv", "mod"):
            _check_divisor(operation, a, b)
        mine = strong(self)
        if "truediv" in name:
            mine, other = mine.astype(float64), strong(other).astype(float64)
        made = plain(mine, *([strong(other)] if others else []))
        if not isinstance(made, Tensor) or made.dtype is bool_:
            return made
        if operation == "pow" and made.dtype.is_float:
            _check_power(a, b, made)
        return _weak(made if made.dtype in (int64, float64) else made.astype(float64))

    apply.__name__ = name
    return apply


for _name in "add sub mul truediv floordiv mod pow lt le gt ge eq ne neg pos abs".split():
    for _full in (f"__{_name}__", f"__r{_name}__"):
        if hasattr(Tensor, _full):
            setattr(Number, _full, _operator(_full))
    if hasattr(Tensor, f"__i{_name}__"):
        setattr(Number, f"__i{_name}__", getattr(Number, f"__{_name}__"))  # it is another number, as in Python


def _no_key(self: Number) -> int:
    raise ScriptError(
        f"{user_line()}: a number that a branch or a loop has set is the key of a dict or an element of a set, and is known when the program "
        "runs; help: a list, of which it says the element, or a chain of ifs"
    )


def _divmod(self: Number, other: Any) -> tuple[Any, Any]:
    return self // other, self % other


Number.__hash__ = _no_key
Number.__divmod__ = _divmod
Number.__rdivmod__ = lambda self, other: (other // self, other % self)
