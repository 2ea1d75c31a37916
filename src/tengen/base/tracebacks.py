"""What a user sees of an error that ends the program: their own lines, without Tengen's between them.

An error that Tengen raises on purpose names the call and what to do; how it came about inside of Tengen helps nobody who uses it. So
the hooks that print the errors of programs and threads leave Tengen's frames out, and say so; TENGEN_TRACEBACK=full shows them.
Errors of other kinds, which may be Tengen's own mistakes, are shown whole. IPython hides the same frames, and pytest is left alone.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tengen.base.config import config
from tengen.base.errors import PACKAGE, TengenError


def shortened(e: BaseException) -> int:
    """Leaves Tengen's frames out of the traceback of an error of Tengen's, and of those that caused it. Returns how many; 0 where
    none of the user's is left, or all are wanted."""
    left_out = 0
    seen: set[int] = set()
    todo: list[BaseException | None] = [e]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        todo += [one.__cause__, None if one.__suppress_context__ else one.__context__]
        if isinstance(one, TengenError) and config.traceback != "full":
            frames = []
            tb = one.__traceback__
            while tb is not None:
                frames.append(tb)
                tb = tb.tb_next
            users = [f for f in frames if not _ours(f)]
            if users:
                left_out += len(frames) - len(users)
                one.__traceback__ = _chained(users)
    return left_out


def _ours(tb: TracebackType) -> bool:
    code, scope = tb.tb_frame.f_code, tb.tb_frame.f_globals
    return code.co_filename.startswith(PACKAGE) or "__name__" not in scope


def _chained(frames: list[TracebackType]) -> TracebackType | None:
    made: TracebackType | None = None
    for f in reversed(frames):
        made = TracebackType(made, f.tb_frame, f.tb_lasti, f.tb_lineno)
    return made


def _told(show: Callable[[], Any], e: BaseException) -> None:
    """Shows an error, and says what was left out."""
    n = shortened(e) if isinstance(e, TengenError) else 0
    show()
    if n and sys.stderr is not None:
        print(f"({n} lines inside of tengen are not shown; TENGEN_TRACEBACK=full shows them)", file=sys.stderr)


def _program_ended(kind: type[BaseException], e: BaseException, tb: TracebackType | None) -> None:
    _told(lambda: sys.__excepthook__(kind, e, e.__traceback__), e)


def _thread_ended(args: Any) -> None:
    e = args.exc_value
    if e is None:
        threading.__excepthook__(args)
        return
    again = lambda: threading.ExceptHookArgs((args.exc_type, e, e.__traceback__, args.thread))
    _told(lambda: threading.__excepthook__(again()), e)


def install() -> None:
    """Puts the hooks in place, unless somebody else's are there."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _program_ended
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _thread_ended
