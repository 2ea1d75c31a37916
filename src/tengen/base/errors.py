"""Error classes, each also the builtin that a caller would expect to catch; and where in the user's code an error arose."""

from __future__ import annotations

import builtins
import os
import sys
import warnings
from types import FrameType
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(__file__))


def user_line() -> str | None:
    """The caller's "file:line" outside the package."""
    f: FrameType | None = sys._getframe(1)
    # code without a module's name is made by exec: an op's call
    while f is not None and (f.f_code.co_filename.startswith(PACKAGE) or "__name__" not in f.f_globals):
        f = f.f_back
    return f"{f.f_code.co_filename}:{f.f_lineno}" if f is not None else None


def told(e: Exception) -> tuple[str, str | None] | None:
    """The first text of an error and the user's line at which it arose, kept with it while it passes through calls that complete
    its message; None for one whose message is no text."""
    if isinstance(e, Undecided) or len(e.args) != 1 or not isinstance(e.args[0], str):
        return None
    if not hasattr(e, "_told"):
        e._told = (e.args[0], user_line())  # type: ignore[attr-defined]  # kept with the error
    return e._told  # type: ignore[attr-defined]  # kept with the error


def tell(e: Exception) -> None:
    """Adds the user's line to the message of an error of a function's arguments, unless an inner call has."""
    if hasattr(e, "_told") or not isinstance(e, (TengenError, TypeError, ValueError, IndexError, OverflowError)):
        return
    found = told(e)
    if found is not None and f"{found[1]}" not in found[0]:
        e.args = (f"{found[0]} [at {found[1]}]",)


warned: set[tuple] = set()  # what `warn_once` has said


def warn_once(text: str, category: type[Warning], of: str | None = None) -> None:
    """Warns at the user's line, the first time that this line is warned of this text (or of `of`, where texts differ)."""
    where = user_line() or "<unknown>:0"
    key = (of or text, category, where)
    if key in warned:
        return
    if len(warned) > 1000:  # a text may hold a number that differs each time
        warned.clear()
    warned.add(key)
    file, _, line = where.rpartition(":")
    warnings.warn_explicit(text, category, file, int(line))


def class_of_check(name: str) -> type[Exception]:
    """The error that a check of a graph raises: one of this file, or one of Python's."""
    return globals()[name] if name in globals() else getattr(builtins, name)


class TengenError(RuntimeError):
    """The base of every error that Tengen raises on purpose. As PyTorch's, all of them are RuntimeErrors; most are of a narrower kind of
    Python's, too."""


class ShapeError(TengenError, ValueError):
    """Shapes that do not fit an operation. The message names the op, its arguments and their types."""


class SizeError(ShapeError, MemoryError):
    """An extent that does not fit 63 bits, or more bytes than any machine has."""


class DTypeError(TengenError, TypeError):
    """A dtype that an operation does not take."""


class ArgumentError(TengenError, TypeError, ValueError):
    """Arguments of a kind that an operation does not take."""


class DeviceError(TengenError, ValueError):
    """A device that is not here, or tensors on several where an operation takes one."""


class DistributedError(TengenError):
    """More processes than there are, or a rank that is none of theirs."""


class LostRankError(DistributedError):
    """A process that others wait for has not come in time: it has stopped, or is gone."""


class AxisError(TengenError, IndexError, ValueError):
    """An axis outside the tensor's dimensions."""


class IndexOutOfRange(TengenError, IndexError):
    """An index outside the extent of its axis."""


class UnknownName(TengenError, KeyError):
    """A name that is missing, not known, or that cannot be one. Its text is shown as it is, where a KeyError shows the repr of a key."""

    __str__ = Exception.__str__


class NegativePower(TengenError, ValueError):
    """An integer raised to a negative integer."""


class LinAlgError(TengenError, ValueError):
    """A matrix that an operation of linear algebra cannot take: singular, or not positive definite. (NumPy's is a ValueError too.)"""


class CustomOpError(TengenError):
    """An operator of the user's own whose C function returned an error, or that was defined wrongly (see `tengen.custom_ops`)."""


class NonFiniteError(TengenError, FloatingPointError):
    """A NaN or an infinity that an operation makes, in a block of `debug.check_finite`."""


class GradientError(TengenError):
    """A gradient that was asked for and cannot be had."""


class TraceError(TengenError):
    """Something inside a trace that the recorded program could not repeat."""


class BudgetError(TengenError, MemoryError, ValueError):
    """A budget of memory that cannot be met. The message names the smallest that can."""


class ScriptError(SyntaxError, TengenError):  # whose text SyntaxError says
    """Something in a function that `jit.script` does not take: the message shows the line, and says what to write instead."""


class VmapError(TengenError):
    """What a function does cannot be done for all examples of a `vmap` at once."""


class TraceWarning(UserWarning):
    """What recording a trace did or read, and its runs will not: a value kept outside of it, a variable that it changed, a random
    number, the contents of an array; or that it is recorded again and again."""


class UsageWarning(UserWarning):
    """Something that is allowed, and most likely not what the program means: a step that updates nothing, a loss that no parameter
    has a part in, float64 data that makes a float32 network compute in float64."""


class DownloadError(TengenError, OSError):
    """A file that cannot be brought here, or is not the one that was meant."""


class HubError(TengenError, ValueError):
    """A folder without a hubconf.py, or a name that it does not offer."""


class FileFormatError(TengenError, ValueError):
    """A file that is not what it claims to be: truncated, damaged, or of another kind."""


class VerifyError(TengenError, ValueError):
    """An IR that breaks its own rules; a bug in a pass, a lowering or a parser's input."""


class CompileError(TengenError):
    """LLVM refused a module; the message names the kernel."""


class ConfigError(TengenError, ValueError):
    """A configuration value that cannot be used."""


class ScheduleError(TengenError, ValueError):
    """A schedule that is none, or that the kernel and the target cannot have."""


class Undecided(TengenError, TypeError):
    """A decision that depends on an extent which is only known when the program runs. Eager dispatch then specialises.

    Attributes:
        equal: two extents that have to be equal, where that is all that is not known. asked: the condition on extents, an expression,
            whose truth for the numbers at hand would be the answer; None where there is none.
    """

    def __init__(self, *args: object, equal: tuple | None = None, asked: Any = None):
        super().__init__(*args)
        self.equal, self.asked = equal, asked
