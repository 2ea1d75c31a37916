"""A number that a loop or a branch has changed: a tensor that takes the dtype of the others, as Python's numbers do.

``n += 1`` in a loop over tensors makes n a value of the program. It stays as weak as the int that it is in plain Python: an int64 or a
float64 with an operand dtype that is the other operand's, so the bits are those of plain Python.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tengen.base.dtype import DType, bool_, float64, int64, promote_scalar
from tengen.base.errors import ScriptError, class_of_check, user_line
from tengen.ops.define import REGISTRY
from tengen.tensor import Tensor, tracing
from tengen.tensor.control import in_any_example
from tengen.tensor.tensor import number, tensor_over

NUMBERS = (bool, int, float)
DTYPES = {bool: bool_, int: int64, float: float64}


LARGE = 2.0**62  # a wrapped integer is a multiple of 2^64 from what it should be, a float64 that stands for that less than 2^52
EXACT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # operations that may leave 64 bits, in float64
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "pow": operator.pow, "lshift": lambda a, b: a * 2.0**b,
    "neg": lambda a, _: -a, "abs": lambda a, _: abs(a),
}  # fmt: skip


class Number(Tensor):
    """A weak tensor []."""

    def __round__(self, digits: int | None = None) -> Tensor:
        if digits is None:
            return to_int(REGISTRY["round"](strong(self))) if self.dtype.is_float else self
        if not self.dtype.is_float and isinstance(digits, int) and digits >= 0:
            return self
        raise ScriptError(
            f"{user_line()}: round() to decimal digits of a number that the program has, which Python rounds by its digits; help: "
            "round(x * 100) / 100, or jit.ignore"
        )

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


def stepped(i: Any, step: Any) -> Any:
    """The number behind i in a range, which is no more than a step beyond the end: without the check that it has 64 bits."""
    return _weak(strong(i) + strong(step)) if isinstance(i, Number) else i + step


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


def _check_bits(operation: str, a: Tensor, b: Tensor, made: Tensor) -> None:
    """An error where an int is beyond 64 bits: plain Python's has more, the program's has wrapped."""
    if operation == "lshift":
        _check(b < 0, "ValueError", "negative shift count")
    if exact := EXACT.get(operation):
        off = exact(a.astype(float64), b.astype(float64)) - made.astype(float64)
        _check(REGISTRY["logical_not"](off.abs() < LARGE), "OverflowError", "an int beyond 64 bits; help: a float")


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
            if isinstance(other, int) and not -(2**63) <= other < 2**63:
                raise ScriptError(f"{user_line()}: an int beyond 64 bits beside a number that the program has; help: a float")
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
        if not isinstance(made, Tensor):
            return made
        if made.dtype is bool_:
            return Truth.of(made)
        if made.dtype is int64:
            _check_bits(operation, *(strong(a if isinstance(a, Tensor) else self), strong(b if isinstance(b, Tensor) else self)), made)
        if operation == "pow" and made.dtype.is_float:
            _check_power(a, b, made)
        return _weak(made if made.dtype in (int64, float64) else made.astype(float64))

    apply.__name__ = name
    return apply


class Truth(Tensor):
    """A bool of plain Python: in arithmetic with other numbers it is an int."""

    @staticmethod
    def of(x: Any) -> Any:
        """A bool[] as one; anything else as it is."""
        if not isinstance(x, Tensor) or x.dtype is not bool_:
            return x
        made = Truth.__new__(Truth)
        made._data, made._layout, made._node = x._data, x._layout, x._node
        return made


def _operator_of_truth(name: str) -> Any:
    plain, of_numbers = getattr(Tensor, name), getattr(Number, name)

    def apply(self: Truth, *others: Any) -> Any:
        if others and isinstance(others[0], Tensor) and not isinstance(others[0], (Number, Truth)):
            return plain(self, *others)
        return of_numbers(_weak(self.astype(int64)), *(_weak(x.astype(int64)) if isinstance(x, Truth) else x for x in others))

    return apply


ARITHMETIC = "add sub mul truediv floordiv mod pow neg pos abs lshift rshift".split()
for _name in [*ARITHMETIC, *"and or xor invert lt le gt ge eq ne".split()]:
    for _full in (f"__{_name}__", f"__r{_name}__"):
        if hasattr(Tensor, _full):
            setattr(Number, _full, _operator(_full))
            if _name in ARITHMETIC:
                setattr(Truth, _full, _operator_of_truth(_full))
    if hasattr(Tensor, f"__i{_name}__"):
        setattr(Number, f"__i{_name}__", getattr(Number, f"__{_name}__"))  # it is another number, as in Python
        if _name in ARITHMETIC:
            setattr(Truth, f"__i{_name}__", getattr(Truth, f"__{_name}__"))


def _no_key(self: Number) -> int:
    raise ScriptError(
        f"{user_line()}: a number that a branch or a loop has set is the key of a dict or an element of a set, and is known when the program "
        "runs; help: a list, of which it says the element, or a chain of ifs"
    )


Number.__hash__ = _no_key
